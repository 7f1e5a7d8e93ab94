// SPDX-License-Identifier: Apache-2.0
/* Sums of days. Lists ask for those of every day again and again: one question tells which days
 * have changed (by the number of their newest row), the sums of others are kept. Of a fleet the day
 * of every host changes all the time: a question about one host brings those of the next ones. */
#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/store/clickhouse.h"
#include "agent/store/clickhouse_history.h"
#include "agent/store/spans.h"

#define ROWS_MAX   500000u /* 48 bytes each */
#define HOSTS_MAX  256u /* of one question: 40 MB of answer when each profiles 10 services */
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

static int by_day_and_host(const void *a, const void *b)
{
	const struct store_day *x = &((const struct day_version *)a)->day;
	const struct store_day *y = &((const struct day_version *)b)->day;

	if (x->day != y->day)
		return x->day < y->day ? -1 : 1;
	if (x->retention_days != y->retention_days)
		return x->retention_days < y->retention_days ? -1 : 1;
	return strcmp(x->host, y->host);
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
	uint64_t asked = clock_monotonic_ns(), number = journal_written(ch->journal);
	int rc = ask_versions(ch, all_hosts, &list, err);

	if (rc < 0) {
		day_versions_vec_deinit(&list);
		return rc;
	}
	if (list.count)
		qsort(list.data, list.count, sizeof(*list.data), by_day_and_host);
	(void)pthread_mutex_lock(&ch->spans_lock);
	free(versions->list);
	*versions = (struct versions){ list.data, list.count, asked, number };
	(void)pthread_mutex_unlock(&ch->spans_lock);
	return 0;
}

/* NULL: the day does not exist. Lock held. */
static const struct day_version *version_of(const struct versions *versions,
					    const struct store_day *day)
{
	const struct day_version wanted = { .day = *day };

	return versions->count ? bsearch(&wanted, versions->list, versions->count, sizeof(wanted),
					 by_day_and_host)
			       : NULL;
}

static int find_version(struct clickhouse *ch, const struct store_day *day, uint64_t *ret,
			struct err *err)
{
	bool other = day->host[0] != '\0', fresh;
	struct versions *versions = &ch->versions[other];
	const struct day_version *found;
	uint64_t number = journal_written(ch->journal);
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
	found = version_of(versions, day);
	*ret = found ? found->version : 0;
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

/* Takes sums off the list. Lock held. */
static struct history_spans *take_off(struct clickhouse *ch, struct history_spans **at)
{
	struct history_spans *spans = *at;

	*at = spans->next;
	ch->span_rows -= spans->rows.count;
	return spans;
}

/* Those that were made first make room. Sums that are newer than their version are made again when
 * the version is known to be newer. */
static void keep(struct clickhouse *ch, struct history_spans **made_take)
{
	struct history_spans *made = *made_take, **at;

	if (made->rows.count > ROWS_MAX)
		return;
	(void)pthread_mutex_lock(&ch->spans_lock);
	at = find_kept(ch, &made->day, made->span_ns);
	if (*at)
		history_spans_destroy(take_off(ch, at));
	while (ch->span_rows + made->rows.count > ROWS_MAX) {
		for (at = &ch->spans; (*at)->next;)
			at = &(*at)->next;
		history_spans_destroy(take_off(ch, at));
	}
	ch->span_rows += made->rows.count;
	made->next = ch->spans;
	ch->spans = take_ptr(*made_take);
	(void)pthread_mutex_unlock(&ch->spans_lock);
}

/* False: they are not kept, or of another version; *@ret_rc is set otherwise. */
static bool hand_out_kept(struct clickhouse *ch, const struct day_version *wanted, uint64_t span_ns,
			  const struct store_window_query *query, store_span_fn *visit,
			  void *visit_ctx, int *ret_rc)
{
	const struct history_spans *kept;
	bool found;

	(void)pthread_mutex_lock(&ch->spans_lock);
	kept = *find_kept(ch, &wanted->day, span_ns);
	found = kept && kept->version == wanted->version;
	if (found)
		*ret_rc = history_spans_hand_out(kept, query, visit, visit_ctx);
	(void)pthread_mutex_unlock(&ch->spans_lock);
	return found;
}

/* ---- of many hosts --------------------------------------------------------------------------- */

/* The days of a question, and the sums of the host that is under way. */
struct hosts {
	struct clickhouse *ch;
	struct day_version days[HOSTS_MAX]; /* by host */
	size_t count, at;
	uint64_t span_ns;
	struct spans_maker *maker; /* owned; NULL = none of days[at] yet */
	struct history_spans *first; /* owned: of days[0] */
};

/* The wanted day and those of the next hosts whose sums are not kept as of their version. */
static void find_hosts(struct clickhouse *ch, const struct day_version *wanted, uint64_t span_ns,
		       struct hosts *ret)
{
	const struct versions *versions = &ch->versions[1];
	const struct day_version *day, *end;

	*ret = (struct hosts){ .ch = ch, .days = { *wanted }, .count = 1, .span_ns = span_ns };
	(void)pthread_mutex_lock(&ch->spans_lock);
	end = versions->list + versions->count;
	day = wanted->day.host[0] ? version_of(versions, &wanted->day) : NULL;
	for (unsigned i = 1; day && ++day < end && i < HOSTS_MAX; i++) {
		const struct history_spans *kept;

		if (day->day.day != wanted->day.day || day->day.retention_days != wanted->day.retention_days)
			break;
		kept = *find_kept(ch, &day->day, span_ns);
		if (!kept || kept->version != day->version)
			ret->days[ret->count++] = *day;
	}
	(void)pthread_mutex_unlock(&ch->spans_lock);
}

static int finish_host(struct hosts *hosts)
{
	cleanup(spans_maker) struct spans_maker *maker = take_ptr(hosts->maker);
	cleanup(history_spans) struct history_spans *made = NULL;
	int rc = maker ? spans_maker_finish(maker, &made) : 0;

	if (!made)
		return rc;
	made->version = hosts->days[hosts->at].version;
	if (hosts->at == 0)
		hosts->first = take_ptr(made);
	else
		keep(hosts->ch, &made);
	return 0;
}

/* Windows come host by host; hosts between two wanted ones come as well. */
static int add_window(void *ctx, const struct store_window *window)
{
	struct hosts *hosts = ctx;
	int rc = 0;

	if (strcmp(window->host, hosts->days[hosts->at].day.host) > 0)
		rc = finish_host(hosts);
	while (hosts->at < hosts->count - 1 && strcmp(window->host, hosts->days[hosts->at].day.host) > 0)
		hosts->at++;
	if (rc < 0 || strcmp(window->host, hosts->days[hosts->at].day.host) != 0)
		return rc;
	if (!hosts->maker)
		hosts->maker = spans_maker_create(&hosts->days[hosts->at].day, hosts->span_ns);
	return hosts->maker ? spans_maker_add(hosts->maker, window) : -ENOMEM;
}

/* Sums of the first of @hosts, NULL if it has no windows; keeps those of the others. */
static int make_many(struct hosts *hosts, struct history_spans **ret, struct err *err)
{
	static const struct store_window_query all = { .every_host = true };
	int rc = clickhouse_history_totals(hosts->ch, &hosts->days[0].day,
					   hosts->days[hosts->count - 1].day.host, &all, add_window, hosts,
					   NULL, err);

	if (rc == 0)
		rc = finish_host(hosts);
	spans_maker_destroy(hosts->maker);
	*ret = hosts->first;
	return rc;
}

int clickhouse_history_spans(void *ctx, const struct store_day *day,
			     const struct store_window_query *query, uint64_t span_ns,
			     store_span_fn *visit, void *visit_ctx, struct err *err)
{
	struct day_version wanted = { { .day = day->day, .retention_days = day->retention_days }, 0 };
	cleanup(history_spans) struct history_spans *made = NULL;
	struct clickhouse *ch = ctx;
	struct hosts hosts;
	unsigned damaged = 0;
	int rc;

	if (strcmp(day->host, ch->host) != 0)
		strcpy(wanted.day.host, day->host);
	rc = find_version(ch, &wanted.day, &wanted.version, err);
	if (rc < 0 || hand_out_kept(ch, &wanted, span_ns, query, visit, visit_ctx, &rc))
		return rc;
	find_hosts(ch, &wanted, span_ns, &hosts);
	rc = hosts.count > 1 ? make_many(&hosts, &made, err) : 0;
	if (rc == 0 && !made)
		rc = history_spans_make(&wanted.day, span_ns, clickhouse_history_hours, ch, &made, &damaged,
					err);
	if (rc < 0)
		return rc;
	rc = history_spans_hand_out(made, query, visit, visit_ctx);
	made->version = wanted.version;
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
