// SPDX-License-Identifier: Apache-2.0
/* Continuous settings of types that cannot be summed by minutes: a chain of sessions, and the
 * profile of a time range made of several of them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/base/ulid.h"
#include "agent/session/continuous/continuous.h"
#include "agent/session/records/session_record.h"
#include "bpf/profiler.h"
#include "tests/support/session_fixture.h"

#define MINUTE (60 * NS_PER_S)

/* The standing session of @service, once it has taken @samples and is as @status says. */
static struct session_info await_standing(struct session_fixture *f, const char *service,
					  uint64_t samples, enum session_status status)
{
	struct session_info found = { 0 };

	for (int i = 0; i < 6000 && !found.id[0]; i++) {
		struct session_list list = session_fixture_list(f, "default", service);

		for (uint32_t j = 0; j < list.count; j++)
			if (list.items[j].continuous && list.items[j].started_at_ns &&
			    list.items[j].status == status && list.items[j].sample_count == samples)
				found = list.items[j];
		session_list_deinit(&list);
		clock_sleep_ns(10 * NS_PER_MS);
	}
	if (!found.id[0])
		fail_msg("no such session of %s", service);
	return found; /* but for what it owned */
}

/* Waits for locks are taken by sessions that follow one another, beside those that are asked for.
 */
static void test_standing_sessions(void **state)
{
	struct session_fixture *f = *state;
	struct continuous_setting setting = session_fixture_setting("default", "web", 99);
	struct session_request request = session_fixture_request("web", 60);
	const uint8_t futex = PROF_OFF_BLOCKED << 4 | PROF_WAIT_FUTEX;
	struct continuous_info status;
	struct session_info info;
	struct err err = { 0 };
	char id[SESSION_ID_SIZE];
	bool stopped = true;
	uint64_t now_ns;

	setting.types = 1u << PROFILE_BLOCK;
	session_fixture_put(f, &setting);
	info = await_standing(f, "web", 0, SESSION_RUNNING);
	assert_int_equal(info.type, PROFILE_BLOCK);
	request.type = PROFILE_BLOCK;
	session_fixture_start(f, &request, id);
	now_ns = clock_monotonic_ns();
	for (uint64_t i = 0; i < 20; i++)
		fake_feed_wait(&f->feed, 1, 100, 2, now_ns + i, NS_PER_MS / 10, futex);
	(void)await_standing(f, "web", 20, SESSION_RUNNING);
	assert_int_equal(sessions_continuous_get(f->sessions, "default", "web", &status, &err), 0);
	assert_int_equal(status.status.sessions, 1);
	assert_string_equal(status.status.last_session_id, info.id);
	assert_string_equal(status.status.refusal, "");
	/* Nobody wants it any more: it ends with what it has. */
	assert_int_equal(sessions_continuous_delete(f->sessions, "default", "web", &err), 0);
	info = await_standing(f, "web", 20, SESSION_COMPLETED);
	assert_true(info.stopped_early && info.total_value <= 20 * (int64_t)NS_PER_MS / 10 &&
		    info.total_value > 0);
	assert_int_equal(sessions_delete(f->sessions, "default", info.id, &stopped, &err), 0);
	assert_false(stopped);
	assert_int_equal(sessions_get(f->sessions, "default", info.id, &info, &err), -ENOENT);
}

/* A window's sessions of those who unlock and of those who wait are not one profile: the newest say
 * of which. */
static void test_window_of_two_sources(void **state)
{
	enum { OTHERS = 3, SESSIONS = 4 };
	struct session_fixture *f = *state;
	const uint64_t begin_ns = (clock_realtime_ns() / MINUTE - 100) * MINUTE;
	const struct history_window window = { .tenant = "default",
					       .service = "web",
					       .type = PROFILE_MUTEX,
					       .from_ns = begin_ns,
					       .to_ns = begin_ns + 50 * MINUTE };
	struct session_info info = { .type = PROFILE_MUTEX, .tenant = "default", .service = "web",
				     .selector = "service:web", .status = SESSION_COMPLETED, .duration_ns = MINUTE,
				     .sample_count = 1, .total_value = 5, .quality = { .samples = 1 } };
	cleanup(profile) struct profile *p = NULL;
	struct history_points points;
	struct err err = { 0 };

	for (uint32_t i = 0; i < OTHERS + SESSIONS; i++) {
		info.source = i < OTHERS ? PROFILE_SOURCE_UNLOCKERS : PROFILE_SOURCE_USUAL;
		info.created_at_ns = info.started_at_ns = begin_ns + i * MINUTE;
		info.completed_at_ns = info.created_at_ns + MINUTE;
		strcpy(info.id, "sess-");
		ulid_make(info.created_at_ns, info.id + strlen("sess-"));
		assert_int_equal(session_record_put(f->store, &info, NULL, &err), 0);
	}
	assert_int_equal(sessions_points(f->sessions, &window, MINUTE, NULL, &points, &err), 0);
	assert_int_equal(points.count, SESSIONS);
	assert_int_equal(points.items[0].from_ns, begin_ns + OTHERS * MINUTE);
	assert_int_equal(points.quality.samples, SESSIONS);
	assert_string_equal(
		points.quality.notes[0],
		"3 sessions that were taken in another way than the newest are left out");
	history_points_deinit(&points);
	assert_int_equal(sessions_window_profile(f->sessions, &window, &p, &err), 0);
	assert_int_equal(p->meta.source, PROFILE_SOURCE_USUAL);
	assert_int_equal(p->meta.duration_ns, SESSIONS * MINUTE);
	assert_string_equal(
		p->quality.notes[0],
		"3 sessions that were taken in another way than the newest are left out");
}

int main(void)
{
#define T(name)                                                                                    \
	cmocka_unit_test_setup_teardown(name, session_fixture_setup, session_fixture_teardown)
	const struct CMUnitTest tests[] = {
		T(test_standing_sessions),
		T(test_window_of_two_sources),
	};

	return cmocka_run_group_tests_name("standing", tests, NULL, NULL);
}
