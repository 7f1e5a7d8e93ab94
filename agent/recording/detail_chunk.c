// SPDX-License-Identifier: Apache-2.0
/* Single samples of a minute as columns: see session_chunks.h. Most samples are of one that was
 * taken before, so each names its stack and attribute by a short number. */
#include <errno.h>
#include <stdlib.h>

#include "agent/recording/session_chunks.h"

#define SAMPLE	  1024 /* value2 of one */
#define MINUTE_NS (60 * NS_PER_S)
#define TICKS	  (MINUTE_NS / CHUNK_DETAIL_TICK_NS)

enum { ONE_SAMPLE_EACH = 1, ONE_VALUE = 2, FLAGS = 3 };

static int by_time(const void *a, const void *b)
{
	const struct chunk_event *x = a, *y = b;

	if (x->time_ns != y->time_ns)
		return x->time_ns < y->time_ns ? -1 : 1;
	if (x->pair != y->pair)
		return x->pair < y->pair ? -1 : 1;
	return x->attr < y->attr ? -1 : x->attr > y->attr;
}

static int by_key(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static uint64_t key_of(const struct chunk_event *event)
{
	return (uint64_t)event->pair << 32 | event->attr;
}

/* The different keys of @events, ascending; how many. */
static size_t find_keys(const struct chunk_event *events, size_t count, uint64_t *keys)
{
	size_t kept = 0;

	for (size_t i = 0; i < count; i++)
		keys[i] = key_of(&events[i]);
	qsort(keys, count, sizeof(*keys), by_key);
	for (size_t i = 0; i < count; i++)
		if (!kept || keys[kept - 1] != keys[i])
			keys[kept++] = keys[i];
	return kept;
}

static unsigned look(const struct chunk_event *events, size_t count)
{
	unsigned flags = FLAGS;

	for (size_t i = 0; i < count; i++) {
		if (events[i].value2 != SAMPLE)
			flags &= ~(unsigned)ONE_SAMPLE_EACH;
		if (events[i].value != events[0].value)
			flags &= ~(unsigned)ONE_VALUE;
	}
	return flags;
}

static void encode_keys(struct buf *out, const uint64_t *keys, size_t count)
{
	uint32_t before = 0;

	for (size_t i = 0; i < count; i++) {
		buf_add_varint(out, (uint32_t)(keys[i] >> 32) - before);
		before = (uint32_t)(keys[i] >> 32);
	}
	for (size_t i = 0; i < count; i++)
		buf_add_varint(out, (uint32_t)keys[i]);
}

static void encode_events(struct buf *out, uint64_t minute_ns, const struct chunk_event *events,
			  size_t count, const uint64_t *keys, size_t key_count, unsigned flags)
{
	uint64_t before = 0;

	for (size_t i = 0; i < count; i++) {
		uint64_t tick = (events[i].time_ns - minute_ns) / CHUNK_DETAIL_TICK_NS;

		buf_add_varint(out, tick - before);
		before = tick;
	}
	for (size_t i = 0; i < count; i++) {
		uint64_t key = key_of(&events[i]);
		const uint64_t *at = bsearch(&key, keys, key_count, sizeof(*keys), by_key);

		buf_add_varint(out, (uint64_t)(at - keys));
	}
	for (size_t i = 0; i < count && !(flags & ONE_SAMPLE_EACH); i++)
		buf_add_varint(out, events[i].value2);
	for (size_t i = 0; i < count && !(flags & ONE_VALUE); i++)
		buf_add_svarint(out, events[i].value);
}

void chunk_encode_detail(struct buf *out, uint64_t series, uint64_t minute_ns,
			 struct chunk_event *events, size_t count)
{
	cleanup_free uint64_t *keys = calloc(count + 1, sizeof(*keys));
	cleanup_buf struct buf data = { .max = out->max };
	unsigned flags = look(events, count);
	size_t key_count;

	if (!keys) {
		out->error = -ENOMEM;
		return;
	}
	if (count)
		qsort(events, count, sizeof(*events), by_time);
	key_count = find_keys(events, count, keys);
	buf_add_varint(&data, flags);
	if (flags & ONE_VALUE)
		buf_add_svarint(&data, count ? events[0].value : 0);
	buf_add_varint(&data, key_count);
	buf_add_varint(&data, count);
	encode_keys(&data, keys, key_count);
	encode_events(&data, minute_ns, events, count, keys, key_count, flags);
	buf_add(out, &series, sizeof(series));
	buf_add_varint(out, minute_ns / MINUTE_NS);
	buf_add_varint(out, data.len);
	buf_add(out, data.data, data.len);
	if (data.error && !out->error)
		out->error = data.error;
}

/* ---- decoding -------------------------------------------------------------------------------- */

int chunk_decode_details(const void *data, size_t len, chunk_detail_fn *visit, void *ctx)
{
	struct bytes in = bytes_of(data, len);
	int rc = 0;

	while (rc == 0 && bytes_left(&in)) {
		struct chunk_detail detail = { .series = bytes_u64(&in) };
		uint64_t minute = bytes_varint(&in);

		detail.len = bytes_varint(&in);
		detail.data = bytes_take(&in, detail.len);
		if (in.failed || minute > UINT64_MAX / MINUTE_NS - 1)
			return -EPROTO;
		detail.minute_ns = minute * MINUTE_NS;
		rc = visit(ctx, &detail);
	}
	return rc;
}

static int take_keys(struct bytes *in, uint64_t *keys, uint64_t count)
{
	uint64_t pair = 0, attr;

	for (uint64_t i = 0; i < count; i++) {
		pair += bytes_varint(in);
		if (pair > UINT32_MAX)
			return -EPROTO;
		keys[i] = pair << 32;
	}
	for (uint64_t i = 0; i < count; i++) {
		attr = bytes_varint(in);
		if (attr > UINT32_MAX)
			return -EPROTO;
		keys[i] |= attr;
	}
	return 0;
}

static int take_events(struct bytes *in, uint64_t minute_ns, struct chunk_event *events,
		       uint64_t count, const uint64_t *keys, uint64_t key_count)
{
	uint64_t tick = 0, key;

	for (uint64_t i = 0; i < count; i++) {
		uint64_t step = bytes_varint(in);

		tick += step;
		if (step >= TICKS || tick >= TICKS)
			return -EPROTO;
		events[i].time_ns = minute_ns + tick * CHUNK_DETAIL_TICK_NS;
	}
	for (uint64_t i = 0; i < count; i++) {
		key = bytes_varint(in);
		if (key >= key_count)
			return -EPROTO;
		events[i].pair = (uint32_t)(keys[key] >> 32);
		events[i].attr = (uint32_t)keys[key];
	}
	return 0;
}

int chunk_decode_detail(const struct chunk_detail *detail, chunk_event_fn *visit, void *ctx)
{
	struct bytes in = bytes_of(detail->data, detail->len);
	uint64_t flags = bytes_varint(&in);
	int64_t value = flags & ONE_VALUE ? bytes_svarint(&in) : 0;
	uint64_t key_count = bytes_varint(&in), count = bytes_varint(&in);
	cleanup_free struct chunk_event *events = NULL;
	cleanup_free uint64_t *keys = NULL;
	int rc;

	/* Each of them takes two bytes at least. */
	if (in.failed || flags > FLAGS || key_count > bytes_left(&in) / 2 || count > bytes_left(&in) / 2)
		return -EPROTO;
	keys = calloc(key_count + 1, sizeof(*keys));
	events = calloc(count + 1, sizeof(*events));
	if (!keys || !events)
		return -ENOMEM;
	rc = take_keys(&in, keys, key_count);
	if (rc == 0)
		rc = take_events(&in, detail->minute_ns, events, count, keys, key_count);
	for (uint64_t i = 0; i < count; i++)
		events[i].value2 = flags & ONE_SAMPLE_EACH ? SAMPLE : bytes_varint(&in);
	for (uint64_t i = 0; i < count; i++)
		events[i].value = flags & ONE_VALUE ? value : bytes_svarint(&in);
	if (rc < 0 || in.failed || bytes_left(&in))
		return -EPROTO;
	for (uint64_t i = 0; i < count && rc == 0; i++)
		rc = visit(ctx, &events[i]);
	return rc;
}
