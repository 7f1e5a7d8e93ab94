/* SPDX-License-Identifier: Apache-2.0 */
/* asyncio tasks in the shape of goroutines: records of an answer. A task's stack is its chain of
 * coroutines, innermost first, then the marker TASK_MARKER, then the chain of the task that awaits
 * it, and so on while exactly one task awaits. */
#ifndef PROFD_READER_TASK_RECORDS_H
#define PROFD_READER_TASK_RECORDS_H

#include "agent/base/cleanup.h"
#include "agent/reader/answer.h"
#include "bpf/script.h"

#define TASK_MARKER	      "[task]" /* outer end of a task's own chain */
#define TASK_LABEL_NAME	      "task"
#define TASK_LABEL_AWAITED_BY "awaitedBy" /* names of tasks, separated by commas */

/* Writes a READ_GOROUTINE record for each task of the process that is not done, and a READ_NOTE
 * about tasks that are left out. @python is what cpython_check() accepted; NULL: @why the threads'
 * Python cannot be read. -ESRCH, -EPERM, -ENOMEM, errors of the writer. */
int task_records_write(struct answer *answer, const struct script_python *python, const char *why)
	must_use;

#endif
