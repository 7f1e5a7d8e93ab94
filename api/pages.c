// SPDX-License-Identifier: Apache-2.0
#include "api/pages.h"

#include <string.h>
#include <time.h>

#include "agent/base/clock.h"
#include "api/api_internal.h"
#include "api/links.h"
#include "api/render/text.h"
#include "api/session_json.h"

#define SESSIONS_SHOWN 30
#define SERVICES_SHOWN 200

static void escaped(struct buf *out, const char *text)
{
	for (; *text; text++) {
		switch (*text) {
		case '<':
			buf_add_str(out, "&lt;");
			break;
		case '>':
			buf_add_str(out, "&gt;");
			break;
		case '&':
			buf_add_str(out, "&amp;");
			break;
		case '"':
			buf_add_str(out, "&quot;");
			break;
		default:
			buf_add_char(out, *text);
		}
	}
}

static void write_services(struct buf *out, const struct service_list *services)
{
	double cpus = 0;

	for (uint32_t i = 0; i < services->count; i++)
		cpus += services->items[i].cpus;
	buf_printf(out, "<p>%u service%s, %.2f CPUs busy.</p><table><thead><tr><th>Service"
		   "<th>From<th>Runtime<th class=n>Processes<th class=n>CPUs<tbody>",
		   services->count, services->count == 1 ? "" : "s", cpus);
	for (uint32_t i = 0; i < services->count && i < SERVICES_SHOWN; i++) {
		const struct service_info *service = &services->items[i];

		buf_add_str(out, "<tr><td>");
		escaped(out, service->name);
		buf_add_str(out, "<td>");
		escaped(out, service->source);
		buf_add_str(out, service->inferred ? " (inferred)<td>" : "<td>");
		escaped(out, service->runtime);
		buf_printf(out, "<td class=n>%u<td class=n>%.2f", service->process_count,
			   service->cpus);
	}
	buf_add_str(out, "</table>");
	if (!services->count)
		buf_add_str(out, "<p>No service is known yet. Nothing needs to be installed in a "
				 "program: it appears here as soon as the collector has seen it. "
				 "<a href=\"/readyz\">Is the agent ready?</a></p>");
}

static void write_session(struct buf *out, struct api *api, const struct session_info *info)
{
	const struct profile_type_info *type = profile_type_info(info->type);
	char when[CLOCK_RFC3339_SIZE], value[TEXT_VALUE_SIZE], link[LINK_SIZE];

	clock_format_rfc3339(info->created_at_ns, when);
	text_value(info->total_value, type->values[type->value_index].unit, value);
	buf_printf(out, "<tr><td>%.19sZ<td>", when);
	escaped(out, info->service);
	buf_printf(out, "<td>%s<td>%s<td class=n>%.1f s<td class=n>%s<td>", type->word,
		   session_status_text(info->status), (double)info->duration_ns / 1e9, value);
	if (info->status == SESSION_COMPLETED) {
		buf_add_str(out, "<a href=\"");
		escaped(out, link_flame_graph(api, info, link));
		buf_add_str(out, "\">flame graph</a> ");
	} else if (info->status == SESSION_FAILED) {
		escaped(out, info->failure);
	}
	buf_printf(out, " <a href=\"/api/v1/observability/profiling/%s\">result</a>", info->id);
}

static void write_sessions(struct buf *out, struct api *api, const struct session_list *sessions)
{
	buf_add_str(out, "<h2>Newest profiles</h2>");
	if (!sessions->count) {
		buf_add_str(out, "<p>None yet. Take one: <code>profctl record SERVICE</code></p>");
		return;
	}
	buf_add_str(out, "<table><thead><tr><th>Started<th>Service<th>Type<th>Status"
			 "<th class=n>Duration<th class=n>Total<th>Open<tbody>");
	for (uint32_t i = 0; i < sessions->count; i++)
		write_session(out, api, &sessions->items[i]);
	buf_add_str(out, "</table>");
}

int handle_home(struct http_call *call)
{
	static const char begin[] =
		"<!doctype html><html lang=en><meta charset=utf-8>"
		"<meta name=viewport content=\"width=device-width,initial-scale=1\">"
		"<meta name=color-scheme content=\"light dark\"><title>profd: services</title>"
		"<link rel=stylesheet href=\"/ui/plain.css\"><h1>profd</h1>";
	struct buf *out = &call->answer->body;
	struct sessions *sessions = call->api->options.sessions;
	struct session_query query = { .tenant = call->request->tenant, .type = -1, .status = -1,
				       .limit = SESSIONS_SHOWN };
	struct service_list services = { 0 };
	struct session_list list = { 0 };
	int rc = sessions_services(sessions, call->request->tenant, &services, call->err);

	if (rc == 0)
		rc = sessions_list(sessions, &query, &list, call->err);
	if (rc == 0) {
		buf_add_str(out, begin);
		write_services(out, &services);
		write_sessions(out, call->api, &list);
		buf_add_str(out, "<p class=foot><a href=\"/openapi.json\">API</a> · "
				 "<a href=\"/metrics\">metrics</a> · "
				 "<a href=\"/version\">version</a></p></html>\n");
		call->answer->content_type = "text/html; charset=utf-8";
		call->answer->no_store = true;
		http_answer_header(call->answer, "Content-Security-Policy",
				   "default-src 'none'; style-src 'self'; base-uri 'none'; "
				   "form-action 'none'; frame-ancestors 'none'");
		http_answer_header(call->answer, "Referrer-Policy", "no-referrer");
	}
	session_list_deinit(&list);
	service_list_deinit(&services);
	return rc;
}

/* /p/{id} leads to the graph until a session has a page of its own. */
int handle_profile_page(struct http_call *call)
{
	struct session_info info = { 0 };
	char link[LINK_SIZE];
	int rc = sessions_get(call->api->options.sessions, call->request->tenant,
			      call->request->path[0], &info, call->err);

	if (rc < 0)
		return rc;
	call->answer->status = 303;
	call->answer->no_store = true;
	http_answer_header(call->answer, "Location", "%s", link_flame_graph(call->api, &info, link));
	session_info_deinit(&info);
	return 0;
}
