/* SPDX-License-Identifier: Apache-2.0 */
/* A compressed, checked blob: {raw length u32, crc32c of what follows u32, flags u32}, bytes. */
#ifndef PROFD_STORE_PACKED_H
#define PROFD_STORE_PACKED_H

#include <stddef.h>

#include "agent/base/cleanup.h"
#include "agent/store/store.h"

/* @ends: it stays and is made once, which is worth some time, and these are its parts; NULL: it
 * soon goes. @ret is the caller's (free). -E2BIG above STORE_CHUNK_MAX, -ENOMEM. */
int packed_make(const void *data, size_t len, const struct store_ends *ends, void **ret,
		size_t *ret_len) must_use;
/* Many in succession: making what zstd needs costs ten times what a minute of data does. */
struct packed_reader;
struct packed_reader *packed_reader_create(void); /* NULL: no memory */
void packed_reader_destroy(struct packed_reader *reader);
/* The same back; @reader NULL = made for the call. -EUCLEAN when it is damaged. */
int packed_open(struct packed_reader *reader, const void *packed, size_t len, void **ret,
		size_t *ret_len) must_use;
/* Part after part, as they were made, until there are as many bytes as @needs says of those that
 * are there. */
typedef size_t packed_needs_fn(void *ctx, const void *data, size_t len);
int packed_open_part(struct packed_reader *reader, const void *packed, size_t len,
		     packed_needs_fn *needs, void *ctx, void **ret, size_t *ret_len) must_use;

/* The parts of a bucket's data that the visitor of a query needs: the context of
 * packed_window_needs(). */
struct packed_window {
	const struct store_window_query *query; /* with needs */
	void *visit_ctx;
	const struct store_window *window;
};
size_t packed_window_needs(void *ctx, const void *data, size_t len);

#endif
