/* SPDX-License-Identifier: Apache-2.0 */
/* `breakdown` of a result: the main value summed by each attribute's values. */
#ifndef PROFD_API_BREAKDOWN_H
#define PROFD_API_BREAKDOWN_H

#include "agent/profile/profile.h"
#include "api/http/json_out.h"

#define BREAKDOWN_VALUES_MAX 100 /* of one attribute; the rest is summed as `other` */

/* The attributes that `breakdown=` may name: all that a profile of some type has. Those with many
 * values are left out unless they are named. */
#define BREAKDOWN_WORDS                                                                            \
	"process pid thread tid state wait kind path lock holder goid createdBy waitObject tier runtime"

/* Writes the member `breakdown`. Attributes with many values (pid, tid, goid, path) only when the
 * comma-separated @extra names them; NULL = none. */
void breakdown_json(struct json_out *json, const struct profile *p, const char *extra);

#endif
