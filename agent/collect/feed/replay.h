/* SPDX-License-Identifier: Apache-2.0 */
/* Plays a recording (feed_file.h) into the ring in place of the collector: the whole
 * agent without a kernel and without root. Everything before the first sample is played at once, so
 * that the services of the recording are known; samples begin when a session asks for something.
 * Files of the recording that this host has are given to the symbolizer, so that their frames have
 * names; the kernel's have none.
 *
 * In real time, stamps are moved so that the recording's first sample is taken now and records keep
 * their distances. At full speed every stamp stays as it was recorded, for exact goldens. */
#ifndef PROFD_COLLECT_REPLAY_H
#define PROFD_COLLECT_REPLAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/clock.h"

struct replay_options {
	int control_fd;	  /* channel to the supervisor; peers' channels arrive over it */
	int feed_fd;	  /* memfd of the ring to the server */
	const char *path; /* recording */
	bool real_time;
	bool wait_for_demand; /* hold samples back until CONTROL_DEMAND asks for some */
};

/* Plays once, then stays until CONTROL_STOP or the supervisor is gone. Exit status; a file that
 * cannot be read is told to the supervisor with CONTROL_FAILED. */
int replay_run(const struct replay_options *options);

/* ---- pure parts ------------------------------------------------------------------------------ */

/* The CLOCK_MONOTONIC stamp of a record of the feed; false if it has none or is malformed. */
bool replay_time_of(uint32_t kind, const void *data, size_t len, uint64_t *ret_ns);
/* Moves all stamps of a record by the differences of the two triples. Malformed records are left
 * alone. */
void replay_shift(uint32_t kind, void *data, size_t len, const struct clock_triple *from,
		  const struct clock_triple *to);

#endif
