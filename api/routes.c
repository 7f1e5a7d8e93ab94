// SPDX-License-Identifier: Apache-2.0
/* The route table; openapi.yaml must describe exactly these (tests/unit/test_openapi.c). A path of
 * literals stands before patterns that would also match it. */
#include "api/admin_api.h"
#include "api/baselines_api.h"
#include "api/compare_api.h"
#include "api/continuous_api.h"
#include "api/debug_pprof.h"
#include "api/findings_api.h"
#include "api/flamegraph.h"
#include "api/goroutines_api.h"
#include "api/grafana/querier.h"
#include "api/auth/keys.h"
#include "api/auth/links.h"
#include "api/mcp/mcp.h"
#include "api/meta.h"
#include "api/pages.h"
#include "api/pipelines.h"
#include "api/profiling.h"
#include "api/receive/receive.h"
#include "api/http/router.h"
#include "api/routes.h"
#include "api/services_api.h"
#include "api/sessions_api.h"
#include "api/auth/sign_in.h"
#include "api/http/static_files.h"
#include "api/views_api.h"
#include "api/windows_api.h"

#define A "/api/v1/observability"
#define B "/api/v1/profiling"

#define READ	HTTP_ROLE_READ
#define PROFILE HTTP_ROLE_PROFILE
#define ADMIN	HTTP_ROLE_ADMIN

static const struct route routes[] = {
	/* family A */
	{ "GET", A "/services", handle_services, services_params, READ, 0 },
	{ "POST", A "/profiling/start", handle_start, NULL, PROFILE, ROUTE_JSON },
	{ "GET", A "/profiling/history", handle_history, history_params, READ, 0 },
	{ "GET", A "/profiling/compare", handle_compare, compare_params, READ, 0 },
	{ "GET", A "/profiling/compare/flamegraph", handle_compare_flamegraph,
	  compare_flamegraph_params, READ, ROUTE_SIGNED },
	{ "GET", A "/profiling/window/flamegraph", handle_window_flamegraph,
	  window_flamegraph_params, READ, ROUTE_SIGNED },
	{ "POST", A "/profiling/continuous", handle_put_continuous, NULL, PROFILE, ROUTE_JSON },
	{ "GET", A "/profiling/continuous", handle_list_continuous, NULL, READ, 0 },
	{ "GET", A "/profiling/continuous/{service}", handle_get_continuous, NULL, READ, 0 },
	{ "DELETE", A "/profiling/continuous/{service}", handle_delete_continuous, NULL, PROFILE, 0 },
	{ "GET", A "/profiling/findings", handle_findings, findings_params, READ, 0 },
	{ "GET", A "/profiling/{profileId}", handle_get_profile, get_profile_params, READ, 0 },
	{ "DELETE", A "/profiling/{profileId}", handle_delete_profile, NULL, PROFILE, 0 },
	{ "GET", A "/profiling/{profileId}/flamegraph", handle_flamegraph, flamegraph_params, READ,
	  ROUTE_SIGNED },
	{ "GET", A "/profiling/{profileId}/heatmap", handle_heatmap, heatmap_params, READ, 0 },
	{ "GET", A "/profiling/{profileId}/ledger", handle_ledger, NULL, READ, 0 },
	/* family B */
	{ "POST", B "/sessions", handle_create_session, create_session_params, PROFILE, ROUTE_JSON },
	{ "GET", B "/sessions", handle_list_sessions, list_sessions_params, READ, 0 },
	{ "GET", B "/sessions/{sessionId}", handle_get_profile, get_profile_params, READ, 0 },
	{ "DELETE", B "/sessions/{sessionId}", handle_delete_profile, NULL, PROFILE, 0 },
	{ "GET", B "/sessions/{sessionId}/analysis", handle_analysis, analysis_params, READ, 0 },
	{ "GET", B "/goroutine-flame/{sessionId}", handle_goroutine_flame, goroutine_flame_params,
	  READ, 0 },
	{ "POST", B "/diff", handle_diff, diff_params, READ, ROUTE_JSON },
	{ "POST", B "/baselines", handle_create_baseline, NULL, PROFILE, ROUTE_JSON },
	{ "GET", B "/baselines", handle_list_baselines, baselines_params, READ, 0 },
	{ "GET", B "/baselines/{baselineId}", handle_get_baseline, NULL, READ, 0 },
	{ "DELETE", B "/baselines/{baselineId}", handle_delete_baseline, NULL, PROFILE, 0 },
	{ "POST", B "/regression/check", handle_check_regression, NULL, PROFILE, ROUTE_JSON },
	{ "GET", B "/regression/{reportId}", handle_get_report, NULL, READ, 0 },
	{ "GET", B "/findings", handle_findings, findings_params, READ, 0 },
	{ "POST", B "/findings/check", handle_check_findings, NULL, PROFILE, ROUTE_JSON },
	{ "GET", B "/trend", handle_trend, trend_params, READ, 0 },
	/* family C */
	{ "GET", "/v0/pipelines", handle_pipelines, NULL, READ, 0 },
	{ "GET", "/v0/pipelines/{pipeline_name}", handle_pipeline, NULL, READ, 0 },
	{ "POST", "/v0/pipelines/{pipeline_name}/samply_profile", handle_samply_start,
	  samply_start_params, PROFILE, 0 },
	{ "GET", "/v0/pipelines/{pipeline_name}/samply_profile", handle_samply_get,
	  samply_get_params, READ, 0 },
	{ "GET", "/v0/pipelines/{pipeline_name}/heap_profile", handle_heap_profile, NULL, PROFILE,
	  ROUTE_STARTS },
	/* pull, as from a Go program */
	{ "GET", "/debug/pprof/profile", handle_debug_cpu, debug_params, PROFILE, ROUTE_STARTS },
	{ "GET", "/debug/pprof/heap", handle_debug_heap, debug_params, PROFILE, ROUTE_STARTS },
	{ "GET", "/debug/pprof/allocs", handle_debug_allocs, debug_params, PROFILE, ROUTE_STARTS },
	{ "GET", "/debug/pprof/block", handle_debug_block, debug_params, PROFILE, ROUTE_STARTS },
	{ "GET", "/debug/pprof/mutex", handle_debug_mutex, debug_params, PROFILE, ROUTE_STARTS },
	{ "GET", "/debug/pprof/goroutine", handle_debug_goroutine, debug_params, PROFILE,
	  ROUTE_STARTS },
	/* what Grafana reads */
	{ "POST", "/querier.v1.QuerierService/{call}", handle_querier, NULL, READ, ROUTE_BODY },
	/* profiles that programs send */
	{ "POST", "/ingest", handle_ingest, ingest_params, PROFILE, ROUTE_BODY },
	{ "POST", "/v1development/profiles", handle_otlp_profiles, NULL, PROFILE, ROUTE_BODY },
	{ "POST", "/push.v1.PusherService/Push", handle_push, NULL, PROFILE, ROUTE_BODY },
	/* assistants */
	{ "POST", "/mcp", handle_mcp, NULL, READ, ROUTE_JSON },
	/* keys and links */
	{ "POST", "/api/v1/keys", handle_create_key, NULL, ADMIN, ROUTE_JSON },
	{ "GET", "/api/v1/keys", handle_list_keys, NULL, ADMIN, 0 },
	{ "DELETE", "/api/v1/keys/{id}", handle_delete_key, NULL, ADMIN, 0 },
	{ "POST", "/api/v1/links/rotate", handle_rotate_links, NULL, ADMIN, ROUTE_HOST },
	/* the agent itself */
	{ "GET", "/api/v1/backup", handle_backup, NULL, ADMIN, ROUTE_HOST },
	{ "GET", "/api/v1/sampling", handle_get_sampling, NULL, READ, 0 },
	{ "POST", "/api/v1/sampling", handle_set_sampling, NULL, ADMIN,
	  ROUTE_JSON | ROUTE_HOST },
	{ "GET", "/healthz", handle_healthz, NULL, READ, ROUTE_OPEN },
	{ "GET", "/readyz", handle_readyz, NULL, READ, ROUTE_OPEN },
	{ "GET", "/version", handle_version, NULL, READ, ROUTE_OPEN },
	{ "GET", "/openapi.json", handle_openapi, NULL, READ, ROUTE_OPEN },
	{ "GET", "/metrics", handle_metrics, NULL, READ, ROUTE_METRICS },
	/* pages */
	{ "GET", "/", handle_page, NULL, READ, ROUTE_HTML },
	{ "GET", "/s/{service}", handle_page, NULL, READ, ROUTE_HTML },
	{ "GET", "/p/{profileId}", handle_page, NULL, READ, ROUTE_HTML },
	{ "GET", "/g/{profileId}", handle_page, NULL, READ, ROUTE_HTML },
	{ "GET", "/compare", handle_page, NULL, READ, ROUTE_HTML },
	{ "GET", "/baselines", handle_page, NULL, READ, ROUTE_HTML },
	{ "GET", "/findings", handle_page, NULL, READ, ROUTE_HTML },
	{ "GET", "/trend", handle_page, NULL, READ, ROUTE_HTML },
	{ "GET", "/status", handle_page, NULL, READ, ROUTE_HTML },
	{ "GET", "/settings", handle_page, NULL, READ, ROUTE_HTML },
	{ "GET", "/sign-in", handle_page, NULL, READ, ROUTE_HTML | ROUTE_OPEN },
	{ "POST", "/sign-in", handle_sign_in, NULL, READ, ROUTE_OPEN | ROUTE_JSON },
	{ "POST", "/sign-out", handle_sign_out, NULL, READ, ROUTE_OPEN },
	{ "GET", "/ui/{file}", handle_static_file, NULL, READ, ROUTE_OPEN },
	{ "GET", "/ui/{folder}/{file}", handle_static_file, NULL, READ, ROUTE_OPEN },
};

const struct route_table route_table = { routes, sizeof(routes) / sizeof(routes[0]) };
