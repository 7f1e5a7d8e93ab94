// SPDX-License-Identifier: Apache-2.0
/* Time off the CPU of real programs: how long, why, where; sampling does not bend the sum. */
#include <errno.h>
#include <limits.h>
#include <mntent.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <cmocka.h>

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"
#include "agent/collect/kernel/bpf_internal.h"
#include "profiler.skel.h"
#include "bpf/outcome.h"
#include "tests/support/bpf_target.h"

#define WANT_OFF (PROF_WANT_OFFCPU | PROF_WANT_MAPPED)
#define NO_FP	 "-O2 -fomit-frame-pointer -fno-optimize-sibling-calls"

/* 40 frames deep: usleep(argument). */
static const char sleep_source[] =
	"#include <stdio.h>\n#include <stdlib.h>\n#include <unistd.h>\n"
	"#define F __attribute__((noipa)) int\n"
	"F nap(int us) { usleep(us); return us; }\n"
	"F down(int us, int n) { return n ? down(us, n - 1) + 1 : nap(us) + 1; }\n"
	"int main(int c, char **v) { volatile int s = 0; puts(\"x\"); fflush(stdout);"
	" for (;;) s += down(atoi(v[1]), 40); }\n";

/* Two threads on one CPU want all of it; a third sleeps there for 1 ms at a time. */
static const char crowd_source[] =
	"#define _GNU_SOURCE\n#include <pthread.h>\n#include <sched.h>\n#include <stdio.h>\n"
	"#include <unistd.h>\n"
	"static void *spin(void *p) { for (volatile long i = 0;; i++) ; }\n"
	"int main(void) { pthread_t t; cpu_set_t s; CPU_ZERO(&s); CPU_SET(0, &s);"
	" sched_setaffinity(0, sizeof(s), &s); for (int i = 0; i < 2; i++)"
	" pthread_create(&t, 0, spin, 0), pthread_setname_np(t, \"spin\");"
	" puts(\"x\"); fflush(stdout); for (;;) usleep(1000); }\n";

/* The waits that go on as restart_syscall() when they were interrupted. */
static const char long_waits_source[] =
	"#define _GNU_SOURCE\n#include <poll.h>\n#include <pthread.h>\n#include <stdio.h>\n"
	"#include <time.h>\n#include <unistd.h>\n"
	"static int pipes[2];\n"
	"static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;\n"
	"static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;\n"
	"static void *futex(void *p) { pthread_setname_np(pthread_self(), \"futex\");"
	" pthread_mutex_lock(&lock); for (;;) { struct timespec t; clock_gettime(CLOCK_REALTIME, "
	"&t); t.tv_sec++;"
	" pthread_cond_timedwait(&cond, &lock, &t); } }\n"
	"static void *poll_(void *p) { struct pollfd f = { pipes[0], POLLIN, 0 };"
	" pthread_setname_np(pthread_self(), \"poll\"); for (;;) poll(&f, 1, 1000); }\n"
	"static void *sleep_(void *p) { pthread_setname_np(pthread_self(), \"sleep\");"
	" for (;;) usleep(900000); }\n"
	"int main(void) { pthread_t t; pipe(pipes); pthread_create(&t, 0, futex, 0);"
	" pthread_create(&t, 0, poll_, 0); pthread_create(&t, 0, sleep_, 0);"
	" puts(\"x\"); fflush(stdout); pause(); }\n";

/* Two threads of a process that never sleep but for what others take from them, and a main thread
 * that waits until it is killed. */
static const char busy_source[] =
	"#include <pthread.h>\n#include <stdio.h>\n#include <unistd.h>\n"
	"static void *spin(void *p) { pthread_setname_np(pthread_self(), \"spin\");"
	" for (volatile long i = 0;; i++) ; }\n"
	"int main(void) { pthread_t t; pthread_create(&t, 0, spin, 0);"
	" puts(\"x\"); fflush(stdout); for (;;) pause(); }\n";

/* 4,500 threads that wait until they are killed. */
static const char thousands_source[] =
	"#include <pthread.h>\n#include <stdio.h>\n#include <unistd.h>\n"
	"static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;\n"
	"static void *wait_(void *p) { for (;;) pthread_mutex_lock(&lock); }\n"
	"int main(void) { pthread_t t; pthread_attr_t a; pthread_attr_init(&a); "
	"pthread_attr_setstacksize(&a, 1 << 16);"
	" pthread_mutex_lock(&lock); for (int i = 0; i < 4500; i++) if (pthread_create(&t, &a, "
	"wait_, 0)) return 1;"
	" usleep(200000); puts(\"x\"); fflush(stdout); pause(); }\n";

/* Sleeps on one of two CPUs until the third signal, runs on the other one until the fourth, and
 * lets nobody else run there. */
static const char mover_source[] =
	"#define _GNU_SOURCE\n#include <sched.h>\n#include <signal.h>\n#include "
	"<stdio.h>\n#include <unistd.h>\n"
	"static volatile int signals;\n"
	"static void count(int s) { signals++; }\n"
	"static void move(int cpu) { cpu_set_t s; CPU_ZERO(&s); CPU_SET(cpu, &s); "
	"sched_setaffinity(0, sizeof(s), &s); }\n"
	"int main(int c, char **v) { sigset_t set, none; int first = v[1][0] - '0';"
	" sigemptyset(&none); sigemptyset(&set); sigaddset(&set, SIGUSR1);"
	" sigprocmask(SIG_BLOCK, &set, 0); signal(SIGUSR1, count); move(first); puts(\"x\"); "
	"fflush(stdout);"
	" while (signals < 3) sigsuspend(&none);"
	" struct sched_param p = { 1 }; sigprocmask(SIG_SETMASK, &none, 0); move(!first); "
	"sched_setscheduler(0, SCHED_FIFO, &p);"
	" while (signals < 4) ; for (;;) pause(); }\n";

static char *sleeper, *paged_out, *waits, *crowd, *long_waits, *busy, *thousands, *spin_nap, *mover;
static struct bpf_agent *agent;
static struct bpf_recording recording;
static pid_t pid;
static char group[PATH_MAX]; /* of version 2, with the program alone; "" = none */

/* Features that 5.14 and 5.10 lack. */
static const char *const of_5_14[] = { "bpf_loop", "task_pt_regs", "task_storage", NULL };
static const char *const of_5_10[] = { "bpf_loop", "task_pt_regs", "task_storage", "task_btf",
				       "block_requests", NULL };
static const char *const *missing; /* features, until the end of the test; NULL = none */

static void start(const char *disable, const char *path, const char *argument)
{
	struct features features = bpf_target_features(disable);
	struct err err = { 0 };

	for (const char *const *name = missing; name && *name; name++)
		assert_int_equal(features_disable(&features, *name, "the test", NULL), 0);

	if (bpf_agent_create(&features, &agent, &err) < 0)
		fail_msg("%s", err.text);
	pid = bpf_target_start(path, argument);
	bpf_target_publish(agent, pid, PUBLISH_MAPPINGS | PUBLISH_TABLES, 0);
	bpf_target_want(agent, pid, WANT_OFF);
}

static int end(void **state)
{
	bpf_agent_destroy(agent);
	agent = NULL;
	missing = NULL;
	if (pid)
		bpf_target_stop(pid);
	pid = 0;
	if (group[0])
		(void)rmdir(group);
	group[0] = '\0';
	bpf_recording_deinit(&recording);
	bpf_target_forget_modules();
	return 0;
}

/* Records for @ms and returns the real time that passed, ns. */
static uint64_t record(uint64_t threshold_ns, unsigned ms)
{
	struct err err = { 0 };
	uint64_t begin;

	if (bpf_agent_set_offcpu(agent, true, threshold_ns, &err) < 0)
		fail_msg("%s", err.text);
	begin = clock_monotonic_ns();
	bpf_recording_poll(&recording, agent, ms);
	return clock_monotonic_ns() - begin;
}

/* Goes on until there are @count samples: how soon a busy machine lets a program sleep again is not
 * known. */
static void record_at_least(uint64_t threshold_ns, unsigned ms, size_t count)
{
	(void)record(threshold_ns, ms);
	for (unsigned i = 0; i < 600 && recording.record_count < count; i++)
		bpf_recording_poll(&recording, agent, 100);
	assert_true(recording.record_count >= count);
}

static uint64_t sum(const char *comm, unsigned state, unsigned wait)
{
	uint64_t total = 0;

	for (size_t i = 0; i < recording.record_count; i++) {
		const struct prof_sample_event *sample = &recording.records[i].sample;

		if (prof_sample_is_reading(sample->type))
			continue;
		assert_int_equal(sample->type, PROF_SAMPLE_OFFCPU);
		if (sample->tgid == (uint32_t)pid && !strncmp(sample->comm, comm, PROF_COMM_SIZE) &&
		    (!state || sample->state >> 4 == state) && (!wait || (sample->state & 15) == wait))
			total += sample->value;
	}
	return total;
}

/* A sleeper's chain: nap at some depth, 41 × down, main, reached the end. */
static bool is_whole(const struct prof_stack_event *stack)
{
	unsigned turns = 0;
	bool nap = false, in_main = false;

	if (!stack || stack->outcome != OUTCOME_complete)
		return false;
	for (unsigned i = 0; i < stack->frame_count; i++) {
		const char *name = bpf_target_function(sleeper, stack->frames[i]);

		nap |= !strcmp(name, "nap");
		turns += nap && !strcmp(name, "down");
		in_main |= turns == 41 && !strcmp(name, "main");
	}
	return in_main;
}

/* The kernel did not tell its end (test_return_missed): it has no stack. */
static bool is_unseen(const struct bpf_record *record)
{
	return record->user && record->user->outcome == OUTCOME_return_unseen;
}

static void check_stacks(void)
{
	size_t seen = 0, whole = 0, kernel = 0;

	for (size_t i = 0; i < recording.record_count; i++) {
		seen += !is_unseen(&recording.records[i]);
		whole += is_whole(recording.records[i].user);
		kernel += recording.records[i].kernel && recording.records[i].kernel->frame_count > 3;
	}
	/* one return a second of the whole host may be missed */
	assert_true(recording.record_count - seen <= 10);
	if (whole * 100 < seen * 97 || kernel * 100 < seen * 97)
		fail_msg("%zu samples, %zu whole user stacks, %zu kernel stacks", seen, whole, kernel);
}

static void test_long_blocks(void **state)
{
	uint64_t elapsed;

	start(NULL, sleeper, "10000");
	elapsed = record(1000000, 600);
	assert_true(recording.record_count > 0);
	check_stacks();
	/* all of them recorded as they are: the sleeper does nothing else */
	assert_in_range(sum("sleeper", 0, 0), elapsed * 80 / 100, elapsed);
	assert_in_range(sum("sleeper", PROF_OFF_BLOCKED, PROF_WAIT_SLEEP), elapsed * 60 / 100, elapsed);
	for (size_t i = 0; i < recording.record_count; i++) {
		const struct prof_sample_event *sample = &recording.records[i].sample;

		if (sample->state >> 4 == PROF_OFF_BLOCKED)
			assert_int_equal(sample->value2, 1024);
	}
}

static void test_each_feature_missing(void **state)
{
	static const char *const features[] = { "bpf_loop",     "lock_contention", "vma_walk",
						"task_storage", "task_btf",	   "task_pt_regs" };

	for (size_t i = 0; i < ARRAY_SIZE(features); i++) {
		start(features[i], sleeper, "10000");
		record_at_least(1000000, 400, 20);
		check_stacks();
		end(NULL);
	}
}

/* Kernel stacks and times do not need the interrupt. That the user stack is missing is told. */
static void test_without_interrupt(void **state)
{
	uint64_t elapsed;

	start("irq_work", sleeper, "10000");
	elapsed = record(1000000, 300);
	assert_in_range(sum("sleeper", 0, 0), elapsed * 60 / 100, elapsed);
	for (size_t i = 0; i < recording.record_count; i++) {
		assert_non_null(recording.records[i].user);
		if (is_unseen(&recording.records[i]))
			continue;
		assert_int_equal(recording.records[i].user->outcome, OUTCOME_resume_missed);
		assert_int_equal(recording.records[i].user->frame_count, 1);
		assert_non_null(recording.records[i].kernel);
	}
}

/* Waits of a thread whose stack was paged out have whole stacks where the kernel lets it be walked
 * again, and else say why not. */
static void test_paged_out(void **state)
{
	static const char *const disable[] = { "task_work", NULL };
	struct features features = bpf_target_features(NULL);

	for (size_t i = 0; i < ARRAY_SIZE(disable); i++) {
		bool retried = !disable[i] && features_has(&features, FEATURE_TASK_WORK);
		uint32_t outcome = retried ? OUTCOME_complete : OUTCOME_user_read_fault;
		size_t samples = 0, due = 0;

		start(disable[i], paged_out, "doze");
		record_at_least(1000000, 400, 40);
		for (size_t k = 0; k < recording.record_count; k++) {
			const struct bpf_record *record = &recording.records[k];

			if (record->sample.state != (PROF_OFF_BLOCKED << 4 | PROF_WAIT_SLEEP) || is_unseen(record))
				continue;
			samples++;
			due += record->user && record->user->outcome == outcome &&
			       (record->user->frame_count > 61) == retried;
		}
		if (!samples || due * 100 < samples * 97)
			fail_msg("%zu sleeps, %zu stacks as due %s", samples, due,
				 retried ? "when they are walked again" : "when they are not");
		end(NULL);
	}
}

/* Blocks far below the threshold: few are recorded, but they stand for all. */
static void test_short_blocks(void **state)
{
	uint64_t elapsed, total, events = 0;

	start(NULL, sleeper, "200");
	elapsed = record(4000000, 2000);
	total = sum("sleeper", 0, 0);
	for (size_t i = 0; i < recording.record_count; i++)
		events += recording.records[i].sample.value2;
	/* 2 s / 4 ms = 500 expected at most, each 4 ms: four sigma are 18 % */
	assert_in_range(recording.record_count, 100, 1000);
	assert_in_range(total, elapsed * 50 / 100, elapsed * 120 / 100);
	/* the number of blocks is estimated as well: 200 µs and a little more each */
	assert_in_range(total / (events / 1024 + 1), 200000, 1500000);
	check_stacks();
}

static void check_kind(const char *comm, enum prof_wait wait)
{
	uint64_t blocked = sum(comm, PROF_OFF_BLOCKED, 0), kind = sum(comm, PROF_OFF_BLOCKED, wait);

	if (!blocked || kind < blocked * 95 / 100)
		fail_msg("%s: %lu of %lu ns blocked have the kind", comm, kind, blocked);
}

static void test_waits(void **state)
{
	static const struct {
		const char *comm;
		enum prof_wait wait;
	} cases[] = {
		{ "futex", PROF_WAIT_FUTEX }, { "pipe", PROF_WAIT_PIPE },
		{ "socket", PROF_WAIT_SOCKET }, { "epoll", PROF_WAIT_EPOLL },
		{ "sleep", PROF_WAIT_SLEEP }, { "child", PROF_WAIT_CHILD },
		{ "event", PROF_WAIT_PIPE },		{ "fault", PROF_WAIT_FAULT },
		{ "signal", PROF_WAIT_SLEEP },		{ "timer", PROF_WAIT_SLEEP },
	};
	uint64_t elapsed;

	start(NULL, waits, NULL);
	elapsed = record(1000000, 600);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		assert_true(sum(cases[i].comm, 0, 0) >= elapsed / 2);
		check_kind(cases[i].comm, cases[i].wait);
	}
}

/* The thread waits for @wait, except for @halted_ns of its blocked time, which are of kind "other".
 * */
static void check_kind_beside_halts(const char *comm, enum prof_wait wait, uint64_t halted_ns)
{
	uint64_t blocked = sum(comm, PROF_OFF_BLOCKED, 0), kind = sum(comm, PROF_OFF_BLOCKED, wait);
	uint64_t other = sum(comm, PROF_OFF_BLOCKED, PROF_WAIT_OTHER);

	if (kind + other < blocked * 99 / 100 || other < halted_ns * 9 / 10 || kind < other)
		fail_msg("%s: of %lu ns blocked %lu have the kind, %lu are other, halted for %lu",
			 comm, blocked, kind, other, halted_ns);
}

/* Stopped and continued, as by a debugger: each wait is still what it was, and the stop is none. */
static void test_interrupted_waits(void **state)
{
	uint64_t halted_ns = 0;

	start(NULL, long_waits, NULL);
	(void)record(1000000, 50);
	for (unsigned i = 0; i < 10; i++) {
		uint64_t begin_ns;
		siginfo_t info;

		assert_int_equal(kill(pid, SIGSTOP), 0);
		assert_int_equal(waitid(P_PID, (id_t)pid, &info, WSTOPPED), 0);
		begin_ns = clock_monotonic_ns();
		bpf_recording_poll(&recording, agent, 10);
		halted_ns += clock_monotonic_ns() - begin_ns;
		assert_int_equal(kill(pid, SIGCONT), 0);
		bpf_recording_poll(&recording, agent, 90);
	}
	check_kind_beside_halts("futex", PROF_WAIT_FUTEX, halted_ns);
	check_kind_beside_halts("poll", PROF_WAIT_EPOLL, halted_ns);
	check_kind_beside_halts("sleep", PROF_WAIT_SLEEP, halted_ns);
}

/* A stopped thread that had not asked for anything has not met with a fault. */
static void test_stopped(void **state)
{
	siginfo_t info;
	uint64_t begin_ns, stopped_ns;

	start(NULL, busy, NULL);
	(void)record(1000000, 50);
	assert_int_equal(kill(pid, SIGSTOP), 0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WSTOPPED), 0);
	begin_ns = clock_monotonic_ns();
	bpf_recording_poll(&recording, agent, 200);
	/* the sweep has what has not ended */
	assert_int_equal(bpf_agent_sweep(agent, false, NULL, NULL), 0);
	bpf_recording_poll(&recording, agent, 100);
	stopped_ns = clock_monotonic_ns() - begin_ns;
	assert_int_equal(kill(pid, SIGCONT), 0);
	bpf_recording_poll(&recording, agent, 100);
	assert_in_range(sum("spin", PROF_OFF_BLOCKED, PROF_WAIT_OTHER), stopped_ns,
			stopped_ns + 100000000);
	assert_int_equal(sum("spin", PROF_OFF_BLOCKED, PROF_WAIT_FAULT), 0);
}

static void group_write(const char *file, const char *text)
{
	char path[PATH_MAX + 32];
	FILE *to;

	(void)snprintf(path, sizeof(path), "%s/%s", group, file);
	to = fopen(path, "w");
	assert_non_null(to);
	assert_true(fputs(text, to) >= 0);
	assert_int_equal(fclose(to), 0);
}

/* Puts the program into a group of its own. */
static void group_make(void)
{
	FILE *mounts = setmntent("/proc/self/mounts", "r");
	struct mntent *mount;
	char text[16];

	assert_non_null(mounts);
	while ((mount = getmntent(mounts)) && strcmp(mount->mnt_type, "cgroup2") != 0)
		;
	if (mount)
		(void)snprintf(group, sizeof(group), "%s/profd-test-%d", mount->mnt_dir, (int)getpid());
	(void)endmntent(mounts);
	if (!group[0] || mkdir(group, 0755) < 0) {
		print_message("skipped: there is no control group of version 2 that may be written\n");
		group[0] = '\0';
		skip();
	}
	(void)snprintf(text, sizeof(text), "%d", (int)pid);
	group_write("cgroup.procs", text);
}

static bool group_is_frozen(void)
{
	char path[PATH_MAX + 32], line[64];
	bool frozen = false;
	FILE *events;

	(void)snprintf(path, sizeof(path), "%s/cgroup.events", group);
	events = fopen(path, "r");
	assert_non_null(events);
	while (fgets(line, sizeof(line), events))
		frozen |= strcmp(line, "frozen 1\n") == 0;
	(void)fclose(events);
	return frozen;
}

/* Frozen for @ms, then recorded for @after_ms; how long, at least, ns. */
static uint64_t freeze(unsigned ms, unsigned after_ms)
{
	uint64_t begin_ns, end_ns;

	group_write("cgroup.freeze", "1");
	while (!group_is_frozen())
		bpf_recording_poll(&recording, agent, 1);
	begin_ns = clock_monotonic_ns();
	bpf_recording_poll(&recording, agent, ms);
	end_ns = clock_monotonic_ns();
	group_write("cgroup.freeze", "0");
	bpf_recording_poll(&recording, agent, after_ms);
	return end_ns - begin_ns;
}

/* A frozen group's threads sleep like others, but for a note: what they waited for goes on being
 * that, and the time in the ice is no part of it. */
static void test_frozen_waits(void **state)
{
	uint64_t frozen_ns = 0;

	start(NULL, long_waits, NULL);
	group_make();
	(void)record(1000000, 50);
	for (unsigned i = 0; i < 10; i++)
		frozen_ns += freeze(20, 80);
	check_kind_beside_halts("futex", PROF_WAIT_FUTEX, frozen_ns);
	check_kind_beside_halts("poll", PROF_WAIT_EPOLL, frozen_ns);
	check_kind_beside_halts("sleep", PROF_WAIT_SLEEP, frozen_ns);
}

/* A frozen thread that had not asked for anything. */
static void test_frozen(void **state)
{
	uint64_t begin_ns, frozen_ns;

	start(NULL, busy, NULL);
	group_make();
	(void)record(1000000, 50);
	begin_ns = clock_monotonic_ns();
	frozen_ns = freeze(200, 100);
	assert_in_range(sum("spin", PROF_OFF_BLOCKED, PROF_WAIT_OTHER), frozen_ns,
			clock_monotonic_ns() - begin_ns);
	assert_int_equal(sum("spin", PROF_OFF_BLOCKED, 0), sum("spin", PROF_OFF_BLOCKED, PROF_WAIT_OTHER));
}

static void poll_sweep(void *ctx)
{
	bpf_recording_poll(ctx, agent, 0);
}

/* A sweep over more threads than the ring has room for is read while it goes on. No sample is lost,
 * and each one has what its stack is read with. */
static void test_thousands(void **state)
{
	struct bpf_costs before, after;
	unsigned waits_for_lock = 0;

	start(NULL, thousands, NULL);
	(void)record(1000000, 0);
	assert_int_equal(bpf_agent_sweep(agent, true, poll_sweep, &recording), 0);
	bpf_recording_deinit(&recording);
	assert_int_equal(bpf_agent_costs(agent, &before), 0);
	assert_int_equal(bpf_agent_sweep(agent, false, poll_sweep, &recording), 0);
	bpf_recording_poll(&recording, agent, 0);
	assert_int_equal(bpf_agent_costs(agent, &after), 0);
	assert_int_equal(after.outcomes[OUTCOME_ring_full], before.outcomes[OUTCOME_ring_full]);
	for (size_t i = 0; i < recording.record_count; i++) {
		const struct prof_sample_event *sample = &recording.records[i].sample;

		waits_for_lock += sample->tgid == (uint32_t)pid && sample->type == PROF_SAMPLE_OFFCPU &&
				  sample->state == (PROF_OFF_BLOCKED << 4 | PROF_WAIT_FUTEX) &&
				  sample->head.flags & PROF_SAMPLE_LATE;
	}
	assert_int_equal(waits_for_lock, 4500);
}

static void test_crowd(void **state)
{
	uint64_t begin, elapsed, preempted;

	start(NULL, crowd, NULL);
	(void)record(100000, 0);
	/* waits that the ends cut count too: they are long where many want the CPU */
	begin = clock_monotonic_ns();
	assert_int_equal(bpf_agent_sweep(agent, true, NULL, NULL), 0);
	bpf_recording_poll(&recording, agent, 0);
	bpf_recording_deinit(&recording);
	(void)record(100000, 800);
	/* the sleeper is blocked and then waits for a spinner's turn to end */
	for (unsigned i = 0; i < 600 && (!sum("crowd", PROF_OFF_BLOCKED, PROF_WAIT_SLEEP) ||
					 !sum("crowd", PROF_OFF_RUNQUEUE, 0)); i++)
		bpf_recording_poll(&recording, agent, 100);
	assert_int_equal(bpf_agent_sweep(agent, false, NULL, NULL), 0);
	elapsed = clock_monotonic_ns() - begin;
	bpf_recording_poll(&recording, agent, 20);
	/* two spinners share a CPU with whoever else: together they miss at least one CPU's worth, and
	 * never more than two */
	preempted = sum("spin", PROF_OFF_PREEMPTED, 0);
	assert_in_range(preempted, elapsed * 80 / 100, elapsed * 2);
	assert_true(sum("spin", PROF_OFF_BLOCKED, 0) < elapsed / 20);
	assert_true(sum("crowd", PROF_OFF_BLOCKED, PROF_WAIT_SLEEP) > 0);
	assert_true(sum("crowd", PROF_OFF_RUNQUEUE, 0) > 0);
	assert_true(sum("crowd", 0, 0) < elapsed * 101 / 100);
}

/* A thread's first and last reading of a type. false: there are not two. */
static bool readings(const char *comm, uint8_t type, const struct prof_sample_event **ret_first,
		     const struct prof_sample_event **ret_last)
{
	const struct prof_sample_event *first = NULL, *last = NULL;

	for (size_t i = 0; i < recording.record_count; i++) {
		const struct prof_sample_event *sample = &recording.records[i].sample;

		if (sample->type != type || sample->tgid != (uint32_t)pid ||
		    strncmp(sample->comm, comm, PROF_COMM_SIZE) != 0)
			continue;
		if (!first)
			first = sample;
		last = sample;
	}
	*ret_first = first;
	*ret_last = last;
	return first && first != last;
}

/* ns on a CPU and on run queues of a thread between its first and its last reading, and the time
 * between them. */
static bool counted(const char *comm, uint64_t *ret_cpu, uint64_t *ret_waits, uint64_t *ret_elapsed,
		    bool *ret_ended)
{
	const struct prof_sample_event *first, *last;

	if (!readings(comm, PROF_SAMPLE_THREAD, &first, &last))
		return false;
	*ret_cpu = last->value - first->value;
	*ret_waits = last->value2 - first->value2;
	*ret_elapsed = last->time_ns - first->time_ns;
	*ret_ended = last->state;
	return true;
}

/* A thread that never leaves its CPU by itself is in the sums although it may yield no sample; one
 * that is killed while it waits has its wait, and its last reading. */
static void test_never_switches_and_killed(void **state)
{
	uint64_t cpu = 0, queued = 0, elapsed = 0;
	bool ended = false;
	siginfo_t info;

	start(NULL, busy, NULL);
	/* whichever thread is the last to end counts as nobody's: its target has gone with the process */
	bpf_agent_set_undecided(agent, true);
	(void)record(1000000, 100);
	assert_int_equal(bpf_agent_sweep(agent, false, NULL, NULL), 0);
	(void)record(1000000, 400);
	assert_int_equal(bpf_agent_sweep(agent, false, NULL, NULL), 0);
	bpf_recording_poll(&recording, agent, 20);
	assert_true(counted("spin", &cpu, &queued, &elapsed, &ended));
	/* a tick at each end, which is when its run time is counted */
	assert_in_range(cpu + queued, elapsed - elapsed / 10, elapsed + elapsed / 10);
	assert_int_equal(sum("spin", PROF_OFF_BLOCKED, 0), 0);
	assert_false(ended);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
	bpf_recording_poll(&recording, agent, 20);
	assert_true(counted("busy", &cpu, &queued, &elapsed, &ended));
	assert_true(ended);
	/* the first sweep began its one wait, the second cut it, the kill has ended it */
	assert_in_range(sum("busy", PROF_OFF_BLOCKED, PROF_WAIT_SLEEP), elapsed * 9 / 10, elapsed);
}

/* Time that a hypervisor or interrupts take from a thread on a CPU is reported as stolen. The rest
 * of the elapsed time is then the thread's own: on a CPU, on a run queue or blocked. */
static void check_stolen(const char *comm, bool blocks)
{
	const uint64_t tick_ns = 10000000; /* at most; the time on a CPU lags by up to one at each end */
	uint64_t cpu, queued, elapsed, blocked = sum(comm, PROF_OFF_BLOCKED, 0), stolen, whole;
	const struct prof_sample_event *first, *last;
	bool ended;

	assert_true(counted(comm, &cpu, &queued, &elapsed, &ended));
	assert_true(readings(comm, PROF_SAMPLE_STOLEN, &first, &last));
	assert_true(last->value >= first->value);
	stolen = last->value - first->value;
	whole = cpu + queued + stolen + blocked;
	print_message(
		"%s: %lu ns on a CPU, %lu waiting for one, %lu stolen, %lu blocked: %+ld of %lu\n",
		comm, cpu, queued, stolen, blocked, (long)(whole - elapsed), elapsed);
	assert_in_range(whole, elapsed - 2 * tick_ns, elapsed + 2 * tick_ns);
	assert_int_equal(last->value2 != first->value2, blocks);
	assert_int_equal(blocked != 0, blocks);
}

static void test_stolen(void **state)
{
	start(NULL, spin_nap, NULL);
	(void)record(1000, 0);
	assert_int_equal(bpf_agent_sweep(agent, false, NULL, NULL), 0);
	bpf_recording_poll(&recording, agent, 4000);
	assert_int_equal(bpf_agent_sweep(agent, false, NULL, NULL), 0);
	bpf_recording_poll(&recording, agent, 20);
	check_stolen("spin", false);
	check_stolen("nap", true);
}

/* ns that the process ran, and how often it went to sleep. */
static void had(uint64_t *ret_run_ns, uint64_t *ret_sleeps)
{
	static const char key[] = "voluntary_ctxt_switches:";
	char path[64], line[128];
	cleanup_fclose FILE *run = NULL, *status = NULL;

	(void)snprintf(path, sizeof(path), "/proc/%d/schedstat", pid);
	run = fopen(path, "re");
	(void)snprintf(path, sizeof(path), "/proc/%d/status", pid);
	status = fopen(path, "re");
	assert_true(run && status && fgets(line, sizeof(line), run));
	*ret_run_ns = strtoull(line, NULL, 10);
	while (fgets(line, sizeof(line), status) && strncmp(line, key, sizeof(key) - 1) != 0)
		;
	*ret_sleeps = strtoull(line + sizeof(key) - 1, NULL, 10);
}

/* Until it sleeps again, or, where it does not, has run for a while. */
static void wake_up(bool sleeps)
{
	uint64_t run_before, sleeps_before, run_ns, sleep_count;

	had(&run_before, &sleeps_before);
	assert_int_equal(kill(pid, SIGUSR1), 0);
	do {
		bpf_recording_poll(&recording, agent, 10);
		had(&run_ns, &sleep_count);
	} while (sleeps ? sleep_count == sleeps_before : run_ns < run_before + 20000000);
}

/* The wait whose end nobody saw, ns: how long it was, what it waited for and where it entered the
 * kernel, and no more. */
static uint64_t unseen(void)
{
	const uint64_t blocked =
		(uint64_t)PROF_FRAME_MARKER << PROF_FRAME_KIND_SHIFT | PROF_MARKER_BLOCKED;
	uint64_t total = 0;

	for (size_t i = 0; i < recording.record_count; i++) {
		const struct bpf_record *record = &recording.records[i];

		if (!is_unseen(record) || record->sample.state >> 4 == PROF_OFF_PREEMPTED)
			continue;
		total += record->sample.value;
		assert_null(record->kernel);
		assert_int_equal(record->user->frame_count, 2);
		assert_int_equal(prof_frame_kind(record->user->frames[0]), PROF_FRAME_ADDRESS);
		assert_true(record->user->frames[1] == blocked);
		assert_int_equal(record->sample.state & 15, PROF_WAIT_SLEEP);
	}
	return total;
}

/* A kernel may hide switches from tracers: that of a thread that comes back to another CPU is
 * counted, also where it ends without another wait, its wait is known, and what was stolen is not
 * the difference of those CPUs' clocks. */
static void test_return_missed(void **state)
{
	uint64_t sweep_ns, swept_ns, woken_ns, ran_ns;
	cpu_set_t all;

	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	for (size_t i = 0; i < 4; i++) {
		const bool ends = i >= 2;
		const struct prof_sample_event *first, *last;
		struct bpf_link **link;
		struct bpf_costs before, after;
		cpu_set_t first_cpu;

		start(NULL, mover, i % 2 ? "1" : "0");
		/* not where it runs while the program is off: then it could be off its CPU when
		 * that is attached again */
		CPU_ZERO(&first_cpu);
		CPU_SET(i % 2, &first_cpu);
		assert_int_equal(sched_setaffinity(0, sizeof(first_cpu), &first_cpu), 0);
		(void)record(1000000, 0);
		link = &agent->waits->links.off_switch;
		/* it is known from when it leaves; then it is seen to come */
		wake_up(true);
		wake_up(true);
		sweep_ns = clock_monotonic_ns();
		assert_int_equal(bpf_agent_sweep(agent, false, NULL, NULL), 0);
		swept_ns = clock_monotonic_ns();
		assert_int_equal(bpf_agent_costs(agent, &before), 0);
		assert_int_equal(bpf_set_link(agent->waits->progs.off_switch, link, false), 0);
		bpf_recording_poll(&recording, agent, 200);
		woken_ns = clock_monotonic_ns();
		wake_up(false);
		ran_ns = clock_monotonic_ns() - 19 * NS_PER_MS;
		assert_int_equal(bpf_set_link(agent->waits->progs.off_switch, link, true), 0);
		ends ? (void)kill(pid, SIGKILL) : wake_up(true);
		bpf_recording_poll(&recording, agent, 20);
		assert_int_equal(bpf_agent_sweep(agent, false, NULL, NULL), 0);
		assert_int_equal(bpf_agent_costs(agent, &after), 0);
		bpf_recording_poll(&recording, agent, 20);
		assert_true(after.outcomes[OUTCOME_return_missed] > before.outcomes[OUTCOME_return_missed]);
		assert_in_range(unseen(), woken_ns - swept_ns - NS_PER_MS, ran_ns - sweep_ns);
		if (!ends) {
			assert_true(readings("mover", PROF_SAMPLE_STOLEN, &first, &last));
			assert_in_range(last->value - first->value, 0, last->time_ns - first->time_ns);
		}
		assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
		end(NULL);
	}
}

/* Waits between a stop and the next start are not recorded. */
static void test_stop_and_start(void **state)
{
	struct err err = { 0 };
	uint64_t elapsed;

	start(NULL, sleeper, "50000");
	(void)record(1000000, 200);
	assert_true(recording.record_count > 0);
	assert_int_equal(bpf_agent_set_offcpu(agent, false, 0, &err), 0);
	bpf_recording_poll(&recording, agent, 20);
	bpf_recording_deinit(&recording);
	bpf_recording_poll(&recording, agent, 300);
	assert_int_equal(recording.record_count, 0);
	elapsed = record(1000000, 200);
	assert_in_range(sum("sleeper", 0, 0), 1, elapsed);
}

/* Registers, states and stacks by what old kernels have. */
static void test_as_on_5_14(void **state)
{
	missing = of_5_14;
	test_waits(state);
	end(NULL);
	missing = of_5_14;
	test_short_blocks(state);
}

static void test_as_on_5_10(void **state)
{
	missing = of_5_10;
	test_waits(state);
	end(NULL);
	missing = of_5_10;
	test_interrupted_waits(state);
	end(NULL);
	missing = of_5_10;
	test_stop_and_start(state);
}

#define FORGED_NS (10 * NS_PER_S)

/* As if thread @tid had the number of one that left its CPU when the host began. */
static void forge_state(uint32_t tid)
{
	const int fd = bpf_map__fd(agent->waits->maps.off_states_by_tid);
	uint64_t words[64]; /* bpf/task.bpf.h, struct off_state_of: start_time, since_ns, … */
	unsigned forged = 0;

	assert_true(bpf_map__value_size(agent->waits->maps.off_states_by_tid) <= sizeof(words));
	for (unsigned i = 0; i < 20; i++) {
		if (bpf_map_lookup_elem(fd, &tid, words) == 0) {
			words[0]--;
			words[1] = 1;
			forged += bpf_map_update_elem(fd, &tid, words, BPF_ANY) == 0;
		}
		bpf_recording_poll(&recording, agent, 7);
	}
	assert_true(forged > 10);
}

/* A state that is left in the map, of a thread that had the number before, is not taken for that of
 * the thread that has it now. */
static void test_tid_is_used_again(void **state)
{
	missing = of_5_10;
	start(NULL, sleeper, "10000");
	(void)record(1000000, 100);
	forge_state((uint32_t)pid);
	(void)record(1000000, 300);
	for (size_t i = 0; i < recording.record_count; i++)
		if (recording.records[i].sample.tgid == (uint32_t)pid)
			assert_true(recording.records[i].sample.value < FORGED_NS);
}

static int setup_group(void **state)
{
	sleeper = bpf_target_compile("sleeper", sleep_source, NO_FP);
	paged_out = bpf_target_compile("paged_out", "#include \"tests/workloads/paged_out.c\"\n",
				       NO_FP " -I.");
	waits = bpf_target_compile("waits", "#include \"tests/workloads/wait_kinds.c\"\n", "-O2 -w -I.");
	crowd = bpf_target_compile("crowd", crowd_source, "-O2");
	long_waits = bpf_target_compile("long_waits", long_waits_source, "-O2 -w");
	busy = bpf_target_compile("busy", busy_source, "-O2");
	thousands = bpf_target_compile("thousands", thousands_source, "-O2");
	mover = bpf_target_compile("mover", mover_source, "-O2");
	spin_nap = bpf_target_compile("spin_nap", "#include \"tests/workloads/spin_nap.c\"\n", "-O2 -I.");
	return 0;
}

static int teardown_group(void **state)
{
	free(sleeper);
	free(paged_out);
	free(waits);
	free(crowd);
	free(long_waits);
	free(busy);
	free(thousands);
	free(spin_nap);
	free(mover);
	bpf_target_cleanup();
	return 0;
}

#define test(name) cmocka_unit_test_teardown(name, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		test(test_long_blocks), test(test_each_feature_missing),
		test(test_without_interrupt), test(test_paged_out), test(test_short_blocks),
		test(test_waits), test(test_interrupted_waits), test(test_stopped),
		test(test_frozen_waits), test(test_frozen), test(test_thousands), test(test_crowd),
		test(test_stop_and_start), test(test_as_on_5_14),
		test(test_as_on_5_10), test(test_tid_is_used_again),
		test(test_never_switches_and_killed), test(test_stolen), test(test_return_missed),
	};

	if (bpf_target_skip())
		return 0;
	return cmocka_run_group_tests_name("off_cpu", tests, setup_group, teardown_group);
}
