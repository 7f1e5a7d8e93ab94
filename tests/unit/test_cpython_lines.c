// SPDX-License-Identifier: Apache-2.0
/* The decoder of line tables against the interpreter's own, for every code unit of the standard
 * library: every 40th module for the host's python3. For other interpreters and all modules:
 * PROFD_TEST_PYTHONS="PROGRAM..." (tests/long/python). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/cleanup.h"
#include "agent/runtimes/cpython_lines.h"

#define SAMPLE_SHARE 40
#define TABLE_MAX    (16u << 20)

/* ---- tables by hand -------------------------------------------------------------------------- */

static int find(enum cpython_lines_format format, const char *table, size_t len, uint32_t position)
{
	uint32_t line = 0;
	int rc = cpython_lines_find(format, table, len, 10, position, &line);

	return rc < 0 ? rc : (int)line;
}
#define FIND(format, table, position) find(format, table, sizeof(table) - 1, position)

static void test_forms(void **state)
{
	static const char lnotab[] = "\x02\x01\x04\xfe\xff\x00\x01\x03";
	static const char linetable[] = "\x04\x01\x02\x80\x06\xfd";
	/* one line on; 3 units long form +70; no location; same line short; -2 without columns */
	static const char locations[] = "\xd8\x00\x01\xf2\x4c\x02\x40\x00\xf8\x80\x00\xe8\x05";

	assert_int_equal(FIND(CPYTHON_LINES_LNOTAB, lnotab, 0), 10);
	assert_int_equal(FIND(CPYTHON_LINES_LNOTAB, lnotab, 1), 11);
	assert_int_equal(FIND(CPYTHON_LINES_LNOTAB, lnotab, 3), 9);
	assert_int_equal(FIND(CPYTHON_LINES_LNOTAB, lnotab, 130), 9);
	assert_int_equal(FIND(CPYTHON_LINES_LNOTAB, lnotab, 131), 12);
	assert_int_equal(FIND(CPYTHON_LINES_LINETABLE, linetable, 1), 11);
	assert_int_equal(FIND(CPYTHON_LINES_LINETABLE, linetable, 2), -ENODATA);
	assert_int_equal(FIND(CPYTHON_LINES_LINETABLE, linetable, 5), 8);
	assert_int_equal(FIND(CPYTHON_LINES_LINETABLE, linetable, 6), -EINVAL);
	assert_int_equal(FIND(CPYTHON_LINES_LOCATIONS, locations, 0), 11);
	assert_int_equal(FIND(CPYTHON_LINES_LOCATIONS, locations, 3), 81);
	assert_int_equal(FIND(CPYTHON_LINES_LOCATIONS, locations, 4), -ENODATA);
	assert_int_equal(FIND(CPYTHON_LINES_LOCATIONS, locations, 5), 81);
	assert_int_equal(FIND(CPYTHON_LINES_LOCATIONS, locations, 6), 79);
	assert_int_equal(FIND(CPYTHON_LINES_LOCATIONS, locations, 7), -EINVAL);
	assert_int_equal(FIND(CPYTHON_LINES_LNOTAB, lnotab, SCRIPT_POSITION_NONE), 10);
	assert_int_equal(FIND(CPYTHON_LINES_LINETABLE, linetable, SCRIPT_POSITION_NONE), 10);
	assert_int_equal(FIND(CPYTHON_LINES_LOCATIONS, locations, SCRIPT_POSITION_NONE), 10);
}

static void test_damaged(void **state)
{
	static const char no_start[] = "\x58\x00\x01";
	static const char cut_number[] = "\xe8\x45";
	static const char below_zero[] = "\xe8\x41\x01";
	static const char above[] = "\xe8\x7e\x7f\x7f\x7f\x7f\x3f";

	assert_int_equal(FIND(CPYTHON_LINES_LOCATIONS, no_start, 0), -EINVAL);
	assert_int_equal(FIND(CPYTHON_LINES_LOCATIONS, cut_number, 0), -EINVAL);
	assert_int_equal(FIND(CPYTHON_LINES_LOCATIONS, below_zero, 0), -EINVAL);
	assert_int_equal(FIND(CPYTHON_LINES_LOCATIONS, above, 0), -EINVAL);
	assert_int_equal(FIND(CPYTHON_LINES_LOCATIONS, "", 0), -EINVAL);
	assert_int_equal(FIND(CPYTHON_LINES_LINETABLE, "\x04", 0), -EINVAL);
}

/* ---- the interpreter's own reading ----------------------------------------------------------- */

struct counts {
	uint64_t code_objects;
	uint64_t units;
	uint64_t different;
};

static void cleanup_pclose(FILE **file)
{
	if (*file)
		(void)pclose(*file);
}

static void compare(FILE *in, enum cpython_lines_format format, const uint32_t head[4],
		    struct counts *counts)
{
	cleanup_free uint8_t *table = malloc(head[0] + 1);

	assert_true(table && head[0] <= TABLE_MAX);
	assert_int_equal(fread(table, 1, head[0], in), head[0]);
	for (uint32_t unit = 0; unit < head[2]; unit++) {
		uint32_t line = 0;
		int32_t expected;
		int rc = cpython_lines_find(format, table, head[0], head[1], unit, &line);

		assert_int_equal(fread(&expected, sizeof(expected), 1, in), 1);
		if (expected < 0 ? rc != -ENODATA : rc < 0 || line != (uint32_t)expected) {
			if (!counts->different++)
				print_message("first line %u, unit %u: %d, expected %d\n", head[1],
					      unit, rc < 0 ? rc : (int)line, expected);
		}
	}
	counts->code_objects++;
	counts->units += head[2];
}

static void check_interpreter(const char *program, unsigned share)
{
	__attribute__((__cleanup__(cleanup_pclose))) FILE *in = NULL;
	struct counts counts = { 0 };
	uint32_t head[4];
	char command[4096];
	unsigned minor;

	(void)snprintf(command, sizeof(command), "exec %s tests/workloads/python/line_tables.py %u",
		       program, share);
	in = popen(command, "re");
	assert_non_null(in);
	assert_int_equal(fread(head, sizeof(head[0]), 2, in), 2);
	minor = head[0];
	while (fread(head, sizeof(head[0]), 4, in) == 4)
		compare(in, cpython_lines_format_of(minor), head, &counts);
	assert_int_equal(pclose(take_ptr(in)), 0);
	print_message("3.%u: %lu code objects, %lu code units, %lu lines differ\n", minor,
		      counts.code_objects, counts.units, counts.different);
	assert_true(counts.units > 10000);
	assert_int_equal(counts.different, 0);
}

static void test_standard_library(void **state)
{
	const char *list = getenv("PROFD_TEST_PYTHONS");
	cleanup_free char *copy = NULL;
	char *next;

	if (!list) {
		check_interpreter("python3", SAMPLE_SHARE);
		return;
	}
	copy = strdup(list);
	assert_non_null(copy);
	for (char *at = strtok_r(copy, " ", &next); at; at = strtok_r(NULL, " ", &next))
		check_interpreter(at, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forms),
		cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_standard_library),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
