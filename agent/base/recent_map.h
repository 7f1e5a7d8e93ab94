/* SPDX-License-Identifier: Apache-2.0 */
/* A u64map that forgets what was not used for a while: two generations, of which the young one
 * takes new entries and those of the old one that are used again. Not thread-safe. */
#ifndef PROFD_BASE_RECENT_MAP_H
#define PROFD_BASE_RECENT_MAP_H

#include "agent/base/u64map.h"

/* Zero-initialized is a valid empty map. */
struct recent_map {
	struct u64map young, old;
};

/* Frees the entries: the map is empty then. */
void recent_map_deinit(struct recent_map *map);
/* Forgets all entries and keeps the memory. */
void recent_map_clear(struct recent_map *map);
/* If the young generation has @most entries or more, it becomes the old one, and the old one is
 * forgotten. */
void recent_map_age(struct recent_map *map, size_t most);
/* The value of @key, which counts as used. False: it is not known, or was forgotten. */
bool recent_map_get(struct recent_map *map, uint64_t key, uint64_t *ret);
/* Inserts or replaces. -ENOMEM: the map is as before. */
int recent_map_put(struct recent_map *map, uint64_t key, uint64_t value) must_use;
/* Another value for @key, if it is known. */
void recent_map_change(struct recent_map *map, uint64_t key, uint64_t value);
void recent_map_remove(struct recent_map *map, uint64_t key);

#endif
