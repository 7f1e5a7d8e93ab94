// SPDX-License-Identifier: Apache-2.0
#include "agent/session/continuous/standing.h"

#include <errno.h>
#include <string.h>

#include "agent/session/core/session_way.h"
#include "agent/session/core/read_choice.h"
#include "agent/session/core/services.h"
#include "agent/session/core/session_query.h"
#include "agent/session/core/start.h"
#include "agent/session/records/session_record.h"

#define RETRY_NS (30 * NS_PER_S) /* a session that ended at once, or was refused, is tried again */
#define YOUNG_NS (1 * NS_PER_S)	 /* what a program is may be known by then */
#define LEAST_S	 5u		 /* a shorter rest of a span belongs to the next */
#define LONGEST_S 3600u
#define DOOMED_MAX 256u /* deleted at once */

/* ---- whose is what --------------------------------------------------------------------------- */

static bool is_of(const struct continuous_source *source, const struct session_info *info)
{
	char text[SELECTOR_TEXT_SIZE];

	selector_to_text(&source->selector, text);
	return info->continuous && (source->setting.types >> info->type & 1) &&
	       strcmp(info->tenant, source->setting.tenant) == 0 && strcmp(info->selector, text) == 0;
}

/* Lock held. */
static bool is_wanted(const struct sessions *s, const struct session_info *info)
{
	for (size_t i = 0; !s->sampling_off_ns && i < s->continuous->source_count; i++) {
		const struct continuous_source *source = &s->continuous->sources[i];

		if (source->setting.enabled && source->setting.rate_hz == info->rate_hz && is_of(source, info))
			return true;
	}
	return false;
}

static void stop_unwanted(struct sessions *s)
{
	sessions_scope(s);

	for (struct session *session = s->running; session; session = session->next)
		if (session->info.continuous && !session->stop && !is_wanted(s, &session->info)) {
			session->stop = true;
			sessions_wake(s);
		}
}

/* The session that takes @type for @source now; NULL = none. Lock held. */
static const struct session *current(const struct sessions *s,
				     const struct continuous_source *source, enum profile_type type)
{
	uint64_t now_ns = clock_monotonic_ns();

	for (const struct session *session = s->running; session; session = session->next)
		if (session->info.type == type && is_of(source, &session->info) &&
		    session->phase < PHASE_CLOSING && !session->stop && session->end_ns > now_ns)
			return session;
	return NULL;
}

/* One of its processes that live; NULL = none. Lock held. */
static const struct live_process *alive(const struct sessions *s,
					const struct continuous_source *source)
{
	for (size_t i = 0; i < s->tables.processes.count; i++) {
		const struct live_process *process = s->tables.processes.data[i];

		if (!process->exited_ns && continuous_wants_process(source, process))
			return process;
	}
	return NULL;
}

/* ---- starting -------------------------------------------------------------------------------- */

struct due_session {
	struct continuous_source source; /* a copy */
	enum profile_type type;
	char name[SERVICE_NAME_SIZE]; /* of the service that its processes are */
};

/* Something to start; false: nothing before *@due_ns. */
static bool find_due(struct sessions *s, struct due_session *ret, uint64_t *due_ns)
{
	const uint32_t kept = profile_types_kept(PROFILE_KEPT_SESSIONS);
	uint64_t now_ns = clock_monotonic_ns();
	sessions_scope(s);

	*due_ns = UINT64_MAX;
	for (size_t i = 0; !s->stopping && !s->sampling_off_ns && i < s->continuous->source_count; i++) {
		const struct continuous_source *source = &s->continuous->sources[i];
		const struct live_process *process = source->setting.enabled ? alive(s, source) : NULL;

		for (int type = 0; process && type < PROFILE_TYPE_MAX; type++) {
			const struct session *session = current(s, source, (enum profile_type)type);
			uint64_t at_ns = session ? session->end_ns : source->retry_ns[type];

			if (!(source->setting.types & kept & 1u << type))
				continue;
			if (at_ns > now_ns) {
				*due_ns = at_ns < *due_ns ? at_ns : *due_ns;
				continue;
			}
			*ret = (struct due_session){ .source = *source, .type = (enum profile_type)type };
			(void)snprintf(ret->name, sizeof(ret->name), "%s", process->identity.name);
			return true;
		}
	}
	return false;
}

/* Spans are counted from midnight. */
static uint32_t seconds_left(const struct sessions *s)
{
	const uint64_t span_ns = s->options.continuous_span_ns;
	const uint64_t in_day_ns = clock_realtime_ns() % CONTINUOUS_DAY_NS;
	uint64_t left_ns = span_ns - in_day_ns % span_ns;
	uint32_t left_s;

	if (left_ns > CONTINUOUS_DAY_NS - in_day_ns)
		left_ns = CONTINUOUS_DAY_NS - in_day_ns;
	left_s = (uint32_t)((left_ns + NS_PER_S / 2) / NS_PER_S);
	if (left_s < LEAST_S)
		left_s += (uint32_t)(span_ns / NS_PER_S);
	return left_s < LONGEST_S ? left_s : LONGEST_S;
}

static struct session_request request_of(const struct sessions *s, const struct due_session *due)
{
	return (struct session_request){ .tenant = due->source.setting.tenant,
					 .service = due->name,
					 .type = due->type,
					 .duration_s = seconds_left(s),
					 .rate_hz = due->source.setting.rate_hz,
					 .continuous = true };
}

/* The setting may have gone meanwhile. */
static void note(struct sessions *s, const struct due_session *due, uint64_t wait_ns,
		 const char *refusal)
{
	struct continuous_source *source;
	sessions_scope(s);

	source = continuous_find(s, due->source.setting.tenant, due->source.setting.service);
	if (!source)
		return;
	source->retry_ns[due->type] = clock_monotonic_ns() + wait_ns;
	source->refused &= ~(1u << due->type);
	if (*refusal)
		source->refused |= 1u << due->type;
	if (*refusal || !source->refused)
		(void)snprintf(source->refusal, sizeof(source->refusal), "%s", refusal);
}

static void start(struct sessions *s, const struct due_session *due)
{
	const struct session_request request = request_of(s, due);
	struct session_info info = { 0 };
	struct err err = { 0 };

	if (!read_session_is_decided(s, due->source.setting.tenant, &due->source.selector)) {
		note(s, due, YOUNG_NS, "");
		return;
	}
	if (session_start_resolved(s, &request, &due->source.selector, due->name, &info, &err) == 0)
		session_info_deinit(&info);
	note(s, due, RETRY_NS, err.text);
}

uint64_t standing_look(struct sessions *s)
{
	uint64_t due_ns = UINT64_MAX;
	struct due_session due;

	sessions_lock(s);
	s->continuous->changed = false;
	sessions_unlock(s);
	stop_unwanted(s);
	while (s->options.feed_fd >= 0 && find_due(s, &due, &due_ns))
		start(s, &due);
	return due_ns;
}

/* ---- settings -------------------------------------------------------------------------------- */

struct type_counts {
	unsigned of_tenant, of_all;
};

/* Counts the types of all settings, with @source in the place of the one that it replaces. Lock
 * held. */
static struct type_counts count_types(struct sessions *s, const struct continuous_source *source)
{
	const uint32_t kept = profile_types_kept(PROFILE_KEPT_SESSIONS);
	const struct continuous_source *old =
		continuous_find(s, source->setting.tenant, source->setting.service);
	unsigned own = (unsigned)__builtin_popcount(source->setting.types & kept);
	struct type_counts counts = { own, own };

	for (size_t i = 0; i < s->continuous->source_count; i++) {
		const struct continuous_source *other = &s->continuous->sources[i];
		unsigned types = (unsigned)__builtin_popcount(other->setting.types & kept);

		if (other == old)
			continue;
		counts.of_all += types;
		if (strcmp(other->setting.tenant, source->setting.tenant) == 0)
			counts.of_tenant += types;
	}
	return counts;
}

/* The errors contain no figure of other tenants. */
static int check_room(const struct type_counts *counts, struct err *err)
{
	if (counts->of_tenant > STANDING_TENANT_MAX)
		return err_set(err, ENOSPC, "LimitReached", NULL,
			       "this tenant's settings ask for %u types beside cpu, offcpu and wall, of %u",
			       counts->of_tenant, STANDING_TENANT_MAX);
	if (counts->of_all > STANDING_MAX)
		return err_set(err, ENOSPC, "LimitReached", NULL,
			       "this host takes no further types beside cpu, offcpu and wall");
	return 0;
}

int standing_check(struct sessions *s, const struct continuous_source *source,
		   enum profile_type type, struct err *err)
{
	const char *word = profile_type_info(type)->word;
	const struct live_process *process;
	struct due_session due = { .source = *source, .type = type };
	struct session_request request;
	bool reads = false;
	struct type_counts counts;
	int rc;

	if (profile_type_is_kept(type, PROFILE_KEPT_NOT))
		return err_set(err, ENOTSUP, "ProfileTypeUnavailable", "profileTypes", "%s: on demand only",
			       profile_type_info(type)->only_on_demand);
	if (source->selector.kind == SELECTOR_HOST)
		return err_set(err, ENOTSUP, "ProfileTypeUnavailable", "profileTypes",
			       "%s is taken of one service at a time: name it instead of *", word);
	sessions_lock(s);
	counts = count_types(s, source);
	process = alive(s, source);
	if (process)
		(void)snprintf(due.name, sizeof(due.name), "%s", process->identity.name);
	sessions_unlock(s);
	rc = check_room(&counts, err);
	if (rc < 0 || !process)
		return rc;
	request = request_of(s, &due);
	rc = read_session_check(s, &request, &source->selector, &reads, err);
	if (rc < 0 || !session_way_of(type, reads)->check)
		return rc;
	return session_way_of(type, reads)->check(s, &request, &source->selector, err);
}

uint32_t standing_wants(const struct sessions *s, const struct continuous_source *source)
{
	uint32_t wants = 0;

	for (int type = 0; type < PROFILE_TYPE_MAX; type++) {
		struct type_need need;

		if (!(source->setting.types >> type & 1) ||
		    profile_type_info((enum profile_type)type)->way != PROFILE_WAY_PROBES)
			continue;
		services_type_state(s, (enum profile_type)type, false, &need);
		wants |= need.wants;
	}
	return wants;
}

/* ---- what they left ----------------------------------------------------------------------------
 */

struct doomed {
	char id[SESSION_ID_SIZE];
};

struct left {
	const struct continuous_source *source;
	struct continuous_status *status;
	uint64_t newest_ns;
	struct doomed *doomed; /* of DOOMED_MAX, NULL = nobody is deleted */
	size_t doomed_count;
};

static int visit(void *ctx, const struct store_record *record)
{
	struct left *left = ctx;
	struct session_info info;

	if (!memmem(record->body, record->body_len, "\"continuous\":true",
		    strlen("\"continuous\":true")) ||
	    session_record_decode(record->body, record->body_len, &info, NULL) < 0)
		return 0;
	if (is_of(left->source, &info) && left->doomed) {
		if (info.status != SESSION_RUNNING && left->doomed_count < DOOMED_MAX)
			memcpy(left->doomed[left->doomed_count++].id, info.id, sizeof(info.id));
	} else if (is_of(left->source, &info)) {
		left->status->sessions++;
		left->status->bytes += info.raw_data_bytes;
		if (info.created_at_ns >= left->newest_ns) {
			left->newest_ns = info.created_at_ns;
			memcpy(left->status->last_session_id, info.id, sizeof(info.id));
		}
	}
	session_info_deinit(&info);
	return 0;
}

/* Sessions of @left's setting that were made before @to_ns (0 = all). */
static int visit_all(struct sessions *s, struct left *left, uint64_t to_ns, struct err *err)
{
	const struct continuous_setting *setting = &left->source->setting;
	const uint32_t kept = profile_types_kept(PROFILE_KEPT_SESSIONS);
	int rc = 0;

	for (int type = 0; rc == 0 && type < PROFILE_TYPE_MAX; type++) {
		const struct store_query query = { .kind = SESSION_RECORD_KIND,
						   .tenant = setting->tenant,
						   .type = profile_type_info((enum profile_type)type)->word,
						   .to_ns = to_ns };

		if (setting->types & kept & 1u << type)
			rc = store_list(s->store, &query, visit, left, NULL, err);
	}
	return rc;
}

int standing_status(struct sessions *s, const struct continuous_source *source,
		    struct continuous_status *status, uint64_t newest_ns, struct err *err)
{
	struct left left = { .source = source, .status = status, .newest_ns = newest_ns };

	return visit_all(s, &left, 0, err);
}

static void expire_of(struct sessions *s, const struct continuous_source *source)
{
	const uint64_t keep_ns = source->setting.retention_days * CONTINUOUS_DAY_NS,
		       now_ns = clock_realtime_ns();
	cleanup_free struct doomed *doomed = calloc(DOOMED_MAX, sizeof(*doomed));
	struct left left = { .source = source, .doomed = doomed };
	struct err err = { 0 };
	bool stopped;

	if (!doomed || now_ns <= keep_ns || visit_all(s, &left, now_ns - keep_ns, &err) < 0)
		return;
	for (size_t i = 0; i < left.doomed_count; i++)
		if (session_delete(s, source->setting.tenant, doomed[i].id, &stopped, &err) < 0)
			log_warn("session %s: not deleted at the end of its retention: %s", doomed[i].id, err.text);
}

void standing_expire(struct sessions *s)
{
	for (size_t i = 0; i < CONTINUOUS_MAX; i++) {
		struct continuous_source source;
		bool any;

		sessions_lock(s);
		any = i < s->continuous->source_count;
		if (any)
			source = s->continuous->sources[i];
		sessions_unlock(s);
		if (!any)
			return;
		if (source.setting.types & profile_types_kept(PROFILE_KEPT_SESSIONS))
			expire_of(s, &source);
	}
}
