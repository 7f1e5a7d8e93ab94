// SPDX-License-Identifier: Apache-2.0
#include "tests/support/read_collect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bpf/profiler.h"

static void check_frames(const struct read_collect *c, const uint64_t *frames, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (prof_frame_kind(frames[i]) == PROF_FRAME_MODULE)
			assert_in_range(prof_frame_module_id(frames[i]), 1, c->modules.count);
}

static void check_goroutine(const struct read_collect *c, const struct read_goroutine *g)
{
	assert_true(g->stack <= c->stacks.count && g->state && g->state <= c->strings.count &&
		    g->reason <= c->strings.count && g->labels <= c->label_sets.count);
	check_frames(c, &g->created_frame, 1);
	check_frames(c, &g->start_frame, 1);
}

static void check_thread(const struct read_collect *c, const struct read_thread *t)
{
	assert_true(t->stack <= c->stacks.count && t->state && t->state <= c->strings.count &&
		    t->wait <= c->strings.count && t->name <= c->strings.count &&
		    t->kernel_stack <= c->strings.count);
}

static void add_definition(struct record_vec *vec, uint32_t id, const struct read_record *r)
{
	assert_int_equal(id, vec->count + 1);
	assert_int_equal(record_vec_push(vec, *r), 0);
}

static void collect_record(struct read_collect *c, const struct read_record *r)
{
	assert_null(c->end);
	assert_true(c->all.count > 0 || r->kind == READ_TARGET || !c->target);
	assert_int_equal(record_vec_push(&c->all, *r), 0);
	switch (r->kind) {
	case READ_TARGET:
		c->target = r->target;
		break;
	case READ_MODULE:
		add_definition(&c->modules, r->module->id, r);
		break;
	case READ_STRING:
		add_definition(&c->strings, r->string->id, r);
		break;
	case READ_STACK:
		check_frames(c, r->frames, r->stack->frame_count);
		add_definition(&c->stacks, r->stack->id, r);
		break;
	case READ_LABELS:
		add_definition(&c->label_sets, r->labels->id, r);
		break;
	case READ_GOROUTINE:
		check_goroutine(c, r->goroutine);
		assert_int_equal(record_vec_push(&c->goroutines, *r), 0);
		break;
	case READ_THREAD:
		check_thread(c, r->thread);
		assert_int_equal(record_vec_push(&c->threads, *r), 0);
		break;
	case READ_BUCKET:
		assert_in_range(r->bucket->stack, 1, c->stacks.count);
		assert_int_equal(record_vec_push(&c->buckets, *r), 0);
		break;
	case READ_PROFILE:
		c->profile = r->profile;
		break;
	case READ_HEAP:
		c->heap = r->heap;
		break;
	default:
		c->end = r->end;
	}
}

int read_collect_flush(void *ctx, const void *data, size_t len)
{
	struct read_collect *c = ctx;
	void *copy = malloc(len), *grown = c->chunks;
	struct read_record record;
	size_t at = 0;
	int rc;

	assert_non_null(copy);
	memcpy(copy, data, len);
	assert_int_equal(
		vec_grow(&grown, &c->chunk_capacity, c->chunk_count + 1, sizeof(void *), 0), 0);
	c->chunks = grown;
	c->chunks[c->chunk_count++] = copy;
	while ((rc = read_stream_next(copy, len, &at, &record)) == 1)
		collect_record(c, &record);
	assert_int_equal(rc, 0);
	return 0;
}

void read_collect_deinit(struct read_collect *c)
{
	for (size_t i = 0; i < c->chunk_count; i++)
		free(c->chunks[i]);
	free(c->chunks);
	record_vec_deinit(&c->all);
	record_vec_deinit(&c->strings);
	record_vec_deinit(&c->stacks);
	record_vec_deinit(&c->label_sets);
	record_vec_deinit(&c->modules);
	record_vec_deinit(&c->goroutines);
	record_vec_deinit(&c->threads);
	record_vec_deinit(&c->buckets);
	*c = (struct read_collect){ 0 };
}

const char *read_collect_string(const struct read_collect *c, uint32_t id)
{
	static char texts[4][READ_STRING_MAX + 1];
	static unsigned next;
	char *text = texts[next++ % 4];
	const struct read_record *r;

	if (!id)
		return "";
	assert_true(id <= c->strings.count);
	r = &c->strings.data[id - 1];
	memcpy(text, r->text, r->string->len);
	text[r->string->len] = '\0';
	return text;
}
