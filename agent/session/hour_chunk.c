// SPDX-License-Identifier: Apache-2.0
/* Sums of an hour's minutes as columns: see session_chunks.h. What repeats from minute to minute is written once, and
 * the value of a sample is the same for all where time was sampled at one rate. */
#include <errno.h>

#include "agent/session/session_chunks.h"

#define SAMPLE	     1024 /* value2 of one */
#define HOUR_MINUTES 60u

enum { WHOLE_SAMPLES = 1, VALUES_FOLLOW = 2, FIRSTS_STEP = 4, FLAGS = 7 };
enum { PAIRS, ATTRS, COUNTS, MINUTES, VALUES2, VALUES, COLUMNS };

static int by_key(const void *a, const void *b)
{
	const struct chunk_hour_sum *x = a, *y = b;

	if (x->sum.pair != y->sum.pair)
		return x->sum.pair < y->sum.pair ? -1 : 1;
	if (x->sum.attr != y->sum.attr)
		return x->sum.attr < y->sum.attr ? -1 : 1;
	return x->minute < y->minute ? -1 : x->minute > y->minute;
}

static bool same_key(const struct chunk_hour_sum *x, const struct chunk_hour_sum *y)
{
	return x->sum.pair == y->sum.pair && x->sum.attr == y->sum.attr;
}

static size_t add_up(struct chunk_hour_sum *sums, size_t count)
{
	size_t kept = 0;

	for (size_t i = 0; i < count; i++) {
		struct chunk_hour_sum *to = kept ? &sums[kept - 1] : NULL;

		if (to && by_key(to, &sums[i]) == 0) {
			to->sum.value += sums[i].sum.value;
			to->sum.value2 += sums[i].sum.value2;
		} else {
			sums[kept++] = sums[i];
		}
	}
	return kept;
}

static int64_t residual(const struct chunk_sum *sum, int64_t one)
{
	return (int64_t)((uint64_t)sum->value - sum->value2 / SAMPLE * (uint64_t)one);
}

/* The value of a sample, if all have the same. */
static unsigned look(const struct chunk_hour_sum *sums, size_t count, int64_t *ret_one)
{
	unsigned flags = WHOLE_SAMPLES | VALUES_FOLLOW;
	int64_t one = 0;

	for (size_t i = 0; i < count && one == 0; i++)
		if (sums[i].sum.value2 >= SAMPLE)
			one = sums[i].sum.value / (int64_t)(sums[i].sum.value2 / SAMPLE);
	for (size_t i = 0; i < count; i++) {
		if (sums[i].sum.value2 % SAMPLE)
			flags &= ~(unsigned)WHOLE_SAMPLES;
		if (residual(&sums[i].sum, one))
			flags &= ~(unsigned)VALUES_FOLLOW;
	}
	*ret_one = flags & VALUES_FOLLOW ? one : 0;
	return flags;
}

/* Pairs are numbered as they come: of those that are new in this hour the first minutes hardly change from key to key.
 * The key from which on steps take less than minutes (some 6 bits; a step 1 or 8). */
static size_t first_new(const struct chunk_hour_sum *sums, size_t count)
{
	int64_t gain = 0, least = 0;
	size_t best = 0, keys = 0;
	uint32_t before = 0;

	for (size_t i = 0; i < count; keys++) {
		if (gain < least) {
			least = gain;
			best = keys;
		}
		gain += sums[i].minute == before ? 5 : -2;
		before = sums[i].minute;
		for (i++; i < count && same_key(&sums[i - 1], &sums[i]);)
			i++;
	}
	return gain < least ? keys : best;
}

static void encode_minutes(struct buf *out, const struct chunk_hour_sum *sums, size_t count, bool step, uint32_t before)
{
	if (step)
		buf_add_svarint(out, (int64_t)sums[0].minute - before);
	else
		buf_add_varint(out, sums[0].minute);
	for (size_t i = 1; i < count; i++)
		buf_add_varint(out, sums[i].minute - sums[i - 1].minute - 1);
}

static void encode_keys(struct buf columns[COLUMNS], const struct chunk_hour_sum *sums, size_t count,
			size_t steps_from, size_t *ret_keys)
{
	struct chunk_hour_sum before = { 0 };
	size_t keys = 0;

	for (size_t i = 0, end; i < count; i = end, keys++) {
		for (end = i + 1; end < count && same_key(&sums[i], &sums[end]);)
			end++;
		buf_add_varint(&columns[PAIRS], sums[i].sum.pair - before.sum.pair);
		buf_add_svarint(&columns[ATTRS], (int64_t)sums[i].sum.attr - before.sum.attr);
		buf_add_varint(&columns[COUNTS], end - i);
		encode_minutes(&columns[MINUTES], &sums[i], end - i, keys >= steps_from, before.minute);
		before = sums[i];
	}
	*ret_keys = keys;
}

void chunk_encode_hour(struct buf *out, struct chunk_hour_sum *sums, size_t count)
{
	struct buf columns[COLUMNS] = { 0 };
	size_t keys = 0, steps_from;
	unsigned flags;
	int64_t one;

	if (count)
		qsort(sums, count, sizeof(*sums), by_key);
	count = add_up(sums, count);
	flags = look(sums, count, &one);
	steps_from = first_new(sums, count);
	encode_keys(columns, sums, count, steps_from, &keys);
	for (size_t i = 0; i < count; i++) {
		buf_add_varint(&columns[VALUES2],
			       sums[i].sum.value2 / (flags & WHOLE_SAMPLES ? SAMPLE : 1));
		if (!(flags & VALUES_FOLLOW))
			buf_add_svarint(&columns[VALUES], sums[i].sum.value);
	}
	buf_add_varint(out, flags | FIRSTS_STEP);
	buf_add_svarint(out, one);
	buf_add_varint(out, keys);
	buf_add_varint(out, count);
	buf_add_varint(out, steps_from);
	for (int c = 0; c < COLUMNS - 1; c++)
		buf_add_varint(out, columns[c].len);
	for (int c = 0; c < COLUMNS; c++) {
		buf_add(out, columns[c].data, columns[c].len);
		if (columns[c].error && !out->error)
			out->error = columns[c].error;
		buf_deinit(&columns[c]);
	}
}

/* ---- decoding -------------------------------------------------------------------------------- */

struct decode {
	struct bytes columns[COLUMNS];
	unsigned flags;
	uint64_t one, keys, sums;
	uint64_t steps_from;  /* key */
	uint64_t first;	      /* minute of the key before */
	uint32_t from, to;
	chunk_hour_fn *visit;
	void *ctx;
};

static int open_columns(struct bytes *in, struct decode *d)
{
	uint64_t len[COLUMNS];

	d->flags = (unsigned)bytes_varint(in);
	d->one = (uint64_t)bytes_svarint(in);
	d->keys = bytes_varint(in);
	d->sums = bytes_varint(in);
	d->steps_from = d->flags & FIRSTS_STEP ? bytes_varint(in) : UINT64_MAX;
	for (int c = 0; c < COLUMNS - 1; c++)
		len[c] = bytes_varint(in);
	for (int c = 0; c < COLUMNS - 1; c++) {
		const void *at = bytes_take(in, len[c]);

		if (!at)
			return -EPROTO;
		d->columns[c] = bytes_of(at, len[c]);
	}
	d->columns[VALUES] = *in;
	return in->failed || d->flags > FLAGS ? -EPROTO : 0;
}

static bool take_sum(struct decode *d, struct chunk_sum *sum)
{
	sum->value2 = bytes_varint(&d->columns[VALUES2]);
	if (d->flags & VALUES_FOLLOW)
		sum->value = (int64_t)((d->flags & WHOLE_SAMPLES ? sum->value2 : sum->value2 / SAMPLE) *
				       d->one);
	else
		sum->value = bytes_svarint(&d->columns[VALUES]);
	if (d->flags & WHOLE_SAMPLES)
		sum->value2 *= SAMPLE;
	return !d->columns[VALUES2].failed && !d->columns[VALUES].failed;
}

static uint64_t take_first(struct decode *d, bool step)
{
	uint64_t code = bytes_varint(&d->columns[MINUTES]);

	d->first = step ? d->first + ((code >> 1) ^ -(code & 1)) : code;
	return d->first;
}

/* The minutes of one pair and attr. */
static int take_key(struct decode *d, uint32_t pair, uint32_t attr, uint64_t count, bool step)
{
	uint64_t minute = take_first(d, step);
	int rc = 0;

	for (uint64_t i = 0; i < count && rc == 0; i++) {
		struct chunk_hour_sum one = { .sum = { .pair = pair, .attr = attr } };

		if (i)
			minute += bytes_varint(&d->columns[MINUTES]) + 1;
		if (!take_sum(d, &one.sum) || minute >= HOUR_MINUTES)
			return -EPROTO;
		one.minute = (uint32_t)minute;
		if (minute >= d->from && minute < d->to)
			rc = d->visit(d->ctx, &one);
	}
	return rc;
}

int chunk_decode_hour(const void *data, size_t len, uint32_t from, uint32_t to, chunk_hour_fn *visit, void *ctx)
{
	struct bytes in = bytes_of(data, len);
	struct decode d = { .from = from, .to = to, .visit = visit, .ctx = ctx };
	uint64_t pair = 0, attr = 0, sums = 0;
	int rc = open_columns(&in, &d);

	for (uint64_t i = 0; i < d.keys && rc == 0; i++) {
		uint64_t count;

		pair += bytes_varint(&d.columns[PAIRS]);
		attr += (uint64_t)bytes_svarint(&d.columns[ATTRS]);
		count = bytes_varint(&d.columns[COUNTS]);
		sums += count;
		if (d.columns[PAIRS].failed || d.columns[ATTRS].failed || d.columns[COUNTS].failed ||
		    pair > UINT32_MAX || attr > UINT32_MAX || count > HOUR_MINUTES || !count)
			return -EPROTO;
		rc = take_key(&d, (uint32_t)pair, (uint32_t)attr, count, i >= d.steps_from);
	}
	if (rc == 0 && (sums != d.sums || d.columns[MINUTES].failed || bytes_left(&d.columns[VALUES])))
		rc = -EPROTO;
	return rc;
}

/* Values that follow from the samples are a multiplication, and of all minutes nobody asks which they were. */
static bool take_all(struct decode *d, uint64_t count, struct chunk_sum *to)
{
	uint64_t samples = 0;

	if ((d->flags & (WHOLE_SAMPLES | VALUES_FOLLOW)) != (WHOLE_SAMPLES | VALUES_FOLLOW)) {
		for (uint64_t i = 0; i < count; i++) {
			struct chunk_sum one;

			if (!take_sum(d, &one))
				return false;
			to->value = (int64_t)((uint64_t)to->value + (uint64_t)one.value);
			to->value2 += one.value2;
		}
		return true;
	}
	for (uint64_t i = 0; i < count; i++)
		samples += bytes_varint(&d->columns[VALUES2]);
	to->value = (int64_t)((uint64_t)to->value + samples * d->one);
	to->value2 += samples * SAMPLE;
	return !d->columns[VALUES2].failed;
}

int chunk_decode_hour_pairs(const void *data, size_t len, chunk_sum_fn *visit, void *ctx)
{
	struct bytes in = bytes_of(data, len);
	struct decode d = { 0 };
	struct chunk_sum all = { 0 };
	uint64_t pair = 0;
	int rc = open_columns(&in, &d);

	for (uint64_t i = 0; i < d.keys && rc == 0; i++) {
		uint64_t step = bytes_varint(&d.columns[PAIRS]), count = bytes_varint(&d.columns[COUNTS]);

		pair += step;
		if (d.columns[PAIRS].failed || d.columns[COUNTS].failed || pair > UINT32_MAX || count > HOUR_MINUTES)
			return -EPROTO;
		if (step && i)
			rc = visit(ctx, &all);
		if (step)
			all = (struct chunk_sum){ .pair = (uint32_t)pair };
		if (rc == 0 && !take_all(&d, count, &all))
			rc = -EPROTO;
	}
	return rc == 0 && d.keys ? visit(ctx, &all) : rc;
}
