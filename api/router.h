/* SPDX-License-Identifier: Apache-2.0 */
/* The route table: every method and path that the server answers, with its parameters, in routes.c. Paths are
 * matched segment by segment on the raw bytes; only a `{name}` segment is percent-decoded, once. Literal
 * segments win over `{name}` because they stand earlier in the table. */
#ifndef PROFD_API_ROUTER_H
#define PROFD_API_ROUTER_H

#include "api/http.h"

struct api;

/* Fills @answer and returns 0, or returns a negative errno with @err; dispatch.c makes the error document. A
 * handler may set answer headers and, for more than the field name, a JSON object text as error details. */
struct http_call {
	struct api *api;
	struct http_request *request;
	struct http_answer *answer;
	struct err *err;
	struct buf details; /* JSON object text for the error document, empty = by err */
};
typedef int http_handler_fn(struct http_call *call);

enum route_flag {
	ROUTE_OPEN = 1,	  /* served without a token, always */
	ROUTE_JSON = 2,	  /* takes a JSON object as body */
	ROUTE_SIGNED = 4, /* a signed link opens it */
	ROUTE_HTML = 8,	  /* a page: its query is its script's; without a token it leads to the sign-in */
	ROUTE_METRICS = 16, /* open with metrics_open */
	ROUTE_HOST = 32, /* concerns all tenants: refused to callers that belong to one */
};

struct route {
	const char *method;
	const char *pattern;
	http_handler_fn *handler;
	const struct query_spec *params; /* NULL = none */
	enum http_role role;
	unsigned flags; /* enum route_flag */
};

extern const struct route routes[];
extern const unsigned route_count;

/* Finds the route of @method and the raw path @path (@len bytes, without query) and stores decoded path
 * parameters in @params. HEAD finds GET. 0; -ENOENT no such path; -EPERM path exists, method does not: @allow
 * gets the methods; -EINVAL a parameter is badly encoded, empty or too long (@err names it). */
int router_find(const char *method, const char *path, size_t len, const struct route **ret,
		char params[HTTP_PATH_PARAMS_MAX][HTTP_SEGMENT_MAX], char allow[64],
		struct err *err) must_use;

#endif
