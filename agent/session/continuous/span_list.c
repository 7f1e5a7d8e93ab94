// SPDX-License-Identifier: Apache-2.0
/* Continuous data as sessions: stretches of [continuous] span, aligned from midnight UTC, with ids
 * derived from what they are. Nothing of a span is stored but its windows, and a tombstone when it
 * is deleted. There are many (144 a day of each service): a list holds numbers, and only what is
 * shown is described. */
#include <errno.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/base/text.h"
#include "agent/base/ulid.h"
#include "agent/base/vec.h"
#include "agent/profile/quality.h"
#include "agent/session/continuous/continuous.h"
#include "agent/session/records/hosts.h"

#define SPANS_MAX 1000000u /* of one answer */
#define PAGE_MANY 50000u   /* so many are looked through at once for those of a page */

void spans_note_damaged_day(const struct store_day *day, const struct err *err)
{
	static struct log_limit limit = { .burst = 2 };

	if (log_allowed(&limit))
		log_warn("the history of day %u cannot be read and is left out: %s", day->day,
			 err ? err->text : "damaged");
}

void span_list_deinit(struct span_list *list)
{
	for (size_t i = 0; i < list->series_count; i++)
		free(list->series[i].service);
	free(list->series);
	free(list->data);
	u64map_deinit(&list->series_at);
	*list = (struct span_list){ 0 };
}

/* ---- ids ------------------------------------------------------------------------------------- */

static void derive_bits(const char *tenant, const char *host, const char *service, const char *type,
			uint8_t ret[10])
{
	const char *const texts[] = { tenant, host, service, type };
	uint64_t words[2] = { 1, 2 };

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		for (size_t j = 0; j < ARRAY_SIZE(words); j++)
			words[j] = hash_bytes(texts[i], strlen(texts[i]) + 1, words[j]);
	memcpy(ret, &words[0], 8);
	memcpy(ret + 8, &words[1], 2);
}

void span_id(const struct span_list *list, const struct span *span, char out[SESSION_ID_SIZE])
{
	strcpy(out, "sess-");
	ulid_make_from(span->from_ns, list->series[span->series].id_bits, out + strlen("sess-"));
}

/* The milliseconds in an id's first ten characters (Crockford base 32). */
static bool time_of_id(const char *id, uint64_t *ret_ns)
{
	static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";
	uint64_t ms = 0;

	if (!text_begins(id, "sess-") || !ulid_is_valid(id + 5))
		return false;
	for (int i = 0; i < 10; i++) {
		const char *at = strchr(digits, id[5 + i]);

		if (!at)
			return false;
		ms = ms << 5 | (uint64_t)(at - digits);
	}
	*ret_ns = ms * NS_PER_MS;
	return ms < UINT64_MAX / NS_PER_MS;
}

/* ---- describing ------------------------------------------------------------------------------ */

void span_describe(const struct sessions *s, const char *tenant, const struct span_list *list,
		   const struct span *span, struct session_info *ret)
{
	const struct span_series *series = &list->series[span->series];
	uint64_t now_ns = clock_realtime_ns();

	*ret = (struct session_info){ .type = series->type,
				      .continuous = true,
				      .status = span->from_ns + s->options.continuous_span_ns > now_ns
							? SESSION_RUNNING
							: SESSION_COMPLETED,
				      .created_at_ns = span->from_ns,
				      .started_at_ns = span->first_ns,
				      .duration_ns = span->last_ns + CONTINUOUS_MINUTE_NS - span->first_ns,
				      .requested_duration_s =
					      (uint32_t)(s->options.continuous_span_ns / NS_PER_S),
				      .rate_hz = span->rate_hz,
				      .sample_count = span->samples,
				      .total_value = span->value,
				      .raw_data_bytes = span->bytes,
				      .quality = quality_empty() };
	(void)snprintf(ret->tenant, sizeof(ret->tenant), "%s", tenant);
	(void)snprintf(ret->service, sizeof(ret->service), "%s", series->service);
	(void)snprintf(ret->selector, sizeof(ret->selector), "service:%s", series->service);
	(void)snprintf(ret->host, sizeof(ret->host), "%s", series->host);
	span_id(list, span, ret->id);
	if (span->first_ns + ret->duration_ns > now_ns && now_ns > span->first_ns)
		ret->duration_ns = now_ns - span->first_ns;
	if (ret->status == SESSION_COMPLETED)
		ret->completed_at_ns = ret->started_at_ns + ret->duration_ns;
	ret->quality.samples = (int64_t)span->samples;
	ret->quality.lost = (int64_t)span->lost;
	if (series->type == PROFILE_CPU && span->value > 0)
		ret->quality.effective_rate = (double)span->samples / ((double)span->value / 1e9);
}

/* ---- collecting ------------------------------------------------------------------------------ */

VEC_DEFINE(days, struct store_day);

struct collect {
	struct sessions *s;
	const struct span_query *query;
	struct store_window_query rows;
	struct span_list *list;
	struct span_totals *totals; /* instead of a list's spans */
	struct span newest;
	struct u64map counted; /* spans of the day that is added up: their data may lie in two files */
	struct days_vec days;
	const char *host;   /* of the day under way */
	bool count_only;    /* those of this day are not of the page */
	size_t files, most; /* of one host and this day; of one host and any day of the list: so often may
			       a span come */
	uint64_t oldest_ns; /* begin of the oldest spans that may be of the page */
	struct u64map dead; /* hashes of deleted ids */
	uint64_t now_ns;
	struct err *err;
};

static void collect_deinit(struct collect *collect)
{
	u64map_deinit(&collect->counted);
	days_vec_deinit(&collect->days);
	u64map_deinit(&collect->dead);
}

static bool is_series(const struct span_series *series, enum profile_type type, const char *service,
		      const char *host)
{
	return series->type == type && strcmp(series->service, service) == 0 &&
	       strcmp(series->host, host) == 0;
}

static int find_series(struct collect *collect, const struct store_span *from, uint32_t *ret)
{
	struct span_list *list = collect->list;
	uint64_t hash = hash_bytes(collect->host, strlen(collect->host),
				   hash_bytes(from->type, strlen(from->type),
					      hash_bytes(from->service, strlen(from->service), 0)));
	uint64_t at = list->series_count;
	struct span_series series = { 0 };
	void *data = list->series;
	int rc;

	if (profile_type_parse(from->type, &series.type) < 0)
		return -EPROTO;
	if (u64map_get(&list->series_at, hash, &at) &&
	    is_series(&list->series[at], series.type, from->service, collect->host)) {
		*ret = (uint32_t)at;
		return 0;
	}
	at = list->series_count;
	rc = vec_grow(&data, &list->series_capacity, at + 1, sizeof(series), SPANS_MAX);
	list->series = data;
	if (rc == 0)
		rc = u64map_put(&list->series_at, hash, at);
	series.service = rc == 0 ? strdup(from->service) : NULL;
	if (!series.service)
		return rc < 0 ? rc : -ENOMEM;
	(void)snprintf(series.host, sizeof(series.host), "%s", collect->host);
	derive_bits(collect->query->tenant, series.host, from->service, from->type, series.id_bits);
	list->series[list->series_count++] = series;
	*ret = (uint32_t)at;
	return 0;
}

static int add_to_list(struct span_list *list, const struct span *span)
{
	void *data = list->data;
	int rc = vec_grow(&data, &list->capacity, list->count + 1, sizeof(*span), SPANS_MAX);

	list->data = data;
	if (rc == 0)
		list->data[list->count++] = *span;
	return rc;
}

static int add_to_totals(struct collect *collect, const struct span *span)
{
	const struct span_series *series = collect->list->series;
	uint64_t key = hash_combine(span->from_ns, span->series);
	struct span *newest = &collect->newest;

	collect->totals->bytes += span->bytes;
	if (u64map_get(&collect->counted, key, &(uint64_t){ 0 }))
		return 0;
	collect->totals->count++;
	if (span->from_ns > newest->from_ns ||
	    (span->from_ns == newest->from_ns &&
	     memcmp(series[span->series].id_bits, series[newest->series].id_bits,
		    sizeof(series->id_bits)) > 0))
		*newest = *span;
	return u64map_put(&collect->counted, key, 1);
}

static int count(struct collect *collect, const struct span *span)
{
	uint64_t key = hash_combine(span->from_ns, span->series);

	if (collect->files == 1) {
		collect->list->total++;
		return 0;
	}
	if (u64map_get(&collect->counted, key, &(uint64_t){ 0 }))
		return 0;
	collect->list->total++;
	return u64map_put(&collect->counted, key, 1);
}

static bool is_wanted(struct collect *collect, const struct span *span)
{
	const struct span_query *query = collect->query;
	bool runs = span->from_ns + collect->s->options.continuous_span_ns > collect->now_ns;
	char id[SESSION_ID_SIZE];

	if (query->status >= 0 && query->status != (runs ? SESSION_RUNNING : SESSION_COMPLETED))
		return false;
	if (!collect->dead.count)
		return true;
	span_id(collect->list, span, id);
	return !u64map_get(&collect->dead, hash_bytes(id, strlen(id), 0), &(uint64_t){ 0 });
}

/* Before or behind the page, as far as its spans are known. */
static bool is_off_page(struct collect *collect, const struct span *span)
{
	const struct span_query *query = collect->query;

	if (!query->limit)
		return false;
	collect->list->more |= span->from_ns < collect->oldest_ns;
	return span->from_ns < collect->oldest_ns ||
	       (query->before_ns && span->from_ns > query->before_ns);
}

static int collect_span(void *ctx, const struct store_span *from)
{
	struct collect *collect = ctx;
	const struct span_query *query = collect->query;
	uint32_t highest, rate = owners_rate(from->owners, query->tenant, &highest);
	struct span span = { .from_ns = from->from_ns,
			     .first_ns = from->first_ns,
			     .last_ns = from->last_ns,
			     .samples = highest ? from->samples * rate / highest : from->samples,
			     .lost = highest ? from->lost * rate / highest : from->lost,
			     .bytes = from->bytes,
			     .value = from->value,
			     .rate_hz = rate };
	int rc;

	if (!from->samples)
		return 0;
	if (collect->count_only && collect->files == 1 && !collect->dead.count && query->status < 0) {
		collect->list->total++;
		return 0;
	}
	rc = find_series(collect, from, &span.series);
	if (rc == -EPROTO)
		return 0; /* a type of another version */
	if (rc < 0 || !is_wanted(collect, &span))
		return rc;
	if (collect->count_only || is_off_page(collect, &span))
		return count(collect, &span);
	return collect->totals ? add_to_totals(collect, &span) : add_to_list(collect->list, &span);
}

static int collect_day(struct collect *collect, const struct store_day *day)
{
	int rc;

	collect->host = hosts_of_day(&collect->s->host, day);
	rc = store_history_spans(collect->s->store, day, &collect->rows,
				 collect->s->options.continuous_span_ns, collect_span, collect,
				 collect->err);
	if (rc == -EUCLEAN) {
		spans_note_damaged_day(day, collect->err);
		return 0;
	}
	return rc == -ENOENT ? 0 : rc; /* dropped meanwhile */
}

static int note_day(void *ctx, const struct store_day *day, uint64_t bytes)
{
	struct collect *collect = ctx;
	uint64_t begin_ns = day->day * CONTINUOUS_DAY_NS;

	if ((collect->query->to_ns && begin_ns >= collect->query->to_ns) ||
	    (collect->query->from_ns && begin_ns + CONTINUOUS_DAY_NS <= collect->query->from_ns))
		return 0;
	return days_vec_push(&collect->days, *day);
}

/* The most files that one host has of the day. */
static int most_of_one(const struct collect *collect, const struct store_day *days, size_t count,
		       size_t *ret)
{
	struct u64map files = { 0 };
	int rc = 0;

	*ret = 0;
	for (size_t i = 0; rc == 0 && i < count; i++) {
		const char *host = hosts_of_day(&collect->s->host, &days[i]);
		uint64_t hash = hash_bytes(host, strlen(host), 0), same = 0;

		(void)u64map_get(&files, hash, &same);
		rc = u64map_put(&files, hash, ++same);
		*ret = same > *ret ? same : *ret;
	}
	u64map_deinit(&files);
	return rc;
}

/* Are there as many as the page needs? */
static bool is_full(const struct collect *collect)
{
	const struct span_query *query = collect->query;
	const struct span_list *list = collect->list;
	size_t behind = 0, need = query->limit * collect->most;

	for (size_t i = list->count; need && i-- > 0 && behind < need;)
		behind += !query->before_ns || list->data[i].from_ns < query->before_ns;
	return need && behind == need;
}

static int by_time_newest_first(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x > *y ? -1 : *x < *y;
}

/* Leaves those of many spans in the list that may be of the page, and counts the others. */
static int leave_page(struct collect *collect)
{
	const struct span_query *query = collect->query;
	size_t need = query->limit * collect->most, behind = 0, kept = 0;
	struct span_list *list = collect->list;
	cleanup_free uint64_t *times = NULL;
	int rc = 0;

	if (!query->limit || list->count < PAGE_MANY)
		return 0;
	times = calloc(list->count, sizeof(*times));
	if (!times)
		return -ENOMEM;
	for (size_t i = 0; i < list->count; i++)
		if (!query->before_ns || list->data[i].from_ns < query->before_ns)
			times[behind++] = list->data[i].from_ns;
	if (behind <= need)
		return 0;
	qsort(times, behind, sizeof(*times), by_time_newest_first);
	collect->oldest_ns = times[need - 1];
	for (size_t i = 0; rc == 0 && i < list->count; i++) {
		const struct span span = list->data[i];

		if (is_off_page(collect, &span))
			rc = count(collect, &span);
		else
			list->data[kept++] = span;
	}
	list->count = kept;
	return rc;
}

/* From the newest on. What is not of the page is counted. */
static int collect_days(struct collect *collect)
{
	const struct span_query *query = collect->query;
	bool full = false;
	int rc = 0;

	for (size_t end = collect->days.count, begin; end && rc == 0; end = begin) {
		const struct store_day *days = collect->days.data;
		uint64_t total = collect->list->total;

		for (begin = end - 1; begin && days[begin - 1].day == days[begin].day;)
			begin--;
		rc = most_of_one(collect, &days[begin], end - begin, &collect->files);
		collect->count_only = full || (query->before_ns && query->limit &&
					       days[begin].day * CONTINUOUS_DAY_NS > query->before_ns);
		if (!collect->count_only && collect->files > collect->most)
			collect->most = collect->files;
		u64map_clear(&collect->counted);
		for (size_t i = begin; i < end && rc == 0; i++) {
			rc = collect_day(collect, &days[i]);
			rc = rc < 0 ? rc : leave_page(collect);
		}
		collect->list->more |= full && collect->list->total > total;
		full = full || is_full(collect);
	}
	return rc;
}

static int add_dead(void *ctx, const struct store_record *record)
{
	return u64map_put(ctx, hash_bytes(record->id, strlen(record->id), 0), 1);
}

static int collect_all(struct collect *collect)
{
	struct sessions *s = collect->s;
	const struct span_query *query = collect->query;
	/* Whoever deleted it. */
	struct store_query tombstones = { .kind = CONTINUOUS_TOMBSTONE,
					  .tenant = query->tenant,
					  .every_host = true };
	int rc = store_list(s->store, &tombstones, add_dead, &collect->dead, NULL, collect->err);

	collect->now_ns = clock_realtime_ns();
	collect->rows = (struct store_window_query){
		.tenant = query->tenant,
		.service = query->service,
		.type = query->type >= 0 ? profile_type_info((enum profile_type)query->type)->word : NULL,
		.from_ns = query->from_ns,
		.to_ns = query->to_ns,
	};
	if (rc == 0)
		rc = store_history_days(s->store, !query->own, note_day, collect, collect->err);
	return rc == 0 ? collect_days(collect) : rc;
}

/* ---- order ----------------------------------------------------------------------------------- */

static int by_id(const void *a, const void *b)
{
	const struct span_series *x = *(const struct span_series *const *)a,
				 *y = *(const struct span_series *const *)b;

	return memcmp(x->id_bits, y->id_bits, sizeof(x->id_bits));
}

static int newest_first(const void *a, const void *b)
{
	const struct span *x = a, *y = b;

	if (x->from_ns != y->from_ns)
		return x->from_ns > y->from_ns ? -1 : 1;
	return x->series > y->series ? -1 : x->series < y->series;
}

/* Series are numbered in the order of their ids, so that spans of one time are in the order of
 * theirs. */
static int sort(struct span_list *list)
{
	cleanup_free const struct span_series **order = calloc(list->series_count + 1, sizeof(*order));
	cleanup_free struct span_series *sorted = calloc(list->series_count + 1, sizeof(*sorted));
	cleanup_free uint32_t *number = calloc(list->series_count + 1, sizeof(*number));

	if (!order || !sorted || !number)
		return -ENOMEM;
	for (size_t i = 0; i < list->series_count; i++)
		order[i] = &list->series[i];
	qsort(order, list->series_count, sizeof(*order), by_id);
	for (uint32_t i = 0; i < list->series_count; i++) {
		sorted[i] = *order[i];
		number[order[i] - list->series] = i;
	}
	if (list->series_count)
		memcpy(list->series, sorted, list->series_count * sizeof(*sorted));
	for (size_t i = 0; i < list->count; i++)
		list->data[i].series = number[list->data[i].series];
	u64map_clear(&list->series_at);
	if (list->count)
		qsort(list->data, list->count, sizeof(*list->data), newest_first);
	return 0;
}

/* One span may lie in two files when its retention was changed. */
static void join_parts(struct span_list *list)
{
	size_t kept = 0;

	for (size_t i = 0; i < list->count; i++) {
		struct span *into = kept ? &list->data[kept - 1] : NULL, *from = &list->data[i];

		if (!into || newest_first(into, from) != 0) {
			list->data[kept++] = *from;
			continue;
		}
		into->first_ns = from->first_ns < into->first_ns ? from->first_ns : into->first_ns;
		into->last_ns = from->last_ns > into->last_ns ? from->last_ns : into->last_ns;
		into->bytes += from->bytes;
		into->samples += from->samples;
		into->value += from->value;
		into->lost += from->lost;
	}
	list->count = kept;
}

int spans_collect(struct sessions *s, const struct span_query *query, struct span_list *ret,
		  struct err *err)
{
	struct span_list list = { 0 };
	__attribute__((__cleanup__(collect_deinit))) struct collect collect = {
		.s = s, .query = query, .list = &list, .err = err
	};
	int rc = collect_all(&collect);

	if (rc == 0 && sort(&list) < 0)
		rc = err_set(err, ENOMEM, NULL, NULL, "no memory for a list");
	if (rc < 0) {
		span_list_deinit(&list);
		return rc == -E2BIG ? err_set(err, E2BIG, "InvalidParam", "from",
					      "the time range holds too many spans")
				    : rc;
	}
	join_parts(&list);
	list.total += list.count;
	*ret = list;
	return 0;
}

int spans_total(struct sessions *s, const struct span_query *query, struct span_totals *ret,
		struct err *err)
{
	struct span_list list = { 0 };
	struct span_totals totals = { 0 };
	__attribute__((__cleanup__(collect_deinit))) struct collect collect = {
		.s = s, .query = query, .list = &list, .totals = &totals, .err = err
	};
	int rc = collect_all(&collect);

	if (rc == 0 && totals.count) {
		totals.newest_ns = collect.newest.from_ns;
		span_id(&list, &collect.newest, totals.newest_id);
	}
	if (rc == 0)
		*ret = totals;
	span_list_deinit(&list);
	return rc;
}

int spans_find(struct sessions *s, const char *tenant, const char *id, struct session_info *ret,
	       struct err *err)
{
	struct span_query query = { .tenant = tenant, .type = -1, .status = -1 };
	struct span_list list = { 0 };
	char its_id[SESSION_ID_SIZE];
	int rc;

	if (!time_of_id(id, &query.from_ns) || query.from_ns == 0)
		return -ENOENT;
	query.to_ns = query.from_ns + 1;
	rc = spans_collect(s, &query, &list, err);
	if (rc < 0)
		return rc;
	rc = -ENOENT;
	for (size_t i = 0; i < list.count && rc < 0; i++) {
		span_id(&list, &list.data[i], its_id);
		if (strcmp(its_id, id) != 0)
			continue;
		span_describe(s, tenant, &list, &list.data[i], ret);
		rc = 0;
	}
	span_list_deinit(&list);
	return rc;
}

int spans_delete(struct sessions *s, const struct session_info *span, struct err *err)
{
	struct store_record record = { .kind = CONTINUOUS_TOMBSTONE,
				       .tenant = span->tenant,
				       .id = span->id,
				       .service = span->service,
				       .type = profile_type_info(span->type)->word,
				       .created_ns = span->created_at_ns,
				       .body = "{}",
				       .body_len = 2 };

	return store_put(s->store, &record, err);
}
