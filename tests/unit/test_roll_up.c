// SPDX-License-Identifier: Apache-2.0
/* Hours that are rolled up hold what their minutes held: the same sums of the same stacks, threads
 * and processes, the same totals of each minute; what comes late is added. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/base/u64map.h"
#include "agent/recording/chunk_decode.h"
#include "agent/recording/pair_places.h"
#include "agent/recording/roll_up.h"
#include "agent/recording/session_chunks.h"
#include "agent/session/ingest/recorder.h"
#include "agent/store/store.h"
#include "bpf/profiler.h"
#include "tests/support/live_stack.h"
#include "tests/support/store_fixture.h"

#define DAY	  20778u
#define START	  (DAY * 86400ull * NS_PER_S)
#define MINUTE	  (60 * NS_PER_S)
#define HOUR	  (3600 * NS_PER_S)
#define PERIOD	  52631579
#define GROUPS	  4u /* pieces of the dictionary */
#define STACKS	  150u
#define PAIRS	  200u /* of a group, likewise below */
#define PROCESSES 5u
#define ATTRS	  20u
#define MINUTES	  130u

static const struct store_day day = { .day = DAY, .retention_days = 7 };
static uint64_t random_state = 1;

static uint64_t draw(uint64_t below)
{
	random_state += 0x9e3779b97f4a7c15ull;
	return hash_mix64(random_state) % below;
}

/* ---- a day as it is recorded -------------------------------------------------------------------
 */

static void make_modules(struct buf *out, uint32_t group)
{
	static const uint8_t build_id[4] = { 1, 2, 3, 4 };
	char path[32];
	struct chunk_module module = { .id = group, .key = hash_mix64(group), .kind = 1,
				       .build_id = build_id, .build_id_len = 4 };

	(void)snprintf(path, sizeof(path), "/usr/lib/lib%u.so", group);
	module.path = chunk_text_of(path);
	chunk_encode_modules(out, &module, 1);
}

static void make_processes(struct buf *out, uint32_t group)
{
	buf_add_varint(out, PROCESSES);
	for (uint32_t i = 0; i < PROCESSES; i++) {
		const struct chunk_process p = {
			.id = group * PROCESSES + i,
			.tgid = 1000 + (uint32_t)draw(60000),
			.exec_generation = (uint32_t)draw(3),
			.start_boottime_ns = draw(1ull << 30) * NS_PER_MS,
			.started_at_ns = START + draw(HOUR / NS_PER_MS) * NS_PER_MS,
			.comm = chunk_text_of(i ? "worker" : "main"),
			.exe = chunk_text_of("/usr/bin/program"),
			.cmdline = chunk_text_of("program --with arguments"),
			.service = chunk_text_of(i % 2 ? "web" : "db"),
			.unit = chunk_text_of(""),
			.container = chunk_text_of(""),
		};

		chunk_encode_process(out, &p);
	}
}

static uint64_t stack_id(uint32_t group, uint32_t i)
{
	return hash_mix64(1 + group * STACKS + i);
}

/* Few ways at each level, so that stacks share their beginnings; some are as deep as stacks get;
 * every tenth is of another outcome. */
static void make_stacks(struct buf *out, uint32_t group)
{
	struct chunk_stack stacks[STACKS];
	static uint64_t frames[STACKS][FEED_FRAMES_MAX];

	for (uint32_t i = 0; i < STACKS; i++) {
		uint16_t count = (uint16_t)(i % 16 == 5 ? FEED_FRAMES_MAX - draw(20) : 1 + draw(20));

		for (uint16_t j = 0; j < count; j++)
			frames[i][j] = j % 7 == 6 ? prof_frame_address(PROF_FRAME_KERNEL, draw(5) << 40 | 77, 0)
						  : prof_frame_module((uint32_t)draw(group + 1), 4096 + draw(3),
								      PROF_FRAME_RETURN);
		stacks[i] = (struct chunk_stack){ stack_id(group, i), i % 10 == 0, count, frames[i] };
	}
	chunk_encode_stacks(out, stacks, STACKS - 1); /* one never came */
}

static void make_samples(struct buf *out, uint32_t group)
{
	struct chunk_pair pairs[PAIRS];
	struct chunk_attr attrs[ATTRS];
	const struct chunk_samples samples = { .seq = group, .first_pair = group * PAIRS,
					       .pair_count = PAIRS, .pairs = pairs,
					       .first_attr = group * ATTRS, .attr_count = ATTRS,
					       .attrs = attrs };

	for (uint32_t i = 0; i < PAIRS; i++) {
		uint32_t of = (uint32_t)draw(group + 1);

		pairs[i].user = i % 9 ? stack_id(of, (uint32_t)draw(STACKS)) : 0;
		pairs[i].kernel = i % 3 == 0 ? stack_id(of, (uint32_t)draw(STACKS)) : 0;
	}
	for (uint32_t i = 0; i < ATTRS; i++) {
		attrs[i] = (struct chunk_attr){ .process = (uint32_t)draw((group + 1) * PROCESSES),
						.tid = (uint32_t)draw(1 << 22), .type = (uint8_t)draw(2),
						.state = (uint8_t)draw(3), .detail = (uint8_t)draw(5),
						.holder = (uint32_t)draw(2) * 77,
						.object = draw(2) << 40 };
		strcpy(attrs[i].comm, draw(2) ? "worker" : "thread-1");
	}
	chunk_encode_samples(out, &samples);
}

static void append_group(struct store_fixture *f, uint32_t group)
{
	struct buf data[4] = { 0 };
	struct store_chunk chunks[4] = { { .kind = STORE_CHUNK_MODULES },
					 { .kind = STORE_CHUNK_PROCESSES },
					 { .kind = STORE_CHUNK_STACKS },
					 { .kind = STORE_CHUNK_SAMPLES } };
	struct err err = { 0 };

	make_modules(&data[0], group);
	make_processes(&data[1], group);
	make_stacks(&data[2], group);
	make_samples(&data[3], group);
	for (int i = 0; i < 4; i++) {
		chunks[i].data = data[i].data;
		chunks[i].len = data[i].len;
	}
	assert_int_equal(store_history_append(f->store, &day, chunks, 4, NULL, 0, 1, 1, &err), 0);
	for (int i = 0; i < 4; i++)
		buf_deinit(&data[i]);
}

/* One minute or a part; @weird: values that do not follow from the number of samples. */
static void append_minute(struct store_fixture *f, const char *service, const char *owners,
			  unsigned minute, bool whole, bool weird, uint32_t groups)
{
	struct store_window window = { .service = service, .type = weird ? "offcpu" : "cpu",
				       .owners = owners, .from_ns = START + minute * MINUTE,
				       .whole = whole, .profiled_ms = whole ? 60000 : 9000,
				       .lost = weird ? draw(3) : 0 };
	struct chunk_sum sums[100];
	cleanup_buf struct buf data = { 0 };
	struct err err = { 0 };

	for (size_t i = 0; i < ARRAY_SIZE(sums); i++) {
		uint64_t count = 1 + draw(4);

		sums[i] = (struct chunk_sum){ (uint32_t)draw(groups * PAIRS), (uint32_t)draw(groups * ATTRS),
					      weird ? (int64_t)draw(1ull << 40) : (int64_t)count * PERIOD,
					      weird ? draw(1ull << 30) : count * 1024 };
		window.samples += count;
		window.value += sums[i].value;
	}
	chunk_encode_window(&data, sums, ARRAY_SIZE(sums));
	window.data = data.data;
	window.len = data.len;
	assert_int_equal(store_history_append(f->store, &day, NULL, 0, &window, 1, 1, 1, &err), 0);
}

static void record_minute(struct store_fixture *f, unsigned minute, uint32_t groups)
{
	append_minute(f, "web", ",a:19,", minute, true, false, groups);
	append_minute(f, "web", ",a:19,b:99,", minute, true, true, groups);
	for (int part = 0; part < 3 && minute % 5 == 0; part++)
		append_minute(f, "db", ",a:19,", minute, false, false, groups);
}

/* ---- what is stored, whatever its form ---------------------------------------------------------
 */

/* Sums weighted by a hash of what they are: equal if the same is there, however it is cut. */
struct digest {
	struct u64map stacks;	 /* id -> hash of outcome and frames */
	struct u64map processes; /* id -> hash */
	struct u64map modules;	 /* id -> hash */
	uint64_t pairs[GROUPS * PAIRS], attrs[GROUPS * ATTRS];
	struct chunk_pair pair_ids[GROUPS * PAIRS];
	const struct store_window *window;
	struct pair_places places; /* of the window, if it is an hour */
	uint64_t sums, totals;
	unsigned settled, pieces;
};

static uint64_t text_hash(struct chunk_text text)
{
	return hash_bytes(text.text, text.len, 7);
}

static int see_module(void *ctx, const struct chunk_module *m)
{
	struct digest *d = ctx;

	return u64map_put(&d->modules, m->id,
			  hash_combine(hash_combine(m->key, text_hash(m->path)),
				       hash_bytes(m->build_id, m->build_id_len, m->kind)));
}

static int see_process(void *ctx, const struct chunk_process *p)
{
	struct digest *d = ctx;
	uint64_t hash = hash_combine(hash_combine(p->tgid, p->exec_generation), p->start_boottime_ns);

	hash = hash_combine(hash_combine(hash, p->started_at_ns), text_hash(p->comm));
	return u64map_put(&d->processes, p->id,
			  hash_combine(hash_combine(hash, text_hash(p->exe)), text_hash(p->service)));
}

static int see_stack(void *ctx, const struct chunk_stack *s)
{
	struct digest *d = ctx;

	return u64map_put(&d->stacks, s->id,
			  hash_bytes(s->frames, s->frame_count * sizeof(*s->frames), s->outcome + 1u));
}

static int see_pair(void *ctx, uint32_t id, const struct chunk_pair *pair)
{
	((struct digest *)ctx)->pair_ids[id] = *pair;
	return 0;
}

static int see_attr(void *ctx, uint32_t id, const struct chunk_attr *attr)
{
	struct digest *d = ctx;
	uint64_t process = 0, hash;

	assert_true(u64map_get(&d->processes, attr->process, &process));
	hash = hash_combine(hash_combine(process, attr->tid),
			    attr->type << 16 | attr->state << 8 | attr->detail);
	hash = hash_combine(hash_combine(hash, attr->holder), attr->object);
	d->attrs[id] = hash_bytes(attr->comm, sizeof(attr->comm), hash);
	return 0;
}

static int see_piece(void *ctx, const struct store_chunk *chunk)
{
	struct digest *d = ctx;
	const struct chunk_sink sink = { .ctx = d, .module = see_module, .process = see_process,
					 .stack = see_stack, .pair = see_pair, .attr = see_attr };

	d->settled += chunk->kind == STORE_CHUNK_SETTLED;
	d->pieces++;
	return chunk_decode(chunk->kind, chunk->data, chunk->len, &sink);
}

/* 1: a stack whose frames never came. */
static uint64_t stack_hash(const struct digest *d, uint64_t id)
{
	uint64_t hash = 1;

	(void)u64map_get(&d->stacks, id, &hash);
	return id ? hash : 0;
}

static int see_sum(void *ctx, const struct chunk_hour_sum *sum)
{
	struct digest *d = ctx;
	uint32_t pair = d->window->minute_count ? d->places.pairs.data[sum->sum.pair] : sum->sum.pair;
	uint64_t key = hash_combine(hash_combine(d->pairs[pair], d->attrs[sum->sum.attr]),
				    d->window->from_ns / MINUTE + sum->minute);

	key = hash_bytes(d->window->service, strlen(d->window->service), key);
	key = hash_bytes(d->window->owners, strlen(d->window->owners), key);
	d->sums += hash_mix64(key) * (uint64_t)sum->sum.value + hash_mix64(key + 1) * sum->sum.value2;
	return 0;
}

/* All of an hour by pair is what its minutes and attributes add up to. */
static int see_one(void *ctx, const struct chunk_hour_sum *sum)
{
	struct chunk_pair_sum *sums = ctx;

	assert_true(sum->sum.pair < GROUPS * PAIRS);
	sums[sum->sum.pair].value += sum->sum.value;
	sums[sum->sum.pair].value2 += sum->sum.value2;
	return 0;
}

static void check_pairs(const struct store_window *window)
{
	struct chunk_pair_sum minutes[GROUPS * PAIRS] = { 0 }, pairs[GROUPS * PAIRS] = { 0 };

	assert_int_equal(chunk_decode_hour(window->data, window->len, 0, 60, see_one, minutes), 0);
	assert_int_equal(chunk_add_hour_pairs(window->data, window->len, pairs, ARRAY_SIZE(pairs)), 0);
	assert_memory_equal(minutes, pairs, sizeof(pairs));
}

static int see_minute_sum(void *ctx, const struct chunk_sum *sum)
{
	return see_sum(ctx, &(struct chunk_hour_sum){ *sum, 0 });
}

static int see_window(void *ctx, const struct store_window *window)
{
	struct digest *d = ctx;

	d->window = window;
	assert_int_equal(pair_places_decode(&d->places, window->shared, window->shared_len), 0);
	if (window->minute_count)
		check_pairs(window);
	return window->minute_count ? chunk_decode_hour(window->data, window->len, 0, 60, see_sum, d)
				    : chunk_decode_window(window->data, window->len, see_minute_sum, d);
}

static int see_total(void *ctx, const struct store_window *window)
{
	struct digest *d = ctx;
	uint64_t key = hash_bytes(window->owners, strlen(window->owners), window->from_ns);

	key = hash_bytes(window->service, strlen(window->service), key);
	d->totals += hash_mix64(key) * window->samples + hash_mix64(key + 1) * window->lost +
		     hash_mix64(key + 2) * (uint64_t)window->value + hash_mix64(key + 3) * window->profiled_ms;
	return 0;
}

static struct digest digest_of(struct store_fixture *f, uint64_t from_ns, uint64_t to_ns)
{
	struct store_window_query query = { .from_ns = from_ns, .to_ns = to_ns, .with_data = true };
	struct digest d = { 0 };
	unsigned damaged = 0;
	struct err err = { 0 };

	assert_int_equal(store_history_dictionary(f->store, &day, see_piece, &d, &damaged, &err), 0);
	assert_int_equal(damaged, 0);
	for (size_t i = 0; i < ARRAY_SIZE(d.pairs); i++)
		d.pairs[i] = hash_combine(stack_hash(&d, d.pair_ids[i].user),
					  stack_hash(&d, d.pair_ids[i].kernel));
	assert_int_equal(store_history_windows(f->store, &day, &query, see_window, &d, &damaged, &err), 0);
	assert_int_equal(damaged, 0);
	query.with_data = false;
	assert_int_equal(store_history_windows(f->store, &day, &query, see_total, &d, &damaged, &err), 0);
	assert_int_equal(damaged, 0);
	u64map_deinit(&d.stacks);
	u64map_deinit(&d.processes);
	u64map_deinit(&d.modules);
	pair_places_deinit(&d.places);
	return d;
}

static void assert_same(const struct digest *a, const struct digest *b)
{
	assert_true(a->sums == b->sums);
	assert_true(a->totals == b->totals);
}

static void roll(struct store_fixture *f, unsigned hour)
{
	struct err err = { 0 };

	if (roll_up_hour(f->store, &day, START + hour * HOUR, &err) < 0)
		fail_msg("%s", err.text);
}

/* ---- tests -------------------------------------------------------------------------------------
 */

struct seen_hour {
	uint64_t all;
	size_t count;
	uint32_t from, to;
};

#define DRAWN_PAIRS 200u

static uint64_t weight(const struct chunk_sum *sum, uint32_t minute)
{
	uint64_t key = hash_combine(hash_combine(sum->pair, sum->attr), minute);

	return hash_mix64(key) * (uint64_t)sum->value + hash_mix64(key + 1) * sum->value2;
}

static int see_hour_sum(void *ctx, const struct chunk_hour_sum *sum)
{
	struct seen_hour *seen = ctx;

	assert_true(sum->minute >= seen->from && sum->minute < seen->to);
	seen->all += weight(&sum->sum, sum->minute);
	seen->count++;
	return 0;
}

/* Threads that last and threads of one minute, minutes with one sample and with many, few minutes
 * of a key and all. */
static void draw_sums(struct chunk_hour_sum sums[], size_t count, bool whole)
{
	for (size_t i = 0; i < count; i++) {
		const uint64_t n = draw(4) ? 1 : draw(50);
		const uint32_t minute = (uint32_t)draw(60);
		const bool brief = draw(3) == 0;

		sums[i].minute = minute;
		sums[i].sum.pair = (uint32_t)(brief || draw(3) ? draw(DRAWN_PAIRS) : draw(3));
		sums[i].sum.attr = (uint32_t)(brief ? 1000 - 10 * minute + draw(4) : draw(5) * draw(5));
		sums[i].sum.value = (int64_t)(n * PERIOD);
		sums[i].sum.value2 = whole ? n * 1024 : draw(3) ? draw(5) : draw(1ull << 60);
	}
}

static void test_an_hour_as_bytes(void **state)
{
	static struct chunk_hour_sum sums[4000];

	for (size_t count = 0; count <= ARRAY_SIZE(sums); count = count * 2 + 1) {
		struct chunk_pair_sum pairs[DRAWN_PAIRS] = { 0 }, pairs_expected[DRAWN_PAIRS] = { 0 };
		struct seen_hour all = { .to = 60 }, part = { .from = 17, .to = 43 }, expect = { .to = 60 };
		cleanup_buf struct buf out = { 0 };
		uint64_t in_part = 0;
		size_t need;

		draw_sums(sums, count, count % 4 == 3);
		for (size_t i = 0; i < count; i++) {
			pairs_expected[sums[i].sum.pair].value += sums[i].sum.value;
			pairs_expected[sums[i].sum.pair].value2 += sums[i].sum.value2;
			expect.all += weight(&sums[i].sum, sums[i].minute);
			if (sums[i].minute >= part.from && sums[i].minute < part.to)
				in_part += weight(&sums[i].sum, sums[i].minute);
		}
		chunk_encode_hour(&out, sums, count, NULL);
		assert_int_equal(chunk_decode_hour(out.data, out.len, 0, 60, see_hour_sum, &all), 0);
		assert_int_equal(chunk_decode_hour(out.data, out.len, 17, 43, see_hour_sum, &part), 0);
		assert_int_equal(chunk_add_hour_pairs(out.data, out.len, pairs, DRAWN_PAIRS), 0);
		assert_memory_equal(pairs, pairs_expected, sizeof(pairs));
		need = chunk_hour_pairs_need(out.data, out.len);
		assert_true(need <= out.len && chunk_hour_pairs_need(out.data, need) == need);
		assert_int_equal(chunk_hour_pairs_need(out.data, 10), SIZE_MAX);
		memset(pairs, 0, sizeof(pairs));
		assert_int_equal(chunk_add_hour_pairs(out.data, need, pairs, DRAWN_PAIRS), 0);
		assert_memory_equal(pairs, pairs_expected, sizeof(pairs));
		if (count)
			assert_int_equal(chunk_add_hour_pairs(out.data, need - 1, pairs, DRAWN_PAIRS), -EPROTO);
		assert_true(all.all == expect.all && part.all == in_part);
		/* Nothing is written beyond the places that there are. */
		if (count > 1)
			assert_int_equal(chunk_add_hour_pairs(out.data, out.len, pairs, 3), -EPROTO);
		/* A cut is damage, whatever it cuts. */
		for (size_t len = 0; len < out.len; len += 1 + out.len / 50)
			assert_int_equal(chunk_decode_hour(out.data, len, 0, 60, see_hour_sum, &all), -EPROTO);
	}
}

static void test_places_of_pairs(void **state)
{
	static const uint32_t pairs[] = { 7, 8, 9, 100, 7, 3, UINT32_MAX, 0, 100 },
			      at[] = { 0, 1, 2, 3, 0, 4, 5, 6, 3 };
	struct pair_places places = { 0 }, again = { 0 };
	cleanup_buf struct buf out = { 0 };
	uint32_t place = 0;

	for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
		assert_int_equal(pair_places_add(&places, pairs[i], &place), 0);
		assert_int_equal(place, at[i]);
	}
	pair_places_encode(&places, &out);
	assert_int_equal(pair_places_decode(&again, out.data, out.len), 0);
	assert_int_equal(again.pairs.count, 7);
	assert_memory_equal(again.pairs.data, places.pairs.data, 7 * sizeof(*again.pairs.data));
	assert_int_equal(pair_places_add(&again, 3, &place), 0);
	assert_int_equal(place, 4);
	assert_int_equal(pair_places_add(&again, 4, &place), 0);
	assert_int_equal(place, 7);
	assert_int_equal(pair_places_decode(&again, "\x80", 1), -EPROTO);
	assert_int_equal(again.pairs.count, 0);
	pair_places_deinit(&places);
	pair_places_deinit(&again);
}

static void test_an_hour_holds_what_its_minutes_held(void **state)
{
	struct store_fixture *f = *state;
	struct digest before, after;
	unsigned minute = 0;

	for (uint32_t group = 0; group < GROUPS - 1; group++) {
		append_group(f, group);
		for (; minute < (group + 1) * MINUTES / (GROUPS - 1); minute++)
			record_minute(f, minute, group + 1);
	}
	before = digest_of(f, 0, 0);
	assert_int_equal(before.settled, 0);
	roll(f, 0);
	after = digest_of(f, 0, 0);
	assert_same(&before, &after);
	assert_int_equal(after.settled, 1);
	assert_int_equal(after.pieces, 1);
	/* Nothing changes when nothing came. */
	roll(f, 0);
	after = digest_of(f, 0, 0);
	assert_same(&before, &after);
	/* Late parts and new stacks: the piece is opened again, the hour is added to. */
	append_group(f, GROUPS - 1);
	append_minute(f, "db", ",a:19,", 5, false, false, GROUPS);
	append_minute(f, "late", ",a:19,", 59, false, true, GROUPS);
	before = digest_of(f, 0, 0);
	roll(f, 0);
	roll(f, 1);
	roll(f, 2);
	roll(f, 3);
	after = digest_of(f, 0, 0);
	assert_same(&before, &after);
	assert_int_equal(after.pieces, 1);
	store_history_seal(f->store, &day);
	after = digest_of(f, 0, 0);
	assert_same(&before, &after);
}

/* The begin of the hour, in hours since midnight; UINT64_MAX = none. */
static uint64_t next_hour(struct store_fixture *f, uint64_t from)
{
	struct err err = { 0 };
	uint64_t next = 0;

	if (roll_up_next(f->store, &day, START + from * HOUR, &next, &err) < 0)
		fail_msg("%s", err.text);
	return next == UINT64_MAX ? next : (next - START) / HOUR;
}

static void test_hours_with_nothing_to_roll_up_are_passed_over(void **state)
{
	struct store_fixture *f = *state;
	struct err err = { 0 };
	uint64_t next = 7;

	assert_int_equal(roll_up_next(f->store, &day, START, &next, &err), -ENOENT);
	assert_int_equal(next, 7);
	append_group(f, 0);
	append_minute(f, "web", ",a:19,", 3 * 60 + 59, true, false, 1);
	append_minute(f, "db", ",a:19,", 9 * 60, true, false, 1);
	assert_int_equal(next_hour(f, 0), 3);
	assert_int_equal(next_hour(f, 4), 9);
	roll(f, 3);
	assert_int_equal(next_hour(f, 0), 9);
	roll(f, 9);
	assert_true(next_hour(f, 0) == UINT64_MAX);
	/* Minutes came late. */
	append_minute(f, "web", ",a:19,", 3 * 60, true, false, 1);
	assert_int_equal(next_hour(f, 0), 3);
}

static void test_part_of_an_hour(void **state)
{
	struct store_fixture *f = *state;
	struct digest before, after;

	append_group(f, 0);
	for (unsigned minute = 0; minute < 60; minute++)
		record_minute(f, minute, 1);
	before = digest_of(f, START + 10 * MINUTE, START + 40 * MINUTE);
	roll(f, 0);
	after = digest_of(f, START + 10 * MINUTE, START + 40 * MINUTE);
	/* Totals come minute by minute, data as the hour that it is stored in. */
	assert_true(before.totals == after.totals);
}

static int sum_size(void *ctx, const struct store_window *window)
{
	*(uint64_t *)ctx += window->bytes;
	return 0;
}

static void test_rolling_up_saves_room(void **state)
{
	struct store_fixture *f = *state;
	struct store_window_query all = { .with_data = true };
	uint64_t minutes = 0, hours = 0;
	struct err err = { 0 };

	append_group(f, 0);
	for (unsigned minute = 0; minute < 60; minute++)
		append_minute(f, "web", ",a:19,", minute, true, false, 1);
	assert_int_equal(store_history_windows(f->store, &day, &all, sum_size, &minutes, NULL, &err), 0);
	roll(f, 0);
	assert_int_equal(store_history_windows(f->store, &day, &all, sum_size, &hours, NULL, &err), 0);
	print_message("%lu bytes as minutes, %lu as an hour\n", (unsigned long)minutes,
		      (unsigned long)hours);
	assert_true(hours < minutes);
}

/* ---- a recorder whose hours are rolled up ------------------------------------------------------
 */

struct recording_day {
	struct store_fixture *f;
	struct recorder *recorder;
	struct live_tables tables;
	struct live_process *process;
};

/* Does the work of one flush: a sum of one sample of these stacks, and the new entries of the
 * dictionary. Returns the number of the pair of stacks. */
static uint32_t flush_sample(struct recording_day *r, unsigned minute, uint64_t user,
			     uint64_t kernel)
{
	const struct feed_sample sample = { .user_stack = user, .kernel_stack = kernel, .tid = 1 };
	struct chunk_sum sum = { .value = PERIOD, .value2 = 1024 };
	struct store_window window = { .service = "web", .type = "cpu", .owners = ",a:19,", .samples = 1,
				       .from_ns = START + minute * MINUTE, .value = PERIOD };
	struct store_chunk chunks[RECORDER_GROUP_CHUNKS];
	const struct recorder_group *group;
	cleanup_free uint32_t *moved = NULL;
	cleanup_buf struct buf data = { 0 };
	uint32_t first, count = 0;
	struct err err = { 0 };

	assert_int_equal(recorder_intern(r->recorder, &sample, r->process, &sum.pair, &sum.attr), 0);
	assert_int_equal(recorder_order_pairs(r->recorder, &r->tables, &first, &moved), 0);
	assert_int_equal(recorder_seal(r->recorder, &r->tables, 1, false, NULL), 0);
	assert_int_equal(recorder_missing(r->recorder), 0);
	chunk_encode_window(&data, &sum, 1);
	window.data = data.data;
	window.len = data.len;
	group = recorder_groups(r->recorder);
	for (; group && count < group->chunk_count; count++)
		chunks[count] = (struct store_chunk){ group->kinds[count], group->data[count].data,
						      group->data[count].len };
	assert_int_equal(
		store_history_append(r->f->store, &day, chunks, count, &window, 1, 1, 1, &err), 0);
	if (group)
		recorder_stored(r->recorder, group);
	return sum.pair;
}

static uint64_t hash_of_stack(uint64_t leaf)
{
	const uint64_t frames[] = { prof_frame_address(PROF_FRAME_ADDRESS, leaf, 0),
				    prof_frame_address(PROF_FRAME_ADDRESS, 1, 0) };

	return hash_bytes(frames, sizeof(frames), 1);
}

/* A pair that is new in the second hour is made of stacks of the first; and one of nothing else is
 * stored at once. */
static void test_stacks_outlive_their_hour(void **state)
{
	struct recording_day r = { .f = *state, .recorder = recorder_create_for_sums(1000) };
	static const char comm[16] = "worker";
	uint32_t pairs[4];

	assert_non_null(r.recorder);
	live_tables_init(&r.tables, NULL, 0);
	assert_int_equal(live_tables_add_nameless(&r.tables, 1, comm, &r.process), 0);
	live_stack_add(&r.tables, 77, 7);
	live_stack_add(&r.tables, 88, 8);
	pairs[0] = flush_sample(&r, 5, 77, 0);
	pairs[1] = flush_sample(&r, 6, 88, 0);
	pairs[2] = flush_sample(&r, 7, 77, 88);
	roll(r.f, 0);
	recorder_forget_stacks(r.recorder);
	pairs[3] = flush_sample(&r, 65, 88, 77);
	for (int settled = 0; settled < 2; settled++) {
		struct digest d = digest_of(r.f, 0, 0);

		assert_true(d.pairs[pairs[0]] == hash_combine(hash_of_stack(7), 0));
		assert_true(d.pairs[pairs[1]] == hash_combine(hash_of_stack(8), 0));
		assert_true(d.pairs[pairs[2]] == hash_combine(hash_of_stack(7), hash_of_stack(8)));
		assert_true(d.pairs[pairs[3]] == hash_combine(hash_of_stack(8), hash_of_stack(7)));
		roll(r.f, 1);
	}
	live_tables_deinit(&r.tables);
	recorder_destroy(r.recorder);
}

#define test(name)                                                                                 \
	cmocka_unit_test_setup_teardown(name, store_fixture_setup, store_fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		test(test_an_hour_holds_what_its_minutes_held),
		test(test_hours_with_nothing_to_roll_up_are_passed_over),
		test(test_part_of_an_hour),
		test(test_rolling_up_saves_room),
		test(test_stacks_outlive_their_hour),
		test(test_an_hour_as_bytes),
		test(test_places_of_pairs),
	};

	return cmocka_run_group_tests_name("roll_up", tests, NULL, NULL);
}
