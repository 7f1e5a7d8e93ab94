// SPDX-License-Identifier: Apache-2.0
/* Sums of one minute as columns: see session_chunks.h. */
#include <errno.h>

#include "agent/recording/session_chunks.h"

static int by_pair(const void *a, const void *b)
{
	const struct chunk_sum *x = a, *y = b;

	if (x->pair != y->pair)
		return x->pair < y->pair ? -1 : 1;
	return x->attr < y->attr ? -1 : x->attr > y->attr;
}

void chunk_encode_window(struct buf *out, struct chunk_sum *sums, size_t count)
{
	size_t kept = 0;
	uint32_t before = 0;

	for (size_t i = 0; i < count; i++)
		if (sums[i].value || sums[i].value2)
			sums[kept++] = sums[i];
	if (kept)
		qsort(sums, kept, sizeof(*sums), by_pair);
	buf_add_varint(out, kept);
	for (size_t i = 0; i < kept; i++) {
		buf_add_varint(out, sums[i].pair - before);
		before = sums[i].pair;
	}
	for (size_t i = 0; i < kept; i++)
		buf_add_varint(out, sums[i].attr);
	for (size_t i = 0; i < kept; i++)
		buf_add_svarint(out, sums[i].value);
	for (size_t i = 0; i < kept; i++)
		buf_add_varint(out, sums[i].value2);
}

int chunk_decode_window(const void *data, size_t len, chunk_sum_fn *visit, void *ctx)
{
	struct bytes in = bytes_of(data, len);
	uint64_t count = bytes_count(&in, 4), pair = 0, attr;
	cleanup_free struct chunk_sum *sums = NULL;

	if (in.failed)
		return -EPROTO;
	sums = calloc(count + 1, sizeof(*sums));
	if (!sums)
		return -ENOMEM;
	for (uint64_t i = 0; i < count; i++) {
		pair += bytes_varint(&in);
		if (pair > UINT32_MAX)
			return -EPROTO;
		sums[i].pair = (uint32_t)pair;
	}
	for (uint64_t i = 0; i < count; i++) {
		attr = bytes_varint(&in);
		if (attr > UINT32_MAX)
			return -EPROTO;
		sums[i].attr = (uint32_t)attr;
	}
	for (uint64_t i = 0; i < count; i++)
		sums[i].value = bytes_svarint(&in);
	for (uint64_t i = 0; i < count; i++)
		sums[i].value2 = bytes_varint(&in);
	if (in.failed)
		return -EPROTO;
	for (uint64_t i = 0; i < count; i++) {
		int rc = visit(ctx, &sums[i]);

		if (rc < 0)
			return rc;
	}
	return 0;
}
