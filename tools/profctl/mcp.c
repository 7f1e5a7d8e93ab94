// SPDX-License-Identifier: Apache-2.0
/* mcp: the Model Context Protocol on standard input and output, for assistants that start their
 * servers themselves. Each line is a JSON-RPC message; the daemon's /mcp answers it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/profctl/command.h"
#include "tools/profctl/output.h"

#define LINE_MAX_BYTES (1u << 20)

enum { RPC_PARSE_ERROR = -32700, RPC_FAILED = -32000 };

static void say_error(const cJSON *id, int code, const char *text)
{
	cleanup(json) cJSON *answer = cJSON_CreateObject();
	cJSON *error = cJSON_AddObjectToObject(answer, "error");
	cleanup_free char *line = NULL;

	(void)cJSON_AddStringToObject(answer, "jsonrpc", "2.0");
	(void)cJSON_AddItemToObject(answer, "id",
				    id ? cJSON_Duplicate(id, true) : cJSON_CreateNull());
	(void)cJSON_AddNumberToObject(error, "code", code);
	(void)cJSON_AddStringToObject(error, "message", text);
	line = cJSON_PrintUnformatted(answer);
	(void)printf("%s\n", line ? line : "{}");
}

/* The daemon's own words for a request that it refused. */
static void say_refusal(const cJSON *id, const char *body)
{
	cleanup(json) cJSON *problem = cJSON_Parse(body);
	const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(problem, "message"));

	say_error(id, RPC_FAILED, text ? text : "the daemon refused the request");
}

static void forward(const struct arguments *args, const char *line)
{
	cleanup(json) cJSON *message = cJSON_Parse(line);
	cleanup_free char *body = NULL;
	const cJSON *id;
	size_t len = 0;
	int status;

	if (!message) {
		say_error(NULL, RPC_PARSE_ERROR, "this line is no JSON");
		return;
	}
	id = cJSON_GetObjectItemCaseSensitive(message, "id");
	status = client_request(args->client, "POST", "/mcp", message,
				"application/json, text/event-stream", &body, &len);
	if (status == 200)
		(void)printf("%.*s\n", (int)strcspn(body, "\n"), body);
	else if (status < 0)
		say_error(id, RPC_FAILED, "the daemon of profd cannot be reached");
	else if (id)
		say_refusal(id, body);
}

int command_mcp(const struct arguments *args)
{
	cleanup_free char *line = NULL;
	size_t size = 0;
	ssize_t len;

	while ((len = getline(&line, &size, stdin)) > 0) {
		if ((size_t)len > LINE_MAX_BYTES)
			say_error(NULL, RPC_PARSE_ERROR, "this line has more than 1 MiB");
		else if (line[strspn(line, " \t\r\n")])
			forward(args, line);
		if (fflush(stdout) != 0)
			return 1;
	}
	return 0;
}
