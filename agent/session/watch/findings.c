// SPDX-License-Identifier: Apache-2.0
/* Findings of the watch as records: written when an alarm opens, written again when it closes. */
#include <errno.h>
#include <string.h>

#include "agent/base/ulid.h"
#include "agent/session/records/hosts.h"
#include "agent/session/records/list_cursor.h"
#include "agent/session/records/record_json.h"
#include "agent/session/watch/watch.h"

#define FINDING_KIND "finding"

void finding_info_deinit(struct finding_info *info)
{
	free(info->comparison);
	info->comparison = NULL;
}

void finding_make_id(uint64_t at_ns, char out[SESSION_ID_SIZE])
{
	strcpy(out, "fnd-");
	ulid_make(at_ns, out + strlen("fnd-"));
}

/* ---- records -----------------------------------------------------------------------------------
 */

int finding_put(struct sessions *s, const struct finding_info *info,
		const struct finding_delivery *delivery, struct err *err)
{
	cleanup(json) cJSON *json = cJSON_CreateObject();
	cleanup_free char *body = NULL;
	struct store_record record = {
		.kind = FINDING_KIND,
		.tenant = info->tenant,
		.id = info->id,
		.service = info->service,
		.type = profile_type_info(info->type)->word,
		.status = info->closed_at_ns ? "closed" : "open",
		.created_ns = info->at_ns,
	};

	(void)cJSON_AddNumberToObject(json, "version", 1);
	(void)cJSON_AddStringToObject(json, "id", info->id);
	(void)cJSON_AddStringToObject(json, "tenant", info->tenant);
	(void)cJSON_AddStringToObject(json, "service", info->service);
	(void)cJSON_AddStringToObject(json, "type", record.type);
	(void)cJSON_AddStringToObject(json, "against", info->against);
	record_add_u64(json, "atNs", info->at_ns);
	record_add_u64(json, "closedNs", info->closed_at_ns);
	(void)cJSON_AddRawToObject(json, "comparison", info->comparison);
	(void)cJSON_AddStringToObject(json, "webhook", delivery->webhook);
	(void)cJSON_AddStringToObject(json, "format", watch_format_word(delivery->format));
	(void)cJSON_AddStringToObject(json, "delivered", delivery->delivered);
	body = json ? cJSON_PrintUnformatted(json) : NULL;
	if (!body)
		return err_set(err, ENOMEM, "StoreUnavailable", NULL, "no memory for a finding");
	record.body = body;
	record.body_len = strlen(body);
	return store_put(s->store, &record, err);
}

static int decode(const char *host, const char *body, size_t len, struct finding_info *ret,
		  struct finding_delivery *ret_delivery)
{
	cleanup(json) cJSON *json = cJSON_ParseWithLength(body, len);
	struct finding_info info = { .at_ns = record_u64(json, "atNs"),
				     .closed_at_ns = record_u64(json, "closedNs") };

	if (!json || profile_type_parse(record_text(json, "type"), &info.type) < 0)
		return -EPROTO;
	record_copy_text(json, "id", info.id, sizeof(info.id));
	record_copy_text(json, "tenant", info.tenant, sizeof(info.tenant));
	record_copy_text(json, "service", info.service, sizeof(info.service));
	(void)snprintf(info.host, sizeof(info.host), "%s", host);
	record_copy_text(json, "against", info.against, sizeof(info.against));
	record_copy_text(json, "webhook", ret_delivery->webhook, sizeof(ret_delivery->webhook));
	record_copy_text(json, "delivered", ret_delivery->delivered, sizeof(ret_delivery->delivered));
	ret_delivery->format = WATCH_PLAIN; /* records of earlier versions say none */
	(void)watch_format_parse(record_text(json, "format"), &ret_delivery->format);
	info.comparison =
		cJSON_PrintUnformatted(cJSON_GetObjectItemCaseSensitive(json, "comparison"));
	if (!info.comparison)
		return -ENOMEM;
	*ret = info;
	return 0;
}

char *finding_json(const struct finding_info *info)
{
	cleanup(json) cJSON *json = cJSON_CreateObject();
	char time[CLOCK_RFC3339_SIZE];

	(void)cJSON_AddStringToObject(json, "id", info->id);
	(void)cJSON_AddStringToObject(json, "tenant", info->tenant);
	(void)cJSON_AddStringToObject(json, "service", info->service);
	(void)cJSON_AddStringToObject(json, "host", info->host);
	(void)cJSON_AddStringToObject(json, "profileType", profile_type_info(info->type)->word);
	clock_format_rfc3339(info->at_ns, time);
	(void)cJSON_AddStringToObject(json, "at", time);
	clock_format_rfc3339(info->closed_at_ns, time);
	if (info->closed_at_ns)
		(void)cJSON_AddStringToObject(json, "closedAt", time);
	else
		(void)cJSON_AddNullToObject(json, "closedAt");
	(void)cJSON_AddStringToObject(json, "against", info->against);
	(void)cJSON_AddStringToObject(json, "state", info->closed_at_ns ? "closed" : "open");
	(void)cJSON_AddRawToObject(json, "comparison", info->comparison);
	return json ? cJSON_PrintUnformatted(json) : NULL;
}

/* ---- reading --------------------------------------------------------------------------------- */

struct listing {
	const struct sessions *s;
	const struct finding_query *query;
	struct finding_list *list;
	bool more;
};

static int list_one(void *ctx, const struct store_record *record)
{
	struct listing *listing = ctx;
	struct finding_list *list = listing->list;
	struct finding_delivery delivery;
	int rc;

	if (list->count == listing->query->limit) {
		listing->more = true;
		return 0;
	}
	rc = decode(hosts_writer(&listing->s->host, record->host), record->body, record->body_len,
		    &list->items[list->count], &delivery);
	list->count += rc == 0;
	return rc == -EPROTO ? 0 : rc;
}

int sessions_findings(struct sessions *s, const struct finding_query *query,
		      struct finding_list *ret, struct err *err)
{
	struct finding_list list = { 0 };
	struct listing listing = { .s = s, .query = query, .list = &list };
	struct store_query rows = { .kind = FINDING_KIND,
				    .tenant = query->tenant,
				    .service = query->service,
				    .from_ns = query->from_ns,
				    .to_ns = query->to_ns,
				    .limit = query->limit + 1,
				    .every_host = true };
	int rc = list_cursor_parse(query->cursor, &rows.before_ns, &rows.before_id, err);

	if (rc < 0)
		return rc;
	list.items = calloc(query->limit + 1, sizeof(*list.items));
	if (!list.items)
		return err_set(err, ENOMEM, NULL, NULL, "no memory for a list");
	rc = store_list(s->store, &rows, list_one, &listing, &list.total, err);
	if (rc < 0) {
		finding_list_deinit(&list);
		return rc;
	}
	if (listing.more)
		list_cursor_write(list.next_cursor, sizeof(list.next_cursor),
				  list.items[list.count - 1].at_ns, list.items[list.count - 1].id);
	*ret = list;
	return 0;
}

void finding_list_deinit(struct finding_list *list)
{
	for (uint32_t i = 0; i < list->count; i++)
		finding_info_deinit(&list->items[i]);
	free(list->items);
	*list = (struct finding_list){ 0 };
}

int finding_get(struct sessions *s, const char *tenant, const char *id, struct finding_info *ret,
		struct finding_delivery *ret_delivery, struct err *err)
{
	cleanup_free char *body = NULL;
	size_t len = 0;
	int rc = store_get(s->store, FINDING_KIND, tenant, id, &body, &len, err);

	return rc < 0 ? rc : decode(s->host.name, body, len, ret, ret_delivery);
}

struct undelivered {
	const struct sessions *s;
	finding_visit_fn *visit;
	void *ctx;
};

static int visit_one(void *ctx, const struct store_record *record)
{
	const struct undelivered *undelivered = ctx;
	struct finding_delivery delivery;
	struct finding_info info;
	int rc = decode(undelivered->s->host.name, record->body, record->body_len, &info, &delivery);

	if (rc < 0)
		return rc == -EPROTO ? 0 : rc;
	if (delivery.webhook[0] && strcmp(delivery.delivered, record->status) != 0)
		rc = undelivered->visit(undelivered->ctx, &info, &delivery);
	finding_info_deinit(&info);
	return rc;
}

int findings_undelivered(struct sessions *s, uint64_t since_ns, finding_visit_fn *visit, void *ctx,
			 struct err *err)
{
	struct store_query rows = { .kind = FINDING_KIND, .from_ns = since_ns };
	struct undelivered undelivered = { s, visit, ctx };

	return store_list(s->store, &rows, visit_one, &undelivered, NULL, err);
}
