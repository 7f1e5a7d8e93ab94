// SPDX-License-Identifier: Apache-2.0
/* A turn of the thread: find what has ended since the last turn, write each as a message into the
 * spool of every receiver that has not seen it, then send the oldest messages until the spool is
 * empty or the receiver is in trouble. Nothing is kept in memory between turns but when to try
 * again. */
#include "api/push/push.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/base/log.h"
#include "agent/base/parse.h"
#include "agent/base/text.h"
#include "agent/base/vec.h"
#include "agent/session/session.h"
#include "agent/store/store.h"
#include "api/push/push_http.h"
#include "api/push/push_message.h"
#include "api/push/push_spool.h"

#define TURN_NS		  (2 * NS_PER_S)
#define SPANS_EVERY_NS	  (60 * NS_PER_S) /* looking for finished spans opens day files */
#define SPAN_SETTLE_NS	  (90 * NS_PER_S) /* until the last minute of a span is whole */
#define SESSION_LONGEST_S 7200ull	  /* waiting and running, an hour each */
#define PATIENCE_NS	  (86400 * NS_PER_S) /* with what cannot be read or spooled */
#define BACKOFF_FIRST_NS  NS_PER_S
#define BACKOFF_MAX_NS	  (300 * NS_PER_S)
#define URL_MAX		  2048

struct receiver {
	const struct push_receiver *options;
	const struct push_kind *kind;
	char url[URL_MAX];
	struct push_spool *spool;
	uint64_t not_before_ns; /* monotonic: nothing is sent earlier */
	uint64_t backoff_ns;
	bool ready; /* the spool's list is on disk */
	struct log_limit limit;
	_Atomic uint64_t sent, rejected, refused, failed, unwritten, spool_bytes, dropped;
};

struct push {
	struct push_options options;
	struct push_receiver copies[PUSH_RECEIVERS_MAX];
	struct receiver receivers[PUSH_RECEIVERS_MAX];
	unsigned count;
	uint64_t spans_at_ns; /* monotonic: when spans are looked for again */
	bool missed;	      /* by the turn under way: something could not be read or spooled */
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	bool started;
	atomic_bool stop;
};

/* ---- what has ended -------------------------------------------------------------------------- */

static int put_message(struct receiver *r, const struct session_info *info, const struct profile *p)
{
	struct buf message = { .max = PUSH_MESSAGE_MAX };
	int rc = r->kind->write(p, info, &message);

	if (rc == 0)
		rc = push_spool_put(r->spool, info->id, message.data, message.len);
	if (rc == 0 || rc == -EFBIG) {
		rc = push_spool_mark(r->spool, info->id, info->created_at_ns);
		/* A session that is not listed as spooled would be sent again and again. */
		if (rc < 0)
			push_spool_remove(r->spool, info->id);
	}
	if (rc < 0) {
		atomic_fetch_add(&r->unwritten, 1);
		if (log_allowed(&r->limit))
			log_warn("export %s: session %s cannot be spooled: %s; tried again later",
				 r->options->name, info->id, strerror(-rc));
	}
	buf_deinit(&message);
	return rc;
}

static bool is_due(const struct receiver *r, const struct session_info *info, uint64_t now_ns)
{
	if (info->status == SESSION_RUNNING || push_spool_seen(r->spool, info->id))
		return false;
	if (info->continuous && info->completed_at_ns + SPAN_SETTLE_NS > now_ns)
		return false;
	return info->completed_at_ns >= push_spool_since_ns(r->spool);
}

/* An error that may go away: a store that is away, a disk that is full. */
static void note_failure(struct push *push, int rc)
{
	push->missed |= rc == -EIO || rc == -ENOSPC;
}

/* Failed sessions have nothing to send and are not looked at again. */
static void offer(struct push *push, const struct session_info *info, uint64_t now_ns)
{
	cleanup(profile) struct profile *p = NULL;
	struct err err = { 0 };
	int rc = 0;

	for (unsigned i = 0; i < push->count && !atomic_load(&push->stop); i++) {
		struct receiver *r = &push->receivers[i];

		if (!is_due(r, info, now_ns))
			continue;
		if (info->status == SESSION_FAILED) {
			(void)!push_spool_mark(r->spool, info->id, info->created_at_ns);
			continue;
		}
		if (!p)
			rc = sessions_profile(push->options.sessions, info->tenant, info->id, &p, &err);
		if (rc == 0)
			note_failure(push, put_message(r, info, p));
		/* Deleted meanwhile, or not readable now: the next turn sees. */
		note_failure(push, rc);
		if (rc < 0)
			return;
	}
}

/* Records of the store: what may be new, gathered before anything is done with it. */
struct candidate {
	char tenant[TENANT_NAME_SIZE];
	char id[SESSION_ID_SIZE];
};

VEC_DEFINE(candidates, struct candidate);

struct search {
	struct push *push;
	struct candidates_vec found;
};

static int add_session(void *ctx, const struct store_record *record)
{
	struct search *search = ctx;
	struct candidate candidate;

	if (strcmp(record->status, "running") == 0)
		return 0;
	(void)snprintf(candidate.tenant, sizeof(candidate.tenant), "%s", record->tenant);
	(void)snprintf(candidate.id, sizeof(candidate.id), "%s", record->id);
	for (unsigned i = 0; i < search->push->count; i++)
		if (!push_spool_seen(search->push->receivers[i].spool, candidate.id))
			return candidates_vec_push(&search->found, candidate);
	return 0;
}

/* Each tenant once; there are few. */
static int add_tenant(void *ctx, const struct store_record *record)
{
	struct search *search = ctx;
	struct candidate candidate = { 0 };

	for (size_t i = 0; i < search->found.count; i++)
		if (strcmp(search->found.data[i].tenant, record->tenant) == 0)
			return 0;
	(void)snprintf(candidate.tenant, sizeof(candidate.tenant), "%s", record->tenant);
	return candidates_vec_push(&search->found, candidate);
}

static void find(struct search *search, const char *kind, uint64_t from_ns, store_visit_fn *visit)
{
	const struct store_query query = { .kind = kind, .from_ns = from_ns };
	struct err err = { 0 };

	if (store_list(search->push->options.store, &query, visit, search, NULL, &err) == 0)
		return;
	search->push->missed = true;
	log_debug("export: the store cannot be read: %s", err.text);
}

static void offer_sessions(struct push *push, uint64_t from_ns, uint64_t now_ns)
{
	struct search search = { .push = push };

	find(&search, "session", from_ns, add_session);
	for (size_t i = 0; i < search.found.count && !atomic_load(&push->stop); i++) {
		const struct candidate *c = &search.found.data[i];
		struct session_info info = { 0 };
		struct err err = { 0 };
		int rc = sessions_get(push->options.sessions, c->tenant, c->id, &info, &err);

		note_failure(push, rc);
		if (rc < 0)
			continue;
		offer(push, &info, now_ns);
		session_info_deinit(&info);
	}
	candidates_vec_deinit(&search.found);
}

static void offer_spans_of(struct push *push, const char *tenant, uint64_t from_ns, uint64_t now_ns)
{
	char cursor[sizeof(((struct session_list *)0)->next_cursor)] = "";
	/* Each host sends its own. */
	struct session_query query = { .tenant = tenant,
				       .type = -1,
				       .status = SESSION_COMPLETED,
				       .own = true,
				       .from_ns = from_ns,
				       .limit = 100 };
	struct err err = { 0 };

	do {
		struct session_list list = { 0 };

		query.cursor = cursor[0] ? cursor : NULL;
		if (sessions_list(push->options.sessions, &query, &list, &err) < 0) {
			push->missed = true;
			return;
		}
		for (uint32_t i = 0; i < list.count; i++)
			if (list.items[i].continuous)
				offer(push, &list.items[i], now_ns);
		memcpy(cursor, list.next_cursor, sizeof(cursor));
		session_list_deinit(&list);
	} while (cursor[0] && !atomic_load(&push->stop));
}

static void offer_spans(struct push *push, uint64_t from_ns, uint64_t now_ns)
{
	struct search search = { .push = push };

	find(&search, "continuous", 0, add_tenant);
	for (size_t i = 0; i < search.found.count && !atomic_load(&push->stop); i++)
		offer_spans_of(push, search.found.data[i].tenant, from_ns, now_ns);
	candidates_vec_deinit(&search.found);
}

/* Finds the sessions that ended since the earliest receiver looked, at most so long ago. Nothing is
 * sent from a spool whose list could not be written: after a crash it would be sent again. */
static void collect(struct push *push)
{
	uint64_t now_ns = clock_realtime_ns(), since_ns = now_ns, at_ns = clock_monotonic_ns();
	uint64_t longest_ns = SESSION_LONGEST_S * NS_PER_S + SPAN_SETTLE_NS, from_ns, behind_ns;
	bool spans = at_ns >= push->spans_at_ns;

	for (unsigned i = 0; i < push->count; i++)
		if (push_spool_since_ns(push->receivers[i].spool) < since_ns)
			since_ns = push_spool_since_ns(push->receivers[i].spool);
	if (push->options.span_ns > SESSION_LONGEST_S * NS_PER_S)
		longest_ns = push->options.span_ns + SPAN_SETTLE_NS;
	from_ns = since_ns > longest_ns ? since_ns - longest_ns : 0;
	push->missed = false;
	offer_sessions(push, from_ns, now_ns);
	if (spans) {
		push->spans_at_ns = at_ns + SPANS_EVERY_NS;
		offer_spans(push, from_ns, now_ns);
	}
	/* A session that cannot be read for a day is given up. */
	behind_ns = push->missed ? PATIENCE_NS : 2 * SPAN_SETTLE_NS;
	for (unsigned i = 0; i < push->count; i++) {
		struct push_spool *spool = push->receivers[i].spool;
		uint64_t seen_ns = push_spool_since_ns(spool);

		/* Only a turn that saw everything may move on, and what settles is looked at again. */
		if (spans && !atomic_load(&push->stop) && now_ns > seen_ns + behind_ns)
			seen_ns = now_ns - behind_ns;
		push->receivers[i].ready = push_spool_commit(spool, seen_ns, from_ns) == 0;
	}
}

/* ---- sending --------------------------------------------------------------------------------- */

static void back_off(struct receiver *r, const struct push_answer *answer)
{
	uint64_t wait_ns = answer->retry_after_s * NS_PER_S, now_ns = clock_monotonic_ns();

	r->backoff_ns = r->backoff_ns ? r->backoff_ns * 2 : BACKOFF_FIRST_NS;
	if (r->backoff_ns > BACKOFF_MAX_NS)
		r->backoff_ns = BACKOFF_MAX_NS;
	/* Up to a quarter more, so that many agents do not come back at once. */
	if (!wait_ns)
		wait_ns = r->backoff_ns + hash_mix64(now_ns) % (r->backoff_ns / 4);
	if (wait_ns > 24 * 3600 * NS_PER_S)
		wait_ns = 24 * 3600 * NS_PER_S;
	r->not_before_ns = now_ns + wait_ns;
	atomic_fetch_add(&r->failed, 1);
	if (log_allowed(&r->limit))
		log_warn("export %s: %s (HTTP %ld); the next try is in %llu s",
			 r->options->name, answer->text[0] ? answer->text : "no success",
			 answer->status, (unsigned long long)(wait_ns / NS_PER_S));
}

static void count_answer(struct receiver *r, enum push_result result,
			 const struct push_answer *answer)
{
	if (result == PUSH_REFUSED)
		atomic_fetch_add(&r->refused, 1);
	else
		atomic_fetch_add(&r->sent, 1);
	atomic_fetch_add(&r->rejected, answer->rejected);
	if ((result == PUSH_REFUSED || answer->rejected) && log_allowed(&r->limit))
		log_warn("export %s: the receiver refused a session%s: %s (HTTP %ld)",
			 r->options->name, answer->rejected ? " in part" : "", answer->text,
			 answer->status);
}

/* True if there may be more to send now. */
static bool send_one(struct push *push, struct receiver *r)
{
	const struct push_target target = {
		.url = r->url,
		.content_type = r->kind->content_type,
		.token_file = r->options->token_file,
		.packed = r->kind->packed,
		.otlp = r->kind->otlp,
		.stop = &push->stop,
	};
	struct push_answer answer;
	enum push_result result;
	cleanup_free char *data = NULL;
	char name[PUSH_NAME_SIZE];
	size_t len = 0;

	if (!r->ready || clock_monotonic_ns() < r->not_before_ns || push_spool_first(r->spool, name) < 0 ||
	    push_spool_read(r->spool, name, &data, &len) < 0)
		return false;
	result = push_send(&target, data, len, &answer);
	if (atomic_load(&push->stop) && result == PUSH_LATER)
		return false;
	if (result == PUSH_LATER) {
		back_off(r, &answer);
		return false;
	}
	push_spool_remove(r->spool, name);
	r->backoff_ns = 0;
	count_answer(r, result, &answer);
	return true;
}

static void *run(void *arg)
{
	struct push *push = arg;

	while (!atomic_load(&push->stop)) {
		uint64_t until_ns = clock_monotonic_ns() + TURN_NS;
		struct timespec until = { (time_t)(until_ns / NS_PER_S), (long)(until_ns % NS_PER_S) };

		collect(push);
		for (unsigned i = 0; i < push->count; i++) {
			struct receiver *r = &push->receivers[i];

			while (!atomic_load(&push->stop) && send_one(push, r))
				;
			atomic_store(&r->spool_bytes, push_spool_bytes(r->spool));
			atomic_store(&r->dropped, push_spool_dropped(r->spool));
		}
		(void)pthread_mutex_lock(&push->lock);
		if (!atomic_load(&push->stop))
			(void)pthread_cond_timedwait(&push->wake, &push->lock, &until);
		(void)pthread_mutex_unlock(&push->lock);
	}
	return NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

/* "http://host:4318" -> with the path that receivers of the kind listen on. */
static int complete_url(struct receiver *r, struct err *err)
{
	const char *url = r->options->url, *at = strstr(url, "://");
	const char *path = at ? strchr(at + 3, '/') : NULL;
	size_t len = strlen(url);

	if ((!text_begins(url, "http://") && !text_begins(url, "https://")) || !at[3])
		return err_set(err, EINVAL, NULL, "url",
			       "[export %s] url must begin with http:// or https://, got '%.200s'",
			       r->options->name, url);
	if (path && path[1])
		(void)snprintf(r->url, sizeof(r->url), "%s", url);
	else
		(void)snprintf(r->url, sizeof(r->url), "%.*s%s", (int)(path ? len - 1 : len), url,
			       r->kind->path);
	return len + 64 < sizeof(r->url) ? 0
					 : err_set(err, E2BIG, NULL, "url", "[export %s] url is too long",
						   r->options->name);
}

static int open_receiver(struct push *push, const struct push_receiver *options, struct err *err)
{
	struct receiver *r = &push->receivers[push->count];
	cleanup_free char *path = NULL;
	int rc;

	push->copies[push->count] = *options;
	r->options = &push->copies[push->count++];
	r->limit.burst = 5;
	r->kind = push_kind_find(options->kind);
	if (!r->kind || !parse_is_name(options->name) || options->name[0] == '.')
		return err_set(err, EINVAL, NULL, "export", "[export %s] needs a plain name and a kind",
			       options->name);
	rc = complete_url(r, err);
	if (rc < 0)
		return rc;
	if (asprintf(&path, "%s/spool", push->options.data_dir) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return err_set(err, errno, NULL, "export", "cannot make %s: %s", path, strerror(errno));
	free(path);
	path = NULL;
	if (asprintf(&path, "%s/spool/%s", push->options.data_dir, options->name) < 0) {
		path = NULL;
		return -ENOMEM;
	}
	return push_spool_open(path, options->spool_bytes, &r->spool, err);
}

static int start_thread(struct push *push)
{
	pthread_condattr_t attr;
	int rc;

	(void)pthread_mutex_init(&push->lock, NULL);
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&push->wake, &attr);
	(void)pthread_condattr_destroy(&attr);
	rc = pthread_create(&push->thread, NULL, run, push);
	push->started = rc == 0;
	return -rc;
}

int push_create(const struct push_options *options, struct push **ret, struct err *err)
{
	cleanup(push) struct push *push = NULL;
	int rc = 0;

	*ret = NULL;
	if (!options->receiver_count)
		return 0;
	push = calloc(1, sizeof(*push));
	if (!push)
		return -ENOMEM;
	push->options = *options;
	for (unsigned i = 0; rc == 0 && i < options->receiver_count && i < PUSH_RECEIVERS_MAX; i++)
		rc = open_receiver(push, &options->receivers[i], err);
	if (rc == 0)
		rc = start_thread(push);
	if (rc < 0)
		return rc;
	*ret = take_ptr(push);
	return 0;
}

void push_destroy(struct push *push)
{
	if (!push)
		return;
	if (push->started) {
		(void)pthread_mutex_lock(&push->lock);
		atomic_store(&push->stop, true);
		(void)pthread_cond_signal(&push->wake);
		(void)pthread_mutex_unlock(&push->lock);
		(void)pthread_join(push->thread, NULL);
		(void)pthread_cond_destroy(&push->wake);
		(void)pthread_mutex_destroy(&push->lock);
	}
	for (unsigned i = 0; i < push->count; i++)
		push_spool_close(push->receivers[i].spool);
	free(push);
}

/* ---- metrics --------------------------------------------------------------------------------- */

static void metric(struct push *push, struct buf *out, const char *name, const char *type,
		   const char *help, size_t offset)
{
	buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
	for (unsigned i = 0; i < push->count; i++) {
		struct receiver *r = &push->receivers[i];
		_Atomic uint64_t *value = (void *)((char *)r + offset);

		buf_printf(out, "%s{receiver=\"%s\"} %" PRIu64 "\n", name, r->options->name,
			   atomic_load(value));
	}
}

void push_metrics(struct push *push, struct buf *out)
{
	if (!push)
		return;
	metric(push, out, "profd_export_sent_total", "counter", "Sessions the receiver took.",
	       offsetof(struct receiver, sent));
	metric(push, out, "profd_export_rejected_profiles_total", "counter",
	       "Profiles rejected in sessions that were taken.", offsetof(struct receiver, rejected));
	metric(push, out, "profd_export_refused_total", "counter",
	       "Sessions the receiver will never take.", offsetof(struct receiver, refused));
	metric(push, out, "profd_export_failures_total", "counter",
	       "Tries that ended without an answer or with one that asks for another try.",
	       offsetof(struct receiver, failed));
	metric(push, out, "profd_export_dropped_total", "counter",
	       "Sessions dropped because the spool was full.", offsetof(struct receiver, dropped));
	metric(push, out, "profd_export_unwritten_total", "counter",
	       "Tries to spool a session that failed.", offsetof(struct receiver, unwritten));
	metric(push, out, "profd_export_spool_bytes", "gauge", "Bytes waiting to be sent.",
	       offsetof(struct receiver, spool_bytes));
}
