// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/watch.h"

#include <unistd.h>

#include "agent/base/clock.h"

#define SET_AGAIN_NS (500 * NS_PER_MS) /* a system call for every read would cost as much as the read */

static uint64_t until_ns, set_ns; /* until_ns 0 = off */

static void set(uint64_t now_ns)
{
	uint64_t left_s = until_ns > now_ns ? (until_ns - now_ns) / NS_PER_S + 1 : 1;

	set_ns = now_ns;
	(void)alarm(left_s < WATCH_HANG_S ? (unsigned)left_s : WATCH_HANG_S);
}

void watch_start(uint64_t until)
{
	until_ns = until;
	set(clock_monotonic_ns());
}

void watch_stop(void)
{
	until_ns = 0;
	(void)alarm(0);
}

void watch_pause(void)
{
	uint64_t now_ns = clock_monotonic_ns();

	if (!until_ns)
		return;
	set_ns = 0;
	(void)alarm(until_ns > now_ns ? (unsigned)((until_ns - now_ns) / NS_PER_S + 1) : 1);
}

void watch_touch(void)
{
	uint64_t now_ns;

	if (!until_ns)
		return;
	now_ns = clock_monotonic_ns();
	/* Too late: the alarm that is set already ends it. */
	if (now_ns - set_ns > SET_AGAIN_NS && now_ns < until_ns)
		set(now_ns);
}
