// SPDX-License-Identifier: Apache-2.0
#include "agent/session/watch/alert_formats.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/buf.h"
#include "agent/base/clock.h"
#include "agent/session/records/record_json.h"

#define ALERTS_PATH "/api/v2/alerts"
#define KEPT_NS	    (400ull * 86400 * NS_PER_S)

static void add_time(cJSON *to, const char *name, uint64_t time_ns)
{
	char text[CLOCK_RFC3339_SIZE];

	clock_format_rfc3339(time_ns, text);
	(void)cJSON_AddStringToObject(to, name, text);
}

static const char *summary_of(const cJSON *comparison)
{
	const char *text =
		cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(comparison, "summary"));

	return text ? text : "the watch of continuous profiling found a change";
}

static void add_labels(cJSON *alert, const struct finding_info *info)
{
	cJSON *labels = cJSON_AddObjectToObject(alert, "labels");

	(void)cJSON_AddStringToObject(labels, "alertname", "ProfdFinding");
	(void)cJSON_AddStringToObject(labels, "severity", "warning");
	(void)cJSON_AddStringToObject(labels, "service", info->service);
	(void)cJSON_AddStringToObject(labels, "host", info->host);
	(void)cJSON_AddStringToObject(labels, "tenant", info->tenant);
	(void)cJSON_AddStringToObject(labels, "profile_type", profile_type_info(info->type)->word);
	(void)cJSON_AddStringToObject(labels, "against", info->against);
	(void)cJSON_AddStringToObject(labels, "finding", info->id);
}

static char *alertmanager(const struct finding_info *info)
{
	cleanup(json) cJSON *list = cJSON_CreateArray();
	cleanup(json) cJSON *comparison = cJSON_Parse(info->comparison);
	cJSON *alert = cJSON_CreateObject(), *annotations;

	if (!list || !cJSON_AddItemToArray(list, alert)) {
		cJSON_Delete(alert);
		return NULL;
	}
	add_labels(alert, info);
	annotations = cJSON_AddObjectToObject(alert, "annotations");
	(void)cJSON_AddStringToObject(annotations, "summary", summary_of(comparison));
	add_time(alert, "startsAt", info->at_ns);
	add_time(alert, "endsAt", info->closed_at_ns ? info->closed_at_ns : info->at_ns + KEPT_NS);
	return cJSON_PrintUnformatted(list);
}

static char *cloud_event(const struct finding_info *info)
{
	const char *state = info->closed_at_ns ? "closed" : "opened";
	cleanup(json) cJSON *event = cJSON_CreateObject();
	cleanup_free char *finding = finding_json(info);
	char text[SERVICE_NAME_SIZE];

	if (!event || !finding)
		return NULL;
	(void)cJSON_AddStringToObject(event, "specversion", "1.0");
	(void)snprintf(text, sizeof(text), "%s-%s", info->id, state);
	(void)cJSON_AddStringToObject(event, "id", text);
	(void)snprintf(text, sizeof(text), "/profd/%s", info->host);
	(void)cJSON_AddStringToObject(event, "source", text);
	(void)snprintf(text, sizeof(text), "profd.finding.%s", state);
	(void)cJSON_AddStringToObject(event, "type", text);
	(void)cJSON_AddStringToObject(event, "subject", info->service);
	add_time(event, "time", info->closed_at_ns ? info->closed_at_ns : info->at_ns);
	(void)cJSON_AddStringToObject(event, "datacontenttype", "application/json");
	(void)cJSON_AddRawToObject(event, "data", finding);
	return cJSON_PrintUnformatted(event);
}

char *alert_message(const struct finding_info *info, enum watch_format format)
{
	switch (format) {
	case WATCH_ALERTMANAGER:
		return alertmanager(info);
	case WATCH_CLOUDEVENTS:
		return cloud_event(info);
	default:
		return finding_json(info);
	}
}

const char *alert_content_type(enum watch_format format)
{
	return format == WATCH_CLOUDEVENTS ? "application/cloudevents+json" : "application/json";
}

char *alert_address(const char *webhook, enum watch_format format)
{
	size_t len = strlen(webhook), path = strlen(ALERTS_PATH);
	struct buf address = { 0 };

	if (format != WATCH_ALERTMANAGER ||
	    (len >= path && strcmp(webhook + len - path, ALERTS_PATH) == 0))
		return strdup(webhook);
	while (len && webhook[len - 1] == '/')
		len--;
	buf_add(&address, webhook, len);
	buf_add_str(&address, ALERTS_PATH);
	return buf_take(&address, NULL);
}
