/* SPDX-License-Identifier: Apache-2.0 */
/* Sums the time of each function over the minute buckets of some days. For each day the buckets
 * come first, into a recording that adds them up (recording_add_up()), then the dictionary, once.
 * Not thread-safe. */
#ifndef PROFD_SESSION_WINDOW_FUNCTIONS_H
#define PROFD_SESSION_WINDOW_FUNCTIONS_H

#include "agent/profile/function_sums.h"
#include "agent/recording/recording.h"

struct window_functions;

/* @names is borrowed and outlives it. NULL: no memory. */
struct window_functions *window_functions_create(const struct profile_meta *meta,
						 const struct name_source *names);
void window_functions_destroy(struct window_functions *w);
CLEANUP_DEFINE(window_functions, struct window_functions *, window_functions_destroy);

/* The day whose dictionary comes now; its sums are taken out of @recording, which is borrowed until
 * the day ends. */
void window_functions_begin(struct window_functions *w, struct recording *recording);
/* A chunk of the dictionary, in order. -ENOMEM; -EPROTO: it is damaged. */
int window_functions_dictionary(struct window_functions *w, int kind, const void *data, size_t len)
	must_use;
/* -ENOMEM; -EPROTO: pieces that are not settled do not go together. */
int window_functions_end(struct window_functions *w) must_use;

/* As function_sums_finish(). */
int window_functions_finish(struct window_functions *w, struct profile **ret,
			    struct profile_function_row **ret_rows, size_t *ret_count) must_use;

#endif
