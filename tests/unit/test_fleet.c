// SPDX-License-Identifier: Apache-2.0
/* Hosts that share a store: whose is what, in what a server that takes nothing says of them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/buf.h"
#include "agent/base/clock.h"
#include "agent/base/ring.h"
#include "agent/session/continuous/continuous.h"
#include "agent/session/records/hosts.h"
#include "agent/session/records/session_record.h"
#include "tests/support/clickhouse.h"
#include "tests/support/store_fixture.h"

#define MINUTE (60 * NS_PER_S)
#define DAY    (86400 * NS_PER_S)
#define WAIT_MS 60000u

struct host {
	char dir[64];
	struct store *store;
	struct sessions *sessions; /* NULL = it only writes */
};

struct fleet {
	char url[96];
	struct host a, b, viewer, other;
};

static void open_host(struct fleet *f, struct host *host, const char *name)
{
	struct err err = { 0 };

	strcpy(host->dir, "/tmp/profd-fleet-XXXXXX");
	assert_non_null(mkdtemp(host->dir));
	if (store_open(host->dir, f->url, name, &host->store, &err) < 0)
		fail_msg("%s", err.text);
	assert_true(store_is_shared(host->store));
}

static void view(struct fleet *f, struct host *host)
{
	struct sessions_options options = { .feed_fd = -1 };
	struct err err = { 0 };

	open_host(f, host, "");
	options.store = host->store;
	if (sessions_create(&options, &host->sessions, &err) < 0)
		fail_msg("%s", err.text);
}

static void close_host(struct host *host)
{
	char command[128];

	sessions_destroy(host->sessions);
	store_close(host->store);
	(void)snprintf(command, sizeof(command), "rm -rf '%s'", host->dir);
	assert_int_equal(host->dir[0] ? system(command) : 0, 0);
}

static int setup(void **state)
{
	struct fleet *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	(void)snprintf(f->url, sizeof(f->url), "%s", clickhouse_fresh_url());
	open_host(f, &f->a, "a");
	open_host(f, &f->b, "b");
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fleet *f = *state;

	close_host(&f->viewer);
	close_host(&f->other);
	close_host(&f->a);
	close_host(&f->b);
	free(f);
	return 0;
}

/* Until what was written is in the store. */
static void settle(struct host *host)
{
	for (unsigned i = 0; i < WAIT_MS / 10 && store_waiting_bytes(host->store); i++)
		clock_sleep_ns(10 * NS_PER_MS);
	assert_int_equal(store_waiting_bytes(host->store), 0);
}

static void put_session(struct host *host, const char *name, const char *id,
			enum session_status status, uint64_t created_ns, uint32_t retention_days)
{
	struct session_info info = { .type = PROFILE_CPU, .status = status, .created_at_ns = created_ns,
				     .started_at_ns = created_ns, .requested_duration_s = 60, .rate_hz = 99,
				     .retention_days = retention_days };
	struct err err = { 0 };

	(void)snprintf(info.id, sizeof(info.id), "%s", id);
	(void)snprintf(info.host, sizeof(info.host), "%s", name);
	strcpy(info.tenant, "default");
	strcpy(info.service, "web");
	strcpy(info.selector, "service:web");
	assert_int_equal(session_record_put(host->store, &info, NULL, &err), 0);
	settle(host);
}

static void put_day(struct host *host, uint32_t day, uint64_t from_ns, int64_t value)
{
	const struct store_day which = { .day = day, .retention_days = 7 };
	const struct store_window window = { .service = "web",
					     .type = "cpu",
					     .owners = ",default:19,",
					     .from_ns = from_ns,
					     .whole = true,
					     .profiled_ms = 60000,
					     .samples = (uint64_t)value,
					     .value = value,
					     .data = "",
					     .len = 0 };
	struct err err = { 0 };

	assert_int_equal(store_history_append(host->store, &which, NULL, 0, &window, 1, 1, 1, &err), 0);
	settle(host);
}

/* A part of a minute, or the whole of it. */
static void put_minute(struct host *host, const struct store_day *day, uint64_t from_ns, bool whole,
		       int64_t value)
{
	const struct store_window window = { .service = "web",
					     .type = "cpu",
					     .owners = ",default:19,",
					     .from_ns = from_ns,
					     .whole = whole,
					     .profiled_ms = 60000,
					     .samples = (uint64_t)value,
					     .value = value,
					     .data = "" };
	struct err err = { 0 };

	assert_int_equal(store_history_append(host->store, day, NULL, 0, &window, 1, 1, 1, &err), 0);
}

static void roll_hour(struct host *host, const struct store_day *day, uint64_t from_ns,
		      int64_t value)
{
	const struct store_minute minute = {
		.minute = 10, .profiled_ms = 60000, .samples = (uint64_t)value, .value = value
	};
	const struct store_window window = { .service = "web",
					     .type = "cpu",
					     .owners = ",default:19,",
					     .from_ns = from_ns,
					     .whole = true,
					     .profiled_ms = 60000,
					     .samples = (uint64_t)value,
					     .value = value,
					     .data = "",
					     .minutes = &minute,
					     .minute_count = 1 };
	struct err err = { 0 };

	assert_int_equal(
		store_history_roll(host->store, day, from_ns, 0, NULL, NULL, &window, 1, &err), 0);
	settle(host);
}

static int status_of(struct sessions *s, const char *id, struct session_info *ret)
{
	struct err err = { 0 };
	int rc = sessions_get(s, "default", id, ret, &err);

	if (rc == 0)
		session_info_deinit(ret);
	return rc;
}

#define SESSION "sess-01m8a8tg7qckzds7w6f0wck53y"
#define SECOND	"sess-01m8a8tg7qckzds7w6f0wck53z"
#define THIRD	"sess-01m8a8tg7qckzds7w6f0wck540"

static void test_only_its_host_stops_a_session(void **state)
{
	struct fleet *f = *state;
	struct session_info info;
	struct err err = { 0 };
	bool stopped = true;

	put_session(&f->a, "a", SESSION, SESSION_RUNNING, clock_realtime_ns() - 30 * NS_PER_S, 30);
	view(f, &f->viewer);
	assert_int_equal(status_of(f->viewer.sessions, SESSION, &info), 0);
	assert_int_equal(info.status, SESSION_RUNNING);
	assert_string_equal(info.host, "a");
	assert_in_range(info.duration_ns, 29 * NS_PER_S, 60 * NS_PER_S);
	assert_int_equal(sessions_delete(f->viewer.sessions, "default", SESSION, &stopped, &err), -EBUSY);
	assert_string_equal(err.word, "NotFinished");
	assert_non_null(strstr(err.text, "'a'"));
	put_session(&f->a, "a", SESSION, SESSION_COMPLETED, clock_realtime_ns(), 30);
	assert_int_equal(sessions_delete(f->viewer.sessions, "default", SESSION, &stopped, &err), 0);
	assert_false(stopped);
	assert_int_equal(status_of(f->viewer.sessions, SESSION, &info), -ENOENT);
	/* A session that should have ended long ago runs on no host. */
	put_session(&f->a, "a", SESSION, SESSION_RUNNING, clock_realtime_ns() - DAY, 30);
	assert_int_equal(sessions_delete(f->viewer.sessions, "default", SESSION, &stopped, &err), 0);
}

static struct span_list list_spans(struct sessions *s)
{
	const struct span_query query = { .tenant = "default", .type = -1, .status = -1 };
	struct span_list list;
	struct err err = { 0 };

	if (spans_collect(s, &query, &list, &err) < 0)
		fail_msg("%s", err.text);
	return list;
}

static void test_a_span_belongs_to_one_host(void **state)
{
	struct fleet *f = *state;
	uint64_t day = clock_realtime_ns() / DAY - 1, from_ns = day * DAY + 600 * NS_PER_S;
	const struct history_window window = { .tenant = "default", .service = "web", .type = PROFILE_CPU,
					       .from_ns = from_ns, .to_ns = from_ns + MINUTE };
	char ids[2][2][SESSION_ID_SIZE];
	struct history_points points;
	struct err err = { 0 };
	int64_t sum = 0;

	put_day(&f->a, (uint32_t)day, from_ns, 10);
	put_day(&f->b, (uint32_t)day, from_ns, 32);
	view(f, &f->viewer);
	view(f, &f->other);
	for (unsigned i = 0; i < 2; i++) {
		struct sessions *s = i ? f->other.sessions : f->viewer.sessions;
		struct span_list list = list_spans(s);

		assert_int_equal(list.count, 2);
		for (unsigned k = 0; k < 2; k++) {
			struct session_info info;

			span_describe(s, "default", &list, &list.data[k], &info);
			assert_string_equal(info.host, info.total_value == 10 ? "a" : "b");
			memcpy(ids[i][k], info.id, sizeof(info.id));
			sum += info.total_value;
		}
		span_list_deinit(&list);
	}
	assert_int_equal(sum, 2 * (10 + 32));
	assert_memory_equal(ids[0], ids[1], sizeof(ids[0]));
	assert_string_not_equal(ids[0][0], ids[0][1]);
	/* Side by side their values add up, the time does not. */
	assert_int_equal(sessions_points(f->viewer.sessions, &window, MINUTE, NULL, &points, &err), 0);
	assert_int_equal(points.count, 1);
	assert_int_equal(points.items[0].total_value, 10 + 32);
	assert_int_equal(points.items[0].profiled_ns, 60 * NS_PER_S);
	history_points_deinit(&points);
}

/* One question for all hosts: what a roll or a whole minute replaced does not count, what came
 * after it does. */
static void test_series_of_all_hosts(void **state)
{
	struct fleet *f = *state;
	const struct store_day day = { .day = (uint32_t)(clock_realtime_ns() / DAY - 1),
				       .retention_days = 9 };
	uint64_t from_ns = day.day * DAY + 5 * 60 * MINUTE, minute_ns = from_ns + 10 * MINUTE;
	const uint64_t steps_ns[] = { MINUTE, 60 * MINUTE, 0 };
	struct err err = { 0 };

	put_minute(&f->a, &day, minute_ns, true, 7);
	roll_hour(&f->a, &day, from_ns, 10);
	put_minute(&f->b, &day, minute_ns, false, 3);
	put_minute(&f->b, &day, minute_ns, false, 4);
	put_minute(&f->b, &day, minute_ns, true, 30);
	put_minute(&f->b, &day, minute_ns, false, 2);
	settle(&f->b);
	view(f, &f->viewer);
	for (size_t i = 0; i < ARRAY_SIZE(steps_ns); i++) {
		const struct history_series_query query = { .tenant = "default",
							    .from_ns = from_ns,
							    .to_ns = from_ns + 60 * MINUTE,
							    .step_ns = steps_ns[i] };
		struct history_series_list list;

		assert_int_equal(sessions_series(f->viewer.sessions, &query, &list, &err), 0);
		assert_int_equal(list.count, 2);
		assert_string_equal(list.items[0].host, "a");
		assert_string_equal(list.items[1].host, "b");
		if (steps_ns[i]) {
			assert_int_equal(list.items[0].values[10 * MINUTE / steps_ns[i]], 10);
			assert_int_equal(list.items[1].values[10 * MINUTE / steps_ns[i]], 32);
		}
		history_series_list_deinit(&list);
	}
}

static void test_what_a_host_left_goes(void **state)
{
	struct fleet *f = *state;
	uint64_t now_ns = clock_realtime_ns(), today = now_ns / DAY;
	struct session_info info;
	struct span_list list;

	put_day(&f->a, (uint32_t)today - 9, (today - 9) * DAY, 10);
	put_day(&f->a, (uint32_t)today - 8, (today - 8) * DAY, 32);
	put_session(&f->a, "a", SESSION, SESSION_COMPLETED, now_ns - 32 * DAY, 30);
	put_session(&f->a, "a", SECOND, SESSION_RUNNING, now_ns - 32 * DAY, 0);
	put_session(&f->a, "a", THIRD, SESSION_COMPLETED, now_ns - 32 * DAY, 60);
	view(f, &f->viewer); /* looks at once */
	for (unsigned i = 0; i < WAIT_MS / 10 && status_of(f->viewer.sessions, SECOND, &info) == 0; i++)
		clock_sleep_ns(10 * NS_PER_MS);
	for (unsigned i = 0; i < WAIT_MS / 10; i++) {
		list = list_spans(f->viewer.sessions);
		if (list.count == 1)
			break;
		span_list_deinit(&list);
		clock_sleep_ns(10 * NS_PER_MS);
	}
	assert_int_equal(list.count, 1);
	assert_int_equal(list.data[0].value, 32);
	span_list_deinit(&list);
	assert_int_equal(status_of(f->viewer.sessions, SESSION, &info), -ENOENT);
	assert_int_equal(status_of(f->viewer.sessions, SECOND, &info), -ENOENT);
	assert_int_equal(status_of(f->viewer.sessions, THIRD, &info), 0);
}

static uint64_t questions(void)
{
	cleanup_buf struct buf answer = { 0 };

	clickhouse_query("SELECT value FROM system.events WHERE event = 'SelectQuery'", &answer);
	return strtoull(answer.data, NULL, 10);
}

/* A host that records nothing more has no more names to keep for the others. */
static void test_an_idle_host_asks_nothing(void **state)
{
	struct fleet *f = *state;
	const uint64_t now_ns = clock_realtime_ns();
	cleanup_close int feed_fd = ring_create(4096);
	struct sessions_options options = { .feed_fd = feed_fd, .store = f->a.store };
	struct err err = { 0 };
	uint64_t before;

	put_day(&f->a, (uint32_t)(now_ns / DAY), now_ns - now_ns % MINUTE, 1);
	if (sessions_create(&options, &f->a.sessions, &err) < 0)
		fail_msg("%s", err.text);
	clock_sleep_ns(DAY_NAMES_FIRST_NS / 2);
	before = questions();
	clock_sleep_ns(DAY_NAMES_FIRST_NS);
	assert_in_range(questions() - before, 0, 3); /* this one, and whether the store works */
	sessions_destroy(f->a.sessions);
	f->a.sessions = NULL;
}

static void test_own_ids_differ(void **state)
{
	const struct own_host viewer = { .name = "viewer", .shared = true };
	const struct store_day of_a = { .day = 1, .retention_days = 7, .host = "a" },
			       of_b = { .host = "b" }, own = { 0 };
	char id[3][STORE_ID_SIZE];

	hosts_day_id(&viewer, &of_a, "names-1-7", id[0], sizeof(id[0]));
	hosts_day_id(&viewer, &of_b, "names-1-7", id[1], sizeof(id[1]));
	hosts_own_id(&viewer, "names-1-7", id[2], sizeof(id[2]));
	assert_string_not_equal(id[0], id[1]);
	assert_string_not_equal(id[0], id[2]);
	assert_string_not_equal(id[1], id[2]);
	assert_int_equal(strncmp(id[0], "names-1-7-", 10), 0);
	assert_int_equal(strspn(id[0], "abcdefghijklmnopqrstuvwxyz0123456789-"), strlen(id[0]));
	assert_false(hosts_is_own(&viewer, "a"));
	assert_true(hosts_has_day(&viewer, &of_a, "a"));
	assert_false(hosts_has_day(&viewer, &of_a, ""));
	assert_true(hosts_has_day(&viewer, &own, ""));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_only_its_host_stops_a_session, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_span_belongs_to_one_host, setup, teardown),
		cmocka_unit_test_setup_teardown(test_series_of_all_hosts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_a_host_left_goes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_an_idle_host_asks_nothing, setup, teardown),
		cmocka_unit_test_setup_teardown(test_own_ids_differ, setup, teardown),
	};

	return store_fixture_run_on_clickhouse(tests, ARRAY_SIZE(tests));
}
