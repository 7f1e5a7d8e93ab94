// SPDX-License-Identifier: Apache-2.0
/* The supervisor and a child that says that it cannot start: when that ends the daemon, and when
 * not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/base/channel.h"
#include "agent/config.h"
#include "agent/supervisor.h"
#include "agent/wire/control.h"

static int told_fds[2]; /* a byte when the second server process runs */
static bool says_ready;

static void say(int fd, uint16_t kind)
{
	const struct channel_head head = { .kind = kind };
	struct control_failed failed = { .head = head, .text = "it cannot start" };

	if (kind == CONTROL_FAILED)
		(void)!channel_send_wait(fd, &failed, sizeof(failed), NULL, 0, 5000);
	else
		(void)!channel_send_wait(fd, &head, sizeof(head), NULL, 0, 5000);
}

static void await_stop(int fd)
{
	static struct channel_message message;
	const struct channel_head *head = (const void *)message.data;

	do {
		(void)usleep(1000);
		while (channel_receive(fd, &message) == 1)
			if (head->kind == CONTROL_STOP)
				return;
	} while (getppid() != 1);
}

/* The first process of the server says that it cannot start, and ends; the next one serves. */
static int run_server(const struct child_context *c)
{
	if (c->generation == 1) {
		if (says_ready)
			say(c->control_fd, CONTROL_READY);
		say(c->control_fd, CONTROL_FAILED);
		return 0;
	}
	say(c->control_fd, CONTROL_READY);
	if (write(told_fds[1], "2", 1) != 1)
		return 1;
	await_stop(c->control_fd);
	return 0;
}

static _Noreturn void supervise(void)
{
	struct config config = { 0 };
	struct err err = { 0 };
	struct supervisor_options options = { .config = &config,
					      .feed_fd = -1,
					      .listen_fd = -1,
					      .socket_fd = -1,
					      .cache_dir_fd = -1,
					      .lock_fd = -1,
					      .address = "nowhere",
					      .run = { [ROLE_SERVER] = run_server } };

	(void)close(told_fds[0]);
	if (config_load(&config, "/nonexistent", false, &err) < 0)
		_exit(99);
	_exit(supervisor_run(&options));
}

/* Whether a second server process came; @ret_status: how the supervisor ended. */
static bool has_second(bool ready, int *ret_status)
{
	char byte = 0;
	pid_t pid;
	bool second;

	says_ready = ready;
	assert_int_equal(pipe(told_fds), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		supervise();
	(void)close(told_fds[1]);
	second = read(told_fds[0], &byte, 1) == 1; /* or all of them have ended */
	(void)close(told_fds[0]);
	if (second)
		assert_int_equal(kill(pid, SIGTERM), 0);
	assert_int_equal(waitpid(pid, ret_status, 0), pid);
	assert_true(WIFEXITED(*ret_status));
	return second;
}

static void test_cannot_start(void **state)
{
	int status;

	assert_false(has_second(false, &status));
	assert_int_equal(WEXITSTATUS(status), 1);
}

/* A child that was ready parses hostile input, so its message of failure does not end the
 * daemon. */
static void test_says_so_later(void **state)
{
	int status;

	assert_true(has_second(true, &status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cannot_start),
		cmocka_unit_test(test_says_so_later),
	};

	return cmocka_run_group_tests_name("supervisor", tests, NULL, NULL);
}
