// SPDX-License-Identifier: Apache-2.0
/* After a restart: the state as it was when the last group was stored. */
#include <errno.h>

#include "agent/recording/chunk_decode.h"
#include "agent/session/ingest/recorder_internal.h"
#include "bpf/outcome.h"

static int reload_module(void *ctx, const struct chunk_module *module)
{
	struct recorder *r = ctx;

	if (u64map_get(&r->module_ids, module->key, &(uint64_t){ 0 }))
		return 0;
	if (module->id >= r->module_count)
		r->module_count = module->id + 1;
	return u64map_put(&r->module_ids, module->key, module->id);
}

static int reload_process(void *ctx, const struct chunk_process *p)
{
	struct recorder *r = ctx;

	if (p->id != r->process_count)
		return 0;
	return recorder_add_process(
		r, p, recorder_process_hash(p->tgid, p->start_boottime_ns, p->exec_generation));
}

static int reload_stack(void *ctx, const struct chunk_stack *stack)
{
	struct recorder *r = ctx;

	/* Its pairs were reloaded as needing it when their chunk came first. */
	return recent_map_put(&r->stack_seen, stack->id, stack->outcome);
}

static int reload_samples(void *ctx, uint32_t seq)
{
	struct recorder *r = ctx;

	if (seq < r->next_seq)
		return 1;
	r->next_seq = seq + 1;
	return 0;
}

static int reload_pair(void *ctx, uint32_t id, const struct chunk_pair *pair)
{
	struct recorder *r = ctx;

	/* Pair 0 is there from the beginning; a gap is damage and stays one. */
	return id == r->pair_count ? recorder_add_pair(r, pair) : 0;
}

/* Its stacks are known or were given up: nobody is asked for them again. */
static int reload_settled_pair(void *ctx, uint32_t id, const struct chunk_pair *pair)
{
	struct recorder *r = ctx;
	int rc = pair->user ? recent_map_put(&r->stack_seen, pair->user, 0) : 0;

	if (rc == 0 && pair->kernel)
		rc = recent_map_put(&r->stack_seen, pair->kernel, 0);
	return rc < 0 ? rc : reload_pair(ctx, id, pair);
}

static int reload_attr(void *ctx, uint32_t id, const struct chunk_attr *attr)
{
	struct recorder *r = ctx;
	int rc;

	if (id != r->attr_count || attr->process >= r->process_count)
		return 0;
	rc = chunk_attrs_vec_push(&r->new_attrs, *attr);
	r->attr_count += rc == 0;
	return rc;
}

static int reload_event(void *ctx, const struct chunk_event *event)
{
	struct recorder *r = ctx;

	if (!r->sums && event->pair < r->pair_count && event->attr < r->new_attrs.count)
		recorder_count(r, event, &r->new_attrs.data[event->attr]);
	return 0;
}

static int reload_quality(void *ctx, const struct chunk_quality *quality)
{
	struct recorder *r = ctx;

	r->quality = *quality;
	return 0;
}

int recorder_reload_chunk(void *ctx, const struct store_chunk *chunk)
{
	struct recorder *r = ctx;
	const struct chunk_sink sink = {
		.ctx = r,
		.module = reload_module,
		.process = reload_process,
		.stack = reload_stack,
		.samples = reload_samples,
		.pair = chunk->kind == STORE_CHUNK_SETTLED ? reload_settled_pair : reload_pair,
		.attr = reload_attr,
		.event = reload_event,
		.quality = reload_quality,
	};
	int rc = chunk->kind == STORE_CHUNK_READINGS
			 ? recorder_reload_reading(r, chunk->data, chunk->len)
			 : chunk_decode(chunk->kind, chunk->data, chunk->len, &sink);

	return rc == -EPROTO ? 0 : rc;
}

/* Stacks that samples in the file refer to, but whose frames were not known yet when it was
 * written. */
static int reload_missing(struct recorder *r)
{
	for (size_t i = 0; i < r->new_pairs.count; i++) {
		int rc = recorder_need_stack(r, r->new_pairs.data[i].user);

		if (rc == 0)
			rc = recorder_need_stack(r, r->new_pairs.data[i].kernel);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static size_t first_recent(size_t count)
{
	return count > RECENT_MAX ? count - RECENT_MAX : 0;
}

/* The last pairs are known, as many as a recorder keeps. */
static int know_pairs(struct recorder *r)
{
	const uint32_t sealed = r->pair_count - (uint32_t)r->new_pairs.count;
	int rc = 0;

	for (size_t i = first_recent(r->new_pairs.count); i < r->new_pairs.count && rc == 0; i++)
		if (sealed + i != CHUNK_PAIR_OVERFLOW)
			rc = recent_map_put(&r->pair_ids, recorder_pair_hash(&r->new_pairs.data[i]),
					    sealed + i);
	return rc;
}

static int know_attrs(struct recorder *r)
{
	int rc = 0;

	for (size_t i = first_recent(r->new_attrs.count); i < r->new_attrs.count && rc == 0; i++)
		rc = recent_map_put(&r->attr_ids, recorder_attr_hash(&r->new_attrs.data[i]), i);
	return rc;
}

static int keep_stack(const struct recent_map *from, struct recent_map *to, uint64_t stack)
{
	uint64_t outcome;

	return stack && u64map_get(&from->young, stack, &outcome) ? recent_map_put(to, stack, outcome) : 0;
}

/* Those of the last pairs, and those that are waited for. */
static int keep_recent_stacks(struct recorder *r)
{
	__attribute__((__cleanup__(recent_map_deinit))) struct recent_map all = r->stack_seen;
	int rc = 0;

	r->stack_seen = (struct recent_map){ 0 };
	for (size_t i = first_recent(r->new_pairs.count); i < r->new_pairs.count && rc == 0; i++) {
		rc = keep_stack(&all, &r->stack_seen, r->new_pairs.data[i].user);
		if (rc == 0)
			rc = keep_stack(&all, &r->stack_seen, r->new_pairs.data[i].kernel);
	}
	for (size_t i = 0; i < r->missing.count && rc == 0; i++)
		rc = recent_map_put(&r->stack_seen, r->missing.data[i], STACK_WAITS);
	return rc;
}

int recorder_reload_done(struct recorder *r)
{
	int rc = reload_missing(r);

	recorder_learn_outcomes(r, false);
	if (rc == 0)
		rc = know_pairs(r);
	if (rc == 0)
		rc = know_attrs(r);
	if (rc == 0)
		rc = keep_recent_stacks(r);
	chunk_pairs_vec_deinit(&r->new_pairs);
	chunk_attrs_vec_deinit(&r->new_attrs);
	return rc;
}

int recorder_reload(struct recorder *r, struct store *store, const char *id, struct err *err)
{
	unsigned damaged = 0;
	int rc = store_session_read(store, id, recorder_reload_chunk, r, &damaged, err);

	if (rc < 0)
		return rc;
	rc = recorder_reload_done(r);
	if (rc < 0)
		return err_set(err, -rc, NULL, NULL, "no memory to resume %s", id);
	if (damaged)
		recorder_note(r, "%u damaged pieces of this session's data were left out", damaged);
	return 0;
}
