// SPDX-License-Identifier: Apache-2.0
/* A file system of 8 MiB that fills up under a running session: the session
 * fails and says why, what was there stays readable, and once there is room everything goes on. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/base/io.h"
#include "agent/session/sessions_run.h"
#include "bpf/profiler.h"
#include "tests/support/fake_feed.h"

struct fixture {
	char dir[64];
	struct fake_feed feed;
	struct store *store;
	struct sessions *sessions;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	const uint64_t frames[] = { prof_frame_module(0, 0x100, 0) };
	struct sessions_options options = { .flush_interval_ns = 100 * NS_PER_MS };
	struct err err = { 0 };

	strcpy(f->dir, "/tmp/profd-full-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	if (mount("profd-test", f->dir, "tmpfs", 0, "size=8m") < 0) {
		print_message("skipped: mounting a small file system needs root: %s\n",
			      strerror(errno));
		(void)rmdir(f->dir);
		free(f);
		return 0;
	}
	fake_feed_open(&f->feed, 8 << 20);
	assert_int_equal(store_open(f->dir, NULL, "", &f->store, &err), 0);
	options.store = f->store;
	options.feed_fd = f->feed.ring_fd;
	assert_int_equal(sessions_create(&options, &f->sessions, &err), 0);
	fake_feed_connect(&f->feed, f->sessions);
	fake_feed_epoch(&f->feed, 1);
	fake_feed_module(&f->feed, 0, 0xa0, "/usr/bin/web");
	fake_feed_proc(&f->feed, &(struct fake_proc){ .proc = 1,
						      .tgid = 101,
						      .comm = "web",
						      .exe = "/usr/bin/web",
						      .cgroup = "/" });
	fake_feed_stack(&f->feed, 1, frames, 1, 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	if (!f)
		return 0;
	sessions_destroy(f->sessions);
	store_close(f->store);
	fake_feed_close(&f->feed);
	assert_int_equal(umount2(f->dir, MNT_DETACH), 0);
	assert_int_equal(rmdir(f->dir), 0);
	free(f);
	return 0;
}

static int start(struct fixture *f, char id[SESSION_ID_SIZE], struct err *err)
{
	struct session_request request = { .tenant = "default",
					   .service = "web",
					   .type = PROFILE_CPU,
					   .duration_s = 60,
					   .rate_hz = 99 };
	struct session_info info;
	int rc = -1;

	for (int i = 0; i < 200 && rc < 0; i++) {
		rc = sessions_start(f->sessions, &request, &info, err);
		if (rc < 0 && strcmp(err->word, "UnknownService") != 0 &&
		    strcmp(err->word, "ProfileTypeUnavailable") != 0)
			return rc;
		clock_sleep_ns(10 * NS_PER_MS);
	}
	if (rc < 0)
		return rc;
	strcpy(id, info.id);
	session_info_deinit(&info);
	return sessions_wait_started(f->sessions, "default", id, 60 * NS_PER_S, err);
}

static void samples(struct fixture *f, int count)
{
	uint64_t now_ns = clock_monotonic_ns();

	/* Threads of many numbers, so that the data does not shrink to nothing. */
	for (int i = 0; i < count; i++)
		fake_feed_sample(&f->feed, 1, (uint32_t)(i * 2654435761u >> 8), 1,
				 now_ns + (uint64_t)i * 7919 % 100000, 1000000000 / 99);
}

static struct session_info finish(struct fixture *f, const char *id)
{
	struct session_info info = { 0 };
	struct err err = { 0 };
	bool stopped;

	assert_int_equal(sessions_delete(f->sessions, "default", id, &stopped, &err), 0);
	assert_int_equal(sessions_wait(f->sessions, "default", id, 60 * NS_PER_S, &err), 0);
	assert_int_equal(sessions_get(f->sessions, "default", id, &info, &err), 0);
	return info;
}

static void fill_disk(const struct fixture *f)
{
	cleanup_close int fd = -1;
	static char piece[4096];
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/foreign", f->dir);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	assert_true(fd >= 0);
	while (write(fd, piece, sizeof(piece)) > 0)
		;
}

/* Standard error, until it is read, goes into the file that is returned. */
static int catch_log(int *ret_before)
{
	int fd = io_memfd("log", 0);

	assert_true(fd >= 0);
	(void)fflush(stderr);
	*ret_before = dup(STDERR_FILENO);
	assert_true(dup2(fd, STDERR_FILENO) >= 0);
	return fd;
}

static unsigned lines_with(int fd, const char *word)
{
	static char text[65536];
	ssize_t len = pread(fd, text, sizeof(text) - 1, 0);
	unsigned count = 0;

	assert_true(len >= 0);
	text[len] = '\0';
	for (const char *at = text; (at = strstr(at, word)); at++)
		count++;
	return count;
}

static void test_full_disk(void **state)
{
	cleanup_close int log = -1;
	int before;
	struct fixture *f = *state;
	char first[SESSION_ID_SIZE], second[SESSION_ID_SIZE], path[128];
	struct session_list list;
	struct session_query query = { .tenant = "default", .type = -1, .status = -1, .limit = 10 };
	struct session_info info = { 0 };
	struct sessions_health health;
	struct profile *p = NULL;
	struct err err = { 0 };

	if (!f)
		skip();
	if (start(f, first, &err) < 0)
		fail_msg("%s", err.text);
	samples(f, 100);
	info = finish(f, first);
	assert_int_equal(info.status, SESSION_COMPLETED);
	session_info_deinit(&info);

	assert_int_equal(start(f, second, &err), 0);
	samples(f, 100);
	clock_sleep_ns(300 * NS_PER_MS);
	fill_disk(f);
	log = catch_log(&before);
	samples(f, 20000);
	assert_int_equal(sessions_wait(f->sessions, "default", second, 60 * NS_PER_S, &err), 0);
	assert_int_equal(sessions_get(f->sessions, "default", second, &info, &err), 0);
	assert_int_equal(info.status, SESSION_FAILED);
	assert_non_null(strstr(info.failure, "full"));
	session_info_deinit(&info);
	sessions_health(f->sessions, &health);
	assert_false(health.store_ok && !health.reason[0]);

	/* History stays readable, nothing new is begun. */
	assert_int_equal(sessions_profile(f->sessions, "default", first, &p, &err), 0);
	assert_int_equal(p->totals[0], 100);
	(void)profile_unref(p);
	assert_int_equal(sessions_list(f->sessions, &query, &list, &err), 0);
	assert_int_equal(list.total, 2);
	session_list_deinit(&list);
	assert_true(start(f, second, &err) < 0);
	assert_string_equal(err.word, "StoreUnavailable");
	assert_non_null(strstr(err.text, "full"));

	/* Room again: without a restart. */
	(void)snprintf(path, sizeof(path), "%s/foreign", f->dir);
	assert_int_equal(unlink(path), 0);
	if (start(f, second, &err) < 0)
		fail_msg("%s", err.text);
	samples(f, 50);
	info = finish(f, second);
	assert_int_equal(info.status, SESSION_COMPLETED);
	assert_int_equal(info.sample_count, 50);
	assert_true(dup2(before, STDERR_FILENO) >= 0);
	(void)close(before);
	assert_int_equal(lines_with(log, "budget is full"), 1);
	assert_int_equal(lines_with(log, "again: sessions are recorded"), 1);
	session_info_deinit(&info);
	sessions_health(f->sessions, &health);
	assert_true(health.store_ok);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_full_disk, setup, teardown),
	};

	return cmocka_run_group_tests_name("store_full", tests, NULL, NULL);
}
