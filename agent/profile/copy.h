/* SPDX-License-Identifier: Apache-2.0 */
/* Carries the contents of one profile into a builder. A table of old id -> new id for each kind
 * lets each element be interned once, however often it is referred to. */
#ifndef PROFD_PROFILE_COPY_H
#define PROFD_PROFILE_COPY_H

#include "agent/profile/profile.h"

struct copy {
	const struct profile *from; /* borrowed */
	struct profile_builder *to; /* borrowed */
	uint32_t *strings, *mappings, *functions, *frames, *processes, *attrs;
	uint32_t *nodes; /* of the last copy_nodes() */
};

/* Copies all tables but nodes, samples and events. -ENOMEM; the builder's own errors stay in it. */
int copy_init(struct copy *copy, const struct profile *from, struct profile_builder *to) must_use;
/* Grafts the tree below @root of the builder. */
void copy_nodes(struct copy *copy, uint32_t root);
void copy_deinit(struct copy *copy);
static inline void cleanup_copy_fn(struct copy *copy)
{
	copy_deinit(copy);
}
#define cleanup_copy __attribute__((__cleanup__(cleanup_copy_fn)))

#endif
