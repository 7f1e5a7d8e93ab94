/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the function in which a thread waits for a lock. Pure. */
#ifndef PROFD_PROFILE_LOCK_SITE_H
#define PROFD_PROFILE_LOCK_SITE_H

#include "agent/profile/profile.h"

/* Does @frame belong to the implementation of locks and system calls: in the kernel, in libc, in a
 * language's runtime library, or inlined from their headers? */
bool lock_site_is_part(const struct profile *p, const struct profile_frame *frame);
/* The innermost function of @node's stack that is not (lock_site_is_part()). String id of its name
 * in
 * @b; 0 = every frame is. @node must come from @b. */
uint32_t lock_site(const struct profile_builder *b, uint32_t node);
/* Likewise of a lock of the kernel: the function of the kernel that locks. */
uint32_t lock_site_kernel(const struct profile_builder *b, uint32_t node);
/* The uppermost of the frames from @node up to @above (exclusive) that is the kernel's entry into
 * an interrupt; 0 = none. */
uint32_t lock_site_interrupt(const struct profile_builder *b, uint32_t node, uint32_t above);

/* Does @node's stack show that a wait for a futex with a lock's value is no wait for a lock, but
 * for a condition, a message, a barrier, or as a parked thread? */
bool lock_site_is_other(const struct profile_builder *b, uint32_t node);

#endif
