// SPDX-License-Identifier: Apache-2.0
/* The collector's table of modules: which modules a sweep removes, and which ones must stay. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/collect/module_sweep.h"
#include "agent/collect/samples.h"

#define KEPT	   16384u /* module_sweep.c */
#define RING_BYTES (8u << 20)
#define LOOK_NS	   (61 * NS_PER_S)

struct fixture {
	struct collector_options options;
	struct collector collector;
	uint64_t now_ns, files, read_to;
	unsigned freed; /* as the feed says */
	bool is_freed[PROF_MODULES_MAX];
};

static void index_nothing(void *ctx, struct module *module, int table_fd, uint64_t table_bytes)
{
}

static int setup(void **state)
{
	const struct module_index_sink sink = { .indexed = index_nothing };
	struct fixture *f = calloc(1, sizeof(*f));
	struct collector *c = &f->collector;

	f->now_ns = clock_monotonic_ns();
	f->options.feed_fd = ring_create(RING_BYTES);
	*c = (struct collector){
		.options = &f->options, .control_fd = -1, .server_fd = -1, .epoll_fd = -1
	};
	c->procs = proc_table_create();
	c->modules = module_table_create();
	c->stacks = stack_table_create(STACK_TABLE_BYTES_MAX, samples_evicted, c);
	c->index = module_index_create(c->modules, &sink);
	assert_true(c->procs && c->modules && c->stacks && c->index);
	assert_int_equal(ring_attach(f->options.feed_fd, &c->ring), 0);
	assert_int_equal(feed_writer_init(&c->feed, c->ring), 0);
	assert_non_null(module_table_add(c->modules, FEED_MODULE_KERNEL, "[kernel]"));
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	struct collector *c = &f->collector;

	module_index_destroy(c->index);
	stack_table_destroy(c->stacks);
	module_table_destroy(c->modules);
	proc_table_destroy(c->procs);
	feed_writer_deinit(&c->feed);
	ring_destroy(c->ring);
	(void)close(f->options.feed_fd);
	free(f);
	return 0;
}

/* A file that was indexed; @key 0 = one of its own. */
static struct module *add_file(struct fixture *f, uint64_t key)
{
	struct module_file file = { .inode = ++f->files, .dev_major = 8, .dev_minor = 1 };
	struct module *module = module_table_file(f->collector.modules, &file, "/tmp/conftest");

	assert_non_null(module);
	module->state = MODULE_READY;
	module->in_files = true;
	module_table_set_key(f->collector.modules, module, key ? key : file.inode);
	return module;
}

static void add_files(struct fixture *f, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		(void)add_file(f, 0);
}

static void read_feed(struct fixture *f)
{
	struct ring *ring = f->collector.ring;
	struct ring_record record;

	while (ring_read(ring, f->read_to, &record) == 1) {
		struct feed_module module;
		const void *tail;
		size_t tail_len;

		f->read_to = record.end;
		if (record.kind == FEED_MODULE) {
			assert_int_equal(feed_decode(record.data, record.len, &module,
						     sizeof(module), &tail, &tail_len),
					 0);
			assert_int_equal(module.kind, FEED_MODULE_FREED);
			f->is_freed[module.module] = true;
			f->freed++;
		}
		ring_release(ring, f->read_to);
	}
}

static void look(struct fixture *f)
{
	f->now_ns += LOOK_NS;
	module_sweep(&f->collector, f->now_ns);
	read_feed(f);
}

static void map(struct proc *proc, uint64_t va, const struct module *module)
{
	struct mapping mapping = {
		.start_va = va, .end_va = va + 4096, .module = module->id, .until_ns = UINT64_MAX
	};

	assert_int_equal(mapping_set_add(&proc->mappings, &mapping, NULL), 1);
}

static void what_nothing_needs_leaves(void **state)
{
	struct fixture *f = *state;
	struct collector *c = &f->collector;
	struct proc *proc = proc_table_add(c->procs, 100, 1000, 1000);
	struct proc *ended = proc_table_add(c->procs, 101, 1001, 1000);
	struct module *needed[9];
	uint32_t ids[ARRAY_SIZE(needed)];
	uint64_t frames[2], hash = 77;

	for (size_t i = 0; i < ARRAY_SIZE(needed); i++)
		needed[i] = add_file(f, 5000000 + i);
	map(proc, 0x1000, needed[0]);
	map(proc, 0x2000, needed[1]);
	map(proc, 0x2000, needed[2]); /* the former one stays in the history */
	map(ended, 0x1000, needed[3]);
	proc_table_end(c->procs, ended, 2000);
	frames[0] = prof_frame_module(needed[4]->id, 0x10, 0);
	frames[1] = prof_frame_module(1, 0x20, 0);
	assert_int_equal(stack_table_put(c->stacks, hash, frames, 2, 0), 0);
	needed[5]->state = MODULE_ASKED;
	module_table_set_key(c->modules, needed[0], 5000006); /* needed[6] stands for it */
	assert_int_equal(needed[0]->canonical, needed[6]->id);
	needed[7]->kind = FEED_MODULE_JIT;
	proc->jit_module = needed[7]->id;
	module_table_set_key(
		c->modules, needed[8],
		5000004); /* BPF sent stacks with its id, and needed[4] stands for it */
	needed[8]->aliased = true;
	for (size_t i = 0; i < ARRAY_SIZE(needed); i++)
		ids[i] = needed[i]->id;

	add_files(f, KEPT);
	look(f);
	add_files(f, KEPT);
	look(f); /* those of before leave BPF's map of files */
	assert_int_equal(f->freed, 0);
	look(f);
	assert_in_range(module_table_count(c->modules), KEPT, KEPT + 16);
	assert_in_range(f->freed, KEPT - 16, KEPT + 16);
	for (size_t i = 0; i < ARRAY_SIZE(needed); i++)
		if (module_table_get(c->modules, ids[i]) != needed[i])
			fail_msg("the module that is needed %zu is gone", i);
	assert_non_null(module_table_get(c->modules, 1));
	/* The module that came last stays. */
	assert_non_null(module_table_get(c->modules, KEPT * 2));
}

/* A host whose files come and go is followed for ever, with ids that all fit. */
static void ids_are_used_again(void **state)
{
	struct fixture *f = *state;
	struct collector *c = &f->collector;
	struct module *last = NULL;

	for (unsigned round = 0; round < 60; round++) {
		add_files(f, 8000);
		look(f);
	}
	assert_true(f->files > PROF_MODULES_MAX);
	last = add_file(f, 0);
	assert_string_equal(last->path, "/tmp/conftest");
	assert_in_range(last->id, 1, 4 * KEPT);
	assert_in_range(module_table_count(c->modules), KEPT, 4 * KEPT);
	assert_true(f->is_freed[last->id]);
}

static void few_stay_however_old(void **state)
{
	struct fixture *f = *state;

	add_files(f, KEPT - 1);
	for (unsigned i = 0; i < 10; i++)
		look(f);
	assert_int_equal(module_table_count(f->collector.modules), KEPT);
}

static void a_full_feed_keeps_them(void **state)
{
	struct fixture *f = *state;
	struct feed_sample sample = { .time_ns = 1 };

	add_files(f, KEPT + 100);
	look(f);
	look(f);
	while (feed_write_sample(&f->collector.feed, &sample) == 0)
		;
	f->now_ns += LOOK_NS;
	module_sweep(&f->collector, f->now_ns);
	assert_int_equal(module_table_count(f->collector.modules), KEPT + 101);
	read_feed(f);
	look(f);
	assert_int_equal(module_table_count(f->collector.modules), KEPT);
	assert_int_equal(f->freed, 101);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(what_nothing_needs_leaves, setup, teardown),
		cmocka_unit_test_setup_teardown(ids_are_used_again, setup, teardown),
		cmocka_unit_test_setup_teardown(few_stay_however_old, setup, teardown),
		cmocka_unit_test_setup_teardown(a_full_feed_keeps_them, setup, teardown),
	};

	return cmocka_run_group_tests_name("module_sweep", tests, NULL, NULL);
}
