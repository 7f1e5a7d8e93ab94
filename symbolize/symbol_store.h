/* SPDX-License-Identifier: Apache-2.0 */
/* Symbol indexes that are open, by module key: mapped from the cache when they are asked for,
 * closed again, least recently used first, above a budget of bytes. Without a cache folder what is
 * closed is gone. */
#ifndef PROFD_SYMBOLIZE_SYMBOL_STORE_H
#define PROFD_SYMBOLIZE_SYMBOL_STORE_H

#include <stdint.h>

#include "agent/base/cleanup.h"
#include "symbolize/module_cache.h"
#include "symbolize/symbol_index.h"

#define SYMBOL_STORE_OPEN_MAX 512 /* indexes open at once */

struct symbol_store;

/* @cache is borrowed and may be NULL. -ENOMEM. */
int symbol_store_create(struct module_cache *cache, uint64_t budget_bytes,
			struct symbol_store **ret) must_use;
void symbol_store_destroy(struct symbol_store *store);
CLEANUP_DEFINE(symbol_store, struct symbol_store *, symbol_store_destroy);

/* The index of @key, borrowed until the next call; NULL if there is none. */
const struct symbol_index *symbol_store_get(struct symbol_store *store, uint64_t key);
/* Closes what can be opened from the cache again. */
void symbol_store_rest(struct symbol_store *store);
/* A new index of @key, in place of a former one: stored in the cache and opened from there, or kept
 * as it is if that fails. Takes it on success. -ENOMEM. */
int symbol_store_put_take(struct symbol_store *store, uint64_t key, struct symbol_index *index)
	must_use;

#endif
