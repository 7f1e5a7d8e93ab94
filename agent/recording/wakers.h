/* SPDX-License-Identifier: Apache-2.0 */
/* Joins wakers to waits: samples of wakers by thread and time (PROF_SAMPLE_WAKER) belong to the
 * waits they lie in. Releases of CPython's global lock belong to the waits for it that began while
 * the same thread held it (bpf/gil.bpf.h). Pure. */
#ifndef PROFD_RECORDING_WAKERS_H
#define PROFD_RECORDING_WAKERS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/vec.h"

struct waking {
	uint32_t process, tid; /* of the thread that is woken; releases: the holder's number */
	uint64_t time_ns;
	uint32_t pair;	       /* the waker's stacks */
	uint32_t waker;	       /* its tid */
	uint64_t since_ns;     /* releases: the waker was seen to hold the lock since then */
};
VEC_DEFINE(wakings, struct waking);

/* All zero is empty. */
struct wakers {
	struct wakings_vec wakings;
};

void wakers_deinit(struct wakers *wakers);
/* -ENOMEM. */
int wakers_add(struct wakers *wakers, const struct waking *waking) must_use;
/* After the last one. */
void wakers_sort(struct wakers *wakers);
/* The last waking of a thread between the two times. */
bool wakers_find(const struct wakers *wakers, uint32_t process, uint32_t tid, uint64_t from_ns,
		 uint64_t to_ns, uint32_t *ret_pair);
/* The release by which a holder gave up the lock. A thread had waited for it from @from_ns or later
 * to @to_ns. @holder: its number. NULL: it was not seen. */
const struct waking *wakers_find_release(const struct wakers *releases, uint32_t process,
					 uint32_t holder, uint64_t from_ns, uint64_t to_ns);

#endif
