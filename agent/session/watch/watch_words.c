// SPDX-License-Identifier: Apache-2.0
#include <math.h>

#include "agent/session/records/record_json.h"
#include "agent/session/watch/watch.h"

static void add_number(cJSON *to, const char *name, double value)
{
	if (isfinite(value))
		(void)cJSON_AddNumberToObject(to, name, value);
	else
		(void)cJSON_AddNullToObject(to, name);
}

static cJSON *start(const char *base, const char *comparison, const char *verdict,
		    const char *cause, const char *summary)
{
	cJSON *json = cJSON_CreateObject();

	(void)cJSON_AddStringToObject(json, "baseProfile", base);
	(void)cJSON_AddStringToObject(json, "comparisonProfile", comparison);
	(void)cJSON_AddStringToObject(json, "verdict", verdict);
	(void)cJSON_AddStringToObject(json, "cause", cause);
	(void)cJSON_AddStringToObject(json, "summary", summary);
	return json;
}

static void add_function(cJSON *list, const struct compare_function *f)
{
	cJSON *json = cJSON_CreateObject(), *interval;

	(void)cJSON_AddItemToArray(list, json);
	(void)cJSON_AddStringToObject(json, "funcName", f->name);
	(void)cJSON_AddStringToObject(json, "package", f->package);
	(void)cJSON_AddStringToObject(json, "file", f->file);
	add_number(json, "basePct", f->base_pct);
	add_number(json, "comparisonPct", f->comparison_pct);
	add_number(json, "deltaPct", f->delta_pct);
	(void)cJSON_AddStringToObject(json, "change", compare_change_word(f->change));
	add_number(json, "pValue", f->p_value);
	add_number(json, "qValue", f->q_value);
	interval = cJSON_AddArrayToObject(json, "confidenceInterval");
	for (unsigned i = 0; i < 2; i++)
		(void)cJSON_AddItemToArray(interval, cJSON_CreateNumber(f->interval[i]));
}

static void add_functions(cJSON *json, const char *name, const struct compare_function *list,
			  uint32_t count)
{
	cJSON *array = cJSON_AddArrayToObject(json, name);

	for (uint32_t i = 0; i < count; i++)
		add_function(array, &list[i]);
}

void watch_window_label(const struct watch_subject *subject, uint64_t from_ns, uint64_t to_ns,
			char out[WATCH_LABEL_SIZE])
{
	char from[CLOCK_RFC3339_SIZE], to[CLOCK_RFC3339_SIZE];

	clock_format_rfc3339(from_ns, from);
	clock_format_rfc3339(to_ns, to);
	(void)snprintf(out, WATCH_LABEL_SIZE, "%s/%s/%s/%s", subject->service,
		       profile_type_info(subject->type)->word, from, to);
}

char *watch_hour_json(const struct watch_subject *subject, const struct hour_function *function,
		      unsigned past, uint64_t since_ns)
{
	bool worse = function->comparison > function->base;
	struct compare_function f = {
		.name = function->name,
		.package = function->package,
		.file = function->file,
		.change = function->base <= 0	      ? COMPARE_NEW
			  : function->comparison <= 0 ? COMPARE_GONE
						      : COMPARE_CHANGED,
		.base_pct = 100 * function->base,
		.comparison_pct = 100 * function->comparison,
		.delta_pct = 100 * (function->comparison - function->base),
		.p_value = function->p,
		.q_value = function->q,
		.interval = { 100 * function->interval[0], 100 * function->interval[1] },
	};
	char label[WATCH_LABEL_SIZE], before[WATCH_LABEL_SIZE], summary[512], base[64];
	cleanup(json) cJSON *json = NULL;

	watch_window_label(subject, subject->at_ns - WATCH_HOUR_NS, subject->at_ns, label);
	(void)snprintf(base, sizeof(base),
		       since_ns ? "the %u hours before" : "the same hour of %u days before", past);
	(void)snprintf(summary, sizeof(summary),
		       "%.120s takes %.1f %% of %s, %s had %.1f %% (%+.1f points, 99 %% interval "
		       "%.1f to %.1f), for the second hour running.",
		       f.name, f.comparison_pct, profile_type_info(subject->type)->word, base,
		       f.base_pct, f.delta_pct, f.interval[0], f.interval[1]);
	watch_window_label(subject, since_ns, subject->at_ns - WATCH_HOUR_NS, before);
	json = start(since_ns ? before : base, label,
		     compare_verdict_word(worse ? COMPARE_REGRESSED : COMPARE_IMPROVED),
		     compare_cause_word(COMPARE_CAUSE_FUNCTIONS), summary);
	add_functions(json, "regressions", &f, worse);
	add_functions(json, "improvements", &f, !worse);
	return json ? cJSON_PrintUnformatted(json) : NULL;
}

char *watch_compare_json(const char *base, const char *comparison, const struct compare *c)
{
	cleanup(json) cJSON *json = start(base, comparison, compare_verdict_word(c->verdict),
					  compare_cause_word(c->cause), c->summary);

	add_number(json, "overallDelta", c->overall_known ? c->overall_delta_pct : NAN);
	(void)cJSON_AddBoolToObject(json, "significant", c->overall_significant);
	add_functions(json, "regressions", c->regressions, c->regression_count);
	add_functions(json, "improvements", c->improvements, c->improvement_count);
	return json ? cJSON_PrintUnformatted(json) : NULL;
}

char *watch_level_json(const struct watch_subject *subject, const struct change_point *point,
		       uint64_t point_ns)
{
	char before[WATCH_LABEL_SIZE], after[WATCH_LABEL_SIZE], summary[512];
	char time[CLOCK_RFC3339_SIZE];
	double delta_pct = point->before > 0 ? 100 * (point->after / point->before - 1) : NAN;
	cleanup(json) cJSON *json = NULL;

	clock_format_rfc3339(point_ns, time);
	watch_window_label(subject, subject->at_ns - CONTINUOUS_DAY_NS, point_ns, before);
	watch_window_label(subject, point_ns, subject->at_ns, after);
	if (profile_type_info(subject->type)->rate)
		(void)snprintf(summary, sizeof(summary),
			       "The %s per second changed at %s from %.4g to %.4g and stayed there: more or "
			       "less work is likelier than slower or faster code.",
			       profile_type_info(subject->type)->word, time, point->before, point->after);
	else
		(void)snprintf(summary, sizeof(summary),
			       "The level of %s changed at %s from %.4g to %.4g and stayed there.",
			       profile_type_info(subject->type)->word, time, point->before,
			       point->after);
	json = start(before, after, compare_verdict_word(COMPARE_UNCHANGED),
		     compare_cause_word(COMPARE_CAUSE_LOAD), summary);
	add_number(json, "overallDelta", delta_pct);
	(void)cJSON_AddBoolToObject(json, "significant", true);
	add_functions(json, "regressions", NULL, 0);
	add_functions(json, "improvements", NULL, 0);
	return json ? cJSON_PrintUnformatted(json) : NULL;
}
