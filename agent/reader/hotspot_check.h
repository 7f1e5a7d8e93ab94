/* SPDX-License-Identifier: Apache-2.0 */
/* Does HotSpot's description of itself fit a process that runs? Its code heaps must hold what the
 * tables say: the call stub, and compiled methods with names. Everything read is hostile. */
#ifndef PROFD_READER_HOTSPOT_CHECK_H
#define PROFD_READER_HOTSPOT_CHECK_H

#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/reader/target_memory.h"
#include "bpf/script.h"

/* Completes @runtime, of which the symbolizer's part is filled. -EAGAIN: the virtual machine is
 * still starting, or its process is younger than a minute and may be. -EOPNOTSUPP: a version that
 * is not known, or memory that was made to look like one. -ETIMEDOUT (@deadline_ns is monotonic),
 * -ESRCH, -EPERM, -ENOMEM. @runtime is unchanged then. */
int hotspot_check(struct target *target, struct script_runtime *runtime, uint64_t deadline_ns)
	must_use;

#endif
