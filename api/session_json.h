/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions as JSON: the object ProfileResult, the same in every call. */
#ifndef PROFD_API_SESSION_JSON_H
#define PROFD_API_SESSION_JSON_H

#include "agent/session/session.h"
#include "api/api_internal.h"
#include "api/http/json_in.h"
#include "api/http/json_out.h"

#define TOP_FUNCTIONS_DEFAULT 20
#define TOP_FUNCTIONS_MAX     1000

struct session_json_options {
	const struct profile *profile; /* topFunctions and breakdown; NULL = empty */
	uint32_t top;		       /* most functions listed */
	unsigned value;		       /* index + 1 of the value that they and the total show; 0 = the type's */
	bool breakdown;
	const char *breakdown_extra;   /* comma list of pid, tid, path, goid; NULL = none */
	const struct json_warnings *warnings; /* NULL = none */
};

/* Writes one object; @name NULL inside arrays. */
void session_json(struct json_out *json, const char *name, struct api *api,
		  const struct session_info *info, const struct session_json_options *options);
/* The `topFunctions` array by the value @value_index: at most @top rows. @sample_count_as_text as
 * in family B's baselines. */
int top_functions_json(struct json_out *json, const char *name, const struct profile *p,
		       unsigned value_index, uint32_t top, bool sample_count_as_text) must_use;
/* The same of rows that are there: the first @count of profile_top_functions(). */
int function_rows_json(struct json_out *json, const char *name, const struct profile *p,
		       unsigned value_index, const struct profile_function_row *rows, size_t count,
		       bool sample_count_as_text) must_use;
/* Writes the array `options`: names of the bits @options (enum profile_option) that have one. */
void options_json(struct json_out *json, uint32_t options);
const char *session_status_text(enum session_status status);
/* -EINVAL: not one of running, completed, failed. */
int session_status_from(const char *word, int *ret) must_use;

#endif
