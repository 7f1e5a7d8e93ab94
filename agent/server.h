/* SPDX-License-Identifier: Apache-2.0 */
/* The server process: feed in, HTTP out. Composes agent/session, agent/store and api/ (server.c);
 * no capability, no /proc of others. */
#ifndef PROFD_SERVER_H
#define PROFD_SERVER_H

#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"
#include "agent/config.h"

struct server_options {
	const struct config *config; /* borrowed for the life of the process */
	int control_fd; /* channel to the supervisor */
	int feed_fd;	/* memfd of the ring from the collector, -1 with --no-collect */
	int listen_fd;	/* bound by the supervisor, so that a restart keeps the port and refuses nothing */
	int socket_fd;	/* Unix socket, -1 = none */
	uint32_t generation;
	const char *(*features)(void); /* lines of `profd --features` as far as this daemon has found;
					* borrowed; NULL = it does not profile this host */
};

/* Whether a server could begin with @config, whatever its store holds. Files of keys and
 * certificates are read and parsed in a child, which gives up its privileges in between as the
 * server does. -EINVAL with what is wrong. */
int server_try(const struct config *config, struct err *err) must_use;
/* Checks whether a start with @config may listen where other hosts reach it. -EACCES with the same
 * sentence as the start. */
int server_check_listener(const struct config *config, struct err *err) must_use;
int server_run(const struct server_options *options);

#endif
