// SPDX-License-Identifier: Apache-2.0
#include "api/continuous_api.h"

#include <errno.h>
#include <string.h>

#include "agent/base/text.h"
#include "agent/session/history.h"
#include "api/api_internal.h"
#include "api/http/json_in.h"
#include "api/push/push_http.h"

#define RATE_DEFAULT_HZ	       19
#define RETENTION_DEFAULT_DAYS 7
#define RETENTION_MAX_DAYS     3650

static void setting_json(struct json_out *json, const struct continuous_setting *setting)
{
	char webhook[PUSH_SHOWN_SIZE];

	json_out_text(json, "service", setting->service);
	json_out_open(json, "profileTypes", '[');
	for (unsigned type = 0; type < PROFILE_TYPE_MAX; type++)
		if (setting->types >> type & 1)
			json_out_text(json, NULL, profile_type_info((enum profile_type)type)->word);
	json_out_close(json, ']');
	json_out_uint(json, "sampleRate", setting->rate_hz);
	json_out_uint(json, "retentionDays", setting->retention_days);
	json_out_bool(json, "enabled", setting->enabled);
	if (!setting->watch_against[0]) {
		json_out_null(json, "watch");
		return;
	}
	json_out_open(json, "watch", '{');
	json_out_text(json, "against", setting->watch_against);
	if (setting->watch_webhook[0])
		push_show_url(setting->watch_webhook, webhook);
	json_out_text(json, "webhook", setting->watch_webhook[0] ? webhook : NULL);
	json_out_text(json, "format", watch_format_word(setting->watch_format));
	json_out_close(json, '}');
}

static void info_json(struct json_out *json, const struct continuous_info *info,
		      const struct json_warnings *warnings)
{
	const struct continuous_status *status = &info->status;

	json_out_open(json, NULL, '{');
	setting_json(json, &info->setting);
	json_out_text(json, "tenant", info->setting.tenant);
	json_out_time(json, "createdAt", info->created_at_ns);
	json_out_time(json, "updatedAt", info->updated_at_ns);
	json_out_open(json, "status", '{');
	json_out_time(json, "activeSince", status->active_since_ns);
	json_out_text(json, "lastSessionId",
		      status->last_session_id[0] ? status->last_session_id : NULL);
	json_out_uint(json, "sessions", status->sessions);
	json_out_uint(json, "bytes", status->bytes);
	if (status->overhead_pct >= 0)
		json_out_real(json, "overheadPct", status->overhead_pct, 4);
	else
		json_out_null(json, "overheadPct");
	json_out_text(json, "refusal", status->refusal[0] ? status->refusal : NULL);
	json_out_close(json, '}');
	warnings_json(json, warnings);
	json_out_close(json, '}');
}

/* ---- body ------------------------------------------------------------------------------------ */

static int parse_types(const cJSON *body, uint32_t *ret, struct err *err)
{
	const cJSON *list = cJSON_GetObjectItemCaseSensitive(body, "profileTypes");
	uint32_t types = 0;

	if (!list || cJSON_IsNull(list))
		return 0;
	for (const cJSON *c = cJSON_IsArray(list) ? list->child : NULL; c; c = c->next) {
		enum profile_type type;

		if (!cJSON_IsString(c) || profile_type_parse(c->valuestring, &type) < 0)
			return err_set(err, EINVAL, "InvalidParam", "profileTypes",
				       "elements of profileTypes must be profile types");
		types |= 1u << type;
	}
	if (!types)
		return err_set(err, EINVAL, "InvalidParam", "profileTypes",
			       "member profileTypes must be a list of profile types, not empty");
	*ret = types;
	return 0;
}

static int parse_watch(const cJSON *body, struct continuous_setting *setting,
		       struct json_warnings *warnings, struct err *err)
{
	const cJSON *watch = cJSON_GetObjectItemCaseSensitive(body, "watch");
	const char *against = "", *webhook = "", *format = watch_format_word(WATCH_PLAIN);
	int rc;

	if (!watch || cJSON_IsNull(watch))
		return 0;
	if (!cJSON_IsObject(watch))
		return err_set(err, EINVAL, "InvalidParam", "watch",
			       "member watch must be an object with against and webhook");
	rc = json_in_text(watch, "against", true, sizeof(setting->watch_against) - 1, &against, err);
	if (rc == 0)
		rc = json_in_text(watch, "webhook", false, sizeof(setting->watch_webhook) - 1,
				  &webhook, err);
	if (rc == 0)
		rc = json_in_text(watch, "format", false, 32, &format, err);
	if (rc < 0)
		return rc;
	if (!watch_format_parse(format, &setting->watch_format))
		return err_set(err, EINVAL, "InvalidParam", "format",
			       "member format must be plain, alertmanager or cloudevents");
	if (*webhook && !text_begins(webhook, "https://") && !text_begins(webhook, "http://"))
		return err_set(err, EINVAL, "InvalidParam", "webhook",
			       "member webhook must be an http or https address");
	if (!text_begins(against, "bl-") && strcmp(against, "previous-version") != 0 &&
	    strcmp(against, "history") != 0)
		return err_set(err, EINVAL, "InvalidParam", "against",
			       "member against must be the id of a baseline, previous-version or "
			       "history");
	(void)snprintf(setting->watch_against, sizeof(setting->watch_against), "%s", against);
	(void)snprintf(setting->watch_webhook, sizeof(setting->watch_webhook), "%s", webhook);
	json_in_unknown(watch, "against webhook format", warnings);
	return 0;
}

static int parse_setting(const cJSON *body, struct continuous_setting *setting,
			 struct json_warnings *warnings, struct err *err)
{
	uint64_t rate_hz = RATE_DEFAULT_HZ, days = RETENTION_DEFAULT_DAYS;
	const char *service = "";
	int rc = json_in_text(body, "service", true, SERVICE_NAME_SIZE - 1, &service, err);

	setting->types = 1u << PROFILE_CPU;
	setting->enabled = true;
	if (rc == 0)
		rc = parse_types(body, &setting->types, err);
	if (rc == 0)
		rc = json_in_uint(body, "sampleRate", false, 1, 1000, &rate_hz, err);
	if (rc == 0)
		rc = json_in_uint(body, "retentionDays", false, 1, RETENTION_MAX_DAYS, &days, err);
	if (rc == 0)
		rc = json_in_bool(body, "enabled", &setting->enabled, err);
	if (rc == 0)
		rc = parse_watch(body, setting, warnings, err);
	if (rc < 0)
		return rc;
	(void)snprintf(setting->service, sizeof(setting->service), "%s", service);
	setting->rate_hz = (uint32_t)rate_hz;
	setting->retention_days = (uint32_t)days;
	/* A client may send back all that it read. */
	json_in_unknown(body, "service profileTypes sampleRate retentionDays enabled watch tenant "
			      "createdAt updatedAt status", warnings);
	return 0;
}

/* One that is gone, or of something else, would be watched against in silence. */
static int check_against(struct http_call *call, const struct continuous_setting *setting)
{
	struct baseline_info info = { 0 };
	int rc;

	if (!setting->enabled || !text_begins(setting->watch_against, "bl-"))
		return 0;
	rc = sessions_baseline_get(call->api->options.sessions, setting->tenant,
				   setting->watch_against, &info, call->err);
	if (rc == -ENOENT)
		return err_set(call->err, EINVAL, "InvalidParam", "against",
			       "there is no baseline %s", setting->watch_against);
	if (rc < 0)
		return rc;
	if (strcmp(setting->service, "*") != 0 && strcmp(setting->service, info.service) != 0)
		rc = err_set(call->err, EINVAL, "InvalidParam", "against",
			     "baseline %s is of the service %s", info.id, info.service);
	else if (!(setting->types >> info.type & 1))
		rc = err_set(call->err, EINVAL, "InvalidParam", "against",
			     "baseline %s is of type %s, which is none of profileTypes", info.id,
			     profile_type_info(info.type)->word);
	baseline_info_deinit(&info);
	return rc;
}

/* The agent posts to a webhook from inside of the network, so an administrator sets it unless the
 * configuration lets others. The one that is set already stays for all, also as it is shown. */
static int check_webhook(struct http_call *call, struct continuous_setting *setting)
{
	const bool open = call->api->options.open_webhooks;
	char shown[PUSH_SHOWN_SIZE];
	struct continuous_info now;

	if (!setting->watch_webhook[0])
		return 0;
	if (sessions_continuous_get(call->api->options.sessions, setting->tenant, setting->service,
				    &now, NULL) == 0 &&
	    now.setting.watch_webhook[0]) {
		push_show_url(now.setting.watch_webhook, shown);
		if (strcmp(setting->watch_webhook, shown) == 0)
			memcpy(setting->watch_webhook, now.setting.watch_webhook,
			       sizeof(setting->watch_webhook));
		if (strcmp(setting->watch_webhook, now.setting.watch_webhook) == 0)
			return 0;
	}
	if (call->request->role >= (open ? HTTP_ROLE_PROFILE : HTTP_ROLE_ADMIN))
		return 0;
	return err_set(call->err, EACCES, "Forbidden", "webhook",
		       "a webhook is set by the role admin, as profctl does as root; [continuous] "
		       "open_webhooks = yes lets the role profile");
}

/* Warns of a name that no process and nothing in the store has: it may be misspelt. Aliases and
 * patterns are no names. */
static int warn_unknown(struct http_call *call, const struct continuous_setting *setting,
			struct json_warnings *warnings)
{
	__attribute__((__cleanup__(service_list_deinit))) struct service_list list = { 0 };
	int rc;

	if (strpbrk(setting->service, "*?[:") || strcmp(setting->service, "host") == 0)
		return 0;
	rc = sessions_services(call->api->options.sessions, setting->tenant, &list, call->err);
	for (uint32_t i = 0; rc == 0 && i < list.count; i++)
		if (strcmp(list.items[i].name, setting->service) == 0)
			return 0;
	if (rc == 0)
		rc = sessions_service_is_stored(call->api->options.sessions, setting->tenant,
						setting->service, call->err);
	if (rc == 0)
		json_warn(warnings,
			  "no service '%.64s' is known here; it is profiled as soon as one of that name runs",
			  setting->service);
	return rc < 0 ? rc : 0;
}

/* ---- handlers -------------------------------------------------------------------------------- */

int handle_put_continuous(struct http_call *call)
{
	struct continuous_setting setting = { 0 };
	struct continuous_info info;
	struct json_warnings warnings = { 0 };
	struct json_out json = json_out_to(&call->answer->body);
	cleanup(json) cJSON *body = NULL;
	int rc = json_in_object(call->request->body, call->request->body_len, &body, call->err);

	if (rc == 0)
		rc = parse_setting(body, &setting, &warnings, call->err);
	if (rc < 0)
		return rc;
	memcpy(setting.tenant, call->request->tenant, sizeof(setting.tenant));
	rc = check_webhook(call, &setting);
	if (rc == 0)
		rc = check_against(call, &setting);
	if (rc == 0)
		rc = warn_unknown(call, &setting, &warnings);
	if (rc < 0)
		return rc;
	rc = sessions_continuous_put(call->api->options.sessions, &setting, &info, call->err);
	if (rc < 0)
		return rc;
	info_json(&json, &info, &warnings);
	call->answer->content_type = "application/json";
	call->answer->no_store = true;
	return 0;
}

int handle_list_continuous(struct http_call *call)
{
	struct continuous_list list = { 0 };
	struct json_out json = json_out_to(&call->answer->body);
	int rc = sessions_continuous_list(call->api->options.sessions, call->request->tenant, &list,
					  call->err);

	if (rc < 0)
		return rc;
	json_out_open(&json, NULL, '{');
	json_out_open(&json, "items", '[');
	for (uint32_t i = 0; i < list.count; i++)
		info_json(&json, &list.items[i], NULL);
	json_out_close(&json, ']');
	json_out_null(&json, "nextCursor");
	json_out_uint(&json, "total", list.count);
	json_out_close(&json, '}');
	call->answer->content_type = "application/json";
	continuous_list_deinit(&list);
	return 0;
}

int handle_get_continuous(struct http_call *call)
{
	struct continuous_info info;
	struct json_out json = json_out_to(&call->answer->body);
	int rc = sessions_continuous_get(call->api->options.sessions, call->request->tenant,
					 call->request->path[0], &info, call->err);

	if (rc < 0)
		return rc;
	info_json(&json, &info, NULL);
	call->answer->content_type = "application/json";
	return 0;
}

int handle_delete_continuous(struct http_call *call)
{
	call->answer->status = 204;
	call->answer->no_store = true;
	return sessions_continuous_delete(call->api->options.sessions, call->request->tenant,
					  call->request->path[0], call->err);
}
