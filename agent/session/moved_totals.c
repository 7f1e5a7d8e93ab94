// SPDX-License-Identifier: Apache-2.0
#include "agent/session/moved_totals.h"

#include <errno.h>
#include <stdlib.h>

#include "agent/base/u64map.h"
#include "agent/base/vec.h"

/* Readings must cover so much of a thread's time to stand for it: of a session that runs there are none of its end. */
#define COVERED_MIN 0.9

/* One life of a thread id. */
struct life {
	uint32_t next; /* of the same thread, index + 1, 0 = none */
	struct moved_reading first, last;
};
VEC_DEFINE(moved_lives, struct life);

struct thread {
	uint32_t life; /* newest, index + 1 */
	bool known;
	double factor, carry;
	int64_t sampled, due; /* bytes; due: what is still to be given out */
};
VEC_DEFINE(moved_threads, struct thread);

struct moved_totals {
	struct moved_lives_vec lives;
	struct moved_threads_vec threads;
	struct u64map at; /* pid << 32 | tid -> index of threads */
};

struct moved_totals *moved_totals_create(void)
{
	return calloc(1, sizeof(struct moved_totals));
}

void moved_totals_destroy(struct moved_totals *totals)
{
	if (!totals)
		return;
	moved_lives_vec_deinit(&totals->lives);
	moved_threads_vec_deinit(&totals->threads);
	u64map_deinit(&totals->at);
	free(totals);
}

static struct thread *find(const struct moved_totals *totals, uint32_t pid, uint32_t tid)
{
	uint64_t at;

	if (!u64map_get(&totals->at, (uint64_t)pid << 32 | tid, &at))
		return NULL;
	return &totals->threads.data[at];
}

static struct thread *add_thread(struct moved_totals *totals, uint32_t pid, uint32_t tid)
{
	if (moved_threads_vec_push(&totals->threads, (struct thread){ 0 }) < 0 ||
	    u64map_put(&totals->at, (uint64_t)pid << 32 | tid, totals->threads.count - 1) < 0)
		return NULL;
	return &totals->threads.data[totals->threads.count - 1];
}

int moved_totals_read(struct moved_totals *totals, uint32_t pid, uint32_t tid,
		      const struct moved_reading *reading)
{
	struct thread *thread = find(totals, pid, tid);
	struct life *life;
	int rc;

	if (!thread)
		thread = add_thread(totals, pid, tid);
	if (!thread)
		return -ENOMEM;
	life = thread->life ? &totals->lives.data[thread->life - 1] : NULL;
	if (life && life->first.start_ns == reading->start_ns) {
		if (!life->last.ends)
			life->last = *reading;
		return 0;
	}
	rc = moved_lives_vec_push(&totals->lives, (struct life){ thread->life, *reading, *reading });
	if (rc == 0)
		thread->life = (uint32_t)totals->lives.count;
	return rc;
}

void moved_totals_add(struct moved_totals *totals, uint32_t pid, uint32_t tid, int64_t bytes)
{
	struct thread *thread = find(totals, pid, tid);

	if (thread)
		thread->sampled += bytes;
}

/* Adds what the thread moved in this life within the span; false: the readings do not tell. */
static bool add_due(const struct life *life, uint64_t from_ns, uint64_t to_ns, int64_t *due)
{
	struct moved_reading first = life->first;
	const struct moved_reading *last = &life->last;

	if (first.start_ns >= from_ns) { /* it began inside */
		from_ns = first.start_ns;
		first = (struct moved_reading){ .time_ns = from_ns };
	}
	if (last->ends && last->time_ns < to_ns)
		to_ns = last->time_ns;
	if (to_ns <= from_ns)
		return true;
	if (last->time_ns < first.time_ns || last->bytes < first.bytes ||
	    (double)(last->time_ns - first.time_ns) < COVERED_MIN * (double)(to_ns - from_ns))
		return false;
	*due += (int64_t)(last->bytes - first.bytes);
	return true;
}

void moved_totals_settle(struct moved_totals *totals, uint64_t from_ns, uint64_t to_ns)
{
	for (size_t i = 0; i < totals->threads.count; i++) {
		struct thread *thread = &totals->threads.data[i];

		thread->known = true;
		for (uint32_t at = thread->life; at && thread->known; at = totals->lives.data[at - 1].next)
			thread->known = add_due(&totals->lives.data[at - 1], from_ns, to_ns, &thread->due);
		if (thread->sampled > 0)
			thread->factor = (double)thread->due / (double)thread->sampled;
	}
}

/* The last sample takes what rounding has left. */
int64_t moved_totals_scale(struct moved_totals *totals, uint32_t pid, uint32_t tid, int64_t bytes)
{
	struct thread *thread = find(totals, pid, tid);
	int64_t scaled;

	if (!thread || !thread->known)
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
	struct thread *thread = find(totals, pid, tid);
	int64_t rest;

	if (!thread || !thread->known)
		return 0;
	rest = thread->due;
	thread->due = 0;
	return rest;
}
