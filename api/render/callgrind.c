// SPDX-License-Identifier: Apache-2.0
/* Callgrind's format (valgrind.org/docs/manual/cl-format.html) for KCachegrind: self cost by
 * function and line, inclusive cost by call. A call inside its own recursion is counted once. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "agent/base/u64map.h"
#include "agent/base/vec.h"
#include "agent/profile/tree.h"
#include "api/render/render.h"

/* Calls are summed for a part of the functions at a time: there may be nearly as many as there are
 * nodes. */
#define PASSES_MAX     16
#define PASS_CALLS_MIN 16384

struct call {
	uint32_t caller, callee; /* functions */
	int64_t value;
	uint32_t line; /* of the call */
	uint32_t open; /* how often it is on the current path */
};
VEC_DEFINE(call, struct call);
VEC_DEFINE(open_calls, uint32_t);

struct cost {
	uint32_t function, line;
	int64_t value;
};
VEC_DEFINE(cost, struct cost);

struct callgrind {
	const struct profile *p;
	struct buf *out;
	struct tree tree;
	struct cost_vec costs;	  /* by function */
	size_t cost;		  /* the next to write */
	uint32_t *edges;	  /* function -> nodes that it calls: at least as many as its calls */
	uint32_t begin, end;	  /* functions of this pass */
	struct call_vec calls;	  /* that they make */
	struct u64map known;	  /* caller and callee -> call */
	struct open_calls_vec path; /* call + 1 of each node on the current path, 0 = of no function
				       of this pass */
	uint8_t *named;		  /* functions and strings whose name was written */
	uint8_t *file_named;
};

static void callgrind_deinit(struct callgrind *w)
{
	tree_deinit(&w->tree);
	cost_vec_deinit(&w->costs);
	free(w->edges);
	call_vec_deinit(&w->calls);
	u64map_deinit(&w->known);
	open_calls_vec_deinit(&w->path);
	free(w->named);
	free(w->file_named);
}

static uint32_t function_of(const struct profile *p, uint32_t node)
{
	return p->frames[p->nodes[node].frame].function;
}

static int callgrind_init(struct callgrind *w, unsigned value_index)
{
	const struct profile *p = w->p;

	w->edges = calloc((size_t)p->function_count + 1, sizeof(*w->edges));
	w->named = calloc(p->function_count + 1, 1);
	w->file_named = calloc(p->string_count + 1, 1);
	if (!w->edges || !w->named || !w->file_named)
		return -ENOMEM;
	for (uint32_t i = 1; i < p->node_count; i++)
		if (p->nodes[i].parent)
			w->edges[function_of(p, p->nodes[i].parent)]++;
	return tree_init(&w->tree, p, value_index);
}

static int by_function(const void *a, const void *b)
{
	const struct cost *x = a, *y = b;

	if (x->function != y->function)
		return x->function < y->function ? -1 : 1;
	return x->line < y->line ? -1 : x->line > y->line;
}

static int sum_costs(struct callgrind *w, unsigned value_index)
{
	const struct profile *p = w->p;
	struct u64map known = { 0 };
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < p->sample_count; i++) {
		const struct profile_frame *frame;
		int64_t value = p->samples[i].values[value_index];
		uint64_t key, at;

		if (!value || !p->samples[i].node)
			continue;
		frame = &p->frames[p->nodes[p->samples[i].node].frame];
		key = (uint64_t)frame->function << 32 | frame->line;
		if (!u64map_get(&known, key, &at)) {
			at = w->costs.count;
			rc = cost_vec_push(&w->costs, (struct cost){ frame->function, frame->line, 0 });
			if (rc == 0)
				rc = u64map_put(&known, key, at);
		}
		if (rc == 0)
			w->costs.data[at].value += value;
	}
	u64map_deinit(&known);
	if (w->costs.count)
		qsort(w->costs.data, w->costs.count, sizeof(*w->costs.data), by_function);
	return rc;
}

/* The call that a node stands for, of this pass; @ret its number + 1, or 0. */
static int find_call(struct callgrind *w, uint32_t node, uint32_t *ret)
{
	const struct profile *p = w->p;
	uint32_t parent = p->nodes[node].parent, caller;
	uint64_t key, at;
	int rc = 0;

	*ret = 0;
	if (!parent)
		return 0;
	caller = function_of(p, parent);
	if (caller < w->begin || caller >= w->end)
		return 0;
	key = (uint64_t)caller << 32 | function_of(p, node);
	if (!u64map_get(&w->known, key, &at)) {
		at = w->calls.count;
		rc = call_vec_push(&w->calls, (struct call){ caller, function_of(p, node), 0,
							     p->frames[p->nodes[parent].frame].line, 0 });
		if (rc == 0)
			rc = u64map_put(&w->known, key, at);
	}
	*ret = (uint32_t)at + 1;
	return rc;
}

/* Depth first, so that the calls on the path are known. */
static int sum_calls(struct callgrind *w)
{
	struct tree_cursor at = { 0 };
	int rc = 0;

	w->calls.count = 0;
	u64map_clear(&w->known);
	while (rc == 0 && tree_step(&w->tree, &at)) {
		uint32_t call;

		if (at.leaving) {
			call = w->path.data[--w->path.count];
			if (call)
				w->calls.data[call - 1].open--;
			continue;
		}
		rc = find_call(w, at.place.node, &call);
		if (rc == 0 && call && w->calls.data[call - 1].open++ == 0)
			w->calls.data[call - 1].value += tree_total(&w->tree, at.place);
		if (rc == 0)
			rc = open_calls_vec_push(&w->path, call);
	}
	return rc;
}

static void add_name(struct buf *out, const char *text)
{
	for (; *text; text++)
		buf_add_char(out, (unsigned char)*text < 0x20 ? ' ' : *text);
}

/* `fn=(12) name` the first time, `fn=(12)` later. */
static void write_function(struct callgrind *w, uint32_t id, const char *file_key, const char *key)
{
	const struct profile *p = w->p;
	const struct profile_function *function = &p->functions[id];

	buf_printf(w->out, "%s=(%u)", file_key, function->file + 1);
	if (!w->file_named[function->file]) {
		w->file_named[function->file] = 1;
		buf_add_char(w->out, ' ');
		add_name(w->out, function->file ? profile_string(p, function->file) : "???");
	}
	buf_printf(w->out, "\n%s=(%u)", key, id + 1);
	if (!w->named[id]) {
		w->named[id] = 1;
		buf_add_char(w->out, ' ');
		add_name(w->out, profile_string(p, function->name));
	}
	buf_add_char(w->out, '\n');
}

static int by_caller(const void *a, const void *b)
{
	const struct call *x = a, *y = b;

	if (x->caller != y->caller)
		return x->caller < y->caller ? -1 : 1;
	return x->callee < y->callee ? -1 : x->callee > y->callee;
}

static void write_call(struct callgrind *w, const struct call *call)
{
	write_function(w, call->callee, "cfi", "cfn");
	buf_printf(w->out, "calls=1 %u\n%u %" PRId64 "\n", w->p->functions[call->callee].line, call->line,
		   call->value);
}

/* The functions of a pass, with their costs and calls. */
static void write_functions(struct callgrind *w)
{
	size_t call = 0;

	if (w->calls.count)
		qsort(w->calls.data, w->calls.count, sizeof(*w->calls.data), by_caller);
	for (uint32_t f = w->begin; f < w->end && !w->out->error; f++) {
		bool has_cost = w->cost < w->costs.count && w->costs.data[w->cost].function == f;
		bool has_call = call < w->calls.count && w->calls.data[call].caller == f;

		if (!has_cost && !has_call)
			continue;
		buf_add_char(w->out, '\n');
		write_function(w, f, "fl", "fn");
		for (; w->cost < w->costs.count && w->costs.data[w->cost].function == f; w->cost++)
			buf_printf(w->out, "%u %" PRId64 "\n", w->costs.data[w->cost].line,
				   w->costs.data[w->cost].value);
		for (; call < w->calls.count && w->calls.data[call].caller == f; call++)
			write_call(w, &w->calls.data[call]);
	}
}

/* As many functions at a time as make some of the calls. */
static int write_passes(struct callgrind *w)
{
	uint32_t most = w->p->node_count / PASSES_MAX > PASS_CALLS_MIN
				? w->p->node_count / PASSES_MAX
				: PASS_CALLS_MIN;
	int rc = 0;

	for (w->begin = 0; rc == 0 && w->begin < w->p->function_count && !w->out->error;
	     w->begin = w->end) {
		uint64_t edges = w->edges[w->begin];

		for (w->end = w->begin + 1; w->end < w->p->function_count; w->end++) {
			edges += w->edges[w->end];
			if (edges > most)
				break;
		}
		rc = sum_calls(w);
		if (rc == 0)
			write_functions(w);
	}
	return rc;
}

int render_callgrind(const struct profile *p, const struct render_options *options,
		     struct buf *out, struct err *err)
{
	const struct profile_type_info *info = profile_type_info(p->meta.type);
	struct callgrind w = { .p = p, .out = out };
	int64_t sum = 0;
	int rc = callgrind_init(&w, options->value_index);

	(void)err;
	if (rc == 0)
		rc = sum_costs(&w, options->value_index);
	if (rc == 0) {
		for (uint32_t i = 0; i < p->sample_count; i++)
			sum += p->samples[i].values[options->value_index];
		buf_printf(out,
			   "# callgrind format\nversion: 1\ncreator: profd " PROFD_VERSION
			   "\npositions: line\nevents: %s_%s\nsummary: %" PRId64 "\n",
			   info->values[options->value_index].name,
			   info->values[options->value_index].unit, sum);
		rc = write_passes(&w);
	}
	callgrind_deinit(&w);
	return rc < 0 ? rc : out->error;
}
