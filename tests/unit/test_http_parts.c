// SPDX-License-Identifier: Apache-2.0
/* The pure parts of the HTTP side: query strings, JSON in and out, content negotiation, error
 * documents. */
#include <errno.h>
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/base/io.h"
#include "agent/profile/profile.h"
#include "api/breakdown.h"
#include "api/http/compress.h"
#include "api/http/http.h"
#include "api/http/http_error.h"
#include "api/http/json_in.h"
#include "api/http/json_out.h"
#include "api/render/negotiate.h"
#include "api/http/query.h"

#define NOW_NS (1768464000 * NS_PER_S)

static const struct query_spec specs[] = {
	{ .name = "limit", .alias = "size", .type = QUERY_UINT, .min = 1, .max = 100 },
	{ .name = "from", .type = QUERY_TIME },
	{ .name = "wait", .type = QUERY_BOOL },
	{ .name = "step", .type = QUERY_DURATION, .min = 60, .max = 3600 },
	{ .name = "metric", .type = QUERY_WORD, .words = "self_pct cumulative_pct" },
	{ .name = "profileType", .type = QUERY_PROFILE_TYPE },
	{ .name = "threshold", .type = QUERY_NUMBER, .min = 0, .max = 100 },
	{ .name = "name", .type = QUERY_TEXT, .min = 1, .max = 8 },
	{ .name = "where", .type = QUERY_TEXT, .flags = QUERY_REPEATED },
	{ .name = "state", .type = QUERY_WORD, .words = "on off", .flags = QUERY_EMPTY },
	{ .name = "by", .type = QUERY_WORDS, .words = "pid tid" },
	{ 0 },
};

static void test_query_refusals(void **state)
{
	static const struct {
		const char *raw, *field;
	} rows[] = {
		{ "limit=0", "limit" },
		{ "limit=101", "limit" },
		{ "limit=", "limit" },
		{ "limit", "limit" },
		{ "limit=1.5", "limit" },
		{ "limit=-1", "limit" },
		{ "limit=+1", "limit" },
		{ "limit=0x10", "limit" },
		{ "limit=99999999999999999999", "limit" },
		{ "limit=1&limit=2", "limit" },
		{ "limit=1&size=2", "limit" },
		{ "from=yesterday", "from" },
		{ "from=now-", "from" },
		{ "from=-1", "from" },
		{ "wait=maybe", "wait" },
		{ "step=5", "step" },
		{ "step=59s", "step" },
		{ "step=2h", "step" },
		{ "metric=self", "metric" },
		{ "metric=self_pct%20cumulative_pct", "metric" },
		{ "state=o", "state" },
		{ "by=", "by" },
		{ "by=nix", "by" },
		{ "by=pid,", "by" },
		{ "by=,pid", "by" },
		{ "by=pid%20tid", "by" },
		{ "by=pid,tidy", "by" },
		{ "profileType=banana", "profileType" },
		{ "profileType=CPU", "profileType" },
		{ "threshold=nan", "threshold" },
		{ "threshold=101", "threshold" },
		{ "name=", "name" },
		{ "name=123456789", "name" },
		{ "name=%zz", "name" },
		{ "name=%4", "name" },
		{ "name=%", "name" },
		{ "name=%00", "name" },
		{ "name=a%0ab", "name" },
		{ "name=%ff", "name" },
		{ "name=%c0%80", "name" },
		{ "name=%ed%a0%80", "name" },
		{ "nope=1", "nope" },
		{ "Limit=1", "Limit" },
		{ "%6cimi%zz=1", "query" },
		{ "=1", "" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct query query = { .count = 77 };
		struct err err = { 0 };

		if (query_parse(rows[i].raw, specs, NOW_NS, &query, &err) != -EINVAL)
			fail_msg("%s was accepted", rows[i].raw);
		if (strcmp(err.field, rows[i].field) != 0)
			fail_msg("%s: names %s", rows[i].raw, err.field);
		assert_string_equal(err.word, "InvalidParam");
		assert_int_equal(query.count, 77);
	}
}

static void test_query_values(void **state)
{
	cleanup_free char *long_value = NULL;
	struct query query;
	struct err err = { 0 };

	(void)state;
	assert_int_equal(query_parse("size=7&from=now-1h&wait=false&step=5m&metric=self_pct&"
				     "profileType=heap&threshold=0.5&name=a%2Fb+c&where=a:b&where=c:d&",
				     specs, NOW_NS, &query, &err),
			 0);
	assert_int_equal(query_uint(&query, "limit", 1), 7);
	assert_int_equal(query_uint(&query, "from", 1), NOW_NS - 3600 * NS_PER_S);
	assert_false(query_bool(&query, "wait", true));
	assert_int_equal(query_uint(&query, "step", 0), 300 * NS_PER_S);
	assert_int_equal(query_uint(&query, "profileType", 0), PROFILE_MEMORY);
	assert_true(query_number(&query, "threshold", 0) == 0.5);
	assert_string_equal(query_text(&query, "name", ""), "a/b c");
	assert_string_equal(query_nth(&query, "where", 1), "c:d");
	assert_null(query_nth(&query, "where", 2));
	assert_int_equal(query_uint(&query, "absent", 42), 42);
	query_deinit(&query);
	assert_int_equal(query_parse("by=tid,pid&state=", specs, NOW_NS, &query, &err), 0);
	assert_string_equal(query_text(&query, "by", ""), "tid,pid");
	query_deinit(&query);
	assert_int_equal(query_parse(NULL, specs, NOW_NS, &query, &err), 0);
	query_deinit(&query);
	assert_int_equal(query_parse("from=2026-01-15T08:00:00%2B01:00", specs, NOW_NS, &query, &err), 0);
	assert_int_equal(query_uint(&query, "from", 0), NOW_NS - 3600 * NS_PER_S);
	query_deinit(&query);
	long_value = malloc(QUERY_VALUE_MAX + 32);
	memset(long_value, 'a', QUERY_VALUE_MAX + 31);
	long_value[QUERY_VALUE_MAX + 31] = '\0';
	memcpy(long_value, "where=", 6);
	assert_int_equal(query_parse(long_value, specs, NOW_NS, &query, &err), -EINVAL);
}

static void test_json_refusals(void **state)
{
	static const char *const rows[] = {
		"",
		"nul",
		"{",
		"{}x",
		"[1,]",
		"{\"a\":1,}",
		"{\"a\" 1}",
		"{a:1}",
		"{'a':1}",
		"01",
		"+1",
		"1.",
		".5",
		"1e",
		"-",
		"NaN",
		"Infinity",
		"\"\\x\"",
		"\"\\u12g4\"",
		"\"\\u0000\"",
		"\"a\nb\"",
		"\"open",
		"\"\xff\"",
		"\"\xc0\xaf\"",
		"{\"a\":1}{\"b\":2}",
		"// comment\n1",
		"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]",
	};
	static const char *const fine[] = {
		"0", "-0.5e-3", "\"\\u00e9\\n\"", " [ 1 , { \"a\" : null } ] ", "{}", "[]", "true",
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct err err = { 0 };

		if (json_in_check(rows[i], strlen(rows[i]), &err) != -EINVAL)
			fail_msg("accepted: %s", rows[i]);
		assert_string_equal(err.word, "InvalidBody");
	}
	assert_int_equal(json_in_check("1\0", 2, NULL), -EINVAL);
	for (size_t i = 0; i < ARRAY_SIZE(fine); i++)
		if (json_in_check(fine[i], strlen(fine[i]), NULL) != 0)
			fail_msg("refused: %s", fine[i]);
}

static int parse(const char *text, cJSON **ret, struct err *err)
{
	*err = (struct err){ 0 };
	return json_in_object(text, strlen(text), ret, err);
}

static void test_json_members(void **state)
{
	cleanup(json) cJSON *body = NULL;
	struct json_warnings warnings = { 0 };
	enum profile_type type = PROFILE_IO;
	const char *text = "before";
	uint64_t number = 5;
	bool flag = false;
	struct err err;

	(void)state;
	assert_int_equal(parse("{\"a\":1,\"a\":2}", &body, &err), -EINVAL);
	assert_string_equal(err.field, "a");
	assert_int_equal(parse("{\"o\":{\"b\":1,\"b\":2}}", &body, &err), -EINVAL);
	assert_int_equal(parse("[1]", &body, &err), -EINVAL);
	assert_int_equal(parse("\"x\"", &body, &err), -EINVAL);
	assert_int_equal(parse("{\"s\":\"x\",\"n\":7,\"t\":\"12\",\"f\":1.5,\"b\":true,\"z\":null,"
			       "\"p\":\"heap\",\"big\":1e300,\"neg\":-1}",
			       &body, &err),
			 0);
	assert_int_equal(json_in_text(body, "s", true, 10, &text, &err), 0);
	assert_string_equal(text, "x");
	assert_int_equal(json_in_text(body, "n", true, 10, &text, &err), -EINVAL);
	assert_string_equal(err.field, "n");
	assert_string_equal(text, "x");
	assert_int_equal(json_in_text(body, "z", true, 10, &text, &err), -EINVAL);
	assert_int_equal(json_in_text(body, "z", false, 10, &text, &err), 0);
	assert_int_equal(json_in_text(body, "s", true, 0, &text, &err), -EINVAL);
	assert_int_equal(json_in_uint(body, "n", true, 1, 10, &number, &err), 0);
	assert_int_equal(number, 7);
	assert_int_equal(json_in_uint(body, "t", true, 1, 20, &number, &err), -EINVAL);
	assert_string_equal(err.field, "t");
	assert_int_equal(json_in_uint(body, "f", true, 1, 10, &number, &err), -EINVAL);
	assert_int_equal(json_in_uint(body, "big", true, 1, UINT64_MAX, &number, &err), -EINVAL);
	assert_int_equal(json_in_uint(body, "neg", true, 0, 10, &number, &err), -EINVAL);
	assert_int_equal(json_in_uint(body, "absent", false, 1, 10, &number, &err), 0);
	assert_int_equal(number, 7);
	assert_int_equal(json_in_bool(body, "b", &flag, &err), 0);
	assert_true(flag);
	assert_int_equal(json_in_bool(body, "n", &flag, &err), -EINVAL);
	assert_int_equal(json_in_type(body, "p", true, &type, &err), 0);
	assert_int_equal(type, PROFILE_MEMORY);
	json_in_unknown(body, "s n t f b z p big", &warnings);
	assert_int_equal(warnings.count, 1);
	assert_non_null(strstr(warnings.text[0], "neg"));
}

static void test_json_out(void **state)
{
	struct buf buf = { 0 };
	struct json_out json = json_out_to(&buf);

	(void)state;
	json_out_open(&json, NULL, '{');
	json_out_text(&json, "a", "x\"\\\n</script>&\xff\xe2\x80\xa8é");
	json_out_int(&json, "b", INT64_MIN);
	json_out_uint(&json, "c", UINT64_MAX);
	json_out_real(&json, "d", 12.5, 4);
	json_out_real(&json, "e", -0.00001, 2);
	json_out_real(&json, "f", NAN, 2);
	json_out_real(&json, "g", 100, 0);
	json_out_text(&json, "h", NULL);
	json_out_time(&json, "i", NOW_NS);
	json_out_key(&json, "k\"");
	json_out_open(&json, NULL, '[');
	json_out_bool(&json, NULL, true);
	json_out_null(&json, NULL);
	json_out_close(&json, ']');
	json_out_close(&json, '}');
	assert_string_equal(buf.data,
			    "{\"a\":\"x\\\"\\\\\\u000a\\u003c/script\\u003e\\u0026\\ufffd\\u2028é\","
			    "\"b\":-9223372036854775808,\"c\":18446744073709551615,\"d\":12.5,"
			    "\"e\":0,\"f\":null,\"g\":100,\"h\":null,"
			    "\"i\":\"2026-01-15T08:00:00.000Z\",\"k\\\"\":[true,null]}");
	buf_deinit(&buf);
}

static void test_negotiation(void **state)
{
	static const struct {
		const char *format, *accept, *chosen; /* NULL = refused */
	} rows[] = {
		{ NULL, NULL, "html" },
		{ NULL, "", "html" },
		{ NULL, "*/*", "html" },
		{ "svg", "application/json", "svg" },
		{ NULL, "application/json", "json" },
		{ NULL, "APPLICATION/JSON", "json" },
		{ NULL, "text/*", "html" },
		{ NULL, "image/*", "svg" },
		{ NULL, "application/json;q=0.5, image/svg+xml;q=0.8", "svg" },
		{ NULL, "text/html;q=0, */*;q=0.1", "svg" },
		{ NULL, "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "html" },
		{ NULL, "application/octet-stream", "pprof" },
		{ NULL, "text/csv", "csv" },
		{ NULL, "audio/ogg", NULL },
		{ NULL, "text/html;q=0", NULL },
		{ NULL, ",,;q=,", NULL },
		{ "exe", NULL, NULL },
		{ "", NULL, NULL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct render_format *format = NULL;
		struct err err = { 0 };
		int rc = negotiate_format(rows[i].format, rows[i].accept, &format, &err);

		if ((rc == 0) != (rows[i].chosen != NULL))
			fail_msg("%s / %s: %d", rows[i].format, rows[i].accept, rc);
		if (rc == 0 && strcmp(format->name, rows[i].chosen) != 0)
			fail_msg("%s / %s: %s", rows[i].format, rows[i].accept, format->name);
	}
}

static void test_gzip_negotiation(void **state)
{
	static const struct {
		const char *accept;
		bool packed;
	} rows[] = {
		{ NULL, false },		{ "", false },		 { "gzip", true },
		{ "GZIP", true },		{ "deflate, gzip", true }, { "br;q=1.0, gzip;q=0.8, *;q=0.1", true },
		{ "x-gzip", true },		{ "identity", false },	 { "gzip;q=0", false },
		{ "gzip ; q=0.0, deflate", false }, { "nogzip", false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (negotiate_gzip(rows[i].accept) != rows[i].packed)
			fail_msg("%s", rows[i].accept);
}

static void test_errors(void **state)
{
	static const struct {
		struct err err;
		int rc;
		unsigned status;
	} rows[] = {
		{ { .code = ENOENT, .word = "UnknownSession" }, -ENOENT, 404 },
		{ { .code = EBUSY, .word = "AlreadyRunning" }, -EBUSY, 409 },
		{ { .code = EINVAL }, -EINVAL, 400 },
		{ { 0 }, -ENOENT, 404 },
		{ { 0 }, -ENOMEM, 500 },
		{ { 0 }, -ENOSPC, 503 },
		{ { 0 }, -EFBIG, 422 },
		{ { .word = "NotInTheTable" }, -EINVAL, 500 },
	};
	struct err err = { .word = "InvalidParam", .field = "limit", .text = "a \"text\"" };
	struct buf out = { 0 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		assert_int_equal(http_error_of(&rows[i].err, rows[i].rc)->status, rows[i].status);
	http_error_body(http_error_of(&err, 0), &err, false, "r1", NULL, &out);
	assert_string_equal(out.data,
			    "{\"type\":\"about:blank\",\"title\":\"Bad Request\",\"status\":400,"
			    "\"detail\":\"a \\\"text\\\"\",\"message\":\"a \\\"text\\\"\","
			    "\"error_code\":\"InvalidParam\",\"details\":{\"field\":\"limit\"},"
			    "\"requestId\":\"r1\"}\n");
	buf_deinit(&out);
	http_error_body(http_error_of(&err, 0), &err, true, "r1", "{\"pipeline_name\":\"x\"}", &out);
	assert_string_equal(out.data, "{\"message\":\"a \\\"text\\\"\",\"error_code\":\"InvalidParam\","
				      "\"details\":{\"pipeline_name\":\"x\"}}\n");
	buf_deinit(&out);
}

/* Small answers are held, large ones lie in a file; either way nothing is left behind. */
static void test_large_answers(void **state)
{
	static const size_t sizes[] = { 0, 1000, HTTP_ANSWER_HELD - 1, HTTP_ANSWER_HELD,
					3 * HTTP_ANSWER_HELD + 5 };
	char line[1000];

	(void)state;
	memset(line, 'x', sizeof(line));
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		_Atomic uint64_t files = 0;
		struct http_answer answer = { 0 };
		bool large = sizes[i] >= HTTP_ANSWER_HELD;
		cleanup_free char *back = NULL;
		size_t len = 0;

		http_answer_stream(&answer, "/tmp", &files);
		for (size_t done = 0; done < sizes[i];) {
			size_t part = sizes[i] - done < sizeof(line) ? sizes[i] - done : sizeof(line);

			line[0] = (char)('a' + done % 26);
			buf_add(&answer.body, line, part);
			done += part;
		}
		assert_int_equal(http_answer_end(&answer), 0);
		assert_int_equal(answer.has_file, large);
		assert_int_equal(large ? answer.file_bytes : answer.body.len, sizes[i]);
		assert_int_equal(files, large ? sizes[i] : 0);
		assert_true(answer.body.capacity <= 2 * HTTP_ANSWER_HELD);
		if (large) {
			assert_int_equal(io_read_fd(answer.file_fd, 1u << 30, &back, &len), 0);
			assert_int_equal(len, sizes[i]);
			for (size_t at = 0; at < len; at += sizeof(line))
				assert_int_equal(back[at], 'a' + at % 26);
		}
		http_answer_deinit(&answer);
		assert_int_equal(files, 0);
	}
}

/* All answers together are bounded in their use of the disk. */
static void test_too_many_files(void **state)
{
	_Atomic uint64_t files = HTTP_FILES_MAX - HTTP_ANSWER_HELD;
	struct http_answer answer = { 0 };
	char block[65536] = { 0 };

	(void)state;
	http_answer_stream(&answer, "/tmp", &files);
	for (size_t done = 0; done < 2 * HTTP_ANSWER_HELD + sizeof(block); done += sizeof(block))
		buf_add(&answer.body, block, sizeof(block));
	assert_int_equal(http_answer_end(&answer), -EBUSY);
	assert_int_equal(http_error_of(&(struct err){ 0 }, -EBUSY)->status, 503);
	http_answer_deinit(&answer);
	assert_int_equal(files, HTTP_FILES_MAX - HTTP_ANSWER_HELD);
}

/* A disk that becomes full while an answer is written. */
static void test_answer_on_a_full_disk(void **state)
{
	static char block[65536];
	char folder[] = "/tmp/profd-answer-XXXXXX";
	const size_t sum = HTTP_ANSWER_HELD + 300 * sizeof(block);
	_Atomic uint64_t files = 0;
	struct http_answer answer = { 0 };
	cleanup_free char *back = NULL;
	bool small;
	size_t len;

	(void)state;
	assert_non_null(mkdtemp(folder));
	small = unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
		mount("none", folder, "tmpfs", 0, "size=8m") == 0;
	if (small) {
		http_answer_stream(&answer, folder, &files);
		for (size_t done = 0; done < sum; done += sizeof(block)) {
			memset(block, (int)('a' + done / sizeof(block) % 26), sizeof(block));
			buf_add(&answer.body, block, sizeof(block));
		}
		assert_int_equal(http_answer_end(&answer), 0);
		assert_int_equal(io_read_fd(answer.file_fd, 1u << 30, &back, &len), 0);
		assert_int_equal(len, sum);
		for (size_t at = 0; at < len; at += sizeof(block) / 4)
			assert_int_equal(back[at], 'a' + at / sizeof(block) % 26);
		http_answer_deinit(&answer);
		assert_int_equal(files, 0);
		assert_int_equal(umount(folder), 0);
	}
	assert_int_equal(rmdir(folder), 0);
	if (!small)
		skip();
}

static void test_gzip_in_pieces(void **state)
{
	struct buf whole = { 0 }, pieces = { 0 }, small = { .max = 10 };
	cleanup_buf struct buf plain = { 0 };
	struct gzip gzip;

	(void)state;
	for (unsigned i = 0; i < 200000; i++)
		buf_printf(&plain, "%u %u\n", i, i * 2654435761u);
	assert_int_equal(compress_gzip(plain.data, plain.len, 6, &whole), 0);
	assert_int_equal(gzip_begin(&gzip, 6, &pieces), 0);
	for (size_t at = 0; at < plain.len; at += 777)
		buf_add(&gzip.plain, plain.data + at, plain.len - at < 777 ? plain.len - at : 777);
	assert_true(gzip.plain.capacity < 1u << 18);
	assert_int_equal(gzip_end(&gzip), 0);
	assert_int_equal(pieces.len, whole.len);
	assert_memory_equal(pieces.data, whole.data, whole.len);
	assert_int_equal(compress_gzip(plain.data, plain.len, 6, &small), -EFBIG);
	buf_deinit(&whole);
	buf_deinit(&pieces);
	buf_deinit(&small);
	assert_int_equal(compress_gzip("", 0, 1, &whole), 0);
	assert_int_equal(whole.len, 20); /* an empty member */
	buf_deinit(&whole);
}

/* Labels of a program that are called as attributes are do not stand beside them under the same
 * name. */
static void test_breakdown_names(void **state)
{
	const struct profile_meta meta = { .type = PROFILE_CPU };
	cleanup(profile_builder) struct profile_builder *b = profile_builder_create(&meta, 100);
	const struct profile_quality quality = { 0 };
	struct profile_label labels[2] = { 0 };
	struct profile_attrs attrs = { .label_count = 2 };
	cleanup(profile) struct profile *p = NULL;
	cleanup_buf struct buf text = { .max = 4096 };
	struct json_out json = json_out_to(&text);

	(void)state;
	labels[0].name = attrs.state = profile_builder_string(b, "state", 5);
	labels[1].name = profile_builder_string(b, "job", 3);
	labels[0].value = labels[1].value = profile_builder_string(b, "x", 1);
	profile_builder_sample(b, 0, profile_builder_attrs(b, &attrs, labels),
			       (const int64_t[]){ 1, 7, 0 });
	assert_int_equal(profile_builder_finish(b, &quality, &p), 0);
	json_out_open(&json, NULL, '{');
	breakdown_json(&json, p, NULL);
	json_out_close(&json, '}');
	buf_add(&text, "", 1);
	assert_string_equal(text.data, "{\"breakdown\":{\"state\":{\"state\":7},\"job\":{\"x\":7}}}");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_query_refusals),
		cmocka_unit_test(test_query_values),
		cmocka_unit_test(test_json_refusals),
		cmocka_unit_test(test_json_members),
		cmocka_unit_test(test_json_out),
		cmocka_unit_test(test_negotiation),
		cmocka_unit_test(test_gzip_negotiation),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_large_answers),
		cmocka_unit_test(test_too_many_files),
		cmocka_unit_test(test_gzip_in_pieces),
		cmocka_unit_test(test_breakdown_names),
		cmocka_unit_test(test_answer_on_a_full_disk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
