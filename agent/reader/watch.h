/* SPDX-License-Identifier: Apache-2.0 */
/* Ends this process when one read of a target's memory or files hangs: a page whose user-space handler
 * (userfaultfd, FUSE) never answers blocks the reader where only a fatal signal reaches it. SIGALRM is that
 * signal; it is set anew as long as reads come back. Process-wide; one thread. */
#ifndef PROFD_READER_WATCH_H
#define PROFD_READER_WATCH_H

#include <stdint.h>

#define WATCH_HANG_S 5u /* one read may take so long, and whatever lies between two reads */

/* From now on until watch_stop(); never beyond @until_ns (monotonic), whatever comes back. */
void watch_start(uint64_t until_ns);
void watch_stop(void);
/* What follows is no read and may take longer. */
void watch_pause(void);
/* Called before each read. Nothing happens unless the watch is on. */
void watch_touch(void);

#endif
