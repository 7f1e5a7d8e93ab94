// SPDX-License-Identifier: Apache-2.0
/* A settled dictionary back; the format is in settled.h. */
#include <errno.h>

#include "agent/base/u64map.h"
#include "agent/session/settled.h"

#define LOW_BITS  40
#define ID_PAIR	  40 /* bits of a made-up stack id: first pair + 1, outcome, code */
#define ID_OUTCOME 32

struct owner { /* what attributes need of their process */
	uint32_t tgid;
	char comm[16];
};

struct decode {
	const struct chunk_sink *sink;
	struct chunk_text *texts;
	uint32_t text_count;
	struct owner *owners;
	struct u64map owner_at; /* process id -> index of owners */
	uint64_t *frames;
	uint32_t frame_count;
	uint32_t *node_frames, *parents; /* by node, 0 = the root */
	uint32_t node_count;		 /* the root included */
	uint8_t *shown;			 /* by node: outcome + 1 of the stack that was handed out */
};

static void decode_deinit(struct decode *d)
{
	free(d->texts);
	free(d->owners);
	u64map_deinit(&d->owner_at);
	free(d->frames);
	free(d->node_frames);
	free(d->parents);
	free(d->shown);
}

/* Room for what is announced, if there are bytes enough for it. */
static int take_array(struct bytes *in, size_t min_bytes, size_t size, uint32_t *ret_count, void *ret)
{
	uint64_t count = bytes_varint(in);
	void *data;

	if (in->failed || count > bytes_left(in) / min_bytes || count >= UINT32_MAX - CHUNK_CODE_NODE)
		return -EPROTO;
	data = calloc(count + 1, size);
	if (!data)
		return -ENOMEM;
	memcpy(ret, &data, sizeof(data));
	*ret_count = (uint32_t)count;
	return 0;
}

static int decode_texts(struct bytes *in, struct decode *d)
{
	int rc = take_array(in, 1, sizeof(*d->texts), &d->text_count, &d->texts);

	for (uint32_t i = 0; rc == 0 && i < d->text_count; i++) {
		uint64_t len = bytes_varint(in);
		const char *text = bytes_take(in, len);

		d->texts[i] = (struct chunk_text){ text ? text : "", text ? (size_t)len : 0 };
	}
	return rc < 0 ? rc : in->failed ? -EPROTO : 0;
}

static struct chunk_text take_text(struct bytes *in, const struct decode *d)
{
	uint64_t at = bytes_varint(in);

	if (at < d->text_count)
		return d->texts[at];
	in->failed = true;
	return (struct chunk_text){ "", 0 };
}

static int decode_process(struct bytes *in, struct decode *d, uint32_t i, struct chunk_process *p)
{
	static const struct chunk_text none = { "", 0 };
	uint64_t since_boot = p->started_at_ns - p->start_boottime_ns;
	int rc;

	p->id += (uint32_t)bytes_svarint(in);
	p->tgid += (uint32_t)bytes_svarint(in);
	p->exec_generation = (uint32_t)bytes_varint(in);
	p->start_boottime_ns += (uint64_t)bytes_svarint(in);
	p->started_at_ns = p->start_boottime_ns + since_boot + (uint64_t)bytes_svarint(in);
	p->comm = take_text(in, d);
	p->exe = take_text(in, d);
	p->service = take_text(in, d);
	p->cmdline = p->unit = p->container = none;
	if (in->failed)
		return -EPROTO;
	d->owners[i].tgid = p->tgid;
	memcpy(d->owners[i].comm, p->comm.text,
	       p->comm.len < sizeof(d->owners[i].comm) ? p->comm.len : sizeof(d->owners[i].comm));
	rc = d->sink->attr ? u64map_put(&d->owner_at, p->id, i) : 0;
	return rc == 0 && d->sink->process ? d->sink->process(d->sink->ctx, p) : rc;
}

static int decode_processes(struct bytes *in, struct decode *d)
{
	struct chunk_process p = { 0 };
	uint32_t count = 0;
	int rc = take_array(in, 8, sizeof(*d->owners), &count, &d->owners);

	for (uint32_t i = 0; rc == 0 && i < count; i++)
		rc = decode_process(in, d, i, &p);
	return rc;
}

static int decode_frames(struct bytes *in, struct decode *d)
{
	uint64_t high = 0, low = 0;
	int rc = take_array(in, 2, sizeof(*d->frames), &d->frame_count, &d->frames);

	for (uint32_t i = 0; rc == 0 && i < d->frame_count; i++) {
		high += bytes_varint(in);
		d->frames[i] = high << LOW_BITS;
	}
	for (uint32_t i = 0; rc == 0 && i < d->frame_count; i++) {
		bool same = i && (d->frames[i - 1] ^ d->frames[i]) >> LOW_BITS == 0;

		low = bytes_varint(in) + (same ? low : 0);
		d->frames[i] |= low & ((1ull << LOW_BITS) - 1);
	}
	return rc < 0 ? rc : in->failed ? -EPROTO : 0;
}

/* The walk: @path holds the nodes above, so that going up finds the parent. */
static int decode_walk(struct bytes *in, struct decode *d)
{
	uint32_t path[FEED_FRAMES_MAX + 1] = { 0 }, depth = 0;

	for (uint32_t i = 1; i < d->node_count; i++) {
		uint64_t up = bytes_varint(in);

		if (in->failed || up > depth || depth - up >= FEED_FRAMES_MAX)
			return -EPROTO;
		depth -= (uint32_t)up;
		d->parents[i] = path[depth];
		path[++depth] = i;
	}
	return 0;
}

static int decode_nodes(struct bytes *in, struct decode *d)
{
	cleanup_free uint32_t *last = calloc(d->frame_count + 1, sizeof(*last));
	int rc = last ? take_array(in, 2, sizeof(*d->parents), &d->node_count, &d->parents) : -ENOMEM;

	if (rc < 0)
		return rc;
	d->node_count++;
	d->node_frames = calloc(d->node_count, sizeof(*d->node_frames));
	d->shown = calloc(d->node_count, sizeof(*d->shown));
	if (!d->node_frames || !d->shown)
		return -ENOMEM;
	rc = decode_walk(in, d);
	for (uint32_t i = 0; i < d->frame_count; i++)
		last[i] = i;
	for (uint32_t i = 1; rc == 0 && i < d->node_count; i++) {
		uint32_t below = d->parents[i] ? d->node_frames[d->parents[i]] : d->frame_count;
		int64_t frame = (int64_t)((uint64_t)last[below] + (uint64_t)bytes_svarint(in));

		if (in->failed || frame < 0 || frame >= d->frame_count)
			return -EPROTO;
		d->node_frames[i] = last[below] = (uint32_t)frame;
	}
	return rc;
}

/* ---- pairs ----------------------------------------------------------------------------------- */

struct pairs {
	uint32_t first, count;
	uint32_t *user, *kernel; /* codes */
	const uint8_t *user_outcomes, *kernel_outcomes;
};

static void pairs_deinit(struct pairs *pairs)
{
	free(pairs->user);
	free(pairs->kernel);
}

static uint64_t stack_id(const struct pairs *pairs, uint32_t code, uint8_t outcome)
{
	return code ? (uint64_t)(pairs->first + 1) << ID_PAIR | (uint64_t)outcome << ID_OUTCOME | code
		    : 0;
}

static int show_stack(struct decode *d, const struct pairs *pairs, uint32_t code, uint8_t outcome)
{
	uint64_t frames[FEED_FRAMES_MAX];
	struct chunk_stack stack = { .id = stack_id(pairs, code, outcome),
				     .outcome = outcome,
				     .frames = frames };
	uint32_t node = code - CHUNK_CODE_NODE;

	if (code < CHUNK_CODE_NODE || d->shown[node] == (uint8_t)(outcome + 1) ||
	    (d->sink->wants_stack && !d->sink->wants_stack(d->sink->ctx, stack.id)))
		return 0;
	d->shown[node] = (uint8_t)(outcome + 1);
	for (; node; node = d->parents[node])
		frames[stack.frame_count++] = d->frames[d->node_frames[node]];
	return d->sink->stack(d->sink->ctx, &stack);
}

static int take_pairs(struct bytes *in, const struct decode *d, struct pairs *pairs)
{
	uint64_t first = bytes_varint(in), code = 0;
	int rc = take_array(in, 4, sizeof(*pairs->user), &pairs->count, &pairs->user);

	if (rc < 0 || first > UINT32_MAX - 1 - pairs->count)
		return rc < 0 ? rc : -EPROTO;
	pairs->first = (uint32_t)first;
	pairs->kernel = calloc(pairs->count + 1, sizeof(*pairs->kernel));
	if (!pairs->kernel)
		return -ENOMEM;
	for (uint32_t i = 0; i < pairs->count; i++) {
		code += (uint64_t)bytes_svarint(in);
		if (code >= d->node_count + CHUNK_CODE_NODE)
			return -EPROTO;
		pairs->user[i] = (uint32_t)code;
	}
	for (uint32_t i = 0; i < pairs->count; i++) {
		code = bytes_varint(in);
		if (code >= d->node_count + CHUNK_CODE_NODE)
			return -EPROTO;
		pairs->kernel[i] = (uint32_t)code;
	}
	pairs->user_outcomes = bytes_take(in, pairs->count);
	pairs->kernel_outcomes = bytes_take(in, pairs->count);
	return in->failed ? -EPROTO : 0;
}

static int decode_pairs(struct bytes *in, struct decode *d)
{
	__attribute__((__cleanup__(pairs_deinit))) struct pairs pairs = { 0 };
	const struct chunk_sink *sink = d->sink;
	int rc = take_pairs(in, d, &pairs);

	if (rc == 0 && sink->tree)
		return sink->tree(sink->ctx, &(struct chunk_tree){
						     { d->frames, d->node_frames, d->parents, d->frame_count, d->node_count },
						     pairs.first, pairs.count, pairs.user, pairs.kernel });
	for (uint32_t i = 0; rc == 0 && sink->pair && i < pairs.count; i++) {
		const struct chunk_pair pair = {
			.user = stack_id(&pairs, pairs.user[i], pairs.user_outcomes[i]),
			.kernel = stack_id(&pairs, pairs.kernel[i], pairs.kernel_outcomes[i]),
		};

		rc = sink->pair(sink->ctx, pairs.first + i, &pair);
	}
	for (uint32_t i = 0; rc == 0 && sink->stack && i < pairs.count; i++) {
		rc = show_stack(d, &pairs, pairs.user[i], pairs.user_outcomes[i]);
		if (rc == 0)
			rc = show_stack(d, &pairs, pairs.kernel[i], pairs.kernel_outcomes[i]);
	}
	return rc;
}

/* ---- attributes ------------------------------------------------------------------------------ */

static int take_comm(struct bytes *in, const struct decode *d, const struct owner *owner,
		     struct chunk_attr *attr)
{
	uint64_t code = bytes_varint(in);

	if (code > d->text_count || (code && d->texts[code - 1].len > sizeof(attr->comm)))
		return -EPROTO;
	if (code)
		memcpy(attr->comm, d->texts[code - 1].text, d->texts[code - 1].len);
	else
		memcpy(attr->comm, owner->comm, sizeof(attr->comm));
	return 0;
}

static const struct owner *owner_of(const struct decode *d, uint32_t process)
{
	static const struct owner nobody;
	uint64_t at;

	return u64map_get(&d->owner_at, process, &at) ? &d->owners[at] : &nobody;
}

static int take_attrs(struct bytes *in, const struct decode *d, struct chunk_attr *list, uint32_t count)
{
	const uint8_t *types, *states, *details;
	uint32_t process = 0;
	int rc = 0;

	for (uint32_t i = 0; i < count; i++)
		list[i].process = process += (uint32_t)bytes_svarint(in);
	for (uint32_t i = 0; i < count; i++)
		list[i].tid = owner_of(d, list[i].process)->tgid + (uint32_t)bytes_svarint(in);
	types = bytes_take(in, count);
	states = bytes_take(in, count);
	details = bytes_take(in, count);
	for (uint32_t i = 0; rc == 0 && i < count; i++)
		rc = take_comm(in, d, owner_of(d, list[i].process), &list[i]);
	for (uint32_t i = 0; i < count; i++)
		list[i].object = bytes_varint(in);
	for (uint32_t i = 0; i < count; i++)
		list[i].holder = (uint32_t)bytes_varint(in);
	if (rc < 0 || in->failed)
		return rc < 0 ? rc : -EPROTO;
	for (uint32_t i = 0; i < count; i++) {
		list[i].type = types[i];
		list[i].state = states[i];
		list[i].detail = details[i];
	}
	return 0;
}

static int decode_attrs(struct bytes *in, const struct decode *d)
{
	uint64_t first = bytes_varint(in);
	cleanup_free struct chunk_attr *list = NULL;
	uint32_t count = 0;
	int rc = take_array(in, 8, sizeof(*list), &count, &list);

	if (rc == 0)
		rc = first > UINT32_MAX - count ? -EPROTO : take_attrs(in, d, list, count);
	for (uint32_t i = 0; rc == 0 && i < count; i++)
		rc = d->sink->attr(d->sink->ctx, (uint32_t)first + i, &list[i]);
	return rc;
}

int settled_decode(struct bytes *in, const struct chunk_sink *sink)
{
	__attribute__((__cleanup__(decode_deinit))) struct decode d = { .sink = sink };
	int rc = decode_texts(in, &d);

	if (rc == 0)
		rc = decode_processes(in, &d);
	if (rc == 0)
		rc = decode_frames(in, &d);
	if (rc == 0)
		rc = decode_nodes(in, &d);
	if (rc == 0)
		rc = decode_pairs(in, &d);
	return rc == 0 && sink->attr ? decode_attrs(in, &d) : rc;
}
