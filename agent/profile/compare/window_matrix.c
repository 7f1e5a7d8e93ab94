// SPDX-License-Identifier: Apache-2.0
/* One pass over the events in time order, a window at a time: values of nodes are gathered, folded
 * to functions and emptied again, so that the cost is events plus the nodes each window touches. */
#include "agent/profile/compare/window_matrix.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/profile/builder_internal.h"
#include "agent/profile/compare/window_internal.h"

#define STRATUM_PART 0.01 /* of the profile's total; what a comparison may want to hold apart */

/* ---- cells ----------------------------------------------------------------------------------- */

int window_cells_make(const struct window_cells_list_vec *list, uint32_t function_count,
		      struct window_cells *ret)
{
	cleanup_free uint32_t *first = calloc((size_t)function_count + 2, sizeof(*first));
	cleanup_free uint32_t *window = malloc((list->count + 1) * sizeof(*window));
	cleanup_free int64_t *value = malloc((list->count + 1) * sizeof(*value));
	uint32_t f;
	size_t i;

	if (list->count > WINDOW_MATRIX_CELLS_MAX)
		return -E2BIG;
	if (!first || !window || !value)
		return -ENOMEM;
	/* first[f + 1] is function f's write position and ends as the start of the next one. */
	for (i = 0; i < list->count; i++)
		first[list->data[i].function + 2]++;
	for (f = 2; f < function_count + 2; f++)
		first[f] += first[f - 1];
	for (i = 0; i < list->count; i++) {
		uint32_t at = first[list->data[i].function + 1]++;

		window[at] = list->data[i].window;
		value[at] = list->data[i].value;
	}
	window_cells_deinit(ret);
	*ret = (struct window_cells){ take_ptr(first), take_ptr(window), take_ptr(value),
				      (uint32_t)list->count };
	return 0;
}

void window_cells_deinit(struct window_cells *cells)
{
	free(cells->first);
	free(cells->window);
	free(cells->value);
	*cells = (struct window_cells){ 0 };
}

void window_matrix_destroy(struct window_matrix *m)
{
	uint32_t k;

	if (!m)
		return;
	for (k = 0; k < m->stratum_count; k++) {
		free(m->strata[k].totals);
		window_cells_deinit(&m->strata[k].self);
	}
	free(m->strata);
	free(m->lives);
	free(m->totals);
	free(m->functions);
	free(m->text);
	window_cells_deinit(&m->self);
	window_cells_deinit(&m->cumulative);
	free(m);
}

double window_seconds(const struct window_matrix *m, uint32_t i)
{
	uint64_t from = (uint64_t)i * m->window_ns;

	if (i + 1 < m->window_count)
		return (double)m->window_ns / (double)NS_PER_S;
	return m->duration_ns > from ? (double)(m->duration_ns - from) / (double)NS_PER_S
				     : (double)m->window_ns / (double)NS_PER_S;
}

/* ---- time ------------------------------------------------------------------------------------ */

/* History stamps its rows with the start of their minute (or 10 s): narrower windows would be
 * empty. What was copied from it does not say so. */
static uint64_t stamp_width(const struct profile *p)
{
	static const uint64_t widths[] = { 60 * NS_PER_S, 10 * NS_PER_S };
	size_t k;
	uint32_t i;

	if (p->meta.grain_ns)
		return p->meta.grain_ns;

	for (k = 0; k < ARRAY_SIZE(widths); k++) {
		uint64_t phase = p->events[0].time_ns % widths[k];

		if (p->events[p->event_count - 1].time_ns - p->events[0].time_ns < 2 * widths[k])
			continue;
		for (i = 1; i < p->event_count && p->events[i].time_ns % widths[k] == phase; i++)
			;
		if (i == p->event_count)
			return widths[k];
	}
	return NS_PER_S;
}

static int set_windows(struct window_build *b, const struct window_options *options)
{
	const struct profile *p = b->p;
	struct window_matrix *m = b->m;
	uint64_t width = options && options->window_ns ? options->window_ns : 0, count;
	uint32_t max =
		options && options->window_max ? options->window_max : WINDOW_MATRIX_WINDOWS_MAX;

	m->start_ns = p->meta.start_ns;
	m->duration_ns = m->covered_ns = p->meta.duration_ns;
	if (m->totals_only) {
		m->window_ns = m->duration_ns ? m->duration_ns : NS_PER_S;
		m->window_count = 1;
	} else {
		uint64_t last = p->events[p->event_count - 1].time_ns;

		/* A profile that is still running, whose clock stepped, or that is merged of
		 * others, may have later events. */
		if (last > m->start_ns && last - m->start_ns > m->duration_ns)
			m->duration_ns = last - m->start_ns;
		width = width ? width : stamp_width(p);
		count = (m->duration_ns + width / 2) / width;
		if (count > max)
			width *= (count + max - 1) / max;
		count = (m->duration_ns + width / 2) / width;
		m->window_ns = width;
		m->window_count = count ? (uint32_t)count : 1;
	}
	if (!m->covered_ns)
		m->covered_ns = m->duration_ns;
	m->totals = calloc(m->window_count, sizeof(*m->totals));
	return m->totals ? 0 : -ENOMEM;
}

static uint32_t window_of(const struct window_matrix *m, uint64_t time_ns)
{
	uint64_t window = time_ns > m->start_ns ? (time_ns - m->start_ns) / m->window_ns : 0;

	return window < m->window_count ? (uint32_t)window : m->window_count - 1;
}

/* ---- gathering ------------------------------------------------------------------------------- */

struct gather {
	int64_t *node_value;	 /* by node, all 0 between windows */
	int64_t *function_value; /* by canonical function, likewise */
	uint32_t *touched;	 /* nodes or functions with a value in this window */
	uint32_t touched_count;
	uint32_t *stamp; /* by node: window + 1 in which it was touched */
	struct window_cells_list_vec self, cumulative;
};

static void gather_deinit(struct gather *g)
{
	free(g->node_value);
	free(g->function_value);
	free(g->touched);
	free(g->stamp);
	window_cells_list_vec_deinit(&g->self);
	window_cells_list_vec_deinit(&g->cumulative);
}

static int gather_init(struct gather *g, const struct window_build *b)
{
	size_t nodes = b->p->node_count, functions = (size_t)b->names.function_count + 1;

	g->node_value = calloc(nodes, sizeof(*g->node_value));
	g->function_value = calloc(functions, sizeof(*g->function_value));
	g->touched = calloc(nodes > functions ? nodes : functions, sizeof(*g->touched));
	g->stamp = calloc(nodes, sizeof(*g->stamp));
	return g->node_value && g->function_value && g->touched && g->stamp ? 0 : -ENOMEM;
}

static int descending(const void *left, const void *right)
{
	uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;

	return (a < b) - (a > b);
}

/* Moves the gathered function values into cells of @window. Only functions of touched nodes have
 * any. */
static int emit(struct gather *g, const uint32_t *node_function, uint32_t window,
		struct window_cells_list_vec *out)
{
	uint32_t i;
	int rc = 0;

	for (i = 0; i < g->touched_count; i++) {
		uint32_t f = node_function[g->touched[i]];

		if (rc == 0 && g->function_value[f])
			rc = window_cells_list_vec_push(
				out, (struct window_cell){ f, window, g->function_value[f] });
		g->function_value[f] = 0;
	}
	return rc;
}

static void touch(struct gather *g, const struct profile *p, uint32_t window, uint32_t node,
		  int64_t value)
{
	uint32_t at;

	g->node_value[node] = profile_add(g->node_value[node], value);
	for (at = node; at && g->stamp[at] != window + 1; at = p->nodes[at].parent) {
		g->stamp[at] = window + 1;
		g->touched[g->touched_count++] = at;
	}
}

static int close_window(struct gather *g, const struct window_build *b, uint32_t window)
{
	const struct profile *p = b->p;
	uint32_t i;
	int rc;

	for (i = 0; i < g->touched_count; i++) {
		uint32_t node = g->touched[i];

		g->function_value[b->node_self[node]] =
			profile_add(g->function_value[b->node_self[node]], g->node_value[node]);
	}
	rc = emit(g, b->node_self, window, &g->self);
	if (rc < 0)
		return rc;
	/* Children have larger indices than their parents: one sweep carries values to the root. */
	qsort(g->touched, g->touched_count, sizeof(*g->touched), descending);
	for (i = 0; i < g->touched_count; i++) {
		uint32_t node = g->touched[i], f = b->node_function[node];

		if (!b->node_repeats[node])
			g->function_value[f] =
				profile_add(g->function_value[f], g->node_value[node]);
		if (p->nodes[node].parent)
			g->node_value[p->nodes[node].parent] = profile_add(
				g->node_value[p->nodes[node].parent], g->node_value[node]);
		g->node_value[node] = 0;
	}
	rc = emit(g, b->node_function, window, &g->cumulative);
	g->node_value[0] = 0;
	g->touched_count = 0;
	return rc;
}

static int gather_events(struct gather *g, struct window_build *b)
{
	const struct profile *p = b->p;
	struct window_matrix *m = b->m;
	uint32_t i, window = 0;
	int rc = 0;

	for (i = 0; rc == 0 && i < p->event_count; i++) {
		const struct profile_event *e = &p->events[i];
		uint32_t at = window_of(m, e->time_ns);

		if (at != window) {
			rc = close_window(g, b, window);
			window = at;
		}
		if (rc < 0 || e->value <= 0)
			continue;
		m->totals[window] = profile_add(m->totals[window], e->value);
		touch(g, p, window, e->node, e->value);
	}
	return rc < 0 ? rc : close_window(g, b, window);
}

static int gather_totals(struct gather *g, struct window_build *b)
{
	const struct profile *p = b->p;
	unsigned k = profile_value_index(p);
	uint32_t i;

	for (i = 0; i < p->sample_count; i++) {
		if (p->samples[i].values[k] <= 0)
			continue;
		b->m->totals[0] = profile_add(b->m->totals[0], p->samples[i].values[k]);
		touch(g, p, 0, p->samples[i].node, p->samples[i].values[k]);
	}
	return close_window(g, b, 0);
}

static int gather_all(struct window_build *b)
{
	__attribute__((__cleanup__(gather_deinit))) struct gather g = { 0 };
	struct window_matrix *m = b->m;
	int rc = gather_init(&g, b);

	if (rc == 0)
		rc = m->totals_only ? gather_totals(&g, b) : gather_events(&g, b);
	if (rc == 0)
		rc = window_cells_make(&g.self, b->names.function_count, &m->self);
	if (rc == 0)
		rc = window_cells_make(&g.cumulative, b->names.function_count, &m->cumulative);
	return rc;
}

/* ---- strata ---------------------------------------------------------------------------------- */

/* Values of one stratum by window, without the tree: only self is compared within strata. */
static int fill_stratum(struct window_build *b, uint32_t stratum)
{
	__attribute__((__cleanup__(gather_deinit))) struct gather g = { 0 };
	struct window_stratum *s = &b->m->strata[stratum];
	const struct profile *p = b->p;
	uint32_t i, window = 0;
	int rc = gather_init(&g, b);

	if (rc < 0)
		return rc;
	s->totals = calloc(b->m->window_count, sizeof(*s->totals));
	if (!s->totals)
		return -ENOMEM;
	for (i = 0; rc == 0 && i <= p->event_count; i++) {
		uint32_t at =
			i < p->event_count ? window_of(b->m, p->events[i].time_ns) : UINT32_MAX;

		if (at != window) {
			rc = emit(&g, b->node_self, window, &g.self);
			g.touched_count = 0;
			window = at;
		}
		if (rc < 0 || i == p->event_count || p->events[i].value <= 0 ||
		    b->attrs_stratum[p->events[i].attrs] != stratum)
			continue;
		s->totals[window] = profile_add(s->totals[window], p->events[i].value);
		if (!p->events[i].node)
			continue;
		if (g.stamp[p->events[i].node] != window + 1) {
			g.stamp[p->events[i].node] = window + 1;
			g.touched[g.touched_count++] = p->events[i].node;
		}
		g.function_value[b->node_self[p->events[i].node]] += p->events[i].value;
	}
	return rc < 0 ? rc : window_cells_make(&g.self, b->names.function_count, &s->self);
}

/* Strata are process names with enough of the total; fewer than two are none. */
static int set_strata(struct window_build *b)
{
	const struct profile *p = b->p;
	cleanup_free int64_t *by_name = calloc(p->string_count, sizeof(*by_name));
	uint32_t names[WINDOW_MATRIX_STRATA_MAX], count = 0, i, k;
	double total = 0;
	int rc = 0;

	b->attrs_stratum = calloc((size_t)p->attrs_count + 1, sizeof(*b->attrs_stratum));
	if (!by_name || !b->attrs_stratum)
		return -ENOMEM;
	for (i = 0; i < p->process_count; i++) {
		by_name[p->processes[i].comm] =
			profile_add(by_name[p->processes[i].comm], p->processes[i].value);
		total += (double)p->processes[i].value;
	}
	for (i = 0; i < p->string_count && count < WINDOW_MATRIX_STRATA_MAX - 1; i++)
		if (by_name[i] > 0 && (double)by_name[i] >= STRATUM_PART * total)
			names[count++] = i;
	if (count < 2 || b->m->totals_only)
		return 0;
	b->m->strata = calloc((size_t)count + 1, sizeof(*b->m->strata));
	if (!b->m->strata)
		return -ENOMEM;
	b->m->stratum_count = count + 1;
	for (k = 0; k < count; k++)
		b->m->strata[k].name = window_names_text(&b->names, profile_string(p, names[k]));
	for (i = 0; i < p->attrs_count; i++) {
		uint32_t comm = p->attrs[i].process < p->process_count
					? p->processes[p->attrs[i].process].comm
					: 0;

		for (k = 0; k < count && names[k] != comm; k++)
			;
		b->attrs_stratum[i] = k;
	}
	for (k = 0; rc == 0 && k <= count; k++)
		rc = fill_stratum(b, k);
	return rc < 0 ? rc : b->names.error;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void build_deinit(struct window_build *b)
{
	window_matrix_destroy(b->m);
	window_names_deinit(&b->names);
	free(b->canonical);
	free(b->node_function);
	free(b->node_self);
	free(b->node_repeats);
	free(b->attrs_stratum);
}

int window_matrix_create(const struct profile *p, const struct window_options *options,
			 struct window_matrix **ret, uint32_t **ret_map)
{
	__attribute__((__cleanup__(build_deinit))) struct window_build b = { .p = p };
	int rc;

	b.m = calloc(1, sizeof(*b.m));
	if (!b.m)
		return -ENOMEM;
	b.m->type = p->meta.type;
	b.m->totals_only = !window_has_detail(p);
	b.m->scale = window_scale(p);
	rc = window_names_init(&b.names);
	if (rc == 0)
		rc = window_set_nodes(&b);
	if (rc == 0)
		rc = set_windows(&b, options);
	if (rc == 0)
		rc = gather_all(&b);
	if (rc == 0)
		rc = set_strata(&b);
	if (rc == 0)
		rc = window_set_lives(&b);
	if (rc == 0)
		rc = window_set_idle(&b);
	if (rc < 0)
		return rc;
	b.m->functions = take_ptr(b.names.functions);
	b.m->function_count = b.names.function_count;
	b.m->text = take_ptr(b.names.text);
	b.m->text_len = (uint32_t)b.names.text_len;
	*ret = take_ptr(b.m);
	if (ret_map)
		*ret_map = take_ptr(b.canonical);
	return 0;
}
