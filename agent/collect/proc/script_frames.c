// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/proc/script_frames.h"

#include <string.h>

#include "agent/base/hash.h"

static size_t name_bytes; /* of all names; one thread has them all */

struct script_frames *script_frames_create(struct script_frames *origin)
{
	cleanup(script_frames) struct script_frames *frames = calloc(1, sizeof(*frames));

	if (!frames)
		return NULL;
	frames->refs = 1;
	u64map_init(&frames->numbers, SCRIPT_FRAMES_MAX);
	u64map_init(&frames->functions, SCRIPT_FRAMES_MAX);
	/* Number 0 stands for all that found no place. */
	if (script_frame_vec_push(&frames->frames, (struct script_frame){ .fed = true }) < 0)
		return NULL;
	frames->asked = 1;
	if (origin) {
		frames->origin = script_frames_ref(origin);
		frames->origin_count = origin->frames.count;
		frames->runtime = origin->runtime;
		frames->interpreter = origin->interpreter;
		frames->fits = origin->fits;
		frames->state = origin->state == SCRIPT_ASKED ? SCRIPT_UNKNOWN : origin->state;
	}
	return take_ptr(frames);
}

struct script_frames *script_frames_ref(struct script_frames *frames)
{
	if (frames)
		frames->refs++;
	return frames;
}

void script_frames_unref(struct script_frames *frames)
{
	/* A chain of forks is as long as it likes. */
	while (frames && --frames->refs == 0) {
		struct script_frames *origin = frames->origin;

		for (size_t i = 0; i < frames->frames.count; i++) {
			name_bytes -= frames->frames.data[i].bytes;
			free(frames->frames.data[i].functions);
		}
		script_frame_vec_deinit(&frames->frames);
		u64map_deinit(&frames->numbers);
		u64map_deinit(&frames->functions);
		free(frames);
		frames = origin;
	}
}

static uint64_t key_of(uint64_t a, uint64_t b)
{
	return hash_combine(a, b);
}

/* The number of (a, b) if it is known. The hash is checked against the words. */
static bool find(const struct script_frames *frames, uint64_t a, uint64_t b, uint64_t *ret)
{
	return u64map_get(&frames->numbers, key_of(a, b), ret) && frames->frames.data[*ret].a == a &&
	       frames->frames.data[*ret].b == b;
}

static uint64_t function_key(const struct script_frame *frame)
{
	return hash_combine(frame->a, script_word_cookie(frame->b));
}

/* A name that the parent had for a code object at the fork holds for the child's copy of it. */
static void inherit_name(struct script_frames *frames, size_t number)
{
	const struct script_frame *frame = &frames->frames.data[number];
	const struct script_frames *origin = frames->origin;
	const struct script_frame *from;
	uint64_t at;

	if (!origin || !find(origin, frame->a, frame->b, &at) || at >= frames->origin_count)
		return;
	from = &origin->frames.data[at];
	if (from->functions)
		(void)script_frames_name(frames, number, from->functions, from->bytes);
}

uint32_t script_frames_number(struct script_frames *frames, uint64_t a, uint64_t b)
{
	struct script_frame frame = { .a = a, .b = b };
	uint64_t number = frames->frames.count;

	if (find(frames, a, b, &number))
		return (uint32_t)number;
	number = frames->frames.count;
	if (number >= SCRIPT_FRAMES_MAX || script_frame_vec_push(&frames->frames, frame) < 0)
		return 0;
	if (u64map_put(&frames->numbers, key_of(a, b), number) < 0) {
		frames->frames.count--;
		return 0;
	}
	inherit_name(frames, number);
	frames->due = true;
	return (uint32_t)number;
}

bool script_frames_name(struct script_frames *frames, size_t number, const void *functions,
			size_t bytes)
{
	struct script_frame *frame;

	if (number == 0 || number >= frames->frames.count)
		return false;
	frame = &frames->frames.data[number];
	if (frame->functions || !bytes || name_bytes + bytes > SCRIPT_NAME_BYTES_MAX)
		return false;
	frame->functions = malloc(bytes);
	if (!frame->functions)
		return false;
	memcpy(frame->functions, functions, bytes);
	frame->bytes = (uint32_t)bytes;
	name_bytes += bytes;
	frames->due = true;
	(void)!u64map_put(&frames->functions, function_key(frame), number);
	return true;
}

/* A Python frame's entry is one function and begins with the line (CONTROL_SCRIPT_NAMED). */
static void adopt(struct script_frames *frames, size_t number, const struct script_frame *from)
{
	struct script_frame *frame = &frames->frames.data[number];

	if (script_frames_name(frames, number, from->functions, from->bytes) &&
	    frame->bytes >= sizeof(uint32_t))
		memset(frame->functions, 0, sizeof(uint32_t));
}

void script_frames_adopt(struct script_frames *frames)
{
	for (size_t i = 1; i < frames->frames.count; i++) {
		const struct script_frame *frame = &frames->frames.data[i], *from;
		uint64_t at;

		if (frame->functions || script_word_runtime(frame->a) != SCRIPT_CPYTHON ||
		    !u64map_get(&frames->functions, function_key(frame), &at))
			continue;
		from = &frames->frames.data[at];
		if (from->a == frame->a && script_word_cookie(from->b) == script_word_cookie(frame->b))
			adopt(frames, i, from);
	}
}

void script_frames_feed_again(struct script_frames *frames)
{
	for (size_t i = 1; i < frames->frames.count; i++)
		frames->frames.data[i].fed = false;
	frames->due = true;
}
