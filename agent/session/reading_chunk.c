// SPDX-License-Identifier: Apache-2.0
#include "agent/session/reading_chunk.h"

#include <errno.h>
#include <string.h>

#include "agent/base/hash.h"

#define PLACE_BYTES 8 /* seq and process */
#define LAST_AT	    8
#define LABELS_MAX  READ_LABELS_MAX

/* ---- encoding -------------------------------------------------------------------------------- */

/* Texts and label sets of one chunk, numbered from 1 in the order of their first use. */
struct local {
	const struct reading *reading;
	struct u64map text_at, labels_at;
	struct buf texts, label_sets, items;
	uint32_t text_count, label_set_count;
	int rc;
};

static void local_deinit(struct local *l)
{
	u64map_deinit(&l->text_at);
	u64map_deinit(&l->labels_at);
	buf_deinit(&l->texts);
	buf_deinit(&l->label_sets);
	buf_deinit(&l->items);
}

static uint32_t local_text(struct local *l, uint32_t id)
{
	const struct reading_text *text;
	uint64_t known;
	int rc;

	if (!id)
		return 0;
	if (u64map_get(&l->text_at, id, &known))
		return (uint32_t)known;
	rc = u64map_put(&l->text_at, id, ++l->text_count);
	if (rc < 0)
		l->rc = rc;
	text = &l->reading->texts.data[id - 1];
	buf_add_varint(&l->texts, text->len);
	buf_add(&l->texts, l->reading->text.data + text->first, text->len);
	return l->text_count;
}

static uint32_t local_labels(struct local *l, uint32_t id)
{
	const struct reading_labels *labels;
	uint64_t known;
	int rc;

	if (!id)
		return 0;
	if (u64map_get(&l->labels_at, id, &known))
		return (uint32_t)known;
	rc = u64map_put(&l->labels_at, id, ++l->label_set_count);
	if (rc < 0)
		l->rc = rc;
	labels = &l->reading->label_sets.data[id - 1];
	buf_add_varint(&l->label_sets, labels->count);
	for (uint32_t i = 0; i < labels->count; i++) {
		const struct reading_pair *pair = &l->reading->label_pairs.data[labels->first + i];

		buf_add_varint(&l->label_sets, local_text(l, pair->name));
		buf_add_varint(&l->label_sets, local_text(l, pair->value));
	}
	return l->label_set_count;
}

uint64_t reading_frame_stack(const struct reading_encoding *encoding, uint64_t frame)
{
	uint64_t id = hash_combine(hash_mix64(encoding->stack_base), frame);

	/* Apart from the ids of whole stacks, which are below 2^63. */
	return frame ? id | 1ull << 63 : 0;
}

static void add_u64(struct buf *out, uint64_t value)
{
	buf_add(out, &value, sizeof(value));
}

static void encode_item(struct local *l, const struct reading_encoding *encoding,
			const struct reading_item *item)
{
	struct buf *out = &l->items;
	const bool stacks = encoding->phase != READING_START;
	const uint32_t with_object = item->object ? READING_HAS_OBJECT : 0;

	add_u64(out, stacks && item->stack ? encoding->stack_base + item->stack : 0);
	add_u64(out, stacks ? reading_frame_stack(encoding, item->created_frame) : 0);
	add_u64(out, stacks ? reading_frame_stack(encoding, item->start_frame) : 0);
	buf_add_varint(out, item->goid);
	add_u64(out, item->bucket);
	buf_add_varint(out, item->wait_ns);
	buf_add_svarint(out, item->values[0]);
	buf_add_svarint(out, item->values[1]);
	buf_add_varint(out, local_text(l, item->state));
	buf_add_varint(out, local_text(l, item->wait));
	buf_add_varint(out, local_text(l, item->name));
	buf_add_varint(out, local_text(l, item->kernel));
	buf_add_varint(out, local_labels(l, item->labels));
	buf_add_varint(out, item->tid);
	buf_add_varint(out, (item->flags & ~READING_HAS_OBJECT) | with_object);
	if (item->object)
		add_u64(out, item->object);
}

int reading_chunk_encode(struct buf *out, const struct reading *reading,
			 const struct reading_encoding *encoding, size_t from, size_t to)
{
	__attribute__((__cleanup__(local_deinit))) struct local l = { .reading = reading };
	const uint8_t zero[PLACE_BYTES] = { 0 };
	const uint8_t last = 0;

	for (size_t i = from; i < to; i++)
		encode_item(&l, encoding, &reading->items.data[i]);
	buf_add(out, zero, sizeof(zero));
	buf_add(out, &last, 1);
	buf_add(out, &encoding->phase, 1);
	buf_add_varint(out, encoding->round);
	buf_add_varint(out, reading->wrappers.count);
	for (size_t i = 0; i < reading->wrappers.count; i++)
		add_u64(out, reading->wrappers.data[i]);
	buf_add_varint(out, l.text_count);
	buf_add(out, l.texts.data, l.texts.len);
	buf_add_varint(out, l.label_set_count);
	buf_add(out, l.label_sets.data, l.label_sets.len);
	buf_add_varint(out, to - from);
	buf_add(out, l.items.data, l.items.len);
	if (l.rc < 0 || l.texts.error || l.label_sets.error || l.items.error)
		return -ENOMEM;
	return out->error;
}

void reading_chunk_place(struct buf *chunk, uint32_t seq, uint32_t process, bool last)
{
	memcpy(chunk->data, &seq, sizeof(seq));
	memcpy(chunk->data + sizeof(seq), &process, sizeof(process));
	chunk->data[LAST_AT] = (char)last;
}

/* ---- decoding -------------------------------------------------------------------------------- */

VEC_DEFINE(texts, struct chunk_text);
VEC_DEFINE(labels, struct chunk_label);
VEC_DEFINE(label_sets, struct reading_labels);

struct decoding {
	struct texts_vec texts;
	struct labels_vec labels;
	struct label_sets_vec label_sets;
};

static void decoding_deinit(struct decoding *d)
{
	texts_vec_deinit(&d->texts);
	labels_vec_deinit(&d->labels);
	label_sets_vec_deinit(&d->label_sets);
}

static uint32_t take_count(struct bytes *in, size_t min_bytes)
{
	uint64_t count = bytes_varint(in);

	if (count > bytes_left(in) / min_bytes) {
		in->failed = true;
		return 0;
	}
	return (uint32_t)count;
}

static struct chunk_text text_at(const struct decoding *d, struct bytes *in)
{
	uint64_t id = bytes_varint(in);

	if (id > d->texts.count)
		in->failed = true;
	return id && !in->failed ? d->texts.data[id - 1] : (struct chunk_text){ "", 0 };
}

static int decode_texts(struct decoding *d, struct bytes *in)
{
	int rc = 0;

	for (uint32_t left = take_count(in, 1); rc == 0 && left && !in->failed; left--) {
		uint64_t len = bytes_varint(in);
		const char *text = bytes_take(in, len);

		rc = text ? texts_vec_push(&d->texts, (struct chunk_text){ text, (size_t)len }) : 0;
	}
	return rc < 0 ? rc : in->failed ? -EPROTO : 0;
}

static int decode_label_sets(struct decoding *d, struct bytes *in)
{
	int rc = 0;

	for (uint32_t left = take_count(in, 1); rc == 0 && left && !in->failed; left--) {
		struct reading_labels set = { d->labels.count, take_count(in, 2) };

		if (set.count > LABELS_MAX)
			return -EPROTO;
		for (uint32_t i = 0; rc == 0 && i < set.count; i++) {
			struct chunk_label label = { .name = text_at(d, in) };

			label.value = text_at(d, in);
			rc = labels_vec_push(&d->labels, label);
		}
		if (rc == 0)
			rc = label_sets_vec_push(&d->label_sets, set);
	}
	return rc < 0 ? rc : in->failed ? -EPROTO : 0;
}

static void decode_item(const struct decoding *d, struct bytes *in, struct chunk_item *item)
{
	uint64_t labels;

	item->stack = bytes_u64(in);
	item->created = bytes_u64(in);
	item->start = bytes_u64(in);
	item->goid = bytes_varint(in);
	item->bucket = bytes_u64(in);
	item->wait_ns = bytes_varint(in);
	item->values[0] = bytes_svarint(in);
	item->values[1] = bytes_svarint(in);
	item->state = text_at(d, in);
	item->wait = text_at(d, in);
	item->name = text_at(d, in);
	item->kernel = text_at(d, in);
	labels = bytes_varint(in);
	item->tid = (uint32_t)bytes_varint(in);
	item->flags = (uint32_t)bytes_varint(in);
	if (item->flags & READING_HAS_OBJECT)
		item->object = bytes_u64(in);
	if (labels > d->label_sets.count)
		in->failed = true;
	else if (labels) {
		item->labels = d->labels.data + d->label_sets.data[labels - 1].first;
		item->label_count = d->label_sets.data[labels - 1].count;
	}
}

#define ITEM_BYTES_MIN (4 * 8 + 11)

static int decode_items(const struct decoding *d, struct bytes *in,
			const struct chunk_reading *head, const struct reading_sink *sink)
{
	for (uint32_t left = take_count(in, ITEM_BYTES_MIN); left && !in->failed; left--) {
		struct chunk_item item = { 0 };
		int rc;

		decode_item(d, in, &item);
		if (in->failed)
			break;
		rc = sink->item ? sink->item(sink->ctx, head, &item) : 0;
		if (rc < 0)
			return rc;
	}
	return in->failed ? -EPROTO : 0;
}

static int decode_wrappers(struct bytes *in, const struct reading_sink *sink)
{
	for (uint32_t left = take_count(in, 8); left && !in->failed; left--) {
		uint64_t frame = bytes_u64(in);
		int rc = !in->failed && sink->wrapper ? sink->wrapper(sink->ctx, frame) : 0;

		if (rc < 0)
			return rc;
	}
	return in->failed ? -EPROTO : 0;
}

int reading_chunk_decode(const void *data, size_t len, const struct reading_sink *sink)
{
	__attribute__((__cleanup__(decoding_deinit))) struct decoding d = { 0 };
	struct bytes in = bytes_of(data, len);
	struct chunk_reading head = { .seq = bytes_u32(&in) };
	int rc;

	head.process = bytes_u32(&in);
	head.last = bytes_u8(&in) != 0;
	head.phase = bytes_u8(&in);
	head.round = (uint32_t)bytes_varint(&in);
	if (in.failed)
		return -EPROTO;
	rc = sink->reading ? sink->reading(sink->ctx, &head) : 0;
	if (rc != 0)
		return rc < 0 ? rc : 0;
	rc = decode_wrappers(&in, sink);
	if (rc == 0)
		rc = decode_texts(&d, &in);
	if (rc == 0)
		rc = decode_label_sets(&d, &in);
	return rc == 0 ? decode_items(&d, &in, &head, sink) : rc;
}
