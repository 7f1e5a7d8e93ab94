// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/function_sums.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/vec.h"
#include "agent/profile/builder_internal.h"
#include "agent/profile/quality.h"
#include "bpf/profiler.h"

#define NO_FUNCTION UINT32_MAX

struct row { /* of a function */
	int64_t self, cumulative;
	uint64_t samples_1024;
	uint32_t open; /* frames of it on the way from the root to where the walk is */
	uint8_t kind;
};

struct place { /* a frame of the tree: its functions, outermost first */
	uint32_t first, count; /* of functions */
	bool cut; /* the marker of a cut stack: elsewhere than at the root it is nobody's own */
};

struct node {
	int64_t total;
	uint32_t stack; /* the first that ends here, + 1; 0 = none */
	bool wanted, below; /* part of a user stack; of a kernel stack */
};

struct step { /* of the way from the root */
	uint32_t node;
	uint32_t leaf; /* function whose own value is what ends here */
};

VEC_DEFINE(rows, struct row);
VEC_DEFINE(places, struct place);
VEC_DEFINE(nodes, struct node);
VEC_DEFINE(numbers, uint32_t);
VEC_DEFINE(steps, struct step);
VEC_DEFINE(words, uint64_t);

struct function_sums {
	struct profile_builder *builder;
	struct stack_resolver *resolver;
	struct rows_vec rows; /* by the builder's number of the function */
	int64_t value;
	uint64_t samples_1024;
	/* Of the tree being added. */
	const struct stack_tree *tree;
	const struct stack_sum *stacks;
	struct nodes_vec nodes;
	struct numbers_vec next; /* by stack: the next that ends at the same node, + 1 */
	struct places_vec places;
	struct numbers_vec functions;
	struct words_vec words; /* frames that occur */
	struct steps_vec way;
	struct numbers_vec kernel; /* nodes of a kernel stack, innermost first */
};

struct function_sums *function_sums_create(const struct profile_meta *meta, const struct stack_modules *modules,
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
	nodes_vec_deinit(&s->nodes);
	numbers_vec_deinit(&s->next);
	places_vec_deinit(&s->places);
	numbers_vec_deinit(&s->functions);
	words_vec_deinit(&s->words);
	steps_vec_deinit(&s->way);
	numbers_vec_deinit(&s->kernel);
	free(s);
}

/* ---- what occurs ----------------------------------------------------------------------------- */

static int attach(struct function_sums *s, uint32_t i)
{
	const struct stack_sum *stack = &s->stacks[i];
	struct node *node;

	if (stack->user >= s->tree->node_count || stack->kernel >= s->tree->node_count ||
	    (!stack->user && !stack->kernel))
		return -EINVAL;
	node = &s->nodes.data[stack->user];
	node->total = profile_add(node->total, stack->value);
	node->wanted = true;
	s->next.data[i] = node->stack;
	node->stack = i + 1;
	s->nodes.data[stack->kernel].below = true;
	s->value = profile_add(s->value, stack->value);
	s->samples_1024 += stack->samples_1024;
	return 0;
}

/* Totals of nodes, and which frames there are. */
static int attach_all(struct function_sums *s, size_t count)
{
	const struct stack_tree *tree = s->tree;
	int rc = nodes_vec_reserve(&s->nodes, tree->node_count);

	if (rc == 0)
		rc = numbers_vec_reserve(&s->next, count + 1);
	if (rc == 0)
		rc = places_vec_reserve(&s->places, tree->frame_count + 1u);
	if (rc < 0)
		return rc;
	memset(s->nodes.data, 0, tree->node_count * sizeof(*s->nodes.data));
	memset(s->places.data, 0, tree->frame_count * sizeof(*s->places.data));
	for (size_t i = 0; i < count && rc == 0; i++)
		rc = attach(s, (uint32_t)i);
	for (uint32_t i = tree->node_count - 1; i > 0; i--) {
		const struct node *node = &s->nodes.data[i];
		struct node *parent = &s->nodes.data[tree->parents[i]];

		parent->total = profile_add(parent->total, node->total);
		parent->wanted |= node->wanted;
		parent->below |= node->below;
		if (node->wanted || node->below)
			s->places.data[tree->node_frames[i]].count = 1;
	}
	return rc;
}

static int resolve(struct function_sums *s, uint32_t frame)
{
	uint64_t word = s->tree->frames[frame];
	struct place *place = &s->places.data[frame];
	const uint32_t *frames = NULL;
	size_t count = 0;
	int rc = 0;

	*place = (struct place){ .first = (uint32_t)s->functions.count,
				 .cut = prof_frame_kind(word) == PROF_FRAME_TRUNCATED };
	/* Names of files are no code. */
	if (prof_frame_kind(word) != PROF_FRAME_NAME)
		rc = stack_resolver_frames(s->resolver, word, &frames, &count);
	if (rc == 0)
		rc = s->builder->error;
	for (size_t i = 0; i < count && rc == 0; i++) {
		const struct profile_frame *resolved = &s->builder->p->frames[frames[i]];

		rc = numbers_vec_push(&s->functions, resolved->function);
		while (rc == 0 && s->rows.count <= resolved->function)
			rc = rows_vec_push(&s->rows, (struct row){ 0 });
		if (rc == 0)
			s->rows.data[resolved->function].kind = resolved->kind;
	}
	place->count = (uint32_t)(s->functions.count - place->first);
	return rc;
}

static int resolve_all(struct function_sums *s)
{
	const struct stack_tree *tree = s->tree;
	int rc = words_vec_reserve(&s->words, tree->frame_count);

	s->words.count = s->functions.count = 0;
	for (uint32_t i = 0; i < tree->frame_count && rc == 0; i++)
		if (s->places.data[i].count)
			s->words.data[s->words.count++] = tree->frames[i];
	if (rc == 0)
		rc = stack_resolver_prefetch(s->resolver, s->words.data, s->words.count);
	for (uint32_t i = 0; i < tree->frame_count && rc == 0; i++)
		if (s->places.data[i].count)
			rc = resolve(s, i);
	return rc;
}

/* ---- the walk -------------------------------------------------------------------------------- */

static const struct place *place_of(const struct function_sums *s, uint32_t node)
{
	return &s->places.data[s->tree->node_frames[node]];
}

static uint32_t enter(struct function_sums *s, uint32_t node, int64_t total, uint32_t leaf)
{
	const struct place *place = place_of(s, node);
	const uint32_t *functions = s->functions.data + place->first;

	for (uint32_t i = 0; i < place->count; i++) {
		struct row *row = &s->rows.data[functions[i]];

		if (!row->open++)
			row->cumulative = profile_add(row->cumulative, total);
	}
	return place->count && (!place->cut || leaf == NO_FUNCTION) ? functions[place->count - 1] : leaf;
}

static void leave(struct function_sums *s, uint32_t node)
{
	const struct place *place = place_of(s, node);

	for (uint32_t i = 0; i < place->count; i++)
		s->rows.data[s->functions.data[place->first + i]].open--;
}

static int add_to_marker(struct function_sums *s, const char *name, int64_t value, uint64_t samples_1024)
{
	struct profile_function function = { .name = profile_builder_string(s->builder, name, strlen(name)) };
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

/* From where the walk is, down the kernel stack and back. */
static int add_stack(struct function_sums *s, const struct stack_sum *stack, uint32_t leaf)
{
	int rc = 0;

	s->kernel.count = 0;
	for (uint32_t node = stack->kernel; node && rc == 0; node = s->tree->parents[node])
		rc = numbers_vec_push(&s->kernel, node);
	for (size_t i = s->kernel.count; i-- > 0 && rc == 0;)
		leaf = enter(s, s->kernel.data[i], stack->value, leaf);
	for (size_t i = 0; i < s->kernel.count && rc == 0; i++)
		leave(s, s->kernel.data[i]);
	if (rc < 0)
		return rc;
	if (leaf == NO_FUNCTION) /* nothing of it is code */
		return add_to_marker(s, "[no stack]", stack->value, stack->samples_1024);
	s->rows.data[leaf].self = profile_add(s->rows.data[leaf].self, stack->value);
	s->rows.data[leaf].samples_1024 += stack->samples_1024;
	return 0;
}

static int add_stacks_at(struct function_sums *s, uint32_t node, uint32_t leaf)
{
	int rc = 0;

	for (uint32_t i = s->nodes.data[node].stack; i && rc == 0; i = s->next.data[i - 1])
		rc = add_stack(s, &s->stacks[i - 1], leaf);
	return rc;
}

static int walk(struct function_sums *s)
{
	struct steps_vec *way = &s->way;
	int rc = add_stacks_at(s, 0, NO_FUNCTION);

	way->count = 0;
	for (uint32_t i = 1; i < s->tree->node_count && rc == 0; i++) {
		uint32_t leaf;

		if (!s->nodes.data[i].wanted)
			continue;
		while (way->count && way->data[way->count - 1].node != s->tree->parents[i])
			leave(s, way->data[--way->count].node);
		leaf = enter(s, i, s->nodes.data[i].total,
			     way->count ? way->data[way->count - 1].leaf : NO_FUNCTION);
		rc = steps_vec_push(way, (struct step){ i, leaf });
		if (rc == 0)
			rc = add_stacks_at(s, i, leaf);
	}
	while (way->count)
		leave(s, way->data[--way->count].node);
	return rc;
}

int function_sums_add(struct function_sums *s, const struct stack_tree *tree, const struct stack_sum *stacks,
		      size_t count)
{
	int rc;

	if (!count)
		return 0;
	s->tree = tree;
	s->stacks = stacks;
	rc = attach_all(s, count);
	if (rc == 0)
		rc = resolve_all(s);
	return rc == 0 ? walk(s) : rc;
}

int function_sums_add_marker(struct function_sums *s, const char *name, int64_t value, uint64_t samples_1024)
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

int function_sums_finish(struct function_sums *s, struct profile **ret, struct profile_function_row **ret_rows,
			 size_t *ret_count)
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
