// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/buf.h"
#include "agent/profile/goroutine/profile_diff.h"
#include "tests/support/profile_text.h"

#define MAKE(type, ...)                                                                            \
	profile_from_text(type, (const char *const[]){ __VA_ARGS__ },                              \
			  ARRAY_SIZE(((const char *const[]){ __VA_ARGS__ })))

static const char *name_of(const struct profile *p, uint32_t frame)
{
	return profile_string(p, p->functions[p->frames[frame].function].name);
}

/* "count state wait frames<creator": one line per stack. */
static char *stacks_text(const struct goroutine_analysis *a)
{
	cleanup_buf struct buf out = { 0 };
	uint32_t i, k;

	for (i = 0; i < a->stack_count; i++) {
		const struct goroutine_stack *s = &a->stacks[i];

		buf_printf(&out, "%llu%s %s/%s ", (unsigned long long)s->count,
			   s->blocked ? "!" : "", profile_string(a->p, s->state),
			   profile_string(a->p, s->wait));
		for (k = 0; k < s->frame_count; k++)
			buf_printf(&out, "%s%s", k ? "," : "",
				   name_of(a->p, a->frames[s->frame_first + k]));
		buf_printf(&out, "<%s\n", profile_string(a->p, s->created_by));
	}
	buf_add_str(&out, "");
	return buf_take(&out, &(size_t){ 0 });
}

static struct profile *go_program(void)
{
	return MAKE(PROFILE_GOROUTINE,
		    "goid=1 state=waiting wait=select "
		    "runtime.main@go;main.main@go;runtime.selectgo@go;runtime.gopark@go 1",
		    "goid=2 state=waiting wait=chan_receive waitSeconds=61 extra=main.main "
		    "main.worker@go;runtime.chanrecv@go;runtime.gopark@go 1",
		    "goid=3 state=waiting wait=chan_receive waitSeconds=5 extra=main.main "
		    "main.worker@go;runtime.chanrecv@go;runtime.gopark@go 1",
		    "goid=4 state=waiting wait=sleep extra=main.main "
		    "main.nap@go;time.Sleep@go;runtime.gopark@go 1",
		    "goid=5 state=running extra=main.main main.worker@go;main.spin@go 1",
		    "goid=6 state=waiting wait=GC_worker_(idle) "
		    "runtime.gcBgMarkWorker@go;runtime.gopark@go 1");
}

static void test_analysis(void **state)
{
	static const struct {
		struct goroutine_options options;
		uint64_t total;
		const char *text;
	} rows[] = {
		{ { 0 },
		  5,
		  "2 waiting/chan_receive main.worker<main.main\n"
		  "1! waiting/select main.main<\n"
		  "1 waiting/sleep time.Sleep,main.nap<main.main\n"
		  "1 running/ main.spin,main.worker<main.main\n" },
		{ { .system = true, .raw_frames = true }, 6, NULL },
	};
	cleanup(profile) struct profile *p = go_program();
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_goroutine_analysis struct goroutine_analysis a = { 0 };
		cleanup_free char *text = NULL;
		const char *line;

		assert_int_equal(goroutine_analysis_init(&a, p, &rows[i].options), 0);
		assert_int_equal(a.total, rows[i].total);
		text = stacks_text(&a);
		if (!rows[i].text) {
			assert_non_null(strstr(text, "runtime.gopark,runtime.gcBgMarkWorker<"));
			assert_non_null(strstr(
				text, "runtime.gopark,runtime.selectgo,main.main,runtime.main<"));
			continue;
		}
		/* Equal counts are ordered by identity: compare as sets, the largest first. */
		assert_int_equal(strlen(text), strlen(rows[i].text));
		assert_int_equal(strncmp(text, rows[i].text, strlen("2 waiting/chan_receive")), 0);
		for (line = rows[i].text; *line; line = strchr(line, '\n') + 1) {
			cleanup_free char *one = strndup(line, strcspn(line, "\n") + 1);

			assert_non_null(strstr(text, one));
		}
		assert_int_equal(a.stacks[0].max_wait_s, 61);
		assert_int_equal(a.state_count, 2);
		assert_int_equal(a.states[0].count, 4);
		assert_string_equal(profile_string(p, a.states[0].word), "waiting");
		assert_int_equal(a.wait_count, 3);
		assert_int_equal(a.waits[0].count, 2);
	}
}

static void test_system_label_decides(void **state)
{
	cleanup(profile) struct profile *p =
		MAKE(PROFILE_GOROUTINE, "state=waiting system=true main.x@go 3",
		     "state=waiting system=false runtime.gcBgMarkWorker@go 2");
	cleanup_goroutine_analysis struct goroutine_analysis a = { 0 };

	assert_int_equal(goroutine_analysis_init(&a, p, &(struct goroutine_options){ 0 }), 0);
	assert_int_equal(a.total, 2);
	/* Nothing to show by the rule: everything is shown. */
	assert_int_equal(a.stacks[0].frame_count, 1);
}

static void test_wrong_type(void **state)
{
	cleanup(profile) struct profile *p = MAKE(PROFILE_CPU, "a 1");
	struct goroutine_analysis a = { .total = 77 };

	assert_int_equal(goroutine_analysis_init(&a, p, &(struct goroutine_options){ 0 }), -EINVAL);
	assert_int_equal(a.total, 77);
}

static void test_words(void **state)
{
	static const struct {
		const char *state, *wait;
		bool blocked;
	} waits[] = {
		{ "waiting", "chan receive", true },
		{ "waiting", "chan send (nil chan)", true },
		{ "waiting", "select (no cases)", true },
		{ "waiting", "sync.WaitGroup.Wait", true },
		{ "waiting", "semacquire", true },
		{ "waiting", "IO wait", true },
		{ "waiting", "sleep", false },
		{ "waiting", "GC worker (idle)", false },
		{ "waiting", "finalizer wait", false },
		{ "waiting", "force gc (idle)", false },
		{ "waiting", "", false },
		{ "running", "select", false },
		{ "sleeping", "futex", true },
		{ "sleeping", "epoll", true },
		{ "sleeping", "pipe read", true },
		{ "sleeping", "nanosleep", false },
		{ "blocked", "disk", false },
		{ "runnable", "", false },
	};
	static const struct {
		const char *name;
		bool shown;
	} names[] = {
		{ "main.main", true },
		{ "runtime.gopark", false },
		{ "runtime.main", false },
		{ "runtime.GC", true },
		{ "runtime.(*Frames).Next", true },
		{ "runtime.(*mheap).alloc", false },
		{ "runtime.(*Frames).next", false },
		{ "runtime.gopanic", true },
		{ "memmove", false },
		{ "runtime/pprof.writeGoroutine", true },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(waits); i++)
		assert_int_equal(goroutine_is_blocked(waits[i].state, waits[i].wait),
				 waits[i].blocked);
	for (i = 0; i < ARRAY_SIZE(names); i++)
		assert_int_equal(goroutine_frame_is_shown(names[i].name), names[i].shown);
	assert_true(goroutine_growth_rate(125, 100) == 1.25);
	assert_true(goroutine_growth_rate(125, 0) == 1.0);
	assert_true(goroutine_growth_rate(0, 10) == 0);
}

static void test_diff_goroutines(void **state)
{
	cleanup(profile) struct profile *base =
		MAKE(PROFILE_GOROUTINE, "state=waiting wait=select extra=m main.a@go 10",
		     "state=running extra=m main.a@go 1", "state=running extra=m main.b@go 5",
		     "state=running extra=m main.gone@go 3");
	cleanup(profile) struct profile *compare =
		MAKE(PROFILE_GOROUTINE, "state=running extra=m main.a@go 40",
		     "state=running extra=m main.b@go 2", "state=running extra=other main.b@go 7",
		     "state=waiting wait=select extra=m main.new@go 1");
	struct profile_diff diff = { 0 }, untouched = { .net_growth = 9 };
	cleanup(profile) struct profile *cpu = MAKE(PROFILE_CPU, "a 1");

	assert_int_equal(profile_diff_init(&diff, base, compare, &(struct goroutine_options){ 0 }),
			 0);
	assert_int_equal(diff.new_count, 2); /* another creator is another stack */
	assert_int_equal(diff.new_stacks[0].compare_count, 7);
	assert_int_equal(diff.grown_count, 1);
	assert_int_equal(diff.grown_stacks[0].base_count, 11);
	assert_int_equal(diff.grown_stacks[0].compare_count, 40);
	assert_string_equal(profile_string(compare, diff.grown_stacks[0].stack->state), "running");
	assert_int_equal(diff.removed_count, 1);
	assert_string_equal(
		name_of(base, diff.base.frames[diff.removed_stacks[0].stack->frame_first]),
		"main.gone");
	assert_int_equal(diff.growth_count, 29 + 7 + 1);
	assert_int_equal(diff.net_growth, 50 - 19);
	profile_diff_deinit(&diff);
	assert_int_equal(profile_diff_init(&untouched, base, cpu, &(struct goroutine_options){ 0 }),
			 -EINVAL);
	assert_int_equal(untouched.net_growth, 9);
}

static void test_diff_functions(void **state)
{
	cleanup(profile) struct profile *base = MAKE(PROFILE_CPU, "m;f 30", "m;g 70", "m;old 100");
	cleanup(profile) struct profile *compare = MAKE(PROFILE_CPU, "m;f 30", "m;g 60", "x!f 10");
	cleanup_profile_diff struct profile_diff diff = { 0 };

	assert_int_equal(profile_diff_init(&diff, base, compare, &(struct goroutine_options){ 0 }),
			 0);
	assert_int_equal(diff.function_count, 5);
	assert_string_equal(diff.functions[0].name, "old");
	assert_true(diff.functions[0].base_pct == 50 && diff.functions[0].compare_pct == 0);
	assert_string_equal(diff.functions[1].name, "g");
	assert_int_equal(diff.functions[1].base_self, 70);
	assert_int_equal(diff.functions[1].compare_self, 60);
}

static const struct diff_function *row_of(const struct profile_diff *diff, const char *name)
{
	const struct diff_function *found = NULL;

	for (uint32_t i = 0; i < diff->function_count; i++)
		if (strcmp(diff->functions[i].name, name) == 0)
			found = &diff->functions[i];
	assert_non_null(found);
	return found;
}

/* A release is told from the next by names of files, folders and the compiler's suffixes: its
 * functions are the same. What could be two is left as it is. */
static void test_diff_of_builds(void **state)
{
	cleanup(profile) struct profile *base =
		MAKE(PROFILE_CPU, "app-1.4.2!main 10", "app-1.4.2!f.constprop.0 30",
		     "python3.11!run 5", "libssl.so.1.1!enc 7", "app-1.4.2!g 1");
	cleanup(profile) struct profile *compare =
		MAKE(PROFILE_CPU, "app-1.5.0!main 20", "app-1.5.0!f.isra.0 60", "python3.12!run 6",
		     "libssl.so.3!enc 8", "app-1.5.0!g 1", "app-1.5.0!g.part.0 1");
	cleanup_profile_diff struct profile_diff diff = { 0 };

	assert_int_equal(profile_diff_init(&diff, base, compare, &(struct goroutine_options){ 0 }), 0);
	assert_int_equal(row_of(&diff, "main")->base_self, 10);
	assert_int_equal(row_of(&diff, "main")->compare_self, 20);
	assert_int_equal(row_of(&diff, "f.isra.0")->base_self, 30);
	assert_int_equal(row_of(&diff, "enc")->base_self, 7);
	assert_int_equal(row_of(&diff, "g.part.0")->base_self, 0);
	/* main, f, enc; run twice, g three times */
	assert_int_equal(diff.function_count, 8);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_analysis),	cmocka_unit_test(test_system_label_decides),
		cmocka_unit_test(test_wrong_type),	cmocka_unit_test(test_words),
		cmocka_unit_test(test_diff_goroutines), cmocka_unit_test(test_diff_functions),
		cmocka_unit_test(test_diff_of_builds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
