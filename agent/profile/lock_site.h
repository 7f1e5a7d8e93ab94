/* SPDX-License-Identifier: Apache-2.0 */
/* Which function a thread that waits for a lock stands in. Pure. */
#ifndef PROFD_PROFILE_LOCK_SITE_H
#define PROFD_PROFILE_LOCK_SITE_H

#include "agent/profile/profile.h"

/* Is @frame part of how locks and system calls are made: in the kernel, in libc or in a language's runtime library, or an
 * inlined function of their headers? */
bool lock_site_is_part(const struct profile *p, const struct profile_frame *frame);
/* The innermost function of @node's stack that is not (lock_site_is_part()). String id of its name in
 * @b; 0 = every frame is. @node must come from @b. */
uint32_t lock_site(const struct profile_builder *b, uint32_t node);
/* Likewise of a lock of the kernel: the function of the kernel that locks. */
uint32_t lock_site_kernel(const struct profile_builder *b, uint32_t node);
/* Of the frames from @node up to @above, without that, the uppermost that is the kernel's way into an
 * interrupt; 0 = none. */
uint32_t lock_site_interrupt(const struct profile_builder *b, uint32_t node, uint32_t above);

/* Does @node's stack say that the wait for a futex, whose value is one that locks have, is one for something else: a
 * condition, a message, a barrier, a thread that is parked? */
bool lock_site_is_other(const struct profile_builder *b, uint32_t node);

#endif
