/* SPDX-License-Identifier: Apache-2.0 */
/* Block and mutex profiles of Go programs that have not turned on their own: snapshots of goroutine
 * states at random moments. Each snapshot counts for the time around it.
 *
 *        snapshot 1        snapshot 2              snapshot 3
 *   |--------x--------|--------x-----------|-----------x-------|
 *   begin         half way             half way              end
 *
 * The sum of a session is its length, whatever comes late. The moments are random, so that nothing
 * periodic in the program is in step with them. Shares are unbiased, and the relative error of a
 * stack seen n times is about 1/sqrt(n). The pause follows from what a snapshot cost: one per cent
 * of a core. Waits count while they go on; how many there were is not known.
 *
 * Used by the reading thread alone. */
#ifndef PROFD_SESSION_STATE_SAMPLER_H
#define PROFD_SESSION_STATE_SAMPLER_H

#include <stdint.h>

#include "agent/session/snapshot/read_job.h"

struct sessions;

/* When the next snapshot is due (monotonic, UINT64_MAX = no session wants any). Lock held. */
uint64_t state_samplers_due(struct sessions *s);
/* Takes those that are due; takes the lock for moments. */
void state_samplers_run(struct sessions *s);
/* Hands on the rest of a session that closes, and marks its end or why it fails. */
void state_samplers_finish(struct sessions *s, const struct read_job *job);
void state_samplers_free(struct sessions *s);

/* Pause after a round that cost @cost_ns of CPU, for a session of @duration_ns that asked for at
 * most
 * @rate_hz snapshots a second. Pure. */
uint64_t state_sampler_pause_ns(uint64_t cost_ns, uint64_t duration_ns, uint32_t rate_hz);

#endif
