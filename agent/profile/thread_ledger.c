// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/thread_ledger.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/profile/builder_internal.h"

enum place {
	PLACE_USER,
	PLACE_KERNEL,
	PLACE_RUNQUEUE,
	PLACE_PREEMPTED,
	PLACE_STOLEN,
	PLACE_BLOCKED
};

/* One sample reduced to what the ledger sorts by. */
struct item {
	uint32_t process, tid, wait, name;
	enum place place;
	int64_t ns;
};

static bool is_stolen(const struct profile *p, const struct profile_sample *s)
{
	const struct profile_frame *frame = &p->frames[p->nodes[s->node].frame];

	return s->node && frame->kind == PROFILE_FRAME_MARKER &&
	       !strcmp(profile_string(p, p->functions[frame->function].name), PROFILE_STOLEN);
}

static enum place place_of(const struct profile *p, const struct profile_sample *s)
{
	const char *state = profile_string(p, p->attrs[s->attrs].state);

	if (!strcmp(state, "blocked"))
		return PLACE_BLOCKED;
	if (!strcmp(state, "runqueue"))
		return PLACE_RUNQUEUE;
	if (!strcmp(state, "preempted"))
		return is_stolen(p, s) ? PLACE_STOLEN : PLACE_PREEMPTED;
	if (s->node && p->frames[p->nodes[s->node].frame].kind == PROFILE_FRAME_KERNEL)
		return PLACE_KERNEL;
	return PLACE_USER;
}

static int by_thread(const void *left, const void *right)
{
	const struct item *a = left, *b = right;

	if (a->process != b->process)
		return a->process < b->process ? -1 : 1;
	if (a->tid != b->tid)
		return a->tid < b->tid ? -1 : 1;
	return (a->wait > b->wait) - (a->wait < b->wait);
}

static void add_wait(struct thread_ledger *ledger, struct ledger_thread *thread,
		     const struct item *item)
{
	struct ledger_wait *last =
		thread->wait_count ? &ledger->waits[ledger->wait_count - 1] : NULL;

	if (!last || last->wait != item->wait) {
		if (!thread->wait_count)
			thread->wait_first = ledger->wait_count;
		thread->wait_count++;
		last = &ledger->waits[ledger->wait_count++];
		*last = (struct ledger_wait){ .wait = item->wait };
	}
	last->ns = profile_add(last->ns, item->ns);
}

static void add_item(struct thread_ledger *ledger, const struct item *item)
{
	struct ledger_thread *thread =
		ledger->thread_count ? &ledger->threads[ledger->thread_count - 1] : NULL;
	int64_t *sum;

	if (!thread || thread->process != item->process || thread->tid != item->tid) {
		thread = &ledger->threads[ledger->thread_count++];
		*thread = (struct ledger_thread){ .process = item->process,
						  .tid = item->tid,
						  .name = item->name };
	}
	thread->elapsed_ns = profile_add(thread->elapsed_ns, item->ns);
	switch (item->place) {
	case PLACE_BLOCKED:
		add_wait(ledger, thread, item);
		return;
	case PLACE_RUNQUEUE:
		sum = &thread->runqueue_ns;
		break;
	case PLACE_STOLEN:
		thread->stolen_ns = profile_add(thread->stolen_ns, item->ns);
		sum = &thread->preempted_ns;
		break;
	case PLACE_PREEMPTED:
		sum = &thread->preempted_ns;
		break;
	case PLACE_KERNEL:
		sum = &thread->kernel_ns;
		break;
	default:
		sum = &thread->user_ns;
	}
	*sum = profile_add(*sum, item->ns);
}

int thread_ledger_init(struct thread_ledger *ret, const struct profile *p)
{
	struct thread_ledger ledger = { 0 };
	cleanup_free struct item *items = NULL;
	uint32_t i;

	if (p->meta.type != PROFILE_WALL)
		return -EINVAL;
	items = calloc((size_t)p->sample_count + 1, sizeof(*items));
	ledger.threads = calloc((size_t)p->sample_count + 1, sizeof(*ledger.threads));
	ledger.waits = calloc((size_t)p->sample_count + 1, sizeof(*ledger.waits));
	if (!items || !ledger.threads || !ledger.waits) {
		thread_ledger_deinit(&ledger);
		return -ENOMEM;
	}
	for (i = 0; i < p->sample_count; i++) {
		const struct profile_sample *s = &p->samples[i];
		const struct profile_attrs *a = &p->attrs[s->attrs];
		enum place place = place_of(p, s);

		items[i] = (struct item){ .process = a->process,
					  .tid = a->tid,
					  .wait = place == PLACE_BLOCKED ? a->wait : 0,
					  .name = a->thread_name,
					  .place = place,
					  .ns = s->values[0] };
	}
	qsort(items, p->sample_count, sizeof(*items), by_thread);
	for (i = 0; i < p->sample_count; i++)
		add_item(&ledger, &items[i]);
	*ret = ledger;
	return 0;
}

void thread_ledger_deinit(struct thread_ledger *ledger)
{
	free(ledger->threads);
	free(ledger->waits);
	*ledger = (struct thread_ledger){ 0 };
}
