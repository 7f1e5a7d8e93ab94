/* SPDX-License-Identifier: Apache-2.0 */
/* Leaves the interpreter's own C functions out of stacks. Pure, thread-safe.
 *
 * The walk puts the C frame of CPython's loop directly inside of the Python frames that it
 * executes. So the frame inside of a Python frame is the loop, and its module is the interpreter's:
 * no list of names says so. Inside of a Python frame, frames of that module are left out, with one
 * exception. If a stack's user part ends in such a frame, and it is not the loop, the frame stays
 * together with its inlined functions. So
 *   - what the loop does is the Python function's own time;
 *   - time in the interpreter's other functions (a dict, the collector of garbage) is theirs;
 *   - extensions and libraries are as they were: they are other modules.
 * A frame outside of the first Python frame stays, and so do kernel frames and what is behind
 * them. */
#ifndef PROFD_PROFILE_PROFILE_FOLD_H
#define PROFD_PROFILE_PROFILE_FOLD_H

#include "agent/profile/profile.h"

/* The kinds of frames that the rule distinguishes. */
enum fold_frame {
	FOLD_FRAME_USER,
	FOLD_FRAME_PYTHON,
	FOLD_FRAME_INLINED, /* into the user frame outside of it */
	FOLD_FRAME_MARKER,
	FOLD_FRAME_KERNEL,
};

/* The state of the walk over a stack, from the root inwards. All zeroes at the root. */
struct fold {
	uint8_t where;	  /* private */
	bool is_left_out; /* the last frame: it stays only if the user part ends here and @is_leaf */
	bool is_leaf;
	uint32_t module;  /* private: of the interpreter */
};

/* The frame of a profile or a builder: @mapping is its mapping's path. */
enum fold_frame fold_frame_of(const struct profile_frame *frame, const char *mapping,
			      const char *package);
/* The state after the next frame. @module: any number of its module, 0 = it has none. */
struct fold fold_next(struct fold fold, enum fold_frame frame, uint32_t module);

/* *ret: @p with the rule applied, or a new reference of @p if it has no Python frame. Totals,
 * values of samples and events are those of @p. -ENOMEM. */
int profile_fold(struct profile *p, struct profile **ret) must_use;

#endif
