/* SPDX-License-Identifier: Apache-2.0 */
/* Which mapped file of a process is its allocator, and whether it can be probed without harm. A probe at an
 * offset that is not the beginning of an instruction kills the program, so before every attachment the bytes
 * in the process's memory are compared with those that the site was found in. */
#ifndef PROFD_COLLECT_ALLOC_CHECK_H
#define PROFD_COLLECT_ALLOC_CHECK_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/err.h"
#include "agent/collect/module_table.h"
#include "agent/collect/proc_table.h"
#include "agent/wire/control.h"

#define ALLOC_PATH_SIZE 80

/* An allocator, mapped. */
struct alloc_place {
	uint32_t tgid;
	uint32_t module;
	uint64_t start_va, end_va; /* of the mapping with its code */
	uint64_t bias;		   /* address - bias = file offset */
	enum alloc_family family;
	unsigned site_count;
	struct control_alloc_site sites[ALLOC_SITES_MAX];
	char path[ALLOC_PATH_SIZE]; /* the mapped file, whatever became of its name */
};

/* Finds the allocator that @proc's calls reach. -EAGAIN: its files are not known yet (not @patient: those that
 * must be, the program and its C library); -EOPNOTSUPP with the
 * reason and what would help in @err. */
int alloc_check_find(const struct proc *proc, const struct module_table *modules, bool patient,
		     struct alloc_place *ret, struct err *err) must_use;
/* Is it still mapped there, private and unwritable? Reads nothing of the target. -ESRCH gone, -ESTALE another
 * mapping, -EOPNOTSUPP; with a sentence in @err. */
int alloc_check_mapping(const struct alloc_place *place, const struct module_file *file, struct err *err)
	must_use;
/* The same, with the same bytes, on a file system that answers? Before each attachment, by a child (alloc_look.h):
 * whoever provides the pages may never do. Also -EPERM and what reading gives. */
int alloc_check_bytes(const struct alloc_place *place, const struct module_file *file, struct err *err)
	must_use;
/* Does a seccomp filter guard the process? (/proc/PID/status) */
bool alloc_check_is_filtered(uint32_t tgid);

#endif
