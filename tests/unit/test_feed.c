// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/cleanup.h"
#include "agent/wire/feed.h"

static void strings_survive_the_round_trip(void **state)
{
	static const char *const texts[] = { "", "a", "name with spaces", "x\0y" };
	static const size_t lens[] = { 0, 1, 16, 3 };
	struct feed_string got[4];
	char out[64];
	size_t at = 0;

	for (int i = 0; i < 4; i++)
		feed_encode_string(out, sizeof(out), &at, texts[i], lens[i]);
	assert_int_equal(at, 4 * 2 + 0 + 1 + 16 + 3);
	assert_int_equal(feed_decode_strings(out, at, got, 4), 0);
	for (int i = 0; i < 4; i++) {
		assert_int_equal(got[i].len, lens[i]);
		assert_memory_equal(got[i].text, texts[i], lens[i]);
	}
}

/* Whatever length a record is cut to, decoding refuses it and leaves the outputs alone. */
static void truncated_strings_are_refused(void **state)
{
	char out[32];
	size_t at = 0;

	feed_encode_string(out, sizeof(out), &at, "first", 5);
	feed_encode_string(out, sizeof(out), &at, "second", 6);
	for (size_t len = 0; len < at; len++) {
		/* An exact-size copy, so that a sanitizer sees any read beyond it. */
		cleanup_free char *cut = malloc(len ? len : 1);
		struct feed_string got[2] = { { "untouched", 9 }, { "untouched", 9 } };

		assert_non_null(cut);
		memcpy(cut, out, len);
		assert_int_equal(feed_decode_strings(cut, len, got, 2), -EPROTO);
		assert_int_equal(got[0].len, 9);
		assert_int_equal(got[1].len, 9);
	}
}

static void hostile_counts_are_refused(void **state)
{
	struct feed_string got[FEED_STRINGS_MAX + 1];
	uint8_t lying[4] = { 0xff, 0xff, 'a', 'b' };

	assert_int_equal(feed_decode_strings(lying, sizeof(lying), got, 1), -EPROTO);
	assert_int_equal(feed_decode_strings(lying, sizeof(lying), got, FEED_STRINGS_MAX + 1),
			 -EPROTO);
	assert_int_equal(feed_decode_strings(lying, sizeof(lying), got, -1), -EPROTO);
	assert_int_equal(feed_decode_strings(lying, 0, got, 0), 0);
}

static void encoding_is_cut_at_room_and_at_the_length_field(void **state)
{
	cleanup_free char *long_text = calloc(1, 70000);
	cleanup_free char *out = malloc(70002);
	char small[5] = { 0 };
	size_t at = 0;
	struct feed_string got;

	assert_non_null(long_text);
	assert_non_null(out);
	feed_encode_string(out, 70002, &at, long_text, 70000);
	assert_int_equal(at, 65537);
	at = 0;
	feed_encode_string(small, sizeof(small), &at, "abcdef", 6);
	assert_int_equal(at, 5);
	assert_int_equal(feed_decode_strings(small, at, &got, 1), 0);
	assert_int_equal(got.len, 3);
	feed_encode_string(small, sizeof(small), &at, "g", 1);
	assert_int_equal(at, 5);
	at = 4;
	feed_encode_string(small, sizeof(small), &at, "g", 1);
	assert_int_equal(at, 4);
}

static void families_are_what_is_left_of_a_record(void **state)
{
	const uint64_t written[] = { 1, UINT64_MAX, 7 };
	uint8_t out[4 + FEED_FAMILIES_MAX * 8 + 8] = { 0 };
	uint64_t got[FEED_FAMILIES_MAX] = { 0 };
	struct feed_string last;
	size_t at = 0;

	feed_encode_string(out, sizeof(out), &at, "80", 2);
	memcpy(out + at, written, sizeof(written));
	assert_int_equal(feed_decode_strings(out, at + sizeof(written), &last, 1), 0);
	assert_int_equal(feed_decode_families(out, at, &last, got), 0); /* as of older recordings */
	assert_int_equal(feed_decode_families(out, at + 7, &last, got), -EPROTO);
	assert_int_equal(got[0], 0);
	assert_int_equal(feed_decode_families(out, at + sizeof(written), &last, got), 3);
	assert_memory_equal(got, written, sizeof(written));
	assert_int_equal(feed_decode_families(out, at + FEED_FAMILIES_MAX * 8, &last, got),
			 FEED_FAMILIES_MAX);
	assert_int_equal(feed_decode_families(out, at + FEED_FAMILIES_MAX * 8 + 8, &last, got), -EPROTO);
}

static void the_fixed_part_needs_all_its_bytes(void **state)
{
	struct feed_proc_exit record = { .time_ns = 7, .proc = 3 };
	struct feed_proc_exit got = { .proc = 99 };
	const void *tail = NULL;
	size_t tail_len = 55;

	for (size_t len = 0; len < sizeof(record); len++) {
		assert_int_equal(feed_decode(&record, len, &got, sizeof(got), &tail, &tail_len),
				 -EPROTO);
		assert_int_equal(got.proc, 99);
		assert_int_equal(tail_len, 55);
	}
	assert_int_equal(feed_decode(&record, sizeof(record), &got, sizeof(got), &tail, &tail_len),
			 0);
	assert_int_equal(got.proc, 3);
	assert_int_equal(tail_len, 0);
}

static void frames_must_agree_with_their_count(void **state)
{
	static const struct {
		uint16_t count;
		size_t tail_len;
		int rc;
	} cases[] = {
		{ 0, 0, 0 },	       { 0, 8, -EPROTO },      { 3, 24, 0 },
		{ 3, 23, -EPROTO },    { 3, 32, -EPROTO },     { FEED_FRAMES_MAX, 5120, 0 },
		{ FEED_FRAMES_MAX + 1, 5128, -EPROTO },	       { 65535, 524280, -EPROTO },
	};
	cleanup_free uint8_t *tail = malloc(5200 + 1);
	uint64_t frames[FEED_FRAMES_MAX];

	assert_non_null(tail);
	memset(tail, 0xab, 5201);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct feed_stack stack = { .frame_count = cases[i].count };

		/* Odd address: the tail of a record need not be aligned. */
		assert_int_equal(feed_decode_frames(&stack, tail + 1, cases[i].tail_len, frames),
				 cases[i].rc);
	}
	assert_true(frames[FEED_FRAMES_MAX - 1] == 0xababababababababull);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(strings_survive_the_round_trip),
		cmocka_unit_test(truncated_strings_are_refused),
		cmocka_unit_test(hostile_counts_are_refused),
		cmocka_unit_test(encoding_is_cut_at_room_and_at_the_length_field),
		cmocka_unit_test(families_are_what_is_left_of_a_record),
		cmocka_unit_test(the_fixed_part_needs_all_its_bytes),
		cmocka_unit_test(frames_must_agree_with_their_count),
	};

	return cmocka_run_group_tests_name("feed", tests, NULL, NULL);
}
