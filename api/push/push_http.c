// SPDX-License-Identifier: Apache-2.0
#include "api/push/push_http.h"

#include <ctype.h>
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/buf.h"
#include "agent/base/io.h"

#define ANSWER_MAX	(64u << 10) /* bytes read of an answer */
#define TOKEN_MAX	8192
#define CONNECT_LIMIT_S 10L
#define SEND_LIMIT_S	60L

/* ---- the answer ------------------------------------------------------------------------------ */

struct proto_reader {
	const uint8_t *at, *end;
};

static bool read_varint(struct proto_reader *r, uint64_t *ret)
{
	uint64_t value = 0;

	for (unsigned shift = 0; shift < 64 && r->at < r->end; shift += 7) {
		uint8_t byte = *r->at++;

		value |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80)) {
			*ret = value;
			return true;
		}
	}
	return false;
}

/* The next field: number, and its value or its bytes. */
static bool read_field(struct proto_reader *r, uint64_t *number, uint64_t *value,
		       struct proto_reader *bytes)
{
	uint64_t key, len;

	if (r->at == r->end || !read_varint(r, &key))
		return false;
	*number = key >> 3;
	*value = 0;
	*bytes = (struct proto_reader){ r->at, r->at };
	switch (key & 7) {
	case 0:
		return read_varint(r, value);
	case 1:
	case 5:
		len = (key & 7) == 1 ? 8 : 4;
		break;
	case 2:
		if (!read_varint(r, &len))
			return false;
		break;
	default:
		return false;
	}
	if (len > (uint64_t)(r->end - r->at))
		return false;
	*bytes = (struct proto_reader){ r->at, r->at + len };
	r->at += len;
	return true;
}

/* The answer of a receiver goes to a log: printable ASCII only. */
static void take_text(const uint8_t *data, size_t len, struct push_answer *ret)
{
	size_t n = 0;

	for (size_t i = 0; i < len && n + 1 < sizeof(ret->text); i++)
		ret->text[n++] = isprint(data[i]) ? (char)data[i] : ' ';
	ret->text[n] = '\0';
}

void push_read_answer(const void *data, size_t len, struct push_answer *ret)
{
	struct proto_reader all = { data, (const uint8_t *)data + len }, part, text;
	uint64_t number, value;

	while (read_field(&all, &number, &value, &part)) {
		if (number != 1)
			continue;
		while (read_field(&part, &number, &value, &text)) {
			if (number == 1)
				ret->rejected = value > INT64_MAX ? 0 : value;
			else if (number == 2)
				take_text(text.at, (size_t)(text.end - text.at), ret);
		}
	}
}

/* ---- sending --------------------------------------------------------------------------------- */

static size_t on_data(char *data, size_t size, size_t count, void *ctx)
{
	struct buf *answer = ctx;
	size_t len = size * count, room = answer->max - answer->len;

	buf_add(answer, data, len < room ? len : room);
	return len;
}

static int on_progress(void *ctx, curl_off_t down_total, curl_off_t down, curl_off_t up_total,
		       curl_off_t up)
{
	atomic_bool *stop = ctx;

	(void)down_total, (void)down, (void)up_total, (void)up;
	return atomic_load(stop);
}

/* ---- addresses ------------------------------------------------------------------------------- */

void push_show_url(const char *url, char ret[PUSH_SHOWN_SIZE])
{
	const char *host = strstr(url, "://");
	size_t scheme = host ? (size_t)(host - url) + 3 : 0, len = strcspn(url + scheme, "/?#");
	const char *at = memrchr(url + scheme, '@', len);

	host = at ? at + 1 : url + scheme;
	len -= (size_t)(host - (url + scheme));
	(void)snprintf(ret, PUSH_SHOWN_SIZE, "%.*s%.*s/***", (int)(scheme < 16 ? scheme : 16), url,
		       (int)(len < 128 ? len : 128), host);
}

static bool ip4_is_public(uint32_t ip4)
{
	static const struct {
		uint32_t net;
		unsigned bits;
	} nets[] = {
		{ 0x00000000, 8 },  { 0x0a000000, 8 },	{ 0x64400000, 10 }, { 0x7f000000, 8 },
		{ 0xa9fe0000, 16 }, { 0xac100000, 12 }, { 0xc0000000, 24 }, { 0xc0a80000, 16 },
		{ 0xc6120000, 15 }, { 0xe0000000, 3 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(nets); i++)
		if (!((ip4 ^ nets[i].net) >> (32 - nets[i].bits)))
			return false;
	return true;
}

static uint32_t ip4_at(const uint8_t *bytes)
{
	return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

/* Global unicast is 2000::/3; 6to4 and NAT64 carry an IPv4 address. */
static bool ip6_is_public(const uint8_t *bytes)
{
	static const uint8_t mapped[12] = { [10] = 0xff, [11] = 0xff };
	static const uint8_t nat64[12] = { 0, 0x64, 0xff, 0x9b };

	if (!memcmp(bytes, mapped, sizeof(mapped)) || !memcmp(bytes, nat64, sizeof(nat64)))
		return ip4_is_public(ip4_at(bytes + 12));
	if (bytes[0] == 0x20 && bytes[1] == 0x02)
		return ip4_is_public(ip4_at(bytes + 2));
	return bytes[0] >> 5 == 1;
}

bool push_address_is_public(const struct sockaddr *address)
{
	const void *at = address;

	if (address->sa_family == AF_INET)
		return ip4_is_public(ntohl(((const struct sockaddr_in *)at)->sin_addr.s_addr));
	return address->sa_family == AF_INET6 &&
	       ip6_is_public(((const struct sockaddr_in6 *)at)->sin6_addr.s6_addr);
}

/* After the name was resolved, before anything is sent: a name cannot change its address between
 * the check and the connection. */
static curl_socket_t open_public(void *ctx, curlsocktype purpose, struct curl_sockaddr *address)
{
	bool *refused = ctx;

	(void)purpose;
	*refused = !push_address_is_public(&address->addr);
	if (*refused)
		return CURL_SOCKET_BAD;
	return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static int add_header(struct curl_slist **list, const char *name, const char *value)
{
	cleanup_buf struct buf line = { .max = TOKEN_MAX + 128 };
	struct curl_slist *longer;

	buf_printf(&line, "%s: %s", name, value);
	longer = line.error ? NULL : curl_slist_append(*list, line.data);
	if (!longer)
		return -ENOMEM;
	*list = longer;
	return 0;
}

static int add_token(struct curl_slist **list, const char *path, struct push_answer *ret)
{
	char token[TOKEN_MAX], bearer[TOKEN_MAX + 8];
	ssize_t len = io_read_small(AT_FDCWD, path, token, sizeof(token));

	if (len < 0) {
		(void)snprintf(ret->text, sizeof(ret->text), "cannot read the token file: %s",
			       strerror((int)-len));
		return (int)len;
	}
	token[strcspn(token, "\r\n")] = '\0';
	(void)snprintf(bearer, sizeof(bearer), "Bearer %s", token);
	return add_header(list, "Authorization", bearer);
}

static enum push_result classify(const struct push_target *target, const struct buf *body,
				 struct push_answer *ret)
{
	if (ret->status >= 200 && ret->status < 300) {
		if (target->otlp && body->len)
			push_read_answer(body->data, body->len, ret);
		return PUSH_DONE;
	}
	if (body->len)
		take_text((const uint8_t *)body->data, body->len, ret);
	switch (ret->status) {
	case 401: /* until somebody changes the token */
	case 403:
	case 408:
	case 429:
	case 502:
	case 503:
	case 504:
		return PUSH_LATER;
	default:
		return PUSH_REFUSED;
	}
}

static void set_options(CURL *curl, const struct push_target *target, struct curl_slist *headers,
			const void *data, size_t len, struct buf *body)
{
	(void)curl_easy_setopt(curl, CURLOPT_URL, target->url);
	(void)curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
	(void)curl_easy_setopt(curl, CURLOPT_POST, 1L);
	(void)curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)len);
	(void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, data);
	(void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	(void)curl_easy_setopt(curl, CURLOPT_USERAGENT, "profd/" PROFD_VERSION);
	(void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	(void)curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, CONNECT_LIMIT_S);
	(void)curl_easy_setopt(curl, CURLOPT_TIMEOUT,
			       target->limit_s ? (long)target->limit_s : SEND_LIMIT_S);
	(void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_data);
	(void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, body);
	(void)curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
	(void)curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
	(void)curl_easy_setopt(curl, CURLOPT_XFERINFODATA, target->stop);
}

static int make_headers(const struct push_target *target, struct curl_slist **list,
			struct push_answer *ret)
{
	int rc = add_header(list, "Content-Type", target->content_type);

	if (rc == 0 && target->packed)
		rc = add_header(list, "Content-Encoding", "gzip");
	if (rc == 0)
		rc = add_header(list, "Expect", ""); /* no extra round trip */
	if (rc == 0 && target->token_file)
		rc = add_token(list, target->token_file, ret);
	return rc;
}

enum push_result push_send(const struct push_target *target, const void *data, size_t len,
			   struct push_answer *ret)
{
	struct buf body = { .max = ANSWER_MAX };
	struct curl_slist *headers = NULL;
	enum push_result result = PUSH_LATER;
	CURL *curl = curl_easy_init();
	curl_off_t retry_after = 0;
	bool refused = false;
	CURLcode code;

	*ret = (struct push_answer){ 0 };
	if (!curl || make_headers(target, &headers, ret) < 0)
		goto out;
	set_options(curl, target, headers, data, len, &body);
	if (target->public_only) {
		(void)curl_easy_setopt(curl, CURLOPT_OPENSOCKETFUNCTION, open_public);
		(void)curl_easy_setopt(curl, CURLOPT_OPENSOCKETDATA, &refused);
	}
	code = curl_easy_perform(curl);
	if (code != CURLE_OK) {
		(void)snprintf(ret->text, sizeof(ret->text), "%s",
			       refused ? "its address is not public; [continuous] private_webhooks = yes "
					 "allows such" :
					 curl_easy_strerror(code));
		goto out;
	}
	(void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &ret->status);
	/* Seconds and dates alike. */
	if (curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &retry_after) == CURLE_OK && retry_after > 0)
		ret->retry_after_s = (uint64_t)retry_after;
	result = classify(target, &body, ret);
out:
	curl_slist_free_all(headers);
	if (curl)
		curl_easy_cleanup(curl);
	buf_deinit(&body);
	return result;
}
