// SPDX-License-Identifier: Apache-2.0
#include "api/render/stack_groups.h"

#include <errno.h>
#include <stdlib.h>

int stack_groups_init(struct stack_groups *g, const struct profile *p, unsigned value_index,
		      bool by_name)
{
	size_t keys = (size_t)(by_name ? p->string_count : p->function_count) + 1;
	int rc;

	*g = (struct stack_groups){ .p = p, .by_name = by_name };
	g->stamp = calloc(keys, sizeof(*g->stamp));
	g->slot = calloc(keys, sizeof(*g->slot));
	if (!g->stamp || !g->slot)
		return -ENOMEM;
	rc = tree_init(&g->tree, p, value_index);
	return rc < 0 ? rc : stack_member_vec_push(&g->members, (struct stack_member){ 0 });
}

void stack_groups_deinit(struct stack_groups *g)
{
	tree_deinit(&g->tree);
	free(g->stamp);
	free(g->slot);
	stack_member_vec_deinit(&g->members);
	stack_group_vec_deinit(&g->all);
}

/* A member in front of @next; 0 without memory. */
static uint32_t add_member(struct stack_groups *g, struct tree_place place, uint32_t next)
{
	uint32_t member = g->free;

	if (member) {
		g->free = g->members.data[member].next;
		g->members.data[member] = (struct stack_member){ place, next };
		return member;
	}
	member = (uint32_t)g->members.count;
	return stack_member_vec_push(&g->members, (struct stack_member){ place, next }) < 0 ? 0 : member;
}

static int add_to_group(struct stack_groups *g, struct tree_place place, uint32_t parent)
{
	const struct profile *p = g->p;
	uint32_t function = p->frames[p->nodes[place.node].frame].function;
	uint32_t key = g->by_name ? p->functions[function].name : function;
	struct stack_group *group;

	if (g->stamp[key] != g->turn) {
		int rc = stack_group_vec_push(
			&g->all, (struct stack_group){ .function = function, .parent = parent });

		if (rc < 0)
			return rc;
		g->stamp[key] = g->turn;
		g->slot[key] = (uint32_t)g->all.count - 1;
	}
	group = &g->all.data[g->slot[key]];
	group->total += tree_total(&g->tree, place);
	group->head = add_member(g, place, group->head);
	return group->head ? 0 : -ENOMEM;
}

int stack_groups_make(struct stack_groups *g, uint32_t head, uint32_t parent, size_t *ret_begin)
{
	uint32_t m = head;

	g->turn++;
	*ret_begin = g->all.count;
	do {
		struct tree_children children = { .parent = g->members.data[m].place };
		struct tree_place child;

		while (tree_child(&g->tree, &children, &child)) {
			int rc = add_to_group(g, child, parent);

			if (rc < 0)
				return rc;
		}
		m = g->members.data[m].next;
	} while (m);
	return 0;
}

int64_t stack_groups_self(const struct stack_groups *g, uint32_t head)
{
	int64_t self = 0;
	uint32_t m = head;

	do {
		self += tree_self(&g->tree, g->members.data[m].place);
		m = g->members.data[m].next;
	} while (m);
	return self;
}

void stack_groups_drop(struct stack_groups *g, uint32_t head)
{
	while (head) {
		uint32_t next = g->members.data[head].next;

		g->members.data[head].next = g->free;
		g->free = head;
		head = next;
	}
}
