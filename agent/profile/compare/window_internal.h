/* SPDX-License-Identifier: Apache-2.0 */
/* Making a window matrix: canonical functions (window_names.c), facts of nodes and processes
 * (window_facts.c), cells by window (window_matrix.c). */
#ifndef PROFD_PROFILE_WINDOW_INTERNAL_H
#define PROFD_PROFILE_WINDOW_INTERNAL_H

#include "agent/base/intern.h"
#include "agent/base/vec.h"
#include "agent/profile/compare/window_matrix.h"

struct window_names {
	char *text;
	size_t text_len, text_capacity;
	struct window_function *functions;
	size_t function_capacity;
	uint32_t function_count;
	struct intern text_index, function_index;
	int error; /* first failure */
};

int window_names_init(struct window_names *n) must_use;
void window_names_deinit(struct window_names *n);
/* Offset of @text; 0 after a failure. */
uint32_t window_names_text(struct window_names *n, const char *text);
/* Canonical function of a frame's function; 0 after a failure. */
uint32_t window_names_function(struct window_names *n, const struct profile *p,
			       const struct profile_frame *frame);

struct window_cell {
	uint32_t function, window;
	int64_t value;
};
VEC_DEFINE(window_cells_list, struct window_cell);

/* Sorts cells, which come with ascending windows, by function. -ENOMEM, -E2BIG. */
int window_cells_make(const struct window_cells_list_vec *list, uint32_t function_count,
		      struct window_cells *ret) must_use;
void window_cells_deinit(struct window_cells *cells);

/* A matrix in the making. */
struct window_build {
	const struct profile *p;
	struct window_matrix *m;
	struct window_names names;
	uint32_t *canonical;	 /* by profile function, UINT32_MAX = in no stack */
	uint32_t *node_function; /* by node: canonical function */
	uint32_t *node_self;	 /* by node: the function its self value counts for */
	bool *node_repeats;	 /* by node: an ancestor has the same function */
	uint32_t *attrs_stratum; /* by attrs index */
};

/* By node: canonical function, function of the self value, repetition on the path. -ENOMEM, -E2BIG.
 */
int window_set_nodes(struct window_build *b) must_use;
int window_set_lives(struct window_build *b) must_use;
/* Flags functions whose waits are mostly waits for work: by name, or by what the thread waited for.
 */
int window_set_idle(struct window_build *b) must_use;
/* Effective samples per unit of value; 0 for types without samples. */
double window_scale(const struct profile *p);
/* Whether the events tell enough of the profile to be cut into windows. */
bool window_has_detail(const struct profile *p);

#endif
