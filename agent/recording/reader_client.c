// SPDX-License-Identifier: Apache-2.0
#include "agent/recording/reader_client.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/base/channel_slot.h"
#include "agent/base/clock.h"
#include "agent/base/log.h"

#define SEND_WAIT_MS 2000

#define HUNG_MAX 16u

struct hung {
	uint32_t tgid;
	uint64_t start_boottime_ns, until_ns;
	struct err err;
};

struct reader_client {
	struct channel_slot slot;
	struct hung hung[HUNG_MAX]; /* processes that the reader hung in */
	size_t next_hung;
	pthread_mutex_t asking; /* of the slot's user and the message */
	struct channel_message message;
};

int reader_client_create(struct reader_client **ret)
{
	struct reader_client *client = calloc(1, sizeof(*client));

	if (!client)
		return -ENOMEM;
	(void)pthread_mutex_init(&client->asking, NULL);
	channel_slot_init(&client->slot);
	*ret = client;
	return 0;
}

void reader_client_destroy(struct reader_client *client)
{
	if (!client)
		return;
	channel_slot_deinit(&client->slot);
	(void)pthread_mutex_destroy(&client->asking);
	free(client);
}

void reader_client_set_channel(struct reader_client *client, int fd)
{
	channel_slot_set(&client->slot, fd);
}

bool reader_client_is_connected(struct reader_client *client)
{
	return channel_slot_wait(&client->slot, 0);
}

bool reader_client_wait(struct reader_client *client, uint64_t timeout_ns)
{
	return channel_slot_wait(&client->slot, timeout_ns);
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

	if (client->slot.fd < 0)
		return -EPIPE;
	target.head.request = channel_slot_number(&client->slot);
	return channel_send_wait(client->slot.fd, &target, sizeof(target), NULL, 0, SEND_WAIT_MS);
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
		int rc = channel_slot_receive(&client->slot, until_ns, &client->message);

		if (rc < 0)
			return rc;
		if (head->kind != CONTROL_READ_CHUNK || head->request != client->slot.request)
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

static const struct hung *find_hung(const struct reader_client *client,
				    const struct reader_request *request)
{
	uint64_t now_ns = clock_monotonic_ns();

	for (size_t i = 0; i < HUNG_MAX; i++)
		if (client->hung[i].tgid == request->tgid &&
		    client->hung[i].start_boottime_ns == request->start_boottime_ns &&
		    client->hung[i].until_ns > now_ns)
			return &client->hung[i];
	return NULL;
}

static void note_hung(struct reader_client *client, const struct reader_request *request,
		      const struct err *err)
{
	client->hung[client->next_hung] = (struct hung){ .tgid = request->tgid,
							 .start_boottime_ns = request->start_boottime_ns,
							 .until_ns = clock_monotonic_ns() + READER_HUNG_NS,
							 .err = *err };
	client->next_hung = (client->next_hung + 1) % HUNG_MAX;
}

/* Lock held. */
static int ask(struct reader_client *client, const struct reader_request *request,
	       reader_record_fn *record, void *ctx, struct err *err)
{
	const struct hung *hung = find_hung(client, request);
	uint64_t until_ns;
	int rc;

	if (hung) {
		*err = hung->err;
		return -EHOSTDOWN;
	}
	(void)channel_slot_adopt(&client->slot);
	until_ns = clock_monotonic_ns() + (request->deadline_ms + READER_GRACE_MS) * NS_PER_MS;
	rc = send_request(client, request);
	if (rc == 0)
		rc = await_answer(client, until_ns, record, ctx, err);
	if (rc == -EHOSTDOWN) {
		note_hung(client, request, err);
		channel_slot_lose(&client->slot); /* no word will come from there */
	}
	if (rc == -EPIPE && !err->text[0])
		channel_slot_lose(&client->slot);
	return rc;
}

int reader_client_ask(struct reader_client *client, const struct reader_request *request,
		      reader_record_fn *record, void *ctx, struct err *err)
{
	struct err own = { 0 };
	int rc;

	(void)pthread_mutex_lock(&client->asking);
	rc = ask(client, request, record, ctx, &own);
	(void)pthread_mutex_unlock(&client->asking);
	if (rc == 0)
		return 0;
	if (!own.text[0])
		return explain(rc, err);
	if (err)
		*err = own;
	return rc;
}
