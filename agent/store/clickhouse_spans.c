// SPDX-License-Identifier: Apache-2.0
/* Sums of days. Lists ask for those of every day again and again: one question tells which days
 * have changed (by the number of their newest row), the sums of others are kept. Of a fleet the day
 * of every host changes all the time: a question about one host brings those of the next ones, of
 * the time that the list shows. */
#include <errno.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/store/clickhouse.h"
#include "agent/store/clickhouse_history.h"
#include "agent/store/spans.h"

#define DAY_NS	   (86400 * NS_PER_S)
#define ROWS_MAX   500000u /* 48 bytes each */
#define KEPT_ROWS_MAX                                                                              \
	(ROWS_MAX / 2) /* of one of two questions: what they bring is used before it makes room */
#define HOSTS_MAX  256u /* of two questions: 40 MB of answers when each profiles 10 services */
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

/* Sums without rows take room, too. */
static size_t rows_of(const struct history_spans *spans)
{
	return spans->rows.count + 1;
}

/* Takes sums off the list. Lock held. */
static struct history_spans *take_off(struct clickhouse *ch, struct history_spans **at)
{
	struct history_spans *spans = *at;

	*at = spans->next;
	ch->span_rows -= rows_of(spans);
	return spans;
}

/* Those that were made first make room. Sums that are newer than their version are made again when
 * the version is known to be newer. */
static void keep(struct clickhouse *ch, struct history_spans **made_take)
{
	struct history_spans *made = *made_take, **at;

	if (rows_of(made) > ROWS_MAX)
		return;
	(void)pthread_mutex_lock(&ch->spans_lock);
	at = find_kept(ch, &made->day, made->span_ns);
	if (*at)
		history_spans_destroy(take_off(ch, at));
	while (ch->span_rows + rows_of(made) > ROWS_MAX) {
		for (at = &ch->spans; (*at)->next;)
			at = &(*at)->next;
		history_spans_destroy(take_off(ch, at));
	}
	ch->span_rows += rows_of(made);
	made->next = ch->spans;
	ch->spans = take_ptr(*made_take);
	(void)pthread_mutex_unlock(&ch->spans_lock);
}

/* Whole stretches of a day. */
struct range {
	uint64_t span_ns;
	uint64_t from_ns, to_ns;
};

static struct range range_of(const struct store_day *day, const struct store_window_query *query,
			     uint64_t span_ns)
{
	uint64_t begin_ns = day->day * DAY_NS, end_ns = begin_ns + DAY_NS;
	struct range range = { span_ns, query->from_ns - query->from_ns % span_ns, end_ns };

	if (query->to_ns && query->to_ns < end_ns)
		range.to_ns = (query->to_ns + span_ns - 1) / span_ns * span_ns;
	if (range.from_ns < begin_ns)
		range.from_ns = begin_ns;
	return range;
}

/* NULL: what is kept is of another version, or of another time. Lock held. */
static const struct history_spans *
find_current(struct clickhouse *ch, const struct day_version *day, const struct range *range)
{
	const struct history_spans *kept = *find_kept(ch, &day->day, range->span_ns);

	return kept && kept->version == day->version && kept->from_ns <= range->from_ns &&
			       kept->to_ns >= range->to_ns
		       ? kept
		       : NULL;
}

/* False: they are not kept; *@ret_rc is set otherwise. */
static bool hand_out_kept(struct clickhouse *ch, const struct day_version *wanted,
			  const struct range *range, const struct store_window_query *query,
			  store_span_fn *visit, void *visit_ctx, int *ret_rc)
{
	const struct history_spans *kept;
	bool found;

	(void)pthread_mutex_lock(&ch->spans_lock);
	kept = find_current(ch, wanted, range);
	found = kept != NULL;
	if (found)
		*ret_rc = history_spans_hand_out(kept, query, visit, visit_ctx);
	(void)pthread_mutex_unlock(&ch->spans_lock);
	return found;
}

/* ---- of many hosts --------------------------------------------------------------------------- */

/* The days of a question, and the sums of the host that is under way. */
struct hosts {
	struct clickhouse *ch;
	const struct day_version *days; /* by host */
	size_t count, at;
	struct range range;
	struct spans_maker *maker; /* owned; NULL = none of days[at] yet */
	struct history_spans *first; /* owned: of days[0] */
	size_t kept_rows;
	struct err err;
	int rc;
};

/* Adds the wanted day and, of the next hosts, those whose sums are not kept as of their version. */
static int find_hosts(struct clickhouse *ch, const struct day_version *wanted,
		      const struct range *range, struct day_versions_vec *ret)
{
	const struct versions *versions = &ch->versions[1];
	int rc = day_versions_vec_push(ret, *wanted);
	const struct day_version *day, *end;

	(void)pthread_mutex_lock(&ch->spans_lock);
	end = versions->list + versions->count;
	day = wanted->day.host[0] ? version_of(versions, &wanted->day) : NULL;
	for (unsigned i = 1; rc == 0 && day && ++day < end && i < HOSTS_MAX; i++) {
		if (day->day.day != wanted->day.day || day->day.retention_days != wanted->day.retention_days)
			break;
		if (!find_current(ch, day, range))
			rc = day_versions_vec_push(ret, *day);
	}
	(void)pthread_mutex_unlock(&ch->spans_lock);
	return rc;
}

static int make_maker(struct hosts *hosts)
{
	if (!hosts->maker)
		hosts->maker = spans_maker_create(&hosts->days[hosts->at].day, hosts->range.span_ns);
	return hosts->maker ? 0 : -ENOMEM;
}

/* The host under way has no more windows, or none at all: then its sums are empty. */
static int finish_host(struct hosts *hosts)
{
	cleanup(spans_maker) struct spans_maker *maker = NULL;
	cleanup(history_spans) struct history_spans *made = NULL;
	int rc = make_maker(hosts);

	maker = take_ptr(hosts->maker);
	if (rc == 0)
		rc = spans_maker_finish(maker, &made);
	if (rc < 0)
		return rc;
	made->version = hosts->days[hosts->at].version;
	made->from_ns = hosts->range.from_ns;
	made->to_ns = hosts->range.to_ns;
	if (hosts->at == 0) {
		hosts->first = take_ptr(made);
	} else if (hosts->kept_rows + rows_of(made) <= KEPT_ROWS_MAX) {
		hosts->kept_rows += rows_of(made);
		keep(hosts->ch, &made);
	}
	return 0;
}

/* Windows come host by host; hosts between two wanted ones come as well. */
static int add_window(void *ctx, const struct store_window *window)
{
	struct hosts *hosts = ctx;
	int rc = 0;

	while (rc == 0 && hosts->at < hosts->count - 1 &&
	       strcmp(window->host, hosts->days[hosts->at].day.host) > 0) {
		rc = finish_host(hosts);
		hosts->at++;
	}
	if (rc < 0 || strcmp(window->host, hosts->days[hosts->at].day.host) != 0)
		return rc;
	rc = make_maker(hosts);
	return rc < 0 ? rc : spans_maker_add(hosts->maker, window);
}

/* Leaves the sums of the first host in @hosts, and keeps those of the others. */
static void *ask_hosts(void *ctx)
{
	struct hosts *hosts = ctx;
	const struct store_window_query part = { .from_ns = hosts->range.from_ns,
						 .to_ns = hosts->range.to_ns,
						 .every_host = true };
	const char *last_host = hosts->days[hosts->count - 1].day.host;

	hosts->rc = clickhouse_history_totals(hosts->ch, &hosts->days[0].day, last_host, &part,
					      add_window, hosts, NULL, &hosts->err);
	for (; hosts->rc == 0 && hosts->at < hosts->count; hosts->at++)
		hosts->rc = finish_host(hosts);
	spans_maker_destroy(hosts->maker);
	return NULL;
}

/* Sums of the first of @days, two at least; keeps those of the others. Two questions at once: while
 * the server answers one, the answer of the other is added up. Sums that the second could not get
 * are asked for when their turn comes. */
static int make_many(struct clickhouse *ch, const struct day_versions_vec *days,
		     const struct range *range, struct history_spans **ret, struct err *err)
{
	size_t half = days->count / 2;
	struct hosts hosts = { .ch = ch, .days = days->data, .count = half, .range = *range };
	struct hosts others = { .ch = ch, .days = days->data + half, .count = days->count - half,
				.range = *range };
	pthread_t thread;
	bool is_beside = pthread_create(&thread, NULL, ask_hosts, &others) == 0;

	(void)ask_hosts(&hosts);
	if (is_beside)
		(void)pthread_join(thread, NULL);
	if (others.first)
		keep(ch, &others.first);
	history_spans_destroy(others.first);
	*ret = hosts.first;
	if (hosts.rc < 0)
		*err = hosts.err;
	return hosts.rc;
}

int clickhouse_history_spans(void *ctx, const struct store_day *day,
			     const struct store_window_query *query, uint64_t span_ns,
			     store_span_fn *visit, void *visit_ctx, struct err *err)
{
	struct day_version wanted = { { .day = day->day, .retention_days = day->retention_days }, 0 };
	cleanup(history_spans) struct history_spans *made = NULL;
	const struct range range = range_of(day, query, span_ns);
	__attribute__((__cleanup__(day_versions_vec_deinit))) struct day_versions_vec hosts = { 0 };
	struct clickhouse *ch = ctx;
	unsigned damaged = 0;
	int rc;

	if (strcmp(day->host, ch->host) != 0)
		strcpy(wanted.day.host, day->host);
	rc = find_version(ch, &wanted.day, &wanted.version, err);
	if (rc < 0 || hand_out_kept(ch, &wanted, &range, query, visit, visit_ctx, &rc))
		return rc;
	rc = find_hosts(ch, &wanted, &range, &hosts);
	if (rc == 0 && hosts.count > 1) {
		rc = make_many(ch, &hosts, &range, &made, err);
	} else if (rc == 0) {
		rc = history_spans_make(&wanted.day, span_ns, clickhouse_history_hours, ch, &made, &damaged,
					err);
		if (rc == 0)
			made->to_ns = UINT64_MAX;
	}
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
