/* SPDX-License-Identifier: Apache-2.0 */
/* Hash map from a 64-bit key to a 64-bit value (an index, an id or a pointer cast to uintptr_t):
 * open addressing, linear probing, backward-shift deletion, bounded. Any key, also 0. Not
 * thread-safe. */
#ifndef PROFD_BASE_U64MAP_H
#define PROFD_BASE_U64MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

struct u64map {
	uint64_t *keys;
	uint64_t *values;
	uint8_t *used;
	size_t count;
	size_t capacity; /* power of two, 0 before the first put */
	size_t max;	 /* most entries, 0 = no bound */
};

/* Zero-initialized is a valid empty map without bound. */
void u64map_init(struct u64map *map, size_t max);
void u64map_deinit(struct u64map *map);
void u64map_clear(struct u64map *map);
bool u64map_get(const struct u64map *map, uint64_t key, uint64_t *ret);
/* Inserts or replaces. -ENOMEM; -ENOSPC at the bound (map unchanged). */
int u64map_put(struct u64map *map, uint64_t key, uint64_t value) must_use;
bool u64map_remove(struct u64map *map, uint64_t key);
/* Iteration: `size_t at = 0; while (u64map_next(&map, &at, &key, &value))`; no change meanwhile.
 */
bool u64map_next(const struct u64map *map, size_t *at, uint64_t *ret_key, uint64_t *ret_value);

#endif
