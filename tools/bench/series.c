// SPDX-License-Identifier: Apache-2.0
/* A history of many services: series TARGET SERVICES. Fills the last 24 hours of the data folder
 * TARGET with rolled-up hours of cpu, every minute of every service with samples. Stacks are left
 * out: what reads time series reads the index columns alone. */
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

int main(int argc, char **argv)
{
	uint64_t now_ns = clock_realtime_ns(),
		 first_ns = now_ns - now_ns % HOUR_NS - HOURS * HOUR_NS;
	unsigned services = argc == 3 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
	struct store *store;
	struct err err = { 0 };
	static char data[DATA];
	int rc;

	if (!services || services > SERVICES) {
		(void)fprintf(stderr, "usage: series TARGET SERVICES\n");
		return 2;
	}
	rc = store_open(argv[1], NULL, "", &store, &err);
	for (unsigned hour = 0; rc == 0 && hour < HOURS; hour++) {
		uint64_t from_ns = first_ns + hour * HOUR_NS;
		const struct store_day day = { .day = (uint32_t)(from_ns / DAY_NS),
					       .retention_days = 7 };

		fill(services, from_ns, data);
		rc = store_history_roll(store, &day, from_ns, 0, NULL, NULL, windows, services,
					&err);
	}
	if (rc < 0) {
		(void)fprintf(stderr, "series: %s\n", err.text);
		return 1;
	}
	store_close(store);
	return 0;
}
