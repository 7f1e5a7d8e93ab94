// SPDX-License-Identifier: Apache-2.0
/* Commands that end sampling: stop (one profile, or everything at once) and resume. */
#include <string.h>

#include "tools/profctl/command.h"
#include "tools/profctl/output.h"
#include "tools/profctl/sessions.h"

#define SAMPLING "/api/v1/sampling"

static int set_sampling(const struct arguments *args, bool enabled)
{
	cleanup(json) cJSON *body = cJSON_CreateObject();
	cleanup(json) cJSON *answer = NULL;

	(void)cJSON_AddBoolToObject(body, "enabled", enabled);
	if (client_json(args->client, "POST", SAMPLING, body, &answer) < 0)
		return 1;
	if (args->format == OUTPUT_JSON)
		output_json(answer);
	else if (enabled)
		(void)printf("sampling is on\n");
	else if (output_number(answer, "ended") == 1)
		(void)printf("sampling is stopped: 1 profile ended with its samples so far; "
			     "profctl resume starts it again\n");
	else
		(void)printf("sampling is stopped: %.0f profiles ended with their samples so far; "
			     "profctl resume starts it again\n",
			     output_number(answer, "ended"));
	return 0;
}

/* One that runs answers with what it was, a finished one with nothing. A running span is a view of
 * what is recorded: asked to end it, the daemon can but hide it. */
static int stop_one(const struct arguments *args, const char *id)
{
	cleanup(json) cJSON *answer = NULL, *session = NULL;

	if (session_get(args, id, &session) < 0)
		return 1;
	if (cJSON_IsTrue(cJSON_GetObjectItem(session, "continuous")) &&
	    !strcmp(output_text(session, "status"), "running")) {
		(void)fprintf(stderr,
			      "profctl: %s is the running span of continuous profiling and ends by "
			      "itself: profctl continuous stop %s ends the "
			      "recording and keeps its data\n",
			      id, output_text(session, "service"));
		return 1;
	}
	if (client_item(args->client, "DELETE", SESSIONS_PATH, id, &answer) < 0)
		return 1;
	if (args->format == OUTPUT_JSON)
		output_deleted(answer, "sessionId", id);
	return 0;
}

int command_stop(const struct arguments *args)
{
	if (args->all == (args->argc == 1)) {
		(void)fprintf(stderr, "profctl: stop takes the id of a profile, or --all\n");
		return EXIT_USAGE;
	}
	return args->all ? set_sampling(args, false) : stop_one(args, args->argv[0]);
}

int command_resume(const struct arguments *args)
{
	return set_sampling(args, true);
}
