// SPDX-License-Identifier: Apache-2.0
#include "agent/session/standing.h"

#include <errno.h>
#include <string.h>

#include "agent/session/alloc_session.h"
#include "agent/session/session_record.h"

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
	for (size_t i = 0; !s->sampling_off_ns && i < s->continuous.source_count; i++) {
		const struct continuous_source *source = &s->continuous.sources[i];

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
static const struct session *current(const struct sessions *s, const struct continuous_source *source,
				     enum profile_type type)
{
	uint64_t now_ns = clock_monotonic_ns();

	for (const struct session *session = s->running; session; session = session->next)
		if (session->info.type == type && is_of(source, &session->info) &&
		    session->phase < PHASE_CLOSING && !session->stop && session->end_ns > now_ns)
			return session;
	return NULL;
}

/* One of its processes that live; NULL = none. Lock held. */
static const struct live_process *alive(const struct sessions *s, const struct continuous_source *source)
{
	for (size_t i = 0; i < s->tables.processes.count; i++) {
		const struct live_process *process = s->tables.processes.data[i];

		if (!process->exited_ns && continuous_wants_process(source, process))
			return process;
	}
	return NULL;
}

/* ---- starting -------------------------------------------------------------------------------- */

struct wish {
	struct continuous_source source; /* a copy */
	enum profile_type type;
	char name[SERVICE_NAME_SIZE]; /* of the service that its processes are */
};

/* Something to start; false: nothing before *@due_ns. */
static bool find_wish(struct sessions *s, struct wish *ret, uint64_t *due_ns)
{
	uint64_t now_ns = clock_monotonic_ns();
	sessions_scope(s);

	*due_ns = UINT64_MAX;
	for (size_t i = 0; !s->stopping && !s->sampling_off_ns && i < s->continuous.source_count; i++) {
		const struct continuous_source *source = &s->continuous.sources[i];
		const struct live_process *process = source->setting.enabled ? alive(s, source) : NULL;

		for (int type = CONTINUOUS_TYPES; process && type < PROFILE_TYPE_MAX; type++) {
			const struct session *session = current(s, source, (enum profile_type)type);
			uint64_t at_ns = session ? session->end_ns : source->retry_ns[type];

			if (!(source->setting.types >> type & 1))
				continue;
			if (at_ns > now_ns) {
				*due_ns = at_ns < *due_ns ? at_ns : *due_ns;
				continue;
			}
			*ret = (struct wish){ .source = *source, .type = (enum profile_type)type };
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

static struct session_request request_of(const struct sessions *s, const struct wish *wish)
{
	return (struct session_request){ .tenant = wish->source.setting.tenant,
					 .service = wish->name,
					 .type = wish->type,
					 .duration_s = seconds_left(s),
					 .rate_hz = wish->source.setting.rate_hz,
					 .continuous = true };
}

/* The setting may have gone meanwhile. */
static void note(struct sessions *s, const struct wish *wish, uint64_t wait_ns, const char *refusal)
{
	struct continuous_source *source;
	sessions_scope(s);

	source = continuous_find(s, wish->source.setting.tenant, wish->source.setting.service);
	if (!source)
		return;
	source->retry_ns[wish->type] = clock_monotonic_ns() + wait_ns;
	source->refused &= ~(1u << wish->type);
	if (*refusal)
		source->refused |= 1u << wish->type;
	if (*refusal || !source->refused)
		(void)snprintf(source->refusal, sizeof(source->refusal), "%s", refusal);
}

static void start(struct sessions *s, const struct wish *wish)
{
	const struct session_request request = request_of(s, wish);
	struct session_info info = { 0 };
	struct err err = { 0 };

	if (!read_session_is_decided(s, wish->source.setting.tenant, &wish->source.selector)) {
		note(s, wish, YOUNG_NS, "");
		return;
	}
	if (session_start_resolved(s, &request, &wish->source.selector, wish->name, &info, &err) == 0)
		session_info_deinit(&info);
	note(s, wish, RETRY_NS, err.text);
}

uint64_t standing_look(struct sessions *s)
{
	uint64_t due_ns = UINT64_MAX;
	struct wish wish;

	sessions_lock(s);
	s->continuous.changed = false;
	sessions_unlock(s);
	stop_unwanted(s);
	while (s->options.feed_fd >= 0 && find_wish(s, &wish, &due_ns))
		start(s, &wish);
	return due_ns;
}

/* ---- settings -------------------------------------------------------------------------------- */

/* Of all settings but that which @source replaces. Lock held. */
static unsigned count_types(struct sessions *s, const struct continuous_source *source)
{
	const struct continuous_source *old =
		continuous_find(s, source->setting.tenant, source->setting.service);
	unsigned count = 0;

	for (size_t i = 0; i < s->continuous.source_count; i++)
		if (&s->continuous.sources[i] != old)
			count += (unsigned)__builtin_popcount(s->continuous.sources[i].setting.types >>
							      CONTINUOUS_TYPES);
	return count;
}

int standing_check(struct sessions *s, const struct continuous_source *source, enum profile_type type,
		   struct err *err)
{
	const char *word = profile_type_info(type)->word;
	const struct live_process *process;
	struct wish wish = { .source = *source, .type = type };
	struct session_request request;
	bool reads = false;
	unsigned count;
	int rc;

	if (type == PROFILE_IO)
		return err_set(err, ENOTSUP, "ProfileTypeUnavailable", "profileTypes",
			       "io may make every system call of the host take longer while it is taken: on demand only");
	if (source->selector.kind == SELECTOR_HOST)
		return err_set(err, ENOTSUP, "ProfileTypeUnavailable", "profileTypes",
			       "%s is taken of one service at a time: name it instead of *", word);
	sessions_lock(s);
	count = count_types(s, source) + (unsigned)__builtin_popcount(source->setting.types >> CONTINUOUS_TYPES);
	process = alive(s, source);
	if (process)
		(void)snprintf(wish.name, sizeof(wish.name), "%s", process->identity.name);
	sessions_unlock(s);
	if (count > STANDING_MAX)
		return err_set(err, ENOSPC, "LimitReached", NULL,
			       "settings ask for %u types beside cpu, offcpu and wall, of %u", count, STANDING_MAX);
	if (!process)
		return 0;
	request = request_of(s, &wish);
	rc = read_session_check(s, &request, &source->selector, &reads, err);
	return rc < 0 || reads ? rc : alloc_session_check(s, &request, &source->selector, err);
}

uint32_t standing_wants(const struct sessions *s, const struct continuous_source *source)
{
	uint32_t wants = 0;

	for (int type = PROFILE_MEMORY; type <= PROFILE_ALLOC; type++) {
		struct type_need need;

		if (!(source->setting.types >> type & 1))
			continue;
		services_type_state(s, (enum profile_type)type, false, &need);
		wants |= need.wants;
	}
	return wants;
}

/* ---- what they left ---------------------------------------------------------------------------- */

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

	if (!memmem(record->body, record->body_len, "\"continuous\":true", strlen("\"continuous\":true")) ||
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
	int rc = 0;

	for (int type = CONTINUOUS_TYPES; rc == 0 && type < PROFILE_TYPE_MAX; type++) {
		const struct store_query query = { .kind = SESSION_RECORD_KIND,
						   .tenant = setting->tenant,
						   .type = profile_type_info((enum profile_type)type)->word,
						   .to_ns = to_ns };

		if (setting->types >> type & 1)
			rc = store_list(s->store, &query, visit, left, NULL, err);
	}
	return rc;
}

int standing_status(struct sessions *s, const struct continuous_source *source, struct continuous_status *status,
		    uint64_t newest_ns, struct err *err)
{
	struct left left = { .source = source, .status = status, .newest_ns = newest_ns };

	return visit_all(s, &left, 0, err);
}

static void expire_of(struct sessions *s, const struct continuous_source *source)
{
	const uint64_t keep_ns = source->setting.retention_days * CONTINUOUS_DAY_NS, now_ns = clock_realtime_ns();
	cleanup_free struct doomed *doomed = calloc(DOOMED_MAX, sizeof(*doomed));
	struct left left = { .source = source, .doomed = doomed };
	struct err err = { 0 };
	bool stopped;

	if (!doomed || now_ns <= keep_ns || visit_all(s, &left, now_ns - keep_ns, &err) < 0)
		return;
	for (size_t i = 0; i < left.doomed_count; i++)
		if (sessions_delete(s, source->setting.tenant, doomed[i].id, &stopped, &err) < 0)
			log_warn("session %s: not deleted at the end of its retention: %s", doomed[i].id, err.text);
}

void standing_expire(struct sessions *s)
{
	for (size_t i = 0; i < CONTINUOUS_MAX; i++) {
		struct continuous_source source;
		bool any;

		sessions_lock(s);
		any = i < s->continuous.source_count;
		if (any)
			source = s->continuous.sources[i];
		sessions_unlock(s);
		if (!any)
			return;
		if (source.setting.types >> CONTINUOUS_TYPES)
			expire_of(s, &source);
	}
}
