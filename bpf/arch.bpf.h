/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* As arch.h: the kernel's saved registers, and what they say. And futexes, whose words are the same
 * on all. BPF only. */
#ifndef PROFD_BPF_ARCH_BPF_H
#define PROFD_BPF_ARCH_BPF_H

#ifdef __TARGET_ARCH_arm64
#include "bpf/arch_arm64.bpf.h"
#else
#include "bpf/arch_x86_64.bpf.h"
#endif

/* Does this futex call wait for a lock? include/uapi/linux/futex.h: the operation without its flags
 * is 0 WAIT, 9 WAIT_BITSET, 6 LOCK_PI, 13 LOCK_PI2. A wait for a lock expects the value that says
 * "locked, with waiters": 2 in glibc, musl, Rust and Go, FUTEX_WAITERS | tid in robust mutexes, 3
 * (with WAIT_BITSET) in glibc's read-write locks. Conditions, joins and semaphores expect others.
 */
static __always_inline bool arch_is_lock_wait(uint64_t operation, uint64_t expected)
{
	uint32_t command = operation & 127, value = (uint32_t)expected;

	if (command == 6 || command == 13)
		return true;
	if (command != 0 && command != 9)
		return false;
	return value == 2 || value >> 31 || (command == 9 && value == 3);
}

/* Does this futex call wake waiters? 1 is WAKE (include/uapi/linux/futex.h). */
static __always_inline bool arch_is_futex_wake(uint64_t operation)
{
	return (operation & 127) == 1;
}

/* The place where a lock names its holder: the tid itself, or an offset from the futex in bytes. */
struct arch_lock_wait {
	uint32_t owner;
	uint32_t owner_at;
	uint32_t or_next; /* 1: if there is none, in the next word */
};

#define FUTEX_TID_MASK 0x3fffffffu /* include/uapi/linux/futex.h: of PI and robust futexes */

/* @operation and @expected of a wait for a lock. PI and robust futexes hold the owner's tid
 * themselves. glibc (sysdeps/nptl/bits/struct_mutex.h, struct_rwlock.h of x86): a mutex has __lock,
 * __count, __owner; a read-write lock __wrphase_futex at 8, __writers_futex at 12, __cur_writer at
 * 24, and zeros between. */
static __always_inline struct arch_lock_wait arch_lock_owner(uint64_t operation, uint64_t expected)
{
	uint32_t command = operation & 127, value = (uint32_t)expected;

	if (command == 6 || command == 13)
		return (struct arch_lock_wait){ .owner_at = 0 };
	if (value >> 31)
		return (struct arch_lock_wait){ .owner = value & FUTEX_TID_MASK };
	if (command == 9 && value == 3)
		return (struct arch_lock_wait){ .owner_at = 12, .or_next = 1 };
	return (struct arch_lock_wait){ .owner_at = 8 };
}

#endif
