// SPDX-License-Identifier: Apache-2.0
/* Bytes of a program that moves them by every call there is: each call as it was while there are few, the right sum in
 * the mean where there are many, and the thread's own count to the byte. At the ends of those calls where the kernel
 * lets programs in there, and at the end of every system call. */
#include <fcntl.h>
#include <math.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "bpf/outcome.h"
#include "tests/support/bpf_target.h"

#define WANTED	   (PROF_WANT_OFFCPU | PROF_WANT_IO | PROF_WANT_MAPPED)
#define CALLS_MAX  64u
#define MANY_CALLS 20000u
#define MANY_BYTES 100u

/* What the program did, and how it is told to; it waits for both without moving bytes. */
struct shared {
	sem_t go, done;
	bool many;
	unsigned count;
	long moved[CALLS_MAX];
};

static struct shared *shared;
static struct bpf_agent *agent;
static struct bpf_recording recording;
static pid_t pid;

static void moved(long bytes)
{
	if (bytes <= 0 || shared->count == CALLS_MAX)
		_exit(1);
	shared->moved[shared->count++] = bytes;
}

static void move_by_every_call(int file, const int pipes[2][2], const int sockets[2])
{
	char buffer[4096] = "";
	struct iovec parts[2] = { { buffer, 12 }, { buffer, 34 } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
	off_t at = 0, from = 0, to = 2048;

	moved(pwrite(file, buffer, 2000, 0));
	moved(pread(file, buffer, 1999, 0));
	moved(pwritev(file, parts, 2, 0));
	moved(preadv(file, parts, 1, 0));
	moved(pwritev2(file, parts, 2, 5, 0));
	moved(preadv2(file, parts, 2, 5, 0));
	moved(copy_file_range(file, &from, file, &to, 777, 0));
	moved(write(pipes[0][1], buffer, 301));
	moved(read(pipes[0][0], buffer, 101));
	moved(tee(pipes[0][0], pipes[1][1], 55, 0));
	moved(splice(pipes[0][0], NULL, pipes[1][1], NULL, 66, 0));
	moved(writev(pipes[1][1], parts, 2));
	moved(readv(pipes[1][0], parts, 2));
	moved(send(sockets[0], buffer, 900, 0));
	moved(recv(sockets[1], buffer, 900, 0));
	moved(sendmsg(sockets[0], &message, 0));
	moved(recvmsg(sockets[1], &message, 0));
	moved(sendfile(sockets[0], file, &at, 1234));
	moved(read(sockets[1], buffer, sizeof(buffer)));
}

_Noreturn static void program(void)
{
	int file = memfd_create("test_io", MFD_CLOEXEC), null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	int pipes[2][2], sockets[2];
	char buffer[MANY_BYTES] = "";

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (file < 0 || null < 0 || pipe2(pipes[0], O_CLOEXEC) || pipe2(pipes[1], O_CLOEXEC) ||
	    socketpair(AF_UNIX, SOCK_STREAM, 0, sockets))
		_exit(1);
	for (;;) {
		(void)sem_wait(&shared->go);
		for (unsigned i = 0; shared->many && i < MANY_CALLS; i++)
			if (write(null, buffer, sizeof(buffer)) != sizeof(buffer))
				_exit(1);
		if (!shared->many)
			move_by_every_call(file, pipes, sockets);
		(void)sem_post(&shared->done);
	}
}

/* With the feature @disable (NULL: none) as if the kernel lacked it. */
static void begin(const char *disable)
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
	assert_int_equal(bpf_agent_set_io(agent, true), 0);
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
static void move(bool many)
{
	struct timespec limit;

	shared->many = many;
	shared->count = 0;
	bpf_recording_poll(&recording, agent, 20);
	bpf_recording_deinit(&recording);
	(void)clock_gettime(CLOCK_REALTIME, &limit);
	limit.tv_sec += 60;
	assert_int_equal(sem_post(&shared->go), 0);
	assert_int_equal(sem_timedwait(&shared->done, &limit), 0);
	assert_int_equal(bpf_agent_sweep(agent, false), 0);
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

static void each_call_is_recorded(const char *disable)
{
	const struct prof_sample_event *sample;
	uint64_t sum = 0;
	size_t at = 0;

	begin(disable);
	move(false);
	assert_int_equal(shared->count, 19);
	for (unsigned i = 0; i < shared->count; i++) {
		sample = next(PROF_SAMPLE_IO, &at);
		if (!sample || sample->value != (uint64_t)shared->moved[i] || sample->value2 != 1024)
			fail_msg("call %u moved %ld bytes, recorded %lld", i, shared->moved[i],
				 sample ? (long long)sample->value : -1);
		sum += sample->value;
	}
	assert_null(next(PROF_SAMPLE_IO, &at));
	at = 0;
	sample = next(PROF_SAMPLE_MOVED, &at);
	assert_non_null(sample);
	assert_int_equal(sample->value, sum);
	end(NULL);
}

static void many_calls_are_sampled(const char *disable)
{
	const double due = (double)MANY_CALLS * MANY_BYTES;
	const struct prof_sample_event *sample;
	double sum = 0, variance = 0;
	struct bpf_costs costs;
	size_t at = 0, count = 0;

	begin(disable);
	move(true);
	while ((sample = next(PROF_SAMPLE_IO, &at))) {
		double value = (double)sample->value;

		sum += value;
		variance += value * (value - MANY_BYTES);
		count++;
	}
	print_message("%zu of %u calls were recorded, %.2f of their bytes +- %.2f\n", count, MANY_CALLS, sum / due,
		      sqrt(variance) / due);
	assert_in_range(count, 100, MANY_CALLS / 2);
	assert_true(fabs(sum - due) < 5 * sqrt(variance));
	at = 0;
	sample = next(PROF_SAMPLE_MOVED, &at);
	assert_non_null(sample);
	assert_int_equal(sample->value, MANY_CALLS * MANY_BYTES);
	assert_int_equal(bpf_agent_costs(agent, &costs), 0);
	assert_int_equal(costs.outcomes[OUTCOME_resume_missed], 0);
	end(NULL);
}

static void test_few_calls(void **state)
{
	each_call_is_recorded(NULL);
	each_call_is_recorded("fexit");
}

static void test_many_calls(void **state)
{
	many_calls_are_sampled(NULL);
	many_calls_are_sampled("fexit");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_few_calls, end),
		cmocka_unit_test_teardown(test_many_calls, end),
	};

	if (bpf_target_skip())
		return 0;
	return cmocka_run_group_tests_name("io", tests, NULL, NULL);
}
