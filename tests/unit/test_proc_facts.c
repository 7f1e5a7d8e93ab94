// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/collect/proc/proc_facts.h"

/* Whoever has ended is told from whose first thread has. */
static void ended(void **state)
{
	static const struct {
		const char *text;
		bool ended;
	} cases[] = {
		{ "7 (cat) S 42 7 7 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 1234 1 2\n", false },
		{ "7 (cat) Z 42 7 7 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 1234 0 0\n", true },
		{ "7 (cat) X 42 7 7 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 0 0 1234 0 0\n", true },
		{ "7 (Z) S 42 7 7 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 1234 0 0\n", false },
		{ "7 (cat) Z 42 7 7 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 2 0 1234 0 0\n", false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct proc_facts got = { .ended = !cases[i].ended };

		assert_int_equal(proc_facts_parse_stat(cases[i].text, &got), 0);
		assert_int_equal(got.ended, cases[i].ended);
	}
}

/* Where it lies tells a fork from a program that was executed anew. */
static void layouts(void **state)
{
	static const char line[] =
		"7 (a) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 9 1 2 3 4 5 %d 7 8 9 0 0 "
		"0 0 0 0 0 0 0 0 0 0 0 20 21 %d 23 24 %d %d 0\n";
	struct proc_facts one = { 0 }, other = { 0 };
	char text[256];

	(void)snprintf(text, sizeof(text), line, 6, 22, 25, 26);
	assert_int_equal(proc_facts_parse_stat(text, &one), 0);
	assert_true(one.layout);
	for (int field = 0; field < 4; field++) {
		(void)snprintf(text, sizeof(text), line, 6 + (field == 0), 22 + (field == 1),
			       25 + (field == 2), 26 + (field == 3));
		assert_int_equal(proc_facts_parse_stat(text, &other), 0);
		assert_int_not_equal(one.layout, other.layout);
	}
	(void)snprintf(text, sizeof(text), line, 0, 22, 25, 26); /* it may not be seen */
	assert_int_equal(proc_facts_parse_stat(text, &other), 0);
	assert_int_equal(other.layout, 0);
}

static void stat_lines(void **state)
{
	static const struct {
		const char *text;
		int rc;
		const char *comm;
		uint32_t parent;
		bool kthread;
		uint64_t start_ns;
	} cases[] = {
		{ "7 (cat) S 42 7 7 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 1234 1 2\n", 0, "cat", 42,
		  false, 12340000000ull },
		{ "7 (a) b (c)) R 2 0 0 0 -1 69238880 0 0 0 0 0 0 0 0 20 0 1 0 9 0 0\n", 0,
		  "a) b (c)", 2, true, 90000000ull },
		{ "7 (\n1 (x) S 9) S 42 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1 1 2\n", 0, "\n1 (x) S 9",
		  42, false, 10000000ull },
		{ "7 (0123456789abcdefgh) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1 1 2\n", 0,
		  "0123456789abcde", 1, false, 10000000ull },
		{ "", -EINVAL, 0, 0, 0, 0 },
		{ "7 (cat", -EINVAL, 0, 0, 0, 0 },
		{ "7 )cat( S 1", -EINVAL, 0, 0, 0, 0 },
		{ "7 (cat) S 42 7 7 0 -1 4194304 0 0 0 0", -EINVAL, 0, 0, 0, 0 },
		{ "7 (cat) S -1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1 1 2\n", -EINVAL, 0, 0, 0, 0 },
		{ "7 (cat) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 18446744073709551615 1\n",
		  -EINVAL, 0, 0, 0, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct proc_facts got = { .uid = 7 };

		assert_int_equal(proc_facts_parse_stat(cases[i].text, &got), cases[i].rc);
		if (cases[i].rc < 0)
			continue;
		assert_string_equal(got.comm, cases[i].comm);
		assert_int_equal(got.parent_tgid, cases[i].parent);
		assert_int_equal(got.kthread, cases[i].kthread);
		assert_true(got.start_boottime_ns == cases[i].start_ns);
		assert_int_equal(got.uid, 7);
	}
}

static void cgroup_files(void **state)
{
	static const struct {
		const char *name, *text, *want;
	} cases[] = {
		{ "v2", "0::/system.slice/nginx.service\n", "/system.slice/nginx.service" },
		{ "v2 root", "0::/\n", "/" },
		{ "hybrid, systemd in v1",
		  "9:name=systemd:/system.slice/a.service\n4:memory:/system.slice/a.service\n0::/\n",
		  "/system.slice/a.service" },
		{ "hybrid, both",
		  "1:name=systemd:/user.slice/x\n0::/user.slice/user-1000.slice/session-2.scope\n",
		  "/user.slice/user-1000.slice/session-2.scope" },
		{ "v1 without systemd",
		  "3:cpu,cpuacct:/\n2:memory:/docker/0123abcd\n1:pids:/docker\n0::/\n",
		  "/docker/0123abcd" },
		{ "colon in path", "0::/kubepods/cri-containerd:abc:def\n",
		  "/kubepods/cri-containerd:abc:def" },
		{ "no newline at the end", "0::/a", "/a" },
		{ "empty", "", "" },
		{ "garbage", "x\n:\n::\n0::\n\n", "" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char got[64];

		proc_facts_parse_cgroup(cases[i].text, got, sizeof(got));
		if (strcmp(got, cases[i].want) != 0)
			fail_msg("%s: got %s", cases[i].name, got);
	}
	{
		char small[5];

		proc_facts_parse_cgroup("0::/abcdefgh\n", small, sizeof(small));
		assert_string_equal(small, "/abc");
	}
}

static void only_three_variables_are_kept(void **state)
{
	static const char text[] = "PATH=/bin\0OTEL_SERVICE_NAME=shop\0SECRET=x\0"
				   "DD_SERVICE=a\nb\0XOTEL_SERVICE_NAME=no\0"
				   "OTEL_RESOURCE_ATTRIBUTES=service.name=k,x=y\0OTEL_SERVICE_NAME";
	char got[256];
	char tiny[8];

	(void)proc_facts_parse_environ(text, sizeof(text), got, sizeof(got));
	assert_string_equal(got, "OTEL_SERVICE_NAME=shop\nDD_SERVICE=a b\n"
				 "OTEL_RESOURCE_ATTRIBUTES=service.name=k,x=y\n");
	(void)proc_facts_parse_environ(text, sizeof(text), tiny, sizeof(tiny));
	assert_string_equal(tiny, "");
	(void)proc_facts_parse_environ("DD_SERVICE=cut", 12, got, sizeof(got));
	assert_string_equal(got, "DD_SERVICE=c\n");
}

/* A program that changes its title writes over its arguments and its environment. */
static void an_overwritten_environment_is_told(void **state)
{
	static const struct {
		const char *text;
		size_t len;
		bool holds;
	} cases[] = {
		{ "", 0, true }, /* the program was started with none */
		{ "_=/bin/x\0SHELL=", 15, true },
		{ "PATH=/bin\0\0\0", 12, true },
		{ "\0\0\0\0", 4, false },
		{ "r process", 9, false },
		{ "b [local] x=1\0\0", 15, false },
		{ "=C:=x\0", 6, false },
		{ "    ", 4, false },
		{ "er\0DD_SERVICE=a\0", 16, true }, /* the title ends before */
	};
	char got[64];

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		if (proc_facts_parse_environ(cases[i].text, cases[i].len, got, sizeof(got)) !=
		    cases[i].holds)
			fail_msg("case %zu", i);
	assert_string_equal(got, "DD_SERVICE=a\n");
	assert_int_equal(proc_facts_own_environment("DD_SERVICE=a\nOTEL_SERVICE_NAME=b\nk8s.x=y\n"), 33);
	assert_int_equal(proc_facts_own_environment("container.name=x\nDD_SERVICE=a\n"), 0);
	assert_int_equal(proc_facts_own_environment(""), 0);
}

static void starts_compare_at_the_resolution_of_proc(void **state)
{
	assert_true(proc_facts_same_start(12345678901ull, 12340000000ull));
	assert_false(proc_facts_same_start(12350000000ull, 12349999999ull));
}

static void facts_of_a_real_child(void **state)
{
	struct proc_facts facts = { 0 };
	int gate[2];
	pid_t pid;
	char byte;

	assert_int_equal(pipe(gate), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		static char service[] = "DD_SERVICE=child", other[] = "OTHER=1";
		char *const env[] = { service, other, NULL };

		(void)dup2(gate[1], 1);
		(void)execle("/bin/sh", "/bin/sh", "-c", "echo x; kill -STOP $$", "two words", NULL,
			     env);
		_exit(127);
	}
	assert_int_equal(read(gate[0], &byte, 1), 1);
	assert_int_equal(proc_facts_read((uint32_t)pid, 0, &facts), 0);
	assert_int_equal(facts.parent_tgid, (uint32_t)getpid());
	assert_int_equal(facts.uid, geteuid());
	assert_false(facts.kthread);
	assert_string_equal(facts.comm, "sh");
	assert_non_null(strstr(facts.exe, "/"));
	assert_string_equal(facts.cmdline, "/bin/sh -c echo x; kill -STOP $$ two words");
	assert_string_equal(facts.environment, "DD_SERVICE=child\n");
	assert_true(facts.cgroup[0] == '/');
	assert_true(clock_boottime_ns() - facts.start_boottime_ns < 60 * NS_PER_S);

	/* The wrong life is refused, the right one at any stamp inside its tick accepted. */
	assert_int_equal(proc_facts_read((uint32_t)pid, facts.start_boottime_ns + 1, &facts), 0);
	assert_int_equal(
		proc_facts_read((uint32_t)pid, facts.start_boottime_ns - NS_PER_S, &facts), -ESRCH);
	(void)kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	facts.uid = 4711;
	assert_int_equal(proc_facts_read((uint32_t)pid, 0, &facts), -ESRCH);
	assert_int_equal(facts.uid, 4711);
	(void)close(gate[0]);
	(void)close(gate[1]);
}

/* Two programs on one CPU: each waits while the other runs. */
static void waits_for_a_cpu(void **state)
{
	uint64_t waited_ns = 0, before_ns = 7;
	cpu_set_t one, all;
	pid_t children[2];

	assert_int_equal(proc_facts_run_delay((uint32_t)getpid(), 0, &before_ns), -E2BIG);
	assert_int_equal(before_ns, 7);
	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	CPU_ZERO(&one);
	for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
		if (CPU_ISSET(cpu, &all))
			CPU_SET(cpu, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	for (int i = 0; i < 2; i++) {
		children[i] = fork();
		if (children[i] == 0)
			(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (volatile uint64_t turns = 0; children[i] == 0;)
			turns++;
	}
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
	for (int i = 0; i < 6000 && waited_ns < 20 * NS_PER_MS; i++) {
		assert_int_equal(proc_facts_run_delay((uint32_t)children[0], 1, &waited_ns), 0);
		clock_sleep_ns(10 * NS_PER_MS);
	}
	for (int i = 0; i < 2; i++) {
		(void)kill(children[i], SIGKILL);
		assert_int_equal(waitpid(children[i], NULL, 0), children[i]);
	}
	assert_true(waited_ns >= 20 * NS_PER_MS);
	assert_int_equal(proc_facts_run_delay((uint32_t)children[0], 1, &before_ns), -ESRCH);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(stat_lines), cmocka_unit_test(ended), cmocka_unit_test(layouts),
		cmocka_unit_test(cgroup_files),
		cmocka_unit_test(only_three_variables_are_kept),
		cmocka_unit_test(an_overwritten_environment_is_told),
		cmocka_unit_test(starts_compare_at_the_resolution_of_proc),
		cmocka_unit_test(facts_of_a_real_child),
		cmocka_unit_test(waits_for_a_cpu),
	};

	return cmocka_run_group_tests_name("proc_facts", tests, NULL, NULL);
}
