// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/attribute.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LABEL_NONE UINT32_MAX /* no string */

static const struct {
	const char *name;
	enum attribute_kind kind;
} built_in[] = {
	{ "process", ATTRIBUTE_PROCESS }, { "pid", ATTRIBUTE_PID },
	{ "exe", ATTRIBUTE_EXE },	  { "service", ATTRIBUTE_SERVICE },
	{ "host", ATTRIBUTE_HOST },	  { "thread", ATTRIBUTE_THREAD },
	{ "tid", ATTRIBUTE_TID },	  { "state", ATTRIBUTE_STATE },
	{ "wait", ATTRIBUTE_WAIT },	  { "container", ATTRIBUTE_CONTAINER },
	{ "image", ATTRIBUTE_IMAGE },	  { "pod", ATTRIBUTE_POD },
	{ "namespace", ATTRIBUTE_NAMESPACE },
};

const char *attribute_extra_name(enum profile_type type)
{
	return profile_type_info(type)->extra;
}

int attribute_parse(const struct profile *p, const char *name, struct attribute *ret)
{
	const char *extra = attribute_extra_name(p->meta.type);
	uint32_t i;

	for (i = 0; i < ARRAY_SIZE(built_in); i++) {
		if (!strcmp(name, built_in[i].name)) {
			*ret = (struct attribute){ built_in[i].kind, 0 };
			return 0;
		}
	}
	if (extra && !strcmp(name, extra)) {
		*ret = (struct attribute){ ATTRIBUTE_EXTRA, 0 };
		return 0;
	}
	for (i = 0; i < p->label_count; i++) {
		if (!strcmp(name, profile_string(p, p->labels[i].name))) {
			*ret = (struct attribute){ ATTRIBUTE_LABEL, p->labels[i].name };
			return 0;
		}
	}
	/* Attributes that only some samples have are known in every profile. */
	if (!strcmp(name, PROFILE_LABEL_TIER) || !strcmp(name, PROFILE_LABEL_RUNTIME)) {
		*ret = (struct attribute){ ATTRIBUTE_LABEL, LABEL_NONE };
		return 0;
	}
	return -EINVAL;
}

static const char *of_process(const struct profile *p, uint32_t process, enum attribute_kind kind,
			      char scratch[ATTRIBUTE_SCRATCH_SIZE])
{
	if (process >= p->process_count)
		return kind == ATTRIBUTE_HOST ? p->meta.host : "";
	switch (kind) {
	case ATTRIBUTE_PROCESS:
		return profile_string(p, p->processes[process].comm);
	case ATTRIBUTE_EXE:
		return profile_string(p, p->processes[process].exe);
	case ATTRIBUTE_SERVICE:
		return profile_string(p, p->processes[process].service);
	case ATTRIBUTE_CONTAINER:
		return profile_string(p, p->processes[process].container);
	case ATTRIBUTE_IMAGE:
		return profile_string(p, p->processes[process].image);
	case ATTRIBUTE_POD:
		return profile_string(p, p->processes[process].pod);
	case ATTRIBUTE_NAMESPACE:
		return profile_string(p, p->processes[process].namespace);
	case ATTRIBUTE_HOST:
		return p->processes[process].host ? profile_string(p, p->processes[process].host) : p->meta.host;
	default:
		(void)snprintf(scratch, ATTRIBUTE_SCRATCH_SIZE, "%u", p->processes[process].pid);
		return scratch;
	}
}

static const char *of_label(const struct profile *p, const struct profile_attrs *a, uint32_t name)
{
	uint32_t i;

	for (i = 0; i < a->label_count; i++)
		if (p->labels[a->label_first + i].name == name)
			return profile_string(p, p->labels[a->label_first + i].value);
	return "";
}

const char *attribute_text(const struct profile *p, uint32_t attrs, struct attribute attribute,
			   char scratch[ATTRIBUTE_SCRATCH_SIZE])
{
	const struct profile_attrs *a = &p->attrs[attrs];

	switch (attribute.kind) {
	case ATTRIBUTE_PROCESS:
	case ATTRIBUTE_PID:
	case ATTRIBUTE_EXE:
	case ATTRIBUTE_SERVICE:
	case ATTRIBUTE_CONTAINER:
	case ATTRIBUTE_IMAGE:
	case ATTRIBUTE_POD:
	case ATTRIBUTE_NAMESPACE:
		return of_process(p, a->process, attribute.kind, scratch);
	case ATTRIBUTE_HOST:
		return of_process(p, a->process, attribute.kind, scratch);
	case ATTRIBUTE_THREAD:
		return profile_string(p, a->thread_name);
	case ATTRIBUTE_TID:
		if (!a->tid)
			return "";
		(void)snprintf(scratch, ATTRIBUTE_SCRATCH_SIZE, "%u", a->tid);
		return scratch;
	case ATTRIBUTE_STATE:
		return profile_string(p, a->state);
	case ATTRIBUTE_WAIT:
		return profile_string(p, a->wait);
	case ATTRIBUTE_EXTRA:
		return profile_string(p, a->extra);
	case ATTRIBUTE_LABEL:
		return of_label(p, a, attribute.label);
	}
	return "";
}
