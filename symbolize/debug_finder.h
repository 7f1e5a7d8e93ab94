/* SPDX-License-Identifier: Apache-2.0 */
/* Files that an ELF file's debug information names: only while it is read does it turn out which.
 * The reader of debug information opens nothing itself; who builds an index says how a file is
 * found. */
#ifndef PROFD_SYMBOLIZE_DEBUG_FINDER_H
#define PROFD_SYMBOLIZE_DEBUG_FINDER_H

#include "agent/wire/control.h"
#include "symbolize/elf_file.h"

struct debug_finder {
	void *ctx;
	/* Opens the file of @kind that is called @name (as the debug information has it) or has @build_id
	 * (length 0 = not known). What is in it, is for the caller to check. Closed by the caller with
	 * elf_file_close(). -ENOENT there is none, or it is no ELF file. */
	int (*find)(void *ctx, enum control_debug_kind kind, const char *name, const uint8_t *build_id,
		    uint8_t build_id_len, struct elf_file **ret);
};

#endif
