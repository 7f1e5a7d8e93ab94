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
	/* String ids of the kind of wait and the state that have the most of it; 0 = none. */
	uint32_t wait, state;
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

enum { OWN_WAYS_MAX = 4, OWN_CALLERS_MAX = 8 };

/* A chain of callers by which a program comes to one of its own functions. */
struct own_way {
	int64_t value;		/* of the own function's value */
	uint32_t callers_count;
	uint32_t callers[OWN_CALLERS_MAX]; /* functions of the profile, nearest first */
};

struct own_ways {
	uint32_t count;
	struct own_way ways[OWN_WAYS_MAX]; /* largest first */
};

/* Tells apart what one function does for several callers: many programs have one function in which
 * they wait, or allocate, for every purpose. For each of the @count functions @rows, from
 * own_functions(), the ways in which it is called: the callers that all have in common, then those
 * that differ. A way has at least a tenth of the function's value, so several may be missing. *ret
 * has @count elements and is the caller's (free). -ENOMEM. */
int own_ways(const struct profile *p, unsigned value_index, const struct own_function *rows,
	     size_t count, struct own_ways **ret) must_use;

#endif
