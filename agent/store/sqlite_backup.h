/* SPDX-License-Identifier: Apache-2.0 */
/* A consistent copy of a store that goes on being written, as one archive (tar.h):
 *
 *   state.db, sessions/ID.log, history/DAY-rN.db      named as below the data directory
 *
 * Data is never older than its records: session files are linked aside before the records are
 * copied, and read afterwards. Their tails beyond the records are cut off or completed when the
 * copy is opened, as after a crash. */
#ifndef PROFD_STORE_SQLITE_BACKUP_H
#define PROFD_STORE_SQLITE_BACKUP_H

#include "agent/store/space.h"
#include "agent/store/sqlite_history.h"

struct sqlite_backup_source {
	const char *path; /* of the store */
	int dir_fd, sessions_fd;
	struct sqlite_history *history;
	struct space *space; /* the copy must leave the floor free */
};

/* The archive as a file without a name on the store's file system, positioned at its end; the
 * caller's. One at a time: -EBUSY. -ENOSPC before the disk is full. */
int sqlite_backup(const struct sqlite_backup_source *source, int *ret_fd, uint64_t *ret_bytes,
		  struct err *err) must_use;
/* Removes what a copy that was cut short left behind; called when the store is opened. */
void sqlite_backup_clean(int dir_fd);

#endif
