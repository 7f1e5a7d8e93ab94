// SPDX-License-Identifier: Apache-2.0
/* Facts of a profile that a matrix needs besides its cells: which function a node's value counts
 * for, process instances, the number of samples behind a value, idle waits. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/profile/canonical.h"
#include "agent/profile/lock_site.h"
#include "agent/profile/tree.h"
#include "agent/profile/compare/window_internal.h"

#define IDLE_PART 0.5 /* of a function's value in idle waits */

/* ---- nodes ----------------------------------------------------------------------------------- */

static bool in_kernel(const struct window_names *n, uint32_t function)
{
	return n->functions[function].kind == PROFILE_FRAME_KERNEL ||
	       !strcmp(n->text + n->functions[function].package, "kernel");
}

struct wait_place {
	uint32_t function;
	bool known, has_user, has_own;
};

/* The function that the time of a wait counts for, by its stack as far as @node; @above is the
 * result of the node above. That is the innermost function of the program itself, which calls all
 * of libc's waits; else the innermost one outside the kernel; for kernel threads the innermost one
 * outside the scheduler. */
static uint32_t wait_of(const struct window_build *b, uint32_t node, const struct wait_place *above)
{
	const struct profile *p = b->p;
	uint32_t f = b->node_self[node];

	if (in_kernel(&b->names, f)) {
		if (above->has_user ||
		    (above->known &&
		     canonical_is_scheduler(b->names.text + b->names.functions[f].name)))
			return above->function;
		return f;
	}
	return above->has_own && lock_site_is_part(p, &p->frames[p->nodes[node].frame])
		       ? above->function
		       : f;
}

/* Everything counts for its own function, with one exception: a function of an interpreted program
 * has what the interpreter does for it. The interpreter's work is spread over a hundred functions
 * of C, which all functions of the program share. Extensions in C are functions of the program. */
static int set_node_self_of_cpu(struct window_build *b)
{
	const struct profile *p = b->p;
	cleanup_free bool *in_script = calloc(p->node_count, sizeof(*in_script));
	cleanup_free bool *is_interpreter = calloc((size_t)p->mapping_count + 1, sizeof(*is_interpreter));
	uint32_t i;

	if (!in_script || !is_interpreter)
		return -ENOMEM;
	for (i = 0; i < p->mapping_count; i++)
		is_interpreter[i] = canonical_is_interpreter(profile_string(p, p->mappings[i].path));
	for (i = 1; i < p->node_count; i++) {
		const struct profile_frame *frame = &p->frames[p->nodes[i].frame];
		const uint32_t parent = p->nodes[i].parent;
		const bool is_script = frame->kind == PROFILE_FRAME_INTERPRETED;

		in_script[i] = is_script || in_script[parent];
		b->node_self[i] = !is_script && in_script[parent] && is_interpreter[frame->mapping]
					  ? b->node_self[parent]
					  : b->node_function[i];
	}
	return 0;
}

static int set_node_self_of_waits(struct window_build *b)
{
	const struct profile *p = b->p;
	cleanup_free struct wait_place *places = calloc(p->node_count, sizeof(*places));
	uint32_t i;

	if (!places)
		return -ENOMEM;
	for (i = 1; i < p->node_count; i++) {
		uint32_t f = b->node_function[i];
		const struct wait_place *above = &places[p->nodes[i].parent];
		bool kernel = in_kernel(&b->names, f);

		places[i] = (struct wait_place){
			.function = wait_of(b, i, above),
			.known = true,
			.has_user = above->has_user || !kernel,
			.has_own = above->has_own || (!kernel && !lock_site_is_part(p, &p->frames[p->nodes[i].frame])),
		};
		/* a libc function on a CPU is what it costs itself */
		if (kernel || p->meta.type != PROFILE_WALL)
			b->node_self[i] = places[i].function;
	}
	return 0;
}

static int set_repeats(struct window_build *b)
{
	cleanup_tree struct tree tree = { 0 };
	cleanup_free uint32_t *open = calloc((size_t)b->names.function_count + 1, sizeof(*open));
	struct tree_cursor at = { 0 };
	int rc = tree_init(&tree, b->p, profile_value_index(b->p));

	if (rc < 0)
		return rc;
	if (!open)
		return -ENOMEM;
	while (tree_step(&tree, &at)) {
		uint32_t f = b->node_function[at.place.node];

		if (at.leaving)
			open[f]--;
		else
			b->node_repeats[at.place.node] = open[f]++ != 0;
	}
	return 0;
}

int window_set_nodes(struct window_build *b)
{
	const struct profile *p = b->p;
	uint32_t i;
	int rc;

	b->canonical = malloc(((size_t)p->function_count + 1) * sizeof(*b->canonical));
	b->node_function = calloc(p->node_count, sizeof(*b->node_function));
	b->node_self = calloc(p->node_count, sizeof(*b->node_self));
	b->node_repeats = calloc(p->node_count, sizeof(*b->node_repeats));
	if (!b->canonical || !b->node_function || !b->node_self || !b->node_repeats)
		return -ENOMEM;
	memset(b->canonical, 0xff, ((size_t)p->function_count + 1) * sizeof(*b->canonical));
	for (i = 1; i < p->node_count; i++) {
		const struct profile_frame *frame = &p->frames[p->nodes[i].frame];

		if (b->canonical[frame->function] == UINT32_MAX)
			b->canonical[frame->function] = window_names_function(&b->names, p, frame);
		b->node_function[i] = b->canonical[frame->function];
	}
	if (b->names.error)
		return b->names.error;
	rc = set_node_self_of_cpu(b);
	if (rc == 0 && profile_type_info(p->meta.type)->spans)
		rc = set_node_self_of_waits(b);
	return rc < 0 ? rc : set_repeats(b);
}

/* ---- lives, samples, idle waits -------------------------------------------------------------- */

static int by_part(const void *left, const void *right)
{
	const struct window_life *a = left, *b = right;

	if (a->part != b->part)
		return a->part > b->part ? -1 : 1;
	return (a->pid > b->pid) - (a->pid < b->pid);
}

int window_set_lives(struct window_build *b)
{
	const struct profile *p = b->p;
	cleanup_free struct window_life *lives =
		calloc((size_t)p->process_count + 1, sizeof(*lives));
	double total = 0, squares = 0;
	uint32_t i, used = 0;

	if (!lives)
		return -ENOMEM;
	for (i = 0; i < p->process_count; i++)
		total += p->processes[i].value > 0 ? (double)p->processes[i].value : 0;
	for (i = 0; i < p->process_count; i++) {
		double part = total > 0 ? (double)p->processes[i].value / total : 0;

		if (part <= 0)
			continue;
		lives[used++] = (struct window_life){ p->processes[i].started_at_ns,
						      p->processes[i].pid, part };
		squares += part * part;
	}
	qsort(lives, used, sizeof(*lives), by_part);
	b->m->effective_lives = squares > 0 ? 1 / squares : 1;
	b->m->life_count = used < WINDOW_MATRIX_LIVES_MAX ? used : WINDOW_MATRIX_LIVES_MAX;
	b->m->lives = take_ptr(lives);
	return 0;
}

/* One event per sample: by the events' own weights, so that a rate that backed off midway counts as
 * (sum w)^2 / sum w^2 samples. Rolled-up events: by the number of samples. */
double window_scale(const struct profile *p)
{
	const struct profile_type_info *type = profile_type_info(p->meta.type);
	double sum = 0, squares = 0, total = (double)p->totals[type->value_index];
	uint32_t i;

	if (type->judged != PROFILE_JUDGED_SHARES || total <= 0 || p->totals[0] <= 0)
		return 0;
	if ((int64_t)p->event_count != p->totals[0])
		return (double)p->totals[0] / total;
	for (i = 0; i < p->event_count; i++) {
		double value = (double)p->events[i].value;

		sum += value;
		squares += value * value;
	}
	return squares > 0 ? sum / squares : 0;
}

/* Functions whose waits are mostly waits for work: by name, or by what the thread waited for. */
int window_set_idle(struct window_build *b)
{
	const struct profile *p = b->p;
	size_t functions = (size_t)b->names.function_count + 1;
	cleanup_free double *idle = NULL, *all = NULL;
	unsigned k = profile_value_index(p);
	uint32_t i;

	if (!profile_type_info(p->meta.type)->spans)
		return 0;
	idle = calloc(functions, sizeof(*idle));
	all = calloc(functions, sizeof(*all));
	if (!idle || !all)
		return -ENOMEM;
	for (i = 0; i < p->sample_count; i++) {
		const struct profile_sample *s = &p->samples[i];
		const char *wait = profile_string(p, p->attrs[s->attrs].wait);

		if (!s->node)
			continue;
		all[b->node_self[s->node]] += (double)s->values[k];
		if (!strcmp(wait, "sleep") || !strcmp(wait, "epoll"))
			idle[b->node_self[s->node]] += (double)s->values[k];
	}
	for (i = 0; i < b->names.function_count; i++) {
		struct window_function *f = &b->names.functions[i];

		if (canonical_is_idle_wait(b->names.text + f->name) ||
		    (all[i] > 0 && idle[i] >= IDLE_PART * all[i]))
			f->flags |= WINDOW_FUNCTION_IDLE;
	}
	return 0;
}

bool window_has_detail(const struct profile *p)
{
	double sum = 0, total = (double)p->totals[profile_value_index(p)];
	uint32_t i;

	/* Levels have no windows; events that hold less than half are not the whole story. */
	if (!p->event_count || !profile_type_info(p->meta.type)->rate ||
	    profile_type_info(p->meta.type)->judged == PROFILE_JUDGED_LEVELS)
		return false;
	for (i = 0; i < p->event_count; i++)
		sum += (double)p->events[i].value;
	return sum >= total / 2;
}
