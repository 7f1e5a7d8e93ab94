/* SPDX-License-Identifier: Apache-2.0 */
/* struct recording, shared by recording.c (decoding) and recording_build.c (the profile, with
 * build_internal.h). */
#ifndef PROFD_RECORDING_RECORDING_INTERNAL_H
#define PROFD_RECORDING_RECORDING_INTERNAL_H

#include "agent/base/text_pool.h"
#include "agent/base/u64map.h"
#include "agent/base/vec.h"
#include "agent/recording/pair_places.h"
#include "agent/recording/reading_profile.h"
#include "agent/recording/recording.h"
#include "agent/recording/recording_tree.h"
#include "agent/recording/session_chunks.h"

#define RECORDING_MODULES_MAX (1u << 18)

struct module {
	uint64_t key;
	uint8_t kind, build_id_len;
	uint8_t build_id[FEED_BUILD_ID_MAX];
	char *path; /* owned, NULL = not known */
};

struct process {
	uint32_t tgid;
	uint64_t started_at_ns;
	const char *comm, *exe, *service; /* of the recording's texts, NULL = not known */
	const char *container; /* likewise; NAME=value lines of struct feed_proc, NULL = none */
};

struct stack {
	size_t first; /* in frames */
	uint16_t count;
	uint8_t outcome;
};

VEC_DEFINE(modules, struct module);
VEC_DEFINE(processes, struct process);
VEC_DEFINE(stacks, struct stack);
VEC_DEFINE(frames, uint64_t);
VEC_DEFINE(pairs, struct chunk_pair);
VEC_DEFINE(attrs, struct chunk_attr);
VEC_DEFINE(events, struct chunk_event);
VEC_DEFINE(pair_sums, struct chunk_pair_sum);

struct recording {
	struct modules_vec modules;
	struct processes_vec processes;
	struct text_pool texts; /* of the processes, of which most are alike */
	struct u64map stack_at; /* stack id -> index of stacks */
	struct stacks_vec stacks;
	struct frames_vec frames;
	struct pairs_vec pairs;
	struct attrs_vec attrs;
	struct events_vec events;
	struct reading_bytes_vec readings;
	struct chunk_quality quality;
	uint64_t dropped; /* events beyond RECORDING_EVENTS_MAX */
	unsigned damaged;
	bool windowed;	      /* windows come first: only what they need is kept */
	bool keeps_trees;     /* stacks of settled pieces stay trees: they are not in @stacks */
	struct recording_trees_vec trees;
	bool sums;	      /* events are sums of minutes: realtime, value2 counts */
	bool added_up;	      /* there are no events, but */
	struct pair_sums_vec pair_sums; /* by pair, of all minutes and attributes */
	struct pair_sums_vec
		place_sums; /* by place, of the hours with these places: not in @pair_sums yet */
	struct pair_places places; /* of the hour that was added last */
	struct buf shared;	   /* from which they were read */
	struct u64map event_at; /* single samples: seed -> how many were seen */
	struct u64map needed; /* windowed: stack ids of the pairs that occur */
	/* windowed: a day has more pairs and attrs than occur. Events tell them by an index of
	 * @pairs or @attrs. */
	struct u64map pair_at, attr_at;	 /* the day's number -> the index */
	struct pair_numbers_vec numbers; /* by index of @pairs: the day's number */
	size_t numbered; /* events that have indices instead of the day's numbers */
	/* of the chunk being added */
	uint32_t seq_end;
	struct names_client *names;
};

/* The day's number of a pair, by which trees tell it. */
static inline uint32_t recording_pair_number(const struct recording *recording, uint32_t pair)
{
	return pair < recording->numbers.count ? recording->numbers.data[pair] : pair;
}

#endif
