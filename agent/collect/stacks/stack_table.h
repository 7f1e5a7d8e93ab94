/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks by the hash that BPF gives them, and their normal form. In normal form every frame that
 * lies in a module is (module, offset), and the id is a hash over (module key, offset, flags). So
 * the id is the same in every process, after every restart and on every host. The table is bounded
 * by bytes. Eviction is by a clock that counts uses, so that a flood of stacks seen once does not
 * push out those in every sample. Pure. */
#ifndef PROFD_COLLECT_STACK_TABLE_H
#define PROFD_COLLECT_STACK_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/wire/feed.h"
#include "bpf/profiler.h"

#define STACK_TABLE_BYTES_MAX (16u << 20)

enum stack_flag {
	STACK_PROVISIONAL = 1, /* a module's key is not known yet: the id will change */
	STACK_ADDRESSES = 2,   /* frames are left that lie in no known module */
};

struct stack {
	uint64_t hash;		  /* of BPF */
	uint64_t id;		  /* 0 = not normalized yet */
	uint64_t resolved_at;	  /* resolver's version when it was last normalized */
	uint32_t sent_generation; /* of the server that the feed has it for; 0 = none */
	uint16_t frame_count;
	uint8_t outcome;
	uint8_t flags;		  /* enum stack_flag */
	uint8_t uses;		  /* rounds of the clock's hand that it survives, at most 3 */
	uint64_t *frames;	  /* leaf first; 0 = no frame (word A of a script frame) */
	uint64_t *addresses; /* as many, those that came as ADDRESS or script words, others 0; NULL =
			      * there were none */
	uint64_t life;		  /* salt of the process that they were resolved for */
};

struct stack_table;

/* @evicted gets the hash of every stack that leaves (may be NULL). */
struct stack_table *stack_table_create(size_t bytes_max, void (*evicted)(void *ctx, uint64_t hash),
				       void *ctx);
void stack_table_destroy(struct stack_table *table);
CLEANUP_DEFINE(stack_table, struct stack_table *, stack_table_destroy);

/* Words of one stack as BPF sends it: a script frame is two. */
#define STACK_WORDS_MAX (PROF_WORDS_MAX + PROF_KERNEL_FRAMES_MAX + 1)

/* Adds a stack as BPF sent it; one that is known stays as it is. -EPROTO more words than
 * STACK_WORDS_MAX or none, -ENOMEM. */
int stack_table_put(struct stack_table *table, uint64_t hash, const uint64_t *frames,
		    uint16_t frame_count, uint8_t outcome) must_use;
/* Adds a stack in normal form under an @id of its own, which it keeps. Borrowed until the next put.
 * NULL: as above. */
struct stack *stack_table_put_as(struct stack_table *table, uint64_t id, const uint64_t *frames,
				 uint16_t frame_count, uint8_t outcome);
/* Counts a use. NULL = unknown. Borrowed until the next put. */
struct stack *stack_table_find(struct stack_table *table, uint64_t hash);
struct stack *stack_table_by_id(struct stack_table *table, uint64_t id);

/* Calls @each for every stack. */
void stack_table_each(const struct stack_table *table,
		      void (*each)(void *ctx, const struct stack *stack), void *ctx);

struct stack_resolver {
	void *ctx;
	/* The normal form of a frame: a MODULE frame of the canonical module, else the frame as it
	 * is. Called for the words of a stack in order. Word A of a script frame becomes 0, and
	 * word B the frame. */
	uint64_t (*frame)(void *ctx, uint64_t frame);
	/* The stable identity of a module; false while it is not known. */
	bool (*key)(void *ctx, uint32_t module, uint64_t *ret);
	uint64_t version; /* changes whenever another answer may be had */
	uint64_t salt;	  /* for ids that are not stable: unique to this collector and process instance */
};

/* Brings @stack into normal form if it never was, if it is not final and the resolver's version has
 * changed, or if it has addresses and belonged to another process instance. The last case exists
 * because BPF tells processes apart by their pid, which exec keeps. True if the id changed. */
bool stack_table_normalize(struct stack_table *table, struct stack *stack,
			   const struct stack_resolver *resolver);

#endif
