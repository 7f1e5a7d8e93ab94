// SPDX-License-Identifier: Apache-2.0
/* Intervals of values that chance chose: as often right as they say, and gone where nothing was
 * left to chance. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "agent/profile/memory/interval.h"
#include "agent/recording/sample_variance.h"
#include "bpf/profiler.h"

#define RUNS  2000
#define PLACES 3

enum { OPERATIONS, DELAY, BYTES };

static uint64_t seed = 12345;

static double chance(void)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (double)(seed >> 11) / (double)(1ull << 53);
}

static uint32_t place(struct profile_builder *b, uint32_t parent, const char *name)
{
	struct profile_function function = { .name = profile_builder_string(b, name, strlen(name)) };
	struct profile_frame frame = { .kind = PROFILE_FRAME_NATIVE };

	frame.function = profile_builder_function(b, &function);
	return profile_builder_node(b, parent, profile_builder_frame(b, &frame));
}

/* Calls of @bytes each: recorded with the probability bytes / threshold, then as the threshold. */
static void sample(struct profile_builder *b, uint32_t node, unsigned calls, double bytes,
		   double threshold)
{
	const struct profile_attrs attrs = { 0 };
	uint32_t id = profile_builder_attrs(b, &attrs, NULL);

	for (unsigned i = 0; i < calls; i++) {
		double p = fmin(bytes / threshold, 1), value = bytes / p;

		if (chance() < p)
			profile_builder_estimate(b, node, id, (const int64_t[]){ 1, 0, (int64_t)value },
						 value * value * (1 - p));
	}
}

static struct profile *run(void)
{
	const struct profile_meta meta = { .type = PROFILE_IO, .service = "io" };
	cleanup(profile_builder) struct profile_builder *b = profile_builder_create(&meta, 100);
	const struct profile_quality quality = { 0 };
	struct profile *p;
	uint32_t root;

	assert_non_null(b);
	root = place(b, 0, "main");
	sample(b, place(b, root, "often"), 2000, 1000, 16384);
	sample(b, place(b, root, "seldom"), 40, 5000, 16384);
	sample(b, place(b, root, "large"), 50, 65536, 16384);
	assert_int_equal(profile_builder_finish(b, &quality, &p), 0);
	return p;
}

static void test_as_often_right_as_they_say(void **state)
{
	static const struct {
		const char *name;
		double bytes;
	} places[PLACES] = { { "main", 2e6 + 2e5 + 50 * 65536 }, { "often", 2e6 }, { "seldom", 2e5 } };
	unsigned right[PLACES] = { 0 };

	for (unsigned i = 0; i < RUNS; i++) {
		cleanup(profile) struct profile *p = run();
		cleanup_free struct profile_interval *intervals = NULL;

		assert_int_equal(profile_intervals(p, BYTES, &intervals), 0);
		for (uint32_t f = 0; f < p->function_count; f++) {
			const char *name = profile_string(p, p->functions[f].name);

			for (unsigned k = 0; k < PLACES; k++)
				right[k] += !strcmp(name, places[k].name) && intervals[f].lo <= places[k].bytes &&
					    places[k].bytes <= intervals[f].hi;
			if (strcmp(name, "large") == 0) {
				assert_true(intervals[f].lo == 50 * 65536);
				assert_true(intervals[f].hi == 50 * 65536);
			}
		}
	}
	for (unsigned k = 0; k < PLACES; k++) {
		/* "seldom" is seen a dozen times a run, where a normal law is a rough one */
		assert_in_range(right[k], RUNS * 92 / 100, RUNS * 98 / 100);
	}
}

/* ---- waits ----------------------------------------------------------------------------------- */

#define RECORDED_FROM_NS 10e6 /* waits of that length and more are all recorded */
#define THINNED_BELOW_NS                                                                           \
	30e6 /* and in a session with many threads all of that length and more are kept */

/* One wait as bpf/offcpu.bpf.h and session_thin() make it: its value, what part of it was on a run
 * queue, and how many it stands for. 0: left out, once or again. */
static double recorded(double ns, bool thin, double *queued, uint64_t *value2)
{
	double p = fmin(ns / RECORDED_FROM_NS, 1), value = ns / p;

	if (chance() >= p)
		return 0;
	*queued *= value;
	*value2 = (uint64_t)(1024 / p);
	if (!thin || value >= THINNED_BELOW_NS)
		return value;
	p = value / THINNED_BELOW_NS;
	*queued /= p;
	*value2 = (uint64_t)((double)*value2 / p);
	return chance() < p ? value / p : 0;
}

/* Threads that wait so often for about so long, a fifth of it for a CPU. Returns all of their time.
 */
static double waits(struct profile_builder *b, struct sample_variance *v, uint32_t node,
		    unsigned count, double mean_ns, bool thin)
{
	static const char *const states[] = { "blocked", "runqueue" };
	double sum = 0;

	for (unsigned i = 0; i < count; i++) {
		struct chunk_attr attr = { .tid = node * 10 + i % 3, .type = PROF_SAMPLE_OFFCPU };
		struct chunk_event event = { .time_ns = i };
		double ns = -mean_ns * log(1 - chance()), queued = 0.2,
		       value = recorded(ns, thin, &queued, &event.value2);

		sum += ns;
		for (int k = 0; k < 2 && value > 0; k++) {
			const struct profile_attrs attrs = { .tid = attr.tid,
							     .state = profile_builder_string(b, states[k],
											     strlen(states[k])) };
			double part = k ? queued : value - queued;

			profile_builder_estimate(b, node, profile_builder_attrs(b, &attrs, NULL),
						 (const int64_t[]){ !k, (int64_t)part },
						 sample_variance(v, &attr, &event, part));
			event.value2 = 0;
		}
	}
	return sum;
}

/* The functions by their numbers: all, short waits, seldom ones. */
static struct profile *run_of_waits(bool thin, double ret_truth[PLACES])
{
	static const char *const names[PLACES] = { "main", "short", "seldom" };
	const struct profile_meta meta = { .type = PROFILE_OFFCPU, .service = "waits" };
	cleanup(profile_builder) struct profile_builder *b = profile_builder_create(&meta, 100);
	const struct profile_quality quality = { 0 };
	struct sample_variance variance = { 0 };
	uint32_t root, nodes[PLACES];
	struct profile *p;

	assert_non_null(b);
	root = place(b, 0, names[0]);
	for (int k = 1; k < PLACES; k++)
		nodes[k] = place(b, root, names[k]);
	ret_truth[1] = waits(b, &variance, nodes[1], 3000, 1e6, thin);
	ret_truth[2] = waits(b, &variance, nodes[2], 60, 15e6, thin);
	ret_truth[0] = ret_truth[1] + ret_truth[2];
	assert_int_equal(profile_builder_finish(b, &quality, &p), 0);
	return p;
}

static void test_waits(void **state)
{
	for (int thin = 0; thin < 2; thin++) {
		unsigned right[PLACES] = { 0 };

		for (unsigned i = 0; i < RUNS; i++) {
			double truth[PLACES];
			cleanup(profile) struct profile *p = run_of_waits(thin, truth);
			cleanup_free struct profile_interval *intervals = NULL, *none = NULL;

			assert_int_equal(p->function_count, PLACES);
			assert_int_equal(profile_intervals(p, 1, &intervals), 0);
			for (unsigned k = 0; k < PLACES; k++)
				right[k] += intervals[k].lo <= truth[k] && truth[k] <= intervals[k].hi;
			assert_true(intervals[PLACES].lo == intervals[0].lo && intervals[PLACES].hi == intervals[0].hi);
			assert_int_equal(profile_intervals(p, 0, &none), -ENODATA); /* how many there were */
		}
		for (unsigned k = 0; k < PLACES; k++) {
			print_message("%s: %.1f %%\n", thin ? "thinned" : "as recorded", 100.0 * right[k] / RUNS);
			assert_in_range(right[k], RUNS * 92 / 100, RUNS * 98 / 100);
		}
	}
}

/* ---- what is in use -------------------------------------------------------------------------- */

#define IN_USE 1000.0 /* bytes of each of two places, by ten windows */

/* The intervals of "cache", of which none was seen to end, of "leak", and of both; the caller's. */
static struct profile_interval *in_use(bool unsure, struct profile_probes probes)
{
	const struct profile_meta meta = { .type = PROFILE_MEMORY, .service = "places" };
	struct profile_quality quality = { .probes = probes };
	cleanup(profile_builder) struct profile_builder *b = profile_builder_create(&meta, 100);
	const struct profile_label label = { profile_builder_string(b, PROFILE_LABEL_UNSURE,
								    strlen(PROFILE_LABEL_UNSURE)),
					     profile_builder_string(b, "yes", 3) };
	const struct profile_attrs attrs = { .label_count = unsure }, none = { 0 };
	const uint32_t nodes[] = { place(b, 0, "cache"), place(b, 0, "leak") };
	const uint32_t ids[] = { profile_builder_attrs(b, &attrs, &label),
				 profile_builder_attrs(b, &none, NULL) };
	cleanup(profile) struct profile *p = NULL;
	struct profile_interval *ret = NULL;

	strcpy(quality.probes.mode, "windows");
	for (unsigned i = 0; i < 20; i++) {
		const struct profile_event event = { .time_ns = (1 + i / 2) * 1000000000ull, .node = nodes[i % 2],
						     .attrs = ids[i % 2], .value = (int64_t)IN_USE / 10 };

		profile_builder_event(b, &event);
	}
	assert_int_equal(profile_builder_finish(b, &quality, &p), 0);
	assert_string_equal(profile_string(p, p->functions[0].name), "cache");
	assert_int_equal(profile_intervals(p, profile_value_index(p), &ret), 0);
	return ret;
}

static void test_what_may_have_ended(void **state)
{
	const struct profile_probes half_left = { .fitted = 0.5, .gone_bytes = 2 * IN_USE };
	const struct profile_probes nothing = { 0 }, grown = { .fitted = 1 };
	cleanup_free struct profile_interval *sure = in_use(false, nothing),
					     *unknown = in_use(true, nothing);
	cleanup_free struct profile_interval *half = in_use(true, half_left), *none = in_use(true, grown);

	assert_true(sure[0].lo > IN_USE * 0.9 && sure[0].hi < IN_USE * 1.1);
	/* Nothing says how much there is: all of it may be gone, and the other place's stays. */
	assert_true(unknown[0].lo == 0 && unknown[0].hi == sure[0].hi);
	assert_true(unknown[1].lo == sure[1].lo && unknown[1].hi == sure[1].hi);
	assert_true(unknown[2].lo < sure[2].lo * 0.6);
	/* The heap holds half of what they allocated: it may be all of one's, but both together are
	 * there. */
	assert_true(half[0].lo == 0 && half[1].hi > 2 * IN_USE * 0.99);
	assert_true(half[2].lo == sure[2].lo);
	/* It has grown by as much as they allocated. */
	assert_true(none[0].lo == sure[0].lo && none[1].hi == sure[1].hi);
}

/* Few samples of rare windows stand for much, but the heap as a whole is known. */
static void test_heap_is_the_limit(void **state)
{
	struct profile_probes rare = {
		.gap_bytes = 1 << 20, .duty_pct = 1, .dilation = 1, .rel_err = 0.5
	};
	cleanup_free struct profile_interval *open = in_use(false, rare);
	cleanup_free struct profile_interval *walked =
		(rare.heap_bytes = (uint64_t)(3 * IN_USE), in_use(false, rare));
	cleanup_free struct profile_interval *more = (rare.heap_bytes = 1, in_use(false, rare));

	assert_true(open[0].hi > 1e6 && open[2].hi > 1e6);
	assert_true(walked[0].hi == 3 * IN_USE && walked[2].hi == 3 * IN_USE);
	assert_true(walked[0].lo == open[0].lo);
	/* never below the estimate */
	assert_true(more[0].hi == IN_USE);
}

static void test_what_is_exact_has_none(void **state)
{
	cleanup(profile) struct profile *p = run();
	struct profile_interval *intervals = NULL;

	assert_int_equal(profile_intervals(p, DELAY, &intervals), -ENODATA);
	assert_null(intervals);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_as_often_right_as_they_say),
		cmocka_unit_test(test_waits),
		cmocka_unit_test(test_what_may_have_ended),
		cmocka_unit_test(test_heap_is_the_limit),
		cmocka_unit_test(test_what_is_exact_has_none),
	};

	return cmocka_run_group_tests_name("interval", tests, NULL, NULL);
}
