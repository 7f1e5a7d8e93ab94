/* SPDX-License-Identifier: Apache-2.0 */
/* Continuous profiling. Settings make a plan for each process. The plan says which samples are
 * added to which minute bucket of which day. Spans show minute buckets as if they were sessions.
 *
 * A service is sampled and stored once, at the highest rate that any owner asked for. Each owner's
 * view is thinned to the owner's own rate. A minute bucket is written in parts, one with every
 * flush; when the minute is over, the whole bucket replaces its parts. README.md has the design. */
#ifndef PROFD_SESSION_CONTINUOUS_H
#define PROFD_SESSION_CONTINUOUS_H

#include "agent/session/continuous/day_names.h"
#include "agent/session/continuous/deployments.h"
#include "agent/session/continuous/detail.h"
#include "agent/session/core/sessions.h"
#include "agent/session/history.h"

#define CONTINUOUS_KIND	     "continuous"
#define CONTINUOUS_TOMBSTONE "tombstone" /* of a span's derived id */
#define CONTINUOUS_TENANT_MAX 100u	 /* settings of one tenant */
#define CONTINUOUS_MAX	     400u	 /* settings of all tenants */
#define CONTINUOUS_PLANS_MAX 1024u
#define CONTINUOUS_OWNERS    512u  /* bytes of the owners of one series */
#define CONTINUOUS_LOOKED_MAX 64u /* services of one alias */
#define CONTINUOUS_WINDOWS_MAX 4096u /* open at once; more are refused and counted */
#define CONTINUOUS_FOLD_NS   (10 * NS_PER_S) /* after its end a minute is complete */
#define CONTINUOUS_MINUTE_NS (60 * NS_PER_S)
#define CONTINUOUS_HOUR_NS   (3600 * NS_PER_S)
#define CONTINUOUS_DAY_NS    (86400 * NS_PER_S)
#define CONTINUOUS_ROLL_NS   (90 * NS_PER_S)  /* after its end an hour is rolled up, a day closed */
#define CONTINUOUS_STACKS_NS (600 * NS_PER_S) /* and no later, though stacks are waited for */

/* ---- settings: continuous_settings.c -----------------------------------------------------------
 */

struct continuous_source {
	struct continuous_setting setting;
	struct selector selector;
	const struct tenant_rule *tenant_rule; /* NULL = all */
	uint64_t created_at_ns, updated_at_ns; /* realtime */
	/* standing.h */
	uint64_t retry_ns[PROFILE_TYPE_MAX]; /* monotonic: nothing of the type is started before */
	uint32_t refused; /* bits of types that could not be started when it was tried last */
	char refusal[CONTINUOUS_REFUSAL_SIZE];
};

/* A view of windows. What else is taken continuously has sessions of its own (standing.h). */
static inline bool session_info_is_span(const struct session_info *info)
{
	return info->continuous && profile_type_is_kept(info->type, PROFILE_KEPT_MINUTES);
}

/* The demand of all settings together for a process. Plan 0 wants nothing. */
struct continuous_plan {
	uint32_t retention_days;
	uint32_t rate_hz[PROFILE_MINUTE_TYPES]; /* by minute_slot, 0 = not wanted */
	uint32_t wants; /* bits of enum prof_want for these */
	uint32_t fast; /* bool: by events of its own (demand_is_fast()) */
	uint32_t observes; /* bits of enum prof_want: standing_wants() */
	char owners[PROFILE_MINUTE_TYPES][CONTINUOUS_OWNERS]; /* likewise, as in struct store_window */
};

struct day_recorder;

struct continuous {
	struct continuous_source *sources; /* CONTINUOUS_MAX */
	size_t source_count;
	struct continuous_plan *plans; /* CONTINUOUS_PLANS_MAX */
	size_t plan_count;
	struct day_recorder *days; /* the feed thread alone uses days and begun */
	struct store_day *begun;
	size_t begun_count, begun_capacity;
	struct thinning thinning[PROFILE_MINUTE_TYPES]; /* by minute_slot */
	uint64_t seed;
	uint64_t since_ns; /* realtime: recorded as the settings are now */
	uint64_t looked_ns; /* realtime: observed until then; 0 = not observed */
	uint64_t swept_minute; /* the minute in which waits were cut last; 0 = cut them now */
	uint64_t host_samples, host_lost; /* at the last flush */
	uint64_t retry_at_ns;		  /* monotonic: the next try after the store refused */
	uint64_t refused;		  /* events that did not fit */
	atomic_uint stored;		  /* flushes that were stored; any thread */
	bool changed; /* the settings, since the last standing_look() */
	pthread_cond_t settings_changed; /* with the lock of struct sessions; also when stopping */
	pthread_mutex_t settings_lock; /* a setting's record and its copy in memory change together */
	struct detail detail; /* own lock */
	struct day_names day_names;
	struct deployments deployments;
};

/* Makes s->continuous, empty. */
int continuous_create(struct sessions *s) must_use;
/* Is there any setting? Lock held. */
static inline bool continuous_is_on(const struct sessions *s)
{
	return s->continuous->source_count > 0;
}
/* The setting of @tenant for @service; NULL = none. Lock held. */
struct continuous_source *continuous_find(struct sessions *s, const char *tenant,
					  const char *service);
/* Does @source mean @process, and may @process be profiled? Lock held. */
bool continuous_wants_process(const struct continuous_source *source,
			      const struct live_process *process);
/* Reads the settings from the store. */
int continuous_load(struct sessions *s, struct err *err) must_use;
/* The plan of @process, made by the first call after a change of the settings. Borrowed until the
 * settings change. Lock held. */
const struct continuous_plan *continuous_plan_of(struct sessions *s, struct live_process *process);
/* Makes all plans again, because the settings or the switch have changed. Lock held. */
void continuous_changed(struct sessions *s);
/* The names of the services that @source observes: its own name, or the services that run behind an
 * alias now. Returns their number, at most CONTINUOUS_LOOKED_MAX; 0 = the setting is disabled.
 * Lock held. */
size_t continuous_services(const struct sessions *s, const struct continuous_source *source,
			   char ret[CONTINUOUS_LOOKED_MAX][SERVICE_NAME_SIZE]);
/* Bits of enum prof_want of the types whose bits 1 << type are in @types. */
uint32_t continuous_wants_of(uint32_t types);
/* The samples that the collector must take for @plan: bits of enum prof_want. */
uint32_t continuous_wants(const struct continuous_plan *plan);
/* Adds the demand of all settings to @demand. Lock held. */
void continuous_demand(const struct sessions *s, struct control_demand *demand);

/* ---- recording: continuous_record.c; feed thread, lock held ---------------------------------- */

/* The begin of the time that was observed without a gap until @now_ns. @last_ns is the end of the
 * time that was observed before, 0 = none (all realtime). A time much longer than two flushes, or a
 * negative one, is a gap: the machine slept, the clock was set, or no server ran. */
static inline uint64_t continuous_looked_from(uint64_t last_ns, uint64_t now_ns,
					      uint64_t flush_interval_ns)
{
	return last_ns && last_ns <= now_ns && now_ns - last_ns <= 2 * flush_interval_ns + NS_PER_S
		       ? last_ns
		       : now_ns;
}

/* Nanoseconds between two flushes. A shared store gets fewer rows and INSERTs from each of many
 * hosts: a part and the whole of each minute. */
static inline uint64_t continuous_flush_interval(const struct sessions *s)
{
	return s->options.flush_interval_ns * (store_is_shared(s->store) ? 6 : 1);
}

void continuous_take(struct sessions *s, struct live_process *process,
		     const struct feed_sample *sample);
/* Has the collector report the waits that go on, once a minute and after a change of the settings.
 * So a wait that does not end is counted, and each minute has its part of a wait. */
void continuous_sweep(struct sessions *s);
/* Writes what was added since the last flush. May drop the lock while it writes. */
void continuous_flush(struct sessions *s);
/* Seals everything that refers to the collector's ids, because a new collector uses other ids. */
void continuous_forget_epoch(struct sessions *s);
uint64_t continuous_release_position(const struct sessions *s, uint64_t cursor);
/* Opens what was being written when the server ended. *ret_position: to read from, UINT64_MAX =
 * nothing. */
int continuous_resume(struct sessions *s, uint64_t *ret_position, struct err *err) must_use;
void continuous_destroy(struct sessions *s);

/* ---- views: span_list.c, spans.c ------------------------------------------------------------- */

struct span_series { /* what the spans of a host, service and type have in common */
	char *service; /* owned */
	char host[STORE_HOST_SIZE];
	enum profile_type type;
	uint8_t id_bits[10];
};
struct span {
	uint64_t from_ns;	    /* realtime */
	uint64_t first_ns, last_ns; /* begin of its first and last minute with data */
	uint64_t samples, lost;	    /* of the tenant's share */
	uint64_t bytes;
	int64_t value;
	uint32_t series; /* of the list */
	uint32_t rate_hz;
};
struct span_list {
	struct span *data; /* newest first, of one time the one with the larger id */
	size_t count, capacity;
	uint64_t total; /* those that were asked for, also where the list holds a page only */
	bool more;	/* there are some that are older than the list's */
	struct span_series *series;
	size_t series_count, series_capacity;
	struct u64map series_at;
};
void span_list_deinit(struct span_list *list);
void span_id(const struct span_list *list, const struct span *span, char out[SESSION_ID_SIZE]);
/* As a session; no processes, no labels. */
void span_describe(const struct sessions *s, const char *tenant, const struct span_list *list,
		   const struct span *span, struct session_info *ret);
struct span_query {
	const char *tenant;
	const char *service; /* NULL = all */
	int type, status;    /* -1 = all */
	bool own;	     /* only those that this host has taken */
	uint64_t from_ns, to_ns; /* of the span's begin; 0 = open */
	/* A page is enough: @limit of those that began before @before_ns (0 = no cursor) and what
	 * lies around them. 0 = all. */
	uint32_t limit;
	uint64_t before_ns;
};
/* Without those that were deleted. */
int spans_collect(struct sessions *s, const struct span_query *query, struct span_list *ret,
		  struct err *err) must_use;
struct span_totals {
	uint64_t count, bytes;
	uint64_t newest_ns;		 /* begin of the newest, realtime; 0 = there is none */
	char newest_id[SESSION_ID_SIZE]; /* "" likewise */
};
/* Likewise, however many there are. */
int spans_total(struct sessions *s, const struct span_query *query, struct span_totals *ret,
		struct err *err) must_use;
/* -ENOENT: no such span of this tenant. */
int spans_find(struct sessions *s, const char *tenant, const char *id, struct session_info *ret,
	       struct err *err) must_use;
/* Leaves a tombstone. */
int spans_delete(struct sessions *s, const struct session_info *span, struct err *err) must_use;
void spans_note_damaged_day(const struct store_day *day, const struct err *err);
/* Everything of @window; service NULL = all. @meta says how it is labelled. -ENOENT: nothing is
 * stored. */
int spans_profile(struct sessions *s, const struct history_window *window,
		  const struct profile_meta *meta, struct profile **ret, struct err *err) must_use;
/* Its functions alone, added up without joining the days' stacks. -EPROTO: a day's dictionary is
 * not whole; the profile shows the rest. */
int spans_functions(struct sessions *s, const struct history_window *window,
		    const struct profile_meta *meta, struct history_functions *ret, struct err *err)
	must_use;
/* Visits the names of what @day of this host holds between two times, of everybody. *ret_all: none
 * is still being read from debug information. */
int spans_names(struct sessions *s, const struct store_day *day, uint64_t from_ns, uint64_t to_ns,
		names_visit_fn *visit, void *ctx, bool *ret_all, struct err *err) must_use;
/* Copies the data of a span into the session file @to. -ENOENT: nothing is stored
 * of it any more. */
int spans_copy(struct sessions *s, const struct session_info *span, const char *to,
	       struct err *err) must_use;
/* Deletes days whose time is over; the oldest first when the budget is passed. */
void spans_expire(struct sessions *s);
/* Begin of the oldest day that is stored; now, if there is none; 0 when that cannot be told. */
uint64_t spans_oldest_ns(struct sessions *s);
/* The oldest day goes: true if there was one. */
bool spans_drop_oldest(struct sessions *s);

/* ---- owners.c: pure */

/* Adds @tenant with its @rate to the text of owners; what does not fit is left out. */
void owners_add(char owners[CONTINUOUS_OWNERS], const char *tenant, uint32_t rate);
/* The rate that the text grants @tenant, 0 = not an owner; *ret_highest: the highest rate in it. */
uint32_t owners_rate(const char *owners, const char *tenant, uint32_t *ret_highest);

#endif
