// SPDX-License-Identifier: Apache-2.0
/* Places of connections: who takes too many loses its own, not those of others. Users of Unix
 * sockets stand for addresses, since they are told apart in the same way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/http/connections.h"

#define PLACES	 16u
#define STRANGER 65534u

struct client {
	int fds[2]; /* the client's, the server's */
	struct connection *connection;
};

static struct client join(struct connections *c, const int fds[2], enum connection_phase phase)
{
	struct client client = { .fds = { fds[0], fds[1] } };

	client.connection = connections_add(c, fds[1], true);
	assert_non_null(client.connection);
	if (phase != CONNECTION_HEADER)
		connections_enter(c, client.connection, phase, false);
	return client;
}

/* A client of the Unix socket that runs as @uid. */
static struct client join_as(struct connections *c, uid_t uid, enum connection_phase phase)
{
	int fds[2];

	assert_int_equal(seteuid(uid), 0);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
	assert_int_equal(seteuid(0), 0);
	return join(c, fds, phase);
}

/* A client of the network, from the loopback address 127.0.0.@last. */
static struct client join_from(struct connections *c, int listener, unsigned last,
			       enum connection_phase phase)
{
	struct sockaddr_in to = { .sin_family = AF_INET },
			   from = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(0x7f000000u | last) };
	socklen_t len = sizeof(to);
	int fds[2] = { socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), -1 };

	assert_int_equal(getsockname(listener, (struct sockaddr *)&to, &len), 0);
	assert_int_equal(bind(fds[0], (struct sockaddr *)&from, sizeof(from)), 0);
	assert_int_equal(connect(fds[0], (struct sockaddr *)&to, sizeof(to)), 0);
	fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	assert_true(fds[1] >= 0);
	return join(c, fds, phase);
}

static bool is_shut(const struct client *client)
{
	struct pollfd fd = { .fd = client->fds[0], .events = POLLRDHUP };

	return poll(&fd, 1, 0) == 1 && fd.revents & (POLLRDHUP | POLLHUP);
}

static unsigned count_shut(const struct client *clients, unsigned count)
{
	unsigned shut = 0;

	for (unsigned i = 0; i < count; i++)
		shut += is_shut(&clients[i]);
	return shut;
}

static void leave(struct connections *c, struct client *clients, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		connections_remove(c, clients[i].connection);
		(void)close(clients[i].fds[0]);
		(void)close(clients[i].fds[1]);
	}
}

static const struct connections_options options = { .most = PLACES, .most_local = PLACES };

/* A stranger has all places, by bodies that never come or answers that it reads slowly: root comes
 * in all the same, and it is the stranger that pays. */
static void pin(enum connection_phase phase)
{
	struct connections *c = NULL;
	struct client strangers[PLACES], root[2];

	assert_int_equal(connections_create(&options, &c), 0);
	for (unsigned i = 0; i < PLACES; i++)
		strangers[i] = join_as(c, STRANGER, phase);
	assert_int_equal(count_shut(strangers, PLACES), 0);
	root[0] = join_as(c, 0, CONNECTION_BODY);
	root[1] = join_as(c, 0, CONNECTION_BODY);
	assert_int_equal(count_shut(root, 2), 0);
	assert_int_equal(count_shut(strangers, PLACES), 2);
	assert_true(is_shut(&strangers[0]) && is_shut(&strangers[1])); /* the longest silent */
	leave(c, strangers, PLACES);
	leave(c, root, 2);
	connections_destroy(c);
}

static void test_pinned(void **state)
{
	if (geteuid()) {
		print_message("skipped: only root can be two users\n");
		skip();
	}
	pin(CONNECTION_BODY);
	pin(CONNECTION_ANSWER);
	pin(CONNECTION_HANDLER);
}

/* One that only waits for its answer is served before those that pin their places. */
static void test_waiting_last(void **state)
{
	struct connections *c = NULL;
	struct client strangers[PLACES], other;

	if (geteuid()) {
		print_message("skipped: only root can be two users\n");
		skip();
	}
	assert_int_equal(connections_create(&options, &c), 0);
	for (unsigned i = 0; i < PLACES; i++)
		strangers[i] = join_as(c, STRANGER, i < 4 ? CONNECTION_HANDLER : CONNECTION_BODY);
	other = join_as(c, 1, CONNECTION_HEADER);
	assert_int_equal(count_shut(strangers, 4), 0);
	assert_true(is_shut(&strangers[4]));
	assert_false(is_shut(&other));
	leave(c, strangers, PLACES);
	leave(c, &other, 1);
	connections_destroy(c);
}

/* At a stop, clients are waited for that were not answered: also one whose request is on its
 * way. */
static void test_awaiting(void **state)
{
	struct connections *c = NULL;
	struct client client, silent;

	assert_int_equal(connections_create(&options, &c), 0);
	silent = join_as(c, geteuid(), CONNECTION_HEADER);
	assert_int_equal(connections_awaiting(c, UINT64_MAX), 1);
	assert_int_equal(connections_awaiting(c, 0), 0); /* it has been silent for too long */
	client = join_as(c, geteuid(), CONNECTION_HEADER);
	connections_identify(c, client.connection, "/healthz", NULL);
	assert_int_equal(connections_awaiting(c, 0), 1);
	for (int phase = CONNECTION_BODY; phase < CONNECTION_PHASES; phase++) {
		connections_enter(c, client.connection, (enum connection_phase)phase, false);
		assert_int_equal(connections_awaiting(c, 0), 1);
	}
	connections_enter(c, client.connection, CONNECTION_HEADER, false); /* answered */
	assert_int_equal(connections_awaiting(c, 0), 0);
	assert_int_equal(connections_awaiting(c, UINT64_MAX), 2); /* it may ask again */
	leave(c, &client, 1);
	assert_int_equal(connections_awaiting(c, UINT64_MAX), 1);
	leave(c, &silent, 1);
	connections_destroy(c);
}

/* Network clients that hold all places of the network take none of the Unix socket's. A newcomer
 * from another loopback address gets no place either: it is closed, since all others are being
 * served. */
static void test_network(void **state)
{
	const struct sockaddr_in any = { .sin_family = AF_INET,
					 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	cleanup_close int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct client strangers[PLACES], late, local;
	struct connections *c = NULL;

	assert_int_equal(bind(listener, (const struct sockaddr *)&any, sizeof(any)), 0);
	assert_int_equal(listen(listener, PLACES), 0);
	assert_int_equal(connections_create(&options, &c), 0);
	for (unsigned i = 0; i < PLACES; i++)
		strangers[i] = join_from(c, listener, 1, CONNECTION_BODY);
	local = join_as(c, geteuid(), CONNECTION_HEADER);
	assert_false(is_shut(&local));
	late = join_from(c, listener, 2, CONNECTION_HEADER);
	assert_true(is_shut(&late));
	assert_int_equal(count_shut(strangers, PLACES), 0);
	leave(c, strangers, PLACES);
	leave(c, &late, 1);
	leave(c, &local, 1);
	connections_destroy(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pinned),
		cmocka_unit_test(test_waiting_last),
		cmocka_unit_test(test_network),
		cmocka_unit_test(test_awaiting),
	};

	return cmocka_run_group_tests_name("connections", tests, NULL, NULL);
}
