/* SPDX-License-Identifier: Apache-2.0 */
/* A session's chunks, decoded, and the profile that is built from them. Chunks come from the store,
 * and for a running session also from groups that are not stored yet. Not thread-safe. */
#ifndef PROFD_RECORDING_RECORDING_H
#define PROFD_RECORDING_RECORDING_H

#include <stdint.h>

#include "agent/profile/profile.h"
#include "agent/recording/names_client.h"
#include "agent/store/store.h"

#define RECORDING_EVENTS_MAX 20000000u /* more are summed without their time */

struct recording;

struct recording *recording_create(void); /* NULL: no memory */
void recording_destroy(struct recording *recording);
CLEANUP_DEFINE(recording, struct recording *, recording_destroy);

/* SAMPLES chunks with seq >= @seq_end are left out (they come from elsewhere). Names go to @names
 * (may be NULL). A damaged chunk is skipped and counted. -ENOMEM. */
int recording_add(struct recording *recording, int kind, const void *data, size_t len,
		  uint32_t seq_end, struct names_client *names) must_use;
/* All chunks of the store. -ENOENT. */
int recording_load(struct recording *recording, struct store *store, const char *id,
		   uint32_t seq_end, struct names_client *names, struct err *err) must_use;

/* Sums of a minute, or of those minutes of an hour that begin in [@from_ns, @to_ns), thinned to a
 * share @keep of the samples, the same way every time. Windows come first, then the day's
 * dictionary twice: recording_add_pairs() for every chunk, then recording_add() for every chunk,
 * which keeps only the stacks that the windows need. */
int recording_add_window(struct recording *recording, const struct store_window *window,
			 uint64_t from_ns, uint64_t to_ns, double keep) must_use;
/* A single sample (realtime) of the minute that begins at @minute_ns, in place of its sums:
 * likewise before the dictionary, and thinned to the same samples as those. */
struct chunk_event;
int recording_add_event(struct recording *recording, const struct chunk_event *event,
			uint64_t minute_ns, double keep) must_use;
int recording_add_pairs(struct recording *recording, int kind, const void *data,
			size_t len) must_use;
/* Windows are added up by pair as they come, for window_functions.h: before the first, and behind
 * the last. -ENOMEM; -EPROTO: the day is damaged. */
void recording_add_up(struct recording *recording);
int recording_added_up(struct recording *recording) must_use;
/* Quicker, for recordings of which a profile is built and nothing else. Before the dictionary. */
void recording_keep_trees(struct recording *recording);
/* @count pieces could not be read: said in the profile's quality. */
void recording_note_damage(struct recording *recording, unsigned count);
/* The recording as chunks of a session of its own: sums of minutes become events, so that a reader
 * of them must call recording_set_sums(). -ENOMEM, -E2BIG, or what @emit returned. */
typedef int recording_chunk_fn(void *ctx, const struct store_chunk *chunk);
int recording_encode(const struct recording *recording, recording_chunk_fn *emit, void *ctx)
	must_use;
/* Events are sums of minutes in realtime, as recording_add_window() leaves them. Before the chunks
 * are added. */
void recording_set_sums(struct recording *recording);
/* 0: there is nothing. Of what is added up: pairs. */
size_t recording_event_count(const struct recording *recording);

struct recording_options {
	struct profile_meta meta;
	struct profile_quality quality; /* as known to the session */
	uint32_t nodes_max;
	bool events; /* keep time order */
	bool paths;  /* with the files and peers of io */
	bool bare;   /* what was read without its attributes: enough for names and quality */
	bool raw;    /* with the interpreter's own frames (agent/profile/profile_fold.h) */
};
int recording_build(const struct recording *recording, const struct recording_options *options,
		    const struct name_source *names, struct profile **ret) must_use;

#endif
