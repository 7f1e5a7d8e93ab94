/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that a program can hold up for ever: whatever looks at its address space (/proc/PID/maps, map_files, cmdline,
 * environ) waits for that space's lock, where only SIGKILL ends it, and one of its threads can keep the lock while it waits
 * for a file system that does not answer (mmap() of an open FUSE file). A thread makes the call. One that has not come back in time is left
 * behind with all it holds, and the next call has another. Of one thread, but for the calls. */
#ifndef PROFD_COLLECT_PATIENT_H
#define PROFD_COLLECT_PATIENT_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

#define PATIENT_WAIT_MS	  250u
#define PATIENT_LEFT_MAX  16u /* threads left behind; then no call is made until one has come back */
#define PATIENT_USERS_MAX 4u  /* of them in processes of one user */

struct patient;

struct patient *patient_create(void); /* NULL: no memory */
/* Threads that were left behind end with the process. */
void patient_destroy(struct patient *patient);
CLEANUP_DEFINE(patient, struct patient *, patient_destroy);

/* @call with a copy of the @bytes at @data, which come back when it has returned; it touches nothing else, and may be under
 * way longer than anything. Then @drop (NULL = nothing to do) releases what the copy holds. @tgid: whose space it is about. The value of
 * @call; -ETIMEDOUT: it was left behind, or one about that process still is, or too many are; -ENOMEM, -EAGAIN (no thread).
 * @patient NULL: it is made at once. */
int patient_call(struct patient *patient, uint32_t tgid, int (*call)(void *data), void (*drop)(void *data), void *data,
		 size_t bytes) must_use;
/* Calls that have not come back. */
unsigned patient_left(const struct patient *patient);

#endif
