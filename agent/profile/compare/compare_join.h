/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of two matrices brought together by name and module; the file only breaks ties. Unknown
 * functions stay apart by place if both sides have the same build of their module, else each
 * module's are one. Private to the comparison. */
#ifndef PROFD_PROFILE_COMPARE_JOIN_H
#define PROFD_PROFILE_COMPARE_JOIN_H

#include "agent/profile/compare/window_matrix.h"

#define JOIN_NONE UINT32_MAX

struct join_function {
	const char *name, *package, *file; /* borrowed from the matrices */
	uint32_t line;
	uint8_t kind, flags; /* of the side that has it; flags of either */
	uint32_t first[2];   /* head of its side functions, JOIN_NONE = none */
};

struct join {
	const struct window_matrix *m[2]; /* borrowed */
	struct join_function *functions;
	uint32_t count;
	uint32_t *of[2];   /* side function -> joined function */
	uint32_t *next[2]; /* side function -> the next one of the same joined function */
};

/* -ENOMEM. */
int join_init(struct join *join, const struct window_matrix *base,
	      const struct window_matrix *comparison) must_use;
void join_deinit(struct join *join);

/* Sum of a joined function's cells on one side. */
int64_t join_sum(const struct join *join, int side, uint32_t function,
		 const struct window_cells *cells);

#endif
