/* SPDX-License-Identifier: Apache-2.0 */
/* Looking around on the host. */
#ifndef PROFCTL_BROWSE_H
#define PROFCTL_BROWSE_H

#include "tools/profctl/command.h"

/* Prints the services that use the CPUs now, busiest first, or that the host is idle and what to do
 * then. -1 after printing why not. */
int browse_busy(const struct arguments *args) must_use;

#endif
