// SPDX-License-Identifier: Apache-2.0
/* Lists ask for the sums of every day again and again, and most days do not change any more: what
 * was added up once is kept until the file is written to. */
#include "agent/store/spans.h"
#include "agent/store/sqlite_history.h"

#define ROWS_MAX 200000u /* of all files, 48 bytes each */

/* ---- keeping -----------------------------------------------------------------------------------
 */

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
		history_spans_destroy(spans);
	}
	(void)pthread_mutex_unlock(&history->spans_lock);
}

static struct history_spans *find_kept(const struct sqlite_history *history,
				       const struct store_day *day, uint64_t span_ns)
{
	struct history_spans *spans = history->spans;

	while (spans && (spans->day.day != day->day || spans->day.retention_days != day->retention_days ||
			 spans->span_ns != span_ns))
		spans = spans->next;
	return spans;
}

/* Sums of a file that was replaced meanwhile are not kept, nor sums that another reader made
 * meanwhile. */
static void keep(struct sqlite_history *history, struct history_spans **made_take,
		 uint64_t generation)
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

static int hours(void *source, const struct store_day *day, store_window_fn *visit, void *ctx,
		 unsigned *ret_damaged, struct err *err)
{
	return sqlite_history_hours(source, day, visit, ctx, ret_damaged, err);
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
		rc = history_spans_hand_out(spans, query, visit, ctx);
	(void)pthread_mutex_unlock(&history->spans_lock);
	if (spans)
		return rc;
	/* Tens of milliseconds, in which others read what is kept. */
	rc = history_spans_make(day, span_ns, hours, history, &made, &damaged, err);
	if (rc == 0)
		rc = history_spans_hand_out(made, query, visit, ctx);
	if (made && !damaged)
		keep(history, &made, generation);
	return rc;
}
