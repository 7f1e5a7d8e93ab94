// SPDX-License-Identifier: Apache-2.0
#include "api/receive/otlp_in.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/profile/profile.h"
#include "api/http/otlp_fields.h"
#include "api/receive/otlp_internal.h"

/* ---- resources ------------------------------------------------------------------------------- */

static void add_session_label(struct received *resource, const char *key, const char *value)
{
	struct session_label *label = &resource->session_labels[resource->session_label_count];

	if (resource->session_label_count == ARRAY_SIZE(resource->session_labels) || !*value ||
	    !*key || strlen(key) >= sizeof(label->name) || strlen(value) >= sizeof(label->value))
		return;
	(void)snprintf(label->name, sizeof(label->name), "%s", key);
	(void)snprintf(label->value, sizeof(label->value), "%s", value);
	resource->session_label_count++;
}

static int take_resource_attribute(void *ctx, const struct proto_value *field)
{
	static const char *const names[] = { "k8s.namespace.name", "k8s.deployment.name",
					     "k8s.container.name" };
	struct otlp *o = ctx;
	struct otlp_pair pair;
	struct received *resource = &o->resource;
	int rc;

	if (field->field != RESOURCE_ATTRIBUTES)
		return 0;
	rc = otlp_read_pair(o, field, &pair);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(pair.key, names[i]) == 0 && strlen(pair.text) < sizeof(o->named[i]))
			(void)snprintf(o->named[i], sizeof(o->named[i]), "%s", pair.text);
	if (strcmp(pair.key, "service.name") == 0) {
		if (strlen(pair.text) >= sizeof(resource->service))
			return message_bad(o->err, "service.name", "longer than 255 bytes");
		(void)snprintf(resource->service, sizeof(resource->service), "%s", pair.text);
	} else if (strcmp(pair.key, "process.pid") == 0) {
		resource->pid = pair.number <= INT32_MAX ? (uint32_t)pair.number : 0;
	} else if (strcmp(pair.key, "process.executable.path") == 0) {
		if (strlen(pair.text) < sizeof(resource->exe))
			(void)snprintf(resource->exe, sizeof(resource->exe), "%s", pair.text);
	} else {
		add_session_label(resource, pair.key, pair.text);
	}
	return 0;
}

/* A resource without a service's name has that of its workload, as profd itself names pods. */
static void name_resource(struct otlp *o)
{
	if (!o->resource.service[0] && o->named[0][0] && o->named[1][0] && o->named[2][0])
		(void)snprintf(o->resource.service, sizeof(o->resource.service), "%.80s/%.80s/%.80s",
			       o->named[0], o->named[1], o->named[2]);
}

/* ---- profiles -------------------------------------------------------------------------------- */

struct scope {
	struct otlp *o;
	struct value_type columns[VALUE_COLUMNS_MAX], period_type;
	unsigned column_count, column; /* @column: of the profile that is being read */
	int64_t period;
	uint64_t time_ns, duration_ns; /* of that profile */
	struct value_type own_type, own_period_type;
	int64_t own_period;
	uint64_t from_ns, to_ns; /* of all */
	uint32_t profiles;
	struct value_plan plans[PROFILE_TYPE_MAX];
	int profile_of[PROFILE_TYPE_MAX];
	/* the sample that is being read: */
	struct received_sample entry;
	uint64_t link;
	int64_t value;
	uint64_t timestamps;
	bool has_value;
};

static int take_type_field(struct otlp *o, const struct proto_value *value, const char *what,
			   struct value_type *ret)
{
	struct proto_in in = value->in;
	struct proto_value field;
	int rc = 0;

	*ret = (struct value_type){ "", "" };
	if (value->wire != PROTO_WIRE_BYTES)
		return message_bad(o->err, what, "expected a message");
	while (rc == 0 && (rc = message_next(&in, &field, what, o->err)) > 0) {
		rc = 0;
		if (field.field == VALUE_TYPE_TYPE)
			rc = otlp_string(o, field.number, what, &ret->name);
		else if (field.field == VALUE_TYPE_UNIT)
			rc = otlp_string(o, field.number, what, &ret->unit);
	}
	return rc;
}

static int take_head_field(void *ctx, const struct proto_value *field)
{
	struct scope *scope = ctx;

	switch (field->field) {
	case PROFILE_SAMPLE_TYPE:
		return take_type_field(scope->o, field, "sample_type", &scope->own_type);
	case PROFILE_PERIOD_TYPE:
		return take_type_field(scope->o, field, "period_type", &scope->own_period_type);
	case PROFILE_PERIOD:
		scope->own_period = (int64_t)field->number;
		return 0;
	case PROFILE_TIME:
		scope->time_ns = field->number;
		return 0;
	case PROFILE_DURATION:
		scope->duration_ns = field->number;
		return 0;
	default:
		return 0;
	}
}

static int read_head(struct scope *scope, const struct proto_value *profile)
{
	scope->own_type = scope->own_period_type = (struct value_type){ "", "" };
	scope->own_period = 0;
	scope->time_ns = scope->duration_ns = 0;
	return otlp_each_field(scope->o, profile, "profiles", take_head_field, scope);
}

/* The column of the profile's sample type; a new one if there is room. */
static int find_column(struct scope *scope)
{
	unsigned i;

	for (i = 0; i < scope->column_count; i++)
		if (strcmp(scope->columns[i].name, scope->own_type.name) == 0 &&
		    strcmp(scope->columns[i].unit, scope->own_type.unit) == 0)
			break;
	if (i == VALUE_COLUMNS_MAX)
		return otlp_too_many(scope->o, "sample_type");
	if (i == scope->column_count)
		scope->columns[scope->column_count++] = scope->own_type;
	scope->column = i;
	return 0;
}

/* The first pass: which values there are, and of when. */
static int count_profile(void *ctx, const struct proto_value *field)
{
	struct scope *scope = ctx;
	uint64_t end_ns;
	int rc;

	if (field->field != SCOPE_PROFILES_PROFILES)
		return 0;
	rc = read_head(scope, field);
	if (rc == 0)
		rc = find_column(scope);
	if (rc < 0)
		return rc;
	scope->profiles++;
	if (scope->own_period && !scope->period) {
		scope->period = scope->own_period;
		scope->period_type = scope->own_period_type;
	}
	if (!scope->time_ns || __builtin_add_overflow(scope->time_ns, scope->duration_ns, &end_ns))
		return 0;
	if (!scope->from_ns || scope->time_ns < scope->from_ns)
		scope->from_ns = scope->time_ns;
	if (end_ns > scope->to_ns)
		scope->to_ns = end_ns;
	return 0;
}

static int take_sample_value(void *ctx, uint64_t number)
{
	struct scope *scope = ctx;

	scope->has_value = true;
	if ((int64_t)number < 0 || __builtin_add_overflow(scope->value, (int64_t)number, &scope->value))
		return message_bad(scope->o->err, "samples.values", "negative, or too large");
	return 0;
}

static int take_sample_attribute(void *ctx, uint64_t index)
{
	struct scope *scope = ctx;
	struct otlp *o = scope->o;
	const struct otlp_attribute *attribute;

	if (index >= o->attributes.count)
		return message_bad(o->err, "samples.attribute_indices", "no such attribute");
	attribute = &o->attributes.data[index];
	if (strcmp(attribute->key, "thread.name") == 0) {
		scope->entry.thread = attribute->value;
		return 0;
	}
	if (strcmp(attribute->key, "thread.id") == 0 && attribute->number <= INT32_MAX) {
		scope->entry.tid = (uint32_t)attribute->number;
		return 0;
	}
	if (!*attribute->key || !*attribute->value)
		return 0;
	if (scope->entry.label_count == RECEIVED_LABELS_MAX) {
		o->left_out++;
		return 0;
	}
	if (o->message->tables.labels.count >= RECEIVED_ALL_LABELS_MAX)
		return otlp_too_many(o, "samples.attribute_indices");
	scope->entry.label_count++;
	return received_labels_vec_push(&o->message->tables.labels,
					(struct received_label){ attribute->key, attribute->value });
}

static int count_timestamps(struct scope *scope, const struct proto_value *field)
{
	if (field->wire == PROTO_WIRE_BYTES)
		scope->timestamps += (uint64_t)(field->in.end - field->in.at) / 8;
	else
		scope->timestamps++;
	return 0;
}

static int take_sample_field(void *ctx, const struct proto_value *field)
{
	struct scope *scope = ctx;
	struct otlp *o = scope->o;
	const struct otlp_stack *stack;

	switch (field->field) {
	case SAMPLE_STACK:
		if (field->number >= o->stacks.count)
			return message_bad(o->err, "samples.stack_index", "no such stack");
		stack = &o->stacks.data[field->number];
		scope->entry.first_frame = stack->first_frame;
		scope->entry.frame_count = stack->frame_count;
		scope->entry.is_cut = stack->is_cut;
		return 0;
	case SAMPLE_ATTRIBUTES:
		return message_numbers(field, "samples.attribute_indices", take_sample_attribute, scope, o->err);
	case SAMPLE_LINK:
		scope->link = field->number;
		return field->number < o->links.count || !field->number
			       ? 0
			       : message_bad(o->err, "samples.link_index", "no such link");
	case SAMPLE_VALUES:
		return message_numbers(field, "samples.values", take_sample_value, scope, o->err);
	case SAMPLE_TIMESTAMPS:
		return count_timestamps(scope, field);
	default:
		return 0;
	}
}

static int add_label(struct scope *scope, const char *name, const char *value)
{
	struct received_labels_vec *labels = &scope->o->message->tables.labels;

	if (!*value || scope->entry.label_count == RECEIVED_LABELS_MAX ||
	    labels->count >= RECEIVED_ALL_LABELS_MAX)
		return 0;
	scope->entry.label_count++;
	return received_labels_vec_push(labels, (struct received_label){ name, value });
}

static int add_sample(struct scope *scope)
{
	struct message *message = scope->o->message;
	int64_t columns[VALUE_COLUMNS_MAX] = { 0 };
	int rc = 0;

	columns[scope->column] = scope->has_value ? scope->value : (int64_t)scope->timestamps;
	for (unsigned type = 0; rc == 0 && type < PROFILE_TYPE_MAX; type++) {
		struct received *received;

		if (scope->profile_of[type] < 0)
			continue;
		received = &message->list.data[scope->profile_of[type]];
		if (value_plan_apply(&scope->plans[type], (enum profile_type)type, columns,
				     scope->entry.values) < 0)
			return message_bad(scope->o->err, "samples.values", "negative, or too large");
		if (!scope->entry.values[0] && !scope->entry.values[1])
			continue;
		if (received->samples.count >= RECEIVED_SAMPLES_MAX)
			return otlp_too_many(scope->o, "samples");
		rc = received_samples_vec_push(&received->samples, scope->entry);
	}
	return rc;
}

static int take_sample(void *ctx, const struct proto_value *field)
{
	struct scope *scope = ctx;
	struct otlp *o = scope->o;
	int rc;

	if (field->field != PROFILE_SAMPLES)
		return 0;
	scope->entry = (struct received_sample){
		.first_label = o->message->tables.labels.count, .thread = ""
	};
	scope->link = scope->timestamps = 0;
	scope->value = 0;
	scope->has_value = false;
	rc = otlp_each_field(o, field, "samples", take_sample_field, scope);
	if (rc == 0 && scope->link) {
		rc = add_label(scope, "trace_id", o->links.data[scope->link].trace);
		if (rc == 0)
			rc = add_label(scope, "span_id", o->links.data[scope->link].span);
	}
	return rc < 0 ? rc : add_sample(scope);
}

static int take_profile(void *ctx, const struct proto_value *field)
{
	struct scope *scope = ctx;
	int rc;

	if (field->field != SCOPE_PROFILES_PROFILES)
		return 0;
	rc = read_head(scope, field);
	if (rc == 0)
		rc = find_column(scope);
	return rc < 0 ? rc : otlp_each_field(scope->o, field, "profiles", take_sample, scope);
}

static int begin_profiles(struct scope *scope, const struct value_type *unknown)
{
	struct message *message = scope->o->message;
	int rc = 0;

	for (unsigned type = 0; rc == 0 && type < PROFILE_TYPE_MAX; type++) {
		struct received received = scope->o->resource;

		scope->profile_of[type] = -1;
		if (!scope->plans[type].wanted)
			continue;
		if (message->list.count >= MESSAGE_LIST_MAX)
			return otlp_too_many(scope->o, "resource_profiles");
		scope->profile_of[type] = (int)message->list.count;
		received.type = (enum profile_type)type;
		received.start_ns = scope->from_ns;
		received.duration_ns = scope->to_ns - scope->from_ns;
		received.period_ns = scope->plans[type].period_ns;
		if (unknown)
			message_note(&received, "values of %.40s/%.20s were sent and left out", unknown->name,
				     unknown->unit);
		rc = received_list_vec_push(&message->list, received);
	}
	return rc;
}

/* All profiles of the scope are refused with @err. */
static int reject(struct scope *scope)
{
	for (uint32_t i = 0; i < scope->profiles; i++)
		message_reject(scope->o->message, scope->o->err);
	return 0;
}

static int take_scope(void *ctx, const struct proto_value *field)
{
	struct otlp *o = ctx;
	struct scope scope = { .o = o, .period_type = { "", "" } };
	const struct value_type *unknown;
	int rc;

	if (field->field != RESOURCE_PROFILES_SCOPE_PROFILES)
		return 0;
	rc = otlp_each_field(o, field, "scope_profiles", count_profile, &scope);
	if (rc < 0 || !scope.profiles)
		return rc;
	if (!o->resource.service[0]) {
		(void)err_set(o->err, EINVAL, "InvalidBody", "service.name",
			      "service.name: the resource does not say which service it is");
		return reject(&scope);
	}
	if (value_plans(scope.columns, scope.column_count, -1, &scope.period_type, scope.period,
			scope.plans, &unknown, o->err) < 0)
		return reject(&scope);
	rc = begin_profiles(&scope, unknown);
	return rc < 0 ? rc : otlp_each_field(o, field, "scope_profiles", take_profile, &scope);
}

static int take_resource(void *ctx, const struct proto_value *field)
{
	struct otlp *o = ctx;

	if (field->field != RESOURCE_PROFILES_RESOURCE)
		return 0;
	return otlp_each_field(o, field, "resource", take_resource_attribute, o);
}

static int read_resources(struct otlp *o)
{
	struct proto_in in = o->in;
	struct proto_value value;
	int rc = 0;

	while (rc == 0 && (rc = message_next(&in, &value, "request", o->err)) > 0) {
		rc = 0;
		if (value.field != REQUEST_RESOURCE_PROFILES)
			continue;
		o->resource = (struct received){ .format = "otlp", .tables = &o->message->tables };
		memset(o->named, 0, sizeof(o->named));
		rc = otlp_each_field(o, &value, "resource_profiles", take_resource, o);
		if (rc == 0)
			name_resource(o);
		if (rc == 0)
			rc = otlp_each_field(o, &value, "resource_profiles", take_scope, o);
	}
	return rc;
}

static int find_dictionary(struct otlp *o)
{
	struct proto_in in = o->in;
	struct proto_value value;
	int rc = 0;

	while (rc == 0 && (rc = message_next(&in, &value, "request", o->err)) > 0) {
		rc = 0;
		if (value.field != REQUEST_DICTIONARY)
			continue;
		if (value.wire != PROTO_WIRE_BYTES || o->dictionary.at)
			rc = message_bad(o->err, "dictionary", "expected one message");
		o->dictionary = value.in;
	}
	if (rc == 0 && !o->dictionary.at)
		rc = message_bad(o->err, "dictionary", "it is missing");
	return rc;
}

int otlp_read(struct message *message, const void *data, size_t len, struct err *err)
{
	struct otlp o = { .message = message, .err = err, .in = proto_in_of(data, len) };
	int rc = len ? find_dictionary(&o) : 0;

	if (rc == 0 && len)
		rc = otlp_dictionary_read(&o);
	if (rc == 0 && len)
		rc = read_resources(&o);
	for (size_t i = 0; rc == 0 && o.left_out && i < message->list.count; i++)
		message_note(&message->list.data[i],
			     "%u labels of samples were left out: at most 32 each", o.left_out);
	otlp_dictionary_deinit(&o);
	if (rc == 0 && message->rejected && !message->list.count)
		return err->code ? -err->code : -EINVAL;
	if (rc == 0)
		*err = (struct err){ 0 };
	return rc;
}
