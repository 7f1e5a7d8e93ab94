// SPDX-License-Identifier: Apache-2.0
#include "tests/support/collector_child.h"

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
#include "agent/base/ring.h"
#include "agent/wire/control.h"

#define FEED_BYTES (16u << 20)

void collector_child_start(struct collector_child *ret, struct collector_options options)
{
	int control[2], server[2];

	*ret = (struct collector_child){ .feed_fd = ring_create(FEED_BYTES) };
	assert_true(ret->feed_fd >= 0);
	assert_int_equal(channel_pair(control), 0);
	assert_int_equal(channel_pair(server), 0);
	ret->pid = fork();
	if (ret->pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)close(control[0]);
		(void)close(server[0]);
		options.control_fd = control[1];
		options.feed_fd = ret->feed_fd;
		_exit(collector_run(&options));
	}
	assert_true(ret->pid > 0);
	(void)close(control[1]);
	ret->control = control[0];
	ret->server = server[0];
	ret->server_peer = server[1];
}

void collector_child_stop(pid_t pid, int control)
{
	const struct channel_head stop = { .kind = CONTROL_STOP };
	int status;

	assert_int_equal(channel_send(control, &stop, sizeof(stop), NULL, 0), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}
