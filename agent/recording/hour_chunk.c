// SPDX-License-Identifier: Apache-2.0
/* Sums of an hour's minutes as columns: see session_chunks.h. What repeats from minute to minute is
 * written once, and the value of a sample is the same for all where time was sampled at one rate.
 */
#include <errno.h>

#include "agent/base/u64map.h"
#include "agent/base/vec.h"
#include "agent/recording/session_chunks.h"

#define SAMPLE	     1024 /* value2 of one */
#define HOUR_MINUTES 60u

enum { WHOLE_SAMPLES = 1, VALUES_FOLLOW = 2, FLAGS = 3 };
#define MANY_MINUTES 8u /* of a key: gaps between so many are another distribution */

/* The columns that hold most of an hour's bytes. BRIEF: minutes of the attributes that are in one
 * minute only, RANKS: of a pair's first key, RANK_STEPS: of its other keys, MINUTES: the first
 * minute of a key, STEPS: the same as a step from that of the key before, GAPS: from one minute of
 * a key to the next, MANY_GAPS: of keys with many minutes. */
enum {
	PAIRS,
	COUNTS,
	VALUES2,
	VALUES,
	ATTRS,
	BRIEF,
	RANKS,
	RANK_STEPS,
	MINUTES,
	STEPS,
	GAPS,
	MANY_GAPS,
	COLUMNS
};

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

/* Pairs are numbered as they come: of those that are new in this hour the first minutes hardly
 * change from key to key. The key from which on steps take less than minutes (some 6 bits; a step 1
 * or 8). */
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

/* ---- attributes ------------------------------------------------------------------------------ */

/* Those of threads that come and go are in one minute only: they follow the others, by their
 * minute, and are told by their place in it. */
struct used { /* an attribute */
	uint32_t attr;
	uint8_t first, last; /* minutes */
};
VEC_DEFINE(used, struct used);

static bool is_brief(const struct used *used)
{
	return used->first == used->last;
}

static int by_length(const void *a, const void *b)
{
	const struct used *x = a, *y = b;

	if (is_brief(x) != is_brief(y))
		return is_brief(x) ? 1 : -1;
	if (is_brief(x) && x->first != y->first)
		return x->first < y->first ? -1 : 1;
	return x->attr < y->attr ? -1 : x->attr > y->attr;
}

static int find_used(const struct chunk_hour_sum *sums, size_t count, struct used_vec *ret,
		     struct u64map *places)
{
	int rc = 0;

	for (size_t i = 0; i < count && rc == 0; i++) {
		const uint8_t minute = (uint8_t)sums[i].minute;
		uint64_t at = ret->count;
		struct used *used;

		if (!u64map_get(places, sums[i].sum.attr, &at)) {
			rc = used_vec_push(ret, (struct used){ sums[i].sum.attr, minute, minute });
			if (rc == 0)
				rc = u64map_put(places, sums[i].sum.attr, at);
			if (rc < 0)
				break;
		}
		used = &ret->data[at];
		used->first = minute < used->first ? minute : used->first;
		used->last = minute > used->last ? minute : used->last;
	}
	return rc;
}

/* @ret: attribute -> by what it is told. */
static int rank_attrs(const struct chunk_hour_sum *sums, size_t count, struct buf columns[COLUMNS],
		      struct u64map *ret)
{
	__attribute__((__cleanup__(used_vec_deinit))) struct used_vec used = { 0 };
	int rc = find_used(sums, count, &used, ret);
	uint32_t before = 0, minute = 0;
	uint64_t rank = 0, lasting = 0;

	if (rc == 0 && used.count)
		qsort(used.data, used.count, sizeof(*used.data), by_length);
	for (size_t i = 0; i < used.count && rc == 0; i++) {
		const struct used *one = &used.data[i];

		buf_add_svarint(&columns[ATTRS], (int64_t)one->attr - before);
		before = one->attr;
		if (is_brief(one)) {
			rank = i > lasting && one->first == minute ? rank + 1 : lasting;
			buf_add_varint(&columns[BRIEF], one->first - minute);
			minute = one->first;
		} else {
			rank = lasting++;
		}
		rc = u64map_put(ret, one->attr, rank);
	}
	return rc;
}

/* ---- numbers that are mostly 1 ------------------------------------------------------------------
 */

/* For each that is not: how many ones before it << 1 | (it is not 2), then what it is if so: 0, or
 * itself - 2. At the end are ones. */
struct ones {
	struct bytes in;
	uint64_t run;	/* so many ones, */
	uint64_t value; /* then this */
	bool ends;	/* there is no such */
};

static void put_one(struct buf *out, uint64_t *run, uint64_t value)
{
	if (value == 1) {
		++*run;
		return;
	}
	buf_add_varint(out, *run << 1 | (value != 2));
	if (value != 2)
		buf_add_varint(out, value ? value - 2 : 0);
	*run = 0;
}

static void read_run(struct ones *ones)
{
	uint64_t head;

	ones->ends = !bytes_left(&ones->in);
	ones->run = UINT64_MAX;
	if (ones->ends)
		return;
	head = bytes_varint(&ones->in);
	ones->run = head >> 1;
	ones->value = head & 1 ? bytes_varint(&ones->in) : 0;
	if (!(head & 1) || ones->value)
		ones->value += 2;
}

static struct ones open_ones(struct bytes in)
{
	struct ones ones = { .in = in };

	read_run(&ones);
	return ones;
}

static uint64_t take_one(struct ones *ones)
{
	uint64_t value = ones->value;

	if (ones->run) {
		ones->run--;
		return 1;
	}
	read_run(ones);
	return value;
}

/* The sum of the next @count. */
static uint64_t take_ones(struct ones *ones, uint64_t count)
{
	uint64_t sum = 0;

	while (count) {
		uint64_t run = ones->run < count ? ones->run : count;

		ones->run -= run;
		sum += run;
		count -= run;
		if (count) {
			sum += take_one(ones);
			count--;
		}
	}
	return sum;
}

/* ---- encoding -------------------------------------------------------------------------------- */

static void encode_minutes(struct buf columns[COLUMNS], const struct chunk_hour_sum *sums,
			   size_t count, bool step, uint32_t before)
{
	if (step)
		buf_add_svarint(&columns[STEPS], (int64_t)sums[0].minute - before);
	else
		buf_add_varint(&columns[MINUTES], sums[0].minute);
	for (size_t i = 1; i < count; i++)
		buf_add_varint(&columns[count < MANY_MINUTES ? GAPS : MANY_GAPS],
			       sums[i].minute - sums[i - 1].minute - 1);
}

static void encode_keys(struct buf columns[COLUMNS], const struct chunk_hour_sum *sums,
			size_t count, const struct u64map *ranks, size_t steps_from)
{
	struct chunk_hour_sum before = { 0 };
	uint64_t rank = 0, rank_before = 0, single = 0;

	for (size_t i = 0, end, key = 0; i < count; i = end, key++) {
		for (end = i + 1; end < count && same_key(&sums[i], &sums[end]);)
			end++;
		(void)u64map_get(ranks, sums[i].sum.attr, &rank);
		buf_add_varint(&columns[PAIRS], sums[i].sum.pair - before.sum.pair);
		if (key && sums[i].sum.pair == before.sum.pair)
			buf_add_svarint(&columns[RANK_STEPS], (int64_t)(rank - rank_before));
		else
			buf_add_varint(&columns[RANKS], rank);
		put_one(&columns[COUNTS], &single, end - i);
		encode_minutes(columns, &sums[i], end - i, key >= steps_from, before.minute);
		before = sums[i];
		rank_before = rank;
	}
}

void chunk_encode_hour(struct buf *out, struct chunk_hour_sum *sums, size_t count,
		       struct chunk_parts *parts)
{
	__attribute__((__cleanup__(u64map_deinit))) struct u64map ranks = { 0 };
	struct buf columns[COLUMNS] = { 0 };
	uint64_t single = 0;
	size_t steps_from;
	unsigned flags;
	int64_t one;
	int rc;

	if (count)
		qsort(sums, count, sizeof(*sums), by_key);
	count = add_up(sums, count);
	flags = look(sums, count, &one);
	steps_from = first_new(sums, count);
	rc = rank_attrs(sums, count, columns, &ranks);
	if (rc < 0 && !out->error)
		out->error = rc;
	encode_keys(columns, sums, count, &ranks, steps_from);
	for (size_t i = 0; i < count; i++) {
		put_one(&columns[VALUES2], &single, sums[i].sum.value2 / (flags & WHOLE_SAMPLES ? SAMPLE : 1));
		if (!(flags & VALUES_FOLLOW))
			buf_add_svarint(&columns[VALUES], sums[i].sum.value);
	}
	buf_add_varint(out, flags);
	buf_add_svarint(out, one);
	buf_add_varint(out, steps_from);
	chunk_encode_columns(out, columns, COLUMNS, parts);
}

/* ---- decoding -------------------------------------------------------------------------------- */

struct decode {
	struct bytes columns[COLUMNS];
	struct ones counts, values2;
	unsigned flags;
	uint64_t one;
	uint64_t steps_from; /* key */
	uint64_t first, rank; /* of the key before */
	uint32_t *attrs;     /* owned */
	size_t attr_count, lasting; /* the first are those that are told by their place among all */
	size_t brief[HOUR_MINUTES +
		     1]; /* by minute: the first of those that are told by their place in it */
	uint32_t from, to;
	chunk_hour_fn *visit;
	void *ctx;
};

static void decode_deinit(struct decode *d)
{
	free(d->attrs);
}

static int open_columns(const void *data, size_t len, unsigned needed, struct decode *d)
{
	struct bytes in = bytes_of(data, len);

	d->flags = (unsigned)bytes_varint(&in);
	d->one = (uint64_t)bytes_svarint(&in);
	d->steps_from = bytes_varint(&in);
	if (d->flags > FLAGS || chunk_decode_columns(&in, d->columns, COLUMNS, needed) < 0)
		return -EPROTO;
	d->counts = open_ones(d->columns[COUNTS]);
	d->values2 = open_ones(d->columns[VALUES2]);
	return 0;
}

static int open_attrs(struct decode *d)
{
	struct bytes *in = &d->columns[ATTRS], *brief = &d->columns[BRIEF];
	uint64_t minute = 0;
	uint32_t attr = 0;

	d->attrs = malloc((bytes_left(in) + 1) * sizeof(*d->attrs));
	if (!d->attrs)
		return -ENOMEM;
	while (bytes_left(in))
		d->attrs[d->attr_count++] = attr += (uint32_t)bytes_svarint(in);
	while (bytes_left(brief)) {
		minute += bytes_varint(brief);
		if (minute >= HOUR_MINUTES)
			return -EPROTO;
		d->brief[minute + 1]++;
	}
	for (size_t i = 0; i < HOUR_MINUTES; i++)
		d->brief[i + 1] += d->brief[i];
	if (in->failed || brief->failed || d->brief[HOUR_MINUTES] > d->attr_count)
		return -EPROTO;
	d->lasting = d->attr_count - d->brief[HOUR_MINUTES];
	return 0;
}

static bool find_attr(const struct decode *d, uint64_t rank, uint64_t minute, uint32_t *ret)
{
	if (rank >= d->lasting) {
		if (rank - d->lasting >= d->brief[minute + 1] - d->brief[minute])
			return false;
		rank += d->brief[minute];
	}
	*ret = d->attrs[rank];
	return true;
}

static bool is_spent(struct decode *d, unsigned columns)
{
	d->columns[COUNTS] = d->counts.in;
	d->columns[VALUES2] = d->values2.in;
	for (unsigned i = 0; i < columns; i++)
		if (d->columns[i].failed || bytes_left(&d->columns[i]))
			return false;
	return d->counts.ends && d->values2.ends;
}

static void take_sum(struct decode *d, struct chunk_sum *sum)
{
	sum->value2 = take_one(&d->values2);
	if (d->flags & VALUES_FOLLOW)
		sum->value = (int64_t)((d->flags & WHOLE_SAMPLES ? sum->value2 : sum->value2 / SAMPLE) *
				       d->one);
	else
		sum->value = bytes_svarint(&d->columns[VALUES]);
	if (d->flags & WHOLE_SAMPLES)
		sum->value2 *= SAMPLE;
}

/* The minutes of one pair and attr. */
static int take_key(struct decode *d, uint32_t pair, bool same_pair, bool step)
{
	uint64_t rank = same_pair ? d->rank + (uint64_t)bytes_svarint(&d->columns[RANK_STEPS])
				  : bytes_varint(&d->columns[RANKS]);
	uint64_t count = take_one(&d->counts);
	uint64_t minute = step ? d->first + (uint64_t)bytes_svarint(&d->columns[STEPS])
			       : bytes_varint(&d->columns[MINUTES]);
	struct chunk_hour_sum one = { .sum = { .pair = pair } };
	int rc = 0;

	d->first = minute;
	d->rank = rank;
	if (!count || count > HOUR_MINUTES || minute >= HOUR_MINUTES ||
	    !find_attr(d, rank, minute, &one.sum.attr))
		return -EPROTO;
	for (uint64_t i = 0; i < count && rc == 0; i++) {
		if (i)
			minute += bytes_varint(&d->columns[count < MANY_MINUTES ? GAPS : MANY_GAPS]) + 1;
		take_sum(d, &one.sum);
		if (minute >= HOUR_MINUTES)
			return -EPROTO;
		one.minute = (uint32_t)minute;
		if (minute >= d->from && minute < d->to)
			rc = d->visit(d->ctx, &one);
	}
	return rc;
}

int chunk_decode_hour(const void *data, size_t len, uint32_t from, uint32_t to,
		      chunk_hour_fn *visit, void *ctx)
{
	__attribute__((__cleanup__(decode_deinit))) struct decode d = {
		.from = from, .to = to, .visit = visit, .ctx = ctx
	};
	uint64_t pair = 0, key = 0;
	int rc = open_columns(data, len, COLUMNS, &d);

	if (rc == 0)
		rc = open_attrs(&d);
	for (; rc == 0 && bytes_left(&d.columns[PAIRS]); key++) {
		uint64_t step = bytes_varint(&d.columns[PAIRS]);

		pair += step;
		rc = pair > UINT32_MAX
			     ? -EPROTO
			     : take_key(&d, (uint32_t)pair, key && !step, key >= d.steps_from);
	}
	return rc < 0 ? rc : is_spent(&d, COLUMNS) ? 0 : -EPROTO;
}

static void take_all(struct decode *d, uint64_t count, struct chunk_pair_sum *to)
{
	for (uint64_t i = 0; i < count; i++) {
		struct chunk_sum one;

		take_sum(d, &one);
		to->value = (int64_t)((uint64_t)to->value + (uint64_t)one.value);
		to->value2 += one.value2;
	}
}

/* Values that follow from the samples are a multiplication, and of all minutes nobody asks which
 * they were. */
int chunk_add_hour_pairs(const void *data, size_t len, struct chunk_pair_sum *sums, size_t count)
{
	__attribute__((__cleanup__(decode_deinit))) struct decode d = { 0 };
	int rc = open_columns(data, len, VALUES + 1, &d);
	const bool follow = d.flags == (WHOLE_SAMPLES | VALUES_FOLLOW);
	/* Copies that nobody else sees stay in registers. */
	struct bytes pairs = d.columns[PAIRS];
	struct ones counts = d.counts, values2 = d.values2;

	for (uint64_t pair = 0; rc == 0 && bytes_left(&pairs);) {
		uint64_t step = bytes_varint(&pairs), minutes = take_one(&counts);
		struct chunk_pair_sum *to;

		pair += step;
		if (step >= count || pair >= count || minutes > HOUR_MINUTES)
			return -EPROTO;
		to = &sums[pair];
		if (follow) {
			uint64_t samples = take_ones(&values2, minutes);

			to->value = (int64_t)((uint64_t)to->value + samples * d.one);
			to->value2 += samples * SAMPLE;
		} else {
			take_all(&d, minutes, to);
		}
	}
	if (follow)
		d.values2 = values2;
	d.columns[PAIRS] = pairs;
	d.counts = counts;
	return rc < 0 ? rc : is_spent(&d, VALUES + 1) ? 0 : -EPROTO;
}

size_t chunk_hour_pairs_need(const void *data, size_t len)
{
	struct bytes in = bytes_of(data, len);
	uint64_t need = 0;

	for (unsigned i = 0; i < 3; i++) /* flags, value of a sample, key */
		(void)bytes_varint(&in);
	for (unsigned i = 0; i < COLUMNS; i++) {
		uint64_t column = bytes_varint(&in);

		if (i <= VALUES && __builtin_add_overflow(need, column, &need))
			return SIZE_MAX;
	}
	return in.failed || __builtin_add_overflow(need, len - bytes_left(&in), &need) ? SIZE_MAX : need;
}
