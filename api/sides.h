/* SPDX-License-Identifier: Apache-2.0 */
/* The two sides of a comparison: a session or a baseline by its id, finished and readable, or a window of the history. */
#ifndef PROFD_API_SIDES_H
#define PROFD_API_SIDES_H

#include "api/router.h"

struct side {
	struct profile *profile; /* one reference */
	char label[SERVICE_NAME_SIZE + 96]; /* what answers call it: the id, or service/type/from/to */
	char service[SERVICE_NAME_SIZE];
	uint64_t created_at_ns; /* realtime */
};
void side_deinit(struct side *side);

/* @field names the parameter in errors. Words: UnknownSession, UnknownBaseline, NotFinished (with Retry-After),
 * SessionFailed. */
int side_load(struct http_call *call, const char *id, const char *field, struct side *ret) must_use;
/* Loads both; ProfileTypeMismatch when their types differ. On failure neither is left. */
int sides_load(struct http_call *call, const char *base_id, const char *base_field,
	       const char *compare_id, const char *compare_field, struct side ret[2]) must_use;

static inline void cleanup_side_fn(struct side *side)
{
	side_deinit(side);
}
#define cleanup_side __attribute__((__cleanup__(cleanup_side_fn)))

#endif
