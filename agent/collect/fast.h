/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that are sampled at more than the host's rate, by perf events of their own threads.
 * Loop thread only. */
#ifndef PROFD_COLLECT_FAST_H
#define PROFD_COLLECT_FAST_H

#include "agent/collect/collector_internal.h"

/* Sets the rate for all processes with PROF_WANT_FAST; 0 ends it. When the events cannot be opened,
 * sets c->fast_refused and no rate: the caller samples the whole host at that rate instead. */
void fast_set_rate(struct collector *c, uint32_t rate_hz);
/* Begins or ends the events of @proc after a decision about it. False: they cannot be opened; the
 * caller applies the demand again. */
bool fast_follow(struct collector *c, struct proc *proc);
/* @proc has ended. */
void fast_end(struct collector *c, struct proc *proc);

#endif
