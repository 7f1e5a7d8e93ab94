/* SPDX-License-Identifier: Apache-2.0 */
/* The whole reader process, with its own privileges, as the supervisor and the server see it. */
#ifndef PROFD_TESTS_READER_PEER_H
#define PROFD_TESTS_READER_PEER_H

#include <stdint.h>
#include <sys/types.h>

#include "agent/wire/control.h"
#include "tests/support/read_collect.h"

struct reader_peer {
	pid_t pid;
	int control_fd;
	int server_fd;
	uint32_t next_request;
	char text[512]; /* of the last failure */
};

void reader_peer_start(struct reader_peer *c);
/* Stops it by CONTROL_STOP; its exit status. */
int reader_peer_stop(struct reader_peer *c);
/* Sends a request and collects the answer (released with read_collect_deinit()); the final status.
 */
int reader_peer_ask(struct reader_peer *c, const struct control_read_target *request,
		      struct read_collect *ret);

#endif
