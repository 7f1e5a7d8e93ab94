// SPDX-License-Identifier: Apache-2.0
#include "agent/recording/thread_lives.h"

/* Readings must cover so much of a thread's time to stand for it: of a session that runs there are
 * none of its end. */
#define COVERED_MIN 0.9

void thread_lives_deinit(struct thread_lives *lives)
{
	thread_life_vec_deinit(&lives->lives);
	thread_newest_vec_deinit(&lives->newest);
	u64map_deinit(&lives->at);
}

bool thread_lives_find(const struct thread_lives *lives, uint32_t pid, uint32_t tid,
		       size_t *ret_thread)
{
	uint64_t at;

	if (!u64map_get(&lives->at, (uint64_t)pid << 32 | tid, &at))
		return false;
	*ret_thread = (size_t)at;
	return true;
}

static int add_thread(struct thread_lives *lives, uint32_t pid, uint32_t tid)
{
	int rc = thread_newest_vec_reserve(&lives->newest, lives->newest.count + 1);

	if (rc == 0)
		rc = u64map_put(&lives->at, (uint64_t)pid << 32 | tid, lives->newest.count);
	if (rc == 0)
		lives->newest.data[lives->newest.count++] = 0;
	return rc;
}

int thread_lives_read(struct thread_lives *lives, uint32_t pid, uint32_t tid,
		      const struct thread_reading *reading, size_t *ret_thread)
{
	size_t thread = lives->newest.count;
	struct thread_life *life;
	uint32_t *newest;
	bool taken;
	int rc = 0;

	if (!thread_lives_find(lives, pid, tid, &thread))
		rc = add_thread(lives, pid, tid);
	if (rc < 0)
		return rc;
	newest = &lives->newest.data[thread];
	life = *newest ? &lives->lives.data[*newest - 1] : NULL;
	taken = life && life->first.start_ns == reading->start_ns && life->last.ends && pid == tid;
	if (!life || life->first.start_ns != reading->start_ns || taken) {
		struct thread_life begun = { .next = *newest, .first = *reading, .last = *reading };

		if (taken)
			begun.taken_ns = life->last.time_ns;
		rc = thread_life_vec_push(&lives->lives, begun);
		if (rc < 0)
			return rc;
		*newest = (uint32_t)lives->lives.count;
	} else if (!life->last.ends && (!lives->until_ns || life->last.time_ns < lives->until_ns)) {
		life->last = *reading;
	}
	*ret_thread = thread;
	return 0;
}

/* 1: @ret holds something; 0: the life is outside; -1: the readings do not tell. */
static int part_of(const struct thread_life *life, uint64_t from_ns, uint64_t to_ns,
		   struct thread_part *ret)
{
	const struct thread_reading *last = &life->last;
	struct thread_reading first = life->first;
	const uint64_t begin_ns = life->taken_ns ? life->taken_ns : first.start_ns;

	ret->has_run = begin_ns >= from_ns || (last->ends && last->time_ns < to_ns);
	if (begin_ns >= from_ns) {
		from_ns = begin_ns;
		if (!life->taken_ns)
			first = (struct thread_reading){ .time_ns = from_ns };
	}
	if (last->ends && last->time_ns < to_ns)
		to_ns = last->time_ns;
	if (to_ns <= from_ns)
		return 0;
	if (last->time_ns <= first.time_ns)
		return -1;
	ret->span_ns = to_ns - from_ns;
	ret->between_ns = last->time_ns - first.time_ns;
	for (unsigned i = 0; i < THREAD_COUNTS_MAX; i++) {
		if (last->counts[i] < first.counts[i])
			return -1;
		ret->counts[i] = last->counts[i] - first.counts[i];
	}
	return (double)ret->between_ns < COVERED_MIN * (double)ret->span_ns ? -1 : 1;
}

bool thread_lives_span(const struct thread_lives *lives, size_t thread, uint64_t from_ns,
		       uint64_t to_ns, thread_part_fn *add, void *ctx)
{
	struct thread_part part;
	int rc = 0;

	for (uint32_t at = lives->newest.data[thread]; at && rc >= 0;
	     at = lives->lives.data[at - 1].next) {
		rc = part_of(&lives->lives.data[at - 1], from_ns, to_ns, &part);
		if (rc > 0)
			add(ctx, &part);
	}
	return rc >= 0;
}
