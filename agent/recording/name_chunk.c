// SPDX-License-Identifier: Apache-2.0
/* Chunks of names: see session_chunks.h. Texts are shared, as one function occurs at many places.
 */
#include <errno.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/base/u64map.h"
#include "agent/base/vec.h"
#include "agent/recording/session_chunks.h"

#define START_LINE_WRAPPER (1u << 31)
#define KIND_TIER_SHIFT	   6 /* enum profile_tier, above a frame's kind */
#define KIND_APPROXIMATE   (1u << 5)
#define KIND_MASK	   (KIND_APPROXIMATE - 1)

struct name_chunk {
	struct buf strings; /* {varint length, bytes, NUL}...; behind a NUL of its own a function's
			       text may be followed by its symbol, which readers of earlier versions
			       do not see */
	struct u64map ids;  /* hash of a text -> id; 64 bits, collisions mix up two names at 2^-64 a
			       pair */
	uint32_t string_count;
	struct buf places;
	size_t place_count;
};

struct name_chunk *name_chunk_create(void)
{
	return calloc(1, sizeof(struct name_chunk));
}

void name_chunk_destroy(struct name_chunk *chunk)
{
	if (!chunk)
		return;
	buf_deinit(&chunk->strings);
	buf_deinit(&chunk->places);
	u64map_deinit(&chunk->ids);
	free(chunk);
}

static int add_string(struct name_chunk *chunk, const char *text, const char *symbol)
{
	size_t len = strlen(text), symbol_len = symbol ? strlen(symbol) : 0;
	uint64_t hash = hash_bytes(text, len, 0), id;
	int rc;

	if (symbol_len)
		hash = hash_combine(hash, hash_bytes(symbol, symbol_len, 1));
	if (!u64map_get(&chunk->ids, hash, &id)) {
		id = chunk->string_count;
		rc = u64map_put(&chunk->ids, hash, id);
		if (rc < 0)
			return rc;
		chunk->string_count++;
		buf_add_varint(&chunk->strings, symbol_len ? len + 1 + symbol_len : len);
		buf_add(&chunk->strings, text, len + 1);
		if (symbol_len)
			buf_add(&chunk->strings, symbol, symbol_len + 1);
	}
	buf_add_varint(&chunk->places, id);
	return 0;
}

int name_chunk_add(struct name_chunk *chunk, const struct chunk_name *name)
{
	buf_add(&chunk->places, &name->key, sizeof(name->key));
	buf_add_varint(&chunk->places, name->offset);
	buf_add_varint(&chunk->places, name->frame_count);
	for (unsigned i = 0; i < name->frame_count; i++) {
		const struct name_frame *frame = &name->frames[i];
		uint8_t kind = (uint8_t)(frame->kind | frame->tier << KIND_TIER_SHIFT |
					 (frame->is_approximate ? KIND_APPROXIMATE : 0));
		int rc = add_string(chunk, frame->function, frame->symbol);

		if (rc == 0)
			rc = add_string(chunk, frame->package, NULL);
		if (rc == 0)
			rc = add_string(chunk, frame->file, NULL);
		if (rc < 0)
			return rc;
		buf_add_varint(&chunk->places, frame->line);
		buf_add_varint(&chunk->places, frame->start_line | (frame->is_wrapper ? START_LINE_WRAPPER : 0));
		buf_add(&chunk->places, &kind, 1);
	}
	chunk->place_count++;
	return chunk->places.error ? chunk->places.error : chunk->strings.error;
}

size_t name_chunk_count(const struct name_chunk *chunk)
{
	return chunk->place_count;
}

void name_chunk_encode(const struct name_chunk *chunk, struct buf *out)
{
	buf_add_varint(out, chunk->string_count);
	buf_add(out, chunk->strings.data, chunk->strings.len);
	buf_add_varint(out, chunk->place_count);
	buf_add(out, chunk->places.data, chunk->places.len);
}

struct name_text {
	const char *text, *symbol; /* "" = none */
};
VEC_DEFINE(texts, struct name_text);

static int decode_strings(struct bytes *in, struct texts_vec *ret)
{
	uint32_t count = bytes_count(in, 2);

	if (in->failed)
		return -EPROTO;
	for (; count; count--) {
		uint64_t len = bytes_varint(in);
		const char *text = len < UINT32_MAX ? bytes_take(in, len + 1) : NULL;
		int rc;

		if (!text || text[len] != '\0')
			return -EPROTO;
		rc = texts_vec_push(ret, (struct name_text){ text, strlen(text) < len
									    ? text + strlen(text) + 1
									    : "" });
		if (rc < 0)
			return rc;
	}
	return 0;
}

static struct name_text text_at(struct bytes *in, const struct texts_vec *texts)
{
	uint64_t id = bytes_varint(in);

	if (id >= texts->count) {
		in->failed = true;
		return (struct name_text){ "", "" };
	}
	return texts->data[id];
}

static int decode_place(struct bytes *in, const struct texts_vec *texts,
			const struct chunk_sink *sink)
{
	struct name_frame frames[NAMES_INLINE_MAX];
	struct chunk_name name = { .key = bytes_u64(in), .frames = frames };
	uint64_t count;

	name.offset = bytes_varint(in);
	count = bytes_varint(in);
	if (in->failed || count > NAMES_INLINE_MAX)
		return -EPROTO;
	for (uint64_t i = 0; i < count; i++) {
		const struct name_text function = text_at(in, texts);

		frames[i].function = function.text;
		frames[i].symbol = function.symbol;
		frames[i].package = text_at(in, texts).text;
		frames[i].file = text_at(in, texts).text;
		frames[i].line = (uint32_t)bytes_varint(in);
		frames[i].start_line = (uint32_t)bytes_varint(in);
		frames[i].is_wrapper = frames[i].start_line & START_LINE_WRAPPER;
		frames[i].start_line &= ~START_LINE_WRAPPER;
		frames[i].kind = bytes_u8(in);
		frames[i].tier = frames[i].kind >> KIND_TIER_SHIFT;
		frames[i].is_approximate = frames[i].kind & KIND_APPROXIMATE;
		frames[i].kind &= KIND_MASK;
	}
	if (in->failed)
		return -EPROTO;
	name.frame_count = (unsigned)count;
	return sink->name ? sink->name(sink->ctx, &name) : 0;
}

int name_chunk_decode(struct bytes *in, const struct chunk_sink *sink)
{
	struct texts_vec texts = { 0 };
	int rc = decode_strings(in, &texts);

	for (uint64_t left = rc == 0 ? bytes_varint(in) : 0; left && rc == 0; left--)
		rc = in->failed ? -EPROTO : decode_place(in, &texts, sink);
	texts_vec_deinit(&texts);
	return rc == 0 && in->failed ? -EPROTO : rc;
}
