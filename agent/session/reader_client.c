// SPDX-License-Identifier: Apache-2.0
#include "agent/session/reader_client.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/base/channel.h"
#include "agent/base/clock.h"
#include "agent/base/log.h"

#define SEND_WAIT_MS 2000

struct reader_client {
	pthread_mutex_t lock; /* of new_fd, has_new, connected */
	pthread_cond_t changed; /* CLOCK_MONOTONIC */
	int new_fd;
	bool has_new, connected;

	pthread_mutex_t asking; /* of everything below; taken before lock */
	int fd;
	uint32_t request;
	struct channel_message message;
};

int reader_client_create(struct reader_client **ret)
{
	struct reader_client *client = calloc(1, sizeof(*client));
	pthread_condattr_t attr;

	if (!client)
		return -ENOMEM;
	(void)pthread_mutex_init(&client->lock, NULL);
	(void)pthread_mutex_init(&client->asking, NULL);
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&client->changed, &attr);
	(void)pthread_condattr_destroy(&attr);
	client->fd = client->new_fd = -1;
	*ret = client;
	return 0;
}

void reader_client_destroy(struct reader_client *client)
{
	if (!client)
		return;
	cleanup_close_fn(&client->fd);
	cleanup_close_fn(&client->new_fd);
	(void)pthread_cond_destroy(&client->changed);
	(void)pthread_mutex_destroy(&client->asking);
	(void)pthread_mutex_destroy(&client->lock);
	free(client);
}

void reader_client_set_channel(struct reader_client *client, int fd)
{
	(void)pthread_mutex_lock(&client->lock);
	cleanup_close_fn(&client->new_fd);
	client->new_fd = fd;
	client->has_new = true;
	client->connected = fd >= 0;
	(void)pthread_cond_broadcast(&client->changed);
	(void)pthread_mutex_unlock(&client->lock);
}

bool reader_client_is_connected(struct reader_client *client)
{
	return reader_client_wait(client, 0);
}

bool reader_client_wait(struct reader_client *client, uint64_t timeout_ns)
{
	uint64_t until_ns = clock_monotonic_ns() + timeout_ns;
	struct timespec until = { .tv_sec = (time_t)(until_ns / NS_PER_S),
				  .tv_nsec = (long)(until_ns % NS_PER_S) };
	bool connected;
	int rc = 0;

	(void)pthread_mutex_lock(&client->lock);
	while (!client->connected && timeout_ns && rc == 0)
		rc = pthread_cond_timedwait(&client->changed, &client->lock, &until);
	connected = client->connected;
	(void)pthread_mutex_unlock(&client->lock);
	return connected;
}

static void adopt_channel(struct reader_client *client)
{
	(void)pthread_mutex_lock(&client->lock);
	if (client->has_new) {
		cleanup_close_fn(&client->fd);
		client->fd = client->new_fd;
		client->new_fd = -1;
		client->has_new = false;
	}
	(void)pthread_mutex_unlock(&client->lock);
}

static void lose_channel(struct reader_client *client)
{
	cleanup_close_fn(&client->fd);
	client->fd = -1;
	(void)pthread_mutex_lock(&client->lock);
	client->connected = client->has_new && client->new_fd >= 0;
	(void)pthread_mutex_unlock(&client->lock);
}

static int send_request(struct reader_client *client, const struct reader_request *request)
{
	struct control_read_target target = {
		.head = { .kind = (uint16_t)request->kind },
		.tgid = request->tgid,
		.what = request->what,
		.start_boottime_ns = request->start_boottime_ns,
		.deadline_ms = request->deadline_ms,
		.flags = request->flags,
	};

	if (client->fd < 0)
		return -EPIPE;
	target.head.request = ++client->request ? client->request : ++client->request;
	return channel_send_wait(client->fd, &target, sizeof(target), NULL, 0, SEND_WAIT_MS);
}

/* The next message, or -ETIMEDOUT at @until_ns. */
static int next_message(struct reader_client *client, uint64_t until_ns)
{
	for (;;) {
		int rc = channel_receive(client->fd, &client->message);
		struct pollfd wait = { .fd = client->fd, .events = POLLIN };
		uint64_t now_ns = clock_monotonic_ns();

		if (rc == 1)
			channel_message_close(&client->message);
		if (rc == 1 || (rc < 0 && rc != -EPROTO))
			return rc < 0 ? rc : 0;
		if (now_ns >= until_ns)
			return -ETIMEDOUT;
		(void)poll(&wait, 1, (int)((until_ns - now_ns) / NS_PER_MS) + 1);
	}
}

static int take_records(const void *payload, size_t len, reader_record_fn *record, void *ctx)
{
	struct read_record entry;
	size_t at = 0;
	int rc;

	while ((rc = read_stream_next(payload, len, &at, &entry)) == 1) {
		rc = record(ctx, &entry);
		if (rc < 0)
			return rc;
	}
	return rc;
}

/* One chunk of the answer: 1 = it was the last. */
static int take_chunk(struct reader_client *client, reader_record_fn *record, void *ctx,
		      struct err *err)
{
	const struct control_read_chunk *chunk = (const void *)client->message.data;
	const char *payload = (const char *)(chunk + 1);
	int rc;

	if (client->message.len < sizeof(*chunk) || chunk->len != client->message.len - sizeof(*chunk) ||
	    chunk->status > 0 || chunk->status < -4095)
		return -EPROTO;
	if (chunk->status < 0)
		return err_set(err, -chunk->status, NULL, NULL, "%.*s",
			       (int)(chunk->len < 300 ? chunk->len : 300), payload);
	rc = take_records(payload, chunk->len, record, ctx);
	return rc < 0 ? rc : !chunk->more;
}

static int await_answer(struct reader_client *client, uint64_t until_ns, reader_record_fn *record,
			void *ctx, struct err *err)
{
	const struct channel_head *head = (const void *)client->message.data;
	uint64_t bytes = 0;

	for (;;) {
		int rc = next_message(client, until_ns);

		if (rc < 0)
			return rc;
		if (head->kind != CONTROL_READ_CHUNK || head->request != client->request)
			continue;
		rc = take_chunk(client, record, ctx, err);
		if (rc != 0)
			return rc < 0 ? rc : 0;
		bytes += client->message.len;
		if (bytes > READER_ANSWER_BYTES_MAX)
			return -E2BIG;
	}
}

static int explain(int rc, struct err *err)
{
	const char *text = rc == -EPIPE	    ? "the reader process ended; it is being restarted"
			   : rc == -ETIMEDOUT ? "the reader did not answer in time"
			   : rc == -EPROTO    ? "the reader's answer was malformed"
			   : rc == -E2BIG     ? "there is more to read than profd takes at once"
					      : strerror(-rc);

	return err_set(err, -rc, NULL, NULL, "%s", text);
}

int reader_client_ask(struct reader_client *client, const struct reader_request *request,
		      reader_record_fn *record, void *ctx, struct err *err)
{
	struct err own = { 0 };
	uint64_t until_ns;
	int rc;

	(void)pthread_mutex_lock(&client->asking);
	adopt_channel(client);
	until_ns = clock_monotonic_ns() + (request->deadline_ms + READER_GRACE_MS) * NS_PER_MS;
	rc = send_request(client, request);
	if (rc == 0)
		rc = await_answer(client, until_ns, record, ctx, &own);
	if (rc == -EPIPE && !own.text[0])
		lose_channel(client);
	(void)pthread_mutex_unlock(&client->asking);
	if (rc == 0)
		return 0;
	if (!own.text[0])
		return explain(rc, err);
	if (err)
		*err = own;
	return rc;
}
