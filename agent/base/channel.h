/* SPDX-License-Identifier: Apache-2.0 */
/* Control messages between profd's processes: SOCK_SEQPACKET, one packet per message, at most
 * CHANNEL_MESSAGE_MAX bytes and CHANNEL_FDS_MAX descriptors. The first 8 bytes are struct
 * channel_head. A peer is not trusted: sizes are checked, surplus descriptors are closed. */
#ifndef PROFD_BASE_CHANNEL_H
#define PROFD_BASE_CHANNEL_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

#define CHANNEL_MESSAGE_MAX 65536u /* bytes; below the default wmem_max of 212992 */
#define CHANNEL_FDS_MAX	    4

struct channel_head {
	uint16_t kind;	    /* meaning belongs to the two ends: agent/wire/ */
	uint16_t reserved;  /* 0 */
	uint32_t request;   /* echoed by an answer, 0 = not a request */
};
_Static_assert(sizeof(struct channel_head) == 8, "wire layout");

struct channel_message {
	size_t len;	      /* bytes in data, head included */
	int fds[CHANNEL_FDS_MAX]; /* owned by the receiver; -1 where absent */
	int fd_count;
	_Alignas(8) uint8_t data[CHANNEL_MESSAGE_MAX];
};

/* A connected pair, both close-on-exec and non-blocking, with send buffers of 1 MiB where allowed.
 */
int channel_pair(int ret_fds[2]) must_use;
/* Sends one packet; @fds stay the caller's. -EAGAIN when the peer's queue is full, -EPIPE when it
 * is gone, -EMSGSIZE. */
int channel_send(int fd, const void *data, size_t len, const int *fds, int fd_count) must_use;
/* The same, waiting up to @timeout_ms for room (-ETIMEDOUT). */
int channel_send_wait(int fd, const void *data, size_t len, const int *fds, int fd_count,
		      int timeout_ms) must_use;
/* Receives one packet. 1 = got one, 0 = none now (or no room for its descriptors below the limit of
 * open files: it stays), -EPIPE = peer gone, -EPROTO = malformed (dropped). One thread at a time
 * for each end. */
int channel_receive(int fd, struct channel_message *message) must_use;
/* Closes what the last receive delivered and was not taken. */
void channel_message_close(struct channel_message *message);

#endif
