// SPDX-License-Identifier: Apache-2.0
/* Views that are computed from profiles: differential flame graph, heat map, trend, thread ledger,
 * gate. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/buf.h"
#include "agent/profile/compare/flame_diff.h"
#include "agent/profile/heatmap.h"
#include "agent/profile/compare/regression_check.h"
#include "agent/profile/thread_ledger.h"
#include "tests/support/profile_text.h"

#define MAKE(type, ...)                                                                            \
	profile_from_text(type, (const char *const[]){ __VA_ARGS__ },                              \
			  ARRAY_SIZE(((const char *const[]){ __VA_ARGS__ })))

/* ---- flame diff ------------------------------------------------------------------------------ */

static char *diff_text(const struct flame_diff *d)
{
	cleanup_buf struct buf out = { 0 };
	uint32_t i;

	for (i = 0; i < d->node_count; i++) {
		const struct flame_diff_node *n = &d->nodes[i];

		buf_printf(&out, "%*s", (int)n->depth, "");
		if (!i)
			buf_add_str(&out, "all");
		else if (n->function == FLAME_DIFF_PRUNED)
			buf_printf(&out, "[%u]", n->pruned);
		else
			buf_add_str(&out, d->functions[n->function].name);
		buf_printf(&out, " %lld %lld\n", (long long)n->total[0], (long long)n->total[1]);
		assert_true(!i || n->parent < i);
	}
	return buf_take(&out, &(size_t){ 0 });
}

static void test_flame_diff(void **state)
{
	cleanup(profile) struct profile *base =
		MAKE(PROFILE_CPU, "m;f;g 30", "m;f 10", "m;gone;x 40", "m;k 20");
	cleanup(profile) struct profile *comparison =
		MAKE(PROFILE_CPU, "m;f;g 150", "m;f 10", "m;new 30", "m;k 10");
	static const struct {
		uint32_t max;
		const char *text;
	} rows[] = {
		{ 0, "all 100 200\n m 100 200\n  f 40 160\n   g 30 150\n  gone 40 0\n   x 40 0\n"
		     "  k 20 10\n  new 0 30\n" },
		{ 4, "all 100 200\n m 100 200\n  f 40 160\n   g 30 150\n  [4] 60 40\n" },
		{ 1, "all 100 200\n [7] 100 200\n" },
	};
	cleanup(profile) struct profile *io = MAKE(PROFILE_IO, "a 1");
	struct flame_diff none = { .node_count = 5 };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_flame_diff struct flame_diff d = { 0 };
		cleanup_free char *text = NULL;

		assert_int_equal(flame_diff_init(&d, base, comparison, rows[i].max), 0);
		text = diff_text(&d);
		if (rows[i].max == 1) {
			/* The root weighs as much as its only child: ties go together. */
			assert_non_null(strstr(text, "all 100 200"));
			continue;
		}
		assert_string_equal(text, rows[i].text);
	}
	assert_int_equal(flame_diff_init(&none, base, io, 0), -EINVAL);
	assert_int_equal(none.node_count, 5);
}

/* Two releases differ in what they are named, not in every frame. */
static void test_flame_diff_of_builds(void **state)
{
	cleanup(profile) struct profile *old =
		MAKE(PROFILE_CPU, "app-1.4.2!m;app-1.4.2!f.constprop.0 30", "worker-1!m 1");
	cleanup(profile) struct profile *next =
		MAKE(PROFILE_CPU, "app_v1.5.0-rc1!m;app_v1.5.0-rc1!f 60", "worker-2!m 1");
	cleanup_flame_diff struct flame_diff d = { 0 };
	cleanup_free char *text = NULL;

	assert_int_equal(flame_diff_init(&d, old, next, 0), 0);
	text = diff_text(&d);
	assert_string_equal(text, "all 31 61\n m 30 60\n  f.constprop.0 30 60\n m 1 0\n m 0 1\n");
}

static void test_flame_diff_folds_lines(void **state)
{
	struct profile_meta meta = { .type = PROFILE_CPU };
	struct profile_quality quality = { 0 };
	cleanup(profile_builder) struct profile_builder *b = profile_builder_create(&meta, 100);
	cleanup(profile) struct profile *p = NULL;
	cleanup_flame_diff struct flame_diff d = { 0 };
	uint32_t function, attrs, i;

	function = profile_builder_function(
		b, &(struct profile_function){ .name = profile_builder_string(b, "f", 1) });
	attrs = profile_builder_attrs(b, &(struct profile_attrs){ 0 }, NULL);
	for (i = 0; i < 5; i++) {
		struct profile_frame frame = { .function = function, .line = i };

		profile_builder_sample(b,
				       profile_builder_node(b, 0, profile_builder_frame(b, &frame)),
				       attrs, (int64_t[]){ 1, 10 });
	}
	assert_int_equal(profile_builder_finish(b, &quality, &p), 0);
	assert_int_equal(flame_diff_init(&d, p, p, 0), 0);
	assert_int_equal(d.node_count, 2);
	assert_int_equal(d.nodes[1].self[1], 50);
}

/* ---- time ------------------------------------------------------------------------------------ */

static void test_heatmap(void **state)
{
	cleanup(profile) struct profile *p =
		MAKE(PROFILE_CPU, "at=0.1 f 3", "at=0.15 f 4", "at=0.9 f 1", "at=2.5 f 9");
	cleanup(profile) struct profile *none = MAKE(PROFILE_CPU, "f 3");
	struct heatmap map = { 0 };
	size_t i;
	static const struct {
		uint32_t col, row;
		int rc;
	} rows[] = {
		{ 0, 20, -EINVAL },
		{ 1000, 0, -EINVAL },
		{ 1000, 300, -EINVAL },
	};

	for (i = 0; i < ARRAY_SIZE(rows); i++)
		assert_int_equal(heatmap_init(&map, p, rows[i].col, rows[i].row), rows[i].rc);
	assert_int_equal(heatmap_init(&map, none, 1000, 20), -ENODATA);
	p->events[3].time_ns = UINT64_MAX;
	assert_int_equal(heatmap_init(&map, p, 1000, 1), -E2BIG);
	p->events[3].time_ns = 1002500000000ull;
	assert_int_equal(heatmap_init(&map, p, 1000, 100), 0);
	assert_int_equal(map.cols, 3);
	assert_int_equal(map.rows, 10);
	assert_int_equal(map.from_ns, 1000000000000ull);
	assert_int_equal(map.cells[1], 7);
	assert_int_equal(map.cells[9], 1);
	assert_int_equal(map.cells[25], 9);
	assert_int_equal(map.max, 9);
	heatmap_deinit(&map);
}

/* Waits are told at their end: each cell has what of them lies in it. */
static void test_heatmap_of_waits(void **state)
{
	cleanup(profile) struct profile *p =
		MAKE(PROFILE_OFFCPU, "at=0.05 f 1 20000000", "at=2.25 f 1 2100000000", "at=2.25 g 1 250000000");
	struct heatmap map = { 0 };
	int64_t sum = 0;

	p->meta.start_ns = 1000000000000ull;
	assert_int_equal(heatmap_init(&map, p, 1000, 100), 0);
	assert_int_equal(map.cols, 3);
	assert_int_equal(map.from_ns, 1000000000000ull);
	assert_int_equal(map.cells[0], 20000000);
	assert_int_equal(map.cells[1], 50000000);
	assert_int_equal(map.cells[2], 100000000);
	assert_int_equal(map.cells[19], 100000000);
	assert_int_equal(map.cells[20], 200000000);
	assert_int_equal(map.cells[22], 100000000);
	assert_int_equal(map.max, 200000000);
	for (size_t i = 0; i < 30; i++)
		sum += map.cells[i];
	assert_int_equal(sum, 2370000000);
	heatmap_deinit(&map);
	/* what stands for others is in the first cell */
	p->meta.start_ns = 1002200000000ull;
	assert_int_equal(heatmap_init(&map, p, 1000, 100), 0);
	assert_int_equal(map.cells[0], 20000000);
	assert_int_equal(map.cells[22], 2350000000);
	heatmap_deinit(&map);
}

static void test_trend(void **state)
{
	cleanup(profile) struct profile *p =
		MAKE(PROFILE_CPU, "at=1 m;f 3", "at=2 m;g 4", "at=21 m;f;g 10", "at=22 m;f 6");
	cleanup(profile) struct profile *built = MAKE(PROFILE_CPU, "m;f.constprop.0 4", "m;f 2", "m;fg 4");
	double value;

	assert_int_equal(trend_value(p, "g", false, &value), 0);
	assert_true(fabs(value - 100 * 14.0 / 23) < 1e-9);
	assert_int_equal(trend_value(p, "f", true, &value), 0);
	assert_true(fabs(value - 100 * 19.0 / 23) < 1e-9);
	assert_int_equal(trend_value(built, "f", false, &value), 0); /* as comparisons name it */
	assert_true(value == 60);
	assert_int_equal(trend_value(built, "f.constprop.0", true, &value), 0);
	assert_true(value == 40);
	assert_int_equal(trend_value(p, "nothing", true, &value), 0);
	assert_true(value == 0);
}

static void test_ledger(void **state)
{
	cleanup(profile) struct profile *p = MAKE(
		PROFILE_WALL, "tid=1 thread=a m;f 10", "tid=1 thread=a m;f;k@kernel 5",
		"tid=1 thread=a state=runqueue m;f 2", "tid=1 thread=a state=preempted m;f 1",
		"tid=1 thread=a state=preempted [stolen]@marker 3",
		"tid=1 thread=a state=preempted [stolen] 4",
		"tid=1 thread=a state=blocked wait=futex m;f;s@kernel 30",
		"tid=1 thread=a state=blocked wait=futex m;g;s@kernel 12",
		"tid=1 thread=a state=blocked wait=disk m;g;s@kernel 40", "tid=2 thread=b m;f 100");
	cleanup(profile) struct profile *cpu = MAKE(PROFILE_CPU, "f 3");
	struct thread_ledger ledger = { 0 };
	int64_t waits = 0;
	uint32_t i;

	assert_int_equal(thread_ledger_init(&ledger, cpu), -EINVAL);
	assert_int_equal(thread_ledger_init(&ledger, p), 0);
	assert_int_equal(ledger.thread_count, 2);
	assert_int_equal(ledger.threads[0].elapsed_ns, 107);
	assert_int_equal(ledger.threads[0].user_ns, 10);
	assert_int_equal(ledger.threads[0].kernel_ns, 5);
	assert_int_equal(ledger.threads[0].runqueue_ns, 2);
	assert_int_equal(ledger.threads[0].preempted_ns, 8);
	assert_int_equal(ledger.threads[0].stolen_ns, 3); /* a function may have any name */
	assert_int_equal(ledger.threads[0].wait_count, 2);
	for (i = 0; i < 2; i++)
		waits += ledger.waits[ledger.threads[0].wait_first + i].ns;
	assert_int_equal(waits, 82);
	assert_int_equal(ledger.threads[1].user_ns, 100);
	assert_int_equal(ledger.threads[1].wait_count, 0);
	assert_string_equal(profile_string(p, ledger.threads[1].name), "b");
	thread_ledger_deinit(&ledger);
}

/* ---- gate ------------------------------------------------------------------------------------ */

static void test_severity(void **state)
{
	static const struct {
		double base, comparison;
		bool environment;
		enum regression_severity severity;
		uint32_t changed, hotspots;
	} rows[] = {
		{ 10, 14.9, false, REGRESSION_NONE, 0, 0 },
		{ 10, 15, false, REGRESSION_WARNING, 1, 0 },
		{ 10, 30, false, REGRESSION_CRITICAL, 1, 0 },
		{ 10, 30, true, REGRESSION_NONE, 1, 0 },
		{ 0, 1.9, false, REGRESSION_NONE, 0, 0 },
		{ 0, 2, false, REGRESSION_WARNING, 0, 1 },
		{ 0.4, 9, false, REGRESSION_WARNING, 1, 1 },
		{ 0.4, 10, false, REGRESSION_CRITICAL, 1, 1 },
		{ 0.5, 4, false, REGRESSION_NONE, 0, 0 },
	};
	struct regression_thresholds thresholds = regression_thresholds_default();
	struct compare_function f = { .name = "f" }, better = { .name = "g", .delta_pct = -30 };
	struct compare c = { .threshold_points = 0.5, .regressions = &f, .regression_count = 1 };
	struct regression_report report = { 0 };
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		f.base_pct = rows[i].base;
		f.comparison_pct = rows[i].comparison;
		f.delta_pct = rows[i].comparison - rows[i].base;
		f.environment = rows[i].environment;
		assert_int_equal(regression_check_init(&report, &c, &thresholds), 0);
		assert_int_equal(report.severity, rows[i].severity);
		assert_int_equal(report.changed_count, rows[i].changed);
		assert_int_equal(report.hotspot_count, rows[i].hotspots);
		regression_check_deinit(&report);
	}
	c = (struct compare){ .threshold_points = 0.5,
			      .improvements = &better,
			      .improvement_count = 1 };
	assert_int_equal(regression_check_init(&report, &c, &thresholds), 0);
	assert_int_equal(report.severity, REGRESSION_NONE);
	assert_int_equal(report.changed_count, 1);
	regression_check_deinit(&report);
	thresholds.critical_delta_pct = 101;
	assert_int_equal(regression_check_init(&report, &c, &thresholds), -EINVAL);
	thresholds.critical_delta_pct = NAN;
	assert_int_equal(regression_check_init(&report, &c, &thresholds), -EINVAL);
	assert_string_equal(regression_severity_word(REGRESSION_CRITICAL), "CRITICAL");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_flame_diff), cmocka_unit_test(test_flame_diff_of_builds),
		cmocka_unit_test(test_flame_diff_folds_lines),
		cmocka_unit_test(test_heatmap),
		cmocka_unit_test(test_heatmap_of_waits),	   cmocka_unit_test(test_trend),
		cmocka_unit_test(test_ledger),	   cmocka_unit_test(test_severity),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
