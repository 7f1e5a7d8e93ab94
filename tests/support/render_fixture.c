// SPDX-License-Identifier: Apache-2.0
#include "tests/support/render_fixture.h"

#include <stdio.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"

#define PERIOD_NS 10000000

static uint32_t text(struct profile_builder *b, const char *value)
{
	return profile_builder_string(b, value, strlen(value));
}

static uint32_t frame(struct profile_builder *b, const char *name, const char *package,
		      const char *file, uint32_t mapping, uint64_t offset, uint8_t kind,
		      uint8_t flags)
{
	struct profile_function function = {
		.name = text(b, name),
		.package = text(b, package),
		.file = text(b, file),
		.line = *file ? 100 : 0,
	};
	struct profile_frame value = {
		.function = profile_builder_function(b, &function),
		.mapping = mapping,
		.offset = offset,
		.line = *file ? (uint32_t)(100 + offset % 50) : 0,
		.kind = kind,
		.flags = flags,
	};

	return profile_builder_frame(b, &value);
}

static uint32_t stack(struct profile_builder *b, const uint32_t *frames, unsigned count)
{
	uint32_t node = 0;

	for (unsigned i = 0; i < count; i++)
		node = profile_builder_node(b, node, frames[i]);
	return node;
}

static void put(struct profile_builder *b, uint32_t node, uint32_t attrs, unsigned samples,
		uint64_t at_ns)
{
	int64_t values[PROFILE_VALUES_MAX] = { samples, (int64_t)samples * PERIOD_NS, 0 };

	profile_builder_sample(b, node, attrs, values);
	for (unsigned i = 0; i < samples; i++) {
		struct profile_event event = { at_ns + (uint64_t)i * 7 * PERIOD_NS, node, attrs,
					       PERIOD_NS };

		profile_builder_event(b, &event);
	}
}

static const struct profile_meta meta = {
	.type = PROFILE_CPU,
	.service = "api",
	.host = "web-3",
	.start_ns = 1768464000 * NS_PER_S,
	.duration_ns = 10 * NS_PER_S,
	.sample_rate = 100,
	.cpu_count = 4,
};

static uint32_t attrs_of(struct profile_builder *b, uint32_t pid, const char *comm, uint32_t tid,
			 const char *thread, const char *label)
{
	struct profile_process process = {
		.pid = pid,
		.exe = text(b, "/usr/bin/api"),
		.comm = text(b, comm),
		.service = text(b, "api"),
		.started_at_ns = meta.start_ns - NS_PER_S,
	};
	struct profile_label labels[1] = { { text(b, "endpoint"), text(b, label) } };
	struct profile_attrs attrs = {
		.process = profile_builder_process(b, &process),
		.tid = tid,
		.thread_name = text(b, thread),
		.label_count = *label ? 1 : 0,
	};

	return profile_builder_attrs(b, &attrs, labels);
}

struct profile *render_fixture(void)
{
	struct profile_builder *b = profile_builder_create(&meta, 10000);
	struct profile_quality quality = { .samples = 44, .lost = 1, .overhead_pct = -1,
					   .effective_rate = 99.5, .outcomes = { [1] = 2 },
					   .note_count = 1, .notes = { "a note" } };
	struct profile_mapping binary = { .path = text(b, "/usr/bin/api"), .build_id_len = 4,
					  .build_id = { 0xde, 0xad, 0xbe, 0xef }, .key = 1 };
	struct profile_mapping kernel = { .path = text(b, "[kernel]"), .key = 2 };
	uint32_t ker = profile_builder_mapping(b, &kernel), bin = profile_builder_mapping(b, &binary);
	uint32_t main_f = frame(b, "main", "", "/src/main.c", bin, 0x1010, PROFILE_FRAME_NATIVE, 0);
	uint32_t work = frame(b, "work<std::pair<int, char>, A;B>", "", "/src/work.cc", bin, 0x2020,
			      PROFILE_FRAME_NATIVE, 0);
	uint32_t inl = frame(b, "helper", "", "/src/helper.h", bin, 0x2020, PROFILE_FRAME_NATIVE,
			     PROFILE_FRAME_INLINED);
	uint32_t inl2 = frame(b, "tiny", "", "/src/helper.h", bin, 0x2020, PROFILE_FRAME_NATIVE,
			      PROFILE_FRAME_INLINED);
	uint32_t work2 = frame(b, "work<std::pair<int, char>, A;B>", "", "/src/work.cc", bin, 0x2040,
			       PROFILE_FRAME_NATIVE, 0);
	uint32_t sys = frame(b, "do_syscall_64", "", "", ker, 0x90, PROFILE_FRAME_KERNEL, 0);
	uint32_t go = frame(b, "encoding/json.(*decodeState).object", "encoding/json",
			    "/go/json/decode.go", bin, 0x3030, PROFILE_FRAME_GO, 0);
	uint32_t evil = frame(b, "</script><img src=x onerror=alert(1)>\"'&\n", "", "", bin, 0x4040,
			      PROFILE_FRAME_NATIVE, 0);
	uint32_t none = frame(b, "[unknown] api+0x5050", "", "", bin, 0x5050, PROFILE_FRAME_UNKNOWN,
			      0);
	uint32_t cut = frame(b, "[truncated]", "", "", 0, 0, PROFILE_FRAME_MARKER, 0);
	uint32_t one = attrs_of(b, 100, "api", 100, "api", "/login");
	uint32_t two = attrs_of(b, 100, "api", 101, "worker", "");
	uint32_t other = attrs_of(b, 200, "api", 200, "api", "");
	struct profile *p = NULL;

	put(b, stack(b, (uint32_t[]){ main_f, work, inl, inl2 }, 4), one, 20, meta.start_ns);
	put(b, stack(b, (uint32_t[]){ main_f, work2 }, 2), one, 5, meta.start_ns + 5);
	put(b, stack(b, (uint32_t[]){ main_f, work, sys }, 3), two, 4, meta.start_ns + 9);
	put(b, stack(b, (uint32_t[]){ main_f, go, go }, 3), two, 6, meta.start_ns + 11);
	put(b, stack(b, (uint32_t[]){ main_f, evil }, 2), other, 3, meta.start_ns + 13);
	put(b, stack(b, (uint32_t[]){ cut, none }, 2), other, 5, meta.start_ns + 17);
	put(b, stack(b, (uint32_t[]){ main_f }, 1), other, 1, meta.start_ns + 19);
	if (profile_builder_finish(b, &quality, &p) < 0)
		abort();
	profile_builder_destroy(b);
	return p;
}

struct profile *render_fixture_large(uint32_t nodes)
{
	struct profile_builder *b = profile_builder_create(&meta, nodes + 1000);
	struct profile_quality quality = { .samples = nodes / 4, .overhead_pct = -1 };
	struct profile_mapping binary = { .path = text(b, "/usr/bin/compiler"), .key = 1 };
	uint32_t bin = profile_builder_mapping(b, &binary), attrs = attrs_of(b, 1, "c", 1, "c", "");
	uint32_t frames[4096];
	uint64_t random = 1;
	struct profile *p = NULL;
	uint32_t made = 0;

	for (unsigned i = 0; i < ARRAY_SIZE(frames); i++) {
		char name[96], package[32];

		(void)snprintf(name, sizeof(name), "compiler::module%u::Checker<T%u>::check_%u(Node const*)",
			       i % 37, i % 11, i);
		(void)snprintf(package, sizeof(package), "module%u", i % 37);
		frames[i] = frame(b, name, package, "/src/checker.cc", bin, 16 * i,
				  PROFILE_FRAME_NATIVE, 0);
	}
	while (made < nodes) {
		uint32_t node = 0;
		unsigned depth = 20 + (unsigned)(hash_mix64(random) % 100);
		unsigned shared = (unsigned)(hash_mix64(random + 7) % (depth - 4));

		for (unsigned d = 0; d < depth; d++) {
			uint64_t pick = d < shared ? d * 31 : hash_mix64(random++);

			node = profile_builder_node(b, node, frames[pick % ARRAY_SIZE(frames)]);
			made += d >= shared;
		}
		random++;
		profile_builder_sample(b, node, attrs,
				       (int64_t[]){ 1 + (int64_t)(random % 5), PERIOD_NS * (1 + (int64_t)(random % 5)), 0 });
	}
	if (profile_builder_finish(b, &quality, &p) < 0)
		abort();
	profile_builder_destroy(b);
	return p;
}
