/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of samples by the names that users write (where, groupBy, breakdown). Built-in
 * attributes are fields of struct profile_attrs and its process; all others are labels. Pure,
 * thread-safe. */
#ifndef PROFD_PROFILE_ATTRIBUTE_H
#define PROFD_PROFILE_ATTRIBUTE_H

#include "agent/profile/profile.h"

enum attribute_kind {
	ATTRIBUTE_PROCESS, /* name of the process */
	ATTRIBUTE_PID,
	ATTRIBUTE_EXE,
	ATTRIBUTE_SERVICE,
	ATTRIBUTE_CONTAINER, /* of its process: names that the container's runtime keeps */
	ATTRIBUTE_IMAGE,
	ATTRIBUTE_POD,
	ATTRIBUTE_NAMESPACE,
	ATTRIBUTE_HOST,
	ATTRIBUTE_THREAD, /* name of the thread */
	ATTRIBUTE_TID,
	ATTRIBUTE_STATE,
	ATTRIBUTE_WAIT,
	ATTRIBUTE_EXTRA, /* `kind` of io, `lock` of block and mutex, `createdBy` of goroutine */
	ATTRIBUTE_LABEL,
};

struct attribute {
	enum attribute_kind kind;
	uint32_t label; /* string id of the label's name */
};

/* The name of the `extra` field of a type's samples, wherever it is written; NULL: the type has
 * none. */
const char *attribute_extra_name(enum profile_type type);

/* -EINVAL: no such attribute in a profile of this type, and no sample has a label of that name.
 * `tier` and `runtime` are labels that exist always. */
int attribute_parse(const struct profile *p, const char *name, struct attribute *ret) must_use;

#define ATTRIBUTE_SCRATCH_SIZE 16

/* The value of @attrs (index) as text, "" if it has none. Valid as long as @p and @scratch. */
const char *attribute_text(const struct profile *p, uint32_t attrs, struct attribute attribute,
			   char scratch[ATTRIBUTE_SCRATCH_SIZE]);

#endif
