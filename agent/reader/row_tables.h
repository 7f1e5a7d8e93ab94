/* SPDX-License-Identifier: Apache-2.0 */
/* Unwind rows of the files that a program is made of, and CPython's layout, compiled where they are
 * first needed. A process that may read all memory must not parse foreign ELF and DWARF. A forked
 * child without any capability or descriptor, and with little time, does it and leaves an image,
 * which is checked. A few megabytes of images are kept. Not thread-safe. */
#ifndef PROFD_READER_ROW_TABLES_H
#define PROFD_READER_ROW_TABLES_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/reader/target_maps.h"
#include "agent/reader/target_memory.h"
#include "bpf/script.h"
#include "bpf/unwind_table.h"

#define ROW_TABLES_MAX	     128u
#define ROW_TABLES_BYTES_MAX (48u << 20)

/* Identity of a file. The ctime is part of it, because an inode number is used again once its file
 * is gone. */
struct row_file {
	uint64_t device;
	uint64_t inode;
	uint64_t size;
	int64_t changed_s; /* ctime */
	int64_t changed_ns;
};

struct row_table {
	struct row_file file; /* inode 0 = free */
	uint64_t used;	      /* larger = later */
	void *image;	      /* checked image of bpf/unwind_table.h; NULL = the file has none */
	size_t bytes;
	struct script_runtime script; /* of CPython (symbolize/runtime_cpython.h), else SCRIPT_NONE */
};

struct row_tables {
	struct row_table items[ROW_TABLES_MAX];
	size_t bytes;
	uint64_t clock;
	uint64_t answer_clock; /* tables used since then stay */
	int16_t *slots; /* of the current answer, by module: 0 = not looked for, -1 = none, else 1 +
			   index */
	size_t slot_count;
};

/* Begins an answer about a process with @maps: files are looked at again. -ENOMEM. */
int row_tables_begin(struct row_tables *tables, const struct target_maps *maps) must_use;
/* The rows of module @module of these maps, or NULL if there are none (also when the file cannot be
 * opened any more). Borrowed until the next answer. @deadline_ns (monotonic) bounds compiling. */
const struct row_table *row_tables_get(struct row_tables *tables, const struct target *target,
				       const struct target_maps *maps, uint32_t module,
				       uint64_t deadline_ns);
void row_tables_deinit(struct row_tables *tables);

#endif
