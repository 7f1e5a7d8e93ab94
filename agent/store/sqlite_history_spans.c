// SPDX-License-Identifier: Apache-2.0
/* Sums of a day's windows over stretches of it. Lists ask for those of every day again and again, and most days do not
 * change any more: what was added up once is kept until the file is written to. */
#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/base/u64map.h"
#include "agent/base/vec.h"
#include "agent/store/minutes.h"
#include "agent/store/sqlite_history.h"

#define ROWS_MAX  200000u /* of all files, 48 bytes each */
#define MINUTE_NS (60 * NS_PER_S)
#define DAY_NS	  (86400 * NS_PER_S)

struct series {
	char *service, *type, *owners; /* owned */
	uint32_t number;	       /* as they came, while they are sorted */
	uint32_t what;		       /* the first of this service and type */
};

struct row { /* of a series and a stretch */
	uint32_t series;
	uint16_t stretch;     /* of the day */
	uint16_t first, last; /* minutes of the day with data */
	uint64_t samples, lost, bytes;
	int64_t value;
};

VEC_DEFINE(series, struct series);
VEC_DEFINE(rows, struct row);

struct history_spans {
	struct history_spans *next;
	struct store_day day;
	uint64_t span_ns;
	struct series_vec series; /* sorted */
	struct rows_vec rows;	  /* by stretch, then by series */
};

struct add_up {
	struct history_spans *to;
	struct u64map series_at; /* hash of its texts -> index of series */
	struct u64map row_at;	 /* series << 32 | stretch -> index of rows */
	size_t last_series, last_row; /* where the minute before went */
	uint64_t midnight_ns;
};

static void destroy(struct history_spans *spans)
{
	if (!spans)
		return;
	for (size_t i = 0; i < spans->series.count; i++) {
		free(spans->series.data[i].service);
		free(spans->series.data[i].type);
		free(spans->series.data[i].owners);
	}
	series_vec_deinit(&spans->series);
	rows_vec_deinit(&spans->rows);
	free(spans);
}
CLEANUP_DEFINE(history_spans, struct history_spans *, destroy);

static void add_up_deinit(struct add_up *add)
{
	u64map_deinit(&add->series_at);
	u64map_deinit(&add->row_at);
}

/* ---- adding up --------------------------------------------------------------------------------- */

static bool is_series(const struct series *series, const struct store_window *window)
{
	return strcmp(series->service, window->service) == 0 && strcmp(series->type, window->type) == 0 &&
	       strcmp(series->owners, window->owners) == 0;
}

static int new_series(struct add_up *add, const struct store_window *window, uint64_t hash)
{
	struct series_vec *list = &add->to->series;
	struct series *series;
	int rc = series_vec_push(list, (struct series){ .number = (uint32_t)list->count });

	if (rc < 0)
		return rc;
	series = &list->data[list->count - 1];
	series->service = strdup(window->service);
	series->type = strdup(window->type);
	series->owners = strdup(window->owners);
	add->last_series = list->count - 1;
	return series->service && series->type && series->owners ? u64map_put(&add->series_at, hash, add->last_series)
								 : -ENOMEM;
}

static int find_series(struct add_up *add, const struct store_window *window)
{
	const struct series_vec *list = &add->to->series;
	uint64_t hash, at;

	if (list->count && is_series(&list->data[add->last_series], window))
		return 0;
	hash = hash_bytes(window->service, strlen(window->service) + 1, 0);
	hash = hash_bytes(window->type, strlen(window->type) + 1, hash);
	hash = hash_bytes(window->owners, strlen(window->owners), hash);
	if (!u64map_get(&add->series_at, hash, &at))
		return new_series(add, window, hash);
	add->last_series = at;
	return 0;
}

static int find_row(struct add_up *add, uint16_t minute)
{
	struct rows_vec *rows = &add->to->rows;
	uint32_t series = (uint32_t)add->last_series;
	uint16_t stretch = (uint16_t)(minute * MINUTE_NS / add->to->span_ns);
	uint64_t key = (uint64_t)series << 32 | stretch, at;
	int rc;

	if (rows->count && rows->data[add->last_row].series == series && rows->data[add->last_row].stretch == stretch)
		return 0;
	if (u64map_get(&add->row_at, key, &at)) {
		add->last_row = at;
		return 0;
	}
	rc = rows_vec_push(rows, (struct row){ .series = series, .stretch = stretch, .first = minute, .last = minute });
	add->last_row = rows->count - 1;
	return rc < 0 ? rc : u64map_put(&add->row_at, key, add->last_row);
}

/* Stretches are counted from midnight, so that none lies in two files. */
static int add_minute(struct add_up *add, uint16_t minute, const struct store_minute *totals, uint64_t bytes)
{
	struct row *row;
	int rc = find_row(add, minute);

	if (rc < 0)
		return rc;
	row = &add->to->rows.data[add->last_row];
	row->first = minute < row->first ? minute : row->first;
	row->last = minute > row->last ? minute : row->last;
	row->samples += totals->samples;
	row->lost += totals->lost;
	row->value += totals->value;
	row->bytes += bytes;
	return 0;
}

static int add_window(void *ctx, const struct store_window *window)
{
	const struct store_minute totals = { .samples = window->samples, .lost = window->lost, .value = window->value };
	struct add_up *add = ctx;
	uint16_t first = (uint16_t)((window->from_ns - add->midnight_ns) / MINUTE_NS);
	int rc = find_series(add, window);

	if (rc == 0 && !window->minute_count)
		return add_minute(add, first, &totals, window->bytes);
	for (uint32_t i = 0; i < window->minute_count && rc == 0; i++)
		rc = add_minute(add, (uint16_t)(first + window->minutes[i].minute), &window->minutes[i],
				minutes_bytes(window, &window->minutes[i]));
	return rc;
}

static bool is_same(const struct series *a, const struct series *b)
{
	return strcmp(a->service, b->service) == 0 && strcmp(a->type, b->type) == 0;
}

static int by_texts(const void *a, const void *b)
{
	const struct series *x = a, *y = b;
	int order = strcmp(x->service, y->service);

	if (order == 0)
		order = strcmp(x->type, y->type);
	return order ? order : x->number < y->number ? -1 : x->number > y->number;
}

static int by_stretch(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	if (x->stretch != y->stretch)
		return x->stretch < y->stretch ? -1 : 1;
	return x->series < y->series ? -1 : x->series > y->series;
}

static int sort(struct history_spans *spans)
{
	cleanup_free uint32_t *number = calloc(spans->series.count + 1, sizeof(*number));

	if (!number)
		return -ENOMEM;
	if (spans->series.count)
		qsort(spans->series.data, spans->series.count, sizeof(*spans->series.data), by_texts);
	for (uint32_t i = 0; i < spans->series.count; i++) {
		struct series *series = &spans->series.data[i];

		series->what = i && is_same(series, series - 1) ? (series - 1)->what : i;
		number[series->number] = i;
	}
	for (size_t i = 0; i < spans->rows.count; i++)
		spans->rows.data[i].series = number[spans->rows.data[i].series];
	if (spans->rows.count)
		qsort(spans->rows.data, spans->rows.count, sizeof(*spans->rows.data), by_stretch);
	return 0;
}

/* @ret_damaged: rows that could not be read. */
static int add_up(struct sqlite_history *history, const struct store_day *day, uint64_t span_ns,
		  struct history_spans **ret, unsigned *ret_damaged, struct err *err)
{
	cleanup(history_spans) struct history_spans *spans = calloc(1, sizeof(*spans));
	__attribute__((__cleanup__(add_up_deinit))) struct add_up add = { .to = spans,
									   .midnight_ns = day->day * DAY_NS };
	int rc;

	if (!spans)
		return -ENOMEM;
	spans->day = *day;
	spans->span_ns = span_ns;
	rc = sqlite_history_hours(history, day, add_window, &add, ret_damaged, err);
	if (rc == 0)
		rc = sort(spans);
	if (rc == 0)
		*ret = take_ptr(spans);
	return rc;
}

/* ---- keeping ----------------------------------------------------------------------------------- */

void sqlite_history_spans_forget(struct sqlite_history *history, const struct store_day *day)
{
	(void)pthread_mutex_lock(&history->spans_lock);
	history->spans_generation++;
	for (struct history_spans **at = &history->spans; *at;) {
		struct history_spans *spans = *at;

		if (day && (spans->day.day != day->day || spans->day.retention_days != day->retention_days)) {
			at = &spans->next;
			continue;
		}
		*at = spans->next;
		history->span_rows -= spans->rows.count;
		destroy(spans);
	}
	(void)pthread_mutex_unlock(&history->spans_lock);
}

static struct history_spans *find_kept(const struct sqlite_history *history, const struct store_day *day,
				       uint64_t span_ns)
{
	struct history_spans *spans = history->spans;

	while (spans && (spans->day.day != day->day || spans->day.retention_days != day->retention_days ||
			 spans->span_ns != span_ns))
		spans = spans->next;
	return spans;
}

/* ---- handing out --------------------------------------------------------------------------------- */

static bool is_visible(const struct series *series, const struct store_window_query *query, const char *owner)
{
	return (!query->tenant || strstr(series->owners, owner)) &&
	       (!query->service || strcmp(series->service, query->service) == 0) &&
	       (!query->type || strcmp(series->type, query->type) == 0);
}

/* Marks the series that the query may see. */
static bool *find_visible(const struct history_spans *spans, const struct store_window_query *query)
{
	bool *visible = calloc(spans->series.count + 1, sizeof(*visible));
	char owner[80] = "";

	if (query->tenant)
		(void)snprintf(owner, sizeof(owner), ",%s:", query->tenant);
	for (size_t i = 0; visible && i < spans->series.count; i++)
		visible[i] = is_visible(&spans->series.data[i], query, owner);
	return visible;
}

static bool is_same_span(const struct history_spans *spans, const struct row *x, const struct row *y)
{
	return x->stretch == y->stretch && spans->series.data[x->series].what == spans->series.data[y->series].what;
}

static void add_row(const struct history_spans *spans, const struct row *row, struct store_span *to)
{
	uint64_t midnight_ns = spans->day.day * DAY_NS;
	const struct series *series = &spans->series.data[row->series];

	if (midnight_ns + row->last * MINUTE_NS >= to->last_ns) {
		to->last_ns = midnight_ns + row->last * MINUTE_NS;
		to->owners = series->owners;
	}
	if (midnight_ns + row->first * MINUTE_NS < to->first_ns)
		to->first_ns = midnight_ns + row->first * MINUTE_NS;
	to->service = series->service;
	to->type = series->type;
	to->samples += row->samples;
	to->lost += row->lost;
	to->bytes += row->bytes;
	to->value += row->value;
}

/* Series of one service and type, which other owners had, are one span. */
static int hand_out(const struct history_spans *spans, const struct store_window_query *query,
		    store_span_fn *visit, void *ctx)
{
	cleanup_free bool *visible = find_visible(spans, query);
	const struct row *rows = spans->rows.data;
	int rc = visible ? 0 : -ENOMEM;

	for (size_t i = 0, end; rc == 0 && i < spans->rows.count; i = end) {
		struct store_span span = { .from_ns = spans->day.day * DAY_NS + rows[i].stretch * spans->span_ns,
					   .first_ns = UINT64_MAX };

		for (end = i; end < spans->rows.count && is_same_span(spans, &rows[i], &rows[end]); end++)
			if (visible[rows[end].series])
				add_row(spans, &rows[end], &span);
		if (span.service && span.from_ns >= query->from_ns && (!query->to_ns || span.from_ns < query->to_ns))
			rc = visit(ctx, &span);
	}
	return rc;
}

/* What was added up of a file that is another one by now, and what another reader added up meanwhile, is not kept. */
static void keep(struct sqlite_history *history, struct history_spans **made_take, uint64_t generation)
{
	struct history_spans *made = *made_take;

	(void)pthread_mutex_lock(&history->spans_lock);
	if (history->spans_generation == generation && history->span_rows + made->rows.count <= ROWS_MAX &&
	    !find_kept(history, &made->day, made->span_ns)) {
		history->span_rows += made->rows.count;
		made->next = history->spans;
		history->spans = take_ptr(*made_take);
	}
	(void)pthread_mutex_unlock(&history->spans_lock);
}

int sqlite_history_spans(struct sqlite_history *history, const struct store_day *day,
			 const struct store_window_query *query, uint64_t span_ns,
			 store_span_fn *visit, void *ctx, struct err *err)
{
	cleanup(history_spans) struct history_spans *made = NULL;
	const struct history_spans *spans;
	unsigned damaged = 0;
	uint64_t generation;
	int rc = 0;

	(void)pthread_mutex_lock(&history->spans_lock);
	generation = history->spans_generation;
	spans = find_kept(history, day, span_ns);
	if (spans)
		rc = hand_out(spans, query, visit, ctx);
	(void)pthread_mutex_unlock(&history->spans_lock);
	if (spans)
		return rc;
	/* Tens of milliseconds, in which others read what is kept. */
	rc = add_up(history, day, span_ns, &made, &damaged, err);
	if (rc == 0)
		rc = hand_out(made, query, visit, ctx);
	if (made && !damaged)
		keep(history, &made, generation);
	return rc;
}
