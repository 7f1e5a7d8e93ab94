// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/wire/read_stream.h"
#include "bpf/profiler.h"

/* Collects chunks one after the other; fails at the chunk with index @fail_at. */
struct sink {
	_Alignas(8) uint8_t data[1 << 20];
	size_t chunk_len[32];
	size_t chunk_at[32];
	int chunks;
	int fail_at;
	size_t len;
};

static int sink_flush(void *ctx, const void *data, size_t len)
{
	struct sink *sink = ctx;

	if (sink->chunks == sink->fail_at)
		return -EPIPE;
	assert_true(len <= READ_CHUNK_MAX);
	assert_int_equal(len % 8, 0);
	sink->chunk_at[sink->chunks] = sink->len;
	sink->chunk_len[sink->chunks++] = len;
	memcpy(sink->data + sink->len, data, len);
	sink->len += len;
	return 0;
}

static struct sink *sink_create(int fail_at)
{
	struct sink *sink = calloc(1, sizeof(*sink));

	assert_non_null(sink);
	sink->fail_at = fail_at;
	return sink;
}

static void test_roundtrip(void **state)
{
	const uint64_t frames[3] = { prof_frame_module(1, 0x1234, 0),
				     prof_frame_module(2, 0x99, PROF_FRAME_RETURN),
				     (uint64_t)PROF_FRAME_TRUNCATED << PROF_FRAME_KIND_SHIFT };
	const uint8_t flags[3] = { 0, READ_FRAME_WRAPPER, 0 };
	const uint32_t pairs[4] = { 1, 2, 3, 4 };
	const struct read_goroutine g = { .goid = 7, .wait_ns = 9, .state = 1, .flags = 3 };
	const struct read_module module = { .id = 1,
					    .inode = 42,
					    .kind = READ_MODULE_ELF,
					    .build_id_len = 20, .go_id_len = 5,
					    .build_id = { 0xaa } };
	cleanup_free struct read_writer *w = malloc(sizeof(*w));
	cleanup_free struct sink *sink = sink_create(-1);
	struct read_record r;
	size_t at = 0;

	read_writer_init(w, sink_flush, sink);
	read_writer_module(w, &module, "/bin/x", "go-id");
	read_writer_string(w, 1, "chan receive", 12);
	read_writer_stack(w, 1, 0, frames, flags, 3);
	read_writer_labels(w, 1, pairs, 2);
	read_writer_fixed(w, READ_GOROUTINE, &g, sizeof(g));
	assert_int_equal(read_writer_finish(w), 0);
	assert_int_equal(sink->chunks, 1);

	assert_int_equal(read_stream_next(sink->data, sink->len, &at, &r), 1);
	assert_int_equal(r.kind, READ_MODULE);
	assert_int_equal(r.module->inode, 42);
	assert_int_equal(r.module->build_id[0], 0xaa);
	assert_int_equal(r.module->path_len, 6);
	assert_memory_equal(r.text, "/bin/x", 6);
	assert_int_equal(r.module->go_id_len, 5);
	assert_memory_equal(r.go_id, "go-id", 5);
	assert_int_equal(read_stream_next(sink->data, sink->len, &at, &r), 1);
	assert_memory_equal(r.text, "chan receive", r.string->len);
	assert_int_equal(read_stream_next(sink->data, sink->len, &at, &r), 1);
	assert_int_equal(r.stack->frame_count, 3);
	assert_memory_equal(r.frames, frames, sizeof(frames));
	assert_memory_equal(r.frame_flags, flags, sizeof(flags));
	assert_int_equal(read_stream_next(sink->data, sink->len, &at, &r), 1);
	assert_memory_equal(r.pairs, pairs, sizeof(pairs));
	assert_int_equal(read_stream_next(sink->data, sink->len, &at, &r), 1);
	assert_int_equal(r.kind, READ_GOROUTINE);
	assert_int_equal(r.goroutine->goid, 7);
	assert_int_equal(read_stream_next(sink->data, sink->len, &at, &r), 0);
}

static void test_records_never_span_chunks(void **state)
{
	cleanup_free struct read_writer *w = malloc(sizeof(*w));
	cleanup_free struct sink *sink = sink_create(-1);
	cleanup_free char *text = calloc(1, READ_STRING_MAX + 100);
	unsigned total = 0;

	read_writer_init(w, sink_flush, sink);
	for (uint32_t i = 1; i <= 50; i++)
		read_writer_string(w, i, text, READ_STRING_MAX + 100 - i);
	assert_int_equal(read_writer_finish(w), 0);
	assert_true(sink->chunks > 1);
	for (int i = 0; i < sink->chunks; i++) {
		struct read_record r;
		size_t at = 0;
		int rc;

		while ((rc = read_stream_next(sink->data + sink->chunk_at[i], sink->chunk_len[i],
					      &at, &r)) == 1) {
			total++;
			assert_int_equal(r.string->id, total);
			assert_int_equal(r.string->len, READ_STRING_MAX);
		}
		assert_int_equal(rc, 0);
	}
	assert_int_equal(total, 50);
}

static void test_errors_are_sticky(void **state)
{
	cleanup_free struct read_writer *w = malloc(sizeof(*w));
	cleanup_free struct sink *sink = sink_create(1);
	char text[4000] = { 0 };

	read_writer_init(w, sink_flush, sink);
	for (uint32_t i = 1; i <= 100; i++)
		read_writer_string(w, i, text, sizeof(text));
	assert_int_equal(read_writer_finish(w), -EPIPE);
	assert_int_equal(sink->chunks, 1);
	assert_null(read_writer_record(w, READ_END, sizeof(struct read_end)));

	read_writer_init(w, sink_flush, sink);
	read_writer_stack(w, 1, 0, NULL, NULL, READ_FRAMES_MAX + 2);
	assert_int_equal(read_writer_finish(w), -EMSGSIZE);
}

static void test_hostile(void **state)
{
	_Alignas(8) uint8_t data[256] = { 0 };
	struct read_head *head = (void *)data;
	struct read_module *module = (void *)data;
	struct read_stack *stack = (void *)data;
	struct read_labels *labels = (void *)data;
	struct read_record r = { .kind = 77 };
	size_t at;

#define EXPECT(rc, len)                                                                            \
	do {                                                                                       \
		at = 0;                                                                            \
		assert_int_equal(read_stream_next(data, len, &at, &r), rc);                        \
		assert_int_equal(r.kind, 77);                                                      \
	} while (0)
	EXPECT(-EPROTO, 4);
	*head = (struct read_head){ READ_END, 0 };
	EXPECT(-EPROTO, 128);
	*head = (struct read_head){ READ_END, 16 };
	EXPECT(-EPROTO, 128); /* shorter than struct read_end */
	*head = (struct read_head){ READ_END, 256 };
	EXPECT(-EPROTO, 128);
	*head = (struct read_head){ READ_END, 77 };
	EXPECT(-EPROTO, 128);
	*head = (struct read_head){ 200, 128 };
	EXPECT(0, 128); /* unknown kinds are skipped */
	module->head = (struct read_head){ READ_MODULE, sizeof(*module) + 8 };
	module->path_len = 9;
	EXPECT(-EPROTO, 256);
	module->path_len = 8;
	module->go_id_len = 1;
	EXPECT(-EPROTO, 256);
	module->go_id_len = 0;
	module->build_id_len = 33;
	EXPECT(-EPROTO, 256);
	memset(data, 0, sizeof(data));
	stack->head = (struct read_head){ READ_STACK, sizeof(*stack) + 16 };
	stack->frame_count = 2;
	EXPECT(-EPROTO, 256); /* the flags do not fit */
	labels->head = (struct read_head){ READ_LABELS, sizeof(*labels) + 8 };
	labels->count = 0x20000001;
	EXPECT(-EPROTO, 256);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_roundtrip),
		cmocka_unit_test(test_records_never_span_chunks),
		cmocka_unit_test(test_errors_are_sticky),
		cmocka_unit_test(test_hostile),
	};

	return cmocka_run_group_tests_name("read_stream", tests, NULL, NULL);
}
