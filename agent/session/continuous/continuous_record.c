// SPDX-License-Identifier: Apache-2.0
/* From samples to the windows of day files. A day (of one retention) has a dictionary of its own, a
 * recorder without events; its windows are sums over (stack pair, attribute) of a minute. Every
 * flush writes what was added as a part; when the minute is over, the whole of it replaces the
 * parts, unless this server came into the minute when it had begun. Beside it each sample goes into
 * the detail (detail.h). */
#include <errno.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/recording/roll_up.h"
#include "agent/recording/wait_types.h"
#include "agent/session/continuous/continuous.h"
#include "agent/session/core/demand.h"
#include "agent/session/core/session_take.h"

#define DAY_PAIRS_MAX	2000000u
#define WINDOW_SUMS_MAX 1000000u	/* of a minute; more stacks go to the overflow bucket */
#define DAYS_BACK	2
#define SPLIT_MAX_NS                                                                               \
	(16 * CONTINUOUS_MINUTE_NS) /* of a wait; what is longer is in the first of these minutes  \
				     */
#define LONG_WAIT_NS	(10 * NS_PER_S)	/* these are few: at most one in that time of a thread */
#define ROLL_AGAIN_NS	(60 * NS_PER_S)

struct sum {
	struct chunk_sum all;
	int64_t stored_value;
	uint64_t stored_value2;
};
VEC_DEFINE(sums, struct sum);
VEC_DEFINE(chunk_sums, struct chunk_sum);
VEC_DEFINE(single_events, struct chunk_event);

struct window {
	struct window *next;
	uint64_t minute_ns; /* realtime */
	enum profile_type type;
	char service[SERVICE_NAME_SIZE];
	char owners[CONTINUOUS_OWNERS];
	struct u64map at; /* pair << 32 | attr -> index of sums */
	struct sums_vec sums;
	struct single_events_vec events; /* since the last flush, in realtime */
	uint64_t samples, lost, stored_samples, stored_lost;
	int64_t value, stored_value;
	uint64_t begin_ns;  /* realtime: looked since then, or since the first sample */
	uint64_t looked_ns; /* by settings, whether the service ran or not */
	uint32_t stored_ms; /* of the time looked */
	bool born_late; /* the minute had begun when this server came */
};

struct day_recorder {
	struct day_recorder *next;
	struct store_day day;
	struct recorder *recorder;
	struct window *windows;
	size_t window_count;
	uint64_t born_ns;	  /* realtime */
	uint64_t stored_position; /* of the feed */
	uint64_t detail_position; /* likewise of single samples, which are written after */
	size_t event_count;	  /* of all windows */
	uint64_t rolled_ns;	  /* realtime: hours that begin before it are rolled up */
	uint64_t roll_again_ns;	  /* monotonic: not before this, as the store could not be read */
	uint64_t folded_ns;	  /* realtime: begin of the latest minute that was stored whole */
	bool dirty;		  /* has what is not stored */
};

/* ---- days ---------------------------------------------------------------------------------------
 */

static void free_window(struct window *window)
{
	u64map_deinit(&window->at);
	sums_vec_deinit(&window->sums);
	single_events_vec_deinit(&window->events);
	free(window);
}

static void free_day(struct day_recorder *day)
{
	while (day->windows) {
		struct window *next = day->windows->next;

		free_window(day->windows);
		day->windows = next;
	}
	recorder_destroy(day->recorder);
	free(day);
}

static void remove_day(struct sessions *s, struct day_recorder *day)
{
	struct day_recorder **at = &s->continuous->days;

	while (*at != day)
		at = &(*at)->next;
	*at = day->next;
	free_day(day);
}

void continuous_destroy(struct sessions *s)
{
	if (!s->continuous)
		return;
	while (s->continuous->days)
		remove_day(s, s->continuous->days);
	detail_destroy(s);
	deployments_deinit(s);
	day_names_deinit(s);
	free(s->continuous->sources);
	free(s->continuous->plans);
	free(s->continuous->begun);
	(void)pthread_cond_destroy(&s->continuous->settings_changed);
	(void)pthread_mutex_destroy(&s->continuous->settings_lock);
	free(s->continuous);
	s->continuous = NULL;
}

/* A shared store that cannot be read now is asked again, but not at every flush: it may take long
 * to say so. */
static bool is_away(const struct sessions *s, int rc)
{
	return rc == -EIO && store_is_shared(s->store);
}

/* Days of a shared store that this host has written to. Nobody else does, so that one that is not
 * among them is new: the store, which may be slow or away, is not asked. Feed thread, or before it
 * runs. */
static int note_begun(struct sessions *s, const struct store_day *day)
{
	struct continuous *c = s->continuous;
	void *data = c->begun;
	int rc = vec_grow(&data, &c->begun_capacity, c->begun_count + 1, sizeof(*day), 0);

	c->begun = data;
	if (rc == 0)
		c->begun[c->begun_count++] = *day;
	return rc;
}

static bool is_begun(const struct sessions *s, const struct store_day *day)
{
	for (size_t i = 0; i < s->continuous->begun_count; i++)
		if (s->continuous->begun[i].day == day->day &&
		    s->continuous->begun[i].retention_days == day->retention_days)
			return true;
	return !store_is_shared(s->store);
}

static int read_dictionary(struct sessions *s, const struct store_day *which,
			   struct recorder *recorder, struct err *err)
{
	int rc;

	if (!is_begun(s, which)) {
		rc = note_begun(s, which);
		return rc < 0 ? err_set(err, -rc, NULL, NULL, "no memory to record continuously") : -ENOENT;
	}
	rc = store_history_dictionary(s->store, which, recorder_reload_chunk, recorder, NULL, err);
	return rc == 0 ? recorder_reload_done(recorder) : rc;
}

/* Not yet in the list. Reads the dictionary of a file that exists; no lock is needed. */
static int make_day(struct sessions *s, const struct store_day *which, struct day_recorder **ret,
		    struct err *err)
{
	struct day_recorder *day = calloc(1, sizeof(*day));
	uint64_t identity = 0, position = 0;
	int rc;

	if (!day || !(day->recorder = recorder_create_for_sums(DAY_PAIRS_MAX))) {
		free(day);
		return err_set(err, ENOMEM, NULL, NULL, "no memory to record continuously");
	}
	day->day = *which;
	day->born_ns = clock_realtime_ns();
	day->rolled_ns = which->day * CONTINUOUS_DAY_NS;
	rc = read_dictionary(s, which, day->recorder, err);
	if (rc == 0 && store_history_position(s->store, which, &identity, &position, NULL) == 0 &&
	    s->feed.ring && identity == ring_identity(s->feed.ring))
		day->stored_position = day->detail_position = position;
	/* Killed after the windows were written and before their samples were. */
	if (day->stored_position && detail_position(s, which, &identity, &position) == 0 &&
	    identity == ring_identity(s->feed.ring) && position < day->stored_position)
		day->detail_position = position;
	if (rc < 0 && rc != -ENOENT) {
		free_day(day);
		return rc;
	}
	*ret = day;
	return 0;
}

static struct day_recorder *known_day(const struct sessions *s, const struct store_day *which)
{
	struct day_recorder *day = s->continuous->days;

	while (day &&
	       (day->day.day != which->day || day->day.retention_days != which->retention_days))
		day = day->next;
	return day;
}

/* NULL: it cannot be recorded now (counted). Drops the lock when the file is new to this server. */
static struct day_recorder *find_day(struct sessions *s, uint64_t time_ns, uint32_t retention_days)
{
	struct store_day which = { .day = (uint32_t)(time_ns / CONTINUOUS_DAY_NS),
				   .retention_days = retention_days };
	struct day_recorder *day = known_day(s, &which);
	struct err err = { 0 };
	int rc;

	if (day || clock_monotonic_ns() < s->continuous->retry_at_ns)
		return day;
	sessions_unlock(s);
	rc = make_day(s, &which, &day, &err);
	sessions_lock(s);
	if (rc < 0) {
		sessions_note_store(s, rc, &err);
		s->continuous->retry_at_ns = clock_monotonic_ns() + s->options.flush_interval_ns;
		return NULL;
	}
	/* Records before this position were not for this file, or are lost. */
	day->stored_position = day->detail_position = s->feed.record_at;
	day->next = s->continuous->days;
	s->continuous->days = day;
	return day;
}

/* ---- sums ------------------------------------------------------------------------------------ */

/* @time_ns: of a sample in it. */
static struct window *find_window(struct sessions *s, struct day_recorder *day, const char *service,
				  enum profile_type type, const char *owners, uint64_t time_ns)
{
	uint64_t minute_ns = time_ns - time_ns % CONTINUOUS_MINUTE_NS;
	struct window *window;

	for (window = day->windows; window; window = window->next)
		if (window->minute_ns == minute_ns && window->type == type &&
		    strcmp(window->service, service) == 0 &&
		    strcmp(window->owners, owners) == 0)
			return window;
	if (day->window_count >= CONTINUOUS_WINDOWS_MAX || !(window = calloc(1, sizeof(*window))))
		return NULL;
	window->minute_ns = minute_ns;
	window->type = type;
	window->begin_ns = s->continuous->since_ns < time_ns ? s->continuous->since_ns : time_ns;
	if (window->begin_ns < minute_ns)
		window->begin_ns = minute_ns;
	/* Also when the clock was set back: what was stored of that minute stays, and how long was
	 * looked then. */
	window->born_late = minute_ns < day->born_ns || minute_ns <= day->folded_ns;
	if (minute_ns <= day->folded_ns)
		window->begin_ns = minute_ns + CONTINUOUS_MINUTE_NS;
	(void)snprintf(window->service, sizeof(window->service), "%s", service);
	(void)snprintf(window->owners, sizeof(window->owners), "%s", owners);
	window->next = day->windows;
	day->windows = window;
	day->window_count++;
	return window;
}

static uint64_t sum_key(uint32_t pair, uint32_t attr)
{
	return (uint64_t)pair << 32 | attr;
}

/* May put it into the overflow bucket. */
static int add_sum(struct window *window, struct chunk_event *event)
{
	uint64_t key, at;
	int rc;

	if (window->sums.count >= WINDOW_SUMS_MAX)
		event->pair = CHUNK_PAIR_OVERFLOW;
	key = sum_key(event->pair, event->attr);
	if (!u64map_get(&window->at, key, &at)) {
		at = window->sums.count;
		rc = u64map_put(&window->at, key, at);
		if (rc == 0)
			rc = sums_vec_push(&window->sums,
					   (struct sum){ .all = { .pair = event->pair, .attr = event->attr } });
		if (rc < 0)
			return rc;
	}
	window->sums.data[at].all.value += event->value;
	window->sums.data[at].all.value2 += event->value2;
	window->samples++;
	window->value += event->value;
	return 0;
}

/* One that is left out costs its minute the time order, nothing else. */
static void keep_event(const struct sessions *s, struct day_recorder *day, struct window *window,
		       const struct chunk_event *event)
{
	if (!s->options.no_detail && day->event_count < DETAIL_PENDING_MAX &&
	    single_events_vec_push(&window->events, *event) == 0)
		day->event_count++;
}

struct taken { /* what a sample is for a type of continuous profile */
	struct live_process *process;
	const struct continuous_plan *plan;
	enum profile_type type;
	struct feed_sample reduced;
};

static void take_event(struct sessions *s, const struct taken *t, struct chunk_event event)
{
	struct day_recorder *day = find_day(s, event.time_ns, t->plan->retention_days);
	struct window *window;
	const char *owners;
	int rc;

	/* In the files already: read again because another one ended earlier. */
	if (!day || (s->feed.cursor <= day->stored_position && s->feed.cursor <= day->detail_position))
		return;
	owners = t->plan->owners[profile_type_info(t->type)->minute_slot];
	window = find_window(s, day, t->process->identity.name, t->type, owners, event.time_ns);
	rc = window ? recorder_intern(day->recorder, &t->reduced, t->process, &event.pair, &event.attr)
		    : -ENOSPC;
	if (rc == 0 && s->feed.cursor > day->stored_position)
		rc = add_sum(window, &event);
	if (rc == 0 && s->feed.cursor > day->detail_position)
		keep_event(s, day, window, &event);
	day->dirty = true;
	if (rc < 0)
		s->continuous->refused++;
}

/* A wait is recorded at its end, or where it is cut (continuous_sweep()); each minute that it went
 * through has its part. It counts as an event in the last of them. */
static void take_wait(struct sessions *s, const struct taken *t, struct chunk_event event)
{
	uint64_t end_ns = event.time_ns, value = (uint64_t)event.value;
	uint64_t begin_ns = value < end_ns ? end_ns - value : 0;
	uint64_t split_ns = end_ns > SPLIT_MAX_NS ? end_ns - SPLIT_MAX_NS : 0;

	while (begin_ns < end_ns) {
		uint64_t minute_ns = (end_ns - 1) / CONTINUOUS_MINUTE_NS * CONTINUOUS_MINUTE_NS;
		uint64_t part_ns = minute_ns > begin_ns && minute_ns > split_ns ? minute_ns : begin_ns;

		event.time_ns = end_ns - 1; /* in its minute, also where it ends with that */
		event.value = (int64_t)(end_ns - part_ns);
		take_event(s, t, event);
		event.value2 = 0;
		end_ns = part_ns;
	}
}

static void take_type(struct sessions *s, struct live_process *process,
		      const struct continuous_plan *plan, enum profile_type type,
		      const struct feed_sample *sample)
{
	const struct taken taken = { process, plan, type, wait_reduce(type, sample) };
	struct chunk_event event = {
		.time_ns = clock_to_realtime_ns(&s->feed.clock, sample->time_ns),
		.value = (int64_t)sample->value,
		.value2 = sample->type == PROF_SAMPLE_CPU ? 1024 : sample->value2,
	};

	const unsigned slot = profile_type_info(type)->minute_slot;
	const bool is_wait = sample->type == PROF_SAMPLE_OFFCPU;

	/* Those that were cut at the end of a minute come all at once, and are no sign that there
	 * are too many. */
	if ((!is_wait || event.value < (int64_t)LONG_WAIT_NS) &&
	    !session_thin(plan->rate_hz[slot], s->continuous->seed, &s->continuous->thinning[slot],
			  sample, &event.value, &event.value2))
		return;
	if (is_wait)
		take_wait(s, &taken, event);
	else
		take_event(s, &taken, event);
}

void continuous_take(struct sessions *s, struct live_process *process,
		     const struct feed_sample *sample)
{
	/* A copy: the lock may be dropped, and settings change. */
	struct continuous_plan plan;

	if (!s->continuous->source_count || prof_sample_is_reading(sample->type) ||
	    sample->detail == PROF_DETAIL_KERNEL_LOCK || /* part of other times */
	    sample->value > INT64_MAX)
		return;
	plan = *continuous_plan_of(s, process);
	deployments_look(s, process, &plan, sample);
	for (int type = 0; type < PROFILE_TYPE_MAX; type++) {
		const struct profile_type_info *info = profile_type_info((enum profile_type)type);

		if (info->kept == PROFILE_KEPT_MINUTES && info->samples >> sample->type & 1 &&
		    plan.rate_hz[info->minute_slot])
			take_type(s, process, &plan, (enum profile_type)type, sample);
	}
}

void continuous_sweep(struct sessions *s)
{
	const uint32_t kept = profile_types_kept(PROFILE_KEPT_MINUTES);
	uint64_t minute = clock_realtime_ns() / CONTINUOUS_MINUTE_NS;

	if (minute == s->continuous->swept_minute || s->sampling_off_ns)
		return;
	s->continuous->swept_minute = minute;
	for (size_t i = 0; i < s->continuous->source_count; i++) {
		const struct continuous_setting *setting = &s->continuous->sources[i].setting;

		if (setting->enabled && continuous_wants_of(setting->types & kept) & PROF_WANT_OFFCPU)
			s->peers.sweep_due = true;
	}
}

/* ---- looking -----------------------------------------------------------------------------------
 */

static void look_at_minute(struct sessions *s, const struct continuous_setting *setting,
			   const char *service, enum profile_type type, uint64_t from_ns,
			   uint64_t to_ns)
{
	struct day_recorder *day = find_day(s, from_ns, setting->retention_days);
	char owners[CONTINUOUS_OWNERS];
	struct window *window;

	(void)snprintf(owners, sizeof(owners), ",%s:%u,", setting->tenant, setting->rate_hz);
	window = day ? find_window(s, day, service, type, owners, from_ns) : NULL;
	if (window)
		window->looked_ns += to_ns - from_ns;
}

/* May drop the lock. */
static void look_for(struct sessions *s, const struct continuous_source *source, uint64_t from_ns,
		     uint64_t to_ns)
{
	char services[CONTINUOUS_LOOKED_MAX][SERVICE_NAME_SIZE];
	size_t count = continuous_services(s, source, services);
	const uint32_t types = source->setting.types & profile_types_kept(PROFILE_KEPT_MINUTES);

	for (uint64_t at_ns = from_ns, end_ns; at_ns < to_ns; at_ns = end_ns) {
		end_ns = at_ns - at_ns % CONTINUOUS_MINUTE_NS + CONTINUOUS_MINUTE_NS;
		end_ns = end_ns < to_ns ? end_ns : to_ns;
		for (int type = 0; type < PROFILE_TYPE_MAX; type++)
			for (size_t i = 0; i < count && (types >> type & 1); i++)
				look_at_minute(s, &source->setting, services[i], (enum profile_type)type,
					       at_ns, end_ns);
	}
}

/* Keeps which services were looked at, too, so that a minute in which a service used no CPU is zero
 * and not a gap: a minute bucket without samples for each service (continuous_services()). May drop
 * the lock. */
static void look(struct sessions *s, uint64_t now_ns)
{
	uint64_t from_ns = continuous_looked_from(s->continuous->looked_ns, now_ns,
						  continuous_flush_interval(s));

	if (from_ns < s->continuous->since_ns)
		from_ns = s->continuous->since_ns;
	s->continuous->looked_ns = s->peers.has_status && !s->sampling_off_ns ? now_ns : 0;
	for (size_t i = 0; s->continuous->looked_ns && i < s->continuous->source_count; i++) {
		const struct continuous_source source = s->continuous->sources[i];

		look_for(s, &source, from_ns, now_ns);
	}
}

/* ---- flushing -------------------------------------------------------------------------------- */

struct flush {
	struct store_window *windows;
	struct buf *data;
	size_t count;
};

static void flush_deinit(struct flush *flush)
{
	for (size_t i = 0; i < flush->count; i++)
		buf_deinit(&flush->data[i]);
	free(flush->windows);
	free(flush->data);
}

static int encode_sums(struct window *window, bool whole, struct buf *out)
{
	struct chunk_sums_vec sums = { 0 };
	int rc = chunk_sums_vec_reserve(&sums, window->sums.count + 1);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < window->sums.count; i++) {
		struct sum *sum = &window->sums.data[i];
		struct chunk_sum part = sum->all;

		if (!whole) {
			part.value -= sum->stored_value;
			part.value2 -= sum->stored_value2;
		}
		sum->stored_value = sum->all.value;
		sum->stored_value2 = sum->all.value2;
		sums.data[sums.count++] = part;
	}
	chunk_encode_window(out, sums.data, sums.count);
	chunk_sums_vec_deinit(&sums);
	return out->error;
}

static bool is_over(const struct window *window, uint64_t now_ns)
{
	return now_ns >= window->minute_ns + CONTINUOUS_MINUTE_NS + CONTINUOUS_FOLD_NS;
}

static uint32_t profiled_ms(const struct window *window, uint64_t now_ns)
{
	uint64_t end_ns = window->minute_ns + CONTINUOUS_MINUTE_NS, ns = 0;

	end_ns = now_ns < end_ns ? now_ns : end_ns;
	if (window->samples && end_ns > window->begin_ns)
		ns = end_ns - window->begin_ns;
	return (uint32_t)((ns > window->looked_ns ? ns : window->looked_ns) / NS_PER_MS);
}

/* The part, or the whole when the minute is over and all of it is here. */
static int add_to_flush(struct window *window, uint64_t now_ns, struct flush *flush)
{
	bool over = is_over(window, now_ns), whole = over && !window->born_late;
	struct store_window *out = &flush->windows[flush->count];
	uint32_t looked_ms = profiled_ms(window, now_ns);
	int rc;

	if (!whole && window->samples == window->stored_samples &&
	    !((over || !window->samples) && looked_ms > window->stored_ms))
		return 0;
	rc = encode_sums(window, whole, &flush->data[flush->count]);
	*out = (struct store_window){
		.service = window->service,
		.type = profile_type_info(window->type)->word,
		.owners = window->owners,
		.from_ns = window->minute_ns,
		.whole = whole,
		.profiled_ms = looked_ms - (whole ? 0 : window->stored_ms),
		.samples = window->samples - (whole ? 0 : window->stored_samples),
		.lost = window->lost - (whole ? 0 : window->stored_lost),
		.value = window->value - (whole ? 0 : window->stored_value),
		.data = flush->data[flush->count].data,
		.len = flush->data[flush->count].len,
	};
	flush->count++;
	window->stored_samples = window->samples;
	window->stored_lost = window->lost;
	window->stored_value = window->value;
	window->stored_ms = looked_ms;
	return rc;
}

static int make_flush(struct day_recorder *day, uint64_t now_ns, struct flush *flush)
{
	int rc = 0;

	flush->windows = calloc(day->window_count + 1, sizeof(*flush->windows));
	flush->data = calloc(day->window_count + 1, sizeof(*flush->data));
	if (!flush->windows || !flush->data)
		return -ENOMEM;
	for (struct window *window = day->windows; window && rc == 0; window = window->next)
		rc = add_to_flush(window, now_ns, flush);
	return rc;
}

static void forget_old_windows(struct day_recorder *day, uint64_t now_ns)
{
	struct window **at = &day->windows;

	while (*at) {
		struct window *window = *at;

		if (!is_over(window, now_ns)) {
			at = &window->next;
			continue;
		}
		if (window->minute_ns > day->folded_ns)
			day->folded_ns = window->minute_ns;
		*at = window->next;
		day->window_count--;
		free_window(window);
	}
}

#define DICTIONARY_MAX 320

static void collect_events(struct day_recorder *day, struct detail_batch *batch)
{
	for (struct window *window = day->windows; window; window = window->next) {
		detail_batch_add(batch,
				 detail_series(window->service, profile_type_info(window->type)->word,
					       window->owners),
				 window->minute_ns, window->events.data, window->events.count);
		single_events_vec_deinit(&window->events);
	}
	day->event_count = 0;
}

/* Windows, then their samples: those speak of the dictionary that comes with the windows. */
static int write_chunks(struct sessions *s, struct day_recorder *day,
			const struct store_chunk *chunks, size_t count, const struct flush *flush,
			uint64_t position, struct err *err)
{
	struct detail_batch batch = { 0 };
	int rc;

	collect_events(day, &batch);
	detail_lock(s);
	rc = store_history_append(s->store, &day->day, chunks, count, flush->windows, flush->count,
				  ring_identity(s->feed.ring), position, err);
	if (rc == 0)
		detail_append(s, &day->day, &batch, position);
	detail_unlock(s);
	detail_batch_deinit(&batch);
	return rc;
}

/* Drops the lock while it writes: days are only changed by this thread. */
static int write_flush(struct sessions *s, struct day_recorder *day, const struct flush *flush,
		       struct err *err)
{
	struct store_chunk chunks[DICTIONARY_MAX];
	const struct recorder_group *group, *last = NULL;
	uint64_t position = s->feed.cursor;
	size_t count = 0;
	int rc;

	for (group = recorder_groups(day->recorder);
	     group && count + RECORDER_GROUP_CHUNKS <= DICTIONARY_MAX; group = group->next) {
		for (unsigned i = 0; i < group->chunk_count; i++)
			chunks[count++] =
				(struct store_chunk){ group->kinds[i], group->data[i].data,
						      group->data[i].len };
		last = group;
	}
	if (!count && !flush->count && !day->event_count)
		return 0;
	sessions_unlock(s);
	rc = write_chunks(s, day, chunks, count, flush, position, err);
	sessions_lock(s);
	sessions_note_store(s, rc, err);
	if (rc < 0)
		return rc;
	atomic_fetch_add(&s->continuous->stored, 1);
	if (last)
		recorder_stored(day->recorder, last);
	day->stored_position = day->detail_position = position;
	day->dirty = false;
	return 0;
}

/* Each window bears its part of what was lost on the host since the last flush. */
static void share_losses(struct sessions *s, struct day_recorder *day)
{
	uint64_t samples = s->host_samples[PROF_SAMPLE_CPU] - s->continuous->host_samples;
	uint64_t lost = s->host_lost - s->continuous->host_lost;

	if (!samples || !lost)
		return;
	for (struct window *window = day->windows; window; window = window->next)
		window->lost +=
			(uint64_t)((double)lost *
					   (double)(window->samples - window->stored_samples) /
					   (double)samples +
				   0.999);
}

/* Rolls up the hour @hour_ns, or a later one: one question passes over all hours before @last_ns
 * that have nothing to roll up. Sets @hour_ns to where to go on. */
static int roll_next_hour(struct store *store, const struct store_day *day, uint64_t last_ns,
			  uint64_t *hour_ns, struct err *err)
{
	uint64_t next_ns = *hour_ns;
	int rc = next_ns < last_ns ? roll_up_next(store, day, next_ns, &next_ns, err) : 0;
	bool is_due = next_ns < last_ns || *hour_ns == last_ns;

	*hour_ns = is_due ? next_ns + CONTINUOUS_HOUR_NS : last_ns;
	return rc == 0 && is_due ? roll_up_hour(store, day, next_ns, err) : rc;
}

/* Rolls up one hour that is over: at most one a flush, and the lock is dropped. At the end of the
 * day all hours are looked at again, for what came late. */
static void roll_up(struct sessions *s, struct day_recorder *day, uint64_t now_ns)
{
	static struct log_limit limit = { .burst = 2 };
	uint64_t hour_ns = day->rolled_ns, end_ns = (day->day.day + 1) * CONTINUOUS_DAY_NS;
	uint64_t last_ns = now_ns - CONTINUOUS_HOUR_NS - CONTINUOUS_ROLL_NS;
	struct store_day which = day->day;
	struct err err = { 0 };
	int rc;

	/* A standby store keeps minutes, which move to the shared store one by one. */
	if (store_is_standby(s->store))
		return;
	if (clock_monotonic_ns() < day->roll_again_ns || hour_ns >= end_ns ||
	    now_ns < hour_ns + CONTINUOUS_HOUR_NS + CONTINUOUS_ROLL_NS ||
	    recorder_groups(day->recorder) ||
	    (recorder_missing(day->recorder) &&
	     now_ns < hour_ns + CONTINUOUS_HOUR_NS + CONTINUOUS_STACKS_NS))
		return;
	sessions_unlock(s);
	last_ns = last_ns < end_ns ? last_ns : end_ns - CONTINUOUS_HOUR_NS;
	rc = roll_next_hour(s->store, &which, last_ns - last_ns % CONTINUOUS_HOUR_NS, &hour_ns, &err);
	sessions_lock(s);
	recorder_forget_stacks(day->recorder);
	if (is_away(s, rc)) {
		day->roll_again_ns = clock_monotonic_ns() + ROLL_AGAIN_NS;
		return;
	}
	day->rolled_ns = hour_ns;
	if (rc < 0 && rc != -ENOENT && log_allowed(&limit))
		log_warn("an hour of the history is kept as minutes: %s",
			 err.text[0] ? err.text : strerror(-rc));
}

static void close_day(struct sessions *s, struct day_recorder *day)
{
	struct store_day over = day->day;
	uint64_t at_ns = over.day * CONTINUOUS_DAY_NS, end_ns = at_ns + CONTINUOUS_DAY_NS;
	int rc = 0;

	if (clock_monotonic_ns() < day->roll_again_ns)
		return;
	sessions_unlock(s);
	while (!store_is_standby(s->store) && at_ns < end_ns && !is_away(s, rc)) {
		rc = roll_up_next(s->store, &over, at_ns, &at_ns, NULL);
		if (rc < 0 || at_ns >= end_ns)
			break;
		rc = roll_up_hour(s->store, &over, at_ns, NULL);
		at_ns += CONTINUOUS_HOUR_NS;
	}
	if (!is_away(s, rc))
		store_history_seal(s->store, &over);
	sessions_lock(s);
	if (is_away(s, rc))
		day->roll_again_ns = clock_monotonic_ns() + ROLL_AGAIN_NS;
	else
		remove_day(s, day);
}

static int renumber(struct window *window, uint32_t first, const uint32_t *moved)
{
	int rc = 0;

	for (size_t i = 0; i < window->sums.count; i++) {
		const struct chunk_sum *sum = &window->sums.data[i].all;

		if (sum->pair >= first)
			(void)u64map_remove(&window->at, sum_key(sum->pair, sum->attr));
	}
	for (size_t i = 0; i < window->sums.count && rc == 0; i++) {
		struct chunk_sum *sum = &window->sums.data[i].all;

		if (sum->pair < first)
			continue;
		sum->pair = moved[sum->pair - first];
		rc = u64map_put(&window->at, sum_key(sum->pair, sum->attr), i);
	}
	for (size_t i = 0; i < window->events.count; i++)
		if (window->events.data[i].pair >= first)
			window->events.data[i].pair = moved[window->events.data[i].pair - first];
	return rc;
}

/* Before anything of them is stored. */
static int order_pairs(struct sessions *s, struct day_recorder *day)
{
	cleanup_free uint32_t *moved = NULL;
	uint32_t first = 0;
	int rc = recorder_order_pairs(day->recorder, &s->tables, &first, &moved);

	for (struct window *window = day->windows; window && moved && rc == 0; window = window->next)
		rc = renumber(window, first, moved);
	return rc;
}

static void flush_day(struct sessions *s, struct day_recorder *day, struct recorder_wants *wants)
{
	uint64_t now_ns = clock_realtime_ns();
	struct flush flush = { 0 };
	struct err err = { 0 };
	int rc = order_pairs(s, day);

	if (rc == 0)
		rc = recorder_seal(day->recorder, &s->tables, s->feed.cursor, false, wants);
	share_losses(s, day);
	if (rc == 0)
		rc = make_flush(day, now_ns, &flush);
	if (rc == 0)
		rc = write_flush(s, day, &flush, &err);
	flush_deinit(&flush);
	if (rc < 0) {
		static struct log_limit limit = { .burst = 2 };

		/* Data that was not stored is lost: the dictionary in memory is ahead of the
		 * file's. */
		if (log_allowed(&limit))
			log_error("continuous data of the last %llu s is lost: %s",
				  (unsigned long long)(continuous_flush_interval(s) / NS_PER_S),
				  err.text[0] ? err.text : strerror(-rc));
		s->continuous->retry_at_ns = clock_monotonic_ns() + s->options.flush_interval_ns;
		remove_day(s, day);
		return;
	}
	forget_old_windows(day, now_ns);
	if (now_ns / CONTINUOUS_DAY_NS > day->day.day &&
	    now_ns % CONTINUOUS_DAY_NS > CONTINUOUS_ROLL_NS && !day->windows)
		close_day(s, day);
	else
		roll_up(s, day, now_ns);
}

void continuous_flush(struct sessions *s)
{
	struct recorder_wants wants = { 0 };
	struct day_recorder *next;

	look(s, clock_realtime_ns());
	for (struct day_recorder *day = s->continuous->days; day; day = next) {
		next = day->next; /* new ones are put before */
		flush_day(s, day, &wants);
	}
	s->continuous->host_samples = s->host_samples[PROF_SAMPLE_CPU];
	s->continuous->host_lost = s->host_lost;
	if (wants.stack_count)
		demand_want(s, WANT_STACK, wants.stacks, wants.stack_count);
	if (wants.module_count)
		demand_want(s, WANT_MODULE, wants.modules, wants.module_count);
}

void continuous_forget_epoch(struct sessions *s)
{
	for (struct day_recorder *day = s->continuous->days; day; day = day->next) {
		/* Failing, its stacks are asked for again: their ids stay the same. */
		(void)!recorder_seal(day->recorder, &s->tables, s->feed.cursor, false, NULL);
		recorder_forget_epoch(day->recorder);
	}
}

uint64_t continuous_release_position(const struct sessions *s, uint64_t cursor)
{
	for (const struct day_recorder *day = s->continuous->days; day; day = day->next)
		if (day->dirty && day->stored_position < cursor)
			cursor = day->stored_position;
	return cursor;
}

/* ---- after a restart ------------------------------------------------------------------------- */

struct resume {
	struct sessions *s;
	uint32_t today;
	uint64_t position;
	struct err *err;
};

static int resume_day(void *ctx, const struct store_day *which, uint64_t bytes)
{
	struct resume *resume = ctx;
	struct sessions *s = resume->s;
	uint64_t identity = 0, position = 0;
	struct day_recorder *day;
	int rc;

	rc = note_begun(s, which);
	if (rc < 0)
		return err_set(resume->err, -rc, NULL, NULL, "no memory to record continuously");
	if (which->day + DAYS_BACK <= resume->today)
		return 0;
	rc = store_history_position(s->store, which, &identity, &position, resume->err);
	if (is_away(s, rc))
		return rc;
	if (rc < 0 || identity != ring_identity(s->feed.ring))
		return 0;
	rc = make_day(s, which, &day, resume->err);
	if (rc < 0)
		return rc;
	day->next = s->continuous->days;
	s->continuous->days = day;
	if (day->detail_position < resume->position)
		resume->position = day->detail_position;
	return 0;
}

int continuous_resume(struct sessions *s, uint64_t *ret_position, struct err *err)
{
	struct resume resume = { s, (uint32_t)(clock_realtime_ns() / CONTINUOUS_DAY_NS), UINT64_MAX,
				 err };
	int rc = s->feed.ring ? store_history_days(s->store, false, resume_day, &resume, err) : 0;

	if (rc == 0)
		*ret_position = resume.position;
	return rc;
}
