// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/script_names.h"

#include <string.h>

/* A function with its texts; SCRIPT_FUNCTIONS_MAX of them fit into a message. */
#define FUNCTION_BYTES(function_len, file_len)                                                     \
	(2 * sizeof(uint32_t) + 2 * sizeof(uint16_t) + (function_len) + (file_len))

void script_names_deinit(struct script_names *names)
{
	buf_deinit(&names->payload);
}

static size_t begin_of(const struct script_names *names)
{
	return names->count > 1 ? names->ends[names->count - 2] : 0;
}

void script_names_begin(struct script_names *names)
{
	const uint16_t none = 0;

	names->tier = FEED_TIER_UNKNOWN;
	names->is_approximate = false;
	if (names->count >= CONTROL_SCRIPT_PLACES_MAX)
		return;
	buf_add(&names->payload, &none, sizeof(none));
	names->ends[names->count++] = names->payload.len;
}

static void add_text(struct buf *buf, const char *text)
{
	uint16_t len = (uint16_t)strnlen(text, SCRIPT_NAME_MAX);

	buf_add(buf, &len, sizeof(len));
	buf_add(buf, text, len);
}

void script_names_add(struct script_names *names, const char *function, const char *file,
		      uint32_t line, uint32_t first_line)
{
	const uint32_t lines[2] = { line, (first_line <= FEED_LINE_MAX ? first_line : 0) |
						  (uint32_t)names->tier << FEED_TIER_SHIFT |
						  (names->is_approximate ? FEED_APPROXIMATE : 0) };
	size_t begin = begin_of(names);
	uint16_t count;

	if (names->payload.error || !names->count)
		return;
	memcpy(&count, names->payload.data + begin, sizeof(count));
	if (count >= SCRIPT_FUNCTIONS_MAX ||
	    names->payload.len - begin +
			    FUNCTION_BYTES(strnlen(function, SCRIPT_NAME_MAX),
					   strnlen(file, SCRIPT_NAME_MAX)) >
		    SCRIPT_ENTRY_BYTES_MAX)
		return;
	buf_add(&names->payload, lines, sizeof(lines));
	add_text(&names->payload, function);
	add_text(&names->payload, file);
	if (names->payload.error)
		return;
	count++;
	memcpy(names->payload.data + begin, &count, sizeof(count));
	names->ends[names->count - 1] = names->payload.len;
}

void script_names_drop(struct script_names *names)
{
	const uint16_t none = 0;
	size_t begin = begin_of(names);

	if (names->payload.error || !names->count)
		return;
	memcpy(names->payload.data + begin, &none, sizeof(none));
	names->payload.len = begin + sizeof(none);
	names->ends[names->count - 1] = names->payload.len;
}
