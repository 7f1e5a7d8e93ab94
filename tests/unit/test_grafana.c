// SPDX-License-Identifier: Apache-2.0
/* Label selectors, profile type ids and requests, without a daemon. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "api/grafana/messages.h"
#include "api/grafana/selector.h"
#include "api/grafana/type_ids.h"
#include "api/http/compress.h"
#include "api/render/proto.h"

static int test_one(const char *text, const char *value)
{
	struct label_selector selector;
	struct err err = { 0 };
	int rc = selector_read(text, "labelSelector", &selector, &err);

	if (rc < 0) {
		assert_string_equal(err.field, "labelSelector");
		assert_true(strlen(err.text) > 20);
		return rc;
	}
	rc = selector.count ? matcher_test(&selector, &selector.items[0], value, &err) : 1;
	label_selector_deinit(&selector);
	return rc;
}

static void test_matchers(void **state)
{
	static const struct {
		const char *text, *value;
		int verdict;
	} cases[] = {
		{ "", "x", 1 },
		{ " { } ", "x", 1 },
		{ "{a=\"x\"}", "x", 1 },
		{ "{a = 'x',}", "y", 0 },
		{ "{a!=`x`}", "x", 0 },
		{ "{a!=\"x\"}", "", 1 },
		{ "{a=~\"x|yz\"}", "yz", 1 },
		{ "{a=~\"x|yz\"}", "yzz", 0 }, /* the whole value */
		{ "{a=~\"y\"}", "xyz", 0 },
		{ "{a=~\"(?i)X.*\"}", "xyz", 1 },
		{ "{a!~\"w-[0-9]+\"}", "w-17", 0 },
		{ "{a=~\"\"}", "", 1 },
		{ "{\"a.b-c\"=\"\\x41\\u00e4\\n\"}", "A\xc3\xa4\n", 1 },
		{ "{a=`\\d`}", "\\d", 1 },
		{ "{a=~\"\\\\d+\"}", "12", 1 },
		{ "{a=~\"x.\"}", "x\xff", 0 }, /* no UTF-8 */
		{ "{a", "x", -EINVAL },
		{ "{a=x}", "x", -EINVAL },
		{ "{a=\"x\"} b", "x", -EINVAL },
		{ "{a=\"x\" b=\"y\"}", "x", -EINVAL },
		{ "{a==\"x\"}", "x", -EINVAL },
		{ "{1a=\"x\"}", "x", -EINVAL },
		{ "{a=\"\\q\"}", "x", -EINVAL },
		{ "{a=\"\\xff\"}", "x", -EINVAL },
		{ "{a=~\"(\"}", "x", -EINVAL },
		{ "{a=~\"\\\\C\"}", "x", -EINVAL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		if (test_one(cases[i].text, cases[i].value) != cases[i].verdict)
			fail_msg("%s and %s: %d", cases[i].text, cases[i].value,
				 test_one(cases[i].text, cases[i].value));
}

/* Backtracking takes time without end: the steps of one match are bounded. */
static void test_hostile_pattern(void **state)
{
	struct label_selector selector;
	struct err err = { 0 };
	char many[2200];

	(void)state;
	assert_int_equal(test_one("{a=~\"(([a-z]|[a-z])*)*[!?]\"}",
				  "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"),
			 -EINVAL);
	(void)snprintf(many, sizeof(many), "{a=~\"%0*d\"}", (int)SELECTOR_PATTERN_MAX + 1, 0);
	assert_int_equal(test_one(many, "x"), -EINVAL);
	strcpy(many, "{");
	for (unsigned i = 0; i <= SELECTOR_MATCHERS_MAX; i++)
		strcat(many, "a=\"\",");
	strcat(many, "}");
	assert_int_equal(selector_read(many, "labelSelector", &selector, &err), -EINVAL);
}

static void test_type_ids(void **state)
{
	char text[TYPE_ID_SIZE];
	struct type_id id;

	(void)state;
	for (unsigned type = 0; type < PROFILE_TYPE_MAX; type++) {
		for (unsigned v = 0; v < profile_type_info((enum profile_type)type)->value_count;
		     v++) {
			type_id_text((struct type_id){ (enum profile_type)type, v }, text);
			assert_int_equal(type_id_parse(text, &id), 0);
			assert_true(id.type == (enum profile_type)type && id.value == v);
		}
	}
	assert_int_equal(type_id_parse("memory:inuse_space:bytes:space:bytes", &id), 0);
	assert_true(id.type == PROFILE_MEMORY && id.value == 1);
	assert_int_equal(type_id_parse("mutex:delay:nanoseconds:contentions:count:delta", &id), 0);
	assert_int_equal(type_id_parse("process_cpu:cpu:nanoseconds", &id), -EINVAL);
	assert_int_equal(type_id_parse("process_cpu:cpu:bytes:cpu:nanoseconds", &id), -EINVAL);
	assert_int_equal(type_id_parse("", &id), -EINVAL);
}

/* The same request in both forms, with a field that nobody knows. */
static void test_requests(void **state)
{
	static const char json[] =
		"{\"profile_typeID\":\"a\",\"labelSelector\":\"{}\",\"start\":\"5\",\"end\":6,"
		"\"groupBy\":[\"x\",\"y\"],"
		"\"step\":1.5,\"stackTraceSelector\":{\"callSite\":[{\"name\":\"main\"}]},\"other\":[1]}";
	const struct querier_call *call = querier_call_find("SelectSeries");
	cleanup_buf struct buf proto = { 0 }, part = { 0 }, inner = { 0 };
	struct querier_request requests[2];
	struct err err = { 0 };
	uint64_t bits;

	(void)state;
	memcpy(&bits, &(double){ 1.5 }, sizeof(bits));
	proto_text(&proto, 1, "a");
	proto_text(&proto, 2, "{}");
	proto_uint(&proto, 3, 5);
	proto_uint(&proto, 4, 6);
	proto_text(&proto, 5, "x");
	proto_text(&proto, 5, "y");
	proto_fixed64(&proto, 6, bits);
	proto_text(&inner, 1, "main");
	proto_message(&part, 1, &inner);
	proto_message(&proto, 8, &part);
	proto_text(&proto, 99, "?");
	assert_int_equal(querier_request_read(call->request, false, proto.data, proto.len,
					      &requests[0], &err),
			 0);
	assert_int_equal(
		querier_request_read(call->request, true, json, strlen(json), &requests[1], &err),
		0);
	for (int i = 0; i < 2; i++) {
		assert_string_equal(requests[i].type_id, "a");
		assert_string_equal(requests[i].selector, "{}");
		assert_true(requests[i].start_ms == 5 && requests[i].end_ms == 6 &&
			    requests[i].step_s == 1.5);
		assert_int_equal(requests[i].group_by.count, 2);
		assert_string_equal(requests[i].group_by.items[1], "y");
		assert_string_equal(requests[i].call_site.items[0], "main");
		querier_request_deinit(&requests[i]);
	}
	/* every cut is refused, or is a shorter message */
	for (size_t len = 0; len < proto.len; len++)
		if (querier_request_read(call->request, false, proto.data, len, &requests[0],
					 &err) == 0)
			querier_request_deinit(&requests[0]);
	assert_null(querier_call_find("SelectHeatmap"));
}

static void test_gunzip(void **state)
{
	cleanup_buf struct buf packed = { 0 }, out = { 0 };

	(void)state;
	assert_int_equal(compress_gzip("hello ", 6, 1, &packed), 0);
	assert_int_equal(compress_gzip("world", 5, 9, &packed), 0);
	assert_int_equal(compress_gunzip(packed.data, packed.len, 11, &out), 0);
	assert_memory_equal(out.data, "hello world", 11);
	out.len = 0;
	assert_int_equal(compress_gunzip(packed.data, packed.len, 10, &out), -EFBIG);
	assert_int_equal(compress_gunzip(packed.data, packed.len - 1, 100, &out), -EPROTO);
	assert_int_equal(compress_gunzip("x", 1, 100, &out), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_matchers), cmocka_unit_test(test_hostile_pattern),
		cmocka_unit_test(test_type_ids), cmocka_unit_test(test_requests),
		cmocka_unit_test(test_gunzip),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
