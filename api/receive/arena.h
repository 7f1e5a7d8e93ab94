/* SPDX-License-Identifier: Apache-2.0 */
/* Texts that live as long as the message that they came with. Not thread-safe. */
#ifndef PROFD_API_RECEIVE_ARENA_H
#define PROFD_API_RECEIVE_ARENA_H

#include <stddef.h>

#include "agent/base/cleanup.h"
#include "agent/base/vec.h"

VEC_DEFINE(arena_blocks, char *);

/* Zero-initialized is empty. */
struct arena {
	struct arena_blocks_vec blocks;
	size_t used, room; /* of the last block */
};
void arena_deinit(struct arena *arena);
/* A copy of the @len bytes with a NUL behind them; NULL: no memory. */
const char *arena_text(struct arena *arena, const void *text, size_t len);

#endif
