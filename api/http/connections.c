// SPDX-License-Identifier: Apache-2.0
#include "api/http/connections.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "api/http/http.h"
#include "api/http/http_error.h"

#define SWEEP_INTERVAL_NS (100 * NS_PER_MS)
#define SPARE_MOST	  32 /* places kept for who comes next */
#define SHED_AGE_NS	  (200 * NS_PER_MS)

struct connection {
	struct connection *next, **link;
	int fd;
	bool raw;
	bool speaks;
	bool shut;
	bool local;	/* of the Unix socket */
	uint64_t group; /* whom it belongs to: group_of() */
	enum connection_phase phase;
	/* The request that is being read: "" and false until its headers are complete. */
	char request_id[HTTP_REQUEST_ID_SIZE];
	bool family_c;
	uint64_t entered_ns;  /* monotonic: begin of the phase */
	uint64_t deadline_ns; /* monotonic, 0 = none */
};

struct connections {
	struct connections_options options;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_t thread;
	bool started;
	bool stop;
	struct connection *first;
	unsigned open[2]; /* not shut down: of the network, of the Unix socket */
};

/* The error document as a complete answer; the socket is non-blocking and the answer is small. */
static void write_refusal(struct connection *connection, const struct err *err)
{
	const struct http_error *error = http_error_of(err, 0);
	struct buf body = { .max = 4096 }, all = { .max = 8192 };

	if (!connection->request_id[0])
		http_request_id(NULL, connection->request_id);
	http_error_body(error, err, connection->family_c, connection->request_id, NULL, &body);
	buf_printf(
		&all,
		"HTTP/1.1 %u %s\r\nContent-Type: %s\r\n"
		"Cache-Control: no-store\r\nX-Request-ID: %s\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n",
		error->status, error->title, http_error_content_type(connection->family_c),
		connection->request_id, body.len);
	buf_add(&all, body.data, body.len);
	if (!all.error)
		(void)!send(connection->fd, all.data, all.len, MSG_NOSIGNAL | MSG_DONTWAIT);
	buf_deinit(&body);
	buf_deinit(&all);
}

static const struct err too_late = { .word = "RequestTimeout",
				     .text = "the request did not arrive completely in time" };

/* @why: NULL = without a word. */
static void shut_down(struct connections *c, struct connection *connection, const struct err *why)
{
	if (connection->shut)
		return;
	connection->shut = true;
	c->open[connection->local]--;
	connection->deadline_ns = 0;
	if (why && connection->raw)
		write_refusal(connection, why);
	(void)shutdown(connection->fd, SHUT_RDWR);
}

static void sweep(struct connections *c)
{
	uint64_t now_ns = clock_monotonic_ns();

	for (struct connection *x = c->first; x; x = x->next) {
		if (!x->deadline_ns || now_ns < x->deadline_ns)
			continue;
		if (c->options.expired)
			c->options.expired(c->options.ctx, x->phase);
		shut_down(c, x, x->speaks ? &too_late : NULL);
	}
}

static void *run(void *arg)
{
	struct connections *c = arg;

	(void)pthread_mutex_lock(&c->lock);
	while (!c->stop) {
		struct timespec until;
		uint64_t at_ns = clock_monotonic_ns() + SWEEP_INTERVAL_NS;

		until = (struct timespec){ (time_t)(at_ns / NS_PER_S), (long)(at_ns % NS_PER_S) };
		if (c->first)
			(void)pthread_cond_timedwait(&c->wake, &c->lock, &until);
		else
			(void)pthread_cond_wait(&c->wake, &c->lock);
		sweep(c);
	}
	(void)pthread_mutex_unlock(&c->lock);
	return NULL;
}

int connections_create(const struct connections_options *options, struct connections **ret)
{
	struct connections *c = calloc(1, sizeof(*c));
	pthread_condattr_t attr;
	int rc;

	if (!c)
		return -ENOMEM;
	c->options = *options;
	(void)pthread_mutex_init(&c->lock, NULL);
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&c->wake, &attr);
	(void)pthread_condattr_destroy(&attr);
	rc = pthread_create(&c->thread, NULL, run, c);
	if (rc) {
		connections_destroy(c);
		return -rc;
	}
	c->started = true;
	*ret = c;
	return 0;
}

void connections_destroy(struct connections *c)
{
	if (!c)
		return;
	if (c->started) {
		(void)pthread_mutex_lock(&c->lock);
		c->stop = true;
		(void)pthread_cond_signal(&c->wake);
		(void)pthread_mutex_unlock(&c->lock);
		(void)pthread_join(c->thread, NULL);
	}
	(void)pthread_cond_destroy(&c->wake);
	(void)pthread_mutex_destroy(&c->lock);
	free(c);
}

static uint64_t loopback_group(void)
{
	const uint32_t ip4 = htonl(INADDR_LOOPBACK);

	return hash_bytes(&ip4, sizeof(ip4), 2);
}

/* The client behind a connection, by something that nobody can choose: the user of a Unix socket,
 * an IPv4 address, the network of 64 bits that one IPv6 host is given. All loopback addresses are
 * one client. */
static uint64_t group_of(int fd, bool *ret_local)
{
	static const struct in6_addr loopback = IN6ADDR_LOOPBACK_INIT;
	struct sockaddr_storage peer = { 0 };
	socklen_t len = sizeof(peer);
	struct ucred user = { 0 };
	uint32_t ip4;

	*ret_local = false;
	if (getpeername(fd, (struct sockaddr *)&peer, &len) < 0)
		return 0;
	if (peer.ss_family == AF_UNIX) {
		*ret_local = true;
		len = sizeof(user);
		(void)!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &user, &len);
		return hash_bytes(&user.uid, sizeof(user.uid), 3);
	}
	if (peer.ss_family == AF_INET6) {
		const struct in6_addr *ip6 = &((const struct sockaddr_in6 *)(void *)&peer)->sin6_addr;

		if (!IN6_IS_ADDR_V4MAPPED(ip6)) {
			if (memcmp(ip6, &loopback, sizeof(loopback)) == 0)
				return loopback_group();
			return hash_bytes(ip6, 8, 1);
		}
		memcpy(&ip4, (const uint8_t *)ip6 + 12, sizeof(ip4));
	} else {
		ip4 = ((const struct sockaddr_in *)(void *)&peer)->sin_addr.s_addr;
	}
	return ntohl(ip4) >> 24 == IN_LOOPBACKNET ? loopback_group() : hash_bytes(&ip4, sizeof(ip4), 2);
}

/* How many places the group of @x has. */
static unsigned share_of(const struct connections *c, const struct connection *x)
{
	unsigned count = 0;

	for (const struct connection *y = c->first; y; y = y->next)
		count += !y->shut && y->local == x->local && y->group == x->group;
	return count;
}

/* Whether @x goes rather than @y: a caller that only waits for its own answer goes last, else the
 * one that has been silent longer. */
static bool goes_before(const struct connection *x, const struct connection *y)
{
	if ((x->phase == CONNECTION_HANDLER) != (y->phase == CONNECTION_HANDLER))
		return y->phase == CONNECTION_HANDLER;
	return x->entered_ns < y->entered_ns;
}

/* When nearly all places are taken, one of the group that has most of them goes: the one that has
 * been silent longest, has asked for nothing or has been answered. Otherwise a few hundred idle
 * clients would keep everybody else waiting for a whole deadline. When all places are taken it
 * goes whatever it does, so that who sends a body that never ends, or reads an answer slowly,
 * takes places from nobody but itself. Where the newcomer is of that group and its others are all
 * being served, the newcomer goes. */
static void make_room(struct connections *c, struct connection *newcomer)
{
	const unsigned most = newcomer->local ? c->options.most_local : c->options.most;
	const unsigned open = c->open[newcomer->local], own = share_of(c, newcomer);
	const unsigned spare = most / 8 < SPARE_MOST ? most / 8 : SPARE_MOST;
	struct connection *silent = NULL, *any = NULL, *goes;
	unsigned biggest = own;

	if (!most || open + spare <= most)
		return;
	for (struct connection *x = c->first; x; x = x->next) {
		const unsigned share = x->shut || x->local != newcomer->local ? 0 : share_of(c, x);

		if (share < biggest)
			continue;
		if (share > biggest)
			silent = any = NULL;
		biggest = share;
		if (x->phase == CONNECTION_HEADER && (!silent || x->entered_ns < silent->entered_ns))
			silent = x;
		if (!any || goes_before(x, any))
			any = x;
	}
	goes = silent ? silent : biggest > own ? any : newcomer;
	if (open <= most && (goes->phase != CONNECTION_HEADER ||
			     clock_monotonic_ns() - goes->entered_ns < SHED_AGE_NS))
		return;
	if (c->options.shed)
		c->options.shed(c->options.ctx);
	shut_down(c, goes, goes->speaks ? &too_late : NULL);
}

struct connection *connections_add(struct connections *c, int fd, bool raw)
{
	struct connection *x = calloc(1, sizeof(*x));

	if (!x)
		return NULL;
	x->fd = fd;
	x->raw = raw;
	x->group = group_of(fd, &x->local);
	(void)pthread_mutex_lock(&c->lock);
	x->next = c->first;
	x->link = &c->first;
	if (c->first)
		c->first->link = &x->next;
	c->first = x;
	c->open[x->local]++;
	x->entered_ns = clock_monotonic_ns();
	make_room(c, x);
	(void)pthread_cond_signal(&c->wake);
	(void)pthread_mutex_unlock(&c->lock);
	connections_enter(c, x, CONNECTION_HEADER, true);
	return x;
}

void connections_remove(struct connections *c, struct connection *connection)
{
	(void)pthread_mutex_lock(&c->lock);
	c->open[connection->local] -= !connection->shut;
	*connection->link = connection->next;
	if (connection->next)
		connection->next->link = connection->link;
	(void)pthread_mutex_unlock(&c->lock);
	free(connection);
}

void connections_enter(struct connections *c, struct connection *connection,
		       enum connection_phase phase, bool speaks)
{
	uint64_t timeout_ns = c->options.timeout_ns[phase];

	(void)pthread_mutex_lock(&c->lock);
	connection->phase = phase;
	connection->speaks = speaks;
	if (phase == CONNECTION_HEADER) {
		connection->request_id[0] = '\0';
		connection->family_c = false;
	}
	connection->entered_ns = clock_monotonic_ns();
	if (!connection->shut)
		connection->deadline_ns = timeout_ns ? connection->entered_ns + timeout_ns : 0;
	(void)pthread_mutex_unlock(&c->lock);
}

void connections_identify(struct connections *c, struct connection *connection, const char *target,
			  const char *request_id)
{
	(void)pthread_mutex_lock(&c->lock);
	connection->family_c = http_error_is_family_c(target);
	http_request_id(request_id, connection->request_id);
	(void)pthread_mutex_unlock(&c->lock);
}

bool connections_refuse(struct connections *c, struct connection *connection, const struct err *why)
{
	bool ours;

	(void)pthread_mutex_lock(&c->lock);
	ours = connection->raw &&
	       (connection->phase == CONNECTION_HEADER || connection->phase == CONNECTION_BODY);
	if (ours)
		shut_down(c, connection, why);
	(void)pthread_mutex_unlock(&c->lock);
	return ours;
}

uint64_t connection_group(const struct connection *connection)
{
	return connection->group;
}

int connection_fd(const struct connection *connection)
{
	return connection->fd;
}

/* The request line is complete when a request has an id. */
static bool awaits_answer(const struct connection *x, uint64_t now_ns, uint64_t silent_ns)
{
	if (x->shut)
		return false;
	return x->phase != CONNECTION_HEADER || x->request_id[0] ||
	       now_ns - x->entered_ns < silent_ns;
}

unsigned connections_awaiting(struct connections *c, uint64_t silent_ns)
{
	unsigned count = 0;
	uint64_t now_ns;

	(void)pthread_mutex_lock(&c->lock);
	now_ns = clock_monotonic_ns();
	for (const struct connection *x = c->first; x; x = x->next)
		count += awaits_answer(x, now_ns, silent_ns);
	(void)pthread_mutex_unlock(&c->lock);
	return count;
}
