/* SPDX-License-Identifier: Apache-2.0 */
/* Matches requests with a table of routes (routes.h). Paths are matched segment by segment on the
 * raw bytes; only a `{name}` segment is percent-decoded, once. Literal segments win over `{name}`
 * because they stand earlier in the table. */
#ifndef PROFD_API_ROUTER_H
#define PROFD_API_ROUTER_H

#include "api/http/http.h"

struct api;

/* Fills @answer and returns 0, or returns a negative errno with @err; dispatch.c makes the error
 * document. A handler may set answer headers and, for more than the field name, a JSON object text
 * as error details. */
struct http_call {
	struct api *api;
	struct http_request *request;
	struct http_answer *answer;
	struct err *err;
	struct buf details; /* JSON object text for the error document, empty = by err */
	/* Runs another request of the same caller and tenant, as if it had come by itself: the role of
	 * its route is checked. The body of its answer is appended to @ret. */
	int (*ask)(const struct http_call *call, const char *method, const char *target,
		   const char *body, struct buf *ret, struct err *err);
};
typedef int http_handler_fn(struct http_call *call);

enum route_flag {
	ROUTE_OPEN = 1,	  /* served without a token, always */
	ROUTE_JSON = 2,	  /* takes a JSON object as body */
	ROUTE_SIGNED = 4, /* a signed link opens it */
	ROUTE_HTML = 8,	  /* a page: its query is its script's; without a token it leads to the sign-in */
	ROUTE_METRICS = 16, /* open with metrics_open */
	ROUTE_STARTS = 64, /* a GET that changes something: checked for where it comes from, too */
	ROUTE_BODY = 128, /* takes a body that the handler checks */
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

struct route_table {
	const struct route *routes;
	unsigned count;
};

/* Finds in @table the route of @method and the raw path @path (@len bytes, without query) and
 * stores decoded path parameters in @params. HEAD finds GET. 0; -ENOENT no such path; -EPERM path
 * exists, method does not: @allow gets the methods; -EINVAL a parameter is badly encoded, empty or
 * too long (@err names it). */
int router_find(const struct route_table *table, const char *method, const char *path, size_t len,
		const struct route **ret, char params[HTTP_PATH_PARAMS_MAX][HTTP_SEGMENT_MAX],
		char allow[64], struct err *err) must_use;

#endif
