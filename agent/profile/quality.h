/* SPDX-License-Identifier: Apache-2.0 */
/* Data quality of a profile: shares of cut stacks, of unknown and of guessed frames; the joint
 * quality of several parts. */
#ifndef PROFD_PROFILE_QUALITY_H
#define PROFD_PROFILE_QUALITY_H

#include "agent/profile/profile.h"

/* Fills truncated_pct (of samples), unknown_frame_pct and guessed_frame_pct (of frames, each
 * weighted by the samples that hold it; markers are no frames; of a stack that is lost all are
 * unknown, and it counts as an average one). Samples weigh by their first value, a count for every
 * type but wall. All are 0 for an empty profile. Notes that stacks are lost, and that files could
 * not be read in which unknown frames lie. -ENOMEM. */
int quality_of_frames(const struct profile *p, struct profile_quality *ret) must_use;

/* Appends a note unless it is there already or there is no room. */
void quality_note(struct profile_quality *quality, const char *fmt, ...) printf_like(2, 3);

/* Appends a process that was left out, unless it is there already; beyond PROFILE_SKIPPED_MAX a
 * note says that there are more. */
void quality_skip(struct profile_quality *quality, uint32_t pid, const char *reason);

/* Adds @part to @sum, which began as quality_empty(). Counts are summed; rates and overhead are
 * weighted by samples; what a part does not know stays unknown only if no part knows it. */
void quality_add(struct profile_quality *sum, const struct profile_quality *part);
struct profile_quality quality_empty(void);

#endif
