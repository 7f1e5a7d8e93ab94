/* SPDX-License-Identifier: Apache-2.0 */
/* A Python process under observation: started with pipes, its interpreter found in its mappings and
 * described by symbolize/runtime_cpython.h with the addresses of the process. */
#ifndef PROFD_TESTS_SUPPORT_PYTHON_TARGET_H
#define PROFD_TESTS_SUPPORT_PYTHON_TARGET_H

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

#include "agent/reader/target_memory.h"
#include "bpf/script.h"

struct python_target {
	pid_t pid;
	FILE *out; /* its standard output */
	int in_fd; /* its standard input */
	struct target target;
	struct script_runtime runtime; /* as the collector would send it to be checked */
};

/* Calls @test with each interpreter to test: the programs of PROFD_TEST_PYTHONS, separated by
 * spaces, else "python3". */
void python_for_each(void (*test)(const char *program));

/* Starts @program @script [@argument]. Fails the test on any error. */
void python_target_start(struct python_target *t, const char *program, const char *script,
			 const char *argument);
/* Finds the interpreter, once the process has written something. False: it has none that
 * symbolize/runtime_cpython.h knows. */
bool python_target_find(struct python_target *t);
void python_target_stop(struct python_target *t);

#endif
