// SPDX-License-Identifier: Apache-2.0
#include "agent/session/core/session_query.h"

#include <errno.h>
#include <string.h>

#include "agent/profile/quality.h"
#include "agent/session/core/alloc_session.h"
#include "agent/session/core/used_keys.h"
#include "agent/session/records/hosts.h"
#include "agent/session/records/session_record.h"
#include "bpf/outcome.h"

/* Its end is not known: whoever runs it has gone for good. */
#define GONE_NS (2 * 3600 * NS_PER_S)

int session_unknown(struct err *err, const char *id)
{
	return err_set(err, ENOENT, "UnknownSession", NULL, "no session '%.64s'", id);
}

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

/* A process before and after an exec is two process instances but one pid and start. It is shown as
 * one, by its last name. */
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
		(void)snprintf(to->exe, sizeof(to->exe), "%s", from->exe);
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

/* Describes a session that is sampled from goroutine states. */
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
		quality->samples ? 100.0 * (double)to->outcomes[OUTCOME_truncated] / (double)quality->samples : 0;
	to->unknown_frame_pct = to->guessed_frame_pct = -1;
	to->effective_rate = -1;
	if (quality->on_cpu_ns)
		to->effective_rate = (double)quality->on_cpu_samples / ((double)quality->on_cpu_ns / 1e9);
	if (quality->cost_to_ns > quality->cost_from_ns && s->feed.cpu_count) {
		double percent = 100.0 / (double)(quality->cost_to_ns - quality->cost_from_ns) /
				 s->feed.cpu_count;

		to->overhead_pct = (double)quality->cost_ns * percent;
		if (s->feed.programs.time_ns &&
		    session->wants & (PROF_WANT_CPU | PROF_WANT_OFFCPU | PROF_WANT_FAULTS))
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

int session_look(struct sessions *s, const char *tenant, const char *id, struct session_info *ret,
		 struct err *err)
{
	const struct session *session;
	int rc;

	sessions_lock(s);
	session = session_find(s, tenant, id);
	/* Deleted while its record was written: it is not seen again until that is gone, too. */
	rc = !session ? 0 : session->discard ? -ENOENT : session_describe(s, session, ret);
	sessions_unlock(s);
	if (rc == -ENOENT)
		return session_unknown(err, id);
	if (rc < 0)
		return err_set(err, ENOMEM, NULL, NULL, "no memory to describe a session");
	return session ? 1 : 0;
}

/* ---- one ------------------------------------------------------------------------------------- */

int session_get(struct sessions *s, const char *tenant, const char *id, struct session_info *ret,
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
		return session_unknown(err, id);
	if (rc < 0)
		return rc;
	rc = session_record_decode(body, len, ret, NULL);
	if (rc < 0)
		return err_set(err, -rc, "StoreUnavailable", NULL,
			       "the record of %s cannot be read", id);
	hosts_settle_running(&s->host, ret);
	if (!ret->raw_data_bytes && store_is_shared(s->store))
		ret->raw_data_bytes = store_session_bytes(s->store, id);
	return 0;
}

/* Only its own host can stop it. One that should have ended long ago runs nowhere. */
static int check_elsewhere(const struct sessions *s, const struct session_info *info,
			   struct err *err)
{
	uint64_t longest_ns = info->requested_duration_s * NS_PER_S + GONE_NS;

	if (info->status != SESSION_RUNNING || hosts_is_own(&s->host, info->host) ||
	    clock_realtime_ns() > info->created_at_ns + longest_ns)
		return 0;
	return err_set(err, EBUSY, "NotFinished", NULL,
		       "session %s runs on host '%.64s': stop it there", info->id, info->host);
}

/* It could not be deleted. */
static void keep_after_all(struct sessions *s, const char *tenant, const char *id, bool was_saved)
{
	struct session *session;

	sessions_lock(s);
	session = session_find(s, tenant, id);
	if (session) {
		session->discard = false;
		session->saved = was_saved;
	}
	sessions_unlock(s);
}

int session_delete(struct sessions *s, const char *tenant, const char *id, bool *ret_stopped,
		   struct err *err)
{
	struct session_info info;
	struct session *session;
	bool was_saved;
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
		return session_unknown(err, id);
	}
	was_saved = session && session->saved;
	if (session)
		session->discard = session->saved = true;
	sessions_unlock(s);
	if (!session) {
		rc = session_get(s, tenant, id, &info, err);
		if (rc < 0)
			return rc;
		session_info_deinit(&info);
		rc = check_elsewhere(s, &info, err);
		if (rc < 0)
			return rc;
	}
	rc = used_keys_keep(s, tenant, id, err);
	(void)pthread_mutex_lock(&s->file_lock);
	/* The record goes last: while it is there, what could not be deleted can be deleted again. */
	rc = rc < 0 ? rc : store_session_remove(s->store, id, err);
	if (rc == 0)
		rc = store_delete(s->store, SESSION_RECORD_KIND, tenant, id, err);
	(void)pthread_mutex_unlock(&s->file_lock);
	if (rc < 0)
		keep_after_all(s, tenant, id, was_saved);
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

int session_wait(struct sessions *s, const char *tenant, const char *id, uint64_t timeout_ns,
		 bool started)
{
	uint64_t until_ns = clock_monotonic_ns() + timeout_ns;
	struct timespec until = { .tv_sec = (time_t)(until_ns / NS_PER_S),
				  .tv_nsec = (long)(until_ns % NS_PER_S) };
	int rc = 0;
	sessions_scope(s);

	while (!s->stopping && is_waited_for(s, tenant, id, started) && rc == 0)
		rc = pthread_cond_timedwait(&s->changed, &s->lock, &until);
	return rc == ETIMEDOUT ? -ETIMEDOUT : 0;
}
