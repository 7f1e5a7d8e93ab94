// SPDX-License-Identifier: Apache-2.0
#include "api/receive/receive.h"

#include <ctype.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "agent/base/clock.h"
#include "agent/base/hash.h"
#include "agent/base/parse.h"
#include "agent/base/text.h"
#include "api/api_internal.h"
#include "api/auth/secret.h"
#include "api/http/compress.h"
#include "api/http/json_in.h"
#include "api/http/json_out.h"
#include "api/http/request_body.h"
#include "api/receive/multipart.h"
#include "api/receive/otlp_in.h"
#include "api/receive/otlp_json.h"
#include "api/receive/pprof_in.h"

#define PUSH_SAMPLES_MAX 256u /* profiles of one Push */
#define WARNINGS_MAX	 8u

const struct query_spec ingest_params[] = {
	{ .name = "name", .type = QUERY_TEXT, .min = 1, .max = 2048, .flags = QUERY_REQUIRED,
	  .about = "the service, and labels in braces" },
	{ .name = "from", .type = QUERY_TEXT, .min = 1, .max = 20,
	  .about = "begin of the profile, Unix time in s, ms, us or ns; default: the profile's own" },
	{ .name = "until", .type = QUERY_TEXT, .min = 1, .max = 20, .about = "its end, likewise" },
	{ .name = "format", .type = QUERY_WORD, .words = "pprof", .flags = QUERY_EMPTY,
	  .about = "pprof alone is accepted" },
	{ .name = "type", .type = QUERY_WORD, .words = "block mutex", .flags = QUERY_EMPTY,
	  .about = "which of them contentions and delay are" },
	{ .name = "spyName", .type = QUERY_TEXT, .max = 64, .about = "ignored" },
	{ .name = "sampleRate", .type = QUERY_TEXT, .max = 20, .about = "ignored: the profile says it" },
	{ .name = "units", .type = QUERY_TEXT, .max = 64, .about = "ignored: the profile says them" },
	{ .name = "aggregationType", .type = QUERY_TEXT, .max = 64, .about = "ignored" },
	{ 0 },
};

/* The profiles of one request that were stored, and why others were not. */
struct outcome {
	struct buf ids; /* JSON texts, separated by commas */
	uint32_t stored;
	char warnings[WARNINGS_MAX][200];
	unsigned warning_count;
};

/* ---- storing --------------------------------------------------------------------------------- */

static int take_token(struct http_call *call)
{
	const uint64_t who = hash_bytes(call->request->tenant, strlen(call->request->tenant), 0);
	unsigned wait_s = rate_limit_take(call->api->received, who, clock_monotonic_ns());

	if (!wait_s)
		return 0;
	(void)err_set(call->err, EBUSY, "TooManyProfiles", NULL,
		      "more profiles than [limits] received_per_second allows a tenant; come back");
	call->err->retry_after_s = wait_s;
	return -EBUSY;
}

/* The same bytes for the same service have the same identity. */
static int identify(const struct http_call *call, const uint8_t digest[SECRET_BYTES], size_t index,
		    struct received *received)
{
	cleanup_buf struct buf text = { 0 };
	uint8_t out[SECRET_BYTES];
	int rc;

	buf_add(&text, digest, SECRET_BYTES);
	buf_printf(&text, "%s %zu %u %" PRIu64 " %s", call->request->tenant, index, received->type,
		   received->start_ns, received->service);
	rc = text.error ? text.error : secret_sha256(text.data, text.len, out);
	if (rc == 0)
		memcpy(received->identity, out, sizeof(received->identity));
	return rc;
}

static void settle_time(struct received *received)
{
	if (!received->start_ns)
		received->start_ns = clock_realtime_ns() - received->duration_ns;
}

static int store_one(struct http_call *call, const uint8_t digest[SECRET_BYTES], size_t index,
		     struct received *received, struct outcome *outcome)
{
	char id[SESSION_ID_SIZE];
	int rc;

	settle_time(received);
	rc = identify(call, digest, index, received);
	if (rc == 0)
		rc = take_token(call);
	if (rc == 0)
		rc = sessions_receive(call->api->options.sessions, call->request->tenant, received, id,
				      call->err);
	if (rc < 0)
		return rc;
	buf_printf(&outcome->ids, "%s\"%s\"", outcome->stored++ ? "," : "", id);
	return outcome->ids.error;
}

static void warn(struct outcome *outcome, const char *text)
{
	if (outcome->warning_count < WARNINGS_MAX)
		(void)snprintf(outcome->warnings[outcome->warning_count++],
			       sizeof(outcome->warnings[0]), "%.199s", text);
}

/* Stores every profile that has samples. One that is refused costs only itself, as long as another
 * is stored; @outcome has the reason. */
static int store_all(struct http_call *call, struct message *message, const void *body, size_t len,
		     struct outcome *outcome)
{
	uint8_t digest[SECRET_BYTES];
	int rc = secret_sha256(body, len, digest);

	for (size_t i = 0; rc == 0 && i < message->list.count; i++) {
		if (!message->list.data[i].samples.count)
			continue;
		rc = store_one(call, digest, i, &message->list.data[i], outcome);
		if (rc == -EINVAL) {
			message_reject(message, call->err);
			warn(outcome, call->err->text);
			rc = 0;
		}
	}
	if (rc == 0 && message->rejected && !outcome->stored)
		return call->err->code ? -call->err->code : -EINVAL;
	if (rc == 0)
		*call->err = (struct err){ 0 };
	return rc;
}

/* ---- pprof ----------------------------------------------------------------------------------- */

/* pprof files are gzip, but need not be. */
static int read_pprof(const char *data, size_t len, int locks, struct message *message,
		      struct err *err)
{
	cleanup_buf struct buf unpacked = { 0 };
	int rc;

	if (len < 2 || (uint8_t)data[0] != 0x1f || (uint8_t)data[1] != 0x8b)
		return pprof_read(message, data, len, locks, err);
	rc = compress_gunzip(data, len, MESSAGE_BYTES_MAX, &unpacked);
	if (rc == -EFBIG)
		return err_set(err, E2BIG, "BodyTooLarge", "profile",
			       "the profile has more than %u bytes", MESSAGE_BYTES_MAX);
	if (rc == -EPROTO)
		return err_set(err, EINVAL, "InvalidBody", "profile", "the profile is not gzip");
	return rc < 0 ? rc : pprof_read(message, unpacked.data, unpacked.len, locks, err);
}

static void add_label(struct received *to, const char *name, size_t name_len, const char *value,
		      size_t value_len)
{
	struct session_label *label = &to->session_labels[to->session_label_count];

	if (to->session_label_count == ARRAY_SIZE(to->session_labels) || !name_len || !value_len ||
	    name_len >= sizeof(label->name) || value_len >= sizeof(label->value) ||
	    text_begins(name, "__"))
		return;
	(void)snprintf(label->name, sizeof(label->name), "%.*s", (int)name_len, name);
	(void)snprintf(label->value, sizeof(label->value), "%.*s", (int)value_len, value);
	to->session_label_count++;
}

/* `app{name=value,…}` */
static int read_name(const char *text, struct received *to, struct err *err)
{
	const size_t len = strcspn(text, "{");
	const char *at = text + len, *end = at + strlen(at);

	if (!len || len >= sizeof(to->service))
		return err_set(err, EINVAL, "InvalidParam", "name",
			       "name must begin with a service of 1 to 255 bytes");
	(void)snprintf(to->service, sizeof(to->service), "%.*s", (int)len, text);
	if (!*at)
		return 0;
	if (*--end != '}')
		return err_set(err, EINVAL, "InvalidParam", "name", "name: expected service{label=value,…}");
	for (at++; at < end;) {
		const size_t pair = strcspn(at, ",}");
		const char *equals = memchr(at, '=', pair);

		if (!equals)
			return err_set(err, EINVAL, "InvalidParam", "name",
				       "name: expected service{label=value,…}");
		add_label(to, at, (size_t)(equals - at), equals + 1, pair - (size_t)(equals + 1 - at));
		at += pair + 1;
	}
	return 0;
}

/* Unix time in seconds, or in the finer unit that so many digits mean. */
static int read_time(const struct query *query, const char *name, uint64_t *ret, struct err *err)
{
	const char *text = query_text(query, name, NULL);
	uint64_t scale, number;

	if (!text)
		return 0;
	if (parse_u64(text, 0, INT64_MAX, &number) < 0)
		return err_set(err, EINVAL, "InvalidParam", name, "%s must be a Unix time, in digits", name);
	scale = number < 100000000000ull	  ? NS_PER_S
		: number < 100000000000000ull	  ? NS_PER_MS
		: number < 100000000000000000ull ? 1000ull
						  : 1;
	*ret = number * scale;
	return 0;
}

/* The parts of a form, or the body as the profile itself. */
struct parts {
	const char *profile;
	size_t len;
	int locks; /* as in value_plans() */
};

static int locks_of(const char *word)
{
	return text_begins(word, "mutex")	? PROFILE_MUTEX
	       : text_begins(word, "block") ? PROFILE_BLOCK
						: -1;
}

/* Pyroscope's agents say by the display name of contentions what they are. */
static int read_config(const struct multipart_part *part, struct parts *ret, struct err *err)
{
	cleanup(json) cJSON *config = NULL;
	const cJSON *type;
	int rc = json_in_object(part->data, part->len, &config, err);

	if (rc < 0)
		return rc;
	for (type = config->child; type; type = type->next) {
		const char *name = cJSON_GetStringValue(
			cJSON_GetObjectItemCaseSensitive(type, "display-name"));

		if (name && locks_of(name) >= 0)
			ret->locks = locks_of(name);
	}
	return 0;
}

static int read_form(const char *type, const char *body, size_t len, struct parts *ret,
		     struct err *err)
{
	struct multipart form;
	struct multipart_part part;
	int rc = multipart_begin(&form, type, body, len);

	while (rc >= 0 && (rc = multipart_next(&form, &part)) > 0) {
		if (strcmp(part.name, "profile") == 0) {
			ret->profile = part.data;
			ret->len = part.len;
		} else if (strcmp(part.name, "sample_type_config") == 0) {
			rc = read_config(&part, ret, err);
			if (rc < 0)
				return rc;
		} else if (strcmp(part.name, "prev_profile") == 0 && part.len) {
			return err_set(err, EINVAL, "InvalidBody", "prev_profile",
				       "prev_profile: differences of two profiles are not made; send the "
				       "difference itself");
		}
	}
	if (rc < 0)
		return err_set(err, EINVAL, "InvalidBody", "body", "the form is cut or malformed");
	if (!ret->profile)
		return err_set(err, EINVAL, "InvalidBody", "profile", "the form has no part `profile`");
	return 0;
}

static void write_ids(struct http_call *call, const struct outcome *outcome)
{
	struct json_out json = json_out_to(&call->answer->body);

	call->answer->content_type = "application/json";
	call->answer->no_store = true;
	json_out_open(&json, NULL, '{');
	json_out_open(&json, "items", '[');
	if (outcome->ids.len)
		json_out_raw(&json, outcome->ids.data);
	json_out_close(&json, ']');
	if (outcome->warning_count) {
		json_out_open(&json, "warnings", '[');
		for (unsigned i = 0; i < outcome->warning_count; i++)
			json_out_text(&json, NULL, outcome->warnings[i]);
		json_out_close(&json, ']');
	}
	json_out_close(&json, '}');
}

/* The query goes before what the profile says of itself. */
static int describe(const struct query *query, struct message *message, struct err *err)
{
	uint64_t from_ns = 0, until_ns = 0;
	int rc = read_time(query, "from", &from_ns, err);

	if (rc == 0)
		rc = read_time(query, "until", &until_ns, err);
	if (rc == 0 && from_ns && until_ns && until_ns < from_ns)
		rc = err_set(err, EINVAL, "InvalidParam", "until", "until must not be before from");
	for (size_t i = 0; rc == 0 && i < message->list.count; i++) {
		struct received *received = &message->list.data[i];

		rc = read_name(query_text(query, "name", ""), received, err);
		received->format = "pprof";
		if (from_ns)
			received->start_ns = from_ns;
		if (from_ns && until_ns)
			received->duration_ns = until_ns - from_ns;
		else if (until_ns && until_ns > received->duration_ns)
			received->start_ns = until_ns - received->duration_ns;
	}
	return rc;
}

int handle_ingest(struct http_call *call)
{
	const struct query *query = &call->request->query;
	const char *type = http_header(call->request, "Content-Type"), *body;
	cleanup_buf struct buf unpacked = { 0 };
	cleanup_message struct message message = { 0 };
	struct outcome outcome = { 0 };
	struct parts parts = { .locks = locks_of(query_text(query, "type", "")) };
	size_t len;
	int rc = request_body(call->request, MESSAGE_BYTES_MAX, &unpacked, &body, &len, call->err);

	if (rc < 0)
		return rc;
	parts.profile = multipart_is(type) ? NULL : body;
	parts.len = len;
	if (multipart_is(type))
		rc = read_form(type, body, len, &parts, call->err);
	if (rc == 0)
		rc = read_pprof(parts.profile, parts.len, parts.locks, &message, call->err);
	if (rc == 0)
		rc = describe(query, &message, call->err);
	if (rc == 0)
		rc = store_all(call, &message, parts.profile, parts.len, &outcome);
	if (rc == 0)
		write_ids(call, &outcome);
	buf_deinit(&outcome.ids);
	return rc;
}

/* ---- OTLP ------------------------------------------------------------------------------------ */

static void add_field(struct buf *out, unsigned field, const char *text)
{
	buf_add_varint(out, field << 3 | PROTO_WIRE_BYTES);
	buf_add_varint(out, strlen(text));
	buf_add_str(out, text);
}

/* ExportProfilesServiceResponse; empty when everything was taken. */
static void write_partial(struct http_call *call, const struct message *message)
{
	cleanup_buf struct buf partial = { 0 };

	call->answer->content_type = "application/x-protobuf";
	call->answer->no_store = true;
	if (!message->rejected)
		return;
	buf_add_varint(&partial, 1 << 3);
	buf_add_varint(&partial, message->rejected);
	add_field(&partial, 2, message->why);
	buf_add_varint(&call->answer->body, 1 << 3 | PROTO_WIRE_BYTES);
	buf_add_varint(&call->answer->body, partial.len);
	buf_add(&call->answer->body, partial.data, partial.len);
	if (partial.error && !call->answer->body.error)
		call->answer->body.error = partial.error;
}

/* The same in JSON. */
static void write_partial_json(struct http_call *call, const struct message *message)
{
	struct json_out json = json_out_to(&call->answer->body);
	char rejected[16];

	call->answer->content_type = "application/json";
	call->answer->no_store = true;
	json_out_open(&json, NULL, '{');
	if (message->rejected) {
		(void)snprintf(rejected, sizeof(rejected), "%u", message->rejected);
		json_out_open(&json, "partialSuccess", '{');
		json_out_text(&json, "rejectedProfiles", rejected); /* an int64 is a text */
		json_out_text(&json, "errorMessage", message->why);
		json_out_close(&json, '}');
	}
	json_out_close(&json, '}');
}

static int read_otlp(const char *body, size_t len, bool json, struct message *message,
		     struct err *err)
{
	cleanup_buf struct buf bytes = { .max = MESSAGE_BYTES_MAX };
	int rc = 0;

	if (!json)
		return otlp_read(message, body, len, err);
	rc = otlp_json_read(body, len, &bytes, err);
	return rc < 0 ? rc : otlp_read(message, bytes.len ? bytes.data : "", bytes.len, err);
}

int handle_otlp_profiles(struct http_call *call)
{
	cleanup_buf struct buf unpacked = { 0 };
	cleanup_message struct message message = { 0 };
	struct outcome outcome = { 0 };
	const char *body;
	bool json;
	size_t len;
	int rc = request_otlp_media(call->request, &json, call->err);

	if (rc == 0)
		rc = request_body(call->request, MESSAGE_BYTES_MAX, &unpacked, &body, &len, call->err);
	if (rc == 0)
		rc = read_otlp(body, len, json, &message, call->err);
	if (rc == 0)
		rc = store_all(call, &message, body, len, &outcome);
	if (rc == 0 && json)
		write_partial_json(call, &message);
	else if (rc == 0)
		write_partial(call, &message);
	buf_deinit(&outcome.ids);
	return rc;
}

/* ---- Push ------------------------------------------------------------------------------------ */

enum { /* field numbers of push.v1, github.com/grafana/pyroscope api/push/v1/push.proto */
	PUSH_SERIES = 1,
	SERIES_LABELS = 1,
	SERIES_SAMPLES = 2,
	LABEL_NAME = 1,
	LABEL_VALUE = 2,
	SAMPLE_PROFILE = 1,
};

struct push {
	struct http_call *call;
	struct outcome outcome;
	struct received series; /* the labels of the series */
	int locks;
	unsigned samples;
};

static void take_push_label(struct push *push, const char *name, size_t name_len, const char *value,
			    size_t value_len)
{
	char text[64];

	if (name_len == strlen("service_name") && memcmp(name, "service_name", name_len) == 0 &&
	    value_len < sizeof(push->series.service)) {
		(void)snprintf(push->series.service, sizeof(push->series.service), "%.*s",
			       (int)value_len, value);
		return;
	}
	if (name_len == strlen("__name__") && memcmp(name, "__name__", name_len) == 0) {
		(void)snprintf(text, sizeof(text), "%.*s", value_len < 63 ? (int)value_len : 0, value);
		push->locks = locks_of(text);
		return;
	}
	add_label(&push->series, name, name_len, value, value_len);
}

static int push_profile(struct push *push, const char *data, size_t len)
{
	struct err *err = push->call->err;
	cleanup_message struct message message = { 0 };
	int rc;

	if (push->samples++ == PUSH_SAMPLES_MAX)
		return err_set(err, E2BIG, "LimitReached", "samples", "more than %u profiles in one request",
			       PUSH_SAMPLES_MAX);
	if (!push->series.service[0])
		return err_set(err, EINVAL, "InvalidParam", "service_name",
			       "a series must have the label service_name");
	rc = read_pprof(data, len, push->locks, &message, err);
	for (size_t i = 0; rc == 0 && i < message.list.count; i++) {
		struct received *received = &message.list.data[i];

		memcpy(received->service, push->series.service, sizeof(received->service));
		memcpy(received->session_labels, push->series.session_labels,
		       sizeof(received->session_labels));
		received->session_label_count = push->series.session_label_count;
		received->format = "pprof";
	}
	return rc < 0 ? rc : store_all(push->call, &message, data, len, &push->outcome);
}

static int push_proto_label(struct push *push, struct proto_in in)
{
	struct proto_in name = { 0 }, text = { 0 };
	struct proto_value value;
	int rc;

	while ((rc = message_next(&in, &value, "labels", push->call->err)) > 0) {
		if (value.wire == PROTO_WIRE_BYTES && value.field == LABEL_NAME)
			name = value.in;
		else if (value.wire == PROTO_WIRE_BYTES && value.field == LABEL_VALUE)
			text = value.in;
	}
	if (rc < 0 || !name.at || !text.at)
		return rc;
	if (!parse_is_utf8((const char *)name.at, (size_t)(name.end - name.at)) ||
	    !parse_is_utf8((const char *)text.at, (size_t)(text.end - text.at)))
		return message_bad(push->call->err, "labels", "expected UTF-8");
	take_push_label(push, (const char *)name.at, (size_t)(name.end - name.at),
			(const char *)text.at, (size_t)(text.end - text.at));
	return 0;
}

static int push_proto_sample(struct push *push, struct proto_in in)
{
	struct proto_value value;
	int rc = 0;

	while (rc == 0 && (rc = message_next(&in, &value, "samples", push->call->err)) > 0)
		rc = value.field == SAMPLE_PROFILE && value.wire == PROTO_WIRE_BYTES
			     ? push_profile(push, (const char *)value.in.at,
					    (size_t)(value.in.end - value.in.at))
			     : 0;
	return rc;
}

/* Labels first, wherever they stand. */
static int push_proto_series(struct push *push, struct proto_in series)
{
	static const uint32_t order[] = { SERIES_LABELS, SERIES_SAMPLES };
	struct proto_value value;
	int rc = 0;

	push->series = (struct received){ 0 };
	push->locks = -1;
	for (size_t i = 0; rc == 0 && i < ARRAY_SIZE(order); i++) {
		struct proto_in in = series;

		while (rc == 0 && (rc = message_next(&in, &value, "series", push->call->err)) > 0) {
			rc = 0;
			if (value.field != order[i] || value.wire != PROTO_WIRE_BYTES)
				continue;
			rc = i ? push_proto_sample(push, value.in) : push_proto_label(push, value.in);
		}
	}
	return rc;
}

static int push_proto(struct push *push, const char *body, size_t len)
{
	struct proto_in in = proto_in_of(body, len);
	struct proto_value value;
	int rc = 0;

	while (rc == 0 && (rc = message_next(&in, &value, "request", push->call->err)) > 0)
		rc = value.field == PUSH_SERIES && value.wire == PROTO_WIRE_BYTES
			     ? push_proto_series(push, value.in)
			     : 0;
	return rc;
}

static int push_json_sample(struct push *push, const cJSON *sample)
{
	const char *text;
	gnutls_datum_t packed, data;
	int rc = json_in_text(sample, "rawProfile", true, MESSAGE_BYTES_MAX, &text, push->call->err);

	if (rc < 0)
		return rc;
	packed = (gnutls_datum_t){ (unsigned char *)(uintptr_t)text, (unsigned)strlen(text) };
	if (gnutls_base64_decode2(&packed, &data) != 0)
		return err_set(push->call->err, EINVAL, "InvalidParam", "rawProfile",
			       "rawProfile must be base64");
	rc = push_profile(push, (const char *)data.data, data.size);
	gnutls_free(data.data);
	return rc;
}

static int push_json_series(struct push *push, const cJSON *series)
{
	const cJSON *item;
	const char *name, *value;
	int rc = 0;

	push->series = (struct received){ 0 };
	push->locks = -1;
	cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(series, "labels"))
	{
		rc = json_in_text(item, "name", true, 2048, &name, push->call->err);
		if (rc == 0)
			rc = json_in_text(item, "value", true, 2048, &value, push->call->err);
		if (rc < 0)
			return rc;
		take_push_label(push, name, strlen(name), value, strlen(value));
	}
	cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(series, "samples"))
	{
		rc = push_json_sample(push, item);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int push_json(struct push *push, const char *body, size_t len)
{
	cleanup(json) cJSON *object = NULL;
	const cJSON *item;
	int rc = json_in_object(body, len, &object, push->call->err);

	if (rc < 0)
		return rc;
	cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(object, "series"))
	{
		rc = push_json_series(push, item);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int handle_push(struct http_call *call)
{
	cleanup_buf struct buf unpacked = { 0 };
	struct push push = { .call = call };
	const char *body;
	bool json;
	size_t len;
	int rc = request_connect_media(call->request, &json, call->err);

	if (rc == 0)
		rc = request_body(call->request, MESSAGE_BYTES_MAX, &unpacked, &body, &len, call->err);
	if (rc == 0)
		rc = json ? push_json(&push, body, len) : push_proto(&push, body, len);
	buf_deinit(&push.outcome.ids);
	if (rc < 0)
		return rc;
	call->answer->no_store = true;
	call->answer->content_type = json ? "application/json" : "application/proto";
	if (json)
		buf_add_str(&call->answer->body, "{}");
	return 0;
}
