// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "agent/collect/proc/proc_table.h"

#define MS 1000000ull

static struct proc *parent_with_facts(struct proc_table *table)
{
	struct mapping mapping = { .start_va = 0x1000, .end_va = 0x2000, .module = 4 };
	struct proc *proc = proc_table_add(table, 100, 5000 * MS, 0);

	assert_non_null(proc);
	assert_true(proc_set_text(proc, PROC_EXE, "/bin/parent"));
	assert_false(proc_set_text(proc, PROC_EXE, "/bin/parent"));
	assert_true(proc_set_text(proc, PROC_CGROUP, "/a.service"));
	proc->uid = 33;
	proc->families = 5;
	assert_int_equal(mapping_set_add(&proc->mappings, &mapping, NULL), 1);
	return proc;
}

static void a_child_inherits(void **state)
{
	cleanup(proc_table) struct proc_table *table = proc_table_create();
	struct proc *parent = parent_with_facts(table);
	struct proc *child = proc_table_fork(table, parent, 101, 6000 * MS, 10);

	assert_non_null(child);
	assert_int_not_equal(child->id, parent->id);
	assert_int_equal(child->parent_tgid, 100);
	assert_int_equal(child->uid, 33);
	assert_int_equal(child->families, 5);
	assert_string_equal(child->text[PROC_EXE], "/bin/parent");
	assert_string_equal(child->text[PROC_CGROUP], "/a.service");
	assert_int_equal(mapping_set_find(child->mappings, 0x1800, 20)->module, 4);
	assert_false(child->fed || child->engaged || child->published);
	assert_ptr_equal(proc_table_find(table, 101), child);
	assert_ptr_equal(proc_table_by_id(table, child->id), child);
}

static void exec_is_a_new_life_of_the_same_process(void **state)
{
	cleanup(proc_table) struct proc_table *table = proc_table_create();
	struct proc *before = parent_with_facts(table);
	struct proc *after;

	before->start_exact = true;
	after = proc_table_exec(table, before, 500);
	assert_non_null(after);
	assert_int_not_equal(after->id, before->id);
	assert_int_equal(after->exec_generation, 1);
	assert_int_equal(after->families, 5);
	assert_true(after->start_boottime_ns == before->start_boottime_ns);
	assert_int_equal(mapping_set_count(after->mappings), 0);
	assert_true(before->ended_ns == 500);
	assert_ptr_equal(proc_table_find(table, 100), after);
	assert_ptr_equal(proc_table_find_at(table, 100, 5000 * MS, 499), before);
	assert_ptr_equal(proc_table_find_at(table, 100, 5000 * MS, 500), after);
	after = proc_table_exec(table, after, 600);
	assert_int_equal(after->exec_generation, 2);
	assert_ptr_equal(proc_table_find_at(table, 100, 5000 * MS, 499), before);
}

static void a_reused_pid_is_never_mixed_in(void **state)
{
	cleanup(proc_table) struct proc_table *table = proc_table_create();
	struct proc *first = proc_table_add(table, 7, 1000 * MS, 10);
	struct proc *second;

	first->start_exact = true;
	proc_table_end(table, first, 20);
	assert_null(proc_table_find(table, 7));
	/* Its last samples still find it. */
	assert_ptr_equal(proc_table_find_at(table, 7, 1000 * MS, 15), first);
	second = proc_table_add(table, 7, 2000 * MS, 30);
	assert_ptr_equal(proc_table_find(table, 7), second);
	assert_ptr_equal(proc_table_find_at(table, 7, 1000 * MS, 40), first);
	assert_ptr_equal(proc_table_find_at(table, 7, 2000 * MS, 40), second);
	assert_null(proc_table_find_at(table, 7, 3000 * MS, 40));
}

static void starts_from_proc_are_made_exact_by_the_kernel(void **state)
{
	cleanup(proc_table) struct proc_table *table = proc_table_create();
	struct proc *proc = proc_table_add(table, 7, 1230 * MS, 0);

	assert_null(proc_table_find_at(table, 7, 1240 * MS, 9));
	assert_true(proc_led_by(proc, 1235 * MS));
	assert_ptr_equal(proc_table_find_at(table, 7, 1239999999, 9), proc);
	assert_true(proc->start_exact);
	assert_true(proc->start_boottime_ns == 1239999999);
	assert_null(proc_table_find_at(table, 7, 1239999998, 9));
	assert_false(proc_led_by(
		proc, 1239999998)); /* another one that has its number, of the same tick */
	assert_true(proc_led_by(proc, 1239999999));
}

static void ended_lives_are_forgotten_in_time(void **state)
{
	cleanup(proc_table) struct proc_table *table = proc_table_create();
	struct proc *alive = proc_table_add(table, 7, 1000 * MS, 10);
	uint32_t first = alive->id;

	alive = proc_table_exec(table, alive, 100);
	alive = proc_table_exec(table, alive, PROC_TABLE_ENDED_NS);
	proc_table_purge(table, 50 + PROC_TABLE_ENDED_NS);
	assert_non_null(proc_table_by_id(table, first));
	proc_table_purge(table, 100 + PROC_TABLE_ENDED_NS);
	assert_null(proc_table_by_id(table, first));
	assert_non_null(proc_table_by_id(table, first + 1));
	/* The chain of the tgid was mended: the oldest life left is the second. */
	assert_int_equal(proc_table_find_at(table, 7, 1000 * MS, 50)->id, first + 1);
	proc_table_end(table, alive, 3 * PROC_TABLE_ENDED_NS);
	proc_table_purge(table, 5 * PROC_TABLE_ENDED_NS);
	assert_null(proc_table_find_at(table, 7, 1000 * MS, 50));
	assert_int_equal(proc_table_counts(table).alive, 0);
	assert_int_equal(proc_table_counts(table).ended, 0);
}

static void the_table_is_bounded(void **state)
{
	cleanup(proc_table) struct proc_table *table = proc_table_create();
	struct proc *proc;
	size_t at = 0, seen = 0;

	for (uint32_t i = 1; i <= PROC_TABLE_MAX; i++)
		assert_non_null(proc_table_add(table, i, i * 10 * MS, 0));
	assert_null(proc_table_add(table, PROC_TABLE_MAX + 1, 1, 0));
	assert_int_equal(proc_table_counts(table).refused, 1);
	while ((proc = proc_table_next(table, &at))) {
		proc_table_end(table, proc, 5);
		seen++;
	}
	assert_int_equal(seen, PROC_TABLE_MAX);
	/* Far more ended ones than are kept: the bound wins over the time. */
	proc_table_purge(table, 6);
	assert_int_equal(proc_table_counts(table).ended, PROC_TABLE_ENDED_MAX);
	assert_non_null(proc_table_add(table, PROC_TABLE_MAX + 1, 1, 0));
}

static void numbers_begin_anew(void **state)
{
	cleanup(proc_table) struct proc_table *table = proc_table_create();
	struct proc *first = proc_table_add(table, 100, 5000 * MS, 0), *proc;

	assert_int_equal(first->id, 1);
	proc_table_set_next_id(table, UINT32_MAX - 1);
	for (uint32_t i = 0; i < 4; i++) {
		static const uint32_t due[] = { UINT32_MAX - 1, UINT32_MAX, 2, 3 };

		proc = proc_table_add(table, 200 + i, 6000 * MS, 0);
		assert_non_null(proc);
		assert_int_equal(proc->id, due[i]);
		assert_ptr_equal(proc_table_by_id(table, proc->id), proc);
	}
	assert_ptr_equal(proc_table_by_id(table, 1), first);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_child_inherits),
		cmocka_unit_test(exec_is_a_new_life_of_the_same_process),
		cmocka_unit_test(a_reused_pid_is_never_mixed_in),
		cmocka_unit_test(starts_from_proc_are_made_exact_by_the_kernel),
		cmocka_unit_test(ended_lives_are_forgotten_in_time),
		cmocka_unit_test(the_table_is_bounded),
		cmocka_unit_test(numbers_begin_anew),
	};

	return cmocka_run_group_tests_name("proc_table", tests, NULL, NULL);
}
