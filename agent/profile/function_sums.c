// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/function_sums.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/vec.h"
#include "agent/profile/builder_internal.h"
#include "agent/profile/profile_fold.h"
#include "agent/profile/quality.h"
#include "bpf/profiler.h"

#define NO_FUNCTION UINT32_MAX

/* The stacks that a node, a frame or a function belongs to. */
enum { OF_USER = 1, OF_KERNEL = 2, OF_BOTH = 3 };

struct row { /* of a function */
	int64_t self, cumulative;
	uint64_t samples_1024;
	uint32_t open; /* frames of it on the way from the root to where the walk is */
	uint8_t kind, roles; /* in any tree so far */
};

struct place { /* a frame of the tree: its functions, outermost first */
	uint32_t first, count; /* of functions */
	uint8_t roles;
	bool unknown; /* in this tree for the first time */
	bool cut; /* the marker of a cut stack: elsewhere than at the root it is nobody's own */
	uint8_t kind;	 /* enum fold_frame */
	uint32_t module; /* the builder's number of its mapping */
};

struct kernel_node {
	int64_t value; /* of what ends here */
	uint32_t leaf; /* function whose own value that is */
};

struct step { /* of the way from the root */
	uint32_t node;
	uint32_t leaf; /* function whose own value is what ends here */
	int64_t total; /* of what the walk met here and below */
	struct fold fold;
};

VEC_DEFINE(rows, struct row);
VEC_DEFINE(places, struct place);
VEC_DEFINE(roles, uint8_t);
VEC_DEFINE(kernel_nodes, struct kernel_node);
VEC_DEFINE(numbers, uint32_t);
VEC_DEFINE(steps, struct step);
VEC_DEFINE(words, uint64_t);

struct function_sums {
	struct profile_builder *builder;
	struct stack_resolver *resolver;
	struct rows_vec rows; /* by the builder's number of the function */
	int64_t value;
	uint64_t samples_1024;
	/* State of the tree that is being added. */
	const struct stack_tree *tree;
	const struct stack_sum *stacks;
	size_t stack_count;
	struct roles_vec roles;		/* by node */
	struct kernel_nodes_vec kernel; /* by node: those of kernel stacks alone are filled */
	bool entangled; /* a function of a kernel stack may be above it already: each of these is
			   gone through for itself */
	struct places_vec places;
	struct numbers_vec functions;
	struct words_vec words;	 /* frames that occur */
	struct steps_vec way;	 /* ascending, as a node's ancestors are */
	struct numbers_vec down; /* nodes that follow, innermost first */
};

struct function_sums *function_sums_create(const struct profile_meta *meta,
					   const struct stack_modules *modules,
					   const struct name_source *names)
{
	cleanup(function_sums) struct function_sums *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->builder = profile_builder_create(meta, 1);
	s->resolver = s->builder ? stack_resolver_create(s->builder, modules, names, 0) : NULL;
	return s->resolver ? take_ptr(s) : NULL;
}

void function_sums_destroy(struct function_sums *s)
{
	if (!s)
		return;
	stack_resolver_destroy(s->resolver);
	profile_builder_destroy(s->builder);
	rows_vec_deinit(&s->rows);
	roles_vec_deinit(&s->roles);
	kernel_nodes_vec_deinit(&s->kernel);
	places_vec_deinit(&s->places);
	numbers_vec_deinit(&s->functions);
	words_vec_deinit(&s->words);
	steps_vec_deinit(&s->way);
	numbers_vec_deinit(&s->down);
	free(s);
}

/* ---- what occurs ----------------------------------------------------------------------------- */

static void mark(struct function_sums *s, uint32_t node, uint8_t role)
{
	for (; node && !(s->roles.data[node] & role); node = s->tree->parents[node]) {
		s->roles.data[node] |= role;
		s->entangled |= s->roles.data[node] == OF_BOTH;
		s->places.data[s->tree->node_frames[node]].roles |= role;
		if (role == OF_KERNEL)
			s->kernel.data[node].value = 0;
	}
}

static int check_stack(const struct function_sums *s, const struct stack_sum *stack,
		       uint32_t user_before)
{
	return stack->user < s->tree->node_count && stack->kernel < s->tree->node_count &&
			       (stack->user || stack->kernel) && stack->user >= user_before
		       ? 0
		       : -EINVAL;
}

/* Marks the nodes and frames that exist, and those where kernel stacks end. */
static int mark_all(struct function_sums *s)
{
	const struct stack_tree *tree = s->tree;
	int rc = roles_vec_reserve(&s->roles, tree->node_count);

	if (rc == 0)
		rc = kernel_nodes_vec_reserve(&s->kernel, tree->node_count);
	if (rc == 0)
		rc = places_vec_reserve(&s->places, tree->frame_count + 1u);
	if (rc < 0)
		return rc;
	memset(s->roles.data, 0, tree->node_count);
	memset(s->places.data, 0, tree->frame_count * sizeof(*s->places.data));
	s->entangled = false;
	for (size_t i = 0; i < s->stack_count && rc == 0; i++) {
		const struct stack_sum *stack = &s->stacks[i];
		int64_t *value;

		rc = check_stack(s, stack, i ? stack[-1].user : 0);
		if (rc < 0)
			break;
		mark(s, stack->user, OF_USER);
		if (stack->kernel) {
			mark(s, stack->kernel, OF_KERNEL);
			value = &s->kernel.data[stack->kernel].value;
			*value = profile_add(*value, stack->value);
		}
		s->value = profile_add(s->value, stack->value);
		s->samples_1024 += stack->samples_1024;
	}
	return rc;
}

static void tell_fold(const struct function_sums *s, struct place *place,
		      const struct profile_frame *frame)
{
	const struct profile *p = s->builder->p;
	const char *path = profile_builder_text(s->builder, p->mappings[frame->mapping].path);
	const char *package = profile_builder_text(s->builder, p->functions[frame->function].package);

	place->kind = (uint8_t)fold_frame_of(frame, path, package);
	place->module = frame->mapping;
}

static int keep_functions(struct function_sums *s, struct place *place, const uint32_t *frames,
			  size_t count)
{
	int rc = 0;

	place->first = (uint32_t)s->functions.count;
	for (size_t i = 0; i < count && rc == 0; i++) {
		const struct profile_frame *resolved = &s->builder->p->frames[frames[i]];
		struct row *row;

		rc = numbers_vec_push(&s->functions, resolved->function);
		while (rc == 0 && s->rows.count <= resolved->function)
			rc = rows_vec_push(&s->rows, (struct row){ 0 });
		if (rc < 0)
			break;
		if (i == 0)
			tell_fold(s, place, resolved);
		row = &s->rows.data[resolved->function];
		row->kind = resolved->kind;
		row->roles |= place->roles;
		s->entangled |= row->roles == OF_BOTH;
	}
	place->count = (uint32_t)(s->functions.count - place->first);
	return rc;
}

/* Finds the frames that earlier trees had, too; the other frames are left as words. */
static int recall_all(struct function_sums *s)
{
	const struct stack_tree *tree = s->tree;
	int rc = words_vec_reserve(&s->words, tree->frame_count);

	s->words.count = s->functions.count = 0;
	for (uint32_t i = 0; i < tree->frame_count && rc == 0; i++) {
		struct place *place = &s->places.data[i];
		uint32_t kind = prof_frame_kind(tree->frames[i]);
		const uint32_t *frames;
		size_t count;

		place->cut = kind == PROF_FRAME_TRUNCATED;
		s->entangled |= place->cut && place->roles & OF_KERNEL;
		/* Names of files are no code. */
		if (!place->roles || kind == PROF_FRAME_NAME)
			continue;
		place->unknown = !stack_resolver_known(s->resolver, tree->frames[i], &frames, &count);
		if (place->unknown)
			s->words.data[s->words.count++] = tree->frames[i];
		else
			rc = keep_functions(s, place, frames, count);
	}
	return rc;
}

static int resolve_all(struct function_sums *s)
{
	const struct stack_tree *tree = s->tree;
	int rc = recall_all(s);

	if (rc == 0)
		rc = stack_resolver_prefetch(s->resolver, s->words.data, s->words.count);
	for (uint32_t i = 0; i < tree->frame_count && rc == 0; i++) {
		const uint32_t *frames;
		size_t count;

		if (!s->places.data[i].unknown)
			continue;
		rc = stack_resolver_frames(s->resolver, tree->frames[i], &frames, &count);
		if (rc == 0)
			rc = s->builder->error;
		if (rc == 0)
			rc = keep_functions(s, &s->places.data[i], frames, count);
	}
	return rc;
}

/* ---- the walk -------------------------------------------------------------------------------- */

static const struct place *place_of(const struct function_sums *s, uint32_t node)
{
	return &s->places.data[s->tree->node_frames[node]];
}

static uint32_t enter(struct function_sums *s, uint32_t node, uint32_t leaf)
{
	const struct place *place = place_of(s, node);
	const uint32_t *functions = s->functions.data + place->first;

	for (uint32_t i = 0; i < place->count; i++)
		s->rows.data[functions[i]].open++;
	return place->count && (!place->cut || leaf == NO_FUNCTION) ? functions[place->count - 1] : leaf;
}

/* A function that calls itself has it once. */
static void leave(struct function_sums *s, uint32_t node, int64_t total)
{
	const struct place *place = place_of(s, node);
	const uint32_t *functions = s->functions.data + place->first;

	for (uint32_t i = 0; i < place->count; i++) {
		struct row *row = &s->rows.data[functions[i]];

		if (!--row->open)
			row->cumulative = profile_add(row->cumulative, total);
	}
}

static struct step *last_step(struct function_sums *s)
{
	return s->way.count ? &s->way.data[s->way.count - 1] : NULL;
}

static void go_up(struct function_sums *s)
{
	const struct step step = s->way.data[--s->way.count];
	struct step *above = last_step(s);

	if (!step.fold.is_left_out)
		leave(s, step.node, step.total);
	if (above)
		above->total = profile_add(above->total, step.total);
}

static int go_down(struct function_sums *s, uint32_t node)
{
	const struct place *place = place_of(s, node);
	const struct step *above = last_step(s);
	struct step step = { .node = node, .leaf = above ? above->leaf : NO_FUNCTION };

	if (place->count && !place->cut)
		step.fold = fold_next(above ? above->fold : step.fold, place->kind, place->module);
	else if (above)
		step.fold = above->fold;
	if (!step.fold.is_left_out)
		step.leaf = enter(s, node, step.leaf);
	return steps_vec_push(&s->way, step);
}

/* Moves to a node that is not before the current one: up to the common ancestor, then down. */
static int go_to(struct function_sums *s, uint32_t node)
{
	int rc = 0;

	s->down.count = 0;
	for (;; node = s->tree->parents[node]) {
		while (s->way.count && last_step(s)->node > node)
			go_up(s);
		if (!node || (s->way.count && last_step(s)->node == node))
			break;
		rc = numbers_vec_push(&s->down, node);
		if (rc < 0)
			return rc;
	}
	for (size_t i = s->down.count; i-- > 0 && rc == 0;)
		rc = go_down(s, s->down.data[i]);
	return rc;
}

static int add_to_marker(struct function_sums *s, const char *name, int64_t value,
			 uint64_t samples_1024)
{
	struct profile_function function = { .name = profile_builder_string(s->builder, name,
									    strlen(name)) };
	struct profile_frame frame = { .kind = PROFILE_FRAME_MARKER,
				       .function = profile_builder_function(s->builder, &function) };
	struct row *row;
	int rc = 0;

	(void)profile_builder_frame(s->builder, &frame);
	while (rc == 0 && s->rows.count <= frame.function)
		rc = rows_vec_push(&s->rows, (struct row){ 0 });
	if (rc < 0 || s->builder->error)
		return rc < 0 ? rc : s->builder->error;
	row = &s->rows.data[frame.function];
	row->kind = PROFILE_FRAME_MARKER;
	row->self = profile_add(row->self, value);
	row->cumulative = profile_add(row->cumulative, value);
	row->samples_1024 += samples_1024;
	return 0;
}

/* Adds what kernel stacks take of the path below user stacks: they are a tree, too. */
static int walk_kernel(struct function_sums *s)
{
	int rc = 0;

	for (uint32_t i = 1; i < s->tree->node_count && rc == 0; i++) {
		struct step *step;

		if (!(s->roles.data[i] & OF_KERNEL))
			continue;
		rc = go_to(s, i);
		if (rc < 0)
			break;
		step = last_step(s);
		step->total = s->kernel.data[i].value;
		s->kernel.data[i].leaf = step->leaf;
	}
	while (s->way.count)
		go_up(s);
	return rc;
}

/* From where the walk is, down the kernel stack and back; *leaf is then what its value belongs to.
 */
static int cross_kernel(struct function_sums *s, const struct stack_sum *stack, uint32_t *leaf)
{
	int rc = 0;

	s->down.count = 0;
	for (uint32_t node = stack->kernel; node && rc == 0; node = s->tree->parents[node])
		rc = numbers_vec_push(&s->down, node);
	for (size_t i = s->down.count; i-- > 0 && rc == 0;)
		*leaf = enter(s, s->down.data[i], *leaf);
	for (size_t i = 0; i < s->down.count && rc == 0; i++)
		leave(s, s->down.data[i], stack->value);
	return rc;
}

static int add_stack(struct function_sums *s, const struct stack_sum *stack)
{
	struct step *step = last_step(s);
	bool ends = step && step->fold.is_leaf; /* the step's frame stays for this stack */
	uint32_t leaf = !step ? NO_FUNCTION : ends ? enter(s, step->node, step->leaf) : step->leaf;
	int rc = 0;

	if (step)
		step->total = profile_add(step->total, stack->value);
	if (stack->kernel && s->entangled)
		rc = cross_kernel(s, stack, &leaf);
	else if (stack->kernel && s->kernel.data[stack->kernel].leaf != NO_FUNCTION)
		leaf = s->kernel.data[stack->kernel].leaf;
	if (ends)
		leave(s, step->node, stack->value);
	if (rc < 0)
		return rc;
	if (leaf == NO_FUNCTION) /* nothing of it is code */
		return add_to_marker(s, "[no stack]", stack->value, stack->samples_1024);
	s->rows.data[leaf].self = profile_add(s->rows.data[leaf].self, stack->value);
	s->rows.data[leaf].samples_1024 += stack->samples_1024;
	return 0;
}

static int walk(struct function_sums *s)
{
	int rc = 0;

	for (size_t i = 0; i < s->stack_count && rc == 0; i++) {
		rc = go_to(s, s->stacks[i].user);
		if (rc == 0)
			rc = add_stack(s, &s->stacks[i]);
	}
	while (s->way.count)
		go_up(s);
	return rc;
}

int function_sums_add(struct function_sums *s, const struct stack_tree *tree,
		      const struct stack_sum *stacks, size_t count)
{
	int rc;

	if (!count)
		return 0;
	s->tree = tree;
	s->stacks = stacks;
	s->stack_count = count;
	rc = mark_all(s);
	if (rc == 0)
		rc = resolve_all(s);
	if (rc == 0 && !s->entangled)
		rc = walk_kernel(s);
	return rc == 0 ? walk(s) : rc;
}

int function_sums_add_marker(struct function_sums *s, const char *name, int64_t value,
			     uint64_t samples_1024)
{
	s->value = profile_add(s->value, value);
	s->samples_1024 += samples_1024;
	return add_to_marker(s, name, value, samples_1024);
}

/* ---- the result ------------------------------------------------------------------------------ */

static uint64_t samples_of(uint64_t samples_1024)
{
	return (samples_1024 + 512) / 1024;
}

/* The totals are a sample of the root. */
static int finish_profile(struct function_sums *s, struct profile **ret)
{
	const struct profile_type_info *type = profile_type_info(s->builder->p->meta.type);
	const struct profile_quality quality = quality_empty();
	const struct profile_attrs nobody = { 0 };
	int64_t values[PROFILE_VALUES_MAX] = { 0 };

	if (type->value_index)
		values[0] = (int64_t)samples_of(s->samples_1024);
	values[type->value_index] = s->value;
	profile_builder_sample(s->builder, 0, profile_builder_attrs(s->builder, &nobody, NULL), values);
	return profile_builder_finish(s->builder, &quality, ret);
}

int function_sums_finish(struct function_sums *s, struct profile **ret,
			 struct profile_function_row **ret_rows, size_t *ret_count)
{
	cleanup(profile) struct profile *p = NULL;
	cleanup_free struct profile_function_row *rows = calloc(s->rows.count + 1, sizeof(*rows));
	size_t used = 0;
	int rc = rows ? finish_profile(s, &p) : -ENOMEM;

	for (uint32_t i = 0; i < s->rows.count && rc == 0; i++) {
		const struct row *row = &s->rows.data[i];

		if (row->self || row->cumulative)
			rows[used++] = (struct profile_function_row){ .function = i,
								      .kind = row->kind,
								      .self = row->self,
								      .cumulative = row->cumulative,
								      .count = samples_of(row->samples_1024) };
	}
	if (rc == 0 && used)
		rc = profile_sort_rows(p, rows, used);
	if (rc < 0)
		return rc;
	*ret = take_ptr(p);
	*ret_rows = take_ptr(rows);
	*ret_count = used;
	return 0;
}
