// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/u64map.h"
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

#define NO_ROW UINT32_MAX /* the row of what was not asked for */

/* The subject of rows: functions, or what of_frame says. */
struct row_kind {
	const struct profile *p;
	const uint32_t *of_frame; /* row of each frame; NULL: its function */
};

static uint32_t row_of(const struct row_kind *kind, uint32_t node)
{
	uint32_t frame = kind->p->nodes[node].frame;

	return kind->of_frame ? kind->of_frame[frame] : kind->p->frames[frame].function;
}

/* Counts of innermost occurrences: the type's own count if it has one, else its events, else rows.
 */
static void add_counts(const struct row_kind *kind, struct profile_function_row *rows)
{
	const struct profile *p = kind->p;
	bool counted = !strcmp(profile_type_info(p->meta.type)->values[0].unit, "count");
	uint32_t i;

	if (!counted && p->event_count) {
		for (i = 0; i < p->event_count; i++)
			if (p->events[i].node)
				rows[row_of(kind, p->events[i].node)].count++;
		return;
	}
	for (i = 0; i < p->sample_count; i++) {
		const struct profile_sample *s = &p->samples[i];

		if (s->node)
			rows[row_of(kind, s->node)].count +=
				counted && s->values[0] > 0 ? (uint64_t)s->values[0] : !counted;
	}
}

/* A node adds its total to its row unless the row is above it already: @open counts the
 * occurrences on the path from the root, so recursion is counted once per stack. */
static void add_values(const struct row_kind *kind, const struct tree *tree, uint32_t *open,
		       struct profile_function_row *rows)
{
	const struct profile *p = kind->p;
	struct tree_cursor at = { 0 };

	while (tree_step(tree, &at)) {
		uint32_t row = row_of(kind, at.place.node);

		if (at.leaving) {
			open[row]--;
			continue;
		}
		if (!open[row]++)
			rows[row].cumulative = profile_add(rows[row].cumulative, tree_total(tree, at.place));
		rows[row].self = profile_add(rows[row].self, tree_self(tree, at.place));
		rows[row].kind = p->frames[p->nodes[at.place.node].frame].kind;
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
	if (a->row.function != b->row.function)
		return a->row.function > b->row.function ? 1 : -1;
	return (a->row.line > b->row.line) - (a->row.line < b->row.line);
}

int profile_sort_rows(const struct profile *p, struct profile_function_row *rows, size_t count)
{
	cleanup_free struct row_order *order = calloc(count, sizeof(*order));

	if (!order)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		order[i] = (struct row_order){ rows[i], profile_string(p, p->functions[rows[i].function].name) };
	qsort(order, count, sizeof(*order), by_self);
	for (size_t i = 0; i < count; i++)
		rows[i] = order[i].row;
	return 0;
}

/* Fills in and sorts the @count rows; *ret_count are those that have a value. */
static int fill_rows(const struct row_kind *kind, unsigned value_index,
		     struct profile_function_row *rows, size_t count, size_t *ret_count)
{
	cleanup_free uint32_t *open = calloc(count + 1, sizeof(*open));
	cleanup_tree struct tree tree = { 0 };
	size_t used = 0;
	int rc = open ? tree_init(&tree, kind->p, value_index) : -ENOMEM;

	if (rc < 0)
		return rc;
	add_values(kind, &tree, open, rows);
	add_counts(kind, rows);
	/* A selection keeps its source's function table: what no longer occurs is no row. */
	for (size_t i = 0; i < count; i++)
		if ((rows[i].self || rows[i].cumulative) && rows[i].function != NO_ROW)
			rows[used++] = rows[i];
	*ret_count = used;
	return used ? profile_sort_rows(kind->p, rows, used) : 0;
}

int profile_top_functions(const struct profile *p, unsigned value_index,
			  struct profile_function_row **ret, size_t *ret_count)
{
	const struct row_kind kind = { .p = p };
	size_t count = p->function_count, used = 0;
	cleanup_free struct profile_function_row *rows = calloc(count + 1, sizeof(*rows));
	int rc;

	if (!rows)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		rows[i].function = i;
	rc = fill_rows(&kind, value_index, rows, count, &used);
	if (rc < 0)
		return rc;
	*ret = take_ptr(rows);
	*ret_count = used;
	return 0;
}

/* Numbers the lines of functions called @name from 1 on; frames of others are row 0. */
static int number_lines(const struct profile *p, const char *name, uint32_t *of_frame,
			struct profile_function_row *rows, size_t *ret_count)
{
	struct u64map seen = { 0 };
	size_t count = 1;
	int rc = 0;

	for (uint32_t i = 0; i < p->frame_count && rc == 0; i++) {
		const struct profile_frame *frame = &p->frames[i];
		uint64_t key = (uint64_t)frame->function << 32 | frame->line, row = 0;

		if (name && strcmp(profile_string(p, p->functions[frame->function].name), name) != 0)
			continue;
		if (!u64map_get(&seen, key, &row)) {
			row = count++;
			rows[row] = (struct profile_function_row){ .function = frame->function,
								   .line = frame->line };
			rc = u64map_put(&seen, key, row);
		}
		of_frame[i] = (uint32_t)row;
	}
	u64map_deinit(&seen);
	*ret_count = count;
	return rc;
}

int profile_top_lines(const struct profile *p, unsigned value_index, const char *name,
		      struct profile_function_row **ret, size_t *ret_count)
{
	cleanup_free struct profile_function_row *rows = calloc((size_t)p->frame_count + 1, sizeof(*rows));
	cleanup_free uint32_t *of_frame = calloc((size_t)p->frame_count + 1, sizeof(*of_frame));
	const struct row_kind kind = { p, of_frame };
	size_t count = 0, used = 0;
	int rc = rows && of_frame ? number_lines(p, name, of_frame, rows, &count) : -ENOMEM;

	if (rc < 0)
		return rc;
	rows[0].function = NO_ROW;
	rc = fill_rows(&kind, value_index, rows, count, &used);
	if (rc < 0)
		return rc;
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
