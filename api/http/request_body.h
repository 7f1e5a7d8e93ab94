/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies that clients may compress, and the two forms of the Connect protocol's messages
 * (connectrpc.com/docs/protocol). */
#ifndef PROFD_API_REQUEST_BODY_H
#define PROFD_API_REQUEST_BODY_H

#include "api/http/http.h"

/* Whether the body's media type is application/json, also with parameters. */
bool request_is_json(const struct http_request *request);
/* The media type: application/json (*@ret_json) or application/proto, also with parameters.
 * UnsupportedMediaType; InvalidParam: another version of the protocol. */
int request_connect_media(const struct http_request *request, bool *ret_json, struct err *err)
	must_use;
/* The same of OTLP/HTTP: application/json (*@ret_json) or application/x-protobuf. */
int request_otlp_media(const struct http_request *request, bool *ret_json, struct err *err)
	must_use;
/* The body as it was before the client compressed it with gzip. @unpacked holds it where it was
 * compressed; the caller releases that. BodyTooLarge: more than @max bytes. InvalidBody: no
 * gzip. */
int request_body(const struct http_request *request, size_t max, struct buf *unpacked,
		 const char **ret, size_t *ret_len, struct err *err) must_use;

#endif
