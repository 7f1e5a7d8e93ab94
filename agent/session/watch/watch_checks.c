// SPDX-License-Identifier: Apache-2.0
/* The rules of the watch on stored data. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/session/watch/watch.h"

#define DAYS		7u
#define HOURS		24u
#define SLOW_Q		0.01
#define SLOW_Q_HOURS	0.001 /* without days to compare with, the day's own swing must not count */
#define CALM_Z		2.0
#define LEVEL_STEP_NS	(300 * NS_PER_S)
#define LEVEL_STEPS	(CONTINUOUS_DAY_NS / LEVEL_STEP_NS)
#define LEVEL_LEAST	0.05		      /* of the level before: least change that matters */
#define LEVEL_SAME_NS	(3 * LEVEL_STEP_NS)   /* the place of a change is known to about two points */
#define VERSION_LEAST_NS                                                                           \
	(6 * CONTINUOUS_MINUTE_NS) /* of the new build, before anything can be said */

uint64_t watch_key(const char *name, const char *package)
{
	return hash_bytes(package, strlen(package), hash_bytes(name, strlen(name), 0));
}

struct check {
	struct sessions *s;
	const struct watch_subject *subject;
	struct watch_state *state;
	struct err *err;
};

/* ---- windows --------------------------------------------------------------------------------- */

/* *ret stays NULL where nothing is stored. */
static int load_window(const struct check *c, uint64_t from_ns, uint64_t to_ns,
		       struct profile **ret)
{
	const struct history_window window = { .tenant = c->subject->setting->tenant,
					       .service = c->subject->service,
					       .type = c->subject->type,
					       .host = "",
					       .from_ns = from_ns,
					       .to_ns = to_ns };
	struct err err = { 0 };
	int rc = sessions_window_profile(c->s, &window, ret, &err);

	if (rc == -ENOENT)
		return 0;
	if (rc < 0 && c->err)
		*c->err = err;
	return rc;
}

static int load_matrix(const struct check *c, uint64_t from_ns, struct window_matrix **ret)
{
	cleanup(profile) struct profile *profile = NULL;
	int rc = load_window(c, from_ns, from_ns + WATCH_HOUR_NS, &profile);

	if (rc == 0 && profile)
		rc = window_matrix_create(profile, NULL, ret, NULL);
	return rc;
}

/* ---- an hour against its past ------------------------------------------------------------------
 */

struct past {
	struct window_matrix *hours[HOURS]; /* oldest first, NULL = nothing stored */
	uint64_t from_ns[HOURS];
	uint32_t count, stored;
	const struct check *check;
};

static void past_deinit(struct past *past)
{
	for (uint32_t i = 0; i < past->count; i++)
		window_matrix_destroy(past->hours[i]);
	past->count = past->stored = 0;
}

static int load_past(struct past *past, uint32_t count, uint64_t apart_ns)
{
	const struct check *c = past->check;
	uint64_t from_ns = c->subject->at_ns - WATCH_HOUR_NS;
	int rc = 0;

	past_deinit(past);
	for (; past->count < count && rc == 0; past->count++) {
		uint64_t back_ns = (count - past->count) * apart_ns;

		past->hours[past->count] = NULL;
		past->from_ns[past->count] = from_ns - back_ns;
		rc = load_matrix(c, from_ns - back_ns, &past->hours[past->count]);
		past->stored += past->hours[past->count] != NULL;
	}
	return rc;
}

/* Not from hours inside an alarm about the same function. */
static bool learns_from(void *ctx, uint32_t index, const char *name, const char *package)
{
	const struct past *past = ctx;
	const struct watch_state *state = past->check->state;
	uint64_t from_ns = past->from_ns[index], key = watch_key(name, package);

	for (uint32_t i = 0; i < state->count; i++) {
		const struct watch_alarm *alarm = &state->alarms[i];

		if (alarm->rule == WATCH_FUNCTIONS && alarm->key == key &&
		    from_ns + WATCH_HOUR_NS > alarm->first_ns &&
		    (alarm->state != ALARM_CLOSED || from_ns < alarm->closed_ns))
			return false;
	}
	return true;
}

struct hour_list {
	const struct hour_function *functions;
	size_t count;
};

static bool function_is_calm(void *ctx, uint64_t key)
{
	const struct hour_list *list = ctx;

	for (size_t i = 0; i < list->count; i++) {
		const struct hour_function *f = &list->functions[i];

		if (watch_key(f->name, f->package) == key)
			return fabs(f->z) < CALM_Z || (f->interval[0] > -WATCH_THRESHOLD &&
						       f->interval[1] < WATCH_THRESHOLD);
	}
	return true; /* not a candidate any more */
}

static int see_functions(const struct check *c, const struct hour_list *list, unsigned past,
			 uint64_t since_ns)
{
	int rc = 0;

	for (size_t i = 0; i < list->count && rc == 0; i++) {
		const struct hour_function *f = &list->functions[i];
		cleanup_free char *json = NULL;

		/* A fall is no alarm. */
		if (!f->changed || f->comparison <= f->base)
			continue;
		json = watch_hour_json(c->subject, f, past, since_ns);
		if (!json)
			return -ENOMEM;
		rc = watch_state_saw(c->s, c->subject, c->state,
				     &(struct watch_sighting){ .rule = WATCH_FUNCTIONS,
							       .key = watch_key(f->name, f->package),
							       .sign = 1,
							       .comparison = json },
				     c->err);
	}
	return rc;
}

/* 1 = judged. */
static int check_functions(const struct check *c)
{
	__attribute__((__cleanup__(past_deinit))) struct past past = { .check = c };
	struct hour_options options = { .threshold = WATCH_THRESHOLD, .q = SLOW_Q,
					.counts = learns_from, .ctx = &past };
	cleanup(window_matrix) struct window_matrix *hour = NULL;
	cleanup_free struct hour_function *functions = NULL;
	struct hour_list list = { 0 };
	bool days = true;
	int rc = load_matrix(c, c->subject->at_ns - WATCH_HOUR_NS, &hour);

	if (rc < 0 || !hour)
		return rc;
	rc = load_past(&past, DAYS, CONTINUOUS_DAY_NS);
	if (rc == 0 && past.stored < HOUR_OUTLIERS_PAST_LEAST) {
		days = false;
		options.q = SLOW_Q_HOURS;
		rc = load_past(&past, HOURS, WATCH_HOUR_NS);
	}
	if (rc == 0)
		rc = hour_outliers(hour, (const struct window_matrix *const *)past.hours, past.count,
			       &options, &functions, &list.count);
	if (rc < 0)
		return rc == -ENODATA ? 0 : rc;
	list.functions = functions;
	rc = see_functions(c, &list, past.stored, days ? 0 : past.from_ns[0]);
	if (rc == 0)
		rc = watch_state_settle(c->s, c->subject, c->state, WATCH_FUNCTIONS,
					function_is_calm, &list, c->err);
	return rc < 0 ? rc : 1;
}

/* ---- a lasting change of the total --------------------------------------------------------------
 */

struct level {
	double y[LEVEL_STEPS];
	uint64_t from_ns[LEVEL_STEPS];
	size_t count;
	struct change_point last; /* the newest change that matters */
	uint64_t at_ns;		  /* its time, 0 = none */
};

static int find_level(const struct check *c, struct level *level)
{
	const struct history_window window = { .tenant = c->subject->setting->tenant,
					       .service = c->subject->service,
					       .type = c->subject->type,
					       .host = "",
					       .from_ns = c->subject->at_ns - CONTINUOUS_DAY_NS,
					       .to_ns = c->subject->at_ns };
	struct change_point found[CHANGE_POINTS_MAX];
	struct history_points points;
	size_t count = 0;
	int rc = sessions_points(c->s, &window, LEVEL_STEP_NS, NULL, &points, c->err);

	if (rc < 0)
		return rc;
	/* Steps without data are gaps, not zeros: they are left out. */
	for (uint32_t i = 0; i < points.count && level->count < LEVEL_STEPS; i++) {
		/* A service that did not run has no level. */
		if (!points.items[i].sample_count)
			continue;
		level->y[level->count] = points.items[i].value_per_second;
		level->from_ns[level->count++] = points.items[i].from_ns;
	}
	history_points_deinit(&points);
	rc = change_points_find(level->y, level->count, found, CHANGE_POINTS_MAX, &count);
	for (size_t i = 0; rc == 0 && i < count; i++) {
		if (fabs(found[i].after - found[i].before) < LEVEL_LEAST * fabs(found[i].before))
			continue;
		level->last = found[i];
		level->at_ns = level->from_ns[found[i].at];
	}
	return rc;
}

/* An open alarm about about the same moment has its key. */
static uint64_t level_key(const struct check *c, uint64_t at_ns)
{
	for (uint32_t i = 0; i < c->state->count; i++) {
		const struct watch_alarm *alarm = &c->state->alarms[i];
		uint64_t apart = alarm->key > at_ns ? alarm->key - at_ns : at_ns - alarm->key;

		if (alarm->rule == WATCH_LEVEL && alarm->state != ALARM_CLOSED &&
		    apart <= LEVEL_SAME_NS)
			return alarm->key;
	}
	return at_ns;
}

static bool level_is_calm(void *ctx, uint64_t key)
{
	return true; /* it is not found any more: the level went back, or it is a day ago */
}

static int check_level(const struct check *c)
{
	cleanup_free struct level *level = calloc(1, sizeof(*level));
	cleanup_free char *json = NULL;
	int rc = level ? find_level(c, level) : -ENOMEM;

	if (rc < 0)
		return rc;
	if (level->count < CHANGE_POINT_LEAST)
		return 0;
	if (level->at_ns) {
		json = watch_level_json(c->subject, &level->last, level->at_ns);
		rc = json ? watch_state_saw(c->s, c->subject, c->state,
					    &(struct watch_sighting){
						    .rule = WATCH_LEVEL,
						    .key = level_key(c, level->at_ns),
						    .sign = level->last.after > level->last.before ? 1 : -1,
						    .comparison = json },
					    c->err)
			  : -ENOMEM;
	}
	if (rc == 0)
		rc = watch_state_settle(c->s, c->subject, c->state, WATCH_LEVEL, level_is_calm, NULL,
					c->err);
	return rc < 0 ? rc : 1;
}

/* ---- against a baseline or a build -------------------------------------------------------------
 */

static bool verdict_is_calm(void *ctx, uint64_t key)
{
	return true; /* judged, and not found regressed */
}

/* Labels as in a ProfileComparison. */
struct judged {
	const struct profile *profile;
	char label[WATCH_LABEL_SIZE];
};

static int judge(const struct check *c, const struct judged *base, const struct judged *other,
		 const struct watch_sighting *sighting)
{
	struct compare_side sides[2] = { { .profile = base->profile, .runqueue_share = -1 },
					 { .profile = other->profile, .runqueue_share = -1 } };
	cleanup_compare struct compare comparison = { 0 };
	struct watch_sighting seen = *sighting;
	cleanup_free char *json = NULL;
	int rc = compare_init(&comparison, &sides[0], &sides[1], NULL);

	if (rc < 0 || comparison.insufficient_data)
		return rc;
	if (comparison.verdict == COMPARE_REGRESSED) {
		seen.comparison = json = watch_compare_json(base->label, other->label, &comparison);
		if (!json)
			return -ENOMEM;
		rc = watch_state_saw(c->s, c->subject, c->state, &seen, c->err);
	}
	if (rc == 0)
		rc = watch_state_settle(c->s, c->subject, c->state, WATCH_VERDICT, verdict_is_calm,
					NULL, c->err);
	return rc < 0 ? rc : 1;
}

static int check_baseline(const struct check *c)
{
	const char *id = c->subject->setting->watch_against;
	cleanup(profile) struct profile *base = NULL, *hour = NULL;
	struct judged sides[2] = { { 0 } };
	uint64_t at_ns = c->subject->at_ns;
	int rc = sessions_profile(c->s, c->subject->setting->tenant, id, &base, c->err);

	/* A baseline of another service or type, or a deleted one, has nothing to say. */
	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	if (base->meta.type != c->subject->type ||
	    strcmp(base->meta.service, c->subject->service) != 0)
		return 0;
	rc = load_window(c, at_ns - WATCH_HOUR_NS, at_ns, &hour);
	if (rc < 0 || !hour)
		return rc;
	sides[0].profile = base;
	(void)snprintf(sides[0].label, sizeof(sides[0].label), "%s", id);
	sides[1].profile = hour;
	watch_window_label(c->subject, at_ns - WATCH_HOUR_NS, at_ns, sides[1].label);
	return judge(c, &sides[0], &sides[1],
		     &(struct watch_sighting){ .rule = WATCH_VERDICT, .key = watch_key(id, ""), .sign = 1 });
}

/* A deliberate change is judged once: against the hour before it. */
static int check_version(const struct check *c)
{
	uint64_t at_ns = c->subject->at_ns, from_ns;
	cleanup(profile) struct profile *base = NULL, *after = NULL;
	struct deployment_list list;
	struct deployment_info newest = { 0 };
	struct judged sides[2] = { { 0 } };
	int rc = deployments_of_host(c->s, c->subject->setting->tenant, c->subject->service,
				      at_ns > WATCH_LEARN_NS ? at_ns - WATCH_LEARN_NS : 0, at_ns, &list,
				      c->err);

	if (rc < 0)
		return rc;
	if (list.count)
		newest = list.items[0];
	deployment_list_deinit(&list);
	from_ns = newest.at_ns > at_ns - WATCH_HOUR_NS ? newest.at_ns : at_ns - WATCH_HOUR_NS;
	if (!newest.at_ns || at_ns - from_ns < VERSION_LEAST_NS)
		return 0;
	rc = load_window(c, newest.at_ns - WATCH_HOUR_NS, newest.at_ns, &base);
	if (rc == 0)
		rc = load_window(c, from_ns, at_ns, &after);
	if (rc < 0 || !base || !after)
		return rc;
	sides[0].profile = base;
	watch_window_label(c->subject, newest.at_ns - WATCH_HOUR_NS, newest.at_ns, sides[0].label);
	sides[1].profile = after;
	watch_window_label(c->subject, from_ns, at_ns, sides[1].label);
	return judge(c, &sides[0], &sides[1],
		     &(struct watch_sighting){ .rule = WATCH_VERDICT,
					       .key = watch_key(newest.build_id, newest.exe),
					       .sign = 1,
					       .once = true });
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int check_by_setting(const struct check *c)
{
	const char *against = c->subject->setting->watch_against;
	int rc, level;

	if (strcmp(against, "previous-version") == 0)
		return check_version(c);
	if (strcmp(against, "history") != 0)
		return check_baseline(c);
	/* Sessions of a span's length have no minutes to judge an hour by. */
	rc = profile_type_is_kept(c->subject->type, PROFILE_KEPT_MINUTES) ? check_functions(c) : 0;
	if (rc < 0)
		return rc;
	level = check_level(c);
	return level < 0 ? level : rc || level;
}

int watch_check_subject(struct sessions *s, const struct watch_subject *subject, struct err *err)
{
	cleanup_free struct watch_state *state = calloc(1, sizeof(*state));
	struct check check = { .s = s, .subject = subject, .state = state, .err = err };
	int rc = state ? watch_state_load(s, subject, state, err) : -ENOMEM, saved;

	if (rc < 0)
		return rc;
	/* Not of a clock that was ahead. */
	if (state->checked_ns && state->checked_ns <= clock_realtime_ns() &&
	    subject->at_ns < state->checked_ns + WATCH_APART_NS)
		return 0;
	rc = check_by_setting(&check);
	if (rc < 0)
		return rc;
	saved = watch_state_save(s, subject, state, err);
	return saved < 0 ? saved : rc;
}
