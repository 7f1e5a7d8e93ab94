// SPDX-License-Identifier: Apache-2.0
/* Memory that writing a profile needs: no format holds a second copy, and each reports when there
 * is no memory. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "api/render/render.h"
#include "tests/support/alloc_fail.h"
#include "tests/support/render_fixture.h"

static int forget(struct buf_sink *sink, const void *data, size_t len)
{
	(void)sink;
	(void)data;
	(void)len;
	return 0;
}

static int write_nowhere(const struct profile *p, const struct render_format *format)
{
	const struct render_options options = { .value_index = profile_value_index(p), .max_nodes = 1000 };
	struct buf_sink sink = { forget, 4096 };
	struct buf out = { .sink = &sink };
	struct err err = { 0 };
	int rc = format->render(p, &options, &out, &err);

	buf_deinit(&out);
	return rc;
}

/* The whole profile and what it takes to write it, beside the profile alone. */
static void test_no_second_copy(void **state)
{
	size_t before = alloc_in_use(), held;
	cleanup(profile) struct profile *p = render_fixture_large(400000);

	(void)state;
	held = alloc_in_use() - before;
	for (const struct render_format *f = render_formats; f->name; f++) {
		int rc;

		alloc_most = alloc_in_use();
		before = alloc_most;
		alloc_watched = true;
		rc = write_nowhere(p, f);
		alloc_watched = false;
		assert_true(rc == 0 || rc == -ENOTSUP);
		print_message("%s: %zu KiB beside %zu\n", f->name, (alloc_most - before) >> 10, held >> 10);
		if (alloc_most - before >= held)
			fail_msg("%s takes %zu bytes beside a profile of %zu", f->name, alloc_most - before, held);
	}
}

static void test_out_of_memory(void **state)
{
	cleanup(profile) struct profile *p = render_fixture();

	(void)state;
	for (const struct render_format *f = render_formats; f->name; f++) {
		bool failed = true;

		for (long n = 0; failed; n++) {
			int rc;

			assert_true(n < 10000);
			alloc_fail_after(n, n % 2 == 0);
			rc = write_nowhere(p, f);
			failed = alloc_fail_stop();
			if (failed && rc >= 0)
				fail_msg("%s: allocation %ld failed unnoticed", f->name, n);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_second_copy),
		cmocka_unit_test(test_out_of_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
