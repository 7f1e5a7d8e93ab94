/* SPDX-License-Identifier: Apache-2.0 */
/* Errors as the client sees them: one table from error_code to status and title, and two documents.
 */
#ifndef PROFD_API_HTTP_ERROR_H
#define PROFD_API_HTTP_ERROR_H

#include <stdbool.h>

#include "agent/base/buf.h"
#include "agent/base/err.h"

struct http_error {
	const char *code; /* "UnknownService" */
	unsigned status;
	const char *title;
};

/* By err->word, else by errno: EINVAL InvalidParam, ENOENT NotFound, EBUSY AgentBusy. Never NULL;
 * an unknown word is Internal. @rc is the function's negative errno, used when @err is empty. */
const struct http_error *http_error_of(const struct err *err, int rc);

/* Requests below /v0 get the error document of family C, all others a problem document (RFC 9457).
 * @target: of the request line. */
bool http_error_is_family_c(const char *target);
const char *http_error_content_type(bool family_c);

/* The body. @family_c: exactly message, error_code, details. @details is the text of a JSON object
 * or NULL: then {"field": …} where the error names one. */
void http_error_body(const struct http_error *error, const struct err *err, bool family_c,
		     const char *request_id, const char *details, struct buf *out);

/* The body where http_is_connect(): code and message, as connectrpc.com/docs/protocol has them. */
void http_error_connect(const struct http_error *error, const struct err *err, struct buf *out);

/* The body where http_is_otlp(): a google.rpc.Status in protobuf or, @in_json, in JSON. OTLP asks
 * for the form of the request. */
void http_error_otlp(const struct http_error *error, const struct err *err, bool in_json,
		     struct buf *out);

#endif
