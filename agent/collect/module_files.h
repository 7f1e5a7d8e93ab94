/* SPDX-License-Identifier: Apache-2.0 */
/* Opening files that processes have mapped, and their separate debug files. Paths come from the target:
 * they are resolved inside its own root directory (openat2(2), RESOLVE_IN_ROOT), never block on a FIFO or
 * a terminal, and only regular files are taken. Nothing is read here. A file system may never answer (mounts.h): unless
 * it @may_hang, a function opens nothing but what is on a local one, follows no path from there to another mount, and
 * says -EXDEV where that was not enough; then a child is to try (slow_files.h). */
#ifndef PROFD_COLLECT_MODULE_FILES_H
#define PROFD_COLLECT_MODULE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/collect/module_table.h"
#include "agent/collect/patient.h"
#include "agent/wire/control.h"
#include "agent/wire/feed.h"

/* Opens what the symbolizer needs for @module. A mapped file: through /proc/PID/map_files where it was last
 * mapped, which is that file whatever became of its name; else by its path as the process, its parent or
 * the host sees it, accepted only if the inode is the mapped one. The kernel: /proc/kallsyms. The vDSO: a
 * memfd with this process's. JIT memory: the mapped jitdump if its origin has addresses, else the perf map of
 * the origin's process. @patient looks at the processes, NULL: this thread. Descriptor or negative errno (-ENOENT: nowhere). */
int module_files_open(const struct module *module, bool may_hang, struct patient *patient) must_use;

/* Inode generation of an open file as the kernel's mapping records have it: a file that has a deleted one's inode
 * number has another. 0 = not known: only file systems with a device of their own are asked, because others may
 * never answer. */
uint64_t module_files_generation(int fd, const struct module_file *file);

struct debug_wish {
	enum control_debug_kind kind;
	const uint8_t *build_id; /* of the file wanted, or of its module */
	size_t build_id_len;	 /* 0 = none */
	const char *name;	 /* as the module has it, "" = none: see enum control_debug_kind */
	const char *path;    /* of the module */
	uint32_t tgid;	     /* a process that has it mapped; 0 = none */
};

/* Looks where gdb looks, first in the process's root, then in the host's. A debug file and a supplementary one:
 * /usr/lib/debug/.build-id/xx/rest.debug, then by name beside the file, in .debug/ beside it and in
 * /usr/lib/debug/ + its folder. A package: the module's path + .dwp. A .dwo: where the compiler wrote it, then
 * beside the module. Descriptor, -ENOENT or -EXDEV. That the file belongs to the module is for the symbolizer to
 * check. */
int module_files_open_debug(const struct debug_wish *wish, bool may_hang) must_use;
/* The wish that the symbolizer sent, about @module (NULL: one of the past); borrowed from both. What may hang is not
 * asked for more than the file itself. */
struct debug_wish module_files_wish(const struct control_debug_want *want, const struct module *module);

/* Address of _text from /proc/kallsyms and the build-id in /sys/kernel/notes (length 0 = none).
 * -EPERM when addresses are hidden (no CAP_SYSLOG). */
int module_files_read_kernel(uint64_t *ret_text_va, uint8_t *ret_build_id,
			     uint8_t *ret_len) must_use;
/* The build-id note out of @len bytes of ELF notes; length, 0 = none. Pure. */
uint8_t module_files_find_build_id(const void *notes, size_t len, uint8_t *ret_build_id);

#endif
