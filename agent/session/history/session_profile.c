// SPDX-License-Identifier: Apache-2.0
/* From a session's data to a profile. A running session is its file and, on top, the groups that
 * are not stored yet; both are read without holding anybody up. */
#include "agent/session/history/session_profile.h"

#include <errno.h>
#include <string.h>

#include "agent/base/text.h"
#include "agent/recording/recording.h"
#include "agent/session/continuous/continuous.h"
#include "agent/session/core/sessions.h"
#include "agent/session/records/session_record.h"

#define LIVE_CACHE_NS (1 * NS_PER_S) /* a running session is built again after this */
#define UNKNOWN_CACHE_NS                                                                           \
	NAMES_AGAIN_NS   /* debug information may have appeared */
#define NODES_PER_STACK 8u /* of the tree; most stacks share all but a few frames */
#define NODES_MAX	(1u << 23)

struct copy {
	enum store_chunk_kind kind;
	void *data;
	size_t len;
};
VEC_DEFINE(copies, struct copy);

static void copies_free(struct copies_vec *copies)
{
	for (size_t i = 0; i < copies->count; i++)
		free(copies->data[i].data);
	copies_vec_deinit(copies);
}

/* Seals what is pending and copies the groups the store does not have yet. Lock held. */
static int copy_groups(struct sessions *s, struct session *session, struct copies_vec *copies,
		       uint32_t *ret_seq_end)
{
	const struct recorder_group *group;
	int rc = recorder_seal(session->recorder, &s->tables, s->feed.cursor, false, NULL);

	group = rc == 0 ? recorder_groups(session->recorder) : NULL;
	*ret_seq_end = group ? group->seq : UINT32_MAX;
	for (; rc == 0 && group; group = group->next) {
		for (unsigned i = 0; i < group->chunk_count && rc == 0; i++) {
			struct copy copy = { .kind = group->kinds[i], .len = group->data[i].len };

			copy.data = malloc(copy.len + 1);
			rc = copy.data ? copies_vec_push(copies, copy) : -ENOMEM;
			if (rc < 0)
				free(copy.data);
			else
				memcpy(copy.data, group->data[i].data, copy.len);
		}
	}
	return rc;
}

static struct recording_options options_of(const struct sessions *s,
					   const struct session_info *info, bool raw)
{
	struct recording_options options = {
		.meta = { .type = info->type,
			  .source = info->source,
			  .start_ns = info->started_at_ns,
			  .duration_ns = info->duration_ns,
			  .sample_rate = info->rate_hz,
			  .cpu_count = s->feed.cpu_count,
			  .grain_ns = session_info_is_span(info) ? CONTINUOUS_MINUTE_NS : 0 },
		.quality = info->quality,
		.events = true,
		.paths = info->paths,
		.raw = raw,
	};
	uint64_t nodes = (uint64_t)s->options.stacks_per_session * NODES_PER_STACK;

	options.nodes_max = nodes < NODES_MAX ? (uint32_t)nodes : NODES_MAX;
	memcpy(options.meta.service, info->service, sizeof(options.meta.service));
	memcpy(options.meta.host, info->host, sizeof(options.meta.host));
	return options;
}

/* Decodes and builds, during a build turn. */
static int build(struct sessions *s, const char *data_id, const struct session_info *info,
		 bool raw, bool bare, const struct copies_vec *copies, uint32_t seq_end, struct profile **ret,
		 enum names_state *ret_state, struct err *err)
{
	struct recording_options options = options_of(s, info, raw);
	const struct name_source *names = names_client_begin(s->names);
	cleanup(recording) struct recording *recording = recording_create();
	int rc;

	if (!recording)
		return err_set(err, ENOMEM, NULL, NULL, "no memory to read a session");
	options.bare = bare;
	if (session_info_is_span(info))
		recording_set_sums(recording);
	rc = recording_load(recording, s->store, data_id, seq_end, s->names, err);
	if (rc == -ENOENT)
		rc = 0; /* nothing was stored yet, or there was nothing */
	if (rc < 0)
		return rc;
	for (size_t i = 0; rc == 0 && i < copies->count; i++)
		rc = recording_add(recording, copies->data[i].kind, copies->data[i].data,
				   copies->data[i].len, UINT32_MAX, s->names);
	if (rc == 0)
		rc = recording_build(recording, &options, names, ret);
	*ret_state = names_client_state(s->names);
	if (rc == 0)
		names_client_note(s->names, &(*ret)->quality);
	if (rc < 0)
		return err_set(err, -rc, NULL, NULL, "the profile of %s cannot be built: %s",
			       data_id, strerror(-rc));
	return 0;
}

static int check_status(const struct session_info *info, struct err *err)
{
	if (info->status != SESSION_FAILED)
		return 0;
	return err_set(err, EINVAL, "SessionFailed", NULL, "session %s failed: %.200s", info->id,
		       info->failure);
}

/* A profile built while a session ran is not the whole of it. */
static void cache_key(const struct session_info *info, bool raw, char key[PROFILE_CACHE_KEY_SIZE])
{
	(void)snprintf(key, PROFILE_CACHE_KEY_SIZE, "%s%s%s", info->id, raw ? " raw" : "",
		       info->status == SESSION_RUNNING ? " so far" : "");
}

/* @info: of the session when the call came; what is built @bare is not kept for others. During
 * a build turn. */
static int build_session(struct sessions *s, const struct session_info *info, bool raw, bool bare,
			 struct profile **ret, struct err *err)
{
	char key[PROFILE_CACHE_KEY_SIZE];
	struct copies_vec copies = { 0 };
	uint32_t seq_end = UINT32_MAX;
	struct session *session;
	enum names_state state = NAMES_FINAL;
	uint64_t until_ns;
	int rc = 0;

	sessions_lock(s);
	session = session_find(s, info->tenant, info->id);
	if (session)
		rc = copy_groups(s, session, &copies, &seq_end);
	sessions_unlock(s);
	if (rc < 0)
		rc = err_set(err, -rc, NULL, NULL, "no memory to read session %s", info->id);
	else
		rc = build(s, info->id, info, raw, bare, &copies, seq_end, ret, &state, err);
	copies_free(&copies);
	if (rc < 0 || bare)
		return rc;
	if (info->status == SESSION_RUNNING && !(*ret)->sample_count)
		return 0; /* whoever waits for the first stack is not to wait longer */
	until_ns = info->status == SESSION_RUNNING ? clock_monotonic_ns() + LIVE_CACHE_NS
		   : state == NAMES_FINAL	   ? UINT64_MAX
		   : state == NAMES_COMING	   ? clock_monotonic_ns() + NAMES_COMING_NS
						   : clock_monotonic_ns() + UNKNOWN_CACHE_NS;
	cache_key(info, raw, key);
	profile_cache_put(&s->cache, key, *ret, until_ns);
	return 0;
}

static int build_once(struct sessions *s, const struct session_info *info, bool raw,
		      session_profile_done_fn *done, void *ctx, struct profile **ret, struct err *err)
{
	char key[PROFILE_CACHE_KEY_SIZE];
	struct profile *profile;
	int rc;

	cache_key(info, raw, key);
	/* Only the agent's own work has to be done for the names. */
	rc = build_turn_take(&s->builds, done ? "" : info->tenant,
			     done ? BUILD_TURN_FOREVER : SESSIONS_BUILD_WAIT_NS, err);
	if (rc < 0)
		return rc;
	/* Somebody may have built it while we waited; with @done the names must be asked for again.
	 */
	profile = done ? NULL : profile_cache_get(&s->cache, key);
	/* Each of many goroutines has attributes of its own: they are put together when somebody looks. */
	if (!profile)
		rc = build_session(s, info, raw, done && info->type == PROFILE_GOROUTINE, &profile, err);
	if (rc == 0 && done)
		done(ctx, s, profile);
	names_client_end(s->names);
	atomic_store(&s->has_built, true);
	build_turn_end(&s->builds);
	if (rc == 0)
		*ret = profile;
	return rc;
}

int session_profile_build(struct sessions *s, const struct session_info *info,
			  session_profile_done_fn *done, void *ctx, struct profile **ret,
			  struct err *err)
{
	return build_once(s, info, false, done, ctx, ret, err);
}

/* The view of a span as a profile. */
static int span_profile(struct sessions *s, const struct session_info *info, bool raw,
			struct profile **ret, struct err *err)
{
	const struct recording_options options = options_of(s, info, raw);
	const struct history_window window = {
		.tenant = info->tenant,
		.service = info->service,
		.type = info->type,
		.from_ns = info->created_at_ns,
		.to_ns = info->created_at_ns + s->options.continuous_span_ns,
		.host = info->host,
		.timed = true,
		.raw = raw,
	};
	char key[PROFILE_CACHE_KEY_SIZE];
	int rc = spans_profile(s, &window, &options.meta, ret, err);

	if (rc == -ENOENT)
		return err_set(err, ENOENT, "UnknownSession", NULL, "no session '%.64s'", info->id);
	if (rc < 0)
		return rc;
	cache_key(info, raw, key);
	profile_cache_put(
		&s->cache, key, *ret,
		clock_monotonic_ns() +
			(info->status == SESSION_RUNNING ? LIVE_CACHE_NS : UNKNOWN_CACHE_NS));
	return 0;
}

static int profile_of(struct sessions *s, const char *tenant, const char *id, bool raw,
		      struct profile **ret, struct err *err)
{
	char key[PROFILE_CACHE_KEY_SIZE];
	struct session_info info;
	struct profile *profile;
	int rc;

	rc = text_begins(id, "bl-") ? baseline_session_info(s, tenant, id, &info, err)
					: sessions_get(s, tenant, id, &info, err);
	if (rc < 0)
		return rc;
	rc = check_status(&info, err);
	if (rc == 0) {
		cache_key(&info, raw, key);
		profile = profile_cache_get(&s->cache, key);
		if (profile)
			*ret = profile;
		else if (session_info_is_span(&info) && !store_session_bytes(s->store, info.id))
			rc = span_profile(s, &info, raw, ret, err);
		else
			rc = build_once(s, &info, raw, NULL, NULL, ret, err);
	}
	session_info_deinit(&info);
	return rc;
}

int sessions_profile(struct sessions *s, const char *tenant, const char *id, struct profile **ret,
		     struct err *err)
{
	return profile_of(s, tenant, id, false, ret, err);
}

int sessions_profile_raw(struct sessions *s, const char *tenant, const char *id,
			 struct profile **ret, struct err *err)
{
	return profile_of(s, tenant, id, true, ret, err);
}
