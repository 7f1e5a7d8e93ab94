// SPDX-License-Identifier: Apache-2.0
/* The loaded agent: who is sampled, the life of processes, what travels and what is counted. */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/base/io.h"
#include "agent/collect/kernel/bpf_internal.h"
#include "bpf/outcome.h"
#include "bpf/unwind_table.h"
#include "tests/support/bpf_target.h"

#define RATE_HZ 997u

/* spin: uses the CPU. fork: a child spins. exec: executes itself as a spinner. threads: starts and
 * joins four threads, then sleeps. grow: a child, a thread, one that this one starts, and itself
 * spin. */
static const char source[] =
	"#include <pthread.h>\n#include <signal.h>\n#include <stdio.h>\n#include <string.h>\n"
	"#include <sys/prctl.h>\n#include <unistd.h>\n"
	"static void spin(void) { for (volatile long i = 0;; i++) ; }\n"
	"static void *nothing(void *p) { return p; }\n"
	"static void *grow(void *p) { pthread_t t;"
	" if (p) pthread_create(&t, 0, grow, 0);"
	" spin(); return p; }\n"
	"int main(int c, char **v) { pthread_t t[4]; char b;"
	" if (!strcmp(v[1], \"late\")) spin();"
	" puts(\"x\"); fflush(stdout);"
	" if (!strcmp(v[1], \"spin\")) spin();"
	" usleep(200000);"
	" if (!strcmp(v[1], \"fork\") && !fork()) spin();"
	" if (!strcmp(v[1], \"grow\")) {"
	" if (!fork()) { prctl(PR_SET_PDEATHSIG, SIGKILL); spin(); }"
	" pthread_create(&t[0], 0, grow, t); spin(); }"
	" if (!strcmp(v[1], \"exec\")) execl(v[0], v[0], \"late\", (char *)0);"
	" for (int i = 0; i < 4; i++) pthread_create(&t[i], 0, nothing, 0);"
	" for (int i = 0; i < 4; i++) pthread_join(t[i], 0);"
	" if (!strcmp(v[1], \"threads\")) return 0;"
	" pause(); return 0; }\n";

/* Runs at another depth each time: hardly two stacks are equal. */
static const char depths_source[] =
	"#include <stdio.h>\n"
	"__attribute__((noipa)) unsigned long down(unsigned long n) { unsigned long x = n;"
	" if (n) return down(n - 1) + 1; for (int i = 0; i < 2000; i++) x = x * 3 + i; return x; "
	"}\n"
	"int main(void) { volatile unsigned long s = 0; puts(\"x\"); fflush(stdout);"
	" for (unsigned n = 0;; n += 211) s += down(100 + n % 401); }\n";

static char *program, *depths;
static struct bpf_agent *agent;
static struct bpf_recording recording;
static pid_t pid;

static int setup(void **state)
{
	struct features features = bpf_target_features(NULL);
	struct err err = { 0 };

	if (bpf_agent_create(&features, &agent, &err) < 0)
		fail_msg("%s", err.text);
	return 0;
}

static int teardown(void **state)
{
	bpf_agent_destroy(agent);
	agent = NULL;
	if (pid)
		bpf_target_stop(pid);
	pid = 0;
	bpf_recording_deinit(&recording);
	bpf_target_forget_modules();
	return 0;
}

static void sample_at(uint32_t rate_hz)
{
	struct err err = { 0 };

	if (bpf_agent_set_cpu_rate(agent, rate_hz, &err) < 0)
		fail_msg("%s", err.text);
}

static uint64_t outcome_total(enum prof_outcome outcome)
{
	struct bpf_costs costs;

	assert_int_equal(bpf_agent_costs(agent, &costs), 0);
	return costs.outcomes[outcome];
}

static size_t samples_of(uint32_t tgid)
{
	size_t count = 0;

	for (size_t i = 0; i < recording.record_count; i++)
		count += recording.records[i].sample.tgid == tgid;
	return count;
}

static const struct prof_task_event *task_event(enum prof_event_kind kind, uint32_t tgid)
{
	for (size_t i = 0; i < recording.task_count; i++)
		if (recording.tasks[i].head.kind == kind && recording.tasks[i].tgid == tgid)
			return &recording.tasks[i];
	return NULL;
}

/* ---- who is sampled -------------------------------------------------------------------------- */

static void test_targets(void **state)
{
	static const struct {
		uint32_t wanted; /* 0 = not decided, as at the beginning */
		bool undecided;
		bool sampled;
		enum prof_outcome counted;
	} cases[] = {
		{ 0, false, false, OUTCOME_not_wanted },
		{ 0, true, true, OUTCOME_complete },
		{ PROF_WANT_CPU, false, true, OUTCOME_complete },
		{ PROF_WANT_NONE, true, false, OUTCOME_not_wanted },
		{ PROF_WANT_OFFCPU, true, false, OUTCOME_not_wanted },
		{ PROF_WANT_CPU | PROF_WANT_EXCLUDED, true, false, OUTCOME_excluded },
	};

	pid = bpf_target_start(program, "spin");
	sample_at(RATE_HZ);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t before;

		bpf_agent_set_undecided(agent, cases[i].undecided);
		if (cases[i].wanted)
			bpf_target_want(agent, pid, cases[i].wanted);
		bpf_recording_poll(&recording, agent, 20); /* what was on its way */
		bpf_recording_deinit(&recording);
		before = outcome_total(cases[i].counted);
		bpf_recording_poll(&recording, agent, 150);
		assert_int_equal(samples_of((uint32_t)pid) > 0, cases[i].sampled);
		if (cases[i].counted != OUTCOME_complete)
			assert_true(outcome_total(cases[i].counted) > before);
	}
}

static void test_stopped(void **state)
{
	pid = bpf_target_start(program, "spin");
	bpf_target_want(agent, pid, PROF_WANT_CPU);
	sample_at(RATE_HZ);
	bpf_recording_poll(&recording, agent, 100);
	assert_true(samples_of((uint32_t)pid) > 0);
	sample_at(0);
	bpf_recording_poll(&recording, agent, 20);
	bpf_recording_deinit(&recording);
	bpf_recording_poll(&recording, agent, 100);
	assert_int_equal(samples_of((uint32_t)pid), 0);
}

/* After the host slept the list of its CPUs is what it was, but their events are dead. */
static void test_dead_events(void **state)
{
	pid = bpf_target_start(program, "spin");
	bpf_target_want(agent, pid, PROF_WANT_CPU);
	sample_at(RATE_HZ);
	bpf_target_kill_events();
	assert_int_equal(bpf_agent_follow_cpus(agent, false), 0);
	bpf_recording_poll(&recording, agent, 20);
	bpf_recording_deinit(&recording);
	bpf_recording_poll(&recording, agent, 100);
	assert_int_equal(samples_of((uint32_t)pid), 0);
	assert_true(bpf_agent_follow_cpus(agent, true) > 0);
	for (int n = 0; n < 600 && !samples_of((uint32_t)pid); n++)
		bpf_recording_poll(&recording, agent, 100);
	assert_true(samples_of((uint32_t)pid) > 0);
}

/* The number of samples follows the rate, and so does what each stands for. */
static void test_rate(void **state)
{
	static const uint32_t rates[] = { 100, 1000, 250 };

	pid = bpf_target_start(program, "spin");
	bpf_target_want(agent, pid, PROF_WANT_CPU);
	for (size_t i = 0; i < ARRAY_SIZE(rates); i++) {
		uint64_t sum = 0, begin;

		sample_at(rates[i]);
		bpf_recording_poll(&recording, agent, 30);
		bpf_recording_deinit(&recording);
		begin = clock_monotonic_ns();
		bpf_recording_poll(&recording, agent, 400);
		for (size_t k = 0; k < recording.record_count; k++) {
			assert_int_equal(recording.records[k].sample.value, NS_PER_S / rates[i]);
			sum += recording.records[k].sample.value;
		}
		/* other programs want the CPU too: no more than all of it, no less than a tenth */
		assert_in_range(sum, 40 * NS_PER_MS, clock_monotonic_ns() - begin + 40 * NS_PER_MS);
	}
}

static uint64_t cpu_ns_of(uint32_t tid)
{
	char path[64], text[64];
	unsigned long long ns = 0;

	(void)snprintf(path, sizeof(path), "/proc/%d/task/%u/schedstat", pid, tid);
	assert_true(io_read_small(AT_FDCWD, path, text, sizeof(text)) > 0);
	assert_int_equal(sscanf(text, "%llu", &ns), 1);
	return ns;
}

/* Every thread of the process is sampled by one event of its own, those that began later and by
 * others too; in its first 100 periods by the host sampler instead. A child is not. */
static void test_fast(void **state)
{
	const uint64_t period_ns = NS_PER_S / RATE_HZ, host_ns = NS_PER_S / 97;
	struct {
		uint32_t tid;
		uint64_t own;
	} threads[3] = { { 0 } };
	size_t count = 0, of_host = 0, of_child = 0;
	uint64_t stolen_ns = bpf_target_stolen_ns();

	pid = bpf_target_start(program, "grow");
	bpf_agent_set_undecided(agent, true);
	sample_at(97);
	bpf_agent_set_fast_rate(agent, RATE_HZ);
	assert_int_equal(bpf_agent_fast_open(agent, (uint32_t)pid), 0);
	bpf_target_want(agent, pid, PROF_WANT_CPU | PROF_WANT_FAST);
	/* four that spin, on whatever CPUs the others leave */
	for (int i = 0; i < 600 && cpu_ns_of((uint32_t)pid) < 600 * NS_PER_MS; i++)
		bpf_recording_poll(&recording, agent, 100);
	for (size_t i = 0; i < recording.record_count; i++) {
		const struct prof_sample_event *sample = &recording.records[i].sample;
		size_t at = 0;

		assert_int_equal(sample->value, sample->source ? period_ns : host_ns);
		if (sample->tgid != (uint32_t)pid) {
			assert_int_equal(sample->source, 0);
			of_child += !strcmp(sample->comm, "life");
			continue;
		}
		while (at < count && threads[at].tid != sample->tid)
			at++;
		assert_true(at < ARRAY_SIZE(threads));
		count += at == count;
		threads[at].tid = sample->tid;
		threads[at].own += sample->source;
		of_host += !sample->source;
	}
	stolen_ns = bpf_target_stolen_ns() - stolen_ns;
	assert_int_equal(count, ARRAY_SIZE(threads));
	assert_true(of_child > 0);
	/* 29 are due */
	assert_in_range(of_host, 5, 65);
	for (size_t i = 0; i < count; i++) {
		uint64_t cpu_ns = cpu_ns_of(threads[i].tid), due;

		due = cpu_ns > 100 * period_ns ? (cpu_ns - 100 * period_ns) / period_ns : 0;
		print_message("thread %zu: %llu samples of its own, %llu due, %llu ms stolen\n", i,
			      (unsigned long long)threads[i].own, (unsigned long long)due,
			      (unsigned long long)(stolen_ns / NS_PER_MS));
		assert_true(threads[i].own <= due + due / 10 + 20 + stolen_ns / period_ns);
		assert_true(threads[i].own + 20 >= due / 2);
	}
	bpf_target_want(agent, pid, PROF_WANT_CPU);
	bpf_agent_fast_close(agent, (uint32_t)pid);
	bpf_recording_poll(&recording, agent, 20);
	bpf_recording_deinit(&recording);
	bpf_recording_poll(&recording, agent, 300);
	assert_true(samples_of((uint32_t)pid) > 0);
	for (size_t i = 0; i < recording.record_count; i++)
		assert_int_equal(recording.records[i].sample.source, 0);
}

static void *wait_for_end(void *end)
{
	struct pollfd fd = { .fd = ((int *)end)[0] };

	(void)poll(&fd, 1, -1);
	return NULL;
}

static int own_task(uint32_t tid)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/self/task/%u", tid);
	return access(path, F_OK);
}

/* A child with the number @tid, which is free. 0: somebody else took it. */
static pid_t fork_as(uint32_t tid)
{
	int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);
	pid_t child;

	if (fd < 0)
		skip(); /* a kernel without CONFIG_CHECKPOINT_RESTORE */
	(void)dprintf(fd, "%u", tid - 1);
	(void)close(fd);
	child = fork();
	if (child == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			(void)pause();
	}
	if (child == (pid_t)tid)
		return child;
	bpf_target_stop(child);
	return 0;
}

/* A thread that has ended may have had the number of one that another process has now. */
static void test_fast_knows_numbers_again(void **state)
{
	uint32_t own = (uint32_t)getpid(), tid = 0;
	pthread_t thread;
	bool found;
	int end[2];

	bpf_agent_set_fast_rate(agent, RATE_HZ);
	for (int n = 0; n < 100 && !pid; n++) {
		assert_int_equal(pipe2(end, O_CLOEXEC), 0);
		assert_int_equal(pthread_create(&thread, NULL, wait_for_end, end), 0);
		assert_int_equal(bpf_agent_fast_open(agent, own), 0);
		tid = agent->fast.open.data[agent->fast.open.count - 1].tid;
		assert_true(tid != own);
		(void)close(end[1]);
		(void)pthread_join(thread, NULL);
		(void)close(end[0]);
		while (own_task(tid) == 0)
			(void)sched_yield();
		pid = fork_as(tid);
		if (!pid)
			bpf_agent_fast_close(agent, own);
	}
	assert_true(pid > 0);
	assert_int_equal(bpf_agent_fast_open(agent, tid), 0);
	found = false;
	for (size_t i = 0; i < agent->fast.open.count; i++)
		found |= agent->fast.open.data[i].tgid == tid && agent->fast.open.data[i].fd >= 0;
	assert_true(found);
}

static void test_fast_is_refused(void **state)
{
	pid = bpf_target_start(program, "spin");
	bpf_agent_set_fast_rate(agent, RATE_HZ);
	bpf_target_stop(pid);
	assert_int_equal(bpf_agent_fast_open(agent, (uint32_t)pid), -ESRCH);
	pid = 0;
}

/* ---- life of processes ----------------------------------------------------------------------- */

static void test_exec_fork_exit(void **state)
{
	const struct prof_task_event *fork_event, *exec_event, *exit_event;
	uint64_t before = clock_monotonic_ns();
	size_t events = 0;

	pid = bpf_target_start(program, "threads");
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	bpf_recording_poll(&recording, agent, 20);
	fork_event = task_event(PROF_EVENT_FORK, (uint32_t)pid);
	exec_event = task_event(PROF_EVENT_EXEC, (uint32_t)pid);
	exit_event = task_event(PROF_EVENT_EXIT, (uint32_t)pid);
	assert_non_null(fork_event);
	assert_non_null(exec_event);
	assert_non_null(exit_event);
	assert_true(fork_event < exec_event && exec_event < exit_event);
	assert_int_equal(fork_event->parent_tgid, getpid());
	assert_int_equal(exec_event->exec_generation, fork_event->exec_generation + 1);
	assert_int_equal(exit_event->exec_generation, exec_event->exec_generation);
	assert_int_equal(exit_event->start_boottime_ns, fork_event->start_boottime_ns);
	assert_string_equal(exec_event->comm, "life");
	assert_true(before < fork_event->time_ns && fork_event->time_ns < exit_event->time_ns);
	for (size_t i = 0; i < recording.task_count; i++)
		events += recording.tasks[i].tgid == (uint32_t)pid;
	assert_int_equal(events, 3); /* nothing of its threads */
	pid = 0;
}

/* A child is wanted as its parent is, from its first instruction. */
static void test_child_is_inherited(void **state)
{
	uint32_t child = 0;

	pid = bpf_target_start(program, "fork");
	bpf_target_want(agent, pid, PROF_WANT_CPU);
	sample_at(RATE_HZ);
	for (int n = 0; n < 600 && (!child || samples_of(child) <= 20); n++) {
		bpf_recording_poll(&recording, agent, 100);
		for (size_t i = 0; i < recording.task_count; i++)
			if (recording.tasks[i].head.kind == PROF_EVENT_FORK &&
			    recording.tasks[i].parent_tgid == (uint32_t)pid)
				child = recording.tasks[i].tgid;
	}
	assert_true(child);
	assert_true(samples_of(child) > 20);
	for (size_t i = 0; i < recording.record_count; i++)
		if (recording.records[i].sample.tgid == child)
			assert_int_equal(recording.records[i].sample.start_boottime_ns,
					 task_event(PROF_EVENT_FORK, child)->start_boottime_ns);
	bpf_target_stop((pid_t)child);
}

static unsigned execs(void)
{
	unsigned count = 0;

	for (size_t i = 0; i < recording.task_count; i++)
		count += recording.tasks[i].head.kind == PROF_EVENT_EXEC &&
			 recording.tasks[i].tgid == (uint32_t)pid;
	return count;
}

/* After exec it is another program, on which nobody has decided. */
static void test_exec_clears_target(void **state)
{
	pid = bpf_target_start(program, "exec");
	bpf_target_want(agent, pid, PROF_WANT_CPU);
	sample_at(RATE_HZ);
	/* the first is its start */
	for (int i = 0; i < 600 && execs() < 2; i++)
		bpf_recording_poll(&recording, agent, 100);
	assert_int_equal(execs(), 2);
	bpf_recording_poll(&recording, agent, 20); /* what was on its way */
	bpf_recording_deinit(&recording);
	bpf_recording_poll(&recording, agent, 100);
	assert_int_equal(samples_of((uint32_t)pid), 0);
	bpf_agent_set_undecided(agent, true);
	bpf_recording_poll(&recording, agent, 100);
	assert_true(samples_of((uint32_t)pid) > 0);
}

/* ---- what travels ---------------------------------------------------------------------------- */

/* The user stack that most samples have: a rare one may not come again. */
static uint64_t commonest_stack(void)
{
	size_t best = 0;
	uint64_t ret = 0;

	for (size_t i = 0; i < recording.stack_count; i++) {
		size_t count = 0;

		for (size_t k = 0; k < recording.record_count; k++)
			count += recording.records[k].sample.user_stack_hash ==
				 recording.stacks[i]->stack_hash;
		if (count > best) {
			best = count;
			ret = recording.stacks[i]->stack_hash;
		}
	}
	return ret;
}

static void test_stack_travels_once(void **state)
{
	uint64_t hash;
	size_t stacks, times;

	pid = bpf_target_start(program, "spin");
	bpf_target_publish(agent, pid, PUBLISH_MAPPINGS | PUBLISH_TABLES, 0);
	bpf_target_want(agent, pid, PROF_WANT_CPU | PROF_WANT_MAPPED);
	sample_at(RATE_HZ);
	bpf_recording_poll(&recording, agent, 400);
	stacks = recording.stack_count;
	assert_true(stacks > 0 && stacks < recording.record_count);
	for (size_t i = 0; i < stacks; i++)
		for (size_t k = i + 1; k < stacks; k++)
			assert_int_not_equal(recording.stacks[i]->stack_hash,
					     recording.stacks[k]->stack_hash);
	for (size_t i = 0; i < recording.record_count; i++)
		assert_non_null(recording.records[i].user);
	hash = commonest_stack();
	bpf_agent_forget_stack(agent, hash);
	bpf_recording_poll(&recording, agent, 300);
	times = 0;
	for (size_t i = 0; i < recording.stack_count; i++)
		times += recording.stacks[i]->stack_hash == hash;
	assert_int_equal(times, 2);
}

/* The same addresses without mappings are other stacks in another process. */
static void test_addresses_are_private(void **state)
{
	uint64_t before = 0;

	bpf_agent_set_undecided(agent, true);
	sample_at(RATE_HZ);
	for (unsigned round = 0; round < 2; round++) {
		pid = bpf_target_start(program, "spin");
		bpf_recording_poll(&recording, agent, 150);
		for (size_t i = 0; i < recording.stack_count; i++)
			assert_true(!before || recording.stacks[i]->tgid != (uint32_t)pid ||
				    recording.stacks[i]->stack_hash != before);
		for (size_t i = 0; i < recording.record_count; i++)
			if (recording.records[i].sample.tgid == (uint32_t)pid)
				before = recording.records[i].sample.user_stack_hash;
		bpf_target_stop(pid);
		pid = 0;
	}
	assert_true(before);
}

/* Every sample brings a stack of its own, kilobytes each. */
static void test_ring_full(void **state)
{
	uint64_t lost, end = clock_monotonic_ns() + 10 * NS_PER_S;
	struct bpf_costs costs;

	pid = bpf_target_start(depths, NULL);
	bpf_target_publish(agent, pid, PUBLISH_MAPPINGS | PUBLISH_TABLES, 0);
	bpf_target_want(agent, pid, PROF_WANT_CPU | PROF_WANT_MAPPED);
	sample_at(10000);
	do
		clock_sleep_ns(50 * NS_PER_MS);
	while ((!outcome_total(OUTCOME_ring_full) || !outcome_total(OUTCOME_stack_ring_full)) &&
	       clock_monotonic_ns() < end);
	assert_int_equal(bpf_agent_costs(agent, &costs), 0);
	if (!costs.outcomes[OUTCOME_ring_full] || !costs.outcomes[OUTCOME_stack_ring_full]) {
		printf("skipped: this machine is too slow to fill the ring buffer\n");
		skip();
	}
	assert_true(bpf_agent_fill(agent) > 0.99);
	sample_at(RATE_HZ);
	bpf_recording_poll(&recording, agent, 20);
	assert_true(bpf_agent_fill(agent) < 0.5);
	bpf_recording_deinit(&recording);
	/* nothing is lost any more, and the stacks that did not fit come with their next samples */
	lost = outcome_total(OUTCOME_ring_full);
	bpf_recording_poll(&recording, agent, 200);
	assert_true(samples_of((uint32_t)pid) > 0);
	assert_true(recording.stack_count > 0);
	assert_int_equal(outcome_total(OUTCOME_ring_full), lost);
}

/* ---- costs and refusals ---------------------------------------------------------------------- */

static int copy_of_table(uint32_t module, size_t *ret_bytes)
{
	const void *table = bpf_agent_table_map(agent, module, ret_bytes);
	int memfd = io_memfd("table", *ret_bytes);

	assert_non_null(table);
	assert_true(memfd >= 0);
	assert_int_equal(pwrite(memfd, table, *ret_bytes, 0), *ret_bytes);
	bpf_agent_table_unmap(table, *ret_bytes);
	return memfd;
}

/* An unwind table that the array of maps refuses is reported as lost, and its bytes are no longer
 * counted. */
static void test_lost_table(void **state)
{
	cleanup_close int memfd = -1;
	struct bpf_costs before, after;
	uint32_t lost = 0;
	uint64_t charged;
	size_t bytes;

	pid = bpf_target_start(program, "spin");
	bpf_target_publish(agent, pid, PUBLISH_TABLES, 0);
	memfd = copy_of_table(0, &bytes);
	assert_int_equal(bpf_agent_costs(agent, &before), 0);
	assert_int_equal(bpf_agent_table_publish(agent, 77, memfd, bytes, &charged), 0);
	assert_int_equal(agent->pending_count, 1);
	assert_true(dup2(memfd, agent->pending_fds[0]) >= 0); /* no map */
	bpf_recording_poll(&recording, agent, 20);
	assert_true(bpf_agent_table_lost(agent, &lost));
	assert_int_equal(lost, 77);
	assert_false(bpf_agent_table_lost(agent, &lost));
	assert_int_equal(bpf_agent_costs(agent, &after), 0);
	assert_int_equal(after.map_bytes, before.map_bytes);
}

static void test_costs(void **state)
{
	struct bpf_costs before, after;
	cleanup_close int memfd = -1;
	uint32_t modules[16];
	uint64_t charged;
	const void *table;
	size_t bytes;

	assert_int_equal(bpf_agent_costs(agent, &before), 0);
	assert_in_range(before.map_bytes, 1 << 20, 64 << 20);
	pid = bpf_target_start(program, "spin");
	bpf_target_want(agent, pid, PROF_WANT_CPU);
	sample_at(RATE_HZ);
	bpf_recording_poll(&recording, agent, 300);
	bpf_target_publish(agent, pid, PUBLISH_TABLES, 0);
	assert_int_equal(bpf_agent_costs(agent, &after), 0);
	assert_true(after.map_bytes > before.map_bytes);
	assert_true(after.runs > before.runs + 100);
	/* a sample takes microseconds, under emulation hundreds */
	assert_in_range((after.run_ns - before.run_ns) / (after.runs - before.runs), 100, 3000000);
	memfd = copy_of_table(0, &bytes);
	for (uint32_t module = 0; module < 16; module++)
		modules[module] = module;
	bpf_agent_table_drop(agent, 1);
	bpf_agent_tables_drop(agent, modules, 16);
	for (uint32_t module = 0; module < 16; module++)
		assert_null(bpf_agent_table_map(agent, module, &charged));
	/* an id that is used again */
	assert_int_equal(bpf_agent_table_publish(agent, 0, memfd, bytes, &charged), 0);
	bpf_recording_poll(&recording, agent, 20);
	assert_false(bpf_agent_table_lost(agent, modules));
	table = bpf_agent_table_map(agent, 0, &bytes);
	assert_non_null(table);
	bpf_agent_table_unmap(table, bytes);
	bpf_agent_tables_drop(agent, modules, 16);
	for (int i = 0; i < 300 && after.map_bytes > before.map_bytes + (256 << 10); i++) {
		bpf_recording_poll(&recording, agent, 200); /* maps are freed after a grace period */
		assert_int_equal(bpf_agent_costs(agent, &after), 0);
	}
	assert_in_range(after.map_bytes, before.map_bytes, before.map_bytes + (256 << 10));
}

static void test_bad_tables(void **state)
{
	cleanup_close int memfd = io_memfd("bad", 4096);
	uint64_t charged = 7;
	uint32_t head[8] = { UNWIND_TABLE_MAGIC, UNWIND_TABLE_VERSION, 0, 1, 3, 0xffff, 4, 1 };

	assert_true(memfd >= 0);
	assert_int_equal(bpf_agent_table_publish(agent, 0, memfd, 4096, &charged), -EPROTO);
	assert_int_equal(pwrite(memfd, head, sizeof(head), 0), sizeof(head));
	assert_int_equal(bpf_agent_table_publish(agent, 0, memfd, 4096, &charged), -EPROTO);
	assert_int_equal(bpf_agent_table_publish(agent, 0, memfd, 0, &charged), -EPROTO);
	assert_int_equal(bpf_agent_table_publish(agent, 0, memfd, 4095, &charged), -EPROTO);
	assert_int_equal(bpf_agent_table_publish(agent, 0, memfd, 8192, &charged), -EPROTO);
	assert_int_equal(bpf_agent_table_publish(agent, 0, memfd, UINT64_MAX, &charged), -EPROTO);
	assert_int_equal(bpf_agent_table_publish(agent, PROF_MODULES_MAX, memfd, 4096, &charged),
			 -ENOSPC);
	assert_int_equal(charged, 7);
}

/* Gives up all capabilities but those of the bits in @keep. */
static int keep_capabilities(uint64_t keep)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2] = {
		{ .effective = (uint32_t)keep, .permitted = (uint32_t)keep },
		{ .effective = (uint32_t)(keep >> 32), .permitted = (uint32_t)(keep >> 32) },
	};

	return (int)syscall(SYS_capset, &head, data);
}

/* CAP_BPF and CAP_PERFMON are enough, unless the distribution's kernel restricts perf events
 * further. */
static void test_two_capabilities(void **state)
{
	char paranoid[16] = "";
	struct features features = { 0 };
	struct bpf_agent *own = NULL;
	struct err err = { 0 };
	int status;
	pid_t child;

	assert_true(io_read_small(AT_FDCWD, "/proc/sys/kernel/perf_event_paranoid", paranoid,
				  sizeof(paranoid)) > 0);
	if (atoi(paranoid) > 2) {
		printf("skipped: kernel.perf_event_paranoid is %d\n", atoi(paranoid));
		skip();
	}
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		if (keep_capabilities(1ull << CAP_BPF | 1ull << CAP_PERFMON))
			_exit(2);
		features_probe(&features);
		if (bpf_agent_create(&features, &own, &err) < 0 ||
		    bpf_agent_set_cpu_rate(own, 99, &err) < 0) {
			printf("%s\n", err.text);
			_exit(1);
		}
		bpf_agent_destroy(own);
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static void test_without_capabilities(void **state)
{
	struct features features = { 0 };
	struct bpf_agent *own = NULL;
	struct err err = { 0 };
	int status;
	pid_t child = fork();

	assert_true(child >= 0);
	if (!child) {
		if (keep_capabilities(0))
			_exit(2);
		features_probe(&features);
		_exit(bpf_agent_create(&features, &own, &err) == -EPERM &&
				      strstr(err.text, "not permitted")
			      ? 0
			      : 1);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

static int setup_group(void **state)
{
	program = bpf_target_compile("life", source, "-O2");
	depths = bpf_target_compile("depths", depths_source, "-O2 -fno-optimize-sibling-calls");
	return 0;
}

static int teardown_group(void **state)
{
	free(program);
	free(depths);
	bpf_target_cleanup();
	return 0;
}

#define test(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		test(test_targets),
		test(test_stopped),
		test(test_dead_events),
		test(test_rate),
		test(test_fast),
		test(test_fast_knows_numbers_again),
		test(test_fast_is_refused),
		test(test_exec_fork_exit),
		test(test_child_is_inherited),
		test(test_exec_clears_target),
		test(test_stack_travels_once),
		test(test_addresses_are_private),
		test(test_ring_full),
		test(test_lost_table),
		test(test_costs),
		test(test_bad_tables),
		cmocka_unit_test(test_two_capabilities),
		cmocka_unit_test(test_without_capabilities),
	};

	if (bpf_target_skip())
		return 0;
	return cmocka_run_group_tests_name("bpf_agent", tests, setup_group, teardown_group);
}
