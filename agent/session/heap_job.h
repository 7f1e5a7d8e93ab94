/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a memory session of programs that are not Go: the reader walks their heaps, so that the session
 * knows how much is in use in all, whenever it was allocated; and its beginning, unless it is short, so that it knows
 * by how much it has grown; and now and then in between, so that it knows which sizes of blocks became more all the time
 * (heap_growth.h). On the reading thread, without the lock but
 * for the moments in which it looks at the session. */
#ifndef PROFD_SESSION_HEAP_JOB_H
#define PROFD_SESSION_HEAP_JOB_H

#include "agent/session/read_job.h"

struct session;
struct sessions;

/* Its heaps are to be walked now. Lock held. */
bool heap_job_is_due(const struct session *session);
void heap_job_run(struct sessions *s, const struct read_job *job);

#endif
