// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "agent/collect/proc/mapping_set.h"

static struct mapping map_of(uint64_t start, uint64_t end, uint32_t module, uint64_t from_ns)
{
	return (struct mapping){ .start_va = start,
				 .end_va = end,
				 .bias = start - 0x1000,
				 .from_ns = from_ns,
				 .module = module };
}

static int add(struct mapping_set **set, uint64_t start, uint64_t end, uint32_t module,
	       uint64_t from)
{
	struct mapping mapping = map_of(start, end, module, from);

	return mapping_set_add(set, &mapping, NULL);
}

/* The live mappings as text: "start-end:module ". */
static void shape(const struct mapping_set *set, char *out, size_t size)
{
	size_t at = 0;

	out[0] = '\0';
	for (size_t i = 0; i < mapping_set_count(set); i++) {
		const struct mapping *m = mapping_set_at(set, i);

		at += (size_t)snprintf(out + at, size - at, "%llx-%llx:%u ",
				       (unsigned long long)m->start_va,
				       (unsigned long long)m->end_va, m->module);
	}
}

static void new_mappings_take_the_place_of_old_ones(void **state)
{
	static const struct {
		const char *name;
		uint64_t start, end;
		const char *want;
	} cases[] = {
		{ "beside", 0x9000, 0xa000, "2000-4000:1 6000-8000:2 9000-a000:9 " },
		{ "between", 0x4000, 0x6000, "2000-4000:1 4000-6000:9 6000-8000:2 " },
		{ "over one", 0x2000, 0x4000, "2000-4000:9 6000-8000:2 " },
		{ "over both", 0x1000, 0x9000, "1000-9000:9 " },
		{ "over a start", 0x5000, 0x7000, "2000-4000:1 5000-7000:9 7000-8000:2 " },
		{ "over an end", 0x3000, 0x5000, "2000-3000:1 3000-5000:9 6000-8000:2 " },
		{ "a hole", 0x2800, 0x3000,
		  "2000-2800:1 2800-3000:9 3000-4000:1 6000-8000:2 " },
		{ "from middle to middle", 0x3000, 0x7000,
		  "2000-3000:1 3000-7000:9 7000-8000:2 " },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		cleanup(mapping_set) struct mapping_set *set = NULL;
		char got[256];

		assert_int_equal(add(&set, 0x2000, 0x4000, 1, 10), 1);
		assert_int_equal(add(&set, 0x6000, 0x8000, 2, 10), 1);
		assert_int_equal(add(&set, cases[i].start, cases[i].end, 9, 20), 1);
		shape(set, got, sizeof(got));
		if (strcmp(got, cases[i].want) != 0)
			fail_msg("%s: got %s", cases[i].name, got);
	}
}

/* The remainders of a mapping keep its bias: file offsets do not move. */
static void remainders_keep_their_bias(void **state)
{
	cleanup(mapping_set) struct mapping_set *set = NULL;

	assert_int_equal(add(&set, 0x2000, 0x8000, 1, 10), 1);
	assert_int_equal(add(&set, 0x4000, 0x5000, 2, 20), 1);
	assert_true(mapping_set_find(set, 0x7000, 30)->bias == 0x1000);
	assert_true(mapping_set_find(set, 0x3000, 30)->bias == 0x1000);
}

static void the_past_is_found_by_time(void **state)
{
	cleanup(mapping_set) struct mapping_set *set = NULL;

	assert_int_equal(add(&set, 0x2000, 0x4000, 1, 10), 1);
	assert_int_equal(add(&set, 0x2000, 0x3000, 2, 20), 1);
	assert_int_equal(add(&set, 0x2000, 0x3000, 3, 30), 1);
	assert_int_equal(mapping_set_find(set, 0x2100, 15)->module, 1);
	assert_int_equal(mapping_set_find(set, 0x2100, 20)->module, 2);
	assert_int_equal(mapping_set_find(set, 0x2100, 29)->module, 2);
	assert_int_equal(mapping_set_find(set, 0x2100, 99)->module, 3);
	/* Before the history: the present is the best guess there is. */
	assert_int_equal(mapping_set_find(set, 0x2100, 5)->module, 3);
	assert_int_equal(mapping_set_find(set, 0x3100, 5)->module, 1);
	assert_null(mapping_set_find(set, 0x1fff, 99));
	assert_null(mapping_set_find(set, 0x4000, 99));
	assert_null(mapping_set_find(NULL, 0x4000, 99));
}

static void a_child_shares_until_it_changes(void **state)
{
	cleanup(mapping_set) struct mapping_set *parent = NULL;
	cleanup(mapping_set) struct mapping_set *child = NULL;

	assert_int_equal(add(&parent, 0x2000, 0x4000, 1, 10), 1);
	child = mapping_set_ref(parent);
	assert_int_equal(add(&child, 0x2000, 0x4000, 1, 50), 0);
	assert_ptr_equal(child, parent);
	assert_int_equal(add(&child, 0x5000, 0x6000, 2, 50), 1);
	assert_ptr_not_equal(child, parent);
	assert_int_equal(mapping_set_count(parent), 1);
	assert_int_equal(mapping_set_count(child), 2);
	assert_int_equal(add(&parent, 0x2000, 0x3000, 7, 60), 1);
	assert_int_equal(mapping_set_find(child, 0x2000, 70)->module, 1);
}

static void bounds(void **state)
{
	cleanup(mapping_set) struct mapping_set *set = NULL;
	unsigned added = 0;

	assert_int_equal(add(&set, 0x2000, 0x2000, 1, 10), -EINVAL);
	assert_int_equal(add(&set, 0x3000, 0x2000, 1, 10), -EINVAL);
	for (uint64_t i = 0; i < MAPPING_SET_MAX + 10; i++) {
		int rc = add(&set, (i + 1) << 20, ((i + 1) << 20) + 4096, 1, 10);

		if (rc == 1)
			added++;
		else
			assert_int_equal(rc, -ENOSPC);
	}
	assert_true(added >= MAPPING_SET_MAX - 1 && added <= MAPPING_SET_MAX);
	/* History stays bounded too: only the newest of many replacements are known. */
	{
		cleanup(mapping_set) struct mapping_set *busy = NULL;

		for (uint32_t i = 1; i <= 1000; i++)
			assert_int_equal(add(&busy, 0x2000, 0x3000, i, i * 10), 1);
		assert_int_equal(mapping_set_find(busy, 0x2000, 9985)->module, 998);
		assert_int_equal(mapping_set_find(busy, 0x2000, 15)->module, 1000);
	}
}

struct log {
	char text[256];
};

static void on_removed(void *ctx, const struct mapping *m)
{
	struct log *log = ctx;
	size_t at = strlen(log->text);

	(void)snprintf(log->text + at, sizeof(log->text) - at, "-%llx:%u ",
		       (unsigned long long)m->start_va, m->module);
}

static void on_added(void *ctx, const struct mapping *m)
{
	struct log *log = ctx;
	size_t at = strlen(log->text);

	(void)snprintf(log->text + at, sizeof(log->text) - at, "+%llx:%u ",
		       (unsigned long long)m->start_va, m->module);
}

static void a_full_reading_replaces_what_is_known(void **state)
{
	cleanup(mapping_set) struct mapping_set *set = NULL;
	struct mapping seen[3] = { map_of(0x2000, 0x4000, 1, 40), map_of(0x6000, 0x7000, 5, 40),
				   map_of(0x9000, 0xa000, 6, 40) };
	struct log log = { "" };
	struct mapping_changes changes = { &log, on_removed, on_added };
	char got[256];

	assert_int_equal(add(&set, 0x2000, 0x4000, 1, 10), 1);
	assert_int_equal(add(&set, 0x6000, 0x8000, 2, 10), 1);
	assert_int_equal(add(&set, 0xc000, 0xd000, 3, 10), 1);
	assert_int_equal(mapping_set_replace(&set, seen, 3, 40, &changes), 0);
	shape(set, got, sizeof(got));
	assert_string_equal(got, "2000-4000:1 6000-7000:5 9000-a000:6 ");
	assert_string_equal(log.text, "-c000:3 -6000:2 +6000:5 +9000:6 ");
	/* Unchanged mappings keep their age; ended ones are history. */
	assert_true(mapping_set_find(set, 0x2000, 99)->from_ns == 10);
	assert_int_equal(mapping_set_find(set, 0xc100, 30)->module, 3);
	assert_null(mapping_set_find(set, 0xc100, 40));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(new_mappings_take_the_place_of_old_ones),
		cmocka_unit_test(remainders_keep_their_bias),
		cmocka_unit_test(the_past_is_found_by_time),
		cmocka_unit_test(a_child_shares_until_it_changes),
		cmocka_unit_test(bounds),
		cmocka_unit_test(a_full_reading_replaces_what_is_known),
	};

	return cmocka_run_group_tests_name("mapping_set", tests, NULL, NULL);
}
