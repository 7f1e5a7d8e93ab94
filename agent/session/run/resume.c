// SPDX-License-Identifier: Apache-2.0
/* Sessions that were running when the server ended.
 *
 * The server was killed, the ring is the same: each goes on at the feed position that was stored
 * with its data, so that nothing is lost and nothing counts twice. The daemon was restarted, the
 * ring is another one: each is completed with the data it had, or failed if it had none. */
#include <errno.h>
#include <string.h>

#include "agent/profile/quality.h"
#include "agent/recording/reading_chunk.h"
#include "agent/session/continuous/continuous.h"
#include "agent/session/core/read_choice.h"
#include "agent/session/core/services.h"
#include "agent/session/core/session_query.h"
#include "agent/session/core/sessions.h"
#include "agent/session/core/start.h"
#include "agent/session/core/used_keys.h"
#include "agent/session/records/session_record.h"
#include "agent/session/run/run.h"

#define SAME_BOOT_NS                                                                               \
	(3600 * NS_PER_S) /* the realtime clock may have been stepped by less than this */
#define NAMES_WITHIN_NS                                                                            \
	(120 * NS_PER_S) /* of its end a session has its names, or this server was killed before   \
			  */

struct found {
	struct session_info info;
	struct session_resume resume;
};
VEC_DEFINE(founds, struct found);

static int collect_running(void *ctx, const struct store_record *record)
{
	struct founds_vec *founds = ctx;
	struct found found;
	int rc = session_record_decode(record->body, record->body_len, &found.info, &found.resume);

	if (rc == -EPROTO)
		return 0;
	if (rc == 0)
		rc = founds_vec_push(founds, found);
	if (rc < 0)
		session_info_deinit(&found.info);
	return rc;
}

static struct session *make_session(struct sessions *s, const struct found *found)
{
	struct session *session = calloc(1, sizeof(*session));

	if (!session)
		return NULL;
	session->info = found->info;
	session->recorder = recorder_create(s->options.stacks_per_session);
	session->seed = found->resume.seed;
	session->asked_ns = found->resume.asked_ns;
	session->start_ns = found->resume.start_ns;
	session->end_ns = found->resume.end_ns;
	session->wait_until_ns = found->resume.wait_until_ns;
	session->begin_position = session->stored_position = found->resume.begin_position;
	session->request_hash = found->resume.request_hash;
	session->tenant_rule = sessions_tenant_rule(s, found->info.tenant);
	session->reloaded = true;
	session->reloaded_ns = clock_monotonic_ns();
	memcpy(session->idempotency_key, found->resume.idempotency_key,
	       sizeof(session->idempotency_key));
	return session;
}

/* The counters as they would have been shown, from what was stored. */
static int fill_info(const struct sessions *s, const struct session *session,
		     struct session_info *info)
{
	struct session_info described;
	int rc = session_describe(s, session, &described);

	if (rc < 0)
		return rc;
	info->sample_count = described.sample_count;
	info->total_value = described.total_value;
	info->quality = described.quality;
	free(info->processes);
	info->processes = described.processes;
	info->process_count = described.process_count;
	free(described.labels);
	return 0;
}

/* Whoever shares the store has no other way to them; of an embedded one they are asked for when it
 * is shown. */
static void want_names(struct sessions *s, const struct session_info *info)
{
	if (store_is_shared(s->store) && s->options.feed_fd >= 0)
		finisher_add(s, info->tenant, info->id);
}

/* Completed with what it had, or failed. */
static int conclude(struct sessions *s, struct session *session, struct err *err)
{
	struct session_info *info = &session->info;
	const struct chunk_quality *quality = recorder_counters(session->recorder);
	int rc;

	session->phase = PHASE_ENDED;
	session->host_samples_before = quality->host_samples;
	session->host_lost_before = quality->host_lost;
	session->start_ns = 0;
	rc = fill_info(s, session, info);
	if (rc < 0)
		return err_set(err, -rc, NULL, NULL, "no memory to conclude %s", info->id);
	info->completed_at_ns = quality->last_ns
					? clock_to_realtime_ns(&quality->clock, quality->last_ns)
					: clock_realtime_ns();
	if (quality->samples) {
		info->status = SESSION_COMPLETED;
		info->stopped_early = true;
		info->duration_ns = info->completed_at_ns > info->started_at_ns
					    ? info->completed_at_ns - info->started_at_ns
					    : 0;
		quality_note(&info->quality, "profd was restarted: the session ended early");
	} else {
		info->status = SESSION_FAILED;
		(void)snprintf(info->failure, sizeof(info->failure),
			       "profd was restarted before the session had any data");
	}
	info->raw_data_bytes = store_session_bytes(s->store, info->id);
	rc = session_record_put(s->store, info, NULL, err);
	if (rc == 0 && info->status == SESSION_COMPLETED)
		want_names(s, info);
	return rc;
}

static bool is_same_feed(const struct sessions *s, const struct found *found)
{
	struct clock_triple now = clock_now();
	uint64_t offset_ns = now.realtime_ns - now.monotonic_ns;
	int64_t drift_ns = (int64_t)(offset_ns - found->resume.boot_offset_ns);

	return s->feed.ring && found->resume.feed_identity == ring_identity(s->feed.ring) &&
	       drift_ns < (int64_t)SAME_BOOT_NS && drift_ns > -(int64_t)SAME_BOOT_NS;
}

static enum session_phase phase_of(const struct session *session)
{
	if (session->start_ns)
		return PHASE_SAMPLING;
	/* The phase is decided when the processes are known again. */
	return PHASE_WAIT_PROCESS;
}

/* Finds the position at which this session goes on reading. */
static int find_position(struct sessions *s, struct session *session, struct err *err)
{
	uint64_t identity = 0, position = 0;
	int rc = store_session_position(s->store, session->info.id, &identity, &position, err);

	if (rc == -EIO && store_is_shared(s->store))
		return rc;
	if (rc == 0 && identity == ring_identity(s->feed.ring))
		session->stored_position = position;
	/* Released is only what no session needed. */
	if (session->stored_position < ring_tail(s->feed.ring))
		session->stored_position = ring_tail(s->feed.ring);
	return session->stored_position > ring_head(s->feed.ring) ? -EPROTO : 0;
}

static int go_on(struct sessions *s, const struct found *found, struct session *session,
		 struct err *err)
{
	struct chunk_quality *quality = recorder_quality(session->recorder);
	struct type_need need;
	int rc = selector_from_text(session->info.selector, &session->selector);

	if (rc == 0)
		rc = find_position(s, session, err);
	if (rc == 0)
		rc = session_enlist(s, session);
	if (rc < 0)
		return rc;
	/* One that read the beginning goes on reading. */
	session->reads =
		found->resume.reads
			? found->resume.reads == 1
			: read_session_takes(session->info.type,
					     recorder_has_read(session->recorder, READING_START) ||
							     recorder_has_read(session->recorder,
									       READING_STATES)
						     ? FEED_PROC_GO
						     : 0);
	services_session_need(s, session, &need);
	session->wants = need.wants;
	session->phase = phase_of(session);
	if (session->phase == PHASE_WAIT_PROCESS && read_session_waits(s, session))
		session->choice = CHOICE_OPEN;
	session->host_samples_before = quality->host_samples;
	session->host_lost_before = quality->host_lost;
	if (session->start_ns && !quality->clock.monotonic_ns)
		quality->clock = s->feed.clock;
	return 0;
}

/* Takes @found->info over. */
static int resume_one(struct sessions *s, struct found *found, struct err *err)
{
	struct session *session = make_session(s, found);
	int rc, goes_on;

	if (!session || !session->recorder) {
		session_info_deinit(&found->info);
		free(session);
		return err_set(err, ENOMEM, NULL, NULL, "no memory to resume sessions");
	}
	rc = recorder_reload(session->recorder, s->store, session->info.id, err);
	if (rc == -ENOENT)
		rc = 0;
	goes_on = rc == 0 && is_same_feed(s, found) ? go_on(s, found, session, err) : -ENOENT;
	if (goes_on == 0)
		return 0;
	/* A store that cannot be reached is no reason to end a session: the server begins again. */
	if (rc == 0 && goes_on == -EIO)
		rc = goes_on;
	else if (rc == 0)
		rc = conclude(s, session, err);
	session_free(session);
	return rc;
}

static int remember_key(void *ctx, const struct store_record *record)
{
	struct sessions *s = ctx;
	struct session_resume resume;
	struct session_info info;

	if (session_record_decode(record->body, record->body_len, &info, &resume) < 0)
		return 0;
	if (resume.idempotency_key[0])
		sessions_remember_key(s, info.tenant, resume.idempotency_key, info.id,
				      resume.request_hash);
	if (info.status == SESSION_COMPLETED &&
	    info.completed_at_ns + NAMES_WITHIN_NS > clock_realtime_ns())
		want_names(s, &info);
	session_info_deinit(&info);
	return 0;
}

/* The earliest position any of them needs. */
static void set_cursor(struct sessions *s, uint64_t continuous)
{
	uint64_t tail = s->feed.ring ? ring_tail(s->feed.ring) : 0;
	bool any = continuous != UINT64_MAX;
	/* Released is only what nobody needed. */
	uint64_t cursor = any && continuous > tail ? continuous : tail;

	for (const struct session *session = s->running; session; session = session->next) {
		if (!any || session->stored_position < cursor)
			cursor = session->stored_position;
		any = true;
	}
	if (any)
		s->feed.cursor = s->feed.ahead = cursor;
	s->feed.has_epoch = any;
}

int resume_sessions(struct sessions *s, struct err *err)
{
	struct store_query running = { .kind = SESSION_RECORD_KIND, .status = "running" };
	struct store_query recent = { .kind = SESSION_RECORD_KIND,
				      .from_ns = clock_realtime_ns() - USED_KEYS_KEPT_NS };
	struct founds_vec founds = { 0 };
	uint64_t continuous = UINT64_MAX;
	int rc = store_list(s->store, &running, collect_running, &founds, NULL, err);

	for (size_t i = 0; i < founds.count; i++) {
		if (rc == 0)
			rc = resume_one(s, &founds.data[i], err);
		else
			session_info_deinit(&founds.data[i].info);
	}
	founds_vec_deinit(&founds);
	if (rc == 0)
		rc = store_list(s->store, &recent, remember_key, s, NULL, err);
	if (rc == 0)
		rc = used_keys_load(s, err);
	if (rc == 0)
		rc = continuous_resume(s, &continuous, err);
	if (rc == 0)
		set_cursor(s, continuous);
	return rc;
}
