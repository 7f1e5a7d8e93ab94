/* SPDX-License-Identifier: Apache-2.0 */
/* The two sides of a comparison: a session or a baseline by its id, finished and readable, or a
 * window of the history. */
#ifndef PROFD_API_SIDES_H
#define PROFD_API_SIDES_H

#include "api/http/router.h"

struct side {
	struct profile *profile; /* one reference */
	char label[SERVICE_NAME_SIZE + 96]; /* what answers call it: the id, or service/type/from/to */
	char service[SERVICE_NAME_SIZE];
	uint64_t created_at_ns; /* realtime */
};
void side_deinit(struct side *side);

/* @field names the parameter in errors. Words: UnknownSession, UnknownBaseline, NotFinished (with
 * Retry-After), SessionFailed. */
int side_load(struct http_call *call, const char *id, const char *field, struct side *ret) must_use;
/* Parameters of a call that compares two sides, each by id or by window. */
#define SIDES_PARAMS \
	{ .name = "baseProfileId", .type = QUERY_TEXT, .min = 1, .max = 127, \
	  .flags = QUERY_BOUND, .about = "id of a session or baseline" }, \
	{ .name = "comparisonProfileId", .type = QUERY_TEXT, .min = 1, .max = 127, \
	  .flags = QUERY_BOUND, .about = "id of a session or baseline" }, \
	{ .name = "service", .type = QUERY_TEXT, .min = 1, .max = SERVICE_NAME_SIZE - 1, \
	  .flags = QUERY_BOUND, .about = "of both windows" }, \
	{ .name = "baseService", .type = QUERY_TEXT, .min = 1, .max = SERVICE_NAME_SIZE - 1, \
	  .flags = QUERY_BOUND }, \
	{ .name = "comparisonService", .type = QUERY_TEXT, .min = 1, .max = SERVICE_NAME_SIZE - 1, \
	  .flags = QUERY_BOUND }, \
	{ .name = "profileType", .type = QUERY_PROFILE_TYPE, .flags = QUERY_BOUND, \
	  .about = "of both windows" }, \
	{ .name = "baseFrom", .type = QUERY_TIME, .flags = QUERY_BOUND }, \
	{ .name = "baseTo", .type = QUERY_TIME, .flags = QUERY_BOUND }, \
	{ .name = "comparisonFrom", .type = QUERY_TIME, .flags = QUERY_BOUND }, \
	{ .name = "comparisonTo", .type = QUERY_TIME, .flags = QUERY_BOUND }, \
	{ .name = "baseWhere", .type = QUERY_TEXT, .min = 3, .max = 1024, .flags = QUERY_BOUND, \
	  .about = "attribute:value that samples of this side must have" }, \
	{ .name = "comparisonWhere", .type = QUERY_TEXT, .min = 3, .max = 1024, \
	  .flags = QUERY_BOUND, .about = "attribute:value that samples of this side must have" }
/* Loads both sides as the query of the call says. */
int sides_load_query(struct http_call *call, struct side ret[2]) must_use;
/* Loads both; ProfileTypeMismatch when their types differ. On failure neither is left. */
int sides_load(struct http_call *call, const char *base_id, const char *base_field,
	       const char *compare_id, const char *compare_field, struct side ret[2]) must_use;

static inline void cleanup_side_fn(struct side *side)
{
	side_deinit(side);
}
#define cleanup_side __attribute__((__cleanup__(cleanup_side_fn)))

#endif
