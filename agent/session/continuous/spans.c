// SPDX-License-Identifier: Apache-2.0
/* Profiles, functions and copies made from the minute buckets of spans, and their retention. */
#include <errno.h>
#include <string.h>

#include "agent/profile/quality.h"
#include "agent/recording/recording.h"
#include "agent/session/continuous/continuous.h"
#include "agent/session/continuous/window_functions.h"
#include "agent/session/records/hosts.h"

/* ---- profiles -------------------------------------------------------------------------------- */

VEC_DEFINE(parts, struct profile *);

struct day_part {
	struct sessions *s;
	const struct history_window *window;
	const struct profile_meta *meta;
	struct store_window_query rows;
	struct parts_vec parts;
	struct window_functions *functions; /* these are wanted, and no parts */
	unsigned days;			    /* with data */
	const struct store_day *day;	    /* the one under way, likewise its host */
	const char *host;
	bool everybody; /* not a tenant's share */
	struct recording *recording;	    /* of the day under way */
	unsigned damaged_days;		    /* could not be read at all */
	unsigned late_days;		    /* left out: the time of the answer was over */
	uint64_t until_ns;		    /* then, monotonic */
	bool has_turn;			    /* to build; those who pass it on need it back */
	bool timed;			    /* it holds single samples, not sums */
	double samples;
	uint64_t lost;
	double all_samples; /* of all days, as all_lost */
	uint64_t all_lost;
	struct err *err;
};

/* Counts the minutes of an hour that were asked for. @share of the samples are the tenant's. */
static void count_window(struct day_part *part, const struct store_window *window, double share)
{
	if (!window->minute_count) {
		part->samples += share * (double)window->samples;
		part->lost += (uint64_t)(share * (double)window->lost + 0.5);
	}
	for (uint32_t i = 0; i < window->minute_count; i++) {
		uint64_t at_ns = window->from_ns + window->minutes[i].minute * CONTINUOUS_MINUTE_NS;

		if (at_ns < part->window->from_ns || at_ns >= part->window->to_ns)
			continue;
		part->samples += share * (double)window->minutes[i].samples;
		part->lost += (uint64_t)(share * (double)window->minutes[i].lost + 0.5);
	}
}

/* The tenant's, of the samples. */
static double share_of(const struct day_part *part, const struct store_window *window)
{
	uint32_t highest, rate;

	if (part->everybody)
		return 1;
	rate = owners_rate(window->owners, part->window->tenant, &highest);
	return highest && rate < highest ? (double)rate / highest : 1;
}

/* A query for a whole hour needs neither its minutes nor its threads. */
static size_t needs(void *ctx, const struct store_window *window, const void *data, size_t len)
{
	const struct day_part *part = ctx;

	if (!history_window_has(part->window, window->service, part->host))
		return 0;
	return window->minute_count && window->from_ns >= part->window->from_ns &&
			       window->from_ns + CONTINUOUS_HOUR_NS <= part->window->to_ns && share_of(part, window) >= 1
		       ? chunk_hour_pairs_need(data, len)
		       : SIZE_MAX;
}

static int add_window(void *ctx, const struct store_window *window)
{
	struct day_part *part = ctx;
	double share = share_of(part, window);

	if (!history_window_has(part->window, window->service, part->host))
		return 0;
	count_window(part, window, share);
	return recording_add_window(part->recording, window, part->window->from_ns,
				    part->window->to_ns, share);
}

static int add_pairs(void *ctx, const struct store_chunk *chunk)
{
	struct day_part *part = ctx;

	return recording_add_pairs(part->recording, chunk->kind, chunk->data, chunk->len);
}

static int add_dictionary(void *ctx, const struct store_chunk *chunk)
{
	struct day_part *part = ctx;

	return recording_add(part->recording, chunk->kind, chunk->data, chunk->len, UINT32_MAX,
			     NULL);
}

static int read_day(struct day_part *part, const struct store_day *day)
{
	struct store *store = part->s->store;
	unsigned damaged = 0, more = 0;
	int rc = part->timed ? 0
			     : store_history_windows(store, day, &part->rows, add_window, part,
						     &damaged, part->err);

	if (rc < 0 || !recording_event_count(part->recording))
		return rc;
	rc = store_history_dictionary(store, day, add_pairs, part, NULL, part->err);
	if (rc == 0)
		rc = store_history_dictionary(store, day, add_dictionary, part, &more, part->err);
	recording_note_damage(part->recording, damaged + more);
	return rc;
}

static int add_functions(void *ctx, const struct store_chunk *chunk)
{
	struct day_part *part = ctx;

	return window_functions_dictionary(part->functions, chunk->kind, chunk->data, chunk->len);
}

/* Sums the time of functions, without a profile. */
static int sum_day(struct day_part *part, const struct store_day *day)
{
	int rc;

	recording_add_up(part->recording);
	part->rows.needs = needs;
	rc = store_history_windows(part->s->store, day, &part->rows, add_window, part, NULL, part->err);
	if (rc == 0)
		rc = recording_added_up(part->recording);
	if (rc < 0 || !recording_event_count(part->recording))
		return rc;
	window_functions_begin(part->functions, part->recording);
	rc = day_names_load(part->s, day, part->err);
	if (rc < 0)
		return rc;
	rc = store_history_dictionary(part->s->store, day, add_functions, part, NULL, part->err);
	return rc == 0 ? window_functions_end(part->functions) : rc;
}

static int build_day(struct day_part *part)
{
	struct recording_options options = { .meta = *part->meta,
					     .quality = quality_empty(),
					     .nodes_max = 1u << 23,
					     .events = true,
					     .raw = part->window->raw };
	const struct name_source *names;
	struct profile *profile;
	int rc;

	(void)snprintf(options.meta.host, sizeof(options.meta.host), "%s", part->host);
	options.meta.grain_ns = part->timed ? 0 : CONTINUOUS_MINUTE_NS;
	options.quality.samples =
		part->timed ? (int64_t)recording_event_count(part->recording) : (int64_t)(part->samples + 0.5);
	options.quality.lost = (int64_t)part->lost;
	names = names_client_begin(part->s->names);
	rc = day_names_load(part->s, part->day, part->err);
	if (rc < 0) {
		names_client_end(part->s->names);
		return rc;
	}
	rc = recording_build(part->recording, &options, names, &profile);
	if (rc == 0)
		names_client_note(part->s->names, &profile->quality);
	names_client_end(part->s->names);
	if (rc < 0)
		return err_set(part->err, -rc, NULL, NULL, "the profile cannot be built: %s",
			       strerror(-rc));
	if (part->meta->type == PROFILE_CPU && profile->totals[1] > 0) {
		profile->quality.samples = profile->totals[0];
		profile->quality.effective_rate =
			(double)profile->totals[0] / ((double)profile->totals[1] / 1e9);
	}
	rc = parts_vec_push(&part->parts, profile);
	if (rc < 0)
		(void)profile_unref(profile);
	return rc;
}

/* Between two days others build. */
static int pass_turn(struct day_part *part)
{
	int rc = build_turn_pass(&part->s->builds, part->window->tenant, SESSIONS_BUILD_WAIT_NS,
				 part->err);

	part->has_turn = rc == 0;
	return rc;
}

static int add_day(void *ctx, const struct store_day *day, uint64_t bytes)
{
	struct day_part *part = ctx;
	uint64_t begin_ns = day->day * CONTINUOUS_DAY_NS;
	cleanup(recording) struct recording *recording = NULL;
	int rc = 0;

	if (begin_ns >= part->window->to_ns || begin_ns + CONTINUOUS_DAY_NS <= part->window->from_ns ||
	    !hosts_has_day(&part->s->host, day, part->window->host))
		return 0;
	if (part->days && clock_monotonic_ns() >= part->until_ns) {
		part->late_days++;
		return 0;
	}
	/* Whoever waits holds what is built, not what was read for it. */
	if (part->parts.count)
		rc = pass_turn(part);
	if (rc < 0)
		return rc;
	part->day = day;
	part->host = hosts_of_day(&part->s->host, day);
	part->samples = 0;
	part->lost = 0;
	part->timed = part->window->timed && !day->host[0] &&
		      detail_read(part->s, day, part->window, &recording, &part->lost, NULL) > 0;
	if (!part->timed)
		recording = recording_create();
	part->recording = recording;
	if (!recording)
		return err_set(part->err, ENOMEM, NULL, NULL, "no memory to read the history");
	recording_keep_trees(recording);
	rc = part->functions ? sum_day(part, day) : read_day(part, day);
	if (rc == -ENOENT)
		return 0; /* dropped meanwhile */
	if (rc == -EUCLEAN) {
		/* One day less is better than no answer. */
		spans_note_damaged_day(day, part->err);
		part->damaged_days++;
		return 0;
	}
	if (rc < 0 || !recording_event_count(recording))
		return rc;
	part->days++;
	part->all_samples += part->samples;
	part->all_lost += part->lost;
	if (part->functions)
		return 0;
	return build_day(part);
}

static struct day_part part_of(struct sessions *s, const struct history_window *window,
			       const struct profile_meta *meta, struct err *err)
{
	return (struct day_part){ .s = s,
				  .window = window,
				  .meta = meta,
				  .until_ns = clock_monotonic_ns() + s->options.build_budget_ns,
				  .rows = { .tenant = window->tenant,
					    .service = window->service,
					    .type = profile_type_info(window->type)->word,
					    .from_ns = window->from_ns,
					    .to_ns = window->to_ns,
					    .with_data = true },
				  .err = err };
}

static void note_missing_days(const struct day_part *part, struct profile_quality *quality)
{
	if (part->damaged_days)
		quality_note(quality, "%u days are damaged and left out", part->damaged_days);
	if (part->late_days)
		quality_note(quality,
			     "%u days are left out: to read all takes longer than %llu s, ask for less time",
			     part->late_days,
			     (unsigned long long)(part->s->options.build_budget_ns / NS_PER_S));
}

/* As of spans; of stacks, which nobody builds here, nothing is known. */
static void describe_functions(const struct day_part *part, struct profile *p)
{
	struct profile_quality *quality = &p->quality;

	quality->samples = (int64_t)(part->all_samples + 0.5);
	quality->lost = (int64_t)part->all_lost;
	quality->truncated_pct = quality->unknown_frame_pct = quality->guessed_frame_pct = -1;
	if (p->meta.type == PROFILE_CPU && p->totals[1] > 0)
		quality->effective_rate = part->all_samples / ((double)p->totals[1] / 1e9);
	note_missing_days(part, quality);
}

int spans_functions(struct sessions *s, const struct history_window *window,
		    const struct profile_meta *meta, struct history_functions *ret, struct err *err)
{
	struct day_part part = part_of(s, window, meta, err);
	cleanup(window_functions) struct window_functions *functions = NULL;
	int rc;

	rc = build_turn_take(&s->builds, window->tenant, SESSIONS_BUILD_WAIT_NS, err);
	if (rc < 0)
		return rc;
	functions = part.functions = window_functions_create(meta, names_client_begin(s->names));
	rc = functions ? store_history_days(s->store, true, add_day, &part, err)
		       : err_set(err, ENOMEM, NULL, NULL, "no memory to read the history");
	if (rc == 0 && !part.days)
		rc = part.damaged_days ? -EUCLEAN : -ENOENT;
	if (rc == 0)
		rc = window_functions_finish(functions, &ret->profile, &ret->rows, &ret->count);
	if (rc == 0)
		describe_functions(&part, ret->profile);
	names_client_end(s->names);
	build_turn_end(&s->builds);
	return rc;
}

static void parts_clear(struct day_part *part)
{
	for (size_t i = 0; i < part->parts.count; i++)
		(void)profile_unref(part->parts.data[i]);
	parts_vec_deinit(&part->parts);
}

/* Single samples beside sums of minutes would look as if those had happened at once. */
static bool is_mixed(const struct day_part *part)
{
	for (size_t i = 1; i < part->parts.count; i++)
		if (part->parts.data[i]->meta.grain_ns != part->parts.data[0]->meta.grain_ns)
			return true;
	return false;
}

static int build_days(struct day_part *part)
{
	struct sessions *s = part->s;
	int rc = build_turn_take(&s->builds, part->window->tenant, SESSIONS_BUILD_WAIT_NS, part->err);

	if (rc < 0)
		return rc;
	part->has_turn = true;
	rc = store_history_days(s->store, true, add_day, part, part->err);
	if (part->has_turn)
		build_turn_end(&s->builds);
	return rc;
}

int spans_profile(struct sessions *s, const struct history_window *window,
		  const struct profile_meta *meta, struct profile **ret, struct err *err)
{
	struct history_window minutes = *window;
	struct day_part part = part_of(s, window, meta, err);
	int rc;

	minutes.timed = false;
	rc = build_days(&part);
	if (rc == 0 && is_mixed(&part)) {
		parts_clear(&part);
		part = part_of(s, &minutes, meta, err);
		rc = build_days(&part);
	}
	if (rc == 0 && !part.parts.count)
		rc = part.damaged_days ? -EUCLEAN : -ENOENT;
	else if (rc == 0 && part.parts.count == 1)
		*ret = profile_ref(part.parts.data[0]);
	else if (rc == 0)
		rc = profile_merge(part.parts.data, part.parts.count, ret);
	if (rc == 0)
		note_missing_days(&part, &(*ret)->quality);
	parts_clear(&part);
	return rc;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* During a build turn. */
static int visit_names(struct day_part *part, const struct store_day *day, names_visit_fn *visit,
		       void *ctx, bool *all)
{
	struct recording_options options = { .meta = *part->meta,
					     .quality = quality_empty(),
					     .nodes_max = 1u << 23 };
	cleanup(recording) struct recording *recording = recording_create();
	cleanup(profile) struct profile *profile = NULL;
	int rc;

	part->recording = recording;
	if (!recording)
		return err_set(part->err, ENOMEM, NULL, NULL, "no memory to read the history");
	rc = read_day(part, day);
	if (rc < 0 || !recording_event_count(recording))
		return rc == -ENOENT ? 0 : rc;
	rc = recording_build(recording, &options, names_client_begin(part->s->names), &profile);
	if (rc == 0)
		rc = names_client_used(part->s->names, visit, ctx);
	*all &= names_client_state(part->s->names) != NAMES_COMING;
	names_client_end(part->s->names);
	return rc;
}

int spans_names(struct sessions *s, const struct store_day *day, uint64_t from_ns, uint64_t to_ns,
		names_visit_fn *visit, void *ctx, bool *ret_all, struct err *err)
{
	bool all = true;
	int rc = 0;

	for (int type = 0; rc == 0 && type < PROFILE_TYPE_MAX; type++) {
		const struct history_window window = {
			.tenant = "", .type = (enum profile_type)type, .from_ns = from_ns, .to_ns = to_ns
		};
		const struct profile_meta meta = { .type = window.type };
		struct day_part part = part_of(s, &window, &meta, err);

		if (!profile_type_is_kept(window.type, PROFILE_KEPT_MINUTES))
			continue;
		part.rows.tenant = NULL;
		part.everybody = true;
		rc = build_turn_take(&s->builds, "", BUILD_TURN_FOREVER, err);
		if (rc < 0)
			return rc;
		rc = visit_names(&part, day, visit, ctx, &all);
		build_turn_end(&s->builds);
	}
	if (rc == 0)
		*ret_all = all;
	return rc;
}

/* ---- copies ---------------------------------------------------------------------------------- */

struct chunk_copy {
	struct sessions *s;
	const char *to;
	struct err *err;
};

static int append_chunk(void *ctx, const struct store_chunk *chunk)
{
	const struct chunk_copy *copy = ctx;

	return store_session_append(copy->s->store, copy->to, chunk, 1, 0, 0, copy->err);
}

struct best_day {
	struct day_part part;
	struct recording *recording; /* of the file that holds most of the span */
	struct store_day day;	     /* that file */
};

/* Files of one day number their stacks each for itself: the larger part is copied. */
static int read_best(void *ctx, const struct store_day *day, uint64_t bytes)
{
	struct best_day *best = ctx;
	uint64_t begin_ns = day->day * CONTINUOUS_DAY_NS;
	cleanup(recording) struct recording *recording = NULL;
	struct recording *worse;
	int rc;

	if (begin_ns >= best->part.window->to_ns ||
	    begin_ns + CONTINUOUS_DAY_NS <= best->part.window->from_ns ||
	    !hosts_has_day(&best->part.s->host, day, best->part.window->host))
		return 0;
	recording = best->part.recording = recording_create();
	if (!recording)
		return err_set(best->part.err, ENOMEM, NULL, NULL, "no memory to read the history");
	rc = read_day(&best->part, day);
	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	if (best->recording &&
	    recording_event_count(recording) <= recording_event_count(best->recording))
		return 0;
	worse = best->recording;
	best->recording = take_ptr(recording);
	best->day = *day;
	recording_destroy(worse);
	return 0;
}

int spans_copy(struct sessions *s, const struct session_info *span, const char *to, struct err *err)
{
	const struct history_window window = {
		.tenant = span->tenant,
		.service = span->service,
		.type = span->type,
		.from_ns = span->created_at_ns,
		.to_ns = span->created_at_ns + s->options.continuous_span_ns,
		.host = span->host,
	};
	struct best_day best = { .part = part_of(s, &window, NULL, err) };
	struct chunk_copy copy = { s, to, err };
	int rc = store_history_days(s->store, true, read_best, &best, err);

	if (rc == 0 && best.recording)
		rc = recording_encode(best.recording, append_chunk, &copy);
	if (rc == 0 && best.recording)
		rc = day_names_copy(s, &best.day, to, err);
	if (rc == 0 && !best.recording)
		rc = -ENOENT;
	recording_destroy(best.recording);
	return rc;
}

/* ---- retention ------------------------------------------------------------------------------- */

struct expire {
	struct store_day days[64];
	size_t count;
	uint32_t today;
	bool any_age;
};

/* Its own host deletes it. One that has gone for good does not: others do, a day later. */
static bool is_over(const struct store_day *day, uint32_t today)
{
	return day->day + day->retention_days + (day->host[0] ? 1 : 0) < today;
}

static int note_day(void *ctx, const struct store_day *day, uint64_t bytes)
{
	struct expire *expire = ctx;

	if (expire->count < ARRAY_SIZE(expire->days) &&
	    (expire->any_age || is_over(day, expire->today)))
		expire->days[expire->count++] = *day;
	return 0;
}

void spans_expire(struct sessions *s)
{
	struct expire expire = { .today = (uint32_t)(clock_realtime_ns() / CONTINUOUS_DAY_NS) };
	struct err err = { 0 };

	if (store_history_days(s->store, true, note_day, &expire, &err) < 0)
		return;
	for (size_t i = 0; i < expire.count; i++) {
		if (store_history_drop(s->store, &expire.days[i], &err) < 0)
			log_warn("a day of the history is not deleted at the end of its retention: "
				 "%s",
				 err.text);
		detail_drop_day(s, &expire.days[i]);
		day_names_drop(s, &expire.days[i]);
	}
}

static int keep_oldest(void *ctx, const struct store_day *day, uint64_t bytes)
{
	uint64_t *oldest_ns = ctx, begin_ns = day->day * CONTINUOUS_DAY_NS;

	if (begin_ns < *oldest_ns)
		*oldest_ns = begin_ns;
	return 0;
}

uint64_t spans_oldest_ns(struct sessions *s)
{
	uint64_t oldest_ns = clock_realtime_ns();

	/* A span that is deleted now may begin before a file of its day is there. */
	oldest_ns -= oldest_ns % CONTINUOUS_DAY_NS;
	return store_history_days(s->store, true, keep_oldest, &oldest_ns, NULL) < 0 ? 0 : oldest_ns;
}

bool spans_drop_oldest(struct sessions *s)
{
	struct expire expire = { .today = (uint32_t)(clock_realtime_ns() / CONTINUOUS_DAY_NS),
				 .any_age = true };
	struct err err = { 0 };

	/* Today's file is being written: it is the last to go, and then the sessions before it. */
	if (store_history_days(s->store, false, note_day, &expire, &err) < 0 || !expire.count ||
	    expire.days[0].day >= expire.today)
		return false;
	detail_drop_day(s, &expire.days[0]);
	day_names_drop(s, &expire.days[0]);
	return store_history_drop(s->store, &expire.days[0], &err) == 0;
}
