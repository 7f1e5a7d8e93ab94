// SPDX-License-Identifier: Apache-2.0
#include "agent/base/text_pool.h"

#include <stdlib.h>
#include <string.h>

#include "agent/base/hash.h"

const char *text_pool_keep(struct text_pool *pool, const char *text, size_t len)
{
	size_t bytes = strnlen(text, len);
	uint64_t hash = hash_combine(hash_bytes(text, bytes, 0), bytes);
	struct intern_probe probe = intern_probe(&pool->index, hash);
	cleanup_free char *copy = NULL;
	uint32_t id;

	while ((id = intern_next(&pool->index, &probe)) != INTERN_NONE) {
		const char *kept = pool->texts.data[id];

		if (strncmp(kept, text, bytes) == 0 && !kept[bytes])
			return kept;
	}
	copy = strndup(text, bytes);
	if (!copy || pool_texts_vec_reserve(&pool->texts, pool->texts.count + 1) < 0 ||
	    intern_add(&pool->index, hash, (uint32_t)pool->texts.count) < 0)
		return NULL;
	pool->texts.data[pool->texts.count++] = copy;
	return take_ptr(copy);
}

void text_pool_deinit(struct text_pool *pool)
{
	for (size_t i = 0; i < pool->texts.count; i++)
		free(pool->texts.data[i]);
	pool_texts_vec_deinit(&pool->texts);
	intern_deinit(&pool->index);
}
