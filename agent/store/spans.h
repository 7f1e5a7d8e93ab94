/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of a day's windows over stretches of it, for every engine. Pure. */
#ifndef PROFD_STORE_SPANS_H
#define PROFD_STORE_SPANS_H

#include "agent/base/vec.h"
#include "agent/store/store.h"

struct span_series {
	char *service, *type, *owners; /* owned */
	uint32_t number;	       /* as they came, while they are sorted */
	uint32_t what;		       /* the first of this service and type */
};

struct span_row { /* of a series and a stretch */
	uint32_t series;
	uint16_t stretch;     /* of the day */
	uint16_t first, last; /* minutes of the day with data */
	uint64_t samples, lost, bytes;
	int64_t value;
};

VEC_DEFINE(span_series, struct span_series);
VEC_DEFINE(span_rows, struct span_row);

struct history_spans {
	struct history_spans *next; /* likewise up to @to_ns: of whoever keeps them */
	uint64_t version;
	uint64_t from_ns, to_ns; /* begins of the stretches that are there */
	struct store_day day;
	uint64_t span_ns;
	struct span_series_vec series; /* sorted */
	struct span_rows_vec rows;	  /* by stretch, then by series */
};

/* Visits all windows of a day without data; what is rolled up comes hour by hour, with its minutes.
 */
typedef int history_hours_fn(void *source, const struct store_day *day, store_window_fn *visit,
			     void *ctx, unsigned *ret_damaged, struct err *err);

/* Adds windows of one day up, in any order. */
struct spans_maker;
/* NULL: no memory. */
struct spans_maker *spans_maker_create(const struct store_day *day, uint64_t span_ns) must_use;
void spans_maker_destroy(struct spans_maker *maker);
CLEANUP_DEFINE(spans_maker, struct spans_maker *, spans_maker_destroy);
/* A store_window_fn. -ENOMEM. */
int spans_maker_add(void *maker, const struct store_window *window) must_use;
/* The sums are the caller's; the maker can only be destroyed then. -ENOMEM. */
int spans_maker_finish(struct spans_maker *maker, struct history_spans **ret) must_use;

/* All of it for the windows of @hours. @ret is the caller's. @ret_damaged: rows that could not be
 * read. */
int history_spans_make(const struct store_day *day, uint64_t span_ns, history_hours_fn *hours,
		       void *source, struct history_spans **ret, unsigned *ret_damaged,
		       struct err *err) must_use;
void history_spans_destroy(struct history_spans *spans);
CLEANUP_DEFINE(history_spans, struct history_spans *, history_spans_destroy);
/* As store_history_spans(). */
int history_spans_hand_out(const struct history_spans *spans,
			   const struct store_window_query *query, store_span_fn *visit, void *ctx)
	must_use;

#endif
