// SPDX-License-Identifier: Apache-2.0
#include "agent/runtimes/cpython_tasks.h"

#include <errno.h>
#include <string.h>

#define MINOR_FIRST	 8u
#define WORD_INTERPRETER 6u  /* of _Py_DebugOffsets: its size */
#define WORD_MODULES	 11u /* interpreter_state.imports_modules of 3.13 */
#define WORD_MODULES_314 12u
#define FIRST_CALLBACK	 24u /* in a future, all versions */

static const struct cpython_tasks layouts[] = {
	/* 3.8 */
	{ .interp_modules = 56, .task_state = 72, .task_waiter = 104, .task_coroutine = 112,
	  .task_name = 120, .coroutine_frame = 16, .coroutine_state = 24, .frame_top = 72,
	  .code_bytes = 48 },
	/* 3.9 */
	{ .interp_modules = 856, .task_state = 80, .task_waiter = 144, .task_coroutine = 152,
	  .task_name = 160, .coroutine_frame = 16, .coroutine_state = 24, .frame_top = 72,
	  .code_bytes = 48 },
	/* 3.10 */
	{ .interp_modules = 856, .task_state = 88, .task_waiter = 152, .task_coroutine = 160,
	  .task_name = 168, .coroutine_frame = 16, .frame_state = 108, .frame_stack = 64,
	  .frame_top = 80, .code_bytes = 48 },
	/* 3.11 */
	{ .interp_modules = 888, .task_state = 88, .task_waiter = 128, .task_coroutine = 136,
	  .task_name = 144, .coroutine_frame = 80, .coroutine_state = 75, .frame_top = 64,
	  .frame_locals = 72 },
	/* 3.12 */
	{ .interp_modules = 944, .task_state = 88, .task_waiter = 128, .task_coroutine = 136,
	  .task_name = 144, .coroutine_frame = 72, .coroutine_state = 67, .frame_top = 64,
	  .frame_locals = 72 },
	/* 3.13 */
	{ .task_state = 96, .task_waiter = 112, .task_coroutine = 120, .task_name = 128,
	  .coroutine_frame = 72, .coroutine_state = 67, .frame_top = 64, .frame_locals = 72 },
	/* 3.14 */
	{ .task_state = 104, .task_waiter = 120, .task_coroutine = 128, .task_name = 136,
	  .coroutine_frame = 72, .coroutine_state = 67, .frame_top = 64 },
};

int cpython_tasks_of_version(unsigned minor, struct cpython_tasks *ret)
{
	if (minor < MINOR_FIRST || minor - MINOR_FIRST >= ARRAY_SIZE(layouts))
		return -EOPNOTSUPP;
	*ret = layouts[minor - MINOR_FIRST];
	ret->task_callback = FIRST_CALLBACK;
	return 0;
}

static uint64_t word(const void *data, unsigned index)
{
	uint64_t value;

	memcpy(&value, (const uint8_t *)data + index * sizeof(value), sizeof(value));
	return value;
}

int cpython_tasks_take_runtime(const void *data, size_t len, unsigned minor,
			       struct cpython_tasks *tasks, uint64_t *ret_interp_bytes)
{
	uint64_t modules;

	if (len < (WORD_MODULES_314 + 1) * sizeof(modules))
		return -EINVAL;
	modules = word(data, minor == 13 ? WORD_MODULES : WORD_MODULES_314);
	if (modules >= word(data, WORD_INTERPRETER) || modules > INT32_MAX)
		return -EINVAL;
	tasks->interp_modules = (uint32_t)modules;
	*ret_interp_bytes = word(data, WORD_INTERPRETER);
	return 0;
}

/* Members in the order of struct _Py_AsyncioModuleDebugOffsets. */
enum debug_word {
	DEBUG_TASK_BYTES,
	DEBUG_TASK_NAME,
	DEBUG_TASK_AWAITED_BY,
	DEBUG_TASK_IS_TASK,
	DEBUG_TASK_IS_SET,
	DEBUG_TASK_COROUTINE,
	DEBUG_TASK_NODE,
	DEBUG_INTERP_BYTES,
	DEBUG_INTERP_LIST,
	DEBUG_THREAD_BYTES,
	DEBUG_THREAD_LOOP,
	DEBUG_THREAD_TASK,
	DEBUG_THREAD_LIST,
};

int cpython_tasks_take_debug(const uint8_t data[CPYTHON_ASYNCIO_DEBUG_BYTES], uint64_t interp_bytes,
			     struct cpython_tasks *tasks)
{
	const uint64_t task_bytes = word(data, DEBUG_TASK_BYTES);
	const uint64_t thread_bytes = word(data, DEBUG_THREAD_BYTES);

	if (word(data, DEBUG_INTERP_BYTES) != interp_bytes || interp_bytes > INT32_MAX ||
	    task_bytes > CPYTHON_TASK_BYTES || thread_bytes > UINT16_MAX ||
	    word(data, DEBUG_INTERP_LIST) >= interp_bytes)
		return -ENODATA;
	for (unsigned i = DEBUG_TASK_NAME; i <= DEBUG_TASK_NODE; i++)
		if (word(data, i) >= task_bytes)
			return -ENODATA;
	for (unsigned i = DEBUG_THREAD_LOOP; i <= DEBUG_THREAD_LIST; i++)
		if (word(data, i) >= thread_bytes)
			return -ENODATA;
	if (word(data, DEBUG_TASK_NAME) != tasks->task_name ||
	    word(data, DEBUG_TASK_COROUTINE) != tasks->task_coroutine)
		return -EOPNOTSUPP;
	tasks->interp_list = (uint32_t)word(data, DEBUG_INTERP_LIST);
	tasks->thread_list = (uint32_t)word(data, DEBUG_THREAD_LIST);
	tasks->task_node = (uint16_t)word(data, DEBUG_TASK_NODE);
	tasks->task_awaited_by = (uint16_t)word(data, DEBUG_TASK_AWAITED_BY);
	tasks->task_is_set = (uint16_t)word(data, DEBUG_TASK_IS_SET);
	return 0;
}
