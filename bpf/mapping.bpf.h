/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Finds the mapping of an address of the current process: the last frame's mapping, else a
 * published one (a trie). For a process whose mappings are not published yet the kernel's own
 * mappings are read, once per sample (young.bpf.h). */
#ifndef PROFD_BPF_MAPPING_BPF_H
#define PROFD_BPF_MAPPING_BPF_H

#include "bpf/young.bpf.h"

enum mapping_found {
	MAPPING_NONE,
	MAPPING_CODE,  /* executable memory without a file */
	MAPPING_FILE,  /* of a file that is not known yet */
	MAPPING_KNOWN, /* s->map */
};

/* The last mapping that starts at or before @address; the kernel lists them in order. */
static __always_inline enum mapping_found young_find(struct scratch *s, uint64_t address)
{
	uint32_t low = 0, count = s->vma_count;
	struct prof_file_key key;
	struct young_vma *vma;
	struct prof_file *file;

	if (!count)
		return MAPPING_NONE;
	/* The rest does not depend on the comparison: a verifier follows one way through all steps.
	 */
#pragma clang loop unroll(disable)
	for (uint32_t step = 0; step < 6; step++) {
		uint32_t half = count >> 1;

		if (s->vmas[(low + half) & (YOUNG_VMAS_MAX - 1)].start <= address)
			low += half;
		count -= half;
	}
	vma = &s->vmas[low & (YOUNG_VMAS_MAX - 1)];
	if (address - vma->start >= vma->end - vma->start)
		return MAPPING_NONE;
	/* a copy: kernels before v6.2 take no key from the memory of a global function's argument */
	key = vma->file;
	file = bpf_map_lookup_elem(&files, &key);
	if (!file)
		return key.dev_major == YOUNG_NO_FILE ? MAPPING_CODE : MAPPING_FILE;
	s->map.start = vma->start;
	s->map.end = vma->end;
	s->map.mapping.bias = vma->start - vma->file_offset;
	s->map.mapping.module = file->module;
	s->map.mapping.flags = file->flags;
	return MAPPING_KNOWN;
}

static __always_inline bool trie_find(struct scratch *s, uint64_t address)
{
	struct prof_mapping_key key = {
		.prefix_bits = 96,
		.tgid_be = __builtin_bswap32(s->stack.tgid),
		.address_be = __builtin_bswap64(address),
	};
	struct prof_mapping_range *range = bpf_map_lookup_elem(&mappings, &key);

	if (!range)
		return false;
	s->map = *range;
	return true;
}

/* Puts the mapping of @address into s->map if it is known. */
static __always_inline enum mapping_found mapping_find(struct scratch *s, uint64_t address)
{
	enum mapping_found found;

	if (address - s->map.start < s->map.end - s->map.start)
		return MAPPING_KNOWN;
	if (s->mappings_are_published && trie_find(s, address))
		return MAPPING_KNOWN;
	found = young_find(s, address);
	if (found != MAPPING_KNOWN)
		s->map.start = s->map.end = 0;
	return found;
}

#endif
