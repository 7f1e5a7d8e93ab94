/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of /proc/PID/maps (proc(5)). The path in a line is chosen by the target: the parser is
 * pure, bounded and fuzzed. */
#ifndef PROFD_COLLECT_PROC_MAPS_H
#define PROFD_COLLECT_PROC_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

#define PROC_MAPS_PATH_MAX 4096u /* bytes with NUL; PATH_MAX of the kernel */
#define PROC_MAPS_TEXT_MAX (8u << 20)

struct proc_map {
	uint64_t start_va;
	uint64_t end_va;   /* first address behind */
	uint64_t pgoff_fo; /* file offset of @start_va, bytes */
	uint64_t inode;	   /* 0 = no file */
	uint32_t dev_major, dev_minor;
	bool executable;
	bool changeable; /* writable or shared */
	bool deleted;	   /* the line said " (deleted)" */
	char path[PROC_MAPS_PATH_MAX]; /* newlines restored; "[vdso]" and the like; "" = anonymous */
};

/* One line without its newline. -EINVAL if it is not one; @ret untouched then. */
int proc_maps_parse_line(const char *line, size_t len, struct proc_map *ret) must_use;

/* Calls @each for every executable mapping of a process, in address order; a negative return of
 * @each ends the walk. At most @max_lines lines are read. Returns the number of executable mappings
 * seen, the negative value of @each, -E2BIG when there are more lines, or negative errno of open
 * and read (-ENOENT, -ESRCH: the process is gone). */
int proc_maps_read(uint32_t tgid, unsigned max_lines,
		   int (*each)(void *ctx, const struct proc_map *map), void *ctx) must_use;
/* The same in two steps, of which the first may hang (isolation.h): the lines of executable
 * mappings, the caller's (free), at most PROC_MAPS_TEXT_MAX bytes (-E2BIG); and the calls. */
int proc_maps_text(uint32_t tgid, unsigned max_lines, char **ret, size_t *ret_len) must_use;
int proc_maps_each(const char *text, size_t len, int (*each)(void *ctx, const struct proc_map *map),
		   void *ctx) must_use;

#endif
