/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of api/: the object behind struct api and the counters of /metrics. */
#ifndef PROFD_API_API_INTERNAL_H
#define PROFD_API_API_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "api/http/answer_cache.h"
#include "api/api.h"
#include "api/http/http.h"
#include "api/auth/jwt.h"
#include "api/auth/keys.h"
#include "api/auth/links.h"
#include "api/http/rate_limit.h"
#include "api/http/router.h"

#define API_ROUTES_MAX	 96
#define API_STATUSES_MAX 64 /* distinct status codes counted per route */
#define API_REFUSALS_MAX 16
#define API_RECEIVED_BURST 10 /* seconds' worth of received profiles that may come at once */
#define API_ANSWERS_BYTES (32u << 20) /* of rendered profiles kept */

struct api_counters {
	/* [route][slot]; the last route is "no route". Slots by http_status_slot(). */
	_Atomic uint64_t requests[API_ROUTES_MAX + 1][API_STATUSES_MAX];
	_Atomic uint64_t handler_ns[API_ROUTES_MAX + 1];
	_Atomic uint64_t connections_total, connections_open, connections_shed;
	_Atomic uint64_t deadline_header, deadline_body, deadline_answer;
	_Atomic uint64_t bytes_out;
	_Atomic uint64_t refusals[API_REFUSALS_MAX]; /* by http_refusal_name() */
};

struct api {
	struct api_options options;
	bool is_public;	   /* others than this host reach the listener */
	char *public_host; /* host[:port] of public_url, owned, NULL = none */
	struct keys *keys;
	struct jwt_verifier *jwt; /* NULL = not configured */
	struct rate_limit *addresses, *callers;
	struct rate_limit *received; /* profiles, by tenant */
	struct answer_cache *answers; /* of rendered profiles */
	_Atomic uint64_t answer_files; /* bytes of answers that wait in files */
	struct links links;
	uint64_t started_ns; /* monotonic */
	atomic_bool stopping; /* waits inside handlers end */
	struct api_counters counters;
	struct server *server;
	struct push *push; /* NULL = no receivers */
};

/* Runs one request to its end: checks, route, authorization, query, handler, error document, common
 * headers. Always leaves a complete answer. The caller zeroes @answer and releases request and
 * answer. */
void api_dispatch(struct api *api, struct http_request *request, struct http_answer *answer);
void http_request_deinit(struct http_request *request);

/* Prepares everything but the listeners: what unit tests and fuzz targets use. */
int api_create(const struct api_options *options, struct api **ret, struct err *err) must_use;
void api_destroy(struct api *api);
CLEANUP_DEFINE(api, struct api *, api_destroy);

/* Index of a status code in api_counters.requests, and back (0 = unused slot). */
unsigned http_status_slot(unsigned status);
unsigned http_status_of_slot(unsigned slot);
/* The limit that refusals[@index] counts, NULL beyond the last. */
const char *http_refusal_name(unsigned index);
/* Counts an error of the code @word, if a limit causes it. */
void api_count_refusal(struct api *api, const char *word);

#endif
