// SPDX-License-Identifier: Apache-2.0
/* A history of many services: series TARGET SERVICES [URL HOST]. Fills the last 24 hours of the
 * data folder TARGET with rolled-up hours of cpu, every minute of every service with samples. With
 * the URL of a shared store the history is HOST's. Then the minutes are written before they are
 * rolled up, as an agent writes them (a part and the whole), and the hour under way is there
 * up to now. Stacks are left out: time series are read from the index columns alone.
 * series TARGET SERVICES URL PREFIX HOSTS SECONDS: as many hosts write minutes now. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/store/store.h"

#define HOUR_NS	 (3600 * NS_PER_S)
#define DAY_NS	 (24 * HOUR_NS)
#define HOURS	 24
#define MINUTES	 60u
#define SERVICES 1000
#define DATA	 2048 /* bytes of an hour's data, about what an hour of a small service takes */
#define PART	 128  /* of a minute's */
#define MINUTE_NS (60 * NS_PER_S)

static struct store_minute minutes[SERVICES][MINUTES];
static struct store_window windows[SERVICES];
static char names[SERVICES][32];

static void fill(unsigned services, uint64_t from_ns, const void *data)
{
	for (unsigned i = 0; i < services; i++) {
		struct store_window *window = &windows[i];

		(void)snprintf(names[i], sizeof(names[i]), "service-%03u", i);
		*window = (struct store_window){ .service = names[i],
						 .type = "cpu",
						 .owners = ",default:19,",
						 .from_ns = from_ns,
						 .whole = true,
						 .profiled_ms = HOUR_NS / NS_PER_MS,
						 .data = data,
						 .len = DATA,
						 .minutes = minutes[i],
						 .minute_count = MINUTES };
		for (unsigned m = 0; m < MINUTES; m++) {
			struct store_minute *minute = &minutes[i][m];

			*minute = (struct store_minute){ .minute = m,
							 .profiled_ms = 60000,
							 .samples = 1 + (i * 7 + m) % 300 };
			minute->value = (int64_t)(minute->samples * NS_PER_S / 19);
			window->samples += minute->samples;
			window->value += minute->value;
		}
	}
}

static struct store_window make_part(unsigned service, uint64_t hour_ns, unsigned at, bool whole)
{
	const struct store_minute *minute = &minutes[service][at];
	const unsigned share = whole ? 1 : 2;

	return (struct store_window){ .service = names[service],
				      .type = "cpu",
				      .owners = ",default:19,",
				      .from_ns = hour_ns + at * MINUTE_NS,
				      .whole = whole,
				      .profiled_ms = minute->profiled_ms / share,
				      .samples = minute->samples / share,
				      .value = minute->value / share };
}

/* One flush of every service in minute @at of the hour: its part, and the whole of the minute
 * before. */
static int append(struct store *store, const struct store_day *day, unsigned services,
		  uint64_t hour_ns, unsigned at, struct err *err)
{
	static uint8_t data[2 * SERVICES][PART];
	static struct store_window parts[2 * SERVICES];
	static uint64_t position;
	size_t count = 0;

	for (unsigned i = 0; i < services; i++) {
		if (at > 0)
			parts[count++] = make_part(i, hour_ns, at - 1, true);
		if (at < MINUTES)
			parts[count++] = make_part(i, hour_ns, at, false);
	}
	for (size_t i = 0; i < count; i++) {
		for (size_t j = 0; j < PART; j++)
			data[i][j] = (uint8_t)(j < PART / 2 ? i * 31 + at * 7 + j * j : 0);
		parts[i].data = data[i];
		parts[i].len = PART;
	}
	return store_history_append(store, day, NULL, 0, parts, count, 1, ++position, err);
}

/* ---- writers --------------------------------------------------------------------------------- */

/* @count hosts, whose names begin with @prefix, flush every service once a minute for @seconds,
 * one host after the other. */
static int write_live(const char *target, unsigned services, const char *url,
		      const char *prefix, unsigned count, unsigned seconds, struct err *err)
{
	struct store **stores = calloc(count, sizeof(struct store *));
	uint64_t begin_ns = clock_monotonic_ns(), waiting = 0;
	int rc = stores ? 0 : -ENOMEM;

	for (unsigned i = 0; rc == 0 && i < count; i++) {
		char folder[256], host[32];

		(void)snprintf(folder, sizeof(folder), "%s/%u", target, i);
		(void)snprintf(host, sizeof(host), "%s%u", prefix, i);
		rc = store_open(folder, url, host, &stores[i], err);
	}
	for (unsigned i = 0; rc == 0 && i < count * (seconds / 60); i++) {
		uint64_t due_ns = begin_ns + i * MINUTE_NS / count, now_ns = clock_monotonic_ns(),
			 at_ns = clock_realtime_ns(), hour_ns = at_ns - at_ns % HOUR_NS;
		const struct store_day day = { .day = (uint32_t)(at_ns / DAY_NS), .retention_days = 7 };

		if (now_ns < due_ns)
			clock_sleep_ns(due_ns - now_ns);
		if (i % count == 0)
			fill(services, hour_ns, NULL);
		rc = append(stores[i % count], &day, services, hour_ns,
			    (unsigned)(at_ns % HOUR_NS / MINUTE_NS), err);
	}
	for (unsigned i = 0; stores && i < count; i++) {
		waiting += stores[i] ? store_waiting_bytes(stores[i]) : 0;
		store_close(stores[i]);
	}
	free(stores);
	(void)printf("%.1f s, %.1f MB wait\n", (double)(clock_monotonic_ns() - begin_ns) / NS_PER_S,
		     (double)waiting / 1e6);
	return rc;
}

/* ---- 24 hours -------------------------------------------------------------------------------- */

static int write_day(struct store *store, unsigned services, bool shared, struct err *err)
{
	static char data[DATA];
	uint64_t now_ns = clock_realtime_ns(), end_ns = now_ns - now_ns % HOUR_NS;
	int rc = 0;

	for (uint64_t from_ns = end_ns - HOURS * HOUR_NS; rc == 0 && from_ns <= end_ns;
	     from_ns += HOUR_NS) {
		const struct store_day day = { .day = (uint32_t)(from_ns / DAY_NS), .retention_days = 7 };
		unsigned flushes = from_ns < end_ns ? MINUTES + 1
						    : (unsigned)(now_ns % HOUR_NS / MINUTE_NS) + 1;

		fill(services, from_ns, data);
		for (unsigned i = 0; rc == 0 && shared && i < flushes; i++)
			rc = append(store, &day, services, from_ns, i, err);
		if (rc == 0 && from_ns < end_ns)
			rc = store_history_roll(store, &day, from_ns, 0, NULL, NULL, windows, services, err);
	}
	while (rc == 0 && store_waiting_bytes(store))
		clock_sleep_ns(10 * NS_PER_MS);
	return rc;
}

int main(int argc, char **argv)
{
	const bool shared = argc == 5 || argc == 7;
	unsigned services = argc == 3 || shared ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
	struct store *store = NULL;
	struct err err = { 0 };
	int rc;

	if (!services || services > SERVICES) {
		(void)fprintf(stderr, "usage: series TARGET SERVICES [URL HOST [HOSTS SECONDS]]\n");
		return 2;
	}
	if (argc == 7) {
		rc = write_live(argv[1], services, argv[3], argv[4], (unsigned)strtoul(argv[5], NULL, 10),
				(unsigned)strtoul(argv[6], NULL, 10), &err);
	} else {
		rc = store_open(argv[1], shared ? argv[3] : NULL, shared ? argv[4] : "", &store, &err);
		rc = rc < 0 ? rc : write_day(store, services, shared, &err);
		store_close(store);
	}
	if (rc < 0)
		(void)fprintf(stderr, "series: %s\n", err.text);
	return rc < 0;
}
