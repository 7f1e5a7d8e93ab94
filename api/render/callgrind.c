// SPDX-License-Identifier: Apache-2.0
/* Callgrind's format (valgrind.org/docs/manual/cl-format.html) for KCachegrind: self cost by function and line,
 * inclusive cost by call. A call inside its own recursion is counted once. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "agent/base/u64map.h"
#include "api/render/render.h"

struct call {
	uint32_t caller, callee; /* functions */
	int64_t value;
	uint32_t line; /* of the call */
	uint32_t open; /* how often it is on the current path */
};

struct cost {
	uint32_t function, line;
	int64_t value;
};

struct callgrind {
	const struct profile *p;
	struct buf *out;
	int64_t *self, *total;	  /* of profile nodes */
	uint32_t *first, *next;	  /* children of profile nodes */
	uint32_t *call_of;	  /* profile node -> call + 1, 0 = none */
	struct call *calls;
	struct cost *costs;
	uint32_t call_count, cost_count;
	uint8_t *named; /* functions and strings whose name was written */
	uint8_t *file_named;
};

static void callgrind_deinit(struct callgrind *w)
{
	free(w->self);
	free(w->total);
	free(w->first);
	free(w->next);
	free(w->call_of);
	free(w->calls);
	free(w->costs);
	free(w->named);
	free(w->file_named);
}

static int callgrind_alloc(struct callgrind *w)
{
	uint32_t nodes = w->p->node_count + 1;

	w->self = calloc(nodes, sizeof(*w->self));
	w->total = calloc(nodes, sizeof(*w->total));
	w->first = calloc(nodes, sizeof(*w->first));
	w->next = calloc(nodes, sizeof(*w->next));
	w->call_of = calloc(nodes, sizeof(*w->call_of));
	w->calls = calloc(nodes, sizeof(*w->calls));
	w->costs = calloc(nodes, sizeof(*w->costs));
	w->named = calloc(w->p->function_count + 1, 1);
	w->file_named = calloc(w->p->string_count + 1, 1);
	return w->self && w->total && w->first && w->next && w->call_of && w->calls && w->costs &&
			       w->named && w->file_named
		       ? 0
		       : -ENOMEM;
}

static uint32_t function_of(const struct profile *p, uint32_t node)
{
	return p->frames[p->nodes[node].frame].function;
}

static int sum_self(struct callgrind *w)
{
	const struct profile *p = w->p;
	struct u64map known = { 0 };
	int rc = 0;

	for (uint32_t i = 1; rc == 0 && i < p->node_count; i++) {
		const struct profile_frame *frame = &p->frames[p->nodes[i].frame];
		uint64_t key = (uint64_t)frame->function << 32 | frame->line, at;

		if (!w->self[i])
			continue;
		if (!u64map_get(&known, key, &at)) {
			at = w->cost_count++;
			w->costs[at] = (struct cost){ frame->function, frame->line, 0 };
			rc = u64map_put(&known, key, at);
		}
		w->costs[at].value += w->self[i];
	}
	u64map_deinit(&known);
	return rc;
}

static int name_calls(struct callgrind *w)
{
	const struct profile *p = w->p;
	struct u64map known = { 0 };
	int rc = 0;

	for (uint32_t i = 1; rc == 0 && i < p->node_count; i++) {
		uint32_t parent = p->nodes[i].parent;
		uint64_t key, at;

		if (!parent)
			continue;
		key = (uint64_t)function_of(p, parent) << 32 | function_of(p, i);
		if (!u64map_get(&known, key, &at)) {
			at = w->call_count++;
			w->calls[at] = (struct call){ function_of(p, parent), function_of(p, i), 0,
						      p->frames[p->nodes[parent].frame].line, 0 };
			rc = u64map_put(&known, key, at);
		}
		w->call_of[i] = (uint32_t)at + 1;
	}
	u64map_deinit(&known);
	return rc;
}

/* Depth first, so that the calls on the path are known. */
static void sum_calls(struct callgrind *w)
{
	const struct profile *p = w->p;
	uint32_t at = 0;

	for (uint32_t i = p->node_count; i-- > 1;) {
		w->next[i] = w->first[p->nodes[i].parent];
		w->first[p->nodes[i].parent] = i;
	}
	for (;;) {
		struct call *call = w->call_of[at] ? &w->calls[w->call_of[at] - 1] : NULL;

		if (call && call->open++ == 0)
			call->value += w->total[at];
		if (w->first[at]) {
			at = w->first[at];
			continue;
		}
		for (;;) {
			if (w->call_of[at])
				w->calls[w->call_of[at] - 1].open--;
			if (at == 0)
				return;
			if (w->next[at])
				break;
			at = p->nodes[at].parent;
		}
		at = w->next[at];
	}
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

static int by_function(const void *a, const void *b)
{
	const struct cost *x = a, *y = b;

	if (x->function != y->function)
		return x->function < y->function ? -1 : 1;
	return x->line < y->line ? -1 : x->line > y->line;
}

static int by_caller(const void *a, const void *b)
{
	const struct call *x = a, *y = b;

	if (x->caller != y->caller)
		return x->caller < y->caller ? -1 : 1;
	return x->callee < y->callee ? -1 : x->callee > y->callee;
}

static void write_costs(struct callgrind *w)
{
	uint32_t call = 0, cost = 0;

	qsort(w->costs, w->cost_count, sizeof(*w->costs), by_function);
	qsort(w->calls, w->call_count, sizeof(*w->calls), by_caller);
	for (uint32_t f = 0; f < w->p->function_count && !w->out->error; f++) {
		bool has_cost = cost < w->cost_count && w->costs[cost].function == f;
		bool has_call = call < w->call_count && w->calls[call].caller == f;

		if (!has_cost && !has_call)
			continue;
		buf_add_char(w->out, '\n');
		write_function(w, f, "fl", "fn");
		for (; cost < w->cost_count && w->costs[cost].function == f; cost++)
			buf_printf(w->out, "%u %" PRId64 "\n", w->costs[cost].line,
				   w->costs[cost].value);
		for (; call < w->call_count && w->calls[call].caller == f; call++) {
			write_function(w, w->calls[call].callee, "cfi", "cfn");
			buf_printf(w->out, "calls=1 %u\n%u %" PRId64 "\n",
				   w->p->functions[w->calls[call].callee].line,
				   w->calls[call].line, w->calls[call].value);
		}
	}
}

int render_callgrind(const struct profile *p, const struct render_options *options,
		     struct buf *out, struct err *err)
{
	const struct profile_type_info *info = profile_type_info(p->meta.type);
	struct callgrind w = { .p = p, .out = out };
	int64_t sum = 0;
	int rc = callgrind_alloc(&w);

	(void)err;
	for (uint32_t i = 0; rc == 0 && i < p->sample_count; i++) {
		w.self[p->samples[i].node] += p->samples[i].values[options->value_index];
		sum += p->samples[i].values[options->value_index];
	}
	for (uint32_t i = p->node_count; rc == 0 && i-- > 0;) {
		w.total[i] += w.self[i];
		if (i)
			w.total[p->nodes[i].parent] += w.total[i];
	}
	if (rc == 0)
		rc = sum_self(&w);
	if (rc == 0)
		rc = name_calls(&w);
	if (rc == 0) {
		if (p->node_count)
			sum_calls(&w);
		buf_printf(out,
			   "# callgrind format\nversion: 1\ncreator: profd " PROFD_VERSION
			   "\npositions: line\nevents: %s_%s\nsummary: %" PRId64 "\n",
			   info->values[options->value_index].name,
			   info->values[options->value_index].unit, sum);
		write_costs(&w);
	}
	callgrind_deinit(&w);
	return rc < 0 ? rc : out->error;
}
