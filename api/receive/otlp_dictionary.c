// SPDX-License-Identifier: Apache-2.0
#include "api/receive/otlp_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "agent/profile/profile.h"
#include "api/http/otlp_fields.h"

#define STRINGS_MAX    2000000u
#define TABLE_MAX      1000000u
#define TIMESTAMPS_MAX 4000000u

void otlp_dictionary_deinit(struct otlp *o)
{
	otlp_strings_vec_deinit(&o->strings);
	otlp_functions_vec_deinit(&o->functions);
	otlp_attributes_vec_deinit(&o->attributes);
	otlp_stacks_vec_deinit(&o->stacks);
	otlp_links_vec_deinit(&o->links);
}

int otlp_too_many(struct otlp *o, const char *what)
{
	return err_set(o->err, E2BIG, "LimitReached", what, "the request has too many entries of %s",
		       what);
}

int otlp_each_field(struct otlp *o, const struct proto_value *value, const char *what,
		      otlp_field_fn *take, void *ctx)
{
	struct proto_in in = value->in;
	struct proto_value field;
	int rc = 0;

	if (value->wire != PROTO_WIRE_BYTES)
		return message_bad(o->err, what, "expected a message");
	while (rc == 0 && (rc = message_next(&in, &field, what, o->err)) > 0)
		rc = take(ctx, &field);
	return rc;
}

int otlp_string(struct otlp *o, uint64_t index, const char *what, const char **ret)
{
	if (index >= o->strings.count)
		return message_bad(o->err, what, "no such entry of string_table");
	*ret = o->strings.data[index];
	return 0;
}

static uint32_t line_of(uint64_t number)
{
	return (int64_t)number > 0 && number < 1u << 31 ? (uint32_t)number : 0;
}

/* ---- values ---------------------------------------------------------------------------------- */

struct any_value {
	struct otlp *o;
	const char *text;
	uint64_t number;
};

static int decimal(struct otlp *o, int64_t number, const char **ret)
{
	char text[24];

	(void)snprintf(text, sizeof(text), "%" PRId64, number);
	*ret = arena_text(&o->message->arena, text, strlen(text));
	return *ret ? 0 : -ENOMEM;
}

static int take_any_value(void *ctx, const struct proto_value *field)
{
	struct any_value *any = ctx;

	switch (field->field) {
	case ANY_VALUE_STRING:
		return message_text(any->o->message, field, "value.string_value", &any->text, any->o->err);
	case ANY_VALUE_STRING_INDEX:
		return otlp_string(any->o, field->number, "value.string_value_strindex", &any->text);
	case ANY_VALUE_BOOL:
		any->text = field->number ? "true" : "false";
		return 0;
	case ANY_VALUE_INT:
		any->number = field->number;
		return decimal(any->o, (int64_t)field->number, &any->text);
	default:
		return 0;
	}
}

struct key_value {
	struct otlp *o;
	const char *key;
	struct any_value value;
};

static int take_key_value(void *ctx, const struct proto_value *field)
{
	struct key_value *pair = ctx;

	switch (field->field) {
	case KEY_VALUE_KEY:
		return message_text(pair->o->message, field, "attributes.key", &pair->key, pair->o->err);
	case KEY_VALUE_KEY_INDEX:
		return otlp_string(pair->o, field->number, "attributes.key_strindex", &pair->key);
	case KEY_VALUE_VALUE:
		return otlp_each_field(pair->o, field, "attributes.value", take_any_value, &pair->value);
	default:
		return 0;
	}
}

int otlp_read_pair(struct otlp *o, const struct proto_value *value, struct otlp_pair *ret)
{
	struct key_value pair = { .o = o, .key = "", .value = { .o = o, .text = "" } };
	int rc = otlp_each_field(o, value, "attributes", take_key_value, &pair);

	if (rc == 0)
		*ret = (struct otlp_pair){ pair.key, pair.value.text, pair.value.number };
	return rc;
}

/* ---- the dictionary -------------------------------------------------------------------------- */

static int take_string(struct otlp *o, const struct proto_value *value)
{
	const char *text;
	int rc;

	if (o->strings.count >= STRINGS_MAX)
		return otlp_too_many(o, "string_table");
	rc = message_text(o->message, value, "string_table", &text, o->err);
	return rc < 0 ? rc : otlp_strings_vec_push(&o->strings, text);
}

static int take_attribute_field(void *ctx, const struct proto_value *field)
{
	struct key_value *pair = ctx;

	if (field->field == ATTRIBUTE_KEY)
		return otlp_string(pair->o, field->number, "attribute_table.key_strindex", &pair->key);
	if (field->field == ATTRIBUTE_VALUE)
		return otlp_each_field(pair->o, field, "attribute_table.value", take_any_value, &pair->value);
	return 0;
}

static int take_attribute(struct otlp *o, const struct proto_value *value)
{
	struct key_value pair = { .o = o, .key = "", .value = { .o = o, .text = "" } };
	int rc = otlp_each_field(o, value, "attribute_table", take_attribute_field, &pair);

	if (rc < 0)
		return rc;
	if (o->attributes.count >= TABLE_MAX)
		return otlp_too_many(o, "attribute_table");
	return otlp_attributes_vec_push(&o->attributes,
				   (struct otlp_attribute){ pair.key, pair.value.text, pair.value.number });
}

static int hexadecimal(struct otlp *o, const struct proto_value *value, const char **ret)
{
	static const char digits[] = "0123456789abcdef";
	const size_t len = (size_t)(value->in.end - value->in.at);
	char text[33] = "";
	bool any = false;

	if (value->wire != PROTO_WIRE_BYTES || len > 16)
		return message_bad(o->err, "link_table", "an id must have at most 16 bytes");
	for (size_t i = 0; i < len; i++) {
		any |= value->in.at[i] != 0;
		text[2 * i] = digits[value->in.at[i] >> 4];
		text[2 * i + 1] = digits[value->in.at[i] & 15];
	}
	*ret = arena_text(&o->message->arena, text, any ? 2 * len : 0);
	return *ret ? 0 : -ENOMEM;
}

struct link_in {
	struct otlp *o;
	struct otlp_link link;
};

static int take_link_field(void *ctx, const struct proto_value *field)
{
	struct link_in *in = ctx;

	if (field->field == LINK_TRACE_ID)
		return hexadecimal(in->o, field, &in->link.trace);
	return field->field == LINK_SPAN_ID ? hexadecimal(in->o, field, &in->link.span) : 0;
}

static int take_link(struct otlp *o, const struct proto_value *value)
{
	struct link_in in = { o, { "", "" } };
	int rc = otlp_each_field(o, value, "link_table", take_link_field, &in);

	if (rc == 0 && o->links.count >= TABLE_MAX)
		rc = otlp_too_many(o, "link_table");
	return rc < 0 ? rc : otlp_links_vec_push(&o->links, in.link);
}

struct mapping_in {
	struct otlp *o;
	struct received_mapping mapping;
};

static int take_mapping_attribute(void *ctx, uint64_t index)
{
	struct mapping_in *in = ctx;
	const struct otlp_attribute *attribute;

	if (index >= in->o->attributes.count)
		return message_bad(in->o->err, "mapping_table.attribute_indices", "no such attribute");
	attribute = &in->o->attributes.data[index];
	if (strcmp(attribute->key, "process.executable.build_id.gnu") == 0)
		in->mapping.build_id_len = message_build_id(attribute->value, in->mapping.build_id);
	return 0;
}

static int take_mapping_field(void *ctx, const struct proto_value *field)
{
	struct mapping_in *in = ctx;

	if (field->field == MAPPING_FILENAME)
		return otlp_string(in->o, field->number, "mapping_table.filename_strindex",
				 &in->mapping.path);
	if (field->field == MAPPING_ATTRIBUTES)
		return message_numbers(field, "mapping_table.attribute_indices",
				       take_mapping_attribute, in, in->o->err);
	return 0;
}

static int take_mapping(struct otlp *o, const struct proto_value *value)
{
	struct mapping_in in = { o, { .path = "" } };
	int rc = otlp_each_field(o, value, "mapping_table", take_mapping_field, &in);

	if (rc == 0 && o->message->tables.mappings.count >= RECEIVED_MAPPINGS_MAX)
		rc = otlp_too_many(o, "mapping_table");
	return rc < 0 ? rc : received_mappings_vec_push(&o->message->tables.mappings, in.mapping);
}

struct function_in {
	struct otlp *o;
	struct otlp_function function;
};

static int take_function_field(void *ctx, const struct proto_value *field)
{
	struct function_in *in = ctx;

	switch (field->field) {
	case FUNCTION_NAME:
		return otlp_string(in->o, field->number, "function_table.name_strindex", &in->function.name);
	case FUNCTION_SYSTEM_NAME:
		return otlp_string(in->o, field->number, "function_table.system_name_strindex",
				 &in->function.symbol);
	case FUNCTION_FILENAME:
		return otlp_string(in->o, field->number, "function_table.filename_strindex",
				 &in->function.file);
	case FUNCTION_START_LINE:
		in->function.start_line = line_of(field->number);
		return 0;
	default:
		return 0;
	}
}

static int take_function(struct otlp *o, const struct proto_value *value)
{
	struct function_in in = { o, { "", "", "", 0 } };
	int rc = otlp_each_field(o, value, "function_table", take_function_field, &in);

	if (rc == 0 && o->functions.count >= RECEIVED_PLACES_MAX)
		rc = otlp_too_many(o, "function_table");
	if (!*in.function.name)
		in.function.name = in.function.symbol;
	if (strcmp(in.function.symbol, in.function.name) == 0)
		in.function.symbol = "";
	return rc < 0 ? rc : otlp_functions_vec_push(&o->functions, in.function);
}

struct location_in {
	struct otlp *o;
	struct received_place place;
	int kind; /* of its attribute, -1 = none */
	uint64_t function;
	uint32_t line;
};

static int take_line_field(void *ctx, const struct proto_value *field)
{
	struct location_in *in = ctx;

	if (field->field == LINE_FUNCTION)
		in->function = field->number;
	else if (field->field == LINE_LINE)
		in->line = line_of(field->number);
	return 0;
}

static int take_line(struct location_in *in, const struct proto_value *value)
{
	struct received_line line = { 0 };
	const struct otlp_function *function;
	int rc;

	in->function = in->line = 0;
	rc = otlp_each_field(in->o, value, "location_table.lines", take_line_field, in);
	if (rc < 0)
		return rc;
	if (in->function >= in->o->functions.count)
		return message_bad(in->o->err, "location_table.lines.function_index", "no such function");
	function = &in->o->functions.data[in->function];
	line = (struct received_line){ function->name, function->symbol, function->file, in->line,
				       function->start_line };
	return *line.function ? received_lines_vec_push(&in->o->message->tables.lines, line) : 0;
}

/* Values of profile.frame.type, OpenTelemetry's semantic conventions. */
static int frame_kind(const char *word)
{
	static const struct {
		const char *word;
		int kind;
	} words[] = {
		{ "kernel", PROFILE_FRAME_KERNEL },   { "go", PROFILE_FRAME_GO },
		{ "native", PROFILE_FRAME_NATIVE },   { "rust", PROFILE_FRAME_NATIVE },
		{ "jvm", PROFILE_FRAME_JIT },	      { "v8js", PROFILE_FRAME_JIT },
		{ "dotnet", PROFILE_FRAME_JIT },      { "beam", PROFILE_FRAME_JIT },
		{ "cpython", PROFILE_FRAME_INTERPRETED }, { "ruby", PROFILE_FRAME_INTERPRETED },
		{ "php", PROFILE_FRAME_INTERPRETED }, { "phpjit", PROFILE_FRAME_JIT },
		{ "perl", PROFILE_FRAME_INTERPRETED },
	};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (strcmp(words[i].word, word) == 0)
			return words[i].kind;
	return -1;
}

static int take_location_attribute(void *ctx, uint64_t index)
{
	struct location_in *in = ctx;
	const struct otlp_attribute *attribute;

	if (index >= in->o->attributes.count)
		return message_bad(in->o->err, "location_table.attribute_indices", "no such attribute");
	attribute = &in->o->attributes.data[index];
	if (strcmp(attribute->key, "profile.frame.type") == 0)
		in->kind = frame_kind(attribute->value);
	return 0;
}

static int take_location_field(void *ctx, const struct proto_value *field)
{
	struct location_in *in = ctx;

	switch (field->field) {
	case LOCATION_MAPPING:
		if (field->number >= in->o->message->tables.mappings.count)
			return message_bad(in->o->err, "location_table.mapping_index", "no such mapping");
		/* Entry 0 is no mapping. */
		in->place.mapping = field->number ? (uint32_t)field->number + 1 : 0;
		return 0;
	case LOCATION_ADDRESS:
		in->place.address = field->number;
		return 0;
	case LOCATION_LINES:
		return take_line(in, field);
	case LOCATION_ATTRIBUTES:
		return message_numbers(field, "location_table.attribute_indices",
				       take_location_attribute, in, in->o->err);
	default:
		return 0;
	}
}

static int take_location(struct otlp *o, const struct proto_value *value)
{
	struct received_tables *tables = &o->message->tables;
	struct location_in in = { .o = o, .place = { .first_line = tables->lines.count }, .kind = -1 };
	int rc = otlp_each_field(o, value, "location_table", take_location_field, &in);

	if (rc < 0)
		return rc;
	in.place.line_count = (uint32_t)(tables->lines.count - in.place.first_line);
	if (in.place.line_count > RECEIVED_INLINE_MAX)
		return message_bad(o->err, "location_table.lines", "more than 64 lines");
	if (tables->places.count >= RECEIVED_PLACES_MAX)
		return otlp_too_many(o, "location_table");
	in.place.kind = in.kind >= 0
				? (uint8_t)in.kind
				: message_frame_kind(
					  in.place.mapping
						  ? tables->mappings.data[in.place.mapping - 1].path
						  : "",
					  in.place.line_count
						  ? &tables->lines.data[in.place.first_line]
						  : NULL);
	return received_places_vec_push(&tables->places, in.place);
}

struct stack_in {
	struct otlp *o;
	struct otlp_stack stack;
};

static int take_stack_location(void *ctx, uint64_t index)
{
	struct stack_in *in = ctx;
	struct received_tables *tables = &in->o->message->tables;

	if (index >= tables->places.count)
		return message_bad(in->o->err, "stack_table.location_indices", "no such location");
	if (in->stack.frame_count == RECEIVED_DEPTH_MAX) {
		in->stack.is_cut = true;
		return 0;
	}
	if (tables->frames.count >= RECEIVED_FRAMES_MAX)
		return otlp_too_many(in->o, "stack_table.location_indices");
	in->stack.frame_count++;
	return received_frames_vec_push(&tables->frames, (uint32_t)index);
}

static int take_stack_field(void *ctx, const struct proto_value *field)
{
	struct stack_in *in = ctx;

	if (field->field != STACK_LOCATIONS)
		return 0;
	return message_numbers(field, "stack_table.location_indices", take_stack_location, in, in->o->err);
}

static int take_stack(struct otlp *o, const struct proto_value *value)
{
	struct stack_in in = { o, { .first_frame = o->message->tables.frames.count } };
	int rc = otlp_each_field(o, value, "stack_table", take_stack_field, &in);

	if (rc == 0 && o->stacks.count >= TABLE_MAX)
		rc = otlp_too_many(o, "stack_table");
	return rc < 0 ? rc : otlp_stacks_vec_push(&o->stacks, in.stack);
}

int otlp_dictionary_read(struct otlp *o)
{
	static const struct {
		uint32_t field;
		int (*take)(struct otlp *o, const struct proto_value *value);
	} tables[] = {
		{ DICTIONARY_STRINGS, take_string },   { DICTIONARY_ATTRIBUTES, take_attribute },
		{ DICTIONARY_LINKS, take_link },       { DICTIONARY_MAPPINGS, take_mapping },
		{ DICTIONARY_FUNCTIONS, take_function }, { DICTIONARY_LOCATIONS, take_location },
		{ DICTIONARY_STACKS, take_stack },
	};
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(tables); i++) {
		struct proto_in in = o->dictionary;
		struct proto_value value;

		while (rc == 0 && (rc = message_next(&in, &value, "dictionary", o->err)) > 0)
			rc = value.field == tables[i].field ? tables[i].take(o, &value) : 0;
	}
	if (rc == 0 && (!o->strings.count || *o->strings.data[0]))
		rc = message_bad(o->err, "string_table", "entry 0 must be the empty text");
	return rc;
}

