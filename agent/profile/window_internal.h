/* SPDX-License-Identifier: Apache-2.0 */
/* Making a window matrix: interning of canonical functions (window_names.c) and of cells. */
#ifndef PROFD_PROFILE_WINDOW_INTERNAL_H
#define PROFD_PROFILE_WINDOW_INTERNAL_H

#include "agent/base/vec.h"
#include "agent/profile/intern.h"
#include "agent/profile/window_matrix.h"

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

#endif
