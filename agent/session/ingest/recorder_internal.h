/* SPDX-License-Identifier: Apache-2.0 */
/* struct recorder, shared by recorder.c (adding), recorder_seal.c (to chunks) and recorder_reload.c
 * (back from them). */
#ifndef PROFD_SESSION_RECORDER_INTERNAL_H
#define PROFD_SESSION_RECORDER_INTERNAL_H

#include "agent/base/recent_map.h"
#include "agent/base/text_pool.h"
#include "agent/recording/reading_chunk.h"
#include "agent/session/ingest/recorder.h"

#define STACK_WAITS	0xffff /* its frames are not known yet */

/* Pairs, stacks and attrs that a recorder knows, in each of two generations. One that comes again
 * later is stored again, with another id: a day has many that are seen once. */
#define RECENT_MAX 32768u

/* A pair of which the record of the user stack is not known yet. */
struct waiting_pair {
	uint64_t user_stack;
	uint64_t samples;
	uint32_t pair;
};

/* The outcome of a pair's user stack: of bpf/outcome.def, or PAIR_WAITS + its index of waiting. */
#define PAIR_WAITS 256u

VEC_DEFINE(waiting_pairs, struct waiting_pair);
VEC_DEFINE(pair_outcomes, uint32_t);
VEC_DEFINE(chunk_pairs, struct chunk_pair);
VEC_DEFINE(chunk_attrs, struct chunk_attr);
VEC_DEFINE(chunk_events, struct chunk_event);
VEC_DEFINE(chunk_stacks, struct chunk_stack);
VEC_DEFINE(chunk_modules, struct chunk_module);
VEC_DEFINE(recorder_processes, struct recorder_process);
VEC_DEFINE(stack_ids, uint64_t);

/* A bucket of the runtime when the session began. */
struct start_value {
	int64_t values[2];
};
VEC_DEFINE(start_values, struct start_value);

struct recorder {
	uint32_t pairs_max;
	bool sums; /* of a day: no events, and nothing is counted by pair or process */
	/* Dictionaries: key -> the session's own id. */
	struct u64map module_ids;  /* module key */
	struct u64map process_ids; /* hash of the instance's identity */
	struct recent_map pair_ids; /* hash of both stack ids */
	struct recent_map attr_ids; /* hash of the attr */
	struct recent_map
		stack_seen; /* stack id -> outcome: in the file or a group, or STACK_WAITS */
	struct u64map live_process_ids; /* the collector's proc -> process id, this epoch only */
	uint32_t pair_count, process_count;
	struct pair_outcomes_vec outcomes; /* by pair; none of sums */
	struct waiting_pairs_vec waiting;
	uint64_t outcome_samples[PROFILE_OUTCOMES_MAX]; /* of pairs that do not wait */
	struct recorder_processes_vec processes; /* none of sums */
	struct text_pool exes; /* of the processes, of which most are alike */
	uint32_t module_count;
	uint32_t attr_count;
	/* New since the last seal. */
	struct chunk_pairs_vec new_pairs; /* the last of the pairs */
	struct chunk_attrs_vec new_attrs; /* the last of the attrs */
	struct chunk_events_vec pending;
	uint64_t sealed_events;	 /* so many came before */
	struct u64map sum_at; /* pair and attr -> number of its last sum of calls, sealed or index
				 of pending behind these */
	struct stack_ids_vec missing;
	struct buf process_entries;
	uint32_t process_entry_count;
	bool quality_changed;
	uint32_t next_seq;
	struct chunk_quality quality;
	struct recorder_group *groups, **groups_end;
	/* Readings (recorder_readings.c). */
	uint32_t read_round;   /* last one that is in the file or a group */
	uint32_t phases_read;  /* bits 1 << enum reading_phase: complete */
	struct u64map start_at; /* hash of process and bucket -> index of start_values */
	struct start_values_vec start_values;
};

void recorder_free_group(struct recorder_group *group);
uint64_t recorder_process_hash(uint32_t tgid, uint64_t start_boottime_ns, uint32_t exec_generation);
uint64_t recorder_pair_hash(const struct chunk_pair *pair);
uint64_t recorder_attr_hash(const struct chunk_attr *attr);
/* A process new to the session; the first of its facts are kept. */
int recorder_add_process(struct recorder *r, const struct chunk_process *p, uint64_t hash) must_use;
/* Notes that the frames of @stack are wanted, unless they are known. */
int recorder_need_stack(struct recorder *r, uint64_t stack) must_use;
void recorder_count(struct recorder *r, const struct chunk_event *event,
		    const struct chunk_attr *attr);
/* A pair that is not there yet gets the next id. -ENOMEM. */
int recorder_add_pair(struct recorder *r, const struct chunk_pair *pair) must_use;
/* Pairs stop to wait whose stacks are known by now; all of them if @final. */
void recorder_learn_outcomes(struct recorder *r, bool final);
/* A READINGS chunk of the file, after a restart. -ENOMEM, -EPROTO. */
int recorder_reload_reading(struct recorder *r, const void *data, size_t len) must_use;

#endif
