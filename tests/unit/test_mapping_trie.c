// SPDX-License-Identifier: Apache-2.0
/* Ranges of addresses into prefixes, and lists of CPUs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/cleanup.h"
#include "agent/collect/kernel/mapping_trie.h"
#include "agent/collect/kernel/perf_events.h"

/* Prefixes must cover a range without gap or overlap, each aligned to its own size. */
static void test_prefixes(void **state)
{
	static const struct {
		uint64_t start, end;
		unsigned prefixes;
	} cases[] = {
		{ 0x1000, 0x2000, 1 },
		{ 0x1000, 0x4000, 2 },
		{ 0x400000, 0x800000, 1 },
		{ 0x401000, 0x556000, 12 },
		{ 0x7ffff7dd3000, 0x7ffff7f28000, 7 },
		{ 0, 0x1000, 1 },
		{ 0, 1ull << 47, 1 },
		{ 1, 2, 1 },
		{ 1, 1ull << 47, 47 },
		{ 0xffffffffff600000, 0xffffffffff601000, 1 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t at = cases[i].start;
		unsigned count = 0;

		while (at < cases[i].end) {
			uint32_t bits;
			uint64_t bytes = mapping_prefix(at, cases[i].end, &bits);

			assert_true(bits >= 1 && bits <= 64);
			assert_int_equal(bytes, 1ull << (64 - bits));
			assert_int_equal(at & (bytes - 1), 0);
			assert_true(bytes <= cases[i].end - at);
			at += bytes;
			count++;
		}
		assert_int_equal(at, cases[i].end);
		if (count != cases[i].prefixes)
			fail_msg("%#lx-%#lx: %u prefixes", cases[i].start, cases[i].end, count);
	}
}

static void test_cpu_list(void **state)
{
	static const struct {
		const char *text;
		int result;
		const char *set; /* one character per CPU */
	} cases[] = {
		{ "0\n", 0, "1000000000" },
		{ "0-3\n", 0, "1111000000" },
		{ "0-1,4,7-8\n", 0, "1100100110" },
		{ "8-100\n", 0, "0000000011" },
		{ "1048577\n", -22, "" },
		{ "", 0, "0000000000" },
		{ "3-1\n", -22, "" },
		{ "a\n", -22, "" },
		{ "1;2\n", -22, "" },
		{ "1-\n", -22, "" },
		{ "4294967296\n", -22, "" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		bool set[10] = { false };

		assert_int_equal(cpu_list_parse(cases[i].text, set, ARRAY_SIZE(set)),
				 cases[i].result);
		for (size_t cpu = 0; !cases[i].result && cpu < ARRAY_SIZE(set); cpu++)
			assert_int_equal(set[cpu], cases[i].set[cpu] == '1');
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_prefixes),
		cmocka_unit_test(test_cpu_list),
	};

	return cmocka_run_group_tests_name("mapping_trie", tests, NULL, NULL);
}
