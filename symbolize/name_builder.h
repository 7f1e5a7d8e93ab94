/* SPDX-License-Identifier: Apache-2.0 */
/* Builds symbol indexes, one at a time, in a child process: reading DWARF is long and the likeliest thing to
 * die of a hostile file, and neither may hold up unwind tables or take them along. The child hands over an
 * image in a memfd, which is checked like one from disk. What its debug information names (split DWARF, dwz)
 * it asks for, one file at a time, and waits. */
#ifndef PROFD_SYMBOLIZE_NAME_BUILDER_H
#define PROFD_SYMBOLIZE_NAME_BUILDER_H

#include <stdbool.h>
#include <stddef.h>

#include "agent/base/cleanup.h"
#include "symbolize/elf_file.h"
#include "symbolize/symbol_index.h"

#define NAME_BUILDER_CPU_S  40 /* at 50 MB of .debug_info a second (libpython 3.13): 2 GB */
#define NAME_BUILDER_WALL_S 90

struct name_builder_job {
	int fd;		 /* the module's file, borrowed; -1 = only its stub is left */
	const void *stub; /* elf_file_stub(); borrowed */
	size_t stub_len;
	int debug_fd;	 /* perhaps its debug file, borrowed; -1 = none */
	const struct elf_identity *identity; /* that the debug file must match */
	bool urgent;			     /* somebody waits: not behind everything else on the host */
};

struct name_builder {
	int pidfd; /* -1 = idle; readable when the child is gone */
	int pid;
	int image_fd;
	int files_fd; /* the child's questions for files: CONTROL_DEBUG_WANT, each answered by CONTROL_DEBUG */
};

void name_builder_init(struct name_builder *builder);
/* Waits for nobody: a child that is left dies with this process. */
void name_builder_deinit(struct name_builder *builder);
bool name_builder_is_idle(const struct name_builder *builder);
/* Starts a job; @close_fds are closed in the child. -EAGAIN, -ENOMEM and the like of fork. */
int name_builder_start(struct name_builder *builder, const struct name_builder_job *job,
		       const int *close_fds, size_t close_count) must_use;
/* The result of a child that is gone; idle then. -EIO it failed or was killed, -EPROTO its image is damaged,
 * -EAGAIN it is still at work. */
int name_builder_finish(struct name_builder *builder, struct symbol_index **ret) must_use;

#endif
