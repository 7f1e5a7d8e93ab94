// SPDX-License-Identifier: Apache-2.0
#include "agent/session/history/service_labels.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/session/history.h"
#include "agent/session/records/record_json.h"

#define LOOK_NS	     (10 * NS_PER_S)
#define AGE_NS	     (10 * NS_PER_S)	     /* processes that live for less leave no labels */
#define REFRESH_NS   (30 * 86400 * NS_PER_S) /* a record is written again at this age */
#define SERVICES_MAX 8192u		     /* of this host */
#define SETS_MAX     16u		     /* changes that a record keeps, the newest */
#define TENANT	     "-"		     /* of all */

static const char *const words[SERVICE_LABELS] = {
	[SERVICE_LABEL_UNIT] = "unit",		 [SERVICE_LABEL_CONTAINER] = "container",
	[SERVICE_LABEL_POD] = "pod",		 [SERVICE_LABEL_NAMESPACE] = "namespace",
	[SERVICE_LABEL_WORKLOAD] = "workload",	 [SERVICE_LABEL_IMAGE] = "image",
};

const char *service_label_word(enum service_label label)
{
	return words[label];
}

/* ---- what runs now --------------------------------------------------------------------------- */

struct labels {
	char service[SERVICE_NAME_SIZE];
	char values[SERVICE_LABELS][256];
};
VEC_DEFINE(all_labels, struct labels);

struct labels_kept {
	uint64_t next_ns;     /* monotonic */
	struct u64map stored; /* hash of a service -> hash of its values as they are stored */
	struct u64map at_ns;  /* hash of a service -> realtime when they were written */
};

static void read_process(const struct live_process *process, struct labels *ret)
{
	const struct service_identity *identity = &process->identity;
	static const struct {
		enum service_label label;
		const char *name;
	} values[] = {
		{ SERVICE_LABEL_CONTAINER, "container.name" },
		{ SERVICE_LABEL_POD, "k8s.pod.name" },
		{ SERVICE_LABEL_NAMESPACE, "k8s.namespace.name" },
		{ SERVICE_LABEL_WORKLOAD, "k8s.workload.name" },
		{ SERVICE_LABEL_IMAGE, "container.image.name" },
	};

	*ret = (struct labels){ 0 };
	(void)snprintf(ret->service, sizeof(ret->service), "%s", identity->name);
	(void)snprintf(ret->values[SERVICE_LABEL_UNIT], sizeof(ret->values[0]), "%s", identity->unit);
	for (size_t i = 0; i < ARRAY_SIZE(values); i++)
		service_container_value(&process->facts, values[i].name, ret->values[values[i].label],
					sizeof(ret->values[0]));
	/* Containers have the name that their runtime keeps, else their id. */
	if (!ret->values[SERVICE_LABEL_CONTAINER][0])
		(void)snprintf(ret->values[SERVICE_LABEL_CONTAINER], sizeof(ret->values[0]), "%s",
			       identity->container_id);
}

/* A service has a label only where all its processes have it. Lock held. */
static int collect(const struct sessions *s, struct all_labels_vec *ret)
{
	const uint64_t now_ns = clock_boottime_ns();
	struct u64map at = { 0 };
	struct labels labels;
	uint64_t known;
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < s->tables.processes.count; i++) {
		const struct live_process *process = s->tables.processes.data[i];
		uint64_t hash;

		if (process->exited_ns || !process->identity.name[0] ||
		    process->facts.start_boottime_ns + AGE_NS > now_ns)
			continue;
		read_process(process, &labels);
		hash = hash_bytes(labels.service, strlen(labels.service), 0);
		if (!u64map_get(&at, hash, &known)) {
			if (ret->count == SERVICES_MAX)
				break;
			rc = u64map_put(&at, hash, ret->count);
			if (rc == 0)
				rc = all_labels_vec_push(ret, labels);
			continue;
		}
		for (unsigned l = 0; l < SERVICE_LABELS; l++)
			if (strcmp(ret->data[known].values[l], labels.values[l]) != 0)
				ret->data[known].values[l][0] = '\0';
	}
	u64map_deinit(&at);
	return rc;
}

/* ---- records --------------------------------------------------------------------------------- */

static uint64_t hash_of(const struct labels *labels)
{
	uint64_t hash = 0;

	for (unsigned l = 0; l < SERVICE_LABELS; l++)
		hash = hash_bytes(labels->values[l], strlen(labels->values[l]), hash);
	return hash;
}

static cJSON *make_set(const struct labels *labels, uint64_t from_ns)
{
	cJSON *set = cJSON_CreateObject();

	record_add_u64(set, "fromNs", from_ns);
	for (unsigned l = 0; l < SERVICE_LABELS; l++)
		if (labels->values[l][0])
			(void)cJSON_AddStringToObject(set, words[l], labels->values[l]);
	return set;
}

static bool is_set(const cJSON *set, const struct labels *labels)
{
	for (unsigned l = 0; l < SERVICE_LABELS; l++)
		if (strcmp(record_text(set, words[l]), labels->values[l]) != 0)
			return false;
	return true;
}

/* Adds @labels to the record of their service unless the record's newest are the same. */
static int write_record(struct sessions *s, const struct labels *labels, uint64_t hash)
{
	const uint64_t now_ns = clock_realtime_ns();
	cleanup_free char *old = NULL, *body = NULL;
	cleanup(json) cJSON *json = NULL;
	char name[24], id[STORE_ID_SIZE];
	struct err err = { 0 };
	cJSON *sets;
	size_t len;
	int rc;

	(void)snprintf(name, sizeof(name), "%016" PRIx64, hash);
	hosts_own_id(&s->host, name, id, sizeof(id));
	rc = store_get(s->store, SERVICE_LABELS_KIND, TENANT, id, &old, &len, &err);
	if (rc < 0 && rc != -ENOENT)
		return rc;
	json = old ? cJSON_ParseWithLength(old, len) : NULL;
	sets = cJSON_GetObjectItemCaseSensitive(json, "sets");
	if (!cJSON_IsArray(sets) || strcmp(record_text(json, "service"), labels->service) != 0) {
		cJSON_Delete(json);
		json = cJSON_CreateObject();
		(void)cJSON_AddStringToObject(json, "service", labels->service);
		sets = cJSON_AddArrayToObject(json, "sets");
	}
	if (!is_set(cJSON_GetArrayItem(sets, cJSON_GetArraySize(sets) - 1), labels))
		(void)cJSON_AddItemToArray(sets, make_set(labels, now_ns));
	while (cJSON_GetArraySize(sets) > (int)SETS_MAX)
		cJSON_DeleteItemFromArray(sets, 0);
	body = json ? cJSON_PrintUnformatted(json) : NULL;
	if (!body)
		return -ENOMEM;
	return store_put(s->store,
			 &(struct store_record){ .kind = SERVICE_LABELS_KIND, .tenant = TENANT, .id = id,
						 .service = labels->service, .type = "", .status = "",
						 .created_ns = now_ns, .body = body,
						 .body_len = strlen(body) },
			 &err);
}

void service_labels_look(struct sessions *s)
{
	struct labels_kept *kept = s->labels_kept;
	struct all_labels_vec all = { 0 };
	int rc;

	if (!kept)
		kept = s->labels_kept = calloc(1, sizeof(*kept));
	if (!kept || clock_monotonic_ns() < kept->next_ns)
		return;
	kept->next_ns = clock_monotonic_ns() + LOOK_NS;
	sessions_lock(s);
	rc = collect(s, &all);
	sessions_unlock(s);
	for (size_t i = 0; rc == 0 && i < all.count; i++) {
		const struct labels *labels = &all.data[i];
		const uint64_t hash = hash_bytes(labels->service, strlen(labels->service), 0);
		uint64_t stored, at_ns;

		if (u64map_get(&kept->stored, hash, &stored) && stored == hash_of(labels) &&
		    u64map_get(&kept->at_ns, hash, &at_ns) &&
		    clock_realtime_ns() < at_ns + REFRESH_NS)
			continue;
		/* A store that is away or full is tried at the next look. */
		if (write_record(s, labels, hash) < 0)
			break;
		rc = u64map_put(&kept->stored, hash, hash_of(labels));
		if (rc == 0)
			rc = u64map_put(&kept->at_ns, hash, clock_realtime_ns());
	}
	all_labels_vec_deinit(&all);
}

void service_labels_destroy(struct sessions *s)
{
	if (!s->labels_kept)
		return;
	u64map_deinit(&s->labels_kept->stored);
	u64map_deinit(&s->labels_kept->at_ns);
	free(s->labels_kept);
	s->labels_kept = NULL;
}

/* ---- reading --------------------------------------------------------------------------------- */

void service_labels_list_deinit(struct service_labels_list *list)
{
	for (size_t i = 0; i < list->count; i++) {
		free(list->items[i].service);
		for (unsigned l = 0; l < SERVICE_LABELS; l++)
			free(list->items[i].values[l]);
	}
	free(list->items);
	*list = (struct service_labels_list){ 0 };
}

struct reading_labels_ctx {
	const struct sessions *s;
	uint64_t to_ns;
	struct service_labels_list *list;
	size_t capacity;
};

/* Room for one more; NULL: no memory. It counts when the caller says so. */
static struct service_labels *next_item(struct reading_labels_ctx *c)
{
	void *data = c->list->items;
	int rc = vec_grow(&data, &c->capacity, c->list->count + 1, sizeof(*c->list->items), 0);

	c->list->items = data;
	if (rc < 0)
		return NULL;
	c->list->items[c->list->count] = (struct service_labels){ 0 };
	return &c->list->items[c->list->count++];
}

static int fill(struct service_labels *item, const char *service, const char *host,
		const char *const values[SERVICE_LABELS])
{
	item->service = strdup(service);
	(void)snprintf(item->host, sizeof(item->host), "%s", host);
	for (unsigned l = 0; l < SERVICE_LABELS; l++) {
		item->values[l] = strdup(values[l]);
		if (!item->values[l])
			return -ENOMEM;
	}
	return item->service ? 0 : -ENOMEM;
}

/* The values of the newest change before the end of the time range. */
static int take_record(void *ctx, const struct store_record *record)
{
	struct reading_labels_ctx *c = ctx;
	cleanup(json) cJSON *json = cJSON_ParseWithLength(record->body, record->body_len);
	const cJSON *set, *newest = NULL;
	const char *values[SERVICE_LABELS];
	struct service_labels *item;

	cJSON_ArrayForEach(set, cJSON_GetObjectItemCaseSensitive(json, "sets"))
		if (record_u64(set, "fromNs") < c->to_ns)
			newest = set;
	if (!newest)
		return 0;
	for (unsigned l = 0; l < SERVICE_LABELS; l++)
		values[l] = record_text(newest, words[l]);
	item = next_item(c);
	return item ? fill(item, record_text(json, "service"),
			   hosts_writer(&c->s->host, record->host), values)
		    : -ENOMEM;
}

/* A tenant that is limited to some processes sees only those that run now, as sessions_services()
 * shows them: a record does not say whose processes it describes. */
static int add_live(struct reading_labels_ctx *c, struct sessions *s, const char *tenant,
		    struct err *err)
{
	struct service_list live = { 0 };
	int rc = sessions_services(s, tenant, &live, err);

	for (uint32_t i = 0; rc == 0 && i < live.count; i++) {
		const struct service_info *info = &live.items[i];
		const char *const values[SERVICE_LABELS] = {
			[SERVICE_LABEL_UNIT] = info->unit,
			[SERVICE_LABEL_CONTAINER] = info->container[0] ? info->container
								       : info->container_id,
			[SERVICE_LABEL_POD] = info->pod,
			[SERVICE_LABEL_NAMESPACE] = info->namespace,
			[SERVICE_LABEL_WORKLOAD] = info->workload,
			[SERVICE_LABEL_IMAGE] = info->image,
		};
		struct service_labels *item = next_item(c);

		rc = item ? fill(item, info->name, s->host.name, values) : -ENOMEM;
	}
	service_list_deinit(&live);
	return rc;
}

/* Stored labels, which came first, stay before those of now. */
static int by_service(const void *a, const void *b)
{
	const struct service_labels *x = a, *y = b;
	int order = strcmp(x->service, y->service);

	order = order ? order : strcmp(x->host, y->host);
	return order ? order : (x->order > y->order) - (x->order < y->order);
}

int sessions_service_labels(struct sessions *s, const char *tenant, uint64_t to_ns,
			    struct service_labels_list *ret, struct err *err)
{
	const struct store_query query = { .kind = SERVICE_LABELS_KIND, .tenant = TENANT,
					   .every_host = true };
	struct service_labels_list list = { 0 };
	struct reading_labels_ctx c = { .s = s, .to_ns = to_ns, .list = &list };
	int rc = sessions_tenant_rule(s, tenant)
			 ? 0
			 : store_list(s->store, &query, take_record, &c, NULL, err);

	if (rc == 0)
		rc = add_live(&c, s, tenant, err);
	if (rc < 0) {
		service_labels_list_deinit(&list);
		return rc;
	}
	for (size_t i = 0; i < list.count; i++)
		list.items[i].order = i;
	if (list.count)
		qsort(list.items, list.count, sizeof(*list.items), by_service);
	*ret = list;
	return 0;
}

const char *service_labels_find(const struct service_labels_list *list, const char *service,
				const char *host, enum service_label label)
{
	size_t low = 0, high = list->count;

	/* The first of those that are equal. */
	while (low < high) {
		const size_t middle = low + (high - low) / 2;
		const struct service_labels *item = &list->items[middle];
		const int order = strcmp(item->service, service);

		if (order < 0 || (order == 0 && strcmp(item->host, host) < 0))
			low = middle + 1;
		else
			high = middle;
	}
	if (low == list->count || strcmp(list->items[low].service, service) != 0 ||
	    strcmp(list->items[low].host, host) != 0)
		return "";
	return list->items[low].values[label];
}
