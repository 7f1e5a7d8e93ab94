/* SPDX-License-Identifier: Apache-2.0 */
/* The data directory, which one process has at a time. */
#ifndef PROFD_STORE_FOLDER_H
#define PROFD_STORE_FOLDER_H

#include "agent/base/cleanup.h"
#include "agent/base/err.h"

/* Creates it if it is absent. @ret_fd is the caller's. */
int folder_open(const char *path, int *ret_fd, struct err *err) must_use;
/* store.lock in it, held as long as *@ret_fd (the caller's) is open. Waits 3 s for a predecessor
 * that is ending; -EBUSY. */
int folder_lock(int dir_fd, const char *path, int *ret_fd, struct err *err) must_use;

#endif
