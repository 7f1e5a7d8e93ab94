/* SPDX-License-Identifier: Apache-2.0 */
/* Images kept on disk across restarts of the process: unwind tables, symbol indexes and facts
 * (module_facts.h) by module key. A file is one image and nothing else, so that it can be mapped or
 * passed on as it is. The image's own head has magic, version and length. An image is checked as a
 * whole when it is opened, so no digest is kept. Files are replaced by rename, never written in
 * place. The folder is bounded in bytes and files, and takes a quarter of what is free on its file
 * system at most: least recently used goes first. Not thread-safe; one process per folder. */
#ifndef PROFD_SYMBOLIZE_MODULE_CACHE_H
#define PROFD_SYMBOLIZE_MODULE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

#define MODULE_CACHE_FILES_MAX 65536u

enum module_cache_kind {
	MODULE_CACHE_TABLE = 't',
	MODULE_CACHE_SYMBOLS = 's',
	MODULE_CACHE_FACTS = 'f'
};

struct module_cache;

/* Reads the folder's list; files with other names are left alone. @dir_fd is borrowed. -ENOMEM, or
 * errno of reading the folder. */
int module_cache_create(int dir_fd, uint64_t budget_bytes, struct module_cache **ret) must_use;
void module_cache_destroy(struct module_cache *cache);
CLEANUP_DEFINE(module_cache, struct module_cache *, module_cache_destroy);

/* Opens an image read-only and marks it used. @ret_tag: what module_cache_put() was given. Returns
 * the descriptor or -ENOENT. */
int module_cache_open(struct module_cache *cache, uint64_t key, enum module_cache_kind kind,
		      uint8_t *ret_tag) must_use;
/* Is it there, and with which tag? Opens nothing. */
bool module_cache_has(const struct module_cache *cache, uint64_t key, enum module_cache_kind kind,
		      uint8_t *ret_tag);
/* Stores an image, replacing a former one of the key, then evicts down to the budget. One that is
 * larger than three quarters of the budget is not stored (-EFBIG). -ENOSPC and the like: nothing
 * changed. */
int module_cache_put(struct module_cache *cache, uint64_t key, enum module_cache_kind kind,
		     uint8_t tag, const void *data, size_t len) must_use;
/* Removes an image that turned out to be damaged. */
void module_cache_drop(struct module_cache *cache, uint64_t key, enum module_cache_kind kind);

#endif
