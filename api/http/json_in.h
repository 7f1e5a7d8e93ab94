/* SPDX-License-Identifier: Apache-2.0 */
/* JSON bodies from outside. The text is checked against RFC 8259 with bounds before cJSON sees it:
 * cJSON alone accepts numbers such as 01, nests 1,000 levels deep and cuts strings at \u0000.
 * Afterwards members are fetched by name with type and range. Unknown members become warnings. */
#ifndef PROFD_API_JSON_IN_H
#define PROFD_API_JSON_IN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cjson/cJSON.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"
#include "agent/profile/profile.h"
#include "api/http/json_out.h"

#define JSON_IN_DEPTH_MAX   32
/* Values of one document, all levels: topFunctions as large as an answer has them may be sent back.
 */
#define JSON_IN_MEMBERS_MAX 16384
#define JSON_IN_OBJECT_MAX  256	 /* members of one object */

CLEANUP_DEFINE(json, cJSON *, cJSON_Delete);

/* Checks syntax, depth, number of values and UTF-8 of a whole text. 0, or -EINVAL with a sentence
 * that says what is wrong at which byte. Pure; no allocation. */
int json_in_check(const char *text, size_t len, struct err *err) must_use;
/* The same with no bound but @len on the number of values: for readers that build no tree. */
int json_in_check_large(const char *text, size_t len, struct err *err) must_use;
/* Parses a body that must be an object. Duplicate members are refused. InvalidBody. */
int json_in_object(const char *text, size_t len, cJSON **ret, struct err *err) must_use;

/* Members. Absent and null are the same; an absent required member, a wrong type or a value out of
 * range is InvalidParam with the member's name; @ret keeps its value when the member is absent. */
int json_in_text(const cJSON *object, const char *name, bool required, size_t max_bytes,
		 const char **ret, struct err *err) must_use;
int json_in_uint(const cJSON *object, const char *name, bool required, uint64_t min, uint64_t max,
		 uint64_t *ret, struct err *err) must_use;
int json_in_number(const cJSON *object, const char *name, bool required, double min, double max,
		   double *ret, struct err *err) must_use;
int json_in_bool(const cJSON *object, const char *name, bool *ret, struct err *err) must_use;
int json_in_type(const cJSON *object, const char *name, bool required, enum profile_type *ret,
		 struct err *err) must_use;

#define JSON_IN_WARNINGS_MAX 16
struct json_warnings {
	char text[JSON_IN_WARNINGS_MAX][160];
	unsigned count;
};
void json_warn(struct json_warnings *warnings, const char *fmt, ...) printf_like(2, 3);
/* Writes the member `warnings`; nothing if there are none or @warnings is NULL. */
void warnings_json(struct json_out *json, const struct json_warnings *warnings);
/* One warning for each member of @object that is not in the blank-separated list @known. */
void json_in_unknown(const cJSON *object, const char *known, struct json_warnings *warnings);

#endif
