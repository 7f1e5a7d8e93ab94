// SPDX-License-Identifier: Apache-2.0
#include "agent/session/profile_cache.h"

#include <stdio.h>
#include <string.h>

#include "agent/base/clock.h"

void profile_cache_init(struct profile_cache *cache)
{
	*cache = (struct profile_cache){ 0 };
	(void)pthread_mutex_init(&cache->lock, NULL);
}

void profile_cache_deinit(struct profile_cache *cache)
{
	for (size_t i = 0; i < PROFILE_CACHE_MAX; i++)
		(void)profile_unref(cache->entries[i].profile);
	(void)pthread_mutex_destroy(&cache->lock);
}

struct profile *profile_cache_get(struct profile_cache *cache, const char *key)
{
	uint64_t now_ns = clock_monotonic_ns();
	struct profile *found = NULL;

	(void)pthread_mutex_lock(&cache->lock);
	for (size_t i = 0; i < PROFILE_CACHE_MAX && !found; i++) {
		if (!cache->entries[i].profile || cache->entries[i].until_ns <= now_ns ||
		    strcmp(cache->entries[i].key, key) != 0)
			continue;
		cache->entries[i].used = ++cache->clock;
		found = profile_ref(cache->entries[i].profile);
	}
	(void)pthread_mutex_unlock(&cache->lock);
	return found;
}

void profile_cache_put(struct profile_cache *cache, const char *key, struct profile *profile,
		       uint64_t until_ns)
{
	struct profile *old;
	size_t at = 0;

	(void)pthread_mutex_lock(&cache->lock);
	for (size_t i = 0; i < PROFILE_CACHE_MAX; i++) {
		if (cache->entries[i].profile && strcmp(cache->entries[i].key, key) == 0) {
			at = i;
			break;
		}
		if (cache->entries[i].used < cache->entries[at].used)
			at = i;
	}
	old = cache->entries[at].profile;
	(void)snprintf(cache->entries[at].key, PROFILE_CACHE_KEY_SIZE, "%s", key);
	cache->entries[at].profile = profile_ref(profile);
	cache->entries[at].until_ns = until_ns;
	cache->entries[at].used = ++cache->clock;
	(void)pthread_mutex_unlock(&cache->lock);
	(void)profile_unref(old);
}

void profile_cache_drop(struct profile_cache *cache, const char *key)
{
	struct profile *old = NULL;

	(void)pthread_mutex_lock(&cache->lock);
	for (size_t i = 0; i < PROFILE_CACHE_MAX && !old; i++) {
		if (cache->entries[i].profile && strcmp(cache->entries[i].key, key) == 0) {
			old = cache->entries[i].profile;
			cache->entries[i].profile = NULL;
			cache->entries[i].used = 0;
		}
	}
	(void)pthread_mutex_unlock(&cache->lock);
	(void)profile_unref(old);
}
