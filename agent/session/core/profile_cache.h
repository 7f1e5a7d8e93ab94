/* SPDX-License-Identifier: Apache-2.0 */
/* The last profiles that were built, by session id and version. Thread-safe. */
#ifndef PROFD_SESSION_PROFILE_CACHE_H
#define PROFD_SESSION_PROFILE_CACHE_H

#include <pthread.h>
#include <stdint.h>

#include "agent/profile/profile.h"

#define PROFILE_CACHE_MAX      128u
#define PROFILE_CACHE_BYTES    (32u << 20) /* of all of them; a larger one is kept alone */
#define PROFILE_CACHE_KEY_SIZE 96

struct profile_cache {
	pthread_mutex_t lock;
	struct {
		char key[PROFILE_CACHE_KEY_SIZE];
		struct profile *profile; /* NULL = free */
		uint64_t bytes;
		uint64_t until_ns;	 /* monotonic: built again after this */
		uint64_t used;
	} entries[PROFILE_CACHE_MAX];
	uint64_t clock;
	uint64_t bytes;
	unsigned count;
};

void profile_cache_init(struct profile_cache *cache);
void profile_cache_deinit(struct profile_cache *cache);
/* One reference, the caller's, or NULL. */
struct profile *profile_cache_get(struct profile_cache *cache, const char *key);
/* Takes a reference of its own; the least recently used ones go. */
void profile_cache_put(struct profile_cache *cache, const char *key, struct profile *profile,
		       uint64_t until_ns);
void profile_cache_drop(struct profile_cache *cache, const char *key);

#endif
