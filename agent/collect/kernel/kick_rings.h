/* SPDX-License-Identifier: Apache-2.0 */
/* One small BPF ring buffer per CPU, which carries nothing. The off-CPU program discards a record
 * in it with a forced wakeup, to raise an interrupt on its own CPU (bpf/offcpu.bpf.h). The space of
 * discarded records must be given back now and then. */
#ifndef PROFD_COLLECT_KICK_RINGS_H
#define PROFD_COLLECT_KICK_RINGS_H

#include <stdint.h>

#include "agent/base/cleanup.h"

struct kick_ring;

struct kick_rings {
	struct kick_ring *rings; /* owned */
	unsigned count;
	uint64_t charged_bytes;
};

/* Creates @count rings and puts them into the array of maps @outer_fd. Does nothing if they exist.
 */
int kick_rings_init(struct kick_rings *kicks, int outer_fd, unsigned count) must_use;
void kick_rings_deinit(struct kick_rings *kicks);
void kick_rings_drain(struct kick_rings *kicks);

#endif
