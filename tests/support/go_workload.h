/* SPDX-License-Identifier: Apache-2.0 */
/* Builds and runs the Go programs below tests/workloads/go and talks to them over their standard
 * input and output (see situations/main.go). Older compilers come from Go's module cache or proxy
 * by GOTOOLCHAIN, which compilers since 1.21 know. */
#ifndef PROFD_TESTS_GO_WORKLOAD_H
#define PROFD_TESTS_GO_WORKLOAD_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

struct go_build {
	const char *program;   /* folder below tests/workloads/go */
	const char *toolchain; /* "go1.23.12", NULL = the installed one */
	const char *mode;      /* "plain", "stripped", "pie", "cgo", "cgo-pie", "static-pie" */
};

struct go_workload {
	pid_t pid;
	FILE *in;
	FILE *out;
};

/* Builds into build/tests/go; @ret_path is the program. false with the reason printed: skip. */
bool go_workload_build(const struct go_build *build, char *ret_path, size_t size);
/* Starts it and waits for "ready". @args ends with NULL. Fails the test on error. */
void go_workload_start(struct go_workload *w, const char *path, const char *const *args);
/* Sends a command; the answer without its end line, NUL-terminated (free). */
char *go_workload_ask(struct go_workload *w, const char *command);
void go_workload_stop(struct go_workload *w);

#endif
