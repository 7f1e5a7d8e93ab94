// SPDX-License-Identifier: Apache-2.0
/* Kept profiles: found by their key until their time is over; the least recently used ones go when
 * there are too many of them, or too large ones; one that is larger than all may be is kept alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "agent/session/core/profile_cache.h"

/* Puts a profile of @bytes into the cache. Nobody reads it. */
static void put(struct profile_cache *cache, unsigned number, uint32_t bytes, uint64_t until_ns)
{
	struct profile *profile = calloc(1, sizeof(*profile));
	char key[PROFILE_CACHE_KEY_SIZE];

	assert_non_null(profile);
	profile->refs = 1;
	profile->node_count = bytes / sizeof(*profile->nodes);
	(void)snprintf(key, sizeof(key), "%u", number);
	profile_cache_put(cache, key, profile, until_ns);
	(void)profile_unref(profile);
}

static bool holds(struct profile_cache *cache, unsigned number)
{
	char key[PROFILE_CACHE_KEY_SIZE];
	struct profile *found;

	(void)snprintf(key, sizeof(key), "%u", number);
	found = profile_cache_get(cache, key);
	(void)profile_unref(found);
	return found;
}

static void test_profile_cache(void **state)
{
	struct profile_cache cache;

	(void)state;
	profile_cache_init(&cache);
	put(&cache, 1, 1000, 1);
	assert_false(holds(&cache, 1));
	for (unsigned i = 1; i <= PROFILE_CACHE_MAX; i++)
		put(&cache, i, 1000, UINT64_MAX);
	assert_true(holds(&cache, 1));
	put(&cache, 1000, 1000, UINT64_MAX);
	assert_true(holds(&cache, 1) && holds(&cache, 3) && holds(&cache, 1000));
	assert_false(holds(&cache, 2));

	put(&cache, 1001, PROFILE_CACHE_BYTES - 4 * sizeof(struct profile) - 3000, UINT64_MAX);
	assert_true(holds(&cache, 1001) && holds(&cache, 1000) && cache.bytes <= PROFILE_CACHE_BYTES);
	assert_false(holds(&cache, 4));
	put(&cache, 1002, 2 * PROFILE_CACHE_BYTES, UINT64_MAX);
	assert_true(holds(&cache, 1002) && cache.count == 1);
	put(&cache, 1002, 1000, UINT64_MAX);
	put(&cache, 1003, 1000, UINT64_MAX);
	assert_true(holds(&cache, 1002) && holds(&cache, 1003) && cache.count == 2);
	profile_cache_drop(&cache, "1002");
	profile_cache_drop(&cache, "1003");
	assert_true(!holds(&cache, 1003) && !cache.count && !cache.bytes);
	put(&cache, 1, 1000, UINT64_MAX);
	profile_cache_deinit(&cache);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_profile_cache) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
