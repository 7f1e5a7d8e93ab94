// SPDX-License-Identifier: Apache-2.0
#include "symbolize/demangle.h"

#include <libiberty/demangle.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>

#include "agent/base/u64map.h"
#include "symbolize/string_table.h"

/* libiberty's recursion limit refuses C++ names of more than 1024 characters, whatever their
 * nesting, and templates exceed that. It is lifted above that length, up to one at which the
 * deepest nesting that could be constructed (one level for each or every second character) took
 * less than 1 MiB of stack. */
#define LIMITED_MAX DEMANGLE_RECURSION_LIMIT / 2
#define MANGLED_MAX 4096u
#define CHUNK_BYTES 65536u

struct output {
	char *text;
	size_t len;
	size_t max;
	jmp_buf full;
};

/* The callback forms print piecewise and own no memory while they print C++, so leaving them by
 * longjmp is the one way to bound their time as well as their output. For Rust, see print_rust().
 */
static void collect(const char *text, size_t len, void *opaque)
{
	struct output *out = opaque;

	if (!len)
		return;
	if (len > out->max - out->len) {
		memcpy(out->text + out->len, text, out->max - out->len);
		out->len = out->max;
		longjmp(out->full, 1);
	}
	memcpy(out->text + out->len, text, len);
	out->len += len;
}

static bool is_cpp(const char *name)
{
	return name[0] == '_' && (name[1] == 'Z' || (name[1] == '_' && name[2] == 'Z'));
}

static bool is_rust_v0(const char *name)
{
	return name[0] == '_' && name[1] == 'R' && name[2] >= 'A' && name[2] <= 'Z';
}

/* A punycode identifier is decoded into a heap block that is printed and freed: a longjmp in
 * between leaks it, at most once per distinct hostile name and bounded by the name's length. */
static int print_name(const char *name, size_t len, struct output *out)
{
	const int options = DMGL_PARAMS | DMGL_ANSI;
	const int lifted = len > LIMITED_MAX ? DMGL_NO_RECURSE_LIMIT : 0;

	if (setjmp(out->full))
		return 2;
	if (rust_demangle_callback(name, options, collect, out))
		return 1;
	out->len = 0;
	if (is_cpp(name) && cplus_demangle_v3_callback(name, options | lifted, collect, out))
		return 1;
	return 0;
}

size_t demangle(const char *name, char ret[DEMANGLE_TEXT_MAX])
{
	char text[DEMANGLE_TEXT_MAX];
	struct output out = { .text = text, .max = sizeof(text) - 4 };
	size_t len = strnlen(name, MANGLED_MAX);
	int printed;

	if ((!is_cpp(name) && !is_rust_v0(name)) || len == MANGLED_MAX)
		return 0;
	printed = print_name(name, len, &out);
	if (!printed || !out.len)
		return 0;
	if (printed == 2) {
		memcpy(text + out.len, "...", 3);
		out.len += 3;
	}
	string_sanitize(text, out.len);
	memcpy(ret, text, out.len);
	ret[out.len] = '\0';
	return out.len;
}

/* ---- cache ----------------------------------------------------------------------------------- */

struct chunk {
	struct chunk *next;
	size_t used;
	char text[CHUNK_BYTES];
};
_Static_assert(CHUNK_BYTES > DEMANGLE_TEXT_MAX, "one result fits a chunk");

struct demangle_cache {
	struct u64map by_name; /* address of the mangled name -> address of the text */
	struct chunk *chunks;
	size_t chunk_count;
};

struct demangle_cache *demangle_cache_create(void)
{
	return calloc(1, sizeof(struct demangle_cache));
}

static void free_chunks(struct demangle_cache *cache)
{
	while (cache->chunks) {
		struct chunk *next = cache->chunks->next;

		free(cache->chunks);
		cache->chunks = next;
	}
	cache->chunk_count = 0;
}

void demangle_cache_destroy(struct demangle_cache *cache)
{
	if (!cache)
		return;
	free_chunks(cache);
	u64map_deinit(&cache->by_name);
	free(cache);
}

void demangle_cache_trim(struct demangle_cache *cache)
{
	if (cache->chunk_count * CHUNK_BYTES < DEMANGLE_CACHE_MAX)
		return;
	free_chunks(cache);
	u64map_clear(&cache->by_name);
}

static char *store(struct demangle_cache *cache, const char *text, size_t len)
{
	struct chunk *chunk = cache->chunks;
	char *at;

	if (!chunk || CHUNK_BYTES - chunk->used <= len) {
		chunk = malloc(sizeof(*chunk));
		if (!chunk)
			return NULL;
		chunk->next = cache->chunks;
		chunk->used = 0;
		cache->chunks = chunk;
		cache->chunk_count++;
	}
	at = chunk->text + chunk->used;
	memcpy(at, text, len + 1);
	chunk->used += len + 1;
	return at;
}

const char *demangle_cached(struct demangle_cache *cache, const char *name)
{
	char text[DEMANGLE_TEXT_MAX];
	const char *result = name;
	uint64_t have;
	size_t len;

	if (name[0] != '_')
		return name;
	if (u64map_get(&cache->by_name, (uintptr_t)name, &have))
		return (const char *)(uintptr_t)have;
	len = demangle(name, text);
	if (len) {
		const char *stored = store(cache, text, len);

		if (stored)
			result = stored;
	}
	/* Without memory for the entry the name is merely demangled again. */
	(void)!u64map_put(&cache->by_name, (uintptr_t)name, (uintptr_t)result);
	return result;
}
