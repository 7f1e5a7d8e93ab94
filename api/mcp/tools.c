// SPDX-License-Identifier: Apache-2.0
#include "api/mcp/tools.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/session/history.h"
#include "api/api_internal.h"
#include "api/http/json_in.h"
#include "api/mcp/callers.h"

#define A "/api/v1/observability"
#define B "/api/v1/profiling"

#define TAKE_MAX_S 120
#define HOURS_MAX  (24 * 30)
#define OWN_FUNCTIONS 8

/* ---- asking the API -------------------------------------------------------------------------- */

/* The answer of GET @path, or of POST with @body; the caller's. */
static int fetch(struct tool_call *t, const char *method, const struct buf *path, const char *body,
		 cJSON **ret)
{
	cleanup_buf struct buf answer = { .max = HTTP_ANSWER_HELD };
	int rc = path->error ? path->error
			     : t->call->ask(t->call, method, path->data, body, &answer, t->err);

	if (rc < 0)
		return rc;
	*ret = cJSON_ParseWithLength(answer.data, answer.len);
	return *ret ? 0 : -ENOMEM;
}

static void add_escaped(struct buf *path, const char *text)
{
	for (; *text; text++) {
		if (isalnum((unsigned char)*text) || strchr("-._~", *text))
			buf_add_char(path, *text);
		else
			buf_printf(path, "%%%02X", (unsigned char)*text);
	}
}

static void add_parameter(struct buf *path, const char *name, const char *value)
{
	if (!value)
		return;
	buf_printf(path, "%c%s=", memchr(path->data, '?', path->len) ? '&' : '?', name);
	add_escaped(path, value);
}

/* ---- arguments ------------------------------------------------------------------------------- */

static int text_of(struct tool_call *t, const char *name, bool required, const char **ret)
{
	return json_in_text(t->arguments, name, required, 1024, ret, t->err);
}

static int number_of(struct tool_call *t, const char *name, uint64_t min, uint64_t max,
		     uint64_t *ret)
{
	return json_in_uint(t->arguments, name, false, min, max, ret, t->err);
}

static int type_of(struct tool_call *t, enum profile_type *ret)
{
	return json_in_type(t->arguments, "profile_type", false, ret, t->err);
}

/* "-24h", as the API reads times. */
static void add_hours(struct buf *path, const char *name, uint64_t hours)
{
	char text[24];

	(void)snprintf(text, sizeof(text), "-%lluh", (unsigned long long)hours);
	add_parameter(path, name, text);
}

/* ---- results --------------------------------------------------------------------------------- */

/* Moves members of @from, in this order, into the result. */
static void take(struct tool_call *t, cJSON *from, const char *const *names)
{
	for (; *names; names++) {
		cJSON *item = cJSON_DetachItemFromObjectCaseSensitive(from, *names);

		if (item)
			(void)cJSON_AddItemToObject(t->result, *names, item);
	}
}

/* Leaves in each object of a list only these members. */
static void keep_in_list(cJSON *list, const char *const *names)
{
	for (cJSON *item = list ? list->child : NULL; item; item = item->next) {
		for (cJSON *member = item->child, *next; member; member = next) {
			bool kept = false;

			next = member->next;
			for (const char *const *name = names; *name; name++)
				kept |= strcmp(*name, member->string) == 0;
			if (!kept)
				cJSON_Delete(cJSON_DetachItemViaPointer(item, member));
		}
	}
}

static void add_next(struct tool_call *t, const char *text)
{
	cJSON *list = cJSON_GetObjectItemCaseSensitive(t->result, "next");

	if (!list)
		list = cJSON_AddArrayToObject(t->result, "next");
	(void)cJSON_AddItemToArray(list, cJSON_CreateString(text));
}

static void add_text(struct tool_call *t, const char *name, const char *text)
{
	(void)cJSON_AddStringToObject(t->result, name, text);
}

#define NAMES(...) ((const char *const[]){ __VA_ARGS__, NULL })

/* ---- services -------------------------------------------------------------------------------- */

/* Types that can be taken, as one text, and why the others cannot. */
static void shorten_types(cJSON *service)
{
	cJSON *types = cJSON_DetachItemFromObjectCaseSensitive(service, "profileTypes");
	cleanup_buf struct buf available = { 0 };

	for (const cJSON *type = types ? types->child : NULL; type; type = type->next) {
		const char *word = cJSON_GetStringValue(cJSON_GetObjectItem(type, "type"));

		if (word && cJSON_IsTrue(cJSON_GetObjectItem(type, "available")))
			buf_printf(&available, "%s%s", available.len ? " " : "", word);
	}
	if (available.len)
		(void)cJSON_AddStringToObject(service, "profileTypes", available.data);
	cJSON_Delete(types);
}

static void shorten_service(cJSON *service)
{
	const cJSON *processes = cJSON_GetObjectItem(service, "processes");
	double count = cJSON_GetArraySize(processes);

	shorten_types(service);
	cJSON_DeleteItemFromObject(service, "processes");
	(void)cJSON_AddNumberToObject(service, "processes", count);
}

static double cpus_of(const cJSON *service)
{
	const cJSON *cpus = cJSON_GetObjectItem(service, "cpus");

	return cpus ? cpus->valuedouble : 0;
}

/* The service of @list that uses most CPU, taken out of it. */
static cJSON *take_busiest(cJSON *list, const char *filter)
{
	cJSON *best = NULL;

	for (cJSON *item = list->child; item; item = item->next) {
		const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(item, "name"));

		if (filter && (!name || !strcasestr(name, filter)))
			continue;
		if (!best || cpus_of(item) > cpus_of(best))
			best = item;
	}
	return best ? cJSON_DetachItemViaPointer(list, best) : NULL;
}

static int run_services(struct tool_call *t)
{
	cleanup_buf struct buf path = { 0 };
	cleanup(json) cJSON *answer = NULL;
	const char *filter = NULL;
	uint64_t limit = 30;
	cJSON *list, *items, *busiest;
	int rc = text_of(t, "filter", false, &filter);

	buf_add_str(&path, A "/services");
	if (rc == 0)
		rc = number_of(t, "limit", 1, 100, &limit);
	if (rc == 0)
		rc = fetch(t, "GET", &path, NULL, &answer);
	if (rc < 0)
		return rc;
	list = cJSON_GetObjectItem(answer, "items");
	items = cJSON_AddArrayToObject(t->result, "services");
	while (limit-- && list && (busiest = take_busiest(list, filter))) {
		shorten_service(busiest);
		(void)cJSON_AddItemToArray(items, busiest);
	}
	keep_in_list(items, NAMES("name", "cpus", "processes", "runtime", "inferred", "systemdUnit",
				  "containerId", "profileTypes"));
	take(t, answer, NAMES("total", "hostCpus"));
	add_text(t, "units", "cpus: CPUs used now; the busiest first");
	add_next(t,
		 "find_profiles with a service shows what is stored; take_profile takes a new one");
	return 0;
}

/* ---- profiles -------------------------------------------------------------------------------- */

#define PROFILE_MEMBERS                                                                            \
	"id", "service", "profileType", "status", "failureReason", "createdAt", "durationSeconds", \
		"continuous", "host", "totalValue", "unit", "sampleCount"

static int run_find(struct tool_call *t)
{
	cleanup_buf struct buf path = { 0 };
	cleanup(json) cJSON *answer = NULL;
	const char *service = NULL;
	enum profile_type type = PROFILE_TYPE_MAX;
	uint64_t limit = 10, hours = 24;
	char text[8];
	int rc = text_of(t, "service", false, &service);

	if (rc == 0)
		rc = type_of(t, &type);
	if (rc == 0)
		rc = number_of(t, "limit", 1, 50, &limit);
	if (rc == 0)
		rc = number_of(t, "hours", 1, HOURS_MAX, &hours);
	if (rc < 0)
		return rc;
	(void)snprintf(text, sizeof(text), "%u", (unsigned)limit);
	buf_add_str(&path, A "/profiling/history?top=0");
	add_parameter(&path, "service", service);
	add_parameter(&path, "profileType",
		      type < PROFILE_TYPE_MAX ? profile_type_info(type)->word : NULL);
	add_parameter(&path, "limit", text);
	add_hours(&path, "from", hours);
	rc = fetch(t, "GET", &path, NULL, &answer);
	if (rc < 0)
		return rc;
	keep_in_list(cJSON_GetObjectItem(answer, "items"), NAMES(PROFILE_MEMBERS));
	take(t, answer, NAMES("items", "total"));
	add_text(t, "units",
		 "totalValue is in unit; times are UTC; continuous: by continuous profiling");
	add_next(t, "top_functions with an id; compare with two ids");
	return 0;
}

/* The members of a session that matter, and its functions with callers. */
static int describe(struct tool_call *t, const char *id, uint64_t limit)
{
	cleanup_buf struct buf path = { 0 };
	cleanup(json) cJSON *answer = NULL;
	cleanup(profile) struct profile *p = NULL;
	int rc;

	buf_add_str(&path, A "/profiling/");
	add_escaped(&path, id);
	buf_add_str(&path, "?top=0");
	rc = fetch(t, "GET", &path, NULL, &answer);
	if (rc < 0)
		return rc;
	take(t, answer, NAMES(PROFILE_MEMBERS, "breakdown", "quality"));
	rc = sessions_profile(t->call->api->options.sessions, t->call->request->tenant, id, &p,
			      t->err);
	if (rc == 0)
		rc = callers_add(t->result, "functions", p, (unsigned)limit, 3);
	if (rc == 0)
		rc = callers_add_own(t->result, p, OWN_FUNCTIONS);
	add_text(
		t, "units",
		"selfPct, cumulativePct, pct: percent of totalValue; callersPctOfSelf: percent of "
		"selfPct; ownFunctions: by the program's innermost function, without kernel, "
		"libraries and interpreter; calledBy: the ways to it, nearest caller first");
	return rc;
}

/* A time range of the history. */
static int describe_window(struct tool_call *t, const char *service, uint64_t limit)
{
	struct history_window window = { .tenant = t->call->request->tenant,
					 .service = service,
					 .type = PROFILE_CPU,
					 .to_ns = clock_realtime_ns() };
	cleanup(profile) struct profile *p = NULL;
	uint64_t minutes = 60;
	int rc = type_of(t, &window.type);

	if (rc == 0)
		rc = number_of(t, "minutes", 1, HOURS_MAX * 60, &minutes);
	window.from_ns = window.to_ns - minutes * 60 * NS_PER_S;
	if (rc == 0)
		rc = sessions_window_profile(t->call->api->options.sessions, &window, &p, t->err);
	if (rc == 0)
		rc = callers_add(t->result, "functions", p, (unsigned)limit, 3);
	if (rc == 0)
		rc = callers_add_own(t->result, p, OWN_FUNCTIONS);
	if (rc < 0)
		return rc;
	(void)cJSON_AddNumberToObject(t->result, "totalValue",
				      (double)p->totals[profile_value_index(p)]);
	add_text(t, "unit", profile_type_info(window.type)->values[profile_value_index(p)].unit);
	(void)cJSON_AddNumberToObject(t->result, "observedSeconds",
				      (double)(p->meta.duration_ns / NS_PER_S));
	(void)cJSON_AddNumberToObject(t->result, "samples", (double)p->quality.samples);
	if (p->quality.unknown_frame_pct >= 0)
		(void)cJSON_AddNumberToObject(t->result, "unknownFramePct",
					      p->quality.unknown_frame_pct);
	add_text(
		t, "units",
		"selfPct, cumulativePct, pct: percent of totalValue; callersPctOfSelf: percent of "
		"selfPct; ownFunctions: by the program's innermost function, without kernel, "
		"libraries and interpreter; calledBy: the ways to it, nearest caller first");
	return 0;
}

static int run_top(struct tool_call *t)
{
	const char *profile = NULL, *service = NULL;
	uint64_t limit = 15;
	int rc = text_of(t, "profile", false, &profile);

	if (rc == 0)
		rc = text_of(t, "service", false, &service);
	if (rc == 0)
		rc = number_of(t, "limit", 1, 50, &limit);
	if (rc < 0)
		return rc;
	if (!profile && !service)
		return err_set(t->err, EINVAL, "InvalidParam", "profile",
			       "name a profile, or a service whose last minutes are summed");
	rc = profile ? describe(t, profile, limit) : describe_window(t, service, limit);
	if (rc == 0)
		add_next(
			t,
		"idle CPU but slow: take_profile with profile_type wall, then waits_ledger; a "
		"change: compare");
	return rc;
}

static int run_take(struct tool_call *t)
{
	cleanup_buf struct buf path = { 0 };
	cleanup(json) cJSON *body = cJSON_CreateObject(), *answer = NULL;
	cleanup_free char *text = NULL;
	const char *service = NULL, *id;
	enum profile_type type = PROFILE_CPU;
	uint64_t seconds = 10;
	int rc = text_of(t, "service", true, &service);

	if (rc == 0)
		rc = type_of(t, &type);
	if (rc == 0)
		rc = number_of(t, "seconds", 1, TAKE_MAX_S, &seconds);
	if (rc < 0)
		return rc;
	(void)cJSON_AddStringToObject(body, "target", service);
	(void)cJSON_AddStringToObject(body, "profileType", profile_type_info(type)->word);
	if (type != PROFILE_GOROUTINE)
		(void)cJSON_AddNumberToObject(body, "durationSeconds", (double)seconds);
	text = cJSON_PrintUnformatted(body);
	if (!text)
		return -ENOMEM;
	buf_add_str(&path, B "/sessions");
	rc = fetch(t, "POST", &path, text, &answer);
	id = rc == 0 ? cJSON_GetStringValue(cJSON_GetObjectItem(answer, "sessionId")) : NULL;
	if (rc < 0)
		return rc;
	rc = id ? describe(t, id, 15) : -EPROTO;
	add_next(t, type == PROFILE_GOROUTINE ? "goroutines with this id"
		    : type == PROFILE_WALL    ? "waits_ledger with this id"
		    : type == PROFILE_MUTEX   ? "locks with this id"
					      : "compare with an older profile of the service");
	return rc;
}

/* ---- comparison ------------------------------------------------------------------------------ */

static void shorten_changes(cJSON *answer, const char *name)
{
	cJSON *list = cJSON_GetObjectItem(answer, name);

	keep_in_list(list, NAMES("funcName", "file", "basePct", "comparisonPct", "deltaPct",
				 "change", "confidenceInterval", "qValue"));
	while (cJSON_GetArraySize(list) > 12)
		cJSON_DeleteItemFromArray(list, 12);
}

/* Both sides by id, or the last hours of a service against as many before them. */
static int compare_path(struct tool_call *t, struct buf *path)
{
	const char *base = NULL, *comparison = NULL, *service = NULL;
	enum profile_type type = PROFILE_CPU;
	uint64_t hours = 1, ago = 24;
	int rc = text_of(t, "base", false, &base);

	if (rc == 0)
		rc = text_of(t, "comparison", false, &comparison);
	if (rc == 0)
		rc = text_of(t, "service", false, &service);
	if (rc == 0)
		rc = type_of(t, &type);
	if (rc == 0)
		rc = number_of(t, "hours", 1, HOURS_MAX, &hours);
	if (rc == 0)
		rc = number_of(t, "hours_ago", 1, HOURS_MAX, &ago);
	if (rc < 0)
		return rc;
	buf_add_str(path, A "/profiling/compare");
	add_parameter(path, "baseProfileId", base);
	add_parameter(path, "comparisonProfileId", comparison);
	if (base && comparison)
		return 0;
	if (!service)
		return err_set(t->err, EINVAL, "InvalidParam", "service",
			       "name two profiles (base, comparison), or a service");
	add_parameter(path, "service", service);
	add_parameter(path, "profileType", profile_type_info(type)->word);
	if (!base) {
		add_hours(path, "baseFrom", ago + hours);
		add_hours(path, "baseTo", ago);
	}
	if (!comparison) {
		add_hours(path, "comparisonFrom", hours);
		add_parameter(path, "comparisonTo", "now");
	}
	return 0;
}

static int run_compare(struct tool_call *t)
{
	cleanup_buf struct buf path = { 0 };
	cleanup(json) cJSON *answer = NULL;
	int rc = compare_path(t, &path);

	if (rc == 0)
		rc = fetch(t, "GET", &path, NULL, &answer);
	if (rc < 0)
		return rc;
	shorten_changes(answer, "regressions");
	shorten_changes(answer, "improvements");
	take(t, answer,
	     NAMES("verdict", "cause", "summary", "overallDelta", "significant", "minDetectable",
		   "insufficientData", "unsteady", "differentLives", "regressions", "improvements",
		   "moved", "unchanged", "threshold", "confidence", "baseProfile",
		   "comparisonProfile", "quality"));
	add_text(
		t, "units",
		"overallDelta: percent of the cost; …Pct: percent of own value; deltaPct, "
		"minDetectable, confidenceInterval: percentage points, the interval at the "
		"stated confidence");
	if (cJSON_IsTrue(cJSON_GetObjectItem(t->result, "insufficientData")))
		add_next(t, "to be surer: longer profiles, or more hours on both sides");
	else
		add_next(
			t,
		"changes below minDetectable cannot be seen with these profiles; top_functions "
		"of the comparison shows the callers");
	return 0;
}

/* ---- history --------------------------------------------------------------------------------- */

static int run_history(struct tool_call *t)
{
	cleanup_buf struct buf path = { 0 };
	cleanup(json) cJSON *answer = NULL;
	const char *service = NULL, *function = NULL;
	enum profile_type type = PROFILE_CPU;
	uint64_t hours = 24;
	char step[16];
	int rc = text_of(t, "service", true, &service);

	if (rc == 0)
		rc = text_of(t, "function", false, &function);
	if (rc == 0)
		rc = type_of(t, &type);
	if (rc == 0)
		rc = number_of(t, "hours", 1, HOURS_MAX, &hours);
	if (rc < 0)
		return rc;
	(void)snprintf(step, sizeof(step), "%um", (unsigned)((hours * 60 + 47) / 48));
	buf_add_str(&path, A "/profiling/history?top=0&limit=1");
	add_parameter(&path, "service", service);
	add_parameter(&path, "profileType", profile_type_info(type)->word);
	add_parameter(&path, "aggregate", step);
	add_parameter(&path, "function", function);
	add_hours(&path, "from", hours);
	rc = fetch(t, "GET", &path, NULL, &answer);
	if (rc < 0)
		return rc;
	keep_in_list(cJSON_GetObjectItem(answer, "points"),
		     NAMES("from", "valuePerSecond", "sampleCount"));
	keep_in_list(cJSON_GetObjectItem(answer, "deployments"),
		     NAMES("at", "exe", "buildId", "previousBuildId"));
	take(t, answer, NAMES("points", "deployments", "quality"));
	add_text(t, "step", step);
	add_text(t, "unit",
		 profile_type_info(type)->values[profile_type_info(type)->value_index].unit);
	add_text(t, "units",
		 "valuePerSecond: unit per second of observed time (1e9 ns/s = one CPU); "
		 "steps without data are gaps");
	add_next(t, "compare with hours and hours_ago judges a change between two time ranges");
	return 0;
}

/* ---- waits, locks, goroutines ---------------------------------------------------------------- */

static int run_ledger(struct tool_call *t)
{
	cleanup_buf struct buf path = { 0 };
	cleanup(json) cJSON *answer = NULL;
	const char *profile = NULL;
	int rc = text_of(t, "profile", true, &profile);

	if (rc < 0)
		return rc;
	buf_add_str(&path, A "/profiling/");
	add_escaped(&path, profile);
	buf_add_str(&path, "/ledger");
	rc = fetch(t, "GET", &path, NULL, &answer);
	if (rc < 0)
		return rc;
	take(t, answer, NAMES("threads", "quality"));
	add_text(t, "units",
		 "nanoseconds of each thread: elapsed = user + kernel + run queue + preempted + "
		 "stolen + blocked by kind of wait");
	add_next(
		t,
		"much run queue: the host lacks CPUs; much futex or gil: take_profile with "
		"profile_type mutex, then locks; much disk or socket: top_functions of an offcpu profile");
	return 0;
}

static int run_locks(struct tool_call *t)
{
	const char *profile = NULL;
	int rc = text_of(t, "profile", true, &profile);

	if (rc == 0)
		rc = describe(t, profile, 10);
	if (rc == 0)
		add_next(
			t,
		"breakdown.lock: waiting time by lock and the function that locks; "
		"breakdown.holder: who held it, where that is known");
	return rc;
}

static int run_goroutines(struct tool_call *t)
{
	cleanup_buf struct buf path = { 0 };
	cleanup(json) cJSON *answer = NULL;
	const char *profile = NULL;
	uint64_t limit = 10;
	char text[8];
	int rc = text_of(t, "profile", true, &profile);

	if (rc == 0)
		rc = number_of(t, "limit", 1, 50, &limit);
	if (rc < 0)
		return rc;
	(void)snprintf(text, sizeof(text), "%u", (unsigned)limit);
	buf_add_str(&path, B "/sessions/");
	add_escaped(&path, profile);
	buf_add_str(&path, "/analysis");
	add_parameter(&path, "limit", text);
	rc = fetch(t, "GET", &path, NULL, &answer);
	if (rc < 0)
		return rc;
	take(t, answer,
	     NAMES("service", "goroutineCount", "goroutineGrowthRate", "previousGoroutineCount",
		   "comparedWith", "states", "waitReasons", "topStacks", "blockedGoroutines",
		   "quality"));
	add_text(t, "units",
		 "counts of goroutines, or threads of a program that is not Go; "
		 "goroutineGrowthRate 1.25: a quarter more than in comparedWith");
	add_next(
		t,
		"growth from one profile to the next is a leak: take another and look at its rate");
	return 0;
}

/* ---- the watch and the agent ----------------------------------------------------------------- */

static int run_findings(struct tool_call *t)
{
	cleanup_buf struct buf path = { 0 };
	cleanup(json) cJSON *answer = NULL;
	const char *service = NULL;
	uint64_t hours = 24 * 7;
	int rc = text_of(t, "service", false, &service);

	if (rc == 0)
		rc = number_of(t, "hours", 1, HOURS_MAX, &hours);
	if (rc < 0)
		return rc;
	buf_add_str(&path, A "/profiling/findings?limit=20");
	add_parameter(&path, "service", service);
	add_hours(&path, "from", hours);
	rc = fetch(t, "GET", &path, NULL, &answer);
	if (rc < 0)
		return rc;
	for (cJSON *item = cJSON_GetObjectItem(answer, "items")->child; item; item = item->next) {
		cJSON *comparison = cJSON_GetObjectItem(item, "comparison");

		shorten_changes(comparison, "regressions");
		cJSON_DeleteItemFromObject(comparison, "improvements");
		cJSON_DeleteItemFromObject(comparison, "quality");
	}
	take(t, answer, NAMES("items", "total"));
	add_text(t, "units", "…Pct: percent of own value; deltaPct: percentage points");
	add_next(t, "findings need a watch: `profctl continuous start SERVICE --watch history`");
	return 0;
}

static int run_doctor(struct tool_call *t)
{
	static const char *const paths[] = { "/readyz", "/version", "/api/v1/sampling" };
	static const char *const names[] = { "ready", "version", "sampling" };
	cleanup_buf struct buf services = { 0 };
	cleanup(json) cJSON *answer = NULL;
	cJSON *list;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(paths); i++) {
		cleanup_buf struct buf path = { 0 };
		cJSON *part = NULL;

		buf_add_str(&path, paths[i]);
		rc = fetch(t, "GET", &path, NULL, &part);
		if (rc == 0)
			(void)cJSON_AddItemToObject(t->result, names[i], part);
	}
	buf_add_str(&services, A "/services");
	if (rc == 0)
		rc = fetch(t, "GET", &services, NULL, &answer);
	if (rc < 0)
		return rc;
	/* One reason for each type: services differ by their runtimes only. */
	list = cJSON_AddObjectToObject(t->result, "unavailable");
	for (const cJSON *item = cJSON_GetObjectItem(answer, "items")->child; item;
	     item = item->next) {
		for (const cJSON *type = cJSON_GetObjectItem(item, "profileTypes")->child; type;
		     type = type->next) {
			const char *word = cJSON_GetStringValue(cJSON_GetObjectItem(type, "type"));
			const char *reason =
				cJSON_GetStringValue(cJSON_GetObjectItem(type, "reason"));

			if (word && reason && !cJSON_GetObjectItem(list, word))
				(void)cJSON_AddStringToObject(list, word, reason);
		}
	}
	add_text(t, "units",
		 "unavailable: profile types that some service lacks, with one reason each");
	add_next(t, "`profctl doctor` on the host says more, with remedies");
	return 0;
}

/* ---- the table ------------------------------------------------------------------------------- */

#define OBJECT(properties, required)                                                               \
	"{\"type\":\"object\",\"properties\":{" properties "},\"required\":[" required             \
	"],\"additionalProperties\":false}"
#define TEXT(name, about) "\"" name "\":{\"type\":\"string\",\"description\":\"" about "\"}"
#define NUMBER(name, about)                                                                        \
	"\"" name "\":{\"type\":\"integer\",\"minimum\":1,\"description\":\"" about "\"}"
#define TYPE                                                                                       \
	"\"profile_type\":{\"type\":\"string\",\"enum\":[\"cpu\",\"offcpu\",\"wall\",\"block\","   \
	"\"mutex\",\"memory\",\"alloc\",\"goroutine\",\"io\",\"faults\"],"                         \
	"\"description\":\"default cpu\"}"
#define AND ","

const struct tool tools[] = {
	{ "list_services", "Services",
	  "Services that run on this host, the busiest first, with what can be profiled of each.",
	  OBJECT(TEXT("filter", "part of a name") AND NUMBER("limit", "default 30"), ""), false,
	  run_services },
	{ "find_profiles", "Stored profiles",
	  "Profiles that are stored, newest first; continuous profiling leaves one every ten "
	  "minutes.",
	  OBJECT(TEXT("service", "name of a service") AND TYPE AND NUMBER(
			 "hours", "how far back, default 24") AND NUMBER("limit", "default 10"),
		 ""),
	  false, run_find },
	{ "take_profile", "Take a profile",
	  "Profiles a service now, waits until that is done and shows its top functions. cpu: where "
	  "CPU time goes; wall and offcpu: what it waits for; mutex: locks; memory, alloc: heap; "
	  "goroutine: goroutines or threads.",
	  OBJECT(TEXT("service", "name, pid:N, unit:NAME or host") AND TYPE AND NUMBER(
			 "seconds", "default 10, at most 120"),
		 "\"service\""),
	  true, run_take },
	{ "top_functions", "Top functions",
	  "Functions with the most value of their own in a profile, or in the last minutes of a "
	  "service, with the callers of each.",
	  OBJECT(TEXT("profile", "id of a profile") AND TEXT("service", "instead: a service")
			 AND TYPE AND NUMBER("minutes", "of the service, default 60")
				 AND NUMBER("limit", "default 15"),
		 ""),
	  false, run_top },
	{ "compare", "Compare",
	  "Says whether the second side is slower: verdict, interval, changed functions. Sides are "
	  "profiles or baselines by id, or the last hours of a service against the same length some "
	  "hours ago.",
	  OBJECT(TEXT("base", "id") AND TEXT("comparison", "id")
			 AND TEXT("service", "instead of ids")
				 AND TYPE AND NUMBER("hours", "length of each side, default 1")
					 AND NUMBER("hours_ago", "end of the base, default 24"),
		 ""),
	  false, run_compare },
	{ "history", "History",
	  "Use of a service, or of one function in it, over time, and its deployments.",
	  OBJECT(TEXT("service", "name") AND TYPE AND TEXT("function", "only stacks with it")
			 AND NUMBER("hours", "default 24"),
		 "\"service\""),
	  false, run_history },
	{ "waits_ledger", "Waits by thread",
	  "Where the time of each thread of a wall profile went: running, run queue, waits by kind.",
	  OBJECT(TEXT("profile", "id of a wall profile"), "\"profile\""), false, run_ledger },
	{ "locks", "Locks",
	  "Which locks a mutex or block profile waited for, who held them, and where.",
	  OBJECT(TEXT("profile", "id of a mutex or block profile"), "\"profile\""), false,
	  run_locks },
	{ "goroutines", "Goroutines or threads",
	  "Goroutines, or threads, of a goroutine profile by state and stack, blocked ones and "
	  "growth.",
	  OBJECT(TEXT("profile", "id of a goroutine profile")
			 AND NUMBER("limit", "stacks, default 10"),
		 "\"profile\""),
	  false, run_goroutines },
	{ "findings", "Findings", "Regressions and leaks that the hourly watch found.",
	  OBJECT(TEXT("service", "name") AND NUMBER("hours", "default 168"), ""), false,
	  run_findings },
	{ "doctor", "State of profd",
	  "Whether profd works on this host, what it cannot take and why.", OBJECT("", ""), false,
	  run_doctor },
	{ 0 },
};
