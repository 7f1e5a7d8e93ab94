// SPDX-License-Identifier: Apache-2.0
/* Answers of the reader on the server's side: taking them in, their chunk, sums of goroutine
 * states. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/recording/reading_chunk.h"
#include "agent/session/snapshot/script_numbers.h"
#include "agent/session/snapshot/state_sampler.h"
#include "agent/session/snapshot/state_sums.h"
#include "bpf/profiler.h"

/* ---- answers as the reader writes them ------------------------------------------------------- */

static int take_chunk(void *ctx, const void *data, size_t len)
{
	struct read_record record;
	size_t at = 0;
	int rc;

	while ((rc = read_stream_next(data, len, &at, &record)) == 1) {
		rc = reading_take(ctx, &record);
		if (rc < 0)
			return rc;
	}
	return rc;
}

struct maker {
	struct read_writer *writer;
	uint32_t modules, texts, stacks, labels;
};

static struct maker begin(struct reading *to)
{
	struct maker m = { .writer = malloc(sizeof(*m.writer)) };

	assert_non_null(m.writer);
	read_writer_init(m.writer, take_chunk, to);
	return m;
}

static int end(struct maker *m)
{
	const struct read_end last = { .listed = 1 };
	int rc;

	read_writer_fixed(m->writer, READ_END, &last, sizeof(last));
	rc = read_writer_finish(m->writer);
	free(m->writer);
	return rc;
}

static uint32_t text(struct maker *m, const char *value)
{
	read_writer_string(m->writer, ++m->texts, value, strlen(value));
	return m->texts;
}

static uint32_t module(struct maker *m, const char *path)
{
	const struct read_module module = { .id = ++m->modules, .kind = READ_MODULE_ELF };

	read_writer_module(m->writer, &module, path, "");
	return m->modules;
}

static uint32_t stack(struct maker *m, uint32_t module, uint64_t offset)
{
	const uint64_t frames[2] = { prof_frame_module(module, offset, 0),
				     prof_frame_module(module, 0x900, PROF_FRAME_RETURN) };
	const uint8_t flags[2] = { 0, READ_FRAME_WRAPPER };

	read_writer_stack(m->writer, ++m->stacks, 0, frames, flags, 2);
	return m->stacks;
}

static uint32_t labels(struct maker *m, const char *name, const char *value)
{
	const uint32_t pair[2] = { text(m, name), text(m, value) };

	read_writer_labels(m->writer, ++m->labels, pair, 1);
	return m->labels;
}

static void goroutine(struct maker *m, struct read_goroutine g)
{
	read_writer_fixed(m->writer, READ_GOROUTINE, &g, sizeof(g));
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* One waits for a lock, @receivers on a channel, one for the network, one runs. @swap: the same
 * with other numbers. */
static void snapshot(struct reading *to, bool swap, unsigned receivers)
{
	struct maker m = begin(to);
	uint32_t other = swap ? module(&m, "/lib/other") : 0, program = module(&m, "/bin/program");
	uint32_t unused = swap ? text(&m, "unused") : 0;
	uint32_t lock_stack = swap ? 0 : stack(&m, program, 0x100);
	uint32_t wait_stack = stack(&m, program, 0x200);
	uint32_t tenant = labels(&m, "tenant", "acme");

	(void)other;
	(void)unused;
	if (swap)
		lock_stack = stack(&m, program, 0x100);
	goroutine(&m, (struct read_goroutine){ .goid = 1,
					       .stack = lock_stack,
					       .reason = text(&m, "sync.Mutex.Lock"),
					       .wait_object = 0xc0001000,
					       .flags = READ_GOROUTINE_BLOCKED | READ_GOROUTINE_ON_LOCK |
							READ_GOROUTINE_LOCK_WAIT });
	for (unsigned i = 0; i < receivers; i++)
		goroutine(&m, (struct read_goroutine){ .goid = 10 + i,
						       .stack = wait_stack,
						       .reason = text(&m, "chan receive"),
						       .labels = tenant,
						       .wait_object = 0xc0002000 + i,
						       .wait_ns = 5000000000 - i,
						       .flags = READ_GOROUTINE_BLOCKED |
								READ_GOROUTINE_ON_CHANNEL });
	goroutine(&m, (struct read_goroutine){ .goid = 3,
					       .stack = wait_stack,
					       .reason = text(&m, "IO wait"),
					       .flags = READ_GOROUTINE_BLOCKED });
	goroutine(&m, (struct read_goroutine){ .goid = 4, .flags = READ_GOROUTINE_RUNNING });
	goroutine(&m, (struct read_goroutine){ .goid = 5,
					       .stack = wait_stack,
					       .reason = text(&m, "select"),
					       .flags = READ_GOROUTINE_BLOCKED | READ_GOROUTINE_SYSTEM });
	assert_int_equal(end(&m), 0);
}

static const struct reading_item *find_item(const struct reading *sum, const char *wait)
{
	for (size_t i = 0; i < sum->items.count; i++) {
		const struct reading_text *t = &sum->texts.data[sum->items.data[i].wait - 1];

		if (t->len == strlen(wait) && !memcmp(sum->text.data + t->first, wait, t->len))
			return &sum->items.data[i];
	}
	return NULL;
}

static void add(struct state_sums *sums, bool swap, unsigned receivers, uint64_t weight_ns,
		uint64_t expected)
{
	struct reading part = { .type = sums->sum.type };
	uint64_t seen = 0;

	snapshot(&part, swap, receivers);
	assert_int_equal(state_sums_add(sums, &part, weight_ns, &seen), 0);
	assert_int_equal(seen, expected);
	reading_clear(&part);
}

static void equal_waits_meet(void **state)
{
	struct state_sums sums = { .sum = { .type = PROFILE_BLOCK } };
	const struct reading_item *item;
	const struct reading_stack *where;

	add(&sums, false, 2, 50, 3);
	add(&sums, true, 3, 70, 4);
	assert_int_equal(sums.sum.items.count, 2);
	item = find_item(&sums.sum, "chan receive");
	assert_non_null(item);
	assert_int_equal(item->values[0], 5);
	assert_int_equal(item->values[1], 2 * 50 + 3 * 70);
	assert_int_equal(item->object, 0); /* channels would tell every wait apart */
	assert_int_not_equal(item->labels, 0);
	where = &sums.sum.stacks.data[item->stack - 1];
	assert_int_equal(where->count, 2);
	assert_int_equal(prof_frame_offset(sums.sum.frames.data[where->first]), 0x200);
	item = find_item(&sums.sum, "sync.Mutex.Lock");
	assert_non_null(item);
	assert_int_equal(item->values[1], 120);
	assert_int_equal(item->object, 0xc0001000);
	/* One module is used; the wrapper is known once. */
	assert_int_equal(sums.sum.modules.count, 1);
	assert_string_equal(sums.sum.modules.data[0].path, "/bin/program");
	assert_int_equal(sums.sum.wrappers.count, 1);
	assert_int_equal(sums.sum.stacks.count, 2);
	state_sums_clear(&sums);
	assert_int_equal(sums.sum.items.count, 0);
	assert_int_equal(sums.sum.type, PROFILE_BLOCK);
}

static void mutex_counts_locks_alone(void **state)
{
	struct state_sums sums = { .sum = { .type = PROFILE_MUTEX } };

	add(&sums, false, 4, 10, 1);
	assert_int_equal(sums.sum.items.count, 1);
	assert_non_null(find_item(&sums.sum, "sync.Mutex.Lock"));
	state_sums_clear(&sums);
}

/* ---- the pause between snapshots ------------------------------------------------------------- */

static void pause_follows_from_cost(void **state)
{
	const uint64_t ms = 1000000, s = 1000 * ms;

	/* Cheap: 20 a second, or what was asked for. */
	assert_int_equal(state_sampler_pause_ns(ms / 10, 30 * s, 99), 50 * ms);
	assert_int_equal(state_sampler_pause_ns(ms / 10, 30 * s, 5), 200 * ms);
	/* One per cent of a core. */
	assert_int_equal(state_sampler_pause_ns(2 * ms, 30 * s, 99), 200 * ms);
	/* At least ten in a session, unless that took more than a tenth of a core. */
	assert_int_equal(state_sampler_pause_ns(100 * ms, 30 * s, 99), 3 * s);
	assert_int_equal(state_sampler_pause_ns(400 * ms, 30 * s, 99), 4 * s);
}

/* ---- the chunk ------------------------------------------------------------------------------- */

struct seen {
	struct chunk_reading head;
	struct chunk_item items[8];
	char wait[8][32], label[8][32];
	unsigned count, wrappers;
};

static int see_head(void *ctx, const struct chunk_reading *head)
{
	((struct seen *)ctx)->head = *head;
	return 0;
}

static int see_wrapper(void *ctx, uint64_t frame)
{
	((struct seen *)ctx)->wrappers++;
	return 0;
}

static int see_item(void *ctx, const struct chunk_reading *head, const struct chunk_item *item)
{
	struct seen *seen = ctx;
	unsigned at = seen->count++;

	assert_true(at < 8);
	seen->items[at] = *item;
	(void)snprintf(seen->wait[at], sizeof(seen->wait[at]), "%.*s", (int)item->wait.len,
		       item->wait.text);
	if (item->label_count)
		(void)snprintf(seen->label[at], sizeof(seen->label[at]), "%.*s=%.*s",
			       (int)item->labels[0].name.len, item->labels[0].name.text,
			       (int)item->labels[0].value.len, item->labels[0].value.text);
	return 0;
}

static void encode(struct buf *chunk, uint8_t phase)
{
	const struct reading_encoding encoding = { .phase = phase, .round = 3, .stack_base = 1000 };
	struct reading reading = { .type = PROFILE_GOROUTINE };

	snapshot(&reading, false, 2);
	assert_int_equal(reading_chunk_encode(chunk, &reading, &encoding, 0, reading.items.count), 0);
	reading_chunk_place(chunk, 17, 5, true);
	reading_clear(&reading);
}

static void chunk_keeps_everything(void **state)
{
	struct seen seen = { 0 };
	const struct reading_sink sink = { &seen, see_head, see_wrapper, see_item };
	struct buf chunk = { 0 };

	encode(&chunk, READING_END);
	assert_int_equal(reading_chunk_decode(chunk.data, chunk.len, &sink), 0);
	assert_int_equal(seen.head.seq, 17);
	assert_int_equal(seen.head.process, 5);
	assert_int_equal(seen.head.round, 3);
	assert_int_equal(seen.head.phase, READING_END);
	assert_true(seen.head.last);
	assert_int_equal(seen.count, 6);
	assert_int_equal(seen.wrappers, 1);
	assert_string_equal(seen.wait[0], "sync.Mutex.Lock");
	assert_int_equal(seen.items[0].object, 0xc0001000);
	assert_int_equal(seen.items[0].goid, 1);
	assert_int_equal(seen.items[0].stack, 1001);
	assert_int_equal(seen.items[1].object, 0xc0002000);
	assert_string_equal(seen.label[1], "tenant=acme");
	/* One like the other but for its own numbers. */
	assert_int_equal(seen.items[2].goid, 11);
	assert_int_equal(seen.items[2].wait_ns, 4999999999);
	assert_int_equal(seen.items[2].object, 0xc0002001);
	assert_int_equal(seen.items[2].stack, seen.items[1].stack);
	assert_string_equal(seen.label[2], "tenant=acme");
	assert_int_equal(seen.items[3].object, 0);
	assert_int_equal(seen.items[3].wait_ns, 0);
	assert_int_equal(seen.items[5].goid, 5);
	assert_int_equal(seen.items[4].flags, READ_GOROUTINE_RUNNING);
	buf_deinit(&chunk);
}

/* Cut anywhere, changed anywhere: refused or read, never beyond its end. */
static void damaged_chunks_are_harmless(void **state)
{
	const struct reading_sink sink = { 0 };
	struct buf chunk = { 0 };
	cleanup_free char *copy = NULL;

	encode(&chunk, READING_STATES);
	for (size_t len = 0; len < chunk.len; len++) {
		copy = malloc(len + 1);
		assert_non_null(copy);
		memcpy(copy, chunk.data, len);
		assert_int_equal(reading_chunk_decode(copy, len, &sink), -EPROTO);
		free(copy);
	}
	copy = malloc(chunk.len);
	assert_non_null(copy);
	for (size_t at = 0; at < chunk.len; at++) {
		int rc;

		memcpy(copy, chunk.data, chunk.len);
		copy[at] = (char)(copy[at] ^ 0xff);
		rc = reading_chunk_decode(copy, chunk.len, &sink);
		assert_true(rc == 0 || rc == -EPROTO);
	}
	buf_deinit(&chunk);
}

/* ---- script frames --------------------------------------------------------------------------- */

static uint32_t script_module(struct maker *m)
{
	const struct read_module module = { .id = ++m->modules, .kind = READ_MODULE_SCRIPT };

	read_writer_module(m->writer, &module, "[python]", "");
	return m->modules;
}

static void script(struct maker *m, uint32_t id, uint32_t function, uint32_t file, uint32_t line)
{
	const struct read_script script = { .id = id, .function = function, .file = file, .line = line };

	read_writer_fixed(m->writer, READ_SCRIPT, &script, sizeof(script));
}

/* Two answers whose ids differ: equal frames have the same number, and its name is told. */
static void equal_script_frames_have_one_number(void **state)
{
	cleanup(names_client) struct names_client *names = NULL;
	struct script_numbers numbers = { 0 };
	uint64_t key, seen[2][2];

	assert_int_equal(names_client_create(&names), 0);
	for (unsigned round = 0; round < 2; round++) {
		struct reading reading = { .type = PROFILE_GOROUTINE };
		struct maker m = begin(&reading);
		uint32_t work = text(&m, "Worker.run"), file = text(&m, "/app.py"), wait = text(&m, "wait");
		uint32_t module = script_module(&m);

		script(&m, 1, round ? wait : work, file, 7);
		script(&m, 2, round ? work : wait, file, 7);
		(void)stack(&m, module, 1);
		m.stacks--;
		assert_int_equal(end(&m), -EPROTO); /* its second frame is the script frame 0x900 */
		reading_clear(&reading);
		m = begin(&reading);
		m.texts = m.modules = m.stacks = 0;
		work = text(&m, "Worker.run"), file = text(&m, "/app.py"), wait = text(&m, "wait");
		module = script_module(&m);
		script(&m, 1, round ? wait : work, file, 7);
		script(&m, 2, round ? work : wait, file, 7);
		for (uint64_t id = 0; id < 3; id++)
			read_writer_stack(m.writer, ++m.stacks, 0,
					  (uint64_t[]){ prof_frame_module(module, id, 0) },
					  (uint8_t[]){ 0 }, 1);
		assert_int_equal(end(&m), 0);
		assert_int_equal(script_numbers_give(&numbers, names, &reading), 0);
		key = reading.modules.data[0].key;
		assert_true(key);
		assert_int_equal(prof_frame_offset(reading.frames.data[0]), 0); /* it has no name */
		seen[round][0] = prof_frame_offset(reading.frames.data[round ? 2 : 1]);
		seen[round][1] = prof_frame_offset(reading.frames.data[round ? 1 : 2]);
		reading_clear(&reading);
	}
	assert_memory_equal(seen[0], seen[1], sizeof(seen[0]));
	assert_true(seen[0][0] && seen[0][1] && seen[0][0] != seen[0][1]);
	{
		const struct name_source *source = names_client_begin(names);
		struct name_frame frames[NAMES_INLINE_MAX];

		assert_int_equal(source->find(source->ctx, key, seen[0][0], frames), 1);
		assert_string_equal(frames[0].function, "Worker.run");
		assert_string_equal(frames[0].file, "/app.py");
		assert_int_equal(frames[0].line, 7);
		names_client_end(names);
	}
	script_numbers_deinit(&numbers);
}

static void script_frames_of_nothing_are_refused(void **state)
{
	const struct read_script bad[] = { { .id = 2, .function = 1 },
					   { .id = 1 },
					   { .id = 1, .function = 3 },
					   { .id = 1, .function = 1, .file = 3 } };

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct reading reading = { .type = PROFILE_GOROUTINE };
		struct maker m = begin(&reading);

		(void)text(&m, "x");
		script(&m, bad[i].id, bad[i].function, bad[i].file, 0);
		assert_int_equal(end(&m), -EPROTO);
		reading_clear(&reading);
	}
}

/* ---- hostile answers ------------------------------------------------------------------------- */

static void references_to_nothing_are_refused(void **state)
{
	const struct read_goroutine bad[] = {
		{ .stack = 1 }, { .labels = 1 }, { .state = 9 }, { .reason = 2 },
		{ .created_frame = prof_frame_module(3, 1, 0) },
	};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct reading reading = { .type = PROFILE_GOROUTINE };
		struct maker m = begin(&reading);

		(void)text(&m, "x");
		goroutine(&m, bad[i]);
		assert_int_equal(end(&m), -EPROTO);
		reading_clear(&reading);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equal_waits_meet),
		cmocka_unit_test(mutex_counts_locks_alone),
		cmocka_unit_test(pause_follows_from_cost),
		cmocka_unit_test(chunk_keeps_everything),
		cmocka_unit_test(damaged_chunks_are_harmless),
		cmocka_unit_test(references_to_nothing_are_refused),
		cmocka_unit_test(equal_script_frames_have_one_number),
		cmocka_unit_test(script_frames_of_nothing_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
