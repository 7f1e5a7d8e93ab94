/* SPDX-License-Identifier: Apache-2.0 */
/* Names of V8's frames, from the objects of a process that runs. V8 moves objects, so each one's
 * type is looked at, and a name is given only if the SharedFunctionInfo has the frame's cookie
 * before and after its name was read. Every value of the target is read once and checked. */
#ifndef PROFD_READER_V8_NAMES_H
#define PROFD_READER_V8_NAMES_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/reader/script_names.h"
#include "agent/reader/target_memory.h"
#include "agent/wire/control.h"

/* Adds an entry to @names for each of @count places. A place that cannot be read, or whose cookie
 * does not fit, has no function; one without a name is "(anonymous)". The line is 0 where the
 * frame's position is not known, or V8 has not made the function's table of positions. 0, -ENOMEM,
 * -ETIMEDOUT (@deadline_ns is monotonic), -ESRCH, -EPERM. */
int v8_names_read(struct target *target, const struct script_v8 *v8,
		  const struct control_script_place *places, size_t count,
		  struct script_names *names, uint64_t deadline_ns) must_use;

#endif
