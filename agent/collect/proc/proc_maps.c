// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/proc/proc_maps.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/buf.h"
#include "agent/base/bytes.h"

#define DELETED_SUFFIX " (deleted)"
/* A line is at most the fields (under 100 bytes), padding to column 73 and a path whose every byte
 * may be escaped as \ooo. */
#define LINE_MAX_BYTES (128u + 4u * PROC_MAPS_PATH_MAX)

static int digit_value(uint8_t c, unsigned base)
{
	unsigned value;

	if (c >= '0' && c <= '9')
		value = c - '0';
	else if (c >= 'a' && c <= 'f')
		value = c - 'a' + 10u;
	else
		return -1;
	return value < base ? (int)value : -1;
}

/* A number that ends in @stop, which is consumed. */
static bool take_number(struct bytes *b, unsigned base, char stop, uint64_t max, uint64_t *ret)
{
	uint64_t value = 0;
	unsigned digits = 0;

	while (bytes_left(b) > 0) {
		uint8_t c = bytes_u8(b);
		int digit = digit_value(c, base);

		if (c == (uint8_t)stop && digits > 0) {
			*ret = value;
			return value <= max;
		}
		if (digit < 0 || __builtin_mul_overflow(value, base, &value) ||
		    __builtin_add_overflow(value, (uint64_t)digit, &value))
			return false;
		digits++;
	}
	return false;
}

/* The kernel escapes newlines only (seq_file_path(m, file, "\n") in show_map_vma). */
static size_t copy_path(char *out, size_t size, const char *text, size_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < len && n + 1 < size; i++) {
		if (len - i >= 4 && memcmp(text + i, "\\012", 4) == 0) {
			out[n++] = '\n';
			i += 3;
		} else {
			out[n++] = text[i];
		}
	}
	out[n] = '\0';
	return n;
}

static void set_path(struct proc_map *map, const char *text, size_t len)
{
	size_t suffix = strlen(DELETED_SUFFIX);

	map->deleted = len > suffix && memcmp(text + len - suffix, DELETED_SUFFIX, suffix) == 0;
	if (map->deleted)
		len -= suffix;
	(void)copy_path(map->path, sizeof(map->path), text, len);
}

int proc_maps_parse_line(const char *line, size_t len, struct proc_map *ret)
{
	struct bytes b = bytes_of(line, len);
	uint64_t start, end, pgoff, major, minor, inode = 0;
	const char *perms, *nul = memchr(line, '\0', len);
	bool has_inode;

	if (nul || len > LINE_MAX_BYTES)
		return -EINVAL;
	if (!take_number(&b, 16, '-', UINT64_MAX, &start) ||
	    !take_number(&b, 16, ' ', UINT64_MAX, &end) || end <= start)
		return -EINVAL;
	perms = bytes_take(&b, 5);
	if (!perms || perms[4] != ' ' || !strchr("r-", perms[0]) || !strchr("w-", perms[1]) ||
	    !strchr("x-", perms[2]) || !strchr("ps", perms[3]))
		return -EINVAL;
	if (!take_number(&b, 16, ' ', UINT64_MAX, &pgoff) ||
	    !take_number(&b, 16, ':', UINT32_MAX, &major) ||
	    !take_number(&b, 16, ' ', UINT32_MAX, &minor))
		return -EINVAL;
	has_inode = take_number(&b, 10, ' ', UINT64_MAX, &inode);
	if (!has_inode)
		return -EINVAL;
	while (bytes_left(&b) > 0 && *b.at == ' ')
		b.at++;
	ret->start_va = start;
	ret->end_va = end;
	ret->pgoff_fo = pgoff;
	ret->inode = inode;
	ret->dev_major = (uint32_t)major;
	ret->dev_minor = (uint32_t)minor;
	ret->executable = perms[2] == 'x';
	ret->changeable = perms[1] == 'w' || perms[3] == 's';
	set_path(ret, (const char *)b.at, bytes_left(&b));
	return 0;
}

/* Almost all lines are not executable: told from the permission column before any parsing. */
static bool looks_executable(const char *line, size_t len)
{
	const char *space = memchr(line, ' ', len);

	return space && (size_t)(line + len - space) > 4 && space[3] == 'x';
}

int proc_maps_text(uint32_t tgid, unsigned max_lines, char **ret, size_t *ret_len)
{
	cleanup_buf struct buf text = { .max = PROC_MAPS_TEXT_MAX };
	cleanup_free char *line = NULL;
	cleanup_fclose FILE *file = NULL;
	size_t capacity = 0;
	unsigned lines = 0;
	char path[32];
	ssize_t got;

	(void)snprintf(path, sizeof(path), "/proc/%u/maps", tgid);
	file = fopen(path, "re");
	if (!file)
		return -errno;
	while ((got = getline(&line, &capacity, file)) >= 0) {
		if (++lines > max_lines)
			return -E2BIG;
		if (looks_executable(line, (size_t)got))
			buf_add(&text, line, (size_t)got);
		if (text.error)
			return text.error == -EFBIG ? -E2BIG : text.error;
	}
	if (ferror(file))
		return -EIO;
	*ret = buf_take(&text, ret_len);
	return *ret ? 0 : -ENOMEM;
}

int proc_maps_each(const char *text, size_t len, int (*each)(void *ctx, const struct proc_map *map),
		   void *ctx)
{
	cleanup_free struct proc_map *map = malloc(sizeof(*map));
	int found = 0;

	if (!map)
		return -ENOMEM;
	while (len) {
		const char *newline = memchr(text, '\n', len);
		size_t line = newline ? (size_t)(newline - text) : len, step = line + (newline != NULL);

		if (proc_maps_parse_line(text, line, map) == 0) {
			int rc = each(ctx, map);

			if (rc < 0)
				return rc;
			found++;
		}
		text += step;
		len -= step;
	}
	return found;
}

int proc_maps_read(uint32_t tgid, unsigned max_lines,
		   int (*each)(void *ctx, const struct proc_map *map), void *ctx)
{
	cleanup_free char *text = NULL;
	size_t len;
	int rc = proc_maps_text(tgid, max_lines, &text, &len);

	return rc < 0 ? rc : proc_maps_each(text, len, each, ctx);
}
