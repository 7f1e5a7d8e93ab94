/* SPDX-License-Identifier: Apache-2.0 */
/* Abilities of profd on this host, found by loading every program as the collector does. */
#ifndef PROFD_COLLECT_ABILITIES_H
#define PROFD_COLLECT_ABILITIES_H

#include "agent/collect/kernel/features.h"

/* Loads the programs of all profile types, attaches none, and unloads them. A feature whose program
 * the kernel refuses is removed from @features, with the kernel's reason. Blocks for a second or
 * so; not thread-safe. */
void abilities_probe(struct features *features);

#endif
