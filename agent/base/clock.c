// SPDX-License-Identifier: Apache-2.0
#include "agent/base/clock.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "agent/base/parse.h"

static uint64_t read_clock(clockid_t id)
{
	struct timespec ts;

	(void)clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t clock_monotonic_ns(void)
{
	return read_clock(CLOCK_MONOTONIC);
}

uint64_t clock_boottime_ns(void)
{
	return read_clock(CLOCK_BOOTTIME);
}

uint64_t clock_realtime_ns(void)
{
	return read_clock(CLOCK_REALTIME);
}

uint64_t clock_process_ns(void)
{
	return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

struct clock_triple clock_now(void)
{
	return (struct clock_triple){
		.monotonic_ns = clock_monotonic_ns(),
		.boottime_ns = clock_boottime_ns(),
		.realtime_ns = clock_realtime_ns(),
	};
}

uint64_t clock_to_realtime_ns(const struct clock_triple *at, uint64_t monotonic_ns)
{
	return at->realtime_ns - at->monotonic_ns + monotonic_ns;
}

int64_t clock_set_ns(const struct clock_triple *from, const struct clock_triple *to)
{
	return (int64_t)(to->realtime_ns - from->realtime_ns - (to->boottime_ns - from->boottime_ns));
}

void clock_format_rfc3339(uint64_t realtime_ns, char out[CLOCK_RFC3339_SIZE])
{
	time_t seconds = (time_t)(realtime_ns / NS_PER_S);
	unsigned ms = (unsigned)(realtime_ns % NS_PER_S / NS_PER_MS);
	struct tm tm = { 0 };
	char text[64];

	(void)gmtime_r(&seconds, &tm);
	(void)snprintf(text, sizeof(text), "%04d-%02d-%02dT%02d:%02d:%02d.%03uZ", tm.tm_year + 1900,
		       tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, ms);
	(void)memcpy(out, text, CLOCK_RFC3339_SIZE - 1);
	out[CLOCK_RFC3339_SIZE - 1] = '\0';
}

/* Digits of exactly @count characters at *@at, within [min, max]. */
static int take_number(const char **at, int count, int min, int max, int *ret)
{
	int value = 0;

	for (int i = 0; i < count; i++) {
		if (!isdigit((unsigned char)(*at)[i]))
			return -EINVAL;
		value = value * 10 + ((*at)[i] - '0');
	}
	if (value < min || value > max)
		return -EINVAL;
	*at += count;
	*ret = value;
	return 0;
}

static int take_char(const char **at, const char *allowed)
{
	if (!**at || !strchr(allowed, **at))
		return -EINVAL;
	(*at)++;
	return 0;
}

static uint64_t take_fraction_ns(const char **at)
{
	uint64_t ns = 0, unit = NS_PER_S / 10;

	for (; isdigit((unsigned char)**at); (*at)++, unit /= 10)
		ns += (uint64_t)(**at - '0') * unit;
	return ns;
}

/* "Z", "z", "+hh:mm" or "-hh:mm" to the end of the text. */
static int take_zone(const char *at, int *ret_seconds)
{
	int sign, hours, minutes;

	if ((*at == 'Z' || *at == 'z') && !at[1]) {
		*ret_seconds = 0;
		return 0;
	}
	sign = *at == '-' ? -1 : 1;
	if (take_char(&at, "+-") || take_number(&at, 2, 0, 23, &hours) || take_char(&at, ":") ||
	    take_number(&at, 2, 0, 59, &minutes) || *at)
		return -EINVAL;
	*ret_seconds = sign * (hours * 3600 + minutes * 60);
	return 0;
}

static int days_of_month(int year, int month)
{
	static const int days[] = { 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31 };
	int leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;

	return days[month - 1] + (month == 2 && leap);
}

/* Stores keep times as signed numbers: a time beyond them is the last one that they have. */
static uint64_t to_ns(uint64_t seconds, uint64_t fraction_ns)
{
	return seconds < INT64_MAX / NS_PER_S ? seconds * NS_PER_S + fraction_ns : INT64_MAX;
}

int clock_parse_rfc3339(const char *text, uint64_t *ret_ns)
{
	struct tm tm = { 0 };
	int year, month, zone;
	uint64_t fraction = 0, unix_seconds;
	time_t seconds;

	if (parse_u64(text, 0, 253402300799ull, &unix_seconds) == 0) {
		*ret_ns = to_ns(unix_seconds, 0);
		return 0;
	}
	if (take_number(&text, 4, 1970, 9999, &year) || take_char(&text, "-") ||
	    take_number(&text, 2, 1, 12, &month) || take_char(&text, "-") ||
	    take_number(&text, 2, 1, days_of_month(year, month), &tm.tm_mday) ||
	    take_char(&text, "Tt ") || take_number(&text, 2, 0, 23, &tm.tm_hour) ||
	    take_char(&text, ":") || take_number(&text, 2, 0, 59, &tm.tm_min) ||
	    take_char(&text, ":") || take_number(&text, 2, 0, 60, &tm.tm_sec))
		return -EINVAL;
	if (*text == '.') {
		text++;
		if (!isdigit((unsigned char)*text))
			return -EINVAL;
		fraction = take_fraction_ns(&text);
	}
	if (take_zone(text, &zone))
		return -EINVAL;
	tm.tm_year = year - 1900;
	tm.tm_mon = month - 1;
	seconds = timegm(&tm) - zone;
	if (seconds < 0)
		return -EINVAL;
	*ret_ns = to_ns((uint64_t)seconds, fraction);
	return 0;
}

void clock_sleep_ns(uint64_t ns)
{
	struct timespec left = { .tv_sec = (time_t)(ns / NS_PER_S), .tv_nsec = (long)(ns % NS_PER_S) };

	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &left, &left) == EINTR)
		continue;
}
