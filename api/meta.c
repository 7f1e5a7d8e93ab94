// SPDX-License-Identifier: Apache-2.0
#include "api/meta.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/profile/outcome.h"
#include "api/api_internal.h"
#include "api/auth/auth.h"
#include "api/http/json_out.h"
#include "api/push/push.h"
#include "api/render/quality_json.h"
#include "api/render/render.h"
#include "api/routes.h"

int handle_healthz(struct http_call *call)
{
	buf_add_str(&call->answer->body, "{\"status\":\"ok\"}\n");
	call->answer->content_type = "application/json";
	call->answer->no_store = true;
	return 0;
}

/* A store's error names its host and its tables: only the administrator of the host sees it. */
static const char *public_reason(const struct http_call *call, const struct sessions_health *health)
{
	if (health->store_ok || auth_is_owner(call->request))
		return health->reason;
	return "the store does not answer; the agent's log, and profctl doctor as root, say why";
}

/* Ready: the store answers. Without a collector (--no-collect, or while it restarts) reading still
 * works. */
int handle_readyz(struct http_call *call)
{
	struct json_out json = json_out_to(&call->answer->body);
	struct sessions_health health = { 0 };

	sessions_health(call->api->options.sessions, &health);
	json_out_open(&json, NULL, '{');
	json_out_text(&json, "status", health.store_ok ? "ready" : "not ready");
	json_out_bool(&json, "store", health.store_ok);
	json_out_bool(&json, "collector", health.collector_ok);
	json_out_bool(&json, "symbolizer", health.symbolizer_ok);
	json_out_text(&json, "reason", health.reason[0] ? public_reason(call, &health) : NULL);
	json_out_close(&json, '}');
	call->answer->status = health.store_ok ? 200 : 503;
	call->answer->content_type = "application/json";
	call->answer->no_store = true;
	return 0;
}

/* The lines of @text, one member each. */
static void features_json(struct json_out *json, const char *text)
{
	json_out_open(json, "features", '[');
	while (text && *text) {
		size_t len = strcspn(text, "\n");
		char line[512];

		(void)snprintf(line, sizeof(line), "%.*s", (int)len, text);
		json_out_text(json, NULL, line);
		text += len + (text[len] != '\0');
	}
	json_out_close(json, ']');
}

int handle_version(struct http_call *call)
{
	const struct api_options *options = &call->api->options;
	struct json_out json = json_out_to(&call->answer->body);

	json_out_open(&json, NULL, '{');
	json_out_text(&json, "name", "profd");
	json_out_text(&json, "version", PROFD_VERSION);
	json_out_text(&json, "openapi", "/openapi.json");
	json_out_open(&json, "formats", '[');
	for (const struct render_format *f = render_formats; f->name; f++)
		json_out_text(&json, NULL, f->name);
	json_out_close(&json, ']');
	json_out_open(&json, "profileTypes", '[');
	for (unsigned i = 0; i < PROFILE_TYPE_MAX; i++)
		json_out_text(&json, NULL, profile_type_info((enum profile_type)i)->word);
	json_out_close(&json, ']');
	json_out_open(&json, "limits", '{');
	json_out_uint(&json, "bodyBytes", options->body_bytes);
	json_out_uint(&json, "urlBytes", options->url_bytes);
	json_out_uint(&json, "headerBytes", options->header_bytes);
	json_out_uint(&json, "connections", options->connections);
	json_out_close(&json, '}');
	features_json(&json, options->features ? options->features() : NULL);
	json_out_close(&json, '}');
	call->answer->content_type = "application/json";
	return 0;
}

/* ---- Prometheus text format 0.0.4 ------------------------------------------------------------ */

static void head(struct buf *out, const char *name, const char *type, const char *help)
{
	buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void single(struct buf *out, const char *name, const char *type, const char *help,
		   double value)
{
	head(out, name, type, help);
	buf_printf(out, "%s %.10g\n", name, value);
}

static void http_metrics(const struct api *api, struct buf *out)
{
	const struct api_counters *counters = &api->counters;

	head(out, "profd_http_requests_total", "counter", "Requests answered, by route and status.");
	for (unsigned r = 0; r <= API_ROUTES_MAX; r++) {
		for (unsigned s = 0; s < API_STATUSES_MAX; s++) {
			uint64_t count = atomic_load(&counters->requests[r][s]);

			if (count)
				buf_printf(out,
					   "profd_http_requests_total{method=\"%s\",route=\"%s\","
					   "code=\"%u\"} %" PRIu64 "\n",
					   r < route_table.count ? route_table.routes[r].method : "",
					   r < route_table.count ? route_table.routes[r].pattern : "none",
					   http_status_of_slot(s), count);
		}
	}
	head(out, "profd_http_handler_seconds_total", "counter", "Time spent in handlers, by route.");
	for (unsigned r = 0; r < route_table.count; r++) {
		uint64_t ns = atomic_load(&counters->handler_ns[r]);

		if (ns)
			buf_printf(out,
				   "profd_http_handler_seconds_total{method=\"%s\",route=\"%s\"} "
				   "%.9f\n",
				   route_table.routes[r].method, route_table.routes[r].pattern, (double)ns / 1e9);
	}
	head(out, "profd_http_deadlines_total", "counter",
	     "Connections ended because a phase of a request took too long.");
	buf_printf(out, "profd_http_deadlines_total{phase=\"header\"} %" PRIu64 "\n",
		   atomic_load(&counters->deadline_header));
	buf_printf(out, "profd_http_deadlines_total{phase=\"body\"} %" PRIu64 "\n",
		   atomic_load(&counters->deadline_body));
	buf_printf(out, "profd_http_deadlines_total{phase=\"answer\"} %" PRIu64 "\n",
		   atomic_load(&counters->deadline_answer));
	single(out, "profd_http_connections", "gauge", "Open connections.",
	       (double)atomic_load(&counters->connections_open));
	single(out, "profd_http_connections_total", "counter", "Connections accepted.",
	       (double)atomic_load(&counters->connections_total));
	single(out, "profd_http_answer_files_bytes", "gauge", "Answers that wait in files to be taken.",
	       (double)atomic_load(&api->answer_files));
	single(out, "profd_http_connections_shed_total", "counter",
	       "Silent connections closed because all places were taken.",
	       (double)atomic_load(&counters->connections_shed));
	single(out, "profd_http_sent_bytes_total", "counter", "Bytes of answer bodies.",
	       (double)atomic_load(&counters->bytes_out));
}

static void limit_metrics(const struct api *api, struct buf *out)
{
	const struct api_options *options = &api->options;
	const struct {
		const char *name;
		double value;
	} limits[] = {
		{ "body_bytes", (double)options->body_bytes },
		{ "url_bytes", (double)options->url_bytes },
		{ "header_bytes", (double)options->header_bytes },
		{ "header_timeout_seconds", (double)options->header_timeout_ns / 1e9 },
		{ "body_timeout_seconds", (double)options->body_timeout_ns / 1e9 },
		{ "answer_timeout_seconds", (double)options->answer_timeout_ns / 1e9 },
		{ "connections", (double)options->connections },
		{ "requests_per_second", options->requests_per_second },
		{ "request_burst", options->request_burst },
		{ "received_per_second", options->received_per_second },
		{ "answer_bytes", HTTP_ANSWER_MAX },
		{ "answer_files_bytes", (double)HTTP_FILES_MAX },
	};

	head(out, "profd_limit", "gauge", "Configured limits.");
	for (size_t i = 0; i < ARRAY_SIZE(limits); i++)
		buf_printf(out, "profd_limit{name=\"%s\"} %.10g\n", limits[i].name,
			   limits[i].value);
	for (unsigned i = 0; i < options->limit_count; i++)
		buf_printf(out, "profd_limit{name=\"%s\"} %.10g\n", options->limits[i].name,
			   options->limits[i].value);
}

static void refusal_metrics(const struct api *api, struct buf *out)
{
	head(out, "profd_limit_refusals_total", "counter", "Requests refused by a limit.");
	for (unsigned i = 0; http_refusal_name(i); i++)
		buf_printf(out, "profd_limit_refusals_total{name=\"%s\"} %" PRIu64 "\n",
			   http_refusal_name(i), atomic_load(&api->counters.refusals[i]));
}

static void agent_metrics(const struct sessions_health *health, struct buf *out)
{
	head(out, "profd_up", "gauge", "1 when the part works.");
	buf_printf(out, "profd_up{part=\"store\"} %d\n", health->store_ok);
	buf_printf(out, "profd_up{part=\"collector\"} %d\n", health->collector_ok);
	buf_printf(out, "profd_up{part=\"symbolizer\"} %d\n", health->symbolizer_ok);
	single(out, "profd_sampling_enabled", "gauge", "0 while the switch stops all sampling.",
	       health->sampling_enabled);
	single(out, "profd_collector_cpu_seconds_total", "counter", "CPU time of the collector.",
	       (double)health->collector_cpu_ns / 1e9);
	single(out, "profd_bpf_run_seconds_total", "counter", "Time inside the BPF programs.",
	       (double)health->bpf_run_ns / 1e9);
	head(out, "profd_bpf_program_run_seconds_total", "counter",
	     "Time inside the BPF programs, by what they follow.");
	for (size_t i = 0; i < SESSIONS_PROGRAMS; i++)
		buf_printf(out, "profd_bpf_program_run_seconds_total{program=\"%s\"} %.9g\n",
			   health->programs[i].what, (double)health->programs[i].run_ns / 1e9);
	single(out, "profd_server_cpu_seconds_total", "counter", "CPU time of the server.",
	       (double)health->server_cpu_ns / 1e9);
	single(out, "profd_bpf_map_bytes", "gauge", "Memory of the BPF maps.",
	       (double)health->map_bytes);
	single(out, "profd_hung_file_readers", "gauge",
	       "Children that hang at files, and threads at processes, that do not answer; at 16 "
	       "of either no more are looked at.",
	       health->hung_readers);
}

/* The activity of all tenants together. */
static void activity_metrics(const struct sessions_health *health, struct buf *out)
{
	single(out, "profd_samples_total", "counter", "Samples taken.", (double)health->samples);
	head(out, "profd_stack_outcomes_total", "counter",
	     "Stacks and samples that did not end in the plain way, by outcome.");
	for (unsigned i = 0; i < PROFILE_OUTCOMES_MAX; i++)
		if (outcome_info(i))
			buf_printf(out, "profd_stack_outcomes_total{outcome=\"%s\"} %" PRIu64 "\n",
				   outcome_info(i)->name, health->outcomes[i]);
	single(out, "profd_sessions_running", "gauge", "Sessions that run now.",
	       health->running_sessions);
	single(out, "profd_processes", "gauge", "Processes known.", health->processes);
	single(out, "profd_services", "gauge", "Services known.", health->services);
	single(out, "profd_modules", "gauge", "Mapped files known.", health->modules);
	single(out, "profd_stacks", "gauge", "Distinct stacks held.", health->stacks);
	single(out, "profd_feed_used_bytes", "gauge", "Bytes waiting in the feed ring.",
	       (double)health->feed_bytes_used);
	single(out, "profd_feed_capacity_bytes", "gauge", "Size of the feed ring.",
	       (double)health->feed_bytes_capacity);
	single(out, "profd_store_bytes", "gauge", "Bytes of the store on disk.",
	       (double)health->store_bytes);
	single(out, "profd_store_waiting_bytes", "gauge",
	       "Bytes kept on this host until a store that several hosts share takes them.",
	       (double)health->store_waiting_bytes);
	single(out, "profd_detail_bytes", "gauge", "Of them single samples of continuous profiling.",
	       (double)health->detail_bytes);
	single(out, "profd_sample_rate_hertz", "gauge", "Rate of the host sampler.",
	       health->rate_hz);
}

static void cache_metrics(const struct api *api, struct buf *out)
{
	struct answer_cache_counts counts;

	answer_cache_count(api->answers, &counts);
	single(out, "profd_answer_cache_hits_total", "counter", "Rendered answers found kept.",
	       (double)counts.hits);
	single(out, "profd_answer_cache_misses_total", "counter", "Rendered answers made.",
	       (double)counts.misses);
	single(out, "profd_answer_cache_bytes", "gauge", "Bytes of rendered answers kept.",
	       (double)counts.bytes);
}

int handle_metrics(struct http_call *call)
{
	struct buf *out = &call->answer->body;
	struct sessions_health health = { 0 };

	sessions_health(call->api->options.sessions, &health);
	head(out, "profd_build_info", "gauge", "Version of this agent.");
	buf_add_str(out, "profd_build_info{version=\"" PROFD_VERSION "\"} 1\n");
	single(out, "profd_uptime_seconds", "gauge", "Time since the server started.",
	       (double)(clock_monotonic_ns() - call->api->started_ns) / 1e9);
	agent_metrics(&health, out);
	if (!call->request->bound) {
		activity_metrics(&health, out);
		http_metrics(call->api, out);
		refusal_metrics(call->api, out);
		push_metrics(call->api->push, out);
		cache_metrics(call->api, out);
	}
	limit_metrics(call->api, out);
	call->answer->content_type = "text/plain; version=0.0.4; charset=utf-8";
	call->answer->no_store = true;
	return 0;
}
