/* SPDX-License-Identifier: Apache-2.0 */
/* A collector in a process of its own, as the supervisor starts it. */
#ifndef PROFD_TESTS_SUPPORT_COLLECTOR_CHILD_H
#define PROFD_TESTS_SUPPORT_COLLECTOR_CHILD_H

#include <sys/types.h>

#include "agent/collect/collector.h"

struct collector_child {
	pid_t pid;
	int control;	 /* the supervisor's end; the caller's, as the others */
	int server;	 /* the server's end */
	int server_peer; /* its other end, to be sent to the collector with CONTROL_PEER */
	int feed_fd;
};

/* @options without descriptors. It has not said that it is ready. */
void collector_child_start(struct collector_child *ret, struct collector_options options);
/* Tells it to stop, and waits until it has, without an error. */
void collector_child_stop(pid_t pid, int control);

#endif
