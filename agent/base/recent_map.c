// SPDX-License-Identifier: Apache-2.0
#include "agent/base/recent_map.h"

void recent_map_deinit(struct recent_map *map)
{
	u64map_deinit(&map->young);
	u64map_deinit(&map->old);
}

void recent_map_clear(struct recent_map *map)
{
	u64map_clear(&map->young);
	u64map_clear(&map->old);
}

void recent_map_age(struct recent_map *map, size_t most)
{
	struct u64map forgotten = map->old;

	if (map->young.count < most)
		return;
	map->old = map->young;
	map->young = forgotten;
	u64map_clear(&map->young);
}

bool recent_map_get(struct recent_map *map, uint64_t key, uint64_t *ret)
{
	if (u64map_get(&map->young, key, ret))
		return true;
	if (!u64map_get(&map->old, key, ret))
		return false;
	/* Without memory it stays where it is. */
	(void)!u64map_put(&map->young, key, *ret);
	return true;
}

int recent_map_put(struct recent_map *map, uint64_t key, uint64_t value)
{
	return u64map_put(&map->young, key, value);
}

static void change(struct u64map *map, uint64_t key, uint64_t value)
{
	/* The key is there: nothing is allocated. */
	if (u64map_get(map, key, &(uint64_t){ 0 }))
		(void)!u64map_put(map, key, value);
}

void recent_map_change(struct recent_map *map, uint64_t key, uint64_t value)
{
	change(&map->young, key, value);
	change(&map->old, key, value);
}

void recent_map_remove(struct recent_map *map, uint64_t key)
{
	(void)u64map_remove(&map->young, key);
	(void)u64map_remove(&map->old, key);
}
