/* SPDX-License-Identifier: Apache-2.0 */
/* Connects the observation of allocations (alloc/alloc.h) to the loop. */
#ifndef PROFD_COLLECT_ALLOCATIONS_H
#define PROFD_COLLECT_ALLOCATIONS_H

#include "agent/base/cleanup.h"
#include "agent/collect/collector_internal.h"

/* Creates c->alloc once c->bpf, the tables and the feed are there; the caller frees it with
 * alloc_destroy(). -ENOMEM. */
int allocations_open(struct collector *c) must_use;

#endif
