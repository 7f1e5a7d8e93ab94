/* SPDX-License-Identifier: Apache-2.0 */
/* Deployments: when a program of a service began to run from another build. */
#ifndef PROFD_SESSION_DEPLOYMENTS_H
#define PROFD_SESSION_DEPLOYMENTS_H

#include "agent/base/u64map.h"
#include "agent/session/history.h"

struct continuous_plan;
struct feed_sample;
struct live_process;

#define DEPLOYMENTS_PENDING_MAX 64u

/* The builds that run, and what is to be written about them. */
struct deployments {
	struct u64map builds; /* hash of (service, executable) -> hash of its build */
	struct u64map starts; /* the same key -> start of its newest process, realtime */
	struct deployment_pending *pending; /* DEPLOYMENTS_PENDING_MAX */
	size_t pending_count;
};

int deployments_load(struct sessions *s, struct err *err) must_use;
/* sessions_deployments() without those of other hosts. */
int deployments_of_host(struct sessions *s, const char *tenant, const char *service,
			uint64_t from_ns, uint64_t to_ns, struct deployment_list *ret,
			struct err *err) must_use;
void deployments_deinit(struct sessions *s);
/* Feed thread, lock held: whether @process runs from another build than the one before it. */
void deployments_look(struct sessions *s, struct live_process *process,
		      const struct continuous_plan *plan, const struct feed_sample *sample);
/* Writes what was seen; takes the lock itself. */
void deployments_write(struct sessions *s);

#endif
