// SPDX-License-Identifier: Apache-2.0
/* Leaks over a series of goroutine profiles, waits that do not end, longest waits, labels. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/profile/goroutine/goroutine_findings.h"

struct g {
	unsigned goid;
	const char *function;
	const char *wait;
	unsigned wait_s;
	const char *object;
	const char *tenant;
	bool leaked;
};

static uint32_t text(struct profile_builder *b, const char *value)
{
	return profile_builder_string(b, value, strlen(value));
}

static void add_label(struct profile_builder *b, struct profile_label *labels, uint32_t *count,
		      const char *name, const char *value)
{
	labels[(*count)++] = (struct profile_label){ text(b, name), text(b, value) };
}

static void add(struct profile_builder *b, const struct g *g)
{
	const struct profile_process process = { .pid = 7, .comm = text(b, "program") };
	const struct profile_function function = { .name = text(b, g->function) };
	struct profile_frame frame = { .kind = PROFILE_FRAME_GO };
	struct profile_attrs attrs = { .state = text(b, "waiting"), .wait = text(b, g->wait) };
	struct profile_label labels[5];
	const int64_t one[PROFILE_VALUES_MAX] = { 1 };
	char number[24];
	uint32_t node;

	attrs.process = profile_builder_process(b, &process);
	frame.function = profile_builder_function(b, &function);
	node = profile_builder_node(b, 0, profile_builder_frame(b, &frame));
	(void)snprintf(number, sizeof(number), "%u", g->goid);
	add_label(b, labels, &attrs.label_count, GOROUTINE_LABEL_ID, number);
	if (g->wait_s) {
		(void)snprintf(number, sizeof(number), "%u", g->wait_s);
		add_label(b, labels, &attrs.label_count, GOROUTINE_LABEL_WAIT, number);
	}
	if (g->object)
		add_label(b, labels, &attrs.label_count, GOROUTINE_LABEL_OBJECT, g->object);
	if (g->tenant)
		add_label(b, labels, &attrs.label_count, "tenant", g->tenant);
	if (g->leaked)
		add_label(b, labels, &attrs.label_count, GOROUTINE_LABEL_LEAKED, "true");
	profile_builder_sample(b, node, profile_builder_attrs(b, &attrs, labels), one);
}

static struct profile *make(const struct g *gs, size_t count)
{
	const struct profile_meta meta = { .type = PROFILE_GOROUTINE };
	const struct profile_quality quality = { 0 };
	cleanup(profile_builder) struct profile_builder *b = profile_builder_create(&meta, 1000);
	struct profile *p = NULL;

	assert_non_null(b);
	for (size_t i = 0; i < count; i++)
		add(b, &gs[i]);
	assert_int_equal(profile_builder_finish(b, &quality, &p), 0);
	return p;
}

/* @count goroutines from @first on, all alike. */
static void fill(struct g *to, size_t *at, unsigned first, unsigned count, struct g like)
{
	for (unsigned i = 0; i < count; i++) {
		like.goid = first + i;
		to[(*at)++] = like;
	}
}

struct series {
	struct profile *profiles[FINDINGS_HISTORY_MAX];
	struct goroutine_analysis analyses[FINDINGS_HISTORY_MAX];
	uint32_t count;
};

static void push(struct series *s, const struct g *gs, size_t count)
{
	s->profiles[s->count] = make(gs, count);
	assert_int_equal(goroutine_analysis_init(&s->analyses[s->count], s->profiles[s->count],
						 &(struct goroutine_options){ 0 }),
			 0);
	s->count++;
}

static void drop(struct series *s)
{
	for (uint32_t i = 0; i < s->count; i++) {
		goroutine_analysis_deinit(&s->analyses[i]);
		s->profiles[i] = profile_unref(s->profiles[i]);
	}
}

static const char *function_of(const struct goroutine_analysis *a,
			       const struct goroutine_stack *stack)
{
	const struct profile_frame *frame = &a->p->frames[a->frames[stack->frame_first]];

	return profile_string(a->p, a->p->functions[frame->function].name);
}

/* A leak; a steady pool; a pool that grows but works between two looks; goroutines that come and go
 * in growing numbers; a stack that has only grown twice. */
static void growth_that_stays_is_a_leak(void **state)
{
	struct series s = { 0 };
	cleanup_goroutine_findings struct goroutine_findings found = { 0 };

	for (unsigned round = 0; round < 4; round++) {
		struct g gs[200];
		size_t n = 0;

		fill(gs, &n, 100, 10 + 5 * round,
		     (struct g){ .function = "main.leak", .wait = "chan receive", .wait_s = 10 + 60 * round });
		fill(gs, &n, 200, 20, (struct g){ .function = "main.pool", .wait = "select" });
		fill(gs, &n, 300, 10 + round,
		     (struct g){ .function = "main.busyPool", .wait = "select", .wait_s = 3 });
		fill(gs, &n, 400 + 50 * round, 10 + round,
		     (struct g){ .function = "main.request", .wait = "chan receive" });
		fill(gs, &n, 700, round < 2 ? 9 : 5 + 2 * round,
		     (struct g){ .function = "main.late", .wait = "chan send" });
		push(&s, gs, n);
	}
	assert_int_equal(goroutine_findings_init(&found, s.analyses, s.count, 20), 0);
	assert_int_equal(found.leak_count, 1);
	assert_string_equal(function_of(&s.analyses[3], found.leaks[0].stack), "main.leak");
	assert_int_equal(found.leaks[0].first, 0);
	assert_int_equal(found.leaks[0].counts[0], 10);
	assert_int_equal(found.leaks[0].counts[3], 25);
	assert_int_equal(found.leaks[0].max_wait_s, 190);
	goroutine_findings_deinit(&found);
	/* Two profiles are no series. */
	assert_int_equal(goroutine_findings_init(&found, s.analyses + 2, 2, 20), 0);
	assert_int_equal(found.leak_count, 0);
	drop(&s);
}

static void waits_without_end_are_told_by_kind(void **state)
{
	const struct g gs[] = {
		{ 1, "main.nil", "chan receive (nil chan)", 0, NULL, NULL, false },
		{ 2, "main.lost", "chan receive", 5, "channel 0xc1", NULL, true },
		{ 3, "main.locked", "sync.Mutex.Lock", 90, "sync.Mutex 0xc2", NULL, false },
		{ 4, "main.locked", "sync.Mutex.Lock", 70, "sync.Mutex 0xc2", NULL, false },
		{ 5, "main.locked", "sync.Mutex.Lock", 20, "sync.Mutex 0xc3", NULL, false },
		{ 6, "main.send", "chan send", 61, "channel 0xc4", NULL, false },
		{ 7, "main.select", "select", 300, "channel 0xc5", NULL, false },
		{ 8, "main.send", "chan send", 300, "channel 0xc5", NULL, false },
		{ 9, "main.receive", "chan receive", 300, "channel 0xc6", NULL, false },
	};
	struct series s = { 0 };
	cleanup_goroutine_findings struct goroutine_findings found = { 0 };
	unsigned seen = 0;

	push(&s, gs, ARRAY_SIZE(gs));
	assert_int_equal(goroutine_findings_init(&found, s.analyses, s.count, 20), 0);
	assert_int_equal(found.deadlock_count, 4);
	for (uint32_t i = 0; i < found.deadlock_count; i++) {
		const struct goroutine_deadlock *d = &found.deadlocks[i];
		const char *object = profile_string(s.profiles[0], d->object);

		seen |= 1u << d->kind;
		if (d->kind == DEADLOCK_LOCK) {
			assert_string_equal(object, "sync.Mutex 0xc2");
			assert_int_equal(d->count, 2);
			assert_int_equal(d->max_wait_s, 90);
		}
		if (d->kind == DEADLOCK_SENDERS)
			assert_string_equal(object, "channel 0xc4");
	}
	assert_int_equal(seen, (1u << DEADLOCK_KIND_MAX) - 1);
	drop(&s);
}

static void longest_waits_and_labels(void **state)
{
	const struct g gs[] = {
		{ 1, "main.a", "select", 10, NULL, "acme", false },
		{ 2, "main.a", "select", 40, NULL, "acme", false },
		{ 3, "main.b", "select", 30, "channel 0xc1", "other", false },
		{ 4, "main.b", "select", 0, NULL, NULL, false },
	};
	struct series s = { 0 };
	cleanup_goroutine_findings struct goroutine_findings found = { 0 };

	push(&s, gs, ARRAY_SIZE(gs));
	assert_int_equal(goroutine_findings_init(&found, s.analyses, s.count, 2), 0);
	assert_int_equal(found.wait_count, 2);
	assert_int_equal(found.waits[0].id, 2);
	assert_int_equal(found.waits[1].id, 3);
	assert_string_equal(profile_string(s.profiles[0], found.waits[1].object), "channel 0xc1");
	assert_int_equal(found.label_count, 2);
	assert_string_equal(profile_string(s.profiles[0], found.labels[0].name), "tenant");
	assert_string_equal(profile_string(s.profiles[0], found.labels[0].value), "acme");
	assert_int_equal(found.labels[0].count, 2);
	drop(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(growth_that_stays_is_a_leak),
		cmocka_unit_test(waits_without_end_are_told_by_kind),
		cmocka_unit_test(longest_waits_and_labels),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
