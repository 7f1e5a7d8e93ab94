// SPDX-License-Identifier: Apache-2.0
#include "agent/recording/moved_totals.h"

#include <stdlib.h>

struct moved {
	bool known;
	double factor, carry;
	int64_t exact;	      /* bytes of sums */
	int64_t sampled, due; /* bytes of samples; what is still to be given out to these */
};
VEC_DEFINE(moved, struct moved);

struct moved_totals {
	struct thread_lives lives;
	struct moved_vec threads; /* as those of lives */
};

struct moved_totals *moved_totals_create(void)
{
	return calloc(1, sizeof(struct moved_totals));
}

void moved_totals_destroy(struct moved_totals *totals)
{
	if (!totals)
		return;
	thread_lives_deinit(&totals->lives);
	moved_vec_deinit(&totals->threads);
	free(totals);
}

static struct moved *find(const struct moved_totals *totals, uint32_t pid, uint32_t tid)
{
	size_t at;

	return thread_lives_find(&totals->lives, pid, tid, &at) ? &totals->threads.data[at] : NULL;
}

void moved_totals_until(struct moved_totals *totals, uint64_t to_ns)
{
	totals->lives.until_ns = to_ns;
}

int moved_totals_read(struct moved_totals *totals, uint32_t pid, uint32_t tid,
		      const struct thread_reading *reading)
{
	size_t thread;
	int rc = moved_vec_reserve(&totals->threads, totals->threads.count + 1);

	if (rc == 0)
		rc = thread_lives_read(&totals->lives, pid, tid, reading, &thread);
	if (rc == 0 && thread == totals->threads.count)
		totals->threads.data[totals->threads.count++] = (struct moved){ 0 };
	return rc;
}

void moved_totals_add(struct moved_totals *totals, uint32_t pid, uint32_t tid, int64_t bytes,
		      bool exact)
{
	struct moved *thread = find(totals, pid, tid);

	if (!thread)
		return;
	*(exact ? &thread->exact : &thread->sampled) += bytes;
}

static void add_due(void *ctx, const struct thread_part *part)
{
	struct moved *thread = ctx;

	thread->due += (int64_t)part->counts[0];
}

void moved_totals_settle(struct moved_totals *totals, uint64_t from_ns, uint64_t to_ns)
{
	for (size_t i = 0; i < totals->threads.count; i++) {
		struct moved *thread = &totals->threads.data[i];

		thread->known = thread_lives_span(&totals->lives, i, from_ns, to_ns, add_due, thread);
		thread->due -= thread->exact < thread->due ? thread->exact : thread->due;
		if (thread->sampled > 0)
			thread->factor = (double)thread->due / (double)thread->sampled;
	}
}

/* The last sample takes what rounding has left. */
int64_t moved_totals_scale(struct moved_totals *totals, uint32_t pid, uint32_t tid, int64_t bytes,
			   bool exact)
{
	struct moved *thread = find(totals, pid, tid);
	int64_t scaled;

	if (exact || !thread || !thread->known)
		return bytes;
	thread->sampled -= bytes;
	thread->carry += (double)bytes * thread->factor;
	scaled = thread->sampled > 0 ? (int64_t)thread->carry : thread->due;
	if (scaled > thread->due)
		scaled = thread->due;
	thread->carry -= (double)scaled;
	thread->due -= scaled;
	return scaled;
}

int64_t moved_totals_take_rest(struct moved_totals *totals, uint32_t pid, uint32_t tid)
{
	struct moved *thread = find(totals, pid, tid);
	int64_t rest;

	if (!thread || !thread->known)
		return 0;
	rest = thread->due;
	thread->due = 0;
	return rest;
}
