// SPDX-License-Identifier: Apache-2.0
/* Decisions on processes that come too late: the collector leaves nothing of them in the kernel. */
#include <bpf/bpf.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/channel.h"
#include "agent/base/cleanup.h"
#include "agent/base/io.h"
#include "agent/collect/collector.h"
#include "agent/wire/control.h"
#include "tests/support/bpf_target.h"
#include "tests/support/collector_child.h"
#include "tests/support/feed_view.h"

#define ROUNDS 2
#define TRIES  600 /* of 100 ms */

static const char sleeper_source[] = "#include <stdio.h>\n#include <unistd.h>\n"
				     "int main(void) { puts(\"x\"); fflush(stdout); pause(); return 0; }\n";

struct host {
	pid_t collector;
	int control, server, feed_fd;
	struct feed_view view;
};

static void start_host(struct host *host)
{
	const struct control_peer peer = { .head = { .kind = CONTROL_PEER },
					   .role = ROLE_SERVER,
					   .generation = 1 };
	const struct collector_options options = { .generation = 1,
						   .cpu_budget_pct = 50,
						   .features = bpf_target_features(NULL) };
	static struct channel_message message;
	struct collector_child child;

	collector_child_start(&child, options);
	*host = (struct host){ .collector = child.pid,
			       .control = child.control,
			       .server = child.server,
			       .feed_fd = child.feed_fd };
	assert_int_equal(
		channel_send_wait(host->control, &peer, sizeof(peer), &child.server_peer, 1, 1000),
		0);
	(void)close(child.server_peer);
	assert_int_equal(poll(&(struct pollfd){ .fd = host->control, .events = POLLIN }, 1, 60000), 1);
	assert_int_equal(channel_receive(host->control, &message), 1);
	feed_view_init(&host->view, host->feed_fd);
}

static void stop_host(struct host *host)
{
	collector_child_stop(host->collector, host->control);
	feed_view_deinit(&host->view);
	(void)close(host->control);
	(void)close(host->server);
	(void)close(host->feed_fd);
}

/* A descriptor of the map behind one of the collector's, the caller's; -1: it is not that of @name.
 */
static int map_behind(pid_t collector, const char *number, const char *name)
{
	struct bpf_map_info info = { 0 };
	uint32_t size = sizeof(info);
	cleanup_close int fd = -1;
	char path[320], text[1024];
	const char *line;

	(void)snprintf(path, sizeof(path), "/proc/%d/fdinfo/%s", collector, number);
	if (io_read_small(AT_FDCWD, path, text, sizeof(text)) < 0 || !(line = strstr(text, "\nmap_id:")))
		return -1;
	fd = bpf_map_get_fd_by_id((uint32_t)strtoul(line + strlen("\nmap_id:"), NULL, 10));
	if (fd < 0 || bpf_obj_get_info_by_fd(fd, &info, &size) < 0 || strcmp(info.name, name) != 0)
		return -1;
	return take_fd(&fd);
}

static int map_of(pid_t collector, const char *name)
{
	struct dirent *entry;
	char path[32];
	int found = -1;
	DIR *dir;

	(void)snprintf(path, sizeof(path), "/proc/%d/fdinfo", collector);
	dir = opendir(path);
	assert_non_null(dir);
	while (found < 0 && (entry = readdir(dir)))
		found = map_behind(collector, entry->d_name, name);
	(void)closedir(dir);
	assert_true(found >= 0);
	return found;
}

static bool is_decided(int targets, pid_t pid)
{
	struct prof_target target;

	return bpf_map_lookup_elem(targets, &pid, &target) == 0;
}

static void decide(struct host *host, uint32_t proc, uint32_t wanted)
{
	const struct control_target message = { .head = { .kind = CONTROL_TARGET },
						.proc = proc,
						.wanted = wanted };

	assert_int_equal(channel_send(host->server, &message, sizeof(message), NULL, 0), 0);
}

/* The id by which the collector has told of @pid. */
static uint32_t await_told(struct feed_view *view, pid_t pid)
{
	for (int i = 0; i < TRIES && !feed_view_tgid(view, (uint32_t)pid); i++)
		feed_view_run(view, 100);
	assert_non_null(feed_view_tgid(view, (uint32_t)pid));
	return feed_view_tgid(view, (uint32_t)pid)->fixed.proc;
}

/* The process ends in the kernel before the collector knows, and in between it is decided on. */
static void a_decision_on_a_process_that_has_ended_leaves_nothing(void **state)
{
	cleanup_free char *path = bpf_target_compile("ending", sleeper_source, "-O2");
	struct host host;
	int targets;

	start_host(&host);
	targets = map_of(host.collector, "targets");
	for (int round = 0; round < ROUNDS; round++) {
		pid_t pid = bpf_target_start(path, NULL);
		uint32_t proc = await_told(&host.view, pid);

		decide(&host, proc, PROF_WANT_CPU);
		for (int i = 0; i < TRIES && !is_decided(targets, pid); i++)
			feed_view_run(&host.view, 100);
		assert_true(is_decided(targets, pid));
		assert_int_equal(kill(host.collector, SIGSTOP), 0);
		bpf_target_stop(pid);
		assert_false(is_decided(targets, pid));
		decide(&host, proc, PROF_WANT_NONE);
		assert_int_equal(kill(host.collector, SIGCONT), 0);
		(void)feed_view_await_exit(&host.view, pid);
		assert_false(is_decided(targets, pid));
	}
	(void)close(targets);
	stop_host(&host);
}

static int teardown(void **state)
{
	bpf_target_cleanup();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_decision_on_a_process_that_has_ended_leaves_nothing),
	};

	if (bpf_target_skip())
		return 0;
	return cmocka_run_group_tests_name("decisions", tests, NULL, teardown);
}
