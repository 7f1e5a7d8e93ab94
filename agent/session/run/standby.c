// SPDX-License-Identifier: Apache-2.0
/* The store that stands in for a shared one: what it is given beforehand, and how it is emptied
 * into the shared store. Its ids are those of a shared store (store_open_standby()), so that
 * nothing but the retention of a day may have to change. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "agent/base/buf.h"
#include "agent/base/clock.h"
#include "agent/base/text.h"
#include "agent/session/continuous/continuous.h"
#include "agent/session/continuous/day_names.h"
#include "agent/session/continuous/detail.h"
#include "agent/session/core/sessions.h"
#include "agent/session/records/hosts.h"

#define SEED_PREFIX	"seed-"	      /* of the kind of a record as the shared store had it */
#define DAY_KIND	"standby-day" /* id: DAY-RETENTION; body: the retention in the shared store */
#define BATCH_BYTES	(4u << 20)    /* of one append */
#define BATCH_ITEMS	4096u
#define WAITING_MOST	(64ull << 20)	/* bytes that the shared store may owe, of 256 MiB */
#define STUCK_NS	(60 * NS_PER_S) /* without a byte taken over: it is away again */
#define LOOK_US		50000
#define RETENTION_TRIES 1000u

void sessions_set_standby(struct sessions *s, const char *reason)
{
	sessions_scope(s);

	(void)snprintf(s->standby_reason, sizeof(s->standby_reason), "%.399s", reason);
}

/* ---- given beforehand ------------------------------------------------------------------------ */

/* The words are those of their owners' records. */
static const struct {
	const char *kind;
	bool every_host;
} mirrored[] = {
	{ CONTINUOUS_KIND, false },
	{ "switch", false },
	{ "key", true },
	{ "secret", true },
};

struct mirror {
	struct store *shared, *standby;
	struct err *err;
};

static int seed(void *ctx, const struct store_record *record)
{
	const struct mirror *m = ctx;
	struct store_record copy = *record;
	char kind[64];
	int rc;

	(void)snprintf(kind, sizeof(kind), SEED_PREFIX "%s", record->kind);
	copy.urgent = true;
	rc = store_put(m->standby, &copy, m->err);
	copy.kind = kind;
	return rc < 0 ? rc : store_put(m->standby, &copy, m->err);
}

/* A record of the standby store that the shared store no longer has. */
static int drop_gone(void *ctx, const struct store_record *record)
{
	const struct mirror *m = ctx;
	cleanup_free char *body = NULL;
	const char *kind = record->kind + strlen(SEED_PREFIX);
	size_t len;
	int rc = store_get(m->shared, kind, record->tenant, record->id, &body, &len, m->err);

	if (rc != -ENOENT)
		return rc;
	rc = store_delete(m->standby, kind, record->tenant, record->id, m->err);
	return rc < 0 ? rc
		      : store_delete(m->standby, record->kind, record->tenant, record->id, m->err);
}

int sessions_mirror(struct store *shared, struct store *standby, struct err *err)
{
	struct mirror m = { shared, standby, err };
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(mirrored); i++) {
		const struct store_query from = { .kind = mirrored[i].kind,
						  .every_host = mirrored[i].every_host,
						  .oldest_first = true };
		char kind[64];
		const struct store_query seeds = { .kind = kind };

		(void)snprintf(kind, sizeof(kind), SEED_PREFIX "%s", mirrored[i].kind);
		rc = store_list(shared, &from, seed, &m, NULL, err);
		if (rc == 0)
			rc = store_list(standby, &seeds, drop_gone, &m, NULL, err);
	}
	return rc;
}

/* ---- moving ---------------------------------------------------------------------------------- */

/* Chunks and windows of one append, copied. */
struct batch {
	struct buf bytes; /* what the items point into, as offsets until it is sent */
	struct store_chunk chunks[BATCH_ITEMS];
	size_t chunk_count;
	struct store_window windows[BATCH_ITEMS];
	size_t window_count;
};

struct move {
	struct store *from, *to;
	struct own_host host;
	const char *session;	     /* being moved; NULL = a day is */
	struct store_day day;	     /* in the shared store */
	uint64_t identity, position; /* of the feed */
	struct batch batch;
	struct err *err;
};

/* Waits until the shared store has taken over most of what it was given, because what waits for it
 * is bounded. */
static int await_room(struct move *m)
{
	uint64_t waiting = store_waiting_bytes(m->to), least = waiting,
		 since = clock_monotonic_ns();

	while (waiting > WAITING_MOST) {
		(void)usleep(LOOK_US);
		waiting = store_waiting_bytes(m->to);
		if (waiting < least) {
			least = waiting;
			since = clock_monotonic_ns();
		} else if (clock_monotonic_ns() - since > STUCK_NS) {
			return err_set(m->err, EIO, "StoreUnavailable", NULL,
				       "the store takes nothing over for %llu s",
				       (unsigned long long)(STUCK_NS / NS_PER_S));
		}
	}
	return 0;
}

static const void *at(const struct buf *bytes, const void *offset)
{
	return bytes->data + (uintptr_t)offset;
}

static void point(struct batch *b)
{
	for (size_t i = 0; i < b->chunk_count; i++)
		b->chunks[i].data = at(&b->bytes, b->chunks[i].data);
	for (size_t i = 0; i < b->window_count; i++) {
		struct store_window *window = &b->windows[i];

		window->service = at(&b->bytes, window->service);
		window->type = at(&b->bytes, window->type);
		window->owners = at(&b->bytes, window->owners);
		window->data = at(&b->bytes, window->data);
	}
}

static int send(struct move *m)
{
	struct batch *b = &m->batch;
	int rc = b->bytes.error;

	if (rc < 0)
		return err_set(m->err, -rc, NULL, NULL, "no memory to move what was recorded");
	rc = await_room(m);
	if (rc < 0)
		return rc;
	point(b);
	rc = m->session
		     ? store_session_append(m->to, m->session, b->chunks, b->chunk_count,
					    m->identity, m->position, m->err)
		     : store_history_append(m->to, &m->day, b->chunks, b->chunk_count, b->windows,
					    b->window_count, m->identity, m->position, m->err);
	b->chunk_count = b->window_count = 0;
	b->bytes.len = 0;
	return rc;
}

static int send_when_full(struct move *m, size_t more)
{
	const struct batch *b = &m->batch;

	return (b->chunk_count || b->window_count) &&
			       (b->bytes.len + more > BATCH_BYTES ||
				b->chunk_count == BATCH_ITEMS || b->window_count == BATCH_ITEMS)
		       ? send(m)
		       : 0;
}

/* Copies @data into the batch. Returns the offset of the copy in the batch's bytes. */
static const void *keep(struct batch *b, const void *data, size_t len)
{
	size_t offset = b->bytes.len;

	buf_add(&b->bytes, data, len);
	return (const void *)(uintptr_t)offset;
}

static int move_chunk(void *ctx, const struct store_chunk *chunk)
{
	struct move *m = ctx;
	struct batch *b = &m->batch;
	int rc = send_when_full(m, chunk->len);

	if (rc == 0)
		b->chunks[b->chunk_count++] =
			(struct store_chunk){ chunk->kind, keep(b, chunk->data, chunk->len),
					      chunk->len };
	return rc;
}

static int move_window(void *ctx, const struct store_window *window)
{
	struct move *m = ctx;
	struct batch *b = &m->batch;
	int rc = send_when_full(m, window->len);
	struct store_window *copy = &b->windows[b->window_count];

	if (rc < 0)
		return rc;
	*copy = *window;
	copy->service = keep(b, window->service, strlen(window->service) + 1);
	copy->type = keep(b, window->type, strlen(window->type) + 1);
	copy->owners = keep(b, window->owners, strlen(window->owners) + 1);
	copy->data = keep(b, window->data, window->len);
	copy->ends = (struct store_ends){ 0 };
	b->window_count++;
	return 0;
}

/* The data of session @from as session @to. No such data is no error. */
static int move_session(struct move *m, const char *from, const char *to)
{
	int rc;

	m->identity = m->position = 0;
	rc = store_session_position(m->from, from, &m->identity, &m->position, m->err);
	if (rc == -ENOENT || rc == -EINVAL) {
		*m->err = (struct err){ 0 };
		return 0;
	}
	if (rc == 0)
		rc = store_session_remove(m->to, to, m->err);
	m->session = to;
	if (rc == 0)
		rc = store_session_read(m->from, from, move_chunk, m, NULL, m->err);
	if (rc == 0)
		rc = send(m);
	m->session = NULL;
	return rc;
}

/* ---- days ------------------------------------------------------------------------------------ */

struct search {
	const struct store_day *day;
	bool found;
};

static int compare_day(void *ctx, const struct store_day *day, uint64_t bytes)
{
	struct search *search = ctx;

	search->found |=
		day->day == search->day->day && day->retention_days == search->day->retention_days;
	return 0;
}

static int has_day(struct move *m, const struct store_day *day, bool *ret)
{
	struct search search = { .day = day };
	int rc = store_history_days(m->to, false, compare_day, &search, m->err);

	*ret = search.found;
	return rc;
}

/* The day under which @day is stored in the shared store. Days of one retention share a dictionary,
 * so that one which exists there is left alone: this one gets the next retention that is free. The
 * choice is kept, because a repeated call has to make it again. */
static int choose_day(struct move *m, const struct store_day *day)
{
	cleanup_free char *body = NULL;
	char id[32], text[16];
	const struct store_record choice = { .kind = DAY_KIND,
					     .tenant = "",
					     .id = id,
					     .service = "",
					     .type = "",
					     .status = "",
					     .body = text };
	struct store_record record = choice;
	bool taken = true;
	size_t len;
	int rc;

	(void)snprintf(id, sizeof(id), "%u-%u", day->day, day->retention_days);
	m->day = (struct store_day){ day->day, day->retention_days, "" };
	rc = store_get(m->from, DAY_KIND, "", id, &body, &len, m->err);
	if (rc == 0) {
		m->day.retention_days = (uint32_t)strtoul(body, NULL, 10);
		return store_history_drop(m->to, &m->day, m->err);
	}
	for (unsigned i = 0; taken && i < RETENTION_TRIES; i++) {
		m->day.retention_days = day->retention_days + i;
		rc = has_day(m, &m->day, &taken);
		if (rc < 0)
			return rc;
	}
	record.body_len = (size_t)snprintf(text, sizeof(text), "%u", m->day.retention_days);
	record.urgent = true;
	*m->err = (struct err){ 0 };
	return store_put(m->from, &record, m->err);
}

/* Samples up to this position of the feed are in the shared store: the day that goes on recording
 * there does not take them again. */
static int note_position(struct move *m, const struct store_day *day)
{
	return m->day.retention_days == day->retention_days
		       ? 0
		       : store_history_append(m->to, day, NULL, 0, NULL, 0, m->identity,
					      m->position, m->err);
}

static int move_day(void *ctx, const struct store_day *day, uint64_t bytes)
{
	const struct store_window_query all = { .with_data = true };
	char from[STORE_ID_SIZE], to[STORE_ID_SIZE];
	struct move *m = ctx;
	unsigned damaged;
	int rc = choose_day(m, day);

	if (rc == 0)
		rc = store_history_position(m->from, day, &m->identity, &m->position, m->err);
	if (rc == 0)
		rc = store_history_dictionary(m->from, day, move_chunk, m, &damaged, m->err);
	if (rc == 0)
		rc = store_history_windows(m->from, day, &all, move_window, m, &damaged, m->err);
	if (rc == 0)
		rc = send(m);
	if (rc == 0)
		rc = note_position(m, day);
	if (rc < 0)
		return rc;
	day_names_id(&m->host, day, from);
	day_names_id(&m->host, &m->day, to);
	return move_session(m, from, to);
}

/* ---- records --------------------------------------------------------------------------------- */

static bool is_kind(const struct store_record *record, const char *kind)
{
	return strcmp(record->kind, kind) == 0;
}

static bool is_seed(const char *kind)
{
	return text_begins(kind, SEED_PREFIX);
}

/* Does @kind hold the record as @record has it? 1 or 0; -ENOENT: it holds none. */
static int is_same(struct move *m, const char *kind, const struct store_record *record)
{
	cleanup_free char *body = NULL;
	size_t len;
	int rc = store_get(m->from, kind, record->tenant, record->id, &body, &len, m->err);

	if (rc < 0) {
		*m->err = (struct err){ 0 };
		return rc;
	}
	return len == record->body_len && memcmp(body, record->body, len) == 0;
}

/* Deletes in the shared store a record that was deleted in the standby store meanwhile. */
static int move_seed(struct move *m, const struct store_record *record)
{
	const char *kind = record->kind + strlen(SEED_PREFIX);

	return is_same(m, kind, record) == -ENOENT
		       ? store_delete(m->to, kind, record->tenant, record->id, m->err)
		       : 0;
}

static int move_record(void *ctx, const struct store_record *record)
{
	struct store_record copy = *record;
	struct move *m = ctx;
	char seed_kind[64];
	int rc;

	if (is_seed(record->kind))
		return move_seed(m, record);
	(void)snprintf(seed_kind, sizeof(seed_kind), SEED_PREFIX "%s", record->kind);
	if (is_kind(record, DAY_KIND) || is_kind(record, DETAIL_KIND) || is_kind(record, "probe") ||
	    is_same(m, seed_kind, record) == 1)
		return 0;
	rc = move_session(m, record->id, record->id);
	copy.urgent = true;
	return rc < 0 ? rc : store_put(m->to, &copy, m->err);
}

int sessions_leave_standby(struct store *standby, struct store *shared, bool collects,
			   struct err *err)
{
	const struct store_query everything = { .oldest_first = true };
	cleanup_free struct move *m = calloc(1, sizeof(*m));
	struct err why = { 0 };
	int rc;

	if (!m)
		return err_set(err, ENOMEM, NULL, NULL, "no memory to move what was recorded");
	m->from = standby;
	m->to = shared;
	m->err = err ? err : &why;
	hosts_name(m->host.name);
	m->host.collects = collects;
	m->host.shared = true;
	rc = store_list(standby, &everything, move_record, m, NULL, m->err);
	if (rc == 0)
		rc = store_history_days(standby, false, move_day, m, m->err);
	buf_deinit(&m->batch.bytes);
	return rc;
}
