/* SPDX-License-Identifier: Apache-2.0 */
/* A CPU profile with everything that a renderer must handle: two processes, threads, inlined
 * frames, a build id, kernel, unknown and truncated frames, labels, time-ordered events. Some names
 * try to break formats. */
#ifndef PROFD_TESTS_RENDER_FIXTURE_H
#define PROFD_TESTS_RENDER_FIXTURE_H

#include "agent/profile/profile.h"

#define RENDER_FIXTURE_TOTAL_NS 440000000 /* 44 samples of 10 ms */

struct profile *render_fixture(void);
/* A tree of about @nodes nodes, up to 120 frames deep, with names as long as real ones. */
struct profile *render_fixture_large(uint32_t nodes);

#endif
