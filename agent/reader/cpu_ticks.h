/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU's constant-rate counter, in which Go's runtime measures waits: how many ticks make a
 * nanosecond. Measured here against CLOCK_MONOTONIC; Go up to 1.21 estimates the same within its
 * first 100 ms and is up to 0.35 % off. The only file of the folder that is about one
 * architecture's instructions. */
#ifndef PROFD_READER_CPU_TICKS_H
#define PROFD_READER_CPU_TICKS_H

#include <stdint.h>

struct cpu_ticks {
	uint64_t ticks;
	uint64_t ns; /* CLOCK_MONOTONIC at the same instant */
};

/* Takes the first reading; the longer ago, the more precise the rate. */
struct cpu_ticks cpu_ticks_now(void);
/* Ticks per nanosecond since @start; waits until 20 ms have passed since then (error below 10 ppm).
 */
double cpu_ticks_per_ns(const struct cpu_ticks *start);

#endif
