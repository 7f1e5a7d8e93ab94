// SPDX-License-Identifier: Apache-2.0
#include "api/receive/arena.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES (64u << 10)

void arena_deinit(struct arena *arena)
{
	for (size_t i = 0; i < arena->blocks.count; i++)
		free(arena->blocks.data[i]);
	arena_blocks_vec_deinit(&arena->blocks);
	*arena = (struct arena){ 0 };
}

const char *arena_text(struct arena *arena, const void *text, size_t len)
{
	char *at;

	if (!len)
		return "";
	if (len + 1 > arena->room - arena->used) {
		const size_t room = len + 1 > BLOCK_BYTES ? len + 1 : BLOCK_BYTES;
		char *block = malloc(room);

		if (!block || arena_blocks_vec_push(&arena->blocks, block) < 0) {
			free(block);
			return NULL;
		}
		arena->room = room;
		arena->used = 0;
	}
	at = arena->blocks.data[arena->blocks.count - 1] + arena->used;
	memcpy(at, text, len);
	at[len] = '\0';
	arena->used += len + 1;
	return at;
}
