/* SPDX-License-Identifier: Apache-2.0 */
/* Names of CPython's frames, from the code objects of a process that runs. A name is given only if
 * the code object has the frame's cookie before and after its name was read. Every value of the
 * target is read once and checked; what follows from a value uses the checked copy. */
#ifndef PROFD_READER_CPYTHON_NAMES_H
#define PROFD_READER_CPYTHON_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/reader/target_memory.h"
#include "agent/wire/control.h"

#define CPYTHON_NAMES_MAX CONTROL_SCRIPT_PLACES_MAX /* of one call */

struct cpython_name {
	bool is_known; /* else the rest is empty */
	uint32_t line; /* of the position, 0 = the code object gives it none */
	uint32_t first_line;
	char function[SCRIPT_NAME_MAX + 1]; /* qualified from 3.11 on; UTF-8, cut at its end */
	char file[SCRIPT_NAME_MAX + 1];	    /* UTF-8, cut at its begin */
};

/* The place of a frame, whose bytes are at @frame. -EINVAL: it has no code object, or a position
 * that no code object has. Offsets of @python must be as cpython_check() demands. */
int cpython_names_place(struct target *target, const struct script_python *python,
			const uint8_t frame[SCRIPT_PYTHON_FRAME_BYTES],
			struct control_script_place *ret) must_use;
/* Reads the names of @count places in a few batches. A place that cannot be read, or whose cookie
 * does not fit, is not known. 0, -ENOMEM, -ETIMEDOUT (@deadline_ns is monotonic), -ESRCH, -EPERM.
 */
int cpython_names_read(struct target *target, const struct script_python *python,
		       const struct control_script_place *places, size_t count,
		       struct cpython_name *ret, uint64_t deadline_ns) must_use;

#endif
