// SPDX-License-Identifier: Apache-2.0
#include "api/grafana/select.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "agent/base/clock.h"
#include "agent/base/text.h"
#include "api/api_internal.h"

#define DEFAULT_RANGE_NS (24 * 3600 * NS_PER_S)
#define MS_MAX		 (INT64_MAX / 1000000)
/* Services without minute buckets whose sessions are merged into one profile. */
#define SESSION_SERVICES_MAX 100u

void selection_deinit(struct selection *selection)
{
	label_selector_deinit(&selection->selector);
	if (selection->places)
		service_labels_list_deinit(selection->places);
	free(selection->places);
	selection->places = NULL;
}

/* ---- labels ---------------------------------------------------------------------------------- */

static const char *const series_labels[] = {
	"service_name", "host", "unit", "container", "pod", "namespace", "workload", "image",
};
/* By the parts of a type id (type_id_parts()). */
static const char *const type_labels[5] = { "__name__", "__type__", "__unit__", "__period_type__",
					    "__period_unit__" };

bool selection_is_series_label(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(series_labels); i++)
		if (strcmp(name, series_labels[i]) == 0)
			return true;
	return text_begins(name, "__");
}

bool selection_has_sample_matchers(const struct selection *selection)
{
	for (size_t i = 0; i < selection->selector.count; i++)
		if (!selection_is_series_label(selection->selector.items[i].name))
			return true;
	return false;
}

/* Where @service ran last on @host before the end of the time range. */
static const char *find_place(struct selection *selection, const char *service, const char *host,
			      enum service_label label)
{
	struct http_call *call = selection->call;
	struct err none = { 0 };

	if (!selection->places) {
		selection->places = calloc(1, sizeof(*selection->places));
		if (!selection->places ||
		    sessions_service_labels(call->api->options.sessions, call->request->tenant,
					    selection->to_ns, selection->places, &none) < 0)
			return "";
	}
	return service_labels_find(selection->places, service, host, label);
}

static const char *type_label(struct type_id id, const char *name, char scratch[SERIES_LABEL_SIZE])
{
	const char *parts[5];

	if (strcmp(name, "__profile_type__") == 0)
		return type_id_text(id, scratch);
	type_id_parts(id, parts);
	for (size_t i = 0; i < ARRAY_SIZE(type_labels); i++)
		if (strcmp(name, type_labels[i]) == 0)
			return parts[i];
	return "";
}

static const char *service_label(struct selection *selection, const char *service, const char *host,
				 const char *name)
{
	if (strcmp(name, "service_name") == 0)
		return service;
	if (strcmp(name, "host") == 0)
		return host;
	for (unsigned label = 0; label < SERVICE_LABELS; label++)
		if (strcmp(name, service_label_word(label)) == 0)
			return find_place(selection, service, host, label);
	return "";
}

const char *series_label(struct selection *selection, const struct series_row *row,
			 const char *name, char scratch[SERIES_LABEL_SIZE])
{
	return text_begins(name, "__")
		       ? type_label(row->id, name, scratch)
		       : service_label(selection, row->service, row->host, name);
}

/* @row NULL: only what is known without a profile type. */
static int test_series(struct selection *selection, const char *service, const char *host,
		       const struct series_row *row)
{
	char scratch[SERIES_LABEL_SIZE];

	for (size_t i = 0; i < selection->selector.count; i++) {
		struct matcher *matcher = &selection->selector.items[i];
		bool of_type = text_begins(matcher->name, "__");
		const char *value;
		int rc;

		if (!selection_is_series_label(matcher->name) || (of_type && !row))
			continue;
		value = of_type ? type_label(row->id, matcher->name, scratch)
				: service_label(selection, service, host, matcher->name);
		rc = matcher_test(&selection->selector, matcher, value, selection->call->err);
		if (rc <= 0)
			return rc;
	}
	return 1;
}

int selection_has_row(struct selection *selection, const struct series_row *row)
{
	return test_series(selection, row->service, row->host, row);
}

struct sample_label sample_label_find(const struct profile *p, const char *name)
{
	struct sample_label label = { 0 };

	label.known = attribute_parse(p, name, &label.attribute) == 0;
	return label;
}

const char *sample_label_text(const struct profile *p, uint32_t attrs,
			      const struct sample_label *label,
			      char scratch[ATTRIBUTE_SCRATCH_SIZE])
{
	return label->known ? attribute_text(p, attrs, label->attribute, scratch) : "";
}

/* ---- reading --------------------------------------------------------------------------------- */

int selection_range(struct selection *selection, const struct querier_request *request)
{
	struct err *err = selection->call->err;
	uint64_t now_ns = clock_realtime_ns();

	if (request->start_ms < 0 || request->start_ms > MS_MAX || request->end_ms < 0 ||
	    request->end_ms > MS_MAX)
		return err_set(err, EINVAL, "InvalidParam", "start",
			       "start and end must be milliseconds since 1970");
	selection->to_ns = request->end_ms ? (uint64_t)request->end_ms * NS_PER_MS : now_ns;
	selection->from_ns = request->start_ms ? (uint64_t)request->start_ms * NS_PER_MS
			     : selection->to_ns > DEFAULT_RANGE_NS
				     ? selection->to_ns - DEFAULT_RANGE_NS
				     : 0;
	if (selection->from_ns >= selection->to_ns)
		return err_set(err, EINVAL, "InvalidParam", "end", "end must lie after start");
	return 0;
}

/* The profile type has been named: matchers of its parts hold for everything or for nothing. */
static int check_type_matchers(struct selection *selection)
{
	char scratch[SERIES_LABEL_SIZE];

	for (size_t i = 0; i < selection->selector.count; i++) {
		struct matcher *matcher = &selection->selector.items[i];
		int rc = !text_begins(matcher->name, "__")
				 ? 1
				 : matcher_test(&selection->selector, matcher,
						type_label(selection->id, matcher->name, scratch),
						selection->call->err);

		if (rc < 0)
			return rc;
		selection->nothing |= rc == 0;
	}
	return 0;
}

int selection_read(struct http_call *call, const struct querier_request *request,
		   struct selection *ret)
{
	struct selection selection = { .call = call,
				       .call_site = &request->call_site,
				       .spans = &request->span_ids };
	int rc = selection_range(&selection, request);

	if (rc < 0)
		return rc;
	if (request->has_pgo || request->trace_ids.count || request->profile_ids.count ||
	    request->is_async)
		return err_set(
			call->err, ENOTSUP, "NotImplemented", "request",
			"selectors for PGO, traces, single profiles and asynchronous queries are not supported");
	if (!request->type_id || type_id_parse(request->type_id, &selection.id) < 0)
		return err_set(call->err, EINVAL, "InvalidParam", "profileTypeID",
			       "'%.100s' is no profile type of profd: ProfileTypes lists them",
			       request->type_id ? request->type_id : "");
	rc = selector_read(request->selector ? request->selector : "", "labelSelector",
			   &selection.selector, call->err);
	if (rc == 0)
		rc = check_type_matchers(&selection);
	if (rc == 0)
		*ret = selection;
	else
		selection_deinit(&selection);
	return rc;
}

/* ---- series ---------------------------------------------------------------------------------- */

static bool wants_series(void *ctx, const char *service, const char *host)
{
	struct selection *selection = ctx;
	int rc = selection->error ? 0 : test_series(selection, service, host, NULL);

	if (rc < 0)
		selection->error = rc;
	return rc > 0;
}

int selection_series(struct selection *selection, uint32_t types, uint64_t step_ns,
		     struct history_series_list *ret)
{
	struct http_call *call = selection->call;
	const struct history_series_query query = { .tenant = call->request->tenant,
						    .types = types,
						    .from_ns = selection->from_ns,
						    .to_ns = selection->to_ns,
						    .step_ns = step_ns,
						    .wants = wants_series,
						    .wants_ctx = selection };
	int rc = sessions_series(call->api->options.sessions, &query, ret, call->err);

	if (rc == 0 && selection->error) {
		history_series_list_deinit(ret);
		rc = selection->error;
	}
	return rc;
}

/* ---- profile --------------------------------------------------------------------------------- */

struct chosen {
	const struct history_series_list *list; /* sorted by service, then host */
	bool continuous;
	const char *service; /* only this one; NULL = all of the list */
};

static int by_name(const void *a, const void *b)
{
	const struct history_series *x = a, *y = b;
	int order = strcmp(x->service, y->service);

	return order ? order : strcmp(x->host, y->host);
}

/* Windows of "*" say how long all services were observed. */
static bool wants_chosen(void *ctx, const char *service, const char *host)
{
	const struct chosen *chosen = ctx;
	struct history_series key = { .service = (char *)service };
	const struct history_series *series;

	if (strcmp(service, "*") == 0)
		return true;
	(void)snprintf(key.host, sizeof(key.host), "%s", host);
	series = bsearch(&key, chosen->list->items, chosen->list->count, sizeof(key), by_name);
	return series && series->continuous == chosen->continuous;
}

struct parts {
	struct profile *items[SESSION_SERVICES_MAX + 1];
	size_t count;
};

static void cleanup_parts_fn(struct parts *parts)
{
	for (size_t i = 0; i < parts->count; i++)
		(void)profile_unref(parts->items[i]);
}

static int add_part(struct selection *selection, const struct chosen *chosen, struct parts *parts)
{
	struct http_call *call = selection->call;
	const struct history_window window = { .tenant = call->request->tenant,
					       .service = chosen->service ? chosen->service : "*",
					       .type = selection->id.type,
					       .from_ns = selection->from_ns,
					       .to_ns = selection->to_ns,
					       .wants = wants_chosen,
					       .wants_ctx = (void *)chosen };
	int rc;

	if (parts->count == ARRAY_SIZE(parts->items))
		return err_set(
			call->err, E2BIG, "LimitReached", "labelSelector",
			"selects more than %u services without continuous data: select fewer",
			SESSION_SERVICES_MAX);
	rc = sessions_window_profile(call->api->options.sessions, &window,
				     &parts->items[parts->count], call->err);
	parts->count += rc == 0;
	if (rc == -ENOENT)
		*call->err = (struct err){ 0 };
	return rc == -ENOENT ? 0 : rc;
}

/* All minute buckets are read in one go, the sessions of each service by themselves. */
static int collect_parts(struct selection *selection, const struct history_series_list *list,
			 struct parts *parts)
{
	struct chosen minutes = { .list = list, .continuous = true };
	const char *last = NULL;
	unsigned services = 0;
	int rc = 0;

	for (size_t i = 0; i < list->count; i++) {
		if (!list->items[i].continuous)
			continue;
		services += !last || strcmp(last, list->items[i].service) != 0;
		last = list->items[i].service;
	}
	minutes.service = services == 1 ? last : NULL;
	if (services)
		rc = add_part(selection, &minutes, parts);
	last = NULL;
	for (size_t i = 0; i < list->count && rc == 0; i++) {
		const struct chosen one = { .list = list, .service = list->items[i].service };

		if (list->items[i].continuous || (last && strcmp(last, one.service) == 0))
			continue;
		last = one.service;
		rc = add_part(selection, &one, parts);
	}
	return rc;
}

/* Spans of traces are known by the label span_id, which programs set that send their profiles. */
static bool is_of_span(const struct selection *selection, const struct profile *p, uint32_t attrs)
{
	char scratch[ATTRIBUTE_SCRATCH_SIZE];
	const char *id = sample_label_text(p, attrs, &selection->span, scratch);

	for (size_t i = 0; *id && i < selection->spans->count; i++)
		if (strcasecmp(selection->spans->items[i], id) == 0)
			return true;
	return false;
}

/* Samples that all matchers of samples want. */
static int wants_sample(void *ctx, const struct profile *p, uint32_t attrs)
{
	struct selection *selection = ctx;
	char scratch[ATTRIBUTE_SCRATCH_SIZE];

	if (selection->spans && selection->spans->count && !is_of_span(selection, p, attrs))
		return 0;
	for (size_t i = 0; i < selection->selector.count; i++) {
		struct matcher *matcher = &selection->selector.items[i];
		int rc;

		if (selection_is_series_label(matcher->name))
			continue;
		rc = matcher_test(&selection->selector, matcher,
				  sample_label_text(p, attrs, &selection->labels[i], scratch),
				  selection->call->err);
		if (rc <= 0)
			return rc;
	}
	return 1;
}

static int narrow(struct selection *selection, struct profile **p)
{
	const struct profile_filter filter = {
		.wants = wants_sample,
		.wants_ctx = selection,
		.path = (const char *const *)selection->call_site->items,
		.path_count = selection->call_site->count
	};
	struct profile *part;
	int rc;

	if (!selection_has_sample_matchers(selection) && !filter.path_count &&
	    !(selection->spans && selection->spans->count))
		return 0;
	selection->span = sample_label_find(*p, "span_id");
	for (size_t i = 0; i < selection->selector.count; i++)
		selection->labels[i] = sample_label_find(*p, selection->selector.items[i].name);
	rc = profile_select(*p, &filter, &part);
	if (rc < 0)
		return rc;
	(void)profile_unref(*p);
	*p = part;
	return 0;
}

int selection_profile(struct selection *selection, struct profile **ret)
{
	__attribute__((__cleanup__(cleanup_parts_fn))) struct parts parts = { 0 };
	struct history_series_list list = { 0 };
	struct profile *p = NULL;
	int rc;

	if (selection->nothing)
		return -ENOENT;
	rc = selection_series(selection, 1u << selection->id.type, 0, &list);
	if (rc == 0)
		rc = collect_parts(selection, &list, &parts);
	history_series_list_deinit(&list);
	if (rc < 0)
		return rc;
	if (!parts.count)
		return -ENOENT;
	if (parts.count == 1)
		p = profile_ref(parts.items[0]);
	else
		rc = profile_merge(parts.items, parts.count, &p);
	if (rc == 0)
		rc = narrow(selection, &p);
	if (rc < 0) {
		(void)profile_unref(p);
		return rc;
	}
	*ret = p;
	return 0;
}
