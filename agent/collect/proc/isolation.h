/* SPDX-License-Identifier: Apache-2.0 */
/* Runs calls that a target can block for ever, each in an isolated thread. A call that looks at an
 * address space (/proc/PID/maps, map_files, cmdline, environ) waits for the lock of that space,
 * and only SIGKILL ends the wait. A thread of the target can keep the lock while it waits for a
 * file system that does not answer (mmap() of an open FUSE file). A thread that has not come back
 * in time is left behind with all it holds, and the next call gets another thread.
 *
 * Not thread-safe: one thread owns a struct isolation. Only @call runs elsewhere. */
#ifndef PROFD_COLLECT_ISOLATION_H
#define PROFD_COLLECT_ISOLATION_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

#define ISOLATION_WAIT_MS   250u
#define ISOLATION_LEFT_MAX  16u /* threads left behind; beyond, no call is made until one is back */
#define ISOLATION_USERS_MAX 4u	/* threads left behind in processes of one user */

struct isolation;

struct isolation *isolation_create(void); /* NULL: no memory */
/* Threads that were left behind end with the process. */
void isolation_destroy(struct isolation *isolation);
CLEANUP_DEFINE(isolation, struct isolation *, isolation_destroy);

/* Runs @call on a helper thread with a private copy of the @bytes at @data. If @call returns in
 * time, the copy is written back to @data, and the result is that of @call. If not, @call keeps
 * running, so it must touch nothing but its copy; @drop (NULL = nothing to do) then frees what the
 * copy owns. @tgid: the process whose address space @call looks at. @isolation NULL: runs @call at
 * once.
 *
 * -ETIMEDOUT: @call did not return in time, or an earlier call about the same process is still
 * running, or too many are; -ENOMEM; -EAGAIN (no thread). */
int isolation_call(struct isolation *isolation, uint32_t tgid, int (*call)(void *data),
		 void (*drop)(void *data), void *data, size_t bytes) must_use;
/* Calls that have not come back. */
unsigned isolation_left(const struct isolation *isolation);

#endif
