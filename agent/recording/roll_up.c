// SPDX-License-Identifier: Apache-2.0
#include "agent/recording/roll_up.h"

#include <errno.h>
#include <string.h>

#include "agent/base/vec.h"
#include "agent/recording/pair_places.h"
#include "agent/recording/settled.h"

#define HOUR_NS	     (3600 * NS_PER_S)
#define MINUTE_NS    (60 * NS_PER_S)
#define HOUR_MINUTES 60u
#define SETTLED_FULL (4u << 20) /* bytes: a larger piece of the dictionary is not opened again */

VEC_DEFINE(hour_sums, struct chunk_hour_sum);

struct series {
	char *service, *type, *owners; /* owned */
	struct store_minute minutes[HOUR_MINUTES]; /* by minute, while they are collected */
	bool there[HOUR_MINUTES];
	uint32_t minute_count; /* of @minutes, once they are packed */
	struct buf data;
	struct chunk_parts parts; /* of data */
	struct pair_places places;
	bool any_places; /* they have been read */
	struct buf shared; /* the same as bytes */
};
VEC_DEFINE(series, struct series);

struct roll {
	struct store *store;
	const struct store_day *day;
	uint64_t hour_ns;
	struct series_vec series;
	struct series *at; /* whose sums are collected */
	struct hour_sums_vec sums;
	bool any_minute; /* something is not rolled up yet */
	struct err *err;
};

static void roll_deinit(struct roll *roll)
{
	for (size_t i = 0; i < roll->series.count; i++) {
		free(roll->series.data[i].service);
		free(roll->series.data[i].type);
		free(roll->series.data[i].owners);
		buf_deinit(&roll->series.data[i].data);
		pair_places_deinit(&roll->series.data[i].places);
		buf_deinit(&roll->series.data[i].shared);
	}
	series_vec_deinit(&roll->series);
	hour_sums_vec_deinit(&roll->sums);
}

/* ---- totals ---------------------------------------------------------------------------------- */

static bool is_series(const struct series *series, const struct store_window *window)
{
	return strcmp(series->service, window->service) == 0 &&
	       strcmp(series->type, window->type) == 0 && strcmp(series->owners, window->owners) == 0;
}

static int find_series(struct roll *roll, const struct store_window *window, struct series **ret)
{
	struct series *series;
	int rc;

	for (size_t i = 0; i < roll->series.count; i++) {
		if (is_series(&roll->series.data[i], window)) {
			*ret = &roll->series.data[i];
			return 0;
		}
	}
	rc = series_vec_push(&roll->series, (struct series){ .data = { .max = STORE_CHUNK_MAX },
							     .shared = { .max = STORE_CHUNK_MAX } });
	if (rc < 0)
		return rc;
	series = &roll->series.data[roll->series.count - 1];
	series->service = strdup(window->service);
	series->type = strdup(window->type);
	series->owners = strdup(window->owners);
	*ret = series;
	return series->service && series->type && series->owners ? 0 : -ENOMEM;
}

static int add_totals(void *ctx, const struct store_window *window)
{
	struct roll *roll = ctx;
	uint32_t minute = (uint32_t)((window->from_ns - roll->hour_ns) / MINUTE_NS);
	struct store_minute *to;
	struct series *series;
	int rc = find_series(roll, window, &series);

	if (rc < 0)
		return rc;
	roll->any_minute |= !window->minutes;
	to = &series->minutes[minute];
	series->there[minute] = true;
	to->minute = minute;
	to->samples += window->samples;
	to->lost += window->lost;
	to->value += window->value;
	to->profiled_ms += window->profiled_ms;
	if (to->profiled_ms > MINUTE_NS / NS_PER_MS)
		to->profiled_ms = MINUTE_NS / NS_PER_MS;
	return 0;
}

static void pack_minutes(struct series *series)
{
	for (uint32_t i = 0; i < HOUR_MINUTES; i++)
		if (series->there[i])
			series->minutes[series->minute_count++] = series->minutes[i];
}

/* ---- sums ------------------------------------------------------------------------------------ */

struct add {
	struct roll *roll;
	uint32_t minute;
};

static int add_hour_sum(void *ctx, const struct chunk_hour_sum *sum)
{
	const struct add *add = ctx;
	const struct pair_numbers_vec *pairs = &add->roll->at->places.pairs;
	struct chunk_hour_sum one = *sum;

	if (one.sum.pair >= pairs->count)
		return -EPROTO;
	one.sum.pair = pairs->data[one.sum.pair];
	return hour_sums_vec_push(&add->roll->sums, one);
}

static int add_sum(void *ctx, const struct chunk_sum *sum)
{
	const struct add *add = ctx;

	return hour_sums_vec_push(&add->roll->sums, (struct chunk_hour_sum){ *sum, add->minute });
}

static int add_sums(void *ctx, const struct store_window *window)
{
	struct roll *roll = ctx;
	struct add add = { roll, (uint32_t)((window->from_ns - roll->hour_ns) / MINUTE_NS) };

	if (!is_series(roll->at, window))
		return 0; /* other owners */
	if (!roll->at->any_places) {
		int rc = pair_places_decode(&roll->at->places, window->shared, window->shared_len);

		if (rc < 0)
			return rc;
		roll->at->any_places = true;
	}
	if (window->minute_count)
		return chunk_decode_hour(window->data, window->len, 0, HOUR_MINUTES, add_hour_sum, &add);
	return chunk_decode_window(window->data, window->len, add_sum, &add);
}

/* -EUCLEAN when not all of it can be read. */
static int read_hour(const struct roll *roll, struct store_window_query *query,
		     store_window_fn *visit)
{
	unsigned damaged = 0;
	int rc;

	query->from_ns = roll->hour_ns;
	query->to_ns = roll->hour_ns + HOUR_NS;
	rc = store_history_windows(roll->store, roll->day, query, visit, (void *)(uintptr_t)roll,
				   &damaged, roll->err);
	return rc == -EPROTO || (rc == 0 && damaged) ? -EUCLEAN : rc;
}

static int by_pair(const void *a, const void *b)
{
	const struct chunk_hour_sum *x = a, *y = b;

	return x->sum.pair < y->sum.pair ? -1 : x->sum.pair > y->sum.pair;
}

/* Pairs by their place; those that are new to the series get theirs in the order of their numbers.
 */
static int place_sums(struct hour_sums_vec *sums, struct series *series)
{
	int rc = 0;

	if (sums->count)
		qsort(sums->data, sums->count, sizeof(*sums->data), by_pair);
	for (size_t i = 0; i < sums->count && rc == 0; i++)
		rc = pair_places_add(&series->places, sums->data[i].sum.pair, &sums->data[i].sum.pair);
	pair_places_encode(&series->places, &series->shared);
	return rc < 0 ? rc : series->shared.error;
}

static int roll_series(struct roll *roll, struct series *series)
{
	struct store_window_query query = { .service = series->service, .type = series->type,
					    .with_data = true };
	int rc;

	roll->at = series;
	roll->sums.count = 0;
	rc = read_hour(roll, &query, add_sums);
	if (rc == 0)
		rc = place_sums(&roll->sums, series);
	if (rc < 0)
		return rc;
	pack_minutes(series);
	chunk_encode_hour(&series->data, roll->sums.data, roll->sums.count, &series->parts);
	return series->data.error;
}

/* ---- the dictionary -------------------------------------------------------------------------- */

struct pieces {
	size_t settled, others;
	size_t last_len; /* bytes of the last settled one */
	size_t kept, seen;
	struct settled *into;
};

static int count_piece(void *ctx, const struct store_chunk *chunk)
{
	struct pieces *pieces = ctx;

	if (chunk->kind != STORE_CHUNK_SETTLED) {
		pieces->others++;
		return 0;
	}
	pieces->settled++;
	pieces->last_len = chunk->len;
	/* Settled ones come first. */
	return pieces->others ? -EPROTO : 0;
}

static int settle_piece(void *ctx, const struct store_chunk *chunk)
{
	struct pieces *pieces = ctx;

	if (pieces->seen++ < pieces->kept)
		return 0;
	return settled_add(pieces->into, chunk->kind, chunk->data, chunk->len);
}

static int settle(const struct roll *roll, struct pieces *pieces, struct buf *out,
		  struct chunk_parts *parts)
{
	cleanup(settled) struct settled *settled = NULL;
	unsigned damaged = 0;
	int rc = store_history_dictionary(roll->store, roll->day, count_piece, pieces, &damaged, NULL);

	if (rc < 0 || damaged || !pieces->others)
		return rc < 0 ? rc : damaged ? -EUCLEAN : 0;
	pieces->kept = pieces->settled - (pieces->settled && pieces->last_len < SETTLED_FULL);
	pieces->into = settled = settled_create();
	if (!settled)
		return -ENOMEM;
	rc = store_history_dictionary(roll->store, roll->day, settle_piece, pieces, &damaged, NULL);
	if (rc == 0)
		rc = damaged ? -EUCLEAN : settled_encode(settled, out, parts);
	return rc;
}

/* ---- both ------------------------------------------------------------------------------------ */

static int write_hour(const struct roll *roll, struct err *err)
{
	cleanup_free struct store_window *windows = calloc(roll->series.count, sizeof(*windows));
	cleanup_buf struct buf dictionary = { .max = STORE_CHUNK_MAX };
	struct pieces pieces = { 0 };
	struct chunk_parts parts = { 0 };
	struct store_chunk chunk = { .kind = STORE_CHUNK_SETTLED };
	size_t kept = SIZE_MAX / 2;

	if (!windows)
		return -ENOMEM;
	/* Pieces that cannot be joined stay pieces. */
	if (settle(roll, &pieces, &dictionary, &parts) == 0 && dictionary.len) {
		chunk.data = dictionary.data;
		chunk.len = dictionary.len;
		kept = pieces.kept;
	}
	for (size_t i = 0; i < roll->series.count; i++) {
		const struct series *series = &roll->series.data[i];

		windows[i] = (struct store_window){ .service = series->service,
						    .type = series->type,
						    .owners = series->owners,
						    .from_ns = roll->hour_ns,
						    .data = series->data.data,
						    .len = series->data.len,
						    .ends = { series->parts.ends, series->parts.count },
						    .shared = series->shared.data,
						    .shared_len = series->shared.len,
						    .minutes = series->minutes,
						    .minute_count = series->minute_count };
	}
	return store_history_roll(roll->store, roll->day, roll->hour_ns, kept, chunk.len ? &chunk : NULL,
				  &(struct store_ends){ parts.ends, parts.count }, windows, roll->series.count, err);
}

int roll_up_hour(struct store *store, const struct store_day *day, uint64_t hour_ns,
		 struct err *err)
{
	__attribute__((__cleanup__(roll_deinit))) struct roll roll = {
		.store = store, .day = day, .hour_ns = hour_ns, .err = err
	};
	struct store_window_query all = { 0 };
	int rc = read_hour(&roll, &all, add_totals);

	if (rc < 0 || !roll.any_minute)
		return rc;
	for (size_t i = 0; rc == 0 && i < roll.series.count; i++)
		rc = roll_series(&roll, &roll.series.data[i]);
	return rc == 0 ? write_hour(&roll, err) : rc;
}

/* ---- what is left to do ---------------------------------------------------------------------- */

/* Minutes of a rolled-up hour come with that hour's minutes, others without. */
static int find_minute(void *ctx, const struct store_window *window)
{
	uint64_t *first_ns = ctx;

	if (!window->minutes && window->from_ns < *first_ns)
		*first_ns = window->from_ns;
	return 0;
}

int roll_up_next(struct store *store, const struct store_day *day, uint64_t from_ns,
		 uint64_t *ret_ns, struct err *err)
{
	const struct store_window_query query = { .from_ns = from_ns };
	uint64_t first_ns = UINT64_MAX;
	int rc = store_history_windows(store, day, &query, find_minute, &first_ns, NULL, err);

	if (rc < 0)
		return rc;
	*ret_ns = first_ns == UINT64_MAX ? UINT64_MAX : first_ns - first_ns % HOUR_NS;
	return 0;
}
