/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of another process, read-only and without stopping it: process_vm_readv(2) in batches,
 * else /proc/PID/mem. Both need PTRACE_MODE_ATTACH rights (same user or CAP_SYS_PTRACE); nothing is
 * attached.
 *
 * Identity is (pid, start time): checked when opened and again by target_check(), which callers run
 * before they publish what they read. What is read is a moving target: every value is hostile and
 * may be torn. Not thread-safe. */
#ifndef PROFD_READER_TARGET_MEMORY_H
#define PROFD_READER_TARGET_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

#define TARGET_BATCH_MAX 1024u /* pieces of one system call (UIO_MAXIOV) */

struct target {
	int proc_fd; /* folder /proc/PID: follows this process, never a later one of the same pid */
	int mem_fd;  /* /proc/PID/mem, -1 unless process_vm_readv was refused */
	uint32_t tgid;
	uint64_t start_boottime_ns; /* to the clock tick: what /proc shows */
	uint64_t read_bytes;	    /* so far, for accounting */
};

/* One read of target_read_batch(). */
struct target_piece {
	uint64_t va;
	void *buf;
	uint32_t len; /* bytes */
	uint32_t got; /* result: bytes read, less than len where memory is not mapped */
};

/* Opens process @tgid. @start_boottime_ns as the kernel's task->start_boottime; 0 = whatever runs
 * now. -ESRCH: no such process, or it started at another time; -EACCES, -EMFILE, … Release with
 * target_close(). */
int target_open(uint32_t tgid, uint64_t start_boottime_ns, struct target *ret) must_use;
void target_close(struct target *target);
/* 0 while this very process exists, else -ESRCH. */
int target_check(const struct target *target) must_use;

/* Exactly @len bytes. -EFAULT not all of it is mapped, -ESRCH gone, -EPERM no right. */
int target_read(struct target *target, uint64_t va, void *buf, size_t len) must_use;
/* Up to @len bytes from @va on: the number, at least 1, or as above. */
ssize_t target_read_some(struct target *target, uint64_t va, void *buf, size_t len) must_use;
/* All pieces, TARGET_BATCH_MAX to a call; a piece that cannot be read leaves got < len and the
 * others are not affected. 0, -ESRCH or -EPERM. */
int target_read_batch(struct target *target, struct target_piece *pieces, size_t count) must_use;

static inline void cleanup_target_fn(struct target *target)
{
	target_close(target);
}
#define cleanup_target __attribute__((__cleanup__(cleanup_target_fn)))
/* Initial value of a local with cleanup_target. */
#define TARGET_NONE ((struct target){ .proc_fd = -1, .mem_fd = -1 })

#endif
