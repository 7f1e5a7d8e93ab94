// SPDX-License-Identifier: Apache-2.0
#include "tests/support/profile_recipe.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/hash.h"

static uint64_t random_state;

static double uniform(void)
{
	random_state += 0x9e3779b97f4a7c15ull;
	return (double)(hash_mix64(random_state) >> 11) * 0x1p-53;
}

static uint32_t text_id(struct profile_builder *b, const char *text)
{
	return profile_builder_string(b, text, strlen(text));
}

static uint32_t node_of(struct profile_builder *b, const char *stack)
{
	cleanup_free char *text = strdup(stack);
	char *save = NULL, *word;
	uint32_t node = 0;

	for (word = strtok_r(text, ";", &save); word; word = strtok_r(NULL, ";", &save)) {
		struct profile_function function = { 0 };
		struct profile_frame frame = { 0 };
		char *kernel = strstr(word, "@kernel"), *script = strstr(word, "@python");
		char *interpreter = strstr(word, "@interpreter"), *nameless = strstr(word, "@nameless");
		struct profile_mapping mapping = { .key = 1 };

		if (kernel) {
			*kernel = 0;
			frame.kind = PROFILE_FRAME_KERNEL;
		}
		if (script) {
			*script = 0;
			frame.kind = PROFILE_FRAME_INTERPRETED;
		}
		if (interpreter) {
			*interpreter = 0;
			mapping.path = text_id(b, "/usr/lib/libpython3.11.so.1.0");
			frame.mapping = profile_builder_mapping(b, &mapping);
		}
		if (nameless) {
			*nameless = 0;
			mapping = (struct profile_mapping){ .path = text_id(b, "/usr/bin/bare"),
							    .build_id = { 1, 2, 3, 4 },
							    .build_id_len = 4 };
			frame = (struct profile_frame){
				.kind = PROFILE_FRAME_UNKNOWN,
				.flags = PROFILE_FRAME_NAMELESS,
				.mapping = profile_builder_mapping(b, &mapping),
				.offset = 0x1000 * (uint64_t)word[0]
			};
		}
		function.name = text_id(b, word);
		function.package = text_id(b, kernel ? "kernel" : "app");
		frame.function = profile_builder_function(b, &function);
		node = profile_builder_node(b, node, profile_builder_frame(b, &frame));
	}
	return node;
}

struct drawn {
	uint32_t node, attrs;
	double weight;
};

static void add_parts(struct profile_builder *b, const struct recipe *r, struct drawn *drawn)
{
	size_t i;

	for (i = 0; i < r->count; i++) {
		const char *comm = r->parts[i].comm ? r->parts[i].comm : "app";
		struct profile_process process = { .pid = r->pid + (uint32_t)comm[0],
						   .comm = text_id(b, comm),
						   .started_at_ns = 5 * NS_PER_S };
		struct profile_attrs attrs = { .process = profile_builder_process(b, &process) };

		if (r->parts[i].wait)
			attrs.wait = text_id(b, r->parts[i].wait);
		drawn[i].node = node_of(b, r->parts[i].stack);
		drawn[i].attrs = profile_builder_attrs(b, &attrs, NULL);
		drawn[i].weight = r->parts[i].weight;
	}
}

static const struct drawn *draw(const struct drawn *drawn, size_t count)
{
	double sum = 0, at;
	size_t i;

	for (i = 0; i < count; i++)
		sum += drawn[i].weight;
	at = uniform() * sum;
	for (i = 0; i + 1 < count && at >= drawn[i].weight; i++)
		at -= drawn[i].weight;
	return &drawn[i];
}

struct profile *recipe_make(const struct recipe *r)
{
	struct profile_meta meta = { .type = r->type,
				     .start_ns = r->start_ns ? r->start_ns : START_NS,
				     .duration_ns = r->seconds * NS_PER_S };
	struct profile_quality quality = { .samples = (int64_t)r->seconds * r->hz };
	cleanup(profile_builder) struct profile_builder *b = profile_builder_create(&meta, 100000);
	struct drawn drawn[64];
	struct profile *p = NULL;
	uint64_t i, events = (uint64_t)r->seconds * r->hz;

	random_state = r->seed;
	add_parts(b, r, drawn);
	for (i = 0; i < events; i++) {
		const struct drawn *one = draw(drawn, r->count);
		double value = r->value > 0 ? -log(1 - uniform()) * r->value : PERIOD_NS;
		int64_t values[PROFILE_VALUES_MAX] = { 1, 1, 1 };
		struct profile_event event = { meta.start_ns + i * NS_PER_S / r->hz, one->node,
					       one->attrs, (int64_t)value };

		values[profile_type_info(r->type)->value_index] = (int64_t)value;
		profile_builder_sample(b, one->node, one->attrs, values);
		profile_builder_event(b, &event);
	}
	assert_int_equal(profile_builder_finish(b, &quality, &p), 0);
	return p;
}

struct recipe recipe_of(const struct part *parts, size_t count, uint64_t seed)
{
	return (struct recipe){ .type = PROFILE_CPU,
				.parts = parts,
				.count = count,
				.seconds = 60,
				.hz = 99,
				.pid = 10,
				.seed = seed };
}
