/* SPDX-License-Identifier: Apache-2.0 */
/* Giving up privileges for good, by system calls only (no libcap). */
#ifndef PROFD_READER_PRIVILEGES_H
#define PROFD_READER_PRIVILEGES_H

#include <stdint.h>

#include "agent/base/cleanup.h"

/* Becomes the user nobody if this is root, and keeps of its capabilities only those in @mask (bit n =
 * capability n of linux/capability.h); nothing can be gained again. Negative errno. */
int privileges_keep(uint64_t mask) must_use;

#endif
