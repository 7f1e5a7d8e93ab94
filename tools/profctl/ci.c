// SPDX-License-Identifier: Apache-2.0
/* The gate: profile a service while a command runs, compare with a baseline, say it in an exit
 * status. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/base/buf.h"
#include "agent/base/clock.h"
#include "agent/base/text.h"
#include "tools/profctl/command.h"
#include "tools/profctl/compare.h"
#include "tools/profctl/output.h"
#include "tools/profctl/sessions.h"

#define FAMILY_B      "/api/v1/profiling"
#define PAGES_MAX     100 /* of baselines looked through for a label */
#define DURATION_S    60  /* without a command */
#define LONGEST_S     3600
#define MARGIN_S      60 /* profctl ends the profile: stopping a finished one deletes it */
#define WAIT_S	      600 /* for the service that the command starts */
#define POLL_NS	      (100 * NS_PER_MS)
#define END_GRACE_NS  (10 * NS_PER_S) /* between SIGTERM and SIGKILL */
#define NAME_VARIABLE "OTEL_SERVICE_NAME"

enum outcome {
	PASSED = 0,
	REGRESSED = 1,
	WRONG_USE = EXIT_USAGE,
	UNDECIDED = 3,
	COMMAND_FAILED = 4
};

/* The results of a run; parts that were not reached are NULL. */
struct gate {
	cJSON *baseline, *session, *comparison;
	int command_status; /* as a shell gives it; -1 = no command, or it was ended by us */
};

static void gate_deinit(struct gate *gate)
{
	cJSON_Delete(gate->baseline);
	cJSON_Delete(gate->session);
	cJSON_Delete(gate->comparison);
}

/* ---- baseline -------------------------------------------------------------------------------- */

/* The newest baseline of a label for the service and type; lists are newest first. */
static cJSON *find_label(const struct arguments *args, const char *label)
{
	cleanup_free char *cursor = strdup("");

	for (unsigned page = 0; page < PAGES_MAX && cursor; page++) {
		cleanup_buf struct buf path = { 0 };
		cleanup(json) cJSON *answer = NULL;
		cJSON *items, *item;

		buf_printf(&path, FAMILY_B "/baselines?limit=100");
		client_add_parameter(args->client, &path, "service", args->service);
		client_add_parameter(args->client, &path, "profileType", args->type);
		if (*cursor)
			client_add_parameter(args->client, &path, "cursor", cursor);
		if (path.error || client_json(args->client, "GET", path.data, NULL, &answer) < 0)
			return NULL;
		items = cJSON_GetObjectItem(answer, "items");
		cJSON_ArrayForEach(item, items)
			if (!strcmp(output_text(item, "baselineLabel"), label))
				return cJSON_DetachItemViaPointer(items, item);
		free(cursor);
		cursor = *output_text(answer, "nextCursor") ? strdup(output_text(answer, "nextCursor"))
							    : NULL;
	}
	(void)fprintf(stderr,
		      "profctl: service '%s' has no %s baseline labelled '%s'; make one with "
		      "profctl baseline create\n",
		      args->service, args->type, label);
	return NULL;
}

static cJSON *find_baseline(const struct arguments *args)
{
	cleanup_free char *escaped = NULL;
	cJSON *answer = NULL;
	char path[512];

	if (!text_begins(args->baseline, "bl-"))
		return find_label(args, args->baseline);
	escaped = client_escape(args->client, args->baseline);
	(void)snprintf(path, sizeof(path), FAMILY_B "/baselines/%s", escaped ? escaped : "");
	if (!escaped || client_json(args->client, "GET", path, NULL, &answer) < 0)
		return NULL;
	return answer;
}

/* ---- the command ----------------------------------------------------------------------------- */

static volatile sig_atomic_t running_group; /* of the command's processes, 0 = none */

static void pass_on(int signal_number)
{
	if (running_group > 0)
		(void)kill(-(pid_t)running_group, signal_number);
}

/* In a process group of its own, so that all of it can be ended. @quiet: standard output is ours
 * alone, what the command prints goes to standard error. */
static pid_t spawn(char **argv, bool quiet)
{
	const struct sigaction action = { .sa_handler = pass_on, .sa_flags = SA_RESTART };
	pid_t pid = fork();

	if (pid == 0) {
		(void)setpgid(0, 0);
		if (quiet)
			(void)dup2(STDERR_FILENO, STDOUT_FILENO);
		(void)execvp(argv[0], argv);
		(void)fprintf(stderr, "profctl: cannot run %s: %s\n", argv[0], strerror(errno));
		_exit(127);
	}
	if (pid < 0)
		return -errno;
	(void)setpgid(pid, pid);
	running_group = pid;
	(void)sigaction(SIGINT, &action, NULL);
	(void)sigaction(SIGTERM, &action, NULL);
	return pid;
}

/* Whether it has ended; its status as a shell gives it. */
static bool has_ended(pid_t pid, int *ret_status)
{
	int status;
	pid_t rc;

	while ((rc = waitpid(pid, &status, WNOHANG)) < 0 && errno == EINTR)
		continue;
	if (rc == 0)
		return false;
	running_group = 0;
	*ret_status = rc < 0 ? 127 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	return true;
}

static void end_command(pid_t pid)
{
	uint64_t kill_at_ns = clock_monotonic_ns() + END_GRACE_NS;
	int status;

	(void)kill(-pid, SIGTERM);
	while (!has_ended(pid, &status)) {
		if (clock_monotonic_ns() >= kill_at_ns)
			(void)kill(-pid, SIGKILL);
		clock_sleep_ns(POLL_NS);
	}
}

/* ---- the profile -------------------------------------------------------------------------------
 */

/* Whether the service has processes now; -1 after printing why it is not known. */
static int is_live(const struct arguments *args)
{
	cleanup(json) cJSON *answer = NULL;
	const cJSON *item;

	if (client_json(args->client, "GET", "/api/v1/observability/services", NULL, &answer) < 0)
		return -1;
	cJSON_ArrayForEach(item, cJSON_GetObjectItem(answer, "items"))
		if (!strcmp(output_text(item, "name"), args->service))
			return cJSON_GetArraySize(cJSON_GetObjectItem(item, "processes")) > 0;
	return 0;
}

static bool is_running(const cJSON *session)
{
	return !strcmp(output_text(session, "status"), "running");
}

static int wait_for_start(const struct arguments *args, const char *id)
{
	for (;;) {
		cleanup(json) cJSON *session = NULL;

		if (session_get(args, id, &session) < 0)
			return -1;
		if (*output_text(session, "startedAt") || !is_running(session))
			return 0;
		clock_sleep_ns(POLL_NS);
	}
}

/* Until the command has ended or was profiled long enough; then both are over. -1 after printing
 * why the profile is not known. */
static int run_both(const struct arguments *args, pid_t pid, const char *id, uint32_t duration_s,
		    struct gate *gate)
{
	for (;;) {
		cleanup(json) cJSON *session = NULL;
		bool ended = has_ended(pid, &gate->command_status), known;
		int rc = session_get(args, id, &session);

		known = rc == 0 && is_running(session);
		if (!ended && known && output_number(session, "durationSeconds") < duration_s) {
			clock_sleep_ns(POLL_NS);
			continue;
		}
		if (known)
			rc = session_delete(args, id);
		if (!ended)
			end_command(pid);
		return rc;
	}
}

static int profile_command(const struct arguments *args, struct gate *gate)
{
	uint32_t duration_s = args->duration_s ? args->duration_s : LONGEST_S - MARGIN_S;
	uint32_t asked_s = duration_s + MARGIN_S < LONGEST_S ? duration_s + MARGIN_S : LONGEST_S;
	struct arguments waiting = *args;
	cleanup(json) cJSON *session = NULL;
	int live = is_live(args), rc;
	const char *id;
	pid_t pid;

	/* A command that drives a running service is not part of it. A command that is the service
	 * is given its name. */
	if (live == 0 && setenv(NAME_VARIABLE, args->service, 0) < 0)
		return WRONG_USE;
	waiting.wait_s = WAIT_S;
	if (live < 0 || session_start(&waiting, args->service, asked_s, &session) < 0)
		return WRONG_USE;
	id = output_text(session, "id");
	if (live && wait_for_start(args, id) < 0)
		return UNDECIDED;
	pid = spawn(args->argv, args->format == OUTPUT_JSON);
	if (pid < 0) {
		(void)fprintf(stderr, "profctl: cannot fork: %s\n", strerror(-(int)pid));
		return session_delete(args, id) < 0 ? UNDECIDED : WRONG_USE;
	}
	rc = run_both(args, pid, id, duration_s, gate);
	if (rc == 0)
		rc = session_follow(args, id, duration_s, &gate->session);
	if (gate->command_status > 0) {
		(void)fprintf(stderr, "profctl: the command ended with status %d\n",
			      gate->command_status);
		return COMMAND_FAILED;
	}
	return rc < 0 ? UNDECIDED : PASSED;
}

static int profile_service(const struct arguments *args, struct gate *gate)
{
	uint32_t duration_s = args->duration_s ? args->duration_s : DURATION_S;
	cleanup(json) cJSON *session = NULL;

	if (session_start(args, args->service, duration_s, &session) < 0)
		return WRONG_USE;
	return session_follow(args, output_text(session, "id"), duration_s, &gate->session) < 0
		       ? UNDECIDED
		       : PASSED;
}

/* ---- the verdict -------------------------------------------------------------------------------
 */

static int judge(const cJSON *comparison)
{
	const char *cause = output_text(comparison, "cause");

	if (cJSON_IsTrue(cJSON_GetObjectItem(comparison, "insufficientData")))
		return UNDECIDED;
	if (!strcmp(output_text(comparison, "verdict"), "regressed"))
		return REGRESSED;
	return !strcmp(cause, "contended") || !strcmp(cause, "composition") ? UNDECIDED : PASSED;
}

static int compare(const struct arguments *args, struct gate *gate)
{
	cleanup_buf struct buf path = { 0 };

	if (strcmp(output_text(gate->session, "status"), "completed") != 0) {
		(void)fprintf(stderr, "profctl: the profile is %s: %s\n",
			      output_text(gate->session, "status"),
			      output_text(gate->session, "failureReason"));
		return UNDECIDED;
	}
	buf_printf(&path, SESSIONS_PATH "/compare?baseProfileId=%s&comparisonProfileId=%s",
		   output_text(gate->baseline, "baselineId"), output_text(gate->session, "id"));
	client_add_parameter(args->client, &path, "threshold", args->threshold);
	client_add_parameter(args->client, &path, "confidence", args->confidence);
	if (path.error ||
	    client_json(args->client, "GET", path.data, NULL, &gate->comparison) < 0)
		return UNDECIDED;
	return judge(gate->comparison);
}

static int print_gate(const struct arguments *args, struct gate *gate, int outcome)
{
	static const char *const words[] = { "passed", "regressed", "wrong use", "undecided",
					     "command failed" };
	cleanup(json) cJSON *json = NULL;

	if (args->format != OUTPUT_JSON) {
		if (gate->comparison && comparison_print(gate->comparison))
			return UNDECIDED;
		(void)printf("gate       %s against %s (%s)\nprofile    %s\n", words[outcome],
			     output_text(gate->baseline, "baselineLabel"),
			     output_text(gate->baseline, "baselineId"),
			     output_text(gate->session, "id"));
		return outcome;
	}
	json = cJSON_CreateObject();
	(void)cJSON_AddStringToObject(json, "outcome", words[outcome]);
	(void)cJSON_AddNumberToObject(json, "exitStatus", outcome);
	(void)cJSON_AddStringToObject(json, "service", args->service);
	(void)cJSON_AddStringToObject(json, "profileType", args->type);
	(void)cJSON_AddStringToObject(json, "baselineId", output_text(gate->baseline, "baselineId"));
	(void)cJSON_AddStringToObject(json, "baselineLabel",
				      output_text(gate->baseline, "baselineLabel"));
	(void)cJSON_AddStringToObject(json, "sessionId", output_text(gate->session, "id"));
	if (gate->command_status >= 0)
		(void)cJSON_AddNumberToObject(json, "commandStatus", gate->command_status);
	else
		(void)cJSON_AddNullToObject(json, "commandStatus");
	(void)cJSON_AddItemToObject(json, "comparison",
				    gate->comparison ? take_ptr(gate->comparison) : cJSON_CreateNull());
	output_json(json);
	return outcome;
}

int command_ci(const struct arguments *args)
{
	__attribute__((__cleanup__(gate_deinit))) struct gate gate = { .command_status = -1 };
	int outcome;

	if (!args->baseline || !args->service) {
		(void)fprintf(stderr, "profctl: ci needs --baseline LABEL (or its id) and --service "
				      "NAME\n");
		return WRONG_USE;
	}
	gate.baseline = find_baseline(args);
	if (!gate.baseline)
		return WRONG_USE;
	outcome = args->argc ? profile_command(args, &gate) : profile_service(args, &gate);
	if (outcome == WRONG_USE)
		return outcome;
	if (outcome == PASSED)
		outcome = compare(args, &gate);
	return print_gate(args, &gate, outcome);
}
