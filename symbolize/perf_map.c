// SPDX-License-Identifier: Apache-2.0
#include "symbolize/perf_map.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"

#define CHUNK_BYTES 65536u

/* ---- one line -------------------------------------------------------------------------------- */

static bool parse_hex(const char **at, const char *end, uint64_t *ret)
{
	const char *p = *at;
	uint64_t value = 0;
	unsigned digits = 0;

	if (end - p > 2 && p[0] == '0' && (p[1] == 'x' || p[1] == 'X'))
		p += 2;
	for (; p < end && isxdigit((unsigned char)*p); p++, digits++)
		value = value << 4 | (uint64_t)(isdigit((unsigned char)*p) ? *p - '0'
									   : (*p | 32) - 'a' + 10);
	if (!digits || digits > 16 || p == end || *p != ' ')
		return false;
	*at = p + 1;
	*ret = value;
	return true;
}

/* "START SIZE name", hexadecimal; the name may contain spaces. Anything else is skipped. */
static int take_line(const char *at, const char *end, struct jit_map *map)
{
	uint64_t start, size;

	if (!parse_hex(&at, end, &start) || !parse_hex(&at, end, &size))
		return 0;
	if (end > at && end[-1] == '\r')
		end--;
	if (end - at > PERF_MAP_NAME_MAX)
		end = at + PERF_MAP_NAME_MAX;
	return end > at ? jit_map_add(map, start, size, at, (size_t)(end - at)) : 0;
}

/* ---- files ----------------------------------------------------------------------------------- */

/* Starts over where the file is not the one that was read, or shrank. */
static int check_file(struct perf_map_cursor *cursor, int fd, struct jit_map *map,
		      uint64_t *ret_bytes)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	if (cursor->inode && (st.st_dev != cursor->device || st.st_ino != cursor->inode ||
			      (uint64_t)st.st_size < cursor->offset)) {
		*cursor = (struct perf_map_cursor){ 0 };
		jit_map_clear(map);
	}
	cursor->device = st.st_dev;
	cursor->inode = st.st_ino;
	*ret_bytes = (uint64_t)st.st_size;
	return 0;
}

static ssize_t read_at(int fd, void *to, size_t len, uint64_t offset)
{
	ssize_t got;

	do
		got = pread(fd, to, len, (off_t)offset);
	while (got < 0 && errno == EINTR);
	return got < 0 ? -errno : got;
}

/* Hash of what lies before the cursor; 0 where it cannot be read. */
static uint64_t read_tail(const struct perf_map_cursor *cursor, int fd)
{
	uint8_t text[PERF_MAP_TAIL_BYTES];
	size_t len = cursor->offset < sizeof(text) ? (size_t)cursor->offset : sizeof(text);

	return read_at(fd, text, len, cursor->offset - len) == (ssize_t)len ? hash_bytes(text, len, 1) : 0;
}

/* Starts over where the file was written anew, though it is no shorter. */
static void check_tail(struct perf_map_cursor *cursor, int fd, struct jit_map *map)
{
	uint64_t modified_ns;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return;
	modified_ns = (uint64_t)st.st_mtim.tv_sec * NS_PER_S + (uint64_t)st.st_mtim.tv_nsec;
	if (cursor->offset && modified_ns != cursor->modified_ns &&
	    read_tail(cursor, fd) != cursor->tail) {
		*cursor = (struct perf_map_cursor){ .device = cursor->device, .inode = cursor->inode };
		jit_map_clear(map);
	}
	cursor->modified_ns = modified_ns;
}

/* Takes the whole lines of @text and returns the bytes used. */
static ssize_t take_lines(struct perf_map_cursor *cursor, const char *text, size_t len,
			  struct jit_map *map)
{
	const char *at = text, *end = text + len;

	while (at < end) {
		const char *newline = memchr(at, '\n', (size_t)(end - at));

		if (!newline)
			break;
		if (!cursor->skipping) {
			int rc = take_line(at, newline, map);

			if (rc < 0)
				return rc;
		}
		cursor->skipping = false;
		at = newline + 1;
	}
	/* No line ends in a full buffer: keep nothing of it. */
	if (at == text && len == CHUNK_BYTES)
		cursor->skipping = true;
	return cursor->skipping ? (ssize_t)len : at - text;
}

static int read_lines(struct perf_map_cursor *cursor, int fd, uint64_t size, struct jit_map *map)
{
	cleanup_free char *chunk = malloc(CHUNK_BYTES);
	uint64_t start = cursor->offset;

	if (!chunk)
		return -ENOMEM;
	while (cursor->offset < size) {
		ssize_t got = read_at(fd, chunk, CHUNK_BYTES, cursor->offset), used;

		if (got <= 0)
			return (int)got;
		used = take_lines(cursor, chunk, (size_t)got, map);
		if (used < 0)
			return (int)used;
		if (!used)
			return 0;
		cursor->offset += (uint64_t)used;
		if (cursor->offset - start >= PERF_MAP_UPDATE_MAX)
			return cursor->offset < size;
	}
	return 0;
}

int perf_map_update(struct perf_map_cursor *cursor, int fd, struct jit_map *map)
{
	uint64_t size, before;
	int rc = check_file(cursor, fd, map, &size);

	if (rc < 0)
		return rc;
	check_tail(cursor, fd, map);
	before = cursor->offset;
	rc = read_lines(cursor, fd, size, map);
	if (cursor->offset != before)
		cursor->tail = read_tail(cursor, fd);
	return rc;
}

/* ---- jitdump --------------------------------------------------------------------------------- */

#define JITDUMP_MAGIC 0x4a695444u

struct jitdump_header {
	uint32_t magic;
	uint32_t version;
	uint32_t total_size; /* of this header */
	uint32_t elf_machine;
	uint32_t padding;
	uint32_t pid;
	uint64_t timestamp;
	uint64_t flags;
};

enum jitdump_record_id { JITDUMP_LOAD = 0, JITDUMP_MOVE = 1 };

struct jitdump_record {
	uint32_t id;
	uint32_t total_size; /* of the record, this head included */
	uint64_t timestamp;
};

struct jitdump_load {
	struct jitdump_record record;
	uint32_t pid, tid;
	uint64_t vma;
	uint64_t code_va;
	uint64_t code_bytes;
	uint64_t code_index;
	/* name, NUL, code */
};

struct jitdump_move {
	struct jitdump_record record;
	uint32_t pid, tid;
	uint64_t vma;
	uint64_t old_code_va;
	uint64_t new_code_va;
	uint64_t code_bytes;
	uint64_t code_index;
};

bool perf_map_is_jitdump(int fd)
{
	uint32_t magic = 0;

	return read_at(fd, &magic, sizeof(magic), 0) == sizeof(magic) && magic == JITDUMP_MAGIC;
}

static int take_header(struct perf_map_cursor *cursor, int fd)
{
	struct jitdump_header header;
	ssize_t got = read_at(fd, &header, sizeof(header), 0);

	if (got < 0)
		return (int)got;
	if ((size_t)got < sizeof(header))
		return 0; /* not written yet */
	if (header.magic != JITDUMP_MAGIC || header.version != 1 ||
	    header.total_size < sizeof(header) || header.total_size > CHUNK_BYTES)
		return -ENOEXEC;
	cursor->offset = header.total_size;
	return 1;
}

static int take_load(const uint8_t *data, size_t len, struct jit_map *map)
{
	const char *name = (const char *)data + sizeof(struct jitdump_load);
	struct jitdump_load load;

	if (len <= sizeof(load))
		return 0;
	memcpy(&load, data, sizeof(load));
	return jit_map_add(map, load.code_va, load.code_bytes, name,
			   strnlen(name, len - sizeof(load)));
}

static int take_move(const uint8_t *data, size_t len, struct jit_map *map)
{
	struct jitdump_move move;

	if (len < sizeof(move))
		return 0;
	memcpy(&move, data, sizeof(move));
	return jit_map_move(map, move.old_code_va, move.new_code_va, move.code_bytes);
}

/* Takes the record at the cursor. 1 = taken, 0 = not complete yet, -ENOEXEC damaged. */
static int take_record(struct perf_map_cursor *cursor, int fd, uint64_t file_bytes,
		       struct jit_map *map)
{
	/* Only the name of a load record is needed, not the code behind it. */
	uint8_t data[sizeof(struct jitdump_load) + PERF_MAP_NAME_MAX];
	struct jitdump_record record;
	ssize_t got = read_at(fd, data, sizeof(data), cursor->offset);
	size_t len;
	int rc = 0;

	if (got < 0)
		return (int)got;
	if ((size_t)got < sizeof(record))
		return 0;
	memcpy(&record, data, sizeof(record));
	if (record.total_size < sizeof(record))
		return -ENOEXEC;
	if (record.total_size > file_bytes - cursor->offset)
		return 0;
	len = record.total_size < (size_t)got ? record.total_size : (size_t)got;
	if (record.id == JITDUMP_LOAD)
		rc = take_load(data, len, map);
	else if (record.id == JITDUMP_MOVE)
		rc = take_move(data, len, map);
	if (rc < 0)
		return rc;
	cursor->offset += record.total_size;
	return 1;
}

int perf_map_update_jitdump(struct perf_map_cursor *cursor, int fd, struct jit_map *map)
{
	uint64_t size, work = 0;
	int rc = check_file(cursor, fd, map, &size);

	if (rc < 0)
		return rc;
	if (cursor->is_damaged)
		return -ENOEXEC;
	rc = cursor->offset ? 1 : take_header(cursor, fd);
	while (rc > 0 && cursor->offset < size) {
		rc = take_record(cursor, fd, size, map);
		work += sizeof(struct jitdump_load) + PERF_MAP_NAME_MAX;
		if (rc > 0 && work >= PERF_MAP_UPDATE_MAX)
			return 1;
	}
	cursor->is_damaged = rc == -ENOEXEC;
	return rc > 0 ? 0 : rc;
}
