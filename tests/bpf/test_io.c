// SPDX-License-Identifier: Apache-2.0
/* tools/test: beside others */
/* Bytes of a program that moves them by every call there is: each call as it was while there are
 * few, the right sum in the mean where there are many, and the thread's own count to the byte. At
 * the ends of those calls where the kernel lets programs in there, and at the end of every system
 * call. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "bpf/arch.h"
#include "bpf/outcome.h"
#include "tests/support/bpf_target.h"
#include "tests/workloads/aio.h"

#define WANTED	   (PROF_WANT_OFFCPU | PROF_WANT_IO | PROF_WANT_MAPPED)
#define CALLS_MAX  64u
#define MESSAGES   1100u /* more than sendmmsg() takes, 1 byte each */
#define MANY_CALLS 20000u
#define MANY_BYTES 100u
#define PACED_CALLS 3000u
#define FILLERS	   256u
#define PACE_NS	   200000 /* half of what may be recorded at most */

enum task { EVERY_CALL, MANY, PACED, MANY_MESSAGES, EVENTS };

/* Memory shared with the program: its next task, and the calls that it made. Both sides wait on
 * semaphores, which move no bytes. */
struct shared {
	sem_t go, done;
	enum task task;
	unsigned count;
	struct {
		const char *call; /* as the kernel names it */
		long bytes;
	} moved[CALLS_MAX];
};

static struct shared *shared;
static struct bpf_agent *agent;
static struct bpf_recording recording;
static pid_t pid;
static uint64_t budget_ns = PROF_IO_WINDOW_NS;
static bool without_stacks; /* nothing raises the interrupt in which user stacks are walked */

static void moved(const char *call, long bytes)
{
	if (bytes <= 0 || shared->count == CALLS_MAX)
		_exit(1);
	shared->moved[shared->count].call = call;
	shared->moved[shared->count++].bytes = bytes;
}

/* The bytes that @count messages say they have moved. */
static long length_of(const struct mmsghdr *messages, int count)
{
	long bytes = 0;

	for (int i = 0; i < count; i++)
		bytes += messages[i].msg_len;
	return bytes;
}

static void move_by_every_call(int file, const int pipes[2][2], const int sockets[2])
{
	char buffer[4096] = "";
	struct iovec parts[3] = { { buffer, 12 }, { buffer, 34 }, { buffer, 300 } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
	struct mmsghdr messages[2] = { { .msg_hdr = message },
				       { .msg_hdr = { .msg_iov = parts, .msg_iovlen = 3 } } };
	struct iocb requests[3] = { aio_request(IOCB_CMD_PWRITE, file, buffer, 901, 1),
				    aio_request(IOCB_CMD_FDSYNC, file, NULL, 0, 2),
				    aio_request(IOCB_CMD_PREAD, file, buffer, 601, 3) };
	off_t at = 0, from = 0, to = 2048;
	aio_context_t context = 0;

	moved("pwrite64", pwrite(file, buffer, 2000, 0));
	moved("pread64", pread(file, buffer, 1999, 0));
	moved("pwritev", pwritev(file, parts, 2, 0));
	moved("preadv", preadv(file, parts, 1, 0));
	moved("pwritev2", pwritev2(file, parts, 2, 5, 0));
	moved("preadv2", preadv2(file, parts, 2, 5, 0));
	moved("copy_file_range", copy_file_range(file, &from, file, &to, 777, 0));
	moved("write", write(pipes[0][1], buffer, 301));
	moved("read", read(pipes[0][0], buffer, 101));
	moved("tee", tee(pipes[0][0], pipes[1][1], 55, 0));
	moved("splice", splice(pipes[0][0], NULL, pipes[1][1], NULL, 66, 0));
	moved("vmsplice", vmsplice(pipes[1][1], parts, 2, 0));
	moved("writev", writev(pipes[1][1], parts, 2));
	moved("readv", readv(pipes[1][0], parts, 2));
	moved("sendto", send(sockets[0], buffer, 900, 0));
	moved("recvfrom", recv(sockets[1], buffer, 900, 0));
	moved("sendmsg", sendmsg(sockets[0], &message, 0));
	moved("recvmsg", recvmsg(sockets[1], &message, 0));
	moved("sendmmsg", length_of(messages, sendmmsg(sockets[0], messages, 2, 0)));
	moved("recvmmsg", length_of(messages, recvmmsg(sockets[1], messages, 2, MSG_DONTWAIT, NULL)));
	moved("sendfile64", sendfile(sockets[0], file, &at, 1234));
	moved("read", read(sockets[1], buffer, sizeof(buffer)));
	if (syscall(SYS_io_setup, AIO_MAX, &context) || aio_ask(context, requests, 3) != 3)
		_exit(1);
	moved("io_getevents", aio_collect(context, SYS_io_getevents, 3));
	if (aio_ask(context, requests, 1) != 1)
		_exit(1);
	moved("io_pgetevents", aio_collect(context, SYS_io_pgetevents, 1));
}

/* The first three requests are overwritten in memory before they are collected: the one whose data
 * and the one whose length changed are not recognised. The poll, whose result is a set of events,
 * moves no bytes. */
static void collect_late(int file, const int pipes[2])
{
	char buffer[500] = "";
	struct iocb over[3] = { aio_request(IOCB_CMD_PWRITE, file, buffer, 500, 1),
				aio_request(IOCB_CMD_PREAD, file, buffer, 400, 2),
				aio_request(IOCB_CMD_PREAD, file, buffer, 300, 3) };
	struct iocb polled[2] = { aio_request(IOCB_CMD_POLL, pipes[1], NULL, 0, 4),
				  aio_request(IOCB_CMD_PREAD, file, buffer, 200, 5) };
	aio_context_t context = 0;

	polled[0].aio_buf = POLLOUT;
	if (syscall(SYS_io_setup, AIO_MAX, &context) || aio_ask(context, over, 3) != 3)
		_exit(1);
	over[0].aio_data = 17;
	over[1].aio_nbytes = 399;
	moved("io_getevents", aio_collect(context, SYS_io_getevents, 3) - 500 - 400);
	if (aio_ask(context, polled, 2) != 2)
		_exit(1);
	moved("io_getevents", aio_collect(context, SYS_io_getevents, 2) - POLLOUT);
}

/* A stream has no messages of its own: each takes as much as it has room for. */
static void move_many_messages(const int sockets[2])
{
	static struct mmsghdr messages[MESSAGES];
	char buffer[MESSAGES] = "";
	struct iovec byte = { buffer, 1 };

	for (unsigned i = 0; i < MESSAGES; i++)
		messages[i].msg_hdr = (struct msghdr){ .msg_iov = &byte, .msg_iovlen = 1 };
	moved("sendto", send(sockets[0], buffer, MESSAGES, 0));
	moved("recvmmsg",
	      length_of(messages, recvmmsg(sockets[1], messages, MESSAGES, MSG_DONTWAIT, NULL)));
}

static void write_often(int file, unsigned count, long pace_ns)
{
	const struct timespec pace = { .tv_nsec = pace_ns };
	char buffer[MANY_BYTES] = "";

	for (unsigned i = 0; i < count; i++) {
		if (write(file, buffer, sizeof(buffer)) != sizeof(buffer))
			_exit(1);
		if (pace_ns)
			(void)nanosleep(&pace, NULL);
	}
}

_Noreturn static void program(void)
{
	int file = memfd_create("test_io", MFD_CLOEXEC), null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	int pipes[2][2], sockets[2];

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (file < 0 || null < 0 || pipe2(pipes[0], O_CLOEXEC) || pipe2(pipes[1], O_CLOEXEC) ||
	    socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
		_exit(1);
	for (;;) {
		(void)sem_wait(&shared->go);
		if (shared->task == MANY)
			write_often(null, MANY_CALLS, 0);
		if (shared->task == PACED)
			write_often(null, PACED_CALLS, PACE_NS);
		if (shared->task == EVERY_CALL)
			move_by_every_call(file, pipes, sockets);
		if (shared->task == MANY_MESSAGES)
			move_many_messages(sockets);
		if (shared->task == EVENTS)
			collect_late(file, pipes[0]);
		(void)sem_post(&shared->done);
	}
}

/* With the feature @disable (NULL: none) as if the kernel lacked it; bytes are not followed yet. */
static void begin_waits(const char *disable)
{
	struct features features = bpf_target_features(disable);
	struct err err = { 0 };

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(shared != MAP_FAILED);
	assert_int_equal(sem_init(&shared->go, 1, 0) | sem_init(&shared->done, 1, 0), 0);
	if (bpf_agent_create(&features, &agent, &err) < 0)
		fail_msg("%s", err.text);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		program();
	bpf_target_want(agent, pid, WANTED);
	/* waits are not what is looked at here */
	if (bpf_agent_set_offcpu(agent, true, 4 * NS_PER_S, &err) < 0)
		fail_msg("%s", err.text);
}

static void begin(const char *disable)
{
	begin_waits(disable);
	assert_int_equal(bpf_agent_set_io(agent, true, budget_ns), 0);
	print_message("%s\n", bpf_agent_io_is_by_call(agent) ? "at the ends of calls that move bytes"
							      : "at the end of every system call");
}

static int end(void **state)
{
	bpf_agent_destroy(agent);
	agent = NULL;
	if (pid > 0)
		bpf_target_stop(pid);
	pid = 0;
	bpf_recording_deinit(&recording);
	if (shared)
		(void)munmap(shared, sizeof(*shared));
	shared = NULL;
	return 0;
}

/* Lets the program do it, and has what came of it, with a reading of each thread. */
static void move(enum task task)
{
	struct timespec limit;

	shared->task = task;
	shared->count = 0;
	bpf_recording_poll(&recording, agent, 20);
	bpf_recording_deinit(&recording);
	(void)clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += 60;
	assert_int_equal(sem_post(&shared->go), 0);
	assert_int_equal(sem_timedwait(&shared->done, &limit), 0);
	assert_int_equal(bpf_agent_sweep(agent, false, NULL, NULL), 0);
	bpf_recording_poll(&recording, agent, 50);
}

static const struct prof_sample_event *next(enum prof_sample_type type, size_t *at)
{
	while (*at < recording.record_count) {
		const struct prof_sample_event *sample = &recording.records[(*at)++].sample;

		if (sample->type == type && sample->tgid == (uint32_t)pid)
			return sample;
	}
	return NULL;
}

/* Every one with @bytes[i] and its user stack, and no other; the thread's own count goes on from
 * *sum. */
static void these_are_recorded(const uint64_t *bytes, uint64_t *sum)
{
	const struct prof_sample_event *sample;
	size_t at = 0;

	for (unsigned i = 0; i < shared->count; i++) {
		sample = next(PROF_SAMPLE_IO, &at);
		if (sample && !sample->user_stack_hash != without_stacks)
			fail_msg("%s: %s user stack", shared->moved[i].call,
				 without_stacks ? "there is a" : "there is no");
		if (!sample || sample->value != bytes[i] || sample->value2 != 1024)
			fail_msg("%s moved %llu bytes, recorded %lld", shared->moved[i].call,
				 (unsigned long long)bytes[i],
				 sample ? (long long)sample->value : -1);
		*sum += sample->value;
	}
	assert_null(next(PROF_SAMPLE_IO, &at));
	at = 0;
	sample = next(PROF_SAMPLE_MOVED, &at);
	assert_non_null(sample);
	assert_int_equal(sample->value, *sum);
}

#define NAME(call) #call,

static void every_call_was_made(void)
{
	static const char *const calls[] = { ARCH_BYTE_CALLS(NAME) ARCH_MESSAGE_CALLS(NAME)
						     ARCH_EVENT_CALLS(NAME) };

	for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
		unsigned k = 0;

		while (k < shared->count && strcmp(shared->moved[k].call, calls[i]) != 0)
			k++;
		if (k == shared->count)
			fail_msg("%s is not made", calls[i]);
	}
}

static void each_call_is_recorded(const char *disable)
{
	uint64_t bytes[CALLS_MAX], sum = 0;
	struct bpf_costs costs;

	begin(disable);
	move(EVERY_CALL);
	every_call_was_made();
	for (unsigned i = 0; i < shared->count; i++)
		bytes[i] = (uint64_t)shared->moved[i].bytes;
	these_are_recorded(bytes, &sum);
	/* of more messages than are looked at the rest is not known, which is said */
	assert_int_equal(bpf_agent_costs(agent, &costs), 0);
	assert_int_equal(costs.outcomes[OUTCOME_messages_unread], 0);
	move(MANY_MESSAGES);
	assert_int_equal(shared->moved[1].bytes, MESSAGES);
	these_are_recorded((const uint64_t[]){ MESSAGES, 1024 }, &sum);
	assert_int_equal(bpf_agent_costs(agent, &costs), 0);
	assert_int_equal(costs.outcomes[OUTCOME_messages_unread], 1);
	assert_int_equal(costs.outcomes[OUTCOME_events_unread], 0);
	move(EVENTS);
	assert_int_equal(shared->moved[0].bytes, 300);
	assert_int_equal(shared->moved[1].bytes, 200);
	these_are_recorded((const uint64_t[]){ 300, 200 }, &sum);
	assert_int_equal(bpf_agent_costs(agent, &costs), 0);
	assert_int_equal(costs.outcomes[OUTCOME_events_unread], 1);
	end(NULL);
}

/* How many of @calls are recorded; their sum is right in the mean. */
static size_t recorded(enum task task, unsigned calls)
{
	const double due = (double)calls * MANY_BYTES;
	const struct prof_sample_event *sample;
	double sum = 0, variance = 0;
	size_t at = 0, count = 0;
	struct bpf_costs costs;

	move(task);
	while ((sample = next(PROF_SAMPLE_IO, &at))) {
		double value = (double)sample->value;

		sum += value;
		variance += value * (value - MANY_BYTES);
		count++;
	}
	print_message("%zu of %u calls were recorded, %.2f of their bytes +- %.2f\n", count, calls,
		      sum / due, sqrt(variance) / due);
	assert_true(fabs(sum - due) <= 5 * sqrt(variance));
	assert_int_equal(bpf_agent_costs(agent, &costs), 0);
	assert_int_equal(costs.outcomes[OUTCOME_resume_missed], 0);
	return count;
}

static void this_was_moved(uint64_t bytes)
{
	const struct prof_sample_event *sample;
	size_t at = 0;

	sample = next(PROF_SAMPLE_MOVED, &at);
	assert_non_null(sample);
	assert_int_equal(sample->value, bytes);
}

static void many_calls_are_sampled(const char *disable)
{
	begin(disable);
	assert_in_range(recorded(MANY, MANY_CALLS), 1000, MANY_CALLS / 2);
	this_was_moved(MANY_CALLS * MANY_BYTES);
	end(NULL);
}

/* Calls are recorded one by one within a budget: five thousand a second, if one takes no longer
 * than 20 us. */
static void calls_are_recorded_within_a_budget(const char *disable)
{
	budget_ns = PROF_IO_WINDOW_NS / 10;
	begin(disable);
	budget_ns = PROF_IO_WINDOW_NS;
	assert_int_equal(recorded(PACED, PACED_CALLS), PACED_CALLS);
	this_was_moved(PACED_CALLS * MANY_BYTES);
	/* the first window is under way */
	assert_int_equal(bpf_agent_set_io(agent, true, 0), 0);
	assert_in_range(recorded(PACED, PACED_CALLS), 10, PACED_CALLS / 2);
	this_was_moved(2 * PACED_CALLS * MANY_BYTES);
	end(NULL);
}

static void test_few_calls(void **state)
{
	each_call_is_recorded(NULL);
	each_call_is_recorded("fexit");
	without_stacks = true;
	each_call_is_recorded("irq_work");
	without_stacks = false;
}

static void test_many_calls(void **state)
{
	many_calls_are_sampled(NULL);
	many_calls_are_sampled("fexit");
}

static void test_budget(void **state)
{
	calls_are_recorded_within_a_budget(NULL);
	calls_are_recorded_within_a_budget("fexit");
}

/* Calls of processes that nobody has decided on, on the same CPU, leave room for those of one that
 * is wanted. */
static void test_beside_undecided(void **state)
{
	uint64_t bytes[CALLS_MAX], sum = 0;
	char buffer[1000] = "";
	cpu_set_t one, before;
	pid_t neighbour;

	assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	begin(NULL);
	bpf_agent_set_undecided(agent, true);
	neighbour = fork();
	if (neighbour == 0) {
		int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			(void)!write(null, buffer, sizeof(buffer));
	}
	assert_true(neighbour > 0);
	bpf_recording_poll(&recording, agent, 500);
	move(EVERY_CALL);
	for (unsigned i = 0; i < shared->count; i++)
		bytes[i] = (uint64_t)shared->moved[i].bytes;
	bpf_target_stop(neighbour);
	these_are_recorded(bytes, &sum);
	assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
	end(NULL);
}

static unsigned open_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned count = 0;

	assert_non_null(dir);
	while (readdir(dir))
		count++;
	(void)closedir(dir);
	return count;
}

/* Whether it works while only @files more can be opened. */
static int set_io_with(unsigned files)
{
	struct rlimit before, limit;
	int fillers[FILLERS], rc;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit = before;
	for (size_t i = 0; i < FILLERS; i++) /* the lowest numbers first: none below the limit is left */
		fillers[i] = dup(0);
	assert_true(fillers[FILLERS - 1] >= 0);
	limit.rlim_cur = (rlim_t)fillers[FILLERS - 1] + 1;
	for (unsigned i = 0; i < files; i++)
		(void)close(fillers[i]);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	rc = bpf_agent_set_io(agent, true, budget_ns);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	for (unsigned i = files; i < FILLERS; i++)
		(void)close(fillers[i]);
	return rc;
}

static void these_are_open(unsigned files)
{
	for (unsigned n = 0; n < 6000 && open_files() != files; n++)
		(void)nanosleep(&(struct timespec){ .tv_nsec = 10 * NS_PER_MS }, NULL);
	assert_int_equal(open_files(), files);
}

/* If one program cannot be attached, none is, and the failure leaves nothing behind. */
static void test_not_by_halves(void **state)
{
	unsigned without, needed;

	begin_waits(NULL);
	without = open_files();
	assert_int_equal(bpf_agent_set_io(agent, true, budget_ns), 0);
	needed = open_files() - without;
	assert_int_equal(bpf_agent_set_io(agent, false, 0), 0);
	these_are_open(without);
	assert_int_equal(set_io_with(0), -EMFILE);
	these_are_open(without);
	assert_int_equal(set_io_with(needed - 1), -EMFILE);
	these_are_open(without);
	assert_int_equal(set_io_with(needed), 0);
	these_are_open(without + needed);
	end(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_few_calls, end),
		cmocka_unit_test_teardown(test_many_calls, end),
		cmocka_unit_test_teardown(test_budget, end),
		cmocka_unit_test_teardown(test_beside_undecided, end),
		cmocka_unit_test_teardown(test_not_by_halves, end),
	};

	if (bpf_target_skip())
		return 0;
	return cmocka_run_group_tests_name("io", tests, NULL, NULL);
}
