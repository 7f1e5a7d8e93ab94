/* SPDX-License-Identifier: Apache-2.0 */
/* The table of profile types: one row per type in profile_type.c says everything that the code asks
 * about it. The order of the enum means nothing. A type is known by its word in the API, in stored
 * data and in history. Pure, thread-safe. */
#ifndef PROFD_PROFILE_PROFILE_TYPE_H
#define PROFD_PROFILE_PROFILE_TYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

enum profile_type {
	PROFILE_CPU,
	PROFILE_OFFCPU,
	PROFILE_WALL,
	PROFILE_BLOCK,
	PROFILE_MUTEX,
	PROFILE_MEMORY,
	PROFILE_ALLOC,
	PROFILE_GOROUTINE,
	PROFILE_IO,
	PROFILE_FAULTS,
	PROFILE_TYPE_MAX,
};

#define PROFILE_VALUES_MAX 3

/* Types that continuous profiling keeps in minute buckets; minute_slot is smaller. */
#define PROFILE_MINUTE_TYPES 4

struct profile_value_type {
	const char *name; /* "cpu" */
	const char *unit; /* "nanoseconds", "count", "bytes" */
};

/* How a type is taken. */
enum profile_way {
	PROFILE_WAY_SAMPLED,  /* by perf events, each sample standing for a number of them */
	PROFILE_WAY_WAITS,    /* from times off the CPU, cut to the session's time */
	PROFILE_WAY_PROBES,   /* by probes on the process's allocator */
	PROFILE_WAY_SNAPSHOT, /* read from the process's memory */
};

/* How two profiles of a type are compared. */
enum profile_judged {
	PROFILE_JUDGED_SHARES,	/* by the share of each function */
	PROFILE_JUDGED_AMOUNTS, /* by the amount of each function in each time window */
	PROFILE_JUDGED_LEVELS,	/* by sampled bytes and the variance of their sampling */
	PROFILE_JUDGED_COUNTS,	/* by exact counts */
};

/* How continuous profiling keeps a type. */
enum profile_kept {
	PROFILE_KEPT_MINUTES,  /* in minute buckets */
	PROFILE_KEPT_SESSIONS, /* as a chain of sessions, each one span long */
	PROFILE_KEPT_NOT,      /* on demand only */
};

/* Options of a request beside the type. */
enum profile_option {
	PROFILE_OPTION_CHILDREN = 1,	 /* descendants of a process */
	PROFILE_OPTION_WAKERS = 2,	 /* stacks of wakers */
	PROFILE_OPTION_KERNEL_LOCKS = 4, /* waits for the kernel's locks */
	PROFILE_OPTION_PATHS = 8,	 /* names of files and peers */
	PROFILE_OPTION_INSTANT = 16,	 /* a duration of 0 s */
	PROFILE_OPTION_TASKS = 32,	 /* asyncio tasks beside threads */
	PROFILE_OPTION_MAX = 64,
};

struct profile_type_info {
	const char *word;  /* canonical: "cpu" */
	const char *alias; /* the word of pprof, accepted likewise; NULL: none */
	const char *noun;  /* in sentences: "time off CPU" */
	struct profile_value_type values[PROFILE_VALUES_MAX]; /* in pprof's order */
	uint8_t value_count;
	uint8_t value_index; /* of the value that totals, percentages and folded output use */
	bool rate;	     /* a flow over time (per second makes sense), not a level */
	bool spans;	     /* events are spans of time, reported at their end; their value is their length */
	bool counter; /* a snapshot of it only grows: a session is the difference of two snapshots */
	enum profile_way way;	 /* of programs in general */
	enum profile_way go_way; /* of Go programs */
	enum profile_judged judged;
	enum profile_kept kept;
	uint8_t minute_slot; /* KEPT_MINUTES: an index of its own */
	uint32_t options; /* bits of enum profile_option */
	uint32_t wants;	  /* bits of enum prof_want (bpf/profiler.h); 0: a snapshot, of any program */
	uint32_t samples; /* bits 1 << enum prof_sample_type that it is made of; the lowest is that by
			   * which losses are shared out */
	const char *needs; /* what the host lacks when the kernel side of @wants is not available */
	const char *only_on_demand; /* why it is KEPT_NOT; else NULL */
	const char *extra;	    /* name of profile_attrs.extra; NULL: none */
	struct profile_value_type period; /* of pprof, which readers know the type by; name NULL: none */
	const char *metric;		  /* name for Pyroscope */
};

/* The row of @type; never NULL for a valid type. */
const struct profile_type_info *profile_type_info(enum profile_type type);
/* Accepts words and aliases. -EINVAL otherwise. */
int profile_type_parse(const char *word, enum profile_type *ret) must_use;

/* The option's name in requests; NULL if it has none. @option: one bit. */
const char *profile_option_name(uint32_t option);

#define PROFILE_WORDS_SIZE 128
/* Writes "cpu, offcpu, … and io": the types that have one of @options (0 = all). Returns @out. */
const char *profile_type_words(uint32_t options, char out[PROFILE_WORDS_SIZE]);

/* Bits 1 << type of the types that are kept so. */
uint32_t profile_types_kept(enum profile_kept kept);

static inline bool profile_type_is_kept(enum profile_type type, enum profile_kept kept)
{
	return profile_type_info(type)->kept == kept;
}

/* Whether @type is read from a Go program, or from any other one. */
static inline bool profile_type_is_read(enum profile_type type, bool of_go)
{
	const struct profile_type_info *info = profile_type_info(type);

	return (of_go ? info->go_way : info->way) == PROFILE_WAY_SNAPSHOT;
}

#endif
