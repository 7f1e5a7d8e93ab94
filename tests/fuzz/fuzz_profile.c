// SPDX-License-Identifier: Apache-2.0
/* Bytes as a program for the builder and the stack resolver, then every operation on the result:
 * stacks of any frame words, any attributes, values and times. Sums must agree however the profile
 * is looked at. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/bytes.h"
#include "agent/profile/compare.h"
#include "agent/profile/flame_diff.h"
#include "agent/profile/goroutine_analysis.h"
#include "agent/profile/heatmap.h"
#include "agent/profile/profile_diff.h"
#include "agent/profile/stack_resolver.h"
#include "agent/wire/feed.h"
#include "bpf/profiler.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool find_module(void *ctx, uint32_t module, struct stack_module *ret)
{
	static const char *const paths[] = { "/bin/a", "", "[kernel]",
					     "/x/lib-1.2.so.3 (deleted)" };

	if (module % 7 == 6)
		return false;
	*ret = (struct stack_module){ module, paths[module % 4], (const uint8_t *)"id", module % 3,
				      (uint8_t)(module % 6) };
	return true;
}

static int find_name(void *ctx, uint64_t key, uint64_t offset, struct name_frame *ret)
{
	static const char *const names[] = { "main.main", "runtime.gopark", "f.cold", "g",
					     "a/b.(*T).F[...]" };
	int count = (int)(offset % 4), i;

	for (i = 0; i < count; i++)
		ret[i] = (struct name_frame){
			names[(offset + (unsigned)i) % 5], "", "x.c", 1, 1, (uint8_t)(key % 5)
		};
	return count;
}

static struct profile *build(struct bytes *in)
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

static void check_sums(const struct profile *p)
{
	cleanup_free int64_t *self = NULL, *total = NULL;
	cleanup_free struct profile_function_row *rows = NULL;
	int64_t sum = 0, root = 0;
	size_t count, i;

	if (profile_node_values(p, &self, &total) < 0 ||
	    profile_top_functions(p, &rows, &count) < 0)
		abort();
	for (i = 0; i < count; i++) {
		sum += rows[i].self;
		if (rows[i].self > rows[i].cumulative || rows[i].cumulative > total[0])
			abort();
	}
	for (i = 0; i < p->sample_count && !p->samples[i].node; i++)
		root += p->samples[i].values[profile_value_index(p)];
	if (total[0] != p->totals[profile_value_index(p)] || sum + root != total[0])
		abort();
}

static void check_operations(struct profile *p, struct profile *q)
{
	struct profile_filter group = { .group_by = "tid" };
	cleanup(profile) struct profile *merged = NULL, *grouped = NULL;
	cleanup_goroutine_analysis struct goroutine_analysis analysis = { 0 };
	cleanup_flame_diff struct flame_diff flames = { 0 };
	struct compare_side sides[2] = { { .profile = p, .runqueue_share = -1 },
					 { .profile = q, .runqueue_share = -1 } };
	unsigned k = profile_value_index(p);

	if (profile_merge((struct profile *[]){ p, p }, 2, &merged) < 0 ||
	    merged->totals[k] != 2 * p->totals[k])
		abort();
	if (profile_select(p, &group, &grouped) < 0 || grouped->totals[k] != p->totals[k])
		abort();
	check_sums(merged);
	(void)!goroutine_analysis_init(&analysis, p, &(struct goroutine_options){ 0 });
	if (flame_diff_init(&flames, p, merged, 5) < 0 || flames.total[0] != p->totals[k])
		abort();
	if (p->meta.type == q->meta.type) {
		cleanup_compare struct compare c = { 0 };
		cleanup_profile_diff struct profile_diff diff = { 0 };

		if (compare_init(&c, &sides[0], &sides[1], NULL) < 0 ||
		    profile_diff_init(&diff, p, q, &(struct goroutine_options){ 0 }) < 0)
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes in = bytes_of(data, size / 2),
		     rest = bytes_of(data + size / 2, size - size / 2);
	cleanup(profile) struct profile *p = build(&in), *q = build(&rest);

	q->meta.type = size % 3 && profile_type_info(q->meta.type)->value_count ==
					       profile_type_info(p->meta.type)->value_count
			       ? p->meta.type
			       : q->meta.type;
	check_sums(p);
	check_operations(p, q);
	return 0;
}
