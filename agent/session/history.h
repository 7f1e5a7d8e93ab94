/* SPDX-License-Identifier: Apache-2.0 */
/* Data that outlives single sessions: baselines, continuous settings and the merged history they
 * leave. Same object, same locking and same errors as session.h. */
#ifndef PROFD_SESSION_HISTORY_H
#define PROFD_SESSION_HISTORY_H

#include <string.h>

#include "agent/session/session.h"

/* ---- baselines ------------------------------------------------------------------------------- */

#define BASELINE_TAGS_MAX 16
#define BASELINE_TAG_SIZE 65
#define BASELINE_TEXT_MAX (256u << 10) /* bytes of the client's own topFunctions, kept for echo */

struct baseline_request {
	const char *tenant;
	const char *label;	  /* 1…200 bytes of UTF-8 */
	const char *session_id;	  /* a finished session of this tenant */
	enum profile_type type;	  /* must be the session's */
	const char *description;  /* "" = none; at most 2000 bytes */
	const char *const *tags;  /* each a name (parse_is_name) */
	uint32_t tag_count;
	const char *top_functions; /* JSON array as the client sent it, NULL = computed from the session */
};

/* A copy, safe to keep: baseline_info_deinit(). */
struct baseline_info {
	char id[SESSION_ID_SIZE];
	char tenant[TENANT_NAME_SIZE];
	char label[201];
	char session_id[SESSION_ID_SIZE]; /* may be gone by now */
	char service[SERVICE_NAME_SIZE];
	enum profile_type type;
	uint64_t created_at_ns;	 /* realtime */
	uint64_t duration_ns;	 /* of the session */
	uint64_t sample_count;
	int64_t total_value;
	bool is_latest;		 /* newest of (tenant, service, type) when this was read */
	char *description;	 /* owned, never NULL */
	char *top_functions;	 /* owned; NULL = not sent */
	char tags[BASELINE_TAGS_MAX][BASELINE_TAG_SIZE];
	uint32_t tag_count;
};
void baseline_info_deinit(struct baseline_info *info);

/* Copies the session's data, so that the baseline survives it. Words: UnknownSession, NotFinished,
 * SessionFailed, ProfileTypeMismatch, LimitReached, InvalidParam, StoreUnavailable. */
int sessions_baseline_create(struct sessions *s, const struct baseline_request *request,
			     struct baseline_info *ret, struct err *err) must_use;
/* UnknownBaseline also for another tenant's id. Its profile: sessions_profile() with the same
 * id. */
int sessions_baseline_get(struct sessions *s, const char *tenant, const char *id,
			  struct baseline_info *ret, struct err *err) must_use;
int sessions_baseline_delete(struct sessions *s, const char *tenant, const char *id,
			     struct err *err) must_use;

struct baseline_query {
	const char *tenant;
	const char *service; /* NULL = all */
	int type;	     /* enum profile_type, -1 = all */
	const char *tag;     /* NULL = all */
	uint32_t limit;	     /* 1…1000 */
	const char *cursor;  /* NULL = first page */
	bool oldest_first;
};
struct baseline_list {
	struct baseline_info *items; /* owned; newest first, or as asked for */
	uint32_t count;
	uint64_t total;
	char next_cursor[64]; /* "" = last page */
};
int sessions_baseline_list(struct sessions *s, const struct baseline_query *query,
			   struct baseline_list *ret, struct err *err) must_use;
void baseline_list_deinit(struct baseline_list *list);
/* Leaves the first @count items, at least 1; the next page begins behind them. */
void baseline_list_cut(struct baseline_list *list, uint32_t count);
/* How long an answer may take for which many profiles are built: what is left is another page. */
uint64_t sessions_build_budget_ns(const struct sessions *s);

/* ---- continuous profiling -------------------------------------------------------------------- */

#define CONTINUOUS_WATCH_SIZE	512
#define CONTINUOUS_REFUSAL_SIZE 200

/* How a webhook is told of findings. */
enum watch_format { WATCH_PLAIN, WATCH_ALERTMANAGER, WATCH_CLOUDEVENTS, WATCH_FORMATS };

/* The word of a format in the API and in stored data. */
static inline const char *watch_format_word(enum watch_format format)
{
	static const char *const words[] = { "plain", "alertmanager", "cloudevents" };

	return words[format];
}

/* False, and *@ret untouched, where @word is no format. */
static inline bool watch_format_parse(const char *word, enum watch_format *ret)
{
	for (unsigned i = 0; i < WATCH_FORMATS; i++) {
		if (strcmp(word, watch_format_word((enum watch_format)i)) != 0)
			continue;
		*ret = (enum watch_format)i;
		return true;
	}
	return false;
}

struct continuous_setting {
	char tenant[TENANT_NAME_SIZE];
	char service[SERVICE_NAME_SIZE]; /* "*" = every service on the host */
	uint32_t types;			 /* bits: 1 << enum profile_type */
	uint32_t rate_hz;		 /* 1…1000 */
	uint32_t retention_days;	 /* 1…3650 */
	bool enabled;
	char watch_against[64];		 /* baseline id, previous-version, history; "" = no watch */
	char watch_webhook[CONTINUOUS_WATCH_SIZE];
	enum watch_format watch_format;
};

struct continuous_status {
	uint64_t active_since_ns; /* realtime, 0 = not active */
	char last_session_id[SESSION_ID_SIZE];
	uint64_t sessions; /* spans, and sessions of their length, now in the history */
	uint64_t bytes;	   /* stored for this service */
	double overhead_pct; /* < 0: not known */
	char refusal[CONTINUOUS_REFUSAL_SIZE]; /* why a type is not taken now, "" = all are */
};

struct continuous_info {
	struct continuous_setting setting;
	uint64_t created_at_ns, updated_at_ns; /* realtime */
	struct continuous_status status;
};

/* Insert or replace by (tenant, service). Words: InvalidParam, ProfileTypeUnavailable,
 * UnknownService, StoreUnavailable. */
int sessions_continuous_put(struct sessions *s, const struct continuous_setting *setting,
			    struct continuous_info *ret, struct err *err) must_use;
/* UnknownService: no setting of this tenant for it. */
int sessions_continuous_get(struct sessions *s, const char *tenant, const char *service,
			    struct continuous_info *ret, struct err *err) must_use;
/* Removes the setting; what was stored stays until its retention ends. */
int sessions_continuous_delete(struct sessions *s, const char *tenant, const char *service,
			       struct err *err) must_use;
struct continuous_list {
	struct continuous_info *items; /* owned; newest first, then by service */
	uint32_t count;
};
int sessions_continuous_list(struct sessions *s, const char *tenant, struct continuous_list *ret,
			     struct err *err) must_use;
void continuous_list_deinit(struct continuous_list *list);

/* ---- windows --------------------------------------------------------------------------------- */

/* Says whether the data of @service on @host are wanted. Pure; called with locks held. */
typedef bool history_wants_fn(void *ctx, const char *service, const char *host);

struct history_window {
	const char *tenant;
	const char *service;
	enum profile_type type;
	uint64_t from_ns, to_ns; /* realtime, to exclusive */
	const char *host; /* whose data alone, "" = this host's, NULL = all hosts' */
	bool timed; /* single samples at their own times, where this host keeps them for all of it;
		       else sums of minutes */
	bool raw; /* profiles with the interpreter's own frames */
	history_wants_fn *wants; /* narrows @service and @host further; NULL = no */
	void *wants_ctx;
};

static inline bool history_window_has(const struct history_window *window, const char *service,
				      const char *host)
{
	return !window->wants || window->wants(window->wants_ctx, service, host);
}

/* Everything stored for the window as one profile: continuous data where there is some, else the
 * on-demand sessions that lie in it. UnknownService when the name is unknown to this tenant,
 * NotFound when nothing is stored in the window. */
int sessions_window_profile(struct sessions *s, const struct history_window *window,
			    struct profile **ret, struct err *err) must_use;

/* All functions of the window. */
struct history_functions {
	struct profile *profile; /* its functions and totals; there may be no stacks */
	struct profile_function_row *rows; /* as profile_top_functions() gives them */
	size_t count;
};
void history_functions_deinit(struct history_functions *functions);
/* As sessions_window_profile(), many times quicker for long windows. */
int sessions_window_functions(struct sessions *s, const struct history_window *window,
			      struct history_functions *ret, struct err *err) must_use;

struct history_point {
	uint64_t from_ns, to_ns; /* realtime */
	int64_t total_value;	 /* of a level (memory, goroutine) the mean of the step's sessions */
	uint64_t profiled_ns;	 /* of the step: how long was looked */
	double value_per_second; /* of that time; of a level the level */
	uint64_t sample_count;
};
struct history_points {
	struct history_point *items; /* owned; ascending, only steps with data */
	uint32_t count;
	struct profile_quality quality; /* of what they are made of */
};
#define HISTORY_POINTS_MAX 2000u
/* @step_ns: width, at least 60 s. @function: NULL = everything, else only stacks it occurs in. */
int sessions_points(struct sessions *s, const struct history_window *window, uint64_t step_ns,
		    const char *function, struct history_points *ret, struct err *err) must_use;
void history_points_deinit(struct history_points *points);

/* ---- series ---------------------------------------------------------------------------------- */

#define HISTORY_STEPS_MAX  11000u   /* of one series */
#define HISTORY_SERIES_MAX 20000u   /* of one answer */
#define HISTORY_CELLS_MAX  4000000u /* steps of all series together */

struct history_series_query {
	const char *tenant;
	uint32_t types;		 /* bits 1 << enum profile_type; 0 = all */
	uint64_t from_ns, to_ns; /* realtime, to exclusive */
	uint64_t step_ns;	 /* width of a point; 0 = no points: which series there are */
	history_wants_fn *wants; /* NULL = all */
	void *wants_ctx;
};
/* Data of one profile type of one service on one host. */
struct history_series {
	char *service; /* owned */
	char host[65];
	enum profile_type type;
	bool continuous; /* of minute buckets; else of sessions */
	/* By step, owned; NULL without points. */
	int64_t *values;   /* of the type's main value; of a level the mean of the step's sessions */
	uint64_t *samples; /* events; of types with a count as first value that count */
	bool *observed;	   /* steps with data, and those in which nothing was used */
};
struct history_series_list {
	struct history_series *items; /* owned; by service, host and type */
	size_t count;
	size_t steps; /* of each series; the last may be shorter than the others */
};
/* All series with data in the time range, continuous ones where a service has any of the type, else
 * on-demand sessions. The numbers are those of sessions_points(): minutes that begin in the range;
 * a step that is no whole number of minutes gets its share of a minute. Words: InvalidParam,
 * LimitReached, StoreUnavailable. */
int sessions_series(struct sessions *s, const struct history_series_query *query,
		    struct history_series_list *ret, struct err *err) must_use;
void history_series_list_deinit(struct history_series_list *list);
/* When the oldest and the newest data of @tenant were taken, realtime; 0 = there is none. */
int sessions_history_range(struct sessions *s, const char *tenant, uint64_t *ret_oldest_ns,
			   uint64_t *ret_newest_ns, struct err *err) must_use;

/* ---- labels of services ---------------------------------------------------------------------- */

/* Where a service runs. */
enum service_label {
	SERVICE_LABEL_UNIT,
	SERVICE_LABEL_CONTAINER, /* the name that its runtime keeps, else its id */
	SERVICE_LABEL_POD,
	SERVICE_LABEL_NAMESPACE,
	SERVICE_LABEL_WORKLOAD,
	SERVICE_LABEL_IMAGE,
	SERVICE_LABELS,
};
/* "unit", "container", … */
const char *service_label_word(enum service_label label);

struct service_labels {
	char *service; /* owned */
	char host[65];
	char *values[SERVICE_LABELS]; /* owned, "" = none, or not the same of all its processes */
	size_t order;		      /* private */
};
struct service_labels_list {
	struct service_labels *items; /* owned; by service, then host */
	size_t count;
};
/* The labels that each service of each host had last before @to_ns (realtime), also of services
 * that run no more. A tenant that is limited to some processes gets only those of now. */
int sessions_service_labels(struct sessions *s, const char *tenant, uint64_t to_ns,
			    struct service_labels_list *ret, struct err *err) must_use;
void service_labels_list_deinit(struct service_labels_list *list);
/* "" = none. */
const char *service_labels_find(const struct service_labels_list *list, const char *service,
				const char *host, enum service_label label);

/* ---- watch -------------------------------------------------------------------------------------
 */

/* Something that the watch of a continuous setting found to have changed. */
struct finding_info {
	char id[SESSION_ID_SIZE]; /* "fnd-…" */
	char tenant[TENANT_NAME_SIZE];
	char service[SERVICE_NAME_SIZE];
	char host[65]; /* whose data was judged: watches look at that of their own host */
	enum profile_type type;
	char against[64];      /* as in struct continuous_setting */
	uint64_t at_ns;	       /* realtime, end of the hour that opened it */
	uint64_t closed_at_ns; /* 0 = open */
	char *comparison;      /* owned: a JSON object, members as in the API's ProfileComparison */
};
void finding_info_deinit(struct finding_info *info);
/* As the API and webhooks show it; the caller frees. NULL = no memory. */
char *finding_json(const struct finding_info *info) must_use;

struct finding_query {
	const char *tenant;
	const char *service; /* NULL = all */
	uint64_t from_ns, to_ns; /* realtime of at_ns, to exclusive; 0 = open */
	uint32_t limit;		 /* 1…100 */
	const char *cursor;	 /* NULL = first page */
};
struct finding_list {
	struct finding_info *items; /* owned; newest first */
	uint32_t count;
	uint64_t total;
	char next_cursor[64]; /* "" = last page */
};
int sessions_findings(struct sessions *s, const struct finding_query *query,
		      struct finding_list *ret, struct err *err) must_use;
void finding_list_deinit(struct finding_list *list);

/* Checks what the watches of @tenant would check on the hour, now, for the hour that ended at
 * @at_ns (realtime, 0 = now; rounded down to the minute). @service: NULL = all. An hour less than
 * half an hour after the one checked last is passed over. *ret_checked: profiles that were judged.
 * Words: UnknownService (no watch for it), StoreUnavailable. */
int sessions_watch_check(struct sessions *s, const char *tenant, const char *service,
			 uint64_t at_ns, uint32_t *ret_checked, struct err *err) must_use;

/* A program of a service runs from another build since then. */
struct deployment_info {
	char service[SERVICE_NAME_SIZE];
	char host[65];
	char exe[64]; /* base name, cut to fit */
	char build_id[65], previous_build_id[65]; /* hexadecimal */
	uint64_t at_ns; /* realtime, start of the first process of that build */
};
struct deployment_list {
	struct deployment_info *items; /* owned; newest first */
	uint32_t count;
};
#define DEPLOYMENTS_SHOWN 100u
/* @service: NULL = all; from and to as in struct session_query. */
int sessions_deployments(struct sessions *s, const char *tenant, const char *service,
			 uint64_t from_ns, uint64_t to_ns, struct deployment_list *ret,
			 struct err *err) must_use;
void deployment_list_deinit(struct deployment_list *list);

#endif
