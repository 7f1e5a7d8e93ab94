// SPDX-License-Identifier: Apache-2.0
/* OTLP profiles: ExportProfilesServiceRequest of opentelemetry-proto 1.11.0, profiles/v1development
 * (alpha). Entry 0 of every table is the zero value. One
 * resource per process, one profile per value, the main value first; the profile's own tables keep
 * their order, so that string, mapping and location numbers need no translation. A message stands
 * behind its length, so the large ones are written twice: once to be counted, once to be kept. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/base/text.h"
#include "agent/base/u64map.h"
#include "agent/profile/attribute.h"
#include "api/http/otlp_fields.h"
#include "api/render/chains.h"
#include "api/render/proto.h"
#include "api/render/render.h"

struct otlp {
	const struct profile *p;
	const struct render_options *options;
	struct buf *out;
	struct chains chains;
	struct buf strings;    /* encoded, behind the profile's own */
	struct buf attributes; /* encoded table entries, also entry 0 */
	struct buf a, b, c;    /* parts under construction, inner to outer */
	struct u64map attribute_known, string_known;
	uint32_t string_count, attribute_count, stack_count;
	uint32_t *stack_of; /* sample -> stack */
	uint32_t *stacks;   /* stack -> node */
	uint32_t *order;    /* samples by process */
	uint32_t *first;    /* process -> first in @order; one more at the end */
	int error;
};

/* A sink that counts the bytes of a part. */
struct counter {
	struct buf_sink sink; /* first */
	struct buf buf;
	uint64_t bytes;
};

static int count(struct buf_sink *sink, const void *data, size_t len)
{
	(void)data;
	((struct counter *)(void *)sink)->bytes += len;
	return 0;
}

static struct buf *counter_begin(struct counter *counter)
{
	*counter = (struct counter){ .sink = { count, 1u << 12 } };
	counter->buf.sink = &counter->sink;
	return &counter->buf;
}

static uint64_t counter_end(struct counter *counter, struct otlp *w)
{
	buf_flush(&counter->buf);
	if (counter->buf.error)
		w->error = counter->buf.error;
	buf_deinit(&counter->buf);
	return counter->bytes;
}

static void otlp_deinit(struct otlp *w)
{
	chains_deinit(&w->chains);
	buf_deinit(&w->strings);
	buf_deinit(&w->attributes);
	buf_deinit(&w->a);
	buf_deinit(&w->b);
	buf_deinit(&w->c);
	u64map_deinit(&w->attribute_known);
	u64map_deinit(&w->string_known);
	free(w->stack_of);
	free(w->stacks);
	free(w->order);
	free(w->first);
}

static uint32_t text(struct otlp *w, const char *value)
{
	uint64_t key = hash_bytes(value, strlen(value), 1), at;

	if (!*value)
		return 0;
	if (u64map_get(&w->string_known, key, &at))
		return (uint32_t)at;
	proto_text(&w->strings, DICTIONARY_STRINGS, value);
	if (u64map_put(&w->string_known, key, w->string_count) < 0)
		w->error = -ENOMEM;
	return w->string_count++;
}

/* Number of the attribute `key = value` in the table; text, or @number when @value is NULL. */
static uint32_t attribute(struct otlp *w, const char *key, const char *value, uint64_t number)
{
	uint64_t hash = hash_bytes(key, strlen(key), 2), at;

	hash = hash_combine(hash, value ? hash_bytes(value, strlen(value), 3) : number);
	if (u64map_get(&w->attribute_known, hash, &at))
		return (uint32_t)at;
	if (value) {
		proto_text(&w->a, ANY_VALUE_STRING, value);
	} else {
		buf_add_varint(&w->a, ANY_VALUE_INT << 3);
		buf_add_varint(&w->a, number);
	}
	proto_uint(&w->b, ATTRIBUTE_KEY, text(w, key));
	proto_message(&w->b, ATTRIBUTE_VALUE, &w->a);
	proto_message(&w->attributes, DICTIONARY_ATTRIBUTES, &w->b);
	if (u64map_put(&w->attribute_known, hash, w->attribute_count) < 0)
		w->error = -ENOMEM;
	return w->attribute_count++;
}

/* ---- samples --------------------------------------------------------------------------------- */

static void sample_attributes(struct otlp *w, const struct profile_attrs *attrs, uint32_t *list,
			      unsigned *count)
{
	const struct profile *p = w->p;
	const struct {
		const char *key;
		uint32_t value;
	} texts[] = {
		{ "thread.name", attrs->thread_name },
		{ "state", attrs->state },
		{ "wait", attrs->wait },
		{ attribute_extra_name(p->meta.type), attrs->extra },
	};

	if (attrs->tid)
		list[(*count)++] = attribute(w, "thread.id", NULL, attrs->tid);
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
		if (texts[i].key && texts[i].value)
			list[(*count)++] = attribute(w, texts[i].key,
						     profile_string(p, texts[i].value), 0);
	for (uint32_t i = 0; i < attrs->label_count && *count < 32; i++) {
		const struct profile_label *label = &p->labels[attrs->label_first + i];

		list[(*count)++] = attribute(w, profile_string(p, label->name),
					     profile_string(p, label->value), 0);
	}
}

static void write_sample(struct otlp *w, uint32_t index, unsigned value, struct buf *out)
{
	const struct profile_sample *sample = &w->p->samples[index];
	uint32_t list[40];
	unsigned count = 0;

	sample_attributes(w, &w->p->attrs[sample->attrs], list, &count);
	proto_uint(&w->b, SAMPLE_STACK, w->stack_of[index]);
	for (unsigned i = 0; i < count; i++)
		buf_add_varint(&w->a, list[i]);
	proto_message(&w->b, SAMPLE_ATTRIBUTES, &w->a);
	buf_add_varint(&w->a, (uint64_t)sample->values[value]);
	proto_message(&w->b, SAMPLE_VALUES, &w->a);
	proto_message(out, PROFILE_SAMPLES, &w->b);
}

static void write_value_type(struct otlp *w, unsigned field, const struct profile_value_type *type,
			     struct buf *out)
{
	proto_uint(&w->b, VALUE_TYPE_TYPE, text(w, type->name));
	proto_uint(&w->b, VALUE_TYPE_UNIT, text(w, type->unit));
	proto_message(out, field, &w->b);
}

/* The same data has the same identity, so that a receiver knows what came twice. */
static void write_identity(struct otlp *w, uint32_t process, unsigned value, struct buf *out)
{
	const struct profile_meta *meta = &w->p->meta;
	const char *title = w->options->title ? w->options->title : "";
	uint64_t id[2];

	for (unsigned i = 0; i < 2; i++) {
		id[i] = hash_bytes(meta->service, strlen(meta->service), 31 + i);
		id[i] = hash_combine(id[i], hash_bytes(meta->host, strlen(meta->host), 1));
		id[i] = hash_combine(id[i], hash_bytes(title, strlen(title), 2));
		id[i] = hash_combine(id[i], meta->start_ns);
		id[i] = hash_combine(id[i], meta->duration_ns);
		id[i] = hash_combine(id[i], (uint64_t)meta->type << 32 | value);
		id[i] = hash_combine(id[i], process);
	}
	proto_bytes(out, PROFILE_ID, id, sizeof(id));
}

/* The contents of one Profile message. */
static void write_profile(struct otlp *w, uint32_t process, unsigned value, struct buf *out)
{
	static const struct profile_value_type cpu = { "cpu", "nanoseconds" };
	const struct profile *p = w->p;

	write_value_type(w, PROFILE_SAMPLE_TYPE, &profile_type_info(p->meta.type)->values[value], out);
	for (uint32_t i = w->first[process]; i < w->first[process + 1] && !out->error; i++)
		write_sample(w, w->order[i], value, out);
	proto_fixed64(out, PROFILE_TIME, p->meta.start_ns);
	proto_uint(out, PROFILE_DURATION, p->meta.duration_ns);
	if (p->meta.type == PROFILE_CPU && p->meta.sample_rate) {
		write_value_type(w, PROFILE_PERIOD_TYPE, &cpu, out);
		proto_uint(out, PROFILE_PERIOD, 1000000000u / p->meta.sample_rate);
	}
	write_identity(w, process, value, out);
}

static uint64_t count_profile(struct otlp *w, uint32_t process, unsigned value)
{
	struct counter counter;

	write_profile(w, process, value, counter_begin(&counter));
	return counter_end(&counter, w);
}

static void resource_attribute(struct otlp *w, struct buf *resource, const char *key,
			       const char *value, uint64_t number)
{
	if (value && !*value)
		return;
	if (value) {
		proto_text(&w->a, ANY_VALUE_STRING, value);
	} else {
		buf_add_varint(&w->a, ANY_VALUE_INT << 3);
		buf_add_varint(&w->a, number);
	}
	proto_text(&w->b, KEY_VALUE_KEY, key);
	proto_message(&w->b, KEY_VALUE_VALUE, &w->a);
	proto_message(resource, RESOURCE_ATTRIBUTES, &w->b);
}

static void write_resource(struct otlp *w, uint32_t index, struct buf *resource)
{
	const struct profile *p = w->p;
	const struct profile_process *process =
		index < p->process_count ? &p->processes[index] : NULL;
	const char *service = p->meta.service, *host = p->meta.host, *exe;

	if (process && process->service)
		service = profile_string(p, process->service);
	if (process && process->host)
		host = profile_string(p, process->host);
	resource_attribute(w, resource, "service.name", service, 0);
	resource_attribute(w, resource, "host.name", host, 0);
	if (!process)
		return;
	exe = profile_string(p, process->exe);
	resource_attribute(w, resource, "process.pid", NULL, process->pid);
	resource_attribute(w, resource, "process.executable.path", exe, 0);
	resource_attribute(w, resource, "process.executable.name", text_file_name(exe), 0);
}

/* The type's values, the wanted one first; their number. */
static unsigned list_values(const struct otlp *w, unsigned ret[PROFILE_VALUES_MAX])
{
	const struct profile_type_info *info = profile_type_info(w->p->meta.type);
	unsigned n = 0;

	ret[n++] = w->options->value_index;
	for (unsigned v = profile_first_value(w->p->meta.source); v < info->value_count; v++)
		if (v != w->options->value_index)
			ret[n++] = v;
	return n;
}

static void write_process(struct otlp *w, uint32_t index)
{
	struct buf resource = { 0 }, scope = { 0 };
	unsigned values[PROFILE_VALUES_MAX], value_count = list_values(w, values);
	uint64_t bytes[PROFILE_VALUES_MAX], scope_bytes;

	write_resource(w, index, &resource);
	proto_text(&scope, SCOPE_NAME, "profd");
	proto_text(&scope, SCOPE_VERSION, PROFD_VERSION);
	scope_bytes = proto_message_size(scope.len);
	for (unsigned i = 0; i < value_count; i++) {
		bytes[i] = count_profile(w, index, values[i]);
		scope_bytes += proto_message_size(bytes[i]);
	}
	proto_head(w->out, REQUEST_RESOURCE_PROFILES,
		   proto_message_size(resource.len) + proto_message_size(scope_bytes));
	proto_message(w->out, RESOURCE_PROFILES_RESOURCE, &resource);
	proto_head(w->out, RESOURCE_PROFILES_SCOPE_PROFILES, scope_bytes);
	proto_message(w->out, SCOPE_PROFILES_SCOPE, &scope);
	for (unsigned i = 0; i < value_count; i++) {
		proto_head(w->out, SCOPE_PROFILES_PROFILES, bytes[i]);
		write_profile(w, index, values[i], w->out);
	}
	buf_deinit(&resource);
	buf_deinit(&scope);
}

/* ---- dictionary ------------------------------------------------------------------------------ */

static void write_mappings(struct otlp *w, struct buf *out)
{
	for (uint32_t i = 0; i < w->p->mapping_count; i++) {
		const struct profile_mapping *mapping = &w->p->mappings[i];
		char hex[65] = "";

		for (unsigned k = 0; k < mapping->build_id_len && k < 32; k++)
			(void)snprintf(hex + 2 * k, 3, "%02x", mapping->build_id[k]);
		if (i > 0 && hex[0]) {
			uint32_t number =
				attribute(w, "process.executable.build_id.gnu", hex, 0);

			buf_add_varint(&w->a, number);
		}
		if (i > 0) {
			proto_uint(&w->c, MAPPING_FILENAME, mapping->path);
			if (w->a.len)
				proto_message(&w->c, MAPPING_ATTRIBUTES, &w->a);
		}
		proto_message(out, DICTIONARY_MAPPINGS, &w->c);
	}
	if (!w->p->mapping_count)
		proto_message(out, DICTIONARY_MAPPINGS, &w->c);
}

static const char *frame_type(uint8_t kind)
{
	switch (kind) {
	case PROFILE_FRAME_NATIVE:
		return "native";
	case PROFILE_FRAME_KERNEL:
		return "kernel";
	case PROFILE_FRAME_GO:
		return "go";
	default:
		return NULL;
	}
}

static void write_locations(struct otlp *w, struct buf *out)
{
	const struct profile *p = w->p;

	proto_message(out, DICTIONARY_LOCATIONS, &w->c);
	for (uint32_t i = 1; i < w->chains.all.count; i++) {
		const struct chain *chains = w->chains.all.data;
		const struct profile_frame *frame = &p->frames[chains[i].frame];
		uint32_t kind = 0;

		for (uint32_t c = i; c; c = chains[c].outer) {
			frame = &p->frames[chains[c].frame];
			proto_uint(&w->a, LINE_FUNCTION, (uint64_t)frame->function + 1);
			proto_uint(&w->a, LINE_LINE, frame->line);
			proto_message(&w->b, LOCATION_LINES, &w->a);
		}
		proto_uint(&w->c, LOCATION_MAPPING, frame->mapping);
		proto_uint(&w->c, LOCATION_ADDRESS, frame->offset);
		buf_add(&w->c, w->b.data, w->b.len);
		w->b.len = 0;
		if (frame_type(frame->kind))
			kind = attribute(w, "profile.frame.type", frame_type(frame->kind), 0);
		if (kind) {
			buf_add_varint(&w->a, kind);
			proto_message(&w->c, LOCATION_ATTRIBUTES, &w->a);
		}
		proto_message(out, DICTIONARY_LOCATIONS, &w->c);
	}
}

static void write_functions(struct otlp *w, struct buf *out)
{
	const struct profile *p = w->p;

	proto_message(out, DICTIONARY_FUNCTIONS, &w->c);
	for (uint32_t i = 0; i < p->function_count; i++) {
		proto_uint(&w->c, FUNCTION_NAME, p->functions[i].name);
		proto_uint(&w->c, FUNCTION_SYSTEM_NAME, p->functions[i].symbol);
		proto_uint(&w->c, FUNCTION_FILENAME, p->functions[i].file);
		proto_uint(&w->c, FUNCTION_START_LINE, p->functions[i].line);
		proto_message(out, DICTIONARY_FUNCTIONS, &w->c);
	}
}

static void write_stacks(struct otlp *w, struct buf *out)
{
	proto_message(out, DICTIONARY_STACKS, &w->b);
	for (uint32_t i = 1; i < w->stack_count && !out->error; i++) {
		for (uint32_t n = w->stacks[i]; n;)
			buf_add_varint(&w->a, chains_climb(&w->chains, &n));
		proto_message(&w->b, STACK_LOCATIONS, &w->a);
		proto_message(out, DICTIONARY_STACKS, &w->b);
	}
}

static void write_dictionary(struct otlp *w, struct buf *out)
{
	static const uint8_t zero[16];

	write_mappings(w, out);
	write_locations(w, out);
	write_functions(w, out);
	proto_bytes(&w->c, LINK_TRACE_ID, zero, 16);
	proto_bytes(&w->c, LINK_SPAN_ID, zero, 8);
	proto_message(out, DICTIONARY_LINKS, &w->c);
	for (uint32_t i = 0; i < w->p->string_count; i++)
		proto_text(out, DICTIONARY_STRINGS, profile_string(w->p, i));
	buf_add(out, w->strings.data, w->strings.len);
	buf_add(out, w->attributes.data, w->attributes.len);
	write_stacks(w, out);
}

/* Samples come by node; stack 0 is that of the root. */
static int number_stacks(struct otlp *w)
{
	const struct profile *p = w->p;

	w->stack_of = calloc((size_t)p->sample_count + 1, sizeof(*w->stack_of));
	w->stacks = calloc((size_t)p->sample_count + 1, sizeof(*w->stacks));
	if (!w->stack_of || !w->stacks)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->sample_count; i++) {
		if (p->samples[i].node != w->stacks[w->stack_count - 1])
			w->stacks[w->stack_count++] = p->samples[i].node;
		w->stack_of[i] = w->stack_count - 1;
	}
	return 0;
}

static int sort_samples(struct otlp *w)
{
	const struct profile *p = w->p;
	uint32_t processes = p->process_count ? p->process_count : 1;
	cleanup_free uint32_t *at = calloc(processes, sizeof(*at));

	w->order = calloc(p->sample_count + 1, sizeof(*w->order));
	w->first = calloc(processes + 1, sizeof(*w->first));
	if (!at || !w->order || !w->first)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->sample_count; i++)
		w->first[p->attrs[p->samples[i].attrs].process + 1]++;
	for (uint32_t i = 0; i < processes; i++)
		w->first[i + 1] += w->first[i];
	for (uint32_t i = 0; i < p->sample_count; i++) {
		uint32_t process = p->attrs[p->samples[i].attrs].process;

		w->order[w->first[process] + at[process]++] = i;
	}
	return 0;
}

int render_otlp(const struct profile *p, const struct render_options *options, struct buf *out,
		struct err *err)
{
	struct otlp w = { .p = p, .options = options, .out = out, .string_count = p->string_count,
			  .attribute_count = 1, .stack_count = 1 };
	struct counter counter;
	int rc = chains_build(p, &w.chains);

	(void)err;
	if (rc == 0)
		rc = sort_samples(&w);
	if (rc == 0)
		rc = number_stacks(&w);
	/* Texts that the profile has already are not written twice. */
	for (uint32_t i = 1; rc == 0 && i < p->string_count; i++)
		rc = u64map_put(&w.string_known,
				hash_bytes(profile_string(p, i), strlen(profile_string(p, i)), 1), i);
	if (rc == 0) {
		proto_bytes(&w.attributes, DICTIONARY_ATTRIBUTES, "", 0);
		for (uint32_t i = 0; i < p->process_count || i == 0; i++)
			write_process(&w, i);
		write_dictionary(&w, counter_begin(&counter));
		proto_head(out, REQUEST_DICTIONARY, counter_end(&counter, &w));
		write_dictionary(&w, out);
		rc = w.error		  ? w.error
		     : w.strings.error	  ? w.strings.error
		     : w.attributes.error ? w.attributes.error
					  : w.b.error;
	}
	otlp_deinit(&w);
	return rc < 0 ? rc : out->error;
}
