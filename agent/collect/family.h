/* SPDX-License-Identifier: Apache-2.0 */
/* Families: processes that are followed with all their descendants. A family is a bit of struct
 * proc, which a child inherits at its fork. The server knows a family by its name, a random number
 * of 64 bits. Loop thread only. */
#ifndef PROFD_COLLECT_FAMILY_H
#define PROFD_COLLECT_FAMILY_H

#include "agent/collect/collector_internal.h"

/* Replaces the families that are followed. */
void family_follow(struct collector *c, const struct control_families *families);
/* Adds the families of @parent (NULL = not known) to @proc; for a fork that was not seen. True:
 * @proc belongs to more families now. */
bool family_join(struct collector *c, struct proc *proc, const struct proc *parent);

#endif
