// SPDX-License-Identifier: Apache-2.0
/* A recording as chunks again: what a copy of windows needs, and nothing of the day beside it. */
#include <errno.h>
#include <string.h>

#include "agent/recording/recording_internal.h"

#define STACKS_A_CHUNK 20000u
#define EVENTS_A_CHUNK 500000u

struct encode {
	const struct recording *recording;
	recording_chunk_fn *emit;
	void *ctx;
	struct buf out;
};

static int emit(struct encode *e, enum store_chunk_kind kind)
{
	struct store_chunk chunk = { kind, e->out.data, e->out.len };
	int rc = e->out.error ? e->out.error : e->emit(e->ctx, &chunk);

	buf_deinit(&e->out);
	e->out = (struct buf){ .max = STORE_CHUNK_MAX };
	return rc;
}

static int encode_modules(struct encode *e)
{
	const struct modules_vec *modules = &e->recording->modules;
	cleanup_free struct chunk_module *list = calloc(modules->count + 1, sizeof(*list));
	size_t count = 0;

	if (!list)
		return -ENOMEM;
	for (size_t i = 0; i < modules->count; i++)
		if (modules->data[i].path)
			list[count++] = (struct chunk_module){
				.id = (uint32_t)i,
				.key = modules->data[i].key,
				.kind = modules->data[i].kind,
				.build_id_len = modules->data[i].build_id_len,
				.build_id = modules->data[i].build_id,
				.path = chunk_text_of(modules->data[i].path),
			};
	chunk_encode_modules(&e->out, list, count);
	return emit(e, STORE_CHUNK_MODULES);
}

static int encode_processes(struct encode *e)
{
	const struct processes_vec *processes = &e->recording->processes;
	size_t count = 0;

	for (size_t i = 0; i < processes->count; i++)
		count += processes->data[i].comm != NULL;
	buf_add_varint(&e->out, count);
	for (size_t i = 0; i < processes->count; i++) {
		const struct process *p = &processes->data[i];
		const struct chunk_process process = {
			.id = (uint32_t)i,
			.tgid = p->tgid,
			.started_at_ns = p->started_at_ns,
			.comm = chunk_text_of(p->comm ? p->comm : ""),
			.exe = chunk_text_of(p->exe ? p->exe : ""),
			.service = chunk_text_of(p->service ? p->service : ""),
			.cmdline = chunk_text_of(""),
			.unit = chunk_text_of(""),
			.container = chunk_text_of(p->container ? p->container : ""),
		};

		if (p->comm)
			chunk_encode_process(&e->out, &process);
	}
	return emit(e, STORE_CHUNK_PROCESSES);
}

static int encode_stacks(struct encode *e)
{
	const struct recording *r = e->recording;
	cleanup_free struct chunk_stack *list = calloc(STACKS_A_CHUNK, sizeof(*list));
	uint64_t id, index;
	size_t at = 0, count = 0;
	int rc = list ? 0 : -ENOMEM;

	while (rc == 0 && u64map_next(&r->stack_at, &at, &id, &index)) {
		const struct stack *stack = &r->stacks.data[index];

		list[count++] = (struct chunk_stack){ id, stack->outcome, stack->count,
						      r->frames.data + stack->first };
		if (count < STACKS_A_CHUNK)
			continue;
		chunk_encode_stacks(&e->out, list, count);
		rc = emit(e, STORE_CHUNK_STACKS);
		count = 0;
	}
	if (rc == 0 && count) {
		chunk_encode_stacks(&e->out, list, count);
		rc = emit(e, STORE_CHUNK_STACKS);
	}
	return rc;
}

/* Old ids to new ones, in order of their first use: a day has more than a span needs. */
struct renumber {
	struct u64map to;
	struct pairs_vec pairs;
	struct attrs_vec attrs;
};

static void renumber_deinit(struct renumber *n)
{
	u64map_deinit(&n->to);
	pairs_vec_deinit(&n->pairs);
	attrs_vec_deinit(&n->attrs);
}

static int new_pair(const struct recording *r, struct renumber *n, uint32_t pair, uint32_t *ret)
{
	static const struct chunk_pair none;
	uint64_t to = n->pairs.count;
	int rc;

	if (u64map_get(&n->to, pair, &to)) {
		*ret = (uint32_t)to;
		return 0;
	}
	rc = pairs_vec_push(&n->pairs, pair < r->pairs.count ? r->pairs.data[pair] : none);
	*ret = (uint32_t)to;
	return rc < 0 ? rc : u64map_put(&n->to, pair, to);
}

static int new_attr(const struct recording *r, struct renumber *n, uint32_t attr, uint32_t *ret)
{
	static const struct chunk_attr none;
	const uint64_t key = 1ull << 32 | attr;
	uint64_t to = n->attrs.count;
	int rc;

	if (u64map_get(&n->to, key, &to)) {
		*ret = (uint32_t)to;
		return 0;
	}
	rc = attrs_vec_push(&n->attrs, attr < r->attrs.count ? r->attrs.data[attr] : none);
	*ret = (uint32_t)to;
	return rc < 0 ? rc : u64map_put(&n->to, key, to);
}

/* Pair 0 stays the overflow bucket. */
static int renumber_events(const struct recording *r, struct renumber *n,
			   struct chunk_event *events)
{
	uint32_t first;
	int rc = new_pair(r, n, CHUNK_PAIR_OVERFLOW, &first);

	for (size_t i = 0; rc == 0 && i < r->events.count; i++) {
		events[i] = r->events.data[i];
		rc = new_pair(r, n, events[i].pair, &events[i].pair);
		if (rc == 0)
			rc = new_attr(r, n, events[i].attr, &events[i].attr);
	}
	return rc;
}

static int encode_samples(struct encode *e)
{
	const struct recording *r = e->recording;
	cleanup_free struct chunk_event *events = calloc(r->events.count + 1, sizeof(*events));
	__attribute__((__cleanup__(renumber_deinit))) struct renumber n = { 0 };
	uint32_t seq = 0;
	int rc = events ? renumber_events(r, &n, events) : -ENOMEM;

	for (size_t at = 0; rc == 0 && (at < r->events.count || seq == 0); seq++) {
		size_t left = r->events.count - at;
		struct chunk_samples samples = {
			.seq = seq,
			.events = events + at,
			.event_count = (uint32_t)(left < EVENTS_A_CHUNK ? left : EVENTS_A_CHUNK),
		};

		if (seq == 0) {
			samples.pairs = n.pairs.data;
			samples.pair_count = (uint32_t)n.pairs.count;
			samples.attrs = n.attrs.data;
			samples.attr_count = (uint32_t)n.attrs.count;
		}
		chunk_encode_samples(&e->out, &samples);
		rc = emit(e, STORE_CHUNK_SAMPLES);
		at += samples.event_count;
	}
	return rc;
}

int recording_encode(const struct recording *recording, recording_chunk_fn *emit_chunk, void *ctx)
{
	struct encode e = { recording, emit_chunk, ctx, { .max = STORE_CHUNK_MAX } };
	int rc = encode_modules(&e);

	if (rc == 0)
		rc = encode_processes(&e);
	if (rc == 0)
		rc = encode_stacks(&e);
	return rc == 0 ? encode_samples(&e) : rc;
}
