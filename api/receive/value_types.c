// SPDX-License-Identifier: Apache-2.0
#include "api/receive/value_types.h"

#include <errno.h>
#include <string.h>

#define LOCKS PROFILE_TYPE_MAX /* block or mutex */

enum quantity { COUNT, TIME, BYTES };

static const struct {
	const char *name;
	enum quantity quantity;
	enum profile_type type;
	unsigned index;
} known_types[] = {
	{ "samples", COUNT, PROFILE_CPU, 0 },
	{ "sample", COUNT, PROFILE_CPU, 0 },
	{ "cpu", TIME, PROFILE_CPU, 1 },
	{ "wall", TIME, PROFILE_WALL, 0 },
	{ "events", COUNT, PROFILE_OFFCPU, 0 },
	{ "events", TIME, PROFILE_OFFCPU, 1 },
	{ "offcpu", TIME, PROFILE_OFFCPU, 1 },
	{ "off_cpu", TIME, PROFILE_OFFCPU, 1 },
	{ "contentions", COUNT, LOCKS, 0 },
	{ "delay", TIME, LOCKS, 1 },
	{ "inuse_objects", COUNT, PROFILE_MEMORY, 0 },
	{ "inuse_space", BYTES, PROFILE_MEMORY, 1 },
	{ "objects", COUNT, PROFILE_MEMORY, 0 },
	{ "space", BYTES, PROFILE_MEMORY, 1 },
	{ "alloc_objects", COUNT, PROFILE_ALLOC, 0 },
	{ "alloc_space", BYTES, PROFILE_ALLOC, 1 },
	{ "goroutine", COUNT, PROFILE_GOROUTINE, 0 },
	{ "goroutines", COUNT, PROFILE_GOROUTINE, 0 },
	{ "faults", COUNT, PROFILE_FAULTS, 0 },
};

static const struct {
	const char *word;
	enum quantity quantity;
	uint64_t scale;
} units[] = {
	{ "count", COUNT, 1 },	      { "", COUNT, 1 },
	{ "1", COUNT, 1 },	      { "objects", COUNT, 1 },
	{ "goroutines", COUNT, 1 },   { "samples", COUNT, 1 },
	{ "nanoseconds", TIME, 1 },   { "ns", TIME, 1 },
	{ "microseconds", TIME, 1000 }, { "us", TIME, 1000 },
	{ "milliseconds", TIME, 1000000 }, { "ms", TIME, 1000000 },
	{ "seconds", TIME, 1000000000 }, { "s", TIME, 1000000000 },
	{ "bytes", BYTES, 1 },	      { "byte", BYTES, 1 },
	{ "By", BYTES, 1 },
};

/* The scale of @unit, 0 = it is none of @quantity. */
static uint64_t scale_of(const char *unit, enum quantity quantity)
{
	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		if (units[i].quantity == quantity && strcmp(units[i].word, unit) == 0)
			return units[i].scale;
	return 0;
}

/* Notes the column in the plan of its type. False: the type is none of ours. */
static bool take_column(const struct value_type *column, int at, int locks,
			struct value_plan plans[PROFILE_TYPE_MAX + 1])
{
	for (size_t i = 0; i < ARRAY_SIZE(known_types); i++) {
		const uint64_t scale = scale_of(column->unit, known_types[i].quantity);
		const enum profile_type type = known_types[i].type == LOCKS && locks >= 0
						       ? (enum profile_type)locks
						       : known_types[i].type;

		if (!scale || strcmp(known_types[i].name, column->name) != 0)
			continue;
		if (plans[type].values[known_types[i].index].column >= 0)
			return false;
		plans[type].values[known_types[i].index] = (struct value_source){ at, scale };
		return true;
	}
	return false;
}

/* Samples are of time on the CPU if there is no other time that they could be of. */
static void settle_cpu(struct value_plan plans[PROFILE_TYPE_MAX], uint64_t period_ns)
{
	struct value_plan *cpu = &plans[PROFILE_CPU];

	if (plans[PROFILE_WALL].values[0].column >= 0)
		cpu->values[0].column = -1;
	if (cpu->values[0].column >= 0 && cpu->values[1].column < 0 && period_ns)
		cpu->values[1] = (struct value_source){ cpu->values[0].column, period_ns };
	cpu->period_ns = period_ns;
}

static uint64_t period_of(const struct value_type *type, int64_t period)
{
	const uint64_t scale = strcmp(type->name, "cpu") == 0 || strcmp(type->name, "wall") == 0
				       ? scale_of(type->unit, TIME)
				       : 0;
	uint64_t ns;

	if (period <= 0 || __builtin_mul_overflow((uint64_t)period, scale, &ns) ||
	    ns > 3600ull * 1000000000)
		return 0;
	return ns;
}

static int refuse(const struct value_type *columns, unsigned count,
		  const struct value_plan plans[PROFILE_TYPE_MAX + 1], struct err *err)
{
	char text[160] = "";
	size_t len = 0;

	if (plans[LOCKS].values[1].column >= 0)
		return err_set(err, EINVAL, "ProfileTypeMismatch", "type",
			       "contentions and delay are those of a block or of a mutex profile: say "
			       "which (type=block, type=mutex)");
	if (plans[PROFILE_CPU].values[0].column >= 0)
		return err_set(err, EINVAL, "ProfileTypeMismatch", "period",
			       "samples without a time: the period between samples is missing");
	for (unsigned i = 0; i < count && len < sizeof(text) - 1; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%.40s/%.20s",
					i ? ", " : "", columns[i].name, columns[i].unit);
	return err_set(err, EINVAL, "ProfileTypeMismatch", "sample_type",
		       "no profile type has the values %s: cpu, wall, offcpu, contentions and delay, "
		       "inuse_, alloc_objects and _space, goroutine and faults are known",
		       count ? text : "(none)");
}

int value_plans(const struct value_type *columns, unsigned count, int locks,
		const struct value_type *period_type, int64_t period,
		struct value_plan ret[PROFILE_TYPE_MAX], const struct value_type **ret_unknown,
		struct err *err)
{
	struct value_plan plans[PROFILE_TYPE_MAX + 1];
	const struct value_type *unknown = NULL;
	bool any = false;

	for (unsigned type = 0; type <= PROFILE_TYPE_MAX; type++)
		plans[type] = (struct value_plan){ .values = { { .column = -1 }, { .column = -1 } } };
	for (unsigned i = 0; i < count; i++)
		if (!take_column(&columns[i], (int)i, locks, plans) && !unknown)
			unknown = &columns[i];
	settle_cpu(plans, period_of(period_type, period));
	for (unsigned type = 0; type < PROFILE_TYPE_MAX; type++) {
		plans[type].wanted =
			plans[type].values[profile_type_info(type)->value_index > 0].column >= 0;
		any |= plans[type].wanted;
	}
	if (!any)
		return refuse(columns, count, plans, err);
	memcpy(ret, plans, PROFILE_TYPE_MAX * sizeof(*ret));
	*ret_unknown = unknown;
	return 0;
}

static int scaled(const struct value_source *source, const int64_t *columns, int64_t *ret)
{
	const int64_t value = source->column >= 0 ? columns[source->column] : 0;

	if (value < 0 || source->scale > INT64_MAX ||
	    __builtin_mul_overflow(value, (int64_t)source->scale, ret))
		return -ERANGE;
	return 0;
}

int value_plan_apply(const struct value_plan *plan, enum profile_type type, const int64_t *columns,
		     int64_t ret[2])
{
	int64_t values[2] = { 0 };
	int rc = 0;

	if (plan->values[0].column >= 0)
		rc = scaled(&plan->values[0], columns, &values[0]);
	if (rc == 0 && plan->values[1].column >= 0)
		rc = scaled(&plan->values[1], columns, &values[1]);
	if (rc < 0)
		return rc;
	if (profile_type_info(type)->value_count > 1 && plan->values[0].column < 0 && values[1] > 0) {
		values[0] = plan->period_ns ? values[1] / (int64_t)plan->period_ns : 0;
		values[0] += !values[0];
	}
	memcpy(ret, values, sizeof(values));
	return 0;
}
