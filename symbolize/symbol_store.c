// SPDX-License-Identifier: Apache-2.0
#include "symbolize/symbol_store.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

struct open_index {
	uint64_t key;
	uint64_t bytes;
	uint64_t used; /* tick of the last use */
	bool is_cached; /* mapped from the cache */
	struct symbol_index *index; /* owned */
};

struct symbol_store {
	struct module_cache *cache;
	uint64_t budget_bytes;
	uint64_t bytes;
	uint64_t tick;
	unsigned count;
	struct open_index open[SYMBOL_STORE_OPEN_MAX];
};

int symbol_store_create(struct module_cache *cache, uint64_t budget_bytes,
			struct symbol_store **ret)
{
	struct symbol_store *store = calloc(1, sizeof(*store));

	if (!store)
		return -ENOMEM;
	store->cache = cache;
	store->budget_bytes = budget_bytes;
	*ret = store;
	return 0;
}

static void close_at(struct symbol_store *store, unsigned at)
{
	store->bytes -= store->open[at].bytes;
	symbol_index_destroy(store->open[at].index);
	store->open[at] = store->open[--store->count];
}

void symbol_store_destroy(struct symbol_store *store)
{
	if (!store)
		return;
	while (store->count)
		close_at(store, store->count - 1);
	free(store);
}

/* Makes room for @bytes more; a single index may be larger than the budget. */
static void make_room(struct symbol_store *store, uint64_t bytes)
{
	while (store->count && (store->count == SYMBOL_STORE_OPEN_MAX ||
				store->bytes + bytes > store->budget_bytes)) {
		unsigned oldest = 0;

		for (unsigned i = 1; i < store->count; i++)
			if (store->open[i].used < store->open[oldest].used)
				oldest = i;
		close_at(store, oldest);
	}
}

static const struct symbol_index *add(struct symbol_store *store, uint64_t key,
				      struct symbol_index *index, bool is_cached)
{
	size_t bytes;

	(void)symbol_index_image(index, &bytes);
	make_room(store, bytes);
	store->bytes += bytes;
	store->open[store->count++] = (struct open_index){ .key = key,
							   .bytes = bytes,
							   .used = ++store->tick,
							   .is_cached = is_cached,
							   .index = index };
	return index;
}

static struct symbol_index *open_cached(struct symbol_store *store, uint64_t key)
{
	struct symbol_index *index = NULL;
	cleanup_close int fd = -1;
	uint8_t tag;

	if (!store->cache)
		return NULL;
	fd = module_cache_open(store->cache, key, MODULE_CACHE_SYMBOLS, &tag);
	if (fd < 0)
		return NULL;
	/* Damaged, or written by another version: it is built again when its module is indexed again. */
	if (symbol_index_open(fd, &index) == -EPROTO)
		module_cache_drop(store->cache, key, MODULE_CACHE_SYMBOLS);
	return index;
}

const struct symbol_index *symbol_store_get(struct symbol_store *store, uint64_t key)
{
	struct symbol_index *index;

	for (unsigned i = 0; i < store->count; i++) {
		if (store->open[i].key != key)
			continue;
		store->open[i].used = ++store->tick;
		return store->open[i].index;
	}
	index = open_cached(store, key);
	return index ? add(store, key, index, true) : NULL;
}

void symbol_store_rest(struct symbol_store *store)
{
	for (unsigned i = store->count; i-- > 0;)
		if (store->open[i].is_cached)
			close_at(store, i);
}

int symbol_store_put_take(struct symbol_store *store, uint64_t key, struct symbol_index *index)
{
	size_t bytes;
	const void *image = symbol_index_image(index, &bytes);

	for (unsigned i = 0; i < store->count; i++) {
		if (store->open[i].key != key)
			continue;
		close_at(store, i);
		break;
	}
	/* A full disk only costs the next process the time to build it again. */
	if (store->cache && !module_cache_put(store->cache, key, MODULE_CACHE_SYMBOLS,
					      (uint8_t)symbol_index_origins(index), image, bytes)) {
		symbol_index_destroy(index);
		return 0;
	}
	(void)add(store, key, index, false);
	return 0;
}
