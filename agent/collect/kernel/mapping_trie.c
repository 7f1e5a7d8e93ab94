// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/kernel/mapping_trie.h"

#include <bpf/bpf.h>
#include <endian.h>
#include <errno.h>

uint64_t mapping_prefix(uint64_t start, uint64_t end, uint32_t *ret_bits)
{
	uint32_t shift = start ? (uint32_t)__builtin_ctzll(start) : 63;
	uint32_t fits = 63 - (uint32_t)__builtin_clzll(end - start);

	if (shift > fits)
		shift = fits;
	*ret_bits = 64 - shift;
	return 1ull << shift;
}

static struct prof_mapping_key key_of(uint32_t tgid, uint64_t address, uint32_t bits)
{
	return (struct prof_mapping_key){ .prefix_bits = 32 + bits,
					  .tgid_be = htobe32(tgid),
					  .address_be = htobe64(address) };
}

void mapping_trie_remove(int fd, uint32_t tgid, uint64_t start, uint64_t end)
{
	while (start < end) {
		uint32_t bits;
		uint64_t bytes = mapping_prefix(start, end, &bits);
		struct prof_mapping_key key = key_of(tgid, start, bits);

		(void)bpf_map_delete_elem(fd, &key);
		start += bytes;
	}
}

int mapping_trie_add(int fd, uint32_t tgid, uint64_t start, uint64_t end,
		     const struct prof_mapping *mapping)
{
	const struct prof_mapping_range range = { .start = start, .end = end, .mapping = *mapping };

	if (start >= end)
		return -EINVAL;
	for (uint64_t at = start; at < end;) {
		uint32_t bits;
		uint64_t bytes = mapping_prefix(at, end, &bits);
		struct prof_mapping_key key = key_of(tgid, at, bits);
		int rc = bpf_map_update_elem(fd, &key, &range, BPF_ANY);

		if (rc < 0) {
			mapping_trie_remove(fd, tgid, start, at);
			return rc;
		}
		at += bytes;
	}
	return 0;
}
