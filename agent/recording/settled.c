// SPDX-License-Identifier: Apache-2.0
/* Putting pieces of a dictionary together; the format is in settled.h. */
#include <errno.h>

#include "agent/base/hash.h"
#include "agent/recording/chunk_decode.h"
#include "agent/recording/settled_internal.h"
#include "agent/store/store.h"

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

int settled_find_text(struct settled *s, struct chunk_text text, uint32_t *ret)
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
	rc = settled_find_text(s, p->comm, &process.comm);
	if (rc == 0)
		rc = settled_find_text(s, p->exe, &process.exe);
	if (rc == 0)
		rc = settled_find_text(s, p->service, &process.service);
	if (rc == 0)
		rc = u64map_put(&s->process_at, p->id, s->processes.count);
	return rc < 0 ? rc : processes_vec_push(&s->processes, process);
}

static int find_child(struct settled *s, uint32_t parent, uint64_t frame, uint32_t *ret)
{
	uint64_t hash = hash_combine(parent, frame), at;
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
	uint32_t node = SETTLED_ROOT;
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
