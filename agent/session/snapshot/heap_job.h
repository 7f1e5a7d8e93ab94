/* SPDX-License-Identifier: Apache-2.0 */
/* Heap walks of a memory session of programs that are not Go. The walk at the end tells how much
 * memory is in use in all, whenever it was allocated. The walk at the beginning, left out for short
 * sessions, tells by how much the heap grew. Walks in between tell which sizes of blocks became
 * more all the time (heap_growth.h). The reading thread runs this, without the lock except while it
 * looks at the session. */
#ifndef PROFD_SESSION_HEAP_JOB_H
#define PROFD_SESSION_HEAP_JOB_H

#include "agent/session/snapshot/read_job.h"

struct session;
struct sessions;

void heap_job_run(struct sessions *s, const struct read_job *job);

#endif
