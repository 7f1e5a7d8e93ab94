// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int tree_init(struct tree *tree, const struct profile *p)
{
	size_t size = (size_t)p->node_count * sizeof(uint32_t);
	cleanup_free uint32_t *first = malloc(size);
	cleanup_free uint32_t *next = malloc(size);
	uint32_t i;

	if (!first || !next)
		return -ENOMEM;
	memset(first, 0xff, size);
	memset(next, 0xff, size);
	/* Backwards, so that lists come out in ascending order. */
	for (i = p->node_count - 1; i > 0; i--) {
		next[i] = first[p->nodes[i].parent];
		first[p->nodes[i].parent] = i;
	}
	*tree = (struct tree){ p, take_ptr(first), take_ptr(next) };
	return 0;
}

void tree_deinit(struct tree *tree)
{
	free(tree->first_child);
	free(tree->next_sibling);
	*tree = (struct tree){ 0 };
}

bool tree_step(const struct tree *tree, struct tree_cursor *at)
{
	if (!at->leaving && tree->first_child[at->node] != TREE_NONE) {
		at->node = tree->first_child[at->node];
		return true;
	}
	if (!at->leaving && at->node) {
		at->leaving = true;
		return true;
	}
	if (!at->node)
		return false;
	if (tree->next_sibling[at->node] != TREE_NONE) {
		at->node = tree->next_sibling[at->node];
		at->leaving = false;
		return true;
	}
	at->node = tree->p->nodes[at->node].parent;
	return at->node != 0;
}
