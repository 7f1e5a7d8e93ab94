// SPDX-License-Identifier: Apache-2.0
/* tools/test: beside others */
/* Python stacks against the interpreter's own account: a running program is stopped at any
 * instruction, its registers and memory are walked by the code of the BPF programs compiled for the
 * host, then the program itself dumps its stack by faulthandler before it goes on. Both chains must
 * be equal: functions, files and lines. The programs are grammar.py and real.py of
 * tests/workloads/python. The same walk after each single instruction shows what a stop hardly
 * ever meets: the instructions between which an entry or a frame is made.
 * The host's python3, or those of PROFD_TEST_PYTHONS. PROFD_TEST_STOPS, PROFD_TEST_STEPS: how many.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/reader/cpython_check.h"
#include "agent/reader/cpython_names.h"
#include "symbolize/cfi_rows.h"
#include "symbolize/elf_file.h"
#include "tests/support/python_target.h"
#include "tests/support/traced_thread.h"
#include "bpf/profiler.h"
#include "bpf/python.bpf.h"

#define MAPS_MAX      128
#define NATIVE_MAX    1024
#define STOPS_DEFAULT 300
#define STEPS_DEFAULT 20000 /* walked */
#define STEPS_MORE    5u /* times so many at most */
#define OUTSIDE       16 /* one of as many steps outside of the loop is walked */
#define START_US      50000 /* until a program has specialized its code */
#define WALK_NS	      (2 * NS_PER_S)
#define LINE_BYTES    1200
#define DUMP_WAIT_MS  300
#define LOOK_MS       20
#define GRAMMAR	      "tests/workloads/python/grammar.py"
#define REAL	      "tests/workloads/python/real.py" /* its main thread also waits in the kernel */

static struct python_target python;

struct map {
	uint64_t start_va, end_va, start_fo;
	struct cfi_table table;
	bool has_table;
};

static const char *script;
static struct map maps[MAPS_MAX];
static unsigned map_count;

/* ---- native frames -------------------------------------------------------------------- */

static void load_table(struct map *map, const char *path)
{
	cleanup(elf_file) struct elf_file *file = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

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
	char line[4352], path[4096], name[64];
	FILE *file;

	(void)snprintf(name, sizeof(name), "/proc/%d/maps", python.pid);
	file = fopen(name, "re");
	assert_non_null(file);
	while (fgets(line, sizeof(line), file) && map_count < MAPS_MAX) {
		struct map *map = &maps[map_count];
		char rights[8];

		*map = (struct map){ .has_table = false };
		if (sscanf(line, "%lx-%lx %7s %lx %*s %*s %4095s", &map->start_va, &map->end_va,
			   rights, &map->start_fo, path) != 5 ||
		    rights[2] != 'x' || path[0] != '/')
			continue;
		load_table(map, path);
		map_count++;
	}
	(void)fclose(file);
}

static void unload_maps(void)
{
	while (map_count)
		if (maps[--map_count].has_table)
			cfi_table_deinit(&maps[map_count].table);
}

static const struct unwind_rule *rule_at(uint64_t pc)
{
	for (unsigned i = 0; i < map_count; i++)
		if (pc >= maps[i].start_va && pc < maps[i].end_va)
			return maps[i].has_table
				       ? cfi_table_find(&maps[i].table,
							pc - maps[i].start_va + maps[i].start_fo)
				       : NULL;
	return NULL;
}

/* ---- both chains ---------------------------------------------------------------------- */

static struct control_script_place places[CPYTHON_NAMES_MAX];
static size_t place_count;
static struct cpython_name names[CPYTHON_NAMES_MAX];

static bool is_loop(uint64_t pc)
{
	for (size_t i = 0; i < SCRIPT_RANGES_MAX; i++)
		if (pc >= python.runtime.ranges[i].start && pc < python.runtime.ranges[i].end)
			return true;
	return false;
}

/* The script frames of the entry [@low, @high). False: the walk says that they are missing. */
static bool walk_entry(struct script_walk *walk, uint64_t thread_pointer, uint64_t low,
		       uint64_t high, enum script_place place,
		       const uint64_t regs[ARCH_REG_COUNT])
{
	uint64_t words[2 * CPYTHON_NAMES_MAX];
	uint16_t count = 0;

	if (script_python_take(walk, thread_pointer, low, high, place, regs, words,
			       ARRAY_SIZE(words), &count) != SCRIPT_STEP_ENTRY)
		return false;
	for (uint16_t i = 0; i < count; i += 2) {
		assert_true(place_count < CPYTHON_NAMES_MAX);
		places[place_count++] = (struct control_script_place){ words[i], words[i + 1] };
	}
	return true;
}

/* False: the walk did not reach the end of the stack, and would say so. */
static bool walk(const struct user_regs_struct *r)
{
	struct script_walk walk = { .python = python.runtime.python };
	struct unwind_state at = traced_state(r);

	place_count = 0;
	for (int frames = 0; frames < NATIVE_MAX; frames++) {
		bool is_call = at.is_return;
		uint64_t pc = at.ip - is_call, low = at.sp;
		const struct unwind_rule *rule = rule_at(pc);
		int rc = rule ? unwind_step(&at, rule) : UNWIND_NO_RULE;

		if (rc == UNWIND_FINISHED)
			return true;
		if (rc)
			return false;
		if (is_loop(pc) && !walk_entry(&walk, r->fs_base, low, at.sp,
					       script_python_place(python.runtime.ranges[0].start, pc,
								   is_call), at.regs))
			return false;
	}
	return false;
}

static bool is_in_loop;  /* the instruction at which it stands is one of the loop */
static bool has_crashed; /* the program, while it dumped its stack */

/* faulthandler may meet a frame that is half made, since the program was stopped at any
 * instruction, and break its own program (3.11: once in some thousand stops). */
static void look_for_crash(void)
{
	int status;

	if (waitpid(python.pid, &status, WNOHANG | __WALL) != python.pid)
		return;
	assert_true(WIFSTOPPED(status));
	assert_true(WSTOPSIG(status) == SIGSEGV || WSTOPSIG(status) == SIGBUS);
	has_crashed = true;
}

/* The next byte of the dump, 0: none came. */
static char read_byte(void)
{
	struct pollfd fd = { .fd = fileno(python.out), .events = POLLIN };
	char byte;

	for (int waited_ms = 0; waited_ms < DUMP_WAIT_MS && !has_crashed; waited_ms += LOOK_MS) {
		if (poll(&fd, 1, LOOK_MS) > 0)
			return read(fd.fd, &byte, 1) == 1 ? byte : '\0';
		look_for_crash();
	}
	return '\0';
}

/* The next line of the dump; false: none came. */
static bool read_line(char line[LINE_BYTES])
{
	size_t len = 0;
	char byte;

	while ((byte = read_byte()) && byte != '\n')
		if (len + 1 < LINE_BYTES)
			line[len++] = byte;
	line[len] = '\0';
	return byte == '\n';
}

/* Reads one dump. @is_cut: faulthandler broke off, as that of 3.14 does behind a frame that
 * has no line. What separates two entries into the interpreter is no frame. */
static size_t read_dump(char (*dumped)[LINE_BYTES], size_t max, bool *is_cut)
{
	char line[LINE_BYTES];
	size_t count = 0;

	while (read_line(line) && !strstr(line, "most recent call first"))
		;
	for (*is_cut = false; count < max;) {
		*is_cut = !read_line(line) || strncmp(line, "  File ", 7) != 0;
		if (*is_cut)
			break;
		if (strstr(line, "<interpreter trampoline>"))
			continue;
		memcpy(dumped[count++], line, sizeof(line));
		if (strstr(line, script) && strstr(line, " in <module>"))
			break;
	}
	return count;
}

/* As faulthandler writes it: the name without its class. A line that is not known is "???" or 0. */
static void put_line(const struct cpython_name *name, const char *unknown, char ret[LINE_BYTES])
{
	const char *last = strrchr(name->function, '.');
	char line[16];

	(void)snprintf(line, sizeof(line), "%u", name->line);
	(void)snprintf(ret, LINE_BYTES, "  File \"%.500s\", line %s in %.500s", name->file,
		       name->line ? line : unknown, last ? last + 1 : name->function);
}

static bool is_equal(const struct cpython_name *name, const char *dumped)
{
	char line[LINE_BYTES], other[LINE_BYTES];

	put_line(name, "???", line);
	put_line(name, "0", other);
	return !strcmp(line, dumped) || !strcmp(other, dumped);
}

static struct {
	unsigned stops, walked, equal, cut, half, frames, crashes;
} counts;

/* How many of the frames are equal, without the first @skipped dumped ones. */
static size_t count_equal(char (*dumped)[LINE_BYTES], size_t count, size_t skipped)
{
	size_t same = 0;

	while (same + skipped < count && same < place_count &&
	       is_equal(&names[same], dumped[same + skipped]))
		same++;
	return same;
}

/* faulthandler shows the frame that the loop is about to enter, or has just left, before or after
 * it is linked. */
static bool is_half(char (*dumped)[LINE_BYTES], size_t count, bool is_cut)
{
	size_t same = count_equal(dumped, count, 1);

	return is_in_loop && count && same == count - 1 && (same == place_count || is_cut);
}

static void print(const char *program, char (*dumped)[LINE_BYTES], size_t count)
{
	print_message("%s, stop %u: walked %zu, dumped %zu\n", program, counts.stops, place_count,
		      count);
	for (size_t i = 0; i < count || i < place_count; i++) {
		char line[LINE_BYTES] = "";

		if (i < place_count)
			put_line(&names[i], "???", line);
		print_message("%s | %s\n", line, i < count ? dumped[i] : "");
	}
}

static void compare(const char *program, bool is_walked)
{
	static char dumped[CPYTHON_NAMES_MAX][LINE_BYTES];
	size_t count, same;
	bool is_cut;

	count = read_dump(dumped, CPYTHON_NAMES_MAX, &is_cut);
	if (has_crashed) {
		counts.stops--;
		counts.walked -= is_walked;
		counts.crashes++;
		return;
	}
	counts.cut += is_cut;
	if (!is_walked)
		return;
	same = count_equal(dumped, count, 0);
	counts.frames += (unsigned)same;
	if (same == count && (count == place_count || is_cut))
		counts.equal++;
	else if (is_half(dumped, count, is_cut))
		counts.half++;
	else if (counts.walked - counts.equal - counts.half < 3)
		print(program, dumped, count);
}

/* ---- stops ---------------------------------------------------------------------------- */

/* Waits until the program stops by @signal, or by PTRACE_INTERRUPT (0). */
static void wait_stop(int signal)
{
	int status;

	for (;;) {
		assert_int_equal(waitpid(python.pid, &status, __WALL), python.pid);
		assert_true(WIFSTOPPED(status));
		if (signal ? WSTOPSIG(status) == signal && status >> 16 == 0
			   : status >> 16 == PTRACE_EVENT_STOP)
			return;
		assert_int_equal(ptrace(PTRACE_CONT, python.pid, NULL, NULL), 0);
	}
}

/* Stops the program, walks it, and lets it dump its stack before it does anything else. */
static void stop_once(const char *program)
{
	struct user_regs_struct regs;
	bool is_walked;

	assert_int_equal(ptrace(PTRACE_INTERRUPT, python.pid, NULL, NULL), 0);
	wait_stop(0);
	assert_int_equal(ptrace(PTRACE_GETREGS, python.pid, NULL, &regs), 0);
	is_walked = walk(&regs);
	is_in_loop = is_loop(regs.rip);
	if (is_walked)
		assert_int_equal(cpython_names_read(&python.target, &python.runtime.python, places,
						    place_count, names,
						    clock_monotonic_ns() + WALK_NS),
				 0);
	assert_int_equal(syscall(SYS_tgkill, python.pid, python.pid, SIGUSR2), 0);
	assert_int_equal(ptrace(PTRACE_CONT, python.pid, NULL, NULL), 0);
	wait_stop(SIGUSR2);
	assert_int_equal(ptrace(PTRACE_CONT, python.pid, NULL, SIGUSR2), 0);
	counts.stops++;
	counts.walked += is_walked;
	compare(program, is_walked);
}

static void begin(const char *program, const char *argument)
{
	char line[64];
	int rc;

	has_crashed = false;
	python_target_start(&python, program, script, argument);
	(void)setvbuf(python.out, NULL, _IONBF, 0);
	assert_non_null(fgets(line, sizeof(line), python.out));
	print_message("%s of %s is %s", script, program, line);
	assert_true(python_target_find(&python));
	load_maps();
	do
		rc = cpython_check(&python.target, &python.runtime, clock_monotonic_ns() + WALK_NS);
	while (rc == -EAGAIN); /* the thread was on its way: the collector asks again, too */
	assert_int_equal(rc, 0);
	/* the only thread of grammar.py has the GIL */
	assert_true(python.runtime.python.tls_at < 0 || !strcmp(script, REAL) ||
		    (python.runtime.python.version & 0xff) < 12);
	traced = python.pid;
	assert_int_equal(ptrace(PTRACE_SEIZE, python.pid, NULL, PTRACE_O_EXITKILL), 0);
}

static void end(void)
{
	unload_maps();
	python_target_stop(&python);
}

static void check_stops(const char *program)
{
	const char *number = getenv("PROFD_TEST_STOPS");
	unsigned stops = number ? (unsigned)atoi(number) : STOPS_DEFAULT;

	memset(&counts, 0, sizeof(counts));
	(void)alarm(60 + stops / 20); /* a program that does not answer fails the test */
	begin(program, "dump");
	while (counts.stops < stops && counts.crashes * 100u <= stops) {
		stop_once(program);
		if (has_crashed) {
			end();
			begin(program, "dump");
		}
		(void)usleep((useconds_t)(100 + random() % 900));
	}
	(void)alarm(0);
	print_message(
		"%s: 3.%u, %u stops, %u walked to the end, %u equal, %u half made, %u dumps cut, "
		"%u frames, %u crashes of faulthandler\n",
		program, python.runtime.python.version & 0xff, counts.stops, counts.walked,
		counts.equal, counts.half, counts.cut, counts.frames, counts.crashes);
	assert_int_equal(counts.stops, stops);
	/* A closure of libffi has no unwind rows: the walk ends there, and says so. */
	assert_true(counts.walked * 100ul >= counts.stops * 98ul);
	assert_true(counts.cut * 5ul <= counts.stops);
	assert_int_equal(counts.equal + counts.half, counts.walked);
	assert_true(counts.half <= 1 + stops / 1000);
	end();
}

/* ---- single steps --------------------------------------------------------------------- */

static struct control_script_place before[CPYTHON_NAMES_MAX];
static size_t before_count;

static void print_places(const char *when, const struct control_script_place *from, size_t count)
{
	assert_int_equal(cpython_names_read(&python.target, &python.runtime.python, from, count,
					    names, clock_monotonic_ns() + WALK_NS),
			 0);
	print_message("%s:", when);
	for (size_t i = 0; i < count; i++)
		print_message(" %s:%u", names[i].function, names[i].line);
	print_message("\n");
}

/* An instruction pushes frames or takes some away, but does not replace one by another. */
static bool has_followed(void)
{
	size_t same = 0;

	while (same < place_count && same < before_count &&
	       places[place_count - 1 - same].a == before[before_count - 1 - same].a)
		same++;
	return same == place_count || same == before_count;
}

/* Walks a program that calls and returns in every way after each of its instructions in the loop,
 * and after some of the others. The chain is never lost, and differs from that before only by
 * frames that were pushed or taken away. Where all of the steps fell into one long call of C, which
 * pushes nothing, it goes on. */
static void check_steps(const char *program)
{
	const char *number = getenv("PROFD_TEST_STEPS");
	unsigned steps = number ? (unsigned)atoi(number) : STEPS_DEFAULT, lost = 0, wrong = 0;
	unsigned pushed = 0;
	struct user_regs_struct regs;

	(void)alarm(120 + steps / 50);
	begin(program, "steps");
	(void)usleep(START_US);
	assert_int_equal(ptrace(PTRACE_INTERRUPT, python.pid, NULL, NULL), 0);
	wait_stop(0);
	before_count = 0;
	for (unsigned i = 0, walked = 0;
	     walked < steps || (pushed * 2000 <= steps && walked < STEPS_MORE * steps); i++) {
		int status;

		assert_int_equal(ptrace(PTRACE_SINGLESTEP, python.pid, NULL, NULL), 0);
		assert_int_equal(waitpid(python.pid, &status, __WALL), python.pid);
		assert_true(WIFSTOPPED(status));
		assert_int_equal(ptrace(PTRACE_GETREGS, python.pid, NULL, &regs), 0);
		if (!is_loop(regs.rip) && i % OUTSIDE)
			continue;
		walked++;
		if (!walk(&regs)) {
			/* closures of libffi have no unwind rules */
			if (is_loop(regs.rip) && lost++ < 3)
				print_message("no chain at %#llx of the loop\n",
					      regs.rip - python.runtime.ranges[0].start);
			continue;
		}
		if (before_count && !has_followed() && wrong++ < 3) {
			print_message("at %#llx of the loop\n",
				      regs.rip - python.runtime.ranges[0].start);
			print_places("before", before, before_count);
			print_places("after", places, place_count);
		}
		pushed += place_count > before_count;
		memcpy(before, places, sizeof(places));
		before_count = place_count;
	}
	(void)alarm(0);
	print_message("%s: 3.%u, %u steps, %u pushed a frame, %u lost the chain, %u changed it\n",
		      program, python.runtime.python.version & 0xff, steps, pushed, lost, wrong);
	end();
	assert_true(pushed * 2000 > steps);
	assert_int_equal(lost, 0);
	assert_int_equal(wrong, 0);
}

static void test_grammar(void **state)
{
	script = GRAMMAR;
	python_for_each(check_stops);
}

static void test_real_program(void **state)
{
	script = REAL;
	python_for_each(check_stops);
}

static void test_steps(void **state)
{
	script = GRAMMAR;
	python_for_each(check_steps);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_grammar),
					    cmocka_unit_test(test_real_program),
					    cmocka_unit_test(test_steps) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
