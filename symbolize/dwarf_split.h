/* SPDX-License-Identifier: Apache-2.0 */
/* Split DWARF: a unit of the program is a skeleton (addresses, lines). The rest lies in a file of
 * its own (.dwo, one per compilation) or in a package of them (.dwp, beside the program). The two
 * agree on a number. Sources: DWARF 5 sections 3.1.3, 7.3.2 and 7.3.5; for DWARF 4 the GNU
 * extensions of https://gcc.gnu.org/wiki/DebugFission and DebugFissionDWP. */
#ifndef PROFD_SYMBOLIZE_DWARF_SPLIT_H
#define PROFD_SYMBOLIZE_DWARF_SPLIT_H

#include "agent/base/u64map.h"
#include "agent/base/vec.h"
#include "symbolize/debug_finder.h"
#include "symbolize/dwarf_reader.h"

#define DWARF_SPLIT_FILES_MAX 65536u	    /* .dwo files of one program */
#define DWARF_SPLIT_BYTES_MAX (16ull << 30) /* of all of them */
#define DWARF_SPLIT_UNITS_MAX 1000000u	    /* of a package's index */

struct dwarf_split_file {
	struct elf_file *elf; /* owned; NULL = none is open */
	struct dwarf dwarf;
};

/* Offsets of one unit's parts in the sections of a package. */
struct dwarf_contribution {
	uint64_t info, abbrev, str_offsets, rnglists;
};
VEC_DEFINE(dwarf_contributions, struct dwarf_contribution);

/* Private but for @finder and @main, which the caller sets; the rest begins as zero. */
struct dwarf_split {
	const struct debug_finder *finder; /* NULL = no file is ever found */
	const struct dwarf *main;	   /* with the skeletons */
	bool package_asked;
	struct dwarf_split_file package;
	struct dwarf_contributions_vec contributions;
	struct u64map contribution_by_id; /* dwo_id -> position in @contributions */
	struct dwarf_split_file single;
	char *single_path; /* owned; of the .dwo asked for last */
	unsigned files;
	uint64_t bytes;
};

void dwarf_split_deinit(struct dwarf_split *split);
static inline void cleanup_dwarf_split_fn(struct dwarf_split *split)
{
	dwarf_split_deinit(split);
}
#define cleanup_dwarf_split __attribute__((__cleanup__(cleanup_dwarf_split_fn)))

/* The split unit of @skeleton (root loaded, dwo_name not NULL), its root loaded and its bases and
 * line table those of the skeleton. Borrowed until the next call. Each split unit is found once.
 * -ENOENT, -ENOMEM. */
int dwarf_split_find(struct dwarf_split *split, const struct dwarf_unit *skeleton,
		     struct dwarf **ret_dwarf, struct dwarf_unit **ret_unit) must_use;

#endif
