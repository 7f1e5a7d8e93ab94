// SPDX-License-Identifier: Apache-2.0
/* Ids of modules that the collector gives again: no stack of before is read with what they name
 * now. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "agent/session/ingest/live_tables.h"
#include "bpf/profiler.h"

#define STACK 4711u

static void tell_module(struct live_tables *tables, uint32_t id, uint8_t kind, uint64_t key,
			const char *path)
{
	struct feed_module record = { .key = key, .module = id, .kind = kind };
	uint8_t data[256];
	size_t at = sizeof(record);

	memcpy(data, &record, sizeof(record));
	feed_encode_string(data, sizeof(data), &at, path, strlen(path));
	assert_int_equal(live_tables_add_module(tables, data, at), 0);
}

static void tell_stack(struct live_tables *tables, uint32_t module)
{
	const uint64_t frames[2] = { prof_frame_module(1, 0x10, 0), prof_frame_module(module, 0x20, 0) };
	struct feed_stack record = { .stack = STACK, .frame_count = 2 };
	uint8_t data[sizeof(record) + sizeof(frames)];

	memcpy(data, &record, sizeof(record));
	memcpy(data + sizeof(record), frames, sizeof(frames));
	assert_int_equal(live_tables_add_stack(tables, data, sizeof(data)), 0);
}

static int setup(void **state)
{
	static struct live_tables tables;

	live_tables_init(&tables, NULL, 0);
	tell_module(&tables, 1, FEED_MODULE_ELF, 100, "/lib/libc.so");
	tell_module(&tables, 2, FEED_MODULE_ELF, 200, "/tmp/conftest");
	tell_stack(&tables, 2);
	*state = &tables;
	return 0;
}

static int teardown(void **state)
{
	live_tables_deinit(*state);
	return 0;
}

static void an_id_names_another_file_later(void **state)
{
	struct live_tables *tables = *state;

	tell_module(tables, 2, FEED_MODULE_FREED, 0, "");
	assert_null(live_tables_module(tables, 2));
	assert_null(live_tables_stack(tables, STACK)); /* it is asked for again */
	assert_int_equal(live_tables_stack_count(tables), 0);
	tell_module(tables, 2, FEED_MODULE_ELF, 300, "/tmp/other");
	assert_true(live_tables_module(tables, 2)->key == 300);
	/* The same stack from the same file, which is back under another id. */
	tell_stack(tables, 3);
	assert_int_equal(prof_frame_module_id(live_tables_stack(tables, STACK)->frames[1]), 3);
}

static void the_stack_of_the_next_comes_before_its_module(void **state)
{
	struct live_tables *tables = *state;

	tell_module(tables, 2, FEED_MODULE_FREED, 0, "");
	tell_stack(tables, 2);
	tell_module(tables, 2, FEED_MODULE_ELF, 300, "/tmp/other");
	assert_non_null(live_tables_stack(tables, STACK));
	assert_non_null(live_tables_stack(tables, STACK));
}

static void stacks_of_others_stay(void **state)
{
	struct live_tables *tables = *state;

	tell_module(tables, 7, FEED_MODULE_FREED, 0, "");
	assert_non_null(live_tables_stack(tables, STACK));
	tell_module(tables, 1, FEED_MODULE_FREED, 0, "");
	tell_module(tables, 1, FEED_MODULE_ELF, 100, "/lib/libc.so");
	assert_null(live_tables_stack(tables, STACK));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(an_id_names_another_file_later, setup, teardown),
		cmocka_unit_test_setup_teardown(the_stack_of_the_next_comes_before_its_module, setup, teardown),
		cmocka_unit_test_setup_teardown(stacks_of_others_stay, setup, teardown),
	};

	return cmocka_run_group_tests_name("live_tables", tests, NULL, NULL);
}
