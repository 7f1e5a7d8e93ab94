// SPDX-License-Identifier: Apache-2.0
#include "agent/base/u64map.h"

#include <errno.h>
#include <string.h>

#include "agent/base/hash.h"

#define CAPACITY_MIN 16

void u64map_init(struct u64map *map, size_t max)
{
	*map = (struct u64map){ .max = max };
}

void u64map_deinit(struct u64map *map)
{
	free(map->keys);
	free(map->values);
	free(map->used);
	*map = (struct u64map){ .max = map->max };
}

void u64map_clear(struct u64map *map)
{
	if (map->used)
		memset(map->used, 0, map->capacity);
	map->count = 0;
}

/* Slot of @key, or the free slot where it belongs. The table is never full. */
static size_t find_slot(const struct u64map *map, uint64_t key)
{
	size_t mask = map->capacity - 1, slot = (size_t)hash_mix64(key) & mask;

	while (map->used[slot] && map->keys[slot] != key)
		slot = (slot + 1) & mask;
	return slot;
}

bool u64map_get(const struct u64map *map, uint64_t key, uint64_t *ret)
{
	size_t slot;

	if (!map->count)
		return false;
	slot = find_slot(map, key);
	if (!map->used[slot])
		return false;
	*ret = map->values[slot];
	return true;
}

static int grow(struct u64map *map)
{
	struct u64map bigger = { .max = map->max,
				 .count = map->count,
				 .capacity = map->capacity ? map->capacity * 2 : CAPACITY_MIN };

	bigger.keys = calloc(bigger.capacity, sizeof(*bigger.keys));
	bigger.values = calloc(bigger.capacity, sizeof(*bigger.values));
	bigger.used = calloc(bigger.capacity, 1);
	if (!bigger.keys || !bigger.values || !bigger.used) {
		u64map_deinit(&bigger);
		return -ENOMEM;
	}
	for (size_t i = 0; i < map->capacity; i++)
		if (map->used[i]) {
			size_t slot = find_slot(&bigger, map->keys[i]);

			bigger.used[slot] = 1;
			bigger.keys[slot] = map->keys[i];
			bigger.values[slot] = map->values[i];
		}
	u64map_deinit(map);
	*map = bigger;
	return 0;
}

int u64map_put(struct u64map *map, uint64_t key, uint64_t value)
{
	size_t slot;

	if (map->capacity) {
		slot = find_slot(map, key);
		if (map->used[slot]) {
			map->values[slot] = value;
			return 0;
		}
	}
	if (map->max && map->count >= map->max)
		return -ENOSPC;
	if ((map->count + 1) * 4 > map->capacity * 3) {
		int rc = grow(map);

		if (rc < 0)
			return rc;
	}
	slot = find_slot(map, key);
	map->used[slot] = 1;
	map->keys[slot] = key;
	map->values[slot] = value;
	map->count++;
	return 0;
}

bool u64map_remove(struct u64map *map, uint64_t key)
{
	size_t mask = map->capacity - 1, hole, at;

	if (!map->count)
		return false;
	hole = find_slot(map, key);
	if (!map->used[hole])
		return false;
	/* Knuth 6.4 algorithm R: pull back every later entry of the run that may live in the hole. */
	for (at = (hole + 1) & mask; map->used[at]; at = (at + 1) & mask) {
		size_t home = (size_t)hash_mix64(map->keys[at]) & mask;

		if (((at - home) & mask) >= ((at - hole) & mask)) {
			map->keys[hole] = map->keys[at];
			map->values[hole] = map->values[at];
			hole = at;
		}
	}
	map->used[hole] = 0;
	map->count--;
	return true;
}

bool u64map_next(const struct u64map *map, size_t *at, uint64_t *ret_key, uint64_t *ret_value)
{
	for (; *at < map->capacity; (*at)++)
		if (map->used[*at]) {
			*ret_key = map->keys[*at];
			*ret_value = map->values[*at];
			(*at)++;
			return true;
		}
	return false;
}
