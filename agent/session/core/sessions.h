/* SPDX-License-Identifier: Apache-2.0 */
/* struct sessions, the state of the session layer, and struct session, one session that runs.
 *
 * The feed thread (run/feed_consumer.c) alone changes the data of running sessions, moves them
 * through their phases, flushes and frees them. HTTP threads add sessions, set flags and read. The
 * other threads find a session by its id each time they have taken the lock.
 *
 * `lock` guards everything in struct sessions, unless a member says otherwise. Nobody holds `lock`
 * while waiting for a disk or a peer. README.md has the order of all locks. Higher rooms keep their
 * state behind a pointer that only they open. */
#ifndef PROFD_SESSION_CORE_SESSIONS_H
#define PROFD_SESSION_CORE_SESSIONS_H

#include <pthread.h>
#include <stdatomic.h>

#include "agent/base/clock.h"
#include "agent/base/log.h"
#include "agent/base/ring.h"
#include "agent/profile/memory/heap_growth.h"
#include "agent/recording/names_client.h"
#include "agent/recording/reader_client.h"
#include "agent/session/core/build_turn.h"
#include "agent/session/core/profile_cache.h"
#include "agent/session/ingest/live_tables.h"
#include "agent/session/ingest/recorder.h"
#include "agent/session/records/hosts.h"
#include "agent/session/services/service_rules.h"
#include "agent/session/session.h"
#include "agent/session/sessions_run.h"
#include "agent/wire/control.h"
#include "bpf/profiler.h"

#define SESSION_PROCESSES_SHOWN 1000u
#define IDEMPOTENCY_MAX	       4096u
#define IDEMPOTENCY_KEY_SIZE   256

enum session_phase {
	PHASE_PREPARING, /* its first record is being written; the feed thread ignores it */
	PHASE_WAIT_PROCESS,
	PHASE_WAIT_SAMPLER,
	PHASE_SAMPLING,
	PHASE_CLOSING, /* the time is over; the last stacks and the last flush are missing */
	PHASE_ENDED,   /* the status is decided; the last record is not stored yet */
};

/* Some types are read from Go programs and sampled from others. For a session that waits for its
 * first process, that process decides. */
enum session_choice {
	CHOICE_MADE,
	CHOICE_OPEN,   /* no process yet */
	CHOICE_ASKED,  /* the reading thread finds out what the process is */
	CHOICE_READ,   /* the answer; the feed thread acts on it */
	CHOICE_SAMPLE,
};

/* Off-CPU events are kept with a probability proportional to their duration below this
 * threshold. */
struct thinning {
	int64_t threshold; /* 0 = all are kept */
	uint64_t second;   /* of the feed */
	uint32_t kept;	   /* in this second */
};

struct session {
	struct session *next;
	unsigned slot;	/* in struct sessions.slots and the match masks */
	enum session_phase phase;
	struct session_info info; /* session_describe() fills in processes and counters */
	struct selector selector;
	const struct tenant_rule *tenant_rule; /* NULL = the tenant may profile everything */
	char idempotency_key[IDEMPOTENCY_KEY_SIZE];
	uint64_t request_hash;
	uint64_t pid_gone_ns; /* monotonic: the followed process has exited; 0 = it runs */
	uint64_t exit_ns; /* monotonic: exit of a followed process, others not checked yet; 0 = none */
	bool followed;	      /* selector.children: the collector follows the family */
	uint32_t wants; /* bits of enum prof_want */
	bool glances; /* the time goes on so that threads that run are sampled (glance.h) */
	uint64_t glance_until_ns; /* monotonic: the sampler is waited for; 0 = it is not */
	bool reads;	/* reads processes (read_choice.h) instead of sampling them */
	enum session_choice choice;
	uint64_t choice_asked_ns, choice_retry_ns; /* monotonic */
	uint64_t seed;	/* of thinning; also the id of the followed family */
	struct thinning thinning, thinning_of_bytes;
	uint64_t asked_ns, start_ns, end_ns; /* monotonic; start 0 = not yet, end UINT64_MAX = open */
	uint64_t wait_until_ns;		     /* monotonic: for the first process */
	struct recorder *recorder;
	uint64_t begin_position;  /* in the feed, at the start */
	uint64_t stored_position; /* in the feed: what the session took before is stored */
	bool reloaded;		  /* resumed after a restart of the server */
	uint64_t reloaded_ns;	  /* monotonic */
	bool stop;		  /* a client or the switch ends it early */
	bool swept;		  /* the time is over; waits that go on were asked for */
	uint64_t swept_ns;	  /* monotonic: when that was */
	bool alloc_complete;	  /* the collector's answer about allocations was read */
	bool heap_begun;	  /* the heaps were walked for the first time */
	uint64_t heap_next_ns;	  /* monotonic: the next walk while the session runs */
	struct heap_growth growth;
	bool heap_read;		  /* the last walk is done */
	uint32_t live_sweep;	  /* the sweep whose samples count; 0 = none yet */
	size_t missing;		  /* PHASE_CLOSING: missing stacks at the last check */
	uint64_t patience_ns;	  /* the last stack came this long after the end */
	bool counted;		  /* PHASE_CLOSING: the counters are final */
	bool record_dirty;	  /* the stored record lacks the start time */
	bool saved;		  /* PHASE_ENDED: the record is stored, or never will be */
	bool save_failed;	  /* PHASE_ENDED: storing failed and is tried again */
	bool discard;		  /* PHASE_ENDED: deleted meanwhile */
	char read_failure[200];	  /* set by the reading thread: the session fails with it; "" = none */
	/* Counters of struct sessions when this server process began to count for the session. */
	uint64_t host_samples_from, host_lost_from;
	uint64_t refused_from; /* ring_lost() of the feed then */
	uint64_t host_samples_before, host_lost_before; /* of earlier server processes */
	uint64_t cost_ns_from, type_cost_ns_from, cost_from_ns;
};

struct idempotency {
	char tenant[TENANT_NAME_SIZE];
	char key[IDEMPOTENCY_KEY_SIZE];
	char id[SESSION_ID_SIZE];
	uint64_t request_hash;
};

#define FINISHED_MAX 512u
struct finished {
	char tenant[TENANT_NAME_SIZE];
	char id[SESSION_ID_SIZE];
	uint64_t due_ns; /* monotonic: not before this */
	uint32_t tries, names; /* earlier tries, and the names that the last one kept */
};

struct feed {
	struct ring *ring;	/* NULL = none */
	uint64_t cursor;	/* samples before it are handed out */
	uint64_t record_at;	/* position of the sample being handled */
	uint64_t ahead;		/* facts before it are in the tables; >= cursor */
	uint32_t stall_proc;	/* the process whose facts the cursor waits for */
	uint64_t stall_until_ns; /* 0 = no stall */
	uint64_t no_stall_before_ns;
	uint64_t lives_told_ns; /* monotonic: every process of that moment is known */
	uint64_t ports_told_ns; /* monotonic: every listening port of that moment is known */
	struct clock_triple clock;
	uint32_t cpu_count;
	bool has_epoch, has_demand; /* such a record was read since the server started */
	struct feed_demand demand;  /* the last record, or inferred from samples */
	struct feed_clock costs;
	struct feed_clock costs_before, costs_next; /* of 10 to 20 s before, of up to 10 s before */
	struct feed_costs programs, programs_before, programs_next; /* that came with those */
};

struct peers {
	int collector_fd; /* -1 = none */
	int new_collector_fd;
	bool has_new_collector;
	bool has_status;
	bool has_listed; /* the processes that the collector found at its start are known */
	uint64_t patience_ns; /* monotonic: until then a list of services waits for has_listed */
	uint64_t lives_asked_ns; /* monotonic: last question of demand_lives_are_told() */
	uint64_t ports_asked_ns; /* monotonic: last question of demand_ports_are_told() */
	struct control_status status;
	uint64_t loaded_ns; /* monotonic: the collector loaded programs until then; 0 = never */
	struct control_demand demand_sent;
	struct control_families families_sent;
	bool demand_dirty, targets_dirty;
	bool sweep_due; /* a session of waits began or ended */
	bool flush_due; /* a session has ended: the collector shall deliver its samples now */
};

struct continuous;
struct snapshots;
struct watch;
struct labels_kept;

struct sessions {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* a session changed its phase; CLOCK_MONOTONIC */
	pthread_cond_t told;	/* told_count has gone up; CLOCK_MONOTONIC */
	uint64_t told_count;	/* facts about processes that the collector told */
	struct sessions_options options;
	struct own_host host;
	struct store *store; /* thread-safe itself */

	struct session *running;
	struct session *slots[LIVE_SLOTS];
	uint64_t match_generation;
	struct live_tables tables;
	struct feed feed;
	struct peers peers;
	struct continuous *continuous; /* agent/session/continuous */
	struct snapshots *snapshots;   /* agent/session/snapshot; NULL = no thread */
	struct watch *watch;	       /* agent/session/watch; NULL = no threads */
	struct labels_kept *labels_kept; /* agent/session/history; the finisher's */
	struct idempotency *idempotency; /* ring buffer of IDEMPOTENCY_MAX */
	size_t idempotency_next;

	uint64_t samples;
	uint64_t host_samples[PROF_SAMPLE_MAX]; /* by enum prof_sample_type */
	uint64_t host_lost;
	uint64_t outcomes[PROFILE_OUTCOMES_MAX];
	/* Monotonic; continuous_at_ns: when the next flush takes continuous data along. */
	uint64_t flush_at_ns, continuous_at_ns, save_again_ns;
	uint64_t sampling_off_ns; /* realtime: the switch is off since then; 0 = on */
	int store_error; /* errno of the last write, negative; 0 = no error */
	char store_reason[200];
	int store_unread; /* the same of reading a shared store */
	char store_unread_reason[200];
	char standby_reason[400]; /* why this host is served from the standby store; "" = it is not */

	struct reader_client *reader;
	pthread_t feed_thread, finisher_thread;
	bool has_feed_thread, has_finisher_thread;
	int wake_fd; /* eventfd that wakes the feed thread */
	bool stopping;
	bool abandoned; /* stops without flushing (tests) */

	struct build_turns builds; /* one build at a time; guards names */
	struct names_client *names;
	struct profile_cache cache; /* own lock */
	atomic_bool has_built;	    /* a profile was built since malloc_trim() */

	pthread_mutex_t file_lock; /* a session is not deleted while its names are written */
	pthread_cond_t finisher_wake;
	struct finished *finished; /* queue of FINISHED_MAX */
	size_t finished_count;
};

/* How long a request waits until it may build, before it is told to come again. */
#define SESSIONS_BUILD_WAIT_NS (30 * NS_PER_S)

static inline void sessions_lock(struct sessions *s)
{
	(void)pthread_mutex_lock(&s->lock);
}
static inline void sessions_unlock(struct sessions *s)
{
	(void)pthread_mutex_unlock(&s->lock);
}
static inline void sessions_unlock_fn(struct sessions **s)
{
	if (*s)
		sessions_unlock(*s);
}
/* A scope that holds the lock. */
#define sessions_scope(s)                                                                          \
	__attribute__((__cleanup__(sessions_unlock_fn), unused)) struct sessions *scope_ =            \
		(sessions_lock(s), (s))

/* Wakes the feed thread. Any thread. */
void sessions_wake(struct sessions *s);
/* For threads that wait for facts from the collector: take the count, check the facts, then wait
 * until the count has changed, at most @timeout_ns. Both functions take the lock themselves. */
uint64_t sessions_told(struct sessions *s);
void sessions_await_told(struct sessions *s, uint64_t seen, uint64_t timeout_ns);

/* ---- sessions.c: all with the lock held ------------------------------------------------------ */

/* NULL: no such session, or its first record is being written. */
struct session *session_find(const struct sessions *s, const char *tenant, const char *id);
void session_free(struct session *session);
/* Puts a session into the list and into a slot. -EBUSY: there is no free slot. */
int session_enlist(struct sessions *s, struct session *session) must_use;
void session_delist(struct sessions *s, struct session *session);
bool session_is_running(const struct session *session);
/* The kind of samples (enum prof_sample_type) by which the session bears its share of losses. */
static inline unsigned session_sample_type(const struct session *session)
{
	const uint32_t samples = profile_type_info(session->info.type)->samples;

	return samples ? (unsigned)__builtin_ctz(samples) : PROF_SAMPLE_CPU;
}
/* The rule that limits @tenant; NULL = it may profile everything. */
const struct tenant_rule *sessions_tenant_rule(const struct sessions *s, const char *tenant);
/* Notes the result of the last write to the store, for health. */
void sessions_note_store(struct sessions *s, int rc, const struct err *err);
/* Does @session follow @process? */
bool session_wants_process(const struct session *session, const struct live_process *process);
/* Does a process that @session follows run now? */
bool session_matches_any(const struct sessions *s, const struct session *session);
/* Has the finisher take the names of a session that has ended (run/finisher.c). Lock held. */
void finisher_add(struct sessions *s, const char *tenant, const char *id);

#endif
