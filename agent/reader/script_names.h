/* SPDX-License-Identifier: Apache-2.0 */
/* Names of script frames on their way into the answer CONTROL_SCRIPT_NAMED: for each place the
 * functions that it stands for, innermost first. More than one where a compiler has put functions
 * into each other. Not thread-safe. */
#ifndef PROFD_READER_SCRIPT_NAMES_H
#define PROFD_READER_SCRIPT_NAMES_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/buf.h"
#include "agent/wire/control.h"
#include "agent/wire/feed.h"

struct script_names {
	struct buf payload;			/* entries as described at CONTROL_SCRIPT_NAMED */
	size_t ends[CONTROL_SCRIPT_PLACES_MAX]; /* of the entries in it */
	size_t count;				/* of entries */
	/* These hold for the functions that are added to the entry at hand. */
	enum feed_tier tier;
	bool is_approximate; /* see FEED_APPROXIMATE */
};

void script_names_deinit(struct script_names *names);
/* Begins the entry of the next place; without functions it has no name. Its tier is not known,
 * its position is exact. */
void script_names_begin(struct script_names *names);
/* Adds a function to the entry at hand, unless it would not fit into a message any more. Texts
 * longer than SCRIPT_NAME_MAX are cut. */
void script_names_add(struct script_names *names, const char *function, const char *file,
		      uint32_t line, uint32_t first_line);
/* Takes back what was added to the entry at hand. */
void script_names_drop(struct script_names *names);

static inline void cleanup_script_names_fn(struct script_names *names)
{
	script_names_deinit(names);
}
#define cleanup_script_names __attribute__((__cleanup__(cleanup_script_names_fn)))

#endif
