// SPDX-License-Identifier: Apache-2.0
/* The reader of asyncio tasks, on memory that the test builds in its own process as 3.8 to 3.14 lay
 * it out (tests/support/asyncio_heap.h). tests/e2e/test_asyncio_tasks.py has real interpreters. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/reader/cpython_tasks.h"
#include "tests/support/asyncio_heap.h"

#define BASE 0x10000000000ull

static const char maps_text[] = "10000000000-10000008000 rw-p 00000000 08:01 7 /lib/_asyncio.so\n";

static int map_memory(void **state)
{
	*state = mmap((void *)(uintptr_t)BASE, ASYNCIO_HEAP_BYTES, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	return *state == MAP_FAILED ? -1 : 0;
}

static int unmap_memory(void **state)
{
	return munmap(*state, ASYNCIO_HEAP_BYTES);
}

static int read_list(const struct asyncio_heap *h, struct cpython_task_list *ret, const char **why)
{
	cleanup_target_maps struct target_maps maps = { 0 };
	cleanup_target struct target target = TARGET_NONE;

	assert_int_equal(target_open((uint32_t)getpid(), 0, &target), 0);
	assert_int_equal(target_maps_parse(maps_text, sizeof(maps_text) - 1, &maps), 0);
	return cpython_tasks_read(&target, &maps, &h->python, UINT64_MAX, ret, why);
}

static int by_name(const void *left, const void *right)
{
	return strcmp(left, right);
}

/* "name state wait: places; by awaiters" of each task, by name. */
static void describe(const struct asyncio_heap *h, const struct cpython_task_list *list,
		     char lines[ASYNCIO_TASKS][256])
{
	static const char *const states[] = { "ready", "waiting", "running" };
	static const char *const waits[] = { "-", "task", "gather", "future" };
	static const char *const codes[] = { "outer", "inner", "called" };

	assert_int_equal(list->tasks.count, ASYNCIO_TASKS);
	for (size_t i = 0; i < ASYNCIO_TASKS; i++) {
		const struct cpython_task *task = &list->tasks.data[i];
		char *line = lines[i];
		int len = snprintf(line, 256, "%s %s %s:", task->name, states[task->state],
				   waits[task->wait]);

		for (uint32_t k = 0; k < task->place_count; k++)
			for (unsigned code = 0; code < ASYNCIO_CODES; code++)
				if (list->places.data[task->place_first + k].a == h->codes[code])
					len += snprintf(line + len, 256 - (size_t)len, " %s", codes[code]);
		len += snprintf(line + len, 256 - (size_t)len, "; by");
		for (size_t k = 0; k < list->awaits.count; k++)
			if (list->awaits.data[k].awaited == i)
				len += snprintf(line + len, 256 - (size_t)len, " %s",
						list->tasks.data[list->awaits.data[k].awaiter].name);
	}
	qsort(lines, ASYNCIO_TASKS, 256, by_name);
}

static void tasks_of_every_version(void **state)
{
	static const char *const expected[ASYNCIO_TASKS] = {
		"Task-7 ready -: outer; by group",     "group waiting future: outer; by",
		"left waiting future: inner outer; by main", "main waiting gather: outer; by",
		"right waiting task: outer; by main",  "runs running -: called called outer; by right",
	};

	for (unsigned minor = 8; minor <= 14; minor++) {
		cleanup_cpython_task_list struct cpython_task_list list = { .listed = 0 };
		char lines[ASYNCIO_TASKS][256];
		const char *why = "";
		struct asyncio_heap h;

		asyncio_heap_build(&h, *state, BASE, minor);
		assert_int_equal(read_list(&h, &list, &why), 0);
		describe(&h, &list, lines);
		for (size_t i = 0; i < ASYNCIO_TASKS; i++)
			assert_string_equal(lines[i], expected[i]);
		assert_int_equal(list.listed, ASYNCIO_TASKS + 1);
		assert_int_equal(list.unreadable, 1);
		assert_int_equal(list.foreign, 1);
		assert_false(list.is_partial);
	}
}

/* A generator stands at a `yield` of its own, above something else that is a generator. */
static void a_value_is_not_awaited(void **state)
{
	for (unsigned minor = 8; minor <= 14; minor++) {
		cleanup_cpython_task_list struct cpython_task_list list = { .listed = 0 };
		char lines[ASYNCIO_TASKS][256];
		const char *why = "";
		struct asyncio_heap h;

		asyncio_heap_build(&h, *state, BASE, minor);
		if (minor <= 10) {
			uint64_t bytes;

			memcpy(&bytes, h.bytes + (h.codes[ASYNCIO_OUTER] + 48 - BASE), 8);
			asyncio_put_byte(&h, bytes + 32 + 2, 1);
		} else if (minor <= 12) {
			asyncio_put_byte(&h, h.codes[ASYNCIO_OUTER] + h.python.code_bytecode + 3, 1);
		} else {
			uint64_t coroutine;

			memcpy(&coroutine, h.bytes + (h.tasks[0] + h.layout.task_coroutine - BASE), 8);
			asyncio_put_byte(&h, coroutine + h.layout.coroutine_state, (uint8_t)-2);
		}
		assert_int_equal(read_list(&h, &list, &why), 0);
		describe(&h, &list, lines);
		assert_string_equal(lines[2], "left waiting future: outer; by main");
	}
}

/* Tasks whose fields are elsewhere than the table says are refused, with the reason. */
static void unknown_layouts_are_refused(void **state)
{
	cleanup_cpython_task_list struct cpython_task_list list = { .listed = 0 };
	const char *why = "";
	struct asyncio_heap h;

	asyncio_heap_build(&h, *state, BASE, 11);
	h.python.flags |= SCRIPT_PYTHON_FREE_THREADED;
	assert_int_equal(read_list(&h, &list, &why), -EOPNOTSUPP);
	assert_non_null(strstr(why, "is not known"));

	asyncio_heap_build(&h, *state, BASE, 11); /* the dict of the modules is something else */
	asyncio_put(&h, h.interp + h.layout.interp_modules, h.tasks[0]);
	assert_int_equal(read_list(&h, &list, &why), -EOPNOTSUPP);
	assert_non_null(strstr(why, "not where"));

	asyncio_heap_build(&h, *state, BASE, 14); /* the section has the coroutine elsewhere */
	asyncio_put(&h, h.debug + 5 * 8, h.layout.task_coroutine + 8);
	assert_int_equal(read_list(&h, &list, &why), -EOPNOTSUPP);
	assert_non_null(strstr(why, "not laid out"));

	asyncio_heap_build(&h, *state, BASE, 14); /* there is no section: asyncio is not imported */
	asyncio_put(&h, h.debug + 7 * 8, ASYNCIO_INTERP_BYTES + 8);
	assert_int_equal(read_list(&h, &list, &why), 0);
	assert_int_equal(list.listed, 0);
}

/* The pointers of a task that is listed twice, or of a list that leads to itself, end. */
static void loops_end(void **state)
{
	cleanup_cpython_task_list struct cpython_task_list list = { .listed = 0 };
	const char *why = "";
	struct asyncio_heap h;
	uint64_t coroutine;

	asyncio_heap_build(&h, *state, BASE, 14);
	asyncio_put(&h, h.tasks[1] + ASYNCIO_TASK_NODE, h.tasks[0] + ASYNCIO_TASK_NODE);
	memcpy(&coroutine, h.bytes + (h.tasks[2] + h.layout.task_coroutine - BASE), 8);
	asyncio_put(&h, coroutine + h.layout.coroutine_frame + 80, coroutine); /* awaits itself */
	assert_int_equal(read_list(&h, &list, &why), 0);
	assert_true(list.tasks.count >= 2 && list.tasks.count <= ASYNCIO_TASKS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(tasks_of_every_version, map_memory, unmap_memory),
		cmocka_unit_test_setup_teardown(a_value_is_not_awaited, map_memory, unmap_memory),
		cmocka_unit_test_setup_teardown(unknown_layouts_are_refused, map_memory, unmap_memory),
		cmocka_unit_test_setup_teardown(loops_end, map_memory, unmap_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
