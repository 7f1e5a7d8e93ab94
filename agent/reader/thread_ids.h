/* SPDX-License-Identifier: Apache-2.0 */
/* Thread ids as a target sees them (its own pid namespace), turned into those of this process's
 * namespace, which everything else in profd uses. Nothing is read for processes outside of
 * containers. */
#ifndef PROFD_READER_THREAD_IDS_H
#define PROFD_READER_THREAD_IDS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/u64map.h"
#include "agent/reader/target_memory.h"

struct thread_ids {
	bool nested; /* the target lives in another pid namespace */
	struct u64map by_inner;
};

/* Values of the last field of the line "NSpid:" of a /proc status text; 0 if there is none or only
 * one (the same namespace). Pure. */
uint32_t thread_ids_inner(const char *status);
/* -ESRCH, -ENOMEM. */
int thread_ids_load(const struct target *target, struct thread_ids *ret) must_use;
void thread_ids_deinit(struct thread_ids *ids);
/* 0 = no such thread (any more). */
uint32_t thread_ids_outer(const struct thread_ids *ids, uint32_t inner);

#endif
