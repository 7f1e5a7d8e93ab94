// SPDX-License-Identifier: Apache-2.0
/* The server's end of the channel to the reader, with a peer that answers as it is told. */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/channel.h"
#include "agent/recording/reader_client.h"

enum act { ACT_ANSWER, ACT_REFUSE, ACT_STRANGER_FIRST, ACT_MALFORMED, ACT_LATE, ACT_HANG, ACT_DIE };

struct peer {
	int fd;
	enum act act;
	pthread_t thread;
	struct control_read_target request; /* as it came */
	struct {
		struct control_read_chunk head;
		_Alignas(8) uint8_t payload[READ_CHUNK_MAX];
	} chunk;
};

static int send_chunk(struct peer *p, uint32_t request, int status, bool more, const void *data,
		      size_t len)
{
	p->chunk.head = (struct control_read_chunk){
		.head = { .kind = CONTROL_READ_CHUNK, .request = request },
		.status = status,
		.more = more,
		.len = (uint32_t)len,
	};
	memcpy(p->chunk.payload, data, len);
	return channel_send_wait(p->fd, &p->chunk, sizeof(p->chunk.head) + len, NULL, 0, 5000);
}

static int flush_records(void *ctx, const void *data, size_t len)
{
	struct peer *p = ctx;

	return send_chunk(p, p->request.head.request, 0, true, data, len);
}

/* Two strings and an end, each string in a chunk of its own. */
static void answer(struct peer *p)
{
	static struct read_writer writer;
	const struct read_end end = { .listed = 7 };

	read_writer_init(&writer, flush_records, p);
	read_writer_string(&writer, 1, "one", 3);
	assert_int_equal(read_writer_finish(&writer), 0);
	read_writer_init(&writer, flush_records, p);
	read_writer_string(&writer, 2, "two", 3);
	read_writer_fixed(&writer, READ_END, &end, sizeof(end));
	assert_int_equal(read_writer_finish(&writer), 0);
	assert_int_equal(send_chunk(p, p->request.head.request, 0, false, "", 0), 0);
}

static void *peer_main(void *ctx)
{
	struct channel_message *message = malloc(sizeof(*message));
	struct peer *p = ctx;
	int rc;

	assert_non_null(message);
	while ((rc = channel_receive(p->fd, message)) == 0)
		(void)usleep(1000);
	if (rc == 1) {
		memcpy(&p->request, message->data, sizeof(p->request));
		channel_message_close(message);
	}
	free(message);
	if (rc != 1)
		return NULL;
	switch (p->act) {
	case ACT_STRANGER_FIRST: /* of a request that was given up on */
		(void)send_chunk(p, p->request.head.request - 1, -EIO, false, "late", 4);
		answer(p);
		break;
	case ACT_ANSWER:
		answer(p);
		break;
	case ACT_REFUSE:
		(void)send_chunk(p, p->request.head.request, -ENODATA, false, "it is off", 9);
		break;
	case ACT_MALFORMED:
		(void)send_chunk(p, p->request.head.request, 0, true,
				 "\x03\0\0\0\xff\xff\0\0nonsense", 16);
		break;
	case ACT_LATE:
		(void)send_chunk(p, p->request.head.request, -ETIMEDOUT, false, "too large", 9);
		break;
	case ACT_HANG:
		(void)send_chunk(p, p->request.head.request, -EHOSTDOWN, false, "no answer", 9);
		break;
	case ACT_DIE:
		(void)close(p->fd);
		break;
	}
	return NULL;
}

static void peer_start(struct peer *p, enum act act, struct reader_client *client)
{
	int ends[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
	*p = (struct peer){ .fd = ends[0], .act = act };
	reader_client_set_channel(client, ends[1]);
	assert_int_equal(pthread_create(&p->thread, NULL, peer_main, p), 0);
}

static void peer_end(struct peer *p)
{
	(void)pthread_join(p->thread, NULL);
	(void)close(p->fd);
}

struct got {
	char text[64];
	uint64_t listed;
};

static int take(void *ctx, const struct read_record *record)
{
	struct got *got = ctx;
	size_t len = strlen(got->text);

	if (record->kind == READ_STRING)
		(void)snprintf(got->text + len, sizeof(got->text) - len, "%.*s;",
			       (int)record->string->len, record->text);
	if (record->kind == READ_END)
		got->listed = record->end->listed;
	return 0;
}

static const struct reader_request request = {
	.kind = CONTROL_GOROUTINES,
	.tgid = 77,
	.flags = READER_LOCKS_ONLY,
	.start_boottime_ns = 123,
	.deadline_ms = 1000,
};

static int ask(struct reader_client *client, struct got *got, struct err *err)
{
	*got = (struct got){ 0 };
	return reader_client_ask(client, &request, take, got, err);
}

static void an_answer_comes_in_pieces(void **state)
{
	static struct peer peer;
	cleanup(reader_client) struct reader_client *client = NULL;
	struct got got;
	struct err err = { 0 };

	assert_int_equal(reader_client_create(&client), 0);
	assert_false(reader_client_is_connected(client));
	assert_int_equal(ask(client, &got, &err), -EPIPE);
	assert_true(err.text[0]);
	for (int round = 0; round < 2; round++) {
		peer_start(&peer, round ? ACT_STRANGER_FIRST : ACT_ANSWER, client);
		assert_true(reader_client_wait(client, 0));
		assert_int_equal(ask(client, &got, NULL), 0);
		assert_string_equal(got.text, "one;two;");
		assert_int_equal(got.listed, 7);
		peer_end(&peer);
		assert_int_equal(peer.request.tgid, 77);
		assert_int_equal(peer.request.flags, READER_LOCKS_ONLY);
		assert_int_equal(peer.request.start_boottime_ns, 123);
	}
}

static void refusals_carry_their_reason(void **state)
{
	static struct peer peer;
	cleanup(reader_client) struct reader_client *client = NULL;
	struct err err = { 0 };
	struct got got;

	assert_int_equal(reader_client_create(&client), 0);
	peer_start(&peer, ACT_REFUSE, client);
	assert_int_equal(ask(client, &got, &err), -ENODATA);
	assert_string_equal(err.text, "it is off");
	peer_end(&peer);
	peer_start(&peer, ACT_MALFORMED, client);
	assert_int_equal(ask(client, &got, &err), -EPROTO);
	assert_non_null(strstr(err.text, "malformed"));
	peer_end(&peer);
}

/* One that gave up in time goes on; one that hangs is let go, and not sent into that process again.
 */
static void a_hang_is_no_delay(void **state)
{
	static struct peer peer;
	cleanup(reader_client) struct reader_client *client = NULL;
	struct err err = { 0 };
	struct got got;

	assert_int_equal(reader_client_create(&client), 0);
	peer_start(&peer, ACT_LATE, client);
	assert_int_equal(ask(client, &got, &err), -ETIMEDOUT);
	assert_string_equal(err.text, "too large");
	assert_true(reader_client_is_connected(client));
	peer_end(&peer);
	peer_start(&peer, ACT_HANG, client);
	assert_int_equal(ask(client, &got, &err), -EHOSTDOWN);
	assert_false(reader_client_is_connected(client));
	peer_end(&peer);
	assert_int_equal(ask(client, &got, &err), -EHOSTDOWN);
	assert_string_equal(err.text, "no answer");
}

static void a_reader_that_dies_is_replaced(void **state)
{
	static struct peer peer;
	cleanup(reader_client) struct reader_client *client = NULL;
	struct err err = { 0 };
	struct got got;

	assert_int_equal(reader_client_create(&client), 0);
	peer_start(&peer, ACT_DIE, client);
	assert_int_equal(ask(client, &got, &err), -EPIPE);
	(void)pthread_join(peer.thread, NULL);
	assert_non_null(strstr(err.text, "restarted"));
	assert_false(reader_client_is_connected(client));
	peer_start(&peer, ACT_ANSWER, client);
	assert_true(reader_client_wait(client, 1000000000));
	assert_int_equal(ask(client, &got, &err), 0);
	assert_string_equal(got.text, "one;two;");
	peer_end(&peer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_answer_comes_in_pieces),
		cmocka_unit_test(refusals_carry_their_reason),
		cmocka_unit_test(a_hang_is_no_delay),
		cmocka_unit_test(a_reader_that_dies_is_replaced),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
