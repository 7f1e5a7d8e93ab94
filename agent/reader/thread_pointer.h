/* SPDX-License-Identifier: Apache-2.0 */
/* Where a thread's thread pointer is, which the kernel knows and BPF reads, beside its pthread_t,
 * which programs keep. */
#ifndef PROFD_READER_THREAD_POINTER_H
#define PROFD_READER_THREAD_POINTER_H

#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/reader/target_memory.h"

/* A block of a dtv: its address, and what is to be freed (glibc, sysdeps/generic/dl-dtv.h). */
#define THREAD_DTV_ENTRY_BYTES 16u

/* How far the thread pointer is above @pthread_va, the pthread_t of a thread of @target. Where the
 * two are one (x86-64) the answer is 0. Elsewhere it is the size of glibc's struct pthread, which
 * differs between versions: the vector of thread-local blocks (dtv) tells it, as one of its first
 * entries is the block just above the thread pointer. -ENODATA: no word is such a vector's address,
 * as with other C libraries. -EFAULT, -ESRCH, -EPERM as target_read(). */
int thread_pointer_above(struct target *target, uint64_t pthread_va, uint32_t *ret) must_use;
/* The address of the thread's dtv, from its thread pointer: -EFAULT, -ESRCH, -EPERM. */
int thread_pointer_dtv(struct target *target, uint64_t pointer_va, uint64_t *ret) must_use;

#endif
