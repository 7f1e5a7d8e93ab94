// SPDX-License-Identifier: Apache-2.0
#include "agent/store/packed.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <zstd.h>

#include "agent/store/crc32c.h"
#include "agent/store/store.h"

#define PACKED_ZSTD    1u
#define LEVEL_QUICK    3
#define LEVEL_DENSE    19
#define DENSE_MAX      (256u << 10) /* bytes: what the dense level needs of memory grows with them, 5 MB for these */
#define COMPRESS_MIN   64	    /* bytes */

struct packed_head {
	uint32_t raw_len;
	uint32_t crc;
	uint32_t flags;
};

int packed_make(const void *data, size_t len, bool lasting, void **ret, size_t *ret_len)
{
	int level = lasting && len <= DENSE_MAX ? LEVEL_DENSE : LEVEL_QUICK;
	struct packed_head head = { .raw_len = (uint32_t)len };
	char *out;
	size_t stored = len, got;

	if (len > STORE_CHUNK_MAX)
		return -E2BIG;
	out = malloc(sizeof(head) + len + 1);
	if (!out)
		return -ENOMEM;
	/* Room for less than the input: what does not shrink is kept as it is. */
	got = len >= COMPRESS_MIN
		      ? ZSTD_compress(out + sizeof(head), len - 1, data, len, level)
		      : (size_t)-1;
	if (!ZSTD_isError(got)) {
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

int packed_open(struct packed_reader *reader, const void *packed, size_t len, void **ret,
		size_t *ret_len)
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
		got = reader ? ZSTD_decompressDCtx((ZSTD_DCtx *)reader, out, head.raw_len, bytes,
						   stored)
			     : ZSTD_decompress(out, head.raw_len, bytes, stored);
		if (ZSTD_isError(got) || got != head.raw_len)
			return -EUCLEAN;
	} else {
		if (stored != head.raw_len)
			return -EUCLEAN;
		memcpy(out, bytes, stored);
	}
	*ret_len = head.raw_len;
	*ret = take_ptr(out);
	return 0;
}
