/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the functions in days of continuous profiling, kept with the days where several hosts
 * share a store. Only the host that ran a program is sure to have its files, and other hosts show
 * its days. Session data of their own (STORE_CHUNK_NAMES), whose id says the day, its retention and
 * the host. Written by the finisher; nothing depends on it but names. */
#ifndef PROFD_SESSION_DAY_NAMES_H
#define PROFD_SESSION_DAY_NAMES_H

#include "agent/base/u64map.h"
#include "agent/base/clock.h"
#include "agent/session/records/hosts.h"
#include "agent/session/session.h"
#include "agent/store/store.h"

#define DAY_NAMES_DAYS	   8u /* written to at once: of today and yesterday, by retention */
#define DAY_NAMES_FIRST_NS                                                                         \
	(15 * NS_PER_S) /* between two looks; twice as long each time once there are names */
#define DAY_NAMES_MOST_NS  (300 * NS_PER_S)

struct day_names { /* of the finisher alone */
	struct day_names_entry {
		struct store_day day;
		uint64_t until_ns; /* realtime: what was recorded before has its names */
		struct u64map kept; /* hashes of (module, offset) */
	} days[DAY_NAMES_DAYS];
	unsigned count;
	uint64_t at_ns, every_ns; /* monotonic: the next look, and how long to the one after it */
	unsigned seen; /* struct continuous.stored before the last look */
	bool complete; /* that look found all names: nothing is looked at until more is stored */
};

/* Looks what is new, if it is time and there is something new. */
void day_names_look(struct sessions *s);
void day_names_deinit(struct sessions *s);
/* Gives the names of another host's @day to the build under way (names_client_begin()); build turn
 * taken. */
int day_names_load(struct sessions *s, const struct store_day *day, struct err *err) must_use;
/* Copies them behind the data of the baseline @to. */
int day_names_copy(struct sessions *s, const struct store_day *day, const char *to, struct err *err)
	must_use;
/* The id of the session data that holds the names of @day. */
void day_names_id(const struct own_host *own, const struct store_day *day, char out[STORE_ID_SIZE]);
/* Drops the names of a day that was deleted. */
void day_names_drop(struct sessions *s, const struct store_day *day);

#endif
