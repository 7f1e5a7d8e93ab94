/* SPDX-License-Identifier: Apache-2.0 */
/* Hash index over an array that the caller owns: finds the id of an equal element. A slot is 32
 * bits of the element's hash (the tag) next to its id. The home slot follows from the tag, so
 * growing needs no look at the elements. A probe touches an element only when 32 bits agree. Ids
 * are below UINT32_MAX. Never shrinks, no removal, not thread-safe. Use:
 *
 *   struct intern_probe probe = intern_probe(&table, hash);
 *   while ((id = intern_next(&table, &probe)) != INTERN_NONE)
 *           if (equal(elements[id], wanted)) return id;
 *   … append the element as `id` …
 *   rc = intern_add(&table, hash, id); */
#ifndef PROFD_BASE_INTERN_H
#define PROFD_BASE_INTERN_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

#define INTERN_NONE UINT32_MAX

struct intern {
	uint64_t *slots; /* tag << 32 | id + 1; 0 = empty */
	size_t capacity; /* power of two, 0 before the first add */
	size_t count;
};

struct intern_probe {
	size_t at;
	uint32_t tag;
};

static inline size_t intern_home(const struct intern *table, uint32_t tag)
{
	return (size_t)(tag * 0x9e3779b97f4a7c15ull >> 32) & (table->capacity - 1);
}

/* @hash: well mixed, as hash_combine() leaves it. */
static inline struct intern_probe intern_probe(const struct intern *table, uint64_t hash)
{
	uint32_t tag = (uint32_t)(hash >> 32);

	return (struct intern_probe){ table->capacity ? intern_home(table, tag) : 0, tag };
}

/* The next id whose tag agrees; INTERN_NONE when there is no more. */
static inline uint32_t intern_next(const struct intern *table, struct intern_probe *probe)
{
	uint64_t slot;

	if (!table->capacity)
		return INTERN_NONE;
	while ((slot = table->slots[probe->at])) {
		probe->at = (probe->at + 1) & (table->capacity - 1);
		if ((uint32_t)(slot >> 32) == probe->tag)
			return (uint32_t)slot - 1;
	}
	return INTERN_NONE;
}

/* Records @id under @hash; how many ids there may be is the caller's bound. -ENOMEM, unchanged
 * then. */
int intern_add(struct intern *table, uint64_t hash, uint32_t id) must_use;
void intern_deinit(struct intern *table);

#endif
