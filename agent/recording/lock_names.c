// SPDX-License-Identifier: Apache-2.0
#include "agent/recording/lock_names.h"

#include <stdio.h>
#include <string.h>

#include "agent/base/hash.h"

static uint64_t key_of(uint32_t process, uint64_t object)
{
	return hash_combine(process, object);
}

void lock_names_deinit(struct lock_names *names)
{
	lock_waits_vec_deinit(&names->waits);
	lock_threads_vec_deinit(&names->threads);
	u64map_deinit(&names->wait_at);
	u64map_deinit(&names->lock_at);
	u64map_deinit(&names->seen);
	u64map_deinit(&names->thread_at);
}

static int see(struct lock_names *names, uint64_t lock, enum lock_seen what)
{
	uint64_t bits = 0;

	(void)u64map_get(&names->seen, lock, &bits);
	return bits & what ? 0 : u64map_put(&names->seen, lock, bits | what);
}

int lock_names_other(struct lock_names *names, uint32_t process, uint64_t object)
{
	return see(names, key_of(process, object), LOCK_SEEN_OTHER);
}

bool lock_names_is_other(const struct lock_names *names, uint32_t process, uint64_t object)
{
	uint64_t bits = 0;

	(void)u64map_get(&names->seen, key_of(process, object), &bits);
	return bits == LOCK_SEEN_OTHER;
}

int lock_names_wait(struct lock_names *names, uint32_t process, uint64_t object, uint32_t function,
		    int64_t ns)
{
	struct lock_wait wait = { .function = function, .lock = key_of(process, object) };
	uint64_t key = hash_combine(wait.lock, function), at, longest;
	int rc = function ? see(names, wait.lock, LOCK_SEEN_LOCK) : 0;

	if (rc < 0)
		return rc;
	if (!u64map_get(&names->wait_at, key, &at)) {
		at = names->waits.count;
		rc = lock_waits_vec_push(&names->waits, wait);
		if (rc == 0)
			rc = u64map_put(&names->wait_at, key, at);
		if (rc < 0)
			return rc;
	}
	names->waits.data[at].ns += ns;
	if (u64map_get(&names->lock_at, wait.lock, &longest) &&
	    names->waits.data[longest].ns >= names->waits.data[at].ns)
		return 0;
	return u64map_put(&names->lock_at, wait.lock, at);
}

int lock_names_thread(struct lock_names *names, uint32_t process, uint32_t tid,
		      const char comm[16])
{
	uint64_t key = key_of(process, tid);
	struct lock_threads_item item;
	int rc;

	if (u64map_get(&names->thread_at, key, &(uint64_t){ 0 }))
		return 0;
	memcpy(item.comm, comm, sizeof(item.comm));
	rc = u64map_put(&names->thread_at, key, names->threads.count);
	return rc < 0 ? rc : lock_threads_vec_push(&names->threads, item);
}

uint32_t lock_names_lock(const struct lock_names *names, struct profile_builder *b,
			 const char *kind, uint32_t process, uint64_t object)
{
	char text[512];
	uint64_t at;
	int len = snprintf(text, sizeof(text), "%.32s 0x%llx", kind, (unsigned long long)object);

	if (u64map_get(&names->lock_at, key_of(process, object), &at) &&
	    names->waits.data[at].function)
		(void)snprintf(text + len, sizeof(text) - (size_t)len, " in %s",
			       profile_builder_text(b, names->waits.data[at].function));
	return profile_builder_string(b, text, strlen(text));
}

uint32_t lock_names_holder(const struct lock_names *names, struct profile_builder *b,
			   uint32_t process, uint32_t tid)
{
	char text[64];
	uint64_t at;

	if (!tid || !u64map_get(&names->thread_at, key_of(process, tid), &at))
		return 0;
	(void)snprintf(text, sizeof(text), "%.16s (%u)", names->threads.data[at].comm, tid);
	return profile_builder_string(b, text, strlen(text));
}
