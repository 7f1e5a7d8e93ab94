// SPDX-License-Identifier: Apache-2.0
#include "agent/store/clickhouse_url.h"

#include <errno.h>
#include <string.h>

#include "agent/base/parse.h"
#include "agent/base/text.h"

#define HOST_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_"
#define IPV6_CHARS "0123456789abcdefABCDEF:."
#define WORD_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

static int refuse(struct err *err, const char *what)
{
	return err_set(err, EINVAL, NULL, "url",
		       "store url: %s; expected clickhouse://[user[:password]@]host:port/database[?cluster=NAME]",
		       what);
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Nothing that could end a header's line gets through. */
static bool decode(const char *text, size_t len, char out[CLICKHOUSE_NAME_SIZE])
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)text[i];

		if (c == '%') {
			int high = i + 2 < len ? hex_digit(text[i + 1]) : -1,
			    low = high >= 0 ? hex_digit(text[i + 2]) : -1;

			if (low < 0)
				return false;
			c = (unsigned char)(high << 4 | low);
			i += 2;
		}
		if (c < 0x20 || c == 0x7f || n + 1 >= CLICKHOUSE_NAME_SIZE)
			return false;
		out[n++] = (char)c;
	}
	out[n] = '\0';
	return true;
}

static int parse_login(const char *text, size_t len, struct clickhouse_url *url, struct err *err)
{
	const char *colon = memchr(text, ':', len);
	size_t user_len = colon ? (size_t)(colon - text) : len;

	if (user_len == 0 || !decode(text, user_len, url->user))
		return refuse(err, "the user is empty, too long or not percent-encoded");
	if (colon && !decode(colon + 1, len - user_len - 1, url->password))
		return refuse(err, "the password is too long or not percent-encoded");
	return 0;
}

/* Without the brackets of IPv6. */
static bool is_host(const char *text, size_t len)
{
	if (len > 2 && text[0] == '[' && text[len - 1] == ']')
		return strspn(text + 1, IPV6_CHARS) == len - 2;
	return len > 0 && strspn(text, HOST_CHARS) >= len;
}

static int parse_where(const char *text, size_t len, struct clickhouse_url *url, struct err *err)
{
	const char *colon = memrchr(text, ':', len);
	size_t host_len = colon ? (size_t)(colon - text) : 0;
	char port_text[6] = "";
	uint64_t port;

	if (!colon || len - host_len - 1 >= sizeof(port_text) || len >= CLICKHOUSE_NAME_SIZE)
		return refuse(err, "host and port are missing or too long");
	memcpy(port_text, colon + 1, len - host_len - 1);
	if (!is_host(text, host_len))
		return refuse(err, "the host is neither a name nor an address (IPv6 in brackets)");
	if (parse_u64(port_text, 1, 65535, &port) < 0)
		return refuse(err, "the port is not a number from 1 to 65535");
	memcpy(url->where, text, len);
	url->where[len] = '\0';
	url->port = (uint16_t)port;
	url->tls = port == CLICKHOUSE_TLS_PORT;
	return 0;
}

static bool is_word(const char *text, size_t len)
{
	return len > 0 && len < CLICKHOUSE_WORD_SIZE && strspn(text, WORD_CHARS) >= len;
}

/* Parses what follows the host: a database, and perhaps a cluster. */
static int parse_database(const char *text, struct clickhouse_url *url, struct err *err)
{
	static const char key[] = "?cluster=";
	size_t len = strcspn(text, "?");
	const char *cluster = text + len + strlen(key);

	if (!is_word(text, len))
		return refuse(err, "the database is not a name of 1 to 64 letters, digits and _");
	memcpy(url->database, text, len);
	url->database[len] = '\0';
	if (!text[len])
		return 0;
	if (!text_begins(text + len, key))
		return refuse(err, "only cluster=NAME may follow the database");
	if (!is_word(cluster, strlen(cluster)))
		return refuse(err, "the cluster is not a name of 1 to 64 letters, digits and _");
	strcpy(url->cluster, cluster);
	return 0;
}

int clickhouse_url_parse(const char *text, struct clickhouse_url *ret, struct err *err)
{
	struct clickhouse_url url = { 0 };
	const char *slash, *at;
	int rc = 0;

	if (!text_begins(text, CLICKHOUSE_SCHEME))
		return refuse(err, "another scheme");
	text += strlen(CLICKHOUSE_SCHEME);
	slash = strchr(text, '/');
	if (!slash)
		return refuse(err, "the database is missing");
	at = memrchr(text, '@', (size_t)(slash - text));
	if (at) {
		rc = parse_login(text, (size_t)(at - text), &url, err);
		text = at + 1;
	}
	if (rc == 0)
		rc = parse_where(text, (size_t)(slash - text), &url, err);
	if (rc < 0)
		return rc;
	rc = parse_database(slash + 1, &url, err);
	if (rc == 0)
		*ret = url;
	return rc;
}
