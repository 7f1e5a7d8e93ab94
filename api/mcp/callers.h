/* SPDX-License-Identifier: Apache-2.0 */
/* Callers of the functions that a profile spends most in. */
#ifndef PROFD_API_MCP_CALLERS_H
#define PROFD_API_MCP_CALLERS_H

#include <cjson/cJSON.h>

#include "agent/profile/profile.h"

/* Adds to @to a list of the functions with the most value of their own: name, file, own and
 * cumulative share in percent, and the callers of its own time with their share of it. -ENOMEM. */
int callers_add(cJSON *to, const char *name, const struct profile *p, unsigned functions,
		unsigned callers) must_use;
/* Adds to @to a list `ownFunctions` of at most @limit of the program's own functions
 * (agent/profile/own_functions.h) with their share in percent, their kind of wait, and the
 * ways in which they are called if there are several. -ENOMEM. */
int callers_add_own(cJSON *to, const struct profile *p, unsigned limit) must_use;

#endif
