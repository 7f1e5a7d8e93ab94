// SPDX-License-Identifier: Apache-2.0
/* Continuous data as sessions: stretches of [continuous] span, aligned from midnight UTC, with ids
 * derived from what they are. Nothing of a span is stored but its windows, and a tombstone when it
 * is deleted. */
#include <errno.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/base/ulid.h"
#include "agent/profile/quality.h"
#include "agent/session/continuous.h"
#include "agent/session/recording.h"

#define SPANS_MAX 500000u /* of one answer */

void span_list_deinit(struct span_list *list)
{
	free(list->data);
	*list = (struct span_list){ 0 };
}

uint32_t owners_rate(const char *owners, const char *tenant, uint32_t *ret_highest)
{
	uint32_t own = 0, highest = 0;

	while (*owners == ',' && owners[1]) {
		const char *name = owners + 1, *colon = strchr(name, ':');
		uint32_t rate;

		if (!colon)
			break;
		rate = (uint32_t)strtoul(colon + 1, NULL, 10);
		if (rate > highest)
			highest = rate;
		if (strlen(tenant) == (size_t)(colon - name) &&
		    memcmp(tenant, name, (size_t)(colon - name)) == 0)
			own = rate;
		owners = colon + strcspn(colon, ",");
	}
	*ret_highest = highest;
	return own;
}

/* ---- ids ----------------------------------------------------------------------------------------
 */

static void derive_id(const char *tenant, const char *host, const char *service, const char *type,
		      uint64_t from_ns, char out[SESSION_ID_SIZE])
{
	const char *const texts[] = { tenant, host, service, type };
	uint64_t words[2] = { 1, 2 };
	uint8_t bits[10];

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		for (size_t j = 0; j < ARRAY_SIZE(words); j++)
			words[j] = hash_bytes(texts[i], strlen(texts[i]) + 1, words[j]);
	memcpy(bits, &words[0], 8);
	memcpy(bits + 8, &words[1], 2);
	strcpy(out, "sess-");
	ulid_make_from(from_ns, bits, out + strlen("sess-"));
}

/* The milliseconds in an id's first ten characters (Crockford base 32). */
static bool time_of_id(const char *id, uint64_t *ret_ns)
{
	static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";
	uint64_t ms = 0;

	if (strncmp(id, "sess-", 5) != 0 || !ulid_is_valid(id + 5))
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

/* ---- collecting ------------------------------------------------------------------------------ */

struct collect {
	struct sessions *s;
	const struct span_query *query;
	struct store_window_query rows;
	struct span_list *list;
	struct u64map *dead; /* hashes of deleted ids */
	uint64_t now_ns;
	struct err *err;
};

static void fill_info(const struct collect *collect, const struct store_span *from,
		      struct span *ret)
{
	struct session_info *info = &ret->info;
	uint32_t highest, rate = owners_rate(from->owners, collect->query->tenant, &highest);

	*ret = (struct span){ .from_ns = from->from_ns,
			      .to_ns = from->from_ns + collect->s->options.continuous_span_ns,
			      .bytes = from->bytes };
	(void)snprintf(info->tenant, sizeof(info->tenant), "%s", collect->query->tenant);
	(void)snprintf(info->service, sizeof(info->service), "%s", from->service);
	(void)snprintf(info->selector, sizeof(info->selector), "service:%s", from->service);
	(void)snprintf(info->host, sizeof(info->host), "%s", collect->s->host);
	(void)!profile_type_parse(from->type, &info->type);
	derive_id(info->tenant, info->host, info->service, from->type, from->from_ns, info->id);
	info->continuous = true;
	info->status = ret->to_ns > collect->now_ns ? SESSION_RUNNING : SESSION_COMPLETED;
	info->created_at_ns = from->from_ns;
	info->started_at_ns = from->first_ns;
	info->duration_ns = from->last_ns + CONTINUOUS_MINUTE_NS - from->first_ns;
	if (from->first_ns + info->duration_ns > collect->now_ns &&
	    collect->now_ns > from->first_ns)
		info->duration_ns = collect->now_ns - from->first_ns;
	if (info->status == SESSION_COMPLETED)
		info->completed_at_ns = info->started_at_ns + info->duration_ns;
	info->requested_duration_s = (uint32_t)(collect->s->options.continuous_span_ns / NS_PER_S);
	info->rate_hz = rate;
	info->sample_count = highest ? from->samples * rate / highest : from->samples;
	info->total_value = from->value;
	info->raw_data_bytes = from->bytes;
	info->quality = quality_empty();
	info->quality.samples = (int64_t)info->sample_count;
	info->quality.lost = (int64_t)(highest ? from->lost * rate / highest : from->lost);
	info->quality.overhead_pct = -1;
	info->quality.unknown_frame_pct = info->quality.guessed_frame_pct = -1;
	info->quality.truncated_pct = -1;
	info->quality.effective_rate = -1;
	if (info->type == PROFILE_CPU && from->value > 0)
		info->quality.effective_rate =
			(double)info->sample_count / ((double)from->value / 1e9);
}

static int collect_span(void *ctx, const struct store_span *from)
{
	struct collect *collect = ctx;
	const struct span_query *query = collect->query;
	struct span_list *list = collect->list;
	void *data = list->data;
	struct span span;
	int rc;

	if (!from->samples || (query->from_ns && from->from_ns < query->from_ns) ||
	    (query->to_ns && from->from_ns >= query->to_ns))
		return 0;
	fill_info(collect, from, &span);
	if ((query->status >= 0 && (int)span.info.status != query->status) ||
	    u64map_get(collect->dead, hash_bytes(span.info.id, strlen(span.info.id), 0),
		       &(uint64_t){ 0 }))
		return 0;
	rc = vec_grow(&data, &list->capacity, list->count + 1, sizeof(span), SPANS_MAX);
	list->data = data;
	if (rc < 0)
		return rc;
	list->data[list->count++] = span;
	return 0;
}

static void note_damaged_day(const struct store_day *day, const struct err *err)
{
	static struct log_limit limit = { .burst = 2 };

	if (log_allowed(&limit))
		log_warn("the history of day %u cannot be read and is left out: %s", day->day,
			 err ? err->text : "damaged");
}

static int collect_day(void *ctx, const struct store_day *day, uint64_t bytes)
{
	struct collect *collect = ctx;
	uint64_t begin_ns = day->day * CONTINUOUS_DAY_NS;
	int rc;

	if ((collect->query->to_ns && begin_ns >= collect->query->to_ns) ||
	    (collect->query->from_ns && begin_ns + CONTINUOUS_DAY_NS <= collect->query->from_ns))
		return 0;
	rc = store_history_spans(collect->s->store, day, &collect->rows,
				 collect->s->options.continuous_span_ns, collect_span, collect,
				 collect->err);
	if (rc == -EUCLEAN) {
		note_damaged_day(day, collect->err);
		return 0;
	}
	return rc == -ENOENT ? 0 : rc; /* dropped meanwhile */
}

static int newest_first(const void *a, const void *b)
{
	const struct span *x = a, *y = b;

	if (x->from_ns != y->from_ns)
		return x->from_ns > y->from_ns ? -1 : 1;
	return -strcmp(x->info.id, y->info.id);
}

/* One span may lie in two files when its retention was changed. */
static void join_parts(struct span_list *list)
{
	size_t kept = 0;

	for (size_t i = 0; i < list->count; i++) {
		struct span *into = kept ? &list->data[kept - 1] : NULL, *from = &list->data[i];

		if (!into || strcmp(into->info.id, from->info.id) != 0) {
			list->data[kept++] = *from;
			continue;
		}
		into->bytes += from->bytes;
		into->info.raw_data_bytes += from->bytes;
		into->info.sample_count += from->info.sample_count;
		into->info.total_value += from->info.total_value;
		into->info.quality.samples += from->info.quality.samples;
		into->info.quality.lost += from->info.quality.lost;
	}
	list->count = kept;
}

static int add_dead(void *ctx, const struct store_record *record)
{
	return u64map_put(ctx, hash_bytes(record->id, strlen(record->id), 0), 1);
}

int spans_collect(struct sessions *s, const struct span_query *query, struct span_list *ret,
		  struct err *err)
{
	struct store_query tombstones = { .kind = CONTINUOUS_TOMBSTONE, .tenant = query->tenant };
	struct u64map dead = { 0 };
	struct span_list list = { 0 };
	struct collect collect = {
		.s = s,
		.query = query,
		.rows = { .tenant = query->tenant,
			  .service = query->service,
			  .type = query->type >= 0
					  ? profile_type_info((enum profile_type)query->type)->word
					  : NULL,
			  /* A span may begin before the query's begin but not have its first minute
			     there. */
			  .from_ns = query->from_ns,
			  .to_ns =
				  query->to_ns ? query->to_ns + s->options.continuous_span_ns : 0 },
		.list = &list,
		.dead = &dead,
		.now_ns = clock_realtime_ns(),
		.err = err,
	};
	int rc = store_list(s->store, &tombstones, add_dead, &dead, NULL, err);

	if (rc == 0)
		rc = store_history_days(s->store, collect_day, &collect, err);
	u64map_deinit(&dead);
	if (rc < 0) {
		span_list_deinit(&list);
		return rc == -E2BIG ? err_set(err, E2BIG, "InvalidParam", "from",
					      "the time range holds too many spans")
				    : rc;
	}
	if (list.count)
		qsort(list.data, list.count, sizeof(*list.data), newest_first);
	join_parts(&list);
	*ret = list;
	return 0;
}

int spans_find(struct sessions *s, const char *tenant, const char *id, struct span *ret,
	       struct err *err)
{
	struct span_query query = { .tenant = tenant, .type = -1, .status = -1 };
	struct span_list list = { 0 };
	int rc;

	if (!time_of_id(id, &query.from_ns) || query.from_ns == 0)
		return -ENOENT;
	query.to_ns = query.from_ns + 1;
	rc = spans_collect(s, &query, &list, err);
	if (rc < 0)
		return rc;
	rc = -ENOENT;
	for (size_t i = 0; i < list.count && rc < 0; i++) {
		if (strcmp(list.data[i].info.id, id) == 0) {
			*ret = list.data[i];
			rc = 0;
		}
	}
	span_list_deinit(&list);
	return rc;
}

int spans_delete(struct sessions *s, const struct span *span, struct err *err)
{
	struct store_record record = { .kind = CONTINUOUS_TOMBSTONE,
				       .tenant = span->info.tenant,
				       .id = span->info.id,
				       .service = span->info.service,
				       .type = profile_type_info(span->info.type)->word,
				       .created_ns = span->from_ns,
				       .body = "{}",
				       .body_len = 2 };

	return store_put(s->store, &record, err);
}

/* ---- profiles -------------------------------------------------------------------------------- */

VEC_DEFINE(parts, struct profile *);

struct day_part {
	struct sessions *s;
	const struct history_window *window;
	const struct profile_meta *meta;
	struct store_window_query rows;
	struct parts_vec parts;
	struct recording *recording; /* of the day under way */
	unsigned damaged_days;	     /* could not be read at all */
	bool timed;		     /* it holds single samples, not sums */
	uint64_t lost;
	struct err *err;
};

/* Of an hour, in the minutes that were asked for. */
static uint64_t lost_in(const struct history_window *asked, const struct store_window *window)
{
	uint64_t lost = window->minute_count ? 0 : window->lost;

	for (uint32_t i = 0; i < window->minute_count; i++) {
		uint64_t at_ns = window->from_ns + window->minutes[i].minute * CONTINUOUS_MINUTE_NS;

		if (at_ns >= asked->from_ns && at_ns < asked->to_ns)
			lost += window->minutes[i].lost;
	}
	return lost;
}

static int add_window(void *ctx, const struct store_window *window)
{
	struct day_part *part = ctx;
	uint32_t highest, rate = owners_rate(window->owners, part->window->tenant, &highest);

	part->lost += lost_in(part->window, window);
	return recording_add_window(part->recording, window, part->window->from_ns,
				    part->window->to_ns,
				    highest && rate < highest ? (double)rate / highest : 1);
}

static int add_pairs(void *ctx, const struct store_chunk *chunk)
{
	struct day_part *part = ctx;

	return recording_add_pairs(part->recording, chunk->kind, chunk->data, chunk->len);
}

static int add_dictionary(void *ctx, const struct store_chunk *chunk)
{
	struct day_part *part = ctx;

	return recording_add(part->recording, chunk->kind, chunk->data, chunk->len, UINT32_MAX,
			     NULL);
}

static int read_day(struct day_part *part, const struct store_day *day)
{
	struct store *store = part->s->store;
	unsigned damaged = 0, more = 0;
	int rc = part->timed ? 0
			     : store_history_windows(store, day, &part->rows, add_window, part,
						     &damaged, part->err);

	if (rc < 0 || !recording_event_count(part->recording))
		return rc;
	rc = store_history_dictionary(store, day, add_pairs, part, NULL, part->err);
	if (rc == 0)
		rc = store_history_dictionary(store, day, add_dictionary, part, &more, part->err);
	recording_note_damage(part->recording, damaged + more);
	return rc;
}

static int build_day(struct day_part *part)
{
	struct recording_options options = { .meta = *part->meta,
					     .quality = quality_empty(),
					     .nodes_max = 1u << 23,
					     .events = !part->window->totals };
	struct profile *profile;
	int rc;

	options.meta.grain_ns = part->timed ? 0 : CONTINUOUS_MINUTE_NS;
	options.quality.samples = (int64_t)recording_event_count(part->recording);
	options.quality.lost = (int64_t)part->lost;
	options.quality.overhead_pct = options.quality.effective_rate = -1;
	rc = recording_build(part->recording, &options, names_client_begin(part->s->names),
			     &profile);
	names_client_end(part->s->names);
	if (rc < 0)
		return err_set(part->err, -rc, NULL, NULL, "the profile cannot be built: %s",
			       strerror(-rc));
	profile->quality.samples = profile->totals[0];
	if (part->meta->type == PROFILE_CPU && profile->totals[1] > 0)
		profile->quality.effective_rate =
			(double)profile->totals[0] / ((double)profile->totals[1] / 1e9);
	rc = parts_vec_push(&part->parts, profile);
	if (rc < 0)
		(void)profile_unref(profile);
	return rc;
}

static int add_day(void *ctx, const struct store_day *day, uint64_t bytes)
{
	struct day_part *part = ctx;
	uint64_t begin_ns = day->day * CONTINUOUS_DAY_NS;
	cleanup(recording) struct recording *recording = NULL;
	int rc;

	if (begin_ns >= part->window->to_ns ||
	    begin_ns + CONTINUOUS_DAY_NS <= part->window->from_ns)
		return 0;
	part->lost = 0;
	part->timed = part->window->timed &&
		      detail_read(part->s, day, part->window, &recording, &part->lost, NULL) > 0;
	if (!part->timed)
		recording = recording_create();
	part->recording = recording;
	if (!recording)
		return err_set(part->err, ENOMEM, NULL, NULL, "no memory to read the history");
	if (part->window->totals)
		recording_add_up(recording);
	rc = read_day(part, day);
	if (rc == -ENOENT)
		return 0; /* dropped meanwhile */
	if (rc == -EUCLEAN) {
		/* One day less is better than no answer. */
		note_damaged_day(day, part->err);
		part->damaged_days++;
		return 0;
	}
	return rc == 0 && recording_event_count(recording) ? build_day(part) : rc;
}

int spans_profile(struct sessions *s, const struct history_window *window,
		  const struct profile_meta *meta, struct profile **ret, struct err *err)
{
	struct day_part part = { .s = s,
				 .window = window,
				 .meta = meta,
				 .rows = { .tenant = window->tenant,
					   .service = window->service,
					   .type = profile_type_info(window->type)->word,
					   .from_ns = window->from_ns,
					   .to_ns = window->to_ns,
					   .with_data = true },
				 .err = err };
	int rc;

	(void)pthread_mutex_lock(&s->build_lock);
	rc = store_history_days(s->store, add_day, &part, err);
	(void)pthread_mutex_unlock(&s->build_lock);
	if (rc == 0 && !part.parts.count)
		rc = part.damaged_days ? -EUCLEAN : -ENOENT;
	else if (rc == 0 && part.parts.count == 1)
		*ret = profile_ref(part.parts.data[0]);
	else if (rc == 0)
		rc = profile_merge(part.parts.data, part.parts.count, ret);
	if (rc == 0 && part.damaged_days)
		quality_note(&(*ret)->quality, "%u days are damaged and left out", part.damaged_days);
	for (size_t i = 0; i < part.parts.count; i++)
		(void)profile_unref(part.parts.data[i]);
	parts_vec_deinit(&part.parts);
	return rc;
}

/* ---- copies ---------------------------------------------------------------------------------- */

struct chunk_copy {
	struct sessions *s;
	const char *to;
	struct err *err;
};

static int append_chunk(void *ctx, const struct store_chunk *chunk)
{
	const struct chunk_copy *copy = ctx;

	return store_session_append(copy->s->store, copy->to, chunk, 1, 0, 0, copy->err);
}

struct best_day {
	struct day_part part;
	struct recording *recording; /* of the file that holds most of the span */
};

/* Files of one day number their stacks each for itself: the larger part is copied. */
static int read_best(void *ctx, const struct store_day *day, uint64_t bytes)
{
	struct best_day *best = ctx;
	uint64_t begin_ns = day->day * CONTINUOUS_DAY_NS;
	cleanup(recording) struct recording *recording = NULL;
	struct recording *worse;
	int rc;

	if (begin_ns >= best->part.window->to_ns ||
	    begin_ns + CONTINUOUS_DAY_NS <= best->part.window->from_ns)
		return 0;
	recording = best->part.recording = recording_create();
	if (!recording)
		return err_set(best->part.err, ENOMEM, NULL, NULL, "no memory to read the history");
	rc = read_day(&best->part, day);
	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	if (best->recording &&
	    recording_event_count(recording) <= recording_event_count(best->recording))
		return 0;
	worse = best->recording;
	best->recording = take_ptr(recording);
	recording_destroy(worse);
	return 0;
}

int spans_copy(struct sessions *s, const struct session_info *span, const char *to, struct err *err)
{
	const struct history_window window = {
		.tenant = span->tenant,
		.service = span->service,
		.type = span->type,
		.from_ns = span->created_at_ns,
		.to_ns = span->created_at_ns + s->options.continuous_span_ns,
	};
	struct best_day best = { .part = { .s = s,
					   .window = &window,
					   .rows = { .tenant = window.tenant,
						     .service = window.service,
						     .type = profile_type_info(window.type)->word,
						     .from_ns = window.from_ns,
						     .to_ns = window.to_ns,
						     .with_data = true },
					   .err = err } };
	struct chunk_copy copy = { s, to, err };
	struct session_info copied = *span;
	int rc = store_history_days(s->store, read_best, &best, err);

	if (rc == 0 && best.recording)
		rc = recording_encode(best.recording, append_chunk, &copy);
	recording_destroy(best.recording);
	if (rc < 0)
		return rc;
	/* Names that cannot be had now are asked for when it is shown. */
	(void)snprintf(copied.id, sizeof(copied.id), "%s", to);
	if (best.recording && finisher_keep_names(s, &copied, err) < 0)
		*err = (struct err){ 0 };
	return 0;
}

/* ---- retention ------------------------------------------------------------------------------- */

struct expire {
	struct store_day days[64];
	size_t count;
	uint32_t today;
	bool any_age;
};

static int note_day(void *ctx, const struct store_day *day, uint64_t bytes)
{
	struct expire *expire = ctx;

	if (expire->count < ARRAY_SIZE(expire->days) &&
	    (expire->any_age || day->day + day->retention_days < expire->today))
		expire->days[expire->count++] = *day;
	return 0;
}

void spans_expire(struct sessions *s)
{
	struct expire expire = { .today = (uint32_t)(clock_realtime_ns() / CONTINUOUS_DAY_NS) };
	struct err err = { 0 };

	if (store_history_days(s->store, note_day, &expire, &err) < 0)
		return;
	for (size_t i = 0; i < expire.count; i++) {
		if (store_history_drop(s->store, &expire.days[i], &err) < 0)
			log_warn("a day of the history is not deleted at the end of its retention: "
				 "%s",
				 err.text);
		detail_drop_day(s, &expire.days[i]);
	}
}

static int keep_oldest(void *ctx, const struct store_day *day, uint64_t bytes)
{
	uint64_t *oldest_ns = ctx, begin_ns = day->day * CONTINUOUS_DAY_NS;

	if (begin_ns < *oldest_ns)
		*oldest_ns = begin_ns;
	return 0;
}

uint64_t spans_oldest_ns(struct sessions *s)
{
	uint64_t oldest_ns = clock_realtime_ns();

	/* A span that is deleted now may begin before a file of its day is there. */
	oldest_ns -= oldest_ns % CONTINUOUS_DAY_NS;
	return store_history_days(s->store, keep_oldest, &oldest_ns, NULL) < 0 ? 0 : oldest_ns;
}

bool spans_drop_oldest(struct sessions *s)
{
	struct expire expire = { .today = (uint32_t)(clock_realtime_ns() / CONTINUOUS_DAY_NS),
				 .any_age = true };
	struct err err = { 0 };

	/* Today's file is being written: it is the last to go, and then the sessions before it. */
	if (store_history_days(s->store, note_day, &expire, &err) < 0 || !expire.count ||
	    expire.days[0].day >= expire.today)
		return false;
	detail_drop_day(s, &expire.days[0]);
	return store_history_drop(s->store, &expire.days[0], &err) == 0;
}
