// SPDX-License-Identifier: Apache-2.0
#include "api/http/answer_cache.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/profile/profile.h"

struct entry {
	struct answer_key key;
	void *data; /* owned, NULL = free */
	size_t len;
	uint64_t used; /* turn of the last use */
};

struct answer_cache {
	pthread_mutex_t lock;
	size_t max_bytes;
	uint64_t turn;
	struct answer_cache_counts counts;
	struct entry entries[ANSWER_CACHE_ENTRIES];
};

struct answer_key answer_key_of(const struct profile *p, const char *const *texts, unsigned count)
{
	const uint32_t last = p->string_count ? p->string_count - 1 : 0;
	size_t names = p->string_count ? p->string_offsets[last] + strlen(profile_string(p, last)) : 0;
	const uint64_t numbers[] = {
		p->node_count,	  p->sample_count,     p->event_count,
		p->frame_count,	  p->attrs_count,      p->meta.start_ns,
		p->meta.duration_ns, p->meta.type,     (uint64_t)p->quality.samples,
		p->quality.note_count,
	};
	struct answer_key key;

	for (unsigned i = 0; i < ARRAY_SIZE(key.bits); i++) {
		uint64_t hash = hash_bytes(numbers, sizeof(numbers), i);

		hash = hash_combine(hash, hash_bytes(p->totals, sizeof(p->totals), i));
		hash = hash_combine(hash, hash_bytes(p->string_bytes, names, i));
		for (unsigned k = 0; k < count; k++)
			hash = hash_combine(hash, hash_bytes(texts[k], strlen(texts[k]), k));
		key.bits[i] = hash;
	}
	return key;
}

int answer_cache_create(size_t max_bytes, struct answer_cache **ret)
{
	struct answer_cache *cache = calloc(1, sizeof(*cache));

	if (!cache)
		return -ENOMEM;
	cache->max_bytes = max_bytes;
	(void)pthread_mutex_init(&cache->lock, NULL);
	*ret = cache;
	return 0;
}

static void drop(struct answer_cache *cache, struct entry *entry)
{
	cache->counts.bytes -= entry->len;
	free(entry->data);
	*entry = (struct entry){ 0 };
}

void answer_cache_destroy(struct answer_cache *cache)
{
	if (!cache)
		return;
	for (unsigned i = 0; i < ANSWER_CACHE_ENTRIES; i++)
		drop(cache, &cache->entries[i]);
	(void)pthread_mutex_destroy(&cache->lock);
	free(cache);
}

static struct entry *find(struct answer_cache *cache, const struct answer_key *key)
{
	for (unsigned i = 0; i < ANSWER_CACHE_ENTRIES; i++)
		if (cache->entries[i].data &&
		    memcmp(&cache->entries[i].key, key, sizeof(*key)) == 0)
			return &cache->entries[i];
	return NULL;
}

bool answer_cache_get(struct answer_cache *cache, const struct answer_key *key, struct buf *out)
{
	struct entry *entry;
	bool found;

	(void)pthread_mutex_lock(&cache->lock);
	entry = find(cache, key);
	found = entry != NULL;
	if (found) {
		entry->used = ++cache->turn;
		buf_add(out, entry->data, entry->len);
		cache->counts.hits++;
	} else {
		cache->counts.misses++;
	}
	(void)pthread_mutex_unlock(&cache->lock);
	return found;
}

/* A free place: of those that are taken, the one not used longest. */
static struct entry *make_place(struct answer_cache *cache, size_t len)
{
	for (;;) {
		struct entry *oldest = NULL, *vacant = NULL;

		for (unsigned i = 0; i < ANSWER_CACHE_ENTRIES; i++) {
			struct entry *entry = &cache->entries[i];

			if (!entry->data)
				vacant = entry;
			else if (!oldest || entry->used < oldest->used)
				oldest = entry;
		}
		if (vacant && cache->counts.bytes + len <= cache->max_bytes)
			return vacant;
		if (!oldest)
			return NULL;
		drop(cache, oldest);
	}
}

void answer_cache_put(struct answer_cache *cache, const struct answer_key *key, const void *data,
		      size_t len)
{
	void *copy = len && len <= cache->max_bytes / 4 ? malloc(len) : NULL;
	struct entry *entry;

	if (!copy)
		return;
	memcpy(copy, data, len);
	(void)pthread_mutex_lock(&cache->lock);
	entry = find(cache, key) ? NULL : make_place(cache, len);
	if (entry) {
		*entry = (struct entry){ *key, copy, len, ++cache->turn };
		cache->counts.bytes += len;
		copy = NULL;
	}
	(void)pthread_mutex_unlock(&cache->lock);
	free(copy);
}

void answer_cache_count(struct answer_cache *cache, struct answer_cache_counts *ret)
{
	(void)pthread_mutex_lock(&cache->lock);
	*ret = cache->counts;
	(void)pthread_mutex_unlock(&cache->lock);
}
