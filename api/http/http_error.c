// SPDX-License-Identifier: Apache-2.0
#include "api/http/http_error.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "agent/base/text.h"
#include "api/http/json_out.h"

static const struct http_error table[] = {
	{ "InvalidParam", 400, "Bad Request" },
	{ "InvalidBody", 400, "Bad Request" },
	{ "NoSamplyProfile", 400, "Bad Request" },
	{ "Unauthenticated", 401, "Unauthorized" },
	{ "Forbidden", 403, "Forbidden" },
	{ "TenantMismatch", 403, "Forbidden" },
	{ "UnknownService", 404, "Not Found" },
	{ "UnknownSession", 404, "Not Found" },
	{ "UnknownBaseline", 404, "Not Found" },
	{ "UnknownKey", 404, "Not Found" },
	{ "UnknownReport", 404, "Not Found" },
	{ "UnknownPipelineName", 404, "Not Found" },
	{ "UnknownOrdinal", 404, "Not Found" },
	{ "NotFound", 404, "Not Found" },
	{ "MethodNotAllowed", 405, "Method Not Allowed" },
	{ "NotAcceptable", 406, "Not Acceptable" },
	{ "RequestTimeout", 408, "Request Timeout" },
	{ "AlreadyRunning", 409, "Conflict" },
	{ "NotFinished", 409, "Conflict" },
	{ "SamplyProfilingInProgress", 409, "Conflict" },
	{ "BodyTooLarge", 413, "Content Too Large" },
	{ "UriTooLong", 414, "URI Too Long" },
	{ "UnsupportedMediaType", 415, "Unsupported Media Type" },
	{ "ProfileTypeUnavailable", 422, "Unprocessable Content" },
	{ "ProfileTypeMismatch", 422, "Unprocessable Content" },
	{ "SessionFailed", 422, "Unprocessable Content" },
	{ "DetailExpired", 422, "Unprocessable Content" },
	{ "LimitReached", 422, "Unprocessable Content" },
	{ "TooManyProfiles", 429, "Too Many Requests" },
	{ "TooManySessions", 429, "Too Many Requests" },
	{ "RateLimited", 429, "Too Many Requests" },
	{ "HeadersTooLarge", 431, "Request Header Fields Too Large" },
	{ "Internal", 500, "Internal Server Error" },
	{ "NotImplemented", 501, "Not Implemented" },
	{ "SamplyProfilingFailure", 500, "Internal Server Error" },
	{ "AgentBusy", 503, "Service Unavailable" },
	{ "ServiceNotRunning", 503, "Service Unavailable" },
	{ "StoreUnavailable", 503, "Service Unavailable" },
	{ "PipelineInteractionNotDeployed", 503, "Service Unavailable" },
	{ "PipelineUnavailable", 503, "Service Unavailable" },
};

static const char *word_of_errno(int code)
{
	switch (code) {
	case EINVAL:
	case ERANGE:
		return "InvalidParam";
	case ENOENT:
		return "NotFound";
	case EACCES:
	case EPERM:
		return "Forbidden";
	case ENODATA:
		return "DetailExpired";
	case E2BIG:
	case EFBIG:
		return "LimitReached";
	case EBUSY:
	case EAGAIN:
	case ETIMEDOUT:
		return "AgentBusy";
	case ENOSPC:
	case EIO:
	case EROFS:
		return "StoreUnavailable";
	default:
		return "Internal";
	}
}

const struct http_error *http_error_of(const struct err *err, int rc)
{
	const char *word = err->word ? err->word : word_of_errno(err->code ? err->code : -rc);
	const struct http_error *internal = NULL;

	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		if (strcmp(table[i].code, word) == 0)
			return &table[i];
		if (strcmp(table[i].code, "Internal") == 0)
			internal = &table[i];
	}
	return internal;
}

bool http_error_is_family_c(const char *target)
{
	return text_begins(target, "/v0");
}

const char *http_error_content_type(bool family_c)
{
	return family_c ? "application/json" : "application/problem+json";
}

void http_error_body(const struct http_error *error, const struct err *err, bool family_c,
		     const char *request_id, const char *details, struct buf *out)
{
	const char *text = err->text[0] ? err->text : error->title;
	struct json_out json = json_out_to(out);

	json_out_open(&json, NULL, '{');
	if (!family_c) {
		json_out_text(&json, "type", "about:blank");
		json_out_text(&json, "title", error->title);
		json_out_uint(&json, "status", error->status);
		json_out_text(&json, "detail", text);
	}
	json_out_text(&json, "message", text);
	json_out_text(&json, "error_code", error->code);
	if (details) {
		buf_add_str(out, ",\"details\":");
		buf_add_str(out, details);
	} else {
		json_out_open(&json, "details", '{');
		if (err->field[0])
			json_out_text(&json, "field", err->field);
		json_out_close(&json, '}');
	}
	if (!family_c && request_id && request_id[0])
		json_out_text(&json, "requestId", request_id);
	json_out_close(&json, '}');
	buf_add_char(out, '\n');
}

/* Codes of the Connect protocol. A status that a client may repeat must keep that meaning. */
static const char *connect_code(const struct http_error *error)
{
	switch (error->status) {
	case 401:
		return "unauthenticated";
	case 403:
		return "permission_denied";
	case 404:
		return "not_found";
	case 405:
	case 501:
		return "unimplemented";
	case 408:
		return "deadline_exceeded";
	case 409:
		return "aborted";
	case 413:
	case 429:
		return "resource_exhausted";
	case 500:
		return "internal";
	case 503:
		return "unavailable";
	case 422:
		return strcmp(error->code, "LimitReached") == 0 ? "resource_exhausted"
								: "failed_precondition";
	default:
		return "invalid_argument";
	}
}

void http_error_connect(const struct http_error *error, const struct err *err, struct buf *out)
{
	struct json_out json = json_out_to(out);

	json_out_open(&json, NULL, '{');
	json_out_text(&json, "code", connect_code(error));
	json_out_text(&json, "message", err->text[0] ? err->text : error->title);
	json_out_close(&json, '}');
}

/* Codes of gRPC (google.rpc.Code). */
static unsigned rpc_code(const struct http_error *error)
{
	switch (error->status) {
	case 401:
		return 16;
	case 403:
		return 7;
	case 404:
	case 405:
	case 501:
		return 12;
	case 413:
	case 429:
		return 8;
	case 500:
		return 13;
	case 503:
		return 14;
	default:
		return 3;
	}
}

void http_error_otlp(const struct http_error *error, const struct err *err, bool in_json,
		     struct buf *out)
{
	const char *text = err->text[0] ? err->text : error->title;
	struct json_out json = json_out_to(out);

	if (in_json) {
		json_out_open(&json, NULL, '{');
		json_out_uint(&json, "code", rpc_code(error));
		json_out_text(&json, "message", text);
		json_out_close(&json, '}');
		return;
	}
	buf_add_varint(out, 1 << 3); /* code */
	buf_add_varint(out, rpc_code(error));
	buf_add_varint(out, 2 << 3 | 2); /* message */
	buf_add_varint(out, strlen(text));
	buf_add_str(out, text);
}
