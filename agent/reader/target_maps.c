// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/target_maps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/base/io.h"
#include "agent/base/u64map.h"
#include "agent/base/vec.h"

static const char deleted_suffix[] = " (deleted)";

struct maps_parser {
	struct target_maps maps;
	size_t map_capacity;
	size_t module_capacity;
	size_t path_bytes;
	struct u64map by_file; /* hash of (dev, inode, path) -> module */
};

static bool take_hex(const char **at, const char *end, char stop, uint64_t *ret)
{
	const char *p = *at;
	uint64_t value = 0;

	for (; p < end && *p != stop; p++) {
		unsigned digit;

		if (*p >= '0' && *p <= '9')
			digit = (unsigned)(*p - '0');
		else if (*p >= 'a' && *p <= 'f')
			digit = (unsigned)(*p - 'a') + 10;
		else
			return false;
		if (p - *at >= 16)
			return false;
		value = value << 4 | digit;
	}
	if (p == *at || p == end)
		return false;
	*at = p + 1;
	*ret = value;
	return true;
}

static bool take_inode(const char **at, const char *end, uint64_t *ret)
{
	const char *p = *at;
	uint64_t value = 0;

	for (; p < end && *p >= '0' && *p <= '9'; p++)
		if (__builtin_mul_overflow(value, 10u, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
			return false;
	if (p == *at)
		return false;
	while (p < end && *p == ' ')
		p++;
	*at = p;
	*ret = value;
	return true;
}

/* "start-end perms offset major:minor inode path" (proc(5)); @path is what is left. */
static bool parse_line(const char *at, const char *end, struct target_map *map,
		       struct target_module *module, const char **ret_path)
{
	uint64_t major, minor;

	if (!take_hex(&at, end, '-', &map->start_va) || !take_hex(&at, end, ' ', &map->end_va) ||
	    map->end_va <= map->start_va || end - at < 5)
		return false;
	map->prot = (at[0] == 'r' ? TARGET_MAP_READ : 0u) | (at[1] == 'w' ? TARGET_MAP_WRITE : 0u) |
		    (at[2] == 'x' ? TARGET_MAP_EXEC : 0u);
	at += 5;
	if (!take_hex(&at, end, ' ', &map->start_fo) || !take_hex(&at, end, ':', &major) ||
	    !take_hex(&at, end, ' ', &minor) || !take_inode(&at, end, &module->inode))
		return false;
	module->dev_major = (uint32_t)major;
	module->dev_minor = (uint32_t)minor;
	*ret_path = at;
	return true;
}

/* The kernel writes a newline in a path as \012. NUL-terminates; the length. */
static size_t copy_path(char *to, const char *path, size_t len)
{
	size_t out = 0;

	for (size_t i = 0; i < len; i++) {
		if (len - i >= 4 && !memcmp(path + i, "\\012", 4)) {
			to[out++] = '\n';
			i += 3;
		} else {
			to[out++] = path[i];
		}
	}
	to[out] = '\0';
	return out;
}

static int parser_module(struct maps_parser *p, struct target_module *module, const char *path,
			 size_t path_len, uint32_t *ret)
{
	uint64_t key = hash_bytes(
		path, path_len,
		hash_combine(module->inode, (uint64_t)module->dev_major << 32 | module->dev_minor));
	uint64_t known;
	void *grown;
	int rc;

	if (u64map_get(&p->by_file, key, &known)) {
		*ret = (uint32_t)known;
		return 0;
	}
	grown = p->maps.modules;
	rc = vec_grow(&grown, &p->module_capacity, p->maps.module_count + 1,
		      sizeof(*p->maps.modules), 0);
	if (rc < 0)
		return rc;
	p->maps.modules = grown;
	module->path = (uint32_t)p->path_bytes;
	module->first_map = (uint32_t)p->maps.count;
	path_len = copy_path(p->maps.paths + p->path_bytes, path, path_len);
	p->path_bytes += path_len + 1;
	*ret = (uint32_t)p->maps.module_count;
	p->maps.modules[p->maps.module_count++] = *module;
	return u64map_put(&p->by_file, key, *ret);
}

static int parser_line(struct maps_parser *p, const char *at, const char *end)
{
	struct target_module module = { 0 };
	struct target_map map = { 0 };
	const char *path;
	size_t path_len;
	void *grown;
	int rc;

	if (!parse_line(at, end, &map, &module, &path) ||
	    (p->maps.count && map.start_va < p->maps.maps[p->maps.count - 1].end_va)) {
		p->maps.dropped++;
		return 0;
	}
	path_len = (size_t)(end - path);
	module.vdso = path_len == 6 && !memcmp(path, "[vdso]", 6);
	if (!module.inode && !module.vdso)
		return 0;
	if (p->maps.count >= TARGET_MAPS_MAX) {
		p->maps.dropped++;
		return 0;
	}
	if (path_len >= sizeof(deleted_suffix) &&
	    !memcmp(end - (sizeof(deleted_suffix) - 1), deleted_suffix, sizeof(deleted_suffix) - 1))
		path_len -= sizeof(deleted_suffix) - 1;
	rc = parser_module(p, &module, path, path_len, &map.module);
	if (rc < 0)
		return rc;
	grown = p->maps.maps;
	rc = vec_grow(&grown, &p->map_capacity, p->maps.count + 1, sizeof(map), TARGET_MAPS_MAX);
	if (rc < 0)
		return rc;
	p->maps.maps = grown;
	p->maps.maps[p->maps.count++] = map;
	return 0;
}

int target_maps_parse(const char *text, size_t len, struct target_maps *ret)
{
	struct maps_parser p = { 0 };
	const char *end = text + len;
	int rc = 0;

	/* Every stored path is cut out of the text, plus a NUL where its newline or suffix was. */
	p.maps.paths = malloc(len + 1);
	if (!p.maps.paths)
		return -ENOMEM;
	while (text < end && rc == 0) {
		const char *line_end = memchr(text, '\n', (size_t)(end - text));

		if (!line_end)
			line_end = end;
		rc = parser_line(&p, text, line_end);
		text = line_end + 1;
	}
	u64map_deinit(&p.by_file);
	if (rc < 0) {
		target_maps_deinit(&p.maps);
		return rc;
	}
	*ret = p.maps;
	return 0;
}

int target_maps_read(const struct target *target, struct target_maps *ret)
{
	cleanup_free char *text = NULL;
	size_t len;
	int rc = io_read_file(target->proc_fd, "maps", TARGET_MAPS_TEXT_MAX, &text, &len);

	if (rc < 0)
		return rc == -ENOENT ? -ESRCH : rc;
	return target_maps_parse(text, len, ret);
}

void target_maps_deinit(struct target_maps *maps)
{
	free(maps->maps);
	free(maps->modules);
	free(maps->paths);
	*maps = (struct target_maps){ 0 };
}

const struct target_map *target_maps_find(const struct target_maps *maps, uint64_t va)
{
	size_t low = 0, high = maps->count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (va < maps->maps[mid].start_va)
			high = mid;
		else if (va >= maps->maps[mid].end_va)
			low = mid + 1;
		else
			return &maps->maps[mid];
	}
	return NULL;
}
