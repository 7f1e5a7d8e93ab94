/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to one ClickHouse server over HTTP: connections kept and reused, limits of time, and
 * what failed in words. No lock is held while the network is waited for. Thread-safe. */
#ifndef PROFD_STORE_CLICKHOUSE_HTTP_H
#define PROFD_STORE_CLICKHOUSE_HTTP_H

#include <stdatomic.h>
#include <stddef.h>

#include "agent/base/buf.h"
#include "agent/base/err.h"
#include "agent/store/clickhouse_url.h"

#define CLICKHOUSE_ANSWER_MAX (512u << 20) /* bytes of an answer; a longer one is refused */

struct clickhouse_http;

/* @stop: ends what is under way; borrowed. */
int clickhouse_http_create(const struct clickhouse_url *url, atomic_bool *stop,
			   struct clickhouse_http **ret, struct err *err) must_use;
void clickhouse_http_destroy(struct clickhouse_http *http);
CLEANUP_DEFINE(clickhouse_http, struct clickhouse_http *, clickhouse_http_destroy);

/* The server's address; borrowed. */
const struct clickhouse_url *clickhouse_http_url(const struct clickhouse_http *http);
/* host:port/database, for people. */
const char *clickhouse_http_name(const struct clickhouse_http *http);

/* The version of the server: 1000 * major + minor (26009 for 26.9). 0 until the first request has
 * asked for it. */
unsigned clickhouse_http_version(struct clickhouse_http *http);

struct clickhouse_request {
	const char *sql;     /* the statement, or where @body is given the INSERT whose rows those are */
	const void *body;    /* RowBinary, NULL = none; taken whole or not at all, also where the
				connection breaks */
	size_t body_len;     /* at most CLICKHOUSE_BODY_MAX */
	const char *token;   /* the name of @body, of a-z 0-9 and -: servers with replicas (23.1 and
				newer) take a body of the same name once. NULL = none */
	bool outside;	     /* not in the database: it may not be there yet */
	bool whatever;	     /* also within the second after a connection failed */
};
#define CLICKHOUSE_BODY_MAX (512u << 20)

/* @answer: its body, NULL = not wanted. @ret_code: of the exception that the server threw, 0 = it
 * threw none; may be NULL. -EIO with the word StoreUnavailable and a sentence with the remedy:
 * cannot be reached, no answer in time, an exception. -E2BIG: the answer is too large. After a
 * connection that failed, requests fail at once for a second. */
int clickhouse_http_do(struct clickhouse_http *http, const struct clickhouse_request *request,
		       struct buf *answer, int *ret_code, struct err *err) must_use;

#endif
