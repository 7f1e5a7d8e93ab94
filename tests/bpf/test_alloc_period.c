// SPDX-License-Identifier: Apache-2.0
/* The end of a period of native-memory sampling: which sampled allocations stay, and what the
 * process's memory says of them, also while the table of processes changes meanwhile. The probes
 * are loaded; nothing is attached. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/collect/alloc/alloc_internal.h"
#include "agent/collect/allocations.h"
#include "agent/collect/samples.h"
#include "tests/support/bpf_target.h"
#include "tests/support/feed_view.h"

#define RING_BYTES (4u << 20)
#define BLOCKS	   5
#define BLOCK_BYTES 2000 /* no thread cache has as large ones */
#define OTHER_NS   (3600 * NS_PER_S) /* between the starts of two processes of one number */

struct fixture {
	struct collector_options options;
	struct collector collector;
	struct feed_view view;
	pid_t pid;
	void *blocks[BLOCKS], *guard; /* of the process, the first of which it freed */
	uint64_t births_ns; /* 0 = now */
};

static void index_nothing(void *ctx, struct module *module, int table_fd, uint64_t table_bytes)
{
	(void)ctx, (void)module, (void)table_bytes;
	if (table_fd >= 0)
		(void)close(table_fd);
}

/* A collector without the other processes, which has begun to observe allocations. */
static int setup(void **state)
{
	const struct module_index_sink sink = { .indexed = index_nothing };
	struct fixture *f = calloc(1, sizeof(*f));
	struct collector *c = &f->collector;
	struct err err = { 0 };
	int freed[2];
	char sign;

	f->options.features = bpf_target_features(NULL);
	f->options.feed_fd = ring_create(RING_BYTES);
	*c = (struct collector){
		.options = &f->options, .control_fd = -1, .server_fd = -1, .epoll_fd = -1
	};
	c->procs = proc_table_create();
	c->modules = module_table_create();
	c->ports = proc_ports_create();
	c->stacks = stack_table_create(STACK_TABLE_BYTES_MAX, samples_evicted, c);
	c->index = module_index_create(c->modules, &sink);
	assert_true(c->procs && c->modules && c->ports && c->stacks && c->index);
	assert_int_equal(ring_attach(f->options.feed_fd, &c->ring), 0);
	assert_int_equal(feed_writer_init(&c->feed, c->ring), 0);
	if (bpf_agent_create(&f->options.features, &c->bpf, &err) < 0 || allocations_open(c) < 0 ||
	    alloc_probes_create(c->bpf, &c->alloc->probes, &err) < 0)
		fail_msg("%s", err.text);
	c->alloc->is_open = true;
	feed_view_init(&f->view, f->options.feed_fd);
	for (size_t i = 0; i < BLOCKS; i++)
		f->blocks[i] = malloc(BLOCK_BYTES);
	f->guard = malloc(BLOCK_BYTES);
	assert_int_equal(pipe(freed), 0);
	f->pid = fork();
	if (f->pid == 0) {
		free(f->blocks[0]);
		(void)!write(freed[1], "", 1);
		for (;;)
			(void)pause();
	}
	assert_true(f->pid > 0);
	assert_int_equal(read(freed[0], &sign, 1), 1);
	(void)close(freed[0]), (void)close(freed[1]);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	struct collector *c = &f->collector;

	(void)kill(f->pid, SIGKILL);
	for (size_t i = 0; i < BLOCKS; i++)
		free(f->blocks[i]);
	free(f->guard);
	feed_view_deinit(&f->view);
	module_index_destroy(c->index);
	alloc_destroy(c->alloc);
	bpf_agent_destroy(c->bpf);
	stack_table_destroy(c->stacks);
	proc_ports_destroy(c->ports);
	module_table_destroy(c->modules);
	proc_table_destroy(c->procs);
	feed_writer_deinit(&c->feed);
	ring_destroy(c->ring);
	(void)close(f->options.feed_fd);
	free(f);
	return 0;
}

/* @proc, a window of a hundredth of whose period is over, and whose period ends now. */
static struct target *observed(struct collector *c, const struct proc *proc, uint64_t now_ns)
{
	struct target *target = &c->alloc->targets[0];

	*target = (struct target){ .state = STATE_CLOSED,
				   .proc = proc->id,
				   .tgid = proc->tgid,
				   .track = true,
				   .heap = alloc_heap_create(),
				   .place.tgid = proc->tgid,
				   .headers = { .tgid = proc->tgid, .glibc = true },
				   .look.fd = -1,
				   .clock = CLOCK_PROCESS_CPUTIME_ID,
				   .link_fd = -1,
				   .window = 1,
				   .begin_ns = now_ns - NS_PER_S,
				   .open_ns = now_ns - NS_PER_S / 2,
				   .close_ns = now_ns - NS_PER_S / 2 + NS_PER_S / 100,
				   .next_ns = now_ns };
	assert_non_null(target->heap);
	alloc_pace_init(&target->pace, &(struct alloc_costs){ 600, 350 }, 0.01);
	return target;
}

/* An allocation by the process of number f->pid that began at @start_ns, of a caller whose gap is
 * @gap_bytes. */
static void allocates(struct fixture *f, uint64_t start_ns, uint64_t address, uint64_t bytes,
		      uint64_t gap_bytes)
{
	alloc_event(f->collector.alloc,
		    &(struct prof_sample_event){ .time_ns = f->births_ns ? f->births_ns
									 : clock_monotonic_ns(),
						 .start_boottime_ns = start_ns,
						 .object = address,
						 .value = bytes,
						 .value2 = gap_bytes,
						 .tgid = (uint32_t)f->pid,
						 .tid = (uint32_t)f->pid,
						 .type = PROF_SAMPLE_ALLOC,
						 .detail = ALLOC_BIRTH });
}

static int add_bytes(void *ctx, const struct alloc_live *live)
{
	*(double *)ctx += live->bytes;
	return 0;
}

static double live_bytes(const struct target *target)
{
	double bytes = 0;

	assert_int_equal(alloc_heap_each_live(target->heap, clock_monotonic_ns(), add_bytes, &bytes), 0);
	return bytes;
}

/* A sample stands for what its own gap and the window's part of the period say, those that were
 * lost are made up for, and all of it is in use. */
static void test_what_samples_stand_for(void **state)
{
	struct fixture *f = *state;
	struct collector *c = &f->collector;
	const uint64_t now_ns = clock_monotonic_ns(), start_ns = bpf_target_start_boottime_ns(f->pid);
	struct proc *proc = proc_table_add(c->procs, (uint32_t)f->pid, start_ns, 0);
	struct target *target = observed(c, proc, now_ns);
	const double times = 100 * 4.0 / 2; /* the window's part, and half of the samples */
	const double closely = 100 / alloc_inclusion(100, 10), widely = 100 / alloc_inclusion(100, 100000);

	target->counts = (struct alloc_counts){ .sampled = 4, .lost = 2, .hits = 4, .allocations = 4 };
	allocates(f, start_ns, 0x1000, 100, 10);
	allocates(f, start_ns, 0x2000, 100, 100000);
	alloc_tick(c->alloc, now_ns);
	assert_int_equal(target->state, STATE_IDLE);
	assert_int_equal(alloc_heap_tracked(target->heap), 2);
	feed_view_read(&f->view);
	assert_int_equal(f->view.sample_count, 2);
	assert_int_equal(f->view.samples[0].proc, proc->id);
	assert_float_equal((double)f->view.samples[0].value, closely * times, 1);
	assert_float_equal((double)f->view.samples[1].value, widely * times, 1);
	assert_float_equal(live_bytes(target), (closely + widely) * times, 2);
	assert_int_equal(f->view.allocs, 1);
	assert_int_equal(f->view.alloc.what, FEED_ALLOC_PERIOD);
}

/* Blocks that are known one by one are not followed as well, and of the others not more than can be
 * looked at. */
static void test_what_is_followed(void **state)
{
	struct fixture *f = *state;
	struct collector *c = &f->collector;
	const uint64_t now_ns = clock_monotonic_ns(), start_ns = bpf_target_start_boottime_ns(f->pid);
	struct target *target =
		observed(c, proc_table_add(c->procs, (uint32_t)f->pid, start_ns, 0), now_ns);

	target->has_large = true;
	allocates(f, start_ns, 0x7f0000001010, 200000, 1);
	assert_int_equal(alloc_heap_tracked(target->heap), 0);
	for (uint64_t i = 0; i < 4000; i++)
		allocates(f, start_ns, 0x10000 + i * 112, 100, 1);
	assert_int_equal(alloc_heap_tracked(target->heap), 4000);
	alloc_tick(c->alloc, now_ns);
	assert_in_range(alloc_heap_tracked(target->heap), 1000, 2300);
}

/* Reads the followed addresses as before a window. */
static void look(struct collector *c, struct target *target)
{
	target->next_ns = UINT64_MAX;
	assert_true(alloc_look_at(c->alloc, target, false));
	while (target->look.seen) {
		clock_sleep_ns(NS_PER_MS);
		alloc_tick(c->alloc, clock_monotonic_ns());
	}
}

/* How many are old, of the last place. */
static int keep_old(void *ctx, const struct alloc_live *live)
{
	*(uint32_t *)ctx = live->old;
	return 0;
}

static uint32_t old_of(const struct target *target)
{
	uint32_t old = UINT32_MAX;

	assert_int_equal(alloc_heap_each_live(target->heap, clock_monotonic_ns(), keep_old, &old), 0);
	return old;
}

/* Memory of the process says what was freed since the last window, and whether an old block is what
 * it was. */
static void test_what_memory_says(void **state)
{
	struct fixture *f = *state;
	struct collector *c = &f->collector;
	const uint64_t now_ns = clock_monotonic_ns(), start_ns = bpf_target_start_boottime_ns(f->pid);
	struct target *target =
		observed(c, proc_table_add(c->procs, (uint32_t)f->pid, start_ns, 0), now_ns);
	char other[] = "other words in it";

	f->births_ns = now_ns - 60 * NS_PER_S;
	for (size_t i = 0; i < BLOCKS; i++)
		allocates(f, start_ns, (uintptr_t)f->blocks[i], BLOCK_BYTES, 1);
	alloc_tick(c->alloc, now_ns);
	assert_int_equal(alloc_heap_tracked(target->heap), BLOCKS);
	look(c, target);
	assert_int_equal(alloc_heap_tracked(target->heap), BLOCKS - 1); /* one was freed before */
	assert_int_equal(old_of(target), BLOCKS - 1);
	for (size_t i = 1; i < BLOCKS; i++) {
		const struct iovec from = { other, sizeof(other) }, to = { f->blocks[i], sizeof(other) };

		assert_int_equal(process_vm_writev(f->pid, &from, 1, &to, 1, 0), sizeof(other));
	}
	look(c, target);
	assert_int_equal(alloc_heap_tracked(target->heap), BLOCKS - 1);
	assert_int_equal(old_of(target), 0);
}

/* The blocks that a probe window saw being allocated are looked at in memory once the window is
 * over, long before the period ends. Later the same addresses may hold other blocks. */
static void test_looked_at_soon(void **state)
{
	struct fixture *f = *state;
	struct collector *c = &f->collector;
	const uint64_t now_ns = clock_monotonic_ns(), start_ns = bpf_target_start_boottime_ns(f->pid);
	struct target *target =
		observed(c, proc_table_add(c->procs, (uint32_t)f->pid, start_ns, 0), now_ns);

	for (size_t i = 0; i < BLOCKS; i++)
		allocates(f, start_ns, (uintptr_t)f->blocks[i], BLOCK_BYTES, 1);
	target->state = STATE_OPEN;
	target->begin_ns = now_ns;
	target->pace.next_period_ns = 3600 * NS_PER_S;
	target->link_fd = open("/dev/null", O_RDONLY | O_CLOEXEC); /* the probes */
	alloc_tick(c->alloc, now_ns);
	assert_int_equal(target->state, STATE_CLOSED);
	assert_int_equal(alloc_wait_ms(c->alloc, 1000), 1);
	do {
		clock_sleep_ns(NS_PER_MS);
		alloc_tick(c->alloc, clock_monotonic_ns());
	} while (target->look.seen);
	assert_int_equal(target->state, STATE_CLOSED);
	assert_int_equal(alloc_heap_tracked(target->heap), BLOCKS - 1);
	assert_true(alloc_wait_ms(c->alloc, 1000) == 1000);
}

/* A busy host may index a program's files late: that is said once, and it is observed when they
 * are. */
static void test_files_come_late(void **state)
{
	struct fixture *f = *state;
	struct collector *c = &f->collector;
	const uint64_t now_ns = clock_monotonic_ns(), start_ns = bpf_target_start_boottime_ns(f->pid);
	struct proc *proc = proc_table_add(c->procs, (uint32_t)f->pid, start_ns, 0);
	struct target *target = &c->alloc->targets[0];

	proc->engaged = true; /* and nothing mapped that is known */
	*target = (struct target){ .state = STATE_NEW,
				   .proc = proc->id,
				   .tgid = proc->tgid,
				   .since_ns = now_ns,
				   .look.fd = -1,
				   .link_fd = -1 };
	alloc_tick(c->alloc, now_ns + NS_PER_S);
	feed_view_read(&f->view);
	assert_int_equal(f->view.allocs, 0);
	for (uint64_t second = 20; second < 25; second++)
		alloc_tick(c->alloc, now_ns + second * NS_PER_S);
	feed_view_read(&f->view);
	assert_int_equal(f->view.allocs, 1);
	assert_int_equal(f->view.alloc.what, FEED_ALLOC_REFUSED);
	assert_int_equal(target->state, STATE_NEW);
}

/* A late allocation event of an ended process adds nothing to a new process with the same pid,
 * whose observation was refused already. */
static void test_a_refused_one(void **state)
{
	struct fixture *f = *state;
	struct collector *c = &f->collector;
	const uint64_t start_ns = bpf_target_start_boottime_ns(f->pid);
	struct proc *proc = proc_table_add(c->procs, (uint32_t)f->pid, start_ns, 0);
	struct prof_sample_event death = { .object = 0x1000,
					   .tgid = (uint32_t)f->pid,
					   .type = PROF_SAMPLE_ALLOC,
					   .detail = ALLOC_DEATH };

	c->alloc->targets[0] = (struct target){ .state = STATE_REFUSED,
						.proc = proc->id,
						.tgid = proc->tgid,
						.look.fd = -1,
						.link_fd = -1 };
	allocates(f, start_ns, 0x1000, 100, 1);
	alloc_event(c->alloc, &death);
	assert_int_equal(c->alloc->targets[0].births.count, 0);
}

/* Its end was lost, and its number belongs to another by now, who comes to light with the first
 * birth: nobody is observed any more, and what was said of the former is gone. */
static void test_another_of_its_number(void **state)
{
	struct fixture *f = *state;
	struct collector *c = &f->collector;
	const uint64_t now_ns = clock_monotonic_ns(), start_ns = bpf_target_start_boottime_ns(f->pid);
	struct proc *former = proc_table_add(c->procs, (uint32_t)f->pid, start_ns + OTHER_NS, 0);
	struct target *target = observed(c, former, now_ns);
	const struct proc *proc;

	allocates(f, start_ns, 0x1000, 100, 8192);
	allocates(f, start_ns, 0x2000, 100, 8192);
	alloc_tick(c->alloc, now_ns);
	proc = proc_table_find(c->procs, (uint32_t)f->pid);
	assert_true(proc && proc != former && former->ended_ns);
	assert_int_equal(target->state, STATE_NONE);
	assert_null(target->heap);
	feed_view_read(&f->view);
	assert_int_equal(f->view.sample_count, 1);
	assert_int_equal(f->view.samples[0].proc, proc->id);
	assert_int_equal(f->view.allocs, 0);
	/* and so it stays */
	alloc_tick(c->alloc, now_ns + NS_PER_S);
	assert_int_equal(target->state, STATE_NONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_what_samples_stand_for, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_is_followed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_what_memory_says, setup, teardown),
		cmocka_unit_test_setup_teardown(test_looked_at_soon, setup, teardown),
		cmocka_unit_test_setup_teardown(test_files_come_late, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_refused_one, setup, teardown),
		cmocka_unit_test_setup_teardown(test_another_of_its_number, setup, teardown)
	};

	if (bpf_target_skip())
		return 0;
	return cmocka_run_group_tests_name("alloc_period", tests, NULL, NULL);
}
