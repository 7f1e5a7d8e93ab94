/* SPDX-License-Identifier: Apache-2.0 */
/* Ends this process when one read of a target's memory or files hangs: a page whose user-space handler
 * (userfaultfd, FUSE) never answers blocks the reader where at most a fatal signal reaches it, and of FUSE not even
 * that (fs/fuse/dev.c, request_wait_answer()). A thread waits for the alarm that is set anew as long as reads come
 * back; it tells the server why and the supervisor that another process is needed, and ends this one, which is gone as
 * soon as the kernel lets it. */
#ifndef PROFD_READER_WATCH_H
#define PROFD_READER_WATCH_H

#include <stdint.h>

#include "agent/base/cleanup.h"

#define WATCH_HANG_S 5u /* one read may take so long, and whatever lies between two reads */

/* Starts the thread, once the privileges are given up; @control_fd: the supervisor's channel. Negative errno. */
int watch_init(int control_fd) must_use;
/* From now on until watch_stop(); never beyond @until_ns (monotonic), whatever comes back. @server_fd and @request:
 * who is told of a hang. */
void watch_start(uint64_t until_ns, int server_fd, uint32_t request);
void watch_stop(void);
/* What follows is no read and may take longer. */
void watch_pause(void);
/* Called before each read. Nothing happens unless the watch is on. */
void watch_touch(void);

#endif
