/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what runtimes write about their JIT-compiled code: /tmp/perf-PID.map (text lines) and
 * jitdump (binary records), incrementally, from a descriptor that the caller opened in the target's
 * mount namespace. Both files grow while they are read and belong to the target: nothing in them is
 * trusted. Sources: tools/perf/Documentation/jit-interface.txt and jitdump-specification.txt of the
 * kernel. */
#ifndef PROFD_SYMBOLIZE_PERF_MAP_H
#define PROFD_SYMBOLIZE_PERF_MAP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/base/cleanup.h"
#include "symbolize/jit_map.h"

#define PERF_MAP_NAME_MAX   2048u	/* bytes of a name; more is cut */
#define PERF_MAP_TAIL_BYTES 256u
#define PERF_MAP_UPDATE_MAX (16u << 20) /* bytes looked at by one call */

/* The position of reading in one file. Zero-initialized is the beginning. */
struct perf_map_cursor {
	dev_t device;
	ino_t inode;
	uint64_t offset;   /* of the first byte not read yet */
	uint64_t modified_ns; /* when @tail was compared last */
	uint64_t tail;	   /* hash of the last PERF_MAP_TAIL_BYTES before @offset */
	bool skipping;	   /* inside a line that is too long */
	bool is_damaged;   /* jitdump: nothing more can be read */
};

/* Reads what @fd (a perf map) gained since the last call into @map. A file that was replaced,
 * became shorter or has other text at its old end is read anew, into an emptied map. A JVM writes
 * the whole file again at every command. A last line without its newline waits for the next call. 1
 * = there is more, call again; 0 = all read; -ENOMEM, or errno of the reading. */
int perf_map_update(struct perf_map_cursor *cursor, int fd, struct jit_map *map) must_use;
/* The same for jitdump: code loads and moves. -ENOEXEC if it is not jitdump version 1 in this
 * machine's byte order. Source lines (JIT_CODE_DEBUG_INFO) are not read. */
int perf_map_update_jitdump(struct perf_map_cursor *cursor, int fd, struct jit_map *map) must_use;
/* Does @fd begin as jitdump does? */
bool perf_map_is_jitdump(int fd);

#endif
