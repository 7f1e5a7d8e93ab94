// SPDX-License-Identifier: Apache-2.0
/* tools/test: beside others */
/* Java stacks after every instruction: a thread of tests/workloads/java/Chains.java runs in single
 * steps, and its registers and memory are walked by the code of the BPF programs compiled for the
 * host. A step calls one frame, leaves one, or neither. So the callers are those of the step
 * before, but for one, or the walk says that it does not know them. The host's java, or those of
 * PROFD_TEST_JAVAS; PROFD_TEST_STEPS: how many steps of each. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/reader/hotspot_layout.h"
#include "symbolize/runtime_hotspot.h"
#include "tests/support/traced_thread.h"
#include "bpf/hotspot.bpf.h"

#define STEPS_DEFAULT 40000u
#define FRAMES_MAX    6u /* that are compared */
#define NATIVE_MAX    400u /* steps outside of Java before the thread may run for a while */
#define RUN_US	      2000u
#define WARM_US	      2000000u
#define LAYOUT_NS     (5 * NS_PER_S)

struct frame {
	uint64_t function; /* word A */
	uint64_t ip;	   /* where it returns to */
};

struct stack {
	struct frame frames[FRAMES_MAX];
	unsigned count;
	uint64_t ip;
};

static struct hotspot_walk hotspot;
static int in_fd;
static pid_t thread;

/* False: the walk does not know the callers, and would say so. */
static bool walk(const struct user_regs_struct *r, struct stack *ret)
{
	struct unwind_state at = traced_state(r);

	hotspot_forget(&hotspot);
	*ret = (struct stack){ .ip = r->rip };
	while (ret->count < FRAMES_MAX && hotspot_is_code(&hotspot.facts, at.ip)) {
		uint64_t words[2] = { 0, 0 };

		if (at.is_return && at.ip == hotspot.facts.call_return)
			break;
		if (hotspot_step(&hotspot, &at, words))
			return false;
		ret->frames[ret->count++] = (struct frame){ words[0], at.ip };
	}
	return true;
}

/* Are the callers of @a from its frame @i on those of @b from @j on? A method that stops at a
 * safepoint may give another place of itself. */
static bool same(const struct stack *a, unsigned i, const struct stack *b, unsigned j)
{
	if (i >= a->count || j >= b->count)
		return true;
	for (; i < a->count && j < b->count; i++, j++)
		if (a->frames[i].ip != b->frames[j].ip &&
		    (i + 1 >= a->count || j + 1 >= b->count ||
		     a->frames[i + 1].function != b->frames[j + 1].function))
			return false;
	return true;
}

static void print(const char *what, const struct stack *stack)
{
	print_message("  %s: ip %lx\n", what, stack->ip);
	for (unsigned i = 0; i < stack->count; i++)
		print_message("    %lx returns to %lx\n", stack->frames[i].function,
			      stack->frames[i].ip);
}

/* ---- the program ------------------------------------------------------------------------ */

static void start(const char *program, const char *mode, const char *folder)
{
	int in[2], out[2];
	char line[64];

	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	traced = fork();
	assert_true(traced >= 0);
	if (!traced) {
		(void)dup2(in[0], STDIN_FILENO);
		(void)dup2(out[1], STDOUT_FILENO);
		(void)execlp(program, program, "-XX:+UnlockDiagnosticVMOptions",
			     "-XX:GuaranteedSafepointInterval=100", "-Dcount=3", mode, "-cp", folder,
			     "Chains", "1", (char *)NULL);
		_exit(127);
	}
	(void)close(in[0]);
	(void)close(out[1]);
	in_fd = in[1];
	assert_true(read(out[0], line, sizeof(line)) > 0);
	(void)close(out[0]);
	(void)usleep(WARM_US);
}

static void find_thread(void)
{
	char path[64], name[32];
	struct dirent *entry;
	DIR *tasks;

	(void)snprintf(path, sizeof(path), "/proc/%d/task", traced);
	tasks = opendir(path);
	assert_non_null(tasks);
	for (thread = 0; !thread && (entry = readdir(tasks));) {
		FILE *file;

		(void)snprintf(path, sizeof(path), "/proc/%d/task/%.16s/comm", traced, entry->d_name);
		file = fopen(path, "re");
		if (file && fgets(name, sizeof(name), file) && !strcmp(name, "worker-0\n"))
			thread = atoi(entry->d_name);
		if (file)
			(void)fclose(file);
	}
	(void)closedir(tasks);
	assert_true(thread > 0);
}

/* Takes the symbolizer's facts about the library at @path, and the reader's about the process. */
static void look_at(const char *path, uint64_t bias)
{
	cleanup(elf_file) struct elf_file *file = NULL;
	cleanup_target struct target target = TARGET_NONE;
	struct script_runtime runtime;
	struct script_hotspot *h = &runtime.hotspot;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_int_equal(elf_file_open_take(fd, &file), 0);
	assert_int_equal(runtime_hotspot_load(file, &runtime), 0);
	h->structs += bias;
	h->types += bias;
	for (size_t i = 0; i < SCRIPT_HOTSPOT_NAMES; i++)
		h->nmethod_names[i] += h->nmethod_names[i] ? bias : 0;
	assert_int_equal(target_open((uint32_t)traced, 0, &target), 0);
	assert_int_equal(hotspot_layout_read(&target, h, clock_monotonic_ns() + LAYOUT_NS), 0);
	memset(&hotspot, 0, sizeof(hotspot));
	hotspot.facts = *h;
}

static void find_runtime(void)
{
	char line[4352], path[4096], rights[8], name[64];
	uint64_t from = 0, to, offset = 0;
	bool found = false;
	FILE *file;

	(void)snprintf(name, sizeof(name), "/proc/%d/maps", traced);
	file = fopen(name, "re");
	assert_non_null(file);
	while (!found && fgets(line, sizeof(line), file))
		found = sscanf(line, "%lx-%lx %7s %lx %*s %*s %4095s", &from, &to, rights, &offset,
			       path) == 5 &&
			rights[2] == 'x' && strstr(path, "/libjvm.so");
	(void)fclose(file);
	assert_true(found);
	look_at(path, from - offset);
}

/* ---- steps ------------------------------------------------------------------------------ */

static void wait_stop(void)
{
	int status;

	assert_int_equal(waitpid(thread, &status, __WALL), thread);
	assert_true(WIFSTOPPED(status));
	/* HotSpot's own signals, by which it stops threads */
	while (WSTOPSIG(status) != SIGTRAP) {
		assert_int_equal(ptrace(PTRACE_SINGLESTEP, thread, NULL, WSTOPSIG(status)), 0);
		assert_int_equal(waitpid(thread, &status, __WALL), thread);
		assert_true(WIFSTOPPED(status));
	}
}

static void step(bool is_long_outside)
{
	if (!is_long_outside) {
		assert_int_equal(ptrace(PTRACE_SINGLESTEP, thread, NULL, NULL), 0);
	} else {
		assert_int_equal(ptrace(PTRACE_CONT, thread, NULL, NULL), 0);
		(void)usleep(RUN_US);
		assert_int_equal(ptrace(PTRACE_INTERRUPT, thread, NULL, NULL), 0);
	}
	wait_stop();
}

static void check_steps(const char *program, const char *mode)
{
	const char *number = getenv("PROFD_TEST_STEPS");
	unsigned steps = number ? (unsigned)atoi(number) : STEPS_DEFAULT;
	unsigned known = 0, unknown = 0, wrong = 0, outside = 0;
	struct stack before = { .count = 0 }, now;
	bool is_known = false;

	assert_int_equal(ptrace(PTRACE_SEIZE, thread, NULL, PTRACE_O_EXITKILL), 0);
	assert_int_equal(ptrace(PTRACE_INTERRUPT, thread, NULL, NULL), 0);
	wait_stop();
	while (known + unknown < steps) {
		struct user_regs_struct regs;
		bool was_known = is_known;

		assert_int_equal(ptrace(PTRACE_GETREGS, thread, NULL, &regs), 0);
		is_known = false;
		if (!hotspot_is_code(&hotspot.facts, regs.rip)) {
			outside++;
		} else {
			outside = 0;
			is_known = walk(&regs, &now);
			known += is_known;
			unknown += !is_known;
		}
		if (was_known && is_known && !same(&before, 0, &now, 0) && !same(&before, 0, &now, 1) &&
		    !same(&before, 1, &now, 0) && wrong++ < 3) {
			print("before", &before);
			print("after", &now);
		}
		before = now;
		step(outside > NATIVE_MAX);
		outside %= NATIVE_MAX + 1;
	}
	print_message("%s %s: JDK %u, %u steps with callers, %u without, %u wrong\n", program, mode,
		      hotspot.facts.version, known, unknown, wrong);
	assert_int_equal(wrong, 0);
	assert_true(unknown * 10 < known);
}

static void check_java(const char *program, const char *folder)
{
	static const char *const modes[] = { "-Xmixed", "-Xint", "-XX:TieredStopAtLevel=1" };

	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		start(program, modes[i], folder);
		find_thread();
		find_runtime();
		check_steps(program, modes[i]);
		(void)kill(traced, SIGKILL);
		(void)close(in_fd);
		assert_int_equal(waitpid(thread, NULL, __WALL), thread); /* the traced one first */
		assert_int_equal(waitpid(traced, NULL, 0), traced);
	}
}

static void test_steps(void **state)
{
	const char *given = getenv("PROFD_TEST_JAVAS");
	char folder[] = "/tmp/profd-steps-XXXXXX", command[256];
	cleanup_free char *programs = strdup(given && *given ? given : "java");
	char *rest = programs;

	(void)state;
	assert_non_null(mkdtemp(folder));
	(void)snprintf(command, sizeof(command),
		       "javac -g -Xlint:-options --release 8 -d %s tests/workloads/java/Chains.java",
		       folder);
	assert_int_equal(system(command), 0);
	for (char *program; (program = strsep(&rest, ":"));)
		if (*program)
			check_java(program, folder);
	(void)snprintf(command, sizeof(command), "rm -r %s", folder);
	assert_int_equal(system(command), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_steps) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
