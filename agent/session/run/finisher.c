// SPDX-License-Identifier: Apache-2.0
/* Work on sessions after their end, on a thread that may wait: their names are fetched while the
 * symbolizer still knows the modules, and kept with them; old sessions are deleted. */
#include <errno.h>
#include <string.h>

#include "agent/session/continuous/continuous.h"
#include "agent/session/continuous/standing.h"
#include "agent/session/core/session_query.h"
#include "agent/session/core/used_keys.h"
#include "agent/session/history/keep_names.h"
#include "agent/session/history/service_labels.h"
#include "agent/session/receive.h"
#include "agent/session/records/hosts.h"
#include "agent/session/records/session_record.h"
#include "agent/session/run/run.h"

#define RETENTION_EVERY_NS (600 * NS_PER_S)
#define PROBE_NS	   (30 * NS_PER_S) /* a shared store that could be read is asked again */
#define CLOCK_JUMP_NS	   (3600 * (int64_t)NS_PER_S)
#define NS_PER_DAY	   (86400 * NS_PER_S)
#define WATCH_KEPT_NS	   (400 * NS_PER_DAY) /* findings, deployments, state of the watch */
#define BUDGET_KEEP_PCT	   90 /* of the disk budget, after the oldest sessions went */

/* ---- retention ------------------------------------------------------------------------------- */

struct oldest {
	struct finished *ids; /* of FINISHED_MAX */
	size_t count;
	bool received; /* only sessions that programs sent (receive.h) */
	/* for other hosts: */
	const struct sessions *s;
	uint64_t now_ns;
};

/* The list is newest first: what comes last is oldest. */
static int keep_last(void *ctx, const struct store_record *record)
{
	struct oldest *oldest = ctx;
	struct finished *slot;

	if (strcmp(record->status, "running") == 0 ||
	    (oldest->received &&
	     !memmem(record->body, record->body_len, RECEIVED_LABEL, strlen(RECEIVED_LABEL))))
		return 0;
	slot = &oldest->ids[oldest->count++ % FINISHED_MAX];
	(void)snprintf(slot->tenant, sizeof(slot->tenant), "%s", record->tenant);
	(void)snprintf(slot->id, sizeof(slot->id), "%s", record->id);
	return 0;
}

static int delete_session(struct sessions *s, const struct finished *job, struct err *err)
{
	bool stopped;

	return session_delete(s, job->tenant, job->id, &stopped, err);
}

/* Deletes what is older than the retention, at most FINISHED_MAX at once. */
static void expire_sessions(struct sessions *s)
{
	uint64_t keep_ns = s->options.retention_days * NS_PER_DAY, now_ns = clock_realtime_ns();
	struct store_query query = { .kind = SESSION_RECORD_KIND };
	cleanup_free struct finished *ids = calloc(FINISHED_MAX, sizeof(*ids));
	struct oldest oldest = { .ids = ids };
	struct err err = { 0 };

	if (!ids || now_ns <= keep_ns)
		return;
	query.to_ns = now_ns - keep_ns;
	if (store_list(s->store, &query, keep_last, &oldest, NULL, &err) < 0)
		return;
	for (size_t i = 0; i < oldest.count && i < FINISHED_MAX; i++)
		if (delete_session(s, &ids[i], &err) < 0)
			log_warn("session %s: not deleted at the end of its retention: %s",
				 ids[i].id, err.text);
}

/* Each host has its own retention. What runs there by its record after so long runs no more. */
static int keep_abandoned(void *ctx, const struct store_record *record)
{
	struct oldest *oldest = ctx;
	struct finished *slot = &oldest->ids[oldest->count % FINISHED_MAX];
	struct session_info info;
	uint64_t days;

	if (hosts_is_own(&oldest->s->host, record->host) ||
	    session_record_decode(record->body, record->body_len, &info, NULL) < 0)
		return 0;
	session_info_deinit(&info);
	days = info.retention_days ? info.retention_days : oldest->s->options.retention_days;
	if (info.created_at_ns + (days + 1) * NS_PER_DAY >= oldest->now_ns)
		return 0;
	(void)snprintf(slot->tenant, sizeof(slot->tenant), "%s", record->tenant);
	(void)snprintf(slot->id, sizeof(slot->id), "%s", record->id);
	oldest->count++;
	return 0;
}

/* Deletes expired sessions of hosts that have gone for good: nobody else does. */
static void expire_abandoned(struct sessions *s)
{
	struct store_query query = { .kind = SESSION_RECORD_KIND, .every_host = true };
	cleanup_free struct finished *ids = calloc(FINISHED_MAX, sizeof(*ids));
	struct oldest oldest = { .ids = ids, .s = s, .now_ns = clock_realtime_ns() };
	struct err err = { 0 };

	if (!ids || !store_is_shared(s->store))
		return;
	query.to_ns = oldest.now_ns - (s->options.retention_days + 1) * NS_PER_DAY;
	if (store_list(s->store, &query, keep_abandoned, &oldest, NULL, &err) < 0)
		return;
	for (size_t i = 0; i < oldest.count && i < FINISHED_MAX; i++)
		if (delete_session(s, &ids[i], &err) < 0)
			log_warn("session %s of another host: not deleted at the end of its retention: %s", ids[i].id,
				 err.text);
}

struct doomed_id {
	char tenant[TENANT_NAME_SIZE];
	char id[SERVICE_NAME_SIZE + 64];
};

struct doomed {
	struct doomed_id *ids; /* of FINISHED_MAX */
	size_t count;
};

static int note_doomed(void *ctx, const struct store_record *record)
{
	struct doomed *doomed = ctx;

	if (doomed->count < FINISHED_MAX) {
		(void)snprintf(doomed->ids[doomed->count].tenant, TENANT_NAME_SIZE, "%s",
			       record->tenant);
		(void)snprintf(doomed->ids[doomed->count++].id, sizeof(doomed->ids->id), "%s",
			       record->id);
	}
	return 0;
}

/* Deletes records of @kind made before @before_ns, at most FINISHED_MAX at once. */
static void expire_records(struct sessions *s, const char *kind, bool every_host,
			   uint64_t before_ns)
{
	struct store_query query = { .kind = kind, .to_ns = before_ns, .every_host = every_host };
	struct doomed doomed = { .ids = calloc(FINISHED_MAX, sizeof(*doomed.ids)) };
	struct err err = { 0 };

	if (doomed.ids && before_ns &&
	    store_list(s->store, &query, note_doomed, &doomed, NULL, &err) == 0)
		for (size_t i = 0; i < doomed.count; i++)
			(void)!store_delete(s->store, kind, doomed.ids[i].tenant, doomed.ids[i].id,
					    &err);
	free(doomed.ids);
}

static void expire_watch(struct sessions *s)
{
	static const char *const kinds[] = { "finding", "deployment", "watch",
					     SERVICE_LABELS_KIND };
	uint64_t now_ns = clock_realtime_ns();

	/* A tombstone outlives what it hides by nothing, whoever laid it. */
	expire_records(s, CONTINUOUS_TOMBSTONE, true, spans_oldest_ns(s));
	for (size_t i = 0; i < ARRAY_SIZE(kinds) && now_ns > WATCH_KEPT_NS + NS_PER_DAY; i++) {
		expire_records(s, kinds[i], false, now_ns - WATCH_KEPT_NS);
		expire_records(s, kinds[i], true, now_ns - WATCH_KEPT_NS - NS_PER_DAY);
	}
}

/* Deletes the oldest finished sessions until the store has @target bytes, at most FINISHED_MAX. */
static void drop_sessions(struct sessions *s, uint64_t target, bool received)
{
	struct store_query query = { .kind = SESSION_RECORD_KIND };
	cleanup_free struct finished *ids = calloc(FINISHED_MAX, sizeof(*ids));
	struct oldest oldest = { .ids = ids, .received = received };
	struct err err = { 0 };
	size_t gone = 0;

	if (!ids || store_bytes(s->store) <= target ||
	    store_list(s->store, &query, keep_last, &oldest, NULL, &err) < 0)
		return;
	/* The last ones written to the ring of ids are the oldest. One that cannot be deleted does
	 * not keep the others. */
	for (size_t i = 0; i < FINISHED_MAX && oldest.count && store_bytes(s->store) > target; i++) {
		oldest.count--;
		gone += delete_session(s, &ids[oldest.count % FINISHED_MAX], &err) == 0;
	}
	if (gone)
		log_info("store: %zu oldest %s deleted to stay within [store] disk_budget", gone,
			 received ? "received profiles" : "sessions");
}

/* Over budget: the oldest continuous data goes first, single samples before the sums, then the
 * oldest profiles that programs sent, which may come all the time, then the oldest sessions. */
static void keep_budget(struct sessions *s)
{
	uint64_t budget = s->options.disk_budget_bytes, target = budget / 100 * BUDGET_KEEP_PCT;
	size_t stretches = 0;

	if (store_bytes(s->store) <= budget / 100 * 95)
		return;
	while (store_bytes(s->store) > target && detail_drop_oldest(s))
		stretches++;
	if (stretches)
		log_info("store: single samples of %zu times ten minutes deleted to stay within [store] "
			 "disk_budget",
			 stretches);
	while (store_bytes(s->store) > target && spans_drop_oldest(s))
		log_info("store: a day of continuous data deleted to stay within [store] "
			 "disk_budget");
	drop_sessions(s, target, true);
	drop_sessions(s, target, false);
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* Writes to a shared store are kept here when it cannot be reached: only reading tells. */
static void probe_reading(struct sessions *s, uint64_t *next_ns)
{
	struct err err = { 0 };
	int rc;

	if (!store_is_shared(s->store) || clock_monotonic_ns() < *next_ns)
		return;
	rc = store_try(s->store, &err);
	*next_ns = rc < 0 ? 0 : clock_monotonic_ns() + PROBE_NS;
	sessions_lock(s);
	s->store_unread = rc;
	if (s->store_unread)
		(void)snprintf(s->store_unread_reason, sizeof(s->store_unread_reason), "%.199s", err.text);
	sessions_unlock(s);
}

/* After a failed write: is there room again? Nobody else may write for a long time. */
static void probe_store(struct sessions *s, uint64_t *reading_next_ns)
{
	struct store_record probe = {
		.kind = "probe", .tenant = "", .id = "store", .body = "{}", .body_len = 2
	};
	struct err err = { 0 };
	bool failed;
	int rc;

	probe_reading(s, reading_next_ns);
	sessions_lock(s);
	failed = s->store_error < 0;
	sessions_unlock(s);
	if (!failed)
		return;
	rc = store_put(s->store, &probe, &err);
	sessions_lock(s);
	sessions_note_store(s, rc, &err);
	sessions_unlock(s);
}

/* The first that is due. Lock held. */
static bool take_job(struct sessions *s, struct finished *ret)
{
	uint64_t now_ns = clock_monotonic_ns();

	for (size_t i = 0; i < s->finished_count; i++) {
		if (s->finished[i].due_ns > now_ns)
			continue;
		*ret = s->finished[i];
		s->finished_count--;
		memmove(&s->finished[i], &s->finished[i + 1], (s->finished_count - i) * sizeof(*ret));
		return true;
	}
	return false;
}

static void put_back(struct sessions *s, const struct finished *job)
{
	sessions_scope(s);

	if (s->finished_count < FINISHED_MAX)
		s->finished[s->finished_count++] = *job;
}

static bool is_any_due(const struct sessions *s)
{
	uint64_t now_ns = clock_monotonic_ns();

	for (size_t i = 0; i < s->finished_count; i++)
		if (s->finished[i].due_ns <= now_ns)
			return true;
	return false;
}

static void wait_for_work(struct sessions *s)
{
	uint64_t until_ns = clock_monotonic_ns() + 5 * NS_PER_S;
	struct timespec until = { .tv_sec = (time_t)(until_ns / NS_PER_S),
				  .tv_nsec = (long)(until_ns % NS_PER_S) };

	if (!is_any_due(s) && !s->stopping)
		(void)pthread_cond_timedwait(&s->finisher_wake, &s->lock, &until);
}

/* A clock that is set ahead makes everything old at once. */
struct age_guard {
	struct clock_triple seen;
	uint64_t wait_ns; /* boottime: until then nothing is deleted for its age */
};

static bool may_expire(struct age_guard *guard)
{
	const struct clock_triple now = clock_now();
	int64_t set_ns = clock_set_ns(&guard->seen, &now);

	guard->seen = now;
	if (set_ns > CLOCK_JUMP_NS) {
		guard->wait_ns = now.boottime_ns + NS_PER_DAY;
		log_warn(
			"the clock was set forward by %.1f h: for a day nothing is deleted for its age",
			(double)set_ns / 3.6e12);
	} else if (set_ns < -CLOCK_JUMP_NS) {
		guard->wait_ns = 0;
	}
	return now.boottime_ns >= guard->wait_ns;
}

static void *finisher_main(void *ctx)
{
	struct sessions *s = ctx;
	struct age_guard guard = { .seen = clock_now() };
	uint64_t retention_at_ns = 0, reading_at_ns = 0;

	sessions_lock(s);
	while (!s->stopping) {
		struct finished job;
		bool has_job = take_job(s, &job);

		sessions_unlock(s);
		if (has_job && !keep_names_of_finished(s, &job))
			put_back(s, &job);
		keep_budget(s);
		probe_store(s, &reading_at_ns);
		day_names_look(s);
		service_labels_look(s);
		if (clock_monotonic_ns() >= retention_at_ns) {
			if (may_expire(&guard)) {
				expire_sessions(s);
				expire_abandoned(s);
				standing_expire(s);
				spans_expire(s);
				expire_watch(s);
				expire_records(s, USED_KEY_KIND, false,
					       clock_realtime_ns() - USED_KEYS_KEPT_NS);
			}
			retention_at_ns = clock_monotonic_ns() + RETENTION_EVERY_NS;
		}
		sessions_lock(s);
		wait_for_work(s);
	}
	sessions_unlock(s);
	return NULL;
}

int finisher_start(struct sessions *s)
{
	int rc = pthread_create(&s->finisher_thread, NULL, finisher_main, s);

	s->has_finisher_thread = rc == 0;
	return -rc;
}

void finisher_stop(struct sessions *s)
{
	if (s->has_finisher_thread)
		(void)pthread_join(s->finisher_thread, NULL);
	s->has_finisher_thread = false;
}
