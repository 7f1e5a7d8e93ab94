// SPDX-License-Identifier: Apache-2.0
/* A history of many services: series TARGET SERVICES [URL HOST]. Fills the last 24 hours of the
 * data folder TARGET with rolled-up hours of cpu, every minute of every service with samples. With
 * the URL of a shared store it is HOST's, and the minutes are written before, as an agent writes
 * them: five parts and the whole. Stacks are left out: what reads time series reads the index
 * columns alone. */
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
#define FLUSHES	 6    /* a minute */

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

/* One flush of every service: the last of a minute replaces the parts before it. */
static int append(struct store *store, const struct store_day *day, unsigned services,
		  uint64_t from_ns, unsigned flush, struct err *err)
{
	static uint8_t data[PART];
	static struct store_window parts[SERVICES];
	static uint64_t position;
	const bool whole = flush % FLUSHES == FLUSHES - 1;

	for (unsigned i = 0; i < services; i++) {
		const struct store_minute *minute = &minutes[i][flush / FLUSHES];

		for (size_t j = 0; j < sizeof(data); j++)
			data[j] = (uint8_t)(j < sizeof(data) / 2 ? i * 31 + flush * 7 + j * j : 0);
		parts[i] = (struct store_window){ .service = names[i],
						  .type = "cpu",
						  .owners = ",default:19,",
						  .from_ns = from_ns + minute->minute * 60 * NS_PER_S,
						  .whole = whole,
						  .profiled_ms = minute->profiled_ms / (whole ? 1 : FLUSHES),
						  .samples = minute->samples / (whole ? 1 : FLUSHES),
						  .value = minute->value / (whole ? 1 : FLUSHES),
						  .data = data,
						  .len = sizeof(data) };
	}
	return store_history_append(store, day, NULL, 0, parts, services, 1, ++position, err);
}

int main(int argc, char **argv)
{
	uint64_t now_ns = clock_realtime_ns(),
		 first_ns = now_ns - now_ns % HOUR_NS - HOURS * HOUR_NS;
	unsigned services = argc == 3 || argc == 5 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
	struct store *store;
	struct err err = { 0 };
	static char data[DATA];
	int rc;

	if (!services || services > SERVICES) {
		(void)fprintf(stderr, "usage: series TARGET SERVICES [URL HOST]\n");
		return 2;
	}
	rc = store_open(argv[1], argc == 5 ? argv[3] : NULL, argc == 5 ? argv[4] : "", &store, &err);
	for (unsigned hour = 0; rc == 0 && hour < HOURS; hour++) {
		uint64_t from_ns = first_ns + hour * HOUR_NS;
		const struct store_day day = { .day = (uint32_t)(from_ns / DAY_NS),
					       .retention_days = 7 };

		fill(services, from_ns, data);
		for (unsigned i = 0; rc == 0 && argc == 5 && i < MINUTES * FLUSHES; i++)
			rc = append(store, &day, services, from_ns, i, &err);
		rc = rc < 0 ? rc : store_history_roll(store, &day, from_ns, 0, NULL, NULL, windows, services,
					&err);
	}
	while (rc == 0 && store_waiting_bytes(store))
		clock_sleep_ns(10 * NS_PER_MS);
	if (rc < 0) {
		(void)fprintf(stderr, "series: %s\n", err.text);
		return 1;
	}
	store_close(store);
	return 0;
}
