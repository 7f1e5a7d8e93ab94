// SPDX-License-Identifier: Apache-2.0
/* Which profile types, labels and series there are. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/base/u64map.h"
#include "api/api_internal.h"
#include "api/grafana/answers.h"
#include "api/grafana/select.h"
#include "api/render/proto.h"

#define TEXTS_MAX     10000u /* of one answer */
#define SAMPLES_NS    (3600 * NS_PER_S)
#define SELECTORS_MAX 8u /* of one request */

/* ---- distinct texts -------------------------------------------------------------------------- */

struct texts {
	char **items; /* owned */
	size_t count;
	struct u64map seen; /* hashes */
};

static void texts_deinit(struct texts *texts)
{
	for (size_t i = 0; i < texts->count; i++)
		free(texts->items[i]);
	free(texts->items);
	u64map_deinit(&texts->seen);
}
#define cleanup_texts __attribute__((__cleanup__(texts_deinit)))

/* Beyond TEXTS_MAX the rest is left out. */
static int texts_add(struct texts *texts, const char *text, size_t len)
{
	uint64_t hash = hash_bytes(text, len, 0), one;
	char **items, *copy;

	if (texts->count == TEXTS_MAX || u64map_get(&texts->seen, hash, &one))
		return 0;
	items = reallocarray(texts->items, texts->count + 1, sizeof(*items));
	if (!items)
		return -ENOMEM;
	texts->items = items;
	copy = malloc(len + 1);
	if (!copy)
		return -ENOMEM;
	memcpy(copy, text, len);
	copy[len] = '\0';
	texts->items[texts->count++] = copy;
	return u64map_put(&texts->seen, hash, 1);
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* As field 1 of the answer, sorted. */
static void write_texts(struct texts *texts, struct buf *out)
{
	if (texts->count)
		qsort(texts->items, texts->count, sizeof(*texts->items), by_text);
	for (size_t i = 0; i < texts->count; i++)
		proto_text(out, 1, texts->items[i]);
}

/* ---- rows ------------------------------------------------------------------------------------ */

typedef int row_fn(void *ctx, struct selection *selection, const struct series_row *row);

static int visit_series(struct selection *selection, const struct history_series *series,
			row_fn *visit, void *ctx)
{
	const struct profile_type_info *info = profile_type_info(series->type);

	for (unsigned v = 0; v < info->value_count; v++) {
		const struct series_row row = { series->service,
						series->host,
						{ series->type, v } };
		int rc = selection_has_row(selection, &row);

		if (rc > 0)
			rc = visit(ctx, selection, &row);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int visit_selector(struct http_call *call, const struct querier_request *request,
			  const char *text, row_fn *visit, void *ctx)
{
	cleanup_selection struct selection selection = { .call = call,
							 .call_site = &request->call_site };
	struct history_series_list list = { 0 };
	int rc = selection_range(&selection, request);

	if (rc == 0)
		rc = selector_read(text, "matchers", &selection.selector, call->err);
	if (rc == 0)
		rc = selection_series(&selection, 0, 0, &list);
	for (size_t i = 0; rc == 0 && i < list.count; i++)
		rc = visit_series(&selection, &list.items[i], visit, ctx);
	history_series_list_deinit(&list);
	return rc;
}

/* The rows of each selector of the request, of all rows when it has none. */
static int visit_rows(struct http_call *call, const struct querier_request *request, row_fn *visit,
		      void *ctx)
{
	int rc = 0;

	if (!request->matchers.count)
		return visit_selector(call, request, "", visit, ctx);
	if (request->matchers.count > SELECTORS_MAX)
		return err_set(call->err, EINVAL, "InvalidParam", "matchers",
			       "more than %u selectors", SELECTORS_MAX);
	for (size_t i = 0; rc == 0 && i < request->matchers.count; i++)
		rc = visit_selector(call, request, request->matchers.items[i], visit, ctx);
	return rc;
}

/* ---- profile types --------------------------------------------------------------------------- */

static int mark_type(void *ctx, struct selection *selection, const struct series_row *row)
{
	bool *seen = ctx;

	seen[row->id.type * PROFILE_VALUES_MAX + row->id.value] = true;
	return 0;
}

static void write_type(struct type_id id, struct buf *out)
{
	static const unsigned fields[5] = { 2, 4, 5, 6, 7 };
	cleanup_buf struct buf part = { 0 };
	char text[TYPE_ID_SIZE];
	const char *parts[5];

	type_id_parts(id, parts);
	proto_text(&part, 1, type_id_text(id, text));
	for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
		proto_text(&part, fields[i], parts[i]);
	proto_message(out, 1, &part);
}

int answer_profile_types(struct http_call *call, const struct querier_request *request,
			 struct buf *out)
{
	bool seen[PROFILE_TYPE_MAX * PROFILE_VALUES_MAX] = { false };
	int rc = visit_rows(call, request, mark_type, seen);

	for (unsigned i = 0; rc == 0 && i < ARRAY_SIZE(seen); i++)
		if (seen[i])
			write_type((struct type_id){ (enum profile_type)(i / PROFILE_VALUES_MAX),
						     i % PROFILE_VALUES_MAX },
				   out);
	return rc;
}

/* ---- label names ----------------------------------------------------------------------------- */

static const char *const row_names[] = {
	"service_name",
	"host",
	"unit",
	"container",
	"pod",
	"namespace",
	"workload",
	"image",
	"__name__",
	"__type__",
	"__unit__",
	"__period_type__",
	"__period_unit__",
	"__profile_type__",
};
/* Every sample has these. */
static const char *const sample_names[] = { "process", "pid", "exe", "thread", "tid" };

/* Those that were sampled may have these. */
static const char *const runtime_names[] = { PROFILE_LABEL_TIER, PROFILE_LABEL_RUNTIME };

static int add_names(void *ctx, struct selection *selection, const struct series_row *row)
{
	const struct profile_type_info *info = profile_type_info(row->id.type);
	char scratch[SERIES_LABEL_SIZE];
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(row_names); i++)
		if (*series_label(selection, row, row_names[i], scratch))
			rc = texts_add(ctx, row_names[i], strlen(row_names[i]));
	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(sample_names); i++)
		rc = texts_add(ctx, sample_names[i], strlen(sample_names[i]));
	if (rc == 0 && (info->spans || row->id.type == PROFILE_GOROUTINE))
		rc = texts_add(ctx, "state", strlen("state"));
	if (rc == 0 && (info->spans || row->id.type == PROFILE_GOROUTINE))
		rc = texts_add(ctx, "wait", strlen("wait"));
	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(runtime_names); i++)
		if (info->way != PROFILE_WAY_SNAPSHOT)
			rc = texts_add(ctx, runtime_names[i], strlen(runtime_names[i]));
	return rc < 0 || !info->extra ? rc : texts_add(ctx, info->extra, strlen(info->extra));
}

int answer_label_names(struct http_call *call, const struct querier_request *request,
		       struct buf *out)
{
	cleanup_texts struct texts names = { 0 };
	int rc = visit_rows(call, request, add_names, &names);

	if (rc == 0)
		write_texts(&names, out);
	return rc;
}

/* ---- label values ---------------------------------------------------------------------------- */

struct values {
	const char *name;
	struct texts texts;
	bool types[PROFILE_TYPE_MAX]; /* with rows */
};

static int add_row_value(void *ctx, struct selection *selection, const struct series_row *row)
{
	struct values *values = ctx;
	char scratch[SERIES_LABEL_SIZE];
	const char *text = series_label(selection, row, values->name, scratch);

	return *text ? texts_add(&values->texts, text, strlen(text)) : 0;
}

static int mark_row_type(void *ctx, struct selection *selection, const struct series_row *row)
{
	((struct values *)ctx)->types[row->id.type] = true;
	return 0;
}

static int add_profile_values(struct values *values, const struct profile *p)
{
	struct sample_label label = sample_label_find(p, values->name);
	char scratch[ATTRIBUTE_SCRATCH_SIZE];
	int rc = 0;

	for (uint32_t i = 0; label.known && rc == 0 && i < p->attrs_count; i++) {
		const char *text = sample_label_text(p, i, &label, scratch);

		rc = *text ? texts_add(&values->texts, text, strlen(text)) : 0;
	}
	return rc;
}

static int add_type_values(struct http_call *call, const struct querier_request *request,
			   const char *text, enum profile_type type, struct values *values)
{
	cleanup_selection struct selection selection = { .call = call,
							 .call_site = &request->call_site,
							 .id = { .type = type } };
	cleanup(profile) struct profile *p = NULL;
	int rc = selection_range(&selection, request);

	if (rc == 0)
		rc = selector_read(text, "matchers", &selection.selector, call->err);
	if (rc < 0)
		return rc;
	if (selection.to_ns - selection.from_ns > SAMPLES_NS)
		selection.from_ns = selection.to_ns - SAMPLES_NS;
	rc = selection_profile(&selection, &p);
	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	return add_profile_values(values, p);
}

/* Values of samples come from the last hour of the time range, type by type. */
static int add_sample_values(struct http_call *call, const struct querier_request *request,
			     struct values *values)
{
	size_t selectors = request->matchers.count ? request->matchers.count : 1;
	int rc = visit_rows(call, request, mark_row_type, values);

	for (size_t i = 0; rc == 0 && i < selectors; i++)
		for (unsigned type = 0; rc == 0 && type < PROFILE_TYPE_MAX; type++)
			if (values->types[type])
				rc = add_type_values(
					call, request,
					request->matchers.count ? request->matchers.items[i] : "",
					(enum profile_type)type, values);
	return rc;
}

int answer_label_values(struct http_call *call, const struct querier_request *request,
			struct buf *out)
{
	struct values values = { .name = request->name };
	int rc;

	if (!request->name || !*request->name)
		return err_set(call->err, EINVAL, "InvalidParam", "name",
			       "name the label: name is missing");
	rc = selection_is_series_label(request->name)
		     ? visit_rows(call, request, add_row_value, &values)
		     : add_sample_values(call, request, &values);
	if (rc == 0)
		write_texts(&values.texts, out);
	texts_deinit(&values.texts);
	return rc;
}

/* ---- series ---------------------------------------------------------------------------------- */

struct label_sets {
	const struct text_list *names; /* empty = all */
	struct texts sets;	       /* encoded label sets that were written */
	struct buf *out;
	struct buf set, pair;
};

static void add_pair(struct label_sets *sets, struct selection *selection,
		     const struct series_row *row, const char *name)
{
	char scratch[SERIES_LABEL_SIZE];
	const char *text = series_label(selection, row, name, scratch);

	if (!*text || !selection_is_series_label(name))
		return;
	proto_text(&sets->pair, 1, name);
	proto_text(&sets->pair, 2, text);
	proto_message(&sets->set, 1, &sets->pair);
}

static int add_set(void *ctx, struct selection *selection, const struct series_row *row)
{
	struct label_sets *sets = ctx;
	size_t known = sets->sets.count;
	int rc;

	sets->set.len = 0;
	if (sets->names->count)
		for (size_t i = 0; i < sets->names->count; i++)
			add_pair(sets, selection, row, sets->names->items[i]);
	else
		for (size_t i = 0; i < ARRAY_SIZE(row_names); i++)
			add_pair(sets, selection, row, row_names[i]);
	if (sets->set.error || !sets->set.len)
		return sets->set.error;
	rc = texts_add(&sets->sets, sets->set.data, sets->set.len);
	if (rc == 0 && sets->sets.count > known)
		proto_bytes(sets->out, 2, sets->set.data, sets->set.len);
	return rc;
}

int answer_series(struct http_call *call, const struct querier_request *request, struct buf *out)
{
	struct label_sets sets = { .names = &request->label_names, .out = out };
	int rc = visit_rows(call, request, add_set, &sets);

	texts_deinit(&sets.sets);
	buf_deinit(&sets.set);
	buf_deinit(&sets.pair);
	return rc;
}

/* ---- what there is --------------------------------------------------------------------------- */

int answer_profile_stats(struct http_call *call, const struct querier_request *request,
			 struct buf *out)
{
	uint64_t oldest_ns = 0, newest_ns = 0;
	int rc = sessions_history_range(call->api->options.sessions, call->request->tenant,
					&oldest_ns, &newest_ns, call->err);

	if (rc < 0)
		return rc;
	proto_uint(out, 1, oldest_ns != 0);
	proto_uint(out, 2, oldest_ns / NS_PER_MS);
	proto_uint(out, 3, newest_ns / NS_PER_MS);
	return 0;
}

static int count_row(void *ctx, struct selection *selection, const struct series_row *row)
{
	(*(uint64_t *)ctx)++;
	return 0;
}

/* A query is written `TYPE{selector}`. */
int answer_analyze_query(struct http_call *call, const struct querier_request *request,
			 struct buf *out)
{
	const char *begin = request->selector ? strchr(request->selector, '{') : NULL;
	cleanup_buf struct buf part = { 0 };
	uint64_t rows = 0;
	int rc = visit_selector(call, request, begin ? begin : "", count_row, &rows);

	if (rc < 0)
		return rc;
	proto_text(&part, 1, "history");
	proto_uint(&part, 2, 1);
	proto_uint(&part, 4, rows);
	proto_message(out, 1, &part);
	proto_uint(&part, 3, rows);
	proto_message(out, 2, &part);
	return 0;
}
