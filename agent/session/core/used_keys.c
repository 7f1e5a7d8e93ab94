// SPDX-License-Identifier: Apache-2.0
#include "agent/session/core/used_keys.h"

#include <errno.h>
#include <string.h>

#include "agent/session/core/start.h"
#include "agent/session/records/record_json.h"

/* False: it has none, or one that so many came after that it counts no more. Lock held. */
static bool find(const struct sessions *s, const char *tenant, const char *id,
		 struct idempotency *ret)
{
	for (size_t i = 0; i < IDEMPOTENCY_MAX; i++) {
		const struct idempotency *entry = &s->idempotency[i];

		if (strcmp(entry->id, id) != 0 || strcmp(entry->tenant, tenant) != 0)
			continue;
		*ret = *entry;
		return true;
	}
	return false;
}

int used_keys_keep(struct sessions *s, const char *tenant, const char *id, struct err *err)
{
	cleanup(json) cJSON *json = cJSON_CreateObject();
	cleanup_free char *body = NULL;
	struct idempotency key;
	bool any;

	sessions_lock(s);
	any = find(s, tenant, id, &key);
	sessions_unlock(s);
	if (!any)
		return 0;
	(void)cJSON_AddStringToObject(json, "idempotencyKey", key.key);
	record_add_u64(json, "requestHash", key.request_hash);
	body = json ? cJSON_PrintUnformatted(json) : NULL;
	if (!body)
		return err_set(err, ENOMEM, NULL, NULL, "no memory to delete session %s", id);
	return store_put(s->store,
			 &(struct store_record){ .kind = USED_KEY_KIND,
						 .tenant = tenant,
						 .id = id,
						 .created_ns = clock_realtime_ns(),
						 .body = body,
						 .body_len = strlen(body),
						 .urgent = true },
			 err);
}

static int load_one(void *ctx, const struct store_record *record)
{
	cleanup(json) cJSON *json = cJSON_ParseWithLength(record->body, record->body_len);
	char key[IDEMPOTENCY_KEY_SIZE] = "";

	record_copy_text(json, "idempotencyKey", key, sizeof(key));
	if (key[0])
		sessions_remember_key(ctx, record->tenant, key, record->id, record_u64(json, "requestHash"));
	return 0;
}

int used_keys_load(struct sessions *s, struct err *err)
{
	const struct store_query query = { .kind = USED_KEY_KIND,
					   .from_ns = clock_realtime_ns() - USED_KEYS_KEPT_NS };

	return store_list(s->store, &query, load_one, s, NULL, err);
}
