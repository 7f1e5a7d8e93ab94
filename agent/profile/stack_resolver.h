/* SPDX-License-Identifier: Apache-2.0 */
/* Turns raw stacks (frame words of bpf/profiler.h with the module ids of agent/wire/feed.h, leaf
 * first) into nodes of a profile builder. Kernel frames go below the user frames that called them.
 * Inlined functions are expanded. Unknown functions keep module and offset. [truncated] is the
 * outermost frame of a cut stack.
 *
 * Each distinct frame is resolved once: a memo maps its word to the resolved frames. The memo is
 * emptied at its bound; the builder's interning keeps the result the same. Not thread-safe. */
#ifndef PROFD_PROFILE_STACK_RESOLVER_H
#define PROFD_PROFILE_STACK_RESOLVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/profile/names.h"
#include "agent/profile/profile.h"

struct stack_module {
	uint64_t key;	  /* stable identity: what name_source is asked with */
	const char *path; /* as the process names it, "" if unknown; valid until the next find() */
	const uint8_t *build_id;
	uint8_t build_id_len;
	uint8_t kind; /* enum feed_module_kind */
};

/* The module table, lent by whoever keeps the ids. */
struct stack_modules {
	void *ctx;
	/* false = the id is not known (yet). */
	bool (*find)(void *ctx, uint32_t module, struct stack_module *ret);
};

#define STACK_MEMO_MAX (1u << 20) /* distinct frames remembered, about 40 bytes each */

struct stack_resolver;

/* All three are borrowed and outlive the resolver; @names may be NULL (everything is unknown).
 * @memo_max 0 means STACK_MEMO_MAX. NULL when out of memory. */
struct stack_resolver *stack_resolver_create(struct profile_builder *builder,
					     const struct stack_modules *modules,
					     const struct name_source *names, size_t memo_max);
void stack_resolver_destroy(struct stack_resolver *r);
CLEANUP_DEFINE(stack_resolver, struct stack_resolver *, stack_resolver_destroy);

/* Tells the name source which frames will be asked for, grouped by module, each once. @frames may
 * be the frames of many stacks one after the other. -ENOMEM. */
int stack_resolver_prefetch(struct stack_resolver *r, const uint64_t *frames, size_t count)
	must_use;

struct stack_frames {
	const uint64_t *frames; /* leaf first */
	size_t count;		/* 0 = none */
};

/* The node of the stack @user + @kernel; 0 (the root) when both are empty. -ENOMEM; errors of the
 * builder stay in it. */
int stack_resolver_node(struct stack_resolver *r, struct stack_frames user,
			struct stack_frames kernel, uint32_t *ret_node) must_use;
/* The builder's frames that a word stands for, outermost first: borrowed until the next call.
 * False: it was not asked for yet. */
bool stack_resolver_known(const struct stack_resolver *r, uint64_t word, const uint32_t **ret,
			  size_t *ret_count);
/* The same, whatever was asked for. -ENOMEM. */
int stack_resolver_frames(struct stack_resolver *r, uint64_t word, const uint32_t **ret,
			  size_t *ret_count) must_use;
/* Goes on from *@node with @stack, as it is. -ENOMEM. */
int stack_resolver_below(struct stack_resolver *r, struct stack_frames stack, uint32_t *node)
	must_use;
/* Goes on from *@node with @stack turned over: its leaf first. -ENOMEM. */
int stack_resolver_turned(struct stack_resolver *r, struct stack_frames stack, uint32_t *node)
	must_use;

#endif
