// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/compare/regression_check.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

struct regression_thresholds regression_thresholds_default(void)
{
	return (struct regression_thresholds){ 5, 2, 20, 10 };
}

const char *regression_severity_word(enum regression_severity severity)
{
	static const char *const words[] = { "NONE", "WARNING", "CRITICAL" };

	return words[severity];
}

static bool is_valid(double points)
{
	return points >= 0 && points <= 100;
}

static bool is_hotspot(const struct compare *c, const struct compare_function *f,
		       const struct regression_thresholds *t)
{
	return f->delta_pct > 0 && f->base_pct < c->threshold_points &&
	       f->comparison_pct >= t->new_hotspot_min_pct;
}

static enum regression_severity severity_of(const struct compare *c,
					    const struct compare_function *f,
					    const struct regression_thresholds *t)
{
	bool hotspot = is_hotspot(c, f, t);

	if (f->environment || f->delta_pct <= 0)
		return REGRESSION_NONE;
	if (f->delta_pct >= t->critical_delta_pct ||
	    (hotspot && f->comparison_pct >= t->critical_hotspot_pct))
		return REGRESSION_CRITICAL;
	return f->delta_pct >= t->function_delta_pct || hotspot ? REGRESSION_WARNING
								: REGRESSION_NONE;
}

static void add(struct regression_report *report, const struct compare *c,
		const struct compare_function *list, uint32_t count,
		const struct regression_thresholds *t)
{
	uint32_t i;

	for (i = 0; i < count; i++) {
		enum regression_severity severity = severity_of(c, &list[i], t);

		if (fabs(list[i].delta_pct) >= t->function_delta_pct)
			report->changed[report->changed_count++] = &list[i];
		if (is_hotspot(c, &list[i], t))
			report->hotspots[report->hotspot_count++] = &list[i];
		if (severity > report->severity)
			report->severity = severity;
	}
}

int regression_check_init(struct regression_report *ret, const struct compare *c,
			  const struct regression_thresholds *thresholds)
{
	struct regression_report report = { 0 };
	size_t room = (size_t)c->regression_count + c->improvement_count + 1;

	if (!is_valid(thresholds->function_delta_pct) ||
	    !is_valid(thresholds->new_hotspot_min_pct) ||
	    !is_valid(thresholds->critical_delta_pct) ||
	    !is_valid(thresholds->critical_hotspot_pct))
		return -EINVAL;
	report.changed = calloc(room, sizeof(*report.changed));
	report.hotspots = calloc(room, sizeof(*report.hotspots));
	if (!report.changed || !report.hotspots) {
		regression_check_deinit(&report);
		return -ENOMEM;
	}
	add(&report, c, c->regressions, c->regression_count, thresholds);
	add(&report, c, c->improvements, c->improvement_count, thresholds);
	*ret = report;
	return 0;
}

void regression_check_deinit(struct regression_report *report)
{
	free(report->changed);
	free(report->hotspots);
	*report = (struct regression_report){ 0 };
}
