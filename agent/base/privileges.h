/* SPDX-License-Identifier: Apache-2.0 */
/* Gives up the rights of a process once it has opened everything that it needs: capabilities, and
 * the way to new ones. A process that began as root and does not need root's files also gives up
 * the user. */
#ifndef PROFD_BASE_PRIVILEGES_H
#define PROFD_BASE_PRIVILEGES_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

#define PRIVILEGES_NOBODY 65534 /* user and group without rights on Linux distributions */

/* Whether capability @number (CAP_…) is effective; false also if that cannot be told. */
bool privileges_has(unsigned number);
/* Keeps of the held capabilities those in @mask (1 << CAP_…; 0 = none), gives up all others, the
 * ambient and the bounding set, and sets no_new_privs. Negative errno of capget(2), capset(2) or
 * prctl(2). */
int privileges_keep(uint64_t mask) must_use;
/* When root: becomes PRIVILEGES_NOBODY without groups; capabilities stay until privileges_keep().
 */
int privileges_leave_root(void) must_use;

#endif
