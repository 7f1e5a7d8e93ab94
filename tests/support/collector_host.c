// SPDX-License-Identifier: Apache-2.0
#include "tests/support/collector_host.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/channel.h"
#include "agent/wire/control.h"
#include "symbolize/symbolizer.h"
#include "tests/support/collector_child.h"

/* ---- supervisor --------------------------------------------------------------------------------
 */

void collector_host_send_peer(int control, enum role role, int fd, unsigned generation)
{
	struct control_peer peer = { .head = { .kind = CONTROL_PEER },
				     .role = role,
				     .generation = generation };

	assert_int_equal(channel_send_wait(control, &peer, sizeof(peer), &fd, 1, 1000), 0);
	(void)close(fd);
}

void collector_host_symbolize(struct collector_host *host)
{
	struct symbolizer_options options = { .cache_dir_fd = -1, .memory_bytes = 64u << 20 };
	int control[2], peers[2];

	assert_int_equal(channel_pair(control), 0);
	assert_int_equal(channel_pair(peers), 0);
	host->symbolizer = fork();
	if (host->symbolizer == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)close(control[0]);
		(void)close(peers[0]);
		(void)close(peers[1]);
		(void)close(host->control);
		(void)close(host->server);
		options.control_fd = control[1];
		_exit(symbolizer_run(&options));
	}
	assert_true(host->symbolizer > 0);
	(void)close(control[1]);
	host->symbolizer_control = control[0];
	collector_host_send_peer(control[0], ROLE_COLLECTOR, peers[0], ++host->generation);
	collector_host_send_peer(host->control, ROLE_SYMBOLIZER, peers[1], host->generation);
}

void collector_host_kill_symbolizer(struct collector_host *host)
{
	(void)kill(host->symbolizer, SIGKILL);
	(void)waitpid(host->symbolizer, NULL, 0);
	(void)close(host->symbolizer_control);
}

static void wait_ready(struct collector_host *host)
{
	static struct channel_message message;
	struct pollfd wait = { .fd = host->control, .events = POLLIN };

	assert_int_equal(poll(&wait, 1, 60000), 1);
	assert_int_equal(channel_receive(host->control, &message), 1);
	assert_int_equal(((struct channel_head *)message.data)->kind, CONTROL_READY);
}

/* Waits until what runs on this machine is indexed: no new module for half a second. */
static void settle(struct feed_view *view)
{
	size_t before = 0, quiet = 0;

	for (int i = 0; i < 100 && quiet < 5; i++) {
		feed_view_run(view, 100);
		quiet = view->module_count == before && before > 2 ? quiet + 1 : 0;
		before = view->module_count;
	}
}

void collector_host_start(struct collector_host *host, struct collector_options options)
{
	struct collector_child child;

	options.generation = 1;
	options.memory_budget_bytes = 256u << 20;
	options.cpu_budget_pct = 50;
	collector_child_start(&child, options);
	*host = (struct collector_host){ .collector = child.pid,
					 .control = child.control,
					 .server = child.server,
					 .feed_fd = child.feed_fd };
	collector_host_symbolize(host);
	collector_host_send_peer(host->control, ROLE_SERVER, child.server_peer, 1);
	wait_ready(host);
	feed_view_init(&host->view, host->feed_fd);
	settle(&host->view);
}

void collector_host_end(struct collector_host *host)
{
	collector_host_kill_symbolizer(host);
	feed_view_deinit(&host->view);
	(void)close(host->control);
	(void)close(host->server);
	(void)close(host->feed_fd);
}

void collector_host_stop_collector(struct collector_host *host)
{
	collector_child_stop(host->collector, host->control);
	feed_view_read(&host->view);
}

void collector_host_stop(struct collector_host *host)
{
	collector_host_stop_collector(host);
	collector_host_end(host);
}

/* ---- server ------------------------------------------------------------------------------------
 */

/* Returns when something is in force: sampling waits for the unwind tables of what runs. @fast_hz:
 * of processes that are decided to be sampled by events of their own. */
void collector_host_demand_fast(struct collector_host *host, uint32_t rate_hz, uint32_t fast_hz)
{
	struct control_demand message = { .head = { .kind = CONTROL_DEMAND },
					  .types = rate_hz ? PROF_WANT_CPU : 0,
					  .rate_hz = rate_hz,
					  .fast_hz = fast_hz,
					  .sample_undecided = 1 };
	const struct feed_demand *now = &host->view.demand;
	unsigned before = host->view.demands;

	assert_int_equal(channel_send(host->server, &message, sizeof(message), NULL, 0), 0);
	for (int i = 0; i < 600 && host->view.demands == before &&
			(now->rate_hz != rate_hz || now->fast_hz != fast_hz);
	     i++)
		feed_view_run(&host->view, 100);
}

void collector_host_demand(struct collector_host *host, uint32_t rate_hz)
{
	collector_host_demand_fast(host, rate_hz, 0);
	assert_int_equal(host->view.demand.rate_hz, rate_hz);
}

void collector_host_decide(struct collector_host *host, uint32_t proc, uint32_t wanted)
{
	struct control_target message = { .head = { .kind = CONTROL_TARGET },
					  .proc = proc,
					  .wanted = wanted };

	assert_int_equal(channel_send(host->server, &message, sizeof(message), NULL, 0), 0);
}
