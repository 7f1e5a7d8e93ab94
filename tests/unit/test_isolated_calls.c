// SPDX-License-Identifier: Apache-2.0
/* Calls that do not come back: who waits in vfork() waits as who needs the lock of an address space
 * does, where nothing but SIGKILL ends it, until the child ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "agent/base/clock.h"
#include "agent/collect/proc/isolation.h"

#define OTHERS (ISOLATION_USERS_MAX + 1)

struct call {
	int end_fd; /* a byte from it: the call returns */
	int value;
};

static unsigned dropped;

static int double_it(void *data)
{
	struct call *call = data;

	call->value *= 2;
	return -call->value;
}

static int hang(void *data)
{
	struct call *call = data;
	char byte;

	if (vfork() == 0) { /* NOLINT: it is the waiting that is wanted */
		(void)!read(call->end_fd, &byte, 1);
		_exit(0);
	}
	return double_it(data);
}

static void drop(void *data)
{
	dropped += (unsigned)((struct call *)data)->value;
}

static void a_call_is_as_if_made_here(void **state)
{
	cleanup(isolation) struct isolation *isolation = isolation_create();
	struct call call = { .value = 21 };

	assert_int_equal(isolation_call(NULL, 1, double_it, drop, &call, sizeof(call)), -42);
	assert_int_equal(isolation_call(isolation, 1, double_it, drop, &call, sizeof(call)), -84);
	assert_int_equal(call.value, 84);
	assert_int_equal(isolation_left(isolation), 0);
	assert_int_equal(dropped, 0);
}

static pid_t other_process(void)
{
	pid_t pid = fork();

	if (pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			(void)pause();
	}
	return pid;
}

static void what_hangs_is_left_behind(void **state)
{
	cleanup(isolation) struct isolation *isolation = isolation_create();
	struct call call = { .value = 1 };
	pid_t pids[OTHERS];
	int fds[2];

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	call.end_fd = fds[0];
	for (unsigned i = 0; i < OTHERS; i++)
		pids[i] = other_process();
	for (unsigned i = 0; i < ISOLATION_USERS_MAX; i++) {
		assert_int_equal(
			isolation_call(isolation, (uint32_t)pids[i], hang, drop, &call, sizeof(call)),
			-ETIMEDOUT);
		assert_int_equal(isolation_left(isolation), i + 1);
		/* nobody goes there again, and all others are asked */
		assert_int_equal(isolation_call(isolation, (uint32_t)pids[i], double_it, drop, &call,
					      sizeof(call)),
				 -ETIMEDOUT);
		assert_int_equal(call.value, 1);
		if (i + 1 < ISOLATION_USERS_MAX)
			assert_int_equal(isolation_call(isolation, (uint32_t)pids[i + 1], double_it, NULL,
						      &(struct call){ .value = 3 }, sizeof(call)),
					 -6);
	}
	/* that user has had his share */
	assert_int_equal(isolation_call(isolation, (uint32_t)pids[OTHERS - 1], double_it, NULL, &call,
				      sizeof(call)),
			 -ETIMEDOUT);
	for (unsigned i = 0; i < ISOLATION_USERS_MAX; i++)
		assert_int_equal(write(fds[1], "", 1), 1);
	for (int i = 0; i < 6000 && isolation_left(isolation); i++) {
		(void)usleep(10000);
		(void)!isolation_call(isolation, (uint32_t)pids[OTHERS - 1], double_it, NULL, &call,
				      sizeof(call));
	}
	assert_int_equal(isolation_left(isolation), 0);
	assert_int_equal(dropped, 2 * ISOLATION_USERS_MAX);
	(void)close(fds[0]);
	(void)close(fds[1]);
	for (unsigned i = 0; i < OTHERS; i++) {
		assert_int_equal(kill(pids[i], SIGKILL), 0);
		assert_int_equal(waitpid(pids[i], NULL, 0), pids[i]);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_call_is_as_if_made_here),
		cmocka_unit_test(what_hangs_is_left_behind),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
