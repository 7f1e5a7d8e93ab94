// SPDX-License-Identifier: Apache-2.0
#include "agent/session/continuous/day_names.h"

#include <errno.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/recording/chunk_decode.h"
#include "agent/recording/session_chunks.h"
#include "agent/session/continuous/continuous.h"
#include "agent/session/records/hosts.h"

#define OVERLAP_NS    (2 * CONTINUOUS_MINUTE_NS) /* what is stored late is looked at again */
#define LOOK_BACK_NS  CONTINUOUS_HOUR_NS	 /* after a restart */

void day_names_id(const struct own_host *own, const struct store_day *day, char out[STORE_ID_SIZE])
{
	char name[STORE_ID_SIZE];

	(void)snprintf(name, sizeof(name), "names-%u-%u", day->day, day->retention_days);
	hosts_day_id(own, day, name, out, STORE_ID_SIZE);
}

/* ---- reading --------------------------------------------------------------------------------- */

static int give_name(void *ctx, const struct chunk_name *name)
{
	return names_keep(ctx, name->key, name->offset, name->frames, name->frame_count);
}

static int decode(void *ctx, const struct store_chunk *chunk)
{
	int rc = chunk->kind == STORE_CHUNK_NAMES
			 ? chunk_decode(chunk->kind, chunk->data, chunk->len, ctx)
			 : 0;

	return rc == -EPROTO ? 0 : rc; /* names less, nothing else */
}

static int read_names(struct sessions *s, const struct store_day *day, struct chunk_sink *sink,
		      struct err *err)
{
	char id[STORE_ID_SIZE];
	int rc;

	day_names_id(&s->host, day, id);
	rc = store_session_read(s->store, id, decode, sink, NULL, err);
	return rc == -ENOENT ? 0 : rc;
}

int day_names_load(struct sessions *s, const struct store_day *day, struct err *err)
{
	struct chunk_sink sink = { .ctx = s->names, .name = give_name };

	return day->host[0] ? read_names(s, day, &sink, err) : 0;
}

struct names_copy {
	struct sessions *s;
	const char *to;
	struct err *err;
};

static int copy_chunk(void *ctx, const struct store_chunk *chunk)
{
	const struct names_copy *copy = ctx;

	return store_session_append(copy->s->store, copy->to, chunk, 1, 0, 0, copy->err);
}

int day_names_copy(struct sessions *s, const struct store_day *day, const char *to, struct err *err)
{
	struct names_copy copy = { s, to, err };
	char id[STORE_ID_SIZE];
	int rc;

	if (!day->host[0])
		return 0;
	day_names_id(&s->host, day, id);
	rc = store_session_read(s->store, id, copy_chunk, &copy, NULL, err);
	return rc == -ENOENT ? 0 : rc;
}

void day_names_drop(struct sessions *s, const struct store_day *day)
{
	char id[STORE_ID_SIZE];

	if (!store_is_shared(s->store))
		return;
	day_names_id(&s->host, day, id);
	(void)!store_session_remove(s->store, id, NULL);
}

/* ---- writing --------------------------------------------------------------------------------- */

static uint64_t place_hash(uint64_t key, uint64_t offset)
{
	return hash_combine(key, offset);
}

static int know_name(void *ctx, const struct chunk_name *name)
{
	return u64map_put(ctx, place_hash(name->key, name->offset), 1);
}

static int find_entry(struct sessions *s, const struct store_day *day, struct day_names_entry **ret,
		      struct err *err)
{
	struct day_names *names = &s->continuous->day_names;
	uint64_t begin_ns = day->day * CONTINUOUS_DAY_NS, since_ns = clock_realtime_ns() - LOOK_BACK_NS;
	struct day_names_entry entry = { .day = *day,
					 .until_ns = begin_ns > since_ns ? begin_ns : since_ns };
	struct chunk_sink sink = { .ctx = &entry.kept, .name = know_name };
	int rc;

	for (unsigned i = 0; i < names->count; i++) {
		if (names->days[i].day.day == day->day &&
		    names->days[i].day.retention_days == day->retention_days) {
			*ret = &names->days[i];
			return 0;
		}
	}
	if (names->count == DAY_NAMES_DAYS)
		return -ENOSPC;
	rc = read_names(s, day, &sink, err);
	if (rc < 0) {
		u64map_deinit(&entry.kept);
		return rc;
	}
	names->days[names->count] = entry;
	*ret = &names->days[names->count++];
	return 0;
}

struct adding {
	const struct day_names_entry *entry;
	struct name_chunk *chunk;
	struct u64map added;
};

static int add_name(void *ctx, uint64_t key, uint64_t offset, const struct name_frame *frames,
		    unsigned count)
{
	struct adding *adding = ctx;
	struct chunk_name name = { key, offset, count, frames };
	uint64_t hash = place_hash(key, offset), seen;
	int rc;

	if (u64map_get(&adding->entry->kept, hash, &seen) || u64map_get(&adding->added, hash, &seen) ||
	    adding->entry->kept.count + adding->added.count >= NAMES_PLACES_MAX)
		return 0;
	rc = u64map_put(&adding->added, hash, 1);
	return rc < 0 ? rc : name_chunk_add(adding->chunk, &name);
}

static int append(struct sessions *s, const struct day_names_entry *entry,
		  const struct name_chunk *names, struct err *err)
{
	cleanup_buf struct buf bytes = { .max = STORE_CHUNK_MAX };
	struct store_chunk chunk = { .kind = STORE_CHUNK_NAMES };
	char id[STORE_ID_SIZE];

	if (!name_chunk_count(names))
		return 0;
	name_chunk_encode(names, &bytes);
	if (bytes.error)
		return err_set(err, -bytes.error, NULL, NULL, "too many names");
	chunk.data = bytes.data;
	chunk.len = bytes.len;
	day_names_id(&s->host, &entry->day, id);
	return store_session_append(s->store, id, &chunk, 1, 0, 0, err);
}

/* The added names are known from now on. */
static int take_added(struct day_names_entry *entry, const struct u64map *added)
{
	uint64_t hash, one;
	size_t at = 0;
	int rc = 0;

	while (rc == 0 && u64map_next(added, &at, &hash, &one))
		rc = u64map_put(&entry->kept, hash, one);
	return rc;
}

/* *all becomes false where names are still missing. */
static int keep_day(struct sessions *s, const struct store_day *day, bool *all, struct err *err)
{
	cleanup(name_chunk) struct name_chunk *chunk = name_chunk_create();
	uint64_t end_ns = (day->day + 1) * CONTINUOUS_DAY_NS, now_ns = clock_realtime_ns(), from_ns;
	struct adding adding = { .chunk = chunk };
	struct day_names_entry *entry;
	bool found = true;
	int rc = chunk ? find_entry(s, day, &entry, err) : -ENOMEM;

	if (rc < 0 || entry->until_ns >= end_ns + OVERLAP_NS)
		return rc;
	adding.entry = entry;
	from_ns = entry->until_ns > OVERLAP_NS ? entry->until_ns - OVERLAP_NS : 0;
	rc = spans_names(s, day, from_ns, now_ns < end_ns ? now_ns : end_ns, add_name, &adding, &found,
			 err);
	if (rc == 0)
		rc = append(s, entry, chunk, err);
	if (rc == 0)
		rc = take_added(entry, &adding.added);
	if (rc == 0 && found)
		entry->until_ns = now_ns;
	*all &= found;
	u64map_deinit(&adding.added);
	return rc;
}

struct recent {
	struct store_day days[DAY_NAMES_DAYS];
	unsigned count;
	uint32_t yesterday;
};

static int note_recent(void *ctx, const struct store_day *day, uint64_t bytes)
{
	struct recent *recent = ctx;

	if (day->day >= recent->yesterday && recent->count < DAY_NAMES_DAYS)
		recent->days[recent->count++] = *day;
	return 0;
}

/* Drops days that nobody writes to any more. */
static void forget_old(struct day_names *names, uint32_t yesterday)
{
	for (unsigned i = names->count; i > 0; i--) {
		if (names->days[i - 1].day.day >= yesterday)
			continue;
		u64map_deinit(&names->days[i - 1].kept);
		names->days[i - 1] = names->days[--names->count];
	}
}

/* True: everything that is stored has its names. */
static bool look(struct sessions *s)
{
	static struct log_limit limit = { .burst = 2 };
	struct recent recent = { .yesterday = (uint32_t)(clock_realtime_ns() / CONTINUOUS_DAY_NS) - 1 };
	struct err err = { 0 };
	bool all = true;
	int rc = store_history_days(s->store, false, note_recent, &recent, &err);

	forget_old(&s->continuous->day_names, recent.yesterday);
	for (unsigned i = 0; rc == 0 && i < recent.count; i++)
		rc = keep_day(s, &recent.days[i], &all, &err);
	/* A store that is away is not worth a word here. */
	if (rc < 0 && rc != -EIO && rc != -ENOENT && log_allowed(&limit))
		log_warn("names of continuous profiling are not kept for other hosts now: %s",
			 err.text[0] ? err.text : strerror(-rc));
	return rc == 0 && all;
}

static bool any_kept(const struct day_names *names)
{
	for (unsigned i = 0; i < names->count; i++)
		if (names->days[i].kept.count)
			return true;
	return false;
}

void day_names_look(struct sessions *s)
{
	struct day_names *names = &s->continuous->day_names;
	const unsigned stored = atomic_load(&s->continuous->stored);

	if (!store_is_shared(s->store) || s->options.feed_fd < 0 || clock_monotonic_ns() < names->at_ns ||
	    (names->complete && names->seen == stored))
		return;
	if (!names->every_ns)
		names->every_ns = DAY_NAMES_FIRST_NS;
	names->complete = look(s);
	names->seen = stored;
	names->at_ns = clock_monotonic_ns() + names->every_ns;
	if (any_kept(names) && names->every_ns < DAY_NAMES_MOST_NS)
		names->every_ns *= 2;
}

void day_names_deinit(struct sessions *s)
{
	for (unsigned i = 0; i < s->continuous->day_names.count; i++)
		u64map_deinit(&s->continuous->day_names.days[i].kept);
	s->continuous->day_names.count = 0;
}
