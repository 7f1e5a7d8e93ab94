/* SPDX-License-Identifier: Apache-2.0 */
/* The trie of published mappings: a range of addresses becomes the prefixes that cover exactly it.
 */
#ifndef PROFD_COLLECT_MAPPING_TRIE_H
#define PROFD_COLLECT_MAPPING_TRIE_H

#include <stdint.h>

#include "agent/base/cleanup.h"
#include "bpf/profiler.h"

/* The first prefix of [@start, @end). Sets its length in bits of the address and returns the bytes
 * it covers: the largest power of two that @start is aligned to and that fits. @start < @end.
 * Pure. */
uint64_t mapping_prefix(uint64_t start, uint64_t end, uint32_t *ret_bits);

/* Adds or removes all prefixes of a range in the map @fd. A range that fails half-way is removed
 * again. -EINVAL for an empty range, -ENOSPC when the trie is full. */
int mapping_trie_add(int fd, uint32_t tgid, uint64_t start, uint64_t end,
		     const struct prof_mapping *mapping) must_use;
void mapping_trie_remove(int fd, uint32_t tgid, uint64_t start, uint64_t end);

#endif
