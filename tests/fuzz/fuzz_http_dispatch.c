// SPDX-License-Identifier: Apache-2.0
/* Whole requests through the dispatcher, over real sessions and a real store: first line `METHOD
 * target`, then header lines, an empty line, the body. The first byte chooses the open API, a
 * closed one with a token verifier, or the Unix socket of a user in the group. Properties: every
 * answer has a status the API knows, an error is a JSON document that says so, header values hold
 * no control character, and a 5xx is never the answer to bytes alone. */
#include <ctype.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <cjson/cJSON.h>

#include "agent/session/sessions_run.h"
#include "agent/store/store.h"
#include "api/api_internal.h"

#define INPUT_MAX   65536u
#define HEADERS_MAX 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

struct headers {
	const char *names[HEADERS_MAX], *values[HEADERS_MAX];
	unsigned count;
};

static struct api *open_api, *closed_api;

static void create(const struct api_options *options, struct api **ret)
{
	struct err err = { 0 };

	if (api_create(options, ret, &err) < 0) {
		(void)fprintf(stderr, "%s\n", err.text);
		abort();
	}
}

static char dir[] = "/tmp/profd-fuzz-XXXXXX";

static void remove_dir(void)
{
	char command[64];

	(void)snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	(void)!system(command);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	struct sessions_options options = { .feed_fd = -1 };
	struct api_options api = { .listen_fd = -1, .socket_fd = -1 };
	struct err err = { 0 };

	(void)argc;
	(void)argv;
	if (!mkdtemp(dir) || store_open(dir, NULL, "", &options.store, &err) < 0 ||
	    sessions_create(&options, &api.sessions, &err) < 0)
		abort();
	(void)atexit(remove_dir);
	api.store = options.store;
	create(&api, &open_api);
	api.jwt = (struct api_jwt){ .algorithm = "HS256", .key = "0123456789abcdef0123456789abcdef" };
	create(&api, &closed_api);
	return 0;
}

static const char *find(void *ctx, const char *name)
{
	const struct headers *headers = ctx;

	for (unsigned i = 0; i < headers->count; i++)
		if (strcasecmp(headers->names[i], name) == 0)
			return headers->values[i];
	return strcasecmp(name, "Host") == 0 ? "localhost" : NULL;
}

/* Every error says what it is: in the words of Connect or OTLP on their paths, else of the API. */
static void check_error(const cJSON *body, const char *target)
{
	const cJSON *code = cJSON_GetObjectItem(body, "code");
	bool is_said = cJSON_IsString(cJSON_GetObjectItem(body, "error_code")) &&
		       cJSON_IsObject(cJSON_GetObjectItem(body, "details"));

	if (http_is_connect(target))
		is_said = cJSON_IsString(code);
	else if (http_is_otlp(target))
		is_said = cJSON_IsNumber(code);
	if (!is_said)
		abort();
}

static void check_answer(const struct http_answer *answer, const char *target)
{
	cJSON *body;

	if (http_status_of_slot(http_status_slot(answer->status)) != answer->status)
		abort();
	/* Connect answers a call that is not there with 501. */
	if (answer->status >= 500 && answer->status != 503 &&
	    !(http_is_connect(target) && answer->status == 501))
		abort();
	for (unsigned i = 0; i < answer->header_count; i++)
		for (const char *c = answer->headers[i].value; *c; c++)
			if (iscntrl((unsigned char)*c))
				abort();
	if (answer->status < 400)
		return;
	/* OTLP/HTTP: a google.rpc.Status in protobuf, whose first field is the code. */
	if (http_is_otlp(target) && answer->body.len > 2 && answer->body.data[0] == 1 << 3)
		return;
	body = cJSON_ParseWithLength(answer->body.data, answer->body.len);
	check_error(body, target);
	cJSON_Delete(body);
}

static char *split_line(char **at)
{
	char *line = *at, *end = strchr(line, '\n');

	if (end) {
		*end = '\0';
		*at = end + 1;
	} else {
		*at = line + strlen(line);
	}
	return line;
}

static void run(unsigned char mode, char *text)
{
	struct headers headers = { 0 };
	struct http_answer answer = { 0 };
	char *at = text, *line = split_line(&at), *target = strchr(line, ' ');
	struct http_request request = { .host_count = 1, .header = find, .header_ctx = &headers };

	if (!target)
		return;
	*target++ = '\0';
	request.method = line;
	request.target = target;
	while (*at && *(line = split_line(&at)) != '\0') {
		char *colon = strchr(line, ':');

		if (!colon || headers.count == HEADERS_MAX)
			continue;
		*colon++ = '\0';
		colon += *colon == ' ';
		headers.names[headers.count] = line;
		headers.values[headers.count++] = colon;
	}
	request.body = at;
	request.body_len = strlen(at);
	request.over_unix_socket = mode == 2;
	request.peer_uid = 12345;
	api_dispatch(mode == 1 ? closed_api : open_api, &request, &answer);
	check_answer(&answer, request.target); /* without the authority of an absolute form */
	http_answer_deinit(&answer);
	http_request_deinit(&request);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text;

	if (size < 2 || size > INPUT_MAX || memchr(data, 0, size))
		return 0;
	text = malloc(size);
	if (!text)
		return 0;
	memcpy(text, data + 1, size - 1);
	text[size - 1] = '\0';
	run(data[0] % 3, text);
	free(text);
	return 0;
}
