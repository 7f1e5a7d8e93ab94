/* SPDX-License-Identifier: Apache-2.0 */
/* Locations of a profile, as pprof and OTLP mean them: one program counter with all functions
 * inlined there, innermost first. In the profile's tree an inlined frame is the child of the frame
 * it is inlined into. */
#ifndef PROFD_API_RENDER_CHAINS_H
#define PROFD_API_RENDER_CHAINS_H

#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/u64map.h"
#include "agent/base/vec.h"
#include "agent/profile/profile.h"

struct chain {
	uint32_t frame; /* innermost */
	uint32_t outer; /* chain of the frame it is inlined into; 0 = not inlined */
};
VEC_DEFINE(chain, struct chain);

struct chains {
	const struct profile *p;
	struct chain_vec all; /* 0 is unused */
	uint32_t *of_frame;   /* frame -> chain of it alone */
	struct u64map known;  /* outer chain and frame -> chain */
};

/* -ENOMEM; chains_deinit() is needed either way. @p must outlive the chains. */
int chains_build(const struct profile *p, struct chains *ret) must_use;
void chains_deinit(struct chains *chains);
/* The chain that ends at *@node, which becomes the node below all of it: the caller's, 0 = the
 * root. */
uint32_t chains_climb(const struct chains *chains, uint32_t *node);

#endif
