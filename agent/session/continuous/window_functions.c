// SPDX-License-Identifier: Apache-2.0
#include "agent/session/continuous/window_functions.h"

#include <errno.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/recording/chunk_decode.h"
#include "agent/recording/recording_internal.h"
#include "agent/recording/settled.h"
#include "bpf/profiler.h"

#define NOT_SEEN UINT32_MAX
#define AHEAD	 16u /* pairs */

VEC_DEFINE(numbers, uint32_t);
VEC_DEFINE(stack_sums, struct stack_sum);

struct window_functions {
	struct function_sums *sums;
	struct modules_vec modules; /* of all days, each once */
	struct u64map module_at;    /* hash of what it is -> index of modules */
	/* the day that is being added */
	struct recording *day;
	struct numbers_vec day_modules; /* the day's number -> index of modules, NOT_SEEN */
	struct settled *pieces;		/* that are not settled, as one; NULL = none yet */
	/* the tree that is being added */
	struct frames_vec frames; /* with the modules of all days */
	struct stack_sums_vec stacks;
};

static bool find_module(void *ctx, uint32_t id, struct stack_module *ret)
{
	const struct window_functions *w = ctx;
	const struct module *module;

	if (id >= w->modules.count)
		return false;
	module = &w->modules.data[id];
	*ret = (struct stack_module){ module->key, module->path, module->build_id,
				      module->build_id_len, module->kind };
	return true;
}

struct window_functions *window_functions_create(const struct profile_meta *meta,
						 const struct name_source *names)
{
	cleanup(window_functions) struct window_functions *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	w->sums = function_sums_create(meta, &(struct stack_modules){ w, find_module }, names);
	return w->sums ? take_ptr(w) : NULL;
}

void window_functions_destroy(struct window_functions *w)
{
	if (!w)
		return;
	function_sums_destroy(w->sums);
	for (size_t i = 0; i < w->modules.count; i++)
		free(w->modules.data[i].path);
	modules_vec_deinit(&w->modules);
	u64map_deinit(&w->module_at);
	numbers_vec_deinit(&w->day_modules);
	settled_destroy(w->pieces);
	frames_vec_deinit(&w->frames);
	stack_sums_vec_deinit(&w->stacks);
	free(w);
}

/* ---- modules of all days --------------------------------------------------------------------- */

static int add_module(struct window_functions *w, const struct chunk_module *m, uint64_t hash)
{
	struct module module = { .key = m->key, .kind = m->kind, .build_id_len = m->build_id_len,
				 .path = strndup(m->path.text, m->path.len) };
	int rc = module.path ? modules_vec_push(&w->modules, module) : -ENOMEM;

	if (rc < 0) {
		free(module.path);
		return rc;
	}
	memcpy(w->modules.data[w->modules.count - 1].build_id, m->build_id, m->build_id_len);
	return u64map_put(&w->module_at, hash, w->modules.count - 1);
}

static int on_module(void *ctx, const struct chunk_module *m)
{
	struct window_functions *w = ctx;
	uint64_t hash = hash_bytes(m->build_id, m->build_id_len, hash_combine(m->key, m->kind)),
		 at = w->modules.count;
	int rc = 0;

	hash = hash_bytes(m->path.text, m->path.len, hash);
	if (m->id >= RECORDING_MODULES_MAX || at >= RECORDING_MODULES_MAX - 1)
		return -EPROTO;
	if (!u64map_get(&w->module_at, hash, &at))
		rc = add_module(w, m, hash);
	while (rc == 0 && w->day_modules.count <= m->id)
		rc = numbers_vec_push(&w->day_modules, NOT_SEEN);
	/* The first of a number counts. */
	if (rc == 0 && w->day_modules.data[m->id] == NOT_SEEN)
		w->day_modules.data[m->id] = (uint32_t)at;
	return rc;
}

/* The tree's frames with the numbers of the modules of all days. */
static int translate(struct window_functions *w, const struct stack_tree *tree)
{
	int rc = frames_vec_reserve(&w->frames, tree->frame_count + 1u);

	for (uint32_t i = 0; i < tree->frame_count && rc == 0; i++) {
		uint64_t word = tree->frames[i];
		uint32_t module = prof_frame_module_id(word);

		if (prof_frame_kind(word) == PROF_FRAME_MODULE)
			word = prof_frame_module(module < w->day_modules.count ? w->day_modules.data[module] : NOT_SEEN,
						 prof_frame_offset(word), word & (PROF_FRAME_RETURN | PROF_FRAME_GUESSED));
		w->frames.data[i] = word;
	}
	return rc;
}

/* ---- sums ------------------------------------------------------------------------------------ */

static uint32_t node_of(uint32_t code)
{
	return code >= CHUNK_CODE_NODE ? code - CHUNK_CODE_NODE : 0;
}

static const char *marker_of(uint32_t pair, uint32_t user, uint32_t kernel)
{
	if (pair == CHUNK_PAIR_OVERFLOW)
		return PROFILE_TRUNCATED;
	return user == CHUNK_CODE_MISSING || kernel == CHUNK_CODE_MISSING ? PROFILE_LOST : "[no stack]";
}

static int take_pair(struct window_functions *w, uint32_t pair, uint32_t user, uint32_t kernel)
{
	struct chunk_pair_sum *sum = &w->day->pair_sums.data[pair];
	const struct stack_sum stack = { node_of(user), node_of(kernel), sum->value, sum->value2 };

	if (!sum->value && !sum->value2)
		return 0;
	*sum = (struct chunk_pair_sum){ 0 };
	if (stack.user || stack.kernel)
		return stack_sums_vec_push(&w->stacks, stack);
	return function_sums_add_marker(w->sums, marker_of(pair, user, kernel), stack.value,
					stack.samples_1024);
}

static int on_tree(void *ctx, const struct chunk_tree *tree)
{
	struct window_functions *w = ctx;
	const struct pair_sums_vec *sums = &w->day->pair_sums;
	struct stack_tree stacks = tree->stacks;
	int rc = translate(w, &stacks);

	w->stacks.count = 0;
	for (uint32_t i = 0; rc == 0 && i < tree->pair_count; i++) {
		uint32_t pair = tree->first_pair + tree->pairs[i];

		/* They lie anywhere. */
		if (i + AHEAD < tree->pair_count)
			__builtin_prefetch(sums->data + tree->first_pair + tree->pairs[i + AHEAD]);
		if (pair < sums->count)
			rc = take_pair(w, pair, tree->user[i], tree->kernel[i]);
	}
	stacks.frames = w->frames.data;
	return rc == 0 ? function_sums_add(w->sums, &stacks, w->stacks.data, w->stacks.count) : rc;
}

static int add_settled(struct window_functions *w, const void *data, size_t len)
{
	const struct chunk_sink sink = { .ctx = w, .module = on_module, .tree = on_tree };

	return chunk_decode(STORE_CHUNK_SETTLED, data, len, &sink);
}

void window_functions_begin(struct window_functions *w, struct recording *recording)
{
	w->day = recording;
	w->day_modules.count = 0;
	settled_destroy(w->pieces);
	w->pieces = NULL;
}

int window_functions_dictionary(struct window_functions *w, int kind, const void *data, size_t len)
{
	if (kind == STORE_CHUNK_SETTLED)
		return add_settled(w, data, len);
	if (!w->pieces)
		w->pieces = settled_create();
	return w->pieces ? settled_add(w->pieces, kind, data, len) : -ENOMEM;
}

/* The remaining values belong to pairs that are nowhere. */
static int take_rest(struct window_functions *w)
{
	int rc = 0;

	for (size_t i = 0; i < w->day->pair_sums.count && rc == 0; i++)
		rc = take_pair(w, (uint32_t)i, CHUNK_CODE_MISSING, CHUNK_CODE_MISSING);
	return rc;
}

int window_functions_end(struct window_functions *w)
{
	cleanup_buf struct buf settled = { .max = STORE_CHUNK_MAX };
	int rc = w->pieces ? settled_encode(w->pieces, &settled, NULL) : 0;

	if (rc == 0 && w->pieces)
		rc = add_settled(w, settled.data, settled.len);
	return rc == 0 ? take_rest(w) : rc;
}

int window_functions_finish(struct window_functions *w, struct profile **ret,
			    struct profile_function_row **ret_rows, size_t *ret_count)
{
	return function_sums_finish(w->sums, ret, ret_rows, ret_count);
}
