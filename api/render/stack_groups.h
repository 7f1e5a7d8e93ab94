/* SPDX-License-Identifier: Apache-2.0 */
/* Folds stacks, a level at a time. Nodes of the profile with the same parent in the folded tree and
 * the same function (or name) are one group. Groups of a level are made when somebody goes there,
 * so that what is never shown is never folded. */
#ifndef PROFD_API_RENDER_STACK_GROUPS_H
#define PROFD_API_RENDER_STACK_GROUPS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/vec.h"
#include "agent/profile/profile.h"
#include "agent/profile/tree.h"

struct stack_group {
	uint32_t function; /* of one of its nodes */
	uint32_t parent;   /* whatever stack_groups_make() was given */
	uint32_t head;	   /* first of its members; 0 = the root alone */
	int64_t total;	   /* sum of the members' */
};
VEC_DEFINE(stack_group, struct stack_group);

struct stack_member {
	struct tree_place place;
	uint32_t next; /* of the group, or of those that are free; 0 = none */
};
VEC_DEFINE(stack_member, struct stack_member);

struct stack_groups {
	const struct profile *p;
	bool by_name;
	struct tree tree;
	struct stack_member_vec members; /* 0 is the root */
	uint32_t free;
	uint32_t *stamp, *slot; /* function or name -> turn in which its group was made, and which */
	uint32_t turn;
	struct stack_group_vec all; /* may be cut back to an earlier count */
};

/* @p must outlive the groups. -ENOMEM; stack_groups_deinit() is needed either way. */
int stack_groups_init(struct stack_groups *g, const struct profile *p, unsigned value_index,
		      bool by_name) must_use;
void stack_groups_deinit(struct stack_groups *g);
/* Appends the groups of the children of @head and the other members of its group to g->all, from
 * @ret_begin on. -ENOMEM. */
int stack_groups_make(struct stack_groups *g, uint32_t head, uint32_t parent, size_t *ret_begin)
	must_use;
/* Sum of the members' own values. */
int64_t stack_groups_self(const struct stack_groups *g, uint32_t head);
/* The members are not needed any more. */
void stack_groups_drop(struct stack_groups *g, uint32_t head);

#endif
