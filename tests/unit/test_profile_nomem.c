// SPDX-License-Identifier: Apache-2.0
/* Every operation of agent/profile with its n-th allocation failing, n = 0, 1, 2, … until it succeeds:
 * -ENOMEM, output untouched, nothing leaked (under the address sanitizer). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "agent/profile/stack_resolver.h"
#include "agent/wire/feed.h"
#include "bpf/profiler.h"
#include "tests/support/alloc_fail.h"
#include "tests/support/profile_text.h"

#define STEPS_MAX 10000

static struct profile *base, *other;

static int merge(void)
{
	struct profile *ret = NULL;
	int rc = profile_merge((struct profile *[]){ base, other }, 2, &ret);

	assert_true(!ret == (rc < 0));
	(void)profile_unref(ret);
	return rc;
}

static int select_grouped(void)
{
	struct profile_filter filter = { .from_ns = 1,
					 .where_names = { "state", "build-id" },
					 .where_values = { "blocked", "" },
					 .where_count = 1,
					 .group_by = "tid" };
	struct profile *ret = NULL;
	int rc = profile_select(base, &filter, &ret);

	assert_true(!ret == (rc < 0));
	(void)profile_unref(ret);
	return rc;
}

static int select_build_id(void)
{
	struct profile_filter filter = { .where_names = { "build-id", "build-id" },
					 .where_values = { "ab", "ab" },
					 .where_count = 2 };
	struct profile *ret = NULL;
	int rc = profile_select(base, &filter, &ret);

	(void)profile_unref(ret);
	return rc;
}

static int top(void)
{
	struct profile_function_row *rows = NULL;
	size_t count = 0;
	int rc = profile_top_functions(base, &rows, &count);

	assert_true(!rows == (rc < 0));
	free(rows);
	return rc;
}

static bool find_module(void *ctx, uint32_t module, struct stack_module *ret)
{
	*ret = (struct stack_module){ module, "/bin/x", NULL, 0, FEED_MODULE_ELF };
	return true;
}

static int find_name(void *ctx, uint64_t key, uint64_t offset, struct name_frame *ret)
{
	ret[0] = (struct name_frame){ "f", "", "f.c", 1, 1, 0 };
	return offset & 1;
}

static void prefetch(void *ctx, uint64_t key, const uint64_t *offsets, size_t count)
{
}

static int resolve(void)
{
	struct stack_modules modules = { NULL, find_module };
	struct name_source names = { NULL, find_name, prefetch };
	struct profile_meta meta = { .type = PROFILE_CPU };
	struct profile_quality quality = { 0 };
	cleanup(profile_builder) struct profile_builder *b = profile_builder_create(&meta, 1000);
	cleanup(stack_resolver) struct stack_resolver *r = NULL;
	struct profile *ret = NULL;
	uint64_t frames[64];
	uint32_t node = 0, attrs, i;
	int rc;

	for (i = 0; i < ARRAY_SIZE(frames); i++)
		frames[i] = prof_frame_module(i % 20, i, 0);
	if (!b)
		return -ENOMEM;
	r = stack_resolver_create(b, &modules, &names, 0);
	if (!r)
		return -ENOMEM;
	rc = stack_resolver_prefetch(r, frames, ARRAY_SIZE(frames));
	if (rc == 0)
		rc = stack_resolver_node(
			r, (struct stack_frames){ frames, ARRAY_SIZE(frames) },
			(struct stack_frames){ NULL, 0 }, &node);
	if (rc < 0)
		return rc;
	attrs = profile_builder_attrs(b, &(struct profile_attrs){ 0 }, NULL);
	profile_builder_sample(b, node, attrs, (int64_t[]){ 1, 1 });
	rc = profile_builder_finish(b, &quality, &ret);
	assert_true(!ret == (rc < 0));
	(void)profile_unref(ret);
	return rc;
}

static void test_every_allocation(void **state)
{
	static const struct {
		const char *name;
		int (*run)(void);
	} rows[] = {
		{ "merge", merge },
		{ "select grouped", select_grouped },
		{ "select build-id", select_build_id },
		{ "top", top },
		{ "resolve", resolve },
	};
	size_t i;
	long n;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		for (n = 0; n < STEPS_MAX; n++) {
			int rc;

			alloc_fail_after(n);
			rc = rows[i].run();
			if (!alloc_fail_stop()) {
				assert_int_equal(rc, 0);
				break;
			}
			if (rc != -ENOMEM)
				print_error("%s, allocation %ld: %d\n", rows[i].name, n, rc);
			assert_int_equal(rc, -ENOMEM);
		}
		assert_in_range(n, 1, STEPS_MAX - 1);
	}
}

static int make_profiles(void **state)
{
	static const char *const lines[] = {
		"pid=1 tid=7 state=blocked user=ann at=1 m;f;[truncated]@marker 3",
		"pid=2 tid=8 state=blocked at=2 m;g;h 4",
		"pid=2 tid=9 state=runqueue at=2 m;g;i 4",
	};

	base = profile_from_text(PROFILE_OFFCPU, lines, ARRAY_SIZE(lines));
	other = profile_from_text(PROFILE_OFFCPU, lines + 1, ARRAY_SIZE(lines) - 1);
	return 0;
}

static int drop_profiles(void **state)
{
	base = profile_unref(base);
	other = profile_unref(other);
	return 0;
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_allocation),
	};

	return cmocka_run_group_tests(tests, make_profiles, drop_profiles);
}
