/* SPDX-License-Identifier: Apache-2.0 */
/* The executable mappings of a process, now and a little while ago. Shared between parent and child
 * after fork (copied on the first change), because most children exec or exit without mapping
 * anything. Mappings that were replaced are kept in a short history with the time they ended, so
 * that addresses of samples taken before can still be resolved. Pure. */
#ifndef PROFD_COLLECT_MAPPING_SET_H
#define PROFD_COLLECT_MAPPING_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

#define MAPPING_SET_MAX		4096u /* live executable mappings of one process */
#define MAPPING_SET_HISTORY_MAX 64u

struct mapping {
	uint64_t start_va, end_va;
	uint64_t bias;	   /* address - bias = file offset (modulo 2^64) */
	uint64_t from_ns;  /* CLOCK_MONOTONIC; 0 = before we looked */
	uint64_t until_ns; /* UINT64_MAX = still there */
	uint32_t module;   /* of module_table; 0 = memory without a file */
	uint32_t reserved;
};

struct mapping_set; /* NULL is a valid empty set */

struct mapping_set *mapping_set_ref(struct mapping_set *set);
void mapping_set_unref(struct mapping_set *set);
CLEANUP_DEFINE(mapping_set, struct mapping_set *, mapping_set_unref);

size_t mapping_set_count(const struct mapping_set *set);
/* Live mappings in address order; borrowed until the set changes. */
const struct mapping *mapping_set_at(const struct mapping_set *set, size_t index);
/* Calls @each for all, those of the history too. */
void mapping_set_each(const struct mapping_set *set,
		      void (*each)(void *ctx, const struct mapping *mapping), void *ctx);
/* The mapping that held @va at @time_ns; the present one where the history does not reach. NULL =
 * none. */
const struct mapping *mapping_set_find(const struct mapping_set *set, uint64_t va,
				       uint64_t time_ns);

/* Told of every range that a change takes away (or moves) and of every range it puts there. */
struct mapping_changes {
	void *ctx;
	void (*removed)(void *ctx, const struct mapping *mapping);
	void (*added)(void *ctx, const struct mapping *mapping);
};

/* Adds a mapping, ending what lay there since @mapping->from_ns. *@set is replaced when it was
 * shared. 1 = changed, 0 = the same was there; -EINVAL empty or wrapping range, -ENOSPC full,
 * -ENOMEM: then nothing changed. @changes may be NULL. */
int mapping_set_add(struct mapping_set **set, const struct mapping *mapping,
		    const struct mapping_changes *changes) must_use;
/* Makes the live mappings equal to @seen (address order, as read from /proc): ends the others at
 * @now_ns. Errors as above, for the first that did not fit; the rest was done. */
int mapping_set_replace(struct mapping_set **set, const struct mapping *seen, size_t count,
			uint64_t now_ns, const struct mapping_changes *changes) must_use;

#endif
