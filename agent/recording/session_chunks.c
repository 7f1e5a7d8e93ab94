// SPDX-License-Identifier: Apache-2.0
#include "agent/recording/session_chunks.h"

#include <errno.h>
#include <string.h>

#include "agent/base/vec.h"
#include "agent/store/store.h"
#include "bpf/profiler.h"

#define FRAME_HEAD_GUESSED	1u
#define FRAME_HEAD_RETURN	2u
#define FRAME_HEAD_KIND_SHIFT	2
#define FRAME_HEAD_MODULE_SHIFT 6

static void add_text(struct buf *out, struct chunk_text text)
{
	buf_add_varint(out, text.len);
	buf_add(out, text.text, text.len);
}

static void add_u64(struct buf *out, uint64_t value)
{
	buf_add(out, &value, sizeof(value));
}

static struct chunk_text take_text(struct bytes *in)
{
	uint64_t len = bytes_varint(in);
	const char *text = bytes_take(in, len);

	return (struct chunk_text){ text ? text : "", text ? (size_t)len : 0 };
}

static uint32_t take_u32(struct bytes *in)
{
	uint64_t value = bytes_varint(in);

	in->failed |= value > UINT32_MAX;
	return (uint32_t)value;
}

/* ---- columns --------------------------------------------------------------------------------- */

void chunk_encode_columns(struct buf *out, struct buf *columns, unsigned count,
			  struct chunk_parts *parts)
{
	for (unsigned i = 0; i < count; i++)
		buf_add_varint(out, columns[i].len);
	for (unsigned i = 0; i < count; i++) {
		buf_add(out, columns[i].data, columns[i].len);
		if (columns[i].error && !out->error)
			out->error = columns[i].error;
		buf_deinit(&columns[i]);
		if (parts)
			parts->ends[i] = (uint32_t)out->len;
	}
	if (parts)
		parts->count = count;
}

int chunk_decode_columns(struct bytes *in, struct bytes *columns, unsigned count, unsigned needed)
{
	uint64_t len[CHUNK_PARTS_MAX];

	for (unsigned i = 0; i < count; i++)
		len[i] = bytes_varint(in);
	for (unsigned i = 0; i < needed; i++) {
		const void *at = bytes_take(in, len[i]);

		if (!at)
			return -EPROTO;
		columns[i] = bytes_of(at, len[i]);
	}
	return needed == count && bytes_left(in) ? -EPROTO : 0;
}

/* ---- modules and processes ------------------------------------------------------------------- */

void chunk_encode_modules(struct buf *out, const struct chunk_module *modules, size_t count)
{
	buf_add_varint(out, count);
	for (size_t i = 0; i < count; i++) {
		const struct chunk_module *m = &modules[i];

		buf_add_varint(out, m->id);
		add_u64(out, m->key);
		buf_add(out, &m->kind, 1);
		add_text(out, (struct chunk_text){ (const char *)m->build_id, m->build_id_len });
		add_text(out, m->path);
	}
}

int chunk_decode_modules(struct bytes *in, const struct chunk_sink *sink)
{
	for (uint32_t left = bytes_count(in, 12); left && !in->failed; left--) {
		struct chunk_module module = { .id = take_u32(in) };
		struct chunk_text build_id;
		int rc;

		module.key = bytes_u64(in);
		module.kind = bytes_u8(in);
		build_id = take_text(in);
		module.path = take_text(in);
		if (in->failed || build_id.len > FEED_BUILD_ID_MAX)
			return -EPROTO;
		module.build_id = (const uint8_t *)build_id.text;
		module.build_id_len = (uint8_t)build_id.len;
		rc = sink->module ? sink->module(sink->ctx, &module) : 0;
		if (rc < 0)
			return rc;
	}
	return in->failed ? -EPROTO : 0;
}

void chunk_encode_process(struct buf *out, const struct chunk_process *p)
{
	buf_add_varint(out, p->id);
	buf_add_varint(out, p->tgid);
	buf_add_varint(out, p->parent_tgid);
	buf_add_varint(out, p->uid);
	buf_add_varint(out, p->exec_generation);
	buf_add_varint(out, p->flags);
	add_u64(out, p->start_boottime_ns);
	add_u64(out, p->started_at_ns);
	add_text(out, p->comm);
	add_text(out, p->exe);
	add_text(out, p->cmdline);
	add_text(out, p->service);
	add_text(out, p->unit);
	add_text(out, p->container);
}

int chunk_decode_processes(struct bytes *in, const struct chunk_sink *sink)
{
	for (uint32_t left = bytes_count(in, 28); left && !in->failed; left--) {
		struct chunk_process p = { .id = take_u32(in) };
		int rc;

		p.tgid = take_u32(in);
		p.parent_tgid = take_u32(in);
		p.uid = take_u32(in);
		p.exec_generation = take_u32(in);
		p.flags = take_u32(in);
		p.start_boottime_ns = bytes_u64(in);
		p.started_at_ns = bytes_u64(in);
		p.comm = take_text(in);
		p.exe = take_text(in);
		p.cmdline = take_text(in);
		p.service = take_text(in);
		p.unit = take_text(in);
		p.container = take_text(in);
		if (in->failed)
			return -EPROTO;
		rc = sink->process ? sink->process(sink->ctx, &p) : 0;
		if (rc < 0)
			return rc;
	}
	return in->failed ? -EPROTO : 0;
}

/* ---- stacks ---------------------------------------------------------------------------------- */

static uint64_t frame_from_root(const struct chunk_stack *stack, size_t depth)
{
	return stack->frames[stack->frame_count - 1 - depth];
}

int chunk_compare_stacks(const void *a, const void *b)
{
	const struct chunk_stack *x = a, *y = b;
	size_t common = x->frame_count < y->frame_count ? x->frame_count : y->frame_count;

	for (size_t i = 0; i < common; i++) {
		uint64_t p = frame_from_root(x, i), q = frame_from_root(y, i);

		if (p != q)
			return p < q ? -1 : 1;
	}
	return x->frame_count - y->frame_count;
}

static void add_frame(struct buf *out, uint64_t frame)
{
	uint32_t kind = prof_frame_kind(frame);
	uint64_t head = (uint64_t)kind << FRAME_HEAD_KIND_SHIFT;

	if (frame & PROF_FRAME_RETURN)
		head |= FRAME_HEAD_RETURN;
	if (frame & PROF_FRAME_GUESSED)
		head |= FRAME_HEAD_GUESSED;
	if (kind == PROF_FRAME_MODULE)
		head |= (uint64_t)prof_frame_module_id(frame) << FRAME_HEAD_MODULE_SHIFT;
	buf_add_varint(out, head);
	buf_add_varint(out, kind == PROF_FRAME_MODULE ? prof_frame_offset(frame)
						      : frame & PROF_FRAME_ADDRESS_MASK);
}

static uint64_t take_frame(struct bytes *in)
{
	uint64_t head = bytes_varint(in), low = bytes_varint(in), flags = 0;
	uint32_t kind = head >> FRAME_HEAD_KIND_SHIFT & 15;

	if (head & FRAME_HEAD_RETURN)
		flags |= PROF_FRAME_RETURN;
	if (head & FRAME_HEAD_GUESSED)
		flags |= PROF_FRAME_GUESSED;
	if (kind == PROF_FRAME_MODULE)
		return prof_frame_module((uint32_t)(head >> FRAME_HEAD_MODULE_SHIFT), low, flags);
	return prof_frame_address((enum prof_frame_kind)kind, low, flags);
}

void chunk_encode_stacks(struct buf *out, struct chunk_stack *stacks, size_t count)
{
	qsort(stacks, count, sizeof(*stacks), chunk_compare_stacks);
	buf_add_varint(out, count);
	for (size_t i = 0; i < count; i++) {
		const struct chunk_stack *s = &stacks[i];
		size_t shared = 0;

		while (i && shared < s->frame_count && shared < stacks[i - 1].frame_count &&
		       frame_from_root(s, shared) == frame_from_root(&stacks[i - 1], shared))
			shared++;
		add_u64(out, s->id);
		buf_add(out, &s->outcome, 1);
		buf_add_varint(out, shared);
		buf_add_varint(out, s->frame_count - shared);
		for (size_t depth = shared; depth < s->frame_count; depth++)
			add_frame(out, frame_from_root(s, depth));
	}
}

int chunk_decode_stacks(struct bytes *in, const struct chunk_sink *sink)
{
	uint64_t from_root[FEED_FRAMES_MAX], leaf_first[FEED_FRAMES_MAX];
	size_t depth = 0;

	for (uint32_t left = bytes_count(in, 11); left && !in->failed; left--) {
		struct chunk_stack stack = { .frames = leaf_first };
		uint64_t shared, further;
		int rc;

		stack.id = bytes_u64(in);
		stack.outcome = bytes_u8(in);
		shared = bytes_varint(in);
		further = bytes_varint(in);
		if (in->failed || shared > depth || further > FEED_FRAMES_MAX - shared)
			return -EPROTO;
		depth = shared + further;
		for (size_t i = shared; i < depth; i++)
			from_root[i] = take_frame(in);
		if (in->failed)
			return -EPROTO;
		for (size_t i = 0; i < depth; i++)
			leaf_first[i] = from_root[depth - 1 - i];
		stack.frame_count = (uint16_t)depth;
		rc = sink->stack ? sink->stack(sink->ctx, &stack) : 0;
		if (rc < 0)
			return rc;
	}
	return in->failed ? -EPROTO : 0;
}

/* ---- samples --------------------------------------------------------------------------------- */
void chunk_encode_samples(struct buf *out, const struct chunk_samples *s)
{
	uint64_t base = s->event_count ? s->events[0].time_ns : 0, before = base;

	buf_add_varint(out, s->seq);
	add_u64(out, base);
	buf_add_varint(out, s->first_pair);
	buf_add_varint(out, s->pair_count);
	for (uint32_t i = 0; i < s->pair_count; i++) {
		add_u64(out, s->pairs[i].user);
		add_u64(out, s->pairs[i].kernel);
	}
	buf_add_varint(out, s->first_attr);
	buf_add_varint(out, s->attr_count);
	for (uint32_t i = 0; i < s->attr_count; i++) {
		const struct chunk_attr *attr = &s->attrs[i];

		buf_add_varint(out, attr->process);
		buf_add_varint(out, attr->tid);
		buf_add(out, &attr->type, 1);
		buf_add(out, &attr->state, 1);
		add_text(out, (struct chunk_text){ attr->comm,
						   strnlen(attr->comm, sizeof(attr->comm)) });
		buf_add(out, &attr->detail, 1);
		buf_add_varint(out, attr->object);
		buf_add_varint(out, attr->holder);
	}
	buf_add_varint(out, s->event_count);
	for (uint32_t i = 0; i < s->event_count; i++) {
		buf_add_svarint(out, (int64_t)(s->events[i].time_ns - before));
		before = s->events[i].time_ns;
	}
	for (uint32_t i = 0; i < s->event_count; i++)
		buf_add_varint(out, s->events[i].pair);
	for (uint32_t i = 0; i < s->event_count; i++)
		buf_add_varint(out, s->events[i].attr);
	for (uint32_t i = 0; i < s->event_count; i++)
		buf_add_svarint(out, s->events[i].value);
	for (uint32_t i = 0; i < s->event_count; i++)
		buf_add_varint(out, s->events[i].value2);
}

static int decode_pairs(struct bytes *in, const struct chunk_sink *sink)
{
	uint32_t id = take_u32(in);

	for (uint32_t left = bytes_count(in, 16); left && !in->failed; left--, id++) {
		struct chunk_pair pair = { .user = bytes_u64(in) };
		int rc;

		pair.kernel = bytes_u64(in);
		rc = !in->failed && sink->pair ? sink->pair(sink->ctx, id, &pair) : 0;
		if (rc < 0)
			return rc;
	}
	return in->failed ? -EPROTO : 0;
}

static int decode_attrs(struct bytes *in, const struct chunk_sink *sink)
{
	uint32_t id = take_u32(in);

	for (uint32_t left = bytes_count(in, 8); left && !in->failed; left--, id++) {
		struct chunk_attr attr = { .process = take_u32(in) };
		struct chunk_text comm;
		int rc;

		attr.tid = take_u32(in);
		attr.type = bytes_u8(in);
		attr.state = bytes_u8(in);
		comm = take_text(in);
		if (in->failed || comm.len > sizeof(attr.comm))
			return -EPROTO;
		memcpy(attr.comm, comm.text, comm.len);
		attr.detail = bytes_u8(in);
		attr.object = bytes_varint(in);
		attr.holder = take_u32(in);
		if (in->failed)
			return -EPROTO;
		rc = sink->attr ? sink->attr(sink->ctx, id, &attr) : 0;
		if (rc < 0)
			return rc;
	}
	return in->failed ? -EPROTO : 0;
}

static int decode_events(struct bytes *in, uint64_t base, const struct chunk_sink *sink)
{
	uint32_t count = bytes_count(in, 5);
	cleanup_free struct chunk_event *events = NULL;

	if (in->failed)
		return -EPROTO;
	if (!count || !sink->event)
		return 0;
	events = calloc(count, sizeof(*events));
	if (!events)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		events[i].time_ns = base += (uint64_t)bytes_svarint(in);
	for (uint32_t i = 0; i < count; i++)
		events[i].pair = take_u32(in);
	for (uint32_t i = 0; i < count; i++)
		events[i].attr = take_u32(in);
	for (uint32_t i = 0; i < count; i++)
		events[i].value = bytes_svarint(in);
	for (uint32_t i = 0; i < count; i++)
		events[i].value2 = bytes_varint(in);
	if (in->failed)
		return -EPROTO;
	for (uint32_t i = 0; i < count; i++) {
		int rc = sink->event(sink->ctx, &events[i]);

		if (rc < 0)
			return rc;
	}
	return 0;
}

int chunk_decode_samples(struct bytes *in, const struct chunk_sink *sink)
{
	uint32_t seq = take_u32(in);
	uint64_t base = bytes_u64(in);
	int rc;

	if (in->failed)
		return -EPROTO;
	rc = sink->samples ? sink->samples(sink->ctx, seq) : 0;
	if (rc != 0)
		return rc < 0 ? rc : 0;
	rc = decode_pairs(in, sink);
	if (rc == 0)
		rc = decode_attrs(in, sink);
	return rc == 0 ? decode_events(in, base, sink) : rc;
}

/* ---- quality --------------------------------------------------------------------------------- */
static void encode_alloc(struct buf *out, const struct chunk_alloc *a)
{
	buf_add_varint(out, a->since_ns);
	buf_add_varint(out, a->windows);
	buf_add_varint(out, a->full);
	buf_add_varint(out, a->period_ns);
	buf_add_varint(out, a->window_ns);
	buf_add_varint(out, a->cpu_ns);
	buf_add_varint(out, a->cost_ns);
	buf_add_varint(out, a->hits);
	buf_add_varint(out, a->sampled);
	buf_add_varint(out, a->lost);
	buf_add_varint(out, a->gap_bytes);
	buf_add_varint(out, a->dilation_sum);
	buf_add_varint(out, a->families);
	buf_add_varint(out, a->pooled);
	buf_add_varint(out, a->faulted_bytes);
	buf_add_varint(out, a->heap.bytes);
	buf_add_varint(out, a->heap.blocks);
	buf_add_varint(out, a->heap.mapped_bytes);
	buf_add_varint(out, a->heap.walked_bytes);
	buf_add_varint(out, a->window_cpu_ns);
	buf_add_varint(out, a->heap.before_bytes);
}

void chunk_encode_quality(struct buf *out, const struct chunk_quality *q)
{
	buf_add_varint(out, q->last_ns);
	buf_add_varint(out, q->samples);
	buf_add_varint(out, q->host_samples);
	buf_add_varint(out, q->host_lost);
	buf_add_svarint(out, q->value);
	buf_add_svarint(out, q->value2);
	buf_add_varint(out, q->clock.monotonic_ns);
	buf_add_varint(out, q->clock.boottime_ns);
	buf_add_varint(out, q->clock.realtime_ns);
	buf_add_varint(out, q->cost_ns);
	buf_add_varint(out, q->cost_from_ns);
	buf_add_varint(out, q->cost_to_ns);
	buf_add_varint(out, q->note_count);
	for (uint32_t i = 0; i < q->note_count; i++)
		add_text(out, chunk_text_of(q->notes[i]));
	buf_add_varint(out, q->skipped_count);
	for (uint32_t i = 0; i < q->skipped_count; i++) {
		buf_add_varint(out, q->skipped[i].pid);
		add_text(out, chunk_text_of(q->skipped[i].reason));
	}
	encode_alloc(out, &q->alloc);
	buf_add_varint(out, q->type_cost_ns);
	buf_add_varint(out, q->on_cpu_samples);
	buf_add_varint(out, q->on_cpu_ns);
	buf_add_varint(out, q->alloc.grown_count);
	for (uint32_t i = 0; i < q->alloc.grown_count; i++) {
		buf_add_varint(out, q->alloc.grown[i].block_bytes);
		buf_add_varint(out, q->alloc.grown[i].before);
		buf_add_varint(out, q->alloc.grown[i].blocks);
	}
	if (!q->alloc.heap.bytes && !q->alloc.heap.resident_bytes)
		return;
	for (uint32_t i = 0; i < READ_HEAP_SIZES; i++)
		buf_add_varint(out, q->alloc.blocks_of[i]);
	buf_add_varint(out, q->alloc.heap.resident_bytes);
}

/* Absent in what was written before it was known. */
static int decode_skipped(struct bytes *in, struct chunk_quality *q)
{
	q->skipped_count = bytes_left(in) ? take_u32(in) : 0;
	if (in->failed || q->skipped_count > ARRAY_SIZE(q->skipped))
		return -EPROTO;
	for (uint32_t i = 0; i < q->skipped_count; i++) {
		struct chunk_text reason;

		q->skipped[i].pid = take_u32(in);
		reason = take_text(in);
		if (reason.len >= sizeof(q->skipped[i].reason))
			return -EPROTO;
		memcpy(q->skipped[i].reason, reason.text, reason.len);
	}
	return 0;
}

static void decode_alloc(struct bytes *in, struct chunk_alloc *a)
{
	a->since_ns = bytes_varint(in);
	a->windows = bytes_varint(in);
	a->full = bytes_varint(in);
	a->period_ns = bytes_varint(in);
	a->window_ns = bytes_varint(in);
	a->cpu_ns = bytes_varint(in);
	a->cost_ns = bytes_varint(in);
	a->hits = bytes_varint(in);
	a->sampled = bytes_varint(in);
	a->lost = bytes_varint(in);
	a->gap_bytes = bytes_varint(in);
	a->dilation_sum = bytes_varint(in);
	a->families = take_u32(in);
	if (!bytes_left(in)) /* of an earlier version */
		return;
	a->pooled = take_u32(in);
	a->faulted_bytes = bytes_varint(in);
	a->heap.bytes = bytes_varint(in);
	a->heap.blocks = bytes_varint(in);
	a->heap.mapped_bytes = bytes_varint(in);
	a->heap.walked_bytes = bytes_varint(in);
	a->window_cpu_ns = bytes_varint(in);
	a->heap.before_bytes = bytes_left(in) ? bytes_varint(in) : 0;
}

static int decode_grown(struct bytes *in, struct chunk_alloc *a)
{
	a->grown_count = take_u32(in);
	if (in->failed || a->grown_count > ARRAY_SIZE(a->grown))
		return -EPROTO;
	for (uint32_t i = 0; i < a->grown_count; i++) {
		a->grown[i].block_bytes = take_u32(in);
		a->grown[i].before = bytes_varint(in);
		a->grown[i].blocks = bytes_varint(in);
	}
	return 0;
}

int chunk_decode_quality(struct bytes *in, const struct chunk_sink *sink)
{
	struct chunk_quality q = { .last_ns = bytes_varint(in) };

	q.samples = bytes_varint(in);
	q.host_samples = bytes_varint(in);
	q.host_lost = bytes_varint(in);
	q.value = bytes_svarint(in);
	q.value2 = bytes_svarint(in);
	q.clock.monotonic_ns = bytes_varint(in);
	q.clock.boottime_ns = bytes_varint(in);
	q.clock.realtime_ns = bytes_varint(in);
	q.cost_ns = bytes_varint(in);
	q.cost_from_ns = bytes_varint(in);
	q.cost_to_ns = bytes_varint(in);
	q.note_count = take_u32(in);
	if (in->failed || q.note_count > ARRAY_SIZE(q.notes))
		return -EPROTO;
	for (uint32_t i = 0; i < q.note_count; i++) {
		struct chunk_text note = take_text(in);

		if (note.len >= sizeof(q.notes[i]))
			return -EPROTO;
		memcpy(q.notes[i], note.text, note.len);
	}
	if (in->failed || decode_skipped(in, &q) < 0)
		return -EPROTO;
	if (bytes_left(in))
		decode_alloc(in, &q.alloc);
	if (bytes_left(in))
		q.type_cost_ns = bytes_varint(in);
	if (bytes_left(in)) {
		q.on_cpu_samples = bytes_varint(in);
		q.on_cpu_ns = bytes_varint(in);
	}
	if (bytes_left(in) && decode_grown(in, &q.alloc) < 0)
		return -EPROTO;
	for (uint32_t i = 0; bytes_left(in) && i < READ_HEAP_SIZES; i++)
		q.alloc.blocks_of[i] = take_u32(in);
	if (bytes_left(in))
		q.alloc.heap.resident_bytes = bytes_varint(in);
	if (in->failed)
		return -EPROTO;
	return sink->quality ? sink->quality(sink->ctx, &q) : 0;
}
