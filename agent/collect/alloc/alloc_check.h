/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the mapped file that is the allocator of a process, and whether it can be probed without
 * harm. A probe at an offset that is not the beginning of an instruction kills the program. So the
 * bytes in the memory of the process are compared before every attachment with those that the site
 * was found in. */
#ifndef PROFD_COLLECT_ALLOC_CHECK_H
#define PROFD_COLLECT_ALLOC_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/err.h"
#include "agent/collect/modules/module_table.h"
#include "agent/collect/proc/proc_table.h"
#include "agent/wire/control.h"

#define ALLOC_PATH_SIZE 80

/* An allocator, mapped. */
struct alloc_place {
	uint32_t tgid;
	uint32_t module;
	uint64_t start_va, end_va; /* of the mapping with its code */
	uint64_t code_va, code_end_va; /* of the allocator's functions in it, or more around them */
	uint64_t bias;		   /* address - bias = file offset */
	enum alloc_family family;
	unsigned site_count;
	struct control_alloc_site sites[ALLOC_SITES_MAX];
	char path[ALLOC_PATH_SIZE]; /* the mapped file, whatever became of its name */
};

/* Finds the allocator that the calls of @proc reach. -EAGAIN: its files are not indexed yet;
 * without @wait_for_files only the program and its C library count. -EOPNOTSUPP with the reason and
 * the remedy in @err. */
int alloc_check_find(const struct proc *proc, const struct module_table *modules,
		     bool wait_for_files, struct alloc_place *ret, struct err *err) must_use;
/* Is it still mapped there, private and unwritable? Reads nothing of the target. -ESRCH gone,
 * -ESTALE another mapping, -EOPNOTSUPP; with a sentence in @err. */
int alloc_check_mapping(const struct alloc_place *place, const struct module_file *file,
			struct err *err) must_use;
/* The same, with the same bytes, on a file system that answers? Before each attachment, by a child
 * (alloc_look.h): whoever provides the pages may never do. Also -EPERM and what reading gives. */
int alloc_check_bytes(const struct alloc_place *place, const struct module_file *file,
		      struct err *err) must_use;
/* Does a seccomp filter guard the process? (/proc/PID/status) */
bool alloc_check_is_filtered(uint32_t tgid);

#endif
