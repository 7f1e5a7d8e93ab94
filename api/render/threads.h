/* SPDX-License-Identifier: Apache-2.0 */
/* The threads of a profile, for formats that keep a table per thread (Firefox, speedscope). */
#ifndef PROFD_API_RENDER_THREADS_H
#define PROFD_API_RENDER_THREADS_H

#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/profile/profile.h"

struct thread_row {
	uint32_t process; /* index of the profile's processes */
	uint32_t tid;	  /* 0 = the whole process */
	uint32_t name;	  /* string id */
	int64_t value;	  /* sum of the chosen value */
};

struct threads {
	struct thread_row *items; /* by pid, then main thread first, then value */
	uint32_t count;
	uint32_t *of_attrs; /* attrs index -> thread */
};

int threads_build(const struct profile *p, unsigned value_index, struct threads *ret) must_use;
void threads_deinit(struct threads *threads);

static inline void cleanup_threads_fn(struct threads *threads)
{
	threads_deinit(threads);
}
#define cleanup_threads __attribute__((__cleanup__(cleanup_threads_fn)))

/* "name (pid)" or "comm / thread (tid)". */
void thread_title(const struct profile *p, const struct thread_row *thread, char *out, size_t size);

#endif
