// SPDX-License-Identifier: Apache-2.0
/* When a program of a service began to run from another build. The build is the one of the module
 * that is mapped from the process's executable, found in the stacks of its samples. */
#include "agent/session/continuous/deployments.h"

#include <errno.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/base/text.h"
#include "agent/base/ulid.h"
#include "agent/session/continuous/continuous.h"
#include "agent/session/records/hosts.h"
#include "agent/session/records/record_json.h"

#define KIND	       "deployment"
#define PROGRAMS_MAX   8192u
#define LOOKS_MAX      200u /* samples of a process, before its build is taken as not to be known */

struct deployment_pending {
	char owners[CONTINUOUS_OWNERS];
	struct deployment_info info;
};

static uint64_t program_key(const char *service, const char *exe)
{
	return hash_bytes(exe, strlen(exe), hash_bytes(service, strlen(service) + 1, 0));
}

static uint64_t build_hash(const char *build_id)
{
	return hash_bytes(build_id, strlen(build_id), 1);
}

/* ---- records -----------------------------------------------------------------------------------
 */

static void decode(const struct store_record *record, struct deployment_info *ret)
{
	cleanup(json) cJSON *json = cJSON_ParseWithLength(record->body, record->body_len);

	*ret = (struct deployment_info){ .at_ns = record->created_ns };
	(void)snprintf(ret->service, sizeof(ret->service), "%s", record->service);
	(void)snprintf(ret->exe, sizeof(ret->exe), "%s", record_text(json, "exe"));
	(void)snprintf(ret->build_id, sizeof(ret->build_id), "%s", record_text(json, "buildId"));
	(void)snprintf(ret->previous_build_id, sizeof(ret->previous_build_id), "%s",
		       record_text(json, "previousBuildId"));
}

static int put(struct sessions *s, const char *tenant, const struct deployment_info *info,
	       struct err *err)
{
	cleanup(json) cJSON *json = cJSON_CreateObject();
	cleanup_free char *body = NULL;
	char id[SESSION_ID_SIZE] = "dep-";
	struct store_record record = { .kind = KIND,
				       .tenant = tenant,
				       .id = id,
				       .service = info->service,
				       .type = "",
				       .status = info->previous_build_id[0] ? "changed" : "first",
				       .created_ns = info->at_ns };

	ulid_make(info->at_ns, id + strlen("dep-"));
	(void)cJSON_AddStringToObject(json, "exe", info->exe);
	(void)cJSON_AddStringToObject(json, "buildId", info->build_id);
	(void)cJSON_AddStringToObject(json, "previousBuildId", info->previous_build_id);
	body = json ? cJSON_PrintUnformatted(json) : NULL;
	if (!body)
		return err_set(err, ENOMEM, "StoreUnavailable", NULL, "no memory for a deployment");
	record.body = body;
	record.body_len = strlen(body);
	return store_put(s->store, &record, err);
}

/* The list is newest first: what is known already is newer. */
static int load_one(void *ctx, const struct store_record *record)
{
	struct sessions *s = ctx;
	struct deployment_info info;
	uint64_t key, known;
	int rc;

	decode(record, &info);
	key = program_key(info.service, info.exe);
	if (u64map_get(&s->continuous->deployments.builds, key, &known) ||
	    s->continuous->deployments.builds.count >= PROGRAMS_MAX)
		return 0;
	rc = u64map_put(&s->continuous->deployments.builds, key, build_hash(info.build_id));
	return rc < 0 ? rc : u64map_put(&s->continuous->deployments.starts, key, info.at_ns);
}

int deployments_load(struct sessions *s, struct err *err)
{
	struct store_query query = { .kind = KIND };
	struct deployments *d = &s->continuous->deployments;

	d->pending = calloc(DEPLOYMENTS_PENDING_MAX, sizeof(*d->pending));
	if (!d->pending)
		return err_set(err, ENOMEM, NULL, NULL, "no memory for deployments");
	return store_list(s->store, &query, load_one, s, NULL, err);
}

void deployments_deinit(struct sessions *s)
{
	u64map_deinit(&s->continuous->deployments.builds);
	u64map_deinit(&s->continuous->deployments.starts);
	free(s->continuous->deployments.pending);
}

/* ---- looking --------------------------------------------------------------------------------- */

static const struct live_module *executable_in(struct sessions *s, uint64_t stack_id,
					       const char *exe)
{
	const struct live_stack *stack = stack_id ? live_tables_stack(&s->tables, stack_id) : NULL;

	/* The outermost frames are the program's more often than the innermost. */
	for (unsigned i = stack ? stack->frame_count : 0; i-- > 0;) {
		const struct live_module *module;

		if (prof_frame_kind(stack->frames[i]) != PROF_FRAME_MODULE)
			continue;
		module = live_tables_module(&s->tables, prof_frame_module_id(stack->frames[i]));
		if (module && module->known && module->build_id_len && module->path &&
		    strcmp(module->path, exe) == 0)
			return module;
	}
	return NULL;
}

static void format_build(const struct live_module *module, char out[65])
{
	for (unsigned i = 0; i < module->build_id_len && i < 32; i++)
		(void)snprintf(out + (size_t)2 * i, 3, "%02x", module->build_id[i]);
}

static void note(struct sessions *s, const struct live_process *process, const char *owners,
		 const struct live_module *module)
{
	struct deployments *d = &s->continuous->deployments;
	uint64_t start_ns = process->started_at_ns, newest_ns = 0, before = 0, key;
	struct deployment_pending *pending = &d->pending[d->pending_count];
	struct deployment_info *info = &pending->info;

	if (d->pending_count >= DEPLOYMENTS_PENDING_MAX)
		return; /* the next process of that build is as good */
	*pending = (struct deployment_pending){ .info.at_ns = start_ns };
	(void)snprintf(info->service, sizeof(info->service), "%s", process->identity.name);
	(void)snprintf(info->exe, sizeof(info->exe), "%.63s", text_file_name(process->facts.exe));
	(void)snprintf(pending->owners, sizeof(pending->owners), "%s", owners);
	format_build(module, info->build_id);
	key = program_key(info->service, info->exe);
	(void)u64map_get(&d->builds, key, &before);
	(void)u64map_get(&d->starts, key, &newest_ns);
	/* A process that is older than the newest one says nothing new: builds overlap while they
	 * change. */
	if (start_ns <= newest_ns || (!before && d->builds.count >= PROGRAMS_MAX))
		return;
	if (u64map_put(&d->starts, key, start_ns) < 0 || before == build_hash(info->build_id) ||
	    u64map_put(&d->builds, key, build_hash(info->build_id)) < 0)
		return;
	d->pending_count++;
}

void deployments_look(struct sessions *s, struct live_process *process,
		      const struct continuous_plan *plan, const struct feed_sample *sample)
{
	const struct live_module *module;
	const char *owners = NULL;

	if (process->build_generation == process->exec_generation + 1)
		return;
	for (unsigned slot = 0; slot < PROFILE_MINUTE_TYPES && !owners; slot++)
		if (plan->rate_hz[slot])
			owners = plan->owners[slot];
	if (!owners || !process->facts.exe[0])
		return;
	module = executable_in(s, sample->user_stack, process->facts.exe);
	if (!module && ++process->build_looks < LOOKS_MAX)
		return;
	process->build_generation = process->exec_generation + 1;
	process->build_looks = 0;
	if (module)
		note(s, process, owners, module);
}

/* ---- writing --------------------------------------------------------------------------------- */

struct newest {
	const char *exe;
	char build_id[65];
};

static int find_exe(void *ctx, const struct store_record *record)
{
	struct newest *newest = ctx;
	struct deployment_info info;

	if (newest->build_id[0])
		return 0;
	decode(record, &info);
	if (strcmp(info.exe, newest->exe) == 0)
		memcpy(newest->build_id, info.build_id, sizeof(newest->build_id));
	return 0;
}

static int write_for(struct sessions *s, const char *tenant, struct deployment_info *info,
		     struct err *err)
{
	struct store_query query = { .kind = KIND, .tenant = tenant, .service = info->service };
	struct newest newest = { .exe = info->exe };
	int rc = store_list(s->store, &query, find_exe, &newest, NULL, err);

	if (rc < 0 || strcmp(newest.build_id, info->build_id) == 0)
		return rc;
	memcpy(info->previous_build_id, newest.build_id, sizeof(info->previous_build_id));
	return put(s, tenant, info, err);
}

/* -EIO: the store could not be asked what was there before; the owners that are left are in
 * @pending. */
static int write_one(struct sessions *s, struct deployment_pending *pending)
{
	const char *at = pending->owners;

	while (*at == ',' && at[1]) {
		char tenant[TENANT_NAME_SIZE];
		struct err err = { 0 };
		int rc;

		(void)snprintf(tenant, sizeof(tenant), "%.*s", (int)strcspn(at + 1, ":"), at + 1);
		rc = write_for(s, tenant, &pending->info, &err);
		if (rc == -EIO && store_is_shared(s->store)) {
			memmove(pending->owners, at, strlen(at) + 1);
			return rc;
		}
		if (rc < 0)
			log_warn("a new build of %.64s is not recorded: %s", pending->info.service,
				 err.text);
		at = at + 1 + strcspn(at + 1, ",");
	}
	return 0;
}

/* The oldest: what a build replaced is what was written before it. Lock held. */
static bool take_first(struct deployments *d, struct deployment_pending *ret)
{
	if (!d->pending_count)
		return false;
	*ret = d->pending[0];
	memmove(&d->pending[0], &d->pending[1], --d->pending_count * sizeof(d->pending[0]));
	return true;
}

/* With the next look, in its place. */
static void put_back(struct sessions *s, const struct deployment_pending *pending)
{
	struct deployments *d = &s->continuous->deployments;
	sessions_scope(s);

	if (d->pending_count == DEPLOYMENTS_PENDING_MAX)
		return;
	memmove(&d->pending[1], &d->pending[0], d->pending_count++ * sizeof(d->pending[0]));
	d->pending[0] = *pending;
}

void deployments_write(struct sessions *s)
{
	struct deployment_pending pending;

	for (;;) {
		bool any;

		sessions_lock(s);
		any = !s->abandoned && take_first(&s->continuous->deployments, &pending);
		sessions_unlock(s);
		if (!any)
			return;
		if (write_one(s, &pending) < 0) {
			put_back(s, &pending);
			return;
		}
	}
}

/* ---- reading --------------------------------------------------------------------------------- */

struct listing {
	const struct sessions *s;
	struct deployment_list list;
};

static int list_one(void *ctx, const struct store_record *record)
{
	struct listing *listing = ctx;
	struct deployment_info *info = &listing->list.items[listing->list.count];

	if (listing->list.count == DEPLOYMENTS_SHOWN)
		return 0;
	decode(record, info);
	(void)snprintf(info->host, sizeof(info->host), "%s",
		       hosts_writer(&listing->s->host, record->host));
	listing->list.count++;
	return 0;
}

static int list(struct sessions *s, const char *tenant, const char *service, bool every_host,
		uint64_t from_ns, uint64_t to_ns, struct deployment_list *ret, struct err *err)
{
	struct store_query query = { .kind = KIND,
				     .tenant = tenant,
				     .service = service,
				     .status = "changed",
				     .from_ns = from_ns,
				     .to_ns = to_ns,
				     .limit = DEPLOYMENTS_SHOWN,
				     .every_host = every_host };
	struct listing found = { s, { .items = calloc(DEPLOYMENTS_SHOWN, sizeof(*found.list.items)) } };
	int rc = found.list.items ? store_list(s->store, &query, list_one, &found, NULL, err)
			     : err_set(err, ENOMEM, NULL, NULL, "no memory for a list");

	if (rc < 0)
		deployment_list_deinit(&found.list);
	else
		*ret = found.list;
	return rc;
}

int sessions_deployments(struct sessions *s, const char *tenant, const char *service,
			 uint64_t from_ns, uint64_t to_ns, struct deployment_list *ret,
			 struct err *err)
{
	return list(s, tenant, service, true, from_ns, to_ns, ret, err);
}

int deployments_of_host(struct sessions *s, const char *tenant, const char *service,
			uint64_t from_ns, uint64_t to_ns, struct deployment_list *ret,
			struct err *err)
{
	return list(s, tenant, service, false, from_ns, to_ns, ret, err);
}

void deployment_list_deinit(struct deployment_list *list)
{
	free(list->items);
	*list = (struct deployment_list){ 0 };
}
