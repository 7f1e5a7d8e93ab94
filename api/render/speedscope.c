// SPDX-License-Identifier: Apache-2.0
/* speedscope.app's file format, "sampled" profiles, one per thread; with more threads than it is
 * usable with, the small ones are left to the first profile, which holds everything. Schema:
 * release/file-format-schema.json of the npm package; beyond it the viewer wants as many weights as
 * samples. */
#include <errno.h>
#include <string.h>

#include "api/http/json_out.h"
#include "api/render/render.h"
#include "api/render/threads.h"

#define THREADS_MAX 200

struct speedscope {
	const struct profile *p;
	const struct render_options *options;
	struct threads threads;
	struct json_out json;
	const char *unit;
	uint32_t *order; /* samples by thread */
	uint32_t *first; /* thread -> first in @order; one more at the end */
};

static int sort_samples(struct speedscope *w)
{
	const struct profile *p = w->p;
	cleanup_free uint32_t *at = calloc(w->threads.count + 1, sizeof(*at));

	w->order = calloc(p->sample_count + 1, sizeof(*w->order));
	w->first = calloc(w->threads.count + 2, sizeof(*w->first));
	if (!at || !w->order || !w->first)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->sample_count; i++)
		w->first[w->threads.of_attrs[p->samples[i].attrs] + 1]++;
	for (uint32_t i = 0; i < w->threads.count; i++)
		w->first[i + 1] += w->first[i];
	for (uint32_t i = 0; i < p->sample_count; i++) {
		uint32_t thread = w->threads.of_attrs[p->samples[i].attrs];

		w->order[w->first[thread] + at[thread]++] = i;
	}
	return 0;
}

static void write_frames(struct speedscope *w)
{
	const struct profile *p = w->p;

	json_out_open(&w->json, "shared", '{');
	json_out_open(&w->json, "frames", '[');
	for (uint32_t i = 0; i < p->function_count; i++) {
		const struct profile_function *function = &p->functions[i];

		json_out_open(&w->json, NULL, '{');
		json_out_text(&w->json, "name", profile_string(p, function->name));
		if (function->file)
			json_out_text(&w->json, "file", profile_string(p, function->file));
		if (function->line)
			json_out_uint(&w->json, "line", function->line);
		json_out_close(&w->json, '}');
	}
	json_out_close(&w->json, ']');
	json_out_close(&w->json, '}');
}

static int write_stack(struct speedscope *w, uint32_t node)
{
	const struct profile *p = w->p;
	uint32_t path[4096], depth = 0;

	for (; node && depth < ARRAY_SIZE(path); node = p->nodes[node].parent)
		path[depth++] = p->frames[p->nodes[node].frame].function;
	json_out_open(&w->json, NULL, '[');
	while (depth > 0)
		json_out_uint(&w->json, NULL, path[--depth]);
	json_out_close(&w->json, ']');
	return w->json.buf->error;
}

/* Samples order[first … end) as one profile. */
static void write_profile(struct speedscope *w, const char *name, uint32_t first, uint32_t end)
{
	const struct profile *p = w->p;
	unsigned value = w->options->value_index;
	int64_t sum = 0;

	json_out_open(&w->json, NULL, '{');
	json_out_text(&w->json, "type", "sampled");
	json_out_text(&w->json, "name", name);
	json_out_text(&w->json, "unit", w->unit);
	json_out_int(&w->json, "startValue", 0);
	json_out_open(&w->json, "samples", '[');
	for (uint32_t i = first; i < end && write_stack(w, p->samples[w->order[i]].node) == 0; i++)
		sum += p->samples[w->order[i]].values[value];
	json_out_close(&w->json, ']');
	json_out_open(&w->json, "weights", '[');
	for (uint32_t i = first; i < end; i++)
		json_out_int(&w->json, NULL, p->samples[w->order[i]].values[value]);
	json_out_close(&w->json, ']');
	json_out_int(&w->json, "endValue", sum);
	json_out_close(&w->json, '}');
}

static void write_document(struct speedscope *w)
{
	char title[320];

	render_title(w->p, w->options, title, sizeof(title));
	json_out_open(&w->json, NULL, '{');
	json_out_text(&w->json, "$schema", "https://www.speedscope.app/file-format-schema.json");
	json_out_text(&w->json, "name", title);
	json_out_text(&w->json, "exporter", "profd@" PROFD_VERSION);
	json_out_uint(&w->json, "activeProfileIndex", 0);
	write_frames(w);
	json_out_open(&w->json, "profiles", '[');
	write_profile(w, title, 0, w->p->sample_count);
	for (uint32_t i = 0; w->threads.count > 1 && i < w->threads.count && i < THREADS_MAX; i++) {
		thread_title(w->p, &w->threads.items[i], title, sizeof(title));
		write_profile(w, title, w->first[i], w->first[i + 1]);
	}
	json_out_close(&w->json, ']');
	json_out_close(&w->json, '}');
	buf_add_char(w->json.buf, '\n');
}

int render_speedscope(const struct profile *p, const struct render_options *options,
		      struct buf *out, struct err *err)
{
	struct speedscope w = { .p = p, .options = options, .json = json_out_to(out) };
	const struct profile_type_info *info = profile_type_info(p->meta.type);
	int rc = threads_build(p, options->value_index, &w.threads);

	(void)err;
	w.unit = info->values[options->value_index].unit;
	if (strcmp(w.unit, "count") == 0)
		w.unit = "none";
	if (rc == 0)
		rc = sort_samples(&w);
	if (rc == 0)
		write_document(&w);
	threads_deinit(&w.threads);
	free(w.order);
	free(w.first);
	return rc < 0 ? rc : out->error;
}
