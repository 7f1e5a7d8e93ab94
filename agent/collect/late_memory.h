/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the stacks of sleeping threads. The kernel sends their registers; a child process reads
 * the memory, because a read may block for ever (userfaultfd, FUSE, a process that is stuck), and
 * walks the stacks. The child is killed when it takes too long; its stacks then stay what the
 * kernel could say. Loop thread only. */
#ifndef PROFD_COLLECT_LATE_MEMORY_H
#define PROFD_COLLECT_LATE_MEMORY_H

#include "agent/collect/collector_internal.h"

/* Starts a child if stacks lack memory, and ends one that takes too long. */
void late_memory_sweep(struct collector *c, uint64_t now_ns);
/* Takes what the child has answered; c->late_memory.fd is readable. */
void late_memory_receive(struct collector *c);
/* Kills the child, if there is one. */
void late_memory_stop(struct collector *c);

#endif
