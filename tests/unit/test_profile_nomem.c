// SPDX-License-Identifier: Apache-2.0
/* Every operation of agent/profile with its n-th allocation failing, n = 0, 1, 2, … until it
 * succeeds: -ENOMEM, output untouched, nothing leaked (under the address sanitizer). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "agent/profile/compare/compare.h"
#include "agent/profile/compare/flame_diff.h"
#include "agent/profile/heatmap.h"
#include "agent/profile/profile_fold.h"
#include "agent/profile/goroutine/profile_diff.h"
#include "agent/profile/compare/regression_check.h"
#include "agent/profile/stack_resolver.h"
#include "agent/profile/thread_ledger.h"
#include "agent/wire/feed.h"
#include "bpf/profiler.h"
#include "tests/support/alloc_fail.h"
#include "tests/support/profile_text.h"

#define STEPS_MAX 10000

static struct profile *base, *other, *goroutines, *wall, *cpu, *faster, *python;

static int merge(void)
{
	struct profile *ret = NULL;
	int rc = profile_merge((struct profile *[]){ base, other }, 2, &ret);

	assert_true(!ret == (rc < 0));
	(void)profile_unref(ret);
	return rc;
}

static int select_grouped(void)
{
	struct profile_filter filter = { .from_ns = 1,
					 .where_names = { "state", "build-id" },
					 .where_values = { "blocked", "" },
					 .where_count = 1,
					 .group_by = "tid" };
	struct profile *ret = NULL;
	int rc = profile_select(base, &filter, &ret);

	assert_true(!ret == (rc < 0));
	(void)profile_unref(ret);
	return rc;
}

static int select_build_id(void)
{
	struct profile_filter filter = { .where_names = { "build-id", "build-id" },
					 .where_values = { "ab", "ab" },
					 .where_count = 2 };
	struct profile *ret = NULL;
	int rc = profile_select(base, &filter, &ret);

	(void)profile_unref(ret);
	return rc;
}

static int fold(void)
{
	struct profile *ret = NULL;
	int rc = profile_fold(python, &ret);

	assert_true(!ret == (rc < 0));
	(void)profile_unref(ret);
	return rc;
}

static int top(void)
{
	struct profile_function_row *rows = NULL;
	size_t count = 0;
	int rc = profile_top_functions(base, profile_value_index(base), &rows, &count);

	assert_true(!rows == (rc < 0));
	free(rows);
	return rc;
}

static int lines(void)
{
	struct profile_function_row *rows = NULL;
	size_t count = 0;
	int rc = profile_top_lines(base, profile_value_index(base), NULL, &rows, &count);

	assert_true(!rows == (rc < 0));
	free(rows);
	return rc;
}

static bool find_module(void *ctx, uint32_t module, struct stack_module *ret)
{
	*ret = (struct stack_module){ module, "/bin/x", NULL, 0, FEED_MODULE_ELF };
	return true;
}

static int find_name(void *ctx, uint64_t key, uint64_t offset, struct name_frame *ret)
{
	ret[0] = (struct name_frame){
		.function = "f", .package = "", .file = "f.c", .line = 1, .start_line = 1
	};
	return offset & 1;
}

static void prefetch(void *ctx, uint64_t key, const uint64_t *offsets, size_t count)
{
}

static int resolve(void)
{
	struct stack_modules modules = { NULL, find_module };
	struct name_source names = { NULL, find_name, prefetch };
	struct profile_meta meta = { .type = PROFILE_CPU };
	struct profile_quality quality = { 0 };
	cleanup(profile_builder) struct profile_builder *b = profile_builder_create(&meta, 1000);
	cleanup(stack_resolver) struct stack_resolver *r = NULL;
	struct profile *ret = NULL;
	uint64_t frames[64];
	uint32_t node = 0, attrs, i;
	int rc;

	for (i = 0; i < ARRAY_SIZE(frames); i++)
		frames[i] = prof_frame_module(i % 20, i, 0);
	if (!b)
		return -ENOMEM;
	r = stack_resolver_create(b, &modules, &names, 0);
	if (!r)
		return -ENOMEM;
	rc = stack_resolver_prefetch(r, frames, ARRAY_SIZE(frames));
	if (rc == 0)
		rc = stack_resolver_node(r, (struct stack_frames){ frames, ARRAY_SIZE(frames) },
					 (struct stack_frames){ NULL, 0 }, &node);
	if (rc < 0)
		return rc;
	attrs = profile_builder_attrs(b, &(struct profile_attrs){ 0 }, NULL);
	profile_builder_sample(b, node, attrs, (int64_t[]){ 1, 1 });
	rc = profile_builder_finish(b, &quality, &ret);
	assert_true(!ret == (rc < 0));
	(void)profile_unref(ret);
	return rc;
}

static int judge(const struct profile *a, const struct profile *b)
{
	struct compare_side sides[2] = { { .profile = a, .runqueue_share = -1 },
					 { .profile = b, .runqueue_share = -1 } };
	struct compare c = { .unchanged = 77 };
	int rc = compare_init(&c, &sides[0], &sides[1], NULL);

	if (rc < 0)
		assert_int_equal(c.unchanged, 77);
	else
		compare_deinit(&c);
	return rc;
}

static int compare_cpu(void)
{
	return judge(cpu, faster);
}

static int compare_offcpu(void)
{
	return judge(base, other);
}

static int compare_goroutines(void)
{
	return judge(goroutines, goroutines);
}

static int matrix(void)
{
	cleanup(window_matrix) struct window_matrix *m = NULL, *coarse = NULL;
	cleanup_free uint32_t *map = NULL;
	int rc = window_matrix_create(cpu, NULL, &m, &map);

	return rc == 0 ? window_matrix_coarsen(m, 2, &coarse) : rc;
}

static int analyse(void)
{
	cleanup_goroutine_analysis struct goroutine_analysis a = { 0 };

	return goroutine_analysis_init(&a, goroutines, &(struct goroutine_options){ 0 });
}

static int diff_goroutines(void)
{
	cleanup_profile_diff struct profile_diff d = { 0 };

	return profile_diff_init(&d, goroutines, goroutines, &(struct goroutine_options){ 0 });
}

static int diff_functions(void)
{
	cleanup_profile_diff struct profile_diff d = { 0 };

	return profile_diff_init(&d, base, other, &(struct goroutine_options){ 0 });
}

static int diff_flames(void)
{
	cleanup_flame_diff struct flame_diff d = { 0 };

	return flame_diff_init(&d, base, other, 4);
}

static int views(void)
{
	struct thread_ledger ledger = { 0 };
	struct heatmap map = { 0 };
	double value;
	int rc = thread_ledger_init(&ledger, wall);

	thread_ledger_deinit(&ledger);
	if (rc == 0)
		rc = heatmap_init(&map, base, 1000, 20);
	heatmap_deinit(&map);
	return rc < 0 ? rc : trend_value(base, "m", true, &value);
}

static int gate(void)
{
	struct regression_thresholds thresholds = regression_thresholds_default();
	struct regression_report report = { 0 };
	struct compare c = { 0 };
	int rc = regression_check_init(&report, &c, &thresholds);

	regression_check_deinit(&report);
	return rc;
}

static void fail_each(const char *name, int (*run)(void), bool once)
{
	long n;
	int rc;

	for (n = 0; n < STEPS_MAX; n++) {
		alloc_fail_after(n, once);
		rc = run();
		if (!alloc_fail_stop())
			break;
		if (rc != -ENOMEM)
			print_error("%s, allocation %ld: %d\n", name, n, rc);
		assert_int_equal(rc, -ENOMEM);
	}
	assert_int_equal(rc, 0);
	assert_in_range(n, 1, STEPS_MAX - 1);
}

static void test_every_allocation(void **state)
{
	static const struct {
		const char *name;
		int (*run)(void);
	} rows[] = {
		{ "merge", merge },
		{ "select grouped", select_grouped },
		{ "select build-id", select_build_id },
		{ "fold", fold },
		{ "top", top },	     { "lines", lines },
		{ "resolve", resolve },
		{ "compare cpu", compare_cpu },
		{ "compare offcpu", compare_offcpu },
		{ "compare goroutines", compare_goroutines },
		{ "window matrix", matrix },
		{ "goroutine analysis", analyse },
		{ "diff goroutines", diff_goroutines },
		{ "diff functions", diff_functions },
		{ "flame diff", diff_flames },
		{ "views", views },
		{ "gate", gate },
	};
	size_t i;
	int once;

	for (i = 0; i < ARRAY_SIZE(rows); i++)
		for (once = 0; once < 2; once++)
			fail_each(rows[i].name, rows[i].run, once);
}

/* Two processes, a callee that moves into its caller and one that grows with @share: every path of
 * the comparison is taken. */
static struct profile *cpu_profile(unsigned share)
{
	cleanup_free char **lines = calloc(6000, sizeof(*lines));
	struct profile *p;
	size_t i;

	for (i = 0; i < 6000; i++) {
		unsigned kind = (unsigned)(i * 7919 % 100);

		if (asprintf(&lines[i], "pid=%d comm=%s at=%f m;%s 1 10000000", i % 2 ? 1 : 2,
			     i % 2 ? "web" : "db", (double)i / 100,
			     kind < share	 ? "hot"
			     : kind < share + 20 ? share == 20 ? "c;leaf" : "c"
						 : "x;y@unknown") < 0)
			abort();
	}
	p = profile_from_text(PROFILE_CPU, (const char *const *)lines, 6000);
	for (i = 0; i < 6000; i++)
		free(lines[i]);
	return p;
}

static int make_profiles(void **state)
{
	static const char *const lines[] = {
		"pid=1 tid=7 state=blocked user=ann at=1 m;f;[truncated]@marker 3",
		"pid=2 tid=8 state=blocked at=2 m;g;h 4",
		"pid=2 tid=9 state=runqueue at=2 m;g;i 4",
	};

	static const char *const routines[] = { "state=waiting wait=select extra=m main.f@go 3",
						"state=running main.g@go;runtime.x@go 2" };
	static const char *const scripts[] = { "at=1 main;f@python;loop;call;g@python;loop;sort 3" };

	goroutines = profile_from_text(PROFILE_GOROUTINE, routines, ARRAY_SIZE(routines));
	wall = profile_from_text(PROFILE_WALL, lines, ARRAY_SIZE(lines));
	python = profile_from_text(PROFILE_OFFCPU, scripts, ARRAY_SIZE(scripts));
	cpu = cpu_profile(20);
	faster = cpu_profile(60);
	base = profile_from_text(PROFILE_OFFCPU, lines, ARRAY_SIZE(lines));
	other = profile_from_text(PROFILE_OFFCPU, lines + 1, ARRAY_SIZE(lines) - 1);
	return 0;
}

static int drop_profiles(void **state)
{
	base = profile_unref(base);
	other = profile_unref(other);
	goroutines = profile_unref(goroutines);
	wall = profile_unref(wall);
	cpu = profile_unref(cpu);
	python = profile_unref(python);
	faster = profile_unref(faster);
	return 0;
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_allocation),
	};

	return cmocka_run_group_tests(tests, make_profiles, drop_profiles);
}
