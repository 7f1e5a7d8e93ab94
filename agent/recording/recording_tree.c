// SPDX-License-Identifier: Apache-2.0
#include "agent/recording/recording_tree.h"

#include <errno.h>
#include <string.h>

#include "agent/recording/file_name.h"
#include "agent/wire/feed.h"
#include "bpf/profiler.h"

static void free_tree(struct recording_tree *tree)
{
	free(tree->frames);
	free(tree->node_frames);
	free(tree->parents);
	free(tree->user);
	free(tree->kernel);
	free(tree->nodes);
	free(tree->wanted);
}

void recording_trees_free(struct recording_trees_vec *trees)
{
	for (size_t i = 0; i < trees->count; i++)
		free_tree(&trees->data[i]);
	recording_trees_vec_deinit(trees);
}

static void *copy(const void *from, size_t count, size_t size)
{
	void *to = malloc(count * size + 1);

	if (to)
		memcpy(to, from, count * size);
	return to;
}

static uint32_t *copy_by_pair(const struct chunk_tree *from, const uint32_t *codes)
{
	uint32_t *to = malloc(from->pair_count * sizeof(*to) + 1);

	for (uint32_t i = 0; to && i < from->pair_count; i++)
		to[from->pairs[i]] = codes[i];
	return to;
}

int recording_trees_add(struct recording_trees_vec *trees, const struct chunk_tree *from)
{
	const struct stack_tree *stacks = &from->stacks;
	struct recording_tree tree = {
		.tree = *from,
		.frames = copy(stacks->frames, stacks->frame_count, sizeof(*stacks->frames)),
		.node_frames = copy(stacks->node_frames, stacks->node_count, sizeof(uint32_t)),
		.parents = copy(stacks->parents, stacks->node_count, sizeof(uint32_t)),
		.user = copy_by_pair(from, from->user),
		.kernel = copy_by_pair(from, from->kernel),
		.nodes = malloc(stacks->node_count * sizeof(uint32_t) + 1),
		.wanted = calloc(stacks->node_count + 1u, sizeof(bool)),
	};
	int rc = tree.frames && tree.node_frames && tree.parents && tree.user && tree.kernel &&
				 tree.nodes && tree.wanted
			 ? 0
			 : -ENOMEM;

	if (rc == 0) {
		tree.tree.stacks.frames = tree.frames;
		tree.tree.stacks.node_frames = tree.node_frames;
		tree.tree.stacks.parents = tree.parents;
		tree.tree.pairs = NULL;
		tree.tree.user = tree.user;
		tree.tree.kernel = tree.kernel;
		rc = recording_trees_vec_push(trees, tree);
	}
	if (rc < 0)
		free_tree(&tree);
	return rc;
}

struct recording_tree *recording_trees_find(const struct recording_trees_vec *trees, uint32_t pair)
{
	for (size_t i = 0; i < trees->count; i++)
		if (pair - trees->data[i].tree.first_pair < trees->data[i].tree.pair_count)
			return &trees->data[i];
	return NULL;
}

static uint32_t node_of(const uint32_t *codes, const struct recording_tree *tree, uint32_t pair)
{
	uint32_t code = codes[pair - tree->tree.first_pair];

	return code >= CHUNK_CODE_NODE ? code - CHUNK_CODE_NODE : 0;
}

void recording_tree_want(struct recording_tree *tree, uint32_t pair)
{
	for (uint32_t node = node_of(tree->user, tree, pair); node && !tree->wanted[node];
	     node = tree->parents[node])
		tree->wanted[node] = true;
	for (uint32_t node = node_of(tree->kernel, tree, pair); node && !tree->wanted[node];
	     node = tree->parents[node])
		tree->wanted[node] = true;
}

int recording_tree_begin(struct recording_tree *tree, struct stack_resolver *resolver)
{
	const struct stack_tree *stacks = &tree->tree.stacks;
	cleanup_free bool *wanted = calloc(stacks->frame_count + 1u, sizeof(*wanted));
	cleanup_free uint64_t *words = malloc((stacks->frame_count + 1u) * sizeof(*words));
	size_t count = 0;

	if (!wanted || !words)
		return -ENOMEM;
	memset(tree->nodes, 0xff, stacks->node_count * sizeof(*tree->nodes));
	for (uint32_t i = 1; i < stacks->node_count; i++)
		wanted[tree->node_frames[i]] |= tree->wanted[i];
	for (uint32_t i = 0; i < stacks->frame_count; i++)
		if (wanted[i])
			words[count++] = tree->frames[i];
	return stack_resolver_prefetch(resolver, words, count);
}

/* Leaf first. */
static struct stack_frames frames_of(const struct recording_tree *tree, uint32_t node,
				     uint64_t frames[FEED_FRAMES_MAX])
{
	struct stack_frames ret = { frames, 0 };

	for (; node && ret.count < FEED_FRAMES_MAX; node = tree->parents[node])
		frames[ret.count++] = tree->frames[tree->node_frames[node]];
	return ret;
}

/* Up to a node that is known, and down again. */
static int walk_user(struct recording_tree *tree, struct stack_resolver *resolver, uint32_t user,
		     uint32_t *ret)
{
	uint32_t way[FEED_FRAMES_MAX], depth = 0, at = user;

	for (; at && tree->nodes[at] == NO_NODE && depth < FEED_FRAMES_MAX; at = tree->parents[at])
		way[depth++] = at;
	*ret = at ? tree->nodes[at] : 0;
	for (; depth; depth--) {
		uint32_t node = way[depth - 1];
		const uint64_t *word = &tree->frames[tree->node_frames[node]];
		int rc = stack_resolver_below(resolver, (struct stack_frames){ word, 1 }, ret);

		if (rc < 0)
			return rc;
		tree->nodes[node] = *ret;
	}
	return 0;
}

int recording_tree_node(struct recording_tree *tree, struct stack_resolver *resolver, uint32_t pair,
			uint32_t *ret, bool *ret_whole)
{
	uint32_t user = node_of(tree->user, tree, pair), at = pair - tree->tree.first_pair;
	uint64_t user_frames[FEED_FRAMES_MAX], kernel_frames[FEED_FRAMES_MAX];
	struct stack_frames kernel = frames_of(tree, node_of(tree->kernel, tree, pair), kernel_frames);
	int rc;

	*ret_whole = tree->user[at] != CHUNK_CODE_MISSING && tree->kernel[at] != CHUNK_CODE_MISSING;
	kernel.count = file_name_at(kernel.frames, kernel.count);
	/* The marker of a cut kernel stack belongs above the user stack. */
	if (kernel.count && prof_frame_kind(kernel.frames[kernel.count - 1]) == PROF_FRAME_TRUNCATED)
		return stack_resolver_node(resolver, frames_of(tree, user, user_frames), kernel, ret);
	rc = walk_user(tree, resolver, user, ret);
	return rc == 0 ? stack_resolver_below(resolver, kernel, ret) : rc;
}
