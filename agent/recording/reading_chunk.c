// SPDX-License-Identifier: Apache-2.0
#include "agent/recording/reading_chunk.h"

#include <errno.h>
#include <string.h>

#include "agent/base/hash.h"

#define PLACE_BYTES 8 /* seq and process */
#define LAST_AT	    8
#define LABELS_MAX  READ_LABELS_MAX

/* ---- encoding -------------------------------------------------------------------------------- */

/* The fields that items of one kind share. */
struct kind_key {
	uint64_t created_frame, start_frame, bucket;
	int64_t values[2];
	uint32_t stack, state, wait, name, kernel, labels, flags, reserved;
};

/* The item before, to which an item is written as a difference. */
struct before {
	uint64_t kind, goid, wait_ns, tid, object;
};

/* Texts and label sets of one chunk, numbered from 1 in the order of their first use; kinds from 0.
 */
struct local {
	const struct reading *reading;
	struct u64map text_at, labels_at, kind_at;
	struct buf texts, label_sets, kinds, items;
	uint32_t text_count, label_set_count, kind_count;
	struct kind_key key; /* of the item before */
	struct before before;
	int rc;
};

static void local_deinit(struct local *l)
{
	u64map_deinit(&l->text_at);
	u64map_deinit(&l->labels_at);
	u64map_deinit(&l->kind_at);
	buf_deinit(&l->texts);
	buf_deinit(&l->label_sets);
	buf_deinit(&l->kinds);
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
	uint64_t id = hash_combine(encoding->stack_base, frame);

	/* Apart from the ids of whole stacks, which are below 2^63. */
	return frame ? id | 1ull << 63 : 0;
}

static void add_u64(struct buf *out, uint64_t value)
{
	buf_add(out, &value, sizeof(value));
}

static void encode_kind(struct local *l, const struct reading_encoding *encoding,
			const struct kind_key *key)
{
	struct buf *out = &l->kinds;
	const bool stacks = encoding->phase != READING_START;

	add_u64(out, stacks && key->stack ? encoding->stack_base + key->stack : 0);
	add_u64(out, stacks ? reading_frame_stack(encoding, key->created_frame) : 0);
	add_u64(out, stacks ? reading_frame_stack(encoding, key->start_frame) : 0);
	add_u64(out, key->bucket);
	buf_add_svarint(out, key->values[0]);
	buf_add_svarint(out, key->values[1]);
	buf_add_varint(out, local_text(l, key->state));
	buf_add_varint(out, local_text(l, key->wait));
	buf_add_varint(out, local_text(l, key->name));
	buf_add_varint(out, local_text(l, key->kernel));
	buf_add_varint(out, local_labels(l, key->labels));
	buf_add_varint(out, key->flags);
}

static uint64_t kind_of(struct local *l, const struct reading_encoding *encoding,
			const struct reading_item *item)
{
	const struct kind_key key = {
		.created_frame = item->created_frame,
		.start_frame = item->start_frame,
		.bucket = item->bucket,
		.values = { item->values[0], item->values[1] },
		.stack = item->stack,
		.state = item->state,
		.wait = item->wait,
		.name = item->name,
		.kernel = item->kernel,
		.labels = item->labels,
		.flags = (item->flags & ~READING_HAS_OBJECT) | (item->object ? READING_HAS_OBJECT : 0),
	};
	uint64_t hash, known;
	int rc;

	if (l->kind_count && memcmp(&key, &l->key, sizeof(key)) == 0)
		return l->before.kind;
	l->key = key;
	hash = hash_bytes(&key, sizeof(key), 0);
	if (u64map_get(&l->kind_at, hash, &known))
		return known;
	rc = u64map_put(&l->kind_at, hash, l->kind_count);
	if (rc < 0)
		l->rc = rc;
	encode_kind(l, encoding, &key);
	return l->kind_count++;
}

static void add_difference(struct buf *out, uint64_t value, uint64_t before)
{
	buf_add_svarint(out, (int64_t)(value - before));
}

static void encode_item(struct local *l, const struct reading_encoding *encoding,
			const struct reading_item *item)
{
	struct before now = { .kind = kind_of(l, encoding, item),
			      .goid = item->goid,
			      .wait_ns = item->wait_ns,
			      .tid = item->tid,
			      .object = item->object ? item->object : l->before.object };
	struct buf *out = &l->items;

	add_difference(out, now.kind, l->before.kind);
	add_difference(out, now.goid, l->before.goid);
	add_difference(out, now.wait_ns, l->before.wait_ns);
	add_difference(out, now.tid, l->before.tid);
	if (item->object)
		add_difference(out, now.object, l->before.object);
	l->before = now;
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
	buf_add_varint(out, l.kind_count);
	buf_add(out, l.kinds.data, l.kinds.len);
	buf_add_varint(out, to - from);
	buf_add(out, l.items.data, l.items.len);
	if (l.rc < 0 || l.texts.error || l.label_sets.error || l.kinds.error || l.items.error)
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
VEC_DEFINE(kinds, struct chunk_item);

struct decoding {
	struct texts_vec texts;
	struct labels_vec labels;
	struct label_sets_vec label_sets;
	struct kinds_vec kinds;
};

static void decoding_deinit(struct decoding *d)
{
	texts_vec_deinit(&d->texts);
	labels_vec_deinit(&d->labels);
	label_sets_vec_deinit(&d->label_sets);
	kinds_vec_deinit(&d->kinds);
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

	for (uint32_t left = bytes_count(in, 1); rc == 0 && left && !in->failed; left--) {
		uint64_t len = bytes_varint(in);
		const char *text = bytes_take(in, len);

		rc = text ? texts_vec_push(&d->texts, (struct chunk_text){ text, (size_t)len }) : 0;
	}
	return rc < 0 ? rc : in->failed ? -EPROTO : 0;
}

static int decode_label_sets(struct decoding *d, struct bytes *in)
{
	int rc = 0;

	for (uint32_t left = bytes_count(in, 1); rc == 0 && left && !in->failed; left--) {
		struct reading_labels set = { d->labels.count, bytes_count(in, 2) };

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

static void decode_kind(const struct decoding *d, struct bytes *in, struct chunk_item *kind)
{
	uint64_t labels;

	kind->stack = bytes_u64(in);
	kind->created = bytes_u64(in);
	kind->start = bytes_u64(in);
	kind->bucket = bytes_u64(in);
	kind->values[0] = bytes_svarint(in);
	kind->values[1] = bytes_svarint(in);
	kind->state = text_at(d, in);
	kind->wait = text_at(d, in);
	kind->name = text_at(d, in);
	kind->kernel = text_at(d, in);
	labels = bytes_varint(in);
	kind->flags = (uint32_t)bytes_varint(in);
	if (labels > d->label_sets.count)
		in->failed = true;
	else if (labels) {
		kind->labels = d->labels.data + d->label_sets.data[labels - 1].first;
		kind->label_count = d->label_sets.data[labels - 1].count;
	}
}

#define KIND_BYTES_MIN (4 * 8 + 8)
#define ITEM_BYTES_MIN 4

static int decode_kinds(struct decoding *d, struct bytes *in)
{
	int rc = 0;

	for (uint32_t left = bytes_count(in, KIND_BYTES_MIN); rc == 0 && left && !in->failed; left--) {
		struct chunk_item kind = { 0 };

		decode_kind(d, in, &kind);
		rc = kinds_vec_push(&d->kinds, kind);
	}
	return rc < 0 ? rc : in->failed ? -EPROTO : 0;
}

static uint64_t add_back(struct bytes *in, uint64_t before)
{
	return before + (uint64_t)bytes_svarint(in);
}

static int decode_items(const struct decoding *d, struct bytes *in,
			const struct chunk_reading *head, const struct reading_sink *sink)
{
	struct before at = { 0 };

	for (uint32_t left = bytes_count(in, ITEM_BYTES_MIN); left && !in->failed; left--) {
		struct chunk_item item;
		int rc;

		at.kind = add_back(in, at.kind);
		at.goid = add_back(in, at.goid);
		at.wait_ns = add_back(in, at.wait_ns);
		at.tid = add_back(in, at.tid);
		if (in->failed || at.kind >= d->kinds.count)
			return -EPROTO;
		item = d->kinds.data[at.kind];
		item.goid = at.goid;
		item.wait_ns = at.wait_ns;
		item.tid = (uint32_t)at.tid;
		if (item.flags & READING_HAS_OBJECT)
			item.object = at.object = add_back(in, at.object);
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
	for (uint32_t left = bytes_count(in, 8); left && !in->failed; left--) {
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
	if (rc == 0)
		rc = decode_kinds(&d, &in);
	return rc == 0 ? decode_items(&d, &in, &head, sink) : rc;
}
