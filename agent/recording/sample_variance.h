/* SPDX-License-Identifier: Apache-2.0 */
/* How much of a sample's value is chance (profile_sample.variance). A wait that was recorded with a
 * probability, and would have been left out otherwise, says so: value2 is how many events it stands
 * for (bpf/offcpu.bpf.h, session_thin()). Its parts (blocked and then waiting for a CPU; at a
 * device) come one after the other; the first has that number. One random choice decided on all of
 * them: (a + b)^2 = a^2 + b^2 + 2ab. Pure. */
#ifndef PROFD_RECORDING_SAMPLE_VARIANCE_H
#define PROFD_RECORDING_SAMPLE_VARIANCE_H

#include "agent/recording/session_chunks.h"

/* The last wait of a thread that chance has recorded, as far as its parts have come. */
struct variance_wait {
	uint64_t time_ns;
	uint32_t process, tid;
	double left_out; /* the chance that it would not have been */
	double value;
};

/* Zero-initialized is empty. Threads share places by hash: one that takes another's costs that the
 * 2ab of one wait. */
struct sample_variance {
	struct variance_wait waits[256];
};

/* Adds single samples of all types except cpu, in the order in which they came; @value is what the
 * sample counts. */
double sample_variance(struct sample_variance *v, const struct chunk_attr *attr,
		       const struct chunk_event *event, double value);

#endif
