// SPDX-License-Identifier: Apache-2.0
/* The route table; openapi.yaml must describe exactly these (tests/unit/test_openapi.c). A path of literals
 * stands before patterns that would also match it. */
#include "api/flamegraph.h"
#include "api/keys.h"
#include "api/links.h"
#include "api/meta.h"
#include "api/pages.h"
#include "api/profiling.h"
#include "api/router.h"
#include "api/sessions_b.h"
#include "api/static_files.h"

#define A "/api/v1/observability"
#define B "/api/v1/profiling"

#define READ	HTTP_ROLE_READ
#define PROFILE HTTP_ROLE_PROFILE
#define ADMIN	HTTP_ROLE_ADMIN

const struct route routes[] = {
	/* family A */
	{ "GET", A "/services", handle_services, NULL, READ, 0 },
	{ "POST", A "/profiling/start", handle_start, NULL, PROFILE, ROUTE_JSON },
	{ "GET", A "/profiling/history", handle_history, history_params, READ, 0 },
	{ "GET", A "/profiling/{profileId}", handle_get_profile, get_profile_params, READ, 0 },
	{ "DELETE", A "/profiling/{profileId}", handle_delete_profile, NULL, PROFILE, 0 },
	{ "GET", A "/profiling/{profileId}/flamegraph", handle_flamegraph, flamegraph_params, READ,
	  ROUTE_SIGNED },
	/* family B */
	{ "POST", B "/sessions", handle_create_session, create_session_params, PROFILE, ROUTE_JSON },
	{ "GET", B "/sessions", handle_list_sessions, history_params, READ, 0 },
	{ "GET", B "/sessions/{sessionId}", handle_get_profile, get_profile_params, READ, 0 },
	{ "DELETE", B "/sessions/{sessionId}", handle_delete_profile, NULL, PROFILE, 0 },
	/* keys and links */
	{ "POST", "/api/v1/keys", handle_create_key, NULL, ADMIN, ROUTE_JSON },
	{ "GET", "/api/v1/keys", handle_list_keys, NULL, ADMIN, 0 },
	{ "DELETE", "/api/v1/keys/{id}", handle_delete_key, NULL, ADMIN, 0 },
	{ "POST", "/api/v1/links/rotate", handle_rotate_links, NULL, ADMIN, 0 },
	/* the agent itself */
	{ "GET", "/healthz", handle_healthz, NULL, READ, ROUTE_OPEN },
	{ "GET", "/readyz", handle_readyz, NULL, READ, ROUTE_OPEN },
	{ "GET", "/version", handle_version, NULL, READ, ROUTE_OPEN },
	{ "GET", "/openapi.json", handle_openapi, NULL, READ, ROUTE_OPEN },
	{ "GET", "/metrics", handle_metrics, NULL, READ, ROUTE_METRICS },
	/* pages */
	{ "GET", "/", handle_home, NULL, READ, 0 },
	{ "GET", "/p/{profileId}", handle_profile_page, NULL, READ, 0 },
	{ "GET", "/ui/{file}", handle_static_file, NULL, READ, ROUTE_OPEN },
};

const unsigned route_count = sizeof(routes) / sizeof(routes[0]);
