/* SPDX-License-Identifier: Apache-2.0 */
/* The watch. Every hour, the hour that ended is compared with what a continuous setting names: a
 * baseline, the build before, or the same hour of other days.
 *
 *   watch_thread.c  the threads, what is due, webhooks
 *   watch_checks.c  the rules on stored data
 *   watch_alarms.c  from what a rule saw to alarms that open and close
 *   watch_words.c   the comparison of a finding, for people and programs
 *   findings.c      their records */
#ifndef PROFD_SESSION_WATCH_H
#define PROFD_SESSION_WATCH_H

#include "agent/profile/compare/change_point.h"
#include "agent/profile/compare/compare.h"
#include "agent/profile/compare/hour_outliers.h"
#include "agent/session/continuous/continuous.h"

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

/* ---- alarms: watch_alarms.c ------------------------------------------------------------------ */

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
/* Ends a check of @rule. A pending alarm that was not seen is forgotten. An open alarm that was not
 * seen, and that @is_calm confirms, is closed the second time. */
typedef bool watch_calm_fn(void *ctx, uint64_t key);
int watch_state_settle(struct sessions *s, const struct watch_subject *subject,
		       struct watch_state *state, enum watch_rule rule, watch_calm_fn *is_calm,
		       void *ctx, struct err *err) must_use;

/* ---- checks: watch_checks.c ------------------------------------------------------------------ */

uint64_t watch_key(const char *name, const char *package);
/* Checks one hour of one service and type. 1 = checked, 0 = there was too little data. Blocks; the
 * lock must not be held. */
int watch_check_subject(struct sessions *s, const struct watch_subject *subject,
			struct err *err) must_use;

/* ---- words: watch_words.c; the caller frees, NULL = no memory -------------------------------- */

#define WATCH_LABEL_SIZE (SERVICE_NAME_SIZE + 80)
/* The label of one side of a comparison: service/type/from/to. */
void watch_window_label(const struct watch_subject *subject, uint64_t from_ns, uint64_t to_ns,
			char out[WATCH_LABEL_SIZE]);

/* @past: hours it was compared with; @since_ns: they are those in succession since then, 0: the
 * same hour of days. */
char *watch_hour_json(const struct watch_subject *subject, const struct hour_function *function,
		      unsigned past, uint64_t since_ns) must_use;
char *watch_compare_json(const char *base, const char *comparison, const struct compare *c)
	must_use;
char *watch_level_json(const struct watch_subject *subject, const struct change_point *point,
		       uint64_t point_ns) must_use;

/* ---- records: findings.c, deployments.c ------------------------------------------------------ */

struct finding_delivery {
	char webhook[CONTINUOUS_WATCH_SIZE]; /* "" = none */
	enum watch_format format;
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


/* ---- the threads: watch_thread.c ------------------------------------------------------------- */

int watch_thread_start(struct sessions *s) must_use;
void watch_thread_stop(struct sessions *s);

#endif
