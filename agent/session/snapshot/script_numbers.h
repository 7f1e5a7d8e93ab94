/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of the script frames that were read from outside. All readings of a server share one
 * module for them: a frame is its function, file and lines, so that the same frame has the same
 * number, and its name is kept once. One thread. */
#ifndef PROFD_SESSION_SNAPSHOT_SCRIPT_NUMBERS_H
#define PROFD_SESSION_SNAPSHOT_SCRIPT_NUMBERS_H

#include "agent/base/u64map.h"
#include "agent/recording/names_client.h"
#include "agent/recording/reading.h"

#define SCRIPT_NUMBERS_MAX (1u << 20) /* later ones have no name */

/* All zero is empty. */
struct script_numbers {
	uint64_t key;	   /* of the module */
	struct u64map map; /* hash of a frame -> its number, from 1 on */
};

void script_numbers_deinit(struct script_numbers *numbers);
/* Gives @reading's script frames their numbers, its module of them the key, and tells @names what
 * they are called. -ENOMEM. */
int script_numbers_give(struct script_numbers *numbers, struct names_client *names,
			struct reading *reading) must_use;

#endif
