// SPDX-License-Identifier: Apache-2.0
/* Recordings: what was written comes back, damage is noticed, and replay puts it into a ring. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/channel.h"
#include "agent/base/io.h"
#include "agent/collect/feed/feed_file.h"
#include "agent/collect/feed/feed_writer.h"
#include "agent/collect/feed/replay.h"
#include "agent/wire/control.h"
#include "tests/support/feed_view.h"

#define THEN_NS 5000000000ull /* monotonic time of the recording */
#define SAMPLES 20u

static char path[64];

static void record_one(struct feed_file *file, uint32_t kind, const void *fixed, size_t fixed_len,
		       const void *tail, size_t tail_len)
{
	struct iovec parts[2] = { { (void *)(uintptr_t)fixed, fixed_len },
				  { (void *)(uintptr_t)tail, tail_len } };

	feed_file_add(file, kind, parts, tail_len ? 2 : 1);
}

/* One process, one stack, SAMPLES samples 20 ms apart. */
static void make_recording(void)
{
	struct feed_epoch epoch = { .clock = { THEN_NS, THEN_NS + 7, 1000 * NS_PER_S + THEN_NS },
				    .epoch = 77,
				    .byte_order = FEED_FILE_BYTE_ORDER };
	struct feed_proc proc = { .start_boottime_ns = THEN_NS - NS_PER_S, .proc = 1, .tgid = 42 };
	struct feed_stack stack = { .stack = 99, .frame_count = 1 };
	struct feed_sample sample = { .proc = 1, .user_stack = 99, .value = 10 };
	uint64_t frame = prof_frame_address(PROF_FRAME_ADDRESS, 0x1234, 0);
	struct feed_file *file = NULL;
	char strings[14] = { 0 };
	int fd;

	(void)snprintf(path, sizeof(path), "/tmp/profd-replay-XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(feed_file_create(fd, &file), 0);
	record_one(file, FEED_EPOCH, &epoch, sizeof(epoch), NULL, 0);
	record_one(file, FEED_PROC, &proc, sizeof(proc), strings, sizeof(strings));
	record_one(file, FEED_STACK, &stack, sizeof(stack), &frame, sizeof(frame));
	for (unsigned i = 0; i < SAMPLES; i++) {
		sample.time_ns = THEN_NS + NS_PER_S + i * 20 * NS_PER_MS;
		record_one(file, FEED_SAMPLE, &sample, sizeof(sample), NULL, 0);
	}
	assert_int_equal(feed_file_close(file), 0);
}

static struct feed_file *open_recording(int rc)
{
	struct feed_file *file = NULL;
	struct err err = { 0 };
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(feed_file_open(fd, &file, &err), rc);
	if (rc < 0) {
		(void)close(fd);
		assert_true(err.text[0] != '\0');
	}
	return file;
}

static unsigned count_records(struct feed_file *file, int *ret_rc)
{
	unsigned count = 0;
	uint32_t kind;
	void *data;
	size_t len;

	while ((*ret_rc = feed_file_next(file, &kind, &data, &len)) == 1)
		count++;
	return count;
}

static void a_recording_comes_back(void **state)
{
	struct feed_file *file;
	uint32_t kind;
	size_t len;
	void *data;
	int rc;

	make_recording();
	file = open_recording(0);
	assert_int_equal(feed_file_next(file, &kind, &data, &len), 1);
	assert_int_equal(kind, FEED_EPOCH);
	assert_int_equal(len, sizeof(struct feed_epoch));
	assert_true(((struct feed_epoch *)data)->epoch == 77);
	assert_int_equal(count_records(file, &rc), 2 + SAMPLES);
	assert_int_equal(rc, 0);
	assert_int_equal(feed_file_close(file), 0);
	(void)unlink(path);
}

/* A recorder that was killed: good up to the last whole record. Other damage is refused. */
static void damage_is_noticed(void **state)
{
	static const struct {
		const char *name;
		off_t at;
		uint32_t value;
		int open_rc, read_rc;
	} cases[] = {
		{ "magic", 0, 0x41414141, -EPROTO, 0 },
		{ "version", 8, FEED_FILE_VERSION - 1, -EPROTO, 0 },
		{ "byte order", 12, 0x04030201, -EPROTO, 0 },
		{ "length", 16, FEED_FILE_RECORD_MAX + 1, 0, -EPROTO },
		{ "length beyond the end", 16, FEED_FILE_RECORD_MAX, 0, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct feed_file *file;
		int fd, rc;

		make_recording();
		fd = open(path, O_RDWR | O_CLOEXEC);
		assert_int_equal(pwrite(fd, &cases[i].value, 4, cases[i].at), 4);
		(void)close(fd);
		file = open_recording(cases[i].open_rc);
		if (file) {
			assert_int_equal(count_records(file, &rc), 0);
			assert_int_equal(rc, cases[i].read_rc);
			(void)feed_file_close(file);
		}
		(void)unlink(path);
	}
	make_recording();
	for (off_t len = 15; len >= 0; len -= 5) {
		assert_int_equal(truncate(path, len), 0);
		(void)open_recording(-EPROTO);
	}
	(void)unlink(path);
	make_recording();
	{
		struct feed_file *file;
		int rc;

		assert_int_equal(truncate(path, 16 + 8 + 64 + 8 + 10), 0);
		file = open_recording(0);
		assert_int_equal(count_records(file, &rc), 1);
		assert_int_equal(rc, 0);
		(void)feed_file_close(file);
	}
	(void)unlink(path);
}

struct played {
	pid_t pid;
	int control, server, feed_fd;
	struct feed_view view;
};

static void start_replay(struct played *played, bool real_time, bool wait_for_demand)
{
	struct control_peer peer = { .head = { .kind = CONTROL_PEER },
				     .role = ROLE_SERVER,
				     .generation = 1 };
	int control[2], server[2];

	*played = (struct played){ .feed_fd = ring_create(4096) };
	assert_int_equal(channel_pair(control), 0);
	assert_int_equal(channel_pair(server), 0);
	played->pid = fork();
	if (played->pid == 0) {
		struct replay_options options = { .control_fd = control[1],
						  .feed_fd = played->feed_fd,
						  .path = path,
						  .real_time = real_time,
						  .wait_for_demand = wait_for_demand };

		(void)close(control[0]);
		(void)close(server[0]);
		(void)close(server[1]);
		_exit(replay_run(&options));
	}
	assert_true(played->pid > 0);
	(void)close(control[1]);
	played->control = control[0];
	played->server = server[0];
	assert_int_equal(
		channel_send_wait(played->control, &peer, sizeof(peer), &server[1], 1, 1000), 0);
	(void)close(server[1]);
	feed_view_init(&played->view, played->feed_fd);
}

static void stop_replay(struct played *played)
{
	struct channel_head stop = { .kind = CONTROL_STOP };
	int status;

	assert_int_equal(channel_send(played->control, &stop, sizeof(stop), NULL, 0), 0);
	assert_int_equal(waitpid(played->pid, &status, 0), played->pid);
	assert_int_equal(status, 0);
	feed_view_deinit(&played->view);
	(void)close(played->control);
	(void)close(played->server);
	(void)close(played->feed_fd);
}

static void read_until(struct feed_view *view, size_t samples)
{
	for (int i = 0; i < 250 && view->sample_count < samples; i++)
		feed_view_run(view, 20);
	assert_int_equal(view->sample_count, samples);
}

/* The ring is far smaller than the recording: replay waits for its reader and loses nothing. */
static void full_speed_keeps_every_stamp(void **state)
{
	struct played played;

	make_recording();
	start_replay(&played, false, false);
	read_until(&played.view, SAMPLES);
	assert_true(played.view.epoch.clock.monotonic_ns == THEN_NS);
	assert_true(played.view.procs[0].fixed.start_boottime_ns == THEN_NS - NS_PER_S);
	for (unsigned i = 0; i < SAMPLES; i++)
		assert_true(played.view.samples[i].time_ns ==
			    THEN_NS + NS_PER_S + i * 20 * NS_PER_MS);
	feed_view_check(&played.view);
	stop_replay(&played);
	(void)unlink(path);
}

static void real_time_begins_with_the_demand(void **state)
{
	struct control_demand demand = { .head = { .kind = CONTROL_DEMAND },
					 .types = PROF_WANT_CPU,
					 .rate_hz = 99 };
	struct played played;
	uint64_t asked_ns, first_ns;

	make_recording();
	start_replay(&played, true, true);
	feed_view_run(&played.view, 200);
	assert_int_equal(played.view.proc_count, 1); /* services are known before */
	assert_int_equal(played.view.sample_count, 0);
	asked_ns = clock_monotonic_ns();
	assert_int_equal(channel_send(played.server, &demand, sizeof(demand), NULL, 0), 0);
	read_until(&played.view, SAMPLES);
	first_ns = played.view.samples[0].time_ns;
	assert_true(first_ns >= asked_ns && first_ns < asked_ns + NS_PER_S);
	/* 19 intervals of 20 ms took their time, and the last stamp is not in the future. */
	assert_true(clock_monotonic_ns() - asked_ns >= 340 * NS_PER_MS);
	assert_true(played.view.samples[SAMPLES - 1].time_ns == first_ns + 380 * NS_PER_MS);
	assert_true(played.view.samples[SAMPLES - 1].time_ns <=
		    clock_monotonic_ns() + 20 * NS_PER_MS);
	/* The process had been running for a second when the recording began. */
	assert_true(played.view.epoch.clock.boottime_ns -
			    played.view.procs[0].fixed.start_boottime_ns ==
		    NS_PER_S + 7);
	stop_replay(&played);
	(void)unlink(path);
}

static void a_missing_file_is_told(void **state)
{
	static struct channel_message message;
	struct played played;
	struct channel_head stop = { .kind = CONTROL_STOP };
	struct pollfd wait = { .events = POLLIN };
	int status;

	(void)snprintf(path, sizeof(path), "/tmp/profd-no-such-recording");
	start_replay(&played, false, false);
	wait.fd = played.control;
	assert_int_equal(poll(&wait, 1, 60000), 1);
	assert_int_equal(channel_receive(played.control, &message), 1);
	assert_int_equal(((struct channel_head *)message.data)->kind, CONTROL_FAILED);
	assert_non_null(strstr(((struct control_failed *)message.data)->text, path));
	assert_int_equal(channel_send(played.control, &stop, sizeof(stop), NULL, 0), 0);
	assert_int_equal(waitpid(played.pid, &status, 0), played.pid);
	assert_int_equal(WEXITSTATUS(status), 1);
	feed_view_deinit(&played.view);
	(void)close(played.control);
	(void)close(played.server);
	(void)close(played.feed_fd);
}

static void malformed_records_have_no_time(void **state)
{
	struct clock_triple from = { 1, 1, 1 }, to = { 2, 2, 2 };
	uint8_t data[256], before[256];
	uint64_t time_ns;

	memset(data, 0xaa, sizeof(data));
	memcpy(before, data, sizeof(data));
	for (uint32_t kind = 0; kind < 20; kind++) {
		for (size_t len = 0; len < 8; len++) {
			assert_false(replay_time_of(kind, data, len, &time_ns));
			replay_shift(kind, data, len, &from, &to);
		}
	}
	assert_false(replay_time_of(UINT32_MAX, data, sizeof(data), &time_ns));
	assert_memory_equal(data, before, sizeof(data));
}

/* The replay shifts the start time of a thread's counters as it shifts the time of the sample. */
static void a_thread_began_as_long_ago(void **state)
{
	static const uint8_t readings[] = { PROF_SAMPLE_THREAD, PROF_SAMPLE_MOVED, PROF_SAMPLE_STOLEN };
	struct clock_triple from = { .monotonic_ns = 900 }, to = { .monotonic_ns = 300 };
	struct feed_sample sample = { .time_ns = 1000, .type = PROF_SAMPLE_OFFCPU, .object = 777 };

	replay_shift(FEED_SAMPLE, &sample, sizeof(sample), &from, &to);
	assert_int_equal(sample.time_ns, 400);
	assert_int_equal(sample.object, 777);
	for (size_t i = 0; i < ARRAY_SIZE(readings); i++) {
		sample = (struct feed_sample){ .time_ns = 1000, .type = readings[i], .object = 950 };
		replay_shift(FEED_SAMPLE, &sample, sizeof(sample), &from, &to);
		assert_int_equal(sample.object, 350);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_recording_comes_back),
		cmocka_unit_test(damage_is_noticed),
		cmocka_unit_test(full_speed_keeps_every_stamp),
		cmocka_unit_test(real_time_begins_with_the_demand),
		cmocka_unit_test(a_missing_file_is_told),
		cmocka_unit_test(malformed_records_have_no_time),
		cmocka_unit_test(a_thread_began_as_long_ago),
	};

	return cmocka_run_group_tests_name("replay", tests, NULL, NULL);
}
