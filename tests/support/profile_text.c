// SPDX-License-Identifier: Apache-2.0
#include "tests/support/profile_text.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/buf.h"

#define START_NS 1000000000000ull

static uint32_t text_id(struct profile_builder *b, const char *text)
{
	return profile_builder_string(b, text, strlen(text));
}

static uint32_t frame_of(struct profile_builder *b, char *word)
{
	static const struct {
		const char *word;
		uint8_t kind, flags;
		const char *path;
	} kinds[] = {
		{ "kernel", PROFILE_FRAME_KERNEL, 0, NULL },
		{ "go", PROFILE_FRAME_GO, 0, NULL },
		{ "unknown", PROFILE_FRAME_UNKNOWN, 0, NULL },
		{ "marker", PROFILE_FRAME_MARKER, 0, NULL },
		{ "guessed", 0, PROFILE_FRAME_GUESSED, NULL },
		{ "jit", PROFILE_FRAME_JIT, 0, NULL },
		{ "python", PROFILE_FRAME_INTERPRETED, 0, "[python]" },
		{ "stripped", PROFILE_FRAME_UNKNOWN, 0, "/usr/bin/stripped" },
		{ "bare", PROFILE_FRAME_UNKNOWN, 0, "/usr/lib/libbare.so" },
	};
	struct profile_frame frame = { 0 };
	struct profile_function function = { 0 };
	char *kind = strrchr(word, '@'), *package = strchr(word, '!');
	size_t i;

	if (kind) {
		*kind++ = 0;
		for (i = 0; i < ARRAY_SIZE(kinds) && strcmp(kind, kinds[i].word); i++)
			;
		assert(i < ARRAY_SIZE(kinds));
		frame.kind = kinds[i].kind;
		frame.flags = kinds[i].flags;
		if (kinds[i].path)
			frame.mapping = profile_builder_mapping(
				b, &(struct profile_mapping){ .path = text_id(b, kinds[i].path) });
	}
	if (package) {
		*package = 0;
		function.package = text_id(b, word);
		word = package + 1;
	}
	function.name = text_id(b, word);
	frame.function = profile_builder_function(b, &function);
	return profile_builder_frame(b, &frame);
}

struct line {
	struct profile_attrs attrs;
	struct profile_process process;
	struct profile_label labels[8];
	double at; /* seconds, < 0 = no event */
};

static void set(struct profile_builder *b, struct line *line, const char *name, const char *value)
{
	if (!strcmp(name, "pid"))
		line->process.pid = (uint32_t)atoi(value);
	else if (!strcmp(name, "comm"))
		line->process.comm = text_id(b, value);
	else if (!strcmp(name, "tid"))
		line->attrs.tid = (uint32_t)atoi(value);
	else if (!strcmp(name, "thread"))
		line->attrs.thread_name = text_id(b, value);
	else if (!strcmp(name, "state"))
		line->attrs.state = text_id(b, value);
	else if (!strcmp(name, "wait"))
		line->attrs.wait = text_id(b, value);
	else if (!strcmp(name, "extra"))
		line->attrs.extra = text_id(b, value);
	else if (!strcmp(name, "at"))
		line->at = atof(value);
	else
		line->labels[line->attrs.label_count++] =
			(struct profile_label){ text_id(b, name), text_id(b, value) };
}

static void add_line(struct profile_builder *b, const struct profile_type_info *type, char *text)
{
	struct line line = { .at = -1, .process.pid = 1 };
	int64_t values[PROFILE_VALUES_MAX] = { 1, 1, 1 };
	char *stack = text, *next, *save = NULL, *word;
	uint32_t node = 0, attrs;
	unsigned k;

	while ((next = strchr(stack, ' ')) && strchr(stack, '=') && strchr(stack, '=') < next) {
		char *equals = strchr(stack, '=');

		*equals = *next = 0;
		set(b, &line, stack, equals + 1);
		stack = next + 1;
	}
	next = strchr(stack, ' ');
	assert(next);
	*next++ = 0;
	values[type->value_index] = strtoll(next, &next, 10);
	if (*next == ' ') {
		values[0] = values[type->value_index];
		for (k = 1; k < type->value_count; k++)
			values[k] = strtoll(next, &next, 10);
	}
	for (word = strtok_r(stack, ";", &save); word; word = strtok_r(NULL, ";", &save))
		node = profile_builder_node(b, node, frame_of(b, word));
	line.attrs.process = profile_builder_process(b, &line.process);
	attrs = profile_builder_attrs(b, &line.attrs, line.labels);
	profile_builder_sample(b, node, attrs, values);
	if (line.at >= 0)
		profile_builder_event(
			b, &(struct profile_event){ START_NS + (uint64_t)(line.at * 1e9), node,
						    attrs, values[type->value_index] });
}

struct profile *profile_from_text(enum profile_type type, const char *const *lines, size_t count)
{
	struct profile_meta meta = { .type = type,
				     .service = "svc",
				     .host = "h",
				     .start_ns = START_NS,
				     .duration_ns = 60000000000ull,
				     .sample_rate = 99,
				     .cpu_count = 2 };
	struct profile_quality quality = { 0 };
	cleanup(profile_builder) struct profile_builder *b = profile_builder_create(&meta, 100000);
	struct profile *p = NULL;
	size_t i;
	int rc;

	assert(b);
	for (i = 0; i < count; i++) {
		cleanup_free char *text = strdup(lines[i]);

		add_line(b, profile_type_info(type), text);
	}
	rc = profile_builder_finish(b, &quality, &p);
	assert(rc == 0);
	(void)rc;
	return p;
}

static int by_text(const void *left, const void *right)
{
	return strcmp(*(char *const *)left, *(char *const *)right);
}

static void put_path(const struct profile *p, uint32_t node, struct buf *out)
{
	if (p->nodes[node].parent) {
		put_path(p, p->nodes[node].parent, out);
		buf_add_char(out, ';');
	}
	buf_add_str(out,
		    profile_string(p, p->functions[p->frames[p->nodes[node].frame].function].name));
}

char *profile_to_text(const struct profile *p)
{
	cleanup_free int64_t *self = NULL, *total = NULL;
	cleanup_buf struct buf out = { 0 };
	char **lines = calloc(p->node_count, sizeof(*lines));
	size_t count = 0, i;
	uint32_t node;
	int rc = profile_node_values(p, &self, &total);

	assert(rc == 0 && lines);
	(void)rc;
	for (node = 1; node < p->node_count; node++) {
		cleanup_buf struct buf line = { 0 };

		if (!self[node])
			continue;
		put_path(p, node, &line);
		buf_printf(&line, " %lld", (long long)self[node]);
		lines[count++] = buf_take(&line, &(size_t){ 0 });
	}
	qsort(lines, count, sizeof(*lines), by_text);
	for (i = 0; i < count; i++) {
		buf_add_str(&out, lines[i]);
		buf_add_char(&out, '\n');
		free(lines[i]);
	}
	free(lines);
	buf_add_str(&out, "");
	return buf_take(&out, &(size_t){ 0 });
}
