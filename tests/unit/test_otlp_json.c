// SPDX-License-Identifier: Apache-2.0
/* OTLP profiles in JSON become protobuf: the forms that the JSON mapping allows, and what is
 * refused. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "api/receive/otlp_json.h"

#define BYTES_MAX 4096u

/* Protobuf bytes as hexadecimal digits. The length of a message always has four bytes. */
static char *read_json(const char *text)
{
	cleanup_buf struct buf bytes = { .max = BYTES_MAX }, hex = { 0 };
	struct err err = { 0 };

	if (otlp_json_read(text, strlen(text), &bytes, &err) != 0)
		fail_msg("%s: %s", text, err.text);
	for (size_t i = 0; i < bytes.len; i++)
		buf_printf(&hex, "%02x", (unsigned char)bytes.data[i]);
	buf_add_char(&hex, '\0');
	return buf_take(&hex, NULL);
}

static void check(const char *text, const char *expected)
{
	cleanup_free char *hex = read_json(text);

	assert_string_equal(hex, expected);
}

/* A sample of one profile of one scope of one resource, with @fields. */
static void check_sample(const char *fields, const char *expected)
{
	static const char begin[] = "{\"resourceProfiles\":[{\"scopeProfiles\":[{"
				    "\"profiles\":[{\"samples\":[{",
			  end[] = "}]}]}]}]}";
	cleanup_buf struct buf text = { 0 };
	cleanup_free char *hex = NULL;

	buf_printf(&text, "%s%s%s%c", begin, fields, end, '\0');
	hex = read_json(text.data);
	assert_true(strlen(hex) >= 40);
	assert_string_equal(hex + 40, expected);
}

static void test_forms(void **state)
{
	check("{}", "");
	check(" {\n\t} ", "");
	check("{\"resourceProfiles\":[]}", "");
	check("{\"resourceProfiles\":[{},{}]}", "0a808080000a80808000");
	check("{\"resourceProfiles\":null,\"dictionary\":{}}", "1280808000");
	check("{\"dictionary\":{\"stringTable\":[\"\",\"a\\\"\\u00e9\\ud83d\\ude00\\n\"]}}",
	      "12938080002a808080002a89808000"
	      "6122c3a9f09f98800a");
	/* a name may be escaped, too */
	check("{\"dictionar\\u0079\":{\"linkTable\":[{\"traceId\":\"0aFF\",\"spanId\":\"\"}]}}",
	      "128b80800022868080000a020aff1200");
}

static void test_unknown_names(void **state)
{
	check("{\"x\":{\"resourceProfiles\":[1,{\"]\":\"}\\\\\\\"\"},[[]]]},"
	      "\"\":-1e9,\"y\":true,\"z\":\"\"}",
	      "");
	check("{\"resource_profiles\":[{}]}", ""); /* names of the schema are none of its JSON */
	check("{\"a_name_that_is_much_longer_than_any_that_is_known_\\u0041_0123456789_01234\":1}",
	      "");
}

static void test_numbers(void **state)
{
	check_sample("\"stackIndex\":5,\"linkIndex\":\"6\"", "08051806");
	check_sample("\"values\":[1,\"2\",3.0,4e2,\"5E0\"]", "2286808000010203900305");
	check_sample("\"values\":[9223372036854775807,\"-9223372036854775808\"]",
		     "2293808000ffffffffffffffff7f80808080808080808001");
	check_sample("\"timestampsUnixNano\":[\"18446744073709551615\",1]",
		     "2a90808000ffffffffffffffff0100000000000000");
	check_sample("\"values\":[]", "");
}

struct wrong {
	const char *text, *field;
};

static void test_refused(void **state)
{
	static const struct wrong rows[] = {
		{ "", "body" },
		{ "[]", "body" },
		{ "null", "body" },
		{ "{\"dictionary\":{}", "body" },
		{ "{\"dictionary\":{},}", "body" },
		{ "{} {}", "body" },
		{ "{\"dictionary\":[]}", "dictionary" },
		{ "{\"dictionary\":7}", "dictionary" },
		{ "{\"resourceProfiles\":{}}", "resourceProfiles" },
		{ "{\"resourceProfiles\":[null]}", "resourceProfiles" },
		{ "{\"dictionary\":{\"stringTable\":[1]}}", "stringTable" },
		{ "{\"dictionary\":{\"stringTable\":[\"\\ud83d\"]}}", "stringTable" },
		{ "{\"dictionary\":{\"stringTable\":[\"\\ud83dx\"]}}", "stringTable" },
		{ "{\"dictionary\":{\"stringTable\":[\"\\ude00\\ud83d\"]}}", "stringTable" },
		{ "{\"dictionary\":{\"stringTable\":[\"\\ud83d\\u0041\"]}}", "stringTable" },
		{ "{\"dictionary\":{\"stringTable\":[\"\\u0000\"]}}", "body" },
		{ "{\"dictionary\":{\"stringTable\":[\"\xff\"]}}", "body" },
		/* base64, as other messages of protobuf have it */
		{ "{\"dictionary\":{\"linkTable\":[{\"traceId\":\"AAECAwQFBgcICQoLDA0ODw==\"}]}}", "traceId" },
		{ "{\"dictionary\":{\"linkTable\":[{\"spanId\":\"012\"}]}}", "spanId" },
		{ "{\"dictionary\":{\"linkTable\":[{\"spanId\":12}]}}", "spanId" },
		{ "{\"dictionary\":{\"stackTable\":[{\"locationIndices\":1}]}}", "locationIndices" },
		{ "{\"dictionary\":{\"stackTable\":[{\"locationIndices\":[\"\"]}]}}", "locationIndices" },
		{ "{\"dictionary\":{\"stackTable\":[{\"locationIndices\":[\"0x1\"]}]}}", "locationIndices" },
		{ "{\"dictionary\":{\"stackTable\":[{\"locationIndices\":[\"nan\"]}]}}", "locationIndices" },
		{ "{\"dictionary\":{\"stackTable\":[{\"locationIndices\":[\" 1\"]}]}}", "locationIndices" },
		{ "{\"dictionary\":{\"stackTable\":[{\"locationIndices\":[\"+1\"]}]}}", "locationIndices" },
		{ "{\"dictionary\":{\"stackTable\":[{\"locationIndices\":[\"-\"]}]}}", "locationIndices" },
		{ "{\"dictionary\":{\"stackTable\":[{\"locationIndices\":[1.5]}]}}", "locationIndices" },
		{ "{\"dictionary\":{\"stackTable\":[{\"locationIndices\":[1e99]}]}}", "locationIndices" },
		{ "{\"dictionary\":{\"stackTable\":[{\"locationIndices\":[9223372036854775808]}]}}",
		  "locationIndices" },
		{ "{\"dictionary\":{\"stackTable\":[{\"locationIndices\":[true]}]}}", "locationIndices" },
		{ "{\"dictionary\":{\"locationTable\":[{\"address\":-1}]}}", "address" },
		{ "{\"dictionary\":{\"locationTable\":[{\"address\":\"-1e0\"}]}}", "address" },
		{ "{\"dictionary\":{\"locationTable\":[{\"address\":18446744073709551616}]}}", "address" },
		{ "{\"dictionary\":{\"attributeTable\":[{\"value\":{\"boolValue\":1}}]}}", "boolValue" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup_buf struct buf bytes = { .max = BYTES_MAX };
		struct err err = { 0 };

		if (otlp_json_read(rows[i].text, strlen(rows[i].text), &bytes, &err) != -EINVAL ||
		    strcmp(err.word, "InvalidBody") != 0 || strcmp(err.field, rows[i].field) != 0)
			fail_msg("%s: %s", rows[i].text, err.text);
	}
}

/* Lists of empty messages are longer in protobuf than in JSON. */
static void test_too_large(void **state)
{
	cleanup_buf struct buf bytes = { .max = BYTES_MAX }, text = { 0 };
	struct err err = { 0 };

	buf_add_str(&text, "{\"resourceProfiles\":[{}");
	for (unsigned i = 0; i < BYTES_MAX / 4; i++)
		buf_add_str(&text, ",{}");
	buf_add_str(&text, "]}");
	assert_int_equal(otlp_json_read(text.data, text.len, &bytes, &err), -E2BIG);
	assert_string_equal(err.word, "BodyTooLarge");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forms),	cmocka_unit_test(test_unknown_names),
		cmocka_unit_test(test_numbers), cmocka_unit_test(test_refused),
		cmocka_unit_test(test_too_large),
	};

	return cmocka_run_group_tests_name("otlp json", tests, NULL, NULL);
}
