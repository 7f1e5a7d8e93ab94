/* SPDX-License-Identifier: Apache-2.0 */
/* The collector process: BPF events and mapping records in, feed records out. See agent/wire/feed.h
 * for the records that it writes and agent/wire/control.h for its commands. */
#ifndef PROFD_COLLECT_COLLECTOR_H
#define PROFD_COLLECT_COLLECTOR_H

#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/collect/kernel/features.h"

struct collector_options {
	int control_fd; /* channel to the supervisor; peers' channels arrive over it */
	int feed_fd;	/* memfd of the ring to the server */
	uint32_t generation; /* of this collector process, from 1 */
	const char *const *exclude; /* glob patterns on exe and unit (config [collect] exclude) */
	unsigned exclude_count;
	const char *host_root; /* where the host's root is, for the files of container runtimes */
	uint64_t memory_budget_bytes; /* unwind tables and BPF maps */
	/* Own cost in per cent of all CPUs above which the rate backs off: for continuous
	 * profiling, and while a session runs that somebody asked for. */
	double cpu_budget_pct, on_demand_budget_pct;
	const char
		*record_path; /* also record the feed into this new file (feed_file.h); NULL = no */
	struct features features; /* as probed; loading may show that fewer are to be had */
	/* Called with what is there, at the start and on change; NULL = nobody asks. */
	void (*report)(const struct features *features);
};

/* Runs until CONTROL_STOP or the supervisor's channel closes. Returns the exit status. */
int collector_run(const struct collector_options *options);

#endif
