/* SPDX-License-Identifier: Apache-2.0 */
/* Messages that wait for one receiver: a folder with one file per message, named by its session,
 * and the list of sessions that have been through here. A message is written completely or not at
 * all. A session is listed only after its message lies in the folder, so a crash at any moment
 * neither loses a message nor makes a second one. One thread uses a spool. */
#ifndef PROFD_API_PUSH_SPOOL_H
#define PROFD_API_PUSH_SPOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"

#define PUSH_NAME_SIZE	 64		 /* of a message; [a-z0-9-] */
#define PUSH_MESSAGE_MAX (64u << 20) /* bytes */
#define PUSH_DONE_MAX	 100000u	 /* sessions remembered as seen */

struct push_spool;

/* Opens or makes @path. @max_bytes: beyond it the oldest messages go. */
int push_spool_open(const char *path, uint64_t max_bytes, struct push_spool **ret,
		    struct err *err) must_use;
void push_spool_close(struct push_spool *spool);
CLEANUP_DEFINE(push_spool, struct push_spool *, push_spool_close);

/* Sessions that ended before this are nobody's business any more: realtime of the first opening, or
 * of the last push_spool_commit(). */
uint64_t push_spool_since_ns(const struct push_spool *spool);
bool push_spool_seen(const struct push_spool *spool, const char *name);
/* Writes a message. -ENOSPC, -EIO …: the session stays unseen and will be offered again. */
int push_spool_put(struct push_spool *spool, const char *name, const void *data, size_t len)
	must_use;
/* Marks a session that has nothing to send, or whose message has been put. */
int push_spool_mark(struct push_spool *spool, const char *name, uint64_t created_ns) must_use;
/* Makes the marks durable; those of sessions created before @forget_before_ns are forgotten. */
int push_spool_commit(struct push_spool *spool, uint64_t since_ns, uint64_t forget_before_ns)
	must_use;

/* Name of the oldest message; -ENOENT when there is none. */
int push_spool_first(struct push_spool *spool, char name[PUSH_NAME_SIZE]) must_use;
/* @ret is the caller's (free). */
int push_spool_read(struct push_spool *spool, const char *name, char **ret, size_t *ret_len)
	must_use;
void push_spool_remove(struct push_spool *spool, const char *name);
uint64_t push_spool_bytes(const struct push_spool *spool);
/* Messages that had to go because the spool was full. */
uint64_t push_spool_dropped(const struct push_spool *spool);

#endif
