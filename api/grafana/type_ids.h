/* SPDX-License-Identifier: Apache-2.0 */
/* Profile types as Pyroscope names them: `name:sample type:sample unit:period type:period unit`,
 * such as process_cpu:cpu:nanoseconds:cpu:nanoseconds. Each value of a profile type has an id. A
 * type that Pyroscope does not know has its own main value as period. Pure. */
#ifndef PROFD_API_GRAFANA_TYPE_IDS_H
#define PROFD_API_GRAFANA_TYPE_IDS_H

#include "agent/base/cleanup.h"
#include "agent/profile/profile_type.h"

#define TYPE_ID_SIZE 128

struct type_id {
	enum profile_type type;
	unsigned value; /* index of the type's values */
};

const char *type_id_text(struct type_id id, char out[TYPE_ID_SIZE]);
/* The parts of an id, literals: name, sample type and unit, period type and unit. */
void type_id_parts(struct type_id id, const char *ret[5]);
/* The first three parts decide. -EINVAL: not an id, or of a type that profd does not take. */
int type_id_parse(const char *text, struct type_id *ret) must_use;

#endif
