// SPDX-License-Identifier: Apache-2.0
#include "agent/recording/thread_totals.h"

#include <math.h>
#include <stdlib.h>

/* Exact samples and the kernel's sums differ by clocks and ticks, not by more. */
#define DRIFT_MAX 0.05
/* The number of samples that may be missing by chance where one was due. */
#define CHANCE_MAX 4

struct class_sum {
	double exact_ns, sampled_ns;
	double samples;
	double due_ns; /* by the readings */
	double exact_factor, sampled_factor;
	double rest_ns;
};

struct thread {
	uint32_t pid, tid;
	bool known, has_run;
	struct class_sum classes[THREAD_CLASS_MAX];
};
VEC_DEFINE(threads, struct thread);

struct thread_totals {
	struct thread_lives lives;
	struct threads_vec threads; /* as those of lives */
	struct thread_lives stolen;
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
	thread_lives_deinit(&totals->lives);
	thread_lives_deinit(&totals->stolen);
	threads_vec_deinit(&totals->threads);
	free(totals);
}

static struct thread *find(const struct thread_totals *totals, uint32_t pid, uint32_t tid)
{
	size_t at;

	return thread_lives_find(&totals->lives, pid, tid, &at) ? &totals->threads.data[at] : NULL;
}

void thread_totals_until(struct thread_totals *totals, uint64_t to_ns)
{
	totals->lives.until_ns = totals->stolen.until_ns = to_ns;
}

int thread_totals_read(struct thread_totals *totals, uint32_t pid, uint32_t tid,
		       const struct thread_reading *reading)
{
	size_t thread;
	int rc = threads_vec_reserve(&totals->threads, totals->threads.count + 1);

	if (rc == 0)
		rc = thread_lives_read(&totals->lives, pid, tid, reading, &thread);
	if (rc == 0 && thread == totals->threads.count)
		totals->threads.data[totals->threads.count++] = (struct thread){ .pid = pid, .tid = tid };
	return rc;
}

int thread_totals_read_stolen(struct thread_totals *totals, uint32_t pid, uint32_t tid,
			      const struct thread_reading *reading)
{
	size_t thread;

	return thread_lives_read(&totals->stolen, pid, tid, reading, &thread);
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

/* Adds what the thread did in one life. */
static void add_due(void *ctx, const struct thread_part *part)
{
	double cpu = (double)part->counts[THREAD_COUNT_CPU_NS],
	       waits = (double)part->counts[THREAD_COUNT_WAITS_NS];
	double spent = (double)part->span_ns;
	/* a counter may be a tick behind at one end */
	double scale = spent / fmax((double)part->between_ns, cpu + waits);
	struct thread *thread = ctx;

	thread->has_run |= part->has_run || cpu > 0;
	thread->classes[THREAD_ON_CPU].due_ns += cpu * scale;
	thread->classes[THREAD_WAITS].due_ns += waits * scale;
	thread->classes[THREAD_BLOCKED].due_ns += spent - (cpu + waits) * scale;
}

struct stolen {
	double ns, blocks;
};

static void add_stolen(void *ctx, const struct thread_part *part)
{
	struct stolen *stolen = ctx;

	stolen->ns += (double)part->counts[THREAD_COUNT_STOLEN_NS] * (double)part->span_ns /
		      (double)part->between_ns;
	stolen->blocks += (double)part->counts[THREAD_COUNT_BLOCKS];
}

/* Time that a thread did not have its CPU for is not time blocked. One that was not blocked once
 * (nor all the time, in which it would not have run) had its CPU for all the rest, of which the
 * kernel has yet to count up to a tick: of one that ends before its first tick nothing is counted.
 */
static void settle_stolen(const struct thread_totals *totals, struct thread *thread,
			  uint64_t from_ns, uint64_t to_ns)
{
	struct class_sum *sums = thread->classes, *blocked = &sums[THREAD_BLOCKED];
	struct stolen stolen = { 0 };
	size_t at;

	if (!thread_lives_find(&totals->stolen, thread->pid, thread->tid, &at) ||
	    !thread_lives_span(&totals->stolen, at, from_ns, to_ns, add_stolen, &stolen))
		return;
	sums[THREAD_STOLEN].due_ns = fmin(stolen.ns, blocked->due_ns);
	blocked->due_ns -= sums[THREAD_STOLEN].due_ns;
	if (stolen.blocks > 0 || !thread->has_run || blocked->exact_ns + blocked->sampled_ns > 0)
		return;
	sums[THREAD_ON_CPU].due_ns += blocked->due_ns;
	blocked->due_ns = 0;
}

/* The sampled part takes up what its number allows it to be off; what is left after that is either
 * a difference of clocks or chance, spread over all, or time that no sample saw. */
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

void thread_totals_settle(struct thread_totals *totals, uint64_t from_ns, uint64_t to_ns,
			  bool on_cpu)
{
	for (size_t i = 0; i < totals->threads.count; i++) {
		struct thread *thread = &totals->threads.data[i];

		thread->known = thread_lives_span(&totals->lives, i, from_ns, to_ns, add_due, thread);
		if (thread->known)
			settle_stolen(totals, thread, from_ns, to_ns);
		for (int k = on_cpu ? THREAD_ON_CPU : THREAD_WAITS; k < THREAD_CLASS_MAX && thread->known; k++)
			settle_class(&thread->classes[k], totals->largest_ns[k]);
	}
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
