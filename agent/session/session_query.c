// SPDX-License-Identifier: Apache-2.0
/* Reading sessions: what runs from memory, what is finished from the store; deleting and waiting.
 */
#include <errno.h>
#include <string.h>

#include "agent/profile/quality.h"
#include "agent/session/continuous.h"
#include "agent/session/alloc_session.h"
#include "agent/session/hosts.h"
#include "agent/session/list_cursor.h"
#include "agent/session/session_record.h"
#include "agent/session/sessions_internal.h"

static int unknown_session(struct err *err, const char *id)
{
	return err_set(err, ENOENT, "UnknownSession", NULL, "no session '%.64s'", id);
}

/* Its end is not known: whoever runs it has gone for good. */
#define GONE_NS (2 * 3600 * NS_PER_S)

/* ---- describing what runs -------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
	const struct session_process *x = a, *y = b;

	if (x->value != y->value)
		return x->value > y->value ? -1 : 1;
	return x->pid < y->pid ? -1 : x->pid > y->pid;
}

/* Lives of one process side by side, in the order in which they began. */
static int by_process(const void *a, const void *b)
{
	const struct recorder_process *x = *(const struct recorder_process *const *)a;
	const struct recorder_process *y = *(const struct recorder_process *const *)b;

	if (x->tgid != y->tgid)
		return x->tgid < y->tgid ? -1 : 1;
	if (x->started_at_ns != y->started_at_ns)
		return x->started_at_ns < y->started_at_ns ? -1 : 1;
	return x < y ? -1 : x > y;
}

/* What a process was before and after an exec is two lives but one pid and start: shown as one, by
 * its last name. */
static int describe_processes(const struct recorder *recorder, struct session_info *ret)
{
	size_t count = recorder_process_count(recorder), shown = 0;
	cleanup_free const struct recorder_process **lives = calloc(count + 1, sizeof(*lives));

	ret->processes = lives ? calloc(count + 1, sizeof(*ret->processes)) : NULL;
	if (!ret->processes)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		lives[i] = recorder_process(recorder, i);
	qsort(lives, count, sizeof(*lives), by_process);
	for (size_t i = 0; i < count; i++) {
		const struct recorder_process *from = lives[i];
		struct session_process *to;

		if (!i || from->tgid != lives[i - 1]->tgid ||
		    from->started_at_ns != lives[i - 1]->started_at_ns)
			shown++;
		to = &ret->processes[shown - 1];
		to->pid = from->tgid;
		to->started_at_ns = from->started_at_ns;
		to->value += from->value;
		memcpy(to->exe, from->exe, sizeof(to->exe));
	}
	qsort(ret->processes, shown, sizeof(*ret->processes), by_value);
	ret->process_count =
		shown < SESSION_PROCESSES_SHOWN ? (uint32_t)shown : SESSION_PROCESSES_SHOWN;
	return 0;
}

/* Losses are known for the host; each session bears its share, and learns nothing about the
 * others'. */
static int64_t share_of_losses(const struct chunk_quality *quality, uint64_t host_samples,
			       uint64_t host_lost)
{
	if (!host_lost || !host_samples)
		return 0;
	return (int64_t)((double)host_lost * (double)quality->samples / (double)host_samples +
			 0.999);
}

/* Of a session that is sampled from goroutine states. */
static void describe_snapshots(const struct sessions *s, const struct chunk_quality *quality,
			       struct profile_quality *to)
{
	double ns = (double)quality->cost_to_ns - (double)quality->cost_from_ns;

	if (!(ns > 0))
		return;
	to->effective_rate = (double)quality->value2 / ns * 1e9;
	if (s->feed.cpu_count)
		to->overhead_pct = 100.0 * (double)quality->cost_ns / ns / s->feed.cpu_count;
}

static void describe_quality(const struct sessions *s, const struct session *session,
			     struct session_info *ret)
{
	const struct chunk_quality *quality = recorder_counters(session->recorder);
	struct profile_quality *to = &ret->quality;
	unsigned type = session_sample_type(session);
	uint64_t host_samples = session->host_samples_before, host_lost = session->host_lost_before;

	if (session->start_ns) {
		host_samples += s->host_samples[type] - session->host_samples_from;
		host_lost += s->host_lost - session->host_lost_from;
	}
	*to = quality_empty();
	for (uint32_t i = 0; i < quality->note_count; i++)
		quality_note(to, "%s", quality->notes[i]);
	for (uint32_t i = 0; i < quality->skipped_count; i++)
		quality_skip(to, quality->skipped[i].pid, quality->skipped[i].reason);
	to->samples = (int64_t)quality->samples;
	if (session->reads) {
		to->lost = -1;
		if (session->info.source == PROFILE_SOURCE_STATES)
			describe_snapshots(s, quality, to);
		return;
	}
	alloc_session_quality(s, quality, to);
	to->lost = share_of_losses(quality, host_samples, host_lost);
	recorder_outcomes(session->recorder, to->outcomes);
	to->truncated_pct =
		quality->samples ? 100.0 * (double)to->outcomes[1] / (double)quality->samples : 0;
	to->unknown_frame_pct = to->guessed_frame_pct = -1;
	to->effective_rate = -1;
	if (quality->on_cpu_ns)
		to->effective_rate = (double)quality->on_cpu_samples / ((double)quality->on_cpu_ns / 1e9);
	if (quality->cost_to_ns > quality->cost_from_ns && s->feed.cpu_count) {
		double percent = 100.0 / (double)(quality->cost_to_ns - quality->cost_from_ns) / s->feed.cpu_count;

		to->overhead_pct = (double)quality->cost_ns * percent;
		if (s->feed.programs.time_ns && session->wants & (PROF_WANT_CPU | PROF_WANT_OFFCPU))
			to->type_overhead_pct = (double)quality->type_cost_ns * percent;
	}
}

int session_describe(const struct sessions *s, const struct session *session,
		     struct session_info *ret)
{
	const struct chunk_quality *quality = recorder_counters(session->recorder);
	struct session_info info = session->info;
	uint64_t now_ns = clock_monotonic_ns();

	info.processes = NULL;
	info.labels = NULL;
	info.process_count = 0;
	if (describe_processes(session->recorder, &info) < 0)
		return -ENOMEM;
	if (info.label_count) {
		info.labels = calloc(info.label_count, sizeof(*info.labels));
		if (!info.labels) {
			session_info_deinit(&info);
			return -ENOMEM;
		}
		memcpy(info.labels, session->info.labels, info.label_count * sizeof(*info.labels));
	}
	info.sample_count = quality->samples;
	info.total_value = quality->value;
	if (session_is_running(session)) {
		uint64_t last_ns = now_ns < session->end_ns ? now_ns : session->end_ns;

		info.status = SESSION_RUNNING;
		if (session->start_ns && last_ns > session->start_ns)
			info.duration_ns = last_ns - session->start_ns;
	}
	describe_quality(s, session, &info);
	*ret = info;
	return 0;
}

/* ---- one ------------------------------------------------------------------------------------- */
static int get_span(struct sessions *s, const char *tenant, const char *id,
		    struct session_info *ret, struct err *err)
{
	int rc = spans_find(s, tenant, id, ret, err);

	return rc == -ENOENT ? unknown_session(err, id) : rc;
}

int session_look(struct sessions *s, const char *tenant, const char *id, struct session_info *ret, struct err *err)
{
	const struct session *session;
	int rc;

	sessions_lock(s);
	session = session_find(s, tenant, id);
	/* Deleted while its record was written: it is not seen again until that is gone, too. */
	rc = !session ? 0 : session->discard ? -ENOENT : session_describe(s, session, ret);
	sessions_unlock(s);
	if (rc == -ENOENT)
		return unknown_session(err, id);
	if (rc < 0)
		return err_set(err, ENOMEM, NULL, NULL, "no memory to describe a session");
	return session ? 1 : 0;
}

int sessions_get(struct sessions *s, const char *tenant, const char *id, struct session_info *ret,
		 struct err *err)
{
	cleanup_free char *body = NULL;
	size_t len;
	int rc = session_look(s, tenant, id, ret, err);

	if (rc < 0)
		return rc;
	if (rc > 0) {
		ret->raw_data_bytes = store_session_bytes(s->store, id);
		return 0;
	}
	rc = store_get(s->store, SESSION_RECORD_KIND, tenant, id, &body, &len, err);
	if (rc == -ENOENT)
		return get_span(s, tenant, id, ret, err);
	if (rc < 0)
		return rc;
	rc = session_record_decode(body, len, ret, NULL);
	if (rc < 0)
		return err_set(err, -rc, "StoreUnavailable", NULL,
			       "the record of %s cannot be read", id);
	hosts_settle_running(s, ret);
	if (!ret->raw_data_bytes && store_is_shared(s->store))
		ret->raw_data_bytes = store_session_bytes(s->store, id);
	return 0;
}

/* Only its own host can stop it. One that should have ended long ago runs nowhere. */
static int check_elsewhere(const struct sessions *s, const struct session_info *info, struct err *err)
{
	uint64_t longest_ns = info->requested_duration_s * NS_PER_S + GONE_NS;

	if (info->status != SESSION_RUNNING || hosts_is_own(s, info->host) ||
	    clock_realtime_ns() > info->created_at_ns + longest_ns)
		return 0;
	return err_set(err, EBUSY, "NotFinished", NULL, "session %s runs on host '%.64s': stop it there", info->id,
		       info->host);
}

/* Also of a span that is being filled: continuous profiling goes on, this view of it is gone. */
static int delete_span(struct sessions *s, const char *tenant, const char *id, bool *ret_stopped,
		       struct err *err)
{
	struct session_info span;
	int rc = spans_find(s, tenant, id, &span, err);

	if (rc == -ENOENT)
		return unknown_session(err, id);
	if (rc == 0)
		rc = spans_delete(s, &span, err);
	if (rc == 0)
		*ret_stopped = false;
	return rc;
}

int sessions_delete(struct sessions *s, const char *tenant, const char *id, bool *ret_stopped,
		    struct err *err)
{
	struct session_info info;
	struct session *session;
	int rc;

	sessions_lock(s);
	session = session_find(s, tenant, id);
	if (session && session_is_running(session)) {
		session->stop = true;
		sessions_unlock(s);
		sessions_wake(s);
		*ret_stopped = true;
		return 0;
	}
	/* Ended, but its record is being written or waits for room on the disk: it must not come
	 * back. */
	if (session && session->discard) {
		sessions_unlock(s);
		return unknown_session(err, id);
	}
	if (session)
		session->discard = session->saved = true;
	sessions_unlock(s);
	if (!session) {
		rc = sessions_get(s, tenant, id, &info, err);
		if (rc < 0)
			return rc;
		session_info_deinit(&info);
		if (session_info_is_span(&info))
			return delete_span(s, tenant, id, ret_stopped, err);
		rc = check_elsewhere(s, &info, err);
		if (rc < 0)
			return rc;
	}
	(void)pthread_mutex_lock(&s->file_lock);
	rc = store_delete(s->store, SESSION_RECORD_KIND, tenant, id, err);
	if (rc == 0)
		rc = store_session_remove(s->store, id, err);
	(void)pthread_mutex_unlock(&s->file_lock);
	profile_cache_drop(&s->cache, id);
	if (rc == 0)
		*ret_stopped = false;
	return rc;
}

static bool is_waited_for(const struct sessions *s, const char *tenant, const char *id,
			  bool started)
{
	const struct session *session = session_find(s, tenant, id);

	if (!session)
		return false;
	/* Ended is who is stored as such, or cannot be stored. */
	if (!session_is_running(session))
		return !session->save_failed && !session->discard;
	return !started || session->phase < PHASE_SAMPLING;
}

static int wait_for(struct sessions *s, const char *tenant, const char *id, uint64_t timeout_ns,
		    bool started, struct err *err)
{
	uint64_t until_ns = clock_monotonic_ns() + timeout_ns;
	struct timespec until = { .tv_sec = (time_t)(until_ns / NS_PER_S),
				  .tv_nsec = (long)(until_ns % NS_PER_S) };
	struct session_info info;
	int rc = 0;

	sessions_lock(s);
	while (!s->stopping && is_waited_for(s, tenant, id, started) && rc == 0)
		rc = pthread_cond_timedwait(&s->changed, &s->lock, &until);
	sessions_unlock(s);
	if (rc == ETIMEDOUT)
		return err_set(err, ETIMEDOUT, NULL, NULL, "session %s is still %s", id,
			       started ? "waiting to start" : "running");
	rc = sessions_get(s, tenant, id, &info, err);
	if (rc == 0)
		session_info_deinit(&info);
	return rc;
}

int sessions_wait(struct sessions *s, const char *tenant, const char *id, uint64_t timeout_ns,
		  struct err *err)
{
	return wait_for(s, tenant, id, timeout_ns, false, err);
}

int sessions_wait_started(struct sessions *s, const char *tenant, const char *id,
			  uint64_t timeout_ns, struct err *err)
{
	return wait_for(s, tenant, id, timeout_ns, true, err);
}

/* ---- many ------------------------------------------------------------------------------------ */

struct collect {
	struct session_list *list;
	uint32_t limit;
	bool more;
};

static int collect_session(void *ctx, const struct store_record *record)
{
	struct collect *collect = ctx;
	struct session_info info;
	int rc;

	if (collect->list->count == collect->limit) {
		collect->more = true;
		return 0;
	}
	rc = session_record_decode(record->body, record->body_len, &info, NULL);
	if (rc == -EPROTO)
		return 0; /* one unreadable record does not hide the others */
	if (rc == 0)
		collect->list->items[collect->list->count++] = info;
	return rc;
}

/* What the store says of a running session is as old as its start. */
static void refresh_running(struct sessions *s, struct session_list *list)
{
	sessions_scope(s);

	for (uint32_t i = 0; i < list->count; i++) {
		const struct session *session;
		struct session_info fresh;

		if (list->items[i].status != SESSION_RUNNING)
			continue;
		hosts_settle_running(s, &list->items[i]);
		session = session_find(s, list->items[i].tenant, list->items[i].id);
		if (!session || session_describe(s, session, &fresh) < 0)
			continue;
		session_info_deinit(&list->items[i]);
		list->items[i] = fresh;
	}
}

int sessions_list_on_demand(struct sessions *s, const struct session_query *query,
			    struct session_list *ret, struct err *err)
{
	struct session_list list = { 0 };
	struct collect collect = { &list, query->limit, false };
	struct store_query rows = {
		.kind = SESSION_RECORD_KIND,
		.tenant = query->tenant,
		.service = query->service && strcmp(query->service, "*") == 0 ? "host"
									      : query->service,
		.type = query->type >= 0 ? profile_type_info((enum profile_type)query->type)->word
					 : NULL,
		.status = query->status >= 0
				  ? session_status_word((enum session_status)query->status)
				  : NULL,
		.from_ns = query->from_ns,
		.to_ns = query->to_ns,
		.limit = query->limit + 1,
		.every_host = !query->own,
	};
	int rc;

	if (query->limit < 1 || query->limit > 100)
		return err_set(err, EINVAL, "InvalidParam", "limit", "must be 1…100, got %u",
			       query->limit);
	rc = list_cursor_parse(query->cursor, &rows.before_ns, &rows.before_id, err);
	if (rc < 0)
		return rc;
	list.items = calloc(query->limit + 1, sizeof(*list.items));
	if (!list.items)
		return err_set(err, ENOMEM, NULL, NULL, "no memory for a list");
	rc = store_list(s->store, &rows, collect_session, &collect, &list.total, err);
	if (rc < 0) {
		session_list_deinit(&list);
		return rc;
	}
	refresh_running(s, &list);
	if (collect.more) {
		const struct session_info *last = &list.items[list.count - 1];

		list_cursor_write(list.next_cursor, sizeof(list.next_cursor), last->created_at_ns, last->id);
	}
	*ret = list;
	return 0;
}

/* Items of the page that lie behind the cursor, newest first; on equal times larger ids first. */
static bool is_before(uint64_t a_ns, const char *a_id, uint64_t b_ns, const char *b_id)
{
	return a_ns != b_ns ? a_ns > b_ns : strcmp(a_id, b_id) > 0;
}

/* The first span behind the cursor. */
static size_t first_span(const struct span_list *spans, const struct store_query *cursor)
{
	size_t span = 0;

	for (; cursor->before_id && span < spans->count; span++) {
		uint64_t from_ns = spans->data[span].from_ns;
		char id[SESSION_ID_SIZE] = "";

		if (from_ns == cursor->before_ns)
			span_id(spans, &spans->data[span], id);
		if (is_before(cursor->before_ns, cursor->before_id, from_ns, id))
			break;
	}
	return span;
}

static int merge_spans(const struct sessions *s, const char *tenant, const struct span_list *spans,
		       const struct store_query *cursor, uint32_t limit, struct session_list *list)
{
	struct session_info *merged = calloc(limit + 1, sizeof(*merged));
	size_t span = first_span(spans, cursor);
	uint32_t own = 0, count = 0;

	if (!merged)
		return -ENOMEM;
	while (count < limit && (own < list->count || span < spans->count)) {
		const struct session_info *next = own < list->count ? &list->items[own] : NULL;
		const struct span *view = span < spans->count ? &spans->data[span] : NULL;
		char id[SESSION_ID_SIZE];

		if (next && view)
			span_id(spans, view, id);
		if (next && (!view || is_before(next->created_at_ns, next->id, view->from_ns, id)))
			merged[count++] = list->items[own++];
		else
			span_describe(s, tenant, spans, &spans->data[span++], &merged[count++]);
	}
	if (own < list->count || span < spans->count || spans->more || list->next_cursor[0])
		list_cursor_write(list->next_cursor, sizeof(list->next_cursor), merged[count - 1].created_at_ns, merged[count - 1].id);
	for (; own < list->count; own++)
		session_info_deinit(&list->items[own]);
	free(list->items);
	list->items = merged;
	list->count = count;
	list->total += spans->total;
	return 0;
}

int sessions_list(struct sessions *s, const struct session_query *query, struct session_list *ret,
		  struct err *err)
{
	struct span_query views = { .tenant = query->tenant,
				    .service = query->service,
				    .type = query->type,
				    .status = query->status,
				    .own = query->own,
				    .from_ns = query->from_ns,
				    .to_ns = query->to_ns,
				    .limit = query->limit };
	struct store_query cursor = { 0 };
	struct span_list spans = { 0 };
	struct session_list list;
	int rc = sessions_list_on_demand(s, query, &list, err);

	if (rc < 0)
		return rc;
	rc = list_cursor_parse(query->cursor, &cursor.before_ns, &cursor.before_id, err);
	views.before_ns = cursor.before_ns;
	if (rc == 0)
		rc = spans_collect(s, &views, &spans, err);
	if (rc == 0 && spans.total && merge_spans(s, query->tenant, &spans, &cursor, query->limit, &list) < 0)
		rc = err_set(err, ENOMEM, NULL, NULL, "no memory for a list");
	span_list_deinit(&spans);
	if (rc < 0)
		session_list_deinit(&list);
	else
		*ret = list;
	return rc;
}

void session_list_deinit(struct session_list *list)
{
	for (uint32_t i = 0; i < list->count; i++)
		session_info_deinit(&list->items[i]);
	free(list->items);
	*list = (struct session_list){ 0 };
}
