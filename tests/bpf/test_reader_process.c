// SPDX-License-Identifier: Apache-2.0
/* The reader process on Go programs: many goroutines, goroutines that keep moving, deadlines,
 * labels, what a program has turned off. Numbers are the program's own. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/base/u64map.h"
#include "bpf/profiler.h"
#include "tests/support/go_workload.h"
#include "tests/support/reader_peer.h"

struct fixture {
	struct reader_peer client;
	struct go_workload program;
};

static bool set_up(struct fixture *f, const char *program, const char *const *args)
{
	const struct go_build build = { program, NULL, "stripped" };
	char path[512];

	if (!go_workload_build(&build, path, sizeof(path)))
		return false;
	go_workload_start(&f->program, path, args);
	reader_peer_start(&f->client);
	return true;
}

static void tear_down(struct fixture *f)
{
	assert_int_equal(reader_peer_stop(&f->client), 0);
	go_workload_stop(&f->program);
}

static int ask(struct fixture *f, uint32_t kind, uint32_t what, uint32_t deadline_ms,
	       struct read_collect *ret)
{
	const struct control_read_target request = {
		.head = { .kind = (uint16_t)kind },
		.tgid = (uint32_t)f->program.pid,
		.what = what & 0xff,
		.flags = what >> 8,
		.deadline_ms = deadline_ms,
	};

	return reader_peer_ask(&f->client, &request, ret);
}

#define BLOCKED_ONLY (READER_BLOCKED_ONLY << 8)
#define LOCKS_ONLY   (READER_LOCKS_ONLY << 8)

static unsigned count_lines(const char *text, const char *start)
{
	unsigned count = 0;

	for (const char *at = text; at; at = strchr(at, '\n'), at += at != NULL)
		count += !strncmp(at, start, strlen(start));
	return count;
}

static unsigned count_reason(const struct read_collect *c, const char *reason)
{
	unsigned count = 0;

	for (size_t i = 0; i < c->goroutines.count; i++)
		count += !strcmp(read_collect_string(c, c->goroutines.data[i].goroutine->reason),
				 reason);
	return count;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_ten_thousand(void **state)
{
	const char *const args[] = { "-many", "10000", "-depth", "20", NULL };
	struct fixture f;
	struct read_collect c, again;
	char *dump;

	if (!set_up(&f, "situations", args))
		skip();
	assert_int_equal(ask(&f, CONTROL_GOROUTINES, 0, 5000, &c), 0);
	dump = go_workload_ask(&f.program, "goroutines");
	assert_int_equal(c.end->flags, 0);
	assert_int_equal(c.end->inconsistent, 0);
	assert_int_equal(c.end->read, c.end->listed);
	/* The dump names every goroutine but the runtime's own. */
	assert_in_range(c.goroutines.count, count_lines(dump, "goroutine "),
			count_lines(dump, "goroutine ") + 20);
	assert_in_range(count_reason(&c, "chan receive"), 10000, 10020);
	assert_true(c.stacks.count < 80);
	/* The second time the program is known. */
	assert_int_equal(ask(&f, CONTROL_GOROUTINES, 0, 5000, &again), 0);
	assert_int_equal(again.goroutines.count, c.goroutines.count);
	print_message("%zu goroutines of 21 frames: %lu us, %lu us\n", c.goroutines.count,
		      (unsigned long)(c.end->duration_ns / 1000),
		      (unsigned long)(again.end->duration_ns / 1000));
	free(dump);
	read_collect_deinit(&c);
	read_collect_deinit(&again);
	tear_down(&f);
}

static uint64_t stack_hash(const struct read_collect *c, const struct read_goroutine *g)
{
	const struct read_record *stack = g->stack ? &c->stacks.data[g->stack - 1] : NULL;

	return stack ? hash_bytes(stack->frames, stack->stack->frame_count * sizeof(*stack->frames), 1)
		     : 0;
}

/* A goroutine that has not run since the last reading is not read again and has the same stack. One
 * that has run is read again. */
static void test_unchanged_goroutines(void **state)
{
	const char *const args[] = { "-many", "20000", "-depth", "20", "-churn", "20", NULL };
	struct fixture f;
	struct read_collect before, after;
	struct u64map stacks = { 0 };
	unsigned same = 0;

	if (!set_up(&f, "situations", args))
		skip();
	/* A collection notes since when each of them waits. */
	free(go_workload_ask(&f.program, "gc"));
	assert_int_equal(ask(&f, CONTROL_GOROUTINES, 0, 10000, &before), 0);
	assert_int_equal(ask(&f, CONTROL_GOROUTINES, 0, 10000, &after), 0);
	print_message("%zu goroutines: %lu us of CPU, unchanged %lu us\n", before.goroutines.count,
		      (unsigned long)(before.end->cpu_ns / 1000),
		      (unsigned long)(after.end->cpu_ns / 1000));
	for (size_t i = 0; i < before.goroutines.count; i++) {
		const struct read_goroutine *g = before.goroutines.data[i].goroutine;

		assert_int_equal(u64map_put(&stacks, g->goid,
					    hash_combine(stack_hash(&before, g), g->wait_object)),
				 0);
	}
	for (size_t i = 0; i < after.goroutines.count; i++) {
		const struct read_goroutine *g = after.goroutines.data[i].goroutine;
		uint64_t known;

		if (!g->wait_ns || !u64map_get(&stacks, g->goid, &known))
			continue;
		assert_int_equal(known, hash_combine(stack_hash(&after, g), g->wait_object));
		same++;
	}
	assert_in_range(same, 20000, 20100);
	u64map_deinit(&stacks);
	read_collect_deinit(&before);
	read_collect_deinit(&after);
	tear_down(&f);
}

static void test_deadline_gives_a_sample(void **state)
{
	const char *const args[] = { "-many", "150000", NULL };
	struct fixture f;
	struct read_collect c;
	uint64_t started;

	if (!set_up(&f, "situations", args))
		skip();
	assert_int_equal(ask(&f, CONTROL_GOROUTINES, 0, 30000, &c), 0);
	assert_in_range(count_reason(&c, "chan receive"), 150000, 150020);
	print_message("%zu goroutines: %lu us, %lu us of CPU\n", c.goroutines.count,
		      (unsigned long)(c.end->duration_ns / 1000),
		      (unsigned long)(c.end->cpu_ns / 1000));
	read_collect_deinit(&c);
	started = clock_monotonic_ns();
	assert_int_equal(ask(&f, CONTROL_GOROUTINES, 0, 20, &c), 0);
	assert_true(clock_monotonic_ns() - started < 5 * NS_PER_S);
	assert_int_equal(c.end->flags, READ_END_SAMPLED);
	assert_true(c.end->read < c.end->listed);
	read_collect_deinit(&c);
	tear_down(&f);
}

/* Goroutines that grow, shrink and end all the time: what is reported is whole or says that it is
 * not. */
static void test_moving_goroutines(void **state)
{
	const char *const args[] = { "-churn", "200", "-many", "2000", NULL };
	uint64_t seen = 0, unsettled = 0;
	struct fixture f;

	if (!set_up(&f, "situations", args))
		skip();
	for (int round = 0; round < 20; round++) {
		struct read_collect c;

		assert_int_equal(ask(&f, CONTROL_GOROUTINES, 0, 5000, &c), 0);
		for (size_t i = 0; i < c.goroutines.count; i++) {
			const struct read_goroutine *g = c.goroutines.data[i].goroutine;
			bool stackless =
				g->flags & (READ_GOROUTINE_RUNNING | READ_GOROUTINE_INCONSISTENT);

			assert_true((g->stack == 0) == stackless);
		}
		/* Every stack ends below a goroutine's function, or is marked as cut. */
		for (size_t i = 0; i < c.stacks.count; i++)
			assert_true(c.stacks.data[i].stack->frame_count >= 2);
		assert_in_range(count_reason(&c, "chan receive"), 2000, 2300);
		seen += c.goroutines.count;
		unsettled += c.end->inconsistent;
		read_collect_deinit(&c);
	}
	print_message("%lu of %lu goroutines moved during every attempt\n",
		      (unsigned long)unsettled, (unsigned long)seen);
	assert_true(unsettled * 100 < seen);
	tear_down(&f);
}

static const char *label_value(const struct read_collect *c, uint32_t set, const char *name)
{
	const struct read_record *r = set ? &c->label_sets.data[set - 1] : NULL;

	for (uint32_t i = 0; r && i < r->labels->count; i++)
		if (!strcmp(read_collect_string(c, r->pairs[2 * i]), name))
			return read_collect_string(c, r->pairs[2 * i + 1]);
	return "";
}

static void test_facts_of_single_goroutines(void **state)
{
	unsigned checkout = 0, acme = 0, locked_threads = 0, system = 0, on_lock = 0;
	uint64_t lock = 0;
	struct fixture f;
	struct read_collect c;

	if (!set_up(&f, "situations", NULL))
		skip();
	/* The runtime notes a wait's begin at the next collection. */
	free(go_workload_ask(&f.program, "gc"));
	free(go_workload_ask(&f.program, "spin"));
	clock_sleep_ns(50 * NS_PER_MS);
	assert_int_equal(ask(&f, CONTROL_GOROUTINES, 0, 5000, &c), 0);
	assert_true(memmem(c.target->version, c.target->version_len, "go1.", 4) != NULL);
	for (size_t i = 0; i < c.goroutines.count; i++) {
		const struct read_goroutine *g = c.goroutines.data[i].goroutine;
		const char *reason = read_collect_string(&c, g->reason);

		checkout += !strcmp(label_value(&c, g->labels, "request"), "checkout") &&
			    !strcmp(label_value(&c, g->labels, "shard"), "7");
		acme += !strcmp(label_value(&c, g->labels, "tenant"), "acme");
		system += (g->flags & READ_GOROUTINE_SYSTEM) != 0;
		if (g->flags & READ_GOROUTINE_LOCKED && g->tid)
			locked_threads++;
		if (!strcmp(reason, "sync.Mutex.Lock")) {
			assert_true(g->flags & READ_GOROUTINE_ON_LOCK);
			assert_true(!lock || lock == g->wait_object);
			lock = g->wait_object;
			on_lock++;
		}
		if (!(g->flags & READ_GOROUTINE_SYSTEM) && g->goid != 1 &&
		    (!strcmp(reason, "sleep") || !strcmp(reason, "chan receive")))
			assert_in_range(g->wait_ns, 50 * NS_PER_MS, 60 * NS_PER_S);
		if (!strcmp(reason, "select"))
			assert_true(g->flags & READ_GOROUTINE_BLOCKED);
		if (!strcmp(reason, "sleep"))
			assert_false(g->flags & READ_GOROUTINE_BLOCKED);
	}
	assert_int_equal(checkout, 1);
	assert_int_equal(acme, 1);
	assert_int_equal(locked_threads, 2);
	assert_int_equal(on_lock, 2);
	assert_in_range(system, 3, 20);
	read_collect_deinit(&c);

	assert_int_equal(ask(&f, CONTROL_GOROUTINES, BLOCKED_ONLY, 5000, &c), 0);
	assert_int_equal(count_reason(&c, "sleep"), 0);
	assert_int_equal(count_reason(&c, "sync.Mutex.Lock"), 2);
	assert_int_equal(count_reason(&c, "IO wait"), 0);
	assert_int_equal(count_reason(&c, ""), 0);
	read_collect_deinit(&c);

	assert_int_equal(ask(&f, CONTROL_GOROUTINES, LOCKS_ONLY, 5000, &c), 0);
	assert_int_equal(c.goroutines.count, 4);
	assert_int_equal(count_reason(&c, "sync.Mutex.Lock"), 2);
	assert_int_equal(count_reason(&c, "sync.RWMutex.Lock"), 1);
	assert_int_equal(count_reason(&c, "sync.RWMutex.RLock"), 1);
	for (size_t i = 0; i < c.goroutines.count; i++)
		assert_true(c.goroutines.data[i].goroutine->flags & READ_GOROUTINE_LOCK_WAIT);
	read_collect_deinit(&c);
	tear_down(&f);
}

static void test_what_is_off(void **state)
{
	const char *const args[] = { "-profile=false", NULL };
	struct fixture f;
	struct read_collect c;

	if (!set_up(&f, "situations", args))
		skip();
	assert_int_equal(ask(&f, CONTROL_GO_PROFILE, READER_BLOCK, 5000, &c), -ENODATA);
	assert_non_null(strstr(f.client.text, "has not turned its block profile on"));
	read_collect_deinit(&c);
	assert_int_equal(ask(&f, CONTROL_GO_PROFILE, READER_MUTEX, 5000, &c), -ENODATA);
	read_collect_deinit(&c);
	assert_int_equal(ask(&f, CONTROL_GO_PROFILE, READER_MEMORY, 5000, &c), 0);
	assert_true(c.buckets.count > 5);
	read_collect_deinit(&c);
	assert_int_equal(ask(&f, CONTROL_GO_PROFILE, 4, 5000, &c), -EINVAL);
	read_collect_deinit(&c);
	tear_down(&f);

	assert_true(set_up(&f, "silent", NULL));
	assert_int_equal(ask(&f, CONTROL_GO_PROFILE, READER_MEMORY, 5000, &c), -ENODATA);
	assert_non_null(strstr(f.client.text, "linked without its heap profile"));
	read_collect_deinit(&c);
	assert_int_equal(ask(&f, CONTROL_GOROUTINES, 0, 5000, &c), 0);
	assert_in_range(c.goroutines.count, 2, 20);
	read_collect_deinit(&c);
	tear_down(&f);
}

/* exec replaces the program under the same pid: what was known of it must not be used. */
static void test_exec(void **state)
{
	const struct go_build other = { "silent", NULL, "stripped" };
	char path[512], line[16];
	struct fixture f;
	struct read_collect c;

	if (!set_up(&f, "situations", NULL) || !go_workload_build(&other, path, sizeof(path)))
		skip();
	assert_int_equal(ask(&f, CONTROL_GOROUTINES, 0, 5000, &c), 0);
	assert_in_range(c.goroutines.count, 33, 60);
	read_collect_deinit(&c);
	assert_true(fprintf(f.program.in, "exec %s\n", path) > 0);
	assert_int_equal(fflush(f.program.in), 0);
	assert_non_null(fgets(line, sizeof(line), f.program.out));
	assert_string_equal(line, "ready\n");
	assert_int_equal(ask(&f, CONTROL_GOROUTINES, 0, 5000, &c), 0);
	assert_in_range(c.goroutines.count, 2, 12);
	read_collect_deinit(&c);
	tear_down(&f);
}

static void test_exit(void **state)
{
	struct fixture f;
	struct read_collect c;

	if (!set_up(&f, "situations", NULL))
		skip();
	assert_int_equal(ask(&f, CONTROL_GOROUTINES, 0, 5000, &c), 0);
	read_collect_deinit(&c);
	assert_int_equal(kill(f.program.pid, SIGKILL), 0);
	assert_int_equal(waitpid(f.program.pid, NULL, 0), f.program.pid);
	assert_int_equal(ask(&f, CONTROL_GOROUTINES, 0, 5000, &c), -ESRCH);
	assert_string_equal(f.client.text, "the process has ended");
	read_collect_deinit(&c);
	assert_int_equal(reader_peer_stop(&f.client), 0);
	(void)fclose(f.program.in);
	(void)fclose(f.program.out);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ten_thousand),
		cmocka_unit_test(test_unchanged_goroutines),
		cmocka_unit_test(test_deadline_gives_a_sample),
		cmocka_unit_test(test_moving_goroutines),
		cmocka_unit_test(test_facts_of_single_goroutines),
		cmocka_unit_test(test_what_is_off),
		cmocka_unit_test(test_exec),
		cmocka_unit_test(test_exit),
	};

	if (geteuid() != 0) {
		print_message("skipped: reading other processes needs root\n");
		return 0;
	}
	return cmocka_run_group_tests_name("reader_process", tests, NULL, NULL);
}
