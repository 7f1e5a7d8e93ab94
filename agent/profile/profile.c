// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/profile.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(name)                                                                                \
	{                                                                                          \
		name, "count"                                                                      \
	}
#define NANOSECONDS(name)                                                                          \
	{                                                                                          \
		name, "nanoseconds"                                                                \
	}
#define BYTES(name)                                                                                \
	{                                                                                          \
		name, "bytes"                                                                      \
	}

/* contract.md section 3, "Sample types, pprof order and units". */
static const struct profile_type_info types[PROFILE_TYPE_MAX] = {
	[PROFILE_CPU] = { "cpu", { COUNT("samples"), NANOSECONDS("cpu") }, 2, 1, true },
	[PROFILE_OFFCPU] = { "offcpu", { COUNT("events"), NANOSECONDS("offcpu") }, 2, 1, true },
	[PROFILE_WALL] = { "wall", { NANOSECONDS("wall") }, 1, 0, true },
	[PROFILE_BLOCK] = { "block", { COUNT("contentions"), NANOSECONDS("delay") }, 2, 1, true },
	[PROFILE_MUTEX] = { "mutex", { COUNT("contentions"), NANOSECONDS("delay") }, 2, 1, true },
	[PROFILE_MEMORY] = { "memory",
			     { COUNT("inuse_objects"), BYTES("inuse_space") },
			     2,
			     1,
			     false },
	[PROFILE_ALLOC] = { "alloc", { COUNT("alloc_objects"), BYTES("alloc_space") }, 2, 1, true },
	[PROFILE_GOROUTINE] = { "goroutine", { COUNT("goroutine") }, 1, 0, false },
	[PROFILE_IO] = { "io",
			 { COUNT("operations"), NANOSECONDS("delay"), BYTES("bytes") },
			 3,
			 1,
			 true },
};

const struct profile_type_info *profile_type_info(enum profile_type type)
{
	return (unsigned)type < PROFILE_TYPE_MAX ? &types[type] : NULL;
}

int profile_type_parse(const char *word, enum profile_type *ret)
{
	static const struct {
		const char *word;
		enum profile_type type;
	} aliases[] = {
		{ "heap", PROFILE_MEMORY },
		{ "allocs", PROFILE_ALLOC },
		{ "profile", PROFILE_CPU },
	};
	size_t i;

	for (i = 0; i < PROFILE_TYPE_MAX; i++) {
		if (!strcmp(word, types[i].word)) {
			*ret = (enum profile_type)i;
			return 0;
		}
	}
	for (i = 0; i < ARRAY_SIZE(aliases); i++) {
		if (!strcmp(word, aliases[i].word)) {
			*ret = aliases[i].type;
			return 0;
		}
	}
	return -EINVAL;
}

struct profile *profile_ref(struct profile *p)
{
	(void)__atomic_add_fetch(&p->refs, 1, __ATOMIC_RELAXED);
	return p;
}

struct profile *profile_unref(struct profile *p)
{
	if (!p || __atomic_sub_fetch(&p->refs, 1, __ATOMIC_ACQ_REL))
		return NULL;
	free(p->mappings);
	free(p->functions);
	free(p->frames);
	free(p->nodes);
	free(p->labels);
	free(p->attrs);
	free(p->processes);
	free(p->samples);
	free(p->events);
	free(p->string_offsets);
	free(p->string_bytes);
	free(p);
	return NULL;
}
