/* SPDX-License-Identifier: Apache-2.0 */
/* Go programs that were examined already: finding the layout of one costs milliseconds, using it
 * again nothing. A few are kept, for as long as they are asked for; an entry belongs to one process
 * instance and one executable. Not thread-safe. */
#ifndef PROFD_READER_GO_PROCESS_H
#define PROFD_READER_GO_PROCESS_H

#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"
#include "agent/reader/go_buckets.h"
#include "agent/reader/go_unwind.h"
#include "agent/reader/go_walks.h"

#define GO_PROCESSES_MAX 8u /* about 2 MiB each, 20 MiB with 131,072 goroutines that stay parked */

struct go_process {
	struct target target;
	struct target_maps maps; /* as of the last request */
	struct go_layout *layout;
	struct go_unwinder unwinder;
	struct go_profile_places places;
	struct go_walks walks;
	uint64_t used_ns; /* monotonic */
};

struct go_processes {
	struct go_process *items[GO_PROCESSES_MAX];
};

/* The process, examined; borrowed until the next call. Errors of target_open(), target_maps_read()
 * and go_layout_create(), with the reason in @err where there is one. */
int go_processes_get(struct go_processes *all, uint32_t tgid, uint64_t start_boottime_ns,
		     struct go_process **ret, struct err *err) must_use;
/* Forgets one (its memory was not as expected) or those that nobody asked for since @before_ns. */
void go_processes_forget(struct go_processes *all, struct go_process *process);
void go_processes_expire(struct go_processes *all, uint64_t before_ns);

#endif
