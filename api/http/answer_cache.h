/* SPDX-License-Identifier: Apache-2.0 */
/* Rendered answers, kept because the same picture is asked for again and again: folding a large
 * profile into a tree costs a hundred times what sending it costs. Keys say everything an answer
 * depends on, so nothing is ever invalidated; what has not been asked for longest goes. Bounded in
 * bytes and entries. Thread-safe. */
#ifndef PROFD_API_ANSWER_CACHE_H
#define PROFD_API_ANSWER_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/buf.h"
#include "agent/base/cleanup.h"

#define ANSWER_CACHE_ENTRIES 64

struct answer_cache;

/* 128 bits of hash over what the answer is made of. */
struct answer_key {
	uint64_t bits[2];
};

struct profile;

/* Key of what is made of @p in the way that the texts say. Of the data of a finished session only
 * names may change; while it runs its sums grow. */
struct answer_key answer_key_of(const struct profile *p, const char *const *texts, unsigned count);

int answer_cache_create(size_t max_bytes, struct answer_cache **ret) must_use;
void answer_cache_destroy(struct answer_cache *cache);
CLEANUP_DEFINE(answer_cache, struct answer_cache *, answer_cache_destroy);

/* Appends the kept answer to @out. */
bool answer_cache_get(struct answer_cache *cache, const struct answer_key *key, struct buf *out);
/* Keeps a copy; one that takes more than a quarter of the bytes is not kept. */
void answer_cache_put(struct answer_cache *cache, const struct answer_key *key, const void *data,
		      size_t len);

struct answer_cache_counts {
	uint64_t hits, misses, bytes;
};
void answer_cache_count(struct answer_cache *cache, struct answer_cache_counts *ret);

#endif
