// SPDX-License-Identifier: Apache-2.0
#include "agent/base/channel.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "agent/base/clock.h"
#include "agent/base/log.h"

#define SEND_BUFFER_BYTES (1 << 20)
#define FULL_PAUSE_MS	  10 /* whoever polls the channel would spin */

int channel_pair(int ret_fds[2])
{
	int fds[2], size = SEND_BUFFER_BYTES;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
		return -errno;
	for (int i = 0; i < 2; i++)
		/* Clamped by wmem_max; a smaller buffer only means earlier -EAGAIN. */
		(void)setsockopt(fds[i], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
	ret_fds[0] = fds[0];
	ret_fds[1] = fds[1];
	return 0;
}

union fd_space {
	struct cmsghdr head;
	char bytes[CMSG_SPACE(sizeof(int) * CHANNEL_FDS_MAX)];
};

int channel_send(int fd, const void *data, size_t len, const int *fds, int fd_count)
{
	struct iovec part = { .iov_base = (void *)(uintptr_t)data, .iov_len = len };
	struct msghdr msg = { .msg_iov = &part, .msg_iovlen = 1 };
	union fd_space space = { 0 };
	ssize_t sent;

	if (len < sizeof(struct channel_head) || len > CHANNEL_MESSAGE_MAX || fd_count < 0 ||
	    fd_count > CHANNEL_FDS_MAX)
		return -EMSGSIZE;
	if (fd_count) {
		msg.msg_control = space.bytes;
		msg.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)fd_count);
		space.head.cmsg_level = SOL_SOCKET;
		space.head.cmsg_type = SCM_RIGHTS;
		space.head.cmsg_len = CMSG_LEN(sizeof(int) * (size_t)fd_count);
		memcpy(CMSG_DATA(&space.head), fds, sizeof(int) * (size_t)fd_count);
	}
	do {
		sent = sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (sent < 0 && errno == EINTR);
	if (sent >= 0)
		return 0;
	switch (errno) {
	case ECONNRESET:
	case ENOTCONN:
		return -EPIPE;
	case ENOBUFS:
		return -EAGAIN;
	default:
		return -errno;
	}
}

int channel_send_wait(int fd, const void *data, size_t len, const int *fds, int fd_count,
		      int timeout_ms)
{
	uint64_t deadline = clock_monotonic_ns() + (uint64_t)timeout_ms * NS_PER_MS;

	for (;;) {
		struct pollfd wait = { .fd = fd, .events = POLLOUT };
		int rc = channel_send(fd, data, len, fds, fd_count);
		uint64_t now = clock_monotonic_ns();

		if (rc != -EAGAIN)
			return rc;
		if (now >= deadline)
			return -ETIMEDOUT;
		(void)poll(&wait, 1, (int)((deadline - now) / NS_PER_MS) + 1);
	}
}

static void take_descriptors(struct msghdr *msg, struct channel_message *message)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		size_t count;

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < count; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (message->fd_count < CHANNEL_FDS_MAX)
				message->fds[message->fd_count++] = fd;
			else
				(void)close(fd);
		}
	}
}

/* Descriptors of the next message, which stays in the queue. Its length, 0 = the peer is gone, or
 * -errno. */
static ssize_t peek_descriptors(int fd, struct channel_message *message, bool *ret_all)
{
	struct iovec nothing = { 0 };
	union fd_space space = { 0 };
	struct msghdr msg = { .msg_iov = &nothing,
			      .msg_iovlen = 1,
			      .msg_control = space.bytes,
			      .msg_controllen = sizeof(space.bytes) };
	ssize_t len;

	/* A peer that went away with unread messages of ours is reported once as ECONNRESET, before the
	 * last words that it sent (net/unix/af_unix.c, unix_release_sock()). */
	for (int resets = 0;;) {
		len = recvmsg(fd, &msg, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		if (len >= 0 || (errno != EINTR && (errno != ECONNRESET || resets++)))
			break;
	}
	if (len < 0)
		return -errno;
	take_descriptors(&msg, message);
	*ret_all = !(msg.msg_flags & MSG_CTRUNC);
	return len;
}

/* The kernel drops what does not fit below the limit of open files, and the message with it would
 * be gone. */
static int wait_for_descriptors(struct channel_message *message)
{
	static struct log_limit limit = { .burst = 1 };

	channel_message_close(message);
	if (log_allowed(&limit))
		log_warn("the limit of open files is reached (LimitNOFILE, ulimit -n): a message waits");
	(void)poll(NULL, 0, FULL_PAUSE_MS);
	return 0;
}

int channel_receive(int fd, struct channel_message *message)
{
	struct iovec part = { .iov_base = message->data, .iov_len = sizeof(message->data) };
	struct msghdr msg = { .msg_iov = &part, .msg_iovlen = 1 }; /* the descriptors are here already */
	bool all = true;
	ssize_t len, got;

	message->len = 0;
	message->fd_count = 0;
	for (int i = 0; i < CHANNEL_FDS_MAX; i++)
		message->fds[i] = -1;
	len = peek_descriptors(fd, message, &all);
	if (len <= 0)
		return len == -EAGAIN ? 0 : len == 0 || len == -ECONNRESET ? -EPIPE : (int)len;
	if (!all && message->fd_count < CHANNEL_FDS_MAX)
		return wait_for_descriptors(message);
	do {
		got = recvmsg(fd, &msg, MSG_DONTWAIT);
	} while (got < 0 && errno == EINTR);
	if (!all || got != len || (size_t)got < sizeof(struct channel_head)) {
		channel_message_close(message);
		return got < 0 ? -errno : -EPROTO;
	}
	message->len = (size_t)got;
	return 1;
}

void channel_message_close(struct channel_message *message)
{
	for (int i = 0; i < CHANNEL_FDS_MAX; i++) {
		if (message->fds[i] >= 0)
			(void)close(message->fds[i]);
		message->fds[i] = -1;
	}
	message->fd_count = 0;
}
