// SPDX-License-Identifier: Apache-2.0
#include <arpa/inet.h>
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/collect/proc/proc_ports.h"

static void lines_of_the_kernel(void **state)
{
	static const struct {
		const char *line;
		int rc;
		uint64_t inode;
		uint16_t port;
	} cases[] = {
		{ "   0: 00000000:07E8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0"
		  "        0 649 1 00000000c8b51496 100 0 0 10 0\n",
		  1, 649, 2024 },
		{ "  17: 0100007F:1F98 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000"
		  "        0 77 1 0000000000000000 100 0 0 10 0\n",
		  0, 0, 0 },
		{ "   1: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A "
		  "00000000:00000000 00:00000000 00000000 33 0 18446744073709551615 1 0 100 0 0 10 0\n",
		  1, UINT64_MAX, 80 },
		{ "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt\n", -EINVAL,
		  0, 0 },
		{ "", -EINVAL, 0, 0 },
		{ "   0: 00000000:07E8 00000000:0000 0A 00000000", -EINVAL, 0, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t inode = 0;
		uint16_t port = 0;

		assert_int_equal(proc_ports_parse_line(cases[i].line, &inode, &port), cases[i].rc);
		assert_true(inode == cases[i].inode);
		assert_int_equal(port, cases[i].port);
	}
}

static int listen_on(int family, uint16_t *port)
{
	struct sockaddr_in6 address = { .sin6_family = (sa_family_t)family };
	socklen_t len = sizeof(address);
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	address.sin6_port = htons(*port);
	if (bind(fd, (struct sockaddr *)&address,
		 family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(address)) < 0 ||
	    listen(fd, 1) < 0 || getsockname(fd, (struct sockaddr *)&address, &len) < 0) {
		(void)close(fd);
		return -1;
	}
	*port = ntohs(address.sin6_port); /* at the same place in both families */
	return fd;
}

static void own_listeners_are_found(void **state)
{
	cleanup(proc_ports) struct proc_ports *ports = proc_ports_create();
	char text[PROC_PORTS_TEXT_SIZE], want[32];
	uint16_t port = 0, later = 0, first, second;
	int fd, later_fd;

	/* The listeners are not read for a process without sockets: one that comes then is found. */
	assert_int_equal(proc_ports_read(ports, (uint32_t)getpid(), text), 0);
	assert_string_equal(text, "");
	fd = listen_on(AF_INET, &port);
	assert_true(fd >= 0);
	assert_int_equal(proc_ports_read(ports, (uint32_t)getpid(), text), 0);
	(void)snprintf(want, sizeof(want), "%u", port);
	assert_string_equal(text, want);
	/* Listeners are remembered until they are asked for anew. */
	later_fd = listen_on(AF_INET, &later);
	assert_true(later_fd >= 0);
	assert_int_equal(proc_ports_read(ports, (uint32_t)getpid(), text), 0);
	assert_string_equal(text, want);
	proc_ports_reset(ports);
	assert_int_equal(proc_ports_read(ports, (uint32_t)getpid(), text), 0);
	first = port < later ? port : later;
	second = port < later ? later : port;
	(void)snprintf(want, sizeof(want), "%u,%u", first, second);
	assert_string_equal(text, want);
	(void)close(later_fd);
	(void)close(fd);
	proc_ports_reset(ports);
	assert_int_equal(proc_ports_read(ports, (uint32_t)getpid(), text), 0);
	assert_string_equal(text, "");
	strcpy(text, "kept");
	assert_true(proc_ports_read(ports, 0x7ffffffe, text) < 0);
	assert_string_equal(text, "kept");
}

/* A process in a network namespace of its own that listens; ends when @end_fd is closed. */
static pid_t start_elsewhere(int end_fd, int write_fd, uint16_t *ret_port)
{
	int ready[2];
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		uint16_t port = 0;
		char none;

		(void)close(write_fd);
		if (unshare(CLONE_NEWNET) < 0 || listen_on(AF_INET, &port) < 0)
			port = 0;
		(void)!write(ready[1], &port, sizeof(port));
		(void)!read(end_fd, &none, 1);
		_exit(0);
	}
	assert_true(pid > 0);
	assert_int_equal(read(ready[0], ret_port, sizeof(*ret_port)), sizeof(*ret_port));
	(void)close(ready[0]);
	(void)close(ready[1]);
	return pid;
}

/* As on a host of many containers. */
static void many_namespaces_are_read(void **state)
{
	cleanup(proc_ports) struct proc_ports *ports = proc_ports_create();
	char text[PROC_PORTS_TEXT_SIZE], want[32];
	uint16_t port[70];
	pid_t pid[70];
	int end[2];

	if (geteuid() != 0)
		skip();
	assert_int_equal(pipe(end), 0);
	for (size_t i = 0; i < 70; i++) {
		pid[i] = start_elsewhere(end[0], end[1], &port[i]);
		assert_true(port[i] != 0);
	}
	for (unsigned turn = 0; turn < 2; turn++) {
		for (size_t i = 0; i < 70; i++) {
			(void)snprintf(want, sizeof(want), "%u", port[i]);
			assert_int_equal(proc_ports_read(ports, (uint32_t)pid[i], text), 0);
			assert_string_equal(text, want);
		}
	}
	(void)close(end[1]);
	for (size_t i = 0; i < 70; i++)
		assert_int_equal(waitpid(pid[i], NULL, 0), pid[i]);
	(void)close(end[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lines_of_the_kernel),
		cmocka_unit_test(own_listeners_are_found),
		cmocka_unit_test(many_namespaces_are_read),
	};

	return cmocka_run_group_tests_name("proc_ports", tests, NULL, NULL);
}
