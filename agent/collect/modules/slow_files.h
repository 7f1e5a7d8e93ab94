/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are, or may be, on file systems that never answer (mounts.h). A process that opens,
 * reads or even closes such a file may hang where not even SIGKILL reaches it. So a child does it
 * and copies the file into memory; all others see the copy. A child that does not come back is left
 * alone. A file that turns out to be on a local file system is passed on as it is. Files of one
 * device, or of the processes of one user, are taken one at a time, so each holds one child at
 * most. With SLOW_FILES_HUNG_MAX children in all nothing is opened until one of them has ended. */
#ifndef PROFD_COLLECT_SLOW_FILES_H
#define PROFD_COLLECT_SLOW_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/collect/modules/module_table.h"
#include "agent/wire/control.h"

#define SLOW_FILES_CHILDREN_MAX 4u
#define SLOW_FILES_HUNG_MAX	16u /* that do not end although they were killed, and those at work */
#define SLOW_FILES_WAITING_MAX	1024u
#define SLOW_FILES_WAIT_S	20u	     /* for one file; then its device counts as silent */
#define SLOW_FILES_SILENCE_S	60u	     /* as long nothing of a silent device is asked for */
#define SLOW_FILES_BYTES_MAX	(128u << 20) /* of a file: larger ones are not copied */

struct slow_files;

struct slow_files *slow_files_create(void); /* NULL: no memory */
/* Children that are at work are left to the kernel: killed as soon as they can be. */
void slow_files_destroy(struct slow_files *files);
/* Asks for @module's file. -ETIMEDOUT its device is silent, -ENOSPC too many wait, -ENOMEM. */
int slow_files_ask(struct slow_files *files, const struct module *module, uint64_t now_ns) must_use;
/* Likewise for a debug file of @module (NULL: one of the past); @want is copied. */
int slow_files_ask_debug(struct slow_files *files, const struct control_debug_want *want,
			 const struct module *module, uint64_t now_ns) must_use;

/* The result of a request. */
struct slow_file {
	uint32_t module; /* id, 0 = a debug file of one of the past */
	uint32_t request; /* of the want */
	bool is_debug, is_copy;
	int fd; /* the receiver's, or a negative errno */
};

/* Starts what can be started and takes the next outcome. False: none now. @modules has what was
 * asked for. */
bool slow_files_take(struct slow_files *files, struct module_table *modules, uint64_t now_ns,
		     struct slow_file *ret);
/* Children that were killed and have not ended. */
unsigned slow_files_hung(const struct slow_files *files);
/* Is an answer likely within the next moment? */
bool slow_files_are_due(const struct slow_files *files, uint64_t now_ns);

#endif
