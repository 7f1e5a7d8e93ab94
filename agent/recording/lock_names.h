/* SPDX-License-Identifier: Apache-2.0 */
/* The attributes `lock` and `holder` of block and mutex profiles. A lock is
 * named after the function that waited longest for it, so that one lock is one value. Pure. */
#ifndef PROFD_RECORDING_LOCK_NAMES_H
#define PROFD_RECORDING_LOCK_NAMES_H

#include "agent/base/u64map.h"
#include "agent/base/vec.h"
#include "agent/profile/profile.h"

struct lock_wait {
	uint32_t function; /* string id, 0 = not known */
	uint64_t lock;	   /* hash of (process, address) */
	int64_t ns;
};
VEC_DEFINE(lock_waits, struct lock_wait);

struct lock_threads_item {
	char comm[16];
};
VEC_DEFINE(lock_threads, struct lock_threads_item);

/* The use of a futex, from whole stacks that waited there: a lock, or something else
 * (lock_site_is_other()). */
enum lock_seen { LOCK_SEEN_LOCK = 1, LOCK_SEEN_OTHER = 2 };

/* Zero-initialized is valid and empty. */
struct lock_names {
	struct lock_waits_vec waits;
	struct u64map wait_at;	 /* hash of (lock, function) -> index in waits */
	struct u64map lock_at;	 /* lock -> index of its longest wait */
	struct u64map seen;	 /* lock -> bits of enum lock_seen */
	struct lock_threads_vec threads;
	struct u64map thread_at; /* hash of (process, tid) -> index in threads */
};

void lock_names_deinit(struct lock_names *names);
/* @function (string id, 0 = not known) of @process waited @ns for the lock at @object. */
int lock_names_wait(struct lock_names *names, uint32_t process, uint64_t object, uint32_t function,
		    int64_t ns) must_use;
/* Some thread of @process waited for something else at @object. -ENOMEM. */
int lock_names_other(struct lock_names *names, uint32_t process, uint64_t object) must_use;
/* Do threads of @process wait for other things at @object, and for no lock, as far as their stacks
 * tell? A wait whose stack could not be read is one of those. */
bool lock_names_is_other(const struct lock_names *names, uint32_t process, uint64_t object);
/* @process has this thread, which may hold locks. */
int lock_names_thread(struct lock_names *names, uint32_t process, uint32_t tid,
		      const char comm[16]) must_use;
/* String id of `KIND 0x7f… in function`; @kind is "futex", "sync.Mutex". */
uint32_t lock_names_lock(const struct lock_names *names, struct profile_builder *b,
			 const char *kind, uint32_t process, uint64_t object);
/* String id of `thread name (tid)`; 0 unless @tid is a known thread of @process: locks of other
 * libraries keep something else where glibc keeps the owner. */
uint32_t lock_names_holder(const struct lock_names *names, struct profile_builder *b,
			   uint32_t process, uint32_t tid);

#endif
