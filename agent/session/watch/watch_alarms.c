// SPDX-License-Identifier: Apache-2.0
/* Alarms of one service and type: a thing that was seen twice running opens one, two checks without
 * it close it. Kept in a record, so that a restart forgets nothing. */
#include <errno.h>
#include <string.h>

#include "agent/session/records/hosts.h"
#include "agent/session/records/record_json.h"
#include "agent/session/watch/watch.h"

#define WATCH_KIND "watch"
#define CALM_CLOSES 2u

/* ---- records -----------------------------------------------------------------------------------
 */

#define RECORD_ID_SIZE (SERVICE_NAME_SIZE + 32)

static void record_id(const struct sessions *s, const struct watch_subject *subject,
		      char out[RECORD_ID_SIZE])
{
	char name[SERVICE_NAME_SIZE + 16];

	(void)snprintf(name, sizeof(name), "%s %s", profile_type_info(subject->type)->word,
		       subject->service);
	hosts_own_id(&s->host, name, out, RECORD_ID_SIZE);
}

static int int_of(const cJSON *json, const char *name)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, name);

	return cJSON_IsNumber(item) ? item->valueint : 0;
}

static bool decode_alarm(const cJSON *json, struct watch_alarm *ret)
{
	int rule = int_of(json, "rule"), state = int_of(json, "state"), calm = int_of(json, "calm");

	if (rule < WATCH_FUNCTIONS || rule > WATCH_LEVEL || state < ALARM_PENDING ||
	    state > ALARM_CLOSED || calm < 0)
		return false;
	*ret = (struct watch_alarm){ .rule = (enum watch_rule)rule,
				     .key = record_u64(json, "key"),
				     .sign = int_of(json, "sign"),
				     .state = (enum alarm_state)state,
				     .calm = (uint32_t)calm,
				     .first_ns = record_u64(json, "firstNs"),
				     .closed_ns = record_u64(json, "closedNs") };
	(void)snprintf(ret->finding, sizeof(ret->finding), "%s", record_text(json, "finding"));
	return true;
}

int watch_state_load(struct sessions *s, const struct watch_subject *subject,
		     struct watch_state *ret, struct err *err)
{
	cleanup(json) cJSON *json = NULL;
	cleanup_free char *body = NULL;
	char id[RECORD_ID_SIZE];
	const cJSON *item;
	size_t len = 0;
	int rc;

	*ret = (struct watch_state){ 0 };
	record_id(s, subject, id);
	rc = store_get(s->store, WATCH_KIND, subject->setting->tenant, id, &body, &len, err);
	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	json = cJSON_ParseWithLength(body, len);
	ret->checked_ns = record_u64(json, "checkedNs");
	cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(json, "alarms"))
	{
		if (ret->count < WATCH_ALARMS_MAX)
			ret->count += decode_alarm(item, &ret->alarms[ret->count]);
	}
	return 0;
}

int watch_state_save(struct sessions *s, const struct watch_subject *subject,
		     const struct watch_state *state, struct err *err)
{
	cleanup(json) cJSON *json = cJSON_CreateObject();
	cJSON *list = cJSON_AddArrayToObject(json, "alarms");
	cleanup_free char *body = NULL;
	char id[RECORD_ID_SIZE];
	struct store_record record = {
		.kind = WATCH_KIND,
		.tenant = subject->setting->tenant,
		.id = id,
		.service = subject->service,
		.type = profile_type_info(subject->type)->word,
		.status = "",
		.created_ns = subject->at_ns,
	};

	record_id(s, subject, id);
	(void)cJSON_AddNumberToObject(json, "version", 1);
	record_add_u64(json, "checkedNs", subject->at_ns);
	for (uint32_t i = 0; i < state->count; i++) {
		const struct watch_alarm *alarm = &state->alarms[i];
		cJSON *item = cJSON_CreateObject();

		(void)cJSON_AddItemToArray(list, item);
		(void)cJSON_AddNumberToObject(item, "rule", alarm->rule);
		record_add_u64(item, "key", alarm->key);
		(void)cJSON_AddNumberToObject(item, "sign", alarm->sign);
		(void)cJSON_AddNumberToObject(item, "state", alarm->state);
		(void)cJSON_AddNumberToObject(item, "calm", alarm->calm);
		record_add_u64(item, "firstNs", alarm->first_ns);
		record_add_u64(item, "closedNs", alarm->closed_ns);
		(void)cJSON_AddStringToObject(item, "finding", alarm->finding);
	}
	body = json ? cJSON_PrintUnformatted(json) : NULL;
	if (!body)
		return err_set(err, ENOMEM, "StoreUnavailable", NULL, "no memory for the watch");
	record.body = body;
	record.body_len = strlen(body);
	return store_put(s->store, &record, err);
}

/* ---- opening --------------------------------------------------------------------------------- */

static struct watch_alarm *find(struct watch_state *state, enum watch_rule rule, uint64_t key)
{
	for (uint32_t i = 0; i < state->count; i++)
		if (state->alarms[i].rule == rule && state->alarms[i].key == key &&
		    state->alarms[i].state != ALARM_CLOSED)
			return &state->alarms[i];
	return NULL;
}

static int open_alarm(struct sessions *s, const struct watch_subject *subject,
		      struct watch_alarm *alarm, const char *comparison, struct err *err)
{
	struct finding_delivery delivery = { 0 };
	struct finding_info info = { .type = subject->type, .at_ns = subject->at_ns };
	int rc;

	finding_make_id(subject->at_ns, info.id);
	(void)snprintf(info.tenant, sizeof(info.tenant), "%s", subject->setting->tenant);
	(void)snprintf(info.service, sizeof(info.service), "%s", subject->service);
	(void)snprintf(info.against, sizeof(info.against), "%s", subject->setting->watch_against);
	(void)snprintf(delivery.webhook, sizeof(delivery.webhook), "%s",
		       subject->setting->watch_webhook);
	delivery.format = subject->setting->watch_format;
	info.comparison = strdup(comparison);
	rc = info.comparison ? finding_put(s, &info, &delivery, err)
			     : err_set(err, ENOMEM, "StoreUnavailable", NULL, "no memory for a finding");
	if (rc == 0) {
		alarm->state = ALARM_OPEN;
		memcpy(alarm->finding, info.id, sizeof(alarm->finding));
		log_info("watch: %s of %.64s changed, see %s", profile_type_info(subject->type)->word,
			 subject->service, info.id);
	}
	finding_info_deinit(&info);
	return rc;
}

int watch_state_saw(struct sessions *s, const struct watch_subject *subject,
		    struct watch_state *state, const struct watch_sighting *sighting,
		    struct err *err)
{
	struct watch_alarm *alarm = find(state, sighting->rule, sighting->key);
	bool again = alarm && alarm->sign == sighting->sign;

	if (!alarm) {
		if (state->count >= WATCH_ALARMS_MAX)
			return 0;
		alarm = &state->alarms[state->count++];
		*alarm = (struct watch_alarm){ .rule = sighting->rule, .key = sighting->key };
	}
	alarm->seen = true;
	alarm->calm = 0;
	if (alarm->state == ALARM_OPEN)
		return 0;
	if (!again) {
		alarm->sign = sighting->sign;
		alarm->first_ns = subject->at_ns - WATCH_HOUR_NS;
	}
	return again || sighting->once ? open_alarm(s, subject, alarm, sighting->comparison, err) : 0;
}

/* ---- closing --------------------------------------------------------------------------------- */

static int close_alarm(struct sessions *s, const struct watch_subject *subject,
		       struct watch_alarm *alarm, struct err *err)
{
	struct finding_delivery delivery;
	struct finding_info info;
	int rc = finding_get(s, subject->setting->tenant, alarm->finding, &info, &delivery, err);

	if (rc == 0) {
		info.closed_at_ns = subject->at_ns;
		rc = finding_put(s, &info, &delivery, err);
		finding_info_deinit(&info);
	}
	if (rc < 0 && rc != -ENOENT)
		return rc;
	alarm->state = ALARM_CLOSED;
	alarm->closed_ns = subject->at_ns;
	return 0;
}

static bool is_forgotten(const struct watch_alarm *alarm, enum watch_rule rule, uint64_t now_ns)
{
	if (alarm->state == ALARM_CLOSED)
		return alarm->closed_ns + WATCH_LEARN_NS < now_ns;
	return alarm->state == ALARM_PENDING && alarm->rule == rule && !alarm->seen;
}

int watch_state_settle(struct sessions *s, const struct watch_subject *subject,
		       struct watch_state *state, enum watch_rule rule, watch_calm_fn *is_calm,
		       void *ctx, struct err *err)
{
	uint32_t kept = 0;
	int rc = 0;

	for (uint32_t i = 0; i < state->count && rc == 0; i++) {
		struct watch_alarm *alarm = &state->alarms[i];

		if (alarm->rule != rule || alarm->state != ALARM_OPEN || alarm->seen)
			continue;
		alarm->calm = is_calm(ctx, alarm->key) ? alarm->calm + 1 : 0;
		if (alarm->calm >= CALM_CLOSES)
			rc = close_alarm(s, subject, alarm, err);
	}
	for (uint32_t i = 0; i < state->count; i++)
		if (!is_forgotten(&state->alarms[i], rule, subject->at_ns))
			state->alarms[kept++] = state->alarms[i];
	state->count = kept;
	return rc;
}
