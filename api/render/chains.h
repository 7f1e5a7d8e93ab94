/* SPDX-License-Identifier: Apache-2.0 */
/* Locations of a profile, as pprof and OTLP mean them: one program counter with all functions inlined there,
 * innermost first. In the profile's tree an inlined frame is the child of the frame it is inlined into. */
#ifndef PROFD_API_RENDER_CHAINS_H
#define PROFD_API_RENDER_CHAINS_H

#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/profile/profile.h"

struct chain {
	uint32_t frame; /* innermost */
	uint32_t outer; /* chain of the frame it is inlined into; 0 = not inlined */
};

struct chains {
	struct chain *items; /* 1 … count-1; 0 is unused */
	uint32_t count;
	uint32_t *of_node; /* profile node -> chain that ends there */
	uint32_t *up;	   /* profile node -> node below the whole chain: the caller's; 0 = root */
};

int chains_build(const struct profile *p, struct chains *ret) must_use;
void chains_deinit(struct chains *chains);

static inline void cleanup_chains_fn(struct chains *chains)
{
	chains_deinit(chains);
}
#define cleanup_chains __attribute__((__cleanup__(cleanup_chains_fn)))

#endif
