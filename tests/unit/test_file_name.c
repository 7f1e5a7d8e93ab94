// SPDX-License-Identifier: Apache-2.0
/* Names of files and peers, as the kernel's side leaves them behind a stack. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "agent/recording/file_name.h"
#include "bpf/profiler.h"

static uint64_t words[300];
static size_t count;

static void push(uint64_t form, uint64_t bits)
{
	words[count++] = (uint64_t)PROF_FRAME_NAME << PROF_FRAME_KIND_SHIFT |
			 form << PROF_NAME_FORM_SHIFT | (bits & PROF_NAME_BITS);
}

static void push_text(const char *text)
{
	size_t len = strlen(text);

	for (size_t at = 0; !at || at < len; at += 7) {
		uint64_t bits = 0;

		memcpy(&bits, text + at, len - at < 7 ? len - at : 7);
		push(at ? PROF_NAME_MORE : PROF_NAME_BEGIN, bits);
	}
}

static const char *text(void)
{
	static char ret[FILE_NAME_SIZE];

	memset(ret, 'x', sizeof(ret));
	file_name_text(words, count, ret);
	count = 0;
	return ret;
}

static void test_paths(void **state)
{
	push_text("a-name-of-17-byte");
	push_text("exactly");
	push_text("var");
	push(PROF_NAME_KIND, PROF_NAME_PATH);
	assert_string_equal(text(), "/var/exactly/a-name-of-17-byte");
	push_text("\xc3\xa4");
	push_text("\n");
	push(PROF_NAME_KIND, PROF_NAME_CUT_PATH);
	assert_string_equal(text(), "…/?/\xc3\xa4");
	push_text("cut \xc3");
	push(PROF_NAME_KIND, PROF_NAME_PATH);
	assert_string_equal(text(), "/cut ?");
	push_text("[eventfd]");
	push(PROF_NAME_KIND, PROF_NAME_PATH);
	assert_string_equal(text(), "[eventfd]");
	push_text("/");
	push(PROF_NAME_KIND, PROF_NAME_PATH);
	assert_string_equal(text(), "/");
	push(PROF_NAME_KIND, PROF_NAME_PATH);
	assert_string_equal(text(), "/");
}

static void test_peers(void **state)
{
	push(PROF_NAME_KIND, PROF_NAME_PIPE | 7 << 8);
	assert_string_equal(text(), "pipe:[7]");
	push(PROF_NAME_KIND, PROF_NAME_TCP | 5432ull << 8 | 0x0100000aull << 24);
	assert_string_equal(text(), "tcp 10.0.0.1:5432");
	push(PROF_NAME_MORE, 0);
	push(PROF_NAME_MORE, 0);
	push(PROF_NAME_MORE, 0x0100);
	push(PROF_NAME_KIND, PROF_NAME_UDP6 | 53 << 8);
	assert_string_equal(text(), "udp [::1]:53");
	push_text("/run/a.sock");
	push(PROF_NAME_KIND, PROF_NAME_UNIX);
	assert_string_equal(text(), "unix /run/a.sock");
	push_text("bus");
	push(PROF_NAME_KIND, PROF_NAME_UNIX_ABSTRACT);
	assert_string_equal(text(), "unix @bus");
	push(PROF_NAME_KIND, PROF_NAME_UNIX);
	assert_string_equal(text(), "unix");
}

/* Whatever comes from a stored file: nothing, or something short. */
static void test_nonsense(void **state)
{
	assert_string_equal(text(), "");
	push_text("no kind");
	assert_string_equal(text(), "");
	push(PROF_NAME_KIND, 77);
	assert_string_equal(text(), "");
	push(PROF_NAME_KIND, PROF_NAME_TCP6);
	assert_string_equal(text(), "");
	for (int i = 0; i < 299; i++)
		push(PROF_NAME_BEGIN, 0x61626364656667);
	push(PROF_NAME_KIND, PROF_NAME_PATH);
	assert_string_equal(text(), "");
	for (int i = 0; i < 63; i++)
		push(PROF_NAME_BEGIN, 0x61626364656667);
	push(PROF_NAME_KIND, PROF_NAME_CUT_PATH);
	assert_int_equal(strlen(text()), 63 * 8 + strlen("…"));
}

static void test_where_code_ends(void **state)
{
	words[0] = prof_frame_address(PROF_FRAME_KERNEL, 1, 0);
	count = 1;
	push_text("x");
	push(PROF_NAME_KIND, PROF_NAME_PATH);
	assert_int_equal(file_name_at(words, count), 1);
	assert_int_equal(file_name_at(words, 1), 1);
	assert_int_equal(file_name_at(words + 1, 2), 0);
	assert_int_equal(file_name_at(words, 0), 0);
	count = 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_paths),
		cmocka_unit_test(test_peers),
		cmocka_unit_test(test_nonsense),
		cmocka_unit_test(test_where_code_ends),
	};

	return cmocka_run_group_tests_name("file_name", tests, NULL, NULL);
}
