// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/cpu_ticks.h"

#include "agent/base/clock.h"

#define BASELINE_NS (20 * NS_PER_MS)
#define TRIES	    5

#if defined(__x86_64__)
static uint64_t counter(void)
{
	return __builtin_ia32_rdtsc();
}
#elif defined(__aarch64__)
static uint64_t counter(void)
{
	uint64_t value;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
	return value;
}
#else
#error "which counter does runtime.cputicks() read on this architecture?"
#endif

/* The clock is read on both sides of the counter and the closest of a few tries is kept, so that an
 * interrupt between them does not count. */
struct cpu_ticks cpu_ticks_now(void)
{
	struct cpu_ticks best = { 0 };
	uint64_t best_span = UINT64_MAX;

	for (int i = 0; i < TRIES; i++) {
		uint64_t before = clock_monotonic_ns(), ticks = counter(),
			 after = clock_monotonic_ns();

		if (after - before >= best_span)
			continue;
		best_span = after - before;
		best = (struct cpu_ticks){ ticks, before + (after - before) / 2 };
	}
	return best;
}

double cpu_ticks_per_ns(const struct cpu_ticks *start)
{
	uint64_t age = clock_monotonic_ns() - start->ns;
	struct cpu_ticks now;

	if (age < BASELINE_NS)
		clock_sleep_ns(BASELINE_NS - age);
	now = cpu_ticks_now();
	return (double)(now.ticks - start->ticks) / (double)(now.ns - start->ns);
}
