// SPDX-License-Identifier: Apache-2.0
#include "agent/base/intern.h"

#include <errno.h>
#include <stdlib.h>

static void place(struct intern *table, uint64_t slot)
{
	size_t at = intern_home(table, (uint32_t)(slot >> 32));

	while (table->slots[at])
		at = (at + 1) & (table->capacity - 1);
	table->slots[at] = slot;
}

static int grow(struct intern *table)
{
	struct intern larger = { .capacity = table->capacity ? table->capacity * 2 : 64,
				 .count = table->count };
	size_t i;

	larger.slots = calloc(larger.capacity, sizeof(*larger.slots));
	if (!larger.slots)
		return -ENOMEM;
	for (i = 0; i < table->capacity; i++)
		if (table->slots[i])
			place(&larger, table->slots[i]);
	free(table->slots);
	*table = larger;
	return 0;
}

int intern_add(struct intern *table, uint64_t hash, uint32_t id)
{
	/* At most 5/8 full: linear probing stays at about two slots a look-up. */
	if (table->count * 8 >= table->capacity * 5) {
		int rc = grow(table);

		if (rc < 0)
			return rc;
	}
	place(table, (hash >> 32) << 32 | ((uint64_t)id + 1));
	table->count++;
	return 0;
}

void intern_deinit(struct intern *table)
{
	free(table->slots);
	*table = (struct intern){ 0 };
}
