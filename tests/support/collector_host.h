/* SPDX-License-Identifier: Apache-2.0 */
/* A collector and a symbolizer as they run in production; the test is their supervisor and their
 * server. What fails ends the test. One thread. */
#ifndef PROFD_TESTS_SUPPORT_COLLECTOR_HOST_H
#define PROFD_TESTS_SUPPORT_COLLECTOR_HOST_H

#include <stdint.h>
#include <sys/types.h>

#include "agent/collect/collector.h"
#include "agent/wire/control.h"
#include "tests/support/feed_view.h"

struct collector_host {
	pid_t collector, symbolizer;
	int control, server, feed_fd, symbolizer_control;
	unsigned generation;
	struct feed_view view;
};

/* Returns when what runs on this machine is known. @options without descriptors and budgets. */
void collector_host_start(struct collector_host *host, struct collector_options options);
/* Ends all, or only the collector, after which the view has all that it wrote, and then the
 * rest. */
void collector_host_stop(struct collector_host *host);
void collector_host_stop_collector(struct collector_host *host);
void collector_host_end(struct collector_host *host);
/* Another symbolizer, after collector_host_kill_symbolizer(). */
void collector_host_symbolize(struct collector_host *host);
void collector_host_kill_symbolizer(struct collector_host *host);
/* Sends a process on @control the channel to its peer, and closes @fd. */
void collector_host_send_peer(int control, enum role role, int fd, unsigned generation);
/* CPU samples of all that nobody has decided on; a rate of 0 ends them. Returns when it is in
 * force: sampling waits for the unwind tables of what runs. @fast_hz: of processes that are decided
 * to be sampled by events of their own. */
void collector_host_demand(struct collector_host *host, uint32_t rate_hz);
void collector_host_demand_fast(struct collector_host *host, uint32_t rate_hz, uint32_t fast_hz);
void collector_host_decide(struct collector_host *host, uint32_t proc, uint32_t wanted);

#endif
