// SPDX-License-Identifier: Apache-2.0
/* Every output format of any profile: what is JSON parses, what is a protocol buffer is well formed
 * to its last byte and its samples sum to the profile's total, and nothing is written beyond the
 * bound of the buffer. */
#include <errno.h>
#include <string.h>
#include <zlib.h>

#include <cjson/cJSON.h>

#include "api/render/render.h"
#include "tests/fuzz/profile_of_bytes.h"

#define PLAIN_MAX (16u << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct wire {
	const uint8_t *at, *end;
};

static uint64_t take_varint(struct wire *w)
{
	uint64_t value = 0;

	for (unsigned shift = 0; shift < 64; shift += 7) {
		if (w->at == w->end)
			abort();
		value |= (uint64_t)(*w->at & 0x7f) << shift;
		if (!(*w->at++ & 0x80))
			return value;
	}
	abort();
}

/* The next field of a message; @ret is its bytes when it has some. */
static unsigned take_field(struct wire *w, struct wire *ret)
{
	uint64_t key = take_varint(w), len = 0;

	*ret = (struct wire){ w->at, w->at };
	if ((key & 7) == 0)
		(void)take_varint(w);
	else if ((key & 7) == 1)
		len = 8;
	else if ((key & 7) == 2)
		len = take_varint(w);
	else
		abort();
	if (len > (uint64_t)(w->end - w->at))
		abort();
	*ret = (struct wire){ w->at, w->at + len };
	w->at += len;
	return (unsigned)(key >> 3);
}

/* pprof: sum over samples of the value at @index. */
static int64_t sum_pprof(struct wire w, unsigned index)
{
	int64_t sum = 0;

	while (w.at < w.end) {
		struct wire sample, values;

		if (take_field(&w, &sample) != 2)
			continue;
		while (sample.at < sample.end) {
			if (take_field(&sample, &values) != 2)
				continue;
			for (unsigned i = 0; values.at < values.end; i++) {
				int64_t value = (int64_t)take_varint(&values);

				sum += i == index ? value : 0;
			}
		}
	}
	return sum;
}

static void check_pprof(const struct profile *p, const struct buf *out)
{
	static uint8_t plain[PLAIN_MAX];
	z_stream z = { .next_in = (uint8_t *)out->data, .avail_in = (unsigned)out->len,
		       .next_out = plain, .avail_out = sizeof(plain) };
	int rc;

	if (inflateInit2(&z, 16 + MAX_WBITS) != Z_OK)
		abort();
	rc = inflate(&z, Z_FINISH);
	if (rc != Z_STREAM_END)
		abort();
	if (sum_pprof((struct wire){ plain, plain + z.total_out }, profile_value_index(p)) !=
	    p->totals[profile_value_index(p)])
		abort();
	(void)inflateEnd(&z);
}

/* Every message inside is walked by its lengths; which fields are messages is known by their
 * numbers. */
static void check_otlp(const struct buf *out)
{
	struct wire w = { (uint8_t *)out->data, (uint8_t *)out->data + out->len }, part, inner;

	while (w.at < w.end) {
		if (take_field(&w, &part) > 2)
			abort();
		while (part.at < part.end)
			(void)take_field(&part, &inner);
	}
}

static void check_json(const struct buf *out)
{
	cJSON *json = cJSON_ParseWithLength(out->data, out->len);

	if (!json)
		abort();
	cJSON_Delete(json);
}

static void check_format(const struct profile *p, const struct render_format *format)
{
	const struct render_options options = { .value_index = profile_value_index(p) };
	struct buf out = { .max = PLAIN_MAX }, small = { .max = 100 };
	struct err err = { 0 };
	int rc = format->render(p, &options, &out, &err);

	if (rc < 0 && rc != -ENOTSUP)
		abort();
	if (rc == 0 && strcmp(format->content_type, "application/json") == 0)
		check_json(&out);
	if (rc == 0 && strcmp(format->name, "pprof") == 0)
		check_pprof(p, &out);
	if (rc == 0 && strcmp(format->name, "otlp") == 0)
		check_otlp(&out);
	if (format->render(p, &options, &small, &err) == 0 && small.len > 100)
		abort();
	buf_deinit(&out);
	buf_deinit(&small);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes in;
	struct profile *p;

	if (size > 4096)
		return 0;
	in = bytes_of(data, size);
	p = profile_of_bytes(&in);
	for (const struct render_format *format = render_formats; format->name; format++)
		check_format(p, format);
	(void)profile_unref(p);
	return 0;
}
