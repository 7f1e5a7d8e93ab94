// SPDX-License-Identifier: Apache-2.0
/* doctor and config check: what the running daemon found on its host, else what the program itself
 * finds (--features,
 * --check), and the kernel's switches. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/base/buf.h"
#include "agent/base/io.h"
#include "agent/base/text.h"
#include "tools/profctl/command.h"
#include "tools/profctl/output.h"

#define PROFD_OUTPUT_MAX 65536

/* ---- running profd --------------------------------------------------------------------------- */

/* The daemon's program: beside this one (a build tree), else where it is installed. */
static const char *profd_program(char *buf, size_t size)
{
	static const char *const installed[] = { "/usr/sbin/profd", "/usr/local/sbin/profd" };
	ssize_t len = readlink("/proc/self/exe", buf, size - sizeof("profd"));
	char *slash;

	if (len > 0) {
		buf[len] = '\0';
		slash = strrchr(buf, '/');
		memcpy(slash + 1, "profd", sizeof("profd"));
		if (access(buf, X_OK) == 0)
			return buf;
	}
	for (size_t i = 0; i < ARRAY_SIZE(installed); i++)
		if (access(installed[i], X_OK) == 0)
			return installed[i];
	return NULL;
}

static int read_all(int fd, struct buf *out)
{
	char chunk[4096];
	ssize_t got;

	while ((got = read(fd, chunk, sizeof(chunk))) != 0) {
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0)
			return -errno;
		buf_add(out, chunk, (size_t)got);
	}
	return out->error ? -ENOMEM : 0;
}

/* Runs profd and returns what it prints on either output, and its exit status; -errno if it cannot
 * be run. */
static int run_profd(const char *const *argv, struct buf *out)
{
	int fds[2], status = 0, rc;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC) < 0)
		return -errno;
	pid = fork();
	if (pid == 0) {
		(void)dup2(fds[1], STDOUT_FILENO);
		(void)dup2(fds[1], STDERR_FILENO);
		(void)execv(argv[0], (char *const *)argv);
		_exit(127);
	}
	(void)close(fds[1]);
	rc = pid < 0 ? -errno : read_all(fds[0], out);
	(void)close(fds[0]);
	if (pid > 0)
		while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
			continue;
	return rc < 0 ? rc : WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/* ---- the list of checks ---------------------------------------------------------------------- */

enum verdict { CHECK_OK, CHECK_DEGRADED, CHECK_FAILED };

static void add_check(cJSON *checks, const char *name, enum verdict verdict, const char *detail)
{
	static const char *const words[] = { "ok", "degraded", "failed" };
	cJSON *check = cJSON_CreateObject();

	(void)cJSON_AddStringToObject(check, "check", name);
	(void)cJSON_AddStringToObject(check, "state", words[verdict]);
	(void)cJSON_AddStringToObject(check, "detail", detail);
	(void)cJSON_AddItemToArray(checks, check);
}

/* A line of --features: "name  yes|no|disabled  reason; required | instead: fallback"; privileges
 * and profile types ("type:NAME") likewise. */
static void add_feature(cJSON *checks, char *line)
{
	char *rest = NULL, *name = strtok_r(line, " ", &rest), *found = strtok_r(NULL, " ", &rest);
	enum verdict verdict = CHECK_OK;
	char check[64];

	if (!name || !found)
		return;
	rest += strspn(rest, " ");
	if (strcmp(found, "yes"))
		verdict = strstr(rest, "required") ? CHECK_FAILED : CHECK_DEGRADED;
	if (text_begins(name, "type:"))
		(void)snprintf(check, sizeof(check), "type %s", name + strlen("type:"));
	else
		(void)snprintf(check, sizeof(check), "%s %s",
			       strncmp(name, "CAP_", 4) ? "feature" : "privilege", name);
	add_check(checks, check, verdict, *rest ? rest : "found");
}

/* Adds the features that the daemon found with its own rights. */
static void check_daemon_features(const struct arguments *args, cJSON *checks)
{
	cleanup(json) cJSON *version = NULL;
	const cJSON *line;

	if (client_json(args->client, "GET", "/version", NULL, &version) < 0)
		return;
	if (!cJSON_GetArraySize(cJSON_GetObjectItem(version, "features")))
		add_check(checks, "features", CHECK_OK, "this daemon does not profile its host");
	cJSON_ArrayForEach(line, cJSON_GetObjectItem(version, "features"))
		add_feature(checks, cJSON_GetStringValue(line));
}

/* Without a daemon to ask: what one would find with the rights of whoever asks. */
static void check_own_features(cJSON *checks)
{
	cleanup_buf struct buf out = { .max = PROFD_OUTPUT_MAX };
	char path[4096], *line, *rest = NULL;
	const char *program = profd_program(path, sizeof(path));
	const char *const argv[] = { program, "--features", NULL };

	if (!program) {
		add_check(checks, "profd", CHECK_FAILED,
			  "no profd beside profctl or in /usr/sbin: install the package profd");
		return;
	}
	if (geteuid() != 0) {
		add_check(checks, "features", CHECK_DEGRADED,
			  "not looked at: start the daemon, or run profctl doctor as root to try each kernel feature");
		return;
	}
	if (run_profd(argv, &out) != 0 || !out.len) {
		add_check(checks, "profd", CHECK_FAILED,
			  out.len ? out.data : "profd --features failed");
		return;
	}
	for (line = strtok_r(out.data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
		add_feature(checks, line);
}

/* Kernel switches that stand between the service's user and what it needs; @asked: the daemon has
 * said whether it can sample. */
static void check_switches(cJSON *checks, bool asked)
{
	static const struct {
		const char *name, *path;
		long max;
		const char *bad;
	} switches[] = {
		{ "kernel.perf_event_paranoid", "/proc/sys/kernel/perf_event_paranoid", 2,
		  "the service's user cannot sample: sysctl kernel.perf_event_paranoid=2 "
		  "(the package sets it), or run profd as root" },
		{ "kernel.kptr_restrict", "/proc/sys/kernel/kptr_restrict", 1,
		  "kernel functions have no names: sysctl kernel.kptr_restrict=1" },
		{ "kernel.yama.ptrace_scope", "/proc/sys/kernel/yama/ptrace_scope", 2,
		  "goroutines and heaps cannot be read: sysctl kernel.yama.ptrace_scope=1 "
		  "(3 can only be left by a reboot)" },
	};
	struct utsname kernel;

	if (uname(&kernel) == 0)
		add_check(checks, "kernel", CHECK_OK, kernel.release);
	for (size_t i = 0; i < ARRAY_SIZE(switches); i++) {
		char text[32], detail[256];
		bool bad;

		if (asked && i == 0)
			continue;
		if (io_read_small(AT_FDCWD, switches[i].path, text, sizeof(text)) <= 0)
			continue; /* a kernel without it refuses nothing by it */
		text[strcspn(text, "\n")] = '\0';
		bad = strtol(text, NULL, 10) > switches[i].max;
		(void)snprintf(detail, sizeof(detail), "%s%s%s", text, bad ? ": " : "",
			       bad ? switches[i].bad : "");
		add_check(checks, switches[i].name, bad ? CHECK_DEGRADED : CHECK_OK, detail);
	}
}

static void check_lockdown(cJSON *checks)
{
	char text[128];

	if (io_read_small(AT_FDCWD, "/sys/kernel/security/lockdown", text, sizeof(text)) <= 0)
		return;
	if (strstr(text, "[confidentiality]"))
		add_check(checks, "lockdown", CHECK_FAILED,
			  "confidentiality mode forbids BPF to read memory: boot with "
			  "lockdown=integrity or none");
	else
		add_check(checks, "lockdown", CHECK_OK, "does not forbid BPF");
}

/* Each reason why a type is not to be had is said once, with the number of services. */
static void check_types(const struct arguments *args, cJSON *checks)
{
	cleanup(json) cJSON *reasons = cJSON_CreateObject();
	cleanup(json) cJSON *answer = NULL;
	const cJSON *service, *type, *reason;

	if (client_json(args->client, "GET", "/api/v1/observability/services", NULL, &answer) < 0)
		return;
	cJSON_ArrayForEach(service, cJSON_GetObjectItem(answer, "items")) {
		/* Types that kernel threads cannot have are no fault of this host. */
		if (!strcmp(output_text(service, "runtime"), "kernel"))
			continue;
		cJSON_ArrayForEach(type, cJSON_GetObjectItem(service, "profileTypes")) {
			char key[512];
			cJSON *seen;

			if (cJSON_IsTrue(cJSON_GetObjectItem(type, "available")))
				continue;
			(void)snprintf(key, sizeof(key), "%s: %s", output_text(type, "type"),
				       output_text(type, "reason"));
			seen = cJSON_GetObjectItemCaseSensitive(reasons, key);
			if (seen)
				cJSON_SetNumberValue(seen, seen->valuedouble + 1);
			else
				(void)cJSON_AddNumberToObject(reasons, key, 1);
		}
	}
	cJSON_ArrayForEach(reason, reasons) {
		char name[64], detail[640];
		const char *text = strstr(reason->string, ": ");

		(void)snprintf(name, sizeof(name), "type %.*s", (int)(text - reason->string),
			       reason->string);
		(void)snprintf(detail, sizeof(detail), "%s (%.0f service%s)", text + 2,
			       reason->valuedouble, reason->valuedouble == 1 ? "" : "s");
		add_check(checks, name, CHECK_DEGRADED, detail);
	}
}

/* Is the daemon reached? */
static bool check_daemon(const struct arguments *args, cJSON *checks)
{
	static const struct {
		const char *part, *bad;
		enum verdict verdict;
	} parts[] = {
		{ "store", "does not answer; see journalctl -u profd", CHECK_FAILED },
		{ "collector", "does not run: nothing is sampled; see journalctl -u profd",
		  CHECK_DEGRADED },
		{ "symbolizer", "does not run: frames have no names until it is back",
		  CHECK_DEGRADED },
	};
	cleanup_free char *text = NULL;
	cleanup(json) cJSON *ready = NULL;
	int status = client_request(args->client, "GET", "/readyz", NULL, "application/json", &text,
				    NULL);

	if (status < 0) {
		add_check(checks, "daemon", CHECK_FAILED,
			  "not reached: systemctl start profd, or give --url or --socket");
		return false;
	}
	ready = cJSON_Parse(text);
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		bool ok = cJSON_IsTrue(cJSON_GetObjectItem(ready, parts[i].part));
		const char *reason = output_text(ready, "reason");
		char name[64], detail[512];

		(void)snprintf(name, sizeof(name), "daemon %s", parts[i].part);
		(void)snprintf(detail, sizeof(detail), "%s%s%s", ok ? "answers" : parts[i].bad,
			       ok || !*reason ? "" : ": ", ok ? "" : reason);
		add_check(checks, name, ok ? CHECK_OK : parts[i].verdict, detail);
	}
	check_types(args, checks);
	return true;
}

int command_doctor(const struct arguments *args)
{
	cleanup(json) cJSON *answer = cJSON_CreateObject();
	cJSON *checks = cJSON_AddArrayToObject(answer, "checks");
	bool local = client_is_local(args->client), asked = check_daemon(args, checks), failed = false;
	const cJSON *check;

	if (asked)
		check_daemon_features(args, checks);
	else if (local)
		check_own_features(checks);
	if (local) {
		check_switches(checks, asked);
		check_lockdown(checks);
	}
	cJSON_ArrayForEach(check, checks) {
		const char *state = output_text(check, "state");
		enum paint paint = !strcmp(state, "ok")	      ? PAINT_GOOD
				   : !strcmp(state, "failed") ? PAINT_BAD
							      : PAINT_WARNING;

		failed |= paint == PAINT_BAD;
		if (args->format == OUTPUT_JSON)
			continue;
		/* Not a table: remedies are never cut. */
		(void)printf("%-33s %s%-9s%s %s\n", output_text(check, "check"), output_paint(paint), state,
			     output_paint(PAINT_NONE), output_text(check, "detail"));
	}
	if (args->format == OUTPUT_JSON)
		output_json(answer);
	return failed;
}

int command_config_check(const struct arguments *args)
{
	cleanup_buf struct buf out = { .max = PROFD_OUTPUT_MAX };
	char path[4096];
	const char *program = profd_program(path, sizeof(path));
	const char *const argv[] = { program,	 "--check",	"--no-collect",
				     "--config", args->argv[0], NULL };
	int rc;

	if (!program) {
		(void)fprintf(stderr,
			      "profctl: no profd beside profctl or in /usr/sbin: install the "
			      "package profd\n");
		return 1;
	}
	rc = run_profd(argv, &out);
	if (rc < 0 || !out.len) {
		(void)fprintf(stderr, "profctl: cannot run %s: %s\n", program,
			      strerror(rc < 0 ? -rc : EIO));
		return 1;
	}
	out.data[strcspn(out.data, "\n")] = '\0';
	if (args->format == OUTPUT_JSON) {
		cleanup(json) cJSON *answer = cJSON_CreateObject();

		(void)cJSON_AddStringToObject(answer, "file", args->argv[0]);
		(void)cJSON_AddBoolToObject(answer, "valid", rc == 0);
		(void)cJSON_AddStringToObject(answer, "message", out.data);
		output_json(answer);
	} else if (rc == 0) {
		(void)printf("%s is valid\n", args->argv[0]);
	} else {
		(void)fprintf(stderr, "%s\n", out.data);
	}
	return rc != 0;
}
