/* SPDX-License-Identifier: Apache-2.0 */
/* Offsets of asyncio's tasks (Modules/_asynciomodule.c) and of coroutines (Objects/genobject.c) by
 * version, for release builds on x86-64 with the GIL. Pure; every value is hostile.
 *
 * 3.14 describes its tasks: the extension module _asyncio has struct _AsyncioDebug in its writable
 * data, in a section of its own. Earlier versions do not, so the table has what was measured. The
 * table is a claim: the reader believes an offset only if the object there has the type that it
 * must have. */
#ifndef PROFD_RUNTIMES_CPYTHON_TASKS_H
#define PROFD_RUNTIMES_CPYTHON_TASKS_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "bpf/script.h"

#define CPYTHON_TASK_BYTES	    512u /* no field of a task or coroutine lies behind that */
#define CPYTHON_ASYNCIO_DEBUG_BYTES 104u /* of struct _AsyncioDebug in 3.14 */

/* Offsets in bytes; 0 = the version has no such field. */
struct cpython_tasks {
	uint32_t interp_modules; /* in PyInterpreterState: the dict sys.modules */
	uint32_t interp_list;	 /* there: head of the list of tasks whose thread has ended (3.14) */
	uint32_t thread_list;	 /* in PyThreadState: head of the list of its tasks (3.14) */
	uint16_t task_node;	 /* in a task: its links in these lists (3.14) */
	uint16_t task_callback;	 /* the first function that is called when it is done */
	uint16_t task_state;	 /* i32: 0 = pending */
	uint16_t task_waiter;	 /* the future that it waits for, NULL = it is ready or runs */
	uint16_t task_coroutine;
	uint16_t task_name;	  /* a str, or the int N of "Task-N" */
	uint16_t task_awaited_by; /* a task, or a set of them (3.14) */
	uint16_t task_is_set;	  /* u8: task_awaited_by is a set */
	uint16_t coroutine_frame; /* the frame (3.11+), or its address */
	uint16_t coroutine_state; /* i8 in the coroutine (3.8, 3.9, 3.11+) */
	uint16_t frame_state;	  /* i8 in the frame (3.10) */
	uint16_t frame_stack;	  /* in a frame: address of its values (3.10) */
	uint16_t frame_top;	  /* there: their end: an address (3.8, 3.9, 3.14) or a number, i32 */
	uint16_t frame_locals;	  /* there: the values, of which frame_top counts (3.11 to 3.13) */
	uint16_t code_bytes;	  /* in a code object: its bytecode, a bytes object (3.8 to 3.10) */
};

/* Fills the offsets of 3.@minor from the table; what a process must tell stays 0: interp_modules
 * from 3.13 on, the lists of 3.14. -EOPNOTSUPP: not 3.8 to 3.14. */
int cpython_tasks_of_version(unsigned minor, struct cpython_tasks *ret) must_use;
/* Takes what the first @len bytes of _PyRuntime say of 3.@minor (13 and newer) into @tasks.
 * *ret_interp_bytes: the size of an interpreter. -EINVAL: an offset is out of range, or the bytes
 * are too few. */
int cpython_tasks_take_runtime(const void *data, size_t len, unsigned minor,
			       struct cpython_tasks *tasks, uint64_t *ret_interp_bytes) must_use;
/* Takes struct _AsyncioDebug at @data into @tasks. -ENODATA: the bytes are no such struct of an
 * interpreter of @interp_bytes. -EOPNOTSUPP: they are, but a task is not as in the table. */
int cpython_tasks_take_debug(const uint8_t data[CPYTHON_ASYNCIO_DEBUG_BYTES], uint64_t interp_bytes,
			     struct cpython_tasks *tasks) must_use;

#endif
