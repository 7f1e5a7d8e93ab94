/* SPDX-License-Identifier: Apache-2.0 */
/* The symbolizer process: file descriptors in, unwind tables and names out. It opens nothing itself
 * but files below its cache folder; it has no capability, memory and CPU limits, and may be killed
 * at any time (names are then missing for at most 2 s). Protocol: agent/wire/control.h. */
#ifndef PROFD_SYMBOLIZE_SYMBOLIZER_H
#define PROFD_SYMBOLIZE_SYMBOLIZER_H

#include <stdint.h>

struct symbolizer_options {
	int control_fd;	  /* channel to the supervisor; peers' channels arrive over it */
	int cache_dir_fd; /* folder of the on-disk cache, -1 = none */
	uint64_t cache_bytes;  /* budget of the folder */
	uint64_t memory_bytes; /* budget of indexes kept mapped */
	uint64_t debug_again_ns; /* between questions for a debug file that was absent; 0 = 5 s */
};

/* Drops into its sandbox, then serves until CONTROL_STOP or the supervisor is gone. Exit status. */
int symbolizer_run(const struct symbolizer_options *options);

#endif
