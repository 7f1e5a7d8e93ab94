// SPDX-License-Identifier: Apache-2.0
/* Putting pieces of a dictionary together; the format is in settled.h. */
#include "agent/session/settled.h"

#include <errno.h>

#include "agent/base/hash.h"
#include "agent/base/u64map.h"
#include "agent/base/vec.h"
#include "agent/store/store.h"

#define NODE_ROOT    0u
#define CODE_NONE    0u
#define LOW_BITS     40

struct module {
	struct chunk_module module;
	char *path;
	uint8_t build_id[FEED_BUILD_ID_MAX];
};

struct process {
	struct chunk_process process; /* without its texts */
	uint32_t comm, exe, service;  /* numbers of texts */
};

struct text {
	char *bytes;
	size_t len;
};

struct node {
	uint32_t parent;
	uint32_t frame_at; /* in the sorted table, while encoding */
	uint64_t frame;
	uint32_t depth, number; /* in the walk, while encoding */
};

struct stack {
	uint32_t node;
	uint8_t outcome;
};

VEC_DEFINE(modules, struct module);
VEC_DEFINE(processes, struct process);
VEC_DEFINE(texts, struct text);
VEC_DEFINE(nodes, struct node);
VEC_DEFINE(stacks, struct stack);
VEC_DEFINE(pairs, struct chunk_pair);
VEC_DEFINE(attrs, struct chunk_attr);
VEC_DEFINE(numbers, uint32_t);
VEC_DEFINE(frames, uint64_t);

struct settled {
	struct modules_vec modules;
	struct processes_vec processes;
	struct u64map process_at; /* id -> index of processes */
	struct texts_vec texts;
	struct u64map text_at; /* hash -> index of texts */
	struct nodes_vec nodes;
	struct u64map child_at; /* hash of parent and frame -> node */
	struct stacks_vec stacks;
	struct u64map stack_at; /* id -> index of stacks */
	struct pairs_vec pairs;
	struct attrs_vec attrs;
	uint32_t first_pair, first_attr;
};

struct settled *settled_create(void)
{
	struct settled *s = calloc(1, sizeof(*s));

	if (s && (nodes_vec_push(&s->nodes, (struct node){ 0 }) < 0 ||
		  texts_vec_push(&s->texts, (struct text){ 0 }) < 0)) {
		settled_destroy(s);
		return NULL;
	}
	return s;
}

void settled_destroy(struct settled *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->modules.count; i++)
		free(s->modules.data[i].path);
	for (size_t i = 0; i < s->texts.count; i++)
		free(s->texts.data[i].bytes);
	modules_vec_deinit(&s->modules);
	processes_vec_deinit(&s->processes);
	u64map_deinit(&s->process_at);
	texts_vec_deinit(&s->texts);
	u64map_deinit(&s->text_at);
	nodes_vec_deinit(&s->nodes);
	u64map_deinit(&s->child_at);
	stacks_vec_deinit(&s->stacks);
	u64map_deinit(&s->stack_at);
	pairs_vec_deinit(&s->pairs);
	attrs_vec_deinit(&s->attrs);
	free(s);
}

/* ---- adding ---------------------------------------------------------------------------------- */

static int find_text(struct settled *s, struct chunk_text text, uint32_t *ret)
{
	uint64_t hash = hash_bytes(text.text, text.len, 0), at = s->texts.count;
	char *copy;
	int rc;

	if (!text.len || (u64map_get(&s->text_at, hash, &at) && s->texts.data[at].len == text.len &&
			  memcmp(s->texts.data[at].bytes, text.text, text.len) == 0)) {
		*ret = text.len ? (uint32_t)at : 0;
		return 0;
	}
	at = s->texts.count;
	copy = malloc(text.len);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, text.text, text.len);
	rc = texts_vec_push(&s->texts, (struct text){ copy, text.len });
	if (rc < 0) {
		free(copy);
		return rc;
	}
	*ret = (uint32_t)at;
	return u64map_put(&s->text_at, hash, at);
}

static int add_module(void *ctx, const struct chunk_module *m)
{
	struct settled *s = ctx;
	struct module module = { .module = *m, .path = strndup(m->path.text, m->path.len) };
	int rc = module.path ? modules_vec_push(&s->modules, module) : -ENOMEM;
	struct module *to;

	if (rc < 0) {
		free(module.path);
		return rc;
	}
	to = &s->modules.data[s->modules.count - 1];
	memcpy(to->build_id, m->build_id, m->build_id_len);
	return 0;
}

static int add_process(void *ctx, const struct chunk_process *p)
{
	struct settled *s = ctx;
	struct process process = { .process = *p };
	int rc;

	if (u64map_get(&s->process_at, p->id, &(uint64_t){ 0 }))
		return 0;
	rc = find_text(s, p->comm, &process.comm);
	if (rc == 0)
		rc = find_text(s, p->exe, &process.exe);
	if (rc == 0)
		rc = find_text(s, p->service, &process.service);
	if (rc == 0)
		rc = u64map_put(&s->process_at, p->id, s->processes.count);
	return rc < 0 ? rc : processes_vec_push(&s->processes, process);
}

static int find_child(struct settled *s, uint32_t parent, uint64_t frame, uint32_t *ret)
{
	uint64_t hash = hash_combine(hash_mix64(parent), frame), at;
	int rc;

	if (u64map_get(&s->child_at, hash, &at) && s->nodes.data[at].parent == parent &&
	    s->nodes.data[at].frame == frame) {
		*ret = (uint32_t)at;
		return 0;
	}
	at = s->nodes.count;
	if (at >= UINT32_MAX - CHUNK_CODE_NODE)
		return -ENOMEM;
	rc = nodes_vec_push(&s->nodes, (struct node){ .parent = parent, .frame = frame });
	*ret = (uint32_t)at;
	return rc < 0 ? rc : u64map_put(&s->child_at, hash, at);
}

static int add_stack(void *ctx, const struct chunk_stack *stack)
{
	struct settled *s = ctx;
	uint32_t node = NODE_ROOT;
	int rc = 0;

	if (u64map_get(&s->stack_at, stack->id, &(uint64_t){ 0 }))
		return 0;
	for (uint16_t i = stack->frame_count; i-- > 0 && rc == 0;)
		rc = find_child(s, node, stack->frames[i], &node);
	if (rc == 0)
		rc = u64map_put(&s->stack_at, stack->id, s->stacks.count);
	return rc < 0 ? rc : stacks_vec_push(&s->stacks, (struct stack){ node, stack->outcome });
}

/* Numbers go on where they ended: a gap is damage. */
static int add_pair(void *ctx, uint32_t id, const struct chunk_pair *pair)
{
	struct settled *s = ctx;

	if (!s->pairs.count)
		s->first_pair = id;
	return id == s->first_pair + s->pairs.count ? pairs_vec_push(&s->pairs, *pair) : -EPROTO;
}

static int add_attr(void *ctx, uint32_t id, const struct chunk_attr *attr)
{
	struct settled *s = ctx;

	if (!s->attrs.count)
		s->first_attr = id;
	if (id != s->first_attr + s->attrs.count)
		return -EPROTO;
	return attrs_vec_push(&s->attrs, *attr);
}

int settled_add(struct settled *s, int kind, const void *data, size_t len)
{
	const struct chunk_sink sink = { .ctx = s,
					 .module = add_module,
					 .process = add_process,
					 .stack = add_stack,
					 .pair = add_pair,
					 .attr = add_attr };

	switch (kind) {
	case STORE_CHUNK_MODULES:
	case STORE_CHUNK_PROCESSES:
	case STORE_CHUNK_STACKS:
	case STORE_CHUNK_SAMPLES:
	case STORE_CHUNK_SETTLED:
		return chunk_decode(kind, data, len, &sink);
	}
	return -EPROTO;
}

/* ---- modules, texts, processes ----------------------------------------------------------------- */

static void add_text(struct buf *out, const char *text, size_t len)
{
	buf_add_varint(out, len);
	buf_add(out, text, len);
}

static int encode_modules(const struct settled *s, struct buf *out)
{
	cleanup_free struct chunk_module *list = calloc(s->modules.count + 1, sizeof(*list));

	if (!list)
		return -ENOMEM;
	for (size_t i = 0; i < s->modules.count; i++) {
		list[i] = s->modules.data[i].module;
		list[i].build_id = s->modules.data[i].build_id;
		list[i].path = chunk_text_of(s->modules.data[i].path);
	}
	chunk_encode_modules(out, list, s->modules.count);
	return 0;
}

static void encode_processes(const struct settled *s, struct buf *out)
{
	const struct process *list = s->processes.data;
	struct chunk_process before = { 0 };

	buf_add_varint(out, s->texts.count);
	for (size_t i = 0; i < s->texts.count; i++)
		add_text(out, s->texts.data[i].bytes, s->texts.data[i].len);
	buf_add_varint(out, s->processes.count);
	for (size_t i = 0; i < s->processes.count; i++) {
		const struct chunk_process *p = &list[i].process;

		buf_add_svarint(out, (int64_t)p->id - before.id);
		buf_add_svarint(out, (int64_t)p->tgid - before.tgid);
		buf_add_varint(out, p->exec_generation);
		buf_add_svarint(out, (int64_t)(p->start_boottime_ns - before.start_boottime_ns));
		buf_add_svarint(out, (int64_t)(p->started_at_ns - p->start_boottime_ns -
					       (before.started_at_ns - before.start_boottime_ns)));
		buf_add_varint(out, list[i].comm);
		buf_add_varint(out, list[i].exe);
		buf_add_varint(out, list[i].service);
		before = *p;
	}
}

/* ---- the tree ------------------------------------------------------------------------------------ */

static int by_value(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

/* The sorted table of frames; each node learns its frame's place. */
static int encode_frames(struct settled *s, struct buf *out, uint32_t *ret_count)
{
	struct frames_vec frames = { 0 };
	uint64_t before = 0;
	size_t kept = 0;
	int rc = frames_vec_reserve(&frames, s->nodes.count);

	if (rc < 0)
		return rc;
	for (size_t i = 1; i < s->nodes.count; i++)
		frames.data[frames.count++] = s->nodes.data[i].frame;
	if (frames.count)
		qsort(frames.data, frames.count, sizeof(*frames.data), by_value);
	for (size_t i = 0; i < frames.count; i++)
		if (!kept || frames.data[kept - 1] != frames.data[i])
			frames.data[kept++] = frames.data[i];
	buf_add_varint(out, kept);
	for (size_t i = 0; i < kept; i++) {
		buf_add_varint(out, (frames.data[i] >> LOW_BITS) - (before >> LOW_BITS));
		before = frames.data[i];
	}
	before = 0;
	for (size_t i = 0; i < kept; i++) {
		uint64_t low = frames.data[i] & ((1ull << LOW_BITS) - 1);
		bool same = i && frames.data[i - 1] >> LOW_BITS == frames.data[i] >> LOW_BITS;

		buf_add_varint(out, same ? low - before : low);
		before = low;
	}
	for (size_t i = 1; i < s->nodes.count; i++) {
		const uint64_t *at = bsearch(&s->nodes.data[i].frame, frames.data, kept,
					     sizeof(*frames.data), by_value);

		s->nodes.data[i].frame_at = (uint32_t)(at - frames.data);
	}
	*ret_count = (uint32_t)kept;
	frames_vec_deinit(&frames);
	return 0;
}

/* A child in the list of its parent's. */
struct child {
	uint32_t parent, frame_at, node;
};
VEC_DEFINE(children, struct child);

static int by_parent(const void *a, const void *b)
{
	const struct child *x = a, *y = b;

	if (x->parent != y->parent)
		return x->parent < y->parent ? -1 : 1;
	return x->frame_at < y->frame_at ? -1 : x->frame_at > y->frame_at;
}

/* Numbers the nodes in the order of a walk; @ret has them in this order, the root first. */
static int walk(struct settled *s, struct numbers_vec *ret)
{
	struct children_vec children = { 0 };
	struct numbers_vec open = { 0 };
	cleanup_free uint32_t *first = calloc(s->nodes.count + 1, sizeof(*first));
	int rc = first ? children_vec_reserve(&children, s->nodes.count) : -ENOMEM;

	if (rc == 0)
		rc = numbers_vec_reserve(&open, s->nodes.count);
	if (rc == 0)
		rc = numbers_vec_reserve(ret, s->nodes.count);
	for (uint32_t i = 1; rc == 0 && i < s->nodes.count; i++) {
		const struct node *node = &s->nodes.data[i];

		children.data[children.count++] = (struct child){ node->parent, node->frame_at, i };
		first[node->parent + 1]++;
	}
	if (rc == 0 && children.count)
		qsort(children.data, children.count, sizeof(*children.data), by_parent);
	for (size_t i = 0; rc == 0 && i < s->nodes.count; i++)
		first[i + 1] += first[i];
	if (rc == 0)
		open.data[open.count++] = NODE_ROOT;
	while (open.count) {
		uint32_t at = open.data[--open.count];

		s->nodes.data[at].number = (uint32_t)ret->count;
		ret->data[ret->count++] = at;
		for (uint32_t i = first[at + 1]; i-- > first[at];) {
			uint32_t child = children.data[i].node;

			s->nodes.data[child].depth = s->nodes.data[at].depth + 1;
			open.data[open.count++] = child;
		}
	}
	children_vec_deinit(&children);
	numbers_vec_deinit(&open);
	return rc;
}

static int encode_nodes(struct settled *s, uint32_t frame_count, struct buf *out)
{
	cleanup_free uint32_t *last = calloc(frame_count + 1, sizeof(*last));
	struct numbers_vec order = { 0 };
	int rc = last ? walk(s, &order) : -ENOMEM;

	for (uint32_t i = 0; rc == 0 && i < frame_count; i++)
		last[i] = i;
	if (rc == 0)
		buf_add_varint(out, order.count - 1);
	for (size_t i = 1; i < order.count; i++)
		buf_add_varint(out, s->nodes.data[order.data[i - 1]].depth + 1 -
					    s->nodes.data[order.data[i]].depth);
	for (size_t i = 1; i < order.count; i++) {
		const struct node *node = &s->nodes.data[order.data[i]];
		uint32_t below = node->parent == NODE_ROOT ? frame_count
							   : s->nodes.data[node->parent].frame_at;

		buf_add_svarint(out, (int64_t)node->frame_at - last[below]);
		last[below] = node->frame_at;
	}
	numbers_vec_deinit(&order);
	return rc;
}

/* ---- pairs and attributes ---------------------------------------------------------------------- */

static uint32_t code_of(const struct settled *s, uint64_t id, uint8_t *ret_outcome)
{
	uint64_t at;

	*ret_outcome = 0;
	if (!id)
		return CODE_NONE;
	if (!u64map_get(&s->stack_at, id, &at))
		return CHUNK_CODE_MISSING;
	*ret_outcome = s->stacks.data[at].outcome;
	return s->nodes.data[s->stacks.data[at].node].number + CHUNK_CODE_NODE;
}

static void encode_pairs(const struct settled *s, struct buf *out)
{
	uint32_t before = 0;
	uint8_t outcome;

	buf_add_varint(out, s->first_pair);
	buf_add_varint(out, s->pairs.count);
	for (size_t i = 0; i < s->pairs.count; i++) {
		uint32_t code = code_of(s, s->pairs.data[i].user, &outcome);

		buf_add_svarint(out, (int64_t)code - before);
		before = code;
	}
	for (size_t i = 0; i < s->pairs.count; i++)
		buf_add_varint(out, code_of(s, s->pairs.data[i].kernel, &outcome));
	for (size_t i = 0; i < s->pairs.count; i++) {
		(void)code_of(s, s->pairs.data[i].user, &outcome);
		buf_add(out, &outcome, 1);
	}
	for (size_t i = 0; i < s->pairs.count; i++) {
		(void)code_of(s, s->pairs.data[i].kernel, &outcome);
		buf_add(out, &outcome, 1);
	}
}

static uint32_t tgid_of(const struct settled *s, uint32_t process)
{
	uint64_t at;

	return u64map_get(&s->process_at, process, &at) ? s->processes.data[at].process.tgid : 0;
}

/* 0 when it is the process's own. */
static int comm_of(struct settled *s, const struct chunk_attr *attr, uint32_t *ret)
{
	const struct chunk_text text = { attr->comm, strnlen(attr->comm, sizeof(attr->comm)) };
	uint64_t at;
	int rc = find_text(s, text, ret);

	if (rc == 0)
		*ret = u64map_get(&s->process_at, attr->process, &at) &&
				       s->processes.data[at].comm == *ret
			       ? 0
			       : *ret + 1;
	return rc;
}

/* Before the texts are written: threads' names are among them. */
static int find_comms(struct settled *s, struct numbers_vec *ret)
{
	int rc = numbers_vec_reserve(ret, s->attrs.count + 1);

	for (size_t i = 0; rc == 0 && i < s->attrs.count; i++)
		rc = comm_of(s, &s->attrs.data[i], &ret->data[i]);
	return rc;
}

static void encode_attrs(const struct settled *s, const uint32_t *comms, struct buf *out)
{
	const struct chunk_attr *list = s->attrs.data;
	size_t count = s->attrs.count;

	buf_add_varint(out, s->first_attr);
	buf_add_varint(out, count);
	for (size_t i = 0; i < count; i++)
		buf_add_svarint(out, (int64_t)list[i].process - (i ? list[i - 1].process : 0));
	for (size_t i = 0; i < count; i++)
		buf_add_svarint(out, (int64_t)list[i].tid - tgid_of(s, list[i].process));
	for (size_t i = 0; i < count; i++)
		buf_add(out, &list[i].type, 1);
	for (size_t i = 0; i < count; i++)
		buf_add(out, &list[i].state, 1);
	for (size_t i = 0; i < count; i++)
		buf_add(out, &list[i].detail, 1);
	for (size_t i = 0; i < count; i++)
		buf_add_varint(out, comms[i]);
	for (size_t i = 0; i < count; i++)
		buf_add_varint(out, list[i].object);
	for (size_t i = 0; i < count; i++)
		buf_add_varint(out, list[i].holder);
}

int settled_encode(struct settled *s, struct buf *out)
{
	struct numbers_vec comms = { 0 };
	uint32_t frame_count = 0;
	int rc = find_comms(s, &comms);

	if (rc == 0)
		rc = encode_modules(s, out);
	if (rc == 0)
		encode_processes(s, out);
	if (rc == 0)
		rc = encode_frames(s, out, &frame_count);
	if (rc == 0)
		rc = encode_nodes(s, frame_count, out);
	if (rc == 0) {
		encode_pairs(s, out);
		encode_attrs(s, comms.data, out);
	}
	numbers_vec_deinit(&comms);
	return rc < 0 ? rc : out->error;
}
