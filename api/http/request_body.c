// SPDX-License-Identifier: Apache-2.0
#include "api/http/request_body.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "api/http/compress.h"

static bool is_media(const struct http_request *request, const char *expected)
{
	const char *type = http_header(request, "Content-Type");
	const size_t len = type ? strcspn(type, "; \t") : 0;

	return len == strlen(expected) && strncasecmp(type, expected, len) == 0;
}

bool request_is_json(const struct http_request *request)
{
	return is_media(request, "application/json");
}

int request_connect_media(const struct http_request *request, bool *ret_json, struct err *err)
{
	const char *version = http_header(request, "Connect-Protocol-Version");

	if (version && strcmp(version, "1") != 0)
		return err_set(err, EINVAL, "InvalidParam", "Connect-Protocol-Version",
			       "Connect-Protocol-Version must be 1");
	*ret_json = request_is_json(request);
	if (*ret_json || is_media(request, "application/proto"))
		return 0;
	return err_set(err, EINVAL, "UnsupportedMediaType", "Content-Type",
		       "Content-Type must be application/proto or application/json");
}

int request_otlp_media(const struct http_request *request, bool *ret_json, struct err *err)
{
	*ret_json = request_is_json(request);
	if (*ret_json || is_media(request, "application/x-protobuf"))
		return 0;
	return err_set(err, EINVAL, "UnsupportedMediaType", "Content-Type",
		       "Content-Type must be application/x-protobuf or application/json");
}

int request_body(const struct http_request *request, size_t max, struct buf *unpacked,
		 const char **ret, size_t *ret_len, struct err *err)
{
	const char *encoding = http_header(request, "Content-Encoding");
	int rc;

	*ret = request->body;
	*ret_len = request->body_len;
	if (!encoding || strcasecmp(encoding, "identity") == 0)
		return 0;
	if (strcasecmp(encoding, "gzip") != 0)
		return err_set(err, ENOTSUP, "NotImplemented", "Content-Encoding",
			       "bodies may be compressed with gzip only");
	rc = compress_gunzip(request->body, request->body_len, max, unpacked);
	if (rc == -EFBIG)
		return err_set(err, E2BIG, "BodyTooLarge", "body", "the body has more than %zu bytes", max);
	if (rc == -EPROTO)
		return err_set(err, EINVAL, "InvalidBody", "body", "the body is not gzip");
	*ret = unpacked->len ? unpacked->data : "";
	*ret_len = unpacked->len;
	return rc;
}
