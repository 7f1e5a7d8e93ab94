// SPDX-License-Identifier: Apache-2.0
#include "tests/support/reader_peer.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/reader/reader.h"

#define PATIENCE_MS 70000 /* longer than any deadline; only a broken run gets there */

static int receive(int fd, struct channel_message *message)
{
	struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
	int rc;

	while ((rc = channel_receive(fd, message)) == 0)
		assert_int_equal(poll(&poll_fd, 1, PATIENCE_MS), 1);
	return rc;
}

void reader_peer_start(struct reader_peer *c)
{
	static struct channel_message message;
	struct control_peer peer = { .head = { .kind = CONTROL_PEER },
				     .role = ROLE_SERVER,
				     .generation = 1 };
	const struct channel_head *head = (const void *)message.data;
	int control[2], server[2];

	*c = (struct reader_peer){ .next_request = 1 };
	assert_int_equal(channel_pair(control), 0);
	assert_int_equal(channel_pair(server), 0);
	fflush(NULL);
	c->pid = fork();
	assert_true(c->pid >= 0);
	if (c->pid == 0) {
		const struct reader_options options = { .control_fd = control[1] };

		(void)close(control[0]);
		(void)close(server[0]);
		(void)close(server[1]);
		_exit(reader_run(&options));
	}
	(void)close(control[1]);
	c->control_fd = control[0];
	c->server_fd = server[0];
	assert_int_equal(receive(c->control_fd, &message), 1);
	assert_int_equal(head->kind, CONTROL_READY);
	assert_int_equal(channel_send(c->control_fd, &peer, sizeof(peer), &server[1], 1), 0);
	(void)close(server[1]);
}

int reader_peer_stop(struct reader_peer *c)
{
	const struct channel_head stop = { .kind = CONTROL_STOP };
	int status;

	(void)!channel_send(c->control_fd, &stop, sizeof(stop), NULL, 0);
	assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
	(void)close(c->control_fd);
	(void)close(c->server_fd);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int reader_peer_ask(struct reader_peer *c, const struct control_read_target *request,
		      struct read_collect *ret)
{
	static struct channel_message message;
	struct control_read_target out = *request;
	const struct control_read_chunk *chunk = (const void *)message.data;

	*ret = (struct read_collect){ 0 };
	out.head.request = c->next_request++;
	assert_int_equal(channel_send(c->server_fd, &out, sizeof(out), NULL, 0), 0);
	for (;;) {
		int rc = receive(c->server_fd, &message);

		if (rc < 0)
			return rc;
		assert_true(message.len >= sizeof(*chunk));
		assert_int_equal(chunk->head.kind, CONTROL_READ_CHUNK);
		assert_int_equal(chunk->head.request, out.head.request);
		assert_int_equal(message.len, sizeof(*chunk) + chunk->len);
		if (chunk->status < 0)
			(void)snprintf(c->text, sizeof(c->text), "%.*s", (int)chunk->len,
				       (const char *)(chunk + 1));
		else if (chunk->len)
			(void)read_collect_flush(ret, chunk + 1, chunk->len);
		if (!chunk->more)
			return chunk->status;
	}
}
