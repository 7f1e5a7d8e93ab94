/* SPDX-License-Identifier: Apache-2.0 */
/* Ends this process when one read of a target's memory or files hangs. A page whose user-space
 * handler (userfaultfd, FUSE) never answers blocks the reader; only a fatal signal reaches it then,
 * and for FUSE not even that (fs/fuse/dev.c, request_wait_answer()). A thread waits for an alarm,
 * which every finished read sets anew. When the alarm rings the thread tells the server why, tells
 * the supervisor that another process is needed, and ends this process. The process is gone as soon
 * as the kernel lets it go. */
#ifndef PROFD_READER_WATCH_H
#define PROFD_READER_WATCH_H

#include <stdint.h>

#include "agent/base/cleanup.h"

#define WATCH_HANG_S 5u /* one read may take so long, and whatever lies between two reads */

/* Starts the thread, once the privileges are given up; @control_fd: the supervisor's channel.
 * Negative errno. */
int watch_init(int control_fd) must_use;
/* From now on until watch_stop(); never beyond @until_ns (monotonic), whatever comes back.
 * @server_fd and @request: the receiver of the report of a hang. */
void watch_start(uint64_t until_ns, int server_fd, uint32_t request);
void watch_stop(void);
/* The work that follows is no read and may take longer. */
void watch_pause(void);
/* Called before each read. Nothing happens unless the watch is on. */
void watch_touch(void);

#endif
