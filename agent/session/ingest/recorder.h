/* SPDX-License-Identifier: Apache-2.0 */
/* The data that one running session has taken: dictionaries of its own, the events not yet sealed,
 * counters. Sealing turns new events into a group of encoded chunks. Groups wait until the store
 * has them. A reader of a running session sees the file and, on top, the groups (their SAMPLES
 * chunks are numbered, so that a chunk that is in both counts once).
 *
 *      recorder_add() -> pending -> recorder_seal() -> groups -> store -> recorder_stored()
 *
 * Not thread-safe: guarded by the lock of struct sessions. */
#ifndef PROFD_SESSION_RECORDER_H
#define PROFD_SESSION_RECORDER_H

#include "agent/recording/session_chunks.h"
#include "agent/session/ingest/live_tables.h"
#include "agent/store/store.h"

#define RECORDER_PENDING_MAX 65536u /* events; more seal themselves */
#define RECORDER_GROUP_CHUNKS 5

struct recorder;

/* Totals of one process of the session. */
struct recorder_process {
	uint32_t tgid;
	uint64_t started_at_ns; /* realtime */
	const char *exe; /* lent by the recorder; at most 255 bytes */
	int64_t value;
	uint64_t samples;
	uint64_t hash; /* of its identity */
};

struct recorder_group {
	struct recorder_group *next;
	uint32_t seq;	       /* of its SAMPLES chunk */
	uint64_t position;     /* of the feed: everything before is in here or in earlier groups */
	unsigned chunk_count;
	enum store_chunk_kind kinds[RECORDER_GROUP_CHUNKS];
	struct buf data[RECORDER_GROUP_CHUNKS];
};

/* Items that a seal missed and asks the collector for. */
struct recorder_wants {
	uint64_t stacks[512], modules[512];
	unsigned stack_count, module_count;
};

/* @pairs_max: pairs of stacks that are stored; more go to the overflow bucket. A recorder forgets
 * pairs, stacks and attributes that were not seen for the time of some 30,000 others: when they
 * come again they are stored again, with other ids. So its memory grows with its length by what
 * identifies processes and, where events are counted, 4 bytes a pair and 50 bytes a process. NULL:
 * no memory. */
struct recorder *recorder_create(uint32_t pairs_max);
/* One for sums: recorder_intern() and the dictionary alone, without events, totals and outcomes. */
struct recorder *recorder_create_for_sums(uint32_t pairs_max);
void recorder_destroy(struct recorder *r);
CLEANUP_DEFINE(recorder, struct recorder *, recorder_destroy);

/* Rebuilds the state after a restart from the chunks in the store. -ENOENT: nothing was stored
 * yet. */
int recorder_reload(struct recorder *r, struct store *store, const char *id, struct err *err)
	must_use;
/* The same from chunks that come from elsewhere: each in order, then done. */
int recorder_reload_chunk(void *recorder, const struct store_chunk *chunk) must_use;
int recorder_reload_done(struct recorder *r) must_use;
/* The collector's ids mean something else from now on. */
void recorder_forget_epoch(struct recorder *r);

/* One event; @value and @value2 after thinning. -ENOMEM. */
int recorder_add(struct recorder *r, const struct feed_sample *sample,
		 const struct live_process *process, int64_t value, uint64_t value2) must_use;
/* Calls that moved bytes and were all recorded (sample->state CHUNK_IO_SUM) add up. Those of one
 * place and second are one event, so bytes are exact at any rate. RECORDER_ADDED: to what is there,
 * of an earlier second if no other sum @may_begin; RECORDER_BEGAN: a sum of this second, or since
 * the last seal; RECORDER_NONE: the place is new, recorder_add() begins its first. -ENOMEM. */
enum recorder_sum { RECORDER_NONE, RECORDER_ADDED, RECORDER_BEGAN };
int recorder_add_up(struct recorder *r, const struct feed_sample *sample,
		    const struct live_process *process, bool may_begin) must_use;
/* The ids of an event's stacks and attributes, without keeping the event: for sums. */
int recorder_intern(struct recorder *r, const struct feed_sample *sample,
		    const struct live_process *process, uint32_t *ret_pair,
		    uint32_t *ret_attr) must_use;
size_t recorder_pending(const struct recorder *r);
/* The counters of everything that was added; recorder_quality() is for changing them: the next seal
 * writes them out. */
const struct chunk_quality *recorder_counters(const struct recorder *r);
struct chunk_quality *recorder_quality(struct recorder *r);

/* Numbers the pairs that are new since the last seal once more, in the order of their stacks from
 * the root: so stored, neighbours in the tree have near numbers. For recorders for sums.
 * *ret_moved (the caller frees): the new number of pair *ret_first + i; NULL when none has moved.
 * -ENOMEM: all are as they were. */
int recorder_order_pairs(struct recorder *r, struct live_tables *tables, uint32_t *ret_first,
			 uint32_t **ret_moved) must_use;
/* Encodes what is new up to feed position @position. Stacks whose frames are not known yet stay
 * behind and are put into @wants (may be NULL); @final gives up on them: they become `[unknown]`.
 * -ENOMEM. */
int recorder_seal(struct recorder *r, struct live_tables *tables, uint64_t position, bool final,
		  struct recorder_wants *wants) must_use;
/* First sealed group the store has not acknowledged; NULL = none. Groups are only removed by
 * recorder_stored(). */
struct recorder_group *recorder_groups(struct recorder *r);
/* Removes the groups up to and including @last. */
void recorder_stored(struct recorder *r, const struct recorder_group *last);
/* Stacks still waiting for their frames. */
size_t recorder_missing(const struct recorder *r);
/* The stored stacks have lost their ids (settled.h): new pairs bring theirs again. Call it when
 * there are no groups. */
void recorder_forget_stacks(struct recorder *r);

/* Samples by outcome of their user stack (bpf/outcome.def), of the stacks known so far. */
void recorder_outcomes(const struct recorder *r, uint64_t ret[PROFILE_OUTCOMES_MAX]);
size_t recorder_process_count(const struct recorder *r);
const struct recorder_process *recorder_process(const struct recorder *r, size_t at);
/* Appends a note unless it is there already or there is no room. */
void recorder_note(struct recorder *r, const char *fmt, ...) printf_like(2, 3);
/* Removes @note, which no longer holds; nothing if it is not there. */
void recorder_unnote(struct recorder *r, const char *note);
/* Process @pid is left out; the first reason counts. */
void recorder_skip(struct recorder *r, uint32_t pid, const char *reason);

/* ---- readings (recorder_readings.c): sessions that are taken by reading ------------------------
 */

struct reading;

/* A new round of @phase begins; one of the same phase that was cut short does not count. */
uint32_t recorder_begin_readings(struct recorder *r, uint8_t phase);
/* The session's ids of @reading's modules, put into its frames. -ENOMEM. */
int recorder_translate_reading(struct recorder *r, struct reading *reading) must_use;
/* Keeps the values of the session's beginning. -ENOMEM. */
int recorder_keep_start(struct recorder *r, const struct chunk_process *process,
			const struct reading *reading) must_use;
/* Leaves of @reading what came since the beginning. -ENODATA: that process was not read then,
 * although it lived (@lived). */
int recorder_subtract_start(const struct recorder *r, const struct chunk_process *process,
			    bool lived, struct reading *reading) must_use;
/* Takes over @groups, whose READINGS chunks get their places. Counts @samples and @value for
 * @process (NULL: the end of the phase, no process). The first chunk of the first group is empty
 * and becomes the process's entry. -ENOMEM: @groups are still the caller's. */
int recorder_add_groups(struct recorder *r, struct chunk_process *process,
			struct recorder_group *groups, uint64_t position, uint64_t samples,
			int64_t value) must_use;
void recorder_end_readings(struct recorder *r, uint8_t phase);
bool recorder_has_read(const struct recorder *r, uint8_t phase);
void recorder_groups_free(struct recorder_group *groups);

#endif
