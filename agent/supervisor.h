/* SPDX-License-Identifier: Apache-2.0 */
/* The main process: starts collector, symbolizer, reader and server, connects them, restarts what
 * dies and stops them in order. It holds the descriptors that must outlive any of them (the
 * listening sockets and the feed ring), and does nothing else: no parsing of outside data, no
 * profiling. Single-threaded. */
#ifndef PROFD_SUPERVISOR_H
#define PROFD_SUPERVISOR_H

#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"
#include "agent/config.h"
#include "agent/wire/control.h"

/* The arguments of a child. Its run function returns the exit status. */
struct child_context {
	const struct config *config;
	int control_fd;
	int feed_fd;	  /* -1 with --no-collect */
	int listen_fd, socket_fd;
	int cache_dir_fd; /* -1 = no cache */
	uint32_t generation;
};

struct supervisor_options {
	const struct config *config;
	int feed_fd, listen_fd, socket_fd, cache_dir_fd; /* borrowed */
	int lock_fd; /* of the data directory, borrowed; of the children only the server keeps it */
	const char *address;				 /* printed when serving */
	/* Reads the configuration again (SIGHUP): the new one, which lives until the next call has
	 * returned, or NULL after saying what is wrong with it. NULL = SIGHUP does nothing. */
	const struct config *(*reload)(void *ctx);
	/* The server refused to begin with what was read last: gives that up and returns what was
	 * before it. */
	const struct config *(*take_back)(void *ctx);
	void *reload_ctx;
	/* NULL = this process is not needed (--no-collect) */
	int (*run[ROLE_MAX])(const struct child_context *context);
};

/* Runs until SIGTERM, SIGINT or a child that cannot start; the exit status of profd. */
int supervisor_run(const struct supervisor_options *options);

#endif
