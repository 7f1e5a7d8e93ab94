/* SPDX-License-Identifier: Apache-2.0 */
/* The asyncio tasks of a CPython process that are not done: name, state, chain of coroutines, and
 * which tasks await which. The target runs meanwhile; a task whose objects changed while they were
 * read is read again, and counts as moving after the third time.
 *
 * Tasks are listed as asyncio itself lists them: by the weak set in the module asyncio.tasks (3.8
 * to 3.13), or by the lists of each thread and interpreter (3.14). Only tasks of the extension
 * module _asyncio are read; a Task that is written in Python has its fields in a dict. */
#ifndef PROFD_READER_CPYTHON_TASKS_H
#define PROFD_READER_CPYTHON_TASKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/vec.h"
#include "agent/reader/target_maps.h"
#include "agent/reader/target_memory.h"
#include "agent/wire/control.h"

#define CPYTHON_TASKS_MAX     65536u
#define CPYTHON_TASK_NAME_MAX 127u /* bytes */

enum cpython_task_state {
	CPYTHON_TASK_READY, /* its loop will run it */
	CPYTHON_TASK_WAITING,
	CPYTHON_TASK_RUNNING,
};

enum cpython_task_wait {
	CPYTHON_WAIT_NONE,
	CPYTHON_WAIT_TASK,
	CPYTHON_WAIT_GATHER,
	CPYTHON_WAIT_FUTURE,
};

struct cpython_task {
	uint64_t va;
	char name[CPYTHON_TASK_NAME_MAX + 1]; /* UTF-8, "" = it cannot be read */
	enum cpython_task_state state;
	enum cpython_task_wait wait;
	bool is_moving; /* it changed during every attempt, or begins or ends to run: it has no places */
	bool is_cut;	/* its chain is longer than what was read */
	uint32_t place_first, place_count; /* in places, innermost first */
};

/* Task @awaiter waits until task @awaited is done; indices of tasks. */
struct cpython_await {
	uint32_t awaited, awaiter;
};

VEC_DEFINE(cpython_task_items, struct cpython_task);
VEC_DEFINE(cpython_task_places, struct control_script_place);
VEC_DEFINE(cpython_task_awaits, struct cpython_await);

struct cpython_task_list {
	struct cpython_task_items_vec tasks;
	struct cpython_task_places_vec places;
	struct cpython_task_awaits_vec awaits; /* ascending by awaited, each pair once */
	uint64_t listed;     /* tasks that asyncio lists, without those that are done */
	uint64_t foreign;    /* of them not of the class _asyncio.Task */
	uint64_t unreadable; /* of them without a coroutine that can be read, as of Cython */
	bool is_partial;     /* there are more: the deadline passed, or CPYTHON_TASKS_MAX */
};

/* Reads the tasks of the process. @python is what cpython_check() accepted. -EOPNOTSUPP: *ret_why,
 * a literal, says what is not supported. -ENOMEM, -ESRCH, -EPERM. Nothing to release then. */
int cpython_tasks_read(struct target *target, const struct target_maps *maps,
		       const struct script_python *python, uint64_t deadline_ns,
		       struct cpython_task_list *ret, const char **ret_why) must_use;
void cpython_task_list_deinit(struct cpython_task_list *list);

static inline void cleanup_cpython_task_list_fn(struct cpython_task_list *list)
{
	cpython_task_list_deinit(list);
}
#define cleanup_cpython_task_list __attribute__((__cleanup__(cleanup_cpython_task_list_fn)))

#endif
