// SPDX-License-Identifier: Apache-2.0
/* Rows against the truth: running programs are stopped at arbitrary instructions and walked by our
 * tables and the unwinder's own step (bpf/unwind_step.h), and nearly every walk must reach the end
 * of its stack. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/base/io.h"
#include "symbolize/cfi_rows.h"
#include "symbolize/elf_file.h"
#include "tests/support/elf_fixture.h"
#include "tests/support/traced_thread.h"

#define MAPS_MAX   64
#define FRAMES_MAX 512
#define ROUNDS	   40

struct map {
	uint64_t start_va, end_va, start_fo;
	char path[256];
	struct cfi_table table;
	bool has_table;
};

static struct map maps[MAPS_MAX];
static unsigned map_count;

/* ---- the target's code ----------------------------------------------------------------------- */

static int open_code(const char *path)
{
	static const size_t vdso_bytes = 8192;
	const void *vdso = (const void *)getauxval(AT_SYSINFO_EHDR);
	int fd;

	if (strcmp(path, "[vdso]"))
		return open(path, O_RDONLY | O_CLOEXEC);
	fd = io_memfd("vdso", 0);
	assert_int_equal(io_write_all(fd, vdso, vdso_bytes), 0);
	return fd;
}

static void load_map(struct map *map)
{
	cleanup(elf_file) struct elf_file *file = NULL;
	int fd = open_code(map->path);

	if (fd < 0)
		return;
	if (elf_file_open_take(fd, &file) < 0) {
		(void)close(fd);
		return;
	}
	map->has_table = !cfi_table_build(file->elf, file->fd, &map->table);
}

static void load_maps(void)
{
	char line[512];
	char path[64];
	FILE *file;

	(void)snprintf(path, sizeof(path), "/proc/%d/maps", traced);
	file = fopen(path, "re");
	assert_non_null(file);
	map_count = 0;
	while (fgets(line, sizeof(line), file) && map_count < MAPS_MAX) {
		struct map *map = &maps[map_count];
		char rights[8];

		*map = (struct map){ .has_table = false };
		if (sscanf(line, "%lx-%lx %7s %lx %*s %*s %255s", &map->start_va, &map->end_va, rights,
			   &map->start_fo, map->path) != 5 ||
		    rights[2] != 'x' || !strcmp(map->path, "[vsyscall]"))
			continue;
		load_map(map);
		map_count++;
	}
	(void)fclose(file);
}

static void unload_maps(void)
{
	for (unsigned i = 0; i < map_count; i++)
		if (maps[i].has_table)
			cfi_table_deinit(&maps[i].table);
	map_count = 0;
}

/* ---- walking --------------------------------------------------------------------------------- */

static const struct unwind_rule *rule_at(uint64_t pc)
{
	for (unsigned i = 0; i < map_count; i++)
		if (pc >= maps[i].start_va && pc < maps[i].end_va)
			return maps[i].has_table
				       ? cfi_table_find(&maps[i].table, pc - maps[i].start_va + maps[i].start_fo)
				       : NULL;
	return NULL;
}

/* Frames to the end of the stack, negative if the end was not reached. */
static int walk(pid_t tid)
{
	struct user_regs_struct r;
	struct iovec to = { &r, sizeof(r) };
	struct unwind_state at;

	if (ptrace(PTRACE_GETREGSET, tid, (void *)NT_PRSTATUS, &to) < 0)
		return -1;
	at = traced_state(&r);
	for (int frames = 1; frames < FRAMES_MAX; frames++) {
		const struct unwind_rule *rule = rule_at(at.ip - !!at.is_return);
		int rc = rule ? unwind_step(&at, rule) : UNWIND_NO_RULE;

		if (rc == UNWIND_FINISHED)
			return frames;
		if (rc)
			return -frames;
	}
	return -FRAMES_MAX;
}

/* Stops the thread, walks it, lets it go on. */
static bool sample(pid_t tid, int *ret_frames)
{
	int status;

	if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) < 0)
		return false;
	(void)ptrace(PTRACE_INTERRUPT, tid, NULL, NULL);
	if (waitpid(tid, &status, __WALL) != tid || !WIFSTOPPED(status))
		return false;
	*ret_frames = walk(tid);
	(void)ptrace(PTRACE_DETACH, tid, NULL, NULL);
	return true;
}

struct result {
	unsigned samples, complete;
	int deepest;
};

static void sample_all(struct result *result)
{
	char path[64];
	struct dirent *entry;
	DIR *dir;

	(void)snprintf(path, sizeof(path), "/proc/%d/task", traced);
	dir = opendir(path);
	assert_non_null(dir);
	while ((entry = readdir(dir))) {
		int frames = 0;
		int tid = atoi(entry->d_name);

		if (tid <= 0 || !sample(tid, &frames))
			continue;
		result->samples++;
		result->complete += frames > 0;
		if (frames > result->deepest)
			result->deepest = frames;
	}
	(void)closedir(dir);
}

static struct result run(const char *path)
{
	struct result result = { 0 };

	traced = fork();
	assert_true(traced >= 0);
	if (!traced) {
		char *argv[] = { (char *)(uintptr_t)path, NULL };

		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)!chdir(fixture_dir());
		(void)execv(path, argv);
		_exit(127);
	}
	(void)usleep(300000); /* libraries are loaded, threads run */
	load_maps();
	for (int i = 0; i < ROUNDS; i++) {
		sample_all(&result);
		(void)usleep(1000 + (useconds_t)(i * 37 % 1000));
	}
	(void)kill(traced, SIGKILL);
	(void)waitpid(traced, NULL, 0);
	unload_maps();
	print_message("%s: %u of %u stacks complete, up to %d frames\n", path, result.complete,
		      result.samples, result.deepest);
	return result;
}

/* ---- programs -------------------------------------------------------------------------------- */

/* Recursion, alloca, callbacks out of libc, work in a signal handler, a second thread. */
static const char c_program[] =
	"#include <alloca.h>\n#include <pthread.h>\n#include <signal.h>\n#include <stdlib.h>\n"
	"#include <string.h>\n#include <time.h>\n"
	"static volatile unsigned sink;\n"
	"static int cmp(const void *a, const void *b) { return *(const int *)a - *(const int *)b; "
	"}\n"
	"static __attribute__((noinline)) void sort(int n) { int x[200]; for (int r = 0; r < n; "
	"r++) {\n"
	"  for (int i = 0; i < 200; i++) x[i] = i * 7919 % 211; qsort(x, 200, sizeof(int), cmp); "
	"sink += x[7]; } }\n"
	"static __attribute__((noinline)) int deep(int n) { char *p = alloca(16 + n); memset(p, n, "
	"16 + n);\n"
	"  if (n) return deep(n - 1) + p[3]; sort(20); return p[0]; }\n"
	"static void on_signal(int s) { sort(20); }\n"
	"static void clocks(void) { struct timespec t; for (int i = 0; i < 500; i++) {\n"
	"  clock_gettime(CLOCK_MONOTONIC, &t); sink += t.tv_nsec; } }\n"
	"static void *run(void *arg) { for (;;) { sink += deep(30); clocks(); raise(SIGUSR1); } "
	"return arg; }\n"
	"int main(void) { pthread_t t; signal(SIGUSR1, on_signal); pthread_create(&t, 0, run, 0); "
	"run(0); }\n";

static void test_c_programs(void **state)
{
	static const struct {
		const char *name, *options;
	} builds[] = {
		{ "omit-fp", "-O2 -fomit-frame-pointer" },
		{ "static", "-O2 -static" },
		{ "static-pie", "-O1 -static-pie" },
		{ "keep-fp", "-O2 -fno-omit-frame-pointer -fcf-protection" },
	};

	fixture_write("live.c", c_program);
	for (size_t i = 0; i < ARRAY_SIZE(builds); i++) {
		struct result result;
		char path[256];

		assert_true(fixture_run("gcc %s -o %s live.c -lpthread", builds[i].options, builds[i].name));
		(void)snprintf(path, sizeof(path), "%s/%s", fixture_dir(), builds[i].name);
		result = run(path);
		if (!result.samples) {
			print_message("skipped: this process may not trace its children\n");
			skip();
		}
		assert_true(result.deepest >= 30);
		assert_true(result.complete * 100 >= result.samples * 98);
	}
}

/* A context that goes on to another one: where its stack ends stands the other's address, which is
 * no frame. Half of its time is at the bottom, so that some of the stops are there. */
static const char coroutine[] =
	"#include <stdlib.h>\n#include <ucontext.h>\n"
	"static volatile unsigned sink;\n"
	"static __attribute__((noinline)) void deep(int n) { if (n) deep(n - 1);\n"
	"  for (int i = 0; i < (n ? 1000 : 40000); i++) sink += i; }\n"
	"static void run(void) { for (;;) deep(40); }\n"
	"int main(void) { ucontext_t in, out; getcontext(&in); in.uc_link = &out; "
	"in.uc_stack.ss_size = 1 << 16;\n"
	" in.uc_stack.ss_sp = malloc(1 << 16); makecontext(&in, run, 0); return swapcontext(&out, "
	"&in); }\n";

static void test_coroutine(void **state)
{
	static const char *const builds[] = { "-O1", "-O1 -static" };

	fixture_write("coroutine.c", coroutine);
	for (size_t i = 0; i < ARRAY_SIZE(builds); i++) {
		struct result result;
		char path[256];

		assert_true(fixture_run(
			"gcc -fno-optimize-sibling-calls %s -o coroutine coroutine.c", builds[i]));
		(void)snprintf(path, sizeof(path), "%s/coroutine", fixture_dir());
		result = run(path);
		if (!result.samples) {
			print_message("skipped: this process may not trace its children\n");
			skip();
		}
		assert_int_equal(result.complete, result.samples);
		/* run(), deep() 41 times, and the address that nobody has called */
		assert_in_range(result.deepest, 40, 43);
	}
}

/* Garbage collection and clocks run on other stacks than the goroutine's. */
static const char go_program[] =
	"package main\n"
	"import (\"fmt\"; \"sort\"; \"strings\"; \"time\")\n"
	"//go:noinline\n"
	"func work(n int) int { s := 0; for i := 0; i < n; i++ { s += len(strings.Repeat(\"x\", i%50))\n"
	"  s += int(time.Now().UnixNano() & 1) }; return s }\n"
	"func deep(n int) int { if n > 0 { return deep(n-1) + 1 }; return work(200) }\n"
	"func main() { for g := 0; g < 3; g++ { go func() { m := map[string][]int{}; for k := 0; ; k++ {\n"
	"  deep(30); m[fmt.Sprint(k%1000)] = make([]int, 100); x := []int{5, 4, 3}; sort.Ints(x) } }() }\n"
	"  time.Sleep(time.Hour) }\n";

static void test_go_program(void **state)
{
	struct result result;
	char path[256];

	fixture_write("go.mod", "module live\n\ngo 1.16\n");
	fixture_write("live.go", go_program);
	if (!fixture_has("go") || !fixture_run("go build -ldflags='-s -w' -o live-go live.go")) {
		print_message("skipped: no Go toolchain here\n");
		skip();
	}
	(void)snprintf(path, sizeof(path), "%s/live-go", fixture_dir());
	result = run(path);
	if (!result.samples) {
		print_message("skipped: this process may not trace its children\n");
		skip();
	}
	assert_true(result.deepest >= 30);
	assert_true(result.complete * 100 >= result.samples * 98);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_c_programs), cmocka_unit_test(test_coroutine),
		cmocka_unit_test(test_go_program),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
