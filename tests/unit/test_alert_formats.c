// SPDX-License-Identifier: Apache-2.0
/* Findings as the messages of their receivers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <cjson/cJSON.h>

#include "agent/session/watch/alert_formats.h"

#define AT_NS	  1768464000000000000ull /* 2026-01-15T08:00:00Z */
#define CLOSED_NS (AT_NS + 3600000000000ull)

static struct finding_info finding(bool closed)
{
	struct finding_info info = { .id = "fnd-1",
				     .tenant = "default",
				     .service = "a\"b",
				     .host = "h",
				     .type = PROFILE_CPU,
				     .against = "history",
				     .at_ns = AT_NS,
				     .closed_at_ns = closed ? CLOSED_NS : 0,
				     .comparison = (char *)"{\"summary\":\"slower\"}" };

	return info;
}

static cJSON *message(enum watch_format format, bool closed)
{
	struct finding_info info = finding(closed);
	char *text = alert_message(&info, format);
	cJSON *json = cJSON_Parse(text);

	assert_non_null(json);
	free(text);
	return json;
}

static const char *text_of(const cJSON *json, const char *name)
{
	return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(json, name));
}

static void test_alertmanager(void **state)
{
	cJSON *open = message(WATCH_ALERTMANAGER, false),
	      *closed = message(WATCH_ALERTMANAGER, true);
	const cJSON *labels = cJSON_GetObjectItem(open->child, "labels");

	(void)state;
	assert_int_equal(cJSON_GetArraySize(open), 1);
	assert_string_equal(text_of(labels, "alertname"), "ProfdFinding");
	assert_string_equal(text_of(labels, "service"), "a\"b");
	assert_string_equal(text_of(cJSON_GetObjectItem(open->child, "annotations"), "summary"),
			    "slower");
	assert_string_equal(text_of(open->child, "startsAt"), "2026-01-15T08:00:00.000Z");
	/* it fires until it is closed: nobody repeats it */
	assert_true(strcmp(text_of(open->child, "endsAt"), "2027-01-01") > 0);
	assert_string_equal(text_of(closed->child, "endsAt"), "2026-01-15T09:00:00.000Z");
	/* the same labels: Alertmanager knows it again */
	assert_true(cJSON_Compare(labels, cJSON_GetObjectItem(closed->child, "labels"), true));
	cJSON_Delete(open);
	cJSON_Delete(closed);
}

static void test_cloudevents(void **state)
{
	cJSON *open = message(WATCH_CLOUDEVENTS, false), *closed = message(WATCH_CLOUDEVENTS, true);

	(void)state;
	assert_string_equal(text_of(open, "specversion"), "1.0");
	assert_string_equal(text_of(open, "id"), "fnd-1-opened");
	assert_string_equal(text_of(closed, "id"), "fnd-1-closed");
	assert_string_equal(text_of(closed, "type"), "profd.finding.closed");
	assert_string_equal(text_of(closed, "time"), "2026-01-15T09:00:00.000Z");
	assert_string_equal(text_of(cJSON_GetObjectItem(open, "data"), "state"), "open");
	assert_string_equal(alert_content_type(WATCH_CLOUDEVENTS), "application/cloudevents+json");
	cJSON_Delete(open);
	cJSON_Delete(closed);
}

static void test_addresses(void **state)
{
	static const struct {
		const char *webhook, *address;
	} cases[] = {
		{ "http://a:9093", "http://a:9093/api/v2/alerts" },
		{ "http://a:9093/", "http://a:9093/api/v2/alerts" },
		{ "https://a/am/api/v2/alerts", "https://a/am/api/v2/alerts" },
	};
	enum watch_format format = WATCH_FORMATS;
	char *plain = alert_address("http://a/", WATCH_PLAIN);

	(void)state;
	assert_string_equal(plain, "http://a/");
	free(plain);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char *address = alert_address(cases[i].webhook, WATCH_ALERTMANAGER);

		assert_string_equal(address, cases[i].address);
		free(address);
	}
	for (unsigned i = 0; i < WATCH_FORMATS; i++) {
		assert_true(watch_format_parse(watch_format_word((enum watch_format)i), &format));
		assert_int_equal(format, i);
	}
	assert_false(watch_format_parse("", &format));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_alertmanager),
		cmocka_unit_test(test_cloudevents),
		cmocka_unit_test(test_addresses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
