/* SPDX-License-Identifier: Apache-2.0 */
/* Debug files from debuginfod servers, for the symbolizer, which has no network. The symbolizer
 * asks over a channel by build-id. A thread downloads one file at a time into a file without a name
 * and passes its descriptor on. What is in it, is the sandboxed symbolizer's to judge.
 *
 * Only where the configuration names servers. A download is bounded in bytes and time. A server is
 * not asked again for an absent file for DEBUG_FETCH_ABSENT_NS. A server that cannot be reached is
 * not asked for DEBUG_FETCH_DOWN_NS. Protocol: debuginfod(8), WEBAPI: GET
 * URL/buildid/HEX/debuginfo. */
#ifndef PROFD_DEBUG_FETCH_H
#define PROFD_DEBUG_FETCH_H

#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"

#define DEBUG_FETCH_BYTES_MAX	(2ll << 30)	/* of one file */
#define DEBUG_FETCH_CONNECT_S	5
#define DEBUG_FETCH_TOTAL_S	120		/* of one file */
#define DEBUG_FETCH_STALL_S	15		/* without DEBUG_FETCH_STALL_BYTES a second */
#define DEBUG_FETCH_STALL_BYTES 1024
#define DEBUG_FETCH_ABSENT_NS	600000000000ull /* 10 min */
#define DEBUG_FETCH_DOWN_NS	5000000000ull
#define DEBUG_FETCH_ABSENT_MAX	16384u		/* of a build-id and a server */
#define DEBUG_FETCH_SERVERS_MAX 8u

struct debug_fetch;

/* @urls      separated by blanks, tried in order; others than http and https, or too many, are an
 * error
 * @data_dir  where the files are written, and gone when nobody has them open. Borrowed. */
int debug_fetch_create(const char *urls, const char *data_dir, struct debug_fetch **ret,
		       struct err *err) must_use;
/* Whether it would take @urls. -EINVAL. */
int debug_fetch_check(const char *urls, struct err *err) must_use;
/* Stops the thread, at once even in a download. */
void debug_fetch_destroy(struct debug_fetch *fetch);
CLEANUP_DEFINE(debug_fetch, struct debug_fetch *, debug_fetch_destroy);
/* A channel on which files are asked for, in place of a former one; takes @fd. */
void debug_fetch_set_channel(struct debug_fetch *fetch, int fd);

#endif
