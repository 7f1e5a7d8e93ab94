// SPDX-License-Identifier: Apache-2.0
/* File names say everything that is needed without opening: "<key, 16 hex>.<kind><tag, 2 hex>". The
 * use order is the files' modification time, so that it survives a restart; it is renewed at most
 * once an hour per file. */
#include "symbolize/module_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "agent/base/clock.h"
#include "agent/base/io.h"
#include "agent/base/u64map.h"
#include "agent/base/vec.h"

#define NAME_SIZE	   24
#define KINDS		   3
#define TOUCH_AFTER_NS	   (3600 * NS_PER_S)
#define SHARE_OF_FREE	   4 /* of what is free together with what the cache has: a part of so many */
#define LARGEST_QUARTERS   3 /* of the budget: one file */
#define FILE_COST_BYTES	   4096 /* a file's inode and last block, so that tiny files count */

static const char temporary_name[] = "new.tmp"; /* being written */

struct cache_file {
	uint64_t key;
	uint64_t bytes;	  /* with FILE_COST_BYTES */
	uint64_t used_ns; /* realtime */
	uint8_t kind;
	uint8_t tag;
};

VEC_DEFINE(cache_file, struct cache_file);

struct module_cache {
	int dir_fd;
	uint64_t budget_bytes;
	uint64_t bytes;
	struct cache_file_vec files;
	struct u64map by_key[KINDS]; /* table, symbols, facts: key -> index in files */
};

static struct u64map *map_of(const struct module_cache *cache, uint8_t kind)
{
	size_t at = kind == MODULE_CACHE_TABLE ? 0 : kind == MODULE_CACHE_SYMBOLS ? 1 : 2;

	return (struct u64map *)(uintptr_t)&cache->by_key[at];
}

static void name_format(uint64_t key, uint8_t kind, uint8_t tag, char ret[NAME_SIZE])
{
	(void)snprintf(ret, NAME_SIZE, "%016llx.%c%02x", (unsigned long long)key, kind, tag);
}

static bool name_parse(const char *name, struct cache_file *ret)
{
	unsigned long long key;
	unsigned tag;
	char kind;
	char again[NAME_SIZE];

	if (strlen(name) != 20 || sscanf(name, "%16llx.%c%2x", &key, &kind, &tag) != 3 ||
	    (kind != MODULE_CACHE_TABLE && kind != MODULE_CACHE_SYMBOLS && kind != MODULE_CACHE_FACTS))
		return false;
	name_format(key, (uint8_t)kind, (uint8_t)tag, again);
	if (strcmp(name, again))
		return false;
	*ret = (struct cache_file){ .key = key, .kind = (uint8_t)kind, .tag = (uint8_t)tag };
	return true;
}

static struct cache_file *file_find(const struct module_cache *cache, uint64_t key, uint8_t kind)
{
	uint64_t index;

	return u64map_get(map_of(cache, kind), key, &index) ? &cache->files.data[index] : NULL;
}

static int file_add(struct module_cache *cache, struct cache_file file)
{
	int rc;

	if (cache->files.count >= MODULE_CACHE_FILES_MAX)
		return -ENOSPC;
	rc = cache_file_vec_reserve(&cache->files, cache->files.count + 1);
	if (!rc)
		rc = u64map_put(map_of(cache, file.kind), file.key, cache->files.count);
	if (rc < 0)
		return rc;
	cache->files.data[cache->files.count++] = file;
	cache->bytes += file.bytes;
	return 0;
}

/* Forgets a file (not removing it); the last one takes its place. */
static void file_forget(struct module_cache *cache, struct cache_file *file)
{
	struct cache_file *last = &cache->files.data[cache->files.count - 1];

	cache->bytes -= file->bytes;
	u64map_remove(map_of(cache, file->kind), file->key);
	if (file != last) {
		*file = *last;
		/* The key is there: replacing its value needs no memory. */
		(void)!u64map_put(map_of(cache, file->kind), file->key,
				  (uint64_t)(file - cache->files.data));
	}
	cache->files.count--;
}

static void file_remove(struct module_cache *cache, struct cache_file *file)
{
	char name[NAME_SIZE];

	name_format(file->key, file->kind, file->tag, name);
	(void)unlinkat(cache->dir_fd, name, 0);
	file_forget(cache, file);
}

static void evict(struct module_cache *cache, uint64_t budget_bytes)
{
	while (cache->files.count && (cache->bytes > budget_bytes ||
				      cache->files.count >= MODULE_CACHE_FILES_MAX)) {
		struct cache_file *oldest = cache->files.data;

		for (size_t i = 1; i < cache->files.count; i++)
			if (cache->files.data[i].used_ns < oldest->used_ns)
				oldest = &cache->files.data[i];
		file_remove(cache, oldest);
	}
}

/* Files of the cache can be made again; the history, which shares the disk, can not. */
static uint64_t budget_now(const struct module_cache *cache)
{
	struct statvfs fs;
	uint64_t share;

	if (fstatvfs(cache->dir_fd, &fs) < 0)
		return cache->budget_bytes;
	share = ((uint64_t)fs.f_bavail * fs.f_frsize + cache->bytes) / SHARE_OF_FREE;
	return share < cache->budget_bytes ? share : cache->budget_bytes;
}

static int folder_entry(struct module_cache *cache, const char *name)
{
	struct cache_file file;
	struct cache_file *twin;
	struct stat st;

	if (!strcmp(name, temporary_name))
		(void)unlinkat(cache->dir_fd, name, 0);
	if (!name_parse(name, &file))
		return 0; /* not ours to touch */
	if (fstatat(cache->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
	    cache->files.count >= MODULE_CACHE_FILES_MAX) {
		(void)unlinkat(cache->dir_fd, name, 0);
		return 0;
	}
	file.bytes = (uint64_t)st.st_size + FILE_COST_BYTES;
	file.used_ns = (uint64_t)st.st_mtim.tv_sec * NS_PER_S + (uint64_t)st.st_mtim.tv_nsec;
	/* A crash between storing a new tag and removing the old one leaves both. */
	twin = file_find(cache, file.key, file.kind);
	if (twin && twin->used_ns > file.used_ns) {
		(void)unlinkat(cache->dir_fd, name, 0);
		return 0;
	}
	if (twin)
		file_remove(cache, twin);
	return file_add(cache, file);
}

static int folder_read(struct module_cache *cache)
{
	int fd = openat(cache->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dirent *entry;
	DIR *dir;
	int rc = 0;

	if (fd < 0)
		return -errno;
	dir = fdopendir(fd);
	if (!dir) {
		rc = -errno;
		(void)close(fd);
		return rc;
	}
	while (!rc && (entry = readdir(dir)))
		rc = folder_entry(cache, entry->d_name);
	(void)closedir(dir);
	return rc;
}

int module_cache_create(int dir_fd, uint64_t budget_bytes, struct module_cache **ret)
{
	cleanup(module_cache) struct module_cache *cache = calloc(1, sizeof(*cache));
	int rc;

	if (!cache)
		return -ENOMEM;
	cache->dir_fd = dir_fd;
	cache->budget_bytes = budget_bytes;
	for (size_t i = 0; i < KINDS; i++)
		u64map_init(&cache->by_key[i], MODULE_CACHE_FILES_MAX);
	rc = folder_read(cache);
	if (rc < 0)
		return rc;
	evict(cache, budget_now(cache));
	*ret = take_ptr(cache);
	return 0;
}

void module_cache_destroy(struct module_cache *cache)
{
	if (!cache)
		return;
	cache_file_vec_deinit(&cache->files);
	for (size_t i = 0; i < KINDS; i++)
		u64map_deinit(&cache->by_key[i]);
	free(cache);
}

int module_cache_open(struct module_cache *cache, uint64_t key, enum module_cache_kind kind,
		      uint8_t *ret_tag)
{
	struct cache_file *file = file_find(cache, key, kind);
	uint64_t now_ns = clock_realtime_ns();
	char name[NAME_SIZE];
	int fd;

	if (!file)
		return -ENOENT;
	name_format(key, kind, file->tag, name);
	fd = openat(cache->dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0) {
		file_forget(cache, file);
		return -ENOENT;
	}
	if (now_ns - file->used_ns > TOUCH_AFTER_NS)
		(void)utimensat(cache->dir_fd, name, NULL, AT_SYMLINK_NOFOLLOW);
	file->used_ns = now_ns;
	*ret_tag = file->tag;
	return fd;
}

/* No fsync: thousands of modules are stored in a host's first minute, each would stall the process,
 * and what power loss leaves of a file (nothing, zeros) does not pass the check of the image when
 * it is opened. */
static int file_write(int dir_fd, const char *name, const void *data, size_t len)
{
	cleanup_close int fd = -1;
	int rc;

	(void)unlinkat(dir_fd, temporary_name, 0);
	fd = openat(dir_fd, temporary_name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	rc = io_write_all(fd, data, len);
	if (!rc && renameat(dir_fd, temporary_name, dir_fd, name) < 0)
		rc = -errno;
	if (rc < 0)
		(void)unlinkat(dir_fd, temporary_name, 0);
	return rc;
}

bool module_cache_has(const struct module_cache *cache, uint64_t key, enum module_cache_kind kind,
		      uint8_t *ret_tag)
{
	const struct cache_file *file = file_find(cache, key, kind);

	if (file)
		*ret_tag = file->tag;
	return file != NULL;
}

int module_cache_put(struct module_cache *cache, uint64_t key, enum module_cache_kind kind,
		     uint8_t tag, const void *data, size_t len)
{
	struct cache_file added = { .key = key, .bytes = len + FILE_COST_BYTES, .kind = kind, .tag = tag };
	const uint64_t budget_bytes = budget_now(cache);
	const bool fits = added.bytes <= budget_bytes / 4 * LARGEST_QUARTERS;
	struct cache_file *former;
	char name[NAME_SIZE];
	int rc;

	/* Room first: the disk is never over the budget. */
	evict(cache, fits ? budget_bytes - added.bytes : budget_bytes);
	if (!fits)
		return -EFBIG;
	former = file_find(cache, key, kind);
	name_format(key, kind, tag, name);
	rc = file_write(cache->dir_fd, name, data, len);
	if (rc < 0)
		return rc;
	if (former && former->tag == tag)
		file_forget(cache, former);
	else if (former)
		file_remove(cache, former);
	added.used_ns = clock_realtime_ns();
	return file_add(cache, added);
}

void module_cache_drop(struct module_cache *cache, uint64_t key, enum module_cache_kind kind)
{
	struct cache_file *file = file_find(cache, key, kind);

	if (file)
		file_remove(cache, file);
}
