/* SPDX-License-Identifier: Apache-2.0 */
/* Abilities of profd on this host, found by loading every program as the collector does. */
#ifndef PROFD_COLLECT_ABILITIES_H
#define PROFD_COLLECT_ABILITIES_H

#include "agent/collect/kernel/features.h"

/* The cost of loading the programs of all profile types. */
struct abilities_cost {
	uint64_t verified; /* instructions, as bpf_object_verified() counts them */
	uint64_t cpu_ns;   /* CPU time of this process, nearly all of it in the kernel */
};

/* Loads the programs of all profile types, attaches none, and unloads them. A feature whose program
 * the kernel refuses is removed from @features, with the kernel's reason. Blocks for a second or
 * so; not thread-safe. */
void abilities_probe(struct features *features, struct abilities_cost *ret);

#endif
