// SPDX-License-Identifier: Apache-2.0
/* The profile of a window holds the stacks and threads that occur in it, of a day that has many
 * others. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/profile/quality.h"
#include "agent/recording/recording.h"
#include "agent/recording/session_chunks.h"
#include "agent/recording/settled.h"
#include "agent/store/store.h"
#include "bpf/profiler.h"
#include "tests/support/profile_text.h"

#define MINUTE	   (60 * NS_PER_S)
#define FIRST_PAIR 1000000u /* of the piece of the dictionary, likewise below */
#define FIRST_ATTR 500000u
#define USER	   7u /* stack ids */
#define KERNEL	   8u
#define WHOLE	   "[unknown] 0x1000;[unknown] 0xfc00000000002000" /* of both */

static void add(struct recording *recording, int kind, const struct buf *data, bool ahead)
{
	if (ahead)
		assert_int_equal(recording_add_pairs(recording, kind, data->data, data->len), 0);
	else
		assert_int_equal(recording_add(recording, kind, data->data, data->len, UINT32_MAX, NULL), 0);
}

static void settle(struct buf *ret, const struct buf *processes, const struct buf *stacks,
		   const struct buf *samples)
{
	cleanup(settled) struct settled *settled = settled_create();

	assert_non_null(settled);
	assert_int_equal(settled_add(settled, STORE_CHUNK_PROCESSES, processes->data, processes->len), 0);
	assert_int_equal(settled_add(settled, STORE_CHUNK_STACKS, stacks->data, stacks->len), 0);
	assert_int_equal(settled_add(settled, STORE_CHUNK_SAMPLES, samples->data, samples->len), 0);
	assert_int_equal(settled_encode(settled, ret, NULL), 0);
}

/* The profile of a minute of @sums, with a dictionary of one process, two stacks, two pairs and a
 * thread. @settled: as the dictionary is when its hour is rolled up. */
static struct profile *profile_of(struct chunk_sum *sums, uint32_t count, bool settled)
{
	const uint64_t frames[] = { prof_frame_address(PROF_FRAME_ADDRESS, 0x1000, 0),
				    prof_frame_address(PROF_FRAME_KERNEL, 0x2000, 0) };
	struct chunk_stack stacks[] = { { USER, 0, 1, &frames[0] }, { KERNEL, 0, 1, &frames[1] } };
	const struct chunk_process process = { .tgid = 42,
					       .comm = chunk_text_of("worker"),
					       .exe = chunk_text_of("/usr/bin/worker"),
					       .cmdline = chunk_text_of(""),
					       .service = chunk_text_of("web"),
					       .unit = chunk_text_of(""),
					       .container = chunk_text_of("") };
	const struct chunk_pair pairs[] = { { USER, 0 }, { USER, KERNEL } };
	const struct chunk_attr attr = { .tid = 43, .comm = "thread" };
	const struct chunk_samples samples = { .first_pair = FIRST_PAIR, .pair_count = 2, .pairs = pairs,
					       .first_attr = FIRST_ATTR, .attr_count = 1, .attrs = &attr };
	struct recording_options options = { .meta.type = PROFILE_CPU, .nodes_max = 1000 };
	cleanup(recording) struct recording *recording = recording_create();
	cleanup_buf struct buf sum = { 0 }, one = { 0 }, known = { 0 }, sample = { 0 };
	cleanup_buf struct buf whole = { .max = STORE_CHUNK_MAX };
	struct store_window window = { .service = "web", .type = "cpu" };
	struct profile *profile = NULL;

	assert_non_null(recording);
	chunk_encode_window(&sum, sums, count);
	window.data = sum.data;
	window.len = sum.len;
	assert_int_equal(recording_add_window(recording, &window, 0, MINUTE, 1), 0);
	buf_add_varint(&one, 1);
	chunk_encode_process(&one, &process);
	chunk_encode_stacks(&known, stacks, ARRAY_SIZE(stacks));
	chunk_encode_samples(&sample, &samples);
	if (settled)
		settle(&whole, &one, &known, &sample);
	recording_keep_trees(recording);
	for (int pass = 0; pass < 2 && settled; pass++)
		add(recording, STORE_CHUNK_SETTLED, &whole, pass == 0);
	for (int pass = 0; pass < 2 && !settled; pass++) {
		add(recording, STORE_CHUNK_PROCESSES, &one, pass == 0);
		add(recording, STORE_CHUNK_STACKS, &known, pass == 0);
		add(recording, STORE_CHUNK_SAMPLES, &sample, pass == 0);
	}
	options.quality = quality_empty();
	assert_int_equal(recording_build(recording, &options, NULL, &profile), 0);
	return profile;
}

static const struct profile_process *process_of(const struct profile *p, size_t sample)
{
	return &p->processes[p->attrs[p->samples[sample].attrs].process];
}

/* Numbers of a day are large; of the day's other pairs and threads a profile has nothing. */
static void test_what_occurs(void **state)
{
	for (int settled = 0; settled < 2; settled++) {
		struct chunk_sum sums[] = { { FIRST_PAIR + 1, FIRST_ATTR, 5, 1024 } };
		cleanup(profile) struct profile *p = profile_of(sums, 1, settled);
		cleanup_free char *text = profile_to_text(p);

		assert_string_equal(text, WHOLE " 5\n");
		assert_int_equal(p->sample_count, 1);
		assert_int_equal(process_of(p, 0)->pid, 42);
		assert_int_equal(p->attrs[p->samples[0].attrs].tid, 43);
	}
}

/* A sum whose pair and thread were in a piece that is damaged: its value is there, of nobody. */
static void test_damaged_pieces(void **state)
{
	for (int settled = 0; settled < 2; settled++) {
		struct chunk_sum sums[] = { { FIRST_PAIR + 1, FIRST_ATTR, 5, 1024 },
					    { FIRST_PAIR + 2, FIRST_ATTR + 1, 7, 1024 },
					    { CHUNK_PAIR_OVERFLOW, FIRST_ATTR, 11, 1024 } };
		cleanup(profile) struct profile *p = profile_of(sums, ARRAY_SIZE(sums), settled);
		cleanup_free char *text = profile_to_text(p);

		assert_string_equal(text, PROFILE_TRUNCATED " 11\n" WHOLE " 5\n" PROFILE_LOST " 7\n");
		for (size_t i = 0; i < p->sample_count; i++)
			assert_int_equal(process_of(p, i)->pid, p->samples[i].values[1] == 7 ? 0 : 42);
	}
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_occurs),
		cmocka_unit_test(test_damaged_pieces),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
