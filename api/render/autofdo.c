// SPDX-License-Identifier: Apache-2.0
/* LLVM's sample profile, text form (clang.llvm.org/docs/UsersManual.html "Sample Profile Text
 * Format"):
 *
 *   function:total:head
 *    offset: count
 *    offset: inlined_function:total
 *     offset: count
 *
 * Offsets are lines from the function's first line. The compiler looks functions up by their
 * symbol: what has no name that could be one is left out. Counts are samples. */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "agent/base/u64map.h"
#include "agent/base/vec.h"
#include "api/render/render.h"

/* A function, or an inlined copy of one at a line of its caller. */
struct context {
	uint32_t function;
	uint32_t outer;	 /* context + 1 it is inlined into; 0 = none */
	uint32_t at;	 /* line offset in @outer */
	uint32_t first, next; /* inlined contexts inside, + 1 */
	uint32_t lines;	 /* first line count, + 1 */
	int64_t total, head;
};
VEC_DEFINE(context, struct context);

struct line_count {
	uint32_t offset, next;
	int64_t count;
};
VEC_DEFINE(line_count, struct line_count);

struct autofdo {
	const struct profile *p;
	struct context_vec contexts;
	struct line_count_vec counts;
	uint32_t *of_node; /* node -> context + 1 */
	struct u64map known, lines;
};

/* As the linker knows it. */
static const char *symbol_of(const struct profile *p, uint32_t function)
{
	const struct profile_function *f = &p->functions[function];

	return profile_string(p, f->symbol ? f->symbol : f->name);
}

static bool is_symbol(const char *name)
{
	if (!*name)
		return false;
	for (; *name; name++)
		if (!isalnum((unsigned char)*name) && !strchr("_.$@", *name))
			return false;
	return true;
}

static uint32_t offset_of(const struct profile *p, const struct profile_frame *frame)
{
	uint32_t start = p->functions[frame->function].line;

	return start && frame->line >= start ? frame->line - start : 0;
}

static int add_context(struct autofdo *w, uint32_t function, uint32_t outer, uint32_t line,
		       uint32_t *ret)
{
	uint64_t key = ((uint64_t)outer << 44) ^ ((uint64_t)(line & 0xfffff) << 24) ^ function, at;
	int rc = 0;

	if (!u64map_get(&w->known, key, &at)) {
		at = w->contexts.count;
		rc = context_vec_push(
			&w->contexts,
			(struct context){ .function = function, .outer = outer, .at = line });
		if (rc == 0)
			rc = u64map_put(&w->known, key, at);
		if (rc == 0 && outer) {
			w->contexts.data[at].next = w->contexts.data[outer - 1].first;
			w->contexts.data[outer - 1].first = (uint32_t)at + 1;
		}
	}
	*ret = (uint32_t)at + 1;
	return rc;
}

static int find_contexts(struct autofdo *w)
{
	const struct profile *p = w->p;
	int rc = 0;

	for (uint32_t i = 1; rc == 0 && i < p->node_count; i++) {
		const struct profile_frame *frame = &p->frames[p->nodes[i].frame];
		uint32_t parent = p->nodes[i].parent, outer = 0, line = 0;

		if (frame->kind != PROFILE_FRAME_NATIVE ||
		    !is_symbol(symbol_of(p, frame->function)))
			continue;
		if ((frame->flags & PROFILE_FRAME_INLINED) && parent) {
			outer = w->of_node[parent];
			line = offset_of(p, &p->frames[p->nodes[parent].frame]);
			if (!outer)
				continue;
		}
		rc = add_context(w, frame->function, outer, line, &w->of_node[i]);
	}
	return rc;
}

static int add_count(struct autofdo *w, uint32_t context, uint32_t offset, int64_t count)
{
	struct context *contexts = w->contexts.data;
	uint64_t key = (uint64_t)context << 32 | offset, at;
	int rc = 0;

	if (!u64map_get(&w->lines, key, &at)) {
		at = w->counts.count;
		rc = line_count_vec_push(&w->counts, (struct line_count){ offset, contexts[context].lines, 0 });
		if (rc == 0)
			rc = u64map_put(&w->lines, key, at);
		if (rc < 0)
			return rc;
		contexts[context].lines = (uint32_t)at + 1;
	}
	w->counts.data[at].count += count;
	for (uint32_t c = context + 1; c; c = contexts[c - 1].outer)
		contexts[c - 1].total += count;
	return 0;
}

static void write_context(const struct autofdo *w, uint32_t index, unsigned depth, struct buf *out)
{
	const struct context *contexts = w->contexts.data, *context = &contexts[index];
	const struct line_count *counts = w->counts.data;
	const char *name = symbol_of(w->p, context->function);

	if (depth == 0)
		buf_printf(out, "%s:%" PRId64 ":%" PRId64 "\n", name, context->total, context->head);
	else
		buf_printf(out, "%*s%u: %s:%" PRId64 "\n", (int)depth, "", context->at, name,
			   context->total);
	for (uint32_t l = context->lines; l; l = counts[l - 1].next)
		buf_printf(out, "%*s%u: %" PRId64 "\n", (int)depth + 1, "", counts[l - 1].offset,
			   counts[l - 1].count);
	/* Inline chains are at most NAMES_INLINE_MAX deep. */
	for (uint32_t c = context->first; c && depth < 64; c = contexts[c - 1].next)
		if (contexts[c - 1].total)
			write_context(w, c - 1, depth + 1, out);
}

int render_autofdo(const struct profile *p, const struct render_options *options, struct buf *out,
		   struct err *err)
{
	struct autofdo w = { .p = p };
	int rc;

	(void)options;
	if (p->meta.type != PROFILE_CPU)
		return err_set(err, ENOTSUP, "ProfileTypeMismatch", "format",
			       "a sample profile for the compiler is made from a cpu profile");
	w.of_node = calloc((size_t)p->node_count + 1, sizeof(*w.of_node));
	rc = w.of_node ? find_contexts(&w) : -ENOMEM;
	for (uint32_t i = 0; rc == 0 && i < p->sample_count; i++) {
		uint32_t node = p->samples[i].node;

		if (w.of_node[node])
			rc = add_count(&w, w.of_node[node] - 1,
				       offset_of(p, &p->frames[p->nodes[node].frame]),
				       p->samples[i].values[0]);
	}
	for (uint32_t i = 0; rc == 0 && i < w.contexts.count && !out->error; i++)
		if (!w.contexts.data[i].outer && w.contexts.data[i].total)
			write_context(&w, i, 0, out);
	u64map_deinit(&w.known);
	u64map_deinit(&w.lines);
	context_vec_deinit(&w.contexts);
	line_count_vec_deinit(&w.counts);
	free(w.of_node);
	return rc < 0 ? rc : out->error;
}
