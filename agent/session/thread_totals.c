// SPDX-License-Identifier: Apache-2.0
#include "agent/session/thread_totals.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "agent/base/u64map.h"
#include "agent/base/vec.h"

/* Exact samples and the kernel's sums differ by clocks and ticks, not by more. */
#define DRIFT_MAX 0.05
/* So many samples may be missing by chance where one was due. */
#define CHANCE_MAX 4
/* Readings must cover so much of a thread's time to stand for it. */
#define COVERED_MIN 0.9

/* One life of a thread id. */
struct life {
	uint32_t next; /* of the same thread, index + 1, 0 = none */
	struct thread_reading first, last;
};
VEC_DEFINE(lives, struct life);

struct class_sum {
	double exact_ns, sampled_ns;
	double samples;
	double due_ns; /* by the readings */
	double exact_factor, sampled_factor;
	double rest_ns;
};

struct thread {
	uint32_t life; /* newest, index + 1 */
	bool known;
	struct class_sum classes[THREAD_CLASS_MAX];
};
VEC_DEFINE(threads, struct thread);

struct thread_totals {
	struct lives_vec lives;
	struct threads_vec threads;
	struct u64map at; /* pid << 32 | tid -> index of threads */
	uint64_t from_ns, to_ns;
	double largest_ns[THREAD_CLASS_MAX]; /* sample that stands for others, of all threads */
};

struct thread_totals *thread_totals_create(void)
{
	return calloc(1, sizeof(struct thread_totals));
}

void thread_totals_destroy(struct thread_totals *totals)
{
	if (!totals)
		return;
	lives_vec_deinit(&totals->lives);
	threads_vec_deinit(&totals->threads);
	u64map_deinit(&totals->at);
	free(totals);
}

static struct thread *find(const struct thread_totals *totals, uint32_t pid, uint32_t tid)
{
	uint64_t at;

	if (!u64map_get(&totals->at, (uint64_t)pid << 32 | tid, &at))
		return NULL;
	return &totals->threads.data[at];
}

/* ---- readings -------------------------------------------------------------------------------- */

static int add_life(struct thread_totals *totals, struct thread *thread,
		    const struct thread_reading *reading)
{
	struct life life = { .next = thread->life, .first = *reading, .last = *reading };
	int rc = lives_vec_push(&totals->lives, life);

	if (rc == 0)
		thread->life = (uint32_t)totals->lives.count;
	return rc;
}

int thread_totals_read(struct thread_totals *totals, uint32_t pid, uint32_t tid,
		       const struct thread_reading *reading)
{
	struct thread *thread = find(totals, pid, tid);
	struct life *life;
	int rc;

	if (!thread) {
		rc = threads_vec_push(&totals->threads, (struct thread){ 0 });
		if (rc == 0)
			rc = u64map_put(&totals->at, (uint64_t)pid << 32 | tid,
					totals->threads.count - 1);
		if (rc < 0)
			return rc;
		thread = &totals->threads.data[totals->threads.count - 1];
	}
	life = thread->life ? &totals->lives.data[thread->life - 1] : NULL;
	if (!life || life->first.start_ns != reading->start_ns)
		return add_life(totals, thread, reading);
	if (!life->last.ends)
		life->last = *reading;
	return 0;
}

/* ---- samples --------------------------------------------------------------------------------- */

void thread_totals_add(struct thread_totals *totals, uint32_t pid, uint32_t tid,
		       enum thread_class class, bool exact, int64_t value)
{
	struct thread *thread = find(totals, pid, tid);
	struct class_sum *sum = thread ? &thread->classes[class] : NULL;

	if (!sum)
		return;
	if (exact) {
		sum->exact_ns += (double)value;
		return;
	}
	sum->sampled_ns += (double)value;
	sum->samples++;
	totals->largest_ns[class] = fmax(totals->largest_ns[class], (double)value);
}

/* ---- settling -------------------------------------------------------------------------------- */

/* Adds what the thread did in this life within the span; false: the readings do not tell. */
static bool add_due(const struct thread_totals *totals, struct life *life, double due_ns[])
{
	uint64_t from_ns = totals->from_ns, to_ns = totals->to_ns;
	struct thread_reading *first = &life->first;
	const struct thread_reading *last = &life->last;
	double spent, between, scale, cpu, waits;

	if (first->start_ns >= from_ns) { /* it began inside */
		from_ns = first->start_ns;
		*first = (struct thread_reading){ .time_ns = from_ns, .start_ns = from_ns };
	}
	if (last->ends && last->time_ns < to_ns)
		to_ns = last->time_ns;
	if (to_ns <= from_ns)
		return true;
	spent = (double)(to_ns - from_ns);
	if (last->time_ns <= first->time_ns || last->cpu_ns < first->cpu_ns ||
	    last->waits_ns < first->waits_ns)
		return false;
	between = (double)(last->time_ns - first->time_ns);
	if (between < COVERED_MIN * spent)
		return false;
	cpu = (double)(last->cpu_ns - first->cpu_ns);
	waits = (double)(last->waits_ns - first->waits_ns);
	/* a counter may be a tick behind at one end */
	scale = spent / fmax(between, cpu + waits);
	due_ns[THREAD_ON_CPU] += cpu * scale;
	due_ns[THREAD_WAITS] += waits * scale;
	due_ns[THREAD_BLOCKED] += spent - (cpu + waits) * scale;
	return true;
}

/* The sampled part takes up what its number allows it to be off; what is left after that is either a
 * difference of clocks or chance, spread over all, or time that no sample saw. */
static void settle_class(struct class_sum *sum, double largest_ns)
{
	double all, spread;

	sum->exact_factor = sum->sampled_factor = 1;
	if (sum->sampled_ns > 0) {
		spread = fmin(4 / sqrt(sum->samples), 1);
		sum->sampled_factor = (sum->due_ns - sum->exact_ns) / sum->sampled_ns;
		sum->sampled_factor = fmax(sum->sampled_factor, 1 - spread);
		/* few samples of many short ones say where, not how long */
		if (sum->exact_ns > 0)
			sum->sampled_factor = fmin(sum->sampled_factor, 1 + 4 * spread);
	}
	all = sum->exact_ns + sum->sampled_ns * sum->sampled_factor;
	if (all > 0 && sum->due_ns - all <= fmax(all * DRIFT_MAX, CHANCE_MAX * largest_ns)) {
		sum->exact_factor *= sum->due_ns / all;
		sum->sampled_factor *= sum->due_ns / all;
		all = sum->due_ns;
	}
	sum->rest_ns = sum->due_ns - all;
}

static void settle(const struct thread_totals *totals, struct thread *thread, bool on_cpu)
{
	double due_ns[THREAD_CLASS_MAX] = { 0 };

	thread->known = true;
	for (uint32_t at = thread->life; at && thread->known;) {
		struct life *life = &totals->lives.data[at - 1];

		thread->known = add_due(totals, life, due_ns);
		at = life->next;
	}
	for (int class = on_cpu ? 0 : THREAD_WAITS; class < THREAD_CLASS_MAX && thread->known; class ++) {
		thread->classes[class].due_ns = due_ns[class];
		settle_class(&thread->classes[class], totals->largest_ns[class]);
	}
}

void thread_totals_settle(struct thread_totals *totals, uint64_t from_ns, uint64_t to_ns, bool on_cpu)
{
	totals->from_ns = from_ns;
	totals->to_ns = to_ns;
	for (size_t i = 0; i < totals->threads.count; i++)
		settle(totals, &totals->threads.data[i], on_cpu);
}

int64_t thread_totals_scale(const struct thread_totals *totals, uint32_t pid, uint32_t tid,
			    enum thread_class class, bool exact, int64_t value)
{
	const struct thread *thread = find(totals, pid, tid);
	const struct class_sum *sum = thread ? &thread->classes[class] : NULL;

	if (!sum || !thread->known)
		return value;
	return llround((double)value * (exact ? sum->exact_factor : sum->sampled_factor));
}

int64_t thread_totals_take_rest(struct thread_totals *totals, uint32_t pid, uint32_t tid,
				enum thread_class class)
{
	struct thread *thread = find(totals, pid, tid);
	int64_t rest_ns;

	if (!thread || !thread->known)
		return 0;
	rest_ns = llround(thread->classes[class].rest_ns);
	thread->classes[class].rest_ns = 0;
	return rest_ns;
}
