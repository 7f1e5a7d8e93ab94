/* SPDX-License-Identifier: Apache-2.0 */
/* Files on file systems that may never answer: network, FUSE. Whoever opens or reads one of those may hang where not
 * even SIGKILL reaches it (a request that a FUSE server has read is waited for; fs/fuse/dev.c), so a child does, and
 * copies the file into memory; what does not come back is left alone. Everybody else sees the copy. One file of a
 * device at a time, so a device holds one child at most. */
#ifndef PROFD_COLLECT_SLOW_FILES_H
#define PROFD_COLLECT_SLOW_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/collect/module_table.h"

#define SLOW_FILES_CHILDREN_MAX 4u
#define SLOW_FILES_WAITING_MAX	1024u
#define SLOW_FILES_WAIT_S	20u	     /* for one file; then its device counts as silent */
#define SLOW_FILES_SILENCE_S	60u	     /* as long nothing of a silent device is asked for */
#define SLOW_FILES_BYTES_MAX	(128u << 20) /* of a file: larger ones are not copied */

/* Is @module's file on such a file system? Those with a device of their own and the local ones are not; what is not
 * known is. Reads /proc/PID/mountinfo of a process that has it mapped, which asks no file system. */
bool slow_files_is_slow(const struct module *module);
/* Whether @line of a mountinfo file (proc(5)) is of this device; its type is in @ret, shortened if need be. Pure. */
bool slow_files_parse_mount(const char *line, uint32_t dev_major, uint32_t dev_minor, char *ret, size_t size);

struct slow_files;

struct slow_files *slow_files_create(void); /* NULL: no memory */
/* Children that are at work are left to the kernel: killed as soon as they can be. */
void slow_files_destroy(struct slow_files *files);
/* Asks for a copy of @module's file. -ETIMEDOUT its device is silent, -ENOSPC too many wait, -ENOMEM. */
int slow_files_ask(struct slow_files *files, const struct module *module, uint64_t now_ns) must_use;
/* Starts what can be started and takes the next outcome: the module's id, and in @ret a descriptor, the caller's, or
 * a negative errno. 0 = none now. @modules has what was asked for. */
uint32_t slow_files_take(struct slow_files *files, struct module_table *modules, uint64_t now_ns, int *ret);

#endif
