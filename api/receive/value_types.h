/* SPDX-License-Identifier: Apache-2.0 */
/* Sample types of other profilers (pprof's and OTLP's type and unit) and the profile types of this
 * tree that they mean. Sources: the types that Go's runtime/pprof, gperftools, pprof-nodejs,
 * Pyroscope's agents and the OpenTelemetry eBPF profiler write. Pure. */
#ifndef PROFD_API_RECEIVE_VALUE_TYPES_H
#define PROFD_API_RECEIVE_VALUE_TYPES_H

#include "agent/base/err.h"
#include "agent/profile/profile_type.h"

#define VALUE_COLUMNS_MAX 16u

struct value_type {
	const char *name, *unit;
};

/* Where a value of a profile comes from. */
struct value_source {
	int column;	/* -1 = not sent */
	uint64_t scale; /* a sent value times it is nanoseconds, bytes or a count */
};

struct value_plan {
	bool wanted;
	struct value_source values[2]; /* in the order of the profile's type */
	uint64_t period_ns;	       /* of time between samples; 0 = unknown */
};

/* Finds the profiles that @count columns make. @locks: whether contentions and delay mean
 * PROFILE_BLOCK or PROFILE_MUTEX, -1 = nobody said. @period, in @period_type, lies between two
 * samples. A column of no type of ours is left out; @ret_unknown is the first, NULL = none.
 * -EINVAL, ProfileTypeMismatch: no column makes a profile. */
int value_plans(const struct value_type *columns, unsigned count, int locks,
		const struct value_type *period_type, int64_t period,
		struct value_plan ret[PROFILE_TYPE_MAX], const struct value_type **ret_unknown,
		struct err *err) must_use;
/* The values of a sample by @plan. An unknown count is what the period makes of the time, at least
 * 1. -ERANGE: negative, or too large. */
int value_plan_apply(const struct value_plan *plan, enum profile_type type, const int64_t *columns,
		     int64_t ret[2]) must_use;

#endif
