/* SPDX-License-Identifier: Apache-2.0 */
/* Values by the program's own functions. In the kernel every wait ends in the scheduler, and every
 * allocation in the allocator, so the innermost frame says little. A sample belongs to the
 * innermost function that is neither in the kernel, nor in the C library, an allocator or a
 * language's library, nor in an interpreter. Pure. */
#ifndef PROFD_PROFILE_OWN_FUNCTIONS_H
#define PROFD_PROFILE_OWN_FUNCTIONS_H

#include <stdbool.h>

#include "agent/profile/profile.h"

struct own_function {
	uint32_t function; /* of the profile */
	uint32_t wait; /* string id of the kind of wait with the most of it; 0 = none */
	int64_t value;
	bool is_foreign; /* all of it are waits in stacks without a function of the program */
};

/* The functions with a value, that of @value_index, largest first, those that are foreign behind
 * the others: idle threads of a runtime or a library wait longer than anything else. A stack
 * without a function of its own belongs to the innermost one of a library, else to its innermost
 * frame. In a process with frames of an interpreted program, stacks without such frames are the
 * runtime's. *ret is the caller's (free). -ENOMEM. */
int own_functions(const struct profile *p, unsigned value_index, struct own_function **ret,
		  size_t *ret_count) must_use;

#endif
