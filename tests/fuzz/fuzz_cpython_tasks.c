// SPDX-License-Identifier: Apache-2.0
/* Input: version (3.8 to 3.14), then changes of the heap (fake_memory.h). Properties: indices of
 * the list are in bounds, awaits are in order and each once, names are text. */
#include "agent/base/clock.h"
#include "agent/base/parse.h"
#include "agent/reader/cpython_tasks.h"
#include "tests/fuzz/fake_memory.h"
#include "tests/support/asyncio_heap.h"

#define READ_NS (2 * NS_PER_S)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_task(const struct cpython_task_list *list, const struct cpython_task *task)
{
	size_t len = strnlen(task->name, sizeof(task->name));

	if (len == sizeof(task->name) || !parse_is_utf8(task->name, len))
		abort();
	if ((size_t)task->place_first + task->place_count > list->places.count ||
	    (task->is_moving && task->place_count))
		abort();
	if ((task->state == CPYTHON_TASK_WAITING) != (task->wait != CPYTHON_WAIT_NONE) &&
	    !task->is_moving)
		abort();
}

static void check_list(const struct cpython_task_list *list)
{
	for (size_t i = 0; i < list->tasks.count; i++)
		check_task(list, &list->tasks.data[i]);
	for (size_t i = 0; i < list->awaits.count; i++) {
		const struct cpython_await *one = &list->awaits.data[i];

		if (one->awaited >= list->tasks.count || one->awaiter >= list->tasks.count)
			abort();
		if (i && (one[-1].awaited > one->awaited ||
			  (one[-1].awaited == one->awaited && one[-1].awaiter >= one->awaiter)))
			abort();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char text[] = "10000000-10008000 rw-p 00000000 08:01 7 /lib/_asyncio.so\n";
	static uint8_t heap[ASYNCIO_HEAP_BYTES];
	cleanup_cpython_task_list struct cpython_task_list list = { .listed = 0 };
	cleanup_target_maps struct target_maps maps = { 0 };
	struct target target = TARGET_NONE;
	struct asyncio_heap h;
	const char *why = NULL;

	if (size < 1 || size > 1 + FAKE_CHANGES_MAX * FAKE_CHANGE)
		return 0;
	asyncio_heap_build(&h, heap, FAKE_BASE, 8 + data[0] % 7);
	fake.bytes = heap;
	fake.count = sizeof(heap);
	fake.changes = data + 1;
	fake.end = data + size;
	fake.reads = 0;
	if (target_maps_parse(text, sizeof(text) - 1, &maps) < 0)
		abort();
	if (cpython_tasks_read(&target, &maps, &h.python, clock_monotonic_ns() + READ_NS, &list,
			       &why) == 0)
		check_list(&list);
	else if (!why)
		abort();
	return 0;
}
