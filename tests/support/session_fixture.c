// SPDX-License-Identifier: Apache-2.0
#include "tests/support/session_fixture.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "bpf/profiler.h"

void session_fixture_open(struct session_fixture *f)
{
	struct err err = { 0 };

	if (store_open(f->dir, NULL, "", &f->store, &err) < 0)
		fail_msg("%s", err.text);
	f->options.store = f->store;
	f->options.feed_fd = f->feed.ring_fd;
	if (!f->options.flush_interval_ns)
		f->options.flush_interval_ns = 100 * NS_PER_MS;
	if (sessions_create(&f->options, &f->sessions, &err) < 0)
		fail_msg("%s", err.text);
	fake_feed_connect(&f->feed, f->sessions);
}

void session_fixture_close(struct session_fixture *f)
{
	sessions_destroy(f->sessions);
	store_close(f->store);
	f->sessions = NULL;
	f->store = NULL;
}

/* Three processes: two of `web`, one of `db`; stack 1 = main>a, 2 = main>b. */
static void fill_tables(struct session_fixture *f)
{
	const uint64_t a[] = { prof_frame_module(0, 0x100, 0), prof_frame_module(0, 0x300, 0) };
	const uint64_t b[] = { prof_frame_module(1, 0x200, 0), prof_frame_module(0, 0x300, 0) };

	fake_feed_epoch(&f->feed, 1);
	fake_feed_module(&f->feed, 0, 0xa0, "/usr/bin/web");
	fake_feed_module(&f->feed, 1, 0xb0, "/usr/lib/libx.so");
	fake_feed_proc(&f->feed, &(struct fake_proc){ .proc = 1,
						      .tgid = 101,
						      .comm = "web",
						      .exe = "/usr/bin/web",
						      .ports = "8080",
						      .cgroup = "/system.slice/web.service" });
	fake_feed_proc(&f->feed, &(struct fake_proc){ .proc = 2,
						      .tgid = 102,
						      .comm = "web",
						      .exe = "/usr/bin/web",
						      .cgroup = "/system.slice/web.service" });
	fake_feed_proc(&f->feed, &(struct fake_proc){ .proc = 3,
						      .tgid = 103,
						      .comm = "db",
						      .exe = "/usr/bin/db",
						      .cgroup = "/" });
	fake_feed_stack(&f->feed, 1, a, 2, 0);
	fake_feed_stack(&f->feed, 2, b, 2, 1);
}

void session_fixture_wait_known(struct session_fixture *f, const char *service)
{
	session_fixture_wait_type(f, service, PROFILE_CPU);
}

void session_fixture_wait_type(struct session_fixture *f, const char *service,
			       enum profile_type type)
{
	for (int i = 0; i < 200; i++) {
		struct service_list list;
		struct err err = { 0 };
		bool found = false;

		assert_int_equal(sessions_services(f->sessions, "default", &list, &err), 0);
		for (uint32_t j = 0; j < list.count; j++)
			found |= strcmp(list.items[j].name, service) == 0 &&
				 list.items[j].types[type].available;
		service_list_deinit(&list);
		if (found)
			return;
		clock_sleep_ns(10 * NS_PER_MS);
	}
	fail_msg("service %s never appeared", service);
}

int session_fixture_setup(void **state)
{
	struct session_fixture *f = calloc(1, sizeof(*f));

	strcpy(f->dir, "/tmp/profd-sessions-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	fake_feed_open(&f->feed, 8 << 20);
	session_fixture_open(f);
	fill_tables(f);
	session_fixture_wait_known(f, "db");
	*state = f;
	return 0;
}

int session_fixture_teardown(void **state)
{
	struct session_fixture *f = *state;
	char command[128];

	session_fixture_close(f);
	fake_feed_close(&f->feed);
	(void)snprintf(command, sizeof(command), "rm -rf '%s'", f->dir);
	assert_int_equal(system(command), 0);
	free(f);
	return 0;
}

struct session_request session_fixture_request(const char *service, uint32_t duration_s)
{
	return (struct session_request){ .tenant = "default",
					 .service = service,
					 .type = PROFILE_CPU,
					 .duration_s = duration_s,
					 .rate_hz = 99 };
}

void session_fixture_start(struct session_fixture *f, const struct session_request *request,
			   char id[SESSION_ID_SIZE])
{
	struct session_info info;
	struct err err = { 0 };

	if (sessions_start(f->sessions, request, &info, &err) < 0)
		fail_msg("%s: %s", err.word ? err.word : "?", err.text);
	strcpy(id, info.id);
	assert_int_equal(info.status, SESSION_RUNNING);
	session_info_deinit(&info);
	if (!request->wait_s &&
	    sessions_wait_started(f->sessions, request->tenant, id, 60 * NS_PER_S, &err) < 0)
		fail_msg("%s", err.text);
}

struct session_info session_fixture_get(struct session_fixture *f, const char *id)
{
	struct session_info info = { 0 };
	struct err err = { 0 };

	if (sessions_get(f->sessions, "default", id, &info, &err) < 0)
		fail_msg("%s", err.text);
	return info;
}

void session_fixture_stop(struct session_fixture *f, const char *id)
{
	struct err err = { 0 };
	bool stopped = false;

	assert_int_equal(sessions_delete(f->sessions, "default", id, &stopped, &err), 0);
	assert_true(stopped);
	if (sessions_wait(f->sessions, "default", id, 60 * NS_PER_S, &err) < 0)
		fail_msg("%s", err.text);
}

sqlite3 *session_fixture_lock_records(struct session_fixture *f)
{
	sqlite3 *other = NULL;
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/state.db", f->dir);
	assert_int_equal(sqlite3_open(path, &other), SQLITE_OK);
	/* The store may be writing at this moment. */
	assert_int_equal(sqlite3_busy_timeout(other, 60000), SQLITE_OK);
	assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
	return other;
}

void session_fixture_samples(struct session_fixture *f, uint32_t proc, uint64_t stack, int count)
{
	uint64_t now_ns = clock_monotonic_ns();

	for (int i = 0; i < count; i++)
		fake_feed_sample(&f->feed, proc, proc * 100, stack, now_ns + (uint64_t)i,
				 PERIOD_99);
}

double session_fixture_two_owners(struct session_fixture *f, unsigned count)
{
	struct continuous_setting fast = session_fixture_setting("a", "web", 100),
				  slow = session_fixture_setting("b", "web", 20);
	uint64_t now_ns;

	session_fixture_put(f, &fast);
	session_fixture_put(f, &slow);
	session_fixture_wait_rate(f, 100);
	now_ns = clock_monotonic_ns();
	for (uint32_t i = 0; i < count; i++)
		fake_feed_sample(&f->feed, 1, i % 50, 1 + i % 2, now_ns + i * 1000ull, 10000000);
	session_fixture_wait_samples(f, "a", "web", count);
	return 4 * sqrt(count * 0.2 * 0.8);
}

int64_t session_fixture_self(const struct profile *p, const char *function)
{
	struct profile_function_row *rows = NULL;
	size_t count = 0;
	int64_t self = -1;

	assert_int_equal(profile_top_functions(p, profile_value_index(p), &rows, &count), 0);
	for (size_t i = 0; i < count; i++)
		if (strcmp(profile_string(p, p->functions[rows[i].function].name), function) == 0)
			self = rows[i].self;
	free(rows);
	return self;
}

/* ---- continuous profiling ----------------------------------------------------------------------
 */

void session_fixture_kill(struct session_fixture *f)
{
	fake_feed_disconnect(&f->feed);
	sessions_abandon(f->sessions);
	store_close(f->store);
}

struct continuous_setting session_fixture_setting(const char *tenant, const char *service,
						  uint32_t rate)
{
	struct continuous_setting setting = {
		.types = 1u << PROFILE_CPU, .rate_hz = rate, .retention_days = 7, .enabled = true
	};

	strcpy(setting.tenant, tenant);
	strcpy(setting.service, service);
	return setting;
}

void session_fixture_put(struct session_fixture *f, const struct continuous_setting *setting)
{
	struct continuous_info info;
	struct err err = { 0 };

	if (sessions_continuous_put(f->sessions, setting, &info, &err) < 0)
		fail_msg("%s", err.text);
}

void session_fixture_wait_rate(struct session_fixture *f, uint32_t rate)
{
	for (int i = 0; i < 6000 && f->feed.rate_hz != rate; i++)
		clock_sleep_ns(10 * NS_PER_MS);
	assert_int_equal(f->feed.rate_hz, rate);
}

struct session_list session_fixture_list(struct session_fixture *f, const char *tenant,
					 const char *service)
{
	struct session_query query = {
		.tenant = tenant, .service = service, .type = -1, .status = -1, .limit = 100
	};
	struct session_list list = { 0 };
	struct err err = { 0 };

	if (sessions_list(f->sessions, &query, &list, &err) < 0)
		fail_msg("%s", err.text);
	return list;
}

void session_fixture_wait_samples(struct session_fixture *f, const char *tenant,
				  const char *service, uint64_t samples)
{
	uint64_t got = 0;

	for (int i = 0; i < 6000; i++) {
		struct session_list list = session_fixture_list(f, tenant, service);

		got = 0;
		for (uint32_t j = 0; j < list.count; j++)
			got += list.items[j].sample_count;
		session_list_deinit(&list);
		if (got == samples)
			return;
		clock_sleep_ns(10 * NS_PER_MS);
	}
	fail_msg("%s has %lu samples instead of %lu", service, got, samples);
}
