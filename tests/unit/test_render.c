// SPDX-License-Identifier: Apache-2.0
/* Every format of one profile with awkward contents: sums agree, names stay text, and the tools of
 * the formats' owners read them. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <cjson/cJSON.h>

#include "api/http/json_in.h"
#include "api/render/flame_tree.h"
#include "api/render/html.h"
#include "tests/support/profile_text.h"
#include "tests/support/render_fixture.h"

static char *render(render_fn *fn, const struct profile *p, size_t *ret_len)
{
	struct render_options options = { .value_index = profile_value_index(p) };
	struct buf out = { 0 };
	struct err err = { 0 };

	assert_int_equal(fn(p, &options, &out, &err), 0);
	return buf_take(&out, ret_len);
}

static int64_t folded_sum(const char *text)
{
	int64_t sum = 0;

	for (const char *line = text; *line; line = strchr(line, '\n') + 1) {
		const char *end = strchr(line, '\n');
		const char *blank = end;

		while (blank[-1] != ' ')
			blank--;
		sum += strtoll(blank, NULL, 10);
	}
	return sum;
}

static void test_folded(void **state)
{
	cleanup(profile) struct profile *p = render_fixture();
	cleanup_free char *text = render(render_folded, p, NULL);

	(void)state;
	assert_string_equal(
		text,
		"[truncated];[unknown] api+0x5050 50000000\n"
		"main 10000000\n"
		"main;</script><img src=x onerror=alert(1)>\"'&  30000000\n"
		"main;encoding/json.(*decodeState).object;encoding/json.(*decodeState).object 60000000\n"
		"main;work<std::pair<int, char>, A:B> 50000000\n"
		"main;work<std::pair<int, char>, A:B>;do_syscall_64 40000000\n"
		"main;work<std::pair<int, char>, A:B>;helper;tiny 200000000\n");
	assert_int_equal(folded_sum(text), RENDER_FIXTURE_TOTAL_NS);
}

static double sum_self(const cJSON *node)
{
	double sum = cJSON_GetObjectItem(node, "self")->valuedouble;
	double total = sum;

	for (const cJSON *c = cJSON_GetObjectItem(node, "children")->child; c; c = c->next) {
		sum += sum_self(c);
		total += cJSON_GetObjectItem(c, "value")->valuedouble;
	}
	/* Each value is its own self and its children's values. */
	assert_true(cJSON_GetObjectItem(node, "value")->valuedouble == total);
	return sum;
}

static void test_json(void **state)
{
	cleanup(profile) struct profile *p = render_fixture();
	cleanup_free char *text = render(render_json, p, NULL);
	cleanup(json) cJSON *root = cJSON_Parse(text);

	(void)state;
	assert_non_null(root);
	assert_string_equal(cJSON_GetObjectItem(root, "name")->valuestring, "all");
	assert_true(sum_self(root) == RENDER_FIXTURE_TOTAL_NS);
	assert_null(strstr(text, "</script>"));
}

/* Every frame says where it comes from when it is asked for. */
static void test_details(void **state)
{
	cleanup(profile) struct profile *p = render_fixture();
	const struct render_options options = { .value_index = profile_value_index(p), .details = true };
	struct buf out = { .max = 1u << 20 }, table = { .max = 1u << 20 };
	cleanup(json) cJSON *root = NULL;
	const cJSON *child;

	(void)state;
	assert_int_equal(render_json(p, &options, &out, NULL), 0);
	root = cJSON_ParseWithLength(out.data, out.len);
	assert_non_null(root);
	child = cJSON_GetArrayItem(cJSON_GetObjectItem(root, "children"), 0);
	assert_non_null(child);
	for (const char *const *member =
		     (const char *const[]){ "file", "module", "buildId", "kind", NULL };
	     *member; member++)
		assert_true(cJSON_IsString(cJSON_GetObjectItem(child, *member)));
	assert_true(cJSON_IsNumber(cJSON_GetObjectItem(child, "line")));
	assert_true(cJSON_IsBool(cJSON_GetObjectItem(child, "inlined")));
	assert_true(cJSON_IsBool(cJSON_GetObjectItem(child, "guessed")));
	assert_non_null(strstr(out.data, "/src/helper.h"));
	assert_non_null(strstr(out.data, "\"inlined\":true"));
	assert_int_equal(render_csv(p, &options, &table, NULL), 0);
	assert_non_null(strstr(table.data, ",sampleCount,module,buildId,kind\r\n"));
	assert_non_null(strstr(table.data, ",native\r\n"));
	buf_deinit(&out);
	buf_deinit(&table);
}

/* Pruning keeps the sum: what is cut is a child of its own. */
static void test_pruning(void **state)
{
	cleanup(profile) struct profile *p = render_fixture_large(5000);
	static const uint32_t limits[] = { 1, 2, 10, 100, 1000, 4999, 1000000 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(limits); i++) {
		struct render_options options = { .value_index = 1, .max_nodes = limits[i] };
		cleanup_flame_tree struct flame_tree tree = { 0 };
		uint32_t real = 0;
		int64_t self = 0;

		assert_int_equal(flame_tree_build(p, &options, &tree), 0);
		for (uint32_t n = 0; n < tree.count; n++) {
			const struct flame_node *node = &tree.nodes[n];

			self += node->self;
			real += node->pruned == 0;
			assert_true(node->depth <= tree.depth_max);
			if (n > 0) {
				assert_true(node->parent < n);
				assert_int_equal(node->depth, tree.nodes[node->parent].depth + 1);
			}
		}
		assert_int_equal(self, p->totals[1]);
		assert_int_equal(tree.nodes[0].total, p->totals[1]);
		assert_true(real <= limits[i]);
		if (limits[i] == 1000000)
			assert_int_equal(tree.pruned_nodes, 0);
	}
}

static void test_root(void **state)
{
	cleanup(profile) struct profile *p = render_fixture();
	struct render_options options = { .value_index = 1, .root_count = 2 };
	cleanup_flame_tree struct flame_tree tree = { 0 };
	char scratch[FLAME_NAME_SIZE];
	struct buf folded = { 0 };

	(void)state;
	options.root[0] = flame_name_hash("main");
	options.root[1] = flame_name_hash("work<std::pair<int, char>, A;B>");
	assert_int_equal(flame_tree_build(p, &options, &tree), 0);
	assert_string_equal(flame_tree_name(p, &tree.nodes[0], scratch),
			    "work<std::pair<int, char>, A;B>");
	assert_int_equal(tree.nodes[0].total, 290000000);
	assert_int_equal(render_folded(p, &options, &folded, NULL), 0);
	assert_string_equal(folded.data, "work<std::pair<int, char>, A:B> 50000000\n"
					 "work<std::pair<int, char>, A:B>;do_syscall_64 40000000\n"
					 "work<std::pair<int, char>, A:B>;helper;tiny 200000000\n");
	buf_deinit(&folded);
	options.root[0] = flame_name_hash("nowhere");
	flame_tree_deinit(&tree);
	assert_int_equal(flame_tree_build(p, &options, &tree), -ENOENT);
	assert_int_equal(render_folded(p, &options, &folded, NULL), -ENOENT);
}

static void test_flame(void **state)
{
	cleanup(profile) struct profile *p = render_fixture();
	cleanup_free char *text = render(render_flame, p, NULL);
	cleanup(json) cJSON *doc = cJSON_Parse(text);
	const cJSON *node = cJSON_GetObjectItem(doc, "node");
	double scale = cJSON_GetObjectItem(doc, "scale")->valuedouble, sum = 0;
	int count = cJSON_GetArraySize(cJSON_GetObjectItem(node, "fn"));

	(void)state;
	assert_true(scale == 10000000);
	assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(node, "up")), count);
	for (const cJSON *c = cJSON_GetObjectItem(node, "self")->child; c; c = c->next)
		sum += c->valuedouble * scale;
	assert_true(sum == RENDER_FIXTURE_TOTAL_NS);
	assert_string_equal(cJSON_GetObjectItem(doc, "unit")->valuestring, "nanoseconds");
	assert_null(cJSON_GetObjectItem(cJSON_GetObjectItem(doc, "quality"), "overheadPct"));
}

/* An empty profile is a picture of nothing in every format. */
static void test_empty(void **state)
{
	cleanup(profile) struct profile *p = profile_from_text(PROFILE_CPU, NULL, 0);

	(void)state;
	for (const struct render_format *f = render_formats; f->name; f++) {
		struct render_options options = { .value_index = 1 };
		struct buf out = { 0 };
		struct err err = { 0 };
		int rc = f->render(p, &options, &out, &err);

		if (rc < 0 && rc != -ENOTSUP)
			fail_msg("%s: %d", f->name, rc);
		buf_deinit(&out);
	}
}

/* Each allocation bound is a clean error. */
static void test_bound(void **state)
{
	cleanup(profile) struct profile *p = render_fixture();

	(void)state;
	for (const struct render_format *f = render_formats; f->name; f++) {
		struct render_options options = { .value_index = 1 };
		struct buf out = { .max = 5 };
		struct err err = { 0 };

		if (f->render(p, &options, &out, &err) >= 0)
			fail_msg("%s wrote beyond its bound", f->name);
		buf_deinit(&out);
	}
}

/* Takes pieces and remembers the largest. */
struct pieces {
	struct buf_sink sink; /* first */
	struct buf all;
	size_t largest;
};

static int take_piece(struct buf_sink *sink, const void *data, size_t len)
{
	struct pieces *pieces = (struct pieces *)(void *)sink;

	buf_add(&pieces->all, data, len);
	pieces->largest = len > pieces->largest ? len : pieces->largest;
	return pieces->all.error;
}

static int refuse_piece(struct buf_sink *sink, const void *data, size_t len)
{
	(void)sink;
	(void)data;
	return len ? -ENOSPC : 0;
}

/* Output in pieces equals output in one buffer. The pieces are small whatever the profile is: only
 * pictures of a bounded number of boxes are made as a whole. */
static void test_streaming(void **state)
{
	cleanup(profile) struct profile *p = render_fixture_large(50000);

	(void)state;
	for (const struct render_format *f = render_formats; f->name; f++) {
		const struct render_options options = { .value_index = 1 };
		struct pieces pieces = { .sink = { take_piece, 4096 } };
		struct buf_sink full = { refuse_piece, 4096 };
		struct buf whole = { 0 }, out = { .sink = &pieces.sink }, failing = { .sink = &full };
		struct err err = { 0 };
		bool page = strcmp(f->name, "html") == 0 || strcmp(f->name, "svg") == 0;
		int rc = f->render(p, &options, &whole, &err);

		assert_int_equal(f->render(p, &options, &out, &err), rc);
		buf_flush(&out);
		assert_int_equal(pieces.all.len, whole.len);
		if (whole.len)
			assert_memory_equal(pieces.all.data, whole.data, whole.len);
		if (!page && pieces.largest > 32768)
			fail_msg("%s: a piece of %zu of %zu bytes", f->name, pieces.largest, whole.len);
		/* A full disk is the renderer's error. */
		if (rc == 0 && whole.len > 8192)
			assert_int_equal(f->render(p, &options, &failing, &err), -ENOSPC);
		buf_deinit(&whole);
		buf_deinit(&pieces.all);
		buf_deinit(&out);
		buf_deinit(&failing);
	}
}

static void test_html(void **state)
{
	cleanup(profile) struct profile *p = render_fixture();
	cleanup_free char *text = render(render_html, p, NULL);
	const char *data;

	(void)state;
	assert_non_null(strstr(text, html_content_policy()));
	assert_non_null(strstr(html_content_policy(), "script-src 'sha256-"));
	/* One script that runs and one block of data; no name of the profile outside base64. */
	data = strstr(text, "</script>");
	assert_non_null(data);
	data = strstr(data + 1, "</script>");
	assert_non_null(data);
	assert_null(strstr(data + 1, "</script>"));
	assert_null(strstr(text, "onerror"));
	/* No address but the name of SVG's namespace, which nobody fetches. */
	for (data = strstr(text, "http"); data; data = strstr(data + 1, "http"))
		if (strncmp(data, "http://www.w3.org/2000/svg", 26) != 0)
			assert_true(strncmp(data, "http://", 7) != 0 && strncmp(data, "https://", 8) != 0);
}

static void test_svg(void **state)
{
	cleanup(profile) struct profile *p = render_fixture();
	cleanup(profile) struct profile *large = render_fixture_large(50000);
	cleanup_free char *text = render(render_svg, p, NULL);
	size_t len = 0;
	cleanup_free char *big = render(render_svg, large, &len);

	(void)state;
	assert_null(strstr(text, "<script"));
	assert_null(strstr(text, "<img"));
	assert_non_null(strstr(text, "work&lt;std::pair&lt;int, char&gt;, A;B&gt;"));
	assert_non_null(strstr(text, "45.45 %"));
	assert_true(len < 1500000);
	assert_non_null(strstr(big, "narrower than 3 px"));
}

static void test_csv(void **state)
{
	cleanup(profile) struct profile *p = render_fixture();
	cleanup_free char *text = render(render_csv, p, NULL);

	(void)state;
	assert_true(strncmp(text, "funcName,package,", 17) == 0);
	assert_non_null(strstr(text, "\"tiny\",\"\",\"/src/helper.h\",100,45.4545,45.4545,"
				     "200000000,200000000,20\r\n"));
	assert_non_null(strstr(text, "alert(1)>\"\"'&"));
}

static int64_t member(const cJSON *row, const char *name)
{
	return (int64_t)cJSON_GetObjectItem(row, name)->valuedouble;
}

/* Self belongs to the line that ran, cumulative to the lines that called; recursion counts once. */
static void test_lines(void **state)
{
	static const struct {
		const char *function;
		struct {
			int64_t line, self, cumulative, samples;
		} lines[2];
	} rows[] = {
		{ "work<std::pair<int, char>, A;B>",
		  { { 106, 50000000, 50000000, 5 }, { 124, 0, 240000000, 0 } } },
		{ "encoding/json.(*decodeState).object", { { 136, 60000000, 60000000, 6 } } },
		{ "do_syscall_64", { { 0, 40000000, 40000000, 4 } } },
		{ "no such function", { { 0 } } },
	};
	cleanup(profile) struct profile *p = render_fixture();
	int64_t self = 0;

	(void)state;
	for (size_t i = 0; i <= ARRAY_SIZE(rows); i++) {
		struct render_options options = { .value_index = profile_value_index(p),
						  .function = i < ARRAY_SIZE(rows) ? rows[i].function : NULL };
		cleanup(json) cJSON *root = NULL;
		struct buf out = { 0 };
		const cJSON *line;
		size_t k = 0;

		assert_int_equal(render_lines(p, &options, &out, NULL), 0);
		root = cJSON_ParseWithLength(out.data, out.len);
		buf_deinit(&out);
		assert_non_null(root);
		assert_true(member(root, "totalValue") == RENDER_FIXTURE_TOTAL_NS);
		cJSON_ArrayForEach(line, cJSON_GetObjectItem(root, "lines")) {
			self += i == ARRAY_SIZE(rows) ? member(line, "selfValue") : 0;
			if (i == ARRAY_SIZE(rows))
				continue;
			assert_string_equal(cJSON_GetObjectItem(line, "funcName")->valuestring, rows[i].function);
			assert_int_equal(member(line, "line"), rows[i].lines[k].line);
			assert_int_equal(member(line, "selfValue"), rows[i].lines[k].self);
			assert_int_equal(member(line, "cumulativeValue"), rows[i].lines[k].cumulative);
			assert_int_equal(member(line, "sampleCount"), rows[i].lines[k].samples);
			k++;
		}
		if (i < ARRAY_SIZE(rows))
			assert_int_equal(k, rows[i].lines[1].line ? 2 : rows[i].lines[0].cumulative != 0);
	}
	assert_true(self == RENDER_FIXTURE_TOTAL_NS);
}

/* Runs a shell command with @data as its input and returns what it printed; NULL if it failed. */
static char *pipe_through(const char *command, const char *data, size_t len)
{
	char path[] = "/tmp/profd-render-XXXXXX", line[512];
	struct buf out = { .max = 1u << 20 };
	int fd = mkstemp(path), rc;
	FILE *from;

	assert_true(fd >= 0);
	assert_int_equal(write(fd, data, len), (ssize_t)len);
	(void)close(fd);
	(void)snprintf(line, sizeof(line), command, path);
	from = popen(line, "r");
	assert_non_null(from);
	while (fgets(line, sizeof(line), from))
		buf_add_str(&out, line);
	rc = pclose(from);
	(void)unlink(path);
	buf_add_str(&out, "");
	if (rc != 0) {
		print_message("%s", out.data ? out.data : "");
		buf_deinit(&out);
		return NULL;
	}
	return buf_take(&out, NULL);
}

static void test_pprof(void **state)
{
	cleanup(profile) struct profile *p = render_fixture();
	size_t len = 0;
	cleanup_free char *data = render(render_pprof, p, &len);
	cleanup_free char *top = NULL, *raw = NULL;

	(void)state;
	if (system("go version >/dev/null 2>&1") != 0) {
		print_message("skip: no go tool to read the profile back\n");
		skip();
	}
	top = pipe_through("go tool pprof -top -nodecount=3 %s 2>&1", data, len);
	assert_non_null(top);
	assert_non_null(strstr(top, "File: api\n"));
	assert_non_null(strstr(top, "Type: cpu"));
	assert_non_null(strstr(top, "440ms"));
	assert_non_null(strstr(top, "tiny"));
	raw = pipe_through("go tool pprof -raw %s 2>&1", data, len);
	assert_non_null(raw);
	assert_non_null(strstr(raw, "samples/count cpu/nanoseconds[dflt]"));
	assert_non_null(strstr(raw, "deadbeef"));
	assert_non_null(strstr(raw, "endpoint:[/login]"));
	assert_non_null(strstr(raw, "tid:[101]"));
	/* One location holds the whole inlined chain, innermost first. */
	assert_non_null(strstr(raw, "tiny /src/helper.h"));
}

static void test_protoc(void **state)
{
	cleanup(profile) struct profile *p = render_fixture();
	size_t len = 0;
	cleanup_free char *data = render(render_pprof, p, &len);
	cleanup_free char *text = NULL;

	(void)state;
	if (system("protoc --version >/dev/null 2>&1") != 0) {
		print_message("skip: no protoc\n");
		skip();
	}
	text = pipe_through("zcat %s | protoc --decode_raw 2>&1", data, len);
	assert_non_null(text);
	assert_non_null(strstr(text, "encoding/json.(*decodeState).object"));
}

/* Readers of a file find what a sample tells beyond its stack under the name that the API has for
 * it. */
static void test_names_of_attributes(void **state)
{
	static const struct {
		enum profile_type type;
		const char *name;
	} rows[] = { { PROFILE_IO, "kind" },
		     { PROFILE_BLOCK, "lock" },
		     { PROFILE_MUTEX, "lock" },
		     { PROFILE_GOROUTINE, "createdBy" } };
	static const char *const names[] = { "kind", "lock", "createdBy", "created_by" };
	static const char *const lines[] = { "state=waiting extra=the_value main 10" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		cleanup(profile) struct profile *p = profile_from_text(rows[i].type, lines, 1);

		for (unsigned k = 0; k < 2; k++) {
			size_t len = 0;
			cleanup_free char *file = render(k ? render_otlp : render_pprof, p, &len);
			cleanup_free char *words = pipe_through(
				k ? "strings -n 4 %s" : "zcat %s | strings -n 4", file, len);

			assert_non_null(words);
			assert_non_null(strstr(words, "the_value"));
			for (size_t n = 0; n < ARRAY_SIZE(names); n++)
				assert_int_equal(strstr(words, names[n]) != NULL, strcmp(names[n], rows[i].name) == 0);
		}
	}
}

static void test_speedscope(void **state)
{
	cleanup(profile) struct profile *p = render_fixture();
	cleanup_free char *text = render(render_speedscope, p, NULL);
	cleanup(json) cJSON *doc = cJSON_Parse(text);
	int frames = cJSON_GetArraySize(
		cJSON_GetObjectItem(cJSON_GetObjectItem(doc, "shared"), "frames"));
	const cJSON *profiles = cJSON_GetObjectItem(doc, "profiles");

	(void)state;
	assert_int_equal(cJSON_GetArraySize(profiles), 4); /* all, and three threads */
	for (const cJSON *one = profiles->child; one; one = one->next) {
		const cJSON *samples = cJSON_GetObjectItem(one, "samples");
		const cJSON *weights = cJSON_GetObjectItem(one, "weights");
		double sum = 0;

		assert_int_equal(cJSON_GetArraySize(samples), cJSON_GetArraySize(weights));
		for (const cJSON *w = weights->child; w; w = w->next)
			sum += w->valuedouble;
		assert_true(sum == cJSON_GetObjectItem(one, "endValue")->valuedouble);
		for (const cJSON *s = samples->child; s; s = s->next)
			for (const cJSON *f = s->child; f; f = f->next)
				assert_in_range(f->valueint, 0, frames - 1);
	}
	assert_true(cJSON_GetObjectItem(profiles->child, "endValue")->valuedouble ==
		    RENDER_FIXTURE_TOTAL_NS);
}

static int length_of(const cJSON *table, const char *column)
{
	return cJSON_GetArraySize(cJSON_GetObjectItem(table, column));
}

/* Its own loader is lax (out-of-range indexes pass silently), so the structure is checked here. */
static void check_table(const cJSON *table, const char *name)
{
	int length = cJSON_GetObjectItem(table, "length")->valueint;

	for (const cJSON *c = table->child; c; c = c->next)
		if (cJSON_IsArray(c) && cJSON_GetArraySize(c) != length)
			fail_msg("%s.%s has %d rows, not %d", name, c->string, cJSON_GetArraySize(c),
				 length);
}

static void check_range(const cJSON *table, const char *column, int end)
{
	for (const cJSON *c = cJSON_GetObjectItem(table, column)->child; c; c = c->next)
		if (cJSON_IsNumber(c) && (c->valueint < -1 || c->valueint >= end))
			fail_msg("%s: %d is not below %d", column, c->valueint, end);
}

static void test_firefox(void **state)
{
	cleanup(profile) struct profile *p = render_fixture();
	cleanup_free char *text = render(render_firefox, p, NULL);
	cleanup(json) cJSON *doc = cJSON_Parse(text);
	const cJSON *shared = cJSON_GetObjectItem(doc, "shared");
	const cJSON *stacks = cJSON_GetObjectItem(shared, "stackTable");
	const cJSON *frames = cJSON_GetObjectItem(shared, "frameTable");
	const cJSON *functions = cJSON_GetObjectItem(shared, "funcTable");
	int strings = length_of(shared, "stringArray"), at = 0, samples = 0;

	(void)state;
	for (const cJSON *t = shared->child; t; t = t->next)
		if (cJSON_IsObject(t))
			check_table(t, t->string);
	check_range(stacks, "frame", length_of(frames, "func"));
	check_range(frames, "func", length_of(functions, "name"));
	check_range(functions, "name", strings);
	check_range(functions, "resource", length_of(doc, "libs"));
	for (const cJSON *c = cJSON_GetObjectItem(stacks, "prefix")->child; c; c = c->next, at++)
		assert_true(cJSON_IsNull(c) || c->valueint < at);
	for (const cJSON *t = cJSON_GetObjectItem(doc, "threads")->child; t; t = t->next) {
		const cJSON *table = cJSON_GetObjectItem(t, "samples");
		double before = -1;

		check_table(table, "samples");
		check_range(table, "stack", length_of(stacks, "frame"));
		samples += length_of(table, "stack");
		for (const cJSON *c = cJSON_GetObjectItem(table, "time")->child; c; c = c->next) {
			assert_true(c->valuedouble >= before);
			before = c->valuedouble;
		}
		assert_true(cJSON_IsString(cJSON_GetObjectItem(t, "pid")));
	}
	assert_int_equal(samples, 44);
}

static void test_firefox_guessed(void **state)
{
	cleanup(profile) struct profile *p = render_fixture();
	cleanup_free char *text = NULL;
	cleanup(json) cJSON *doc = NULL;
	const cJSON *frames;

	p->frames[1].flags |= PROFILE_FRAME_GUESSED;
	text = render(render_firefox, p, NULL);
	doc = cJSON_Parse(text);
	frames = cJSON_GetObjectItem(cJSON_GetObjectItem(doc, "shared"), "frameTable");
	for (int i = 0; i < (int)p->frame_count; i++)
		assert_int_equal(cJSON_GetArrayItem(cJSON_GetObjectItem(frames, "subcategory"), i)->valueint,
				 (p->frames[i].flags & PROFILE_FRAME_GUESSED) != 0);
}

static void test_otlp(void **state)
{
	cleanup(profile) struct profile *p = render_fixture();
	size_t len = 0;
	cleanup_free char *data = render(render_otlp, p, &len);
	cleanup_free char *text = NULL;

	(void)state;
	if (system("protoc --version >/dev/null 2>&1") != 0) {
		print_message("skip: no protoc\n");
		skip();
	}
	text = pipe_through("protoc --decode_raw < %s 2>&1", data, len);
	assert_non_null(text);
	assert_non_null(strstr(text, "process.executable.build_id.gnu"));
	assert_non_null(strstr(text, "thread.name"));
	assert_non_null(strstr(text, "do_syscall_64"));
}

/* The processes of several hosts carry the name of their host. */
static void test_otlp_of_hosts(void **state)
{
	static const char *const names[] = { "a", "b" };
	struct profile *parts[2];
	cleanup(profile) struct profile *p = NULL;
	cleanup_free char *data = NULL;
	size_t len = 0;

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		parts[i] = render_fixture();
		strcpy(parts[i]->meta.host, names[i]);
	}
	assert_int_equal(profile_merge(parts, 2, &p), 0);
	data = render(render_otlp, p, &len);
	for (size_t i = 0; i < 2; i++) {
		char attribute[] = "\x0a\x09host.name\x12\x03\x0a\x01?";

		attribute[sizeof(attribute) - 2] = names[i][0];
		assert_non_null(memmem(data, len, attribute, sizeof(attribute) - 1));
		(void)profile_unref(parts[i]);
	}
}

/* Self lines sum to the total; the recursive call counts once. */
static void test_callgrind(void **state)
{
	cleanup(profile) struct profile *p = render_fixture();
	cleanup_free char *text = render(render_callgrind, p, NULL);
	bool call = false;
	int64_t sum = 0;

	(void)state;
	for (char *save = NULL, *line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		long at;
		long long value;

		if (sscanf(line, "%ld %lld", &at, &value) == 2) {
			if (!call)
				sum += value;
			call = false;
		}
		call |= strncmp(line, "calls=", 6) == 0;
	}
	assert_int_equal(sum, RENDER_FIXTURE_TOTAL_NS);
}

static void test_perfscript(void **state)
{
	cleanup(profile) struct profile *p = render_fixture();
	cleanup_free char *text = render(render_perfscript, p, NULL);
	unsigned events = 0;

	(void)state;
	for (const char *at = text; (at = strstr(at, " cpu:\n")); at++)
		events++;
	assert_int_equal(events, 44);
	assert_non_null(strstr(text, "worker 100/101 [000] 1768464000."));
}

/* `a::f(int)`, with `a::g()` inlined into its third line. */
static struct profile *cpp_profile(void)
{
	static const struct {
		const char *name, *symbol;
		uint32_t line, flags;
	} frames[] = { { "a::f(int)", "_ZN1a1fEi", 12, 0 },
		       { "a::g()", "_ZN1a1gEv", 31, PROFILE_FRAME_INLINED } };
	const struct profile_meta meta = { .type = PROFILE_CPU, .duration_ns = 1 };
	struct profile_builder *b = profile_builder_create(&meta, 100);
	struct profile_quality quality = { 0 };
	struct profile *p = NULL;
	uint32_t node = 0, attrs = profile_builder_attrs(b, &(struct profile_attrs){ 0 }, NULL);

	for (unsigned i = 0; i < 2; i++) {
		const struct profile_function function = {
			.name = profile_builder_string(b, frames[i].name, strlen(frames[i].name)),
			.symbol = profile_builder_string(b, frames[i].symbol, strlen(frames[i].symbol)),
			.line = 10 + 20 * i,
		};
		const struct profile_frame frame = { .function = profile_builder_function(b, &function),
						     .line = frames[i].line,
						     .flags = (uint8_t)frames[i].flags };

		node = profile_builder_node(b, node, profile_builder_frame(b, &frame));
		profile_builder_sample(b, node, attrs, (int64_t[]){ 5 + (int64_t)i, 100, 0 });
	}
	assert_int_equal(profile_builder_finish(b, &quality, &p), 0);
	profile_builder_destroy(b);
	return p;
}

/* The functions have the names of their symbols, which the compiler looks for, also after a merge.
 * */
static void test_symbols(void **state)
{
	cleanup(profile) struct profile *p = cpp_profile(), *merged = NULL;
	cleanup_free char *text = NULL;

	(void)state;
	assert_int_equal(profile_merge((struct profile *[]){ p, p }, 2, &merged), 0);
	text = render(render_autofdo, merged, NULL);
	assert_string_equal(text, "_ZN1a1fEi:22:0\n 2: 10\n 2: _ZN1a1gEv:12\n  1: 12\n");
}

static void test_compiler_profiles(void **state)
{
	cleanup(profile) struct profile *go = render_fixture();
	cleanup(profile) struct profile *native =
		profile_from_text(PROFILE_CPU, (const char *const[]){ "main;f 100" }, 1);
	cleanup(profile) struct profile *heap =
		profile_from_text(PROFILE_MEMORY, (const char *const[]){ "main;f@go 100" }, 1);
	struct render_options options = { .value_index = 1 };
	cleanup_free char *text = render(render_autofdo, native, NULL);
	cleanup_free char *pgo = render(render_pgo, go, NULL);
	struct buf out = { 0 };
	struct err err = { 0 };

	(void)state;
	assert_non_null(pgo);
	assert_string_equal(text, "f:1:0\n 0: 1\n");
	assert_int_equal(render_pgo(native, &options, &out, &err), -ENOTSUP);
	assert_string_equal(err.word, "ProfileTypeMismatch");
	assert_int_equal(render_pgo(heap, &options, &out, &err), -ENOTSUP);
	assert_int_equal(render_autofdo(heap, &options, &out, &err), -ENOTSUP);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_folded),	 cmocka_unit_test(test_json),
		cmocka_unit_test(test_pruning),	 cmocka_unit_test(test_root),
		cmocka_unit_test(test_flame),	 cmocka_unit_test(test_empty),
		cmocka_unit_test(test_bound),	 cmocka_unit_test(test_streaming),
		cmocka_unit_test(test_html),
		cmocka_unit_test(test_details),
		cmocka_unit_test(test_svg),	 cmocka_unit_test(test_csv), cmocka_unit_test(test_lines),
		cmocka_unit_test(test_names_of_attributes),
		cmocka_unit_test(test_pprof),	 cmocka_unit_test(test_protoc),
		cmocka_unit_test(test_speedscope),	 cmocka_unit_test(test_firefox),
		cmocka_unit_test(test_firefox_guessed),
		cmocka_unit_test(test_otlp),	 cmocka_unit_test(test_otlp_of_hosts),
		cmocka_unit_test(test_callgrind),
		cmocka_unit_test(test_perfscript), cmocka_unit_test(test_symbols),
		cmocka_unit_test(test_compiler_profiles),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
