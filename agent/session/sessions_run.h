/* SPDX-License-Identifier: Apache-2.0 */
/* Creates, runs and ends struct sessions inside the server process, over an open store. A thread of
 * its own reads the ring, computes the demand, flushes every 10 s and talks to collector and
 * symbolizer. Separate from session.h so that handlers cannot reach it. */
#ifndef PROFD_SESSION_SESSIONS_RUN_H
#define PROFD_SESSION_SESSIONS_RUN_H

#include "agent/session/session.h"
#include "agent/store/store.h"

struct service_rule { /* [service NAME] of the configuration; NULL patterns match all */
	const char *name, *unit, *cgroup, *exe, *cmdline, *user, *port;
};

struct tenant_rule { /* [tenant NAME]: a tenant without a rule may profile everything */
	const char *name;
	const char *const *patterns; /* globs on unit, container, cgroup, exe, user: any one matches */
	unsigned pattern_count;
};

/* Strings and arrays are borrowed and outlive the sessions. 0 means the contract's default. */
struct sessions_options {
	struct store *store; /* borrowed, outlives the sessions */
	int feed_fd;	     /* borrowed; -1: serve the store only */
	const struct service_rule *rules;
	unsigned rule_count;
	const struct tenant_rule *tenants;
	unsigned tenant_count;
	uint32_t running_per_tenant, running_per_host, stacks_per_session, retention_days;
	uint32_t baselines; /* of a tenant: 1,000 */
	uint64_t flush_interval_ns;   /* 10 s; tests shorten it */
	uint64_t continuous_span_ns;  /* 10 min */
	uint64_t build_budget_ns;     /* 60 s: of one answer that many profiles are built for */
	uint64_t disk_budget_bytes;   /* 2 GiB; oldest data goes first */
	uint64_t detail_budget_bytes; /* 256 MiB of it for single samples of continuous profiling */
	bool no_detail;		      /* none of them are kept */
	/* Sends @body (JSON) to a webhook's address and returns when it was accepted; else negative errno
	 * with the reason. May block for seconds. NULL: webhooks stay undelivered. */
	int (*post)(const char *url, const char *content_type, const char *body, struct err *err);
};

int sessions_create(const struct sessions_options *options, struct sessions **ret,
		    struct err *err) must_use;
/* Stops the thread, flushes, marks what runs as completed with the data it had. */
void sessions_destroy(struct sessions *s);
CLEANUP_DEFINE(sessions, struct sessions *, sessions_destroy);
/* Frees everything without writing a byte, as if the process had been killed: for tests of what
 * comes after. */
void sessions_abandon(struct sessions *s);

/* Says why the shared store cannot work while this host is served from the store that stands in for
 * it: health and readiness tell. Any thread. */
void sessions_set_standby(struct sessions *s, const char *reason);
/* Copies from @shared to @standby what this host needs to go on alone: its continuous settings,
 * the sampling switch, the API keys and the secret of links. Takes away there what is gone. What
 * sessions_leave_standby() finds unchanged is not moved back. Errors as of both stores. */
int sessions_mirror(struct store *shared, struct store *standby, struct err *err) must_use;
/* Moves everything that was recorded in @standby to @shared: records, data of sessions and
 * baselines, minutes of the history and their names. Single samples of continuous profiling stay
 * behind. Nothing is deleted in @standby: after success the caller removes it. A call that failed
 * or was killed is repeated as a whole; nothing is then there twice. Runs before sessions_create()
 * on @shared. @collects: this server takes samples. Blocks for as long as @shared takes to accept
 * the data. Errors as of both stores. */
int sessions_leave_standby(struct store *standby, struct store *shared, bool collects,
			   struct err *err) must_use;

/* A new channel to a peer (CONTROL_PEER from the supervisor): ownership of @fd passes on. */
void sessions_set_collector(struct sessions *s, int fd, uint32_t generation);
void sessions_set_symbolizer(struct sessions *s, int fd, uint32_t generation);
void sessions_set_reader(struct sessions *s, int fd, uint32_t generation);

#endif
