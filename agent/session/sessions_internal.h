/* SPDX-License-Identifier: Apache-2.0 */
/* struct sessions and the running session, shared by the files of this folder.
 *
 * Three kinds of threads: the feed thread (feed_consumer.c) alone changes running sessions' data,
 * moves them through their phases, flushes and frees them; HTTP threads add sessions, set flags and
 * read; the finisher thread (finisher.c) names finished sessions. `lock` guards everything but what
 * says otherwise and is never held while the disk or a peer is waited for. Lock order: watch_lock,
 * build_lock, detail.lock, settings_lock, file_lock, lock. */
#ifndef PROFD_SESSION_SESSIONS_INTERNAL_H
#define PROFD_SESSION_SESSIONS_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "agent/base/clock.h"
#include "agent/base/log.h"
#include "agent/base/ring.h"
#include "agent/recording/names_client.h"
#include "agent/recording/reader_client.h"
#include "agent/session/day_names.h"
#include "agent/session/detail.h"
#include "agent/session/heap_growth.h"
#include "agent/session/live_tables.h"
#include "agent/session/profile_cache.h"
#include "agent/session/read_session.h"
#include "agent/session/recorder.h"
#include "agent/session/service_rules.h"
#include "agent/session/session.h"
#include "agent/session/sessions_run.h"
#include "agent/wire/control.h"
#include "bpf/profiler.h"

#define SESSION_TICK_NS	       (100 * NS_PER_MS)
#define SESSION_CALM_TICK_NS   (200 * NS_PER_MS)
#define SESSION_SLOW_TICK_NS   (1 * NS_PER_S) /* at rates up to SESSION_SLOW_HZ, as the collector */
#define SESSION_SLOW_HZ	       50
#define SESSION_GRACE_NS       (400 * NS_PER_MS) /* the collector delivers within this */
#define SESSION_HEAP_NS	       (15 * NS_PER_S)	 /* longest wait for the walk over its programs' heaps */
#define SESSION_MISSING_NS     (3 * NS_PER_S)	 /* longest wait for the next of the stacks that are missing */
#define SESSION_PATIENCE_NS    (12 * NS_PER_S)	 /* the last of them may come this long after the end */
#define SESSION_SAMPLER_NS     (10 * NS_PER_S)	 /* the collector must confirm within this */
#define SESSION_LOADING_NS     (180 * NS_PER_S) /* the same while it loads programs */
#define SESSION_PROCESSES_SHOWN 1000u
#define IDEMPOTENCY_MAX	       4096u
#define IDEMPOTENCY_KEY_SIZE   256

enum session_phase {
	PHASE_PREPARING, /* its record is being written; the feed thread passes it by */
	PHASE_WAIT_PROCESS,
	PHASE_WAIT_SAMPLER,
	PHASE_SAMPLING,
	PHASE_CLOSING, /* the time is over; waits for stacks and the last flush */
	PHASE_ENDED,   /* status decided, its record could not be written yet */
};

/* Whether block or mutex is read or sampled follows from the first process, where a session waits for
 * one. */
enum session_choice {
	CHOICE_MADE,
	CHOICE_OPEN,   /* no process yet */
	CHOICE_ASKED,  /* there is one: the reading thread finds out what it is */
	CHOICE_READ,   /* what the feed thread has to make of it */
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
	struct session_info info; /* processes and counters are filled when asked for */
	struct selector selector;
	const struct tenant_rule *tenant_rule; /* NULL = all */
	char idempotency_key[IDEMPOTENCY_KEY_SIZE];
	uint64_t request_hash;
	uint64_t pid_gone_ns; /* monotonic: the one process it follows has exited; 0 = it lives */
	uint64_t exit_ns;     /* monotonic: of a process that it followed, others not looked for yet; 0 = none */
	bool followed;	      /* selector.children: the collector knows who they are */
	uint32_t wants; /* bits of enum prof_want */
	bool reads;	/* taken by reading processes (read_session.h), not by sampling them */
	enum session_choice choice;
	uint64_t choice_asked_ns, choice_retry_ns; /* monotonic */
	uint64_t seed;	/* of thinning; also the name of the family that is followed */
	struct thinning thinning, thinning_of_bytes;
	uint64_t asked_ns, start_ns, end_ns; /* monotonic; start 0 = not yet, end UINT64_MAX = open */
	uint64_t wait_until_ns;		     /* for the first process */
	struct recorder *recorder;
	uint64_t begin_position;  /* of the feed, when it was started */
	uint64_t stored_position; /* everything before is durable or not about this session */
	bool reloaded;		  /* taken over from an earlier life of the server */
	uint64_t reloaded_ns;	  /* monotonic */
	bool stop;		  /* asked to end early */
	bool swept;		  /* the time is over; what still waits is asked for */
	uint64_t swept_ns;	  /* monotonic: since then */
	bool alloc_complete;	  /* what the collector answers to that has been read */
	bool heap_begun;	  /* heap_job.h has walked the heaps for the first time */
	uint64_t heap_next_ns;	  /* monotonic: and when it is to do so again while it runs */
	struct heap_growth growth;
	bool heap_read;		  /* it has come to its end */
	uint32_t live_sweep;	  /* the answer whose samples are this session's, 0 = none yet */
	size_t missing;		  /* PHASE_CLOSING: stacks, when it was last looked */
	uint64_t patience_ns;	  /* the last of them came so long after the end */
	bool counted;		  /* PHASE_CLOSING: the counters have been brought up to date */
	bool record_dirty;	  /* the stored record lacks the start time */
	bool saved;		  /* PHASE_ENDED: its record is written, or it never began */
	bool save_failed;	  /* PHASE_ENDED: not written yet, is tried again */
	bool discard;		  /* PHASE_ENDED: deleted meanwhile */
	char read_failure[200];	  /* by the reading thread: why the session fails, "" = it does not */
	/* Counters of struct sessions when this life of the server began to count for it. */
	uint64_t host_samples_from, host_lost_from;
	uint64_t refused_from; /* ring_lost() of the feed then */
	uint64_t host_samples_before, host_lost_before; /* of earlier lives */
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
	uint32_t tries, names; /* looks before this one, and names that the last of them kept */
};

struct feed {
	struct ring *ring;	/* NULL = none */
	uint64_t cursor;	/* samples: everything before has been handled */
	uint64_t record_at;	/* begin of the sample under way */
	uint64_t ahead;		/* dictionary: everything before is in the tables; >= cursor */
	uint32_t stall_proc;	/* whose facts are waited for */
	uint64_t stall_until_ns; /* 0 = no stall */
	uint64_t no_stall_before_ns;
	uint64_t lives_told_ns; /* monotonic: every process that lived then is known, and its CPU time */
	uint64_t ports_told_ns; /* monotonic: where every process listened then is known */
	struct clock_triple clock;
	uint32_t cpu_count;
	bool has_epoch, has_demand; /* such a record was read in this life of the server */
	struct feed_demand demand;  /* last record, or what samples tell */
	struct feed_clock costs;
	struct feed_clock costs_before, costs_next; /* of 10 to 20 s before, of up to 10 s before */
	struct feed_costs programs, programs_before, programs_next; /* that came with those */
};

struct peers {
	int collector_fd; /* -1 = none */
	int new_collector_fd;
	bool has_new_collector;
	bool has_status;
	bool has_listed; /* the processes that lived when the collector began are known */
	uint64_t patience_ns; /* monotonic: until then whoever asks for processes waits for them */
	uint64_t lives_asked_ns; /* monotonic: when the collector was last asked for them (demand_lives_are_told()) */
	uint64_t ports_asked_ns; /* monotonic: the same of demand_ports_are_told() */
	struct control_status status;
	uint64_t loaded_ns; /* monotonic: the collector loaded programs until then; 0 = never */
	struct control_demand demand_sent;
	struct control_families families_sent;
	bool demand_dirty, targets_dirty;
	bool sweep_due; /* a session of waits began or ended */
	bool flush_due; /* a session has ended: what was sampled for it is not to wait */
};

struct state_sampler;

#define DEPLOYMENTS_PENDING_MAX 64u

/* What runs from which build, and what is to be written about it. */
struct deployments {
	struct u64map builds; /* hash of (service, executable) -> hash of its build */
	struct u64map starts; /* the same key -> start of its newest process, realtime */
	struct deployment_pending *pending; /* DEPLOYMENTS_PENDING_MAX */
	size_t pending_count;
};

struct continuous_source;
struct continuous_plan;
struct day_recorder;

struct continuous {
	struct continuous_source *sources; /* CONTINUOUS_MAX */
	size_t source_count;
	struct continuous_plan *plans; /* CONTINUOUS_PLANS_MAX */
	size_t plan_count;
	struct day_recorder *days; /* of the feed thread alone, likewise begun */
	struct store_day *begun;
	size_t begun_count, begun_capacity;
	struct thinning thinning[3];
	uint64_t seed;
	uint64_t since_ns; /* realtime: recorded as the settings are now */
	uint64_t looked_ns; /* realtime: until then it was looked, 0 = nobody looks */
	uint64_t swept_minute; /* in which waits were cut, 0 = they are to be */
	uint64_t host_samples, host_lost; /* at the last flush */
	uint64_t retry_at_ns;		  /* monotonic: the store refused, not before this */
	uint64_t refused;		  /* events that did not fit */
	bool changed; /* settings, since standing_look() */
};

struct sessions {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* a session changed its phase; CLOCK_MONOTONIC */
	struct sessions_options options;
	char host[STORE_HOST_SIZE];
	struct store *store; /* thread-safe itself */

	struct session *running;
	struct session *slots[LIVE_SLOTS];
	uint64_t match_generation;
	struct live_tables tables;
	struct feed feed;
	struct peers peers;
	struct continuous continuous;
	struct detail detail; /* own lock */
	struct day_names day_names;
	struct deployments deployments;
	struct idempotency *idempotency; /* ring buffer of IDEMPOTENCY_MAX */
	size_t idempotency_next;

	uint64_t samples;
	uint64_t host_samples[4]; /* by enum prof_sample_type */
	uint64_t host_lost;
	uint64_t outcomes[PROFILE_OUTCOMES_MAX];
	uint64_t flush_at_ns, save_again_ns; /* monotonic */
	uint64_t sampling_off_ns; /* realtime since when nothing is sampled by order, 0 = it is */
	int store_error; /* of the last write, 0 = fine */
	char store_reason[200];
	int store_unread; /* why a shared store cannot be read now, 0 = it can */
	char store_unread_reason[200];

	struct reader_client *reader;
	struct state_sampler *samplers; /* of the reading thread alone */
	pthread_t feed_thread, finisher_thread, read_thread, watch_thread, hook_thread;
	bool has_feed_thread, has_finisher_thread, has_read_thread, has_watch_thread, has_hook_thread;
	int wake_fd; /* eventfd: something changed for the feed thread */
	bool stopping;
	bool abandoned; /* stop without flushing */

	pthread_mutex_t build_lock; /* names, building profiles */
	struct names_client *names;
	struct profile_cache cache; /* own lock */
	atomic_bool has_built;	    /* a profile, since memory was given back last */

	pthread_mutex_t settings_lock; /* one continuous setting's record and what is made of it, together */
	pthread_mutex_t file_lock; /* deleting a session against writing its names */
	pthread_cond_t finisher_wake;
	struct finished *finished; /* queue of FINISHED_MAX */
	size_t finished_count;
	uint64_t retention_at_ns; /* monotonic, finisher thread */

	pthread_mutex_t watch_lock; /* one check at a time; taken before all others */
	pthread_cond_t watch_wake;  /* with lock: stopping, or something to deliver */
};

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

void sessions_wake(struct sessions *s); /* the feed thread looks now */

/* ---- sessions.c: all with the lock held ------------------------------------------------------ */

struct session *session_find(const struct sessions *s, const char *tenant, const char *id);
void session_free(struct session *session);
/* Puts a session into the list and a slot; -EBUSY when there is none. */
int session_enlist(struct sessions *s, struct session *session) must_use;
void session_delist(struct sessions *s, struct session *session);
bool session_is_running(const struct session *session);
/* Of its samples, enum prof_sample_type: losses are shared out among those of one. */
static inline unsigned session_sample_type(const struct session *session)
{
	if (session->wants & PROF_WANT_CPU)
		return PROF_SAMPLE_CPU;
	return session->wants & PROF_WANT_ALLOC ? PROF_SAMPLE_ALLOC : PROF_SAMPLE_OFFCPU;
}
/* Fills counters, processes and quality of a running session. -ENOMEM. */
int session_describe(const struct sessions *s, const struct session *session,
		     struct session_info *ret) must_use;
/* What the last write of data or of something new came to: shown in health. */
void sessions_note_store(struct sessions *s, int rc, const struct err *err);
bool session_wants_process(const struct session *session, const struct live_process *process);
/* sessions_get() of what runs here, without asking the store how large its data are: 1, or 0 when it does not. Takes the
 * lock itself. */
int session_look(struct sessions *s, const char *tenant, const char *id, struct session_info *ret,
		 struct err *err) must_use;
void sessions_remember_key(struct sessions *s, const char *tenant, const char *key, const char *id,
			   uint64_t hash);
struct session_resume;
void session_resume_of(const struct sessions *s, const struct session *session,
		       struct session_resume *ret);
bool session_matches_any(const struct sessions *s, const struct session *session);
/* sessions_start() for what is known already: the service's @name and what to follow. Takes the lock itself. */
int session_start_resolved(struct sessions *s, const struct session_request *request,
			   const struct selector *selector, const char *name, struct session_info *ret,
			   struct err *err) must_use;

/* ---- sampling_switch.c ----------------------------------------------------------------------- */

int sampling_switch_load(struct sessions *s, struct err *err) must_use;

/* ---- session_life.c: feed thread, lock held -------------------------------------------------- */

/* Timers, ends, flushes: one round. May drop the lock while it writes. */
void session_life_tick(struct sessions *s, uint64_t now_ns);
/* Feed position up to which the ring may be released. */
uint64_t session_life_release_position(const struct sessions *s);
void session_life_fail(struct sessions *s, struct session *session, const char *fmt, ...)
	printf_like(3, 4);
/* Ends everything that runs with what it has (the daemon stops). */
void session_life_end_all(struct sessions *s, uint64_t now_ns);
/* The rate at which its processes' CPU time is sampled under @demand. */
uint32_t session_sampled_hz(const struct session *session, const struct feed_demand *demand);
/* Whether an event counts at @rate_hz, and with which values: the sum's expectation stays the same. */
bool session_thin(uint32_t rate_hz, uint64_t seed, struct thinning *thinning,
		  const struct feed_sample *sample, int64_t *value, uint64_t *value2);
/* Gives the session what it takes of the sample; fails it when that does not fit in memory. */
void session_take(struct sessions *s, struct session *session, const struct feed_sample *sample,
		  const struct live_process *process);
/* A process exited, appeared, or the sampler changed. */
void session_life_saw_exit(struct sessions *s, const struct live_process *process);
void session_life_saw_process(struct sessions *s, struct live_process *process, uint64_t now_ns);
void session_life_saw_demand(struct sessions *s, uint64_t time_ns);
/* A session that gets less than it asked for says so. */
void session_life_note_restraint(struct session *session, const struct feed_demand *demand);

/* ---- feed_consumer.c ------------------------------------------------------------------------- */

int feed_consumer_start(struct sessions *s, int feed_fd, struct err *err) must_use;
void feed_consumer_stop(struct sessions *s);

/* ---- demand.c: lock held --------------------------------------------------------------------- */

/* Recomputes and sends what changed; what does not fit in the channel is tried again next time. */
void demand_update(struct sessions *s);
/* Whether processes of @selector are sampled at @rate_hz by events of their own, without taxing the rest of the host. */
bool demand_is_fast(const struct selector *selector, uint32_t rate_hz);
static inline bool session_is_fast(const struct session *session)
{
	return (session->wants & PROF_WANT_CPU) &&
	       demand_is_fast(&session->selector, session->info.rate_hz);
}
/* Somebody wants CPU samples at @rate_hz; @fast as above. */
void demand_cpu(struct control_demand *demand, uint32_t rate_hz, bool fast);
/* Somebody wants waits at @rate_hz. */
void demand_waits(struct control_demand *demand, uint32_t rate_hz);
void demand_want(struct sessions *s, enum control_want_kind what, const uint64_t *ids, unsigned count);
/* Is every process known that lived at @since_ns (monotonic)? If not, the collector is asked. Takes the lock. */
bool demand_lives_are_told(struct sessions *s, uint64_t since_ns);
/* Is it known where every process listened at @since_ns (monotonic)? The rest as above. */
bool demand_ports_are_told(struct sessions *s, uint64_t since_ns);
/* Which sessions want @process, cached in it. */
void demand_match(const struct sessions *s, struct live_process *process);

/* ---- services.c ------------------------------------------------------------------------------ */

struct type_need {
	bool available;
	uint32_t wants; /* bits of enum prof_want */
	char reason[256];
};
/* Lock held. */
void services_type_state(const struct sessions *s, enum profile_type type, bool reads,
			 struct type_need *ret);
/* The same for what @session asks for beyond its type. Lock held. */
void services_session_need(const struct sessions *s, const struct session *session, struct type_need *ret);
/* What @service means for @tenant. Takes the lock itself and asks the store. Words of
 * sessions_start(). */
int services_resolve(struct sessions *s, const char *tenant, const char *service, bool may_wait,
		     struct selector *ret, char name[SERVICE_NAME_SIZE], struct err *err) must_use;
/* When the last of the processes ended that @service means for @tenant and that have ended of late: monotonic, 0 = none
 * is known. An exec ends one, and what follows it is told later. Takes the lock itself. */
uint64_t services_ended_ns(struct sessions *s, const char *tenant, const char *service);
/* Does @service name a port: then where processes listen decides what it is. */
bool services_is_port(const char *service);
const struct tenant_rule *services_tenant_rule(const struct sessions *s, const char *tenant);

/* ---- session_profile.c, baselines.c ---------------------------------------------------------- */

/* Builds the profile of @info (its data is kept under info->id), or takes it from the cache when
 * @done is NULL. @done is called with the build lock held, while the names it used are still
 * there; of goroutines it gets no attributes. */
typedef void session_profile_done_fn(void *ctx, struct sessions *s, const struct profile *profile);
int session_profile_build(struct sessions *s, const struct session_info *info,
			  session_profile_done_fn *done, void *ctx, struct profile **ret,
			  struct err *err) must_use;
/* The session a baseline was made from, with the baseline's id. */
int baseline_session_info(struct sessions *s, const char *tenant, const char *id,
			  struct session_info *ret, struct err *err) must_use;

/* ---- resume.c, finisher.c -------------------------------------------------------------------- */

/* Takes over what ran when the server died; called before the feed thread starts. */
int resume_sessions(struct sessions *s, struct err *err) must_use;
/* Fetches the names of what @info's data holds and keeps them with it (with its record, of a session). */
int finisher_keep_names(struct sessions *s, const struct session_info *info, struct err *err) must_use;
int finisher_start(struct sessions *s) must_use;
void finisher_stop(struct sessions *s);
/* Lock held. */
void finisher_add(struct sessions *s, const char *tenant, const char *id);

#endif
