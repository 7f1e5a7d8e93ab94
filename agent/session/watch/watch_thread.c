// SPDX-License-Identifier: Apache-2.0
/* When the watch checks, which series, and which webhooks it calls. */
#include <errno.h>
#include <string.h>

#include "agent/session/continuous/standing.h"
#include "agent/session/watch/alert_formats.h"
#include "agent/session/watch/watch.h"

#define LOOK_NS	      (10 * NS_PER_S) /* deployments are written, webhooks tried again */
#define IDLE_LOOK_NS  (600 * NS_PER_S) /* without webhooks to deliver: new ones wake their thread */
#define DELIVER_NS    CONTINUOUS_DAY_NS /* a webhook is tried for a day */
#define RETRY_FIRST_NS NS_PER_S
#define RETRY_MOST_NS (900 * NS_PER_S)
#define RETRIES_MAX   256u
#define JOBS_MAX      16u /* webhooks of one look */
#define JOBS_TENANT_MAX 4u /* of them of one tenant */
#define SERVICES_MAX  4096u

struct watch {
	pthread_mutex_t lock;	  /* one check at a time; taken before all others */
	pthread_cond_t hooks_due; /* with the lock of struct sessions: something to deliver, or stopping */
	pthread_t thread, hook_thread;
	bool has_thread, has_hook_thread;
};

/* ---- subjects -------------------------------------------------------------------------------- */

struct subjects {
	struct continuous_source *sources; /* copies of those that watch */
	size_t count;
};

static int copy_sources(struct sessions *s, const char *tenant, struct subjects *ret)
{
	ret->sources = calloc(CONTINUOUS_MAX, sizeof(*ret->sources));
	if (!ret->sources)
		return -ENOMEM;
	sessions_lock(s);
	for (size_t i = 0; i < s->continuous->source_count; i++) {
		const struct continuous_source *source = &s->continuous->sources[i];

		if (source->setting.enabled && source->setting.watch_against[0] &&
		    (!tenant || strcmp(source->setting.tenant, tenant) == 0))
			ret->sources[ret->count++] = *source;
	}
	sessions_unlock(s);
	return 0;
}

/* Whether a setting of its own watches @service: the one for everything leaves it alone then. */
static bool has_own(const struct subjects *all, const struct continuous_source *source,
		    const char *service)
{
	for (size_t i = 0; i < all->count; i++)
		if (&all->sources[i] != source &&
		    strcmp(all->sources[i].setting.tenant, source->setting.tenant) == 0 &&
		    strcmp(all->sources[i].setting.service, service) == 0)
			return true;
	return false;
}

struct run {
	struct sessions *s;
	const char *service; /* NULL = all */
	uint64_t at_ns;
	uint32_t checked;
	struct err *err;
};

static bool is_stopping(struct sessions *s)
{
	sessions_scope(s);

	return s->stopping;
}

static int check_one(struct run *run, const struct continuous_source *source, const char *service,
		     enum profile_type type)
{
	const struct watch_subject subject = { .setting = &source->setting,
					       .service = service,
					       .type = type,
					       .at_ns = run->at_ns };
	struct err err = { 0 };
	int rc;

	if (is_stopping(run->s) || (run->service && strcmp(run->service, service) != 0))
		return 0;
	rc = watch_check_subject(run->s, &subject, &err);
	if (rc >= 0) {
		run->checked += (uint32_t)rc;
		return 0;
	}
	log_warn("watch: %.64s is not checked: %s", service,
		 err.text[0] ? err.text : strerror(-rc));
	if (run->err)
		*run->err = err;
	return rc;
}

static int by_service(const void *a, const void *b)
{
	const struct span_series *x = a, *y = b;
	int order = strcmp(x->service, y->service);

	return order ? order : (int)x->type - (int)y->type;
}

/* Everything of the tenant that has data in the hour. */
static int check_stored(struct run *run, const struct subjects *all,
			const struct continuous_source *source)
{
	struct span_query query = { .tenant = source->setting.tenant,
				    .type = -1,
				    .status = -1,
				    .own = true,
				    .from_ns = run->at_ns - WATCH_HOUR_NS - run->s->options.continuous_span_ns,
				    .to_ns = run->at_ns };
	struct span_list list;
	int first = 0, rc = spans_collect(run->s, &query, &list, run->err);

	if (rc < 0)
		return rc;
	if (list.series_count)
		qsort(list.series, list.series_count, sizeof(*list.series), by_service);
	for (size_t i = 0, seen = 0; i < list.series_count && seen < SERVICES_MAX; i++) {
		const struct span_series *series = &list.series[i];

		if (!(source->setting.types >> series->type & 1) || has_own(all, source, series->service))
			continue;
		seen++;
		rc = check_one(run, source, series->service, series->type);
		first = first ? first : rc;
	}
	span_list_deinit(&list);
	return first;
}

static int check_source(struct run *run, const struct subjects *all,
			const struct continuous_source *source)
{
	int first = 0, rc;

	if (source->selector.kind != SELECTOR_SERVICE)
		return check_stored(run, all, source);
	for (int type = 0; type < PROFILE_TYPE_MAX; type++) {
		if (!(source->setting.types >> type & 1))
			continue;
		rc = check_one(run, source, source->setting.service, (enum profile_type)type);
		first = first ? first : rc;
	}
	return first;
}

/* One failure does not keep the others from being checked; the first is returned. */
static int check_all(struct run *run, const char *tenant, size_t *ret_watches)
{
	struct subjects all = { 0 };
	int first = copy_sources(run->s, tenant, &all);

	(void)pthread_mutex_lock(&run->s->watch->lock);
	for (size_t i = 0; i < all.count; i++) {
		int rc = check_source(run, &all, &all.sources[i]);

		first = first ? first : rc;
	}
	(void)pthread_mutex_unlock(&run->s->watch->lock);
	*ret_watches = all.count;
	free(all.sources);
	return first;
}

int sessions_watch_check(struct sessions *s, const char *tenant, const char *service,
			 uint64_t at_ns, uint32_t *ret_checked, struct err *err)
{
	uint64_t now_ns = clock_realtime_ns();
	struct run run = { .s = s, .service = service, .err = err };
	size_t watches = 0;
	int rc;

	if (at_ns > now_ns)
		return err_set(err, EINVAL, "InvalidParam", "at", "lies in the future");
	run.at_ns = at_ns ? at_ns : now_ns;
	run.at_ns -= run.at_ns % CONTINUOUS_MINUTE_NS;
	if (run.at_ns < WATCH_LEARN_NS)
		return err_set(err, EINVAL, "InvalidParam", "at", "lies before anything was recorded");
	rc = check_all(&run, tenant, &watches);
	sessions_lock(s);
	(void)pthread_cond_broadcast(&s->watch->hooks_due); /* there may be something to tell */
	sessions_unlock(s);
	if (rc < 0)
		return rc;
	if (!watches)
		return err_set(err, ENOENT, "UnknownService", "service",
			       "no continuous setting has a watch");
	*ret_checked = run.checked;
	return 0;
}

/* ---- webhooks -------------------------------------------------------------------------------- */

struct retry {
	char id[SESSION_ID_SIZE];
	unsigned attempts;
	uint64_t at_ns; /* monotonic */
	bool listed;	/* in the look under way: it is still to be told */
};

struct delivery {
	struct sessions *s;
	struct retry *retries; /* RETRIES_MAX */
	size_t count;
	uint64_t next_ns; /* monotonic: when to look again */
};

static struct retry *find_retry(struct delivery *d, const char *id)
{
	for (size_t i = 0; i < d->count; i++)
		if (strcmp(d->retries[i].id, id) == 0)
			return &d->retries[i];
	return NULL;
}

static void try_later(struct delivery *d, const struct finding_info *info, const struct err *why)
{
	struct retry *retry = find_retry(d, info->id);
	uint64_t wait_ns = RETRY_FIRST_NS;

	/* Without room it is tried with every look. */
	if (!retry && d->count < RETRIES_MAX) {
		retry = &d->retries[d->count++];
		*retry = (struct retry){ 0 };
		memcpy(retry->id, info->id, sizeof(retry->id));
	}
	if (!retry)
		return;
	for (unsigned i = 0; i < retry->attempts && wait_ns < RETRY_MOST_NS; i++)
		wait_ns *= 2;
	if (!retry->attempts++)
		log_warn("watch: the webhook of %s is tried again: %s", info->id, why->text);
	retry->at_ns = clock_monotonic_ns() + wait_ns;
}

struct jobs {
	struct finding_info infos[JOBS_MAX];
	struct finding_delivery deliveries[JOBS_MAX];
	bool retried[JOBS_MAX]; /* it failed before */
	size_t count;
	struct delivery *delivery;
};

/* Copies: nothing of the store is held while somebody else's server is waited for. */
static int note_job(void *ctx, const struct finding_info *info,
		    const struct finding_delivery *delivery)
{
	struct jobs *jobs = ctx;
	struct retry *retry = find_retry(jobs->delivery, info->id);
	struct finding_info *copy = &jobs->infos[jobs->count];
	unsigned of_tenant = 0;

	if (retry)
		retry->listed = true;
	if (jobs->count >= JOBS_MAX || (retry && clock_monotonic_ns() < retry->at_ns))
		return 0;
	for (size_t i = 0; i < jobs->count; i++)
		of_tenant += strcmp(jobs->infos[i].tenant, info->tenant) == 0;
	if (of_tenant >= JOBS_TENANT_MAX)
		return 0;
	*copy = *info;
	copy->comparison = strdup(info->comparison);
	if (!copy->comparison)
		return -ENOMEM;
	jobs->retried[jobs->count] = retry != NULL;
	jobs->deliveries[jobs->count++] = *delivery;
	return 0;
}

/* It may have been closed meanwhile: the next call reports that. */
static void note_delivered(struct sessions *s, const struct finding_info *info)
{
	struct finding_delivery delivery;
	struct finding_info now;
	struct err err = { 0 };
	int rc;

	(void)pthread_mutex_lock(&s->watch->lock);
	rc = finding_get(s, info->tenant, info->id, &now, &delivery, &err);
	if (rc == 0) {
		(void)snprintf(delivery.delivered, sizeof(delivery.delivered), "%s",
			       info->closed_at_ns ? "closed" : "open");
		rc = finding_put(s, &now, &delivery, &err);
		finding_info_deinit(&now);
	}
	(void)pthread_mutex_unlock(&s->watch->lock);
	if (rc < 0 && rc != -ENOENT)
		log_warn("watch: that the webhook of %s was told cannot be stored, so it may be told "
			 "again: %s",
			 info->id, err.text);
}

/* False if the receiver did not take it. */
static bool deliver_one(struct delivery *d, const struct finding_info *info,
			const struct finding_delivery *delivery)
{
	struct retry *retry = find_retry(d, info->id);
	cleanup_free char *body = alert_message(info, delivery->format);
	cleanup_free char *address = alert_address(delivery->webhook, delivery->format);
	struct err err = { 0 };

	if (!body || !address)
		return true;
	if (d->s->options.post(address, alert_content_type(delivery->format), body, &err) < 0) {
		try_later(d, info, &err);
		return false;
	}
	if (retry)
		*retry = d->retries[--d->count];
	note_delivered(d->s, info);
	return true;
}

/* Those that were never tried go first, so that a receiver that does not answer holds up nobody's
 * news but its own; what else is for it waits with what failed. */
static void deliver_jobs(struct delivery *d, const struct jobs *jobs)
{
	bool failed[JOBS_MAX] = { false };
	const struct err same = { .text = "its receiver did not take another one" };

	for (int tried = 0; tried <= 1; tried++)
		for (size_t i = 0; i < jobs->count && !is_stopping(d->s); i++) {
			const struct finding_delivery *job = &jobs->deliveries[i];
			bool skip = false;

			if (jobs->retried[i] != tried)
				continue;
			for (size_t k = 0; k < jobs->count; k++)
				skip |= failed[k] && !strcmp(jobs->deliveries[k].webhook, job->webhook);
			if (skip)
				try_later(d, &jobs->infos[i], &same);
			else
				failed[i] = !deliver_one(d, &jobs->infos[i], job);
		}
}

/* Those whose day is over, or that are gone, are not tried any more. */
static void forget_unlisted(struct delivery *d)
{
	size_t kept = 0;

	for (size_t i = 0; i < d->count; i++)
		if (d->retries[i].listed)
			d->retries[kept++] = d->retries[i];
	d->count = kept;
}

static void deliver(struct delivery *d)
{
	cleanup_free struct jobs *jobs = calloc(1, sizeof(*jobs));
	uint64_t now_ns = clock_realtime_ns();
	struct err err = { 0 };
	int rc;

	d->next_ns = clock_monotonic_ns() + LOOK_NS;
	if (!jobs || !d->s->options.post || now_ns < DELIVER_NS)
		return;
	jobs->delivery = d;
	for (size_t i = 0; i < d->count; i++)
		d->retries[i].listed = false;
	rc = findings_undelivered(d->s, now_ns - DELIVER_NS, note_job, jobs, &err);
	if (rc == 0)
		forget_unlisted(d);
	deliver_jobs(d, jobs);
	for (size_t i = 0; i < jobs->count; i++)
		finding_info_deinit(&jobs->infos[i]);
	/* Items that cannot be read now, or were too many, come with the next look. */
	if (rc == 0 && !jobs->count)
		d->next_ns = clock_monotonic_ns() + IDLE_LOOK_NS;
	for (size_t i = 0; rc == 0 && i < d->count; i++)
		if (d->retries[i].at_ns < d->next_ns)
			d->next_ns = d->retries[i].at_ns;
}

/* ---- the threads ----------------------------------------------------------------------------- */

/* Waits for @wake, at most until @until_ns. Lock held. */
static void wait_until(struct sessions *s, pthread_cond_t *wake, uint64_t until_ns)
{
	const struct timespec until = { .tv_sec = (time_t)(until_ns / NS_PER_S),
					.tv_nsec = (long)(until_ns % NS_PER_S) };

	if (!s->stopping)
		(void)pthread_cond_timedwait(wake, &s->lock, &until);
}

static uint64_t hour_of(uint64_t now_ns)
{
	return (now_ns - WATCH_GRACE_NS) / WATCH_HOUR_NS * WATCH_HOUR_NS;
}

static void check_hour(struct sessions *s, uint64_t *hour_ns)
{
	struct run run = { .s = s, .at_ns = hour_of(clock_realtime_ns()) };
	size_t watches;

	/* The clock was set back by more than what it may be corrected by. */
	if (run.at_ns + 2 * WATCH_HOUR_NS <= *hour_ns)
		*hour_ns = run.at_ns;
	/* A store that cannot be reached is asked again: what was checked is not checked twice. */
	if (run.at_ns <= *hour_ns ||
	    (check_all(&run, NULL, &watches) == -EIO && store_is_shared(s->store)))
		return;
	*hour_ns = run.at_ns;
	sessions_lock(s);
	(void)pthread_cond_broadcast(&s->watch->hooks_due); /* there may be something to tell */
	sessions_unlock(s);
}

static void *watch_main(void *ctx)
{
	struct sessions *s = ctx;
	uint64_t hour_ns = hour_of(clock_realtime_ns()), next_ns, look_ns;

	while (!is_stopping(s)) {
		deployments_write(s);
		check_hour(s, &hour_ns);
		next_ns = standing_look(s);
		look_ns = clock_monotonic_ns() + LOOK_NS;
		sessions_lock(s);
		if (!s->continuous->changed)
			wait_until(s, &s->continuous->settings_changed,
				   next_ns < look_ns ? next_ns : look_ns);
		sessions_unlock(s);
	}
	deployments_write(s);
	return NULL;
}

/* Somebody else's server may take long to answer: nothing else waits for it. */
static void *hook_main(void *ctx)
{
	struct sessions *s = ctx;
	struct retry *retries = calloc(RETRIES_MAX, sizeof(*retries));
	struct delivery delivery = { .s = s, .retries = retries };

	while (retries && !is_stopping(s)) {
		deliver(&delivery);
		sessions_lock(s);
		wait_until(s, &s->watch->hooks_due, delivery.next_ns);
		sessions_unlock(s);
	}
	free(retries);
	return NULL;
}

int watch_thread_start(struct sessions *s)
{
	struct watch *watch = calloc(1, sizeof(*watch));
	pthread_condattr_t attr;
	int rc;

	if (!watch)
		return -ENOMEM;
	(void)pthread_mutex_init(&watch->lock, NULL);
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&watch->hooks_due, &attr);
	(void)pthread_condattr_destroy(&attr);
	s->watch = watch;
	rc = pthread_create(&watch->thread, NULL, watch_main, s);
	watch->has_thread = rc == 0;
	if (rc == 0)
		rc = pthread_create(&watch->hook_thread, NULL, hook_main, s);
	watch->has_hook_thread = rc == 0;
	return -rc;
}

void watch_thread_stop(struct sessions *s)
{
	struct watch *watch = s->watch;

	if (!watch)
		return;
	sessions_lock(s);
	(void)pthread_cond_broadcast(&watch->hooks_due);
	(void)pthread_cond_broadcast(&s->continuous->settings_changed);
	sessions_unlock(s);
	if (watch->has_thread)
		(void)pthread_join(watch->thread, NULL);
	if (watch->has_hook_thread)
		(void)pthread_join(watch->hook_thread, NULL);
	(void)pthread_cond_destroy(&watch->hooks_due);
	(void)pthread_mutex_destroy(&watch->lock);
	free(watch);
	s->watch = NULL;
}
