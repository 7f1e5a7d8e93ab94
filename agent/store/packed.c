// SPDX-License-Identifier: Apache-2.0
#include "agent/store/packed.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <zstd.h>

#include "agent/store/crc32c.h"

#define PACKED_ZSTD    1u
#define LEVEL_QUICK    3
#define LEVEL_DENSE    19
#define DENSE_LOG                                                                                  \
	18 /* of bytes looked back: what the dense level needs of memory grows with them, 5 MB for \
	      these */
#define COMPRESS_MIN   64   /* bytes */
#define WHOLE_MAX      8192 /* bytes: above, parts are smaller for sure */
#define PART_MIN       48 /* bytes: a smaller part joins the next; its own frame costs ten */

struct packed_head {
	uint32_t raw_len;
	uint32_t crc;
	uint32_t flags;
};

static ZSTD_CCtx *dense_context(void)
{
	ZSTD_CCtx *context = ZSTD_createCCtx();

	if (!context)
		return NULL;
	(void)ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, LEVEL_DENSE);
	(void)ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, DENSE_LOG);
	(void)ZSTD_CCtx_setParameter(context, ZSTD_c_chainLog, DENSE_LOG);
	(void)ZSTD_CCtx_setParameter(context, ZSTD_c_hashLog, DENSE_LOG);
	return context;
}

/* A frame for each part: zstd has one table for the bytes of a block, and takes frames one after
 * the other for one. Into @out with @room; the bytes, 0 when they do not fit. */
static size_t compress_parts(ZSTD_CCtx *context, const char *data, size_t len,
			     const struct store_ends *ends, char *out, size_t room)
{
	size_t begin = 0, used = 0;

	for (uint32_t i = 0; i <= ends->count; i++) {
		size_t end = i < ends->count && ends->at[i] < len ? ends->at[i] : len, got;

		if (end - begin < PART_MIN && end < len)
			continue;
		got = ZSTD_compress2(context, out + used, room - used, data + begin, end - begin);
		if (ZSTD_isError(got))
			return 0;
		used += got;
		begin = end;
		if (end == len)
			break;
	}
	return used;
}

/* In parts or in one piece, whichever is smaller; 0 when it does not shrink. */
static size_t compress_dense(const char *data, size_t len, const struct store_ends *ends, char *out)
{
	cleanup_free char *other = malloc(len);
	ZSTD_CCtx *context = dense_context();
	const struct store_ends one = { 0 };
	size_t got = 0, whole = 0;

	if (context && other) {
		got = compress_parts(context, data, len, ends, out, len - 1);
		if (ends->count && len <= WHOLE_MAX)
			whole = compress_parts(context, data, len, &one, other, (got ? got : len) - 1);
	}
	if (whole) {
		memcpy(out, other, whole);
		got = whole;
	}
	(void)ZSTD_freeCCtx(context);
	return got;
}

int packed_make(const void *data, size_t len, const struct store_ends *ends, void **ret,
		size_t *ret_len)
{
	struct packed_head head = { .raw_len = (uint32_t)len };
	char *out;
	size_t stored = len, got = 0;

	if (len > STORE_CHUNK_MAX)
		return -E2BIG;
	out = malloc(sizeof(head) + len + 1);
	if (!out)
		return -ENOMEM;
	/* Room for less than the input: what does not shrink is kept as it is. */
	if (len >= COMPRESS_MIN && ends)
		got = compress_dense(data, len, ends, out + sizeof(head));
	else if (len >= COMPRESS_MIN)
		got = ZSTD_compress(out + sizeof(head), len - 1, data, len, LEVEL_QUICK);
	if (got && !ZSTD_isError(got)) {
		head.flags = PACKED_ZSTD;
		stored = got;
	} else if (len) {
		memcpy(out + sizeof(head), data, len);
	}
	head.crc = crc32c(0, out + sizeof(head), stored);
	memcpy(out, &head, sizeof(head));
	*ret = out;
	*ret_len = sizeof(head) + stored;
	return 0;
}

/* zstd's context under our name: nobody else needs its header. */
struct packed_reader *packed_reader_create(void)
{
	return (struct packed_reader *)ZSTD_createDCtx();
}

void packed_reader_destroy(struct packed_reader *reader)
{
	(void)ZSTD_freeDCtx((ZSTD_DCtx *)reader);
}

/* Into @out with @room. The bytes, SIZE_MAX: they are not what zstd makes. */
static size_t unpack(ZSTD_DCtx *context, const char *packed, size_t len, packed_needs_fn *needs,
		     void *ctx, char *out, size_t room)
{
	size_t used = 0, got, frame;

	for (size_t at = 0; at < len; at += frame) {
		frame = needs ? ZSTD_findFrameCompressedSize(packed + at, len - at) : len;
		if (ZSTD_isError(frame))
			return SIZE_MAX;
		got = context ? ZSTD_decompressDCtx(context, out + used, room - used, packed + at, frame)
			      : ZSTD_decompress(out + used, room - used, packed + at, frame);
		if (ZSTD_isError(got))
			return SIZE_MAX;
		used += got;
		if (needs && used >= needs(ctx, out, used))
			return used;
	}
	return used == room ? used : SIZE_MAX;
}

int packed_open_part(struct packed_reader *reader, const void *packed, size_t len,
		     packed_needs_fn *needs, void *ctx, void **ret, size_t *ret_len)
{
	struct packed_head head;
	const char *bytes;
	cleanup_free char *out = NULL;
	size_t stored, got;

	if (!packed || len < sizeof(head))
		return -EUCLEAN;
	bytes = (const char *)packed + sizeof(head);
	memcpy(&head, packed, sizeof(head));
	stored = len - sizeof(head);
	if (head.raw_len > STORE_CHUNK_MAX || crc32c(0, bytes, stored) != head.crc)
		return -EUCLEAN;
	out = malloc((size_t)head.raw_len + 1);
	if (!out)
		return -ENOMEM;
	if (head.flags & PACKED_ZSTD) {
		got = unpack((ZSTD_DCtx *)reader, bytes, stored, needs, ctx, out, head.raw_len);
		if (got == SIZE_MAX)
			return -EUCLEAN;
	} else {
		if (stored != head.raw_len)
			return -EUCLEAN;
		memcpy(out, bytes, stored);
		got = stored;
	}
	*ret_len = got;
	*ret = take_ptr(out);
	return 0;
}

int packed_open(struct packed_reader *reader, const void *packed, size_t len, void **ret,
		size_t *ret_len)
{
	return packed_open_part(reader, packed, len, NULL, NULL, ret, ret_len);
}

size_t packed_window_needs(void *ctx, const void *data, size_t len)
{
	const struct packed_window *wanted = ctx;

	return wanted->query->needs(wanted->visit_ctx, wanted->window, data, len);
}
