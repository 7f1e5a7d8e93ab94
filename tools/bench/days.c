// SPDX-License-Identifier: Apache-2.0
/* Days from a record: days SOURCE TARGET COUNT THIN [SERVICE]. Reads the one day file below SOURCE
 * (a data folder), which was recorded at THIN times the rate of the days: each of its minutes is
 * THIN of theirs, among which its samples are spread at random. Fills the COUNT days before today
 * of TARGET with these over and over, rolled up hour by hour as the daemon does. A stack that was
 * seen in one minute of the record only is, when its minute comes again, a stack that was never
 * seen before, as often as the record says that samples hit such: distinct stacks after n samples
 * grow as k * n^b, k and b from the first half of the record and the whole. Else it is one of those
 * that were seen once. Fresh stacks share as many outer frames with others as their model does.
 * Then they go on by calls that others have, too, or by new ones, as often as the record's stacks
 * do beyond what they share. Processes that lived in one minute of the record are new ones each
 * time. Prints for each series: samples of the record, of a day, distinct stacks, b, and last the
 * share of calls that are known. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/base/u64map.h"
#include "agent/base/vec.h"
#include "agent/recording/chunk_decode.h"
#include "agent/recording/roll_up.h"
#include "agent/recording/session_chunks.h"

#define MINUTE_NS  (60 * NS_PER_S)
#define DAY_NS	   (86400 * NS_PER_S)
#define RETENTION  30u
#define SAMPLE	   1024u
#define PARTS	   6u /* flushes a minute */
#define PID_FIRST  300u /* where the kernel begins again */
#define PID_MAX	   4194304u

struct stack {
	uint16_t count, shared; /* outer frames that others have, too */
	uint8_t outcome;
	uint64_t *frames; /* leaf first */
};
struct process {
	struct chunk_process p;
	char *texts[6];
};
struct piece {
	enum store_chunk_kind kind;
	void *data;
	size_t len;
};
struct use { /* of a pair or an attribute */
	uint32_t minutes, last_minute;
};
struct series;
struct window {
	struct series *series;
	uint32_t minute; /* of those that the record is spread over */
	struct store_window row;
	struct chunk_sum *sums;
	size_t count;
};
struct fresh_pair {
	struct chunk_stack stack; /* frames are those of b.fresh */
	uint32_t part;		  /* of the minute: the flush it came with */
	uint32_t pair;
};
struct made { /* of a row: not yet encoded */
	struct chunk_sum *sums;
	size_t count;
};

struct call {
	uint64_t from, to; /* frames */
	uint32_t stack;
};

VEC_DEFINE(calls, struct call);
VEC_DEFINE(stacks, struct stack);
VEC_DEFINE(processes, struct process);
VEC_DEFINE(pieces, struct piece);
VEC_DEFINE(pairs, struct chunk_pair);
VEC_DEFINE(attrs, struct chunk_attr);
VEC_DEFINE(windows, struct window);
VEC_DEFINE(sums, struct chunk_sum);
VEC_DEFINE(numbers, uint32_t);
VEC_DEFINE(uses, struct use);
VEC_DEFINE(fresh, struct chunk_stack);
VEC_DEFINE(fresh_pairs, struct fresh_pair);
VEC_DEFINE(made, struct made);
VEC_DEFINE(rows, struct store_window);

struct series {
	struct series *next;
	char *service, *type, *owners;
	uint64_t samples, rare_samples;
	double k, b;
	struct numbers_vec rare; /* pairs of the record, and those made for the day */
	size_t rare_recorded;
	double seen; /* samples so far */
};

static struct {
	struct store *source, *target;
	const char *service;
	struct store_day day;
	struct pieces_vec pieces;
	struct stacks_vec stacks;
	struct u64map stack_at;
	struct processes_vec processes;
	struct pairs_vec pairs;
	struct attrs_vec attrs;
	struct uses_vec pair_uses, attr_uses;
	struct windows_vec windows;
	struct series *series;
	uint64_t first_ns;
	uint32_t minutes; /* that the record is spread over */
	uint32_t thin;
	int64_t one; /* value of a sample */
	struct calls_vec calls; /* of all stacks, sorted */
	double known_calls; /* share */
	size_t recorded_pairs, recorded_attrs, recorded_processes;
	uint32_t pid, pids_between; /* of the last thread that came and went, and from one to the next */
	uint64_t clock_ns, between_ns; /* likewise, when a process began */
	/* of the day that is being written */
	struct fresh_vec fresh; /* stacks of this hour */
	struct rows_vec rows;	/* its windows, whose data is owned */
	struct made_vec made;	/* of this minute: the last rows */
	struct fresh_pairs_vec fresh_pairs; /* of this minute */
	size_t pairs_out, attrs_out, processes_out; /* so many are written */
	struct u64map new_attr; /* attribute of the record -> its copy, of this minute */
	uint32_t seq;
} b;

static uint64_t random_state = 1;

static double uniform(void)
{
	random_state += 0x9e3779b97f4a7c15ull;
	return (double)(hash_mix64(random_state) >> 11) * 0x1p-53;
}

static size_t below(size_t n)
{
	return (size_t)(uniform() * (double)n);
}

static void must(int rc, const char *what, const struct err *err)
{
	if (rc >= 0)
		return;
	(void)fprintf(stderr, "days: %s: %s\n", what, err && err->text[0] ? err->text : strerror(-rc));
	exit(1);
}

/* ---- reading the record ---------------------------------------------------------------------- */

static int on_stack(void *ctx, const struct chunk_stack *s)
{
	struct stack stack = { .count = s->frame_count, .outcome = s->outcome,
			       .frames = malloc((s->frame_count + 1u) * sizeof(uint64_t)) };

	memcpy(stack.frames, s->frames, s->frame_count * sizeof(uint64_t));
	must(u64map_put(&b.stack_at, s->id, b.stacks.count), "stack", NULL);
	return stacks_vec_push(&b.stacks, stack);
}

static int on_process(void *ctx, const struct chunk_process *p)
{
	struct process process = { .p = *p };
	struct chunk_text *texts[] = { &process.p.comm, &process.p.exe, &process.p.cmdline,
				       &process.p.service, &process.p.unit, &process.p.container };

	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		process.texts[i] = strndup(texts[i]->text, texts[i]->len);
		texts[i]->text = process.texts[i];
	}
	return processes_vec_push(&b.processes, process);
}

static int on_pair(void *ctx, uint32_t id, const struct chunk_pair *pair)
{
	must(uses_vec_push(&b.pair_uses, (struct use){ 0, UINT32_MAX }), "pair", NULL);
	return pairs_vec_push(&b.pairs, *pair);
}

static int on_attr(void *ctx, uint32_t id, const struct chunk_attr *attr)
{
	must(uses_vec_push(&b.attr_uses, (struct use){ 0, UINT32_MAX }), "attribute", NULL);
	return attrs_vec_push(&b.attrs, *attr);
}

static int on_piece(void *ctx, const struct store_chunk *chunk)
{
	const struct chunk_sink sink = { .stack = on_stack, .process = on_process, .pair = on_pair,
					 .attr = on_attr };
	struct piece piece = { chunk->kind, malloc(chunk->len + 1), chunk->len };

	memcpy(piece.data, chunk->data, chunk->len);
	must(pieces_vec_push(&b.pieces, piece), "dictionary", NULL);
	return chunk_decode(chunk->kind, chunk->data, chunk->len, &sink);
}

static struct series *series_of(const struct store_window *row)
{
	struct series *s;

	for (s = b.series; s; s = s->next)
		if (strcmp(s->service, row->service) == 0 && strcmp(s->type, row->type) == 0 &&
		    strcmp(s->owners, row->owners) == 0)
			return s;
	s = calloc(1, sizeof(*s));
	s->service = strdup(row->service);
	s->type = strdup(row->type);
	s->owners = strdup(row->owners);
	s->next = b.series;
	return b.series = s;
}

/* Adds @samples of @from to minute @to. Each is worth the same, as where a rate stays what it is.
 */
static void spread(struct sums_vec *to, const struct chunk_sum *from, uint64_t samples)
{
	if (!b.one)
		b.one = from->value / (int64_t)(from->value2 / SAMPLE);
	must(sums_vec_push(to, (struct chunk_sum){ from->pair, from->attr, b.one * (int64_t)samples,
						   samples * SAMPLE }),
	     "sum", NULL);
}

static int on_sum(void *ctx, const struct chunk_sum *sum)
{
	cleanup_free uint64_t *counts = calloc(b.thin, sizeof(*counts));
	struct sums_vec *minutes = ctx;

	for (uint64_t i = 0; i < sum->value2 / SAMPLE; i++)
		counts[below(b.thin)]++;
	for (uint32_t i = 0; i < b.thin; i++)
		if (counts[i])
			spread(&minutes[i], sum, counts[i]);
	return 0;
}

static int on_window(void *ctx, const struct store_window *row)
{
	cleanup_free struct sums_vec *minutes = calloc(b.thin, sizeof(*minutes));
	struct window window = { .row = *row };

	if (b.service && strcmp(row->service, b.service) != 0)
		return 0;
	if (row->minute_count)
		must(-EINVAL, "the record is rolled up", NULL);
	if (!b.first_ns)
		b.first_ns = row->from_ns;
	window.series = series_of(row);
	must(chunk_decode_window(row->data, row->len, on_sum, minutes), "window", NULL);
	for (uint32_t i = 0; i < b.thin; i++) {
		window.minute = (uint32_t)((row->from_ns - b.first_ns) / MINUTE_NS) * b.thin + i;
		window.sums = minutes[i].data;
		window.count = minutes[i].count;
		window.row.samples = window.row.lost = 0;
		window.row.value = 0;
		window.row.profiled_ms = MINUTE_NS / NS_PER_MS;
		for (size_t j = 0; j < window.count; j++) {
			window.row.samples += window.sums[j].value2 / SAMPLE;
			window.row.value += window.sums[j].value;
		}
		if (window.minute >= b.minutes)
			b.minutes = window.minute + 1;
		must(windows_vec_push(&b.windows, window), "window", NULL);
	}
	return 0;
}

static int keep_day(void *ctx, const struct store_day *day, uint64_t bytes)
{
	b.day = *day;
	return 0;
}

static void note_use(struct use *use, uint32_t minute)
{
	use->minutes += use->last_minute != minute;
	use->last_minute = minute;
}

/* Distinct pairs after each half of the record, from them k and b. */
static void look_at(struct series *s)
{
	struct u64map seen = { 0 };
	double samples = 0, half_samples = 0, half_distinct = 1;

	for (size_t i = 0; i < b.windows.count; i++) {
		const struct window *w = &b.windows.data[i];

		if (w->series != s)
			continue;
		for (size_t j = 0; j < w->count; j++) {
			uint32_t pair = w->sums[j].pair;

			must(u64map_put(&seen, pair, 1), "map", NULL);
			samples += (double)w->sums[j].value2 / SAMPLE;
			if (b.pair_uses.data[pair].minutes > 1)
				continue;
			s->rare_samples += w->sums[j].value2 / SAMPLE;
			must(numbers_vec_push(&s->rare, pair), "list", NULL);
		}
		if (w->minute < b.minutes / 2) {
			half_samples = samples;
			half_distinct = (double)seen.count;
		}
	}
	s->samples = (uint64_t)samples;
	s->rare_recorded = s->rare.count;
	s->b = half_samples > 0 && samples > half_samples
		       ? log((double)seen.count / half_distinct) / log(samples / half_samples)
		       : 1;
	s->b = s->b > 1 ? 1 : s->b < 0 ? 0 : s->b;
	s->k = samples > 0 ? (double)seen.count / pow(samples, s->b) : 0;
	u64map_deinit(&seen);
}

static int by_frames(const void *a, const void *c)
{
	const struct stack *x = *(struct stack *const *)a, *y = *(struct stack *const *)c;

	for (uint16_t i = 0; i < x->count && i < y->count; i++) {
		uint64_t p = x->frames[x->count - 1 - i], q = y->frames[y->count - 1 - i];

		if (p != q)
			return p < q ? -1 : 1;
	}
	return (int)x->count - y->count;
}

static uint16_t common(const struct stack *x, const struct stack *y)
{
	uint16_t i = 0;

	while (i < x->count && i < y->count && x->frames[x->count - 1 - i] == y->frames[y->count - 1 - i])
		i++;
	return i;
}

static void find_shared(void)
{
	struct stack **order = calloc(b.stacks.count + 1, sizeof(struct stack *));

	for (size_t i = 0; i < b.stacks.count; i++)
		order[i] = &b.stacks.data[i];
	qsort(order, b.stacks.count, sizeof(struct stack *), by_frames);
	for (size_t i = 1; i < b.stacks.count; i++) {
		uint16_t n = common(order[i - 1], order[i]);

		order[i]->shared = n;
		if (n > order[i - 1]->shared)
			order[i - 1]->shared = n;
	}
	free(order);
}

static int by_call(const void *a, const void *c)
{
	const struct call *x = a, *y = c;

	if (x->from != y->from)
		return x->from < y->from ? -1 : 1;
	if (x->to != y->to)
		return x->to < y->to ? -1 : 1;
	return x->stack < y->stack ? -1 : x->stack > y->stack;
}

/* The first call that is not less. */
static size_t find_call(struct call call)
{
	size_t low = 0, high = b.calls.count;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (by_call(&b.calls.data[middle], &call) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool is_call(size_t at, uint64_t from, uint64_t to)
{
	return at < b.calls.count && b.calls.data[at].from == from && b.calls.data[at].to == to;
}

/* A stack other than @stack has it. */
static bool is_known_call(uint32_t stack, uint64_t from, uint64_t to)
{
	return b.calls.data[find_call((struct call){ from, to, 0 })].stack != stack ||
	       is_call(find_call((struct call){ from, to, stack + 1 }), from, to);
}

/* Finds the calls between frames. Counts how many calls of a stack, beyond the shared prefix, other
 * stacks have too. */
static void find_calls(void)
{
	uint64_t own = 0, known = 0;

	for (size_t i = 0; i < b.stacks.count; i++)
		for (uint16_t j = 1; j < b.stacks.data[i].count; j++)
			must(calls_vec_push(&b.calls, (struct call){ b.stacks.data[i].frames[j],
								     b.stacks.data[i].frames[j - 1], (uint32_t)i }),
			     "call", NULL);
	if (b.calls.count)
		qsort(b.calls.data, b.calls.count, sizeof(*b.calls.data), by_call);
	for (size_t i = 0; i < b.stacks.count; i++) {
		const struct stack *s = &b.stacks.data[i];

		for (uint16_t j = 1; j < s->count && j <= s->count - s->shared; j++, own++)
			known += is_known_call((uint32_t)i, s->frames[j], s->frames[j - 1]);
	}
	b.known_calls = own ? (double)known / (double)own : 1;
}

/* How many pids and how much time of the day there are from one thread or process that came and
 * went to the next. */
static void find_pids(void)
{
	uint32_t first = PID_MAX, last = 0, threads = 1, processes = 1;

	for (size_t i = 0; i < b.attrs.count; i++) {
		const struct chunk_process *p = &b.processes.data[b.attrs.data[i].process].p;
		uint32_t tid = b.attrs.data[i].tid;

		if (b.attr_uses.data[i].minutes > 1 || !tid)
			continue;
		first = tid < first ? tid : first;
		last = tid > last ? tid : last;
		threads++;
		processes += p->tgid == tid;
	}
	b.pids_between = last > first ? (last - first) / threads + 1 : 1;
	b.between_ns = b.minutes * MINUTE_NS / processes;
}

static void read_record(void)
{
	struct store_window_query all = { .with_data = true };
	struct err err = { 0 };

	must(store_history_days(b.source, false, keep_day, NULL, &err), "days", &err);
	must(store_history_dictionary(b.source, &b.day, on_piece, NULL, NULL, &err), "dictionary", &err);
	must(store_history_windows(b.source, &b.day, &all, on_window, NULL, NULL, &err), "windows", &err);
	for (size_t i = 0; i < b.windows.count; i++) {
		const struct window *w = &b.windows.data[i];

		for (size_t j = 0; j < w->count; j++) {
			note_use(&b.pair_uses.data[w->sums[j].pair], w->minute);
			note_use(&b.attr_uses.data[w->sums[j].attr], w->minute / b.thin);
		}
	}
	find_shared();
	find_calls();
	find_pids();
	for (struct series *s = b.series; s; s = s->next)
		look_at(s);
	b.recorded_pairs = b.pairs.count;
	b.recorded_attrs = b.attrs.count;
	b.recorded_processes = b.processes.count;
}

/* ---- fresh stacks and processes -------------------------------------------------------------- */

static uint64_t frame_of_any(void)
{
	const struct stack *other = &b.stacks.data[below(b.stacks.count)];

	return other->count ? other->frames[below(other->count)] : 0;
}

/* A call of @from, drawn as often as the recorded stacks have it. */
static uint64_t call_from(uint64_t from)
{
	size_t first = find_call((struct call){ from, 0, 0 }),
	       end = find_call((struct call){ from, UINT64_MAX, UINT32_MAX });

	return first < end && uniform() < b.known_calls
		       ? b.calls.data[first + below(end - first)].to
		       : frame_of_any();
}

/* As @model as far as it shares frames with others. */
static uint64_t make_stack(const struct stack *model)
{
	uint64_t *frames = malloc((model->count + 1u) * sizeof(*frames));
	struct chunk_stack stack = { hash_mix64(random_state), model->outcome, model->count, frames };

	memcpy(frames, model->frames, model->count * sizeof(*frames));
	for (int i = model->count - model->shared - 1; i >= 0; i--)
		frames[i] = i + 1 < model->count ? call_from(frames[i + 1]) : frame_of_any();
	must(fresh_vec_push(&b.fresh, stack), "stack", NULL);
	return stack.id;
}

static uint32_t make_pair(uint32_t model)
{
	struct fresh_pair fresh = { .part = (uint32_t)below(PARTS), .pair = (uint32_t)b.pairs.count };
	struct chunk_pair pair = b.pairs.data[model];
	uint64_t at;

	if (u64map_get(&b.stack_at, pair.user ? pair.user : pair.kernel, &at)) {
		uint64_t id = make_stack(&b.stacks.data[at]);

		fresh.stack = b.fresh.data[b.fresh.count - 1];

		if (pair.user)
			pair.user = id;
		else
			pair.kernel = id;
	}
	must(pairs_vec_push(&b.pairs, pair), "pair", NULL);
	must(fresh_pairs_vec_push(&b.fresh_pairs, fresh), "pair", NULL);
	return fresh.pair;
}

static uint32_t pair_for(struct series *s, const struct chunk_sum *sum)
{
	double rate = s->k * s->b * pow(s->seen + 1, s->b - 1), rare;
	uint32_t model;

	s->seen += (double)sum->value2 / SAMPLE;
	if (b.pair_uses.data[sum->pair].minutes > 1)
		return sum->pair;
	rare = (double)s->rare_samples / (double)s->samples;
	if (uniform() >= rate / rare)
		return s->rare.data[below(s->rare.count)];
	model = s->rare.data[below(s->rare_recorded)];
	must(numbers_vec_push(&s->rare, make_pair(model)), "list", NULL);
	return s->rare.data[s->rare.count - 1];
}

static uint32_t attr_for(uint32_t recorded)
{
	struct chunk_attr attr = b.attrs.data[recorded];
	struct process process = b.processes.data[attr.process];
	uint64_t at;

	if (b.attr_uses.data[recorded].minutes > 1)
		return recorded;
	if (u64map_get(&b.new_attr, recorded, &at))
		return (uint32_t)at;
	/* A thread that came and went, in a process of its own if that did, too: one after the
	 * other, as often as in the record. */
	b.pid = PID_FIRST + (b.pid + (uint32_t)below(2 * b.pids_between) + 1) % (PID_MAX - PID_FIRST);
	attr.tid = b.pid;
	if (process.p.tgid == b.attrs.data[recorded].tid) {
		uint64_t later_ns;

		b.clock_ns += (uint64_t)(uniform() * 2 * (double)b.between_ns);
		later_ns = (b.clock_ns - process.p.started_at_ns) / NS_PER_MS * NS_PER_MS;
		process.p.id = (uint32_t)b.processes.count;
		process.p.tgid = attr.tid;
		process.p.start_boottime_ns += later_ns;
		process.p.started_at_ns += later_ns;
		attr.process = process.p.id;
		must(processes_vec_push(&b.processes, process), "process", NULL);
	}
	must(attrs_vec_push(&b.attrs, attr), "attribute", NULL);
	must(u64map_put(&b.new_attr, recorded, b.attrs.count - 1), "map", NULL);
	return (uint32_t)b.attrs.count - 1;
}

/* ---- writing days ---------------------------------------------------------------------------- */

/* Its windows, and what is new since the hour before. */
static void write_hour(const struct store_day *day)
{
	struct chunk_samples samples = { .seq = ++b.seq,
					 .first_pair = (uint32_t)b.pairs_out,
					 .pair_count = (uint32_t)(b.pairs.count - b.pairs_out),
					 .pairs = b.pairs.data + b.pairs_out,
					 .first_attr = (uint32_t)b.attrs_out,
					 .attr_count = (uint32_t)(b.attrs.count - b.attrs_out),
					 .attrs = b.attrs.data + b.attrs_out };
	struct buf data[3] = { 0 };
	struct store_chunk chunks[3] = { { .kind = STORE_CHUNK_PROCESSES }, { .kind = STORE_CHUNK_STACKS },
					 { .kind = STORE_CHUNK_SAMPLES } };
	struct err err = { 0 };

	buf_add_varint(&data[0], b.processes.count - b.processes_out);
	for (; b.processes_out < b.processes.count; b.processes_out++)
		chunk_encode_process(&data[0], &b.processes.data[b.processes_out].p);
	chunk_encode_stacks(&data[1], b.fresh.data, b.fresh.count);
	chunk_encode_samples(&data[2], &samples);
	for (int i = 0; i < 3; i++) {
		chunks[i].data = data[i].data;
		chunks[i].len = data[i].len;
	}
	must(store_history_append(b.target, day, chunks, 3, b.rows.data, b.rows.count, 1, 1, &err),
	     "hour", &err);
	for (; b.rows.count; b.rows.count--)
		free((void *)(uintptr_t)b.rows.data[b.rows.count - 1].data);
	for (int i = 0; i < 3; i++)
		buf_deinit(&data[i]);
	for (; b.fresh.count; b.fresh.count--)
		free((void *)(uintptr_t)b.fresh.data[b.fresh.count - 1].frames);
	b.pairs_out = b.pairs.count;
	b.attrs_out = b.attrs.count;
}

static void make_window(const struct window *model, uint64_t at_ns)
{
	struct store_window row = model->row;
	struct chunk_sum *sums = calloc(model->count + 1, sizeof(*sums));

	for (size_t i = 0; i < model->count; i++) {
		sums[i] = model->sums[i];
		sums[i].pair = pair_for(model->series, &model->sums[i]);
		sums[i].attr = attr_for(model->sums[i].attr);
	}
	row.service = model->series->service;
	row.type = model->series->type;
	row.owners = model->series->owners;
	row.from_ns = at_ns;
	row.whole = false;
	must(rows_vec_push(&b.rows, row), "window", NULL);
	must(made_vec_push(&b.made, (struct made){ sums, model->count }), "window", NULL);
}

static int by_part_and_stack(const void *a, const void *c)
{
	const struct fresh_pair *x = a, *y = c;

	if (x->part != y->part)
		return x->part < y->part ? -1 : 1;
	return chunk_compare_stacks(&x->stack, &y->stack);
}

/* Numbers the minute's fresh pairs as the daemon does (recorder_order_pairs()); they begin at
 * @first. */
static void order_pairs(uint32_t first, uint32_t *moved)
{
	size_t count = b.fresh_pairs.count;
	struct chunk_pair *before = calloc(count + 1, sizeof(*before));

	memcpy(before, b.pairs.data + first, count * sizeof(*before));
	if (count)
		qsort(b.fresh_pairs.data, count, sizeof(*b.fresh_pairs.data), by_part_and_stack);
	for (uint32_t i = 0; i < count; i++) {
		uint32_t from = b.fresh_pairs.data[i].pair - first;

		b.pairs.data[first + i] = before[from];
		moved[from] = first + i;
	}
	for (struct series *s = b.series; s; s = s->next)
		for (size_t i = s->rare.count; i-- > 0 && s->rare.data[i] >= first;)
			s->rare.data[i] = moved[s->rare.data[i] - first];
	b.fresh_pairs.count = 0;
	free(before);
}

static void end_minute(uint32_t first)
{
	uint32_t *moved = calloc(b.pairs.count - first + 1, sizeof(*moved));
	struct store_window *row = b.rows.data + (b.rows.count - b.made.count);

	order_pairs(first, moved);
	for (size_t i = 0; i < b.made.count; i++, row++) {
		struct made *made = &b.made.data[i];
		struct buf data = { 0 };

		for (size_t j = 0; j < made->count; j++)
			if (made->sums[j].pair >= first)
				made->sums[j].pair = moved[made->sums[j].pair - first];
		chunk_encode_window(&data, made->sums, made->count);
		row->data = buf_take(&data, &row->len);
		must(row->data ? 0 : -ENOMEM, "window", NULL);
		free(made->sums);
	}
	b.made.count = 0;
	free(moved);
}

static void begin_day(const struct store_day *day)
{
	struct err err = { 0 };

	b.pairs.count = b.pairs_out = b.recorded_pairs;
	b.attrs.count = b.attrs_out = b.recorded_attrs;
	b.processes.count = b.processes_out = b.recorded_processes;
	for (struct series *s = b.series; s; s = s->next) {
		s->seen = 0;
		s->rare.count = s->rare_recorded;
	}
	for (size_t i = 0; i < b.pieces.count; i++) {
		const struct store_chunk chunk = { b.pieces.data[i].kind, b.pieces.data[i].data,
						   b.pieces.data[i].len };

		must(store_history_append(b.target, day, &chunk, 1, NULL, 0, 1, 1, &err), "dictionary", &err);
	}
}

/* The first pass over the record shows what is known at its end, as if the day had begun with it.
 */
static void write_day(const struct store_day *day)
{
	uint64_t begin_ns = day->day * DAY_NS;
	struct err err = { 0 };

	begin_day(day);
	for (uint32_t minute = 0; minute < 1440; minute++) {
		uint32_t first = (uint32_t)b.pairs.count;

		if (b.clock_ns < begin_ns + minute * MINUTE_NS)
			b.clock_ns = begin_ns + minute * MINUTE_NS;
		u64map_clear(&b.new_attr);
		for (size_t i = 0; i < b.windows.count; i++)
			if (b.windows.data[i].minute == minute % b.minutes)
				make_window(&b.windows.data[i], begin_ns + minute * MINUTE_NS);
		end_minute(first);
		if (minute % 60 != 59)
			continue;
		write_hour(day);
		must(roll_up_hour(b.target, day, begin_ns + (minute - 59) * MINUTE_NS, &err), "rolling up", &err);
	}
	store_history_seal(b.target, day);
}

int main(int argc, char **argv)
{
	uint32_t count = argc > 4 ? (uint32_t)atoi(argv[3]) : 0;
	uint32_t today = (uint32_t)(clock_realtime_ns() / DAY_NS);
	struct err err = { 0 };

	b.thin = argc > 4 ? (uint32_t)atoi(argv[4]) : 0;
	if (!count || !b.thin) {
		(void)fprintf(stderr, "usage: days SOURCE TARGET COUNT THIN [SERVICE]\n");
		return 2;
	}
	b.service = argc > 5 ? argv[5] : NULL;
	must(store_open(argv[1], NULL, "", &b.source, &err), argv[1], &err);
	must(store_open(argv[2], NULL, "", &b.target, &err), argv[2], &err);
	read_record();
	for (uint32_t i = count; i; i--)
		write_day(&(struct store_day){ .day = today - i, .retention_days = RETENTION });
	for (struct series *s = b.series; s; s = s->next)
		(void)printf("%s %s %lu %.0f %zu %.3f\n", s->service, s->type, (unsigned long)s->samples,
			     s->seen, s->rare.count - s->rare_recorded, s->b);
	(void)printf("%.3f\n", b.known_calls);
	store_close(b.source);
	store_close(b.target);
	return 0;
}
