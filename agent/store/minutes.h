/* SPDX-License-Identifier: Apache-2.0 */
/* The minutes of a rolled-up hour as the bytes of one column: a bitmap of the existing minutes and
 * their samples. Three more parts are there only where they differ from the expected: lost samples,
 * values other than samples * value of a sample, profiled time other than a minute. Pure. */
#ifndef PROFD_STORE_MINUTES_H
#define PROFD_STORE_MINUTES_H

#include "agent/base/buf.h"
#include "agent/store/store.h"

#define HOUR_MINUTES 60u

/* @minutes ascending by minute, each below 60. */
void minutes_encode(struct buf *out, const struct store_minute *minutes, size_t count);
/* Into @ret, ascending; the count. -EPROTO. */
int minutes_decode(const void *data, size_t len, struct store_minute ret[HOUR_MINUTES]) must_use;

/* Its part of what the hour takes. */
static inline uint64_t minutes_bytes(const struct store_window *hour,
				     const struct store_minute *minute)
{
	return (uint64_t)((double)hour->bytes * (double)minute->samples / (double)(hour->samples + 1));
}

/* Visits the minutes of @hour that begin at or after @from_ns and before @to_ns, one by one, until
 * the visitor stops. */
int minutes_hand_out(const struct store_window *hour, uint64_t from_ns, uint64_t to_ns,
		     store_window_fn *visit, void *ctx) must_use;
/* The totals of an hour from its @count minutes, which it borrows. */
void minutes_sum(struct store_window *hour, const struct store_minute *minutes, uint32_t count);

#endif
