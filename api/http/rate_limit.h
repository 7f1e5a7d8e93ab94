/* SPDX-License-Identifier: Apache-2.0 */
/* Token buckets: a caller above its rate is refused with the time after which to come back. One
 * bucket for each caller (a hash of an address or of a key). A bucket that is full again may give
 * its place to another caller, so the table is bounded for any number of callers. Thread-safe. */
#ifndef PROFD_API_RATE_LIMIT_H
#define PROFD_API_RATE_LIMIT_H

#include <stdint.h>

#include "agent/base/cleanup.h"

struct rate_limit;

/* @per_second tokens come back each second, up to @burst, with which a new caller begins. */
int rate_limit_create(uint32_t per_second, uint32_t burst, struct rate_limit **ret) must_use;
void rate_limit_destroy(struct rate_limit *r);
CLEANUP_DEFINE(rate_limit, struct rate_limit *, rate_limit_destroy);

/* Takes a token of @caller: 0, or the seconds (at least 1) until there will be one. @now_ns:
 * monotonic. */
unsigned rate_limit_take(struct rate_limit *r, uint64_t caller, uint64_t now_ns);

#endif
