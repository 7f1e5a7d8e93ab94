/* SPDX-License-Identifier: Apache-2.0 */
/* A small Python process's memory with asyncio tasks, as 3.8 to 3.14 lay it out: what the reader of
 * tasks looks at, and nothing else. Used with tests/fuzz/fake_memory.h. The tasks:
 *
 *   main     waits for gather() of "left" and "right"
 *   left     coroutine, asynchronous generator, future
 *   right    waits for "runs"
 *   runs     runs; its thread has two frames above the coroutine's
 *   group    a TaskGroup waits for "member"
 *   member   is ready; its name is the int 7 from 3.12 on
 *
 * Beside them one task that is done, a dead reference, a task of a class that is written in Python
 * and one whose coroutine is none. */
#ifndef PROFD_TEST_ASYNCIO_HEAP_H
#define PROFD_TEST_ASYNCIO_HEAP_H

#include <stdlib.h>
#include <string.h>

#include "agent/runtimes/cpython_layout.h"
#include "agent/runtimes/cpython_tasks.h"

#define ASYNCIO_HEAP_BYTES    32768u
#define ASYNCIO_INTERP_BYTES  0x1000u
#define ASYNCIO_THREAD_BYTES  0x400u
#define ASYNCIO_RUNTIME_HEAD  640u /* 3.13 and newer: where the first interpreter's address is */
#define ASYNCIO_MODULES_AT    0x200u
#define ASYNCIO_INTERP_LIST   0x300u
#define ASYNCIO_THREAD_LIST   0x368u
#define ASYNCIO_TASK_BYTES    192u
#define ASYNCIO_TASK_NODE     152u
#define ASYNCIO_AWAITED_BY    96u
#define ASYNCIO_AWAITED_SET   109u
#define ASYNCIO_TASKS	      6u /* that are read */

enum asyncio_code { ASYNCIO_OUTER, ASYNCIO_INNER, ASYNCIO_CALLED, ASYNCIO_CODES };

struct asyncio_heap {
	uint8_t *bytes; /* ASYNCIO_HEAP_BYTES, lent */
	uint64_t base;
	uint32_t used;
	unsigned minor;
	struct script_python python;
	struct cpython_tasks layout;
	uint64_t type_type, str, integer, dict, list, set, weakref, module, method, coroutine, generator,
		wrapper, future, gathering, task, derived, foreign, weak_set, group, cython;
	uint64_t codes[ASYNCIO_CODES];
	uint64_t interp, thread, debug;
	uint64_t tasks[16];
	unsigned task_count;
};

static inline void asyncio_put(struct asyncio_heap *h, uint64_t va, uint64_t value)
{
	if (va - h->base > ASYNCIO_HEAP_BYTES - sizeof(value))
		abort();
	memcpy(h->bytes + (va - h->base), &value, sizeof(value));
}

static inline void asyncio_put_byte(struct asyncio_heap *h, uint64_t va, uint8_t value)
{
	h->bytes[va - h->base] = value;
}

static inline uint64_t asyncio_take(struct asyncio_heap *h, uint32_t bytes)
{
	uint64_t va = h->base + h->used;

	h->used += (bytes + 15) & ~15u;
	if (h->used > ASYNCIO_HEAP_BYTES)
		abort();
	return va;
}

static inline uint64_t asyncio_object(struct asyncio_heap *h, uint64_t type, uint32_t bytes)
{
	uint64_t va = asyncio_take(h, bytes);

	asyncio_put(h, va, 1);
	asyncio_put(h, va + 8, type);
	return va;
}

static inline uint64_t asyncio_type(struct asyncio_heap *h, const char *name, uint64_t base,
				    uint64_t dict_at, uint64_t flags)
{
	uint64_t va = asyncio_object(h, h->type_type, 296), text = asyncio_take(h, 32);

	memcpy(h->bytes + (text - h->base), name, strlen(name));
	asyncio_put(h, va + 24, text);
	asyncio_put(h, va + 32, 16);
	asyncio_put(h, va + 168, flags);
	asyncio_put(h, va + 256, base);
	asyncio_put(h, va + 288, dict_at);
	return va;
}

static inline uint64_t asyncio_str(struct asyncio_heap *h, const char *text)
{
	uint64_t va = asyncio_object(h, h->str, 80);

	asyncio_put(h, va + 16, strlen(text));
	asyncio_put(h, va + 32, 0x64); /* ASCII, compact, a byte for each character */
	memcpy(h->bytes + (va - h->base) + h->python.str_ascii_data, text, strlen(text));
	return va;
}

static inline uint64_t asyncio_dict(struct asyncio_heap *h, unsigned count, const uint64_t *keys,
				    const uint64_t *values)
{
	const bool is_old = h->minor <= 10;
	uint64_t va = asyncio_object(h, h->dict, 48), at = asyncio_take(h, 48 + 8 + 24 * 8);

	asyncio_put(h, va + 16, count);
	asyncio_put(h, va + 32, at);
	asyncio_put(h, at + 8, is_old ? 8 : 3 | 3 << 8);
	asyncio_put(h, at + (is_old ? 32 : 24), count);
	at += (is_old ? 40 : 32) + 8;
	for (unsigned i = 0; i < count; i++) {
		asyncio_put(h, at + 24 * i + 8, keys[i]);
		asyncio_put(h, at + 24 * i + 16, values[i]);
	}
	return va;
}

static inline uint64_t asyncio_set(struct asyncio_heap *h, unsigned count, const uint64_t *elements)
{
	uint64_t va = asyncio_object(h, h->set, 64), table = asyncio_take(h, 16 * 16);

	asyncio_put(h, va + 16, count);
	asyncio_put(h, va + 24, count);
	asyncio_put(h, va + 32, 15);
	asyncio_put(h, va + 40, table);
	for (unsigned i = 0; i < count; i++)
		asyncio_put(h, table + 16 * i, elements[i]);
	return va;
}

static inline uint64_t asyncio_pointer(struct asyncio_heap *h, uint64_t type, uint32_t at,
				       uint64_t to)
{
	uint64_t va = asyncio_object(h, type, 48);

	asyncio_put(h, va + at, to);
	return va;
}

/* An instance of a class that is written in Python. */
static inline uint64_t asyncio_instance(struct asyncio_heap *h, uint64_t type, unsigned count,
					const uint64_t *values)
{
	uint64_t va, at;

	(void)asyncio_take(h, 48);
	va = asyncio_object(h, type, 128);
	if (h->minor <= 10) {
		uint64_t keys[8];

		for (unsigned i = 0; i < count; i++)
			keys[i] = asyncio_str(h, "attribute");
		asyncio_put(h, va + 16, asyncio_dict(h, count, keys, values));
		return va;
	}
	at = h->minor >= 13 ? va + 16 : asyncio_take(h, 128);
	if (h->minor == 11)
		asyncio_put(h, va - 32, at);
	else if (h->minor == 12)
		asyncio_put(h, va - 24, at - 1);
	else
		asyncio_put(h, at, count);
	for (unsigned i = 0; i < count; i++)
		asyncio_put(h, at + (h->minor >= 13 ? 8 : 0) + 8 * i, values[i]);
	return va;
}

/* ---- coroutines ------------------------------------------------------------------------------ */

/* A code object of two instructions: the second is what follows a suspension. */
static inline uint64_t asyncio_code(struct asyncio_heap *h)
{
	uint64_t va = asyncio_object(h, h->type_type, 256), bytes;

	asyncio_put(h, va + h->python.cookie_at, va);
	if (h->minor <= 10) {
		bytes = asyncio_object(h, h->type_type, 48);
		asyncio_put(h, va + 48, bytes);
		asyncio_put_byte(h, bytes + 32 + 2, 72); /* YIELD_FROM */
	} else {
		asyncio_put_byte(h, va + h->python.code_bytecode + 2, 151); /* RESUME */
		asyncio_put_byte(h, va + h->python.code_bytecode + 3, 3);
	}
	return va;
}

static inline void asyncio_frame(struct asyncio_heap *h, uint64_t va, enum asyncio_code code,
				 uint64_t previous, uint64_t awaited)
{
	const struct script_python *python = &h->python;

	asyncio_put(h, va + python->frame_code, h->codes[code]);
	asyncio_put(h, va + python->frame_previous, previous);
	if (h->minor >= 11)
		asyncio_put(h, va + python->frame_instr, h->codes[code] + python->code_bytecode);
	if (h->minor <= 9) {
		asyncio_put(h, va + 72, va + 128);
		asyncio_put(h, va + 120, awaited);
	} else if (h->minor == 10) {
		asyncio_put(h, va + 64, va + 120);
		asyncio_put(h, va + 80, 1);
		asyncio_put(h, va + 120, awaited);
		asyncio_put_byte(h, va + 108, (uint8_t)-1);
	} else if (h->minor <= 13) {
		asyncio_put(h, va + 72, awaited);
		asyncio_put_byte(h, va + 64, 1);
	} else {
		asyncio_put(h, va + 80, awaited | 1);
		asyncio_put(h, va + 64, va + 88);
	}
}

/* A coroutine, generator or asynchronous generator. @state as gi_frame_state of the version: 0
 * runs, -1 waits for @awaited. *ret_frame may be NULL. */
static inline uint64_t asyncio_coroutine(struct asyncio_heap *h, uint64_t type,
					 enum asyncio_code code, int8_t state, uint64_t awaited,
					 uint64_t *ret_frame)
{
	uint64_t va = asyncio_object(h, type, 288);
	uint64_t frame = h->minor <= 10 ? asyncio_object(h, h->type_type, 160)
					: va + h->layout.coroutine_frame;

	if (h->minor <= 10)
		asyncio_put(h, va + 16, frame);
	asyncio_frame(h, frame, code, 0, awaited);
	if (h->minor <= 9)
		asyncio_put_byte(h, va + 24, state == 0);
	else if (h->minor == 10)
		asyncio_put_byte(h, frame + 108, (uint8_t)state);
	else
		asyncio_put_byte(h, va + h->layout.coroutine_state, (uint8_t)state);
	if (ret_frame)
		*ret_frame = frame;
	return va;
}

static inline uint64_t asyncio_task(struct asyncio_heap *h, uint64_t type, uint64_t name,
				    uint64_t coroutine, uint64_t waiter)
{
	uint64_t va = asyncio_object(h, type, ASYNCIO_TASK_BYTES);

	asyncio_put(h, va + h->layout.task_name, name);
	asyncio_put(h, va + h->layout.task_coroutine, coroutine);
	asyncio_put(h, va + h->layout.task_waiter, waiter);
	h->tasks[h->task_count++] = va;
	return va;
}

/* ---- the process ----------------------------------------------------------------------------- */

static inline void asyncio_layout(struct asyncio_heap *h, unsigned minor)
{
	h->minor = minor;
	if (cpython_layout_of_version(minor < 12 ? minor : 12, &h->python) < 0 ||
	    cpython_tasks_of_version(minor, &h->layout) < 0)
		abort();
	h->python.runtime = h->base;
	if (minor <= 12)
		return;
	h->python.version = (uint16_t)(0x0300 | minor);
	h->python.chain = SCRIPT_PYTHON_SHIM;
	h->python.frame_entry = minor == 13 ? 70 : 74;
	h->python.runtime_interpreters = ASYNCIO_RUNTIME_HEAD;
}

static inline void asyncio_types(struct asyncio_heap *h)
{
	const uint64_t in_dict = h->minor <= 10 ? 16 : (uint64_t)-1;
	const uint64_t flags = h->minor >= 13 ? 4 : 0;

	h->type_type = asyncio_take(h, 16);
	h->str = asyncio_type(h, "str", 0, 0, 0);
	h->integer = asyncio_type(h, "int", 0, 0, 0);
	h->dict = asyncio_type(h, "dict", 0, 0, 0);
	h->list = asyncio_type(h, "list", 0, 0, 0);
	h->set = asyncio_type(h, "set", 0, 0, 0);
	h->weakref = asyncio_type(h, "weakref.ReferenceType", 0, 0, 0);
	h->module = asyncio_type(h, "module", 0, 0, 0);
	h->method = asyncio_type(h, "method", 0, 0, 0);
	h->coroutine = asyncio_type(h, "coroutine", 0, 0, 0);
	h->generator = asyncio_type(h, "async_generator", 0, 0, 0);
	h->wrapper = asyncio_type(h, "async_generator_asend", 0, 0, 0);
	h->future = asyncio_type(h, "_asyncio.Future", 0, 0, 0);
	h->gathering = asyncio_type(h, "_GatheringFuture", h->future, in_dict, flags);
	h->task = asyncio_type(h, "_asyncio.Task", h->future, 0, 0);
	h->derived = asyncio_type(h, "Derived", h->task, 0, 0);
	h->foreign = asyncio_type(h, "Task", 0, in_dict, flags);
	h->weak_set = asyncio_type(h, "WeakSet", 0, in_dict, flags);
	h->group = asyncio_type(h, "TaskGroup", 0, in_dict, flags);
	h->cython = asyncio_type(h, "_cython_3_0.coroutine", 0, 0, 0);
}

static inline void asyncio_tasks(struct asyncio_heap *h)
{
	uint64_t frame, future = asyncio_object(h, h->future, 128), values[4], left, right, runs, items;
	uint64_t main_task, gather, completed = asyncio_object(h, h->future, 128), group, member, parent;
	uint64_t inner = asyncio_coroutine(h, h->generator, ASYNCIO_INNER, -1, future, NULL);
	uint64_t wrapper = asyncio_pointer(h, h->wrapper, 16, inner), called, name;

	left = asyncio_task(h, h->task, asyncio_str(h, "left"),
			    asyncio_coroutine(h, h->coroutine, ASYNCIO_OUTER, -1, wrapper, NULL), future);
	runs = asyncio_task(h, h->derived, asyncio_str(h, "runs"),
			    asyncio_coroutine(h, h->coroutine, ASYNCIO_OUTER, 0, 0, &frame), 0);
	right = asyncio_task(h, h->task, asyncio_str(h, "right"),
			     asyncio_coroutine(h, h->coroutine, ASYNCIO_OUTER, -1, runs, NULL), runs);
	items = asyncio_take(h, 16);
	asyncio_put(h, items, left);
	asyncio_put(h, items + 8, right);
	values[0] = asyncio_pointer(h, h->list, 24, items);
	asyncio_put(h, values[0] + 16, 2);
	gather = asyncio_instance(h, h->gathering, 1, values);
	main_task = asyncio_task(h, h->task, asyncio_str(h, "main"),
				 asyncio_coroutine(h, h->coroutine, ASYNCIO_OUTER, -1, gather, NULL),
				 gather);
	parent = asyncio_task(h, h->task, asyncio_str(h, "group"),
			      asyncio_coroutine(h, h->coroutine, ASYNCIO_OUTER, -1, completed, NULL),
			      completed);
	values[0] = future;
	values[1] = parent;
	values[2] = completed;
	group = asyncio_instance(h, h->group, 3, values);
	name = h->minor >= 12 ? asyncio_object(h, h->integer, 32) : asyncio_str(h, "Task-7");
	if (h->minor >= 12) {
		asyncio_put(h, name + 16, 1 << 3);
		asyncio_put(h, name + 24, 7);
	}
	member = asyncio_task(h, h->task, name,
			      asyncio_coroutine(h, h->coroutine, ASYNCIO_OUTER, -1, 0, NULL), 0);
	asyncio_put(h, member + h->layout.task_callback, asyncio_pointer(h, h->method, 24, group));
	(void)asyncio_task(h, h->task, asyncio_str(h, "of Cython"), asyncio_object(h, h->cython, 32), 0);
	(void)asyncio_task(h, h->task, asyncio_str(h, "done"), inner, 0);
	asyncio_put(h, h->tasks[h->task_count - 1] + h->layout.task_state, 2);
	/* The frames of the thread: a called function, another, the coroutine that runs. */
	called = asyncio_take(h, 512);
	asyncio_frame(h, called + 256, ASYNCIO_CALLED, frame, 0);
	asyncio_frame(h, called, ASYNCIO_CALLED, called + 256, 0);
	asyncio_put(h, h->thread + h->python.thread_frame, called);
	if (h->minor == 11 || h->minor == 12) {
		asyncio_put(h, h->thread + h->python.thread_frame, h->thread + 0x200);
		asyncio_put(h, h->thread + 0x200 + h->python.cframe_frame, called);
	}
	if (h->minor < 14)
		return;
	asyncio_put(h, right + ASYNCIO_AWAITED_BY, main_task);
	asyncio_put(h, left + ASYNCIO_AWAITED_BY, asyncio_set(h, 1, &main_task));
	asyncio_put_byte(h, left + ASYNCIO_AWAITED_SET, 1);
	asyncio_put(h, runs + ASYNCIO_AWAITED_BY, right);
	asyncio_put(h, member + ASYNCIO_AWAITED_BY, parent);
}

/* 3.14: the tasks hang on the thread's list but for the last two, whose thread has ended. */
static inline void asyncio_link(struct asyncio_heap *h)
{
	const uint64_t debug[] = { ASYNCIO_TASK_BYTES,
				   h->layout.task_name,
				   ASYNCIO_AWAITED_BY,
				   ASYNCIO_AWAITED_SET - 1,
				   ASYNCIO_AWAITED_SET,
				   h->layout.task_coroutine,
				   ASYNCIO_TASK_NODE,
				   ASYNCIO_INTERP_BYTES,
				   ASYNCIO_INTERP_LIST,
				   ASYNCIO_THREAD_BYTES,
				   ASYNCIO_THREAD_LIST - 16,
				   ASYNCIO_THREAD_LIST - 8,
				   ASYNCIO_THREAD_LIST };
	uint64_t heads[] = { h->thread + ASYNCIO_THREAD_LIST, h->interp + ASYNCIO_INTERP_LIST };
	uint64_t at;

	h->debug = asyncio_take(h, sizeof(debug));
	memcpy(h->bytes + (h->debug - h->base), debug, sizeof(debug));
	for (unsigned k = 0; k < 2; k++) {
		const unsigned from = k ? h->task_count - 2 : 0, to = k ? h->task_count : h->task_count - 2;

		at = heads[k];
		for (unsigned i = from; i < to; i++) {
			asyncio_put(h, at, h->tasks[i] + ASYNCIO_TASK_NODE);
			at = h->tasks[i] + ASYNCIO_TASK_NODE;
		}
		asyncio_put(h, at, heads[k]);
	}
}

/* sys.modules, with the module asyncio.tasks and its weak sets. */
static inline void asyncio_modules(struct asyncio_heap *h)
{
	const char *const names[] = { h->minor < 12 ? "_all_tasks" : "_scheduled_tasks", "_eager_tasks" };
	uint64_t references[16], values[2], keys[2], module, data;
	unsigned count = 0;

	for (unsigned i = 0; i < h->task_count && h->minor < 14; i++)
		references[count++] = asyncio_pointer(h, h->weakref, 16, h->tasks[i]);
	references[count++] = asyncio_pointer(h, h->weakref, 16, 0);
	references[count++] = asyncio_pointer(h, h->weakref, 16, asyncio_object(h, h->foreign, 32));
	data = asyncio_set(h, count, references);
	values[0] = asyncio_instance(h, h->weak_set, 1, &data);
	values[1] = asyncio_set(h, 0, NULL);
	keys[0] = asyncio_str(h, names[0]);
	keys[1] = asyncio_str(h, names[1]);
	module = asyncio_pointer(h, h->module, 16, asyncio_dict(h, 2, keys, values));
	keys[0] = asyncio_str(h, "sys");
	keys[1] = asyncio_str(h, "asyncio.tasks");
	values[0] = values[1] = module;
	asyncio_put(h, h->interp + (h->minor < 13 ? h->layout.interp_modules : ASYNCIO_MODULES_AT),
		    asyncio_dict(h, 2, keys, values));
}

/* Builds the heap of 3.@minor at @bytes, whose address in the process is @base. */
static inline void asyncio_heap_build(struct asyncio_heap *h, uint8_t *bytes, uint64_t base,
				      unsigned minor)
{
	*h = (struct asyncio_heap){ .bytes = bytes, .base = base };
	memset(bytes, 0, ASYNCIO_HEAP_BYTES);
	asyncio_layout(h, minor);
	(void)asyncio_take(h, 1024); /* _PyRuntime */
	h->interp = asyncio_take(h, ASYNCIO_INTERP_BYTES);
	h->thread = asyncio_take(h, ASYNCIO_THREAD_BYTES);
	if (minor >= 13) {
		asyncio_put(h, base + 8 * 6, ASYNCIO_INTERP_BYTES);
		asyncio_put(h, base + 8 * (minor == 13 ? 11 : 12), ASYNCIO_MODULES_AT);
	}
	asyncio_put(h, base + h->python.runtime_interpreters, h->interp);
	asyncio_put(h, h->interp + h->python.interp_threads, h->thread);
	asyncio_types(h);
	for (unsigned i = 0; i < ASYNCIO_CODES; i++)
		h->codes[i] = asyncio_code(h);
	asyncio_tasks(h);
	asyncio_modules(h);
	if (minor >= 14)
		asyncio_link(h);
}

#endif
