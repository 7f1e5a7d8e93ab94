/* SPDX-License-Identifier: Apache-2.0 */
/* The pairs of a series and day in the order in which its hours first had them. Hours name pairs by
 * their place in it (struct store_window, shared). A service has few of the day's pairs, and pairs
 * that are new in an hour follow one another. As bytes: each pair's number as a step from the one
 * before, modulo 2^32. Pure. */
#ifndef PROFD_RECORDING_PAIR_PLACES_H
#define PROFD_RECORDING_PAIR_PLACES_H

#include "agent/base/buf.h"
#include "agent/base/u64map.h"
#include "agent/base/vec.h"

VEC_DEFINE(pair_numbers, uint32_t);

/* Zero-initialized is empty. */
struct pair_places {
	struct pair_numbers_vec pairs; /* by place */
	struct u64map at;	       /* pair -> place, for those who add */
};

void pair_places_deinit(struct pair_places *places);
/* Replaces what @places holds. -EPROTO: hostile bytes, @places is empty then; -ENOMEM. */
int pair_places_decode(struct pair_places *places, const void *data, size_t len) must_use;
/* The place of @pair, a new one at the end if it has none. -ENOMEM. */
int pair_places_add(struct pair_places *places, uint32_t pair, uint32_t *ret) must_use;
void pair_places_encode(const struct pair_places *places, struct buf *out);

#endif
