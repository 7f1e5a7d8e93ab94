// SPDX-License-Identifier: Apache-2.0
/* Merged windows and trends: continuous data where there is some, else the on-demand sessions of
 * the window. */
#include <errno.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/profile/canonical.h"
#include "agent/profile/quality.h"
#include "agent/session/continuous/continuous.h"
#include "agent/session/core/services.h"
#include "agent/session/records/hosts.h"
#include "agent/session/records/session_record.h"

#define MERGED_SESSIONS_MAX 50u
#define LOOKED_MOST	    1000000u /* 24 MB, two days of 300 services */

static bool is_everything(const char *service)
{
	return strcmp(service, "*") == 0 || strcmp(service, "host") == 0;
}

static int check_window(const struct history_window *window, struct err *err)
{
	if (!window->service || !*window->service)
		return err_set(err, EINVAL, "InvalidParam", "service", "required");
	if (window->to_ns <= window->from_ns)
		return err_set(err, EINVAL, "InvalidParam", "to", "must be later than from");
	return 0;
}

/* ---- sessions of a window -------------------------------------------------------------------- */

static struct session_query sessions_query(const struct history_window *window)
{
	return (struct session_query){ .tenant = window->tenant,
				       .service = window->service,
				       .type = (int)window->type,
				       .status = SESSION_COMPLETED,
				       .own = window->host != NULL,
				       .from_ns = window->from_ns,
				       .to_ns = window->to_ns,
				       .limit = MERGED_SESSIONS_MAX };
}

/* Sessions that follow one another by a continuous setting (standing.h) go before those that were
 * asked for. */
static bool any_continuous(const struct history_window *window, const struct session_list *list)
{
	for (uint32_t i = 0; i < list->count; i++)
		if (list->items[i].continuous &&
		    history_window_has(window, list->items[i].service, list->items[i].host))
			return true;
	return false;
}

/* Sessions that were taken in another way than the newest, such as by the stacks of those who
 * unlock, cannot be added to it. */
struct one_source {
	bool any;
	enum profile_source source;
	uint32_t others;
};

static bool is_of_source(struct one_source *one, enum profile_source source)
{
	if (!one->any)
		*one = (struct one_source){ .any = true, .source = source };
	one->others += source != one->source;
	return source == one->source;
}

static void note_other_sources(const struct one_source *one, struct profile_quality *quality)
{
	if (one->others)
		quality_note(
			quality,
			"%u sessions that were taken in another way than the newest are left out",
			one->others);
}

static int merge_sessions(struct sessions *s, const struct history_window *window,
			  struct profile **ret, struct err *err)
{
	struct session_query query = sessions_query(window);
	struct profile *parts[MERGED_SESSIONS_MAX];
	struct one_source one = { 0 };
	struct session_list list;
	bool standing;
	size_t count = 0;
	int rc = sessions_list_on_demand(s, &query, &list, err);

	if (rc < 0)
		return rc;
	standing = any_continuous(window, &list);
	for (uint32_t i = 0; i < list.count && rc == 0; i++) {
		if ((standing && !list.items[i].continuous) ||
		    !history_window_has(window, list.items[i].service, list.items[i].host) ||
		    !is_of_source(&one, list.items[i].source))
			continue;
		rc = (window->raw ? sessions_profile_raw : sessions_profile)(
			s, window->tenant, list.items[i].id, &parts[count], err);
		count += rc == 0;
		if (rc == -ENOENT)
			rc = 0; /* deleted meanwhile */
	}
	if (rc == 0 && !count)
		rc = -ENOENT;
	else if (rc == 0)
		rc = profile_merge(parts, count, ret);
	if (rc == 0 && *list.next_cursor)
		quality_note(&(*ret)->quality,
			     "of more than %u sessions in this window the newest %u are merged",
			     list.count, list.count);
	if (rc == 0)
		note_other_sources(&one, &(*ret)->quality);
	session_list_deinit(&list);
	for (size_t i = 0; i < count; i++)
		(void)profile_unref(parts[i]);
	return rc;
}

/* ---- one profile ----------------------------------------------------------------------------- */

static int is_known(struct sessions *s, const struct history_window *window, struct err *err)
{
	char name[SERVICE_NAME_SIZE];
	struct selector selector;
	struct err why = { 0 };
	int rc = services_resolve(s, window->tenant, window->service, false, &selector, name, &why);

	/* Known without running is known. */
	if (rc < 0 && (!why.word || strcmp(why.word, "UnknownService") == 0)) {
		if (err)
			*err = why;
		return rc;
	}
	return 0;
}

/* Fills the metadata from @stored, except for the name. */
static void fill_meta(struct sessions *s, const struct history_window *window,
		      const struct history_window *stored, struct profile_meta *meta)
{
	uint64_t now_ns = clock_realtime_ns(),
		 to_ns = stored->to_ns < now_ns ? stored->to_ns : now_ns;

	*meta = (struct profile_meta){ .type = window->type,
				       .start_ns = stored->from_ns,
				       .duration_ns = to_ns > stored->from_ns
							      ? to_ns - stored->from_ns
							      : 0 };
	(void)snprintf(meta->service, sizeof(meta->service), "%s", window->service);
	(void)snprintf(meta->host, sizeof(meta->host), "%s", s->host.name);
	sessions_lock(s);
	meta->cpu_count = s->feed.cpu_count;
	sessions_unlock(s);
}

static uint64_t next_minute(uint64_t time_ns)
{
	uint64_t into_ns = time_ns % CONTINUOUS_MINUTE_NS;

	return into_ns && time_ns < UINT64_MAX - CONTINUOUS_MINUTE_NS
		       ? time_ns - into_ns + CONTINUOUS_MINUTE_NS
		       : time_ns;
}

/* As it is stored: all services are no service, and the minutes that begin in the window are what
 * it holds. */
static struct history_window stored_window(const struct history_window *window)
{
	struct history_window stored = *window;

	if (is_everything(window->service))
		stored.service = NULL;
	stored.from_ns = next_minute(window->from_ns);
	stored.to_ns = next_minute(window->to_ns);
	return stored;
}

void history_functions_deinit(struct history_functions *functions)
{
	(void)profile_unref(functions->profile);
	free(functions->rows);
	*functions = (struct history_functions){ 0 };
}

int sessions_window_functions(struct sessions *s, const struct history_window *window,
			      struct history_functions *ret, struct err *err)
{
	const struct history_window stored = stored_window(window);
	cleanup(profile) struct profile *p = NULL;
	struct profile_meta meta;
	int rc = check_window(window, err);

	if (rc < 0)
		return rc;
	fill_meta(s, window, &stored, &meta);
	rc = spans_functions(s, &stored, &meta, ret, err);
	if (rc != -ENOENT && rc != -EPROTO)
		return rc;
	/* On-demand sessions, or what is left of a damaged day. */
	rc = sessions_window_profile(s, window, &p, err);
	if (rc == 0)
		rc = profile_top_functions(p, profile_value_index(p), &ret->rows, &ret->count);
	if (rc == 0)
		ret->profile = take_ptr(p);
	return rc;
}

/* ---- points ---------------------------------------------------------------------------------- */

/* The sessions of a host that lie in one step. */
struct level {
	struct history_point *point;
	char host[sizeof(((struct session_info *)NULL)->host)];
	int64_t value, count;
};
VEC_DEFINE(levels, struct level);

struct points {
	const struct history_window *window;
	uint64_t step_ns;
	struct history_point *items; /* by step, all of the window */
	const char *function;	     /* NULL = all of them */
	bool *standing;		     /* of sessions: these steps have some of a continuous setting */
	struct one_source one;	     /* likewise */
	struct levels_vec levels;
	size_t count;
	/* Begin of a minute, plus what tells a host's service from others -> time looked at it in
	 * this minute. */
	struct u64map looked_ms;
	struct u64map looked_all_ms; /* the same of settings for all services: no samples */
	struct u64map *looked;	     /* the one of them that is filled */
	const char *host_name;	     /* of the window under way */
	uint64_t host;		     /* its hash */
	struct store_day day;	     /* that was read last, of every host */
	struct history_point *whole; /* sums of windows by step: @items, or beside it when that is
					of a function */
	bool any;
	uint64_t samples, lost; /* of all windows, as value */
	int64_t value;
	struct profile_quality quality; /* of sessions, where these are what there is */
	unsigned damaged_days;
	struct sessions *s;
	struct store_window_query rows;
	struct err *err;
};

/* Also of stacks: points are made without them. */
static struct profile_quality nothing_known(void)
{
	struct profile_quality quality = quality_empty();

	quality.truncated_pct = quality.unknown_frame_pct = quality.guessed_frame_pct = -1;
	return quality;
}

/* The point of @items for this time, one for each step. */
static struct history_point *point_at(const struct points *points, struct history_point *items,
				      uint64_t time_ns)
{
	size_t at;

	if (time_ns < points->window->from_ns)
		return NULL;
	at = (time_ns - points->window->from_ns) / points->step_ns;
	return at < points->count ? &items[at] : NULL;
}

static int put_longer(struct u64map *looked, uint64_t key, uint64_t ms)
{
	uint64_t known_ms;

	return u64map_get(looked, key, &known_ms) && known_ms >= ms ? 0 : u64map_put(looked, key, ms);
}

/* Parts of a minute, and those of owners that took turns, add up; services were looked at side by
 * side. Beyond LOOKED_MOST, days of hundreds of services, the longest part stands for all. */
static int add_looked(struct points *points, const struct store_window *window)
{
	uint64_t service = hash_bytes(window->service, strlen(window->service), points->host), ms = 0;
	uint64_t key = window->from_ns + service % CONTINUOUS_MINUTE_NS;

	if (points->looked->count >= LOOKED_MOST)
		return put_longer(points->looked,
				  window->from_ns + points->host % CONTINUOUS_MINUTE_NS,
				  window->profiled_ms);
	(void)u64map_get(points->looked, key, &ms);
	return u64map_put(points->looked, key, ms + window->profiled_ms);
}

/* @host as in the store. */
static void begin_host(struct points *points, const char *host)
{
	points->host_name = hosts_writer(&points->s->host, host);
	points->host = hash_bytes(host, strlen(host), 0);
}

static int add_minute(struct points *points, const struct store_window *window)
{
	struct history_point *point = point_at(points, points->whole, window->from_ns);
	uint32_t highest, rate = owners_rate(window->owners, points->window->tenant, &highest);

	if (window->host)
		begin_host(points, window->host);
	/* Time observed for all services counts for each of them. */
	if (!point || !history_window_has(points->window,
					  points->looked == &points->looked_ms ? window->service
									       : points->window->service,
					  points->host_name))
		return 0;
	points->any |= window->samples != 0;
	points->samples += highest ? window->samples * rate / highest : window->samples;
	points->lost += highest ? window->lost * rate / highest : window->lost;
	points->value += window->value;
	point->total_value += window->value;
	point->sample_count += highest ? window->samples * rate / highest : window->samples;
	return add_looked(points, window);
}

/* A minute, or each of an hour. */
static int add_window(void *ctx, const struct store_window *window)
{
	int rc = window->minute_count ? 0 : add_minute(ctx, window);

	for (uint32_t i = 0; rc == 0 && i < window->minute_count; i++) {
		const struct store_minute *minute = &window->minutes[i];
		struct store_window one = *window;

		one.from_ns += minute->minute * CONTINUOUS_MINUTE_NS;
		one.samples = minute->samples;
		one.lost = minute->lost;
		one.value = minute->value;
		one.profiled_ms = minute->profiled_ms;
		rc = add_minute(ctx, &one);
	}
	return rc;
}

/* Services, and hosts, are looked at in the same time: the longest counts. */
static int sum_looked(struct points *points)
{
	struct u64map minutes = { 0 };
	uint64_t key, ms;
	size_t at = 0;
	int rc = 0;

	if (!points->any)
		return 0; /* that nothing was used is said of services that have been seen */
	while (rc == 0 && u64map_next(&points->looked_all_ms, &at, &key, &ms))
		rc = put_longer(&points->looked_ms, key, ms);
	for (at = 0; rc == 0 && u64map_next(&points->looked_ms, &at, &key, &ms);)
		rc = put_longer(&minutes, key - key % CONTINUOUS_MINUTE_NS, ms);
	for (at = 0; u64map_next(&minutes, &at, &key, &ms);) {
		struct history_point *point = point_at(points, points->items, key);

		if (point)
			point->profiled_ns += ms * NS_PER_MS < CONTINUOUS_MINUTE_NS ? ms * NS_PER_MS
										    : CONTINUOUS_MINUTE_NS;
	}
	u64map_deinit(&minutes);
	return rc;
}

static int add_day(void *ctx, const struct store_day *day, uint64_t bytes)
{
	struct points *points = ctx;
	uint64_t begin_ns = day->day * CONTINUOUS_DAY_NS;
	int rc;

	if (begin_ns >= points->window->to_ns || begin_ns + CONTINUOUS_DAY_NS <= points->window->from_ns ||
	    !hosts_has_day(&points->s->host, day, points->window->host))
		return 0;
	/* The list has a day once for each host; one question is enough for all of them. */
	points->rows.every_host = !points->window->host;
	if (points->rows.every_host && points->day.day == day->day &&
	    points->day.retention_days == day->retention_days)
		return 0;
	points->day = *day;
	begin_host(points, day->host);
	rc = store_history_windows(points->s->store, day, &points->rows, add_window, points, NULL,
				   points->err);
	/* Dropped meanwhile, or damaged: a gap. */
	points->damaged_days += rc == -EUCLEAN && points->looked == &points->looked_ms;
	return rc == -ENOENT || rc == -EUCLEAN ? 0 : rc;
}

/* From the index columns alone: the service's, then what was looked at for all services. */
static int sum_windows(struct points *points)
{
	const struct history_window *window = points->window;
	int rc;

	points->rows = (struct store_window_query){
		.tenant = window->tenant,
		.service = is_everything(window->service) ? NULL : window->service,
		.type = profile_type_info(window->type)->word,
		.from_ns = window->from_ns,
		.to_ns = window->to_ns,
	};
	points->looked = &points->looked_ms;
	rc = store_history_days(points->s->store, true, add_day, points, points->err);
	points->looked = &points->looked_all_ms;
	points->day = (struct store_day){ 0 };
	if (rc == 0 && points->rows.service) {
		points->rows.service = "*";
		rc = store_history_days(points->s->store, true, add_day, points, points->err);
	}
	return rc == 0 ? sum_looked(points) : rc;
}

/* Values per second count only the seconds that were observed: a setting, or the agent, may be
 * younger than the time range. */
static void settle_duration(struct sessions *s, const struct history_window *window,
			    const struct history_window *stored, struct profile *p)
{
	struct history_window looked = *stored;
	struct history_point whole = { 0 };
	struct points points = { .window = &looked, .items = &whole, .whole = &whole, .count = 1, .s = s };

	looked.service = window->service;
	points.step_ns = looked.to_ns - looked.from_ns;
	if (sum_windows(&points) == 0 && whole.profiled_ns && whole.profiled_ns < p->meta.duration_ns)
		p->meta.duration_ns = whole.profiled_ns;
	u64map_deinit(&points.looked_ms);
	u64map_deinit(&points.looked_all_ms);
}

int sessions_window_profile(struct sessions *s, const struct history_window *window,
			    struct profile **ret, struct err *err)
{
	const struct history_window stored = stored_window(window);
	struct profile_meta meta;
	int rc = check_window(window, err);

	if (rc < 0)
		return rc;
	fill_meta(s, window, &stored, &meta);
	rc = spans_profile(s, &stored, &meta, ret, err);
	if (rc == 0)
		settle_duration(s, window, &stored, *ret);
	if (rc == -ENOENT)
		rc = merge_sessions(s, window, ret, err);
	if (rc != -ENOENT)
		return rc;
	rc = is_known(s, window, err);
	if (rc < 0)
		return rc;
	return err_set(err, ENOENT, "NotFound", "from",
		       "nothing is stored for '%.128s' in this window", window->service);
}

/* Nodes of the tree that lie in or below @function: parents come before their children. */
static bool *mark_nodes(const struct profile *p, const char *function)
{
	bool *marks = calloc(p->node_count, sizeof(*marks));

	for (uint32_t i = 1; marks && i < p->node_count; i++) {
		const struct profile_frame *frame = &p->frames[p->nodes[i].frame];

		marks[i] = marks[p->nodes[i].parent] ||
			   canonical_function_is(profile_string(p, p->functions[frame->function].name), function);
	}
	return marks;
}

/* As many as the value of @point that is the function's has in the whole of that time: the rate may
 * have been another one then. */
static double expected_samples(const struct history_point *point, const struct history_point *whole)
{
	return whole->total_value > 0 ? (double)point->total_value / (double)whole->total_value *
						(double)whole->sample_count
				      : 0;
}

/* The samples of the marked nodes by time: an event may be the sum of several. */
static void share_samples(struct points *points, const struct profile *p, const bool *marks)
{
	double samples = 0, expected = 0;

	for (uint32_t i = 0; i < p->sample_count; i++)
		if (marks[p->samples[i].node])
			samples += (double)p->samples[i].values[0];
	for (size_t i = 0; i < points->count; i++)
		expected += expected_samples(&points->items[i], &points->whole[i]);
	for (size_t i = 0; i < points->count && expected > 0; i++)
		points->items[i].sample_count =
			(uint64_t)(expected_samples(&points->items[i], &points->whole[i]) / expected * samples + 0.5);
}

static int sum_function(struct points *points)
{
	const struct history_window stored = stored_window(points->window);
	cleanup(profile) struct profile *p = NULL;
	cleanup_free bool *marks = NULL;
	struct profile_meta meta;
	int rc;

	fill_meta(points->s, points->window, &stored, &meta);
	rc = spans_profile(points->s, &stored, &meta, &p, points->err);
	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	marks = mark_nodes(p, points->function);
	if (!marks)
		return err_set(points->err, ENOMEM, NULL, NULL, "no memory for a trend");
	for (uint32_t i = 0; i < p->event_count; i++) {
		struct history_point *point = point_at(points, points->items, p->events[i].time_ns);

		if (!point || !marks[p->events[i].node])
			continue;
		point->total_value += p->events[i].value;
		point->sample_count++; /* where a type counts nothing else */
	}
	points->quality = p->quality;
	rc = sum_windows(points);
	if (rc == 0 && profile_type_info(p->meta.type)->value_count > 1)
		share_samples(points, p, marks);
	return rc;
}

typedef int session_visit_fn(struct points *points, struct history_point *point,
			     const struct session_info *info);

static int each_session(struct points *points, session_visit_fn *visit)
{
	struct session_query query = sessions_query(points->window);
	struct session_list list = { 0 };
	char cursor[sizeof(list.next_cursor)] = "";
	int rc;

	query.limit = 100;
	do {
		query.cursor = *cursor ? cursor : NULL;
		rc = sessions_list_on_demand(points->s, &query, &list, points->err);
		if (rc < 0)
			return rc;
		for (uint32_t i = 0; i < list.count && rc == 0; i++) {
			struct history_point *point = point_at(points, points->items, list.items[i].created_at_ns);

			if (!history_window_has(points->window, list.items[i].service, list.items[i].host))
				point = NULL;
			rc = point ? visit(points, point, &list.items[i]) : 0;
		}
		(void)snprintf(cursor, sizeof(cursor), "%s", list.next_cursor);
		session_list_deinit(&list);
	} while (rc == 0 && *cursor);
	return rc;
}

static int note_standing(struct points *points, struct history_point *point,
			 const struct session_info *info)
{
	if (is_of_source(&points->one, info->source))
		points->standing[point - points->items] |= info->continuous;
	return 0;
}

static int add_level(struct points *points, struct history_point *point,
		     const struct session_info *info, int64_t value)
{
	struct levels_vec *levels = &points->levels;
	struct level added = { .point = point, .value = value, .count = 1 };

	/* The newest come first: those of a step are together. */
	for (size_t i = levels->count; i-- > 0 && levels->data[i].point == point;) {
		if (strcmp(levels->data[i].host, info->host) == 0) {
			levels->data[i].value += value;
			levels->data[i].count++;
			return 0;
		}
	}
	(void)snprintf(added.host, sizeof(added.host), "%s", info->host);
	return levels_vec_push(levels, added);
}

/* The session's time in or below the function. -ENOENT if the session is deleted meanwhile. */
static int function_of_session(struct points *points, const struct session_info *info,
			       int64_t *ret_value, uint64_t *ret_samples)
{
	const struct profile_type_info *type = profile_type_info(points->window->type);
	cleanup(profile) struct profile *p = NULL;
	cleanup_free bool *marks = NULL;
	int rc = sessions_profile(points->s, points->window->tenant, info->id, &p, points->err);

	if (rc < 0)
		return rc;
	marks = mark_nodes(p, points->function);
	if (!marks)
		return err_set(points->err, ENOMEM, NULL, NULL, "no memory for a trend");
	*ret_value = 0;
	*ret_samples = 0;
	for (uint32_t i = 0; i < p->sample_count; i++) {
		if (!marks[p->samples[i].node])
			continue;
		*ret_value += p->samples[i].values[profile_value_index(p)];
		*ret_samples += type->value_count > 1 ? (uint64_t)p->samples[i].values[0] : 1;
	}
	return 0;
}

static int add_session(struct points *points, struct history_point *point,
		       const struct session_info *info)
{
	int64_t value = info->total_value;
	uint64_t samples = info->sample_count;
	int rc = 0;

	if ((points->standing[point - points->items] && !info->continuous) ||
	    info->source != points->one.source)
		return 0;
	if (points->function)
		rc = function_of_session(points, info, &value, &samples);
	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	point->profiled_ns += info->duration_ns;
	point->sample_count += samples;
	quality_add(&points->quality, &info->quality);
	if (!profile_type_info(points->window->type)->rate)
		return add_level(points, point, info, value);
	point->total_value += value;
	return 0;
}

static int sum_sessions(struct points *points)
{
	int rc = each_session(points, note_standing);

	if (rc == 0)
		rc = each_session(points, add_session);
	note_other_sources(&points->one, &points->quality);
	for (size_t i = 0; i < points->levels.count; i++) {
		const struct level *level = &points->levels.data[i];

		level->point->total_value += level->value / level->count;
	}
	return rc;
}

/* The quality of the data that the points are made of, buckets as well as spans, also where they
 * show one function. */
static void describe_points(const struct points *points, struct profile_quality *ret)
{
	*ret = points->quality;
	if (points->any) {
		*ret = nothing_known();
		ret->samples = (int64_t)points->samples;
		ret->lost = (int64_t)points->lost;
		if (points->window->type == PROFILE_CPU && points->value > 0)
			ret->effective_rate = (double)points->samples / ((double)points->value / 1e9);
	}
	if (points->damaged_days)
		quality_note(ret, "%u days are damaged and left out", points->damaged_days);
}

static void keep_filled(const struct points *points, struct history_points *ret)
{
	for (size_t i = 0; i < points->count; i++) {
		struct history_point point = points->items[i];

		/* Nothing there is a gap; nothing used, though it was looked, is zero. */
		if (!point.sample_count && !point.total_value && !point.profiled_ns)
			continue;
		point.from_ns = points->window->from_ns + i * points->step_ns;
		point.to_ns = point.from_ns + points->step_ns;
		if (point.to_ns > points->window->to_ns)
			point.to_ns = points->window->to_ns;
		/* How long was looked is not known of every window. */
		if (!point.profiled_ns)
			point.profiled_ns = point.to_ns - point.from_ns;
		point.value_per_second = (double)point.total_value;
		if (profile_type_info(points->window->type)->rate)
			point.value_per_second /= (double)point.profiled_ns / 1e9;
		points->items[ret->count++] = point;
	}
	ret->items = points->items;
}

int sessions_points(struct sessions *s, const struct history_window *window, uint64_t step_ns,
		    const char *function, struct history_points *ret, struct err *err)
{
	struct points points = { .window = window,
				 .step_ns = step_ns,
				 .function = function,
				 .quality = nothing_known(),
				 .s = s,
				 .err = err };
	struct history_points list = { 0 };
	int rc = check_window(window, err);

	if (rc < 0)
		return rc;
	if (step_ns < CONTINUOUS_MINUTE_NS)
		return err_set(err, EINVAL, "InvalidParam", "aggregate", "must be at least 60s");
	points.count = (window->to_ns - window->from_ns + step_ns - 1) / step_ns;
	if (points.count > HISTORY_POINTS_MAX)
		return err_set(err, EINVAL, "InvalidParam", "aggregate",
			       "makes %zu points of this window, at most %u are given",
			       points.count, HISTORY_POINTS_MAX);
	points.items = calloc(points.count + 1, sizeof(*points.items));
	points.whole = function ? calloc(points.count + 1, sizeof(*points.whole)) : points.items;
	points.standing = calloc(points.count + 1, sizeof(*points.standing));
	if (!points.items || !points.whole || !points.standing) {
		if (function)
			free(points.whole);
		free(points.items);
		free(points.standing);
		return err_set(err, ENOMEM, NULL, NULL, "no memory for a trend");
	}
	rc = function ? sum_function(&points) : sum_windows(&points);
	if (rc == 0 && !points.any)
		rc = sum_sessions(&points);
	u64map_deinit(&points.looked_ms);
	u64map_deinit(&points.looked_all_ms);
	levels_vec_deinit(&points.levels);
	free(points.standing);
	if (function)
		free(points.whole);
	if (rc < 0) {
		free(points.items);
		return rc;
	}
	keep_filled(&points, &list);
	describe_points(&points, &list.quality);
	*ret = list;
	return 0;
}

void history_points_deinit(struct history_points *points)
{
	free(points->items);
	*points = (struct history_points){ 0 };
}
