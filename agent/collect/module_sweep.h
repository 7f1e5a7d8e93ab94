/* SPDX-License-Identifier: Apache-2.0 */
/* Frees modules that nothing needs when there are many. Loop thread only. */
#ifndef PROFD_COLLECT_MODULE_SWEEP_H
#define PROFD_COLLECT_MODULE_SWEEP_H

#include "agent/collect/collector_internal.h"

/* Looks once a minute; see module_sweep.c for when a module is not needed. */
void module_sweep(struct collector *c, uint64_t now_ns);

#endif
