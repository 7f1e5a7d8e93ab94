// SPDX-License-Identifier: Apache-2.0
#include "agent/session/core/profile_cache.h"

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

static uint64_t bytes_of(const struct profile *p)
{
	return sizeof(*p) + p->mapping_count * sizeof(*p->mappings) +
	       p->function_count * sizeof(*p->functions) + p->frame_count * sizeof(*p->frames) +
	       p->node_count * sizeof(*p->nodes) + p->label_count * sizeof(*p->labels) +
	       p->attrs_count * sizeof(*p->attrs) + p->process_count * sizeof(*p->processes) +
	       p->sample_count * sizeof(*p->samples) + p->event_count * sizeof(*p->events) +
	       p->string_count * sizeof(*p->string_offsets) +
	       (p->string_count ? p->string_offsets[p->string_count - 1] : 0);
}

/* The entry with @key, PROFILE_CACHE_MAX if there is none. */
static size_t find(const struct profile_cache *cache, const char *key)
{
	size_t i = 0;

	while (i < PROFILE_CACHE_MAX &&
	       (!cache->entries[i].profile || strcmp(cache->entries[i].key, key) != 0))
		i++;
	return i;
}

struct profile *profile_cache_get(struct profile_cache *cache, const char *key)
{
	struct profile *found = NULL;
	size_t at;

	(void)pthread_mutex_lock(&cache->lock);
	at = find(cache, key);
	if (at < PROFILE_CACHE_MAX && cache->entries[at].until_ns > clock_monotonic_ns()) {
		cache->entries[at].used = ++cache->clock;
		found = profile_ref(cache->entries[at].profile);
	}
	(void)pthread_mutex_unlock(&cache->lock);
	return found;
}

static size_t least_recent(const struct profile_cache *cache)
{
	size_t at = PROFILE_CACHE_MAX;

	for (size_t i = 0; i < PROFILE_CACHE_MAX; i++)
		if (cache->entries[i].profile && (at == PROFILE_CACHE_MAX ||
						  cache->entries[i].used < cache->entries[at].used))
			at = i;
	return at;
}

static void drop(struct profile_cache *cache, size_t i)
{
	cache->entries[i].profile = profile_unref(cache->entries[i].profile);
	cache->bytes -= cache->entries[i].bytes;
	cache->count--;
}

void profile_cache_put(struct profile_cache *cache, const char *key, struct profile *profile,
		       uint64_t until_ns)
{
	uint64_t bytes = bytes_of(profile);
	size_t at;

	(void)pthread_mutex_lock(&cache->lock);
	at = find(cache, key);
	if (at < PROFILE_CACHE_MAX)
		drop(cache, at);
	while (cache->count == PROFILE_CACHE_MAX ||
	       (cache->count && cache->bytes + bytes > PROFILE_CACHE_BYTES))
		drop(cache, least_recent(cache));
	for (at = 0; cache->entries[at].profile; at++)
		continue;
	(void)snprintf(cache->entries[at].key, PROFILE_CACHE_KEY_SIZE, "%s", key);
	cache->entries[at].profile = profile_ref(profile);
	cache->entries[at].bytes = bytes;
	cache->entries[at].until_ns = until_ns;
	cache->entries[at].used = ++cache->clock;
	cache->bytes += bytes;
	cache->count++;
	(void)pthread_mutex_unlock(&cache->lock);
}

void profile_cache_drop(struct profile_cache *cache, const char *key)
{
	size_t at;

	(void)pthread_mutex_lock(&cache->lock);
	at = find(cache, key);
	if (at < PROFILE_CACHE_MAX)
		drop(cache, at);
	(void)pthread_mutex_unlock(&cache->lock);
}
