// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/profile/builder_internal.h"
#include "agent/profile/compare/compare.h"
#include "agent/profile/own_functions.h"
#include "tests/support/profile_text.h"

static struct profile *make(enum profile_type type, const char *const *lines, size_t count)
{
	return profile_from_text(type, lines, count);
}
#define MAKE(type, ...)                                                                            \
	make(type, (const char *const[]){ __VA_ARGS__ },                                           \
	     ARRAY_SIZE(((const char *const[]){ __VA_ARGS__ })))

static void assert_text(const struct profile *p, const char *expected)
{
	cleanup_free char *text = profile_to_text(p);

	assert_string_equal(text, expected);
}

/* Checks a row of the table of profile types. @slots: the minute slots of the rows before. */
static void check_row(const struct profile_type_info *info, uint32_t *slots)
{
	enum profile_type type;

	assert_int_equal(profile_type_parse(info->word, &type), 0);
	assert_ptr_equal(profile_type_info(type), info);
	assert_true(info->noun && info->metric);
	assert_true(info->value_index < info->value_count);
	assert_non_null(info->values[info->value_count - 1].name);
	assert_true(!info->wants == (info->way == PROFILE_WAY_SNAPSHOT));
	assert_true(!info->wants == !info->samples && !info->wants == !info->needs);
	assert_true((info->kept == PROFILE_KEPT_NOT) == (info->only_on_demand != NULL));
	if (info->kept != PROFILE_KEPT_MINUTES)
		return;
	assert_false(*slots >> info->minute_slot & 1);
	*slots |= 1u << info->minute_slot;
}

static void test_types(void **state)
{
	static const struct {
		const char *word;
		int rc;
		enum profile_type type;
	} rows[] = {
		{ "cpu", 0, PROFILE_CPU },	   { "profile", 0, PROFILE_CPU },
		{ "heap", 0, PROFILE_MEMORY },	   { "allocs", 0, PROFILE_ALLOC },
		{ "io", 0, PROFILE_IO },	   { "CPU", -EINVAL, PROFILE_TYPE_MAX },
		{ "", -EINVAL, PROFILE_TYPE_MAX },
	};
	char words[PROFILE_WORDS_SIZE];
	uint32_t slots = 0;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		enum profile_type type = PROFILE_TYPE_MAX;

		assert_int_equal(profile_type_parse(rows[i].word, &type), rows[i].rc);
		assert_int_equal(type, rows[i].type);
	}
	for (i = 0; i < PROFILE_TYPE_MAX; i++)
		check_row(profile_type_info((enum profile_type)i), &slots);
	assert_int_equal(slots, (1u << PROFILE_MINUTE_TYPES) - 1);
	assert_string_equal(profile_type_words(PROFILE_OPTION_INSTANT, words), "goroutine");
	assert_string_equal(profile_type_words(PROFILE_OPTION_WAKERS, words),
			    "offcpu, wall, block, mutex and io");
	assert_string_equal(profile_type_info(PROFILE_IO)->values[1].name, "delay");
	assert_int_equal(profile_type_info(PROFILE_IO)->value_index, 1);
}

static const struct profile_function_row *row_of(const struct profile *p,
						 const struct profile_function_row *rows,
						 size_t count, const char *name)
{
	size_t i;

	for (i = 0; i < count; i++)
		if (!strcmp(profile_string(p, p->functions[rows[i].function].name), name))
			return &rows[i];
	return NULL;
}

static void test_top_counts_recursion_once(void **state)
{
	cleanup(profile) struct profile *p = MAKE(PROFILE_CPU, "main;f;g;f;f 10", "main;f;g 5",
						  "main;f 1", "main;h 20 40", "other;g;f;g 7");
	cleanup_free struct profile_function_row *rows = NULL;
	static const struct {
		const char *name;
		int64_t self, cumulative;
		uint64_t count;
	} expected[] = {
		{ "main", 0, 56, 0 }, { "f", 11, 23, 2 },   { "g", 12, 22, 2 },
		{ "h", 40, 40, 20 },  { "other", 0, 7, 0 },
	};
	size_t count = 0, i;

	assert_int_equal(profile_top_functions(p, profile_value_index(p), &rows, &count), 0);
	assert_int_equal(count, ARRAY_SIZE(expected));
	for (i = 0; i < ARRAY_SIZE(expected); i++) {
		const struct profile_function_row *row = row_of(p, rows, count, expected[i].name);

		assert_non_null(row);
		assert_int_equal(row->self, expected[i].self);
		assert_int_equal(row->cumulative, expected[i].cumulative);
		assert_int_equal(row->count, expected[i].count);
	}
	assert_string_equal(profile_string(p, p->functions[rows[0].function].name), "h");
	assert_string_equal(profile_string(p, p->functions[rows[1].function].name), "g");
	assert_int_equal(p->totals[1], 63);
	assert_int_equal(p->totals[0], 24);
}

static void test_node_values(void **state)
{
	cleanup(profile) struct profile *p = MAKE(PROFILE_CPU, "a;b 3", "a;c 4", "a 1");
	cleanup_free int64_t *self = NULL, *total = NULL;

	assert_int_equal(profile_node_values(p, &self, &total), 0);
	assert_int_equal(p->node_count, 4);
	assert_int_equal(total[0], 8);
	assert_int_equal(total[1], 8);
	assert_int_equal(self[1], 1);
	assert_int_equal(self[0], 0);
}

static void test_same_pair_is_one_sample(void **state)
{
	cleanup(profile) struct profile *p =
		MAKE(PROFILE_CPU, "tid=1 a;b 3", "tid=1 a;b 4", "tid=2 a;b 5", "a 1");

	assert_int_equal(p->sample_count, 3);
	assert_int_equal(p->processes[0].value, 13);
	/* Ordered by node. */
	assert_true(p->samples[0].node <= p->samples[1].node);
	assert_true(p->samples[1].node <= p->samples[2].node);
}

static void test_quality_percentages(void **state)
{
	/* values: samples, nanoseconds */
	cleanup(profile) struct profile *p = MAKE(PROFILE_CPU, "[truncated]@marker;a;b 1 10",
						  "a;[unknown]_x@unknown 2 10", "a@guessed 1 10");

	assert_true(p->quality.truncated_pct == 25);
	/* frames: 2, 2 × 2, 1 = 7, of which 2 unknown and 1 guessed */
	assert_true(p->quality.unknown_frame_pct > 28.57 && p->quality.unknown_frame_pct < 28.58);
	assert_true(p->quality.guessed_frame_pct > 14.28 && p->quality.guessed_frame_pct < 14.29);
}

struct own_case {
	const char *line, *name, *wait;
};

/* Every sample belongs to the program's innermost function. */
static void test_own_functions(void **state)
{
	static const struct own_case cases[] = {
		{ "wait=sleep main;nap;libc!pthread_cond_wait;schedule@kernel 5", "nap", "sleep" },
		{ "main;std::vector::push 5", "main", "" },
		/* of interpreted programs: neither the interpreter nor what came before it */
		{ "wait=gil main;run@python;sock.cpp;f@kernel 5", "run", "gil" },
		{ "main;com.Shop.pay@python;java.util.Lock.lock@python;park 5", "com.Shop.pay", "" },
		{ "main;java.lang.Thread.run@python;park 5", "java.lang.Thread.run", "" },
		/* of Go: not its library */
		{ "main!main.serve@go;net/http!http.read@go;runtime!runtime.gopark@go 5", "main.serve", "" },
		{ "net/http!http.read@go;runtime!runtime.gopark@go 5", "http.read", "" },
		/* with nothing of its own */
		{ "x@kernel;y@kernel 5", "y", "" },
	};
	cleanup(profile) struct profile *sums =
		MAKE(PROFILE_OFFCPU, "wait=a m;f 3", "wait=b m;f;x@kernel 4", "wait=b m;f 1", "wait=a m 4");
	struct own_function *rows;
	size_t count;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		cleanup(profile) struct profile *p = make(PROFILE_OFFCPU, &cases[i].line, 1);

		assert_int_equal(own_functions(p, profile_value_index(p), &rows, &count), 0);
		assert_int_equal(count, 1);
		assert_string_equal(profile_string(p, p->functions[rows[0].function].name), cases[i].name);
		assert_string_equal(profile_string(p, rows[0].wait), cases[i].wait);
		assert_int_equal(rows[0].value, 5);
		free(rows);
	}
	assert_int_equal(own_functions(sums, profile_value_index(sums), &rows, &count), 0);
	assert_int_equal(count, 2);
	assert_string_equal(profile_string(sums, sums->functions[rows[0].function].name), "f");
	assert_int_equal(rows[0].value, 8);
	assert_string_equal(profile_string(sums, rows[0].wait), "b");
	assert_int_equal(rows[1].value, 4);
	free(rows);
}

/* Many programs wait, or allocate, in one function for every purpose: its callers tell those apart,
 * largest first, from the first caller that differs on. */
static void test_ways_to_an_own_function(void **state)
{
	cleanup(profile) struct profile *p =
		MAKE(PROFILE_OFFCPU, "wait=epoll main;serve;lock;sleep;latch;wait;libc!pthread_x;f@kernel 50",
		     "wait=epoll main;serve;lockTwice;lock;sleep;latch;wait 20", "wait=epoll idle;latch;wait 25",
		     "wait=epoll rare;latch;wait 5", "state=runqueue main;work 9", "state=preempted main;work 8");
	static const char *const paths[2][3] = { { "latch", "sleep", "lock" }, { "latch", "idle", NULL } };
	struct own_function *rows;
	struct own_ways *ways;
	size_t count;

	assert_int_equal(own_functions(p, profile_value_index(p), &rows, &count), 0);
	assert_int_equal(count, 2);
	assert_string_equal(profile_string(p, rows[1].state), "runqueue");
	assert_int_equal(own_ways(p, profile_value_index(p), rows, count, &ways), 0);
	assert_int_equal(ways[0].count, 2);
	assert_int_equal(ways[0].ways[0].value, 70);
	assert_int_equal(ways[0].ways[1].value, 25);
	for (size_t i = 0; i < 2; i++) {
		const struct own_way *way = &ways[0].ways[i];

		assert_int_equal(way->callers_count, i ? 2 : 3);
		for (uint32_t n = 0; n < way->callers_count; n++)
			assert_string_equal(profile_string(p, p->functions[way->callers[n]].name),
					    paths[i][n]);
	}
	assert_int_equal(ways[1].count, 1); /* one way: all of its callers */
	assert_int_equal(ways[1].ways[0].callers_count, 1);
	assert_int_equal(ways[1].ways[0].value, 17);
	free(ways);
	free(rows);
}

/* Idle threads of a runtime wait longest, but nobody asks for them. Their work counts. */
static void test_waits_of_a_runtime_come_last(void **state)
{
	cleanup(profile) struct profile *waits = MAKE(PROFILE_OFFCPU, "wait=futex pool;wait 90",
						      "wait=sleep main;askStock@python;park 5",
						      "wait=futex main;java.util.Lock.lock@python;park 80");
	cleanup(profile) struct profile *work = MAKE(PROFILE_CPU, "collect 90 90", "main;pay@python 5 5");
	cleanup(profile) struct profile *native =
		MAKE(PROFILE_OFFCPU, "wait=futex pool;wait 90", "wait=sleep nap 5");
	static const char *const first[] = { "askStock", "collect", "wait" };
	struct profile *const all[] = { waits, work, native };
	struct own_function *rows;
	size_t count;

	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		const struct profile *p = all[i];

		assert_int_equal(own_functions(p, profile_value_index(p), &rows, &count), 0);
		assert_int_equal(count, i ? 2 : 3);
		assert_string_equal(profile_string(p, p->functions[rows[0].function].name), first[i]);
		assert_int_equal(rows[1].is_foreign, !i);
		free(rows);
	}
}

/* A file without symbols is named with what would help, from 2 % of the frames on. */
static void test_stripped_file_is_named(void **state)
{
	cleanup(profile) struct profile *few = MAKE(PROFILE_CPU, "a;b;x@stripped 1 10", "a;b 150 10");
	cleanup(profile) struct profile *some = MAKE(PROFILE_CPU, "a;x@stripped;b 10 10", "a 90 10");

	assert_int_equal(few->quality.note_count, 0);
	assert_int_equal(some->quality.note_count, 1);
	assert_non_null(strstr(some->quality.notes[0], "no symbols in /usr/bin/stripped: install"));
}

/* The file in which the time is spent is named before the program that calls it. */
static void test_stripped_library_is_named_first(void **state)
{
	cleanup(profile) struct profile *some =
		MAKE(PROFILE_CPU, "main@stripped;handle@stripped;deflate@bare;copy@kernel 10 10",
		     "main@stripped;parse@stripped 5 10");

	assert_int_equal(some->quality.note_count, 2);
	assert_non_null(strstr(some->quality.notes[0], "no symbols in /usr/lib/libbare.so: install"));
	assert_non_null(strstr(some->quality.notes[1], "no symbols in /usr/bin/stripped: install"));
}

/* A profile of an interpreter whose functions have no names says so, and what would name them. */
static void test_interpreters_say_what_names_their_functions(void **state)
{
	cleanup(profile) struct profile *few = MAKE(PROFILE_CPU, "main;execute_ex 1 10", "main 150 10");
	cleanup(profile) struct profile *php =
		MAKE(PROFILE_CPU, "main;execute_ex;php_match 9 10", "main 9 10");
	cleanup(profile) struct profile *both =
		MAKE(PROFILE_CPU, "rb_vm_exec;rb_ary_sort 9 10", "Perl_runops_standard 9 10");

	assert_int_equal(few->quality.note_count, 0);
	assert_int_equal(php->quality.note_count, 1);
	assert_string_equal(php->quality.notes[0],
			    "functions of PHP have no names here, only the C functions that they call; "
			    "PHP-FPM's slow log (request_slowlog_timeout) names them");
	assert_int_equal(both->quality.note_count, 2);
	assert_non_null(strstr(both->quality.notes[0], "functions of Ruby have no names"));
	assert_non_null(strstr(both->quality.notes[1], "functions of Perl have no names"));
}

/* A stack that never arrived counts as wholly unknown, however short its marker is. */
static void test_lost_stacks_are_unknown(void **state)
{
	cleanup(profile) struct profile *some =
		MAKE(PROFILE_CPU, "[unknown]@marker 1 10", "[unknown]@marker;write@kernel 1 10",
		     "a;b;[unknown]_x@unknown;c 2 10");
	cleanup(profile) struct profile *all = MAKE(PROFILE_CPU, "[unknown]@marker 3 10");

	/* half of the samples, and a quarter of the frames of the others */
	assert_true(some->quality.unknown_frame_pct > 62.49 && some->quality.unknown_frame_pct < 62.51);
	assert_int_equal(some->quality.note_count, 1);
	assert_non_null(strstr(some->quality.notes[0], "lost"));
	assert_true(all->quality.unknown_frame_pct == 100);
}

/* A profile with [jit] frames has one note that says what would name them, however many profiles
 * are merged. */
static void test_jit_says_its_remedy(void **state)
{
	cleanup(profile) struct profile *none = MAKE(PROFILE_CPU, "a;[jit]@jit 1 10", "a;b@jit 120 10");
	cleanup(profile) struct profile *some = MAKE(PROFILE_CPU, "a;[jit]@jit;b 10 10", "a 90 10");
	cleanup(profile) struct profile *most = MAKE(PROFILE_CPU, "a;[jit]@jit 3 10");
	cleanup(profile) struct profile *sum = NULL;

	assert_int_equal(none->quality.note_count, 0);
	assert_int_equal(some->quality.note_count, 1);
	assert_non_null(strstr(some->quality.notes[0], "DOTNET_PerfMapEnabled"));
	assert_int_equal(profile_merge((struct profile *[]){ some, most }, 2, &sum), 0);
	assert_int_equal(sum->quality.note_count, 1);
}

static void test_merge_is_sum(void **state)
{
	cleanup(profile) struct profile *a = MAKE(PROFILE_CPU, "pid=1 m;f 3", "pid=1 m;g;f 4");
	cleanup(profile) struct profile *b =
		MAKE(PROFILE_CPU, "pid=2 m;g;f 10", "pid=2 n 1", "pid=1 m;f 100");
	cleanup(profile) struct profile *io = MAKE(PROFILE_IO, "m 1");
	cleanup(profile) struct profile *sum = NULL, *kept = NULL;

	a->meta.start_ns = b->meta.start_ns + b->meta.duration_ns / 2;
	assert_int_equal(profile_merge((struct profile *[]){ a, b }, 2, &sum), 0);
	assert_text(sum, "m;f 103\nm;g;f 14\nn 1\n");
	assert_int_equal(sum->process_count, 2);
	assert_int_equal(sum->totals[1], a->totals[1] + b->totals[1]);
	assert_int_equal(sum->meta.duration_ns, b->meta.duration_ns * 3 / 2);
	assert_int_equal(profile_merge((struct profile *[]){ a, io }, 2, &kept), -EINVAL);
	assert_int_equal(profile_merge(NULL, 0, &kept), -EINVAL);
	assert_null(kept);
}

/* A level is the mean of its readings, of hosts side by side the sum of theirs; nothing is lost to
 * rounding. */
static void test_merge_of_levels(void **state)
{
	cleanup(profile) struct profile *a = MAKE(PROFILE_GOROUTINE, "m;f 30", "m;g 1", "m;h 1", "m;i 1");
	cleanup(profile) struct profile *b = MAKE(PROFILE_GOROUTINE, "m;f 60");
	cleanup(profile) struct profile *c = MAKE(PROFILE_GOROUTINE, "m;f 90");
	cleanup(profile) struct profile *there = MAKE(PROFILE_GOROUTINE, "m;f 7");
	cleanup(profile) struct profile *mean = NULL, *both = NULL;

	assert_int_equal(profile_merge((struct profile *[]){ a, b, c }, 3, &mean), 0);
	assert_text(mean, "m;f 60\nm;i 1\n");
	strcpy(there->meta.host, "there");
	assert_int_equal(profile_merge((struct profile *[]){ a, there, b, c }, 4, &both), 0);
	assert_text(both, "m;f 67\nm;i 1\n");
}

/* Processes in a merged profile keep the name of their host, also through a second merge. */
static void test_merge_of_hosts(void **state)
{
	cleanup(profile) struct profile *a = MAKE(PROFILE_CPU, "pid=1 m;f 3"),
					*b = MAKE(PROFILE_CPU, "pid=1 m;f 10");
	cleanup(profile) struct profile *more = MAKE(PROFILE_CPU, "pid=1 m;g 5"), *sum = NULL,
					*all = NULL, *some = NULL;
	const struct profile_filter of_b = { .where_names = { "host" },
					     .where_values = { "b" },
					     .where_count = 1 };
	const struct profile_filter grouped = { .group_by = "host" };
	cleanup(profile) struct profile *by_host = NULL;

	strcpy(a->meta.host, "a");
	strcpy(b->meta.host, "b");
	strcpy(more->meta.host, "b");
	assert_int_equal(profile_merge((struct profile *[]){ a, b }, 2, &sum), 0);
	assert_string_equal(sum->meta.host, "*");
	assert_int_equal(sum->process_count, 2);
	assert_int_equal(profile_merge((struct profile *[]){ sum, more }, 2, &all), 0);
	assert_int_equal(all->process_count, 2);
	assert_int_equal(profile_select(all, &of_b, &some), 0);
	assert_text(some, "m;f 10\nm;g 5\n");
	assert_int_equal(profile_select(all, &grouped, &by_host), 0);
	assert_text(by_host, "a;m;f 3\nb;m;f 10\nb;m;g 5\n");
}

static void test_select(void **state)
{
	cleanup(profile) struct profile *p = MAKE(
		PROFILE_OFFCPU, "pid=1 comm=web tid=7 thread=w state=blocked wait=futex m;f 30",
		"pid=1 comm=web tid=8 thread=w state=runqueue m;f 2",
		"pid=2 comm=db tid=9 thread=d state=blocked wait=disk user=ann m;g 5");
	static const struct {
		struct profile_filter filter;
		int rc;
		const char *text;
	} rows[] = {
		{ { 0 }, 0, "m;f 32\nm;g 5\n" },
		{ { .where_names = { "state" }, .where_values = { "blocked" }, .where_count = 1 },
		  0,
		  "m;f 30\nm;g 5\n" },
		{ { .where_names = { "state", "pid" },
		    .where_values = { "blocked", "2" },
		    .where_count = 2 },
		  0,
		  "m;g 5\n" },
		{ { .where_names = { "user" }, .where_values = { "ann" }, .where_count = 1 },
		  0,
		  "m;g 5\n" },
		{ { .where_names = { "user" }, .where_values = { "bob" }, .where_count = 1 },
		  0,
		  "" },
		{ { .where_names = { "nope" }, .where_values = { "1" }, .where_count = 1 },
		  -EINVAL,
		  NULL },
		{ { .group_by = "state" }, 0, "blocked;m;f 30\nblocked;m;g 5\nrunqueue;m;f 2\n" },
		{ { .group_by = "tid" }, 0, "d (9);m;g 5\nw (7);m;f 30\nw (8);m;f 2\n" },
		{ { .group_by = "wait" }, 0, "[none];m;f 2\ndisk;m;g 5\nfutex;m;f 30\n" },
		{ { .group_by = "nope" }, -EINVAL, NULL },
		{ { .from_ns = 1 }, -ENODATA, NULL },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup(profile) struct profile *got = NULL;

		assert_int_equal(profile_select(p, &rows[i].filter, &got), rows[i].rc);
		if (rows[i].text)
			assert_text(got, rows[i].text);
		else
			assert_null(got);
	}
}

static void test_select_time(void **state)
{
	cleanup(profile) struct profile *p =
		MAKE(PROFILE_IO, "at=1 m;f 2 10 100", "at=2 m;f 2 30 300", "at=3 m;g 1 7 70");
	struct profile_filter filter = { .from_ns = 1001500000000ull, .to_ns = 1002999999000ull };
	cleanup(profile) struct profile *cut = NULL;

	assert_int_equal(profile_select(p, &filter, &cut), 0);
	assert_text(cut, "m;f 30\n");
	assert_int_equal(cut->totals[0], 2);
	assert_int_equal(cut->totals[2], 300);
	assert_int_equal(cut->event_count, 1);
	assert_int_equal(cut->meta.start_ns, filter.from_ns);
	assert_int_equal(cut->meta.duration_ns, 1499999000ull);
}

/* Waits are told at their end: one that goes through the window is there with what of it lies in
 * it. */
static void test_select_time_of_waits(void **state)
{
	cleanup(profile) struct profile *p =
		MAKE(PROFILE_OFFCPU, "at=2 m;f 1 1500000000", "at=9 m;f 1 6000000000", "at=9 m;g 1 500000000");
	static const struct {
		uint64_t from_ns, to_ns;
		const char *text;
		int64_t events;
	} rows[] = {
		{ 0, 1004000000000ull, "m;f 2500000000\n", 1 },
		{ 1004000000000ull, 1005000000000ull, "m;f 1000000000\n", 0 },
		{ 1005000000000ull, 1009000000000ull, "m;f 4000000000\nm;g 500000000\n", 0 },
		{ 1005000000000ull, 0, "m;f 4000000000\nm;g 500000000\n", 2 },
		{ 1009500000000ull, 0, "", 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct profile_filter filter = { .from_ns = rows[i].from_ns, .to_ns = rows[i].to_ns };
		cleanup(profile) struct profile *cut = NULL;

		assert_int_equal(profile_select(p, &filter, &cut), 0);
		assert_text(cut, rows[i].text);
		assert_int_equal(cut->totals[0], rows[i].events);
	}
}

static void test_select_build_id(void **state)
{
	struct profile_meta meta = { .type = PROFILE_CPU };
	struct profile_quality quality = { 0 };
	cleanup(profile_builder) struct profile_builder *b = profile_builder_create(&meta, 100);
	struct profile_mapping mapping = { .build_id_len = 2, .build_id = { 0xab, 0x01 } };
	struct profile_frame frame = { 0 };
	struct profile_filter filter = { .where_names = { "build-id" },
					 .where_values = { "ab01" },
					 .where_count = 1 };
	cleanup(profile) struct profile *p = NULL, *cut = NULL;
	uint32_t plain, attrs, node;

	frame.function = profile_builder_function(
		b, &(struct profile_function){ .name = profile_builder_string(b, "x", 1) });
	plain = profile_builder_node(b, 0, profile_builder_frame(b, &frame));
	frame.mapping = profile_builder_mapping(b, &mapping);
	node = profile_builder_node(b, plain, profile_builder_frame(b, &frame));
	attrs = profile_builder_attrs(b, &(struct profile_attrs){ 0 }, NULL);
	profile_builder_sample(b, plain, attrs, (int64_t[]){ 1, 5 });
	profile_builder_sample(b, node, attrs, (int64_t[]){ 1, 7 });
	assert_int_equal(profile_builder_finish(b, &quality, &p), 0);
	assert_int_equal(profile_select(p, &filter, &cut), 0);
	assert_int_equal(cut->totals[1], 7);
}

/* Two files of one build-id and two of another, of which one has a copy. */
static void test_claimed_build_ids(void **state)
{
	static const struct {
		const char *path;
		uint8_t build_id;
		uint64_t key;
	} files[] = { { "/lib/a.so", 1, 10 }, { "/home/b.so", 1, 11 }, { "/bin/c", 2, 20 },
		      { "/copy/c", 2, 20 },   { "", 0, 30 },	       { "/x", 0, 31 } };

	for (size_t count = 1; count <= ARRAY_SIZE(files); count++) {
		struct profile_meta meta = { .type = PROFILE_CPU };
		struct profile_quality quality = { 0 };
		cleanup(profile_builder) struct profile_builder *b =
			profile_builder_create(&meta, 100);
		cleanup(profile) struct profile *p = NULL;

		for (size_t i = 0; i < count; i++)
			(void)profile_builder_mapping(
				b, &(struct profile_mapping){
					   .path = profile_builder_string(b, files[i].path,
									  strlen(files[i].path)),
					   .build_id_len = files[i].build_id ? 1 : 0,
					   .build_id = { files[i].build_id },
					   .key = files[i].key });
		assert_int_equal(profile_builder_finish(b, &quality, &p), 0);
		assert_int_equal(p->quality.note_count, count > 1);
		if (count > 1)
			assert_non_null(strstr(p->quality.notes[0], ": 1, /home/b.so;"));
	}
}

static void test_builder_refuses_foreign_ids(void **state)
{
	struct profile_meta meta = { .type = PROFILE_CPU };
	struct profile_quality quality = { 0 };
	size_t i;

	for (i = 0; i < 6; i++) {
		cleanup(profile_builder) struct profile_builder *b =
			profile_builder_create(&meta, 10);
		struct profile *p = NULL;

		switch (i) {
		case 0:
			(void)profile_builder_function(b, &(struct profile_function){ .name = 9 });
			break;
		case 1:
			(void)profile_builder_frame(b, &(struct profile_frame){ .function = 0 });
			break;
		case 2:
			(void)profile_builder_node(b, 0, 0);
			break;
		case 3:
			profile_builder_sample(b, 0, 0, (int64_t[]){ 1, 1 });
			break;
		case 4:
			(void)profile_builder_string(b, "a\0b", 3);
			break;
		default:
			profile_builder_event(b, &(struct profile_event){ .node = 1 });
		}
		assert_int_equal(profile_builder_finish(b, &quality, &p), -EINVAL);
		assert_null(p);
	}
}

static void test_builder_is_spent(void **state)
{
	struct profile_meta meta = { .type = PROFILE_CPU };
	struct profile_quality quality = { 0 };
	cleanup(profile_builder) struct profile_builder *b = profile_builder_create(&meta, 10);
	cleanup(profile) struct profile *p = NULL;
	struct profile *again = NULL;

	assert_int_equal(profile_builder_finish(b, &quality, &p), 0);
	assert_int_equal(p->node_count, 1);
	assert_string_equal(profile_string(p, 0), "");
	profile_builder_sample(b, 0, 0, (int64_t[]){ 1, 1 });
	assert_int_equal(profile_builder_string(b, "x", 1), 0);
	assert_int_equal(profile_builder_finish(b, &quality, &again), -EINVAL);
	assert_null(again);
}

static void test_node_limit(void **state)
{
	struct profile_meta meta = { .type = PROFILE_CPU };
	struct profile_quality quality = { 0 };
	cleanup(profile_builder) struct profile_builder *b = profile_builder_create(&meta, 3);
	cleanup(profile) struct profile *p = NULL;
	uint32_t attrs = profile_builder_attrs(b, &(struct profile_attrs){ 0 }, NULL), node;
	char name[8];
	int i;

	for (i = 0; i < 100; i++) {
		struct profile_function function = { 0 };
		struct profile_frame frame = { 0 };

		(void)snprintf(name, sizeof(name), "f%d", i);
		function.name = profile_builder_string(b, name, strlen(name));
		frame.function = profile_builder_function(b, &function);
		node = profile_builder_node(b, 0, profile_builder_frame(b, &frame));
		profile_builder_sample(b, node, attrs, (int64_t[]){ 1, 10 });
	}
	assert_int_equal(profile_builder_finish(b, &quality, &p), 0);
	assert_int_equal(p->node_count, 4); /* root, two, [truncated] */
	assert_int_equal(p->totals[1], 1000);
	assert_text(p, "[truncated] 980\nf0 10\nf1 10\n");
	assert_true(p->quality.truncated_pct == 98);
	assert_int_equal(p->quality.note_count, 1);
}

static void test_values_saturate(void **state)
{
	cleanup(profile) struct profile *p =
		MAKE(PROFILE_CPU, "a 1 9223372036854775807", "a 1 9223372036854775807", "b 1 5");
	cleanup_free int64_t *self = NULL, *total = NULL;

	assert_true(p->totals[1] == INT64_MAX);
	assert_int_equal(profile_node_values(p, &self, &total), 0);
	assert_true(total[0] == INT64_MAX);
}

/* ---- one million random stacks against the obvious implementation ---------------------------- */

#define MANY	  1000000u
#define FUNCTIONS 40u

static uint64_t next(uint64_t *seed)
{
	return hash_mix64(*seed += 0x9e3779b97f4a7c15ull);
}

static unsigned random_stack(uint64_t *seed, uint32_t *stack)
{
	unsigned depth = 1 + (unsigned)(next(seed) % 12), i;

	for (i = 0; i < depth; i++)
		stack[i] = (uint32_t)(next(seed) % FUNCTIONS);
	return depth;
}

static void test_a_million_stacks(void **state)
{
	struct profile_meta meta = { .type = PROFILE_CPU };
	struct profile_quality quality = { 0 };
	cleanup(profile_builder) struct profile_builder *b =
		profile_builder_create(&meta, 20000000);
	cleanup(profile) struct profile *p = NULL;
	cleanup_free struct profile_function_row *rows = NULL;
	int64_t self[FUNCTIONS] = { 0 }, cumulative[FUNCTIONS] = { 0 }, all = 0;
	uint32_t frames[FUNCTIONS], stack[12], attrs, i;
	uint64_t seed = 7;
	size_t count, k;
	char name[8];

	attrs = profile_builder_attrs(b, &(struct profile_attrs){ 0 }, NULL);
	for (i = 0; i < FUNCTIONS; i++) {
		struct profile_function function = { 0 };

		(void)snprintf(name, sizeof(name), "%02u", i);
		function.name = profile_builder_string(b, name, 2);
		frames[i] = profile_builder_frame(
			b, &(struct profile_frame){
				   .function = profile_builder_function(b, &function) });
	}
	for (i = 0; i < MANY; i++) {
		unsigned depth = random_stack(&seed, stack), d;
		int64_t value = (int64_t)(next(&seed) % 1000);
		uint32_t node = 0;
		uint64_t seen = 0;

		for (d = 0; d < depth; d++) {
			node = profile_builder_node(b, node, frames[stack[d]]);
			if (!(seen >> stack[d] & 1))
				cumulative[stack[d]] += value;
			seen |= 1ull << stack[d];
		}
		self[stack[depth - 1]] += value;
		all += value;
		profile_builder_sample(b, node, attrs, (int64_t[]){ 1, value });
	}
	assert_int_equal(profile_builder_finish(b, &quality, &p), 0);
	assert_true(p->node_count > MANY);
	assert_int_equal(p->totals[0], MANY);
	assert_int_equal(p->totals[1], all);
	assert_int_equal(profile_top_functions(p, profile_value_index(p), &rows, &count), 0);
	assert_int_equal(count, FUNCTIONS);
	for (k = 0; k < count; k++) {
		const char *text = profile_string(p, p->functions[rows[k].function].name);

		assert_int_equal(rows[k].self, self[atoi(text)]);
		assert_int_equal(rows[k].cumulative, cumulative[atoi(text)]);
		assert_true(!k || rows[k - 1].self >= rows[k].self);
	}
}

/* A hundred samples a second from @start_s on. */
static struct profile *steady(uint64_t start_s, uint64_t seconds)
{
	const struct profile_meta meta = { .type = PROFILE_CPU,
					   .start_ns = start_s * NS_PER_S,
					   .duration_ns = seconds * NS_PER_S };
	cleanup(profile_builder) struct profile_builder *b = profile_builder_create(&meta, 100);
	const struct profile_quality quality = { .samples = (int64_t)seconds * 100 };
	const struct profile_function function = { .name = profile_builder_string(b, "f", 1) };
	const struct profile_frame frame = { .function = profile_builder_function(b, &function) };
	const struct profile_attrs attrs = { 0 };
	struct profile_event event = { .node = profile_builder_node(
					       b, 0, profile_builder_frame(b, &frame)),
				       .attrs = profile_builder_attrs(b, &attrs, NULL),
				       .value = 10 * NS_PER_MS };
	struct profile *p = NULL;

	for (uint64_t i = 0; i < seconds * 100; i++) {
		event.time_ns = meta.start_ns + i * 10 * NS_PER_MS;
		profile_builder_event(b, &event);
		profile_builder_sample(b, event.node, event.attrs, (const int64_t[]){ 1, event.value, 0 });
	}
	assert_int_equal(profile_builder_finish(b, &quality, &p), 0);
	return p;
}

/* Between sessions that are put together nobody looked: that is no time in which nothing was used.
 */
static void test_gaps_are_no_rest(void **state)
{
	cleanup(profile) struct profile *morning = steady(1000, 10), *evening = steady(9000, 10),
					*both = NULL;
	cleanup(profile) struct profile *whole = steady(20000, 20);
	cleanup_compare struct compare c = { 0 };

	assert_int_equal(profile_merge((struct profile *[]){ morning, evening }, 2, &both), 0);
	assert_int_equal(compare_init(&c, &(struct compare_side){ .profile = both, .runqueue_share = -1 },
				      &(struct compare_side){ .profile = whole, .runqueue_share = -1 }, NULL), 0);
	assert_true(c.overall_known && fabs(c.overall_delta_pct) < 1);
}

static void test_references(void **state)
{
	struct profile *p = MAKE(PROFILE_CPU, "a 1");

	assert_ptr_equal(profile_ref(p), p);
	assert_null(profile_unref(p));
	assert_int_equal(p->totals[1], 1);
	assert_null(profile_unref(p));
	assert_null(profile_unref(NULL));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_types),
		cmocka_unit_test(test_top_counts_recursion_once),
		cmocka_unit_test(test_node_values),
		cmocka_unit_test(test_same_pair_is_one_sample),
		cmocka_unit_test(test_quality_percentages),
		cmocka_unit_test(test_own_functions),
		cmocka_unit_test(test_waits_of_a_runtime_come_last),
		cmocka_unit_test(test_ways_to_an_own_function),
		cmocka_unit_test(test_stripped_file_is_named),
		cmocka_unit_test(test_stripped_library_is_named_first),
		cmocka_unit_test(test_interpreters_say_what_names_their_functions),
		cmocka_unit_test(test_lost_stacks_are_unknown),
		cmocka_unit_test(test_jit_says_its_remedy),
		cmocka_unit_test(test_merge_is_sum),
		cmocka_unit_test(test_merge_of_levels),
		cmocka_unit_test(test_merge_of_hosts),
		cmocka_unit_test(test_gaps_are_no_rest),
		cmocka_unit_test(test_select),
		cmocka_unit_test(test_select_time),
		cmocka_unit_test(test_select_time_of_waits),
		cmocka_unit_test(test_select_build_id),
		cmocka_unit_test(test_claimed_build_ids),
		cmocka_unit_test(test_builder_refuses_foreign_ids),
		cmocka_unit_test(test_builder_is_spent),
		cmocka_unit_test(test_node_limit),
		cmocka_unit_test(test_values_saturate),
		cmocka_unit_test(test_a_million_stacks),
		cmocka_unit_test(test_references),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
