/* SPDX-License-Identifier: Apache-2.0 */
/* The quality of a profile as JSON members. */
#ifndef PROFD_API_QUALITY_JSON_H
#define PROFD_API_QUALITY_JSON_H

#include "agent/profile/profile.h"
#include "api/http/json_out.h"

/* Writes one object named @name; what cannot be known for the type is left out, never 0. */
void quality_json(struct json_out *json, const char *name, const struct profile_quality *quality);

#endif
