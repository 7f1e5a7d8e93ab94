/* SPDX-License-Identifier: Apache-2.0 */
/* One reading of a program's goroutines, shared by go_goroutines.c (reading, unwinding) and
 * go_goroutine_facts.c (what is said of each). */
#ifndef PROFD_READER_GO_SNAPSHOT_H
#define PROFD_READER_GO_SNAPSHOT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "agent/base/u64map.h"
#include "agent/reader/answer.h"
#include "agent/reader/go_labels.h"
#include "agent/reader/go_unwind.h"
#include "agent/reader/go_walks.h"
#include "agent/reader/thread_ids.h"

#define GROUP		512u /* goroutines between the first and the second reading: below 1 ms */
#define SUDOG_BYTES_MAX                                                                            \
	128u /* between the two fields of a sudog that are looked at, both included */

/* src/runtime/runtime2.go */
enum go_status {
	G_IDLE = 0,
	G_RUNNABLE = 1,
	G_RUNNING = 2,
	G_SYSCALL = 3,
	G_WAITING = 4,
	G_DEAD = 6,
	G_COPYSTACK = 8,
	G_PREEMPTED = 9,
	G_LEAKED = 10,
	G_DEADEXTRA = 11,
};

/* The fields that must be equal in both readings. */
struct g_key {
	uint64_t goid, sched_sp, sched_pc, syscall_sp, stack_low;
	uint32_t status;
};

struct g_item {
	uint64_t va;
	uint8_t *g; /* copy in snapshot.g_bytes */
	struct g_key key;
	uint64_t sp, pc, high_va;
	uint64_t index; /* in the runtime's list */
	const struct go_seen *seen; /* parked as it was in an earlier reading: nothing more is read */
	uint8_t *stack; /* copy in snapshot.stack_bytes */
	uint32_t stack_len;
	uint64_t sudog_va; /* 0 = none */
	bool has_sudog;	   /* the words behind it were read */
	uint8_t sudog[SUDOG_BYTES_MAX];
	bool has_g;
	bool wants_stack;
	bool moved;   /* the second reading differed */
	bool skipped; /* nobody asked for goroutines like this one */
};

struct snapshot {
	struct go_layout *layout;
	struct go_unwinder *unwinder;
	struct answer *answer;
	uint32_t flags;
	uint64_t now_ns;
	struct thread_ids thread_ids;
	struct u64map threads; /* m -> tid */
	struct u64map labels;  /* g.labels -> id */
	struct go_walks *walks; /* borrowed: of the program */
	uint32_t *stack_ids;	/* by number of the walk: the answer's, 0 = not written yet */
	size_t stack_id_count;
	unsigned deep_count;
	uint8_t *g_bytes, *again_bytes; /* of the first and the second reading */
	uint8_t *stack_bytes;
	uint8_t *deep_bytes;
	struct g_item items[GROUP];
	struct go_walk walk;
	struct go_labels label_set;
};

static inline uint64_t g_word(const uint8_t *g, uint32_t offset)
{
	uint64_t word;

	memcpy(&word, g + offset, sizeof(word));
	return word;
}


/* "" unless it waits. */
const char *go_wait_reason(const struct snapshot *s, const struct g_item *item);
/* May be a wait for a lock, as far as the reason tells. */
bool go_may_be_lock(const char *reason);
/* The part of a sudog that is read: its first byte and its length in bytes; 0 = not known. */
uint32_t go_sudog_span(const struct go_fields *fields, uint32_t *ret_first);
/* Writes one goroutine, whose stack is in s->walk (count 0: it has none) unless item->seen. Errors
 * of the writer, -ESRCH, -EPERM. */
int go_write_item(struct snapshot *s, const struct g_item *item) must_use;

#endif
