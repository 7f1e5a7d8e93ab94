// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/proc/mapping_set.h"

#include <errno.h>
#include <string.h>

#include "agent/base/vec.h"

VEC_DEFINE(mapping, struct mapping);

struct mapping_set {
	unsigned refs;
	struct mapping_vec live; /* by address, never overlapping */
	struct mapping_vec past; /* a ring once it is full */
	size_t past_next;
};

static struct mapping_set *set_create(void)
{
	struct mapping_set *set = calloc(1, sizeof(*set));

	if (set)
		set->refs = 1;
	return set;
}

struct mapping_set *mapping_set_ref(struct mapping_set *set)
{
	if (set)
		set->refs++;
	return set;
}

void mapping_set_unref(struct mapping_set *set)
{
	if (!set || --set->refs > 0)
		return;
	mapping_vec_deinit(&set->live);
	mapping_vec_deinit(&set->past);
	free(set);
}

static int vec_copy(struct mapping_vec *to, const struct mapping_vec *from)
{
	int rc = mapping_vec_reserve(to, from->count + 1);

	if (rc < 0)
		return rc;
	if (from->count)
		memcpy(to->data, from->data, from->count * sizeof(*from->data));
	to->count = from->count;
	return 0;
}

/* Leaves a set in *@slot that nobody else holds. */
static int make_private(struct mapping_set **slot)
{
	cleanup(mapping_set) struct mapping_set *copy = NULL;
	struct mapping_set *set = *slot;
	int rc;

	if (set && set->refs == 1)
		return 0;
	copy = set_create();
	if (!copy)
		return -ENOMEM;
	if (set) {
		rc = vec_copy(&copy->live, &set->live);
		if (rc == 0)
			rc = vec_copy(&copy->past, &set->past);
		if (rc < 0)
			return rc;
		copy->past_next = set->past_next;
		mapping_set_unref(set);
	}
	*slot = take_ptr(copy);
	return 0;
}

size_t mapping_set_count(const struct mapping_set *set)
{
	return set ? set->live.count : 0;
}

const struct mapping *mapping_set_at(const struct mapping_set *set, size_t index)
{
	return &set->live.data[index];
}

/* Index of the first live mapping that ends behind @va. */
static size_t first_ending_after(const struct mapping_set *set, uint64_t va)
{
	size_t low = 0, high = set->live.count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (set->live.data[middle].end_va > va)
			high = middle;
		else
			low = middle + 1;
	}
	return low;
}

void mapping_set_each(const struct mapping_set *set,
		      void (*each)(void *ctx, const struct mapping *mapping), void *ctx)
{
	for (size_t i = 0; set && i < set->live.count; i++)
		each(ctx, &set->live.data[i]);
	for (size_t i = 0; set && i < set->past.count; i++)
		each(ctx, &set->past.data[i]);
}

const struct mapping *mapping_set_find(const struct mapping_set *set, uint64_t va, uint64_t time_ns)
{
	const struct mapping *now = NULL;
	size_t at;

	if (!set)
		return NULL;
	at = first_ending_after(set, va);
	if (at < set->live.count && set->live.data[at].start_va <= va)
		now = &set->live.data[at];
	if (now && now->from_ns <= time_ns)
		return now;
	for (size_t i = 0; i < set->past.count; i++) {
		const struct mapping *past = &set->past.data[i];

		if (va >= past->start_va && va < past->end_va && time_ns >= past->from_ns &&
		    time_ns < past->until_ns)
			return past;
	}
	return now;
}

static void remember(struct mapping_set *set, const struct mapping *mapping, uint64_t until_ns)
{
	struct mapping past = *mapping;

	past.until_ns = until_ns;
	if (set->past.count < MAPPING_SET_HISTORY_MAX) {
		/* Without memory the history is shorter; nothing else depends on it. */
		(void)!mapping_vec_push(&set->past, past);
		return;
	}
	set->past.data[set->past_next] = past;
	set->past_next = (set->past_next + 1) % MAPPING_SET_HISTORY_MAX;
}

static void tell(void (*fn)(void *, const struct mapping *), const struct mapping_changes *changes,
		 const struct mapping *mapping)
{
	if (fn)
		fn(changes->ctx, mapping);
}

static void insert_at(struct mapping_set *set, size_t at, const struct mapping *mapping)
{
	memmove(&set->live.data[at + 1], &set->live.data[at],
		(set->live.count - at) * sizeof(*mapping));
	set->live.data[at] = *mapping;
	set->live.count++;
}

static void remove_at(struct mapping_set *set, size_t at)
{
	set->live.count--;
	memmove(&set->live.data[at], &set->live.data[at + 1],
		(set->live.count - at) * sizeof(*set->live.data));
}

/* Frees [@start, @end): whole mappings go, one that reaches over an edge keeps what is outside. The
 * caller has reserved room for the one mapping more that a hole in the middle of another makes. */
static void carve(struct mapping_set *set, uint64_t start, uint64_t end, uint64_t now_ns,
		  const struct mapping_changes *changes)
{
	size_t at = first_ending_after(set, start);

	while (at < set->live.count && set->live.data[at].start_va < end) {
		struct mapping old = set->live.data[at], rest = old;

		remember(set, &old, now_ns);
		remove_at(set, at);
		tell(changes ? changes->removed : NULL, changes, &old);
		if (old.start_va < start) {
			rest.end_va = start;
			insert_at(set, at++, &rest);
			tell(changes ? changes->added : NULL, changes, &rest);
		}
		if (old.end_va > end) {
			rest = old;
			rest.start_va = end;
			insert_at(set, at++, &rest);
			tell(changes ? changes->added : NULL, changes, &rest);
		}
	}
}

static bool same(const struct mapping *a, const struct mapping *b)
{
	return a->start_va == b->start_va && a->end_va == b->end_va && a->bias == b->bias &&
	       a->module == b->module;
}

int mapping_set_add(struct mapping_set **slot, const struct mapping *mapping,
		    const struct mapping_changes *changes)
{
	struct mapping_set *set = *slot;
	size_t at;
	int rc;

	if (mapping->end_va <= mapping->start_va)
		return -EINVAL;
	if (set) {
		at = first_ending_after(set, mapping->start_va);
		if (at < set->live.count && same(&set->live.data[at], mapping))
			return 0;
		if (set->live.count + 2 > MAPPING_SET_MAX)
			return -ENOSPC;
	}
	rc = make_private(slot);
	if (rc < 0)
		return rc;
	set = *slot;
	rc = mapping_vec_reserve(&set->live, set->live.count + 2);
	if (rc < 0)
		return rc;
	carve(set, mapping->start_va, mapping->end_va, mapping->from_ns, changes);
	at = first_ending_after(set, mapping->start_va);
	insert_at(set, at, mapping);
	set->live.data[at].until_ns = UINT64_MAX;
	tell(changes ? changes->added : NULL, changes, &set->live.data[at]);
	return 1;
}

/* True if one of @seen (address order) is @mapping. */
static bool among(const struct mapping *seen, size_t count, const struct mapping *mapping)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (seen[middle].start_va < mapping->start_va)
			low = middle + 1;
		else
			high = middle;
	}
	return low < count && same(&seen[low], mapping);
}

int mapping_set_replace(struct mapping_set **slot, const struct mapping *seen, size_t count,
			uint64_t now_ns, const struct mapping_changes *changes)
{
	int rc = make_private(slot), first = 0;
	struct mapping_set *set;

	if (rc < 0)
		return rc;
	set = *slot;
	for (size_t i = set->live.count; i-- > 0;) {
		struct mapping old = set->live.data[i];

		if (among(seen, count, &old))
			continue;
		remember(set, &old, now_ns);
		remove_at(set, i);
		tell(changes ? changes->removed : NULL, changes, &old);
	}
	for (size_t i = 0; i < count; i++) {
		rc = mapping_set_add(slot, &seen[i], changes);
		if (rc < 0 && first == 0)
			first = rc;
	}
	return first;
}
