// SPDX-License-Identifier: Apache-2.0
#include "api/render/stack_groups.h"

#include <errno.h>
#include <stdlib.h>

int stack_groups_init(struct stack_groups *g, const struct profile *p, const int64_t *values, bool by_name)
{
	size_t nodes = (size_t)p->node_count + 1;
	size_t keys = (size_t)(by_name ? p->string_count : p->function_count) + 1;

	*g = (struct stack_groups){ .p = p, .by_name = by_name, .values = values };
	g->first = calloc(nodes, sizeof(*g->first));
	g->next = calloc(nodes, sizeof(*g->next));
	g->member = calloc(nodes, sizeof(*g->member));
	g->stamp = calloc(keys, sizeof(*g->stamp));
	g->slot = calloc(keys, sizeof(*g->slot));
	if (!g->first || !g->next || !g->member || !g->stamp || !g->slot)
		return -ENOMEM;
	for (uint32_t i = p->node_count; i-- > 1;) {
		g->next[i] = g->first[p->nodes[i].parent];
		g->first[p->nodes[i].parent] = i;
	}
	return 0;
}

void stack_groups_deinit(struct stack_groups *g)
{
	free(g->first);
	free(g->next);
	free(g->member);
	free(g->stamp);
	free(g->slot);
	stack_group_vec_deinit(&g->all);
}

int stack_groups_make(struct stack_groups *g, uint32_t head, uint32_t parent, size_t *ret_begin)
{
	const struct profile *p = g->p;
	uint32_t turn = ++g->turn;
	uint32_t m = head;

	*ret_begin = g->all.count;
	do {
		for (uint32_t c = g->first[m]; c; c = g->next[c]) {
			uint32_t function = p->frames[p->nodes[c].frame].function;
			uint32_t key = g->by_name ? p->functions[function].name : function;
			struct stack_group *group;
			int rc;

			if (g->stamp[key] != turn) {
				g->stamp[key] = turn;
				g->slot[key] = (uint32_t)g->all.count;
				rc = stack_group_vec_push(&g->all,
							  (struct stack_group){ function, parent, 0, 0 });
				if (rc < 0)
					return rc;
			}
			group = &g->all.data[g->slot[key]];
			g->member[c] = group->head;
			group->head = c;
			group->value += g->values[c];
		}
		m = g->member[m];
	} while (m);
	return 0;
}
