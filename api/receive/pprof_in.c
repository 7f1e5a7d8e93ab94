// SPDX-License-Identifier: Apache-2.0
#include "api/receive/pprof_in.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/u64map.h"
#include "agent/profile/profile.h"
#include "api/http/pprof_fields.h"

#define STRINGS_MAX 2000000u

struct function {
	const char *name, *symbol, *file;
	uint32_t start_line;
};
struct range { /* of a mapping in memory */
	uint64_t start, file_offset;
};
VEC_DEFINE(strings, const char *);
VEC_DEFINE(functions, struct function);
VEC_DEFINE(ranges, struct range);

struct pprof {
	struct message *message;
	struct err *err;
	struct proto_in in; /* the whole message */
	struct strings_vec strings;
	struct functions_vec functions;
	struct ranges_vec ranges; /* by index of a mapping */
	struct u64map function_at, mapping_at, place_at; /* id -> index */
	struct value_type columns[VALUE_COLUMNS_MAX], period_type;
	unsigned column_count;
	struct value_plan plans[PROFILE_TYPE_MAX];
	int profile_of[PROFILE_TYPE_MAX]; /* index in the message's list, -1 = none */
	int64_t time_ns, duration_ns, period;
	uint32_t labels_left_out;
};

static void pprof_deinit(struct pprof *p)
{
	strings_vec_deinit(&p->strings);
	functions_vec_deinit(&p->functions);
	ranges_vec_deinit(&p->ranges);
	u64map_deinit(&p->function_at);
	u64map_deinit(&p->mapping_at);
	u64map_deinit(&p->place_at);
}

static int too_many(struct pprof *p, const char *what)
{
	return err_set(p->err, E2BIG, "LimitReached", what, "the profile has too many entries of %s",
		       what);
}

/* ---- the tables ------------------------------------------------------------------------------ */

typedef int field_fn(struct pprof *p, const struct proto_value *value);

/* Calls @take for each field @number of the profile. */
static int each_field(struct pprof *p, uint32_t number, field_fn *take)
{
	struct proto_in in = p->in;
	struct proto_value value;
	int rc = 0;

	while (rc == 0 && (rc = message_next(&in, &value, "profile", p->err)) > 0)
		rc = value.field == number ? take(p, &value) : 0;
	return rc;
}

static int take_string(struct pprof *p, const struct proto_value *value)
{
	const char *text;
	int rc;

	if (p->strings.count >= STRINGS_MAX)
		return too_many(p, "string_table");
	rc = message_text(p->message, value, "string_table", &text, p->err);
	return rc < 0 ? rc : strings_vec_push(&p->strings, text);
}

static int string_of(struct pprof *p, uint64_t index, const char *what, const char **ret)
{
	if (index >= p->strings.count)
		return message_bad(p->err, what, "no such entry of string_table");
	*ret = p->strings.data[index];
	return 0;
}

static int is_message(struct pprof *p, const struct proto_value *value, const char *what)
{
	return value->wire == PROTO_WIRE_BYTES ? 0 : message_bad(p->err, what, "expected a message");
}

/* An id, which is not 0 and not given twice, for the entry at @index. */
static int put_id(struct pprof *p, struct u64map *map, uint64_t id, size_t index, const char *what)
{
	uint64_t other;

	if (!id || u64map_get(map, id, &other))
		return message_bad(p->err, what, "an id must not be 0 and not be given twice");
	return u64map_put(map, id, index);
}

static int take_mapping(struct pprof *p, const struct proto_value *value)
{
	struct received_mapping mapping = { .path = "" };
	struct proto_in in = value->in;
	struct range range = { 0 };
	struct proto_value field;
	const char *build_id = "";
	uint64_t id = 0;
	int rc = is_message(p, value, "mapping");

	while (rc == 0 && (rc = message_next(&in, &field, "mapping", p->err)) > 0) {
		rc = 0;
		if (field.field == MAPPING_ID)
			id = field.number;
		else if (field.field == MAPPING_START)
			range.start = field.number;
		else if (field.field == MAPPING_FILE_OFFSET)
			range.file_offset = field.number;
		else if (field.field == MAPPING_FILENAME)
			rc = string_of(p, field.number, "mapping.filename", &mapping.path);
		else if (field.field == MAPPING_BUILD_ID)
			rc = string_of(p, field.number, "mapping.build_id", &build_id);
	}
	if (rc < 0)
		return rc;
	if (p->ranges.count >= RECEIVED_MAPPINGS_MAX)
		return too_many(p, "mapping");
	mapping.build_id_len = message_build_id(build_id, mapping.build_id);
	rc = put_id(p, &p->mapping_at, id, p->ranges.count, "mapping.id");
	if (rc == 0)
		rc = ranges_vec_push(&p->ranges, range);
	return rc < 0 ? rc : received_mappings_vec_push(&p->message->tables.mappings, mapping);
}

static uint32_t line_of(uint64_t number)
{
	return (int64_t)number > 0 && number < 1u << 31 ? (uint32_t)number : 0;
}

static int take_function(struct pprof *p, const struct proto_value *value)
{
	struct function function = { "", "", "", 0 };
	struct proto_in in = value->in;
	struct proto_value field;
	uint64_t id = 0;
	int rc = is_message(p, value, "function");

	while (rc == 0 && (rc = message_next(&in, &field, "function", p->err)) > 0) {
		rc = 0;
		if (field.field == FUNCTION_ID)
			id = field.number;
		else if (field.field == FUNCTION_NAME)
			rc = string_of(p, field.number, "function.name", &function.name);
		else if (field.field == FUNCTION_SYSTEM_NAME)
			rc = string_of(p, field.number, "function.system_name", &function.symbol);
		else if (field.field == FUNCTION_FILENAME)
			rc = string_of(p, field.number, "function.filename", &function.file);
		else if (field.field == FUNCTION_START_LINE)
			function.start_line = line_of(field.number);
	}
	if (rc < 0)
		return rc;
	if (p->functions.count >= RECEIVED_PLACES_MAX)
		return too_many(p, "function");
	if (!*function.name)
		function.name = function.symbol;
	if (strcmp(function.symbol, function.name) == 0)
		function.symbol = "";
	rc = put_id(p, &p->function_at, id, p->functions.count, "function.id");
	return rc < 0 ? rc : functions_vec_push(&p->functions, function);
}

static int take_line(struct pprof *p, const struct proto_value *value)
{
	struct received_line line = { 0 };
	struct proto_in in = value->in;
	struct proto_value field;
	uint64_t id = 0, at;
	int rc = is_message(p, value, "location.line");

	while (rc == 0 && (rc = message_next(&in, &field, "location.line", p->err)) > 0) {
		rc = 0;
		if (field.field == LINE_FUNCTION_ID)
			id = field.number;
		else if (field.field == LINE_LINE)
			line.line = line_of(field.number);
	}
	if (rc < 0)
		return rc;
	if (!u64map_get(&p->function_at, id, &at))
		return message_bad(p->err, "location.line.function_id", "no such function");
	line.function = p->functions.data[at].name;
	line.symbol = p->functions.data[at].symbol;
	line.file = p->functions.data[at].file;
	line.start_line = p->functions.data[at].start_line;
	/* A function without a name says nothing. */
	return *line.function ? received_lines_vec_push(&p->message->tables.lines, line) : 0;
}

/* Addresses are those of the process's memory; what is kept are offsets in the file. */
static void place_in_file(const struct pprof *p, struct received_place *place)
{
	const struct range *range = place->mapping ? &p->ranges.data[place->mapping - 1] : NULL;

	if (range && place->address >= range->start)
		place->address = place->address - range->start + range->file_offset;
}

static int take_location(struct pprof *p, const struct proto_value *value)
{
	struct received_tables *tables = &p->message->tables;
	struct received_place place = { .first_line = tables->lines.count };
	struct proto_in in = value->in;
	struct proto_value field;
	uint64_t id = 0, mapping = 0, at = 0;
	int rc = is_message(p, value, "location");

	while (rc == 0 && (rc = message_next(&in, &field, "location", p->err)) > 0) {
		rc = 0;
		if (field.field == LOCATION_ID)
			id = field.number;
		else if (field.field == LOCATION_MAPPING_ID)
			mapping = field.number;
		else if (field.field == LOCATION_ADDRESS)
			place.address = field.number;
		else if (field.field == LOCATION_LINE)
			rc = take_line(p, &field);
	}
	if (rc < 0)
		return rc;
	if (mapping && !u64map_get(&p->mapping_at, mapping, &at))
		return message_bad(p->err, "location.mapping_id", "no such mapping");
	place.mapping = mapping ? (uint32_t)at + 1 : 0;
	place.line_count = (uint32_t)(tables->lines.count - place.first_line);
	if (place.line_count > RECEIVED_INLINE_MAX)
		return message_bad(p->err, "location.line", "more than 64 lines");
	if (tables->places.count >= RECEIVED_PLACES_MAX)
		return too_many(p, "location");
	place.kind = message_frame_kind(
		mapping ? tables->mappings.data[at].path : "",
		place.line_count ? &tables->lines.data[place.first_line] : NULL);
	place_in_file(p, &place);
	rc = put_id(p, &p->place_at, id, tables->places.count, "location.id");
	return rc < 0 ? rc : received_places_vec_push(&tables->places, place);
}

/* ---- types ----------------------------------------------------------------------------------- */

static int read_value_type(struct pprof *p, const struct proto_value *value, const char *what,
			   struct value_type *ret)
{
	struct proto_in in = value->in;
	struct proto_value field;
	int rc = is_message(p, value, what);

	*ret = (struct value_type){ "", "" };
	while (rc == 0 && (rc = message_next(&in, &field, what, p->err)) > 0) {
		rc = 0;
		if (field.field == VALUE_TYPE_TYPE)
			rc = string_of(p, field.number, what, &ret->name);
		else if (field.field == VALUE_TYPE_UNIT)
			rc = string_of(p, field.number, what, &ret->unit);
	}
	return rc;
}

static int take_sample_type(struct pprof *p, const struct proto_value *value)
{
	if (p->column_count == VALUE_COLUMNS_MAX)
		return too_many(p, "sample_type");
	return read_value_type(p, value, "sample_type", &p->columns[p->column_count++]);
}

static int take_period_type(struct pprof *p, const struct proto_value *value)
{
	return read_value_type(p, value, "period_type", &p->period_type);
}

static int take_numbers(struct pprof *p)
{
	struct proto_in in = p->in;
	struct proto_value value;
	int rc;

	while ((rc = message_next(&in, &value, "profile", p->err)) > 0) {
		if (value.field == PROFILE_TIME_NANOS)
			p->time_ns = (int64_t)value.number;
		else if (value.field == PROFILE_DURATION_NANOS)
			p->duration_ns = (int64_t)value.number;
		else if (value.field == PROFILE_PERIOD)
			p->period = (int64_t)value.number;
	}
	return rc;
}

static int begin_profiles(struct pprof *p, int locks)
{
	const struct value_type *unknown;
	int rc = value_plans(p->columns, p->column_count, locks, &p->period_type, p->period, p->plans,
			     &unknown, p->err);

	for (unsigned type = 0; rc == 0 && type < PROFILE_TYPE_MAX; type++) {
		struct received received = { .type = (enum profile_type)type };

		p->profile_of[type] = -1;
		if (!p->plans[type].wanted)
			continue;
		p->profile_of[type] = (int)p->message->list.count;
		received.start_ns = p->time_ns > 0 ? (uint64_t)p->time_ns : 0;
		received.duration_ns = p->duration_ns > 0 ? (uint64_t)p->duration_ns : 0;
		received.period_ns = p->plans[type].period_ns;
		if (unknown)
			message_note(&received, "values of %.40s/%.20s were sent and left out", unknown->name,
				     unknown->unit);
		rc = received_list_vec_push(&p->message->list, received);
	}
	return rc;
}

/* ---- samples --------------------------------------------------------------------------------- */

struct sample {
	struct pprof *p;
	struct received_sample entry;
	int64_t columns[VALUE_COLUMNS_MAX];
	unsigned column_count;
};

static int take_location_id(void *ctx, uint64_t id)
{
	struct sample *sample = ctx;
	struct pprof *p = sample->p;
	uint64_t at;

	if (!u64map_get(&p->place_at, id, &at))
		return message_bad(p->err, "sample.location_id", "no such location");
	if (sample->entry.frame_count == RECEIVED_DEPTH_MAX) {
		sample->entry.is_cut = true;
		return 0;
	}
	if (p->message->tables.frames.count >= RECEIVED_FRAMES_MAX)
		return too_many(p, "sample.location_id");
	sample->entry.frame_count++;
	return received_frames_vec_push(&p->message->tables.frames, (uint32_t)at);
}

static int take_value(void *ctx, uint64_t number)
{
	struct sample *sample = ctx;

	if (sample->column_count == sample->p->column_count)
		return message_bad(sample->p->err, "sample.value", "more values than sample types");
	sample->columns[sample->column_count++] = (int64_t)number;
	return 0;
}

static int add_label(struct sample *sample, const char *name, const char *value)
{
	struct received_labels_vec *labels = &sample->p->message->tables.labels;

	if (strcmp(name, "thread") == 0 && !*sample->entry.thread) {
		sample->entry.thread = value;
		return 0;
	}
	if (!*name || sample->entry.label_count == RECEIVED_LABELS_MAX) {
		sample->p->labels_left_out++;
		return 0;
	}
	if (labels->count >= RECEIVED_ALL_LABELS_MAX)
		return too_many(sample->p, "sample.label");
	sample->entry.label_count++;
	return received_labels_vec_push(labels, (struct received_label){ name, value });
}

static int take_label(struct sample *sample, const struct proto_value *value)
{
	struct pprof *p = sample->p;
	struct proto_in in = value->in;
	struct proto_value field;
	const char *name = "", *text = "";
	char decimal[24];
	int64_t number = 0;
	int rc = is_message(p, value, "sample.label");

	while (rc == 0 && (rc = message_next(&in, &field, "sample.label", p->err)) > 0) {
		rc = 0;
		if (field.field == LABEL_KEY)
			rc = string_of(p, field.number, "sample.label.key", &name);
		else if (field.field == LABEL_STR)
			rc = string_of(p, field.number, "sample.label.str", &text);
		else if (field.field == LABEL_NUM)
			number = (int64_t)field.number;
	}
	if (rc < 0)
		return rc;
	if (!*text && number > 0 && number <= INT32_MAX && strcmp(name, "tid") == 0) {
		sample->entry.tid = (uint32_t)number;
		return 0;
	}
	if (!*text) {
		(void)snprintf(decimal, sizeof(decimal), "%" PRId64, number);
		text = arena_text(&p->message->arena, decimal, strlen(decimal));
	}
	return text ? add_label(sample, name, text) : -ENOMEM;
}

static int add_sample(struct sample *sample)
{
	struct pprof *p = sample->p;
	int rc = 0;

	for (unsigned type = 0; rc == 0 && type < PROFILE_TYPE_MAX; type++) {
		struct received *received;

		if (p->profile_of[type] < 0)
			continue;
		received = &p->message->list.data[p->profile_of[type]];
		if (value_plan_apply(&p->plans[type], (enum profile_type)type, sample->columns,
				     sample->entry.values) < 0)
			return message_bad(p->err, "sample.value", "negative, or too large");
		if (!sample->entry.values[0] && !sample->entry.values[1])
			continue;
		if (received->samples.count >= RECEIVED_SAMPLES_MAX)
			return too_many(p, "sample");
		rc = received_samples_vec_push(&received->samples, sample->entry);
	}
	return rc;
}

static int take_sample(struct pprof *p, const struct proto_value *value)
{
	struct received_tables *tables = &p->message->tables;
	struct sample sample = { .p = p,
				 .entry = { .first_frame = tables->frames.count,
					    .first_label = tables->labels.count,
					    .thread = "" } };
	struct proto_in in = value->in;
	struct proto_value field;
	int rc = is_message(p, value, "sample");

	while (rc == 0 && (rc = message_next(&in, &field, "sample", p->err)) > 0) {
		rc = 0;
		if (field.field == SAMPLE_LOCATION_ID)
			rc = message_numbers(&field, "sample.location_id", take_location_id, &sample, p->err);
		else if (field.field == SAMPLE_VALUE)
			rc = message_numbers(&field, "sample.value", take_value, &sample, p->err);
		else if (field.field == SAMPLE_LABEL)
			rc = take_label(&sample, &field);
	}
	if (rc < 0)
		return rc;
	if (sample.column_count != p->column_count)
		return message_bad(p->err, "sample.value", "expected a value for each sample type");
	return add_sample(&sample);
}

static int read_all(struct pprof *p, int locks)
{
	static const struct {
		uint32_t field;
		field_fn *take;
	} parts[] = {
		{ PROFILE_STRING_TABLE, take_string },	    { PROFILE_SAMPLE_TYPE, take_sample_type },
		{ PROFILE_PERIOD_TYPE, take_period_type },  { PROFILE_MAPPING, take_mapping },
		{ PROFILE_FUNCTION, take_function },	    { PROFILE_LOCATION, take_location },
	};
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(parts); i++)
		rc = each_field(p, parts[i].field, parts[i].take);
	if (rc == 0 && (!p->strings.count || *p->strings.data[0]))
		rc = message_bad(p->err, "string_table", "entry 0 must be the empty text");
	if (rc == 0)
		rc = take_numbers(p);
	if (rc == 0)
		rc = begin_profiles(p, locks);
	return rc < 0 ? rc : each_field(p, PROFILE_SAMPLE, take_sample);
}

int pprof_read(struct message *message, const void *data, size_t len, int locks, struct err *err)
{
	struct pprof p = { .message = message,
			   .err = err,
			   .in = proto_in_of(data, len),
			   .period_type = { "", "" } };
	int rc = read_all(&p, locks);

	for (size_t i = 0; rc == 0 && p.labels_left_out && i < message->list.count; i++)
		message_note(&message->list.data[i], "%u labels of samples were left out: at most 32 each",
			     p.labels_left_out);
	for (size_t i = 0; i < message->list.count; i++)
		message->list.data[i].tables = &message->tables;
	pprof_deinit(&p);
	return rc;
}
