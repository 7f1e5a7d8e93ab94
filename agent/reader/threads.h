/* SPDX-License-Identifier: Apache-2.0 */
/* The threads of any program in the shape of goroutines: what each does, what it waits for in the
 * kernel, its user stack; read from outside, without stopping it. See README.md "Threads". */
#ifndef PROFD_READER_THREADS_H
#define PROFD_READER_THREADS_H

#include "agent/base/cleanup.h"
#include "agent/reader/answer.h"
#include "agent/reader/row_tables.h"

#define THREADS_READ_MAX 65536u

/* Writes READ_THREAD records and what they refer to into @answer (not its end). With @with_tasks
 * also the asyncio tasks of a CPython process (task_records.h). At the deadline it
 * stops and marks the answer as sampled. -ESRCH, -EPERM, -ENOMEM, errors of the writer. */
int threads_read(struct answer *answer, struct row_tables *tables, bool with_tasks)
	must_use;

#endif
