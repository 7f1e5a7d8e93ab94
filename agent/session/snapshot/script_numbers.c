// SPDX-License-Identifier: Apache-2.0
#include "agent/session/snapshot/script_numbers.h"

#include <errno.h>
#include <stdlib.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/wire/feed.h"
#include "bpf/profiler.h"

void script_numbers_deinit(struct script_numbers *numbers)
{
	u64map_deinit(&numbers->map);
}

static struct feed_string text_of(const struct reading *reading, uint32_t id)
{
	const struct reading_text *text = id ? &reading->texts.data[id - 1] : NULL;

	if (!text)
		return (struct feed_string){ .text = "" };
	return (struct feed_string){ .text = (const char *)reading->text.data + text->first,
				     .len = (uint16_t)(text->len < UINT16_MAX ? text->len : UINT16_MAX) };
}

/* The number of a frame, which is told with its name each time: the client forgets names when it
 * has too many. 0: there are too many numbers. */
static int number_of(struct script_numbers *numbers, struct names_client *names,
		     const struct feed_function *function, uint64_t *ret)
{
	uint64_t hash = hash_bytes(function->function.text, function->function.len, function->line);
	struct feed_script script = { .key = numbers->key,
				      .line = function->line,
				      .first_line = function->first_line };
	int rc = 0;

	hash = hash_bytes(function->file.text, function->file.len, hash ^ function->first_line);
	if (!u64map_get(&numbers->map, hash, &script.offset) &&
	    numbers->map.count < SCRIPT_NUMBERS_MAX) {
		script.offset = numbers->map.count + 1;
		rc = u64map_put(&numbers->map, hash, script.offset);
	}
	if (rc == 0 && script.offset)
		names_client_tell(names, &script, function, 1);
	*ret = script.offset;
	return rc;
}

/* Is @frame one of a script? */
static bool is_script(const struct reading *reading, uint64_t frame)
{
	return prof_frame_kind(frame) == PROF_FRAME_MODULE &&
	       reading->modules.data[prof_frame_module_id(frame) - 1].kind == FEED_MODULE_SCRIPT;
}

int script_numbers_give(struct script_numbers *numbers, struct names_client *names,
			struct reading *reading)
{
	cleanup_free uint64_t *by_id = calloc(reading->scripts.count + 1, sizeof(*by_id));
	int rc = by_id ? 0 : -ENOMEM;

	if (!numbers->key)
		numbers->key = hash_combine(clock_realtime_ns(), FEED_MODULE_SCRIPT);
	for (size_t i = 0; i < reading->modules.count; i++)
		if (reading->modules.data[i].kind == FEED_MODULE_SCRIPT)
			reading->modules.data[i].key = numbers->key;
	for (size_t i = 0; rc == 0 && i < reading->scripts.count; i++) {
		const struct reading_script *script = &reading->scripts.data[i];
		const struct feed_function function = { .line = script->line,
							.first_line = script->first_line,
							.function = text_of(reading, script->function),
							.file = text_of(reading, script->file) };

		rc = number_of(numbers, names, &function, &by_id[i + 1]);
	}
	for (size_t i = 0; rc == 0 && i < reading->frames.count; i++) {
		uint64_t *frame = &reading->frames.data[i];

		if (is_script(reading, *frame))
			*frame = prof_frame_module(prof_frame_module_id(*frame),
						   by_id[prof_frame_offset(*frame)], 0);
	}
	return rc;
}
