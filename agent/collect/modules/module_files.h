/* SPDX-License-Identifier: Apache-2.0 */
/* Opening files that processes have mapped, and their separate debug files. Paths come from the
 * target. They are resolved inside its own root directory (openat2(2), RESOLVE_IN_ROOT). A file is
 * checked (O_PATH) before it is opened: only regular files are opened. Nothing is read here. A file
 * system may never answer (mounts.h). Without @may_hang a function opens only files on local file
 * systems and follows no path from there to another mount. It fails with -EXDEV where that is not
 * enough; then a child must try (slow_files.h). */
#ifndef PROFD_COLLECT_MODULE_FILES_H
#define PROFD_COLLECT_MODULE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/collect/modules/module_table.h"
#include "agent/collect/proc/isolation.h"
#include "agent/collect/proc/proc_table.h"
#include "agent/wire/control.h"
#include "agent/wire/feed.h"

/* Opens what the symbolizer needs for @module. Opens a mapped file through /proc/PID/map_files
 * where it was last mapped: that is the file itself, whatever became of its name. Else by its path
 * as the process, its parent or the host sees it, accepted only if the inode is the mapped one. The
 * kernel: /proc/kallsyms. The vDSO: a memfd with this process's. JIT memory: the mapped jitdump if
 * its origin has addresses, else the perf map of the origin's process. @isolation looks at the
 * processes, NULL: this thread. Descriptor or negative errno (-ENOENT: nowhere). */
int module_files_open(const struct module *module, bool may_hang, struct isolation *isolation)
	must_use;

/* The origin of the file of @mapping, which @proc has mapped. */
static inline struct module_origin module_files_origin(const struct proc *proc,
						       const struct mapping *mapping)
{
	return (struct module_origin){ .start_va = mapping->start_va,
				       .end_va = mapping->end_va,
				       .tgid = proc->tgid,
				       .parent_tgid = proc->parent_tgid };
}

/* Inode generation of an open file as in the kernel's mapping records. It tells a file from a
 * deleted one whose inode number it has. 0 = not known: only file systems with a device of their
 * own are asked, because others may never answer. */
uint64_t module_files_generation(int fd, const struct module_file *file);

struct debug_request {
	enum control_debug_kind kind;
	const uint8_t *build_id; /* of the file wanted, or of its module */
	size_t build_id_len;	 /* 0 = none */
	const char *name;	 /* as the module has it, "" = none: see enum control_debug_kind */
	const char *path;    /* of the module */
	uint32_t tgid;	     /* a process that has, or had, it mapped; 0 = none */
	uint32_t parent_tgid; /* of that process: its root counts when the process has ended */
};

/* Looks where gdb looks, in the roots of the process, of its parent and of the host, there only
 * below /usr/lib/debug. A file counts if all may read it or if it belongs to the process's user. A
 * debug file and a supplementary one: /usr/lib/debug/.build-id/xx/rest.debug, then by name beside
 * the file, in .debug/ beside it and in /usr/lib/debug/ + its folder. A package: the module's path
 * + .dwp. A .dwo: where the compiler wrote it, then beside the module. Descriptor, -ENOENT or
 * -EXDEV. That the file belongs to the module is for the symbolizer to check. */
int module_files_open_debug(const struct debug_request *wanted, bool may_hang) must_use;
/* The wanted that the symbolizer sent, about @module (NULL: one of the past); borrowed from both.
 * A file system that may hang is asked for nothing but the file itself. */
struct debug_request module_files_debug_request(const struct control_debug_want *want,
				    const struct module *module);

/* Address of _text from /proc/kallsyms and the build-id in /sys/kernel/notes (length 0 = none).
 * -EPERM when addresses are hidden (no CAP_SYSLOG). */
int module_files_read_kernel(uint64_t *ret_text_va, uint8_t *ret_build_id,
			     uint8_t *ret_len) must_use;
/* The build-id note out of @len bytes of ELF notes; length, 0 = none. Pure. */
uint8_t module_files_find_build_id(const void *notes, size_t len, uint8_t *ret_build_id);

#endif
