// SPDX-License-Identifier: Apache-2.0
#include "agent/webhook.h"

#include <curl/curl.h>
#include <errno.h>

#define TIMEOUT_MS 10000L
#define ANSWER_MAX (1u << 16) /* bytes that are read of an answer nobody looks at */

static void close_curl(CURL *curl)
{
	curl_easy_cleanup(curl);
}
CLEANUP_DEFINE(curl, CURL *, close_curl);

static void free_headers(struct curl_slist *headers)
{
	curl_slist_free_all(headers);
}
CLEANUP_DEFINE(headers, struct curl_slist *, free_headers);

int webhook_init(void)
{
	return curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK ? 0 : -ENOMEM;
}

static size_t ignore(char *data, size_t size, size_t count, void *ctx)
{
	size_t *seen = ctx;

	*seen += size * count;
	return *seen > ANSWER_MAX ? 0 : size * count;
}

int webhook_post(const char *url, const char *body, struct err *err)
{
	cleanup(headers) struct curl_slist *headers =
		curl_slist_append(NULL, "Content-Type: application/json");
	cleanup(curl) CURL *curl = curl_easy_init();
	size_t seen = 0;
	long status = 0;
	CURLcode rc;

	if (!curl || !headers)
		return err_set(err, ENOMEM, NULL, NULL, "no memory for a request");
	(void)curl_easy_setopt(curl, CURLOPT_URL, url);
	(void)curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
	(void)curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
	(void)curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, TIMEOUT_MS);
	(void)curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	(void)curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	(void)curl_easy_setopt(curl, CURLOPT_USERAGENT, "profd/" PROFD_VERSION);
	(void)curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
	(void)curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, ignore);
	(void)curl_easy_setopt(curl, CURLOPT_WRITEDATA, &seen);
	rc = curl_easy_perform(curl);
	if (rc != CURLE_OK && !(rc == CURLE_WRITE_ERROR && seen > ANSWER_MAX))
		return err_set(err, ECONNREFUSED, NULL, NULL, "%.200s: %s", url,
			       curl_easy_strerror(rc));
	(void)curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
	if (status < 200 || status > 299)
		return err_set(err, EPROTO, NULL, NULL, "%.200s answered with status %ld", url,
			       status);
	return 0;
}
