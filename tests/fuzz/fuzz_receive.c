// SPDX-License-Identifier: Apache-2.0
/* Profiles that a stranger sends: the first byte chooses between pprof, OTLP and a form; `{` begins
 * OTLP in JSON. Properties: every index of what was decoded lies in its table, values are not
 * negative, texts end, the parts of a form lie in its body, and what was made of JSON is
 * protobuf. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/profile/profile.h"
#include "api/receive/multipart.h"
#include "api/receive/otlp_in.h"
#include "api/receive/otlp_json.h"
#include "api/receive/pprof_in.h"

#define INPUT_MAX 65536u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool holds)
{
	if (!holds)
		abort();
}

static void check_place(const struct received_tables *tables, const struct received_place *place)
{
	require(place->mapping <= tables->mappings.count && place->line_count <= RECEIVED_INLINE_MAX &&
		place->first_line + place->line_count <= tables->lines.count);
	for (uint32_t i = 0; i < place->line_count; i++) {
		const struct received_line *line = &tables->lines.data[place->first_line + i];

		require(*line->function && strlen(line->function) <= RECEIVED_TEXT_MAX &&
			strlen(line->file) <= RECEIVED_TEXT_MAX &&
			strlen(line->symbol) <= RECEIVED_TEXT_MAX);
	}
}

static void check_sample(const struct received_tables *tables, const struct received_sample *sample)
{
	require(sample->frame_count <= RECEIVED_DEPTH_MAX && sample->label_count <= RECEIVED_LABELS_MAX &&
		sample->first_frame + sample->frame_count <= tables->frames.count &&
		sample->first_label + sample->label_count <= tables->labels.count);
	require(sample->values[0] >= 0 && sample->values[1] >= 0 && sample->thread);
	for (uint32_t i = 0; i < sample->label_count; i++)
		require(*tables->labels.data[sample->first_label + i].name &&
			tables->labels.data[sample->first_label + i].value);
}

static void check_message(const struct message *message)
{
	const struct received_tables *tables = &message->tables;

	require(message->list.count <= MESSAGE_LIST_MAX);
	for (size_t i = 0; i < tables->frames.count; i++)
		require(tables->frames.data[i] < tables->places.count);
	for (size_t i = 0; i < tables->places.count; i++)
		check_place(tables, &tables->places.data[i]);
	for (size_t i = 0; i < message->list.count; i++) {
		const struct received *received = &message->list.data[i];

		require(received->tables == tables && received->type < PROFILE_TYPE_MAX &&
			received->note_count <= RECEIVED_NOTES_MAX &&
			received->session_label_count < SESSION_LABELS_MAX);
		for (size_t k = 0; k < received->samples.count; k++)
			check_sample(tables, &received->samples.data[k]);
	}
}

static void try_form(const char *text, size_t len)
{
	struct multipart form;
	struct multipart_part part;

	require(multipart_begin(&form, "multipart/form-data; boundary=b", text, len) == 0);
	while (multipart_next(&form, &part) > 0)
		require(part.data >= text && part.data + part.len <= text + len);
}

static int try_json(struct message *message, const char *text, size_t len, struct err *err)
{
	cleanup_buf struct buf bytes = { .max = 8 * INPUT_MAX };
	int rc = otlp_json_read(text, len, &bytes, err);

	require(rc == 0 || (rc < 0 && err->text[0]));
	if (rc == 0)
		rc = otlp_read(message, bytes.len ? bytes.data : "", bytes.len, err);
	require(!strstr(err->text, "no protobuf message") && !strstr(err->text, "numbers is cut"));
	return rc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_message struct message message = { 0 };
	struct err err = { 0 };
	char *text;
	int rc = -1;

	if (size < 1 || size > INPUT_MAX)
		return 0;
	text = malloc(size);
	if (!text)
		return 0;
	memcpy(text, data + 1, size - 1);
	if (data[0] == '{')
		rc = try_json(&message, (const char *)data, size, &err);
	else if (data[0] % 3 == 0)
		rc = pprof_read(&message, text, size - 1, data[0] & 64 ? PROFILE_MUTEX : -1, &err);
	else if (data[0] % 3 == 1)
		rc = otlp_read(&message, text, size - 1, &err);
	else
		try_form(text, size - 1);
	if (rc == 0)
		check_message(&message);
	else if (rc < -1)
		require(err.text[0] || rc == -12); /* whoever is refused learns why */
	free(text);
	return 0;
}
