/* SPDX-License-Identifier: Apache-2.0 */
/* A profile made by the builder and the stack resolver from arbitrary bytes: stacks of any frame
 * words, any attributes, values and times. For targets that look at profiles. */
#ifndef TESTS_FUZZ_PROFILE_OF_BYTES_H
#define TESTS_FUZZ_PROFILE_OF_BYTES_H

#include <stdlib.h>

#include "agent/base/bytes.h"
#include "agent/profile/stack_resolver.h"
#include "agent/wire/feed.h"
#include "bpf/profiler.h"

static bool find_module(void *ctx, uint32_t module, struct stack_module *ret)
{
	static const char *const paths[] = { "/bin/a", "", "[kernel]",
					     "/x/lib-1.2.so.3 (deleted)" };

	if (module % 7 == 6)
		return false;
	*ret = (struct stack_module){ module, paths[module % 4], (const uint8_t *)"id", module % 3,
				      (uint8_t)(module % 6) };
	if (module % 11 == 10) {
		ret->path = "[python]";
		ret->kind = FEED_MODULE_SCRIPT;
	}
	return true;
}

static int find_name(void *ctx, uint64_t key, uint64_t offset, struct name_frame *ret)
{
	static const char *const names[] = { "main.main", "runtime.gopark", "f.cold", "g",
					     "a/b.(*T).F[...]" };
	int count = (int)(offset % 4), i;

	for (i = 0; i < count; i++)
		ret[i] = (struct name_frame){
			.function = names[(offset + (unsigned)i) % 5], .package = "",
			.file = "x.c", .line = 1, .start_line = 1, .kind = (uint8_t)(key % 5),
			.tier = (uint8_t)(offset >> 4) % PROFILE_TIERS,
			.symbol = offset & 8 ? "_Z1fv" : NULL
		};
	return count;
}

static struct profile *profile_of_bytes(struct bytes *in)
{
	struct profile_meta meta = { .type = (enum profile_type)(bytes_u8(in) % PROFILE_TYPE_MAX),
				     .start_ns = 1000000000,
				     .duration_ns = bytes_u32(in) };
	struct profile_quality quality = { 0 };
	struct stack_modules modules = { NULL, find_module };
	struct name_source names = { NULL, find_name, NULL };
	cleanup(profile_builder) struct profile_builder *b =
		profile_builder_create(&meta, 1 + bytes_u8(in));
	cleanup(stack_resolver) struct stack_resolver *r =
		stack_resolver_create(b, &modules, &names, 1 + bytes_u8(in) % 9);
	struct profile *p = NULL;
	int samples = 0;

	while (bytes_left(in) && !in->failed && samples++ < 200) {
		uint64_t frames[8];
		uint8_t user = bytes_u8(in) % 5, kernel = bytes_u8(in) % 4, i;
		struct profile_process process = { .pid = bytes_u8(in) % 3 };
		struct profile_attrs attrs = { .tid = bytes_u8(in) % 3 };
		int64_t value = bytes_u16(in);
		uint32_t node = 0, id;

		for (i = 0; i < user + kernel; i++)
			frames[i] = bytes_u64(in);
		if (stack_resolver_node(r, (struct stack_frames){ frames, user },
					(struct stack_frames){ frames + user, kernel }, &node) < 0)
			abort();
		process.comm = profile_builder_string(b, process.pid ? "web" : "db", 2);
		attrs.process = profile_builder_process(b, &process);
		attrs.state = profile_builder_string(b, "blocked", attrs.tid ? 7 : 0);
		id = profile_builder_attrs(b, &attrs, NULL);
		profile_builder_sample(b, node, id, (int64_t[]){ value, value, value });
		if (bytes_u8(in) & 1)
			profile_builder_event(b,
					      &(struct profile_event){ 1000000000 + bytes_u32(in),
								       node, id, value });
	}
	if (profile_builder_finish(b, &quality, &p) < 0)
		abort();
	return p;
}

#endif
