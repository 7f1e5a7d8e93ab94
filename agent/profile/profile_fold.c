// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/profile_fold.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/profile/copy.h"

#define PYTHON_MODULE "[python]" /* path of the module of a process's Python frames */

enum where {
	OUTSIDE, /* no Python frame so far */
	IN_PYTHON, /* the last frame is a Python frame */
	IN_LOOP,   /* the last frame is the loop, or inlined into it */
	INSIDE,	   /* of a Python frame, further in */
	BEHIND,	   /* the user part has ended */
};

enum fold_frame fold_frame_of(const struct profile_frame *frame, const char *mapping,
			      const char *package)
{
	if (frame->kind == PROFILE_FRAME_INTERPRETED && strcmp(mapping, PYTHON_MODULE) == 0)
		return FOLD_FRAME_PYTHON;
	if (frame->kind == PROFILE_FRAME_MARKER)
		return FOLD_FRAME_MARKER;
	if (frame->kind == PROFILE_FRAME_KERNEL ||
	    (frame->kind == PROFILE_FRAME_UNKNOWN && strcmp(package, "kernel") == 0))
		return FOLD_FRAME_KERNEL;
	return frame->flags & PROFILE_FRAME_INLINED ? FOLD_FRAME_INLINED : FOLD_FRAME_USER;
}

struct fold fold_next(struct fold fold, enum fold_frame frame, uint32_t module)
{
	fold.is_left_out = fold.is_leaf = false;
	if (fold.where == BEHIND)
		return fold;
	if (frame == FOLD_FRAME_KERNEL || (frame == FOLD_FRAME_MARKER && fold.where != OUTSIDE)) {
		fold.where = BEHIND;
	} else if (frame == FOLD_FRAME_PYTHON) {
		fold.where = IN_PYTHON;
	} else if (fold.where == IN_PYTHON) {
		fold.module = module;
		fold.where = IN_LOOP;
		fold.is_left_out = true;
	} else if (fold.where == IN_LOOP && frame == FOLD_FRAME_INLINED && module == fold.module) {
		fold.is_left_out = true;
	} else if (fold.where != OUTSIDE) {
		fold.where = INSIDE;
		fold.is_left_out = fold.is_leaf = module && module == fold.module;
	}
	return fold;
}

/* ---- a whole profile ------------------------------------------------------------------------- */

struct place { /* of a node */
	struct fold fold;
	uint32_t node; /* of the builder: the stack without what may be left out at its end */
	uint32_t whole; /* with the last frame if it stays as a leaf; 0 = not asked for yet */
};

struct folding {
	const struct profile *p;
	struct profile_builder *b;
	struct copy copy;
	struct place *places; /* by node */
};

static const struct profile_frame *frame_of(const struct profile *p, uint32_t node)
{
	return &p->frames[p->nodes[node].frame];
}

static enum fold_frame kind_of(const struct profile *p, const struct profile_frame *frame)
{
	const char *mapping = frame->mapping < p->mapping_count
				      ? profile_string(p, p->mappings[frame->mapping].path)
				      : "";

	return fold_frame_of(frame, mapping, profile_string(p, p->functions[frame->function].package));
}

static bool has_python(const struct profile *p)
{
	for (uint32_t i = 0; i < p->frame_count; i++)
		if (p->frames[i].kind == PROFILE_FRAME_INTERPRETED &&
		    kind_of(p, &p->frames[i]) == FOLD_FRAME_PYTHON)
			return true;
	return false;
}

/* The builder's node of the stacks that end in @node. A function stays together with what is
 * inlined into it, so there are at most as many turns as a place has inlined functions. */
static uint32_t end_node(struct folding *f, uint32_t node)
{
	struct place *place = &f->places[node];
	uint32_t parent = f->p->nodes[node].parent, above = place->node;

	if (!place->fold.is_leaf)
		return place->node;
	if (place->whole)
		return place->whole;
	if (f->places[parent].fold.is_leaf &&
	    kind_of(f->p, frame_of(f->p, node)) == FOLD_FRAME_INLINED)
		above = end_node(f, parent);
	place->whole = profile_builder_node(f->b, above, f->copy.frames[f->p->nodes[node].frame]);
	return place->whole;
}

/* The builder's node that the child @node begins at. The user part ends where the kernel's begins.
 */
static uint32_t begin_node(struct folding *f, uint32_t node, struct fold fold)
{
	uint32_t parent = f->p->nodes[node].parent;
	bool ends = fold.where == BEHIND && f->places[parent].fold.where != BEHIND;

	return ends ? end_node(f, parent) : f->places[parent].node;
}

static void fold_nodes(struct folding *f)
{
	const struct profile *p = f->p;

	for (uint32_t i = 1; i < p->node_count; i++) {
		const struct profile_frame *frame = frame_of(p, i);
		struct place *place = &f->places[i];

		place->fold = fold_next(f->places[p->nodes[i].parent].fold, kind_of(p, frame),
					frame->mapping);
		place->node = begin_node(f, i, place->fold);
		if (!place->fold.is_left_out)
			place->node = profile_builder_node(f->b, place->node,
							   f->copy.frames[p->nodes[i].frame]);
	}
}

static void add_values(struct folding *f)
{
	const struct profile *p = f->p;

	for (uint32_t i = 0; i < p->sample_count; i++) {
		const struct profile_sample *sample = &p->samples[i];

		profile_builder_estimate(f->b, end_node(f, sample->node), f->copy.attrs[sample->attrs],
					 sample->values, sample->variance);
	}
	for (uint32_t i = 0; i < p->event_count; i++) {
		struct profile_event event = p->events[i];

		event.node = end_node(f, event.node);
		event.attrs = f->copy.attrs[event.attrs];
		profile_builder_event(f->b, &event);
	}
}

static void folding_deinit(struct folding *f)
{
	copy_deinit(&f->copy);
	profile_builder_destroy(f->b);
	free(f->places);
}

int profile_fold(struct profile *p, struct profile **ret)
{
	__attribute__((__cleanup__(folding_deinit))) struct folding f = { .p = p };
	struct profile_quality quality = p->quality;
	int rc;

	if (!has_python(p)) {
		*ret = profile_ref(p);
		return 0;
	}
	f.b = profile_builder_create(&p->meta, p->node_count);
	f.places = calloc(p->node_count, sizeof(*f.places));
	if (!f.b || !f.places)
		return -ENOMEM;
	rc = copy_init(&f.copy, p, f.b);
	if (rc < 0)
		return rc;
	fold_nodes(&f);
	add_values(&f);
	return profile_builder_finish(f.b, &quality, ret);
}
