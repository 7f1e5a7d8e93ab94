/* SPDX-License-Identifier: Apache-2.0 */
/* Folding of stacks, a level at a time: nodes of the profile with the same parent in the folded tree and the same
 * function (or name) are one group. Groups of a level are made when somebody goes there, so that what is never shown
 * is never folded. */
#ifndef PROFD_API_RENDER_STACK_GROUPS_H
#define PROFD_API_RENDER_STACK_GROUPS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/vec.h"
#include "agent/profile/profile.h"

struct stack_group {
	uint32_t function; /* of one of its nodes */
	uint32_t parent;   /* whatever stack_groups_make() was given */
	uint32_t head;	   /* first member; the others by stack_groups.member */
	int64_t value;	   /* sum of the members' values */
};
VEC_DEFINE(stack_group, struct stack_group);

struct stack_groups {
	const struct profile *p;
	bool by_name;
	const int64_t *values;	/* of nodes, borrowed */
	uint32_t *first, *next; /* children of nodes; 0 = none */
	uint32_t *member;	/* node -> the next of its group; 0 = none */
	uint32_t *stamp, *slot; /* function or name -> turn in which its group was made, and which */
	uint32_t turn;
	struct stack_group_vec all; /* may be cut back to an earlier count */
};

/* @p and @values must outlive the groups. -ENOMEM; stack_groups_deinit() is needed either way. */
int stack_groups_init(struct stack_groups *g, const struct profile *p, const int64_t *values,
		      bool by_name) must_use;
void stack_groups_deinit(struct stack_groups *g);
/* Appends the groups of the children of @head and the other members of its group (0 = the root) to g->all, from
 * @ret_begin on. -ENOMEM. */
int stack_groups_make(struct stack_groups *g, uint32_t head, uint32_t parent, size_t *ret_begin) must_use;

#endif
