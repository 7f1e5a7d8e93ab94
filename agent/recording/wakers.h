/* SPDX-License-Identifier: Apache-2.0 */
/* Who ended which wait: samples of wakers by thread and time (PROF_SAMPLE_WAKER), joined to the waits they lie
 * in. Pure. */
#ifndef PROFD_RECORDING_WAKERS_H
#define PROFD_RECORDING_WAKERS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/vec.h"

struct waking {
	uint32_t process, tid; /* of the thread that is woken */
	uint64_t time_ns;
	uint32_t pair;	       /* the waker's stacks */
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

#endif
