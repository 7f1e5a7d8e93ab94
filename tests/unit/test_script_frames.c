// SPDX-License-Identifier: Apache-2.0
/* Numbers and names of the script frames of a process instance. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "agent/collect/proc/script_frames.h"

#define FUNCTION(at)	  ((uint64_t)SCRIPT_CPYTHON << SCRIPT_RUNTIME_SHIFT | (at))
#define PLACE(at, cookie) ((uint64_t)(at) << SCRIPT_POSITION_SHIFT | (cookie))

static uint32_t add(struct script_frames *frames, uint64_t function, uint64_t at, uint32_t cookie)
{
	return script_frames_number(frames, FUNCTION(function), PLACE(at, cookie));
}

/* An entry of CONTROL_SCRIPT_NAMED: line, first line, two texts. */
static size_t entry(uint8_t out[64], const char *function, uint32_t line)
{
	const uint32_t lines[2] = { line, 1 };
	const uint16_t len = (uint16_t)strlen(function);
	size_t at = sizeof(lines);

	memcpy(out, lines, sizeof(lines));
	memcpy(out + at, &len, sizeof(len));
	memcpy(out + at + 2, function, len);
	at += 2 + len;
	memcpy(out + at, &(uint16_t){ 4 }, 2);
	memcpy(out + at + 2, "f.py", 4);
	return at + 6;
}

static void name(struct script_frames *frames, uint32_t number, const char *function, uint32_t line)
{
	uint8_t bytes[64];

	assert_true(script_frames_name(frames, number, bytes, entry(bytes, function, line)));
}

static void assert_named(const struct script_frames *frames, uint32_t number, const char *function,
			 uint32_t line)
{
	const struct script_frame *frame = &frames->frames.data[number];
	uint8_t bytes[64];

	assert_non_null(frame->functions);
	assert_int_equal(frame->bytes, entry(bytes, function, line));
	assert_memory_equal(frame->functions, bytes, frame->bytes);
}

/* A place that was not asked for while the process ran has its function's name, and no line. */
static void test_names_of_an_ended_process(void **state)
{
	cleanup(script_frames) struct script_frames *frames = script_frames_create(NULL);
	uint32_t known, same, reused, other;

	(void)state;
	assert_non_null(frames);
	known = add(frames, 0x1000, 3, 77);
	same = add(frames, 0x1000, 9, 77);
	reused = add(frames, 0x1000, 3, 78); /* another function at the address of the first */
	other = add(frames, 0x2000, 3, 77);
	name(frames, known, "f", 4);
	script_frames_adopt(frames);
	assert_named(frames, known, "f", 4);
	assert_named(frames, same, "f", 0);
	assert_null(frames->frames.data[reused].functions);
	assert_null(frames->frames.data[other].functions);
}

static void test_a_child_has_its_parents_names(void **state)
{
	cleanup(script_frames) struct script_frames *parent = script_frames_create(NULL);
	cleanup(script_frames) struct script_frames *child = NULL;
	uint32_t late;

	(void)state;
	assert_non_null(parent);
	name(parent, add(parent, 0x1000, 3, 77), "f", 4);
	child = script_frames_create(parent);
	assert_non_null(child);
	late = add(parent, 0x2000, 3, 77); /* after the fork */
	name(parent, late, "g", 5);
	assert_named(child, add(child, 0x1000, 3, 77), "f", 4);
	assert_null(child->frames.data[add(child, 0x2000, 3, 77)].functions);
}

/* BPF and the agent ask the same question, without a branch. */
static void test_ranges_of_the_loop(void **state)
{
	const struct script_range ranges[SCRIPT_RANGES_MAX] = {
		{ 0x1000, 0x2000 }, { 0, 0 }, { 0x7fffffff0000, 0x7fffffffffff }, { 0x5000, 0x5000 }
	};
	static const struct {
		uint64_t pc;
		int is_within;
	} cases[] = {
		{ 0, 0 },
		{ 0xfff, 0 },
		{ 0x1000, 1 },
		{ 0x1fff, 1 },
		{ 0x2000, 0 },
		{ 0x4fff, 0 },
		{ 0x5000, 0 },
		{ 0x7ffffffeffff, 0 },
		{ 0x7fffffff0000, 1 },
		{ 0x7ffffffffffe, 1 },
		{ 0x7fffffffffff, 0 },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		assert_int_equal(script_is_in_ranges(ranges, cases[i].pc), cases[i].is_within);
	assert_int_equal(script_is_zero(0), 1);
	for (unsigned bit = 0; bit < 64; bit++)
		assert_int_equal(script_is_zero(1ull << bit), 0);
	assert_int_equal(script_is_zero(UINT64_MAX), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ranges_of_the_loop),
		cmocka_unit_test(test_names_of_an_ended_process),
		cmocka_unit_test(test_a_child_has_its_parents_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
