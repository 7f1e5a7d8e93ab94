// SPDX-License-Identifier: Apache-2.0
#include "agent/base/tar.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "agent/base/io.h"

#define COPY_BYTES (256u << 10)

struct ustar {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100];
	char magic[6], version[2], uname[32], gname[32], major[8], minor[8], prefix[155], pad[12];
};
_Static_assert(sizeof(struct ustar) == TAR_BLOCK, "a header is one block");

/* The sum of all bytes, the checksum's own counted as blanks. */
static unsigned checksum_of(const struct ustar *header)
{
	const unsigned char *bytes = (const unsigned char *)header;
	unsigned sum = 0;

	for (size_t i = 0; i < TAR_BLOCK; i++) {
		bool own = i >= offsetof(struct ustar, checksum) &&
			   i < offsetof(struct ustar, checksum) + sizeof(header->checksum);

		sum += own ? ' ' : bytes[i];
	}
	return sum;
}

int tar_encode(const struct tar_entry *entry, char out[TAR_BLOCK])
{
	struct ustar header = { .mode = "0000600", .uid = "0000000", .gid = "0000000", .type = '0',
				.magic = "ustar", .version = { '0', '0' } };
	size_t len = strlen(entry->name);

	if (!len || len >= sizeof(header.name))
		return -ENAMETOOLONG;
	if (entry->bytes > TAR_BYTES_MAX)
		return -EFBIG;
	memcpy(header.name, entry->name, len);
	(void)snprintf(header.size, sizeof(header.size), "%011llo", (unsigned long long)entry->bytes);
	(void)snprintf(header.mtime, sizeof(header.mtime), "%011llo",
		       (unsigned long long)(entry->modified_s & TAR_BYTES_MAX));
	(void)snprintf(header.checksum, sizeof(header.checksum), "%06o", checksum_of(&header));
	header.checksum[7] = ' ';
	memcpy(out, &header, sizeof(header));
	return 0;
}

/* Octal digits up to a NUL or blank. */
static int read_octal(const char *text, size_t size, uint64_t *ret)
{
	uint64_t value = 0;
	size_t i = 0;

	while (i < size && text[i] == ' ')
		i++;
	if (i == size || text[i] < '0' || text[i] > '7')
		return -EBADMSG;
	for (; i < size && text[i] >= '0' && text[i] <= '7'; i++)
		value = value << 3 | (uint64_t)(text[i] - '0');
	if (i < size && text[i] != '\0' && text[i] != ' ')
		return -EBADMSG;
	*ret = value;
	return 0;
}

int tar_decode(const char block[TAR_BLOCK], struct tar_entry *ret)
{
	static const char zeros[TAR_BLOCK];
	struct tar_entry entry = { 0 };
	struct ustar header;
	uint64_t checksum;

	if (memcmp(block, zeros, TAR_BLOCK) == 0)
		return 0;
	memcpy(&header, block, sizeof(header));
	if (memcmp(header.magic, "ustar", 5) != 0 ||
	    read_octal(header.checksum, sizeof(header.checksum), &checksum) < 0 ||
	    checksum != checksum_of(&header) ||
	    read_octal(header.size, sizeof(header.size), &entry.bytes) < 0 ||
	    read_octal(header.mtime, sizeof(header.mtime), &entry.modified_s) < 0 ||
	    entry.bytes > TAR_BYTES_MAX || !header.name[0] || header.name[TAR_NAME_SIZE - 1])
		return -EBADMSG;
	if ((header.type != '0' && header.type != '\0') || header.prefix[0])
		return -EOPNOTSUPP;
	memcpy(entry.name, header.name, sizeof(entry.name));
	*ret = entry;
	return 1;
}

static int write_zeros(int out, uint64_t bytes)
{
	static const char zeros[TAR_BLOCK];
	int rc = 0;

	for (uint64_t part; rc == 0 && bytes; bytes -= part) {
		part = bytes < sizeof(zeros) ? bytes : sizeof(zeros);
		rc = io_write_all(out, zeros, part);
	}
	return rc;
}

int tar_append(int out, const struct tar_entry *entry, int in)
{
	cleanup_free char *chunk = malloc(COPY_BYTES);
	char block[TAR_BLOCK];
	uint64_t done = 0;
	int rc = chunk ? tar_encode(entry, block) : -ENOMEM;

	if (rc == 0)
		rc = io_write_all(out, block, sizeof(block));
	while (rc == 0 && done < entry->bytes) {
		uint64_t want = entry->bytes - done < COPY_BYTES ? entry->bytes - done : COPY_BYTES;
		ssize_t got = pread(in, chunk, want, (off_t)done);

		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		rc = io_write_all(out, chunk, (size_t)got);
		done += (uint64_t)got;
	}
	if (rc == 0)
		rc = write_zeros(out, entry->bytes - done + tar_padding(entry->bytes));
	return rc;
}

int tar_finish(int out)
{
	return write_zeros(out, (uint64_t)TAR_END_BLOCKS * TAR_BLOCK);
}
