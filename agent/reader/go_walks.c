// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/go_walks.h"

#include <stdlib.h>
#include <string.h>

#include "agent/base/hash.h"

static void forget_walks(struct go_walks *walks)
{
	go_walk_entries_vec_deinit(&walks->walks);
	go_walk_pcs_vec_deinit(&walks->pcs);
	go_walk_marks_vec_deinit(&walks->marks);
	u64map_deinit(&walks->at);
}

void go_walks_deinit(struct go_walks *walks)
{
	forget_walks(walks);
	free(walks->seen);
	*walks = (struct go_walks){ 0 };
}

void go_walks_begin(struct go_walks *walks)
{
	if (walks->walks.count < GO_WALKS_MAX && walks->pcs.count < GO_WALKS_FRAMES_MAX)
		return;
	forget_walks(walks);
	if (walks->seen)
		memset(walks->seen, 0, GO_SEEN_MAX * sizeof(*walks->seen));
}

static uint8_t mark_of(const struct go_walk *walk, unsigned at)
{
	return (uint8_t)(walk->flags[at] << 1 | (walk->exact[at] != 0));
}

uint32_t go_walks_number(struct go_walks *walks, const struct go_walk *walk)
{
	struct go_walk_entry entry = { .first = (uint32_t)walks->pcs.count,
				       .count = (uint16_t)walk->count,
				       .end = (uint8_t)walk->end,
				       .lock_wait = walk->lock_wait };
	uint64_t hash = hash_bytes(walk->pcs, walk->count * sizeof(*walk->pcs),
				   walk->end * 2u + walk->lock_wait);
	uint64_t known;

	hash = hash_bytes(walk->exact, walk->count, hash);
	if (u64map_get(&walks->at, hash, &known))
		return (uint32_t)known;
	if (!walk->count || walks->walks.count >= GO_WALKS_MAX ||
	    walks->pcs.count + walk->count > GO_WALKS_FRAMES_MAX ||
	    go_walk_pcs_vec_reserve(&walks->pcs, walks->pcs.count + walk->count) < 0 ||
	    go_walk_marks_vec_reserve(&walks->marks, walks->pcs.count + walk->count) < 0 ||
	    go_walk_entries_vec_reserve(&walks->walks, walks->walks.count + 1) < 0 ||
	    u64map_put(&walks->at, hash, walks->walks.count + 1) < 0)
		return 0;
	memcpy(walks->pcs.data + entry.first, walk->pcs, walk->count * sizeof(*walk->pcs));
	for (unsigned i = 0; i < walk->count; i++)
		walks->marks.data[entry.first + i] = mark_of(walk, i);
	walks->pcs.count = walks->marks.count = entry.first + walk->count;
	walks->walks.data[walks->walks.count++] = entry;
	return (uint32_t)walks->walks.count;
}

const struct go_walk_entry *go_walks_entry(const struct go_walks *walks, uint32_t number)
{
	return &walks->walks.data[number - 1];
}

void go_walks_load(const struct go_walks *walks, uint32_t number, struct go_walk *ret)
{
	const struct go_walk_entry *entry = go_walks_entry(walks, number);

	ret->end = (enum go_walk_end)entry->end;
	ret->count = entry->count;
	ret->lock_va = 0;
	ret->lock_wait = entry->lock_wait;
	memcpy(ret->pcs, walks->pcs.data + entry->first, entry->count * sizeof(*ret->pcs));
	for (unsigned i = 0; i < entry->count; i++) {
		ret->exact[i] = walks->marks.data[entry->first + i] & 1;
		ret->flags[i] = walks->marks.data[entry->first + i] >> 1;
	}
}

const struct go_seen *go_walks_find(const struct go_walks *walks, uint64_t index,
				    const struct go_seen *now)
{
	const struct go_seen *seen;

	if (!walks->seen || index >= GO_SEEN_MAX || !now->wait_since)
		return NULL;
	seen = &walks->seen[index];
	return seen->walk && seen->goid == now->goid && seen->wait_since == now->wait_since &&
			       seen->pc == now->pc && seen->sp == now->sp
		       ? seen
		       : NULL;
}

void go_walks_keep(struct go_walks *walks, uint64_t index, const struct go_seen *seen)
{
	if (index >= GO_SEEN_MAX)
		return;
	if (!walks->seen)
		walks->seen = calloc(GO_SEEN_MAX, sizeof(*walks->seen));
	if (walks->seen)
		walks->seen[index] = *seen;
}
