// SPDX-License-Identifier: Apache-2.0
/* All series of the history at once: each service, host and type that has data in a time range,
 * with points. Continuous data come from the index columns of the minute buckets in one pass over
 * the days. What has none of them comes from the records of sessions. */
#include <errno.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/base/vec.h"
#include "agent/session/continuous/continuous.h"
#include "agent/session/records/hosts.h"
#include "agent/session/records/session_record.h"

#define SESSIONS_READ_MAX 20000u /* records of one answer; older ones are left out */

VEC_DEFINE(series, struct history_series);

struct gather {
	struct sessions *s;
	const struct history_series_query *query;
	struct series_vec all;
	struct u64map at;	/* hash of service, host and type -> index of all */
	struct u64map unwanted; /* hashes of those that nobody asked for */
	struct u64map minutes;	/* hashes of service and type that have minute buckets */
	struct u64map
		hosts; /* hash of a host that was looked at for all services -> index of looks */
	bool **looks;  /* by host: steps in which it was, owned */
	size_t look_count, steps;
	const char *host; /* of what is under way */
	struct store_day day; /* whose windows were read last, of every host */
	size_t last;	  /* index of all: the series of the minute before */
	bool has_last;	  /* of this host */
	uint32_t records;
	struct err *err;
};

static void gather_deinit(struct gather *g)
{
	u64map_deinit(&g->at);
	u64map_deinit(&g->unwanted);
	u64map_deinit(&g->minutes);
	u64map_deinit(&g->hosts);
	for (size_t i = 0; i < g->look_count; i++)
		free(g->looks[i]);
	free(g->looks);
}

static void series_deinit(struct history_series *series)
{
	free(series->service);
	free(series->values);
	free(series->samples);
	free(series->observed);
}

void history_series_list_deinit(struct history_series_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		series_deinit(&list->items[i]);
	free(list->items);
	*list = (struct history_series_list){ 0 };
}

/* ---- series ---------------------------------------------------------------------------------- */

static uint64_t service_hash(const char *service, enum profile_type type)
{
	return hash_combine(hash_bytes(service, strlen(service), 0), (uint64_t)type);
}

static int make_points(struct gather *g, struct history_series *series)
{
	if (!g->steps)
		return 0;
	if ((g->all.count + 1) * g->steps > HISTORY_CELLS_MAX)
		return err_set(
			g->err, E2BIG, "LimitReached", "step",
			"more than %u points: ask for longer steps, a shorter range or fewer services",
			HISTORY_CELLS_MAX);
	series->values = calloc(g->steps, sizeof(*series->values));
	series->samples = calloc(g->steps, sizeof(*series->samples));
	series->observed = calloc(g->steps, sizeof(*series->observed));
	return series->values && series->samples && series->observed ? 0 : -ENOMEM;
}

static int add_series(struct gather *g, uint64_t hash, const char *service, const char *host,
		      enum profile_type type, struct history_series **ret)
{
	struct history_series series = { .type = type };
	int rc;

	if (g->all.count == HISTORY_SERIES_MAX)
		return err_set(g->err, E2BIG, "LimitReached", NULL,
			       "more than %u series: ask for fewer services", HISTORY_SERIES_MAX);
	rc = make_points(g, &series);
	series.service = rc == 0 ? strdup(service) : NULL;
	(void)snprintf(series.host, sizeof(series.host), "%s", host);
	if (rc == 0)
		rc = series.service ? series_vec_push(&g->all, series) : -ENOMEM;
	if (rc < 0) {
		series_deinit(&series);
		return rc;
	}
	*ret = &g->all.data[g->all.count - 1];
	return u64map_put(&g->at, hash, g->all.count - 1);
}

/* Finds or adds it; *@ret is NULL when nobody asked for it. */
static int find_series(struct gather *g, const char *service, const char *host,
		       enum profile_type type, struct history_series **ret)
{
	uint64_t hash = hash_combine(service_hash(service, type),
				     hash_bytes(host, strlen(host), 1)),
		 at;

	*ret = NULL;
	if (u64map_get(&g->at, hash, &at)) {
		*ret = &g->all.data[at];
		return 0;
	}
	if (u64map_get(&g->unwanted, hash, &at))
		return 0;
	if ((g->query->types && !(g->query->types & 1u << type)) ||
	    (g->query->wants && !g->query->wants(g->query->wants_ctx, service, host)))
		return u64map_put(&g->unwanted, hash, 1);
	return add_series(g, hash, service, host, type, ret);
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* @part of the @whole of @value, so that all parts add up. */
static int64_t share(int64_t value, uint64_t part, uint64_t whole)
{
	return part == whole ? value : (int64_t)((__int128)value * part / whole);
}

/* Adds what was taken from @from_ns on for @length_ns. A step of whole minutes takes a minute
 * whole, by its begin, as sessions_points() does; other steps share it. What would lie beyond the
 * last step is the last step's. */
static void add_to_steps(const struct gather *g, struct history_series *series, uint64_t from_ns,
			 uint64_t length_ns, int64_t value, uint64_t samples)
{
	const struct history_series_query *query = g->query;
	size_t at = g->steps ? (from_ns - query->from_ns) / query->step_ns : 0;
	int64_t value_done = 0, samples_done = 0;
	uint64_t done_ns = 0;

	for (; at < g->steps && done_ns < length_ns; at++) {
		uint64_t end_ns = query->from_ns + (at + 1) * query->step_ns - from_ns;
		int64_t value_part, samples_part;

		if (query->step_ns % CONTINUOUS_MINUTE_NS == 0 || end_ns > length_ns ||
		    at + 1 == g->steps)
			end_ns = length_ns;
		value_part = share(value, end_ns, length_ns);
		samples_part = share((int64_t)samples, end_ns, length_ns);
		series->values[at] += value_part - value_done;
		series->samples[at] += (uint64_t)(samples_part - samples_done);
		series->observed[at] = true;
		value_done = value_part;
		samples_done = samples_part;
		done_ns = end_ns;
	}
}

/* ---- minute buckets -------------------------------------------------------------------------- */

/* A setting for all services observes the host, also where a service used nothing. */
static int note_look(struct gather *g, uint64_t from_ns)
{
	uint64_t hash = hash_bytes(g->host, strlen(g->host), 1), at = g->look_count;
	size_t step = (from_ns - g->query->from_ns) / g->query->step_ns;
	bool **looks;
	int rc;

	if (!u64map_get(&g->hosts, hash, &at)) {
		looks = reallocarray(g->looks, g->look_count + 1, sizeof(*looks));
		if (!looks)
			return -ENOMEM;
		g->looks = looks;
		looks[g->look_count] = calloc(g->steps, sizeof(**looks));
		if (!looks[g->look_count])
			return -ENOMEM;
		g->look_count++;
		rc = u64map_put(&g->hosts, hash, at);
		if (rc < 0)
			return rc;
	}
	for (; step < g->steps &&
	       g->query->from_ns + step * g->query->step_ns < from_ns + CONTINUOUS_MINUTE_NS;
	     step++)
		g->looks[at][step] = true;
	return 0;
}

static int mark_minutes(struct gather *g, const char *service, enum profile_type type)
{
	uint64_t hash = service_hash(service, type);

	return u64map_get(&g->minutes, hash, &(uint64_t){ 0 }) ? 0
							       : u64map_put(&g->minutes, hash, 1);
}

/* The minutes of an hour come one after another: is @window of the series before it? */
static bool is_last(const struct gather *g, const struct store_window *window)
{
	const struct history_series *last = &g->all.data[g->last];

	return g->has_last && g->last < g->all.count &&
	       strcmp(last->service, window->service) == 0 &&
	       strcmp(profile_type_info(last->type)->word, window->type) == 0;
}

/* Adds the minute of @window, or each of its hour. */
static void add_values(const struct gather *g, struct history_series *series,
		       const struct store_window *window)
{
	uint32_t highest, rate = owners_rate(window->owners, g->query->tenant, &highest);

	if (!window->minute_count)
		add_to_steps(g, series, window->from_ns, CONTINUOUS_MINUTE_NS, window->value,
			     highest ? window->samples * rate / highest : window->samples);
	for (uint32_t i = 0; g->steps && i < window->minute_count; i++) {
		const struct store_minute *minute = &window->minutes[i];

		add_to_steps(g, series, window->from_ns + minute->minute * CONTINUOUS_MINUTE_NS,
			     CONTINUOUS_MINUTE_NS, minute->value,
			     highest ? minute->samples * rate / highest : minute->samples);
	}
}

static int note_looks(struct gather *g, const struct store_window *window)
{
	int rc = g->steps && !window->minute_count ? note_look(g, window->from_ns) : 0;

	for (uint32_t i = 0; g->steps && rc == 0 && i < window->minute_count; i++)
		rc = note_look(g, window->from_ns + window->minutes[i].minute * CONTINUOUS_MINUTE_NS);
	return rc;
}

static int add_window(void *ctx, const struct store_window *window)
{
	struct gather *g = ctx;
	const char *host = hosts_writer(&g->s->host, window->host ? window->host : "");
	struct history_series *series;
	enum profile_type type;
	int rc;

	if (g->host != host && (!g->host || strcmp(g->host, host) != 0))
		g->has_last = false;
	g->host = host;
	if (is_last(g, window)) {
		add_values(g, &g->all.data[g->last], window);
		return 0;
	}
	if (profile_type_parse(window->type, &type) < 0)
		return 0; /* of another version */
	if (strcmp(window->service, "*") == 0)
		return note_looks(g, window);
	/* A minute without use does not make a series. */
	if (!window->samples &&
	    !u64map_get(&g->minutes, service_hash(window->service, type), &(uint64_t){ 0 }))
		return 0;
	rc = find_series(g, window->service, g->host, type, &series);
	if (rc < 0 || !series)
		return rc;
	series->continuous = true;
	g->last = (size_t)(series - g->all.data);
	g->has_last = true;
	add_values(g, series, window);
	return window->samples ? mark_minutes(g, window->service, type) : 0;
}

static int add_span(void *ctx, const struct store_span *span)
{
	struct gather *g = ctx;
	struct history_series *series;
	enum profile_type type;
	int rc;

	if (!span->samples || span->last_ns < g->query->from_ns ||
	    span->first_ns >= g->query->to_ns || profile_type_parse(span->type, &type) < 0)
		return 0;
	rc = find_series(g, span->service, g->host, type, &series);
	if (rc < 0 || !series)
		return rc;
	series->continuous = true;
	return mark_minutes(g, span->service, type);
}

static int add_day(void *ctx, const struct store_day *day, uint64_t bytes)
{
	struct gather *g = ctx;
	const struct history_series_query *query = g->query;
	uint64_t begin_ns = day->day * CONTINUOUS_DAY_NS,
		 span_ns = g->s->options.continuous_span_ns;
	struct store_window_query rows = { .tenant = query->tenant,
					   .from_ns = query->from_ns,
					   .to_ns = query->to_ns };
	int rc;

	if (begin_ns >= query->to_ns || begin_ns + CONTINUOUS_DAY_NS <= query->from_ns)
		return 0;
	if (query->types && !(query->types & (query->types - 1)))
		rows.type = profile_type_info((enum profile_type)__builtin_ctz(query->types))->word;
	if (g->steps || g->s->host.shared) {
		/* The list has a day once for each host. */
		if (g->day.day == day->day && g->day.retention_days == day->retention_days)
			return 0;
		g->day = *day;
		rows.every_host = true;
		rc = store_history_windows(g->s->store, day, &rows, add_window, g, NULL, g->err);
		g->host = NULL; /* its text is gone */
	} else {
		g->host = hosts_of_day(&g->s->host, day);
		rows.from_ns -= rows.from_ns % span_ns;
		rc = store_history_spans(g->s->store, day, &rows, span_ns, add_span, g, g->err);
	}
	return rc == -ENOENT || rc == -EUCLEAN ? 0 : rc; /* dropped meanwhile, or damaged: a gap */
}

/* Nothing used in an observed step is zero and no gap. */
static void fill_looked(struct gather *g)
{
	for (size_t i = 0; g->look_count && i < g->all.count; i++) {
		struct history_series *series = &g->all.data[i];
		uint64_t at;

		if (!series->continuous || !profile_type_info(series->type)->rate ||
		    !u64map_get(&g->hosts, hash_bytes(series->host, strlen(series->host), 1), &at))
			continue;
		for (size_t step = 0; step < g->steps; step++)
			series->observed[step] |= g->looks[at][step];
	}
}

/* ---- sessions -------------------------------------------------------------------------------- */

/* The whole host is the sum of its services where these have minute buckets of the type. */
static bool has_minutes(const struct gather *g, const char *service, enum profile_type type)
{
	uint64_t one;

	if (strcmp(service, "host") != 0)
		return u64map_get(&g->minutes, service_hash(service, type), &one);
	for (size_t i = 0; i < g->all.count; i++)
		if (g->all.data[i].continuous && g->all.data[i].type == type)
			return true;
	return false;
}

static int add_record(void *ctx, const struct store_record *record)
{
	struct gather *g = ctx;
	struct history_series *series;
	enum profile_type type;

	if (++g->records > SESSIONS_READ_MAX)
		return -ECANCELED;
	if (profile_type_parse(record->type, &type) < 0 || has_minutes(g, record->service, type))
		return 0;
	return find_series(g, record->service, hosts_writer(&g->s->host, record->host), type,
			   &series);
}

static int add_sessions(struct gather *g)
{
	const struct history_series_query *query = g->query;
	struct store_query rows = { .kind = SESSION_RECORD_KIND,
				    .tenant = query->tenant,
				    .status = session_status_word(SESSION_COMPLETED),
				    .from_ns = query->from_ns,
				    .to_ns = query->to_ns,
				    .every_host = true };
	int rc;

	if (query->types && !(query->types & (query->types - 1)))
		rows.type = profile_type_info((enum profile_type)__builtin_ctz(query->types))->word;
	rc = store_list(g->s->store, &rows, add_record, g, NULL, g->err);
	return rc == -ECANCELED ? 0 : rc;
}

static bool is_of_host(void *ctx, const char *service, const char *host)
{
	return strcmp(host, ctx) == 0 || !*host;
}

/* A level holds in every step of its time; a flow is shared out over them. */
static void add_points(struct gather *g, struct history_series *series,
		       const struct history_points *points)
{
	const struct history_series_query *query = g->query;

	for (uint32_t i = 0; i < points->count; i++) {
		const struct history_point *point = &points->items[i];
		size_t first = (point->from_ns - query->from_ns) / query->step_ns;

		if (profile_type_info(series->type)->rate) {
			add_to_steps(g, series, point->from_ns, point->to_ns - point->from_ns,
				     point->total_value, point->sample_count);
			continue;
		}
		for (size_t at = first;
		     at < g->steps && query->from_ns + at * query->step_ns < point->to_ns; at++) {
			series->values[at] = point->total_value;
			series->samples[at] = point->sample_count;
			series->observed[at] = true;
		}
	}
}

/* sessions_points() makes at most HISTORY_POINTS_MAX points, of whole minutes. */
static uint64_t session_step(const struct history_series_query *query)
{
	uint64_t span_ns = query->to_ns - query->from_ns, step_ns = query->step_ns;

	if (step_ns < CONTINUOUS_MINUTE_NS)
		step_ns *= (CONTINUOUS_MINUTE_NS + step_ns - 1) / step_ns;
	while (span_ns / step_ns >= HISTORY_POINTS_MAX)
		step_ns *= 2;
	return step_ns;
}

static int sum_sessions(struct gather *g, struct history_series *series)
{
	const struct history_window window = { .tenant = g->query->tenant,
					       .service = series->service,
					       .type = series->type,
					       .from_ns = g->query->from_ns,
					       .to_ns = g->query->to_ns,
					       .wants = is_of_host,
					       .wants_ctx = series->host };
	struct history_points points = { 0 };
	int rc = sessions_points(g->s, &window, session_step(g->query), NULL, &points, g->err);

	if (rc < 0)
		return rc;
	add_points(g, series, &points);
	history_points_deinit(&points);
	return 0;
}

/* ---- all ------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
	const struct history_series *x = a, *y = b;
	int order = strcmp(x->service, y->service);

	if (!order)
		order = strcmp(x->host, y->host);
	return order ? order : (int)x->type - (int)y->type;
}

static int count_steps(const struct history_series_query *query, size_t *ret, struct err *err)
{
	if (query->to_ns <= query->from_ns)
		return err_set(err, EINVAL, "InvalidParam", "end", "end must lie after start");
	*ret = query->step_ns
		       ? (query->to_ns - query->from_ns + query->step_ns - 1) / query->step_ns
		       : 0;
	if (*ret > HISTORY_STEPS_MAX)
		return err_set(err, EINVAL, "InvalidParam", "step",
			       "makes %zu points of this time range, at most %u are given", *ret,
			       HISTORY_STEPS_MAX);
	return 0;
}

static int gather_all(struct gather *g)
{
	int rc = store_history_days(g->s->store, true, add_day, g, g->err);

	fill_looked(g);
	if (rc == 0)
		rc = add_sessions(g);
	for (size_t i = 0; rc == 0 && g->steps && i < g->all.count; i++)
		if (!g->all.data[i].continuous)
			rc = sum_sessions(g, &g->all.data[i]);
	return rc;
}

int sessions_series(struct sessions *s, const struct history_series_query *query,
		    struct history_series_list *ret, struct err *err)
{
	__attribute__((__cleanup__(gather_deinit))) struct gather g = { .s = s,
									.query = query,
									.err = err };
	struct history_series_list list = { 0 };
	int rc = count_steps(query, &g.steps, err);

	if (rc == 0)
		rc = gather_all(&g);
	list = (struct history_series_list){ g.all.data, g.all.count, g.steps };
	if (rc < 0) {
		history_series_list_deinit(&list);
		return rc == -ENOMEM
			       ? err_set(err, ENOMEM, NULL, NULL, "no memory for a list of series")
			       : rc;
	}
	if (list.count)
		qsort(list.items, list.count, sizeof(*list.items), by_name);
	*ret = list;
	return 0;
}

/* ---- range ----------------------------------------------------------------------------------- */

struct range {
	struct sessions *s;
	const char *tenant;
	uint64_t oldest_ns, newest_ns;
	struct err *err;
};

static int widen(struct range *range, uint64_t first_ns, uint64_t last_ns)
{
	if (!range->oldest_ns || first_ns < range->oldest_ns)
		range->oldest_ns = first_ns;
	if (last_ns > range->newest_ns)
		range->newest_ns = last_ns;
	return 0;
}

static int widen_by_span(void *ctx, const struct store_span *span)
{
	return widen(ctx, span->first_ns, span->last_ns + CONTINUOUS_MINUTE_NS);
}

static int widen_by_day(void *ctx, const struct store_day *day, uint64_t bytes)
{
	struct range *range = ctx;
	const struct store_window_query rows = { .tenant = range->tenant };
	int rc = store_history_spans(range->s->store, day, &rows,
				     range->s->options.continuous_span_ns, widen_by_span, range,
				     range->err);

	return rc == -ENOENT || rc == -EUCLEAN ? 0 : rc;
}

static int widen_by_record(void *ctx, const struct store_record *record)
{
	return widen(ctx, record->created_ns, record->created_ns);
}

int sessions_history_range(struct sessions *s, const char *tenant, uint64_t *ret_oldest_ns,
			   uint64_t *ret_newest_ns, struct err *err)
{
	struct range range = { .s = s, .tenant = tenant, .err = err };
	struct store_query rows = { .kind = SESSION_RECORD_KIND,
				    .tenant = tenant,
				    .status = session_status_word(SESSION_COMPLETED),
				    .limit = 1,
				    .every_host = true };
	int rc = store_history_days(s->store, true, widen_by_day, &range, err);

	if (rc == 0)
		rc = store_list(s->store, &rows, widen_by_record, &range, NULL, err);
	rows.oldest_first = true;
	if (rc == 0)
		rc = store_list(s->store, &rows, widen_by_record, &range, NULL, err);
	if (rc < 0)
		return rc;
	*ret_oldest_ns = range.oldest_ns;
	*ret_newest_ns = range.newest_ns;
	return 0;
}
