/* SPDX-License-Identifier: Apache-2.0 */
/* The names of JIT-compiled code of many processes, by module key. Each entry has a descriptor of
 * the file that the runtime writes (perf map or jitdump), the position up to which it was read, and
 * the names. Files are read in slices, so that a large one delays nothing. Bounded: above
 * JIT_MAPS_MAX processes or JIT_MAPS_BYTES_MAX of names the one asked for longest ago is forgotten.
 * Not thread-safe. */
#ifndef PROFD_SYMBOLIZE_JIT_MAPS_H
#define PROFD_SYMBOLIZE_JIT_MAPS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/vec.h"
#include "symbolize/jit_map.h"
#include "symbolize/perf_map.h"

#define JIT_MAPS_MAX	   256u
#define JIT_MAPS_BYTES_MAX (256ull << 20)

struct jit_process {
	uint64_t key;
	uint64_t used;	 /* of jit_maps.clock */
	int fd;		 /* owned */
	bool is_jitdump;
	bool is_behind;	 /* the file has more than was read */
	struct perf_map_cursor cursor;
	struct jit_map map;
};

VEC_DEFINE(jit_process, struct jit_process);

/* Zero-initialized is valid and empty. */
struct jit_maps {
	struct jit_process_vec processes;
	uint64_t clock;
	unsigned behind; /* processes with is_behind */
};

void jit_maps_deinit(struct jit_maps *maps);
/* Takes @fd_take, in any case, as the file of @key, instead of a former one, and reads its first
 * slice. -EINVAL no regular file, -ENOMEM, or errno of the reading. */
int jit_maps_add_take(struct jit_maps *maps, uint64_t key, int fd_take) must_use;
/* The process of @key, brought up to date by one slice; borrowed until the next call. NULL if
 * unknown. */
struct jit_process *jit_maps_find(struct jit_maps *maps, uint64_t key);
/* Name of the code at the low 40 bits @offset of its address; NULL. Valid until the next call. */
const char *jit_process_name(struct jit_process *process, uint64_t offset);
/* Reads a slice of one process that is behind. */
void jit_maps_advance(struct jit_maps *maps);

#endif
