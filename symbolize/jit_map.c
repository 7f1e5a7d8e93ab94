// SPDX-License-Identifier: Apache-2.0
#include "symbolize/jit_map.h"

#include <errno.h>
#include <string.h>

#include "symbolize/index_sort.h"

void jit_map_deinit(struct jit_map *map)
{
	string_table_deinit(&map->names);
	jit_entries_vec_deinit(&map->entries);
	u64map_deinit(&map->name_by_start);
	*map = (struct jit_map){ 0 };
}

void jit_map_clear(struct jit_map *map)
{
	uint64_t dropped = map->dropped;

	jit_map_deinit(map);
	map->dropped = dropped;
}

/* ---- settling: later entries cut earlier ones -------------------------------------------------
 */

/* Entries that reach over the sweep's position, the latest added on top (a binary heap of indices).
 */
struct heap {
	const struct jit_entry *entries;
	uint32_t *items;
	size_t count;
};

static void heap_push(struct heap *heap, uint32_t item)
{
	size_t at = heap->count++;

	for (; at && heap->items[(at - 1) / 2] < item; at = (at - 1) / 2)
		heap->items[at] = heap->items[(at - 1) / 2];
	heap->items[at] = item;
}

static void heap_pop(struct heap *heap)
{
	uint32_t last = heap->items[--heap->count];
	size_t at = 0, child;

	while ((child = 2 * at + 1) < heap->count) {
		if (child + 1 < heap->count && heap->items[child + 1] > heap->items[child])
			child++;
		if (heap->items[child] <= last)
			break;
		heap->items[at] = heap->items[child];
		at = child;
	}
	heap->items[at] = last;
}

/* Ends the segment being written at @va and begins one with @name there. */
static int emit(struct jit_entries_vec *out, uint64_t va, uint32_t name, bool *open)
{
	struct jit_entry *last = *open ? &out->data[out->count - 1] : NULL;

	if (last && last->name == name)
		return 0;
	if (last)
		last->end_va = va;
	*open = name != 0;
	return name ? jit_entries_vec_push(out, (struct jit_entry){ va, UINT64_MAX, name }) : 0;
}

static int sweep(const struct jit_entry *entries, const struct index_sort_item *order, size_t count,
		 struct heap *heap, struct jit_entries_vec *out)
{
	bool open = false;
	size_t next = 0;

	while (next < count || heap->count) {
		uint64_t va = heap->count ? entries[heap->items[0]].end_va : UINT64_MAX;
		int rc;

		if (next < count && order[next].key < va)
			va = order[next].key;
		while (next < count && order[next].key <= va)
			heap_push(heap, order[next++].index);
		while (heap->count && entries[heap->items[0]].end_va <= va)
			heap_pop(heap);
		rc = emit(out, va, heap->count ? entries[heap->items[0]].name : 0, &open);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int settle(struct jit_map *map)
{
	size_t count = map->entries.count;
	cleanup_free struct index_sort_item *order = malloc((count + 1) * sizeof(*order));
	cleanup_free uint32_t *items = malloc((count + 1) * sizeof(*items));
	struct heap heap = { map->entries.data, items, 0 };
	struct jit_entries_vec out = { 0 };
	int rc;

	if (!order || !items)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		order[i] = (struct index_sort_item){ map->entries.data[i].start_va, (uint32_t)i };
	rc = index_sort(order, count);
	if (rc >= 0)
		rc = sweep(map->entries.data, order, count, &heap, &out);
	if (rc < 0) {
		jit_entries_vec_deinit(&out);
		return rc;
	}
	jit_entries_vec_deinit(&map->entries);
	map->entries = out;
	map->settled = out.count;
	return 0;
}

/* Drops the names of code that is gone. */
static int renew_names(struct jit_map *map)
{
	struct string_table names = { 0 };
	int rc = 0;

	u64map_clear(&map->name_by_start);
	for (size_t i = 0; rc >= 0 && i < map->entries.count; i++) {
		struct jit_entry *entry = &map->entries.data[i];
		const char *name = map->names.data + entry->name;

		rc = string_table_add(&names, name, strlen(name), &entry->name);
		if (rc >= 0)
			rc = u64map_put(&map->name_by_start, entry->start_va, entry->name);
	}
	if (rc < 0) {
		/* Half of the entries may be renamed: better none than wrong ones. */
		string_table_deinit(&names);
		jit_map_clear(map);
		return rc;
	}
	string_table_deinit(&map->names);
	map->names = names;
	return 0;
}

/* ---- interface ------------------------------------------------------------------------------- */

/* Twice the bounds are let in before cleaning up, so that cleaning is paid by as many additions;
 * what does not fit even then is full for good. */
static int make_room(struct jit_map *map)
{
	int rc;

	if (map->is_full || (map->entries.count < 2 * JIT_MAP_ENTRIES_MAX &&
			     map->names.len < 2 * JIT_MAP_NAMES_MAX))
		return 0;
	rc = settle(map);
	if (rc >= 0)
		rc = renew_names(map);
	map->is_full = map->entries.count >= JIT_MAP_ENTRIES_MAX ||
		       map->names.len >= JIT_MAP_NAMES_MAX;
	return rc;
}

static int add(struct jit_map *map, uint64_t start_va, uint64_t size_bytes, const char *name,
	       size_t len)
{
	struct jit_entry entry = { .start_va = start_va };
	int rc;

	if (!size_bytes || __builtin_add_overflow(start_va, size_bytes, &entry.end_va))
		return 0;
	rc = make_room(map);
	if (rc < 0)
		return rc;
	if (map->is_full) {
		map->dropped++;
		return 0;
	}
	rc = string_table_add(&map->names, name, len, &entry.name);
	if (rc >= 0)
		rc = u64map_put(&map->name_by_start, start_va, entry.name);
	return rc < 0 ? rc : jit_entries_vec_push(&map->entries, entry);
}

int jit_map_add(struct jit_map *map, uint64_t start_va, uint64_t size_bytes, const char *name,
		size_t len)
{
	return len ? add(map, start_va & JIT_MAP_ADDRESS_MASK, size_bytes, name, len) : 0;
}

int jit_map_move(struct jit_map *map, uint64_t old_va, uint64_t new_va, uint64_t size_bytes)
{
	cleanup_free char *name = NULL;
	uint64_t string;
	int rc;

	old_va &= JIT_MAP_ADDRESS_MASK;
	new_va &= JIT_MAP_ADDRESS_MASK;
	if (!u64map_get(&map->name_by_start, old_va, &string) || !string)
		return 0;
	name = strdup(map->names.data + string); /* adding may move the names */
	if (!name)
		return -ENOMEM;
	rc = add(map, old_va, size_bytes, "", 0);
	return rc < 0 ? rc : add(map, new_va, size_bytes, name, strlen(name));
}

const char *jit_map_find(struct jit_map *map, uint64_t va)
{
	size_t low = 0, high;

	va &= JIT_MAP_ADDRESS_MASK;
	if (map->settled < map->entries.count && settle(map) < 0)
		return NULL;
	high = map->entries.count;
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (map->entries.data[middle].start_va <= va)
			low = middle + 1;
		else
			high = middle;
	}
	if (!low || va >= map->entries.data[low - 1].end_va)
		return NULL;
	return map->names.data + map->entries.data[low - 1].name;
}
