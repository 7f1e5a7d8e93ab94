// SPDX-License-Identifier: Apache-2.0
#include "agent/recording/wait_types.h"

#include "bpf/profiler.h"

bool wait_is_wanted(enum profile_type type, const struct feed_sample *sample)
{
	uint8_t wait = sample->state & 15, detail = sample->detail;

	if (type == PROFILE_OFFCPU || type == PROFILE_WALL)
		return true;
	if (sample->state >> 4 == PROF_OFF_PREEMPTED)
		return false;
	switch (type) {
	case PROFILE_BLOCK:
		return wait == PROF_WAIT_FUTEX || wait == PROF_WAIT_GIL || wait == PROF_WAIT_PIPE ||
		       wait == PROF_WAIT_EPOLL || wait == PROF_WAIT_CHILD ||
		       detail == PROF_DETAIL_SEMAPHORE;
	case PROFILE_MUTEX:
		return detail == PROF_DETAIL_LOCK || detail == PROF_DETAIL_KERNEL_LOCK;
	case PROFILE_IO:
		return detail >= PROF_DETAIL_FILE && detail <= PROF_DETAIL_SYNC;
	default:
		return false;
	}
}

bool wait_is_gil(uint8_t state)
{
	return state == (PROF_OFF_BLOCKED << 4 | PROF_WAIT_GIL);
}

void wait_disk_parts(const struct feed_sample *sample, int64_t value, int64_t ret[WAIT_DISK_MAX])
{
	double device = sample->holder >> 16, queue = sample->holder & PROF_DISK_WHOLE;

	ret[WAIT_DISK_UNJOINED] = value;
	ret[WAIT_DISK_DEVICE] = ret[WAIT_DISK_QUEUE] = 0;
	if (!prof_state_is_disk(sample->state) || !sample->object || device + queue > PROF_DISK_WHOLE)
		return;
	ret[WAIT_DISK_DEVICE] = (int64_t)((double)value * device / PROF_DISK_WHOLE);
	ret[WAIT_DISK_QUEUE] = (int64_t)((double)value * queue / PROF_DISK_WHOLE);
	ret[WAIT_DISK_UNJOINED] -= ret[WAIT_DISK_DEVICE] + ret[WAIT_DISK_QUEUE];
}

struct feed_sample wait_reduce(enum profile_type type, const struct feed_sample *sample)
{
	struct feed_sample reduced = *sample;

	if (prof_sample_is_reading(sample->type) || sample->type == PROF_SAMPLE_WAKER)
		return reduced;
	if (sample->type == PROF_SAMPLE_ALLOC) {
		/* The number of their period; of what is in use it is the error of the estimate. */
		if (sample->state == FEED_ALLOC_BIRTH)
			reduced.object = 0;
		reduced.source = 0;
		return reduced;
	}
	if (type != PROFILE_MUTEX)
		reduced.holder = 0;
	if (type != PROFILE_MUTEX && type != PROFILE_BLOCK)
		reduced.object = 0;
	if (type != PROFILE_IO && sample->detail != PROF_DETAIL_KERNEL_LOCK)
		reduced.detail = PROF_DETAIL_NONE;
	if (sample->type == PROF_SAMPLE_OFFCPU && sample->state >> 4 != PROF_OFF_BLOCKED)
		reduced.state &= 0xf0;
	return reduced;
}
