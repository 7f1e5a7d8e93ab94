/* SPDX-License-Identifier: Apache-2.0 */
/* Announces processes, modules and stacks to the feed: samples name them by id only. A record that
 * does not fit into the ring is written later (announce_rest()). Loop thread only. */
#ifndef PROFD_COLLECT_ANNOUNCE_H
#define PROFD_COLLECT_ANNOUNCE_H

#include "agent/collect/collector_internal.h"

/* Writes @proc unless the feed has it as it is now. False: the ring is full. */
bool announce_proc(struct collector *c, struct proc *proc);
/* Writes the end of @proc once, if the feed knows the process. */
void announce_exit(struct collector *c, struct proc *proc);
/* Writes @module; nothing while its key is not known. False: the ring is full. */
bool announce_module(struct collector *c, struct module *module);
/* Writes the stack @id, which the server has asked for again. */
void announce_stack(struct collector *c, uint64_t id);
/* Writes the processes and modules that changed or did not fit before. */
void announce_rest(struct collector *c);
/* Writes all running processes and all modules again, for a new server. */
void announce_all(struct collector *c);

#endif
