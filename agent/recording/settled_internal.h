/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by settled.c (putting together), settled_encode.c and settled_decode.c: the format's
 * columns, and what is collected. */
#ifndef PROFD_RECORDING_SETTLED_INTERNAL_H
#define PROFD_RECORDING_SETTLED_INTERNAL_H

#include "agent/base/u64map.h"
#include "agent/base/vec.h"
#include "agent/recording/settled.h"

#define SETTLED_ROOT	 0u /* node */
#define SETTLED_LOW_BITS                                                                           \
	40 /* of a frame word: offset or address; above them module, kind and flags */

/* In the order of the file. */
enum settled_column {
	COLUMN_MODULES,
	COLUMN_TEXTS,
	COLUMN_PROCESS_IDS,
	COLUMN_PROCESS_TGIDS,
	COLUMN_PROCESS_EXECS,
	COLUMN_PROCESS_STARTS,
	COLUMN_PROCESS_CLOCKS,
	COLUMN_PROCESS_COMMS,
	COLUMN_PROCESS_EXES,
	COLUMN_PROCESS_SERVICES,
	COLUMN_FRAME_HEADS,
	COLUMN_FRAME_LOWS,
	COLUMN_CALL_COUNTS,
	COLUMN_CALL_FRAMES,
	COLUMN_NODE_UPS,
	COLUMN_NODE_FIRSTS,
	COLUMN_NODE_NEXTS,
	COLUMN_LEAF_PAIRS,
	COLUMN_INNER_PAIRS,
	COLUMN_RUN_LENGTHS,
	COLUMN_RUNS, /* and three more: its higher bytes */
	COLUMN_KERNELS = COLUMN_RUNS + 4,
	COLUMN_USER_OUTCOMES,
	COLUMN_KERNEL_OUTCOMES,
	COLUMN_ATTR_PROCESSES,
	COLUMN_ATTR_TIDS,
	COLUMN_ATTR_TYPES,
	COLUMN_ATTR_STATES,
	COLUMN_ATTR_DETAILS,
	COLUMN_ATTR_COMMS,
	COLUMN_ATTR_OBJECTS,
	COLUMN_ATTR_HOLDERS,
	SETTLED_COLUMNS
};

struct module {
	struct chunk_module module;
	char *path;
	uint8_t build_id[FEED_BUILD_ID_MAX];
};

struct process {
	struct chunk_process process; /* without its texts */
	uint32_t comm, exe, service;  /* numbers of texts */
};

struct text {
	char *bytes;
	size_t len;
};

struct node {
	uint32_t parent;
	uint32_t frame_at; /* in the sorted table, while encoding */
	uint64_t frame;
	uint32_t depth, number; /* in the walk, while encoding */
};

struct stack {
	uint32_t node;
	uint8_t outcome;
};

VEC_DEFINE(modules, struct module);
VEC_DEFINE(processes, struct process);
VEC_DEFINE(texts, struct text);
VEC_DEFINE(nodes, struct node);
VEC_DEFINE(stacks, struct stack);
VEC_DEFINE(pairs, struct chunk_pair);
VEC_DEFINE(attrs, struct chunk_attr);

struct settled {
	struct modules_vec modules;
	struct processes_vec processes;
	struct u64map process_at; /* id -> index of processes */
	struct texts_vec texts;	  /* the first is empty */
	struct u64map text_at;	  /* hash -> index of texts */
	struct nodes_vec nodes;	  /* the first is the root */
	struct u64map child_at;	  /* hash of parent and frame -> node */
	struct stacks_vec stacks;
	struct u64map stack_at; /* id -> index of stacks */
	struct pairs_vec pairs;
	struct attrs_vec attrs;
	uint32_t first_pair, first_attr;
};

/* The number of a text, which is added if there is none. -ENOMEM. */
int settled_find_text(struct settled *s, struct chunk_text text, uint32_t *ret) must_use;

#endif
