/* SPDX-License-Identifier: Apache-2.0 */
/* The whole reader process, with its own privileges, as the supervisor and the server see it. */
#ifndef PROFD_TESTS_READER_CLIENT_H
#define PROFD_TESTS_READER_CLIENT_H

#include <stdint.h>
#include <sys/types.h>

#include "agent/wire/control.h"
#include "tests/support/read_collect.h"

struct reader_client {
	pid_t pid;
	int control_fd;
	int server_fd;
	uint32_t next_request;
	char text[512]; /* of the last failure */
};

void reader_client_start(struct reader_client *c);
/* Stops it by CONTROL_STOP; its exit status. */
int reader_client_stop(struct reader_client *c);
/* Sends a request and collects the answer (released with read_collect_deinit()); the final status.
 */
int reader_client_ask(struct reader_client *c, const struct control_read_target *request,
		      struct read_collect *ret);

#endif
