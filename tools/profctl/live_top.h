/* SPDX-License-Identifier: Apache-2.0 */
/* `profctl top` on a terminal: a profile that runs while one looks, shown as the last ten seconds
 * of it. */
#ifndef PROFCTL_LIVE_TOP_H
#define PROFCTL_LIVE_TOP_H

#include "tools/profctl/command.h"

/* Until q, Ctrl-C or the end of the session (an hour); its profile is deleted afterwards. Exit
 * code. */
int live_top(const struct arguments *args, const char *service);

#endif
