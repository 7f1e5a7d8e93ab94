/* SPDX-License-Identifier: Apache-2.0 */
/* Places of a memory profile whose memory is never given back, as far as was observed. Their
 * addresses that were followed for half a minute are still in use, no address of that age was seen
 * to end, and the places go on allocating. Of a slow leak hardly any address is met: one is enough
 * where the heap itself says that it gained blocks of that size all the time. What is kept for ever
 * and what is kept for longer than was observed look the same. Pure. */
#ifndef PROFD_PROFILE_HEAP_LEAKS_H
#define PROFD_PROFILE_HEAP_LEAKS_H

#include "agent/profile/profile.h"

#define HEAP_LEAK_FOLLOWED_MIN 3u /* old addresses of a place */

struct heap_leak {
	uint32_t node;	   /* the stack */
	uint32_t followed; /* old addresses that are in use still */
	int64_t bytes;	   /* in use */
	double bytes_per_s;
	uint64_t since_ns; /* realtime: of the first that is in use */
};

/* Largest growth first, for the caller to free; @end_ns: realtime, when the profile was taken.
 * -ENOMEM. */
int heap_leaks_find(const struct profile *p, uint64_t end_ns, struct heap_leak **ret,
		    uint32_t *ret_count) must_use;

#endif
