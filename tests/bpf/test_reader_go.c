// SPDX-License-Identifier: Apache-2.0
/* The reader against real Go programs: what it reads from outside must be what the program says itself.
 * Reading another process needs root here (CAP_SYS_PTRACE). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/reader/answer.h"
#include "agent/reader/go_goroutines.h"
#include "bpf/profiler.h"
#include "tests/support/go_workload.h"
#include "tests/support/read_collect.h"

static const struct go_build regular_builds[] = {
	{ "situations", NULL, "plain" },	  { "situations", NULL, "stripped" },
	{ "situations", NULL, "pie" },		  { "situations", NULL, "cgo" },
	{ "situations", "go1.23.12", "stripped" }, { "situations", "go1.21.13", "pie" },
};

static const struct go_build all_builds[] = {
	{ "situations", NULL, "cgo-pie" },	   { "situations", NULL, "static-pie" },
	{ "situations", "go1.25.5", "stripped" },  { "situations", "go1.25.5", "cgo-pie" },
	{ "situations", "go1.24.11", "stripped" }, { "situations", "go1.24.11", "pie" },
	{ "situations", "go1.23.12", "cgo-pie" },  { "situations", "go1.22.12", "stripped" },
	{ "situations", "go1.22.12", "cgo" },	   { "situations", "go1.21.13", "cgo" },
	{ "situations", "go1.20.14", "stripped" }, { "situations", "go1.18.10", "stripped" },
	{ "situations", "go1.18.10", "pie" },	   { "situations", "go1.17.13", "stripped" },
	{ "situations", "go1.16.15", "stripped" },
};

/* ---- a program under observation ------------------------------------------------------------- */

struct observed {
	struct target target;
	struct target_maps maps;
	struct go_layout *layout;
	struct go_unwinder unwinder;
};

static void observe(struct observed *o, pid_t pid)
{
	struct err err = { 0 };
	int rc;

	assert_int_equal(target_open((uint32_t)pid, 0, &o->target), 0);
	assert_int_equal(target_maps_read(&o->target, &o->maps), 0);
	rc = go_layout_create(&o->target, &o->maps, &o->layout, &err);
	if (rc < 0)
		print_message("%d: %s\n", rc, err.text);
	assert_int_equal(rc, 0);
	assert_int_equal(go_unwinder_init(&o->unwinder, o->layout), 0);
}

static void unobserve(struct observed *o)
{
	go_unwinder_deinit(&o->unwinder);
	go_layout_destroy(o->layout);
	target_maps_deinit(&o->maps);
	target_close(&o->target);
}

static void snapshot(struct observed *o, uint32_t flags, uint64_t deadline_ns,
		     struct read_collect *ret)
{
	cleanup_free struct read_writer *writer = malloc(sizeof(*writer));
	cleanup_answer struct answer answer = { 0 };

	*ret = (struct read_collect){ 0 };
	read_writer_init(writer, read_collect_flush, ret);
	assert_int_equal(answer_init(&answer, &o->target, &o->maps, writer,
				     clock_monotonic_ns() + deadline_ns), 0);
	assert_int_equal(go_goroutines_read(&o->unwinder, &answer, flags), 0);
	assert_int_equal(answer_finish(&answer), 0);
	assert_non_null(ret->end);
}

/* ---- frames as Go prints them ------------------------------------------------------------------ */

/* Address of a frame word of an answer. */
static uint64_t frame_va(const struct observed *o, const struct read_collect *c, uint64_t frame)
{
	const struct read_module *m = c->modules.data[prof_frame_module_id(frame) - 1].module;

	assert_int_equal(prof_frame_kind(frame), PROF_FRAME_MODULE);
	for (size_t i = 0; i < o->maps.count; i++) {
		const struct target_map *map = &o->maps.maps[i];
		uint64_t offset = prof_frame_offset(frame) - (frame & PROF_FRAME_RETURN ? 1 : 0);

		if (o->maps.modules[map->module].inode == m->inode && offset >= map->start_fo &&
		    offset - map->start_fo < map->end_va - map->start_va)
			return map->start_va + prof_frame_offset(frame) - map->start_fo;
	}
	fail_msg("frame %llx lies in no mapping", (unsigned long long)frame);
	return 0;
}

/* Go's rule for what a trace shows (src/runtime/traceback.go, showframe()). */
static bool is_shown(const struct observed *o, const char *name, bool innermost)
{
	const char *local;

	if (!strcmp(name, "runtime.gopanic"))
		return !innermost;
	if (!strchr(name, '.'))
		return false;
	if (!strcmp(name, "runtime.runFinalizers") || !strcmp(name, "runtime.runCleanups"))
		return o->layout->minor >= 25;
	if (strncmp(name, "runtime.", 8) != 0)
		return true;
	local = name + 8;
	if (o->layout->minor >= 23 && local[0] == '(')
		local += strcspn(local, "*") + 1;
	return local[0] >= 'A' && local[0] <= 'Z';
}

/* "F[go.shape.int]" -> "F[...]" */
static void collapse_generic(char *name)
{
	char *open = strchr(name, '['), *close = strrchr(name, ']');

	if (!open || !close || close < open)
		return;
	memmove(open + 4, close, strlen(close) + 1);
	memcpy(open, "[...", 4);
}

struct text_frame {
	char name[200];
	int64_t offset; /* +0x…, -1 = inlined */
};

struct text_stack {
	unsigned count;
	bool elided; /* the middle is left out */
	struct text_frame frames[1200];
};

static void add_frame(const struct observed *o, struct text_stack *s, uint32_t name_at, int64_t offset)
{
	struct text_frame *f = &s->frames[s->count];
	char name[GO_NAME_MAX + 1];

	assert_int_equal(go_table_name(&o->layout->table, name_at, name, sizeof(name)), 0);
	if (!is_shown(o, name, false))
		return;
	collapse_generic(name);
	if (!strcmp(name, "runtime.gopanic"))
		strcpy(name, "panic");
	(void)snprintf(f->name, sizeof(f->name), "%.190s", name);
	f->offset = offset;
	s->count++;
}

static void expand_frame(const struct observed *o, const struct read_collect *c, uint64_t frame,
			 uint8_t flags, struct text_stack *s)
{
	uint64_t va = frame_va(o, c, frame), pc = va - (frame & PROF_FRAME_RETURN ? 1 : 0), parent;
	struct go_func func;
	uint32_t name;
	int rc;

	assert_int_equal(go_table_find(&o->layout->table, pc, &func), 0);
	while ((rc = go_table_inlined(&o->layout->table, &func, pc, &name, &parent)) == 1) {
		add_frame(o, s, name, -1);
		pc = parent;
	}
	assert_int_equal(rc, 0);
	if (!(flags & READ_FRAME_WRAPPER))
		add_frame(o, s, func.name, (int64_t)(va - func.entry_va));
}

static void expand_stack(const struct observed *o, const struct read_collect *c,
			 const struct read_record *r, struct text_stack *s)
{
	s->count = 0;
	s->elided = false;
	for (unsigned i = 0; i < r->stack->frame_count; i++) {
		if (prof_frame_kind(r->frames[i]) == PROF_FRAME_TRUNCATED) {
			s->elided = true;
			break;
		}
		expand_frame(o, c, r->frames[i], r->frame_flags[i], s);
	}
}

/* ---- the program's own dump -------------------------------------------------------------------- */

struct dumped {
	unsigned long long goid;
	char header[200]; /* between the brackets */
	char created[200];
	unsigned long long parent;
	struct text_stack stack;
};

/* "main.f(0x1, ...)" -> "main.f" */
static void cut_arguments(const char *line, char *name, size_t size)
{
	const char *open = strrchr(line, '(');

	assert_non_null(open);
	(void)snprintf(name, size, "%.*s", (int)(open - line), line);
}

/* One goroutine of debug=2 text from *@at on; false at the end. */
static bool next_dumped(char **at, struct dumped *d)
{
	char *line, *close;

	memset(d, 0, sizeof(*d) - sizeof(d->stack));
	d->stack.count = 0;
	d->stack.elided = false;
	while ((line = strsep(at, "\n")) && !*line)
		;
	if (!line)
		return false;
	assert_int_equal(sscanf(line, "goroutine %llu ", &d->goid), 1);
	line = strchr(line, '[') + 1;
	close = strstr(line, "]:");
	assert_non_null(close);
	(void)snprintf(d->header, sizeof(d->header), "%.*s", (int)(close - line), line);
	while ((line = strsep(at, "\n")) && *line) {
		struct text_frame *f = &d->stack.frames[d->stack.count];
		char *offset;

		if (line[0] == '\t') /* of "created by" */
			continue;
		if (strstr(line, "frames elided")) {
			d->stack.elided = true;
			continue;
		}
		if (!strncmp(line, "created by ", 11)) {
			(void)sscanf(line + 11, "%199s in goroutine %llu", d->created, &d->parent);
			continue;
		}
		cut_arguments(line, f->name, sizeof(f->name));
		line = strsep(at, "\n");
		assert_non_null(line);
		offset = strstr(line, " +0x");
		f->offset = offset ? (int64_t)strtoull(offset + 4, NULL, 16) : -1;
		d->stack.count++;
	}
	return true;
}

/* ---- comparison -------------------------------------------------------------------------------- */

static void expect_stack(const struct dumped *truth, const struct text_stack *stack)
{
	unsigned compared = truth->stack.elided ? 50 : truth->stack.count;

	if (!truth->stack.elided && stack->count != truth->stack.count) {
		for (unsigned i = 0; i < stack->count; i++)
			print_message("  read %s +%lx\n", stack->frames[i].name, stack->frames[i].offset);
		for (unsigned i = 0; i < truth->stack.count; i++)
			print_message("  true %s\n", truth->stack.frames[i].name);
		fail_msg("goroutine %llu: %u frames, %u expected", truth->goid, stack->count,
			 truth->stack.count);
	}
	for (unsigned i = 0; i < compared; i++) {
		assert_string_equal(stack->frames[i].name, truth->stack.frames[i].name);
		assert_int_equal(stack->frames[i].offset, truth->stack.frames[i].offset);
	}
}

static void expect_goroutine(const struct observed *o, const struct read_collect *c,
			     const struct read_goroutine *g, const struct dumped *truth)
{
	static struct text_stack stack;
	char header[200];
	const char *state = read_collect_string(c, g->state);
	const char *reason = read_collect_string(c, g->reason);
	unsigned long minutes = g->wait_ns / (60 * NS_PER_S);
	struct text_stack created = { 0 };

	(void)snprintf(header, sizeof(header), "%s", *reason ? reason : state);
	if (minutes)
		(void)snprintf(header + strlen(header), 32, ", %lu minutes", minutes);
	if (g->flags & READ_GOROUTINE_LOCKED)
		strcat(header, ", locked to thread");
	assert_string_equal(header, truth->header);
	assert_false(g->flags & READ_GOROUTINE_INCONSISTENT);
	if (g->stack) {
		expand_stack(o, c, &c->stacks.data[g->stack - 1], &stack);
		expect_stack(truth, &stack);
	} else {
		assert_true(g->flags & READ_GOROUTINE_RUNNING);
	}
	if (truth->created[0]) {
		expand_frame(o, c, g->created_frame, 0, &created);
		assert_true(created.count > 0);
		assert_string_equal(created.frames[created.count - 1].name, truth->created);
	}
	if (o->layout->minor >= 21 && truth->created[0])
		assert_int_equal(g->parent_goid, truth->parent);
}

static const struct read_goroutine *find_goroutine(const struct read_collect *c, uint64_t goid)
{
	for (size_t i = 0; i < c->goroutines.count; i++)
		if (c->goroutines.data[i].goroutine->goid == goid)
			return c->goroutines.data[i].goroutine;
	return NULL;
}

static void test_one_build(const struct go_build *build)
{
	struct observed o;
	struct go_workload w;
	struct read_collect c;
	char path[512], *text, *at;
	static struct dumped truth;
	unsigned compared = 0, listed = 0;

	if (!go_workload_build(build, path, sizeof(path)))
		return;
	go_workload_start(&w, path, NULL);
	observe(&o, w.pid);
	text = at = go_workload_ask(&w, "goroutines");
	snapshot(&o, 0, 5 * NS_PER_S, &c);
	for (size_t i = 0; i < c.goroutines.count; i++)
		listed += !(c.goroutines.data[i].goroutine->flags & READ_GOROUTINE_SYSTEM);
	while (next_dumped(&at, &truth)) {
		const struct read_goroutine *g = find_goroutine(&c, truth.goid);

		assert_non_null(g);
		listed--;
		if (truth.goid == 1) /* it wrote the dump */
			continue;
		expect_goroutine(&o, &c, g, &truth);
		compared++;
	}
	assert_int_equal(listed, 0);
	assert_true(compared >= 30);
	print_message("%s %s (%s): %u goroutines, %u modules, %lu us\n", o.layout->version,
		      build->mode, path, compared, (unsigned)c.modules.count,
		      (unsigned long)(c.end->duration_ns / 1000));
	assert_int_equal(c.end->inconsistent, 0);
	free(text);
	read_collect_deinit(&c);
	unobserve(&o);
	go_workload_stop(&w);
}

static void test_goroutines_equal_the_programs_own_dump(void **state)
{
	for (size_t i = 0; i < ARRAY_SIZE(regular_builds); i++)
		test_one_build(&regular_builds[i]);
	for (size_t i = 0; getenv("PROFD_TEST_GO_ALL") && i < ARRAY_SIZE(all_builds); i++)
		test_one_build(&all_builds[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_goroutines_equal_the_programs_own_dump),
	};

	if (geteuid() != 0) {
		print_message("skipped: reading other processes needs root\n");
		return 0;
	}
	return cmocka_run_group_tests_name("reader_go", tests, NULL, NULL);
}
