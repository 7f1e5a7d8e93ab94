// SPDX-License-Identifier: Apache-2.0
/* Sums of days. Lists ask for those of every day again and again: one question tells which days
 * have changed (by the number of their newest row), the sums of others are kept. */
#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/store/clickhouse.h"
#include "agent/store/clickhouse_history.h"
#include "agent/store/spans.h"

#define ROWS_MAX   500000u /* 48 bytes each */
#define FRESH_NS                                                                                   \
	(2 * NS_PER_S) /* how old the versions may be: of other hosts' days, since a write of its  \
			  own makes them old */

struct day_version {
	struct store_day day; /* of its own: without a host */
	uint64_t version;
};
VEC_DEFINE(day_versions, struct day_version);

static bool same_day(const struct store_day *a, const struct store_day *b)
{
	return a->day == b->day && a->retention_days == b->retention_days && strcmp(a->host, b->host) == 0;
}

static uint64_t written(struct clickhouse *ch)
{
	uint64_t number;

	(void)pthread_mutex_lock(&ch->journal->lock);
	number = ch->journal->written;
	(void)pthread_mutex_unlock(&ch->journal->lock);
	return number;
}

/* ---- versions -------------------------------------------------------------------------------- */

static int read_versions(struct clickhouse *ch, struct buf *answer, struct day_versions_vec *ret,
			 struct err *err)
{
	struct bytes in = bytes_of(answer->data, answer->len);
	struct day_row row;
	int rc;

	while ((rc = row_read_day(&in, &row)) > 0) {
		struct day_version one = { { .day = row.day, .retention_days = row.retention_days }, row.bytes };

		if (strcmp(row.host, ch->host) != 0)
			strcpy(one.day.host, row.host);
		rc = day_versions_vec_push(ret, one);
		if (rc < 0)
			return err_set(err, -rc, NULL, NULL, "no memory for the days of the store");
	}
	return rc < 0 ? clickhouse_no_answer(ch, err) : 0;
}

static int ask_versions(struct clickhouse *ch, bool all_hosts, struct day_versions_vec *ret,
			struct err *err)
{
	cleanup_buf struct buf sql = { 0 }, answer = { 0 }, host = { 0 };
	int rc;

	if (!all_hosts) {
		buf_add_str(&host, "WHERE host = ");
		sql_text(&host, ch->host);
	}
	buf_printf(&sql,
		   "SELECT " ROW_MARK ", " ROW_TEXT("host") ", day, retention, toUInt64(l) FROM "
		   "(" CLICKHOUSE_NEWEST(" %s ") ") WHERE l > g FORMAT RowBinary",
		   host.len ? host.data : "");
	rc = host.error ? err_set(err, ENOMEM, NULL, NULL, "no memory to ask the store")
			: clickhouse_ask(ch, &sql, &answer, err);
	return rc < 0 ? rc : read_versions(ch, &answer, ret, err);
}

static int renew(struct clickhouse *ch, bool all_hosts, struct err *err)
{
	struct versions *versions = &ch->versions[all_hosts];
	struct day_versions_vec list = { 0 };
	uint64_t asked = clock_monotonic_ns(), number = written(ch);
	int rc = ask_versions(ch, all_hosts, &list, err);

	if (rc < 0) {
		day_versions_vec_deinit(&list);
		return rc;
	}
	(void)pthread_mutex_lock(&ch->spans_lock);
	free(versions->list);
	*versions = (struct versions){ list.data, list.count, asked, number };
	(void)pthread_mutex_unlock(&ch->spans_lock);
	return 0;
}

/* 0: the day does not exist. Lock held. */
static uint64_t version_of(const struct versions *versions, const struct store_day *day)
{
	for (size_t i = 0; i < versions->count; i++)
		if (same_day(&versions->list[i].day, day))
			return versions->list[i].version;
	return 0;
}

static int find_version(struct clickhouse *ch, const struct store_day *day, uint64_t *ret,
			struct err *err)
{
	bool other = day->host[0] != '\0', fresh;
	struct versions *versions = &ch->versions[other];
	uint64_t number = written(ch);
	int rc = 0;

	(void)pthread_mutex_lock(&ch->spans_lock);
	fresh = versions->asked_ns && versions->written == number &&
		clock_monotonic_ns() - versions->asked_ns < FRESH_NS;
	(void)pthread_mutex_unlock(&ch->spans_lock);
	if (!fresh)
		rc = renew(ch, other, err);
	if (rc < 0)
		return rc;
	(void)pthread_mutex_lock(&ch->spans_lock);
	*ret = version_of(versions, day);
	(void)pthread_mutex_unlock(&ch->spans_lock);
	return *ret ? 0 : clickhouse_no_day(err);
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* The kept sums of a day, of any version. Lock held. */
static struct history_spans **find_kept(struct clickhouse *ch, const struct store_day *day,
					uint64_t span_ns)
{
	struct history_spans **at = &ch->spans;

	while (*at && ((*at)->span_ns != span_ns || !same_day(&(*at)->day, day)))
		at = &(*at)->next;
	return at;
}

/* Sums that are newer than their version are made again when the version is known to be newer. */
static void keep(struct clickhouse *ch, struct history_spans **made_take)
{
	struct history_spans *made = *made_take, **at, *old;

	(void)pthread_mutex_lock(&ch->spans_lock);
	at = find_kept(ch, &made->day, made->span_ns);
	old = *at;
	if (old) {
		*at = old->next;
		ch->span_rows -= old->rows.count;
	}
	if (ch->span_rows + made->rows.count <= ROWS_MAX) {
		ch->span_rows += made->rows.count;
		made->next = ch->spans;
		ch->spans = take_ptr(*made_take);
	}
	(void)pthread_mutex_unlock(&ch->spans_lock);
	history_spans_destroy(old);
}

int clickhouse_history_spans(void *ctx, const struct store_day *day,
			     const struct store_window_query *query, uint64_t span_ns,
			     store_span_fn *visit, void *visit_ctx, struct err *err)
{
	struct store_day key = { .day = day->day, .retention_days = day->retention_days };
	cleanup(history_spans) struct history_spans *made = NULL;
	struct clickhouse *ch = ctx;
	const struct history_spans *kept;
	unsigned damaged = 0;
	uint64_t version = 0;
	bool found;
	int rc;

	if (strcmp(day->host, ch->host) != 0)
		strcpy(key.host, day->host);
	rc = find_version(ch, &key, &version, err);
	if (rc < 0)
		return rc;
	(void)pthread_mutex_lock(&ch->spans_lock);
	kept = *find_kept(ch, &key, span_ns);
	found = kept && kept->version == version;
	if (found)
		rc = history_spans_hand_out(kept, query, visit, visit_ctx);
	(void)pthread_mutex_unlock(&ch->spans_lock);
	if (found)
		return rc;
	rc = history_spans_make(&key, span_ns, clickhouse_history_hours, ch, &made, &damaged, err);
	if (rc < 0)
		return rc;
	rc = history_spans_hand_out(made, query, visit, visit_ctx);
	made->version = version;
	if (!damaged)
		keep(ch, &made);
	return rc;
}

void clickhouse_spans_deinit(struct clickhouse *ch)
{
	while (ch->spans) {
		struct history_spans *spans = ch->spans;

		ch->spans = spans->next;
		history_spans_destroy(spans);
	}
	for (size_t i = 0; i < ARRAY_SIZE(ch->versions); i++)
		free(ch->versions[i].list);
}
