// SPDX-License-Identifier: Apache-2.0
/* The reader against real Go programs: what it reads from outside must be what the program says
 * itself. Reading another process needs root here (CAP_SYS_PTRACE). */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/wire/module_key.h"
#include "agent/reader/answer.h"
#include "agent/reader/go_buckets.h"
#include "agent/reader/go_goroutines.h"
#include "bpf/profiler.h"
#include "symbolize/elf_file.h"
#include "tests/support/go_workload.h"
#include "tests/support/read_collect.h"

static const struct go_build regular_builds[] = {
	{ "situations", NULL, "plain" },
	{ "situations", NULL, "stripped" },
	{ "situations", NULL, "pie" },
	{ "situations", NULL, "cgo" },
	{ "situations", "go1.23.12", "stripped" },
	{ "situations", "go1.21.13", "pie" },
};

static const struct go_build all_builds[] = {
	{ "situations", NULL, "cgo-pie" },	   { "situations", NULL, "static-pie" },
	{ "situations", "go1.25.5", "stripped" },  { "situations", "go1.25.5", "cgo-pie" },
	{ "situations", "go1.24.11", "stripped" }, { "situations", "go1.24.11", "pie" },
	{ "situations", "go1.23.12", "cgo-pie" },  { "situations", "go1.22.12", "stripped" },
	{ "situations", "go1.22.12", "cgo" },	   { "situations", "go1.21.13", "cgo" },
	{ "situations", "go1.20.14", "stripped" }, { "situations", "go1.18.10", "stripped" },
	{ "situations", "go1.18.10", "pie" },	   { "situations", "go1.19.13", "stripped" },
	{ "situations", "go1.17.13", "stripped" }, { "situations", "go1.17.13", "pie" },
	{ "situations", "go1.16.15", "stripped" }, { "situations", "go1.16.15", "pie" },
};

/* ---- a program under observation ------------------------------------------------------------- */

struct observed {
	struct target target;
	struct target_maps maps;
	struct go_layout *layout;
	struct go_walks walks;
	struct go_unwinder unwinder;
	struct go_profile_places places;
	struct cpu_ticks ticks;
};

static void observe(struct observed *o, pid_t pid)
{
	struct err err = { 0 };
	int rc;

	*o = (struct observed){ .ticks = cpu_ticks_now() };
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
	go_walks_deinit(&o->walks);
	go_unwinder_deinit(&o->unwinder);
	go_layout_destroy(o->layout);
	target_maps_deinit(&o->maps);
	target_close(&o->target);
}

/* Takes goroutines (@what 0) or a profile; the result of the reading. */
static int take(struct observed *o, uint32_t what, uint32_t flags, uint64_t deadline_ns,
		struct read_collect *ret, struct err *err)
{
	int rc;
	cleanup_free struct read_writer *writer = malloc(sizeof(*writer));
	cleanup_answer struct answer answer = { 0 };

	*ret = (struct read_collect){ 0 };
	read_writer_init(writer, read_collect_flush, ret);
	assert_int_equal(answer_init(&answer, &o->target, &o->maps, writer,
				     clock_monotonic_ns() + deadline_ns),
			 0);
	rc = what ? go_buckets_read(&o->unwinder, &o->places, &o->ticks, what, &answer, err)
		  : go_goroutines_read(&o->unwinder, &o->walks, &answer, flags);
	assert_int_equal(answer_finish(&answer), 0);
	assert_non_null(ret->end);
	return rc;
}

static void snapshot(struct observed *o, uint32_t flags, uint64_t deadline_ns,
		     struct read_collect *ret)
{
	assert_int_equal(take(o, 0, flags, deadline_ns, ret, NULL), 0);
}

/* ---- frames as Go prints them ---------------------------------------------------------------- */

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

static void add_frame(const struct observed *o, struct text_stack *s, uint32_t name_at,
		      int64_t offset)
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

/* ---- the program's own dump ------------------------------------------------------------------ */

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

/* ---- comparison ------------------------------------------------------------------------------ */

static void expect_stack(const struct dumped *truth, const struct text_stack *stack)
{
	/* Until 1.20 a dump ends after 100 frames, hidden ones included, and does not say so. */
	bool cut = truth->stack.elided ||
		   (truth->stack.count > 90 && stack->count > truth->stack.count);
	unsigned compared = cut ? 50 : truth->stack.count;

	if (!cut && stack->count != truth->stack.count) {
		for (unsigned i = 0; i < stack->count; i++)
			print_message("  read %s +%lx\n", stack->frames[i].name,
				      stack->frames[i].offset);
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

static void compare_goroutines(struct observed *o, struct go_workload *w,
			       const struct go_build *build)
{
	static struct dumped truth;
	struct read_collect c;
	char *text, *at;
	unsigned compared = 0, listed = 0;

	text = at = go_workload_ask(w, "goroutines");
	snapshot(o, 0, 5 * NS_PER_S, &c);
	for (size_t i = 0; i < c.goroutines.count; i++)
		listed += !(c.goroutines.data[i].goroutine->flags & READ_GOROUTINE_SYSTEM);
	while (next_dumped(&at, &truth)) {
		const struct read_goroutine *g = find_goroutine(&c, truth.goid);

		assert_non_null(g);
		listed--;
		if (truth.goid == 1) /* it wrote the dump */
			continue;
		expect_goroutine(o, &c, g, &truth);
		compared++;
	}
	assert_int_equal(listed, 0);
	assert_true(compared >= 30);
	assert_int_equal(c.end->inconsistent, 0);
	print_message("%s %s: %u goroutines in %lu us\n", o->layout->version, build->mode, compared,
		      (unsigned long)(c.end->duration_ns / 1000));
	free(text);
	read_collect_deinit(&c);
}

/* The identity that the reader gives a module is the file's. */
static void compare_module(struct observed *o, const char *path)
{
	cleanup(elf_file) struct elf_file *file = NULL;
	const struct read_module *m;
	struct read_collect c;
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(elf_file_open_take(fd, &file), 0);
	assert_int_equal(fstat(fd, &st), 0);
	snapshot(o, 0, 5 * NS_PER_S, &c);
	m = c.modules.data[0].module;
	assert_true(m->build_id_len || m->go_id_len >= MODULE_KEY_GO_ID_MIN);
	assert_int_equal(m->build_id_len, file->identity.build_id_len);
	assert_memory_equal(m->build_id, file->identity.build_id, m->build_id_len);
	assert_int_equal(m->inode, st.st_ino);
	read_collect_deinit(&c);
}

/* ---- profiles -------------------------------------------------------------------------------- */

#define ROWS_MAX 512

/* Buckets of one stack and size, summed. */
struct profile_row {
	char stack[4000]; /* functions, innermost first, and the object size */
	double values[4];
};

struct profile_rows {
	unsigned count;
	struct profile_row rows[ROWS_MAX];
};

static void add_row(struct profile_rows *rows, const char *stack, const double *values)
{
	struct profile_row *row = rows->rows;

	while (row < rows->rows + rows->count && strcmp(row->stack, stack) != 0)
		row++;
	if (row == rows->rows + rows->count) {
		assert_true(++rows->count <= ROWS_MAX);
		memset(row, 0, sizeof(*row));
		strcpy(row->stack, stack);
	}
	for (int i = 0; i < 4; i++)
		row->values[i] += values[i];
}

static bool is_hidden(const struct observed *o, const char *name)
{
	return !strncmp(name, "runtime.", 8) ||
	       (o->layout->minor >= 23 && !strncmp(name, "internal/runtime/", 17));
}

static void append_name(const char *name, char *stack)
{
	if (!strcmp(name, "runtime.goexit"))
		return;
	assert_true(strlen(stack) + strlen(name) + 2 < 3900);
	strcat(strcat(stack, name), " ");
}

/* Adds the functions at the call before @pc to @stack, inlined ones first. */
static void append_frame(const struct observed *o, uint64_t pc, bool wrapper, char *stack)
{
	struct go_func func;
	char name[GO_NAME_MAX + 1];
	uint64_t at = pc - 1, parent;
	uint32_t name_at;
	int rc;

	if (go_table_find(&o->layout->table, at, &func) < 0)
		return;
	do {
		rc = go_table_inlined(&o->layout->table, &func, at, &name_at, &parent);
		assert_in_range(rc, 0, 1);
		at = parent;
		assert_int_equal(go_table_name(&o->layout->table, rc ? name_at : func.name, name,
					       sizeof(name)),
				 0);
		if (o->layout->minor >= 21)
			collapse_generic(name);
		if (rc || !wrapper)
			append_name(name, stack);
	} while (rc == 1);
}

/* The program's own list, without the allocator's frames unless there are no others. */
static void append_truth(const struct observed *o, char *names, bool trim, char *stack)
{
	char *copy = strdup(names), *at = copy, *name;

	assert_non_null(copy);
	while ((name = strsep(&at, " ")))
		if (*name && !(trim && !*stack && is_hidden(o, name)))
			append_name(name, stack);
	free(copy);
}

/* Lines "v v v v size function function" (memory) or "count cycles function" of the program. */
static void parse_records(const struct observed *o, char *text, bool memory,
			  struct profile_rows *rows)
{
	char *line;

	rows->count = 0;
	while ((line = strsep(&text, "\n"))) {
		double values[4] = { 0 };
		char stack[4000] = "", *end = line;
		long long size = 0;

		if (!*line || strstr(line, " cut"))
			continue;
		for (int i = 0; i < (memory ? 4 : 2); i++)
			values[i] = (double)strtoll(end, &end, 10);
		if (memory)
			size = strtoll(end, &end, 10);
		append_truth(o, end, memory, stack);
		if (!*stack)
			append_truth(o, end, false, stack);
		if (values[0] > 0)
			(void)snprintf(stack + strlen(stack), 32, "%lld", size),
				add_row(rows, stack, values);
	}
}

static void collect_rows(const struct observed *o, const struct read_collect *c, bool memory,
			 struct profile_rows *rows)
{
	rows->count = 0;
	for (size_t i = 0; i < c->buckets.count; i++) {
		const struct read_bucket *b = c->buckets.data[i].bucket;
		const struct read_record *s = &c->stacks.data[b->stack - 1];
		double values[4] = { (double)b->values[0], (double)b->values[1],
				     (double)b->values[2], (double)b->values[3] };
		char stack[4000] = "";

		for (unsigned f = 0; f < s->stack->frame_count; f++)
			append_frame(o, frame_va(o, c, s->frames[f]),
				     s->frame_flags[f] & READ_FRAME_WRAPPER, stack);
		(void)snprintf(stack + strlen(stack), 32, "%llu",
			       (unsigned long long)b->object_bytes);
		if (values[0] > 0 && (!memory || s->stack->frame_count < 20))
			add_row(rows, stack, values);
	}
}

static const struct profile_row *find_row(const struct profile_rows *rows, const char *part)
{
	for (unsigned i = 0; i < rows->count; i++)
		if (strstr(rows->rows[i].stack, part))
			return &rows->rows[i];
	return NULL;
}

/* Every row of @truth must be in @rows with the same numbers. */
static void expect_rows(const struct profile_rows *truth, const struct profile_rows *rows,
			double slack)
{
	for (unsigned i = 0; i < truth->count; i++) {
		const struct profile_row *t = &truth->rows[i], *r = rows->rows;

		while (r < rows->rows + rows->count && strcmp(r->stack, t->stack) != 0)
			r++;
		if (r == rows->rows + rows->count)
			r = NULL;
		/* The runtime's own locks are contended at any moment, also between the two
		 * readings. */
		if (slack > 0 && !strncmp(t->stack, "runtime.", 8))
			continue;

		if (!r)
			fail_msg("only in the first: %s", t->stack);
		for (int v = 0; r && v < 4; v++)
			if (fabs(t->values[v] - r->values[v]) > slack * (t->values[v] + 1000))
				fail_msg("%s: value %d is %.0f, %.0f expected", t->stack, v,
					 r->values[v], t->values[v]);
	}
}

static void compare_memory(struct observed *o, struct go_workload *w)
{
	static struct profile_rows truth, rows;
	const struct profile_row *large;
	struct read_collect c;
	char *text;

	free(go_workload_ask(w, "gc"));
	text = go_workload_ask(w, "memory");
	assert_int_equal(take(o, READER_MEMORY, 0, 5 * NS_PER_S, &c, NULL), 0);
	parse_records(o, text, true, &truth);
	collect_rows(o, &c, true, &rows);
	assert_int_equal(c.profile->rate, 4096);
	assert_int_equal(c.profile->rate_assumed, 0);
	assert_int_equal(c.profile->before_gc, 0);
	assert_true(truth.count >= 10);
	expect_rows(&truth, &rows, 0);
	expect_rows(&rows, &truth, 0);
	/* The program holds 20 blocks of 1 MiB, all of them sampled. */
	large = find_row(&rows, "main.allocLarge main.main runtime.main 1048576");
	assert_non_null(large);
	/* In old versions a changed rate takes effect only at the next sample: a few blocks are not
	 * seen. */
	if (large->values[2] < 10 || large->values[2] > 20 ||
	    large->values[3] != large->values[2] * (1 << 20))
		fail_msg("%.0f blocks of %.0f bytes", large->values[2], large->values[3]);
	assert_non_null(find_row(&rows, "main.makeTree main.allocTree "));
	free(text);
	read_collect_deinit(&c);
}

static void compare_events(struct observed *o, struct go_workload *w, uint32_t what)
{
	static struct profile_rows truth, rows;
	struct read_collect c;
	double ticks;
	char *text;

	text = go_workload_ask(w, what == READER_BLOCK ? "block" : "mutex");
	assert_int_equal(take(o, what, 0, 5 * NS_PER_S, &c, NULL), 0);
	ticks = c.profile->ticks_per_ns;
	parse_records(o, text, false, &truth);
	collect_rows(o, &c, false, &rows);
	assert_true(truth.count > 0);
	for (unsigned i = 0; i < truth.count; i++)
		truth.rows[i].values[1] /= ticks;
	expect_rows(&truth, &rows, 0.001);
	assert_true(ticks > 0.01 && ticks < 10);
	assert_non_null(find_row(&rows, "main.contend"));
	free(text);
	read_collect_deinit(&c);
}

/* Asked for waits for locks alone: two on a sync.Mutex, one each on both sides of a sync.RWMutex,
 * whatever word the version has for that. */
static void count_lock_waits(struct observed *o)
{
	struct read_collect c;
	unsigned on_mutex = 0;

	snapshot(o, READER_LOCKS_ONLY, 5 * NS_PER_S, &c);
	assert_int_equal(c.goroutines.count, 4);
	for (size_t i = 0; i < c.goroutines.count; i++) {
		const struct read_goroutine *g = c.goroutines.data[i].goroutine;

		assert_true(g->flags & READ_GOROUTINE_LOCK_WAIT);
		assert_int_not_equal(g->stack, 0);
		on_mutex += (g->flags & READ_GOROUTINE_ON_LOCK) != 0;
	}
	assert_int_equal(on_mutex, 2);
	read_collect_deinit(&c);
}

static void test_one_build(const struct go_build *build)
{
	struct observed o;
	struct go_workload w;
	char path[512];

	if (!go_workload_build(build, path, sizeof(path)))
		return;
	go_workload_start(&w, path, NULL);
	observe(&o, w.pid);
	compare_goroutines(&o, &w, build);
	count_lock_waits(&o);
	compare_module(&o, path);
	compare_memory(&o, &w);
	compare_events(&o, &w, READER_BLOCK);
	compare_events(&o, &w, READER_MUTEX);
	unobserve(&o);
	go_workload_stop(&w);
}

static void test_everything_equals_the_programs_own_account(void **state)
{
	for (size_t i = 0; !getenv("PROFD_TEST_GO_ALL") && i < ARRAY_SIZE(regular_builds); i++)
		test_one_build(&regular_builds[i]);
	for (size_t i = 0; getenv("PROFD_TEST_GO_ALL") && i < ARRAY_SIZE(all_builds); i++)
		test_one_build(&all_builds[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_everything_equals_the_programs_own_account),
	};

	if (geteuid() != 0) {
		print_message("skipped: reading other processes needs root\n");
		return 0;
	}
	return cmocka_run_group_tests_name("reader_go", tests, NULL, NULL);
}
