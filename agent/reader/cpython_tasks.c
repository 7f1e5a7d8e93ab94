// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/cpython_tasks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/u64map.h"
#include "agent/reader/cpython_coroutine.h"
#include "agent/reader/cpython_objects.h"
#include "agent/runtimes/cpython_layout.h"
#include "agent/runtimes/cpython_tasks.h"

#define INTERPRETERS_MAX 64u
#define THREADS_MAX	 256u
#define ATTEMPTS	 3u
#define ATTRIBUTES_MAX	 16u
#define WEAKREF_OBJECT	 16u
#define MODULE_DICT	 16u
#define METHOD_SELF	 24u
#define PENDING		 0
#define AWAITS_MAX	 (4u * CPYTHON_TASKS_MAX)
#define PLACES_MAX	 (64u * CPYTHON_TASKS_MAX)
#define SCAN_CHUNK	 65536u
#define SCAN_MAX	 (8u << 20) /* bytes of writable data of one mapping */

struct tasks {
	struct cpython_objects objects;
	struct cpython_tasks layout;
	const struct target_maps *maps;
	const char *why;
	uint64_t deadline_ns;
	uint64_t heads[THREADS_MAX]; /* per thread: address of its innermost frame's address */
	size_t head_count;
	struct u64map seen;  /* address of a task -> index */
	struct u64map waits; /* index of a task -> the future that it waits for */
	struct cpython_task_list list;
	struct cpython_chain chain;
	uint64_t children[CPYTHON_TASKS_MAX];
	uint8_t scanned[SCAN_CHUNK];
};

static bool is_final(int rc)
{
	return rc == -ESRCH || rc == -EPERM || rc == -ENOMEM;
}

/* ---- one task -------------------------------------------------------------------------------- */

static int read_name(struct tasks *t, uint64_t task_va, char ret[CPYTHON_TASK_NAME_MAX + 1])
{
	uint64_t name_va, number;
	int rc = cpython_objects_word(&t->objects, task_va + t->layout.task_name, &name_va);

	if (rc < 0)
		return rc;
	if (cpython_objects_kind(&t->objects, name_va) != CPYTHON_INT)
		return cpython_objects_str(&t->objects, name_va, ret, CPYTHON_TASK_NAME_MAX + 1);
	/* Names that nobody has asked for are numbers. */
	rc = cpython_objects_int(&t->objects, name_va, &number);
	if (rc == 0)
		(void)snprintf(ret, CPYTHON_TASK_NAME_MAX + 1, "Task-%llu",
			       (unsigned long long)number);
	return rc;
}

/* The frames of a coroutine that runs are in the chain of one of the threads. */
static int add_running(struct tasks *t)
{
	int rc = -ENOENT;

	for (size_t i = 0; i < t->head_count && rc < 0 && !is_final(rc); i++) {
		uint64_t head_va = t->heads[i];

		/* A thread names its innermost frame directly, or through a structure in C. */
		rc = cpython_objects_word(&t->objects, head_va, &head_va);
		if (rc == 0 && (t->objects.python->chain == SCRIPT_PYTHON_IS_ENTRY ||
				t->objects.python->chain == SCRIPT_PYTHON_SHIM_CFRAME))
			rc = cpython_objects_word(&t->objects,
						  head_va + t->objects.python->cframe_frame, &head_va);
		if (rc == 0)
			rc = cpython_coroutine_running(&t->objects, head_va, &t->chain);
	}
	return rc;
}

static int read_wait(struct tasks *t, uint64_t task_va, struct cpython_task *task, uint64_t *waiter)
{
	int rc = cpython_objects_word(&t->objects, task_va + t->layout.task_waiter, waiter);

	if (rc < 0)
		return rc;
	if (t->chain.running_frame)
		task->state = CPYTHON_TASK_RUNNING;
	else if (!cpython_is_object(*waiter))
		task->state = CPYTHON_TASK_READY;
	else
		task->state = CPYTHON_TASK_WAITING;
	if (task->state != CPYTHON_TASK_WAITING) {
		*waiter = 0;
		return 0;
	}
	switch (cpython_objects_kind(&t->objects, *waiter)) {
	case CPYTHON_TASK:
		task->wait = CPYTHON_WAIT_TASK;
		break;
	case CPYTHON_GATHER:
		task->wait = CPYTHON_WAIT_GATHER;
		break;
	default:
		task->wait = CPYTHON_WAIT_FUTURE;
	}
	return 0;
}

/* 1: a task that is not done, 0: it is done. */
static int read_once(struct tasks *t, uint64_t task_va, struct cpython_task *task, uint64_t *waiter)
{
	uint64_t coroutine_va;
	int32_t state;
	int rc;

	*task = (struct cpython_task){ .va = task_va };
	*waiter = 0;
	cpython_objects_begin(&t->objects);
	rc = cpython_objects_read(&t->objects, task_va + t->layout.task_state, &state, sizeof(state));
	if (rc < 0 || state != PENDING)
		return rc;
	rc = cpython_objects_word(&t->objects, task_va + t->layout.task_coroutine, &coroutine_va);
	if (rc == 0)
		rc = cpython_coroutine_chain(&t->objects, &t->layout, coroutine_va, &t->chain);
	if (rc == 0)
		rc = read_wait(t, task_va, task, waiter);
	if (rc == 0)
		rc = read_name(t, task_va, task->name);
	if (rc == 0 && t->chain.running_frame) {
		rc = add_running(t);
		/* A thread that is about to run it, or just ran it, has its frames in no chain. */
		task->is_moving = rc < 0 && !is_final(rc);
		rc = task->is_moving ? 0 : rc;
	}
	return rc < 0 ? rc : 1;
}

static int keep(struct tasks *t, struct cpython_task *task, uint64_t waiter)
{
	struct cpython_task_list *list = &t->list;
	int rc = 0;

	task->place_first = (uint32_t)list->places.count;
	if (!task->is_moving && list->places.count + t->chain.count <= PLACES_MAX) {
		task->is_cut = t->chain.is_cut;
		task->place_count = (uint32_t)t->chain.count;
		for (size_t i = 0; rc == 0 && i < t->chain.count; i++)
			rc = cpython_task_places_vec_push(&list->places, t->chain.places[i]);
	}
	if (rc == 0)
		rc = u64map_put(&t->seen, task->va, list->tasks.count);
	if (rc == 0 && waiter)
		rc = u64map_put(&t->waits, list->tasks.count, waiter);
	return rc < 0 ? rc : cpython_task_items_vec_push(&list->tasks, *task);
}

static int take_task(struct tasks *t, uint64_t task_va)
{
	struct cpython_task task;
	uint64_t waiter;
	int rc = 0, same = 0;

	if (u64map_get(&t->seen, task_va, &(uint64_t){ 0 }))
		return 0;
	if (clock_monotonic_ns() > t->deadline_ns || t->list.listed >= CPYTHON_TASKS_MAX) {
		t->list.is_partial = true;
		return -EDOM; /* ends the listing */
	}
	for (unsigned i = 0; i < ATTEMPTS && same == 0; i++) {
		rc = read_once(t, task_va, &task, &waiter);
		same = is_final(rc) ? rc : cpython_objects_unchanged(&t->objects);
	}
	if (same < 0)
		return same;
	if (rc == 0 && same)
		return 0;
	t->list.listed++;
	if (rc < 0 && same) {
		t->list.unreadable++;
		return 0;
	}
	task.is_moving |= !same;
	/* A task that changes all the time is run by its loop all the time. */
	if (task.is_moving)
		waiter = 0;
	return keep(t, &task, waiter);
}

/* ---- listing: 3.8 to 3.13 -------------------------------------------------------------------- */

/* An element of a set of tasks, or of a weak set's set. */
static int take_element(void *ctx, uint64_t va)
{
	struct tasks *t = ctx;
	enum cpython_kind kind = cpython_objects_kind(&t->objects, va);
	uint64_t task_va = va;

	if (kind == CPYTHON_WEAKREF) {
		if (cpython_objects_word(&t->objects, va + WEAKREF_OBJECT, &task_va) < 0)
			return 0;
		kind = cpython_objects_kind(&t->objects, task_va);
		/* The referent of a dead reference is None; a Task in Python is of a class. */
		t->list.foreign += kind == CPYTHON_FOREIGN_TASK;
	}
	return kind == CPYTHON_TASK ? take_task(t, task_va) : 0;
}

/* A set that the program rebuilds meanwhile is read again: no task counts twice. */
static int take_elements(struct tasks *t, uint64_t set_va)
{
	int rc = -EAGAIN;

	for (unsigned i = 0; i < ATTEMPTS && rc < 0 && rc != -EDOM && !is_final(rc); i++)
		rc = cpython_objects_set(&t->objects, set_va, take_element, t);
	if (rc == 0 || rc == -EDOM || is_final(rc))
		return rc;
	t->list.is_partial = true;
	return 0;
}

/* The tasks in the set @name of the module asyncio.tasks, or in the sets of a weak set. */
static int take_set(struct tasks *t, uint64_t dict_va, const char *name)
{
	uint64_t values[ATTRIBUTES_MAX], va;
	int rc = cpython_objects_lookup(&t->objects, dict_va, name, &va), count;

	if (rc < 0)
		return is_final(rc) ? rc : -EINVAL;
	if (cpython_objects_kind(&t->objects, va) == CPYTHON_SET)
		return take_elements(t, va);
	count = cpython_objects_attributes(&t->objects, va, values, ATTRIBUTES_MAX);
	rc = count < 0 ? count : -EINVAL;
	for (int i = 0; i < count && (rc == 0 || rc == -EINVAL); i++)
		if (cpython_objects_kind(&t->objects, values[i]) == CPYTHON_SET)
			rc = take_elements(t, values[i]);
	return rc;
}

/* -ENOENT: the interpreter has not imported asyncio. */
static int take_module(struct tasks *t, uint64_t interpreter_va)
{
	uint64_t modules_va, module_va, dict_va;
	int rc = cpython_objects_word(&t->objects, interpreter_va + t->layout.interp_modules,
				      &modules_va);

	if (rc == 0 && cpython_objects_kind(&t->objects, modules_va) != CPYTHON_DICT)
		rc = -EINVAL;
	if (rc == 0)
		rc = cpython_objects_lookup(&t->objects, modules_va, "asyncio.tasks", &module_va);
	if (rc == 0)
		rc = cpython_objects_word(&t->objects, module_va + MODULE_DICT, &dict_va);
	if (rc < 0)
		return rc;
	if (cpython_minor(t->objects.python) < 12)
		return take_set(t, dict_va, "_all_tasks");
	rc = take_set(t, dict_va, "_scheduled_tasks");
	return rc < 0 ? rc : take_set(t, dict_va, "_eager_tasks");
}

/* ---- listing: 3.14 --------------------------------------------------------------------------- */

/* struct llist_node: next, prev. The list leads back to its head. */
static int take_links(struct tasks *t, uint64_t head_va)
{
	uint64_t node_va;
	int rc = cpython_objects_word(&t->objects, head_va, &node_va);

	for (unsigned i = 0; rc == 0 && node_va != head_va && i < CPYTHON_TASKS_MAX; i++) {
		const uint64_t task_va = node_va - t->layout.task_node;

		/* A node that has been taken out of the list meanwhile leads nowhere. */
		if (!cpython_is_object(task_va) ||
		    cpython_objects_kind(&t->objects, task_va) != CPYTHON_TASK) {
			t->list.is_partial |= node_va != 0;
			return 0;
		}
		rc = take_task(t, task_va);
		if (rc == 0)
			rc = cpython_objects_word(&t->objects, node_va, &node_va);
	}
	return is_final(rc) || rc == -EDOM ? rc : 0;
}

/* 1: it is found. */
static int scan(struct tasks *t, const struct target_map *map, uint64_t interp_bytes)
{
	const uint64_t end_va = map->end_va - map->start_va > SCAN_MAX ? map->start_va + SCAN_MAX
								       : map->end_va;

	for (uint64_t va = map->start_va; va < end_va; va += SCAN_CHUNK - CPYTHON_ASYNCIO_DEBUG_BYTES) {
		const size_t want = end_va - va < SCAN_CHUNK ? end_va - va : SCAN_CHUNK;
		ssize_t got = target_read_some(t->objects.target, va, t->scanned, want);

		if (got < 0)
			return is_final((int)got) ? (int)got : 0;
		for (size_t at = 0; at + CPYTHON_ASYNCIO_DEBUG_BYTES <= (size_t)got; at += 8) {
			int rc = cpython_tasks_take_debug(t->scanned + at, interp_bytes, &t->layout);

			if (rc != -ENODATA)
				return rc < 0 ? rc : 1;
		}
	}
	return 0;
}

static bool is_named(const struct tasks *t, const struct target_map *map, const char *text)
{
	const char *path = target_maps_path(t->maps, map->module), *slash = strrchr(path, '/');

	return strstr(slash ? slash + 1 : path, text) != NULL;
}

/* struct _AsyncioDebug is in the extension module, or in the interpreter's own file. */
static int find_debug(struct tasks *t, uint64_t interp_bytes)
{
	static const char *const names[] = { "_asyncio", "python" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		for (size_t at = 0; at < t->maps->count; at++) {
			const struct target_map *map = &t->maps->maps[at];
			int rc = map->prot & TARGET_MAP_WRITE && is_named(t, map, names[i])
					 ? scan(t, map, interp_bytes)
					 : 0;

			if (rc)
				return rc < 0 ? rc : 0;
		}
	}
	return -ENOENT; /* asyncio is not imported */
}

/* ---- interpreters and threads ---------------------------------------------------------------- */

static int each_thread(struct tasks *t, uint64_t interpreter_va,
		       int (*each)(struct tasks *t, uint64_t thread_va))
{
	const struct script_python *python = t->objects.python;
	uint64_t va;
	int rc = cpython_objects_word(&t->objects, interpreter_va + python->interp_threads, &va);

	for (unsigned i = 0; rc == 0 && i < THREADS_MAX && cpython_is_object(va); i++) {
		rc = each(t, va);
		if (rc == 0)
			rc = cpython_objects_word(&t->objects, va + python->thread_next, &va);
	}
	return is_final(rc) || rc == -EDOM ? rc : 0;
}

static int note_head(struct tasks *t, uint64_t thread_va)
{
	if (t->head_count < THREADS_MAX)
		t->heads[t->head_count++] = thread_va + t->objects.python->thread_frame;
	return 0;
}

static int take_thread(struct tasks *t, uint64_t thread_va)
{
	return take_links(t, thread_va + t->layout.thread_list);
}

static int take_interpreter(struct tasks *t, uint64_t interpreter_va)
{
	int rc;

	t->head_count = 0;
	rc = each_thread(t, interpreter_va, note_head);
	if (rc == 0)
		rc = take_module(t, interpreter_va);
	if (rc == -ENOENT)
		return 0;
	if (rc < 0 || !t->layout.thread_list)
		return rc;
	rc = each_thread(t, interpreter_va, take_thread);
	return rc < 0 ? rc : take_links(t, interpreter_va + t->layout.interp_list);
}

static int take_interpreters(struct tasks *t)
{
	const struct script_python *python = t->objects.python;
	uint64_t va;
	int rc = cpython_objects_word(&t->objects, python->runtime + python->runtime_interpreters, &va);

	for (unsigned i = 0; rc == 0 && i < INTERPRETERS_MAX && cpython_is_object(va); i++) {
		rc = take_interpreter(t, va);
		if (rc == 0)
			rc = cpython_objects_word(&t->objects, va + python->interp_next, &va);
	}
	return rc == -EDOM ? 0 : rc;
}

/* ---- who awaits whom ------------------------------------------------------------------------- */

/* The task at @awaited_va is awaited by the task @awaiter. */
static int add_await(struct tasks *t, uint64_t awaited_va, uint64_t awaiter)
{
	uint64_t index;

	if (!u64map_get(&t->seen, awaited_va, &index) || t->list.awaits.count >= AWAITS_MAX)
		return 0;
	return cpython_task_awaits_vec_push(&t->list.awaits,
					    (struct cpython_await){ (uint32_t)index, (uint32_t)awaiter });
}

/* asyncio.gather() keeps the futures that it waits for in a list of its own future. */
static int add_gathered(struct tasks *t, uint64_t gather_va, uint64_t awaiter)
{
	uint64_t values[ATTRIBUTES_MAX];
	int count = cpython_objects_attributes(&t->objects, gather_va, values, ATTRIBUTES_MAX), rc = 0;

	for (int i = 0; i < count && rc == 0; i++) {
		int children;

		if (cpython_objects_kind(&t->objects, values[i]) != CPYTHON_LIST)
			continue;
		children = cpython_objects_list(&t->objects, values[i], t->children, CPYTHON_TASKS_MAX);
		for (int child = 0; child < children && rc == 0; child++)
			rc = add_await(t, t->children[child], awaiter);
	}
	return is_final(count) ? count : rc;
}

/* A TaskGroup is told when its tasks are done by a method of its own. It has the task that awaits
 * them, and the future by which that task waits, among its attributes. */
static int add_grouped(struct tasks *t, uint64_t task)
{
	uint64_t values[ATTRIBUTES_MAX], va, group_va, parent, waiter;
	const uint64_t task_va = t->list.tasks.data[task].va;
	int rc = cpython_objects_word(&t->objects, task_va + t->layout.task_callback, &va), count;

	if (rc == 0 && cpython_objects_kind(&t->objects, va) != CPYTHON_METHOD)
		return 0;
	if (rc == 0)
		rc = cpython_objects_word(&t->objects, va + METHOD_SELF, &group_va);
	count = rc == 0 ? cpython_objects_attributes(&t->objects, group_va, values, ATTRIBUTES_MAX) : rc;
	for (int i = 0; i < count; i++) {
		if (!u64map_get(&t->seen, values[i], &parent) || !u64map_get(&t->waits, parent, &waiter))
			continue;
		for (int k = 0; k < count; k++)
			if (values[k] == waiter)
				return add_await(t, task_va, parent);
	}
	return is_final(count) ? count : 0;
}

struct awaited {
	struct tasks *t;
	uint64_t task; /* index */
};

static int add_awaiter(void *ctx, uint64_t va)
{
	const struct awaited *awaited = ctx;
	uint64_t awaiter;

	if (!u64map_get(&awaited->t->seen, va, &awaiter))
		return 0;
	return add_await(awaited->t, awaited->t->list.tasks.data[awaited->task].va, awaiter);
}

/* 3.14: the task says itself which tasks await it. */
static int add_awaiters(struct tasks *t, uint64_t task)
{
	const uint64_t task_va = t->list.tasks.data[task].va;
	struct awaited awaited = { t, task };
	uint64_t va;
	uint8_t is_set = 0;
	int rc = cpython_objects_word(&t->objects, task_va + t->layout.task_awaited_by, &va);

	if (rc == 0)
		rc = cpython_objects_read(&t->objects, task_va + t->layout.task_is_set, &is_set,
					  sizeof(is_set));
	if (rc == 0 && va)
		rc = is_set ? cpython_objects_set(&t->objects, va, add_awaiter, &awaited)
			    : add_awaiter(&awaited, va);
	return is_final(rc) ? rc : 0;
}

static int by_awaited(const void *left, const void *right)
{
	const struct cpython_await *a = left, *b = right;

	if (a->awaited != b->awaited)
		return a->awaited < b->awaited ? -1 : 1;
	return (a->awaiter > b->awaiter) - (a->awaiter < b->awaiter);
}

static void sort_awaits(struct cpython_task_awaits_vec *awaits)
{
	size_t used = 0;

	if (awaits->count)
		qsort(awaits->data, awaits->count, sizeof(awaits->data[0]), by_awaited);
	for (size_t i = 0; i < awaits->count; i++)
		if (!used || by_awaited(&awaits->data[used - 1], &awaits->data[i]))
			awaits->data[used++] = awaits->data[i];
	awaits->count = used;
}

static int find_awaits(struct tasks *t)
{
	int rc = 0;

	for (uint64_t i = 0; rc == 0 && i < t->list.tasks.count; i++) {
		uint64_t waiter;

		if (clock_monotonic_ns() > t->deadline_ns) {
			t->list.is_partial = true;
			break;
		}
		if (t->layout.task_awaited_by) {
			rc = add_awaiters(t, i);
			continue;
		}
		rc = add_grouped(t, i);
		if (rc < 0 || !u64map_get(&t->waits, i, &waiter))
			continue;
		rc = t->list.tasks.data[i].wait == CPYTHON_WAIT_GATHER ? add_gathered(t, waiter, i)
								       : add_await(t, waiter, i);
	}
	sort_awaits(&t->list.awaits);
	return rc;
}

/* ---- whole ----------------------------------------------------------------------------------- */

static int find_layout(struct tasks *t)
{
	const struct script_python *python = t->objects.python;
	uint8_t runtime[CPYTHON_DEBUG_OFFSETS_BYTES];
	uint64_t interp_bytes;
	int rc = cpython_tasks_of_version(cpython_minor(python), &t->layout);

	if (python->flags & SCRIPT_PYTHON_FREE_THREADED)
		rc = -EOPNOTSUPP;
	if (rc < 0)
		t->why = "the layout of asyncio's tasks in this build of Python is not known";
	if (rc < 0 || cpython_minor(python) < 13)
		return rc;
	rc = cpython_objects_read(&t->objects, python->runtime, runtime, sizeof(runtime));
	if (rc == 0)
		rc = cpython_tasks_take_runtime(runtime, sizeof(runtime), cpython_minor(python),
						&t->layout, &interp_bytes);
	if (rc == 0 && cpython_minor(python) >= 14)
		rc = find_debug(t, interp_bytes);
	if (rc < 0 && !is_final(rc) && rc != -ENOENT) {
		t->why = "asyncio's tasks are not laid out as in other builds of this version of Python";
		rc = -EOPNOTSUPP;
	}
	return rc;
}

static void tasks_destroy(struct tasks *t)
{
	u64map_deinit(&t->seen);
	u64map_deinit(&t->waits);
	cpython_task_list_deinit(&t->list);
	free(t);
}
CLEANUP_DEFINE(tasks, struct tasks *, tasks_destroy);

int cpython_tasks_read(struct target *target, const struct target_maps *maps,
		       const struct script_python *python, uint64_t deadline_ns,
		       struct cpython_task_list *ret, const char **ret_why)
{
	cleanup(tasks) struct tasks *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return -ENOMEM;
	t->objects.target = target;
	t->objects.python = python;
	t->maps = maps;
	t->deadline_ns = deadline_ns;
	rc = find_layout(t);
	if (rc == 0)
		rc = take_interpreters(t);
	if (rc == 0)
		rc = find_awaits(t);
	if (rc == -ENOENT)
		rc = 0; /* asyncio is not imported */
	if (rc < 0 && !is_final(rc) && !t->why)
		t->why = "asyncio's tasks are not where this version of Python has them";
	if (rc < 0) {
		*ret_why = t->why;
		return is_final(rc) ? rc : -EOPNOTSUPP;
	}
	*ret = t->list;
	t->list = (struct cpython_task_list){ 0 };
	return 0;
}

void cpython_task_list_deinit(struct cpython_task_list *list)
{
	cpython_task_items_vec_deinit(&list->tasks);
	cpython_task_places_vec_deinit(&list->places);
	cpython_task_awaits_vec_deinit(&list->awaits);
	*list = (struct cpython_task_list){ 0 };
}
