/* SPDX-License-Identifier: Apache-2.0 */
/* Clocks. Samples carry CLOCK_MONOTONIC; process starts are CLOCK_BOOTTIME (task->start_boottime);
 * people read CLOCK_REALTIME. A struct clock_triple, read at one instant, converts between them;
 * one is stored with every flush so that suspends are gaps and clock steps never reorder data. */
#ifndef PROFD_BASE_CLOCK_H
#define PROFD_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

#define NS_PER_S  1000000000ull
#define NS_PER_MS 1000000ull

struct clock_triple {
	uint64_t monotonic_ns;
	uint64_t boottime_ns;
	uint64_t realtime_ns; /* since the Unix epoch */
};

uint64_t clock_monotonic_ns(void);
uint64_t clock_boottime_ns(void);
uint64_t clock_realtime_ns(void);
/* CPU time of this process. */
uint64_t clock_process_ns(void);
struct clock_triple clock_now(void);

/* Realtime of a monotonic stamp by the offsets of @at. */
uint64_t clock_to_realtime_ns(const struct clock_triple *at, uint64_t monotonic_ns);

/* How far CLOCK_REALTIME was set forward (negative: back) between two moments of one boot. */
int64_t clock_set_ns(const struct clock_triple *from, const struct clock_triple *to);

/* RFC 3339 UTC with `Z` and milliseconds ("2026-11-21T16:47:21.123Z"): 24 characters and NUL. */
#define CLOCK_RFC3339_SIZE 25
void clock_format_rfc3339(uint64_t realtime_ns, char out[CLOCK_RFC3339_SIZE]);

/* Parses RFC 3339 with `Z` or a numeric offset, fraction optional, also a bare Unix time in
 * seconds. -EINVAL if anything else; @ret_ns untouched then. */
int clock_parse_rfc3339(const char *text, uint64_t *ret_ns) __attribute__((warn_unused_result));

/* Sleeps on CLOCK_MONOTONIC, restarted after signals. */
void clock_sleep_ns(uint64_t ns);

#endif
