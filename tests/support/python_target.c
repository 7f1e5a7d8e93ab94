// SPDX-License-Identifier: Apache-2.0
#include "tests/support/python_target.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "symbolize/runtime_cpython.h"

void python_for_each(void (*test)(const char *program))
{
	const char *list = getenv("PROFD_TEST_PYTHONS");
	char *copy = strdup(list ? list : "python3"), *next;

	assert_non_null(copy);
	for (char *at = strtok_r(copy, " ", &next); at; at = strtok_r(NULL, " ", &next))
		test(at);
	free(copy);
}

void python_target_start(struct python_target *t, const char *program, const char *script,
			 const char *argument)
{
	int in[2], out[2];

	*t = (struct python_target){ .target = TARGET_NONE };
	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	t->pid = fork();
	assert_true(t->pid >= 0);
	if (t->pid == 0) {
		(void)dup2(in[0], 0);
		(void)dup2(out[1], 1);
		(void)execlp(program, program, script, argument, (char *)NULL);
		_exit(127);
	}
	(void)close(in[0]);
	(void)close(out[1]);
	t->in_fd = in[1];
	t->out = fdopen(out[0], "r");
	assert_non_null(t->out);
}

static void add_bias(uint64_t *address, uint64_t bias)
{
	*address = *address ? *address + bias : 0;
}

/* The facts of the file at @path, mapped with its byte @offset at @start. */
static bool load(struct python_target *t, const char *path, uint64_t start, uint64_t offset)
{
	cleanup(elf_file) struct elf_file *file = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t bias = start - offset;

	if (fd < 0)
		return false;
	if (elf_file_open_take(fd, &file) < 0) {
		(void)close(fd);
		return false;
	}
	if (runtime_cpython_load(file, &t->runtime) < 0)
		return false;
	for (size_t i = 0; i < SCRIPT_RANGES_MAX; i++) {
		add_bias(&t->runtime.ranges[i].start, bias);
		add_bias(&t->runtime.ranges[i].end, bias);
	}
	add_bias(&t->runtime.python.runtime, bias);
	add_bias(&t->runtime.python.code_type, bias);
	add_bias(&t->runtime.python.tls_got, bias);
	return true;
}

bool python_target_find(struct python_target *t)
{
	char name[64], line[4352], path[4096], prot[8];
	unsigned long start, end, offset;
	bool found = false;
	FILE *maps;

	(void)elf_version(EV_CURRENT);
	assert_int_equal(target_open((uint32_t)t->pid, 0, &t->target), 0);
	(void)snprintf(name, sizeof(name), "/proc/%d/maps", t->pid);
	maps = fopen(name, "re");
	assert_non_null(maps);
	while (!found && fgets(line, sizeof(line), maps))
		found = sscanf(line, "%lx-%lx %7s %lx %*s %*s %4095s", &start, &end, prot, &offset,
			       path) == 5 &&
			prot[2] == 'x' && path[0] == '/' && load(t, path, start, offset);
	(void)fclose(maps);
	return found;
}

void python_target_stop(struct python_target *t)
{
	(void)kill(t->pid, SIGKILL);
	(void)waitpid(t->pid, NULL, 0);
	(void)close(t->in_fd);
	(void)fclose(t->out);
	target_close(&t->target);
}
