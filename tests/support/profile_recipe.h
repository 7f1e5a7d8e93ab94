/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles for tests, drawn at random from a mixture of stacks. The same recipe gives the same
 * profile. */
#ifndef PROFD_TESTS_PROFILE_RECIPE_H
#define PROFD_TESTS_PROFILE_RECIPE_H

#include "agent/base/clock.h"
#include "agent/profile/profile.h"

#define PERIOD_NS 10101010
#define START_NS  (1000000ull * NS_PER_S)

struct part {
	const char *stack; /* root;…;leaf, `@kernel` behind kernel frames, `@nameless` behind those
			    * of a file without symbols */
	double weight;
	const char *comm; /* NULL = "app" */
	const char *wait;
};

struct recipe {
	enum profile_type type;
	const struct part *parts;
	size_t count;
	unsigned seconds, hz; /* hz: events per second */
	uint32_t pid;
	uint64_t start_ns;
	uint64_t seed;
	double value; /* mean value of an event, 0 = PERIOD_NS */
};

/* A profile in which every event is drawn from the parts of @r by their weights. The caller's. */
struct profile *recipe_make(const struct recipe *r);
/* A minute of CPU time at 99 Hz. */
struct recipe recipe_of(const struct part *parts, size_t count, uint64_t seed);
#define RECIPE(parts, seed) recipe_of(parts, ARRAY_SIZE(parts), seed)

#endif
