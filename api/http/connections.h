/* SPDX-License-Identifier: Apache-2.0 */
/* Open connections and their absolute deadlines. libmicrohttpd only knows an idle timeout, which a
 * client that drips one byte a second never meets. Here every phase of a request has a deadline.
 * One sweeping thread keeps the deadlines: it answers 408 where nothing was answered yet, and shuts
 * the socket down. Thread-safe. */
#ifndef PROFD_API_CONNECTIONS_H
#define PROFD_API_CONNECTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"

struct connections;
struct connection;

enum connection_phase {
	CONNECTION_HEADER, /* until the header block is complete; also between two requests */
	CONNECTION_BODY,
	CONNECTION_HANDLER, /* no deadline: calls may wait for a session by contract */
	CONNECTION_ANSWER,
	CONNECTION_PHASES,
};

struct connections_options {
	uint64_t timeout_ns[CONNECTION_PHASES]; /* 0 = none */
	/* Called under the lock when a deadline has passed; may be NULL. */
	void (*expired)(void *ctx, enum connection_phase phase);
	/* Likewise, when a connection had to make room. */
	void (*shed)(void *ctx);
	/* Connections that are served or may speak, 0 = no bound. The Unix socket has places of its
	 * own, which nobody on the network can take. If there are too many, one of the address, or
	 * of the user of the socket, that has most is shut down. */
	unsigned most, most_local;
	void *ctx;
};

int connections_create(const struct connections_options *options, struct connections **ret)
	must_use;
/* Every connection must have been removed. Ends the thread. */
void connections_destroy(struct connections *c);
CLEANUP_DEFINE(connections, struct connections *, connections_destroy);

/* @fd is borrowed until connections_remove(). @raw: plain bytes may be written to it (no TLS). NULL
 * when out of memory. */
struct connection *connections_add(struct connections *c, int fd, bool raw);
void connections_remove(struct connections *c, struct connection *connection);
/* Starts a phase and its deadline. @speaks: an answer of ours would be the first and awaited one.
 */
void connections_enter(struct connections *c, struct connection *connection,
		       enum connection_phase phase, bool speaks);
/* The request whose headers are complete: a refusal is the error document of its family, and names
 * it as the client does.
 * @request_id: NULL = the client has no name for it. */
void connections_identify(struct connections *c, struct connection *connection, const char *target,
			  const char *request_id);
/* Before a request has reached its handler: writes the refusal on the connection, to which nobody
 * else writes then, and shuts it down. False, with nothing done, where that is too late or bytes
 * cannot be written (TLS). */
bool connections_refuse(struct connections *c, struct connection *connection,
			const struct err *why);
/* How many clients may still wait for an answer: their request is being read or served, or they
 * have connected or been answered less than @silent_ns ago, so that a request may be on its way. */
unsigned connections_awaiting(struct connections *c, uint64_t silent_ns);
/* The client of a connection: one user of the Unix socket, one IPv4 address, one IPv6 network of 64
 * bits. All loopback addresses are one client. */
uint64_t connection_group(const struct connection *connection);
int connection_fd(const struct connection *connection);

#endif
