// SPDX-License-Identifier: Apache-2.0
#include "tools/profctl/sessions.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "agent/base/buf.h"
#include "agent/base/clock.h"
#include "tools/profctl/output.h"
#include "tools/profctl/output_file.h"

#define POLL_NS	     (250 * NS_PER_MS)
#define NAMES_WAIT_S 60

static volatile sig_atomic_t interrupted;

static void on_interrupt(int signal_number)
{
	(void)signal_number;
	interrupted = 1;
}

int session_start(const struct arguments *args, const char *service, uint32_t duration_s,
		  cJSON **ret)
{
	cleanup(json) cJSON *body = cJSON_CreateObject();

	(void)cJSON_AddStringToObject(body, "service", service);
	(void)cJSON_AddStringToObject(body, "profileType", args->type);
	(void)cJSON_AddNumberToObject(body, "durationSeconds", duration_s);
	(void)cJSON_AddNumberToObject(body, "sampleRate", args->rate_hz);
	if (args->wait_s)
		(void)cJSON_AddNumberToObject(body, "waitSeconds", args->wait_s);
	if (args->kernel_locks)
		(void)cJSON_AddBoolToObject(body, "kernelLocks", true);
	if (args->wakers)
		(void)cJSON_AddBoolToObject(body, "wakers", true);
	if (args->paths)
		(void)cJSON_AddBoolToObject(body, "paths", true);
	if (args->tasks)
		(void)cJSON_AddBoolToObject(body, "tasks", true);
	if (args->children)
		(void)cJSON_AddBoolToObject(body, "children", true);
	return client_json(args->client, "POST", SESSIONS_PATH "/start", body, ret);
}

static int get(const struct arguments *args, const char *id, const char *value, cJSON **ret)
{
	cleanup_free char *escaped = client_escape(args->client, id);
	cleanup_buf struct buf path = { 0 };

	if (!escaped)
		return -1;
	buf_printf(&path, SESSIONS_PATH "/%s?top=%u", escaped, args->top);
	client_add_parameter(args->client, &path, "value", value);
	client_add_parameter(args->client, &path, "frames", args->raw_frames ? "raw" : NULL);
	return path.error ? -1 : client_json(args->client, "GET", path.data, NULL, ret);
}

static bool is_io(const cJSON *session)
{
	return !strcmp(output_text(session, "profileType"), "io");
}

int session_get(const struct arguments *args, const char *id, cJSON **ret)
{
	cleanup(json) cJSON *session = NULL;
	int rc = get(args, id, args->value, &session);

	if (rc == 0 && !args->value && is_io(session) && output_number(session, "totalValue") == 0 &&
	    !strcmp(output_text(session, "status"), "completed"))
		return get(args, id, "bytes", ret);
	if (rc == 0)
		*ret = take_ptr(session);
	return rc;
}

const char *session_value(const struct arguments *args, const cJSON *session)
{
	bool bytes = is_io(session) && !strcmp(output_text(session, "unit"), "bytes");

	return args->value ? args->value : bytes ? "bytes" : NULL;
}

int session_delete(const struct arguments *args, const char *id)
{
	cleanup(json) cJSON *answer = NULL;

	return client_item(args->client, "DELETE", SESSIONS_PATH, id, &answer);
}

/* Not what a terminal would show as a page of source, or take for control characters. */
static bool made_to_be_read(const char *format)
{
	static const char *const others[] = { "html", "pprof", "pgo", "otlp" };

	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		if (!strcmp(format, others[i]))
			return false;
	return true;
}

int session_render(const struct arguments *args, const char *id, const char *value,
		   const char *format, const char *path)
{
	cleanup_free char *escaped = client_escape(args->client, id);
	cleanup_buf struct buf request = { 0 };
	struct output_file file;
	int rc;

	if (!escaped)
		return -1;
	buf_printf(&request, SESSIONS_PATH "/%s/flamegraph?format=%s", escaped, format);
	client_add_parameter(args->client, &request, "value", value);
	client_add_parameter(args->client, &request, "frames", args->raw_frames ? "raw" : NULL);
	if (request.error)
		return -1;
	if (!path && isatty(STDOUT_FILENO) && !made_to_be_read(format)) {
		(void)fprintf(
			stderr,
			"profctl: %s is not for a terminal: name a file, or send it to a pipe\n",
			format);
		return -1;
	}
	(void)fflush(stdout);
	if (!path)
		return client_download(args->client, request.data, STDOUT_FILENO, NULL);
	if (output_file_open(&file, path, 0644) < 0)
		return -1;
	rc = client_download(args->client, request.data, file.fd, NULL);
	return output_file_end(&file, rc == 0) < 0 ? -1 : rc;
}

/* A daemon that has just begun reads the names of large files for seconds. Until then the functions
 * of a profile that has ended are addresses. */
static bool awaits_names(const cJSON *session)
{
	return cJSON_IsTrue(cJSON_GetObjectItem(cJSON_GetObjectItem(session, "quality"), "namesPending"));
}

int session_follow(const struct arguments *args, const char *id, double duration_s, cJSON **ret)
{
	struct sigaction action = { .sa_handler = on_interrupt }, before;
	uint64_t ended_ns = 0;
	bool stopped = false;
	int rc = 0;

	(void)sigaction(SIGINT, &action, &before);
	for (;;) {
		cleanup(json) cJSON *session = NULL;

		rc = session_get(args, id, &session);
		if (rc < 0)
			break;
		if (strcmp(output_text(session, "status"), "running")) {
			double waited_s;

			ended_ns = ended_ns ? ended_ns : clock_monotonic_ns();
			waited_s = (double)(clock_monotonic_ns() - ended_ns) / NS_PER_S;
			if (!awaits_names(session) || interrupted || waited_s >= NAMES_WAIT_S) {
				*ret = take_ptr(session);
				break;
			}
			progress_show("reading names", waited_s, NAMES_WAIT_S);
			clock_sleep_ns(POLL_NS);
			continue;
		}
		if (interrupted && !stopped) { /* it was just seen running: of a finished one the
						  call would leave nothing */
			stopped = true;
			interrupted = 0; /* a second one ends the wait for names */
			rc = session_delete(args, id);
			if (rc < 0)
				break;
			continue;
		}
		progress_show("profiling", output_number(session, "durationSeconds"), duration_s);
		clock_sleep_ns(POLL_NS);
	}
	progress_clear();
	(void)sigaction(SIGINT, &before, NULL);
	return rc;
}
