// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/heatmap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/profile/builder_internal.h"
#include "agent/profile/canonical.h"

/* The begin of an event. An event that stands for others may be longer than the session was by
 * then. */
static uint64_t begin_of(const struct profile *p, const struct profile_event *event)
{
	uint64_t value = (uint64_t)event->value, floor_ns = p->meta.start_ns;

	if (!profile_has_lengths(p))
		return event->time_ns;
	if (floor_ns > event->time_ns)
		floor_ns = event->time_ns;
	return event->time_ns - floor_ns > value ? event->time_ns - value : floor_ns;
}

/* The cells that an event goes through have what of it lies in them; the first one also what it has
 * too much. @whole: by cell, how many more events fill it than the one before. */
static void spread(struct heatmap *map, const struct profile_event *event, uint64_t begin_ns,
		   int64_t *whole)
{
	uint64_t row_ns = map->row_ms * NS_PER_MS, begin = begin_ns - map->from_ns,
		 end = event->time_ns - map->from_ns;
	uint64_t first = begin / row_ns, last = end / row_ns;
	int64_t *cells = map->cells, surplus = event->value - (int64_t)(end - begin);

	if (first == last) {
		cells[first] = profile_add(cells[first], event->value);
		return;
	}
	cells[first] = profile_add(cells[first], surplus + (int64_t)((first + 1) * row_ns - begin));
	cells[last] = profile_add(cells[last], (int64_t)(end - last * row_ns));
	whole[first + 1]++;
	whole[last]--;
}

static int fill(struct heatmap *map, const struct profile *p)
{
	size_t count = (size_t)map->cols * map->rows;
	cleanup_free int64_t *whole = calloc(count, sizeof(*whole));
	int64_t row_ns = map->row_ms * (int64_t)NS_PER_MS, through = 0;

	if (!whole)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->event_count; i++)
		spread(map, &p->events[i], begin_of(p, &p->events[i]), whole);
	for (size_t i = 0; i < count; i++) {
		through += whole[i];
		map->cells[i] = profile_add(map->cells[i], through * row_ns);
		if (map->cells[i] > map->max)
			map->max = map->cells[i];
	}
	return 0;
}

int heatmap_init(struct heatmap *ret, const struct profile *p, uint32_t col_ms, uint32_t row_ms)
{
	uint64_t col_ns = col_ms * NS_PER_MS, row_ns = row_ms * NS_PER_MS, cols, rows;
	struct heatmap map = { .col_ms = col_ms, .row_ms = row_ms };
	int rc;

	if (!col_ms || !row_ms || col_ms % row_ms)
		return -EINVAL;
	if (!p->event_count || (p->meta.grain_ns && row_ns % p->meta.grain_ns))
		return -ENODATA;
	map.from_ns = p->events[0].time_ns;
	for (uint32_t i = 0; i < p->event_count; i++)
		if (begin_of(p, &p->events[i]) < map.from_ns)
			map.from_ns = begin_of(p, &p->events[i]);
	map.from_ns = map.from_ns / col_ns * col_ns;
	cols = (p->events[p->event_count - 1].time_ns - map.from_ns) / col_ns + 1;
	rows = col_ms / row_ms;
	if (cols > HEATMAP_CELLS_MAX || cols * rows > HEATMAP_CELLS_MAX)
		return -E2BIG;
	map.cols = (uint32_t)cols;
	map.rows = (uint32_t)rows;
	map.cells = calloc(cols * rows, sizeof(*map.cells));
	if (!map.cells)
		return -ENOMEM;
	rc = fill(&map, p);
	if (rc < 0) {
		heatmap_deinit(&map);
		return rc;
	}
	*ret = map;
	return 0;
}

void heatmap_deinit(struct heatmap *map)
{
	free(map->cells);
	*map = (struct heatmap){ 0 };
}

/* By node: whether a function of this name is in its stack. */
static int nodes_with(const struct profile *p, const char *name, bool **ret)
{
	cleanup_free bool *function = calloc((size_t)p->function_count + 1, sizeof(*function));
	cleanup_free bool *node = calloc(p->node_count, sizeof(*node));
	uint32_t i;

	if (!function || !node)
		return -ENOMEM;
	for (i = 0; i < p->function_count; i++)
		function[i] = canonical_function_is(profile_string(p, p->functions[i].name), name);
	for (i = 1; i < p->node_count; i++)
		node[i] =
			node[p->nodes[i].parent] || function[p->frames[p->nodes[i].frame].function];
	*ret = take_ptr(node);
	return 0;
}

int trend_value(const struct profile *p, const char *function, bool cumulative, double *ret)
{
	cleanup_free bool *wanted = NULL;
	unsigned k = profile_value_index(p);
	double sum = 0;
	uint32_t i;
	int rc = nodes_with(p, function, &wanted);

	if (rc < 0)
		return rc;
	for (i = 0; i < p->sample_count; i++) {
		const struct profile_sample *s = &p->samples[i];
		uint32_t own = s->node ? p->functions[p->frames[p->nodes[s->node].frame].function].name : 0;

		if (cumulative ? wanted[s->node] : own && canonical_function_is(profile_string(p, own), function))
			sum += (double)s->values[k];
	}
	*ret = p->totals[k] > 0 ? 100 * sum / (double)p->totals[k] : 0;
	return 0;
}
