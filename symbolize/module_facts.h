/* SPDX-License-Identifier: Apache-2.0 */
/* Facts kept about a module beside its symbols, for debug information that appears later: which
 * file that would be, and where the code lies. A few hundred bytes in the cache; the module itself
 * may be gone by then. */
#ifndef PROFD_SYMBOLIZE_MODULE_FACTS_H
#define PROFD_SYMBOLIZE_MODULE_FACTS_H

#include "symbolize/elf_file.h"
#include "symbolize/module_cache.h"

struct module_facts {
	struct elf_identity identity;
	uint64_t size_bytes; /* of the file */
	uint64_t voucher;    /* of the file (agent/wire/module_key.h) */
	void *skeleton;	     /* elf_file_skeleton(); owned */
	size_t skeleton_len;
};

/* Stores them unless they are there. Without a cache, or where that fails, they are not kept. */
void module_facts_keep(struct module_cache *cache, uint64_t key, const struct module_facts *facts);
/* -ENOENT they were not kept, or are damaged; -ENOMEM. */
int module_facts_recall(struct module_cache *cache, uint64_t key, struct module_facts *ret)
	must_use;

#endif
