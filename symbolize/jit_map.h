/* SPDX-License-Identifier: Apache-2.0 */
/* Names of one process's JIT-compiled code by virtual address, of which the low 40 bits count as in
 * stored frames. Code comes and goes: where entries overlap the one added last counts, and what it
 * covers of older ones is forgotten. Not thread-safe. */
#ifndef PROFD_SYMBOLIZE_JIT_MAP_H
#define PROFD_SYMBOLIZE_JIT_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/u64map.h"
#include "agent/base/vec.h"
#include "symbolize/string_table.h"

#define JIT_MAP_ADDRESS_MASK ((1ull << 40) - 1)
#define JIT_MAP_ENTRIES_MAX 1000000u
#define JIT_MAP_NAMES_MAX                                                                          \
	(32u << 20) /* bytes of names in use; as much again may be waiting to be dropped */

struct jit_entry {
	uint64_t start_va;
	uint64_t end_va;
	uint32_t name; /* in jit_map.names; 0 = nothing is here any more */
};
VEC_DEFINE(jit_entries, struct jit_entry);

/* Zero-initialized is a valid empty map. */
struct jit_map {
	struct string_table names;
	struct jit_entries_vec entries; /* the first @settled ascending and disjoint, then as added */
	size_t settled;
	struct u64map name_by_start; /* of the entries as added, for code that moves */
	bool is_full;
	uint64_t dropped; /* entries refused at a bound */
};

void jit_map_deinit(struct jit_map *map);
void jit_map_clear(struct jit_map *map);
/* Names [@start_va, @start_va + @size_bytes). Nothing to name, or over a bound (counted in
 * map->dropped): 0. -ENOMEM. */
int jit_map_add(struct jit_map *map, uint64_t start_va, uint64_t size_bytes, const char *name,
		size_t len) must_use;
/* Moves the code that was added with start @old_va; unknown code is ignored. -ENOMEM. */
int jit_map_move(struct jit_map *map, uint64_t old_va, uint64_t new_va, uint64_t size_bytes)
	must_use;
/* Name of the code at @va, NULL if none (or no memory to sort). Valid until the next add or clear.
 */
const char *jit_map_find(struct jit_map *map, uint64_t va);

#endif
