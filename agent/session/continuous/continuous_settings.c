// SPDX-License-Identifier: Apache-2.0
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "agent/base/parse.h"
#include "agent/session/continuous/continuous.h"
#include "agent/session/continuous/standing.h"
#include "agent/session/core/demand.h"
#include "agent/session/core/read_choice.h"
#include "agent/session/core/services.h"
#include "agent/session/records/hosts.h"
#include "agent/session/records/record_json.h"

#define SETTING_ID_SIZE (SERVICE_NAME_SIZE + 32)

/* ---- records -----------------------------------------------------------------------------------
 */

static char *encode(const struct continuous_source *source)
{
	const struct continuous_setting *setting = &source->setting;
	cleanup(json) cJSON *json = cJSON_CreateObject();
	cJSON *types = cJSON_AddArrayToObject(json, "types");

	for (int type = 0; type < PROFILE_TYPE_MAX; type++)
		if (setting->types >> type & 1)
			(void)cJSON_AddItemToArray(
				types, cJSON_CreateString(
					       profile_type_info((enum profile_type)type)->word));
	(void)cJSON_AddNumberToObject(json, "version", 1);
	(void)cJSON_AddNumberToObject(json, "rateHz", setting->rate_hz);
	(void)cJSON_AddNumberToObject(json, "retentionDays", setting->retention_days);
	(void)cJSON_AddBoolToObject(json, "enabled", setting->enabled);
	(void)cJSON_AddStringToObject(json, "watchAgainst", setting->watch_against);
	(void)cJSON_AddStringToObject(json, "watchWebhook", setting->watch_webhook);
	(void)cJSON_AddStringToObject(json, "watchFormat", watch_format_word(setting->watch_format));
	record_add_u64(json, "createdNs", source->created_at_ns);
	record_add_u64(json, "updatedNs", source->updated_at_ns);
	return json ? cJSON_PrintUnformatted(json) : NULL;
}

/* The selector that the service's words mean; -EINVAL if continuous profiling cannot use it. */
static int find_selector(struct continuous_source *source)
{
	int rc = selector_parse(source->setting.service, NULL, &source->selector);

	return rc < 0 || source->selector.kind == SELECTOR_PID ? -EINVAL : 0;
}

static int decode(const struct store_record *record, struct continuous_source *ret)
{
	cleanup(json) cJSON *json = cJSON_ParseWithLength(record->body, record->body_len);
	struct continuous_setting *setting = &ret->setting;
	const cJSON *word;
	enum profile_type type;

	*ret = (struct continuous_source){ 0 };
	(void)snprintf(setting->tenant, sizeof(setting->tenant), "%s", record->tenant);
	(void)snprintf(setting->service, sizeof(setting->service), "%s",
		       record->service && *record->service ? record->service : record->id);
	cJSON_ArrayForEach(word, cJSON_GetObjectItemCaseSensitive(json, "types"))
	{
		if (cJSON_IsString(word) && profile_type_parse(word->valuestring, &type) == 0)
			setting->types |= 1u << type;
	}
	setting->rate_hz = (uint32_t)record_u64(json, "rateHz");
	setting->retention_days = (uint32_t)record_u64(json, "retentionDays");
	setting->enabled = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "enabled"));
	record_copy_text(json, "watchAgainst", setting->watch_against, sizeof(setting->watch_against));
	record_copy_text(json, "watchWebhook", setting->watch_webhook, sizeof(setting->watch_webhook));
	(void)watch_format_parse(record_text(json, "watchFormat"), &setting->watch_format);
	ret->created_at_ns = record_u64(json, "createdNs");
	ret->updated_at_ns = record_u64(json, "updatedNs");
	return setting->rate_hz && setting->retention_days ? find_selector(ret) : -EPROTO;
}

static int load_one(void *ctx, const struct store_record *record)
{
	struct sessions *s = ctx;
	struct continuous_source *source = &s->continuous->sources[s->continuous->source_count];

	if (s->continuous->source_count >= CONTINUOUS_MAX)
		return 0;
	if (decode(record, source) < 0) {
		log_warn("continuous setting of '%.64s' (tenant %.64s) cannot be read and is "
			 "passed over",
			 record->id, record->tenant);
		return 0;
	}
	source->tenant_rule = sessions_tenant_rule(s, source->setting.tenant);
	s->continuous->source_count++;
	return 0;
}

int continuous_create(struct sessions *s)
{
	struct continuous *c = calloc(1, sizeof(*c));
	pthread_condattr_t attr;

	if (!c)
		return -ENOMEM;
	(void)pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&c->settings_changed, &attr);
	(void)pthread_condattr_destroy(&attr);
	(void)pthread_mutex_init(&c->settings_lock, NULL);
	(void)pthread_mutex_init(&c->detail.lock, NULL);
	s->continuous = c;
	return getrandom(&c->seed, sizeof(c->seed), 0) < 0 ? -errno : 0;
}

int continuous_load(struct sessions *s, struct err *err)
{
	struct store_query query = { .kind = CONTINUOUS_KIND };

	s->continuous->sources = calloc(CONTINUOUS_MAX, sizeof(*s->continuous->sources));
	s->continuous->plans = calloc(CONTINUOUS_PLANS_MAX, sizeof(*s->continuous->plans));
	if (!s->continuous->sources || !s->continuous->plans)
		return err_set(err, ENOMEM, NULL, NULL, "no memory for continuous settings");
	s->continuous->plan_count = 1; /* plan 0 wants nothing */
	s->continuous->since_ns = clock_realtime_ns();
	return store_list(s->store, &query, load_one, s, NULL, err);
}

/* ---- plans -------------------------------------------------------------------------------------
 */

void continuous_changed(struct sessions *s)
{
	s->continuous->plan_count = 1;
	s->continuous->since_ns = clock_realtime_ns();
	s->continuous->swept_minute = 0;
	s->match_generation++;
	s->peers.demand_dirty = s->peers.targets_dirty = true;
	s->continuous->changed = true;
	(void)pthread_cond_broadcast(&s->continuous->settings_changed);
	sessions_wake(s);
}

bool continuous_wants_process(const struct continuous_source *source,
			      const struct live_process *process)
{
	if (!source->setting.enabled || (process->facts.flags & FEED_PROC_EXCLUDED))
		return false;
	return selector_matches(&source->selector, &process->facts, &process->identity) &&
	       (!source->tenant_rule ||
		service_tenant_allows(source->tenant_rule, &process->facts, &process->identity));
}

static bool is_listed(char names[CONTINUOUS_LOOKED_MAX][SERVICE_NAME_SIZE], size_t count,
		      const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(names[i], name) == 0)
			return true;
	return false;
}

size_t continuous_services(const struct sessions *s, const struct continuous_source *source,
			   char ret[CONTINUOUS_LOOKED_MAX][SERVICE_NAME_SIZE])
{
	size_t count = 0;

	if (!source->setting.enabled)
		return 0;
	if (source->selector.kind == SELECTOR_HOST || source->selector.kind == SELECTOR_SERVICE)
		strcpy(ret[count++], source->setting.service);
	if (source->selector.kind == SELECTOR_HOST)
		return count;
	for (size_t i = 0; i < s->tables.processes.count && count < CONTINUOUS_LOOKED_MAX; i++) {
		const struct live_process *process = s->tables.processes.data[i];

		if (!process->exited_ns && continuous_wants_process(source, process) &&
		    !is_listed(ret, count, process->identity.name))
			(void)snprintf(ret[count++], SERVICE_NAME_SIZE, "%s", process->identity.name);
	}
	return count;
}

/* One tenant may want a process by several settings: its highest rate counts. */
static uint32_t tenants_rate(const struct sessions *s, const struct live_process *process,
			     const char *tenant, enum profile_type type)
{
	uint32_t rate = 0;

	for (size_t i = 0; i < s->continuous->source_count; i++) {
		const struct continuous_source *source = &s->continuous->sources[i];

		if (strcmp(source->setting.tenant, tenant) == 0 && continuous_wants_process(source, process) &&
		    (source->setting.types >> type & 1) && source->setting.rate_hz > rate)
			rate = source->setting.rate_hz;
	}
	return rate;
}

static bool is_fast(const struct continuous_source *source)
{
	return continuous_wants_of(source->setting.types) & PROF_WANT_CPU &&
	       demand_is_fast(&source->selector, source->setting.rate_hz);
}

static void make_plan(const struct sessions *s, const struct live_process *process,
		      struct continuous_plan *ret)
{
	const uint32_t kept = profile_types_kept(PROFILE_KEPT_MINUTES);

	memset(ret, 0, sizeof(*ret)); /* plans are compared as bytes */
	for (size_t i = 0; !s->sampling_off_ns && i < s->continuous->source_count; i++) {
		const struct continuous_setting *setting = &s->continuous->sources[i].setting;

		if (!continuous_wants_process(&s->continuous->sources[i], process))
			continue;
		/* Go's own counters need no observer. */
		if (!(process->facts.flags & FEED_PROC_GO))
			ret->observes |= standing_wants(s, &s->continuous->sources[i]);
		if (setting->retention_days > ret->retention_days)
			ret->retention_days = setting->retention_days;
		if (is_fast(&s->continuous->sources[i]))
			ret->fast = 1;
		for (int type = 0; type < PROFILE_TYPE_MAX; type++) {
			const unsigned slot = profile_type_info((enum profile_type)type)->minute_slot;
			uint32_t rate;

			if (!(setting->types & kept & 1u << type))
				continue;
			rate = tenants_rate(s, process, setting->tenant, (enum profile_type)type);
			if (rate > ret->rate_hz[slot])
				ret->rate_hz[slot] = rate;
			ret->wants |= profile_type_info((enum profile_type)type)->wants;
			owners_add(ret->owners[slot], setting->tenant, rate);
		}
	}
}

const struct continuous_plan *continuous_plan_of(struct sessions *s, struct live_process *process)
{
	struct continuous_plan *plans = s->continuous->plans, *next;

	if (process->plan_generation == s->match_generation &&
	    process->plan < s->continuous->plan_count)
		return &plans[process->plan];
	process->plan_generation = s->match_generation;
	process->plan = 0;
	if (!s->continuous->source_count || s->continuous->plan_count >= CONTINUOUS_PLANS_MAX)
		return &plans[0];
	next = &plans[s->continuous->plan_count];
	make_plan(s, process, next);
	for (uint16_t i = 0; i < s->continuous->plan_count; i++)
		if (memcmp(&plans[i], next, sizeof(*next)) == 0)
			return &plans[process->plan = i];
	process->plan = (uint16_t)s->continuous->plan_count++;
	return next;
}

uint32_t continuous_wants_of(uint32_t types)
{
	uint32_t bits = 0;

	for (int type = 0; type < PROFILE_TYPE_MAX; type++)
		if (types >> type & 1)
			bits |= profile_type_info((enum profile_type)type)->wants;
	return bits;
}

uint32_t continuous_wants(const struct continuous_plan *plan)
{
	return plan->wants | plan->observes | (plan->fast ? PROF_WANT_FAST : 0);
}

void continuous_demand(const struct sessions *s, struct control_demand *demand)
{
	for (size_t i = 0; !s->sampling_off_ns && i < s->continuous->source_count; i++) {
		const struct continuous_setting *setting = &s->continuous->sources[i].setting;
		uint32_t bits;

		if (!setting->enabled)
			continue;
		bits = continuous_wants_of(setting->types & profile_types_kept(PROFILE_KEPT_MINUTES));
		demand->types |= bits | standing_wants(s, &s->continuous->sources[i]);
		demand->sample_undecided |= bits != 0;
		if (bits & PROF_WANT_CPU)
			demand_cpu(demand, setting->rate_hz, is_fast(&s->continuous->sources[i]));
		if (bits & PROF_WANT_OFFCPU)
			demand_waits(demand, setting->rate_hz);
	}
}

/* ---- the interface ------------------------------------------------------------------------------
 */

struct continuous_source *continuous_find(struct sessions *s, const char *tenant,
					  const char *service)
{
	for (size_t i = 0; i < s->continuous->source_count; i++) {
		struct continuous_source *source = &s->continuous->sources[i];

		if (strcmp(source->setting.tenant, tenant) == 0 &&
		    strcmp(source->setting.service, service) == 0)
			return source;
	}
	return NULL;
}

static int check(struct sessions *s, const struct continuous_source *source, struct err *err)
{
	const struct continuous_setting *setting = &source->setting;
	int rc = 0;

	if (!parse_is_name(setting->tenant))
		return err_set(err, EINVAL, "InvalidParam", "tenant", "not a tenant's name");
	if (!setting->types)
		return err_set(err, EINVAL, "InvalidParam", "profileTypes", "at least one type");
	if (setting->rate_hz < 1 || setting->rate_hz > 1000)
		return err_set(err, EINVAL, "InvalidParam", "sampleRate",
			       "must be 1 to 1000, got %u", setting->rate_hz);
	if (setting->retention_days < 1 || setting->retention_days > 3650)
		return err_set(err, EINVAL, "InvalidParam", "retentionDays",
			       "must be 1 to 3650, got %u", setting->retention_days);
	/* Windows know their services; of sessions the watch looks for those of a name. */
	if (setting->watch_against[0] && source->selector.kind != SELECTOR_SERVICE &&
	    setting->types & ~profile_types_kept(PROFILE_KEPT_MINUTES))
		return err_set(err, EINVAL, "InvalidParam", "watch",
			       "beside cpu, offcpu and wall only services that are named are watched");
	for (int type = 0; rc == 0 && type < PROFILE_TYPE_MAX; type++) {
		struct type_need need;

		if (!(setting->types >> type & 1))
			continue;
		sessions_lock(s);
		services_type_state(s, (enum profile_type)type,
				    read_session_takes((enum profile_type)type, 0), &need);
		sessions_unlock(s);
		/* A collector that is just being restarted does not make a setting wrong. */
		if (!need.available && !s->feed.ring)
			return err_set(err, ENOTSUP, "ProfileTypeUnavailable", "profileTypes",
				       "%s: %s", profile_type_info((enum profile_type)type)->word,
				       need.reason);
		if (!profile_type_is_kept((enum profile_type)type, PROFILE_KEPT_MINUTES))
			rc = standing_check(s, source, (enum profile_type)type, err);
	}
	return rc;
}

static int put_record(struct sessions *s, const struct continuous_source *source, struct err *err)
{
	cleanup_free char *body = encode(source);
	char id[SETTING_ID_SIZE];
	struct store_record record = {
		.kind = CONTINUOUS_KIND,
		.tenant = source->setting.tenant,
		.id = id,
		.service = source->setting.service,
		.status = source->setting.enabled ? "enabled" : "disabled",
		.created_ns = source->created_at_ns,
		.body = body,
	};

	if (!body)
		return err_set(err, ENOMEM, "StoreUnavailable", NULL, "no memory for a setting");
	hosts_own_id(&s->host, source->setting.service, id, sizeof(id));
	record.body_len = strlen(body);
	return store_put(s->store, &record, err);
}

/* Both locks held; there is room. */
static void insert(struct sessions *s, const struct continuous_source *source)
{
	struct continuous_source *old =
		continuous_find(s, source->setting.tenant, source->setting.service);

	if (!old)
		old = &s->continuous->sources[s->continuous->source_count++];
	*old = *source;
	continuous_changed(s);
}

/* Whether there is room for one more setting of @tenant; told without any figure of other tenants.
 * Lock held. */
static int check_room(const struct sessions *s, const char *tenant, struct err *err)
{
	unsigned count = 0;

	for (size_t i = 0; i < s->continuous->source_count; i++)
		count += strcmp(s->continuous->sources[i].setting.tenant, tenant) == 0;
	if (count >= CONTINUOUS_TENANT_MAX)
		return err_set(err, ENOSPC, "LimitReached", NULL,
			       "this tenant has %u continuous settings, which is the limit: delete one",
			       CONTINUOUS_TENANT_MAX);
	if (s->continuous->source_count >= CONTINUOUS_MAX)
		return err_set(err, ENOSPC, "LimitReached", NULL,
			       "this host takes no further continuous settings");
	return 0;
}

/* Settings lock held. */
static int put_setting(struct sessions *s, struct continuous_source *source, struct err *err)
{
	const struct continuous_source *old;
	int rc = 0;

	source->created_at_ns = source->updated_at_ns = clock_realtime_ns();
	sessions_lock(s);
	old = continuous_find(s, source->setting.tenant, source->setting.service);
	if (old)
		source->created_at_ns = old->created_at_ns;
	else
		rc = check_room(s, source->setting.tenant, err);
	sessions_unlock(s);
	rc = rc < 0 ? rc : put_record(s, source, err);
	if (rc < 0)
		return rc;
	sessions_lock(s);
	insert(s, source);
	sessions_unlock(s);
	return 0;
}

int sessions_continuous_put(struct sessions *s, const struct continuous_setting *setting,
			    struct continuous_info *ret, struct err *err)
{
	struct continuous_source source = { .setting = *setting };
	int rc;

	if (strcmp(setting->service, "host") == 0)
		strcpy(source.setting.service, "*");
	if (find_selector(&source) < 0)
		return err_set(err, EINVAL, "InvalidParam", "service",
			       "expected a service name, unit:NAME, container:ID, port:N or *");
	source.tenant_rule = sessions_tenant_rule(s, setting->tenant);
	rc = check(s, &source, err);
	if (rc < 0)
		return rc;
	(void)pthread_mutex_lock(&s->continuous->settings_lock);
	rc = put_setting(s, &source, err);
	(void)pthread_mutex_unlock(&s->continuous->settings_lock);
	if (rc < 0)
		return rc;
	return sessions_continuous_get(s, setting->tenant, source.setting.service, ret, err);
}

static double recent_overhead(const struct sessions *s)
{
	const struct feed_clock *now = &s->feed.costs, *before = &s->feed.costs_before;
	uint64_t cost_ns = now->collector_cpu_ns + now->bpf_run_ns - before->collector_cpu_ns -
			   before->bpf_run_ns;

	if (!before->clock.monotonic_ns || !s->feed.cpu_count ||
	    now->clock.monotonic_ns <= before->clock.monotonic_ns)
		return -1;
	return 100.0 * (double)cost_ns /
	       (double)(now->clock.monotonic_ns - before->clock.monotonic_ns) / s->feed.cpu_count;
}

static int fill_status(struct sessions *s, const struct continuous_source *source,
		       struct continuous_status *ret, struct err *err)
{
	bool everything = source->selector.kind == SELECTOR_HOST;
	struct span_query query = { .tenant = source->setting.tenant,
				    .own = true,
				    .service = everything ? NULL : source->setting.service,
				    .type = -1,
				    .status = -1 };
	struct span_totals totals;
	int rc = spans_total(s, &query, &totals, err);

	if (rc < 0)
		return rc;
	ret->active_since_ns = source->setting.enabled ? source->updated_at_ns : 0;
	ret->sessions = totals.count;
	ret->bytes = totals.bytes;
	memcpy(ret->last_session_id, totals.newest_id, sizeof(ret->last_session_id));
	memcpy(ret->refusal, source->refusal, sizeof(ret->refusal));
	rc = standing_status(s, source, ret, totals.newest_ns, err);
	if (rc < 0)
		return rc;
	sessions_lock(s);
	ret->overhead_pct = recent_overhead(s);
	sessions_unlock(s);
	return 0;
}

static int describe(struct sessions *s, const struct continuous_source *source,
		    struct continuous_info *ret, struct err *err)
{
	struct continuous_info info = { .setting = source->setting,
					.created_at_ns = source->created_at_ns,
					.updated_at_ns = source->updated_at_ns };
	int rc = fill_status(s, source, &info.status, err);

	if (rc == 0)
		*ret = info;
	return rc;
}

static const char *canonical(const char *service)
{
	return strcmp(service, "host") == 0 ? "*" : service;
}

int sessions_continuous_get(struct sessions *s, const char *tenant, const char *service,
			    struct continuous_info *ret, struct err *err)
{
	const struct continuous_source *found;
	struct continuous_source source;

	sessions_lock(s);
	found = continuous_find(s, tenant, canonical(service));
	if (found)
		source = *found;
	sessions_unlock(s);
	if (!found)
		return err_set(err, ENOENT, "UnknownService", "service",
			       "no continuous setting for '%.128s'", service);
	return describe(s, &source, ret, err);
}

/* Settings lock held. */
static int remove_setting(struct sessions *s, const char *tenant, const char *service,
			  struct err *err)
{
	struct continuous_source *found;
	char id[SETTING_ID_SIZE];
	int rc;

	sessions_lock(s);
	found = continuous_find(s, tenant, service);
	sessions_unlock(s);
	if (!found)
		return err_set(err, ENOENT, "UnknownService", "service",
			       "no continuous setting for '%.128s'", service);
	hosts_own_id(&s->host, service, id, sizeof(id));
	rc = store_delete(s->store, CONTINUOUS_KIND, tenant, id, err);
	if (rc < 0)
		return rc;
	sessions_lock(s);
	*found = s->continuous->sources[--s->continuous->source_count];
	continuous_changed(s);
	sessions_unlock(s);
	return 0;
}

int sessions_continuous_delete(struct sessions *s, const char *tenant, const char *service,
			       struct err *err)
{
	int rc;

	(void)pthread_mutex_lock(&s->continuous->settings_lock);
	rc = remove_setting(s, tenant, canonical(service), err);
	(void)pthread_mutex_unlock(&s->continuous->settings_lock);
	return rc;
}

/* By what is shown of the time, so that the order is the same when it has been read from the store.
 */
static int newest_first(const void *a, const void *b)
{
	const struct continuous_info *x = a, *y = b;
	uint64_t x_ms = x->created_at_ns / NS_PER_MS, y_ms = y->created_at_ns / NS_PER_MS;

	if (x_ms != y_ms)
		return x_ms > y_ms ? -1 : 1;
	return strcmp(x->setting.service, y->setting.service);
}

int sessions_continuous_list(struct sessions *s, const char *tenant, struct continuous_list *ret,
			     struct err *err)
{
	cleanup_free struct continuous_source *sources = calloc(CONTINUOUS_MAX, sizeof(*sources));
	struct continuous_list list = { .items = calloc(CONTINUOUS_MAX, sizeof(*list.items)) };
	size_t count = 0;
	int rc = 0;

	if (!sources || !list.items) {
		free(list.items);
		return err_set(err, ENOMEM, NULL, NULL, "no memory for a list");
	}
	sessions_lock(s);
	for (size_t i = 0; i < s->continuous->source_count; i++)
		if (strcmp(s->continuous->sources[i].setting.tenant, tenant) == 0)
			sources[count++] = s->continuous->sources[i];
	sessions_unlock(s);
	for (size_t i = 0; rc == 0 && i < count; i++) {
		rc = describe(s, &sources[i], &list.items[list.count], err);
		list.count += rc == 0;
	}
	if (rc < 0) {
		continuous_list_deinit(&list);
		return rc;
	}
	qsort(list.items, list.count, sizeof(*list.items), newest_first);
	*ret = list;
	return 0;
}

void continuous_list_deinit(struct continuous_list *list)
{
	free(list->items);
	*list = (struct continuous_list){ 0 };
}
