/* SPDX-License-Identifier: Apache-2.0 */
/* C++ (Itanium ABI) and Rust (legacy and v0) names as people write them, by libiberty. Names are
 * hostile: a short mangled name can stand for gigabytes of text, so printing stops at
 * DEMANGLE_TEXT_MAX bytes and the result then ends in "...". */
#ifndef PROFD_SYMBOLIZE_DEMANGLE_H
#define PROFD_SYMBOLIZE_DEMANGLE_H

#include <stdbool.h>
#include <stddef.h>

#include "agent/base/cleanup.h"

#define DEMANGLE_TEXT_MAX   8192u     /* bytes of one result */
#define DEMANGLE_CACHE_MAX  (1u << 20) /* bytes of text one cache keeps */

/* Writes the demangled form of @name and a NUL to @ret and returns its length; 0 if @name is not a
 * mangled name (@ret untouched). What is not printable UTF-8 becomes '?'. Thread-safe. */
size_t demangle(const char *name, char ret[DEMANGLE_TEXT_MAX]);

/* A cache of results by name. Not thread-safe. */
struct demangle_cache;
struct demangle_cache *demangle_cache_create(void); /* NULL: no memory */
void demangle_cache_destroy(struct demangle_cache *cache);
CLEANUP_DEFINE(demangle_cache, struct demangle_cache *, demangle_cache_destroy);

/* The demangled form of @name, or @name itself if it has none or memory is short. Valid until
 * demangle_cache_trim(). @name must stay valid as long as the cache and is known by its address. */
const char *demangle_cached(struct demangle_cache *cache, const char *name);
/* Forgets everything once the cache is over DEMANGLE_CACHE_MAX: the moment when results become
 * invalid. */
void demangle_cache_trim(struct demangle_cache *cache);

#endif
