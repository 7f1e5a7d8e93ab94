// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/stack_resolver.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/u64map.h"
#include "agent/base/vec.h"
#include "agent/profile/package_name.h"
#include "agent/wire/feed.h"
#include "bpf/profiler.h"

#define GO_PACKAGE_SIZE	 512
#define MODULE_NAME_SIZE 128

/* A copy of a module without its borrowed texts. */
struct module {
	uint64_t key;
	uint32_t mapping; /* id in the builder */
	uint32_t package; /* string id: base name, "kernel" */
	uint8_t kind;	  /* enum feed_module_kind */
	bool known;
	char name[MODULE_NAME_SIZE]; /* text of the package, cut */
};

VEC_DEFINE(ids, uint32_t);
VEC_DEFINE(modules, struct module);

#define PATH_FRAMES 256u

struct path { /* of the last user stack, outermost first */
	uint64_t words[PATH_FRAMES];
	uint32_t nodes[PATH_FRAMES];
	size_t count;
};

struct stack_resolver {
	struct profile_builder *builder; /* borrowed */
	struct stack_modules lookup;
	const struct name_source *names; /* borrowed, NULL = none */
	size_t memo_max;
	struct u64map memo;	 /* frame word -> first index in frames << 8 | count */
	struct ids_vec frames;	 /* frame ids of memo entries, outermost first */
	struct u64map module_at; /* module id -> index in modules */
	struct modules_vec modules;
	struct path path;
};

struct stack_resolver *stack_resolver_create(struct profile_builder *builder,
					     const struct stack_modules *modules,
					     const struct name_source *names, size_t memo_max)
{
	struct stack_resolver *r = calloc(1, sizeof(*r));

	if (!r)
		return NULL;
	r->builder = builder;
	r->lookup = *modules;
	r->names = names;
	r->memo_max = memo_max ? memo_max : STACK_MEMO_MAX;
	return r;
}

void stack_resolver_destroy(struct stack_resolver *r)
{
	if (!r)
		return;
	u64map_deinit(&r->memo);
	u64map_deinit(&r->module_at);
	ids_vec_deinit(&r->frames);
	modules_vec_deinit(&r->modules);
	free(r);
}

static uint32_t string_id(struct stack_resolver *r, const char *text)
{
	return profile_builder_string(r->builder, text, strlen(text));
}

static struct module make_module(struct stack_resolver *r, uint32_t id)
{
	struct profile_mapping mapping = { 0 };
	struct stack_module found = { 0 };
	struct module module = { 0 };
	const char *base;
	size_t len;

	if (!r->lookup.find(r->lookup.ctx, id, &found))
		return module;
	module.known = true;
	module.key = found.key;
	module.kind = found.kind;
	base = found.kind == FEED_MODULE_KERNEL ? "kernel" : found.path ? found.path : "";
	base = package_of_path(base, &len);
	module.package = profile_builder_string(r->builder, base, len);
	(void)snprintf(module.name, sizeof(module.name), "%.*s", (int)len, len ? base : "module");
	mapping.path = string_id(r, found.path ? found.path : "");
	mapping.key = found.key;
	mapping.unread = found.kind == FEED_MODULE_UNREADABLE || found.kind == FEED_MODULE_GONE;
	if (found.build_id && found.build_id_len <= sizeof(mapping.build_id)) {
		mapping.build_id_len = found.build_id_len;
		memcpy(mapping.build_id, found.build_id, found.build_id_len);
	}
	module.mapping = profile_builder_mapping(r->builder, &mapping);
	return module;
}

static int find_module(struct stack_resolver *r, uint32_t id, struct module *ret)
{
	uint64_t at;
	int rc;

	if (u64map_get(&r->module_at, id, &at)) {
		*ret = r->modules.data[at];
		return 0;
	}
	rc = u64map_put(&r->module_at, id, r->modules.count);
	if (rc == 0)
		rc = modules_vec_push(&r->modules, make_module(r, id));
	if (rc < 0) {
		(void)u64map_remove(&r->module_at, id);
		return rc;
	}
	*ret = r->modules.data[r->modules.count - 1];
	return 0;
}

/* A return address names the call before it: the offset moves back by one and the flag goes, so
 * that one place is one memo entry and one frame. */
static uint64_t normalize(uint64_t word)
{
	uint32_t kind = prof_frame_kind(word);

	if (!(word & PROF_FRAME_RETURN))
		return word;
	word &= ~PROF_FRAME_RETURN;
	if (kind == PROF_FRAME_MODULE && prof_frame_offset(word))
		return word - 1;
	if ((kind == PROF_FRAME_ADDRESS || kind == PROF_FRAME_KERNEL) &&
	    (word & PROF_FRAME_ADDRESS_MASK))
		return word - 1;
	return word;
}

static int push(struct stack_resolver *r, uint32_t name, uint32_t package,
		struct profile_frame frame, const struct name_frame *source)
{
	struct profile_function function = { .name = name, .package = package };

	if (source) {
		function.file = string_id(r, source->file ? source->file : "");
		function.line = source->start_line;
		function.symbol = string_id(r, source->symbol ? source->symbol : "");
	}
	frame.function = profile_builder_function(r->builder, &function);
	return ids_vec_push(&r->frames, profile_builder_frame(r->builder, &frame));
}

static uint32_t package_of(struct stack_resolver *r, const struct module *module,
			   const struct name_frame *name)
{
	char go[GO_PACKAGE_SIZE];
	size_t len;

	if (name->package && *name->package)
		return string_id(r, name->package);
	if (name->kind == PROFILE_FRAME_GO) {
		len = package_of_go(name->function, go, sizeof(go));
		if (len)
			return profile_builder_string(r->builder, go, len);
	}
	if (module->kind == FEED_MODULE_JIT)
		return 0;
	return module->package;
}

static int push_named(struct stack_resolver *r, const struct module *module,
		      const struct name_frame *names, int count, struct profile_frame frame)
{
	int i, rc = 0;

	for (i = count - 1; rc == 0 && i >= 0; i--) {
		struct profile_frame one = frame;

		one.kind = module->kind == FEED_MODULE_KERNEL ? PROFILE_FRAME_KERNEL :
			   module->kind == FEED_MODULE_JIT    ? PROFILE_FRAME_JIT :
			   module->kind == FEED_MODULE_SCRIPT ? PROFILE_FRAME_INTERPRETED :
								names[i].kind;
		one.line = names[i].line;
		one.tier = names[i].tier;
		if (i < count - 1)
			one.flags |= PROFILE_FRAME_INLINED;
		if (names[i].is_approximate)
			one.flags |= PROFILE_FRAME_APPROXIMATE;
		rc = push(r, string_id(r, names[i].function), package_of(r, module, &names[i]), one,
			  &names[i]);
	}
	return rc;
}

/* @start: of its function, or the offset itself. */
static int push_unknown(struct stack_resolver *r, const struct module *module,
			struct profile_frame frame, uint64_t start)
{
	char text[MODULE_NAME_SIZE + 32];

	if (module->kind == FEED_MODULE_JIT) {
		frame.kind = PROFILE_FRAME_JIT;
		frame.offset = 0;
		return push(r, string_id(r, PROFILE_JIT), 0, frame, NULL);
	}
	if (module->kind == FEED_MODULE_SCRIPT) {
		/* Its function is known to be one of the runtime's, and no more. */
		frame.kind = PROFILE_FRAME_INTERPRETED;
		frame.offset = 0;
		return push(r, string_id(r, module->name), module->package, frame, NULL);
	}
	frame.kind = PROFILE_FRAME_UNKNOWN;
	if (module->known)
		(void)snprintf(text, sizeof(text), "[unknown] %s+0x%" PRIx64, module->name, start);
	else
		(void)snprintf(text, sizeof(text), "[unknown] 0x%" PRIx64, start);
	return push(r, string_id(r, text), module->package, frame, NULL);
}

static int resolve_module_frame(struct stack_resolver *r, uint64_t word, uint8_t flags)
{
	struct profile_frame frame = { .offset = prof_frame_offset(word), .flags = flags };
	struct name_frame names[NAMES_INLINE_MAX];
	struct module module;
	int rc = find_module(r, prof_frame_module_id(word), &module), count = 0;

	if (rc < 0)
		return rc;
	frame.mapping = module.mapping;
	if (r->names && module.known)
		count = r->names->find(r->names->ctx, module.key, frame.offset, names);
	if (count == -EAGAIN)
		profile_builder_mapping_unanswered(r->builder, module.mapping);
	if (count <= 0)
		return push_unknown(r, &module, frame, frame.offset);
	if (!names[0].function[0]) {
		bool is_inside = names[0].from_start <= frame.offset; /* names may be of a damaged file */

		frame.flags |= is_inside ? PROFILE_FRAME_NAMELESS : 0;
		return push_unknown(r, &module, frame, frame.offset - (is_inside ? names[0].from_start : 0));
	}
	return push_named(r, &module, names, count <= NAMES_INLINE_MAX ? count : NAMES_INLINE_MAX,
			  frame);
}

/* Appends the frames of a normalized word to r->frames, outermost first. */
static int resolve(struct stack_resolver *r, uint64_t word)
{
	uint8_t flags = word & PROF_FRAME_GUESSED ? PROFILE_FRAME_GUESSED : 0;
	uint64_t address = word & PROF_FRAME_ADDRESS_MASK;
	struct profile_frame frame = { .flags = flags };
	char text[64];

	switch (prof_frame_kind(word)) {
	case PROF_FRAME_MODULE:
		return resolve_module_frame(r, word, flags);
	case PROF_FRAME_KERNEL:
		/* Bits 63..58 do not fit in the word; they are all set in a kernel address. */
		address |= ~PROF_FRAME_ADDRESS_MASK;
		frame.kind = PROFILE_FRAME_UNKNOWN;
		(void)snprintf(text, sizeof(text), "[unknown] 0x%" PRIx64, address);
		return push(r, string_id(r, text), string_id(r, "kernel"), frame, NULL);
	case PROF_FRAME_TRUNCATED:
		frame = (struct profile_frame){ .kind = PROFILE_FRAME_MARKER };
		return push(r, string_id(r, PROFILE_TRUNCATED), 0, frame, NULL);
	case PROF_FRAME_MARKER:
		frame.kind = PROFILE_FRAME_MARKER;
		if ((address & PROF_FRAME_OFFSET_MASK) == PROF_MARKER_ON_CPU)
			(void)snprintf(text, sizeof(text), "[on cpu, not sampled]");
		else if ((address & PROF_FRAME_OFFSET_MASK) == PROF_MARKER_BLOCKED)
			(void)snprintf(text, sizeof(text), "[blocked, not sampled]");
		else
			(void)snprintf(text, sizeof(text), "[marker %llu]",
				       address & PROF_FRAME_OFFSET_MASK);
		return push(r, string_id(r, text), 0, frame, NULL);
	default:
		frame.kind = PROFILE_FRAME_UNKNOWN;
		(void)snprintf(text, sizeof(text), "[unknown] 0x%" PRIx64, address);
		return push(r, string_id(r, text), 0, frame, NULL);
	}
}

/* @word is normalized. */
static bool is_known(const struct stack_resolver *r, uint64_t word, size_t *ret_first,
		     size_t *ret_count)
{
	uint64_t entry;

	if (!u64map_get(&r->memo, word, &entry))
		return false;
	*ret_first = entry >> 8;
	*ret_count = entry & 0xff;
	return true;
}

/* First index and number of the frames of @word in r->frames. */
static int recall(struct stack_resolver *r, uint64_t word, size_t *ret_first, size_t *ret_count)
{
	size_t first;
	int rc;

	word = normalize(word);
	if (is_known(r, word, ret_first, ret_count))
		return 0;
	if (r->memo.count >= r->memo_max) {
		u64map_clear(&r->memo);
		r->frames.count = 0;
	}
	first = r->frames.count;
	rc = resolve(r, word);
	if (rc == 0)
		rc = u64map_put(&r->memo, word, (uint64_t)first << 8 | (r->frames.count - first));
	if (rc < 0) {
		r->frames.count = first;
		return rc;
	}
	*ret_first = first;
	*ret_count = r->frames.count - first;
	return 0;
}

bool stack_resolver_known(const struct stack_resolver *r, uint64_t word, const uint32_t **ret,
			  size_t *ret_count)
{
	size_t first;

	if (!is_known(r, normalize(word), &first, ret_count))
		return false;
	*ret = r->frames.data + first;
	return true;
}

int stack_resolver_frames(struct stack_resolver *r, uint64_t word, const uint32_t **ret,
			  size_t *ret_count)
{
	size_t first;
	int rc = recall(r, word, &first, ret_count);

	if (rc == 0)
		*ret = r->frames.data + first;
	return rc;
}

int stack_resolver_below(struct stack_resolver *r, struct stack_frames stack, uint32_t *node)
{
	size_t first, count;

	for (size_t i = stack.count; i > 0; i--) {
		int rc = recall(r, stack.frames[i - 1], &first, &count);

		if (rc < 0)
			return rc;
		for (size_t k = 0; k < count; k++)
			*node = profile_builder_node(r->builder, *node, r->frames.data[first + k]);
	}
	return 0;
}

static int add_frames(struct stack_resolver *r, struct stack_frames stack, uint32_t *node)
{
	int rc = 0;

	for (size_t i = stack.count; i > 0 && rc == 0; i--)
		if (prof_frame_kind(stack.frames[i - 1]) != PROF_FRAME_TRUNCATED)
			rc = stack_resolver_below(r, (struct stack_frames){ &stack.frames[i - 1], 1 }, node);
	return rc;
}

int stack_resolver_turned(struct stack_resolver *r, struct stack_frames stack, uint32_t *node)
{
	size_t first, count;
	int rc;

	for (size_t i = 0; i < stack.count; i++) {
		rc = recall(r, stack.frames[i], &first, &count);
		if (rc < 0)
			return rc;
		for (size_t k = count; k > 0; k--)
			*node = profile_builder_node(r->builder, *node, r->frames.data[first + k - 1]);
	}
	return 0;
}

/* Many stacks begin as the one before: that way is not gone again. */
static int add_user(struct stack_resolver *r, struct stack_frames stack, uint32_t *node)
{
	struct path *path = &r->path;
	size_t depth = 0;

	while (depth < path->count && depth < stack.count &&
	       path->words[depth] == stack.frames[stack.count - 1 - depth])
		depth++;
	path->count = depth;
	if (depth)
		*node = path->nodes[depth - 1];
	for (; depth < stack.count; depth++) {
		const uint64_t *word = &stack.frames[stack.count - 1 - depth];
		int rc = add_frames(r, (struct stack_frames){ word, 1 }, node);

		if (rc < 0)
			return rc;
		if (path->count == depth && depth < PATH_FRAMES) {
			path->words[depth] = *word;
			path->nodes[depth] = *node;
			path->count++;
		}
	}
	return 0;
}

static bool is_cut(struct stack_frames stack)
{
	size_t i;

	for (i = stack.count; i > 0; i--)
		if (prof_frame_kind(stack.frames[i - 1]) == PROF_FRAME_TRUNCATED)
			return true;
	return false;
}

int stack_resolver_node(struct stack_resolver *r, struct stack_frames user,
			struct stack_frames kernel, uint32_t *ret_node)
{
	static const uint64_t marker = (uint64_t)PROF_FRAME_TRUNCATED << PROF_FRAME_KIND_SHIFT;
	bool cut = is_cut(user) || is_cut(kernel);
	uint32_t node = 0;
	size_t first, count;
	int rc = 0;

	/* Wherever the cut is, the marker is the outermost frame. */
	if (cut) {
		rc = recall(r, marker, &first, &count);
		if (rc == 0)
			node = profile_builder_node(r->builder, 0, r->frames.data[first]);
	}
	if (rc == 0)
		rc = cut ? add_frames(r, user, &node) : add_user(r, user, &node);
	if (rc == 0)
		rc = add_frames(r, kernel, &node);
	if (rc < 0)
		return rc;
	*ret_node = node;
	return 0;
}

static int by_word(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

/* One module's run of sorted words; the words' room is reused for the offsets. */
static int prefetch_module(struct stack_resolver *r, uint64_t *words, size_t count)
{
	struct module module;
	size_t i, unique = 0;
	int rc = find_module(r, prof_frame_module_id(words[0]), &module);

	if (rc < 0 || !module.known)
		return rc;
	for (i = 0; i < count; i++) {
		uint64_t offset = prof_frame_offset(words[i]);

		if (!unique || words[unique - 1] != offset)
			words[unique++] = offset;
	}
	r->names->prefetch(r->names->ctx, module.key, words, unique);
	return 0;
}

int stack_resolver_prefetch(struct stack_resolver *r, const uint64_t *frames, size_t count)
{
	cleanup_free uint64_t *words = NULL;
	struct u64map seen = { 0 };
	size_t i, end, used = 0;
	uint64_t known;
	int rc = 0;

	if (!r->names || !r->names->prefetch || !count)
		return 0;
	words = malloc(count * sizeof(*words));
	if (!words)
		return -ENOMEM;
	for (i = 0; rc == 0 && i < count; i++) {
		uint64_t word = normalize(frames[i]);

		if (prof_frame_kind(word) != PROF_FRAME_MODULE || u64map_get(&r->memo, word, &known) ||
		    u64map_get(&seen, word, &known))
			continue;
		words[used++] = word & ~PROF_FRAME_GUESSED;
		rc = u64map_put(&seen, word, 1);
	}
	u64map_deinit(&seen);
	qsort(words, used, sizeof(*words), by_word);
	for (i = 0; rc == 0 && i < used; i = end) {
		uint32_t module = prof_frame_module_id(words[i]);

		for (end = i; end < used && prof_frame_module_id(words[end]) == module; end++)
			;
		rc = prefetch_module(r, words + i, end - i);
	}
	return rc;
}
