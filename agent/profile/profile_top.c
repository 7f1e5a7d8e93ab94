// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/profile/builder_internal.h"
#include "agent/profile/tree.h"

int profile_node_values(const struct profile *p, int64_t **ret_self, int64_t **ret_total)
{
	cleanup_free int64_t *self = calloc(p->node_count, sizeof(*self));
	cleanup_free int64_t *total = malloc(p->node_count * sizeof(*total));
	unsigned k = profile_value_index(p);
	uint32_t i;

	if (!self || !total)
		return -ENOMEM;
	for (i = 0; i < p->sample_count; i++) {
		const struct profile_sample *s = &p->samples[i];

		self[s->node] = profile_add(self[s->node], s->values[k]);
	}
	memcpy(total, self, p->node_count * sizeof(*total));
	for (i = p->node_count - 1; i > 0; i--)
		total[p->nodes[i].parent] = profile_add(total[p->nodes[i].parent], total[i]);
	*ret_self = take_ptr(self);
	*ret_total = take_ptr(total);
	return 0;
}

static uint32_t function_of(const struct profile *p, uint32_t node)
{
	return p->frames[p->nodes[node].frame].function;
}

/* Counts of innermost occurrences: the type's own count if it has one, else its events, else rows.
 */
static void add_counts(const struct profile *p, struct profile_function_row *rows)
{
	bool counted = !strcmp(profile_type_info(p->meta.type)->values[0].unit, "count");
	uint32_t i;

	if (!counted && p->event_count) {
		for (i = 0; i < p->event_count; i++)
			if (p->events[i].node)
				rows[function_of(p, p->events[i].node)].count++;
		return;
	}
	for (i = 0; i < p->sample_count; i++) {
		const struct profile_sample *s = &p->samples[i];

		if (s->node)
			rows[function_of(p, s->node)].count +=
				counted && s->values[0] > 0 ? (uint64_t)s->values[0] : !counted;
	}
}

/* A node adds its total to its function unless the function is above it already: @open counts the
 * occurrences on the path from the root, so recursion is counted once per stack. */
static void add_values(const struct profile *p, const struct tree *tree, const int64_t *self,
		       const int64_t *total, uint32_t *open, struct profile_function_row *rows)
{
	struct tree_cursor at = { 0 };

	while (tree_step(tree, &at)) {
		uint32_t f = function_of(p, at.node);

		if (at.leaving) {
			open[f]--;
			continue;
		}
		if (!open[f]++)
			rows[f].cumulative = profile_add(rows[f].cumulative, total[at.node]);
		rows[f].self = profile_add(rows[f].self, self[at.node]);
		rows[f].kind = p->frames[p->nodes[at.node].frame].kind;
	}
}

struct row_order {
	struct profile_function_row row;
	const char *name;
};

static int by_self(const void *left, const void *right)
{
	const struct row_order *a = left, *b = right;
	int by_name;

	if (a->row.self != b->row.self)
		return a->row.self > b->row.self ? -1 : 1;
	if (a->row.cumulative != b->row.cumulative)
		return a->row.cumulative > b->row.cumulative ? -1 : 1;
	by_name = strcmp(a->name, b->name);
	if (by_name)
		return by_name;
	return (a->row.function > b->row.function) - (a->row.function < b->row.function);
}

static int sort_rows(const struct profile *p, struct profile_function_row *rows)
{
	cleanup_free struct row_order *order = calloc(p->function_count, sizeof(*order));
	uint32_t i;

	if (!order)
		return -ENOMEM;
	for (i = 0; i < p->function_count; i++)
		order[i] = (struct row_order){ rows[i], profile_string(p, p->functions[i].name) };
	qsort(order, p->function_count, sizeof(*order), by_self);
	for (i = 0; i < p->function_count; i++)
		rows[i] = order[i].row;
	return 0;
}

int profile_top_functions(const struct profile *p, struct profile_function_row **ret,
			  size_t *ret_count)
{
	size_t count = p->function_count, used = 0;
	cleanup_free struct profile_function_row *rows = calloc(count + 1, sizeof(*rows));
	cleanup_free uint32_t *open = calloc(count + 1, sizeof(*open));
	cleanup_free int64_t *self = NULL, *total = NULL;
	cleanup_tree struct tree tree = { 0 };
	uint32_t i;
	int rc;

	if (!rows || !open)
		return -ENOMEM;
	rc = profile_node_values(p, &self, &total);
	if (rc == 0)
		rc = tree_init(&tree, p);
	if (rc < 0)
		return rc;
	for (i = 0; i < count; i++)
		rows[i].function = i;
	add_values(p, &tree, self, total, open, rows);
	add_counts(p, rows);
	rc = count ? sort_rows(p, rows) : 0;
	if (rc < 0)
		return rc;
	/* A selection keeps its source's function table: what no longer occurs is no row. */
	for (i = 0; i < count; i++)
		if (rows[i].self || rows[i].cumulative)
			rows[used++] = rows[i];
	*ret = take_ptr(rows);
	*ret_count = used;
	return 0;
}

uint32_t *profile_function_frames(const struct profile *p)
{
	uint32_t *frames = calloc(p->function_count + 1, sizeof(*frames));

	for (uint32_t i = p->frame_count; frames && i-- > 0;)
		if (p->frames[i].mapping || !frames[p->frames[i].function])
			frames[p->frames[i].function] = i;
	return frames;
}
