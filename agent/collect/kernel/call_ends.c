// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/kernel/call_ends.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <signal.h>
#include <unistd.h>

void call_ends_init(struct call_ends *ends)
{
	*ends = (struct call_ends){ .closing = false };
	for (unsigned i = 0; i < CALL_ENDS_MAX; i++)
		ends->links[i] = -1;
}

/* Backwards, so that what is attached again later comes behind what stayed, as at first. */
static void *close_all(void *ctx)
{
	struct call_ends *ends = ctx;

	for (unsigned i = CALL_ENDS_MAX; i-- > 0 && !atomic_load(&ends->enough);) {
		if (ends->links[i] >= 0)
			(void)close(ends->links[i]);
		ends->links[i] = -1;
	}
	return NULL;
}

static void join(struct call_ends *ends)
{
	if (ends->closing)
		(void)pthread_join(ends->closer, NULL);
	ends->closing = false;
	atomic_store(&ends->enough, false);
}

void call_ends_deinit(struct call_ends *ends)
{
	join(ends);
	(void)close_all(ends);
}

int call_ends_open(struct call_ends *ends, const int *programs, unsigned count, unsigned repeated)
{
	if (count > CALL_ENDS_MAX)
		return -E2BIG;
	atomic_store(&ends->enough, true);
	join(ends);
	ends->repeated_count = repeated;
	for (unsigned i = 0; i < count; i++) {
		if (ends->links[i] < 0)
			ends->links[i] = bpf_raw_tracepoint_open(NULL, programs[i]);
		if (ends->links[i] < 0)
			return ends->links[i];
		ends->programs[i] = programs[i];
		ends->program_count = i + 1;
	}
	return 0;
}

uint64_t call_ends_missed(struct call_ends *ends)
{
	uint64_t missed = 0;

	for (unsigned i = ends->repeated_count; i < ends->program_count; i++) {
		struct bpf_prog_info info = { 0 };
		uint32_t size = sizeof(info);

		if (bpf_obj_get_info_by_fd(ends->programs[i], &info, &size) == 0)
			missed += info.recursion_misses;
	}
	if (missed > ends->missed)
		ends->missed = missed;
	return ends->missed;
}

void call_ends_close(struct call_ends *ends)
{
	sigset_t all, before;

	(void)call_ends_missed(ends);
	ends->program_count = 0;
	join(ends);
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	ends->closing = pthread_create(&ends->closer, NULL, close_all, ends) == 0;
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!ends->closing)
		(void)close_all(ends);
}
