// SPDX-License-Identifier: Apache-2.0
/* The watch on a made-up history: three functions whose shares are known, minute by minute for
 * eight days; one of them takes more for two hours. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/recording/session_chunks.h"
#include "agent/session/continuous/continuous.h"
#include "agent/session/records/hosts.h"
#include "agent/session/watch/watch.h"
#include "tests/support/session_fixture.h"

#define MINUTE	(60 * NS_PER_S)
#define HOUR	(3600 * NS_PER_S)
#define DAY	(86400 * NS_PER_S)
#define KEPT	30u /* days of retention of what is made up */
#define SAMPLES 200u /* a minute */

static uint64_t random_state;

static double uniform(void)
{
	random_state += 0x9e3779b97f4a7c15ull;
	return (double)(hash_mix64(random_state) >> 11) * 0x1p-53;
}

/* ---- the receiver of webhooks ---------------------------------------------------------------- */

static _Atomic int posts, refusals, hanging; /* hanging: 1 = is to, 2 = does */
static char last_post[8192];

static int post(const char *url, const char *content_type, const char *body, struct err *err)
{
	assert_string_equal(url, "http://127.0.0.1:9/hook");
	if (hanging)
		hanging = 2;
	while (hanging)
		clock_sleep_ns(10 * NS_PER_MS);
	if (refusals > 0) {
		refusals--;
		return err_set(err, ECONNREFUSED, NULL, NULL, "not now");
	}
	(void)snprintf(last_post, sizeof(last_post), "%s", body);
	posts++;
	return 0;
}

static void wait_for_posts(int count)
{
	for (int i = 0; i < 6000 && posts < count; i++)
		clock_sleep_ns(10 * NS_PER_MS);
	assert_int_equal(posts, count);
}

/* ---- the history ----------------------------------------------------------------------------- */

struct history {
	struct session_fixture *f;
	struct buf chunks[64]; /* dictionary of the real day */
	enum store_chunk_kind kinds[64];
	size_t chunk_count;
	struct chunk_sum sums[3];    /* of the pairs that end in f_100, f_200 and f_500, in this order */
	uint64_t day;		     /* whose dictionary was written last */
};

static int copy_chunk(void *ctx, const struct store_chunk *chunk)
{
	struct history *h = ctx;

	assert_true(h->chunk_count < ARRAY_SIZE(h->chunks));
	h->kinds[h->chunk_count] = chunk->kind;
	buf_add(&h->chunks[h->chunk_count++], chunk->data, chunk->len);
	return 0;
}

/* Parts of a minute add up. */
static int copy_sum(void *ctx, const struct chunk_sum *sum)
{
	struct history *h = ctx;
	size_t i = 0;

	while (i < 2 && h->sums[i].value && h->sums[i].pair != sum->pair)
		i++;
	if (h->sums[i].value)
		h->sums[i].value += sum->value;
	else
		h->sums[i] = *sum;
	return 0;
}

static int by_value(const void *a, const void *b)
{
	const struct chunk_sum *x = a, *y = b;

	return (x->value > y->value) - (x->value < y->value);
}

static int copy_window(void *ctx, const struct store_window *window)
{
	return chunk_decode_window(window->data, window->len, copy_sum, ctx);
}

static int find_day(void *ctx, const struct store_day *day, uint64_t bytes)
{
	*(struct store_day *)ctx = *day;
	return 0;
}

/* The stacks of a minute may be stored after its sums. */
static void wait_for_stacks(struct session_fixture *f)
{
	struct history_window window = { .tenant = "default", .service = "web", .type = PROFILE_CPU,
					 .from_ns = clock_realtime_ns() - HOUR,
					 .to_ns = clock_realtime_ns() + HOUR };
	bool complete = false;
	struct err err = { 0 };

	for (int i = 0; i < 6000 && !complete; i++) {
		cleanup(profile) struct profile *p = NULL;

		clock_sleep_ns(10 * NS_PER_MS);
		complete = sessions_window_profile(f->sessions, &window, &p, &err) == 0 &&
			   session_fixture_self(p, "f_100") > 0 && session_fixture_self(p, "f_200") > 0 &&
			   session_fixture_self(p, "f_500") > 0;
	}
	assert_true(complete);
}

/* One real minute gives the dictionary and the pairs of both functions. */
static struct history *begin_history(struct session_fixture *f)
{
	struct continuous_setting setting = { .types = 1u << PROFILE_CPU, .rate_hz = 99,
					      .retention_days = 7, .enabled = true };
	const uint64_t frames[] = { prof_frame_module(0, 0x500, 0), prof_frame_module(0, 0x300, 0) };
	struct store_window_query all = { .with_data = true };
	struct history *h = calloc(1, sizeof(*h));
	struct continuous_info info;
	struct store_day day = { 0 };
	int64_t total = 0;
	struct err err = { 0 };

	h->f = f;
	strcpy(setting.tenant, "default");
	strcpy(setting.service, "web");
	assert_int_equal(sessions_continuous_put(f->sessions, &setting, &info, &err), 0);
	for (int i = 0; i < 200 && f->feed.rate_hz != 99; i++)
		clock_sleep_ns(10 * NS_PER_MS);
	fake_feed_stack(&f->feed, 50, frames, 2, 0);
	session_fixture_samples(f, 1, 1, 10);
	session_fixture_samples(f, 1, 2, 30);
	session_fixture_samples(f, 1, 50, 60);
	for (int i = 0; i < 6000 && total < 100 * (int64_t)PERIOD_99; i++) {
		clock_sleep_ns(10 * NS_PER_MS);
		memset(h->sums, 0, sizeof(h->sums));
		assert_int_equal(store_history_days(f->store, false, find_day, &day, &err), 0);
		/* The file may be about to be made. */
		if (!day.day ||
		    store_history_windows(f->store, &day, &all, copy_window, h, NULL, &err) < 0)
			continue;
		total = h->sums[0].value + h->sums[1].value + h->sums[2].value;
	}
	qsort(h->sums, 3, sizeof(h->sums[0]), by_value);
	assert_int_equal(h->sums[1].value, 30 * PERIOD_99);
	wait_for_stacks(f);
	assert_int_equal(store_history_dictionary(f->store, &day, copy_chunk, h, NULL, &err), 0);
	return h;
}

static void end_history(struct history *h)
{
	for (size_t i = 0; i < h->chunk_count; i++)
		buf_deinit(&h->chunks[i]);
	free(h);
}

/* One minute: samples are drawn, @share of f_200, the others share the rest 1 to 3. */
static void fill_minute(const struct history *h, uint64_t at_ns, double share, unsigned samples,
			struct buf *data, struct store_window *ret)
{
	unsigned count[3] = { 0 }, all = samples - 10 + (unsigned)(20 * uniform());
	struct chunk_sum sums[3];

	*ret = (struct store_window){ .service = "web", .type = "cpu", .owners = ",default:99,",
				      .from_ns = at_ns, .whole = true, .samples = all };
	for (unsigned i = 0; i < all; i++) {
		double at = uniform();

		count[at < share ? 1 : (at - share) / (1 - share) < 0.25 ? 0 : 2]++;
	}
	memcpy(sums, h->sums, sizeof(sums));
	for (unsigned i = 0; i < 3; i++) {
		sums[i].value = (int64_t)(count[i] * PERIOD_99);
		sums[i].value2 = 1024ull * count[i];
		ret->value += sums[i].value;
	}
	chunk_encode_window(data, sums, 3);
	ret->data = data->data;
	ret->len = data->len;
}

/* The minutes of one day. */
static void add_day(struct history *h, uint64_t from_ns, uint64_t to_ns, double share,
		    unsigned samples)
{
	struct store_day day = { .day = (uint32_t)(from_ns / DAY), .retention_days = KEPT };
	size_t count = (to_ns - from_ns) / MINUTE;
	struct store_window *windows = calloc(count + 1, sizeof(*windows));
	struct buf *data = calloc(count + 1, sizeof(*data));
	struct store_chunk chunks[64];
	struct err err = { 0 };

	for (size_t i = 0; i < count; i++)
		fill_minute(h, from_ns + i * MINUTE, share, samples, &data[i], &windows[i]);
	for (size_t i = 0; i < h->chunk_count; i++)
		chunks[i] = (struct store_chunk){ h->kinds[i], h->chunks[i].data, h->chunks[i].len };
	if (store_history_append(h->f->store, &day, chunks, h->day == day.day ? 0 : h->chunk_count,
				 windows, count, 0, 0, &err) < 0)
		fail_msg("%s", err.text);
	h->day = day.day;
	for (size_t i = 0; i < count; i++)
		buf_deinit(&data[i]);
	free(windows);
	free(data);
}

static void add_minutes(struct history *h, uint64_t from_ns, uint64_t to_ns, double share,
			unsigned samples)
{
	while (from_ns < to_ns) {
		uint64_t midnight_ns = (from_ns / DAY + 1) * DAY;
		uint64_t end_ns = midnight_ns < to_ns ? midnight_ns : to_ns;

		add_day(h, from_ns, end_ns, share, samples);
		from_ns = end_ns;
	}
}

/* A minute of @count samples of each of the three, @period_ns apart. */
static void add_minute_of(struct history *h, uint64_t at_ns, const unsigned count[3],
			  uint64_t period_ns)
{
	const struct store_day day = { .day = (uint32_t)(at_ns / DAY), .retention_days = KEPT };
	struct store_window window = { .service = "web",
				       .type = "cpu",
				       .owners = ",default:99,",
				       .from_ns = at_ns,
				       .whole = true,
				       .profiled_ms = 60000 };
	cleanup_buf struct buf data = { 0 };
	struct store_chunk chunks[64];
	struct chunk_sum sums[3];

	memcpy(sums, h->sums, sizeof(sums));
	for (unsigned i = 0; i < 3; i++) {
		sums[i].value = (int64_t)(count[i] * period_ns);
		sums[i].value2 = 1024ull * count[i];
		window.value += sums[i].value;
		window.samples += count[i];
	}
	chunk_encode_window(&data, sums, 3);
	window.data = data.data;
	window.len = data.len;
	for (size_t i = 0; i < h->chunk_count; i++)
		chunks[i] = (struct store_chunk){ h->kinds[i], h->chunks[i].data, h->chunks[i].len };
	assert_int_equal(store_history_append(h->f->store, &day, chunks,
					      h->day == day.day ? 0 : h->chunk_count, &window, 1, 0,
					      0, NULL),
			 0);
	h->day = day.day;
}

/* The sampling backs off in the second minute: as much time is a tenth of the samples there, of a
 * function as of all. */
static void test_samples_of_a_function_by_time(void **state)
{
	struct session_fixture *f = *state;
	struct history *h = begin_history(f);
	uint64_t begin_ns = (clock_realtime_ns() / DAY - 2) * DAY + 6 * HOUR;
	struct history_window window = { .tenant = "default",
					 .service = "web",
					 .type = PROFILE_CPU,
					 .from_ns = begin_ns,
					 .to_ns = begin_ns + 2 * MINUTE };
	struct history_points points;
	struct err err = { 0 };

	add_minute_of(h, begin_ns, (const unsigned[]){ 100, 400, 500 }, PERIOD_99);
	add_minute_of(h, begin_ns + MINUTE, (const unsigned[]){ 10, 40, 50 }, 10 * PERIOD_99);
	assert_int_equal(sessions_points(f->sessions, &window, MINUTE, "f_200", &points, &err), 0);
	assert_int_equal(points.count, 2);
	assert_int_equal(points.items[0].total_value, points.items[1].total_value);
	assert_int_equal(points.items[0].sample_count, 400);
	assert_int_equal(points.items[1].sample_count, 40);
	history_points_deinit(&points);
	end_history(h);
}

static void watch(struct session_fixture *f, const char *against)
{
	struct continuous_setting setting = { .types = 1u << PROFILE_CPU, .rate_hz = 99,
					      .retention_days = 7, .enabled = true };
	struct continuous_info info;
	struct err err = { 0 };

	strcpy(setting.tenant, "default");
	strcpy(setting.service, "web");
	strcpy(setting.watch_against, against);
	strcpy(setting.watch_webhook, "http://127.0.0.1:9/hook");
	assert_int_equal(sessions_continuous_put(f->sessions, &setting, &info, &err), 0);
}

static uint32_t check_at(struct session_fixture *f, uint64_t at_ns)
{
	struct err err = { 0 };
	uint32_t checked = 0;

	if (sessions_watch_check(f->sessions, "default", NULL, at_ns, &checked, &err) < 0)
		fail_msg("%s", err.text);
	return checked;
}

static struct finding_list findings(struct session_fixture *f)
{
	struct finding_query query = { .tenant = "default", .service = "web", .limit = 10 };
	struct finding_list list;
	struct err err = { 0 };

	assert_int_equal(sessions_findings(f->sessions, &query, &list, &err), 0);
	return list;
}

static void restart(struct session_fixture *f)
{
	session_fixture_close(f);
	session_fixture_open(f);
	session_fixture_wait_known(f, "db");
}

/* ---- tests ----------------------------------------------------------------------------------- */

static int setup(void **state)
{
	int rc = session_fixture_setup(state);
	struct session_fixture *f = *state;

	posts = refusals = 0;
	last_post[0] = '\0';
	f->options.post = post;
	restart(f);
	return rc;
}

struct watch_record {
	char id[256], body[16384];
	uint64_t created_ns;
};

static int copy_record(void *ctx, const struct store_record *record)
{
	struct watch_record *copy = ctx;

	(void)snprintf(copy->id, sizeof(copy->id), "%s", record->id);
	(void)snprintf(copy->body, sizeof(copy->body), "%s", record->body);
	copy->created_ns = record->created_ns;
	return 0;
}

/* As if the last check had been made by a clock that was a year ahead. */
static void put_check_ahead(struct session_fixture *f)
{
	struct store_query query = {
		.kind = "watch", .tenant = "default", .service = "web", .type = "cpu"
	};
	struct watch_record record = { 0 };
	char later[sizeof(record.body) + 32], *at;
	struct store_record next = { .kind = "watch",
				     .tenant = "default",
				     .id = record.id,
				     .service = "web",
				     .type = "cpu",
				     .status = "",
				     .body = later };

	assert_int_equal(store_list(f->store, &query, copy_record, &record, NULL, NULL), 0);
	at = strstr(record.body, "\"checkedNs\":\"");
	assert_non_null(at);
	at += strlen("\"checkedNs\":\"");
	(void)snprintf(later, sizeof(later), "%.*s%llu%s", (int)(at - record.body), record.body,
		       (unsigned long long)(clock_realtime_ns() + 365 * DAY), strchr(at, '"'));
	next.created_ns = record.created_ns;
	next.body_len = strlen(later);
	assert_int_equal(store_put(f->store, &next, NULL), 0);
}

/* An answer whose time is over says which days it lacks, instead of keeping others waiting. */
static void test_answer_that_takes_long(void **state)
{
	struct session_fixture *f = *state;
	struct history *h = begin_history(f);
	uint64_t now_ns = clock_realtime_ns() / MINUTE * MINUTE;
	const struct history_window window = { .tenant = "default",
					       .service = "web",
					       .type = PROFILE_CPU,
					       .from_ns = now_ns - 3 * DAY,
					       .to_ns = now_ns };
	cleanup(profile) struct profile *all = NULL, *part = NULL;
	struct history_functions functions = { 0 };
	struct err err = { 0 };
	const char *note;

	random_state = 1;
	for (uint64_t day = 3; day > 0; day--)
		add_minutes(h, now_ns - day * DAY, now_ns - day * DAY + 10 * MINUTE, 0.30, SAMPLES);
	assert_int_equal(sessions_window_profile(f->sessions, &window, &all, &err), 0);
	assert_int_equal(all->quality.note_count, 0);
	f->options.build_budget_ns = 1;
	restart(f);
	assert_int_equal(sessions_window_profile(f->sessions, &window, &part, &err), 0);
	assert_true(part->totals[0] > 0 && part->totals[0] < all->totals[0]);
	note = part->quality.notes[part->quality.note_count - 1];
	assert_non_null(strstr(note, "days are left out"));
	assert_int_equal(sessions_window_functions(f->sessions, &window, &functions, &err), 0);
	note = functions.profile->quality.notes[functions.profile->quality.note_count - 1];
	assert_non_null(strstr(note, "days are left out"));
	history_functions_deinit(&functions);
	f->options.build_budget_ns = 0;
}

/* The sixth hour before now is an hour like those of the days before, so are the fifth and those
 * after the fourth and third: in these, f_200 takes half more. */
static void test_same_hour_of_other_days(void **state)
{
	struct session_fixture *f = *state;
	struct history *h = begin_history(f);
	uint64_t now_ns = clock_realtime_ns() / MINUTE * MINUTE, begin_ns = now_ns - 5 * HOUR;
	struct finding_list list;

	random_state = 1;
	for (uint64_t day = 7; day > 0; day--)
		add_minutes(h, begin_ns - day * DAY, now_ns - day * DAY, 0.30, SAMPLES);
	add_minutes(h, begin_ns, begin_ns + HOUR, 0.30, SAMPLES);
	add_minutes(h, begin_ns + HOUR, begin_ns + 3 * HOUR, 0.45, SAMPLES);
	add_minutes(h, begin_ns + 3 * HOUR, now_ns, 0.30, SAMPLES);
	watch(f, "history");

	assert_int_equal(check_at(f, begin_ns + HOUR), 1);
	assert_int_equal(check_at(f, begin_ns + 2 * HOUR), 1);
	list = findings(f); /* seen once */
	assert_int_equal(list.count, 0);
	finding_list_deinit(&list);
	assert_int_equal(check_at(f, begin_ns + 2 * HOUR + 10 * MINUTE), 0); /* the same hour again */
	put_check_ahead(f); /* does not silence the watch for a year */
	restart(f); /* forgets nothing */
	refusals = 1;
	assert_int_equal(check_at(f, begin_ns + 3 * HOUR), 1);
	list = findings(f);
	assert_int_equal(list.count, 1);
	assert_int_equal(list.total, 1);
	assert_string_equal(list.items[0].against, "history");
	assert_true(list.items[0].at_ns == begin_ns + 3 * HOUR && list.items[0].closed_at_ns == 0);
	assert_non_null(strstr(list.items[0].comparison, "\"verdict\":\"regressed\""));
	assert_non_null(strstr(list.items[0].comparison, "\"funcName\":\"f_200\""));
	assert_non_null(strstr(list.items[0].comparison, "the same hour of 7 days before had 30."));
	finding_list_deinit(&list);
	wait_for_posts(1);
	assert_int_equal(refusals, 0);
	assert_non_null(strstr(last_post, "\"state\":\"open\""));

	/* It went away: two hours without it close it. */
	assert_int_equal(check_at(f, begin_ns + 4 * HOUR), 1);
	list = findings(f);
	assert_int_equal(list.items[0].closed_at_ns, 0);
	finding_list_deinit(&list);
	assert_int_equal(check_at(f, begin_ns + 5 * HOUR), 1);
	list = findings(f);
	assert_int_equal(list.count, 1);
	assert_true(list.items[0].closed_at_ns == begin_ns + 5 * HOUR);
	finding_list_deinit(&list);
	wait_for_posts(2);
	assert_non_null(strstr(last_post, "\"state\":\"closed\""));
	end_history(h);
}

/* A receiver that takes long to answer keeps nobody else waiting: what is to be taken from now on
 * is. */
static void test_a_webhook_that_hangs(void **state)
{
	struct session_fixture *f = *state;
	const struct finding_delivery delivery = { .webhook = "http://127.0.0.1:9/hook" };
	struct continuous_setting setting = session_fixture_setting("default", "web", 99);
	struct finding_info info = { .tenant = "default", .service = "web", .type = PROFILE_CPU,
				     .at_ns = clock_realtime_ns(), .comparison = strdup("{}") };
	bool taken = false;
	struct err err = { 0 };

	hanging = 1;
	finding_make_id(info.at_ns, info.id);
	assert_int_equal(finding_put(f->sessions, &info, &delivery, &err), 0);
	finding_info_deinit(&info);
	assert_int_equal(
		sessions_watch_check(f->sessions, "default", NULL, 0, &(uint32_t){ 0 }, &err),
		-ENOENT);
	for (int i = 0; i < 6000 && hanging != 2; i++)
		clock_sleep_ns(10 * NS_PER_MS);
	assert_int_equal(hanging, 2);
	setting.types = 1u << PROFILE_BLOCK;
	session_fixture_put(f, &setting);
	for (int i = 0; i < 500 && !taken; i++) {
		struct session_list list = session_fixture_list(f, "default", "web");

		taken = list.count > 0;
		session_list_deinit(&list);
		clock_sleep_ns(10 * NS_PER_MS);
	}
	hanging = 0;
	wait_for_posts(1);
	assert_true(taken);
}

/* A day in which the rate of samples doubles in the middle, the shares stay. */
static void test_change_of_level(void **state)
{
	struct session_fixture *f = *state;
	struct history *h = begin_history(f);
	uint64_t now_ns = clock_realtime_ns() / MINUTE * MINUTE, begin_ns = now_ns - 24 * HOUR;
	struct finding_list list;

	random_state = 2;
	add_minutes(h, begin_ns, now_ns - 6 * HOUR, 0.3, SAMPLES);
	/* A gap is not a zero. */
	add_minutes(h, now_ns - 5 * HOUR, now_ns, 0.3, 2 * SAMPLES);
	watch(f, "history");
	assert_int_equal(check_at(f, now_ns - 2 * HOUR), 1);
	assert_int_equal(check_at(f, now_ns - HOUR), 1);
	list = findings(f);
	assert_int_equal(list.count, 1);
	assert_non_null(strstr(list.items[0].comparison, "\"cause\":\"load\""));
	assert_non_null(strstr(list.items[0].comparison, "per second changed at"));
	finding_list_deinit(&list);
	end_history(h);
}

static void put_deployment(struct session_fixture *f, uint64_t at_ns)
{
	static const char body[] = "{\"exe\":\"web\",\"buildId\":\"bb\",\"previousBuildId\":\"aa\"}";
	struct store_record record = { .kind = "deployment", .tenant = "default", .id = "dep-1",
				       .service = "web", .type = "", .status = "changed",
				       .created_ns = at_ns, .body = body, .body_len = strlen(body) };
	struct err err = { 0 };

	assert_int_equal(store_put(f->store, &record, &err), 0);
}

/* A side of the finding's comparison: what /compare can be asked for. */
static void expect_side(const struct finding_info *info, const char *side, uint64_t from_ns,
			uint64_t to_ns)
{
	char from[CLOCK_RFC3339_SIZE], to[CLOCK_RFC3339_SIZE], due[160];

	clock_format_rfc3339(from_ns, from);
	clock_format_rfc3339(to_ns, to);
	(void)snprintf(due, sizeof(due), "\"%s\":\"web/cpu/%s/%s\"", side, from, to);
	if (!strstr(info->comparison, due))
		fail_msg("no %s in %s", due, info->comparison);
}

static void test_new_build_is_judged_at_once(void **state)
{
	struct session_fixture *f = *state;
	struct history *h = begin_history(f);
	uint64_t now_ns = clock_realtime_ns() / MINUTE * MINUTE, begin_ns = now_ns - 3 * HOUR;
	struct finding_list list;

	random_state = 3;
	add_minutes(h, begin_ns, begin_ns + HOUR, 0.30, SAMPLES);
	add_minutes(h, begin_ns + HOUR, now_ns, 0.50, SAMPLES);
	watch(f, "previous-version");
	assert_int_equal(check_at(f, begin_ns + HOUR), 0); /* nothing to compare with */
	put_deployment(f, begin_ns + HOUR);
	assert_int_equal(check_at(f, begin_ns + 2 * HOUR), 1);
	list = findings(f);
	assert_int_equal(list.count, 1);
	assert_string_equal(list.items[0].against, "previous-version");
	expect_side(&list.items[0], "baseProfile", begin_ns, begin_ns + HOUR);
	expect_side(&list.items[0], "comparisonProfile", begin_ns + HOUR, begin_ns + 2 * HOUR);
	assert_non_null(strstr(list.items[0].comparison, "\"funcName\":\"f_200\""));
	finding_list_deinit(&list);
	/* Still so an hour later: the same finding. */
	assert_int_equal(check_at(f, begin_ns + 3 * HOUR), 1);
	list = findings(f);
	assert_int_equal(list.count, 1);
	finding_list_deinit(&list);
	end_history(h);
}

/* A process of the same executable with another build id. */
static void test_deployment_is_seen(void **state)
{
	struct session_fixture *f = *state;
	const uint64_t frames[] = { prof_frame_module(7, 0x100, 0), prof_frame_module(7, 0x300, 0) };
	struct history *h = begin_history(f);
	struct deployment_list list = { 0 };
	struct err err = { 0 };

	fake_feed_module(&f->feed, 7, 0xf0, "/usr/bin/web");
	fake_feed_stack(&f->feed, 70, frames, 2, 0);
	fake_feed_proc(&f->feed, &(struct fake_proc){ .proc = 9, .tgid = 90000, .comm = "web",
						      .exe = "/usr/bin/web",
						      .cgroup = "/system.slice/web.service" });
	session_fixture_samples(f, 9, 70, 5);
	session_fixture_samples(f, 2, 1, 5); /* an older process is no step back */
	for (int i = 0; i < 6000 && !list.count; i++) {
		clock_sleep_ns(10 * NS_PER_MS);
		deployments_write(f->sessions);
		deployment_list_deinit(&list);
		assert_int_equal(sessions_deployments(f->sessions, "default", "web", 0, 0, &list, &err),
				 0);
	}
	assert_int_equal(list.count, 1);
	assert_string_equal(list.items[0].service, "web");
	assert_string_equal(list.items[0].exe, "web");
	assert_string_equal(list.items[0].build_id, "0707070707070707070707070707070707070707");
	assert_string_equal(list.items[0].previous_build_id,
			    "0000000000000000000000000000000000000000");
	deployment_list_deinit(&list);
	assert_int_equal(sessions_deployments(f->sessions, "other", "web", 0, 0, &list, &err), 0);
	assert_int_equal(list.count, 0);
	deployment_list_deinit(&list);
	end_history(h);
}

/* Builds that follow one another before anything is written: each replaced the one before it. */
static void test_deployments_in_one_look(void **state)
{
	struct session_fixture *f = *state;
	struct history *h = begin_history(f);
	struct deployment_list list = { 0 };
	struct err err = { 0 };
	size_t pending = 0;

	for (uint32_t i = 7; i < 10; i++) {
		const uint64_t frame = prof_frame_module(i, 0x100, 0);

		fake_feed_module(&f->feed, i, 0xf0 + i, "/usr/bin/web");
		fake_feed_stack(&f->feed, i * 10, &frame, 1, 0);
		fake_feed_proc(&f->feed, &(struct fake_proc){ .proc = i,
							      .tgid = i * 10000,
							      .comm = "web",
							      .exe = "/usr/bin/web",
							      .cgroup = "/system.slice/web.service" });
		session_fixture_samples(f, i, i * 10, 5);
	}
	for (int i = 0; i < 6000 && pending < 3; i++) {
		clock_sleep_ns(NS_PER_MS);
		sessions_lock(f->sessions);
		pending = f->sessions->continuous->deployments.pending_count;
		sessions_unlock(f->sessions);
	}
	deployments_write(f->sessions);
	assert_int_equal(sessions_deployments(f->sessions, "default", "web", 0, 0, &list, &err), 0);
	assert_int_equal(list.count, 3);
	for (size_t i = 0; i < 3; i++) { /* newest first */
		assert_int_equal(list.items[i].build_id[1], '9' - (int)i);
		assert_int_equal(list.items[i].previous_build_id[1], i < 2 ? '8' - (int)i : '0');
	}
	deployment_list_deinit(&list);
	end_history(h);
}

/* A span of the time when all was well is kept. */
static void make_baseline(struct session_fixture *f, uint64_t from_ns, char ret[SESSION_ID_SIZE])
{
	struct session_query query = { .tenant = "default",
				       .service = "web",
				       .type = PROFILE_CPU,
				       .status = -1,
				       .from_ns = from_ns,
				       .to_ns = from_ns + 30 * MINUTE,
				       .limit = 1 };
	struct baseline_request request = { .tenant = "default", .label = "then", .type = PROFILE_CPU,
					    .description = "", .top_functions = NULL };
	struct baseline_info info;
	struct session_list list;
	struct err err = { 0 };

	assert_int_equal(sessions_list(f->sessions, &query, &list, &err), 0);
	assert_int_equal(list.count, 1);
	request.session_id = list.items[0].id;
	if (sessions_baseline_create(f->sessions, &request, &info, &err) < 0)
		fail_msg("%s", err.text);
	memcpy(ret, info.id, SESSION_ID_SIZE);
	baseline_info_deinit(&info);
	session_list_deinit(&list);
}

static void test_against_a_baseline(void **state)
{
	struct session_fixture *f = *state;
	struct history *h = begin_history(f);
	uint64_t now_ns = clock_realtime_ns() / MINUTE * MINUTE, begin_ns = now_ns - 4 * HOUR;
	char id[SESSION_ID_SIZE], base[96], host[STORE_HOST_SIZE];
	struct finding_list list;

	random_state = 4;
	add_minutes(h, begin_ns, begin_ns + 2 * HOUR, 0.30, SAMPLES);
	add_minutes(h, begin_ns + 2 * HOUR, now_ns, 0.50, SAMPLES);
	make_baseline(f, begin_ns, id);
	watch(f, id);
	assert_int_equal(check_at(f, begin_ns + 2 * HOUR), 1);
	assert_int_equal(check_at(f, begin_ns + 3 * HOUR), 1);
	assert_int_equal(check_at(f, begin_ns + 4 * HOUR), 1);
	list = findings(f);
	assert_int_equal(list.count, 1);
	assert_string_equal(list.items[0].against, id);
	hosts_name(host);
	assert_string_equal(list.items[0].host, host);
	(void)snprintf(base, sizeof(base), "\"baseProfile\":\"%s\"", id);
	assert_non_null(strstr(list.items[0].comparison, base));
	expect_side(&list.items[0], "comparisonProfile", begin_ns + 3 * HOUR, begin_ns + 4 * HOUR);
	finding_list_deinit(&list);
	end_history(h);
}

static void test_refusals(void **state)
{
	struct session_fixture *f = *state;
	struct finding_query query = { .tenant = "default", .limit = 1 };
	static const char *const cursors[] = {
		"x", "", "5", "5.", ".fnd-1", "-5.fnd-1", "99999999999999999999.fnd-1", "5 .fnd-1"
	};
	struct finding_list list;
	struct err err = { 0 };
	uint32_t checked;

	assert_int_equal(sessions_watch_check(f->sessions, "default", NULL, 0, &checked, &err),
			 -ENOENT);
	assert_string_equal(err.word, "UnknownService");
	assert_true(sessions_watch_check(f->sessions, "default", NULL,
					 clock_realtime_ns() + HOUR, &checked, &err) < 0);
	assert_string_equal(err.word, "InvalidParam");
	for (size_t i = 0; i < ARRAY_SIZE(cursors); i++) {
		query.cursor = cursors[i];
		assert_int_equal(sessions_findings(f->sessions, &query, &list, &err), -EINVAL);
		assert_string_equal(err.field, "cursor");
	}
	watch(f, "bl-00000000000000000000000000"); /* a baseline that is gone */
	assert_int_equal(check_at(f, 0), 0);
}

static uint64_t own_cpu_ns(void)
{
	struct timespec spent;

	assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &spent), 0);
	return (uint64_t)spent.tv_sec * NS_PER_S + (uint64_t)spent.tv_nsec;
}

/* A finding that was never told, and is not to be told any more (its day is over, or it is gone),
 * is no reason to look without a pause. */
static void test_what_is_not_told_any_more_is_forgotten(void **state)
{
	struct session_fixture *f = *state;
	struct finding_info info = { .type = PROFILE_CPU,
				     .at_ns = clock_realtime_ns(),
				     .id = "fnd-1",
				     .tenant = "default",
				     .service = "web",
				     .against = "history",
				     .comparison = (char[]){ "{}" } };
	const struct finding_delivery delivery = { .webhook = "http://127.0.0.1:9/hook" };
	struct err err = { 0 };
	uint64_t spent_ns;
	uint32_t checked;

	refusals = 1000;
	assert_int_equal(finding_put(f->sessions, &info, &delivery, &err), 0);
	for (int i = 0; i < 6000 && refusals == 1000; i++) {
		(void)!sessions_watch_check(f->sessions, "default", NULL, 0, &checked,
					    &err); /* wakes who tells */
		clock_sleep_ns(10 * NS_PER_MS);
	}
	assert_true(refusals < 1000);
	assert_int_equal(store_delete(f->store, "finding", "default", "fnd-1", &err), 0);
	clock_sleep_ns(3 * NS_PER_S); /* it would be due again by then */
	spent_ns = own_cpu_ns();
	clock_sleep_ns(2 * NS_PER_S);
	assert_in_range(own_cpu_ns() - spent_ns, 0, NS_PER_S / 10);
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, session_fixture_teardown)
	const struct CMUnitTest tests[] = {
		T(test_answer_that_takes_long),
		T(test_same_hour_of_other_days),
		T(test_samples_of_a_function_by_time),
		T(test_change_of_level),
		T(test_new_build_is_judged_at_once),
		T(test_against_a_baseline),
		T(test_deployment_is_seen),
		T(test_deployments_in_one_look),
		T(test_what_is_not_told_any_more_is_forgotten),
		T(test_refusals),
		T(test_a_webhook_that_hangs),
	};

	return cmocka_run_group_tests_name("watch", tests, NULL, NULL);
}
