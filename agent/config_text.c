// SPDX-License-Identifier: Apache-2.0
#include "agent/config_text.h"

#include <stdio.h>
#include <string.h>
#include <sys/un.h>

#include "agent/base/cleanup.h"
#include "agent/base/parse.h"
#include "agent/base/text.h"
#include "agent/listeners.h"
#include "agent/store/clickhouse_url.h"

#define URL_MAX 900 /* bytes; a path of an export's kind is put behind it */

bool config_text_is_url(const char *value)
{
	size_t scheme = text_begins(value, "http://") ? 7 : text_begins(value, "https://") ? 8 : 0;

	return scheme && !strchr("/:?#", value[scheme]) && !strpbrk(value, " \t") &&
	       strlen(value) <= URL_MAX;
}

bool config_text_is_port_pattern(const char *value)
{
	uint64_t port;

	return *value && !value[strspn(value, "0123456789*?[]!-")] &&
	       (strpbrk(value, "*?[") || parse_u64(value, 1, 65535, &port) == 0);
}

static bool is_not_empty(const char *value)
{
	return *value;
}

static bool is_socket_path(const char *value)
{
	return strlen(value) < sizeof(((struct sockaddr_un *)0)->sun_path);
}

static bool is_url_or_none(const char *value)
{
	return !*value || config_text_is_url(value);
}

static bool are_urls(const char *value)
{
	char url[URL_MAX + 2];

	for (size_t len; *(value += strspn(value, " \t")); value += len) {
		len = strcspn(value, " \t");
		(void)snprintf(url, sizeof(url), "%.*s", (int)len, value);
		if (!config_text_is_url(url))
			return false;
	}
	return true;
}

static bool is_store(const char *value)
{
	struct clickhouse_url url;

	return !*value || text_begins(value, "sqlite:") || clickhouse_url_parse(value, &url, NULL) == 0;
}

static bool is_algorithm(const char *value)
{
	static const char *const words[] = { "", "HS256", "RS256", "ES256", "EdDSA" };
	bool known = false;

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		known |= !strcmp(value, words[i]);
	return known;
}

static bool is_cpu_event(const char *value)
{
	return !strcmp(value, "cpu-clock") || !strcmp(value, "cycles");
}

const char *config_text_expected(const char *section, const char *key, const char *value)
{
	static const struct {
		const char *section, *key;
		bool (*is_valid)(const char *value);
		const char *expected;
	} rows[] = {
		{ "server", "listen", listeners_is_address,
		  "ADDR:PORT, as 127.0.0.1:8088 or [::1]:8088" },
		{ "server", "socket", is_socket_path, "a path of at most 107 bytes" },
		{ "server", "public_url", is_url_or_none, "https://host[:port]" },
		{ "store", "url", is_store,
		  "sqlite:PATH, or clickhouse://[user[:password]@]host:port/database[?cluster=NAME]" },
		{ "store", "data_dir", is_not_empty, "a folder" },
		{ "collect", "cpu_event", is_cpu_event, "cpu-clock or cycles" },
		{ "collect", "debuginfod_urls", are_urls,
		  "URLs that begin with http:// or https://, blanks between them" },
		{ "auth", "jwt_algorithm", is_algorithm, "HS256, RS256, ES256 or EdDSA" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		if (!strcmp(rows[i].section, section) && !strcmp(rows[i].key, key))
			return rows[i].is_valid(value) ? NULL : rows[i].expected;
	return NULL;
}

const char *config_text_shown(const char *section, const char *key, const char *value)
{
	/* There may be a password in it, also where it is not written as it should be. */
	if (strcmp(section, "store") != 0 || strcmp(key, "url") != 0 || text_begins(value, "sqlite:"))
		return value;
	return strchr(value, '@') || text_begins(value, CLICKHOUSE_SCHEME)
		       ? CLICKHOUSE_SCHEME "..."
		       : value;
}
