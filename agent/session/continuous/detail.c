// SPDX-License-Identifier: Apache-2.0
#include "agent/session/continuous/detail.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/base/log.h"
#include "agent/base/vec.h"
#include "agent/recording/recording.h"
#include "agent/session/continuous/continuous.h"
#include "agent/session/records/hosts.h"

#define STRETCHES_A_DAY (uint32_t)(CONTINUOUS_DAY_NS / DETAIL_STRETCH_NS)

uint64_t detail_series(const char *service, const char *type, const char *owners)
{
	const char *const texts[] = { service, type, owners };
	uint64_t hash = 0;

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		hash = hash_bytes(texts[i], strlen(texts[i]) + 1, hash);
	return hash;
}

static void make_id(const struct sessions *s, uint32_t number, uint32_t retention_days,
		    char out[STORE_ID_SIZE])
{
	char name[STORE_ID_SIZE];

	(void)snprintf(name, sizeof(name), DETAIL_KIND "-%u-%u", number, retention_days);
	hosts_own_id(&s->host, name, out, STORE_ID_SIZE);
}

static bool parse_id(const char *id, struct detail_stretch *ret)
{
	return sscanf(id, DETAIL_KIND "-%u-%u", &ret->number, &ret->retention_days) == 2;
}

static bool is_of_day(const struct detail_stretch *stretch, const struct store_day *day)
{
	return stretch->number / STRETCHES_A_DAY == day->day &&
	       stretch->retention_days == day->retention_days;
}

/* ---- the list: its lock held ----------------------------------------------------------------- */

static int by_age(const void *a, const void *b)
{
	const struct detail_stretch *x = a, *y = b;

	if (x->number != y->number)
		return x->number < y->number ? -1 : 1;
	return x->retention_days < y->retention_days ? -1 : x->retention_days > y->retention_days;
}

static struct detail_stretch *find(struct detail *detail, uint32_t number, uint32_t retention_days)
{
	for (size_t i = detail->count; i > 0; i--)
		if (detail->stretches[i - 1].number == number &&
		    detail->stretches[i - 1].retention_days == retention_days)
			return &detail->stretches[i - 1];
	return NULL;
}

/* -errno: it stays, and is tried again. */
static int drop(struct sessions *s, size_t at)
{
	struct detail *detail = &s->continuous->detail;
	const struct detail_stretch stretch = detail->stretches[at];
	char id[STORE_ID_SIZE];
	int rc;

	make_id(s, stretch.number, stretch.retention_days, id);
	rc = store_session_remove(s->store, id, NULL);
	if (rc < 0)
		return rc;
	/* A record without a file goes at the next start. */
	(void)!store_delete(s->store, DETAIL_KIND, "", id, NULL);
	detail->count--;
	memmove(&detail->stretches[at], &detail->stretches[at + 1],
		(detail->count - at) * sizeof(stretch));
	atomic_fetch_sub(&detail->bytes, stretch.bytes);
	return 0;
}

static void keep_budget(struct sessions *s)
{
	struct detail *detail = &s->continuous->detail;

	while (detail->count && (detail->count > DETAIL_STRETCHES_MAX || s->options.no_detail ||
				 atomic_load(&detail->bytes) > s->options.detail_budget_bytes))
		if (drop(s, 0) < 0)
			return;
}

static int add(struct detail *detail, const struct detail_stretch *stretch)
{
	void *data = detail->stretches;
	int rc = vec_grow(&data, &detail->capacity, detail->count + 1, sizeof(*stretch), 0);

	detail->stretches = data;
	if (rc == 0)
		detail->stretches[detail->count++] = *stretch;
	return rc;
}

static void sort(struct detail *detail)
{
	if (detail->count)
		qsort(detail->stretches, detail->count, sizeof(*detail->stretches), by_age);
}

/* The record goes before the file, so that none is forgotten. */
static int begin(struct sessions *s, uint32_t number, uint32_t retention_days,
		 struct detail_stretch **ret, struct err *err)
{
	const struct detail_stretch stretch = { .number = number, .retention_days = retention_days };
	char id[STORE_ID_SIZE];
	const struct store_record record = { .kind = DETAIL_KIND, .tenant = "", .id = id,
					     .created_ns = number * DETAIL_STRETCH_NS,
					     .body = "{}", .body_len = 2 };
	int rc;

	*ret = find(&s->continuous->detail, number, retention_days);
	if (*ret)
		return 0;
	make_id(s, number, retention_days, id);
	rc = store_put(s->store, &record, err);
	if (rc == 0)
		rc = add(&s->continuous->detail, &stretch);
	sort(&s->continuous->detail);
	*ret = find(&s->continuous->detail, number, retention_days);
	return rc;
}

/* ---- life ------------------------------------------------------------------------------------ */

static int load_stretch(void *ctx, const struct store_record *record)
{
	struct sessions *s = ctx;
	struct detail_stretch stretch;

	if (!parse_id(record->id, &stretch))
		return 0;
	stretch.bytes = store_session_bytes(s->store, record->id);
	atomic_fetch_add(&s->continuous->detail.bytes, stretch.bytes);
	return add(&s->continuous->detail, &stretch);
}

int detail_load(struct sessions *s, struct err *err)
{
	const struct store_query query = { .kind = DETAIL_KIND };
	int rc = store_list(s->store, &query, load_stretch, s, NULL, err);

	sort(&s->continuous->detail);
	/* A shared store may just not answer. */
	for (size_t i = s->continuous->detail.count; rc == 0 && i > 0 && !store_is_shared(s->store); i--)
		if (!s->continuous->detail.stretches[i - 1].bytes)
			(void)!drop(s, i - 1);
	if (rc == 0)
		keep_budget(s);
	return rc;
}

void detail_destroy(struct sessions *s)
{
	free(s->continuous->detail.stretches);
	(void)pthread_mutex_destroy(&s->continuous->detail.lock);
}

void detail_lock(struct sessions *s)
{
	(void)pthread_mutex_lock(&s->continuous->detail.lock);
}

void detail_unlock(struct sessions *s)
{
	(void)pthread_mutex_unlock(&s->continuous->detail.lock);
}

uint64_t detail_bytes(const struct sessions *s)
{
	return atomic_load(&s->continuous->detail.bytes);
}

bool detail_drop_oldest(struct sessions *s)
{
	bool dropped;

	detail_lock(s);
	dropped = s->continuous->detail.count && drop(s, 0) == 0;
	detail_unlock(s);
	return dropped;
}

struct left_behind {
	const struct store_day *day;
	char ids[CONTINUOUS_DAY_NS / DETAIL_STRETCH_NS][STORE_ID_SIZE];
	size_t count;
};

static int note_left(void *ctx, const struct store_record *record)
{
	struct left_behind *left = ctx;
	struct detail_stretch stretch;

	if (strcmp(record->host, left->day->host) == 0 && parse_id(record->id, &stretch) &&
	    is_of_day(&stretch, left->day) && left->count < STRETCHES_A_DAY)
		(void)snprintf(left->ids[left->count++], STORE_ID_SIZE, "%s", record->id);
	return 0;
}

/* Drops the part of @day that a host left which has gone. */
static void drop_left(struct sessions *s, const struct store_day *day)
{
	const struct store_query query = { .kind = DETAIL_KIND,
					   .from_ns = day->day * CONTINUOUS_DAY_NS,
					   .to_ns = (day->day + 1) * CONTINUOUS_DAY_NS,
					   .every_host = true };
	cleanup_free struct left_behind *left = calloc(1, sizeof(*left));

	if (!left)
		return;
	left->day = day;
	if (store_list(s->store, &query, note_left, left, NULL, NULL) < 0)
		return;
	for (size_t i = 0; i < left->count; i++)
		if (store_session_remove(s->store, left->ids[i], NULL) == 0)
			(void)!store_delete(s->store, DETAIL_KIND, "", left->ids[i], NULL);
}

void detail_drop_day(struct sessions *s, const struct store_day *day)
{
	if (day->host[0]) {
		drop_left(s, day);
		return;
	}
	detail_lock(s);
	for (size_t i = s->continuous->detail.count; i > 0; i--)
		if (is_of_day(&s->continuous->detail.stretches[i - 1], day))
			(void)!drop(s, i - 1);
	detail_unlock(s);
}

/* ---- writing --------------------------------------------------------------------------------- */

void detail_batch_add(struct detail_batch *batch, uint64_t series, uint64_t minute_ns,
		      struct chunk_event *events, size_t count)
{
	uint32_t number = (uint32_t)(minute_ns / DETAIL_STRETCH_NS);
	unsigned at = 0;

	if (!count)
		return;
	while (at < batch->count && batch->parts[at].number != number)
		at++;
	if (at == DETAIL_PARTS_MAX)
		return;
	if (at == batch->count) {
		batch->parts[at].number = number;
		batch->parts[at].data = (struct buf){ .max = STORE_CHUNK_MAX };
		batch->count++;
	}
	chunk_encode_detail(&batch->parts[at].data, series, minute_ns, events, count);
}

void detail_batch_deinit(struct detail_batch *batch)
{
	for (unsigned i = 0; i < batch->count; i++)
		buf_deinit(&batch->parts[i].data);
}

/* A shared store is not asked by whoever takes the samples: there they count as they are before
 * they are packed. */
static void count_bytes(struct sessions *s, struct detail_stretch *stretch, const char *id,
			size_t added)
{
	uint64_t bytes = store_is_shared(s->store) ? stretch->bytes + added
						   : store_session_bytes(s->store, id);

	atomic_fetch_sub(&s->continuous->detail.bytes, stretch->bytes);
	stretch->bytes = bytes;
	atomic_fetch_add(&s->continuous->detail.bytes, bytes);
}

static int append_part(struct sessions *s, const struct store_day *day, uint32_t number,
		       const struct buf *data, uint64_t position, struct err *err)
{
	const struct store_chunk chunk = { STORE_CHUNK_DETAIL, data->data, data->len };
	struct detail_stretch *stretch = NULL;
	char id[STORE_ID_SIZE];
	int rc = data->error;

	if (rc == 0)
		rc = begin(s, number, day->retention_days, &stretch, err);
	if (rc < 0)
		return rc;
	make_id(s, number, day->retention_days, id);
	rc = store_session_append(s->store, id, &chunk, 1, ring_identity(s->feed.ring), position, err);
	count_bytes(s, stretch, id, data->len);
	return rc;
}

void detail_append(struct sessions *s, const struct store_day *day,
		   const struct detail_batch *batch, uint64_t position)
{
	static struct log_limit limit = { .burst = 2 };
	struct err err = { 0 };
	int rc = 0;

	for (unsigned i = 0; rc == 0 && i < batch->count; i++)
		rc = append_part(s, day, batch->parts[i].number, &batch->parts[i].data, position, &err);
	keep_budget(s);
	if (rc < 0 && log_allowed(&limit))
		log_warn(
			"times of single samples of continuous profiling are not kept for now, their sums are: %s",
			err.text[0] ? err.text : strerror(-rc));
}

int detail_position(struct sessions *s, const struct store_day *day, uint64_t *ret_identity,
		    uint64_t *ret_position)
{
	char id[STORE_ID_SIZE];
	int rc = -ENOENT;

	detail_lock(s);
	for (size_t i = s->continuous->detail.count; i > 0 && rc == -ENOENT; i--) {
		const struct detail_stretch *stretch = &s->continuous->detail.stretches[i - 1];

		if (!is_of_day(stretch, day))
			continue;
		make_id(s, stretch->number, stretch->retention_days, id);
		rc = store_session_position(s->store, id, ret_identity, ret_position, NULL);
	}
	detail_unlock(s);
	return rc;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* A minute of a series: what its windows have more than was read of its samples. */
struct balance {
	uint64_t samples;
	uint64_t value; /* modulo 2^64: what is read is not trusted */
	double keep; /* share of the samples that the tenant sees */
};
VEC_DEFINE(balances, struct balance);

struct read {
	const struct history_window *window;
	struct recording *recording;
	struct u64map at; /* hash of series and minute -> index of balances */
	struct balances_vec balances;
	struct balance *balance; /* of the piece under way */
	uint64_t minute_ns;
	uint64_t lost;
};

static void read_deinit(struct read *read)
{
	u64map_deinit(&read->at);
	balances_vec_deinit(&read->balances);
	recording_destroy(read->recording);
}

static int owe_window(void *ctx, const struct store_window *window)
{
	struct read *read = ctx;
	uint64_t series = detail_series(window->service, window->type, window->owners);
	uint64_t key = hash_combine(series, window->from_ns), at = read->balances.count;
	uint32_t highest, rate = owners_rate(window->owners, read->window->tenant, &highest);
	int rc = 0;

	if (!u64map_get(&read->at, key, &at)) {
		rc = u64map_put(&read->at, key, at);
		if (rc == 0)
			rc = balances_vec_push(&read->balances, (struct balance){ 0 });
		if (rc < 0)
			return rc;
	}
	read->balances.data[at].samples += window->samples;
	read->balances.data[at].value += (uint64_t)window->value;
	read->balances.data[at].keep = highest && rate < highest ? (double)rate / highest : 1;
	read->lost += window->lost;
	return 0;
}

static int pay_event(void *ctx, const struct chunk_event *event)
{
	struct read *read = ctx;

	read->balance->samples--;
	read->balance->value -= (uint64_t)event->value;
	return recording_add_event(read->recording, event, read->minute_ns, read->balance->keep);
}

static int pay_detail(void *ctx, const struct chunk_detail *detail)
{
	struct read *read = ctx;
	uint64_t at;

	if (!u64map_get(&read->at, hash_combine(detail->series, detail->minute_ns), &at))
		return 0; /* of others */
	read->balance = &read->balances.data[at];
	read->minute_ns = detail->minute_ns;
	return chunk_decode_detail(detail, pay_event, read);
}

static int read_chunk(void *ctx, const struct store_chunk *chunk)
{
	int rc = chunk->kind == STORE_CHUNK_DETAIL
			 ? chunk_decode_details(chunk->data, chunk->len, pay_detail, ctx)
			 : 0;

	return rc == -EPROTO ? 0 : rc; /* the balance tells */
}

static bool is_paid(const struct read *read)
{
	for (size_t i = 0; i < read->balances.count; i++)
		if (read->balances.data[i].samples || read->balances.data[i].value)
			return false;
	return true;
}

static int read_stretches(struct sessions *s, const struct store_day *day, struct read *read,
			  struct err *err)
{
	uint64_t begin_ns = day->day * CONTINUOUS_DAY_NS, end_ns = begin_ns + CONTINUOUS_DAY_NS;
	char id[STORE_ID_SIZE];
	int rc = 0;

	begin_ns = read->window->from_ns > begin_ns ? read->window->from_ns : begin_ns;
	end_ns = read->window->to_ns < end_ns ? read->window->to_ns : end_ns;
	for (uint64_t at_ns = begin_ns - begin_ns % DETAIL_STRETCH_NS; rc == 0 && at_ns < end_ns;
	     at_ns += DETAIL_STRETCH_NS) {
		make_id(s, (uint32_t)(at_ns / DETAIL_STRETCH_NS), day->retention_days, id);
		rc = store_session_read(s->store, id, read_chunk, read, NULL, err);
		if (rc == -ENOENT)
			rc = 0; /* nobody ran, or it has gone: the balance tells */
	}
	return rc;
}

int detail_read(struct sessions *s, const struct store_day *day,
		const struct history_window *window, struct recording **ret, uint64_t *ret_lost,
		struct err *err)
{
	const struct store_window_query rows = { .tenant = window->tenant,
						 .service = window->service,
						 .type = profile_type_info(window->type)->word,
						 .from_ns = window->from_ns,
						 .to_ns = window->to_ns };
	__attribute__((__cleanup__(read_deinit))) struct read read = { .window = window,
								       .recording = recording_create() };
	unsigned damaged = 0;
	int rc;

	if (!read.recording)
		return err_set(err, ENOMEM, NULL, NULL, "no memory to read the history");
	/* Both of one moment. A shared store may be slow, and whoever writes is not to wait for
	 * whoever reads: where a flush comes in between, the balance tells. */
	if (!store_is_shared(s->store))
		detail_lock(s);
	rc = store_history_windows(s->store, day, &rows, owe_window, &read, &damaged, err);
	if (rc == 0 && !damaged)
		rc = read_stretches(s, day, &read, err);
	if (!store_is_shared(s->store))
		detail_unlock(s);
	if (rc < 0 || damaged || !is_paid(&read))
		return rc;
	*ret = take_ptr(read.recording);
	*ret_lost = read.lost;
	return 1;
}
