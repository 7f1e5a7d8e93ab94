// SPDX-License-Identifier: Apache-2.0
#include "agent/store/session_log.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <zstd.h>

#include "agent/base/buf.h"
#include "agent/base/io.h"
#include "agent/base/vec.h"
#include "agent/store/crc32c.h"

#define FILE_HEAD	"PROFLOG1"
#define FILE_HEAD_BYTES 8u
#define BLOCK_MAGIC	0x4b4c4250u /* "PBLK" */
#define BLOCK_COMMIT	0xffffu
#define BLOCK_ZSTD	1u
#define BLOCK_ALIGN	8u
#define COMPRESS_LEVEL	3   /* storage-ecosystem.md 1.2: 19 buys 6 to 10 %, not worth the CPU */
#define COMPRESS_MIN	128 /* bytes; below, the zstd frame is no gain */
#define SCAN_BYTES	(64u << 10)

struct block_head {
	uint32_t magic;
	uint16_t kind;
	uint16_t flags;
	uint32_t stored_len;
	uint32_t raw_len;
	uint32_t data_crc;
	uint32_t head_crc; /* of the 20 bytes before */
};
_Static_assert(sizeof(struct block_head) == 24, "file layout");

struct commit {
	uint64_t identity;
	uint64_t position;
};

#define COMMIT_BYTES (sizeof(struct block_head) + sizeof(struct commit))

/* ---- blocks ---------------------------------------------------------------------------------- */

static uint64_t block_bytes(const struct block_head *head)
{
	return (sizeof(*head) + (uint64_t)head->stored_len + BLOCK_ALIGN - 1) &
	       ~(uint64_t)(BLOCK_ALIGN - 1);
}

static uint32_t head_crc(const struct block_head *head)
{
	return crc32c(0, head, offsetof(struct block_head, head_crc));
}

static bool head_is_valid(const struct block_head *head)
{
	return head->magic == BLOCK_MAGIC && head->head_crc == head_crc(head) &&
	       head->raw_len <= STORE_CHUNK_MAX && head->stored_len <= head->raw_len;
}

static void add_block(struct buf *out, uint16_t kind, const void *data, size_t len)
{
	static const uint8_t zeros[BLOCK_ALIGN];
	struct block_head head = { .magic = BLOCK_MAGIC, .kind = kind, .raw_len = (uint32_t)len };
	cleanup_free void *packed = NULL;
	size_t stored = len;

	if (len >= COMPRESS_MIN && (packed = malloc(len))) {
		/* Room for less than the input: a block that does not shrink is an error here and
		 * stays raw. */
		size_t got = ZSTD_compress(packed, len - 1, data, len, COMPRESS_LEVEL);

		if (!ZSTD_isError(got)) {
			head.flags = BLOCK_ZSTD;
			stored = got;
			data = packed;
		}
	}
	head.stored_len = (uint32_t)stored;
	head.data_crc = crc32c(0, data, stored);
	head.head_crc = head_crc(&head);
	buf_add(out, &head, sizeof(head));
	buf_add(out, data, stored);
	buf_add(out, zeros, block_bytes(&head) - sizeof(head) - stored);
}

/* ---- where the file ends --------------------------------------------------------------------- */

/* A file that cannot be read is no file that ends here: what was not read may be there. */
struct scan {
	int fd;
	int rc; /* of the first read that failed */
};

static bool scan_read(struct scan *scan, void *data, size_t len, uint64_t at)
{
	int rc = io_pread_all(scan->fd, data, len, at);

	if (rc < 0 && scan->rc == 0)
		scan->rc = rc;
	return rc == 0;
}

/* The commit record at @at, if there is a whole and valid one. */
static bool read_commit(struct scan *scan, uint64_t at, struct commit *ret)
{
	uint8_t bytes[COMMIT_BYTES];
	struct block_head head;
	struct commit commit;

	if (!scan_read(scan, bytes, sizeof(bytes), at))
		return false;
	memcpy(&head, bytes, sizeof(head));
	memcpy(&commit, bytes + sizeof(head), sizeof(commit));
	if (!head_is_valid(&head) || head.kind != BLOCK_COMMIT || head.flags ||
	    head.stored_len != sizeof(commit) ||
	    head.data_crc != crc32c(0, &commit, sizeof(commit)))
		return false;
	*ret = commit;
	return true;
}

/* The next valid block head at or after @at and below @end (heads are 8-aligned). Steps over
 * garbage in pieces, so that damage costs one read per 64 KiB. Returns the offset, or @end. */
static uint64_t next_head(struct scan *scan, uint64_t at, uint64_t end, struct block_head *ret)
{
	uint8_t piece[4096];

	while (end - at >= sizeof(*ret)) {
		size_t len = end - at < sizeof(piece) ? (size_t)(end - at) : sizeof(piece);

		if (!scan_read(scan, piece, len, at))
			return end;
		for (size_t i = 0; i + sizeof(*ret) <= len; i += BLOCK_ALIGN) {
			memcpy(ret, piece + i, sizeof(*ret));
			if (head_is_valid(ret) && block_bytes(ret) <= end - at - i)
				return at + i;
		}
		at += len < sizeof(piece) ? len : len - sizeof(*ret) + BLOCK_ALIGN;
	}
	return end;
}

/* End of the last whole commit; FILE_HEAD_BYTES when there is none, 0 for an empty file. The usual
 * file ends with one. -EIO: it cannot be told. */
static int committed_end(int fd, uint64_t size, uint64_t *ret_end, struct commit *ret)
{
	uint64_t at = FILE_HEAD_BYTES, end = size ? FILE_HEAD_BYTES : 0;
	struct scan scan = { .fd = fd };
	struct block_head head;

	if (size >= FILE_HEAD_BYTES + COMMIT_BYTES && size % BLOCK_ALIGN == 0 &&
	    read_commit(&scan, size - COMMIT_BYTES, ret))
		at = end = size;
	while (at < size && (at = next_head(&scan, at, size, &head)) < size) {
		if (head.kind == BLOCK_COMMIT && read_commit(&scan, at, ret))
			end = at + COMMIT_BYTES;
		at += block_bytes(&head);
	}
	*ret_end = end;
	return scan.rc;
}

static int open_log(int dirfd, const char *name, int flags, int *ret_fd, uint64_t *ret_size)
{
	cleanup_close int fd = openat(dirfd, name, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
	char head[FILE_HEAD_BYTES];
	struct stat st;
	int rc;

	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) < 0)
		return -errno;
	/* A file shorter than its head is a creation that was cut short. */
	if (st.st_size < (off_t)FILE_HEAD_BYTES)
		st.st_size = 0;
	rc = st.st_size ? io_pread_all(fd, head, sizeof(head), 0) : 0;
	if (rc == 0 && st.st_size && memcmp(head, FILE_HEAD, FILE_HEAD_BYTES) != 0)
		rc = -EUCLEAN;
	if (rc < 0)
		return rc;
	*ret_fd = take_fd(&fd);
	*ret_size = (uint64_t)st.st_size;
	return 0;
}

/* ---- append ---------------------------------------------------------------------------------- */

int session_log_append(int dirfd, const char *name, const struct store_chunk *chunks, size_t count,
		       uint64_t feed_identity, uint64_t feed_position, int64_t *ret_grown)
{
	struct commit commit = { feed_identity, feed_position }, last;
	cleanup_close int fd = -1;
	cleanup_buf struct buf group = { 0 };
	uint64_t size, end;
	int rc = open_log(dirfd, name, O_RDWR | O_CREAT, &fd, &size);

	if (rc == 0)
		rc = committed_end(fd, size, &end, &last);
	if (rc < 0)
		return rc;
	if (size == 0)
		buf_add(&group, FILE_HEAD, FILE_HEAD_BYTES);
	for (size_t i = 0; i < count; i++) {
		if (chunks[i].len > STORE_CHUNK_MAX)
			return -E2BIG;
		add_block(&group, (uint16_t)chunks[i].kind, chunks[i].data, chunks[i].len);
	}
	add_block(&group, BLOCK_COMMIT, &commit, sizeof(commit));
	if (group.error)
		return group.error;
	if (end < size && ftruncate(fd, (off_t)end) < 0)
		return -errno;
	rc = io_pwrite_all(fd, group.data, group.len, end);
	if (rc == 0 && fdatasync(fd) < 0)
		rc = errno == EDQUOT ? -ENOSPC : -errno;
	if (rc == 0 && size == 0 && fsync(dirfd) < 0)
		rc = -errno;
	if (rc < 0) {
		(void)!ftruncate(fd, (off_t)end);
		return rc;
	}
	*ret_grown = (int64_t)(end + group.len) - (int64_t)size;
	return 0;
}

/* ---- read ------------------------------------------------------------------------------------ */

struct scratch {
	void *data;
	size_t capacity;
};

static void scratch_free(struct scratch *scratch)
{
	free(scratch->data);
}

/* Checks and unpacks one block into @raw. -EUCLEAN when it is damaged, another error when it cannot
 * be read. */
static int load_block(int fd, uint64_t at, const struct block_head *head, struct scratch *stored,
		      struct scratch *raw)
{
	size_t got;
	int rc = vec_grow(&stored->data, &stored->capacity, (size_t)head->stored_len + 1, 1, 0);

	if (rc == 0)
		rc = vec_grow(&raw->data, &raw->capacity, (size_t)head->raw_len + 1, 1, 0);
	if (rc < 0)
		return rc;
	rc = io_pread_all(fd, stored->data, head->stored_len, at + sizeof(*head));
	if (rc < 0)
		return rc;
	if (crc32c(0, stored->data, head->stored_len) != head->data_crc)
		return -EUCLEAN;
	if (!(head->flags & BLOCK_ZSTD)) {
		if (head->stored_len != head->raw_len)
			return -EUCLEAN;
		memcpy(raw->data, stored->data, head->raw_len);
		return 0;
	}
	got = ZSTD_decompress(raw->data, head->raw_len, stored->data, head->stored_len);
	return ZSTD_isError(got) || got != head->raw_len ? -EUCLEAN : 0;
}

static int visit_block(int fd, uint64_t at, const struct block_head *head,
		       struct scratch scratch[2], store_chunk_fn *visit, void *ctx,
		       unsigned *damaged)
{
	struct store_chunk chunk = { .kind = head->kind, .len = head->raw_len };
	int rc = load_block(fd, at, head, &scratch[0], &scratch[1]);

	if (rc == -EUCLEAN) {
		(*damaged)++;
		return 0;
	}
	if (rc < 0)
		return rc;
	chunk.data = scratch[1].data;
	return visit(ctx, &chunk);
}

static int visit_blocks(int fd, uint64_t end, struct scratch scratch[2], store_chunk_fn *visit,
			void *ctx, unsigned *ret_damaged)
{
	uint64_t at = FILE_HEAD_BYTES, found;
	struct scan scan = { .fd = fd };
	struct block_head head;
	unsigned damaged = 0;

	while (at < end) {
		found = next_head(&scan, at, end, &head);
		damaged += found != at;
		at = found;
		if (at >= end)
			break;
		if (head.kind != BLOCK_COMMIT) {
			int rc = visit_block(fd, at, &head, scratch, visit, ctx, &damaged);

			if (rc < 0)
				return rc;
		}
		at += block_bytes(&head);
	}
	if (scan.rc == 0 && ret_damaged)
		*ret_damaged = damaged;
	return scan.rc;
}

int session_log_read(int dirfd, const char *name, store_chunk_fn *visit, void *ctx,
		     unsigned *ret_damaged)
{
	struct scratch scratch[2] = { 0 };
	struct commit last;
	cleanup_close int fd = -1;
	uint64_t size, end;
	int rc = open_log(dirfd, name, O_RDONLY, &fd, &size);

	if (rc == 0)
		rc = committed_end(fd, size, &end, &last);
	if (rc == 0)
		rc = size ? visit_blocks(fd, end, scratch, visit, ctx, ret_damaged) : -ENOENT;
	scratch_free(&scratch[0]);
	scratch_free(&scratch[1]);
	return rc;
}

/* Opens what was committed of a log, up to @ret_end. -ENOENT: nothing was. */
static int open_committed(int dirfd, const char *name, int *ret_fd, uint64_t *ret_end,
			  struct commit *ret)
{
	uint64_t size;
	int rc = open_log(dirfd, name, O_RDONLY, ret_fd, &size);

	if (rc == 0)
		rc = committed_end(*ret_fd, size, ret_end, ret);
	return rc == 0 && *ret_end <= FILE_HEAD_BYTES ? -ENOENT : rc;
}

int session_log_position(int dirfd, const char *name, uint64_t *ret_identity,
			 uint64_t *ret_position)
{
	struct commit last;
	cleanup_close int fd = -1;
	uint64_t end;
	int rc = open_committed(dirfd, name, &fd, &end, &last);

	if (rc < 0)
		return rc;
	*ret_identity = last.identity;
	*ret_position = last.position;
	return 0;
}

/* ---- copy ------------------------------------------------------------------------------------ */
static int copy_bytes(int from, int to, uint64_t len)
{
	cleanup_free char *piece = malloc(SCAN_BYTES);

	if (!piece)
		return -ENOMEM;
	for (uint64_t at = 0; at < len;) {
		size_t part = len - at < SCAN_BYTES ? (size_t)(len - at) : SCAN_BYTES;
		int rc = io_pread_all(from, piece, part, at);

		if (rc == 0)
			rc = io_pwrite_all(to, piece, part, at);
		if (rc < 0)
			return rc;
		at += part;
	}
	return fdatasync(to) < 0 ? (errno == EDQUOT ? -ENOSPC : -errno) : 0;
}

int session_log_copy(int dirfd, const char *from, const char *to, uint64_t *ret_bytes)
{
	char temporary[STORE_ID_SIZE + 16];
	struct commit last;
	cleanup_close int in = -1, out = -1;
	uint64_t end;
	int rc = open_committed(dirfd, from, &in, &end, &last);

	if (rc < 0)
		return rc;
	(void)snprintf(temporary, sizeof(temporary), "%s.tmp", to);
	out = openat(dirfd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (out < 0)
		return -errno;
	rc = copy_bytes(in, out, end);
	/* link() refuses to replace, rename() would not. */
	if (rc == 0 && linkat(dirfd, temporary, dirfd, to, 0) < 0)
		rc = -errno;
	(void)unlinkat(dirfd, temporary, 0);
	if (rc == 0 && fsync(dirfd) < 0)
		rc = -errno;
	if (rc == 0)
		*ret_bytes = end;
	return rc;
}
