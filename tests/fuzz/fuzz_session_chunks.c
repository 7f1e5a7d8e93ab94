// SPDX-License-Identifier: Apache-2.0
/* The first byte chooses a chunk kind (store.h), a window, an hour, single samples, or a session's
 * record; the rest is its bytes, as a damaged disk might give them. Properties: what a sink is
 * given lies inside its bounds, a recording takes any sequence of chunks and still becomes a
 * profile. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/profile/quality.h"
#include "agent/recording/chunk_decode.h"
#include "agent/recording/recording.h"
#include "agent/recording/session_chunks.h"
#include "agent/recording/settled.h"
#include "agent/session/records/session_record.h"
#include "agent/session/continuous/window_functions.h"

#define KIND_RECORD  8
#define KIND_WINDOW  9
#define KIND_HOUR    10
#define KIND_SETTLED 11
#define KIND_DETAIL  12

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok)
{
	if (!ok)
		abort();
}

static int on_module(void *ctx, const struct chunk_module *module)
{
	check(module->build_id_len <= FEED_BUILD_ID_MAX);
	return 0;
}

static int on_stack(void *ctx, const struct chunk_stack *stack)
{
	uint64_t sum = 0;

	check(stack->frame_count <= FEED_FRAMES_MAX);
	for (uint16_t i = 0; i < stack->frame_count; i++)
		sum += stack->frames[i];
	*(uint64_t *)ctx += sum;
	return 0;
}

static int on_name(void *ctx, const struct chunk_name *name)
{
	check(name->frame_count <= NAMES_INLINE_MAX);
	for (unsigned i = 0; i < name->frame_count; i++)
		*(uint64_t *)ctx += strlen(name->frames[i].function) + strlen(name->frames[i].file);
	return 0;
}

static int on_quality(void *ctx, const struct chunk_quality *quality)
{
	check(quality->note_count <= ARRAY_SIZE(quality->notes));
	return 0;
}

static void record(const char *text, size_t size)
{
	struct session_info info = { 0 };

	if (session_record_decode(text, size, &info, NULL) < 0)
		return;
	check((unsigned)info.type < PROFILE_TYPE_MAX);
	check(info.quality.note_count <= ARRAY_SIZE(info.quality.notes));
	session_info_deinit(&info);
}

static void build(const struct recording *recording, enum profile_type type)
{
	struct recording_options options = { .nodes_max = 1000, .events = true, .paths = true };
	struct profile *profile = NULL;

	options.meta.type = type;
	options.quality = quality_empty();
	if (recording_build(recording, &options, NULL, &profile) == 0)
		(void)profile_unref(profile);
}

static int on_single(void *ctx, const struct chunk_event *event)
{
	check(recording_add_event(ctx, event, event->time_ns - event->time_ns % (60 * NS_PER_S),
				  0.5) == 0);
	return 0;
}

static int on_detail(void *ctx, const struct chunk_detail *detail)
{
	return chunk_decode_detail(detail, on_single, ctx);
}

/* Every chunk that settled_add() accepts can be encoded, and the result can be decoded. */
static void settle(int kind, const uint8_t *data, size_t size)
{
	cleanup(settled) struct settled *settled = settled_create();
	const struct chunk_sink none = { 0 };
	cleanup_buf struct buf out = { 0 };

	if (!settled || settled_add(settled, kind, data, size) < 0 ||
	    settled_encode(settled, &out, NULL) < 0)
		return;
	check(chunk_decode(STORE_CHUNK_SETTLED, out.data, out.len, &none) == 0);
}

static void add_sums(struct recording *recording)
{
	struct store_window window = { 0 };
	cleanup_buf struct buf data = { 0 };
	struct chunk_sum list[16];

	for (uint32_t i = 0; i < ARRAY_SIZE(list); i++)
		list[i] = (struct chunk_sum){ i, 0, i + 1, 1024 };
	chunk_encode_window(&data, list, ARRAY_SIZE(list));
	window.data = data.data;
	window.len = data.len;
	check(recording_add_window(recording, &window, 0, 3600 * NS_PER_S, 1) == 0);
}

/* A dictionary under sums of some pairs: every value is some function's own. */
static void sum_functions(int kind, const uint8_t *data, size_t size)
{
	cleanup(recording) struct recording *recording = recording_create();
	const struct profile_meta meta = { .type = PROFILE_CPU };
	cleanup(window_functions) struct window_functions *functions =
		window_functions_create(&meta, NULL);
	cleanup_free struct profile_function_row *rows = NULL;
	cleanup(profile) struct profile *profile = NULL;
	int64_t value = 0;
	size_t count;

	if (!recording || !functions)
		return;
	recording_add_up(recording);
	add_sums(recording);
	window_functions_begin(functions, recording);
	if (window_functions_dictionary(functions, kind, data, size) < 0 ||
	    window_functions_end(functions) < 0 ||
	    window_functions_finish(functions, &profile, &rows, &count) < 0)
		return;
	for (size_t i = 0; i < count; i++)
		value += rows[i].self;
	check(value == 16 * 17 / 2 && profile->totals[1] == value);
}

/* The same as a profile. */
static void build_from_trees(int kind, const uint8_t *data, size_t size)
{
	cleanup(recording) struct recording *recording = recording_create();

	if (!recording)
		return;
	recording_keep_trees(recording);
	add_sums(recording);
	(void)!recording_add(recording, kind, data, size, UINT32_MAX, NULL);
	build(recording, PROFILE_CPU);
}

static void add_up(const struct store_window *window)
{
	cleanup(recording) struct recording *recording = recording_create();

	if (!recording)
		return;
	recording_add_up(recording);
	(void)chunk_hour_pairs_need(window->data, window->len);
	check(recording_add_window(recording, window, 0, 3600 * NS_PER_S, 1) == 0);
	(void)!recording_added_up(recording);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup(recording) struct recording *recording = recording_create();
	uint64_t sum = 0;
	const struct chunk_sink sink = { .ctx = &sum,
					 .module = on_module,
					 .stack = on_stack,
					 .name = on_name,
					 .quality = on_quality };

	if (!size || !recording)
		return 0;
	if (data[0] == KIND_RECORD) {
		record((const char *)data + 1, size - 1);
		return 0;
	}
	if (data[0] == KIND_WINDOW || data[0] == KIND_HOUR) {
		/* Hostile bytes are also what the places of pairs are read from. */
		const struct store_window window = { .minute_count = data[0] == KIND_HOUR,
						     .data = data + 1, .len = size - 1,
						     .shared = data + 1, .shared_len = size - 1 };

		check(recording_add_window(recording, &window, 0, 3600 * NS_PER_S, 0.5) == 0);
		add_up(&window);
	} else if (data[0] == KIND_DETAIL) {
		(void)!chunk_decode_details(data + 1, size - 1, on_detail, recording);
	} else {
		int kind = data[0] == KIND_SETTLED ? STORE_CHUNK_SETTLED : data[0];

		(void)!chunk_decode(kind, data + 1, size - 1, &sink);
		(void)!recording_add(recording, kind, data + 1, size - 1, UINT32_MAX, NULL);
		settle(kind, data + 1, size - 1);
		sum_functions(kind, data + 1, size - 1);
		build_from_trees(kind, data + 1, size - 1);
	}
	build(recording, data[0] == STORE_CHUNK_READINGS ? PROFILE_GOROUTINE : PROFILE_CPU);
	return 0;
}
