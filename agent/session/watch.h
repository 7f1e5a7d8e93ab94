/* SPDX-License-Identifier: Apache-2.0 */
/* The watch inside the session layer: every hour, the hour that ended is judged by what a continuous setting
 * names (a baseline, the build before, the same hour of other days). README.md, "Watch".
 *
 *   watch_thread.c  the threads, what is due, webhooks
 *   watch_checks.c  the rules on stored data
 *   watch_alarms.c  from what a rule saw to alarms that open and close
 *   watch_words.c   the comparison of a finding, for people and programs
 *   findings.c, deployments.c  their records */
#ifndef PROFD_SESSION_WATCH_H
#define PROFD_SESSION_WATCH_H

#include "agent/profile/change_point.h"
#include "agent/profile/compare.h"
#include "agent/profile/hour_test.h"
#include "agent/session/continuous.h"

#define WATCH_HOUR_NS	  (3600 * NS_PER_S)
#define WATCH_GRACE_NS	  (90 * NS_PER_S) /* after the hour: its last minute is stored by then */
#define WATCH_APART_NS	  (WATCH_HOUR_NS / 2) /* two checks are at least so far apart */
#define WATCH_ALARMS_MAX  64u		      /* of a service and type; beyond, none is opened */
#define WATCH_LEARN_NS	  (8 * CONTINUOUS_DAY_NS) /* closed alarms are remembered for this long */
#define WATCH_THRESHOLD	  0.005 /* least change of a share */

enum watch_rule { WATCH_FUNCTIONS, WATCH_VERDICT, WATCH_LEVEL };

/* One profile to be judged. */
struct watch_subject {
	const struct continuous_setting *setting;
	const char *service;
	enum profile_type type;
	uint64_t at_ns; /* end of the hour, realtime */
};

/* ---- alarms: watch_alarms.c ---------------------------------------------------------------------- */

enum alarm_state { ALARM_PENDING, ALARM_OPEN, ALARM_CLOSED };

struct watch_alarm {
	enum watch_rule rule;
	uint64_t key; /* what it is about */
	int sign;
	enum alarm_state state;
	uint32_t calm;	   /* checks without it, in succession */
	uint64_t first_ns; /* begin of the first hour it was seen in */
	uint64_t closed_ns;
	char finding[SESSION_ID_SIZE]; /* "" while pending */
	bool seen;		       /* in the check under way */
};

struct watch_state {
	uint64_t checked_ns; /* end of the hour that was checked last; 0 = none */
	struct watch_alarm alarms[WATCH_ALARMS_MAX];
	uint32_t count;
};

struct watch_sighting {
	enum watch_rule rule;
	uint64_t key;
	int sign;		/* of the change */
	bool once;		/* opens at once instead of the second time running */
	const char *comparison; /* JSON, borrowed */
};

int watch_state_load(struct sessions *s, const struct watch_subject *subject,
		     struct watch_state *ret, struct err *err) must_use;
int watch_state_save(struct sessions *s, const struct watch_subject *subject,
		     const struct watch_state *state, struct err *err) must_use;
int watch_state_saw(struct sessions *s, const struct watch_subject *subject,
		    struct watch_state *state, const struct watch_sighting *sighting,
		    struct err *err) must_use;
/* After all sightings of @rule: what was not seen is forgotten, or, where @is_calm, closed the second time. */
typedef bool watch_calm_fn(void *ctx, uint64_t key);
int watch_state_settle(struct sessions *s, const struct watch_subject *subject,
		       struct watch_state *state, enum watch_rule rule, watch_calm_fn *is_calm,
		       void *ctx, struct err *err) must_use;

/* ---- checks: watch_checks.c ---------------------------------------------------------------------- */

uint64_t watch_key(const char *name, const char *package);
/* 1 if it was judged, 0 if there was too little. */
int watch_check_subject(struct sessions *s, const struct watch_subject *subject,
			struct err *err) must_use;

/* ---- words: watch_words.c; the caller frees, NULL = no memory ------------------------------------ */

#define WATCH_LABEL_SIZE (SERVICE_NAME_SIZE + 80)
/* A time of the subject as ProfileComparison names a side: service/type/from/to. */
void watch_window_label(const struct watch_subject *subject, uint64_t from_ns, uint64_t to_ns,
			char out[WATCH_LABEL_SIZE]);

/* @past: hours it was compared with; @since_ns: they are those in succession since then, 0: the same hour of days. */
char *watch_hour_json(const struct watch_subject *subject, const struct hour_function *function,
		      unsigned past, uint64_t since_ns) must_use;
char *watch_compare_json(const char *base, const char *comparison, const struct compare *c) must_use;
char *watch_level_json(const struct watch_subject *subject, const struct change_point *point,
		       uint64_t point_ns) must_use;

/* ---- records: findings.c, deployments.c ------------------------------------------------------------ */

struct finding_delivery {
	char webhook[CONTINUOUS_WATCH_SIZE]; /* "" = none */
	char delivered[8];		     /* the last state that was: "", "open", "closed" */
};
void finding_make_id(uint64_t at_ns, char out[SESSION_ID_SIZE]);
int finding_put(struct sessions *s, const struct finding_info *info,
		const struct finding_delivery *delivery, struct err *err) must_use;
/* One of this host's. The caller deinits *ret. -ENOENT. */
int finding_get(struct sessions *s, const char *tenant, const char *id, struct finding_info *ret,
		struct finding_delivery *ret_delivery, struct err *err) must_use;
/* Those since @since_ns whose state a webhook was not told. */
typedef int finding_visit_fn(void *ctx, const struct finding_info *info,
			     const struct finding_delivery *delivery);
int findings_undelivered(struct sessions *s, uint64_t since_ns, finding_visit_fn *visit, void *ctx,
			 struct err *err) must_use;

struct deployment_pending {
	char owners[CONTINUOUS_OWNERS];
	struct deployment_info info;
};
int deployments_load(struct sessions *s, struct err *err) must_use;
/* sessions_deployments() without those of other hosts. */
int deployments_of_host(struct sessions *s, const char *tenant, const char *service, uint64_t from_ns,
			uint64_t to_ns, struct deployment_list *ret, struct err *err) must_use;
void deployments_deinit(struct sessions *s);
/* Feed thread, lock held: whether @process runs from another build than the one before it. */
void deployments_look(struct sessions *s, struct live_process *process,
		      const struct continuous_plan *plan, const struct feed_sample *sample);
/* Writes what was seen; takes the lock itself. */
void deployments_write(struct sessions *s);

/* ---- the threads: watch_thread.c --------------------------------------------------------------------------- */

int watch_thread_start(struct sessions *s) must_use;
void watch_thread_stop(struct sessions *s);

#endif
