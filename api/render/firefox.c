// SPDX-License-Identifier: Apache-2.0
/* Firefox profiler, processed format, version 61 (docs-developer/CHANGELOG-formats.md of
 * firefox-devtools/profiler): tables are shared between threads, a prefix may be null, no source
 * maps are needed, and every front end since then reads it. Samples are in order of time, per
 * thread; profiles without kept events get evenly spaced times. Stacks are the profile's nodes,
 * frames its frames, strings its strings: no table is rebuilt. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/text.h"
#include "api/http/json_out.h"
#include "api/render/render.h"
#include "api/render/threads.h"

#define FORMAT_VERSION 61

struct firefox {
	const struct profile *p;
	const struct render_options *options;
	struct json_out json;
	struct threads threads;
	uint32_t *order;	      /* events (without: samples) by thread, then time */
	uint32_t *first;	      /* thread -> first in @order; one more at the end */
	uint32_t *resource_of;	      /* function -> mapping, 0 = none */
	uint32_t *source_of;	      /* string id of a file -> source + 1 */
	uint8_t *inline_depth;	      /* of frames */
};

static void firefox_deinit(struct firefox *w)
{
	threads_deinit(&w->threads);
	free(w->order);
	free(w->first);
	free(w->resource_of);
	free(w->source_of);
	free(w->inline_depth);
}

/* Without events each sample becomes one, at evenly spaced times inside the span. */
static struct profile_event event_at(const struct firefox *w, uint32_t i)
{
	const struct profile *p = w->p;
	uint64_t step = p->sample_count ? p->meta.duration_ns / p->sample_count : 0;

	if (p->event_count)
		return p->events[i];
	return (struct profile_event){
		.time_ns = p->meta.start_ns + i * step,
		.node = p->samples[i].node,
		.attrs = p->samples[i].attrs,
		.value = p->samples[i].values[w->options->value_index],
	};
}

static int sort_events(struct firefox *w)
{
	const struct profile *p = w->p;
	uint32_t count = p->event_count ? p->event_count : p->sample_count;
	cleanup_free uint32_t *at = calloc(w->threads.count + 1, sizeof(*at));

	w->order = calloc(count + 1, sizeof(*w->order));
	w->first = calloc(w->threads.count + 2, sizeof(*w->first));
	if (!at || !w->order || !w->first)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		w->first[w->threads.of_attrs[event_at(w, i).attrs] + 1]++;
	for (uint32_t t = 0; t < w->threads.count; t++)
		w->first[t + 1] += w->first[t];
	for (uint32_t i = 0; i < count; i++) {
		uint32_t thread = w->threads.of_attrs[event_at(w, i).attrs];

		w->order[w->first[thread] + at[thread]++] = i;
	}
	return 0;
}

static int index_tables(struct firefox *w)
{
	const struct profile *p = w->p;
	cleanup_free uint8_t *depth = calloc(p->node_count + 1, 1);

	w->resource_of = calloc(p->function_count + 1, sizeof(*w->resource_of));
	w->source_of = calloc(p->string_count + 1, sizeof(*w->source_of));
	w->inline_depth = calloc(p->frame_count + 1, 1);
	if (!depth || !w->resource_of || !w->source_of || !w->inline_depth)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->frame_count; i++)
		w->resource_of[p->frames[i].function] = p->frames[i].mapping;
	for (uint32_t i = 1; i < p->node_count; i++) {
		const struct profile_frame *frame = &p->frames[p->nodes[i].frame];

		if ((frame->flags & PROFILE_FRAME_INLINED) && depth[p->nodes[i].parent] < UINT8_MAX)
			depth[i] = (uint8_t)(depth[p->nodes[i].parent] + 1);
		w->inline_depth[p->nodes[i].frame] = depth[i];
	}
	return 0;
}

/* ---- meta and libraries ---------------------------------------------------------------------- */

enum { CATEGORY_OTHER, CATEGORY_USER, CATEGORY_KERNEL, CATEGORY_GO, CATEGORY_JIT, CATEGORY_MAX };

#define SUBCATEGORY_GUESSED 1 /* of each: frames that a frame pointer alone led to */

static void write_categories(struct json_out *json)
{
	static const struct {
		const char *name, *colour;
	} categories[CATEGORY_MAX] = {
		[CATEGORY_OTHER] = { "Other", "grey" },	   [CATEGORY_USER] = { "User", "yellow" },
		[CATEGORY_KERNEL] = { "Kernel", "orange" }, [CATEGORY_GO] = { "Go", "blue" },
		[CATEGORY_JIT] = { "JIT", "green" },
	};

	json_out_open(json, "categories", '[');
	for (size_t i = 0; i < CATEGORY_MAX; i++) {
		json_out_open(json, NULL, '{');
		json_out_text(json, "name", categories[i].name);
		json_out_text(json, "color", categories[i].colour);
		json_out_open(json, "subcategories", '[');
		json_out_text(json, NULL, "Other");
		json_out_text(json, NULL, "Guessed"); /* SUBCATEGORY_GUESSED */
		json_out_close(json, ']');
		json_out_close(json, '}');
	}
	json_out_close(json, ']');
}

static unsigned category_of(uint8_t kind)
{
	switch (kind) {
	case PROFILE_FRAME_NATIVE:
		return CATEGORY_USER;
	case PROFILE_FRAME_KERNEL:
		return CATEGORY_KERNEL;
	case PROFILE_FRAME_GO:
		return CATEGORY_GO;
	case PROFILE_FRAME_JIT:
	case PROFILE_FRAME_INTERPRETED:
		return CATEGORY_JIT;
	default:
		return CATEGORY_OTHER;
	}
}

static void write_meta(struct firefox *w)
{
	const struct profile_meta *meta = &w->p->meta;
	struct json_out *json = &w->json;
	double interval_ms = meta->sample_rate ? 1000.0 / meta->sample_rate : 1.0;
	char title[320];

	render_title(w->p, w->options, title, sizeof(title));
	json_out_open(json, "meta", '{');
	json_out_real(json, "interval", interval_ms, 6);
	json_out_real(json, "startTime", (double)meta->start_ns / 1e6, 3);
	json_out_text(json, "product", title);
	json_out_text(json, "oscpu", meta->host);
	json_out_text(json, "importedFrom", "profd");
	json_out_uint(json, "preprocessedProfileVersion", FORMAT_VERSION);
	json_out_uint(json, "version", 24);
	json_out_uint(json, "processType", 0);
	json_out_uint(json, "stackwalk", 1);
	json_out_bool(json, "debug", false);
	json_out_bool(json, "symbolicated", true);
	json_out_bool(json, "usesOnlyOneStackType", true);
	json_out_bool(json, "sourceCodeIsNotOnSearchfox", true);
	write_categories(json);
	json_out_open(json, "markerSchema", '[');
	json_out_close(json, ']');
	json_out_open(json, "sampleUnits", '{');
	json_out_text(json, "time", "ms");
	json_out_text(json, "eventDelay", "ms");
	json_out_text(json, "threadCPUDelta", "ns");
	json_out_close(json, '}');
	json_out_close(json, '}');
}

/* Breakpad's form of a GNU build id: a UUID whose first three fields change byte order, and the age
 * 0. */
static void breakpad_id(const struct profile_mapping *mapping, char out[40])
{
	static const uint8_t order[16] = { 3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15 };

	for (unsigned i = 0; i < 16; i++)
		(void)snprintf(out + 2 * i, 3, "%02X",
			       order[i] < mapping->build_id_len ? mapping->build_id[order[i]] : 0);
	memcpy(out + 32, "0", 2);
}

static void write_libs(struct firefox *w)
{
	const struct profile *p = w->p;
	struct json_out *json = &w->json;

	json_out_open(json, "libs", '[');
	for (uint32_t i = 1; i < p->mapping_count; i++) {
		const struct profile_mapping *mapping = &p->mappings[i];
		const char *path = profile_string(p, mapping->path);
		const char *name = text_file_name(path);
		char id[40], hex[65] = "";

		breakpad_id(mapping, id);
		for (unsigned b = 0; b < mapping->build_id_len && b < 32; b++)
			(void)snprintf(hex + 2 * b, 3, "%02x", mapping->build_id[b]);
		json_out_open(json, NULL, '{');
		json_out_text(json, "arch", "");
		json_out_text(json, "name", name);
		json_out_text(json, "path", path);
		json_out_text(json, "debugName", name);
		json_out_text(json, "debugPath", path);
		json_out_text(json, "breakpadId", id);
		json_out_text(json, "codeId", hex[0] ? hex : NULL);
		json_out_close(json, '}');
	}
	json_out_close(json, ']');
}

/* ---- shared tables --------------------------------------------------------------------------- */

/* A column: one expression per row. */
#define COLUMN(json, name, count, write)                                                           \
	do {                                                                                       \
		json_out_open(json, name, '[');                                                    \
		for (uint32_t i = 0; i < (count); i++)                                             \
			write;                                                                     \
		json_out_close(json, ']');                                                         \
	} while (0)

/* A column in which entries may be absent. */
#define COLUMN_IF(json, name, count, present, value)                                               \
	COLUMN(json, name, count,                                                                  \
	       (present) ? json_out_uint(json, NULL, value) : json_out_null(json, NULL))

static void empty_column(struct json_out *json, const char *name)
{
	json_out_open(json, name, '[');
	json_out_close(json, ']');
}

static void write_stacks(struct firefox *w)
{
	const struct profile *p = w->p;
	struct json_out *json = &w->json;
	uint32_t count = p->node_count ? p->node_count - 1 : 0;

	json_out_open(json, "stackTable", '{');
	COLUMN(json, "frame", count, json_out_uint(json, NULL, p->nodes[i + 1].frame));
	COLUMN_IF(json, "prefix", count, p->nodes[i + 1].parent, p->nodes[i + 1].parent - 1);
	json_out_uint(json, "length", count);
	json_out_close(json, '}');
}

static void write_frames(struct firefox *w)
{
	const struct profile *p = w->p;
	struct json_out *json = &w->json;
	uint32_t count = p->frame_count;

	json_out_open(json, "frameTable", '{');
	COLUMN(json, "address", count,
	       json_out_int(json, NULL, p->frames[i].mapping ? (int64_t)p->frames[i].offset : -1));
	COLUMN(json, "inlineDepth", count, json_out_uint(json, NULL, w->inline_depth[i]));
	COLUMN(json, "category", count, json_out_uint(json, NULL, category_of(p->frames[i].kind)));
	COLUMN(json, "subcategory", count,
	       json_out_uint(json, NULL,
			     p->frames[i].flags & PROFILE_FRAME_GUESSED ? SUBCATEGORY_GUESSED : 0));
	COLUMN(json, "func", count, json_out_uint(json, NULL, p->frames[i].function));
	COLUMN(json, "nativeSymbol", count, json_out_null(json, NULL));
	COLUMN(json, "innerWindowID", count, json_out_uint(json, NULL, 0));
	COLUMN_IF(json, "line", count, p->frames[i].line, p->frames[i].line);
	COLUMN(json, "column", count, json_out_null(json, NULL));
	json_out_uint(json, "length", count);
	json_out_close(json, '}');
}

static void write_functions(struct firefox *w)
{
	const struct profile *p = w->p;
	struct json_out *json = &w->json;
	uint32_t count = p->function_count;

	json_out_open(json, "funcTable", '{');
	COLUMN(json, "name", count, json_out_uint(json, NULL, p->functions[i].name));
	COLUMN(json, "isJS", count, json_out_bool(json, NULL, false));
	COLUMN(json, "relevantForJS", count, json_out_bool(json, NULL, false));
	COLUMN(json, "resource", count,
	       json_out_int(json, NULL, (int64_t)w->resource_of[i] - 1));
	COLUMN_IF(json, "source", count, p->functions[i].file,
		  w->source_of[p->functions[i].file] - 1);
	COLUMN_IF(json, "lineNumber", count, p->functions[i].line, p->functions[i].line);
	COLUMN(json, "columnNumber", count, json_out_null(json, NULL));
	json_out_uint(json, "length", count);
	json_out_close(json, '}');
}

/* One resource for each library, in the same order. */
static void write_resources(struct firefox *w)
{
	const struct profile *p = w->p;
	struct json_out *json = &w->json;
	uint32_t count = p->mapping_count ? p->mapping_count - 1 : 0;

	json_out_open(json, "resourceTable", '{');
	COLUMN(json, "lib", count, json_out_uint(json, NULL, i));
	COLUMN(json, "name", count, json_out_uint(json, NULL, p->mappings[i + 1].path));
	COLUMN(json, "host", count, json_out_null(json, NULL));
	COLUMN(json, "type", count, json_out_uint(json, NULL, 1));
	json_out_uint(json, "length", count);
	json_out_close(json, '}');
	json_out_open(json, "nativeSymbols", '{');
	empty_column(json, "libIndex");
	empty_column(json, "address");
	empty_column(json, "name");
	empty_column(json, "functionSize");
	json_out_uint(json, "length", 0);
	json_out_close(json, '}');
}

static void write_sources(struct firefox *w)
{
	const struct profile *p = w->p;
	struct json_out *json = &w->json;
	uint32_t count = 0;

	json_out_open(json, "sources", '{');
	json_out_open(json, "filename", '[');
	for (uint32_t i = 0; i < p->function_count; i++) {
		uint32_t file = p->functions[i].file;

		if (!file || w->source_of[file])
			continue;
		w->source_of[file] = ++count;
		json_out_uint(json, NULL, file);
	}
	json_out_close(json, ']');
	COLUMN(json, "id", count, json_out_null(json, NULL));
	COLUMN(json, "startLine", count, json_out_uint(json, NULL, 1));
	COLUMN(json, "startColumn", count, json_out_uint(json, NULL, 1));
	COLUMN(json, "sourceMapURL", count, json_out_null(json, NULL));
	json_out_uint(json, "length", count);
	json_out_close(json, '}');
}

static void write_shared(struct firefox *w)
{
	json_out_open(&w->json, "shared", '{');
	COLUMN(&w->json, "stringArray", w->p->string_count,
	       json_out_text(&w->json, NULL, profile_string(w->p, i)));
	write_sources(w);
	write_stacks(w);
	write_frames(w);
	write_functions(w);
	write_resources(w);
	json_out_close(&w->json, '}');
}

/* ---- threads --------------------------------------------------------------------------------- */

/* CPU samples count one each; other types weigh by their value. */
static void write_weights(struct firefox *w, const uint32_t *order, uint32_t count)
{
	const struct profile_type_info *info = profile_type_info(w->p->meta.type);
	const char *unit = info->values[w->options->value_index].unit;
	struct json_out *json = &w->json;

	if (w->p->meta.type == PROFILE_CPU && w->p->event_count) {
		json_out_null(json, "weight");
		json_out_text(json, "weightType", "samples");
		COLUMN(json, "threadCPUDelta", count, json_out_int(json, NULL, event_at(w, order[i]).value));
	} else if (strcmp(unit, "nanoseconds") == 0) {
		COLUMN(json, "weight", count,
		       json_out_real(json, NULL, (double)event_at(w, order[i]).value / 1e6, 6));
		json_out_text(json, "weightType", "tracing-ms");
	} else {
		COLUMN(json, "weight", count, json_out_int(json, NULL, event_at(w, order[i]).value));
		json_out_text(json, "weightType", strcmp(unit, "bytes") == 0 ? "bytes" : "samples");
	}
}

static void write_samples(struct firefox *w, uint32_t thread)
{
	const uint32_t *order = w->order + w->first[thread];
	uint32_t count = w->first[thread + 1] - w->first[thread];
	uint64_t start_ns = w->p->meta.start_ns;
	struct json_out *json = &w->json;

	json_out_open(json, "samples", '{');
	json_out_open(json, "stack", '[');
	for (uint32_t i = 0; i < count; i++) {
		uint32_t node = event_at(w, order[i]).node;

		if (node)
			json_out_uint(json, NULL, node - 1);
		else
			json_out_null(json, NULL);
	}
	json_out_close(json, ']');
	COLUMN(json, "time", count,
	       json_out_real(json, NULL,
			     ((double)event_at(w, order[i]).time_ns - (double)start_ns) / 1e6, 4));
	write_weights(w, order, count);
	json_out_uint(json, "length", count);
	json_out_close(json, '}');
	json_out_open(json, "markers", '{');
	empty_column(json, "data");
	empty_column(json, "name");
	empty_column(json, "startTime");
	empty_column(json, "endTime");
	empty_column(json, "phase");
	empty_column(json, "category");
	json_out_uint(json, "length", 0);
	json_out_close(json, '}');
}

static void write_thread(struct firefox *w, uint32_t index)
{
	const struct profile *p = w->p;
	const struct thread_row *thread = &w->threads.items[index];
	const struct profile_process *process =
		thread->process < p->process_count ? &p->processes[thread->process] : NULL;
	const char *comm = process ? profile_string(p, process->comm) : "";
	const char *name = profile_string(p, thread->name);
	uint32_t pid = process ? process->pid : 0;
	struct json_out *json = &w->json;
	char text[16];

	(void)snprintf(text, sizeof(text), "%u", pid);
	json_out_open(json, NULL, '{');
	json_out_text(json, "processType", "default");
	json_out_text(json, "processName", comm);
	json_out_text(json, "name", *name ? name : comm);
	json_out_bool(json, "isMainThread", !thread->tid || thread->tid == pid);
	json_out_text(json, "pid", text);
	json_out_uint(json, "tid", thread->tid ? thread->tid : pid);
	json_out_uint(json, "processStartupTime", 0);
	json_out_null(json, "processShutdownTime");
	json_out_uint(json, "registerTime", 0);
	json_out_null(json, "unregisterTime");
	json_out_open(json, "pausedRanges", '[');
	json_out_close(json, ']');
	write_samples(w, index);
	json_out_close(json, '}');
}

/* The front end wants at least one thread. */
static void write_threads(struct firefox *w)
{
	static const struct thread_row nobody = { .process = UINT32_MAX };

	json_out_open(&w->json, "threads", '[');
	for (uint32_t i = 0; i < w->threads.count; i++)
		write_thread(w, i);
	if (!w->threads.count) {
		w->threads.items[0] = nobody;
		write_thread(w, 0);
	}
	json_out_close(&w->json, ']');
}

int render_firefox(const struct profile *p, const struct render_options *options, struct buf *out,
		   struct err *err)
{
	struct firefox w = { .p = p, .options = options, .json = json_out_to(out) };
	int rc;

	/* A sample of this format is one at a moment, not a minute's. */
	if (p->meta.grain_ns)
		return err_set(
			err, ENODATA, "DetailExpired", "format",
			"the times of this profile's single samples are not kept any more, only sums of minutes, which "
			"this format cannot hold; others can");
	rc = threads_build(p, options->value_index, &w.threads);
	if (rc == 0)
		rc = sort_events(&w);
	if (rc == 0)
		rc = index_tables(&w);
	if (rc == 0) {
		json_out_open(&w.json, NULL, '{');
		write_meta(&w);
		write_libs(&w);
		write_shared(&w);
		write_threads(&w);
		json_out_close(&w.json, '}');
		buf_add_char(out, '\n');
	}
	firefox_deinit(&w);
	return rc < 0 ? rc : out->error;
}
