// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/hash.h"
#include "agent/profile/function_sums.h"
#include "agent/profile/package_name.h"
#include "agent/profile/profile_fold.h"
#include "agent/profile/stack_resolver.h"
#include "agent/profile/compare/window_matrix.h"
#include "agent/wire/feed.h"
#include "bpf/profiler.h"
#include "tests/support/profile_text.h"

enum {
	APP = 1,
	LIBC = 2,
	KERNEL = 3,
	JIT = 4,
	UNREADABLE = 5,
	GONE = 6,
	PYTHON = 7,
	LIBPYTHON = 8,
	OTHER_SCRIPT = 9
};

#define AT(module, offset)   prof_frame_module(module, offset, 0)
#define CALL(module, offset) prof_frame_module(module, offset, PROF_FRAME_RETURN)
#define TRUNCATED	     ((uint64_t)PROF_FRAME_TRUNCATED << PROF_FRAME_KIND_SHIFT)

static bool find_module(void *ctx, uint32_t module, struct stack_module *ret)
{
	static const struct stack_module table[] = {
		[APP] = { 100, "/usr/bin/app (deleted)", (const uint8_t *)"\1\2", 2,
			  FEED_MODULE_ELF },
		[LIBC] = { 200, "/lib/libc.so.6", NULL, 0, FEED_MODULE_ELF },
		[KERNEL] = { 300, "[kernel]", NULL, 0, FEED_MODULE_KERNEL },
		[JIT] = { 400, "", NULL, 0, FEED_MODULE_JIT },
		[UNREADABLE] = { 500, "/tmp/a.out", NULL, 0, FEED_MODULE_UNREADABLE },
		[GONE] = { 600, "/tmp/b.out", NULL, 0, FEED_MODULE_GONE },
		[PYTHON] = { 700, "[python]", NULL, 0, FEED_MODULE_SCRIPT },
		[LIBPYTHON] = { 800, "/lib/libpython3.so", NULL, 0, FEED_MODULE_ELF },
		[OTHER_SCRIPT] = { 900, "[java]", NULL, 0, FEED_MODULE_SCRIPT },
	};

	if (module >= ARRAY_SIZE(table) || !table[module].kind)
		return false;
	*ret = table[module];
	return true;
}

struct asked {
	unsigned finds, prefetches, offsets;
};

static int find_names(void *ctx, uint64_t key, uint64_t offset, struct name_frame *ret)
{
	static const struct {
		uint64_t key, from, to;
		struct name_frame frames[3];
		int count;
	} table[] = {
		{ 100, 0x10, 0x20, { { "main", "", "main.c", { 3 }, 1, 0, 0, false, NULL, false } }, 1 },
		{ 100,
		  0x20,
		  0x30,
		  { { "inner", "", "a.h", { 7 }, 6, 0, 0, false, NULL, false },
		    { "middle", "", "a.h", { 17 }, 16, 0, 0, false, NULL, false },
		    { "outer", "", "main.c", { 27 }, 26, 0, 0, false, NULL, false } },
		  3 },
		{ 100,
		  0x30,
		  0x40,
		  { { "example.com/x/y%2ez.(*T).M", "", "", { 0 }, 0, PROFILE_FRAME_GO, 0, false, NULL, false } },
		  1 },
		/* As of 0x4f: the function begins at 0x40. */
		{ 100, 0x4f, 0x50, { { .function = "", .package = "", .file = "", .from_start = 0xf } }, 1 },
		{ 100, 0x44, 0x45, { { .function = "", .package = "", .file = "", .from_start = 4 } }, 1 },
		{ 100, 0x40, 0x41, { { .function = "", .package = "", .file = "" } }, 1 },
		/* A frame of a damaged file. */
		/* Its name is not known yet. */
		{ 100, 0x60, 0x61, { { .function = "" } }, -EAGAIN },
		{ 100, 0x50, 0x51, { { .function = "", .package = "", .file = "", .from_start = 0x51 } }, 1 },
		{ 700, 1, 2, { { "f", "", "f.py", { 3 }, 1, 0, 0, false, NULL, false } }, 1 },
		{ 700, 2, 3, { { "g", "", "f.py", { 7 }, 6, 0, 0, false, NULL, false } }, 1 },
		{ 800,
		  0x10,
		  0x20,
		  { { "add", "", "", { 0 }, 0, 0, 0, false, NULL, false },
		    { "loop", "", "", { 0 }, 0, 0, 0, false, NULL, false } },
		  2 },
		{ 800, 0x20, 0x30, { { "call", "", "", { 0 }, 0, 0, 0, false, NULL, false } }, 1 },
		{ 800,
		  0x30,
		  0x40,
		  { { "swap", "", "", { 0 }, 0, 0, 0, false, NULL, false },
		    { "sort", "", "", { 0 }, 0, 0, 0, false, NULL, false } },
		  2 },
		{ 900, 1, 2, { { "j", "", "J.java", { 3 }, 1, 0, 0, false, NULL, false } }, 1 },
		{ 300, 0x10, 0x20, { { "do_syscall_64", "", "", { 0 }, 0, 0, 0, false, NULL, false } }, 1 },
	};
	struct asked *asked = ctx;
	size_t i;

	asked->finds++;
	for (i = 0; i < ARRAY_SIZE(table); i++) {
		if (table[i].key != key || offset < table[i].from || offset >= table[i].to)
			continue;
		memcpy(ret, table[i].frames, sizeof(table[i].frames));
		return table[i].count;
	}
	return 0;
}

static void prefetch(void *ctx, uint64_t key, const uint64_t *offsets, size_t count)
{
	struct asked *asked = ctx;
	size_t i;

	asked->prefetches++;
	asked->offsets += (unsigned)count;
	for (i = 1; i < count; i++)
		assert_true(offsets[i - 1] < offsets[i]);
}

struct fixture {
	struct asked asked;
	struct name_source names;
	struct stack_modules modules;
	struct profile_builder *b;
	struct stack_resolver *r;
	uint32_t attrs;
};

static void setup(struct fixture *f, size_t memo_max)
{
	struct profile_meta meta = { .type = PROFILE_CPU };

	*f = (struct fixture){ 0 };
	f->names = (struct name_source){ &f->asked, find_names, prefetch };
	f->modules = (struct stack_modules){ NULL, find_module };
	f->b = profile_builder_create(&meta, 1u << 20);
	f->r = stack_resolver_create(f->b, &f->modules, &f->names, memo_max);
	f->attrs = profile_builder_attrs(f->b, &(struct profile_attrs){ 0 }, NULL);
}

static void add_times(struct fixture *f, struct stack_frames user, struct stack_frames kernel,
		      int64_t times)
{
	uint32_t node = 0;

	assert_int_equal(stack_resolver_node(f->r, user, kernel, &node), 0);
	profile_builder_sample(f->b, node, f->attrs, (int64_t[]){ times, times });
}

static void add(struct fixture *f, const uint64_t *user, size_t user_count, const uint64_t *kernel,
		size_t kernel_count)
{
	add_times(f, (struct stack_frames){ user, user_count },
		  (struct stack_frames){ kernel, kernel_count }, 1);
}

static struct profile *finish(struct fixture *f)
{
	struct profile_quality quality = { 0 };
	struct profile *p = NULL;

	assert_int_equal(profile_builder_finish(f->b, &quality, &p), 0);
	stack_resolver_destroy(f->r);
	profile_builder_destroy(f->b);
	return p;
}

static void test_stacks(void **state)
{
	const struct {
		uint64_t user[4];
		size_t user_count;
		uint64_t kernel[2];
		size_t kernel_count;
		const char *text;
	} rows[] = {
		{ { AT(APP, 0x25), CALL(APP, 0x15) }, 2, { 0 }, 0, "main;outer;middle;inner 1\n" },
		{ { AT(APP, 0x15) }, 1, { AT(KERNEL, 0x11) }, 1, "main;do_syscall_64 1\n" },
		{ { 0 }, 0, { AT(KERNEL, 0x11) }, 1, "do_syscall_64 1\n" },
		/* A call that is the last instruction of its function returns into the next one. */
		{ { AT(LIBC, 0x5), CALL(APP, 0x20) },
		  2,
		  { 0 },
		  0,
		  "main;[unknown] libc.so.6+0x5 1\n" },
		{ { AT(APP, 0x15), TRUNCATED }, 2, { 0 }, 0, "[truncated];main 1\n" },
		{ { AT(APP, 0x15) },
		  1,
		  { AT(KERNEL, 0x11), TRUNCATED },
		  2,
		  "[truncated];main;do_syscall_64 1\n" },
		{ { AT(APP, 0x99) }, 1, { 0 }, 0, "[unknown] app+0x99 1\n" },
		{ { AT(77, 0x99) }, 1, { 0 }, 0, "[unknown] 0x99 1\n" },
		{ { prof_frame_address(PROF_FRAME_ADDRESS, 0x7f001234, 0) },
		  1,
		  { 0 },
		  0,
		  "[unknown] 0x7f001234 1\n" },
		{ { 0 },
		  0,
		  { prof_frame_address(PROF_FRAME_KERNEL, 0xffffffff81000000, 0) },
		  1,
		  "[unknown] 0xffffffff81000000 1\n" },
		{ { AT(JIT, 0x7f0000), CALL(JIT, 0x7f1000), CALL(APP, 0x15) },
		  3,
		  { 0 },
		  0,
		  "main;[jit];[jit] 1\n" },
		{ { (uint64_t)PROF_FRAME_MARKER << PROF_FRAME_KIND_SHIFT },
		  1,
		  { 0 },
		  0,
		  "[on cpu, not sampled] 1\n" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup(profile) struct profile *p = NULL;
		cleanup_free char *text = NULL;
		struct fixture f;

		setup(&f, 0);
		add(&f, rows[i].user, rows[i].user_count, rows[i].kernel, rows[i].kernel_count);
		p = finish(&f);
		text = profile_to_text(p);
		assert_string_equal(text, rows[i].text);
	}
}

static const struct profile_frame *leaf(const struct profile *p)
{
	return &p->frames[p->nodes[p->node_count - 1].frame];
}

static void test_files_that_nobody_could_read(void **state)
{
	const uint64_t app[] = { AT(APP, 0x99) },
		       both[] = { AT(GONE, 1), CALL(UNREADABLE, 2), CALL(UNREADABLE, 5) };
	const char *const notes[] = {
		"no symbols in /usr/bin/app (deleted): install its debug package (-dbgsym, "
		"-debuginfo) or set collect.debuginfod_urls",
		"no names in files that were gone, or could not be read, when they were met: 2, /tmp/a.out"
	};

	for (unsigned i = 0; i < 2; i++) {
		cleanup(profile) struct profile *p = NULL;
		struct fixture f;

		setup(&f, 0);
		add(&f, app, 1, NULL, 0);
		if (i)
			add(&f, both, ARRAY_SIZE(both), NULL, 0);
		p = finish(&f);
		assert_int_equal(p->quality.note_count, i + 1);
		assert_string_equal(p->quality.notes[i], notes[i]);
	}
}

/* Nobody is told to install names that may come by themselves. */
static void test_files_whose_names_come_later(void **state)
{
	cleanup(profile) struct profile *p = NULL;
	struct fixture f;

	setup(&f, 0);
	add(&f, (uint64_t[]){ AT(APP, 0x60), AT(APP, 0x99) }, 2, NULL, 0);
	p = finish(&f);
	assert_int_equal(p->frames[p->nodes[p->node_count - 1].frame].kind, PROFILE_FRAME_UNKNOWN);
	assert_int_equal(p->quality.note_count, 0);
}

static void test_frame_facts(void **state)
{
	cleanup(profile) struct profile *p = NULL;
	struct fixture f;

	setup(&f, 0);
	add(&f, (uint64_t[]){ AT(APP, 0x25) | PROF_FRAME_GUESSED }, 1, NULL, 0);
	p = finish(&f);
	assert_int_equal(p->node_count, 4);
	assert_int_equal(leaf(p)->flags, PROFILE_FRAME_INLINED | PROFILE_FRAME_GUESSED);
	assert_int_equal(leaf(p)->line, 7);
	assert_int_equal(leaf(p)->offset, 0x25);
	assert_int_equal(p->frames[p->nodes[1].frame].flags, PROFILE_FRAME_GUESSED);
	assert_int_equal(p->functions[leaf(p)->function].line, 6);
	assert_string_equal(profile_string(p, p->functions[leaf(p)->function].package), "app");
	assert_int_equal(p->mappings[leaf(p)->mapping].build_id_len, 2);
	assert_true(p->quality.guessed_frame_pct == 100);
}

static void test_functions_without_a_name_are_one_each(void **state)
{
	const uint64_t offsets[] = { 0x40, 0x44, 0x4f, 0x50, 0x99 };
	static const char *const rows[] = { "[unknown] app+0x40", "[unknown] app+0x40",
					    "[unknown] app+0x40", "[unknown] app+0x50",
					    "[unknown] app+0x99" };
	cleanup(profile) struct profile *p = NULL;
	cleanup(window_matrix) struct window_matrix *m = NULL;
	struct fixture f;

	setup(&f, 0);
	for (size_t i = 0; i < ARRAY_SIZE(offsets); i++)
		add(&f, (uint64_t[]){ AT(APP, offsets[i]) }, 1, NULL, 0);
	p = finish(&f);
	assert_true(p->quality.unknown_frame_pct == 100);
	assert_int_equal(p->function_count, 3);
	for (size_t i = 0; i < ARRAY_SIZE(offsets); i++) {
		const struct profile_frame *frame = &p->frames[p->nodes[i + 1].frame];

		/* The sample's place inside the function stays known. */
		assert_int_equal(frame->offset, offsets[i]);
		assert_int_equal(frame->kind, PROFILE_FRAME_UNKNOWN);
		assert_int_equal(frame->flags, i < 3 ? PROFILE_FRAME_NAMELESS : 0);
		assert_string_equal(profile_string(p, p->functions[frame->function].name), rows[i]);
	}
	/* A comparison joins its two sides by these names. */
	assert_int_equal(window_matrix_create(p, NULL, &m, NULL), 0);
	assert_int_equal(m->function_count, 2);
	assert_string_equal(window_text(m, m->functions[0].name), "[unknown] app+0x40");
	assert_string_equal(window_text(m, m->functions[1].name), "[unknown] app+0x0");
}

static void test_kinds_and_packages(void **state)
{
	const struct {
		uint64_t user, kernel;
		uint8_t kind;
		const char *package;
	} rows[] = {
		{ AT(APP, 0x35), 0, PROFILE_FRAME_GO, "example.com/x/y.z" },
		{ AT(APP, 0x15), 0, PROFILE_FRAME_NATIVE, "app" },
		{ AT(LIBC, 1), 0, PROFILE_FRAME_UNKNOWN, "libc.so.6" },
		{ 0, AT(KERNEL, 0x11), PROFILE_FRAME_KERNEL, "kernel" },
		{ 0, AT(KERNEL, 0x1), PROFILE_FRAME_UNKNOWN, "kernel" },
	};
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup(profile) struct profile *p = NULL;
		struct fixture f;

		setup(&f, 0);
		add(&f, &rows[i].user, rows[i].user != 0, &rows[i].kernel, rows[i].kernel != 0);
		p = finish(&f);
		assert_int_equal(leaf(p)->kind, rows[i].kind);
		assert_string_equal(profile_string(p, p->functions[leaf(p)->function].package),
				    rows[i].package);
	}
}

static void test_each_place_is_asked_once(void **state)
{
	uint64_t stack[] = { AT(APP, 0x25), CALL(APP, 0x16), AT(LIBC, 9) };
	cleanup(profile) struct profile *p = NULL;
	struct fixture f;
	int i;

	setup(&f, 0);
	for (i = 0; i < 100; i++)
		add(&f, stack, ARRAY_SIZE(stack), NULL, 0);
	/* The same place once as a sampled pc and once as a call. */
	add(&f, (uint64_t[]){ AT(APP, 0x15) }, 1, NULL, 0);
	assert_int_equal(f.asked.finds, 3);
	p = finish(&f);
	assert_int_equal(p->totals[0], 101);
}

static void test_memo_bound(void **state)
{
	cleanup(profile) struct profile *small = NULL, *large = NULL;
	cleanup_free char *a = NULL, *b = NULL;
	struct fixture f;
	size_t memo;

	for (memo = 1; memo <= 1000; memo += 999) {
		uint64_t i;

		setup(&f, memo);
		for (i = 0; i < 0x40; i++)
			add(&f, (uint64_t[]){ AT(APP, i), CALL(APP, 0x40 - i), AT(LIBC, i % 3) }, 3,
			    NULL, 0);
		*(memo == 1 ? &small : &large) = finish(&f);
	}
	a = profile_to_text(small);
	b = profile_to_text(large);
	assert_string_equal(a, b);
}

static void test_prefetch(void **state)
{
	uint64_t words[] = { AT(APP, 0x25), CALL(APP, 0x26), AT(LIBC, 9),  AT(LIBC, 8),
			     TRUNCATED,	    AT(77, 1),	     AT(APP, 0x25) };
	cleanup(profile) struct profile *p = NULL;
	struct fixture f;

	setup(&f, 0);
	assert_int_equal(stack_resolver_prefetch(f.r, words, ARRAY_SIZE(words)), 0);
	assert_int_equal(f.asked.prefetches, 2);
	assert_int_equal(f.asked.offsets, 3);
	add(&f, words, 1, NULL, 0);
	/* Words that the memo holds are not asked for again. */
	assert_int_equal(stack_resolver_prefetch(f.r, words, 1), 0);
	assert_int_equal(f.asked.prefetches, 2);
	p = finish(&f);
}

static void test_go_packages(void **state)
{
	static const struct {
		const char *symbol, *package;
	} rows[] = {
		{ "main.main", "main" },
		{ "runtime.gcBgMarkWorker.func2", "runtime" },
		{ "encoding/json.(*decodeState).object", "encoding/json" },
		{ "gopkg.in/yaml%2ev3.Unmarshal", "gopkg.in/yaml.v3" },
		{ "github.com/a/b.F[github.com/c/d.T]", "github.com/a/b" },
		{ "type:.eq.main.T", "" },
		{ "go:buildid", "" },
		{ "memmove", "" },
		{ "", "" },
		{ "a/b", "" },
		{ ".x", "" },
		{ "x%zz.y", "x%zz" },
		{ "x%00.y", "x%00" },
	};
	char out[64];
	size_t i;

	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		out[0] = 0;
		assert_int_equal(package_of_go(rows[i].symbol, out, sizeof(out)),
				 strlen(rows[i].package));
		assert_string_equal(out, rows[i].package);
	}
	assert_int_equal(package_of_go("abcdefgh.x", out, 4), 3);
}

/* ---- sums by function ------------------------------------------------------------------------ */

#define TREE_NODES  400u
#define TREE_STACKS 1000u
#define TREES	    4u

#define WORDS	    19u
#define PYTHON_WORDS 5u /* the last of them, in user stacks alone */
#define KERNEL_AT    8u /* and the next */
#define TRUNCATED_AT 12u

static uint64_t words[WORDS];

static void make_words(void)
{
	const uint64_t all[WORDS] = {
		AT(APP, 0x11),	  CALL(APP, 0x13),  AT(APP, 0x25), CALL(APP, 0x26), AT(APP, 0x31),
		AT(APP, 0x90),	  AT(LIBC, 0x500),  AT(LIBC, 0x501), AT(KERNEL, 0x11), AT(KERNEL, 0x99),
		AT(JIT, 0x700), AT(9, 0x10), TRUNCATED, prof_frame_address(PROF_FRAME_ADDRESS, 0x7777, 0),
		AT(PYTHON, 1),	  AT(PYTHON, 2),    AT(LIBPYTHON, 0x11), CALL(LIBPYTHON, 0x24),
		AT(LIBPYTHON, 0x31),
	};

	memcpy(words, all, sizeof(words));
}

struct random_tree {
	uint32_t frames[TREE_NODES], parents[TREE_NODES];
	struct stack_sum stacks[TREE_STACKS];
};

static uint32_t draw(uint32_t below)
{
	static uint64_t state = 1;

	state += 0x9e3779b97f4a7c15ull;
	return (uint32_t)(hash_mix64(state) % below);
}

static int by_user(const void *a, const void *b)
{
	const struct stack_sum *x = a, *y = b;

	return x->user < y->user ? -1 : x->user > y->user;
}

/* A random word. If @apart, half of the tree's nodes have only words of user space and the other
 * half only words of the kernel. */
static uint32_t draw_word(bool apart, uint32_t node)
{
	uint32_t other = draw(WORDS - 2);

	if (!apart)
		return draw(WORDS - PYTHON_WORDS);
	return node < TREE_NODES / 2 ? other + 2 * (other >= KERNEL_AT) : KERNEL_AT + other % 2;
}

/* @apart: kernel stacks have functions that user stacks do not have, as is usual. */
static void make_tree(struct random_tree *t, bool apart)
{
	uint32_t way[32] = { 0 }, depth = 0, half = apart ? TREE_NODES / 2 : 0;

	for (uint32_t i = 1; i < TREE_NODES; i++) {
		depth = i == half ? 0 : depth - draw(depth + 1) / 2;
		depth -= depth == ARRAY_SIZE(way) - 1;
		t->parents[i] = way[depth];
		t->frames[i] = draw_word(apart, i);
		/* The marker is always the outermost frame. */
		if (t->frames[i] == TRUNCATED_AT && depth)
			t->frames[i] = 0;
		way[++depth] = i;
	}
	for (uint32_t i = 0; i < TREE_STACKS; i++) {
		uint32_t samples = draw(20);

		t->stacks[i] =
			(struct stack_sum){ draw(TREE_NODES - half),
					    draw(3) ? 0 : half + draw(TREE_NODES - half),
					    (int64_t)draw(1000) * samples, samples * 1024ull };
		t->stacks[i].user += !t->stacks[i].user && !t->stacks[i].kernel;
	}
	qsort(t->stacks, TREE_STACKS, sizeof(*t->stacks), by_user);
}

static size_t words_of(const struct random_tree *t, uint32_t node, uint64_t out[64])
{
	size_t count = 0;

	for (; node; node = t->parents[node])
		out[count++] = words[t->frames[node]];
	return count;
}

static void add_one_by_one(struct fixture *f, const struct random_tree *t)
{
	for (uint32_t i = 0; i < TREE_STACKS; i++) {
		const struct stack_sum *stack = &t->stacks[i];
		uint64_t user[64], kernel[64];
		struct stack_frames frames[] = { { user, words_of(t, stack->user, user) },
						 { kernel, words_of(t, stack->kernel, kernel) } };
		const int64_t values[] = { (int64_t)(stack->samples_1024 / 1024), stack->value };
		uint32_t node = 0;

		assert_int_equal(stack_resolver_node(f->r, frames[0], frames[1], &node), 0);
		profile_builder_sample(f->b, node, f->attrs, values);
	}
}

static void add_marker(struct fixture *f, const char *name)
{
	struct profile_function function = { .name = profile_builder_string(f->b, name, strlen(name)) };
	struct profile_frame frame = { .kind = PROFILE_FRAME_MARKER,
				       .function = profile_builder_function(f->b, &function) };

	profile_builder_sample(f->b,
			       profile_builder_node(f->b, 0, profile_builder_frame(f->b, &frame)),
			       f->attrs, (int64_t[]){ 3, 5000 });
}

static void assert_same_rows(const struct profile *a, const struct profile_function_row *x,
			     const struct profile *b, const struct profile_function_row *y,
			     size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct profile_function *f = &a->functions[x[i].function],
					      *g = &b->functions[y[i].function];

		assert_string_equal(profile_string(a, f->name), profile_string(b, g->name));
		assert_string_equal(profile_string(a, f->package), profile_string(b, g->package));
		assert_string_equal(profile_string(a, f->file), profile_string(b, g->file));
		assert_int_equal(x[i].self, y[i].self);
		assert_int_equal(x[i].cumulative, y[i].cumulative);
		assert_int_equal(x[i].count, y[i].count);
	}
}

/* The interpreter's own frames inside of Python functions. */
static void test_interpreters_frames_are_folded(void **state)
{
	const uint64_t f_ = AT(PYTHON, 1), g = AT(PYTHON, 2), unnamed = AT(PYTHON, 3);
	const uint64_t loop = CALL(LIBPYTHON, 0x14), call = CALL(LIBPYTHON, 0x24);
	const uint64_t sort = AT(LIBPYTHON, 0x31), libc = AT(LIBC, 0x500), main = AT(APP, 0x11);
	const uint64_t kernel = AT(KERNEL, 0x11), java = AT(OTHER_SCRIPT, 1);
	const struct {
		uint64_t user[12]; /* leaf first */
		size_t count;
		bool has_kernel;
	} stacks[] = {
		{ { loop, g, f_, call, main }, 5, false }, /* one C frame of the loop for two */
		{ { loop, g, call, loop, f_, call, main }, 7, false },
		{ { loop, g, call, sort, call, loop, f_, main }, 8, false }, /* sort calls g */
		{ { sort, call, loop, f_, main }, 5, false },	/* its own time */
		{ { sort, call, loop, f_, main }, 5, true },	/* and the kernel's for it */
		{ { libc, sort, loop, f_, main }, 5, false },	/* a library's */
		{ { loop, g, libc, call, loop, f_, main }, 7, false },
		{ { call, loop, main }, 3, false }, /* no Python function so far */
		{ { loop, unnamed, main }, 3, false },
		{ { sort, call, java, main }, 4, false }, /* another language's rule is its own */
		{ { loop, f_, TRUNCATED }, 3, false },
	};
	cleanup(profile) struct profile *raw = NULL, *folded = NULL, *again = NULL;
	cleanup_free char *text = NULL;
	struct fixture f;

	(void)state;
	setup(&f, 0);
	for (size_t i = 0; i < ARRAY_SIZE(stacks); i++)
		add_times(&f, (struct stack_frames){ stacks[i].user, stacks[i].count },
			  (struct stack_frames){ &kernel, stacks[i].has_kernel }, (int64_t)1 << i);
	raw = finish(&f);
	assert_int_equal(profile_fold(raw, &folded), 0);
	text = profile_to_text(folded);
	assert_string_equal(text, "[truncated];f 1024\n"
				  "main;[python] 256\n"
				  "main;call;f;g 3\n"
				  "main;f;[unknown] libc.so.6+0x500 32\n"
				  "main;f;[unknown] libc.so.6+0x500;g 64\n"
				  "main;f;g 4\n"
				  "main;f;sort;swap 8\n"
				  "main;f;sort;swap;do_syscall_64 16\n"
				  "main;j;call;sort;swap 512\n"
				  "main;loop;add;call 128\n");
	for (unsigned k = 0; k < 2; k++)
		assert_int_equal(folded->totals[k], raw->totals[k]);
	/* A profile that was folded can be folded again. */
	assert_int_equal(profile_fold(folded, &again), 0);
}

/* Trees that are gone through once say of each function what one profile of all stacks says. */
static void test_sums_by_function(void **state)
{
	static struct random_tree trees[TREES];
	const struct profile_meta meta = { .type = PROFILE_CPU };
	cleanup_free struct profile_function_row *rows = NULL, *expected = NULL;
	cleanup(profile) struct profile *p = NULL, *raw = NULL, *whole = NULL;
	struct function_sums *sums;
	struct fixture f;
	size_t count = 0, expected_count = 0;

	(void)state;
	make_words();
	setup(&f, 0);
	sums = function_sums_create(&meta, &f.modules, &f.names);
	assert_non_null(sums);
	for (unsigned i = 0; i < TREES; i++) {
		struct random_tree *t = &trees[i];
		const struct stack_tree tree = { words, t->frames, t->parents, WORDS, TREE_NODES };

		make_tree(t, i < TREES / 2);
		add_one_by_one(&f, t);
		assert_int_equal(function_sums_add(sums, &tree, t->stacks, TREE_STACKS), 0);
	}
	add_marker(&f, "[unknown]");
	assert_int_equal(function_sums_add_marker(sums, "[unknown]", 5000, 3 * 1024), 0);
	assert_int_equal(function_sums_finish(sums, &p, &rows, &count), 0);
	raw = finish(&f);
	assert_int_equal(profile_fold(raw, &whole), 0);
	assert_int_not_equal(whole->node_count, raw->node_count);
	assert_int_equal(profile_top_functions(whole, profile_value_index(whole), &expected,
					       &expected_count),
			 0);
	assert_int_equal(count, expected_count);
	assert_same_rows(p, rows, whole, expected, count);
	assert_int_equal(p->totals[0], whole->totals[0]);
	assert_int_equal(p->totals[1], whole->totals[1]);
	function_sums_destroy(sums);
}

static void test_sums_refuse(void **state)
{
	const struct profile_meta meta = { .type = PROFILE_CPU };
	const uint32_t frames[2] = { 0 }, parents[2] = { 0 };
	const struct stack_tree tree = { words, frames, parents, 1, 2 };
	const struct stack_sum turned[] = { { 1, 0, 1, 1 }, { 0, 1, 1, 1 } };
	const struct stack_modules modules = { NULL, find_module };
	cleanup(function_sums) struct function_sums *sums = function_sums_create(&meta, &modules, NULL);

	(void)state;
	assert_int_equal(function_sums_add(sums, &tree, &(struct stack_sum){ 2, 0, 1, 1 }, 1), -EINVAL);
	assert_int_equal(function_sums_add(sums, &tree, &(struct stack_sum){ 0, 2, 1, 1 }, 1), -EINVAL);
	assert_int_equal(function_sums_add(sums, &tree, &(struct stack_sum){ 0, 0, 1, 1 }, 1), -EINVAL);
	assert_int_equal(function_sums_add(sums, &tree, turned, 2), -EINVAL);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stacks),
		cmocka_unit_test(test_files_that_nobody_could_read),
		cmocka_unit_test(test_files_whose_names_come_later),
		cmocka_unit_test(test_frame_facts),
		cmocka_unit_test(test_functions_without_a_name_are_one_each),
		cmocka_unit_test(test_kinds_and_packages),
		cmocka_unit_test(test_each_place_is_asked_once),
		cmocka_unit_test(test_memo_bound),
		cmocka_unit_test(test_prefetch),
		cmocka_unit_test(test_go_packages),
		cmocka_unit_test(test_interpreters_frames_are_folded),
		cmocka_unit_test(test_sums_by_function),
		cmocka_unit_test(test_sums_refuse),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
