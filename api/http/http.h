/* SPDX-License-Identifier: Apache-2.0 */
/* One HTTP exchange as the handlers see it: plain data in and out, no socket and no library type.
 * So everything behind server.c runs in unit tests and fuzz targets. */
#ifndef PROFD_API_HTTP_H
#define PROFD_API_HTTP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/buf.h"
#include "agent/base/cleanup.h"
#include "agent/base/err.h"
#include "agent/session/session.h"
#include "api/http/query.h"

struct route;

#define HTTP_PATH_PARAMS_MAX 2
#define HTTP_HOST_SIZE	     264 /* a name of DNS, a port, NUL */
#define HTTP_SEGMENT_MAX     1024 /* bytes of one decoded path parameter */
#define HTTP_REQUEST_ID_SIZE 65
#define HTTP_ANSWER_MAX	     (512u << 20) /* bytes of one rendered answer, as it is sent */
#define HTTP_ANSWER_HELD     (4u << 20)	  /* of it in memory: more go to a file */
#define HTTP_FILES_MAX	     (2ull << 30) /* bytes of such files in all answers being sent */

enum http_role { HTTP_ROLE_NONE, HTTP_ROLE_READ, HTTP_ROLE_PROFILE, HTTP_ROLE_ADMIN };

struct http_request {
	/* The request as it arrived; borrowed for the length of the call. */
	const char *method;
	const char *target; /* raw: path, and query after '?'; dispatch takes the rest of an
			       absolute one away */
	const char *body;   /* NUL-terminated after body_len bytes */
	size_t body_len; /* as sent; more than the limit allows when @body was not kept */
	uint64_t header_bytes; /* of the header block */
	unsigned host_count; /* Host headers; more than one is refused (RFC 9112 3.2) */
	bool may_lack_host;  /* HTTP/1.0 knows no Host header; HTTP/1.1 without one is refused (the
				same section) */
	bool over_unix_socket;
	uint32_t peer_uid; /* over the Unix socket, else ignored */
	uint64_t peer; /* hash of the address or the user, 0 = not known: not limited */
	const char *(*header)(void *ctx, const char *name); /* NULL = absent */
	void *header_ctx;

	/* Filled in by dispatch. */
	const struct route *route;
	char host[HTTP_HOST_SIZE]; /* of the target or the Host header; "" = not said */
	char path[HTTP_PATH_PARAMS_MAX][HTTP_SEGMENT_MAX]; /* decoded parameters, in order */
	struct query query;
	char request_id[HTTP_REQUEST_ID_SIZE];
	char tenant[TENANT_NAME_SIZE];
	bool bound; /* the caller belongs to @tenant and may see no other's */
	enum http_role role;
	uint64_t caller; /* hash of the key or token's subject, 0 = none */
};

#define HTTP_HEADERS_MAX 12

struct http_answer {
	unsigned status; /* 200 unless set */
	struct buf body;
	bool has_file; /* the body is @file_bytes of @file_fd (owned) from its begin instead */
	int file_fd;
	uint64_t file_bytes;
	uint64_t file_hash; /* of what was written by http_answer_stream() */
	_Atomic uint64_t *files; /* counts @file_bytes while they exist, NULL = nobody does */
	const char *folder;	 /* of such files, borrowed */
	struct buf_sink sink;	 /* private: of @body while it is written */
	const char *content_type; /* literal */
	struct {
		const char *name; /* literal */
		char value[512];
	} headers[HTTP_HEADERS_MAX];
	unsigned header_count;
	/* The body is a copy of this literal text, which is compressed but once; NULL = it is not. */
	const char *literal;
	bool unhurried;	   /* no deadline for the client to take it */
	bool no_store;	   /* Cache-Control: no-store instead of revalidation by ETag */
	bool no_compress;  /* the body is compressed by its own format */
};

void http_answer_deinit(struct http_answer *answer);
/* From here on a body above HTTP_ANSWER_HELD bytes goes to an unnamed file in @folder, so that
 * large answers need no memory. @files is the sum of all such files. On a full disk the body stays
 * in memory, which can be swapped. Without a folder everything stays in memory. The answer must not
 * be moved before http_answer_end(). */
void http_answer_stream(struct http_answer *answer, const char *folder, _Atomic uint64_t *files);
/* The body is complete. Its error: -EFBIG, -ENOMEM, -EBUSY too many files, -ENOSPC and others of
 * the disk. */
int http_answer_end(struct http_answer *answer) must_use;
/* Forgets what was written of the body. */
void http_answer_drop(struct http_answer *answer);
/* Adds a header; control characters in the value are dropped, a value that does not fit is cut. */
void http_answer_header(struct http_answer *answer, const char *name, const char *fmt, ...)
	printf_like(3, 4);

static inline const char *http_header(const struct http_request *request, const char *name)
{
	return request->header ? request->header(request->header_ctx, name) : NULL;
}

/* Whether @target is a procedure of the Connect protocol (connectrpc.com/docs/protocol), whose
 * errors have a form of their own. */
bool http_is_connect(const char *target);
/* Whether @target is a call of OTLP/HTTP, whose errors are a google.rpc.Status. */
bool http_is_otlp(const char *target);
/* The tenant that the client names, NULL = none: X-Tenant-ID, or X-Scope-OrgID, which Grafana and
 * Pyroscope's agents send to what they take for Pyroscope. @ret_field names the header. */
const char *http_tenant_header(const struct http_request *request, const char **ret_field);

/* A client's id (NULL = none @given) is echoed when it is short printable ASCII, else one is made.
 */
void http_request_id(const char *given, char out[HTTP_REQUEST_ID_SIZE]);

static inline void cleanup_http_answer_fn(struct http_answer *answer)
{
	http_answer_deinit(answer);
}
#define cleanup_http_answer __attribute__((__cleanup__(cleanup_http_answer_fn)))

#endif
