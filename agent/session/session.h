/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions and services as the API sees them: start, follow, read, list, stop, delete. One object,
 * struct sessions, owns the running sessions, the service table and the store connection. Every
 * function here takes its lock itself and may be called from any HTTP thread. Nothing here knows
 * HTTP.
 *
 * Errors: negative errno plus, in struct err, the contract's error_code word, the field and a
 * sentence. */
#ifndef PROFD_SESSION_SESSION_H
#define PROFD_SESSION_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"
#include "agent/profile/profile.h"

struct sessions;

#define SESSION_ID_SIZE 32 /* "sess-" + 26 + NUL, or "bl-" + 26 + NUL */
#define SERVICE_NAME_SIZE 256
#define SERVICE_CONTAINER_SIZE 96 /* 64 digits, with "user@UID/" before them where it is a user's */
#define SELECTOR_TEXT_SIZE 320
#define TENANT_NAME_SIZE 65
#define SESSION_LABELS_MAX 32
#define SESSION_LABEL_SIZE 256

enum session_status { SESSION_RUNNING, SESSION_COMPLETED, SESSION_FAILED };

struct session_label {
	char name[65];
	char value[SESSION_LABEL_SIZE];
};

struct session_request {
	const char *tenant;
	const char *service;	  /* name or alias, as asked */
	enum profile_type type;
	uint32_t duration_s;	  /* 1 to 3600, checked by the caller's parser and again here; goroutine
				   * also 0: at once */
	uint32_t rate_hz;	  /* 1…1000 */
	uint32_t wait_s;	  /* 0 = the service must run now */
	bool kernel_locks;	  /* mutex: those of the kernel too */
	bool wakers;		  /* types of waits: with the stacks of those who end them */
	bool paths;		  /* io: with the files' paths and the sockets' peers */
	bool tasks;		  /* goroutine: with the asyncio tasks of Python programs */
	bool children;		  /* pid:N, what is sampled: with its descendants, living and yet to come */
	bool continuous;	  /* by a continuous setting: apart from all that is asked for */
	const struct session_label *labels;
	uint32_t label_count;
	const char *idempotency_key; /* NULL = none */
};

struct session_process {
	uint32_t pid;
	uint64_t started_at_ns; /* realtime */
	char exe[256];
	int64_t value;
};

/* A copy, safe to keep. Processes and labels are owned: session_info_deinit(). */
struct session_info {
	char id[SESSION_ID_SIZE];
	char tenant[TENANT_NAME_SIZE];
	char service[SERVICE_NAME_SIZE];  /* "host" for the whole host */
	char selector[SELECTOR_TEXT_SIZE]; /* what is followed, canonical: service:NAME, pid:N, host */
	char host[65];
	enum profile_type type;
	enum profile_source source; /* known when it has begun */
	enum session_status status;
	bool stopped_early;
	bool continuous;
	bool kernel_locks, wakers, paths, tasks;
	uint64_t created_at_ns;	  /* realtime */
	uint64_t started_at_ns;	  /* realtime, 0 = waiting for the first process */
	uint64_t completed_at_ns; /* realtime, 0 = running */
	uint64_t duration_ns;	  /* so far, or final */
	uint32_t requested_duration_s;
	uint32_t rate_hz;
	uint32_t retention_days; /* on its own host; 0 = not known */
	uint64_t sample_count;
	int64_t total_value;
	uint64_t raw_data_bytes;
	char failure[384];
	struct profile_quality quality;
	struct session_process *processes;
	uint32_t process_count;
	struct session_label *labels;
	uint32_t label_count;
};
void session_info_deinit(struct session_info *info);
/* Seconds until a running session should be done, at least 1: when it is worth asking again. */
unsigned session_left_s(const struct session_info *info);
/* Replaces the sums by those of the session's @profile. They differ for three kinds of types.
 * Samples of off-CPU types were scaled, as each thread's time is known exactly. Not every sampled
 * wait of mutex is one for a lock. Estimates of a native heap were fitted into its size. The record
 * has them some moments after the session's end. */
void session_info_settle(struct session_info *info, const struct profile *profile);

/* Starts a session. Fills @ret (also with the running session's id on AlreadyRunning). Words:
 * UnknownService, ServiceNotRunning, ProfileTypeUnavailable, AlreadyRunning, TooManySessions,
 * AgentBusy, InvalidParam, StoreUnavailable. */
int sessions_start(struct sessions *s, const struct session_request *request,
		   struct session_info *ret, struct err *err) must_use;
/* UnknownSession also for another tenant's id. */
int sessions_get(struct sessions *s, const char *tenant, const char *id, struct session_info *ret,
		 struct err *err) must_use;
/* The profile so far, or of the finished session; one reference, the caller's. Cached by the
 * session layer while names and data do not change. @id may also be a baseline's (history.h).
 * Words: SessionFailed, UnknownSession, UnknownBaseline. */
int sessions_profile(struct sessions *s, const char *tenant, const char *id, struct profile **ret,
		     struct err *err) must_use;
/* Likewise with the interpreter's own frames, which sessions_profile() leaves out
 * (agent/profile/profile_fold.h). */
int sessions_profile_raw(struct sessions *s, const char *tenant, const char *id,
			 struct profile **ret, struct err *err) must_use;
/* Running: stops early, keeps the data (*ret_stopped = true). Finished: deletes, whichever host
 * took it. Words: UnknownSession; NotFinished when it runs on another host, which alone can stop
 * it. */
int sessions_delete(struct sessions *s, const char *tenant, const char *id, bool *ret_stopped,
		    struct err *err) must_use;
/* Waits until the session is no longer running, at most @timeout_ns. -ETIMEDOUT. */
int sessions_wait(struct sessions *s, const char *tenant, const char *id, uint64_t timeout_ns,
		  struct err *err) must_use;
/* Waits until the session has really begun to sample, or has ended. -ETIMEDOUT. */
int sessions_wait_started(struct sessions *s, const char *tenant, const char *id,
			  uint64_t timeout_ns, struct err *err) must_use;

struct session_query {
	const char *tenant;
	const char *service;	/* NULL = all */
	int type;		/* enum profile_type, -1 = all */
	int status;		/* enum session_status, -1 = all */
	bool own;		/* only those that this host has taken */
	uint64_t from_ns, to_ns; /* realtime of createdAt, to exclusive; 0 = open */
	uint32_t limit;		/* 1…100 */
	const char *cursor;	/* NULL = first page */
};
struct session_list {
	struct session_info *items; /* owned */
	uint32_t count;
	uint64_t total;
	char next_cursor[64]; /* "" = last page */
};
/* Newest first; a cursor stays valid while items are added or deleted. */
int sessions_list(struct sessions *s, const struct session_query *query, struct session_list *ret,
		  struct err *err) must_use;
/* The same without the spans of continuous profiling. */
int sessions_list_on_demand(struct sessions *s, const struct session_query *query,
			    struct session_list *ret, struct err *err) must_use;
void session_list_deinit(struct session_list *list);

/* ---- services -------------------------------------------------------------------------------- */

struct service_process {
	uint32_t pid;
	uint64_t started_at_ns; /* realtime */
	char exe[256];
	char runtime[16];
};

struct service_type_state {
	bool available;
	char reason[256]; /* and remedy; "" when available */
	const char *hint; /* what would give frames better names, literal; NULL = nothing to be done */
};

struct service_info {
	char name[SERVICE_NAME_SIZE];
	char source[24]; /* config, otel, env, kubernetes, container, unit, exe, kernel */
	bool inferred;
	char runtime[16]; /* native, go, jvm, cpython, node, kernel */
	char container_id[SERVICE_CONTAINER_SIZE];
	/* names that the container's runtime keeps; "" = none */
	char container[128], image[256], pod[254], namespace[64], workload[254];
	char unit[256];
	double cpus; /* used now */
	struct service_type_state types[PROFILE_TYPE_MAX];
	struct service_process *processes; /* owned */
	uint32_t process_count;
};

struct service_list {
	struct service_info *items; /* owned; by name */
	uint32_t count;
	uint32_t host_cpus; /* of the host, online */
};
int sessions_services(struct sessions *s, const char *tenant, struct service_list *ret,
		      struct err *err) must_use;
void service_list_deinit(struct service_list *list);
/* The name by which the store knows a service. An alias means the service whose processes it means
 * now, if there are any; other texts stay. @service has less than SERVICE_NAME_SIZE bytes. */
void sessions_service_name(struct sessions *s, const char *tenant, const char *service,
			   char ret[SERVICE_NAME_SIZE]);
/* A name that no process has now is known while the store has a session, baseline or continuous
 * setting of it: 1 = so it is, 0 = not. */
int sessions_service_is_stored(struct sessions *s, const char *tenant, const char *service,
			       struct err *err) must_use;

/* ---- the switch ------------------------------------------------------------------------------ */

struct sampling_state {
	bool enabled;
	uint64_t off_since_ns; /* realtime, 0 = enabled */
	uint32_t ended;	       /* sessions that this call ended */
};
/* Off: ends all sessions of all tenants with what they have, pauses continuous profiling and
 * refuses new sessions; durable. Takes effect also when it could not be stored (-ENOSPC and so on
 * in that case). */
int sessions_sampling_set(struct sessions *s, bool enabled, struct sampling_state *ret,
			  struct err *err) must_use;
void sessions_sampling_get(struct sessions *s, struct sampling_state *ret);

/* ---- health ---------------------------------------------------------------------------------- */

#define SESSIONS_PROGRAMS 8 /* kinds of BPF programs whose time is known */

struct sessions_health {
	bool store_ok;
	bool collector_ok;
	bool symbolizer_ok;
	bool sampling_enabled; /* the switch */
	char reason[384]; /* of the first thing that is not ok */
	uint64_t outcomes[PROFILE_OUTCOMES_MAX]; /* totals since start, by outcome id */
	uint32_t running_sessions;
	uint32_t processes, services, modules, stacks; /* sizes of the live tables */
	uint64_t samples;
	uint64_t feed_bytes_used, feed_bytes_capacity;
	uint64_t collector_cpu_ns, bpf_run_ns, map_bytes, server_cpu_ns, store_bytes;
	struct sessions_program {
		const char *what; /* a word for what the BPF programs follow */
		uint64_t run_ns; /* of bpf_run_ns */
	} programs[SESSIONS_PROGRAMS];
	uint64_t store_waiting_bytes; /* kept here until a shared store takes them */
	uint64_t detail_bytes; /* of store_bytes: single samples of continuous profiling */
	uint32_t rate_hz;
	uint32_t hung_readers; /* struct control_status */
};
void sessions_health(struct sessions *s, struct sessions_health *ret);

#endif
