// SPDX-License-Identifier: Apache-2.0
#include "agent/store/spans.h"

#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/base/u64map.h"
#include "agent/store/minutes.h"

#define MINUTE_NS (60 * NS_PER_S)
#define DAY_NS	  (86400 * NS_PER_S)

struct spans_maker {
	struct history_spans *to; /* owned */
	struct u64map series_at; /* hash of its texts -> index of series */
	struct u64map row_at;	 /* series << 32 | stretch -> index of rows */
	size_t last_series, last_row; /* where the minute before went */
	uint64_t midnight_ns;
};

void history_spans_destroy(struct history_spans *spans)
{
	if (!spans)
		return;
	for (size_t i = 0; i < spans->series.count; i++) {
		free(spans->series.data[i].service);
		free(spans->series.data[i].type);
		free(spans->series.data[i].owners);
	}
	span_series_vec_deinit(&spans->series);
	span_rows_vec_deinit(&spans->rows);
	free(spans);
}

struct spans_maker *spans_maker_create(const struct store_day *day, uint64_t span_ns)
{
	cleanup(spans_maker) struct spans_maker *maker = calloc(1, sizeof(*maker));

	if (!maker)
		return NULL;
	maker->midnight_ns = day->day * DAY_NS;
	maker->to = calloc(1, sizeof(*maker->to));
	if (!maker->to)
		return NULL;
	maker->to->day = *day;
	maker->to->span_ns = span_ns;
	return take_ptr(maker);
}

void spans_maker_destroy(struct spans_maker *maker)
{
	if (!maker)
		return;
	history_spans_destroy(maker->to);
	u64map_deinit(&maker->series_at);
	u64map_deinit(&maker->row_at);
	free(maker);
}

/* ---- adding up ---------------------------------------------------------------------------------
 */

static bool is_series(const struct span_series *series, const struct store_window *window)
{
	return strcmp(series->service, window->service) == 0 && strcmp(series->type, window->type) == 0 &&
	       strcmp(series->owners, window->owners) == 0;
}

static int new_series(struct spans_maker *maker, const struct store_window *window, uint64_t hash)
{
	struct span_series_vec *list = &maker->to->series;
	struct span_series *series;
	int rc = span_series_vec_push(list, (struct span_series){ .number = (uint32_t)list->count });

	if (rc < 0)
		return rc;
	series = &list->data[list->count - 1];
	series->service = strdup(window->service);
	series->type = strdup(window->type);
	series->owners = strdup(window->owners);
	maker->last_series = list->count - 1;
	return series->service && series->type && series->owners
		       ? u64map_put(&maker->series_at, hash, maker->last_series)
		       : -ENOMEM;
}

static int find_series(struct spans_maker *maker, const struct store_window *window)
{
	const struct span_series_vec *list = &maker->to->series;
	uint64_t hash, at;

	if (list->count && is_series(&list->data[maker->last_series], window))
		return 0;
	hash = hash_bytes(window->service, strlen(window->service) + 1, 0);
	hash = hash_bytes(window->type, strlen(window->type) + 1, hash);
	hash = hash_bytes(window->owners, strlen(window->owners), hash);
	if (!u64map_get(&maker->series_at, hash, &at))
		return new_series(maker, window, hash);
	maker->last_series = at;
	return 0;
}

static int find_row(struct spans_maker *maker, uint16_t minute)
{
	struct span_rows_vec *rows = &maker->to->rows;
	uint32_t series = (uint32_t)maker->last_series;
	uint16_t stretch = (uint16_t)(minute * MINUTE_NS / maker->to->span_ns);
	uint64_t key = (uint64_t)series << 32 | stretch, at;
	int rc;

	if (rows->count && rows->data[maker->last_row].series == series &&
	    rows->data[maker->last_row].stretch == stretch)
		return 0;
	if (u64map_get(&maker->row_at, key, &at)) {
		maker->last_row = at;
		return 0;
	}
	rc = span_rows_vec_push(rows, (struct span_row){ .series = series,
							 .stretch = stretch,
							 .first = minute,
							 .last = minute });
	maker->last_row = rows->count - 1;
	return rc < 0 ? rc : u64map_put(&maker->row_at, key, maker->last_row);
}

/* Stretches are counted from midnight, so that none lies in two files. */
static int add_minute(struct spans_maker *maker, uint16_t minute, const struct store_minute *totals,
		      uint64_t bytes)
{
	struct span_row *row;
	int rc = find_row(maker, minute);

	if (rc < 0)
		return rc;
	row = &maker->to->rows.data[maker->last_row];
	row->first = minute < row->first ? minute : row->first;
	row->last = minute > row->last ? minute : row->last;
	row->samples += totals->samples;
	row->lost += totals->lost;
	row->value += totals->value;
	row->bytes += bytes;
	return 0;
}

int spans_maker_add(void *ctx, const struct store_window *window)
{
	const struct store_minute totals = { .samples = window->samples,
					     .lost = window->lost,
					     .value = window->value };
	struct spans_maker *maker = ctx;
	uint16_t first = (uint16_t)((window->from_ns - maker->midnight_ns) / MINUTE_NS);
	int rc = find_series(maker, window);

	if (rc == 0 && !window->minute_count)
		return add_minute(maker, first, &totals, window->bytes);
	for (uint32_t i = 0; i < window->minute_count && rc == 0; i++)
		rc = add_minute(maker, (uint16_t)(first + window->minutes[i].minute), &window->minutes[i],
				minutes_bytes(window, &window->minutes[i]));
	return rc;
}

static bool is_same(const struct span_series *a, const struct span_series *b)
{
	return strcmp(a->service, b->service) == 0 && strcmp(a->type, b->type) == 0;
}

static int by_texts(const void *a, const void *b)
{
	const struct span_series *x = a, *y = b;
	int order = strcmp(x->service, y->service);

	if (order == 0)
		order = strcmp(x->type, y->type);
	return order ? order : x->number < y->number ? -1 : x->number > y->number;
}

static int by_stretch(const void *a, const void *b)
{
	const struct span_row *x = a, *y = b;

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
		struct span_series *series = &spans->series.data[i];

		series->what = i && is_same(series, series - 1) ? (series - 1)->what : i;
		number[series->number] = i;
	}
	for (size_t i = 0; i < spans->rows.count; i++)
		spans->rows.data[i].series = number[spans->rows.data[i].series];
	if (spans->rows.count)
		qsort(spans->rows.data, spans->rows.count, sizeof(*spans->rows.data), by_stretch);
	return 0;
}

int spans_maker_finish(struct spans_maker *maker, struct history_spans **ret)
{
	int rc = sort(maker->to);

	if (rc == 0)
		*ret = take_ptr(maker->to);
	return rc;
}

int history_spans_make(const struct store_day *day, uint64_t span_ns, history_hours_fn *hours,
		       void *source, struct history_spans **ret, unsigned *ret_damaged,
		       struct err *err)
{
	cleanup(spans_maker) struct spans_maker *maker = spans_maker_create(day, span_ns);
	int rc = maker ? hours(source, day, spans_maker_add, maker, ret_damaged, err) : -ENOMEM;

	return rc < 0 ? rc : spans_maker_finish(maker, ret);
}

/* ---- handing out ----------------------------------------------------------------------------- */

static bool is_visible(const struct span_series *series, const struct store_window_query *query,
		       const char *owner)
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

static bool is_same_span(const struct history_spans *spans, const struct span_row *x,
			 const struct span_row *y)
{
	return x->stretch == y->stretch &&
	       spans->series.data[x->series].what == spans->series.data[y->series].what;
}

static void add_row(const struct history_spans *spans, const struct span_row *row,
		    struct store_span *to)
{
	uint64_t midnight_ns = spans->day.day * DAY_NS;
	const struct span_series *series = &spans->series.data[row->series];

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
int history_spans_hand_out(const struct history_spans *spans,
			   const struct store_window_query *query, store_span_fn *visit, void *ctx)
{
	cleanup_free bool *visible = find_visible(spans, query);
	const struct span_row *rows = spans->rows.data;
	int rc = visible ? 0 : -ENOMEM;

	for (size_t i = 0, end; rc == 0 && i < spans->rows.count; i = end) {
		struct store_span span = { .from_ns = spans->day.day * DAY_NS + rows[i].stretch * spans->span_ns,
					   .first_ns = UINT64_MAX };

		for (end = i; end < spans->rows.count && is_same_span(spans, &rows[i], &rows[end]); end++)
			if (visible[rows[end].series])
				add_row(spans, &rows[end], &span);
		if (span.service && span.from_ns >= query->from_ns &&
		    (!query->to_ns || span.from_ns < query->to_ns))
			rc = visit(ctx, &span);
	}
	return rc;
}
