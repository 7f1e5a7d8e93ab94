// SPDX-License-Identifier: Apache-2.0
#include "tests/support/go_workload.h"

#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/buf.h"

#define END_LINE "<<<end>>>\n"

/* The path of `go`: on the PATH, or the place of its own installer. */
static const char *go_command(void)
{
	static char found[PATH_MAX];
	static const char *const places[] = { "/usr/local/go/bin/go", "/usr/lib/go/bin/go" };
	const char *path = getenv("PATH");

	for (const char *at = path ? path : ""; *at; at += strcspn(at, ":"), at += *at == ':') {
		(void)snprintf(found, sizeof(found), "%.*s/go", (int)strcspn(at, ":"), at);
		if (access(found, X_OK) == 0)
			return found;
	}
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		if (access(places[i], X_OK) == 0)
			return places[i];
	return NULL;
}

static bool is_old(const char *toolchain)
{
	return toolchain && (!strncmp(toolchain, "go1.16.", 7) || !strncmp(toolchain, "go1.17.", 7));
}

static void exec_build(const struct go_build *build, const char *go, const char *path)
{
	bool cgo = !strncmp(build->mode, "cgo", 3), pie = strstr(build->mode, "pie") != NULL;
	const char *args[12] = { go, "build", "-o", path };
	int n = 4;
	char program[128];

	(void)snprintf(program, sizeof(program), "./%s", build->program);
	if (strcmp(build->mode, "plain") != 0) {
		args[n++] = "-ldflags";
		args[n++] = !strcmp(build->mode, "static-pie")
				    ? "-s -w -linkmode=external -extldflags=-static-pie"
				    : "-s -w";
	}
	if (pie)
		args[n++] = "-buildmode=pie";
	args[n++] = program;
	(void)!setenv("CGO_ENABLED", cgo || !strcmp(build->mode, "static-pie") ? "1" : "0", 1);
	/* Folders without a repository around them; compilers before 1.18 do not know the word. */
	(void)!setenv("GOFLAGS", is_old(build->toolchain) ? "-mod=mod" : "-mod=mod -buildvcs=false",
		      1);
	(void)!setenv("GOTOOLCHAIN", build->toolchain ? build->toolchain : "local", 1);
	(void)alarm(getenv("PROFD_TEST_GO_ALL") ? 600 : 120);
	if (chdir("tests/workloads/go") == 0)
		execv(go, (char *const *)(uintptr_t)args);
	_exit(127);
}

bool go_workload_build(const struct go_build *build, char *ret_path, size_t size)
{
	const char *go = go_command();
	char folder[PATH_MAX - 256], cwd[PATH_MAX - 512];
	int status;
	pid_t pid;

	if (!go) {
		print_message("skipped: no Go compiler on this host\n");
		return false;
	}
	assert_non_null(getcwd(cwd, sizeof(cwd)));
	(void)snprintf(folder, sizeof(folder), "%s/build/tests/go", cwd);
	(void)mkdir("build/tests", 0755);
	(void)mkdir(folder, 0755);
	(void)snprintf(ret_path, size, "%s/%s-%s-%s", folder, build->program,
		       build->toolchain ? build->toolchain : "installed", build->mode);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		exec_build(build, go, ret_path);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return true;
	print_message("skipped: %s cannot build %s here\n",
		      build->toolchain ? build->toolchain : "go", build->mode);
	return false;
}

void go_workload_start(struct go_workload *w, const char *path, const char *const *args)
{
	int in[2], out[2];
	char line[64];
	const char *argv[16] = { path };

	for (int i = 0; i < 14 && args && args[i]; i++)
		argv[i + 1] = args[i];
	assert_int_equal(pipe(in), 0);
	assert_int_equal(pipe(out), 0);
	fflush(NULL);
	w->pid = fork();
	assert_true(w->pid >= 0);
	if (w->pid == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)dup2(in[0], 0);
		(void)dup2(out[1], 1);
		(void)close(in[1]);
		(void)close(out[0]);
		execv(path, (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	(void)close(in[0]);
	(void)close(out[1]);
	w->in = fdopen(in[1], "w");
	w->out = fdopen(out[0], "r");
	assert_non_null(w->in);
	assert_non_null(w->out);
	assert_non_null(fgets(line, sizeof(line), w->out));
	assert_string_equal(line, "ready\n");
}

char *go_workload_ask(struct go_workload *w, const char *command)
{
	struct buf text = { 0 };
	char *line = NULL;
	size_t size = 0;
	ssize_t len;

	assert_true(fprintf(w->in, "%s\n", command) > 0);
	assert_int_equal(fflush(w->in), 0);
	while ((len = getline(&line, &size, w->out)) >= 0 && strcmp(line, END_LINE) != 0)
		buf_add(&text, line, (size_t)len);
	assert_true(len >= 0);
	free(line);
	buf_add_char(&text, '\0');
	return buf_take(&text, NULL);
}

void go_workload_stop(struct go_workload *w)
{
	(void)kill(w->pid, SIGKILL);
	(void)waitpid(w->pid, NULL, 0);
	(void)fclose(w->in);
	(void)fclose(w->out);
}
