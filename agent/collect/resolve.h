/* SPDX-License-Identifier: Apache-2.0 */
/* Turns the frames of a stack into the ids of the feed. Modules become their canonical modules.
 * Addresses become modules by the mappings of the process at that time. Kernel addresses become
 * offsets from _text. Loop thread only. */
#ifndef PROFD_COLLECT_RESOLVE_H
#define PROFD_COLLECT_RESOLVE_H

#include "agent/collect/collector_internal.h"

/* Brings @stack into this form and gives it an id. @time_ns: when its sample was taken. */
void resolve_stack(struct collector *c, struct stack *stack, struct proc *proc, uint64_t time_ns);
/* Writes a stack under @id, which a sample already names. A stack that cannot be kept is counted as
 * stack_missing. */
void resolve_promised(struct collector *c, struct proc *proc, uint64_t time_ns, uint64_t id,
		      const uint64_t *frames, uint16_t frame_count, uint8_t outcome);

#endif
