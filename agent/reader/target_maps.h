/* SPDX-License-Identifier: Apache-2.0 */
/* The mapped files of a process: /proc/PID/maps, of which anonymous memory is left out. Answers
 * which file and file offset an address is, and describes each file once (a "module"). The text is
 * hostile: a process chooses its paths. Lines beyond TARGET_MAPS_MAX are dropped and counted. */
#ifndef PROFD_READER_TARGET_MAPS_H
#define PROFD_READER_TARGET_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/reader/target_memory.h"

#define TARGET_MAPS_MAX	     65536u	 /* sysctl vm.max_map_count defaults to 65530 */
#define TARGET_MAPS_TEXT_MAX (16u << 20) /* bytes */

enum target_map_prot { TARGET_MAP_READ = 1, TARGET_MAP_WRITE = 2, TARGET_MAP_EXEC = 4 };

struct target_map {
	uint64_t start_va;
	uint64_t end_va;
	uint64_t start_fo; /* file offset of start_va */
	uint32_t module;   /* index of modules */
	uint32_t prot;	   /* enum target_map_prot */
};

/* One mapped file, identified as the kernel prints it. */
struct target_module {
	uint64_t inode;
	uint32_t dev_major;
	uint32_t dev_minor;
	uint32_t path;	    /* offset into paths */
	uint32_t first_map; /* index of its lowest mapping */
	bool vdso;
};

struct target_maps {
	struct target_map *maps; /* ascending, disjoint; [vdso] and files only */
	size_t count;
	struct target_module *modules;
	size_t module_count;
	char *paths;	  /* NUL-terminated texts */
	uint64_t dropped; /* lines */
};

/* Splits the text of a maps file. -ENOMEM; malformed lines are counted in dropped. Pure. */
int target_maps_parse(const char *text, size_t len, struct target_maps *ret) must_use;
/* Reads the maps of a process. -ESRCH, -EACCES, -EFBIG, -ENOMEM. */
int target_maps_read(const struct target *target, struct target_maps *ret) must_use;
void target_maps_deinit(struct target_maps *maps);

/* The file mapping around @va, NULL if there is none. */
const struct target_map *target_maps_find(const struct target_maps *maps, uint64_t va);
static inline const char *target_maps_path(const struct target_maps *maps, uint32_t module)
{
	return maps->paths + maps->modules[module].path;
}

static inline void cleanup_target_maps_fn(struct target_maps *maps)
{
	target_maps_deinit(maps);
}
#define cleanup_target_maps __attribute__((__cleanup__(cleanup_target_maps_fn)))

#endif
