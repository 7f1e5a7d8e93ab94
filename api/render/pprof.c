// SPDX-License-Identifier: Apache-2.0
/* pprof: gzip of perftools.profiles.Profile. Source: github.com/google/pprof proto/profile.proto;
 * what its reader checks: ids not 0 and unique, as many values as sample types, string 0 is "".
 * Locations hold file offsets; mappings start at 0 and carry the build id, so that any tool can
 * symbolize again. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/profile/attribute.h"
#include "api/http/compress.h"
#include "api/http/pprof_fields.h"
#include "api/render/chains.h"
#include "api/render/proto.h"
#include "api/render/render.h"

#define KEYS_MAX 32

struct pprof {
	const struct profile *p;
	unsigned value_index;
	unsigned first, end; /* values that are written */
	struct chains chains;
	struct buf *out;
	struct buf part, inner; /* reused */
	/* Texts that are no strings of the profile are numbered behind them. */
	struct buf extra_text; /* encoded string table entries */
	uint32_t extra_count;
	struct {
		const char *text; /* literal */
		uint32_t number;
	} keys[KEYS_MAX];
	unsigned key_count;
};

static uint32_t add_text(struct pprof *w, const char *value)
{
	proto_text(&w->extra_text, PROFILE_STRING_TABLE, value);
	return w->p->string_count + w->extra_count++;
}

/* For the few literal words; each is stored once. */
static uint32_t text(struct pprof *w, const char *word)
{
	uint32_t number;

	for (unsigned i = 0; i < w->key_count; i++)
		if (strcmp(w->keys[i].text, word) == 0)
			return w->keys[i].number;
	number = add_text(w, word);
	if (w->key_count < KEYS_MAX) {
		w->keys[w->key_count].text = word;
		w->keys[w->key_count++].number = number;
	}
	return number;
}

static void value_type(struct pprof *w, unsigned field, const struct profile_value_type *type)
{
	proto_uint(&w->part, VALUE_TYPE_TYPE, text(w, type->name));
	proto_uint(&w->part, VALUE_TYPE_UNIT, text(w, type->unit));
	proto_message(w->out, field, &w->part);
}

static void label_text(struct pprof *w, uint32_t key, uint32_t value)
{
	if (!value)
		return;
	proto_uint(&w->inner, LABEL_KEY, key);
	proto_uint(&w->inner, LABEL_STR, value);
	proto_message(&w->part, SAMPLE_LABEL, &w->inner);
}

static void label_number(struct pprof *w, const char *key, uint64_t value)
{
	if (!value)
		return;
	proto_uint(&w->inner, LABEL_KEY, text(w, key));
	proto_uint(&w->inner, LABEL_NUM, value);
	proto_message(&w->part, SAMPLE_LABEL, &w->inner);
}

static void sample_labels(struct pprof *w, const struct profile_attrs *attrs)
{
	const struct profile *p = w->p;
	const char *extra = attribute_extra_name(p->meta.type);

	if (attrs->process < p->process_count) {
		const struct profile_process *process = &p->processes[attrs->process];

		label_text(w, text(w, "process"), process->comm);
		label_number(w, "pid", process->pid);
	}
	label_text(w, text(w, "thread"), attrs->thread_name);
	label_number(w, "tid", attrs->tid);
	label_text(w, text(w, "state"), attrs->state);
	label_text(w, text(w, "wait"), attrs->wait);
	if (extra)
		label_text(w, text(w, extra), attrs->extra);
	for (uint32_t i = 0; i < attrs->label_count; i++)
		label_text(w, p->labels[attrs->label_first + i].name,
			   p->labels[attrs->label_first + i].value);
}

static void write_samples(struct pprof *w)
{
	const struct profile *p = w->p;

	for (uint32_t i = 0; i < p->sample_count && !w->out->error; i++) {
		const struct profile_sample *sample = &p->samples[i];

		for (uint32_t n = sample->node; n;)
			buf_add_varint(&w->inner, chains_climb(&w->chains, &n));
		proto_message(&w->part, SAMPLE_LOCATION_ID, &w->inner);
		for (unsigned v = w->first; v < w->end; v++)
			buf_add_varint(&w->inner, (uint64_t)sample->values[v]);
		proto_message(&w->part, SAMPLE_VALUE, &w->inner);
		sample_labels(w, &p->attrs[sample->attrs]);
		proto_message(w->out, PROFILE_SAMPLE, &w->part);
	}
}

struct mapping_facts {
	bool functions, files, lines, inlines;
	uint64_t end; /* offset behind the last frame */
};

static void find_facts(const struct profile *p, struct mapping_facts *facts)
{
	for (uint32_t i = 0; i < p->frame_count; i++) {
		const struct profile_frame *frame = &p->frames[i];
		struct mapping_facts *known = &facts[frame->mapping];

		known->functions |= frame->kind != PROFILE_FRAME_UNKNOWN;
		known->files |= p->functions[frame->function].file != 0;
		known->lines |= frame->line != 0;
		known->inlines |= (frame->flags & PROFILE_FRAME_INLINED) != 0;
		if (frame->offset >= known->end)
			known->end = frame->offset + 1;
	}
}

static void write_mapping(struct pprof *w, uint32_t id, const struct mapping_facts *facts)
{
	const struct profile_mapping *mapping = &w->p->mappings[id];
	char hex[2 * sizeof(mapping->build_id) + 1] = "";

	for (unsigned i = 0; i < mapping->build_id_len && i < sizeof(mapping->build_id); i++)
		(void)snprintf(hex + 2 * i, 3, "%02x", mapping->build_id[i]);
	proto_uint(&w->part, MAPPING_ID, id);
	proto_uint(&w->part, MAPPING_LIMIT, (facts->end + 4095) / 4096 * 4096);
	proto_uint(&w->part, MAPPING_FILENAME, mapping->path);
	if (hex[0])
		proto_uint(&w->part, MAPPING_BUILD_ID, add_text(w, hex));
	proto_uint(&w->part, MAPPING_HAS_FUNCTIONS, facts->functions);
	proto_uint(&w->part, MAPPING_HAS_FILENAMES, facts->files);
	proto_uint(&w->part, MAPPING_HAS_LINE_NUMBERS, facts->lines);
	proto_uint(&w->part, MAPPING_HAS_INLINE_FRAMES, facts->inlines);
	proto_message(w->out, PROFILE_MAPPING, &w->part);
}

/* The executable of the process with the most value; 0 if none of its code is here. */
static uint32_t main_mapping(const struct profile *p)
{
	const struct profile_process *most = NULL;

	for (uint32_t i = 0; i < p->process_count; i++)
		if (!most || p->processes[i].value > most->value)
			most = &p->processes[i];
	for (uint32_t i = 1; most && most->exe && i < p->mapping_count; i++)
		if (p->mappings[i].path == most->exe)
			return i;
	return 0;
}

static int write_mappings(struct pprof *w)
{
	const uint32_t first = main_mapping(w->p);
	cleanup_free struct mapping_facts *facts =
		calloc(w->p->mapping_count + 1, sizeof(*facts));

	if (!facts)
		return -ENOMEM;
	find_facts(w->p, facts);
	/* The first one is the main binary (profile.proto): what readers call the profile's file. */
	if (first)
		write_mapping(w, first, &facts[first]);
	for (uint32_t i = 1; i < w->p->mapping_count; i++)
		if (i != first)
			write_mapping(w, i, &facts[i]);
	return 0;
}

static void write_locations(struct pprof *w)
{
	const struct profile *p = w->p;

	const struct chain *chains = w->chains.all.data;

	for (uint32_t i = 1; i < w->chains.all.count; i++) {
		const struct profile_frame *outermost = &p->frames[chains[i].frame];

		for (uint32_t c = i; c; c = chains[c].outer)
			outermost = &p->frames[chains[c].frame];
		proto_uint(&w->part, LOCATION_ID, i);
		proto_uint(&w->part, LOCATION_MAPPING_ID, outermost->mapping);
		proto_uint(&w->part, LOCATION_ADDRESS, outermost->offset);
		for (uint32_t c = i; c; c = chains[c].outer) {
			const struct profile_frame *frame = &p->frames[chains[c].frame];

			proto_uint(&w->inner, LINE_FUNCTION_ID, (uint64_t)frame->function + 1);
			proto_uint(&w->inner, LINE_LINE, frame->line);
			proto_message(&w->part, LOCATION_LINE, &w->inner);
		}
		proto_message(w->out, PROFILE_LOCATION, &w->part);
	}
}

static void write_functions(struct pprof *w)
{
	const struct profile *p = w->p;

	for (uint32_t i = 0; i < p->function_count; i++) {
		const struct profile_function *function = &p->functions[i];

		proto_uint(&w->part, FUNCTION_ID, (uint64_t)i + 1);
		proto_uint(&w->part, FUNCTION_NAME, function->name);
		proto_uint(&w->part, FUNCTION_SYSTEM_NAME,
			   function->symbol ? function->symbol : function->name);
		proto_uint(&w->part, FUNCTION_FILENAME, function->file);
		proto_uint(&w->part, FUNCTION_START_LINE, function->line);
		proto_message(w->out, PROFILE_FUNCTION, &w->part);
	}
}

/* Whether the period is the time between two samples. */
static bool is_timed(const struct profile_type_info *info)
{
	return info->period.name && strcmp(info->period.unit, "nanoseconds") == 0;
}

/* Go's and Pyroscope's readers tell types apart by the period type. */
static void write_head(struct pprof *w)
{
	const struct profile_meta *meta = &w->p->meta;
	const struct profile_type_info *info = profile_type_info(meta->type);

	for (unsigned i = w->first; i < w->end; i++)
		value_type(w, PROFILE_SAMPLE_TYPE, &info->values[i]);
	if (info->period.name && (!is_timed(info) || meta->sample_rate)) {
		value_type(w, PROFILE_PERIOD_TYPE, &info->period);
		proto_uint(w->out, PROFILE_PERIOD,
			   is_timed(info) ? 1000000000u / meta->sample_rate : 1);
	}
	proto_uint(w->out, PROFILE_TIME_NANOS, meta->start_ns);
	proto_uint(w->out, PROFILE_DURATION_NANOS, meta->duration_ns);
	proto_uint(w->out, PROFILE_DEFAULT_SAMPLE_TYPE,
		   text(w, info->values[w->value_index].name));
}

static void write_comments(struct pprof *w)
{
	const struct profile *p = w->p;
	char line[400];

	if (p->meta.service[0]) {
		(void)snprintf(line, sizeof(line), "service=%s host=%s", p->meta.service,
			       p->meta.host);
		proto_uint(w->out, PROFILE_COMMENT, add_text(w, line));
	}
	for (uint32_t i = 0; i < p->quality.note_count; i++)
		proto_uint(w->out, PROFILE_COMMENT, add_text(w, p->quality.notes[i]));
}

static void write_strings(struct pprof *w)
{
	for (uint32_t i = 0; i < w->p->string_count; i++)
		proto_text(w->out, PROFILE_STRING_TABLE, profile_string(w->p, i));
	buf_add(w->out, w->extra_text.data, w->extra_text.len);
}

static int write_profile(struct pprof *w)
{
	int rc = chains_build(w->p, &w->chains);

	if (rc == 0) {
		write_head(w);
		write_samples(w);
		rc = write_mappings(w);
	}
	if (rc == 0) {
		write_locations(w);
		write_functions(w);
		write_comments(w);
		write_strings(w);
		rc = w->extra_text.error;
	}
	buf_deinit(&w->part);
	buf_deinit(&w->inner);
	buf_deinit(&w->extra_text);
	chains_deinit(&w->chains);
	return rc;
}

int render_pprof(const struct profile *p, const struct render_options *options, struct buf *out,
		 struct err *err)
{
	struct gzip gzip;
	struct pprof w = { .p = p,
			   .value_index = options->value_index,
			   .first = profile_first_value(p->meta.source),
			   .end = profile_type_info(p->meta.type)->value_count,
			   .out = &gzip.plain };
	int rc = gzip_begin(&gzip, 6, out), end;

	(void)err;
	if (rc < 0)
		return rc;
	rc = write_profile(&w);
	end = gzip_end(&gzip);
	return rc < 0 ? rc : end;
}

int render_pprof_value(const struct profile *p, unsigned value_index, struct buf *out)
{
	struct pprof w = { .p = p,
			   .value_index = value_index,
			   .first = value_index,
			   .end = value_index + 1,
			   .out = out };
	int rc = write_profile(&w);

	return rc < 0 ? rc : out->error;
}
