// SPDX-License-Identifier: Apache-2.0
#include "tools/profctl/client.h"

#include <ctype.h>
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "agent/base/buf.h"
#include "agent/base/io.h"
#include "agent/base/text.h"

#define DEFAULT_URL    "http://127.0.0.1:8088"
#define DEFAULT_SOCKET "/run/profd/profd.sock"
#define TOKEN_MAX      16384
#define ANSWER_MAX     (1u << 30)

struct client {
	CURL *curl;
	char *url;
	char *socket;
	char *token;
	char *tenant;
	bool for_people;
	bool refused;
};

static bool socket_answers(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	cleanup_close int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || strlen(path) >= sizeof(address.sun_path))
		return false;
	memcpy(address.sun_path, path, strlen(path) + 1);
	return connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0;
}

static char *read_token(const char *path)
{
	const char *environment = getenv("PROFD_TOKEN");
	char *token = NULL;
	size_t len;
	int rc;

	if (!path)
		return strdup(environment ? environment : "");
	rc = io_read_file(AT_FDCWD, path, TOKEN_MAX, &token, &len);
	if (rc < 0) {
		(void)fprintf(stderr, "profctl: cannot read the token file %s: %s\n", path,
			      strerror(-rc));
		return NULL;
	}
	while (len && isspace((unsigned char)token[len - 1]))
		token[--len] = '\0';
	return token;
}

struct client *client_create(const struct client_options *options)
{
	cleanup(client) struct client *client = calloc(1, sizeof(*client));
	const char *url = options->url ? options->url : DEFAULT_URL;
	const char *socket_path = options->socket;

	if (!client)
		return NULL;
	if (!options->url && !socket_path && socket_answers(DEFAULT_SOCKET))
		socket_path = DEFAULT_SOCKET;
	if (socket_path)
		url = "http://localhost";
	client->token = read_token(options->token_file);
	if (!client->token)
		return NULL;
	client->url = strdup(url);
	client->socket = socket_path ? strdup(socket_path) : NULL;
	client->tenant = options->tenant ? strdup(options->tenant) : NULL;
	client->for_people = options->for_people;
	client->curl = curl_easy_init();
	if (!client->url || !client->curl)
		return NULL;
	for (size_t len = strlen(client->url); len && client->url[len - 1] == '/'; len--)
		client->url[len - 1] = '\0';
	return take_ptr(client);
}

void client_destroy(struct client *client)
{
	if (!client)
		return;
	if (client->curl)
		curl_easy_cleanup(client->curl);
	free(client->url);
	free(client->socket);
	free(client->token);
	free(client->tenant);
	free(client);
}

const char *client_address(const struct client *client)
{
	return client->socket ? "" : client->url;
}

bool client_is_local(const struct client *client)
{
	static const char *const loopback[] = { "://127.", "://localhost", "://[::1]" };
	bool local = client->socket != NULL;

	for (size_t i = 0; i < ARRAY_SIZE(loopback); i++)
		local |= strstr(client->url, loopback[i]) != NULL;
	return local;
}

bool client_was_refused(const struct client *client)
{
	return client->refused;
}

char *client_escape(struct client *client, const char *text)
{
	char *escaped = curl_easy_escape(client->curl, text, 0), *copy;

	copy = escaped ? strdup(escaped) : NULL;
	curl_free(escaped);
	return copy;
}

void client_add_parameter(struct client *client, struct buf *path, const char *name,
			  const char *value)
{
	cleanup_free char *escaped = value ? client_escape(client, value) : NULL;

	if (escaped)
		buf_printf(path, "%c%s=%s", path->data && strchr(path->data, '?') ? '&' : '?', name,
			   escaped);
}

static size_t on_data(char *data, size_t size, size_t count, void *ctx)
{
	struct buf *buf = ctx;

	buf_add(buf, data, size * count);
	return buf->error ? 0 : size * count;
}

static struct curl_slist *add_header(struct curl_slist *list, const char *name, const char *value)
{
	cleanup_buf struct buf line = { 0 };
	struct curl_slist *longer;

	buf_printf(&line, "%s: %s", name, value);
	longer = line.error ? NULL : curl_slist_append(list, line.data);
	return longer ? longer : list;
}

static struct curl_slist *make_headers(const struct client *client, const char *accept, bool body)
{
	struct curl_slist *list = add_header(NULL, "Accept", accept);
	cleanup_buf struct buf bearer = { 0 };

	if (body)
		list = add_header(list, "Content-Type", "application/json");
	if (*client->token) {
		buf_printf(&bearer, "Bearer %s", client->token);
		if (!bearer.error)
			list = add_header(list, "Authorization", bearer.data);
	}
	if (client->tenant)
		list = add_header(list, "X-Tenant-ID", client->tenant);
	return list;
}

/* Sets the options that all requests share. @headers are the caller's to release. */
static void set_up(struct client *client, const char *method, const char *url,
		   struct curl_slist *headers)
{
	curl_easy_reset(client->curl);
	(void)curl_easy_setopt(client->curl, CURLOPT_URL, url);
	(void)curl_easy_setopt(client->curl, CURLOPT_CUSTOMREQUEST, method);
	(void)curl_easy_setopt(client->curl, CURLOPT_HTTPHEADER, headers);
	(void)curl_easy_setopt(client->curl, CURLOPT_NOPROXY, "*");
	(void)curl_easy_setopt(client->curl, CURLOPT_NOSIGNAL, 1L);
	if (client->socket)
		(void)curl_easy_setopt(client->curl, CURLOPT_UNIX_SOCKET_PATH, client->socket);
}

static int unreachable(const struct client *client, CURLcode rc)
{
	(void)fprintf(stderr,
		      "profctl: cannot reach profd at %s: %s; is it running? "
		      "(systemctl status profd, or give --url or --socket)\n",
		      client->socket ? client->socket : client->url, curl_easy_strerror(rc));
	return -ECONNREFUSED;
}

int client_request(struct client *client, const char *method, const char *path, const cJSON *body,
		   const char *accept, char **ret_body, size_t *ret_len)
{
	cleanup_free char *text = body ? cJSON_PrintUnformatted(body) : NULL;
	cleanup_buf struct buf answer = { .max = ANSWER_MAX };
	cleanup_buf struct buf url = { 0 };
	struct curl_slist *headers;
	long status = 0;
	CURLcode rc;

	buf_printf(&url, "%s%s", client->url, path);
	if (url.error || (body && !text))
		return -ENOMEM;
	headers = make_headers(client, accept, body != NULL);
	set_up(client, method, url.data, headers);
	(void)curl_easy_setopt(client->curl, CURLOPT_WRITEFUNCTION, on_data);
	(void)curl_easy_setopt(client->curl, CURLOPT_WRITEDATA, &answer);
	if (text)
		(void)curl_easy_setopt(client->curl, CURLOPT_POSTFIELDS, text);
	rc = curl_easy_perform(client->curl);
	curl_slist_free_all(headers);
	if (rc != CURLE_OK)
		return unreachable(client, rc);
	(void)curl_easy_getinfo(client->curl, CURLINFO_RESPONSE_CODE, &status);
	client->refused = status == 400;
	*ret_body = buf_take(&answer, ret_len);
	return *ret_body ? (int)status : -ENOMEM;
}

/* The command that lists the names that @path may have. */
static const char *where_listed(const char *path)
{
	static const struct {
		const char *path, *listed;
	} places[] = {
		{ "/api/v1/observability/profiling/start", "; profctl services lists what runs" },
		{ "/api/v1/observability/profiling/continuous", "; profctl continuous status lists them" },
		{ "/api/v1/observability/profiling/compare", "; ids are in profctl history and baseline list" },
		{ "/api/v1/observability/profiling/", "; profctl history lists them" },
		{ "/api/v1/profiling/baselines", "; profctl baseline list has their ids" },
		{ "/api/v1/profiling/diff", "; ids are in profctl history and baseline list" },
		{ "/api/v1/profiling/sessions", "; profctl history lists them" },
		{ "/api/v1/keys/", "; profctl key list has their ids" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(places); i++)
		if (text_begins(path, places[i].path))
			return places[i].listed;
	return "";
}

static void print_problem(int status, const char *path, const cJSON *problem, const char *body)
{
	const char *detail = cJSON_GetStringValue(cJSON_GetObjectItem(problem, "detail"));
	const char *message = cJSON_GetStringValue(cJSON_GetObjectItem(problem, "message"));

	(void)fprintf(stderr, "profctl: %s%s (HTTP %d)\n",
		      detail ? detail : message ? message : *body ? body : "the request failed",
		      status == 404 ? where_listed(path) : "", status);
}

/* Bytes of the character at @text that a terminal would obey, 0 = none: C0 and C1 controls, marks
 * of direction. */
static size_t obeyed_bytes(const unsigned char *text)
{
	if (text[0] < 0x20 || text[0] == 0x7f)
		return 1;
	if (text[0] == 0xc2 && text[1] >= 0x80 && text[1] <= 0x9f)
		return 2;
	if (text[0] == 0xd8 && text[1] == 0x9c) /* U+061C */
		return 2;
	if (text[0] == 0xe2 && text[1] == 0x80 && /* U+200B to U+200F, U+2028 to U+202E */
	    ((text[2] >= 0x8b && text[2] <= 0x8f) || (text[2] >= 0xa8 && text[2] <= 0xae)))
		return 3;
	return text[0] == 0xe2 && text[1] == 0x81 && text[2] >= 0xa0 && text[2] <= 0xaf
		       ? 3
		       : 0; /* U+2060 to U+206F */
}

static void clean_text(char *text)
{
	char *out = text;

	while (text && *text) {
		size_t len = obeyed_bytes((const unsigned char *)text);

		*out++ = len ? '?' : *text;
		text += len ? len : 1;
	}
	if (out)
		*out = '\0';
}

/* As deep as cJSON nests, which has a limit. */
static void clean(cJSON *json)
{
	for (; json; json = json->next) {
		clean_text(json->valuestring);
		clean_text(json->string);
		clean(json->child);
	}
}

int client_json(struct client *client, const char *method, const char *path, const cJSON *body,
		cJSON **ret)
{
	cleanup_free char *text = NULL;
	cleanup(json) cJSON *json = NULL;
	int status = client_request(client, method, path, body, "application/json", &text, NULL);

	if (status < 0)
		return -1;
	json = cJSON_Parse(text);
	if (client->for_people || status >= 400)
		clean(json);
	if (status >= 400) {
		print_problem(status, path, json, text);
		return -1;
	}
	if (!json && status != 204 && *text) {
		(void)fprintf(stderr, "profctl: the answer of %s is not JSON\n", client->url);
		return -1;
	}
	*ret = take_ptr(json);
	return 0;
}

int client_item(struct client *client, const char *method, const char *collection, const char *id,
		cJSON **ret)
{
	cleanup_free char *escaped = client_escape(client, id);
	cleanup_buf struct buf path = { 0 };

	buf_printf(&path, "%s/%s", collection, escaped ? escaped : "");
	if (!escaped || path.error)
		return -1;
	return client_json(client, method, path.data, NULL, ret);
}

/* ---- downloads ------------------------------------------------------------------------------- */

struct download {
	struct client *client;
	client_progress_fn *progress;
	int fd;
	int error;	  /* of writing */
	struct buf problem; /* body of an answer that is an error */
};

static size_t on_download(char *data, size_t size, size_t count, void *ctx)
{
	struct download *d = ctx;
	long status = 0;

	(void)curl_easy_getinfo(d->client->curl, CURLINFO_RESPONSE_CODE, &status);
	if (status != 200)
		buf_add(&d->problem, data, size * count);
	else
		d->error = io_write_all(d->fd, data, size * count);
	return d->error < 0 ? 0 : size * count;
}

static int on_progress(void *ctx, curl_off_t total, curl_off_t done, curl_off_t up_total,
		       curl_off_t up_done)
{
	const struct download *d = ctx;

	if (d->progress && done)
		d->progress((double)done, (double)total);
	return 0;
}

int client_download(struct client *client, const char *path, int fd, client_progress_fn *progress)
{
	struct download d = { client, progress, fd, 0, { .max = 1u << 16 } };
	cleanup_buf struct buf url = { 0 };
	struct curl_slist *headers;
	long status = 0;
	CURLcode rc;

	buf_printf(&url, "%s%s", client->url, path);
	if (url.error)
		return -1;
	headers = make_headers(client, "*/*", false);
	set_up(client, "GET", url.data, headers);
	(void)curl_easy_setopt(client->curl, CURLOPT_WRITEFUNCTION, on_download);
	(void)curl_easy_setopt(client->curl, CURLOPT_WRITEDATA, &d);
	(void)curl_easy_setopt(client->curl, CURLOPT_NOPROGRESS, 0L);
	(void)curl_easy_setopt(client->curl, CURLOPT_XFERINFOFUNCTION, on_progress);
	(void)curl_easy_setopt(client->curl, CURLOPT_XFERINFODATA, &d);
	rc = curl_easy_perform(client->curl);
	curl_slist_free_all(headers);
	(void)curl_easy_getinfo(client->curl, CURLINFO_RESPONSE_CODE, &status);
	client->refused = status == 400;
	if (d.error < 0) {
		(void)fprintf(stderr, "profctl: cannot write: %s\n", strerror(-d.error));
	} else if (rc != CURLE_OK) {
		(void)unreachable(client, rc);
	} else if (status != 200) {
		cleanup(json) cJSON *problem = d.problem.data ? cJSON_Parse(d.problem.data) : NULL;

		print_problem((int)status, path, problem, d.problem.data ? d.problem.data : "");
	}
	buf_deinit(&d.problem);
	return d.error == 0 && rc == CURLE_OK && status == 200 ? 0 : -1;
}
