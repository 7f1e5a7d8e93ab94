/* SPDX-License-Identifier: Apache-2.0 */
/* Names of HotSpot's frames, from the methods and compiled code of a process that runs. A name is
 * given only if the method has the frame's cookie, or the compiled code its compile id, before and
 * after it was read. Every value of the target is read once and checked. */
#ifndef PROFD_READER_HOTSPOT_NAMES_H
#define PROFD_READER_HOTSPOT_NAMES_H

#include "agent/base/cleanup.h"
#include "agent/reader/script_names.h"
#include "agent/reader/target_memory.h"

/* Adds an entry for each of @count places to @names. A place that cannot be read, or is not what it
 * was, has none. 0, -ENOMEM, -ETIMEDOUT (@deadline_ns is monotonic), -ESRCH, -EPERM. */
int hotspot_names_read(struct target *target, const struct script_hotspot *hotspot,
		       const struct control_script_place *places, size_t count,
		       struct script_names *names, uint64_t deadline_ns) must_use;

/* The blob whose code @pc may lie in, by the segment map. -EFAULT, -ENOENT: there is none; -ESRCH,
 * -EPERM. */
int hotspot_blob_find(struct target *target, const struct script_hotspot *hotspot, uint64_t pc,
		      uint64_t *ret) must_use;

#endif
