// SPDX-License-Identifier: Apache-2.0
#include "api/grafana/messages.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/parse.h"
#include "api/http/proto_in.h"
#include "api/http/json_in.h"
#include "api/http/json_out.h"

#define DEPTH_MAX 8 /* of messages in messages */

enum kind { TEXT, INT, DOUBLE, BOOL, MESSAGE, PRESENCE };

struct field {
	uint32_t number;
	const char *name; /* in JSON; of requests also the name in the schema is taken, @other */
	const char *other;
	enum kind kind;
	bool list;
	size_t offset; /* requests: in struct querier_request */
	const struct message_type *message;
};

struct message_type {
	const struct field *fields; /* ended by number 0 */
};

#define AT(member) .offset = offsetof(struct querier_request, member)

/* ---- requests -------------------------------------------------------------------------------- */

static const struct field location_fields[] = {
	{ 1, "name", .kind = TEXT, .list = true, AT(call_site) }, { 0 }
};
static const struct message_type location_type = { location_fields };

static const struct field stack_selector_fields[] = {
	{ 1, "callSite", "call_site", MESSAGE, .list = true, .message = &location_type },
	{ 2, "goPgo", "go_pgo", PRESENCE, AT(has_pgo) },
	{ 0 },
};
static const struct message_type stack_selector_type = { stack_selector_fields };

static const struct field range_fields[] = {
	{ 1, "start", .kind = INT, AT(start_ms) },
	{ 2, "end", .kind = INT, AT(end_ms) },
	{ 0 },
};
static const struct message_type range_type = { range_fields };

static const struct field label_values_fields[] = {
	{ 1, "name", .kind = TEXT, AT(name) },
	{ 2, "matchers", .kind = TEXT, .list = true, AT(matchers) },
	{ 3, "start", .kind = INT, AT(start_ms) },
	{ 4, "end", .kind = INT, AT(end_ms) },
	{ 0 },
};
static const struct message_type label_values_type = { label_values_fields };

static const struct field label_names_fields[] = {
	{ 1, "matchers", .kind = TEXT, .list = true, AT(matchers) },
	{ 2, "start", .kind = INT, AT(start_ms) },
	{ 3, "end", .kind = INT, AT(end_ms) },
	{ 0 },
};
static const struct message_type label_names_type = { label_names_fields };

static const struct field series_fields[] = {
	{ 1, "matchers", .kind = TEXT, .list = true, AT(matchers) },
	{ 2, "labelNames", "label_names", TEXT, .list = true, AT(label_names) },
	{ 3, "start", .kind = INT, AT(start_ms) },
	{ 4, "end", .kind = INT, AT(end_ms) },
	{ 0 },
};
static const struct message_type series_type = { series_fields };

#define SELECTION                                                                                  \
	{ 1, "profileTypeID", "profile_typeID", TEXT, AT(type_id) },                               \
	{                                                                                          \
		2, "labelSelector", "label_selector", TEXT, AT(selector)                           \
	}

static const struct field stacktraces_fields[] = {
	SELECTION,
	{ 3, "start", .kind = INT, AT(start_ms) },
	{ 4, "end", .kind = INT, AT(end_ms) },
	{ 5, "maxNodes", "max_nodes", INT, AT(max_nodes) },
	{ 6, "format", .kind = INT, AT(format) },
	{ 7, "stackTraceSelector", "stack_trace_selector", MESSAGE,
	  .message = &stack_selector_type },
	{ 8, "profileIdSelector", "profile_id_selector", TEXT, .list = true, AT(profile_ids) },
	{ 9, "async", .kind = PRESENCE, AT(is_async) },
	{ 10, "traceIdSelector", "trace_id_selector", TEXT, .list = true, AT(trace_ids) },
	{ 11, "spanSelector", "span_selector", TEXT, .list = true, AT(span_ids) },
	{ 0 },
};
static const struct message_type stacktraces_type = { stacktraces_fields };

static const struct field span_profile_fields[] = {
	SELECTION,
	{ 3, "spanSelector", "span_selector", TEXT, .list = true, AT(span_ids) },
	{ 4, "start", .kind = INT, AT(start_ms) },
	{ 5, "end", .kind = INT, AT(end_ms) },
	{ 6, "maxNodes", "max_nodes", INT, AT(max_nodes) },
	{ 7, "format", .kind = INT, AT(format) },
	{ 0 },
};
static const struct message_type span_profile_type = { span_profile_fields };

static const struct field merge_profile_fields[] = {
	SELECTION,
	{ 3, "start", .kind = INT, AT(start_ms) },
	{ 4, "end", .kind = INT, AT(end_ms) },
	{ 5, "maxNodes", "max_nodes", INT, AT(max_nodes) },
	{ 6, "stackTraceSelector", "stack_trace_selector", MESSAGE,
	  .message = &stack_selector_type },
	{ 7, "profileIdSelector", "profile_id_selector", TEXT, .list = true, AT(profile_ids) },
	{ 8, "traceIdSelector", "trace_id_selector", TEXT, .list = true, AT(trace_ids) },
	{ 0 },
};
static const struct message_type merge_profile_type = { merge_profile_fields };

static const struct field select_series_fields[] = {
	SELECTION,
	{ 3, "start", .kind = INT, AT(start_ms) },
	{ 4, "end", .kind = INT, AT(end_ms) },
	{ 5, "groupBy", "group_by", TEXT, .list = true, AT(group_by) },
	{ 6, "step", .kind = DOUBLE, AT(step_s) },
	{ 7, "aggregation", .kind = INT, AT(aggregation) },
	{ 8, "stackTraceSelector", "stack_trace_selector", MESSAGE,
	  .message = &stack_selector_type },
	{ 9, "limit", .kind = INT, AT(limit) },
	{ 0 },
};
static const struct message_type select_series_type = { select_series_fields };

static const struct field diff_fields[] = {
	{ 1, "left", .kind = MESSAGE, AT(left), .message = &stacktraces_type },
	{ 2, "right", .kind = MESSAGE, AT(right), .message = &stacktraces_type },
	{ 0 },
};
static const struct message_type diff_type = { diff_fields };

static const struct field analyze_fields[] = {
	{ 2, "start", .kind = INT, AT(start_ms) },
	{ 3, "end", .kind = INT, AT(end_ms) },
	{ 4, "query", .kind = TEXT, AT(selector) },
	{ 0 },
};
static const struct message_type analyze_type = { analyze_fields };

static const struct field no_fields[] = { { 0 } };
static const struct message_type empty_type = { no_fields };

/* ---- answers --------------------------------------------------------------------------------- */

static const struct field type_fields[] = {
	{ 1, "ID", .kind = TEXT },
	{ 2, "name", .kind = TEXT },
	{ 4, "sampleType", .kind = TEXT },
	{ 5, "sampleUnit", .kind = TEXT },
	{ 6, "periodType", .kind = TEXT },
	{ 7, "periodUnit", .kind = TEXT },
	{ 0 },
};
static const struct message_type profile_type_type = { type_fields };
static const struct field types_answer_fields[] = {
	{ 1, "profileTypes", .kind = MESSAGE, .list = true, .message = &profile_type_type }, { 0 }
};
static const struct message_type types_answer = { types_answer_fields };

static const struct field names_answer_fields[] = { { 1, "names", .kind = TEXT, .list = true },
						    { 0 } };
static const struct message_type names_answer = { names_answer_fields };

static const struct field pair_fields[] = { { 1, "name", .kind = TEXT },
					    { 2, "value", .kind = TEXT },
					    { 0 } };
static const struct message_type pair_type = { pair_fields };
static const struct field labels_fields[] = {
	{ 1, "labels", .kind = MESSAGE, .list = true, .message = &pair_type }, { 0 }
};
static const struct message_type labels_type = { labels_fields };
static const struct field series_answer_fields[] = {
	{ 2, "labelsSet", .kind = MESSAGE, .list = true, .message = &labels_type }, { 0 }
};
static const struct message_type series_answer = { series_answer_fields };

static const struct field point_fields[] = { { 1, "value", .kind = DOUBLE },
					     { 2, "timestamp", .kind = INT },
					     { 0 } };
static const struct message_type point_type = { point_fields };
static const struct field points_fields[] = {
	{ 1, "labels", .kind = MESSAGE, .list = true, .message = &pair_type },
	{ 2, "points", .kind = MESSAGE, .list = true, .message = &point_type },
	{ 0 },
};
static const struct message_type points_type = { points_fields };
static const struct field select_series_answer_fields[] = {
	{ 1, "series", .kind = MESSAGE, .list = true, .message = &points_type }, { 0 }
};
static const struct message_type select_series_answer = { select_series_answer_fields };

static const struct field level_fields[] = { { 1, "values", .kind = INT, .list = true }, { 0 } };
static const struct message_type level_type = { level_fields };
static const struct field graph_fields[] = {
	{ 1, "names", .kind = TEXT, .list = true },
	{ 2, "levels", .kind = MESSAGE, .list = true, .message = &level_type },
	{ 3, "total", .kind = INT },
	{ 4, "maxSelf", .kind = INT },
	{ 5, "leftTicks", .kind = INT },
	{ 6, "rightTicks", .kind = INT },
	{ 0 },
};
static const struct message_type graph_type = { graph_fields };

static const struct field value_type_fields[] = { { 1, "type", .kind = INT },
						  { 2, "unit", .kind = INT },
						  { 0 } };
static const struct message_type value_type = { value_type_fields };
static const struct field label_fields[] = {
	{ 1, "key", .kind = INT },
	{ 2, "str", .kind = INT },
	{ 3, "num", .kind = INT },
	{ 4, "numUnit", .kind = INT },
	{ 0 },
};
static const struct message_type label_type = { label_fields };
static const struct field sample_fields[] = {
	{ 1, "locationId", .kind = INT, .list = true },
	{ 2, "value", .kind = INT, .list = true },
	{ 3, "label", .kind = MESSAGE, .list = true, .message = &label_type },
	{ 0 },
};
static const struct message_type sample_type = { sample_fields };
static const struct field mapping_fields[] = {
	{ 1, "id", .kind = INT },
	{ 2, "memoryStart", .kind = INT },
	{ 3, "memoryLimit", .kind = INT },
	{ 4, "fileOffset", .kind = INT },
	{ 5, "filename", .kind = INT },
	{ 6, "buildId", .kind = INT },
	{ 7, "hasFunctions", .kind = BOOL },
	{ 8, "hasFilenames", .kind = BOOL },
	{ 9, "hasLineNumbers", .kind = BOOL },
	{ 10, "hasInlineFrames", .kind = BOOL },
	{ 0 },
};
static const struct message_type mapping_type = { mapping_fields };
static const struct field line_fields[] = { { 1, "functionId", .kind = INT },
					    { 2, "line", .kind = INT },
					    { 0 } };
static const struct message_type line_type = { line_fields };
static const struct field place_fields[] = {
	{ 1, "id", .kind = INT },
	{ 2, "mappingId", .kind = INT },
	{ 3, "address", .kind = INT },
	{ 4, "line", .kind = MESSAGE, .list = true, .message = &line_type },
	{ 5, "isFolded", .kind = BOOL },
	{ 0 },
};
static const struct message_type place_type = { place_fields };
static const struct field function_fields[] = {
	{ 1, "id", .kind = INT },	  { 2, "name", .kind = INT },
	{ 3, "systemName", .kind = INT }, { 4, "filename", .kind = INT },
	{ 5, "startLine", .kind = INT },  { 0 },
};
static const struct message_type function_type = { function_fields };
static const struct field profile_fields[] = {
	{ 1, "sampleType", .kind = MESSAGE, .list = true, .message = &value_type },
	{ 2, "sample", .kind = MESSAGE, .list = true, .message = &sample_type },
	{ 3, "mapping", .kind = MESSAGE, .list = true, .message = &mapping_type },
	{ 4, "location", .kind = MESSAGE, .list = true, .message = &place_type },
	{ 5, "function", .kind = MESSAGE, .list = true, .message = &function_type },
	{ 6, "stringTable", .kind = TEXT, .list = true },
	{ 7, "dropFrames", .kind = INT },
	{ 8, "keepFrames", .kind = INT },
	{ 9, "timeNanos", .kind = INT },
	{ 10, "durationNanos", .kind = INT },
	{ 11, "periodType", .kind = MESSAGE, .message = &value_type },
	{ 12, "period", .kind = INT },
	{ 13, "comment", .kind = INT, .list = true },
	{ 14, "defaultSampleType", .kind = INT },
	{ 0 },
};
static const struct message_type profile_message = { profile_fields };
static const struct field pprof_fields[] = {
	{ 1, "profile", .kind = MESSAGE, .message = &profile_message }, { 0 }
};
static const struct message_type pprof_type = { pprof_fields };

static const struct field stacktraces_answer_fields[] = {
	{ 1, "flamegraph", .kind = MESSAGE, .message = &graph_type },
	{ 5, "pprof", .kind = MESSAGE, .message = &pprof_type },
	{ 0 },
};
static const struct message_type stacktraces_answer = { stacktraces_answer_fields };

static const struct field stats_fields[] = {
	{ 1, "dataIngested", .kind = BOOL },
	{ 2, "oldestProfileTime", .kind = INT },
	{ 3, "newestProfileTime", .kind = INT },
	{ 0 },
};
static const struct message_type stats_answer = { stats_fields };

static const struct field scope_fields[] = {
	{ 1, "componentType", .kind = TEXT },
	{ 2, "componentCount", .kind = INT },
	{ 4, "seriesCount", .kind = INT },
	{ 0 },
};
static const struct message_type scope_type = { scope_fields };
static const struct field impact_fields[] = { { 3, "totalQueriedSeries", .kind = INT }, { 0 } };
static const struct message_type impact_type = { impact_fields };
static const struct field analyze_answer_fields[] = {
	{ 1, "queryScopes", .kind = MESSAGE, .list = true, .message = &scope_type },
	{ 2, "queryImpact", .kind = MESSAGE, .message = &impact_type },
	{ 0 },
};
static const struct message_type analyze_answer = { analyze_answer_fields };

const struct querier_call querier_calls[] = {
	{ "ProfileTypes", &range_type, &types_answer },
	{ "LabelNames", &label_names_type, &names_answer },
	{ "LabelValues", &label_values_type, &names_answer },
	{ "Series", &series_type, &series_answer },
	{ "SelectSeries", &select_series_type, &select_series_answer },
	{ "SelectMergeStacktraces", &stacktraces_type, &stacktraces_answer },
	{ "SelectMergeSpanProfile", &span_profile_type, &stacktraces_answer },
	{ "SelectMergeProfile", &merge_profile_type, &profile_message },
	{ "Diff", &diff_type, &stacktraces_answer },
	{ "GetProfileStats", &empty_type, &stats_answer },
	{ "AnalyzeQuery", &analyze_type, &analyze_answer },
	{ 0 },
};

const struct querier_call *querier_call_find(const char *name)
{
	for (const struct querier_call *call = querier_calls; call->name; call++)
		if (strcmp(call->name, name) == 0)
			return call;
	return NULL;
}

/* ---- the request struct ---------------------------------------------------------------------- */

static void list_deinit(struct text_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		free(list->items[i]);
	free(list->items);
}

void querier_request_deinit(struct querier_request *request)
{
	struct querier_request *sides[] = { request->left, request->right };

	for (size_t i = 0; i < ARRAY_SIZE(sides); i++) {
		if (sides[i])
			querier_request_deinit(sides[i]);
		free(sides[i]);
	}
	free(request->type_id);
	free(request->selector);
	free(request->name);
	list_deinit(&request->matchers);
	list_deinit(&request->label_names);
	list_deinit(&request->group_by);
	list_deinit(&request->call_site);
	list_deinit(&request->profile_ids);
	list_deinit(&request->trace_ids);
	list_deinit(&request->span_ids);
	*request = (struct querier_request){ 0 };
}

static void *member(struct querier_request *request, const struct field *field)
{
	return (char *)request + field->offset;
}

static int put_text(struct querier_request *request, const struct field *field, const char *text,
		    size_t len, struct err *err)
{
	struct text_list *list = member(request, field);
	char *copy, **items;

	if (len > QUERIER_TEXT_MAX || !parse_is_utf8(text, len))
		return err_set(err, EINVAL, "InvalidParam", field->name,
			       "%s must be UTF-8 without NUL, of at most %u bytes", field->name,
			       QUERIER_TEXT_MAX);
	if (field->list && list->count == QUERIER_LIST_MAX)
		return err_set(err, EINVAL, "InvalidParam", field->name,
			       "%s has more than %u elements", field->name, QUERIER_LIST_MAX);
	copy = strndup(len ? text : "", len);
	if (!copy)
		return -ENOMEM;
	if (!field->list) {
		char **at = member(request, field);

		free(*at);
		*at = copy;
		return 0;
	}
	items = reallocarray(list->items, list->count + 1, sizeof(*items));
	if (!items) {
		free(copy);
		return -ENOMEM;
	}
	list->items = items;
	list->items[list->count++] = copy;
	return 0;
}

/* The struct that the fields of a message in @request belong to. */
static int inner_request(struct querier_request *request, const struct field *field,
			 struct querier_request **ret)
{
	struct querier_request **side = member(request, field);

	*ret = request;
	if (field->message != &stacktraces_type)
		return 0;
	if (!*side)
		*side = calloc(1, sizeof(**side));
	*ret = *side;
	return *side ? 0 : -ENOMEM;
}

/* ---- from protobuf --------------------------------------------------------------------------- */

static int malformed(struct err *err)
{
	return err_set(err, EINVAL, "InvalidBody", "body",
		       "the body is not a protobuf message of this call");
}

static const struct field *find_field(const struct message_type *type, uint32_t number)
{
	const struct field *field = type->fields;

	while (field->number && field->number != number)
		field++;
	return field->number ? field : NULL;
}

static double double_of(uint64_t bits)
{
	double value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

static int read_proto(const struct message_type *type, struct proto_in in, unsigned depth,
		      struct querier_request *request, struct err *err);

static int read_field(const struct field *field, const struct proto_value *value, unsigned depth,
		      struct querier_request *request, struct err *err)
{
	const enum proto_wire wires[] = {
		[TEXT] = PROTO_WIRE_BYTES,     [INT] = PROTO_WIRE_VARINT,
		[DOUBLE] = PROTO_WIRE_FIXED64, [BOOL] = PROTO_WIRE_VARINT,
		[MESSAGE] = PROTO_WIRE_BYTES,  [PRESENCE] = PROTO_WIRE_BYTES
	};
	struct querier_request *inner;
	int rc;

	if (value->wire != wires[field->kind])
		return malformed(err);
	switch (field->kind) {
	case TEXT:
		return put_text(request, field, (const char *)value->in.at,
				(size_t)(value->in.end - value->in.at), err);
	case INT:
		*(int64_t *)member(request, field) = (int64_t)value->number;
		return 0;
	case DOUBLE:
		*(double *)member(request, field) = double_of(value->number);
		return 0;
	case BOOL:
	case PRESENCE:
		*(bool *)member(request, field) = true;
		return 0;
	case MESSAGE:
		break;
	}
	rc = inner_request(request, field, &inner);
	return rc < 0 ? rc : read_proto(field->message, value->in, depth + 1, inner, err);
}

static int read_proto(const struct message_type *type, struct proto_in in, unsigned depth,
		      struct querier_request *request, struct err *err)
{
	struct proto_value value;
	int rc;

	while ((rc = proto_in_next(&in, &value)) > 0) {
		const struct field *field = find_field(type, value.field);

		rc = field && depth < DEPTH_MAX ? read_field(field, &value, depth, request, err)
						: 0;
		if (rc < 0)
			return rc;
	}
	return rc < 0 ? malformed(err) : 0;
}

/* ---- from JSON ------------------------------------------------------------------------------- */

static int bad_member(const struct field *field, const char *expected, struct err *err)
{
	return err_set(err, EINVAL, "InvalidParam", field->name, "member %s must be %s",
		       field->name, expected);
}

/* Words of PROFILE_FORMAT_… and TIME_SERIES_AGGREGATION_TYPE_…, as JSON may have them. */
static bool enum_of(const char *word, int64_t *ret)
{
	static const struct {
		const char *word;
		int64_t value;
	} words[] = {
		{ "PROFILE_FORMAT_UNSPECIFIED", 0 },
		{ "PROFILE_FORMAT_FLAMEGRAPH", 1 },
		{ "PROFILE_FORMAT_TREE", 2 },
		{ "PROFILE_FORMAT_DOT", 3 },
		{ "PROFILE_FORMAT_PPROF", 4 },
		{ "TIME_SERIES_AGGREGATION_TYPE_SUM", 0 },
		{ "TIME_SERIES_AGGREGATION_TYPE_AVERAGE", 1 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		if (strcmp(words[i].word, word) != 0)
			continue;
		*ret = words[i].value;
		return true;
	}
	return false;
}

/* 64-bit numbers are texts in JSON; small ones also come as numbers. */
static int read_int(const cJSON *json, const struct field *field, int64_t *ret, struct err *err)
{
	char *end;

	if (cJSON_IsNumber(json) && floor(json->valuedouble) == json->valuedouble &&
	    fabs(json->valuedouble) < 9e18) {
		*ret = (int64_t)json->valuedouble;
		return 0;
	}
	if (!cJSON_IsString(json) || !*json->valuestring)
		return bad_member(field, "a whole number", err);
	if (enum_of(json->valuestring, ret))
		return 0;
	errno = 0;
	*ret = strtoll(json->valuestring, &end, 10);
	return errno || *end ? bad_member(field, "a whole number", err) : 0;
}

static int read_json(const struct message_type *type, const cJSON *json,
		     struct querier_request *request, struct err *err);

static int read_value(const struct field *field, const cJSON *json, struct querier_request *request,
		      struct err *err)
{
	struct querier_request *inner;
	int rc;

	switch (field->kind) {
	case TEXT:
		return cJSON_IsString(json) ? put_text(request, field, json->valuestring,
						       strlen(json->valuestring), err)
					    : bad_member(field, "a text", err);
	case INT:
		return read_int(json, field, member(request, field), err);
	case DOUBLE:
		if (!cJSON_IsNumber(json))
			return bad_member(field, "a number", err);
		*(double *)member(request, field) = json->valuedouble;
		return 0;
	case BOOL:
	case PRESENCE:
		*(bool *)member(request, field) = true;
		return 0;
	case MESSAGE:
		break;
	}
	rc = inner_request(request, field, &inner);
	return rc < 0 ? rc : read_json(field->message, json, inner, err);
}

static int read_list(const struct field *field, const cJSON *json, struct querier_request *request,
		     struct err *err)
{
	if (!cJSON_IsArray(json))
		return bad_member(field, "a list", err);
	for (const cJSON *element = json->child; element; element = element->next) {
		int rc = read_value(field, element, request, err);

		if (rc < 0)
			return rc;
	}
	return 0;
}

static int read_json(const struct message_type *type, const cJSON *json,
		     struct querier_request *request, struct err *err)
{
	if (!cJSON_IsObject(json))
		return err_set(err, EINVAL, "InvalidBody", "body",
			       "a message must be a JSON object");
	for (const struct field *field = type->fields; field->number; field++) {
		const cJSON *value = cJSON_GetObjectItemCaseSensitive(json, field->name);
		bool is_list = field->list && type != &location_type;
		int rc;

		if (!value && field->other)
			value = cJSON_GetObjectItemCaseSensitive(json, field->other);
		if (!value || cJSON_IsNull(value))
			continue;
		rc = is_list ? read_list(field, value, request, err)
			     : read_value(field, value, request, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int querier_request_read(const struct message_type *type, bool json, const char *body, size_t len,
			 struct querier_request *ret, struct err *err)
{
	cleanup(json) cJSON *object = NULL;
	struct querier_request request = { 0 };
	int rc;

	if (json)
		rc = json_in_object(len ? body : "{}", len ? len : 2, &object, err);
	else
		rc = read_proto(type, proto_in_of(body, len), 0, &request, err);
	if (rc == 0 && json)
		rc = read_json(type, object, &request, err);
	if (rc < 0) {
		querier_request_deinit(&request);
		return rc;
	}
	*ret = request;
	return 0;
}

/* ---- answers to JSON ------------------------------------------------------------------------- */

static int write_message(const struct message_type *type, struct proto_in in, const char *name,
			 unsigned depth, struct json_out *json);

static void write_int(struct json_out *json, const char *name, uint64_t number)
{
	char text[24];

	(void)snprintf(text, sizeof(text), "%" PRId64, (int64_t)number);
	json_out_text(json, name, text);
}

/* With all digits, so that JSON and protobuf say the same number. */
static void write_double(struct json_out *json, const char *name, double number)
{
	char text[40];

	if (!isfinite(number)) {
		json_out_text(json, name, "NaN");
		return;
	}
	(void)snprintf(text, sizeof(text), "%.17g", number);
	if (name)
		json_out_key(json, name);
	json_out_raw(json, text);
}

static int write_packed(struct proto_in in, struct json_out *json)
{
	uint64_t number;
	int rc;

	while ((rc = proto_in_varint(&in, &number)) > 0)
		write_int(json, NULL, number);
	return rc;
}

static int write_text(const struct proto_in *in, const char *name, struct json_out *json)
{
	cleanup_free char *text = strndup((const char *)in->at, (size_t)(in->end - in->at));

	if (!text)
		return -ENOMEM;
	json_out_text(json, name, text);
	return 0;
}

static int write_value(const struct field *field, const struct proto_value *value, unsigned depth,
		       struct json_out *json)
{
	const char *name = field->list ? NULL : field->name;

	switch (field->kind) {
	case TEXT:
		return value->wire == PROTO_WIRE_BYTES ? write_text(&value->in, name, json)
						       : -EPROTO;
	case INT:
		if (value->wire == PROTO_WIRE_BYTES)
			return field->list ? write_packed(value->in, json) : -EPROTO;
		write_int(json, name, value->number);
		return 0;
	case DOUBLE:
		write_double(json, name, double_of(value->number));
		return 0;
	case BOOL:
		json_out_bool(json, name, value->number != 0);
		return 0;
	default:
		return value->wire == PROTO_WIRE_BYTES
			       ? write_message(field->message, value->in, name, depth + 1, json)
			       : -EPROTO;
	}
}

/* The fields of a list come one after another, as the answers are written. */
static int write_message(const struct message_type *type, struct proto_in in, const char *name,
			 unsigned depth, struct json_out *json)
{
	const struct field *open = NULL;
	struct proto_value value;
	int rc = 0;

	json_out_open(json, name, '{');
	while (rc >= 0 && (rc = proto_in_next(&in, &value)) > 0) {
		const struct field *field = find_field(type, value.field);

		if (!field || depth >= DEPTH_MAX)
			continue;
		if (open && open != field)
			json_out_close(json, ']');
		if (field->list && open != field)
			json_out_open(json, field->name, '[');
		open = field->list ? field : NULL;
		rc = write_value(field, &value, depth, json);
	}
	if (open)
		json_out_close(json, ']');
	json_out_close(json, '}');
	return rc < 0 ? rc : 0;
}

int querier_answer_json(const struct message_type *type, const void *data, size_t len,
			struct buf *out)
{
	struct json_out json = json_out_to(out);
	int rc = write_message(type, proto_in_of(data, len), NULL, 0, &json);

	return rc < 0 ? rc : out->error;
}
