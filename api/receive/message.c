// SPDX-License-Identifier: Apache-2.0
#include "api/receive/message.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/parse.h"
#include "agent/base/text.h"
#include "agent/profile/profile.h"

void message_deinit(struct message *message)
{
	for (size_t i = 0; i < message->list.count; i++)
		received_samples_vec_deinit(&message->list.data[i].samples);
	received_list_vec_deinit(&message->list);
	received_mappings_vec_deinit(&message->tables.mappings);
	received_lines_vec_deinit(&message->tables.lines);
	received_places_vec_deinit(&message->tables.places);
	received_frames_vec_deinit(&message->tables.frames);
	received_labels_vec_deinit(&message->tables.labels);
	arena_deinit(&message->arena);
	*message = (struct message){ 0 };
}

int message_bad(struct err *err, const char *what, const char *expected)
{
	return err_set(err, EINVAL, "InvalidBody", what, "%s: %s", what, expected);
}

int message_next(struct proto_in *in, struct proto_value *ret, const char *what, struct err *err)
{
	int rc = proto_in_next(in, ret);

	return rc < 0 ? message_bad(err, what, "the bytes are no protobuf message") : rc;
}

int message_text(struct message *message, const struct proto_value *value, const char *what,
		 const char **ret, struct err *err)
{
	const size_t len = (size_t)(value->in.end - value->in.at);
	const char *text;

	if (value->wire != PROTO_WIRE_BYTES)
		return message_bad(err, what, "expected a text");
	if (len > RECEIVED_TEXT_MAX || !parse_is_utf8((const char *)value->in.at, len))
		return message_bad(err, what, "a text must be UTF-8 of at most 8,192 bytes without NUL");
	text = arena_text(&message->arena, value->in.at, len);
	if (!text)
		return -ENOMEM;
	*ret = text;
	return 0;
}

int message_numbers(const struct proto_value *value, const char *what, message_number_fn *take,
		    void *ctx, struct err *err)
{
	struct proto_in in = value->in;
	uint64_t number;
	int rc = 0;

	if (value->wire == PROTO_WIRE_VARINT)
		return take(ctx, value->number);
	if (value->wire != PROTO_WIRE_BYTES)
		return message_bad(err, what, "expected numbers");
	while (rc == 0 && (rc = proto_in_varint(&in, &number)) > 0)
		rc = take(ctx, number);
	return rc == -EPROTO ? message_bad(err, what, "the list of numbers is cut") : rc;
}

static bool ends_in(const char *text, const char *end)
{
	const size_t len = strlen(text), tail = strlen(end);

	return len > tail && strcmp(text + len - tail, end) == 0;
}

uint8_t message_frame_kind(const char *mapping, const struct received_line *line)
{
	static const char *const interpreted[] = { ".py", ".rb", ".js", ".ts", ".php", ".pl" };
	const char *file = line ? line->file : "";
	if (text_begins(mapping, "[kernel") || text_begins(mapping, "[guest.kernel"))
		return PROFILE_FRAME_KERNEL;
	/* Go's own assembler writes names with dots. */
	if (ends_in(file, ".go") || (ends_in(file, ".s") && strchr(line->function, '.')))
		return PROFILE_FRAME_GO;
	if (ends_in(file, ".java") || ends_in(file, ".kt") || ends_in(file, ".scala"))
		return PROFILE_FRAME_JIT;
	for (size_t i = 0; i < ARRAY_SIZE(interpreted); i++)
		if (ends_in(file, interpreted[i]))
			return PROFILE_FRAME_INTERPRETED;
	return PROFILE_FRAME_NATIVE;
}

static int digit(char c)
{
	static const char digits[] = "0123456789abcdef";
	const char *at = c ? strchr(digits, c | 0x20) : NULL;

	return at ? (int)(at - digits) : -1;
}

uint8_t message_build_id(const char *hex, uint8_t ret[32])
{
	const size_t len = strlen(hex);
	uint8_t bytes[32];

	if (len % 2 || len > 2 * sizeof(bytes))
		return 0;
	for (size_t i = 0; i < len; i += 2) {
		const int high = digit(hex[i]), low = digit(hex[i + 1]);

		if (high < 0 || low < 0)
			return 0;
		bytes[i / 2] = (uint8_t)(high << 4 | low);
	}
	memcpy(ret, bytes, len / 2);
	return (uint8_t)(len / 2);
}

void message_note(struct received *received, const char *fmt, ...)
{
	va_list args;

	if (received->note_count == RECEIVED_NOTES_MAX)
		return;
	va_start(args, fmt);
	(void)vsnprintf(received->notes[received->note_count++], sizeof(received->notes[0]), fmt, args);
	va_end(args);
}

void message_reject(struct message *message, const struct err *err)
{
	if (!message->rejected++)
		(void)snprintf(message->why, sizeof(message->why), "%.199s", err->text);
}
