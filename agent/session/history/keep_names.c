// SPDX-License-Identifier: Apache-2.0
#include "agent/session/history/keep_names.h"

#include <errno.h>
#include <string.h>

#include "agent/profile/memory/interval.h"
#include "agent/recording/session_chunks.h"
#include "agent/session/history/session_profile.h"
#include "agent/session/records/session_record.h"

#define AGAIN_NS      (5 * NS_PER_S) /* after the store could not be reached */
#define LOOK_AGAIN_NS (3 * NS_PER_S) /* for names, the first time; twice as long each time */
#define LOOKS_MAX     6u

static int add_name(void *ctx, uint64_t key, uint64_t offset, const struct name_frame *frames,
		    unsigned count)
{
	struct name_chunk *chunk = ctx;
	struct chunk_name name = { key, offset, count, frames };

	return name_chunk_add(chunk, &name);
}

struct collected {
	struct name_chunk *chunk;
	enum names_state state;
};


static void collect_names(void *ctx, struct sessions *s, const struct profile *profile)
{
	struct collected *collected = ctx;

	/* A part is better than nothing: what is missing is asked for again when it is shown. */
	(void)!names_client_used(s->names, add_name, collected->chunk);
	collected->state = names_client_state(s->names);
}

static int append_names(struct sessions *s, const char *id, const struct name_chunk *names,
			struct err *err)
{
	cleanup_buf struct buf bytes = { .max = STORE_CHUNK_MAX };
	struct store_chunk chunk = { .kind = STORE_CHUNK_NAMES };
	uint64_t identity = 0, position = 0;
	int rc;

	name_chunk_encode(names, &bytes);
	if (bytes.error)
		return err_set(err, -bytes.error, NULL, NULL, "too many names");
	chunk.data = bytes.data;
	chunk.len = bytes.len;
	rc = store_session_position(s->store, id, &identity, &position, err);
	if (rc < 0)
		return rc == -EIO ? rc : -ENOENT; /* no data, no names */
	return store_session_append(s->store, id, &chunk, 1, identity, position, err);
}

/* The session may have been deleted meanwhile: then nothing is written. File lock held. */
static int write_names(struct sessions *s, const struct session_info *info,
		       const struct name_chunk *names, struct err *err)
{
	cleanup_free char *body = NULL;
	struct session_resume resume = { 0 };
	struct session_info stored;
	size_t len;
	int rc = store_get(s->store, SESSION_RECORD_KIND, info->tenant, info->id, &body, &len, err);

	if (rc < 0)
		return rc;
	if (session_record_decode(body, len, &stored, &resume) == 0)
		session_info_deinit(&stored);
	if (name_chunk_count(names)) {
		rc = append_names(s, info->id, names, err);
		if (rc < 0)
			return rc == -ENOENT ? 0 : rc;
	}
	return session_record_put(s->store, info, &resume, err);
}

int keep_names(struct sessions *s, const struct session_info *info, struct err *err)
{
	cleanup(name_chunk) struct name_chunk *names = name_chunk_create();
	struct collected collected = { .chunk = names };
	cleanup(profile) struct profile *profile = NULL;
	int rc = names ? session_profile_build(s, info, collect_names, &collected, &profile, err)
		       : -ENOMEM;

	if (rc < 0 || !name_chunk_count(names))
		return rc;
	(void)pthread_mutex_lock(&s->file_lock);
	rc = append_names(s, info->id, names, err);
	(void)pthread_mutex_unlock(&s->file_lock);
	return rc;
}

void session_info_settle(struct session_info *info, const struct profile *profile)
{
	const bool fitted = info->type == PROFILE_MEMORY && profile_is_probed(profile);

	/* The kernel's counts of each thread correct its samples when the profile is built. */
	if (!(profile_type_info(info->type)->samples & 1u << PROF_SAMPLE_THREAD) && !fitted)
		return;
	info->total_value = profile->totals[profile_value_index(profile)];
	for (size_t i = 0; i < info->process_count; i++) {
		struct session_process *to = &info->processes[i];
		int64_t value = 0;

		for (uint32_t j = 0; j < profile->process_count; j++)
			if (profile->processes[j].pid == to->pid &&
			    profile->processes[j].started_at_ns == to->started_at_ns)
				value += profile->processes[j].value;
		to->value = value;
	}
}

/* Other hosts show sessions of a shared store and cannot ask this host's symbolizer. Names that it
 * reads only now, or was too busy for, are kept later. */
static bool is_worth_another_look(const struct sessions *s, const struct finished *job,
				  const struct profile *profile, enum names_state state)
{
	return store_is_shared(s->store) && job->tries < LOOKS_MAX &&
	       (state == NAMES_COMING ||
		(state == NAMES_MAY_IMPROVE && profile->quality.unknown_frame_pct > 0));
}

static void look_again(struct finished *job, uint64_t wait_ns)
{
	job->due_ns = clock_monotonic_ns() + wait_ns;
}

/* False: it is worth trying again when @job is due. */
bool keep_names_of_finished(struct sessions *s, struct finished *job)
{
	cleanup(name_chunk) struct name_chunk *names = name_chunk_create();
	cleanup(profile) struct profile *profile = NULL;
	struct collected collected = { .chunk = names };
	struct session_info info;
	struct err err = { 0 };
	int rc = sessions_get(s, job->tenant, job->id, &info, &err);
	bool again = false;

	look_again(job, AGAIN_NS);
	if (rc == 0 && !names)
		session_info_deinit(&info);
	if (rc < 0 || !names)
		return rc != -EIO || !store_is_shared(s->store);
	rc = session_profile_build(s, &info, collect_names, &collected, &profile, &err);
	if (rc == 0)
		again = is_worth_another_look(s, job, profile, collected.state);
	/* A look that brought nothing new leaves what is there. */
	if (rc == 0 && (!job->tries || name_chunk_count(names) > job->names)) {
		info.quality.unknown_frame_pct = profile->quality.unknown_frame_pct;
		info.quality.guessed_frame_pct = profile->quality.guessed_frame_pct;
		info.quality.truncated_pct = profile->quality.truncated_pct;
		session_info_settle(&info, profile);
		if (!info.raw_data_bytes)
			info.raw_data_bytes = store_session_bytes(s->store, info.id);
		(void)pthread_mutex_lock(&s->file_lock);
		rc = write_names(s, &info, names, &err);
		(void)pthread_mutex_unlock(&s->file_lock);
	}
	session_info_deinit(&info);
	if (rc == -EIO && store_is_shared(s->store))
		return false;
	if (rc < 0 && rc != -ENOENT)
		log_warn("session %s: its names are not kept (%s); they are asked for again when "
			 "it is shown",
			 job->id, err.text);
	if (!again || rc < 0)
		return true;
	look_again(job, LOOK_AGAIN_NS << job->tries++);
	job->names = (uint32_t)name_chunk_count(names);
	return false;
}
