// SPDX-License-Identifier: Apache-2.0
/* Requests of a block device that is ours alone (a loop device) against the clock of the program
 * that reads it and against what the kernel counts of the device. */
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "bpf/outcome.h"
#include "tests/support/bpf_target.h"

#define WANTED	   (PROF_WANT_OFFCPU | PROF_WANT_IO | PROF_WANT_MAPPED)
#define FILE_BYTES (64u << 20)
#define READ_BYTES                                                                                 \
	(16u << 20) /* long beside what it takes an idle CPU to wake up, which is no request's */

/* Reads of the test program, in memory shared with it. */
struct reads {
	uint64_t ns, count;
};

static int loop_fd = -1;
static char loop_path[32], loop_name[16];
static struct reads *reads;
static struct bpf_agent *agent;
static struct bpf_recording recording;
static pid_t pid;

/* A file with contents, whose blocks a loop device has to fetch. */
static int backing_file(void)
{
	char path[] = "/var/tmp/test_disk.XXXXXX";
	cleanup_free char *block = calloc(1, READ_BYTES);
	int fd = mkstemp(path);

	assert_true(fd >= 0);
	assert_int_equal(unlink(path), 0);
	assert_non_null(block);
	for (unsigned at = 0; at < FILE_BYTES; at += READ_BYTES) {
		memset(block, (int)(at / READ_BYTES) + 1, READ_BYTES);
		assert_int_equal(write(fd, block, READ_BYTES), READ_BYTES);
	}
	assert_int_equal(fsync(fd), 0);
	return fd;
}

/* Prints the reason and returns false where there are no loop devices. It goes with its last
 * descriptor. */
static bool loop_open(void)
{
	cleanup_close int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC), file = -1;
	struct loop_config config = { .info.lo_flags = LO_FLAGS_AUTOCLEAR };
	int number = control < 0 ? -1 : ioctl(control, LOOP_CTL_GET_FREE);

	if (number >= 0) {
		(void)snprintf(loop_name, sizeof(loop_name), "loop%d", number);
		(void)snprintf(loop_path, sizeof(loop_path), "/dev/%s", loop_name);
		loop_fd = open(loop_path, O_RDWR | O_CLOEXEC);
	}
	if (loop_fd >= 0) {
		file = backing_file();
		config.fd = (uint32_t)file;
		if (ioctl(loop_fd, LOOP_CONFIGURE, &config) == 0)
			return true;
	}
	print_message("skipped: there is no loop device to be had: %s\n", strerror(errno));
	return false;
}

/* Times of the device since its creation, in ms, as Documentation/block/stat.rst describes them.
 * requests_ms adds up all requests for reading, also simultaneous ones. busy_ms is the time in
 * which any request was under way. */
struct device_times {
	unsigned long long requests_ms, busy_ms;
};

static struct device_times device_times(void)
{
	struct device_times times = { 0 };
	cleanup_free char *path = NULL;
	FILE *file;

	assert_true(asprintf(&path, "/sys/block/%s/stat", loop_name) > 0);
	file = fopen(path, "re");
	assert_non_null(file);
	assert_int_equal(fscanf(file, "%*u %*u %*u %llu %*u %*u %*u %*u %*u %llu",
				&times.requests_ms, &times.busy_ms),
			 2);
	(void)fclose(file);
	return times;
}

/* Reads around the page cache, one after the other, at places that nobody foresees. */
_Noreturn static void reader_main(void)
{
	int fd = open(loop_path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	uint64_t place = 12345;
	void *block;

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (fd < 0 || posix_memalign(&block, 4096, READ_BYTES))
		_exit(1);
	for (;;) {
		uint64_t begin_ns = clock_monotonic_ns();

		place = place * 6364136223846793005ull + 1442695040888963407ull;
		if (pread(fd, block, READ_BYTES,
			  (off_t)((place >> 33) % (FILE_BYTES / READ_BYTES)) * READ_BYTES) !=
		    READ_BYTES)
			_exit(1);
		__atomic_fetch_add(&reads->ns, clock_monotonic_ns() - begin_ns, __ATOMIC_RELAXED);
		__atomic_fetch_add(&reads->count, 1, __ATOMIC_RELAXED);
	}
}

static void start_reader(void)
{
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		reader_main();
	bpf_target_want(agent, pid, WANTED);
	assert_int_equal(bpf_agent_set_io(agent, true, PROF_IO_WINDOW_NS), 0);
}

static int setup(void **state)
{
	struct features features = bpf_target_features(NULL);
	struct err err = { 0 };

	reads = mmap(NULL, sizeof(*reads), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(reads != MAP_FAILED);
	if (bpf_agent_create(&features, &agent, &err) < 0)
		fail_msg("%s", err.text);
	return 0;
}

static int teardown(void **state)
{
	bpf_agent_destroy(agent);
	agent = NULL;
	if (pid > 0) {
		(void)kill(pid, SIGKILL);
		(void)waitpid(pid, NULL, 0);
	}
	pid = 0;
	bpf_recording_deinit(&recording);
	if (loop_fd >= 0)
		(void)close(loop_fd);
	loop_fd = -1;
	(void)munmap(reads, sizeof(*reads));
	return 0;
}

struct disk_times {
	double blocked_ns, device_ns, queue_ns;
};

/* Adds up the reader's waits for disks. Each wait that names a device must name ours. */
static struct disk_times times(void)
{
	struct disk_times sum = { 0 };

	for (size_t i = 0; i < recording.record_count; i++) {
		const struct prof_sample_event *sample = &recording.records[i].sample;
		double ns = (double)sample->value;

		if (sample->type != PROF_SAMPLE_OFFCPU || sample->tgid != (uint32_t)pid ||
		    !prof_state_is_disk(sample->state))
			continue;
		sum.blocked_ns += ns;
		if (!sample->object)
			continue;
		assert_int_equal(strncmp((const char *)&sample->object, loop_name, sizeof(sample->object)), 0);
		assert_true((sample->holder >> 16) + (sample->holder & PROF_DISK_WHOLE) <= PROF_DISK_WHOLE);
		sum.device_ns += ns * (sample->holder >> 16) / PROF_DISK_WHOLE;
		sum.queue_ns += ns * (sample->holder & PROF_DISK_WHOLE) / PROF_DISK_WHOLE;
	}
	return sum;
}

static void test_reads(void **state)
{
	struct reads before, after;
	struct err err = { 0 };
	struct device_times from, to;
	struct disk_times sum;

	if (!loop_open())
		skip();
	start_reader();
	/* so low that all of these waits are recorded as they are */
	if (bpf_agent_set_offcpu(agent, true, 1000, &err) < 0)
		fail_msg("%s", err.text);
	bpf_recording_poll(&recording, agent, 50);
	bpf_recording_deinit(&recording);
	before = *reads;
	from = device_times();
	bpf_recording_poll(&recording, agent, 800);
	after = *reads;
	to = device_times();
	assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
	sum = times();
	print_message("%llu reads of %.0f us, blocked %.0f, at the device %.0f, queued %.0f ms; %s "
		      "counts %llu ms, %llu of requests\n",
		      (unsigned long long)(after.count - before.count),
		      (double)(after.ns - before.ns) / 1e3 / (double)(after.count - before.count),
		      sum.blocked_ns / 1e6, sum.device_ns / 1e6, sum.queue_ns / 1e6, loop_name,
		      to.busy_ms - from.busy_ms, to.requests_ms - from.requests_ms);
	/* A request is over when its thread is woken; what it took before the thread went to sleep
	 * is not waited for. */
	assert_true(sum.device_ns + sum.queue_ns >= 0.8 * sum.blocked_ns);
	assert_true(sum.device_ns + sum.queue_ns <=
		    1.05e6 * (double)(to.requests_ms - from.requests_ms) + 2e6);
	assert_true(sum.device_ns >= 0.3e6 * (double)(to.busy_ms - from.busy_ms));
	assert_true(sum.blocked_ns <= 1.02 * (double)(after.ns - before.ns) + 2e6);
}

/* Requests of kernel threads are charged to no process. Here the loop device's thread reads its
 * file, which is not in the page cache. */
static void test_requests_of_the_kernel(void **state)
{
	struct bpf_costs before, after;
	uint64_t from;

	if (!loop_open())
		skip();
	if (ioctl(loop_fd, LOOP_SET_DIRECT_IO, 1ul) < 0) {
		print_message("skipped: the file system of /var/tmp has no direct I/O\n");
		skip();
	}
	start_reader();
	assert_int_equal(bpf_agent_costs(agent, &before), 0);
	from = __atomic_load_n(&reads->count, __ATOMIC_RELAXED);
	while (__atomic_load_n(&reads->count, __ATOMIC_RELAXED) < from + 20)
		assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
	assert_int_equal(bpf_agent_costs(agent, &after), 0);
	assert_true(after.outcomes[OUTCOME_disk_unjoined] >= before.outcomes[OUTCOME_disk_unjoined] + 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_reads, setup, teardown),
		cmocka_unit_test_setup_teardown(test_requests_of_the_kernel, setup, teardown),
	};

	if (bpf_target_skip())
		return 0;
	return cmocka_run_group_tests_name("disk", tests, NULL, NULL);
}
