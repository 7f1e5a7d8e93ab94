/* SPDX-License-Identifier: Apache-2.0 */
/* Builds symbol indexes in a child process. Reading DWARF takes long, and a hostile file is most
 * likely to crash it. Neither may delay or end the building of unwind tables. The child hands over
 * images in memfds, which are checked like ones from disk. What debug information names (split
 * DWARF, dwz) it asks for, one file at a time, and waits. One child may be given several files,
 * because it costs more than most files do; whoever starts it says which may share one. */
#ifndef PROFD_SYMBOLIZE_NAME_BUILDER_H
#define PROFD_SYMBOLIZE_NAME_BUILDER_H

#include <stdbool.h>
#include <stddef.h>

#include "agent/base/cleanup.h"
#include "symbolize/elf_file.h"
#include "symbolize/symbol_index.h"

#define NAME_BUILDER_CPU_S    40 /* at 50 MB of .debug_info a second (libpython 3.13): 2 GB */
#define NAME_BUILDER_WALL_S   90
#define NAME_BUILDER_BRIEF_CPU_S  2
#define NAME_BUILDER_BRIEF_WALL_S 5
#define NAME_BUILDER_JOBS_MAX 16u
#define NAME_BUILDER_FDS_MAX  (NAME_BUILDER_JOBS_MAX + 2)

struct name_builder_job {
	uint64_t key;	 /* of the module */
	int fd;		 /* the module's file, borrowed; -1 = only its skeleton is left */
	const void *skeleton; /* elf_file_skeleton(); borrowed */
	size_t skeleton_len;
	const struct symbol_index *former; /* of the module, or NULL; borrowed until it was started.
					      With a skeleton only */
	int debug_fd;	 /* perhaps its debug file, borrowed; -1 = none */
	const struct elf_identity *identity; /* that the debug file must match */
	bool urgent;			     /* somebody waits: not behind everything else on the host */
};

struct name_builder {
	int pidfd; /* -1 = idle; readable when the child is gone */
	int pid;
	bool is_brief;	/* with the BRIEF limits */
	unsigned count; /* of jobs */
	uint64_t keys[NAME_BUILDER_JOBS_MAX];
	int image_fds[NAME_BUILDER_JOBS_MAX];
	int files_fd; /* the child's questions for files: CONTROL_DEBUG_WANT, each answered by
			 CONTROL_DEBUG */
};

void name_builder_init(struct name_builder *builder);
/* Waits for nobody: a child that is left dies with this process. */
void name_builder_deinit(struct name_builder *builder);
bool name_builder_is_idle(const struct name_builder *builder);
/* Starts @count jobs, which one child does in their order; @close_fds (-1: none) are closed in it.
 * @is_brief: what takes longer than the BRIEF limits is not finished. -EAGAIN, -ENOMEM and the like
 * of fork. */
int name_builder_start(struct name_builder *builder, const struct name_builder_job *jobs,
		       unsigned count, bool is_brief, const int *close_fds, size_t close_count)
	must_use;
/* The number of descriptors that are nobody else's, another builder's child's least of all. */
size_t name_builder_fds(const struct name_builder *builder, int ret[NAME_BUILDER_FDS_MAX]);

struct name_builder_result {
	uint64_t key;
	struct symbol_index *index; /* the caller's; NULL = none */
	int error;		    /* why: -EIO it could not be read, or its child was killed over it; -EPROTO
				     * damaged; -EAGAIN its child was killed, perhaps over another file, or was
				     * given little time */
};
/* Number of results of a child that is gone; idle then. -EAGAIN it is still at work. */
int name_builder_finish(struct name_builder *builder,
			struct name_builder_result ret[NAME_BUILDER_JOBS_MAX]) must_use;

#endif
