// SPDX-License-Identifier: Apache-2.0
/* The reader against real Python processes: where their threads find their state, and the names and
 * lines of code objects, which the process prints itself. The host's python3, or those of
 * PROFD_TEST_PYTHONS. Reading another process needs root here (CAP_SYS_PTRACE). */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/reader/cpython_check.h"
#include "agent/reader/cpython_names.h"
#include "tests/support/python_target.h"

#define DEADLINE_NS (5 * NS_PER_S)

static int check(struct python_target *t)
{
	return cpython_check(&t->target, &t->runtime, clock_monotonic_ns() + DEADLINE_NS);
}

/* ---- names ---------------------------------------------------------------------------------- */

struct expected {
	uint32_t line, first_line;
	char function[1400], file[1400];
};

static struct control_script_place places[CPYTHON_NAMES_MAX];
static struct expected expected[CPYTHON_NAMES_MAX];
static struct cpython_name names[CPYTHON_NAMES_MAX];

static const char *end_of(const char *text)
{
	size_t len = strlen(text);

	return len > SCRIPT_NAME_MAX ? text + len - SCRIPT_NAME_MAX : text;
}

/* The cookie is the walk's: it reads these words at the sample. */
static void read_cookie(struct python_target *t, struct control_script_place *place)
{
	uint64_t words[SCRIPT_COOKIE_WORDS];

	assert_int_equal(target_read(&t->target, place->a + t->runtime.python.cookie_at, words,
				     sizeof(words)),
			 0);
	place->b |= script_cookie(words, t->runtime.python.cookie_words);
}

static void compare(struct python_target *t, size_t count)
{
	for (size_t i = 0; i < count; i++)
		read_cookie(t, &places[i]);
	assert_int_equal(cpython_names_read(&t->target, &t->runtime.python, places, count, names,
					    clock_monotonic_ns() + DEADLINE_NS),
			 0);
	for (size_t i = 0; i < count; i++) {
		assert_true(names[i].is_known);
		assert_string_equal(names[i].function, expected[i].function);
		assert_string_equal(names[i].file, end_of(expected[i].file));
		assert_int_equal(names[i].first_line, expected[i].first_line);
		assert_int_equal(names[i].line, expected[i].line);
	}
}

/* Reads the process's lines up to "ready" and compares them in groups. Returns their number. */
static size_t compare_all(struct python_target *t, char (*lines)[3200], size_t line_count)
{
	size_t at = 0;

	for (size_t i = 0; i < line_count; i++) {
		unsigned long code, position;

		assert_int_equal(sscanf(lines[i], "%lx\t%lu\t%u\t%u\t%1399[^\t]\t%1399[^\n]", &code,
					&position, &expected[at].line, &expected[at].first_line,
					expected[at].function, expected[at].file),
				 6);
		places[at++] =
			(struct control_script_place){ code, position << SCRIPT_POSITION_SHIFT };
		if (at < CPYTHON_NAMES_MAX && i + 1 < line_count)
			continue;
		compare(t, at);
		at = 0;
	}
	return line_count;
}

static void check_names(const char *program)
{
	static char lines[16384][3200];
	struct python_target t;
	size_t count = 0;

	python_target_start(&t, program, "tests/workloads/python/named.py", NULL);
	while (count < 16384 && fgets(lines[count], sizeof(lines[0]), t.out) &&
	       strcmp(lines[count], "ready\n"))
		count++;
	assert_in_range(count, 100, 16383);
	assert_true(python_target_find(&t));
	assert_int_equal(check(&t), 0);
	print_message("%s: 3.%u, state at fs%+d (TLS), fs%+d (key)\n", program,
		      t.runtime.python.version & 0xff, t.runtime.python.tls_at,
		      t.runtime.python.tss_at);
	assert_true(t.runtime.python.tss_at > 0);
	assert_int_equal(compare_all(&t, lines, count), count);
	/* another object at the same address has another cookie */
	places[0].b ^= 1;
	assert_int_equal(cpython_names_read(&t.target, &t.runtime.python, places, 1, names,
					    clock_monotonic_ns() + DEADLINE_NS),
			 0);
	assert_false(names[0].is_known);
	assert_string_equal(names[0].function, "");
	python_target_stop(&t);
}

static void test_names(void **state)
{
	python_for_each(check_names);
}

/* ---- what does not fit ----------------------------------------------------------------------- */

static void check_refusals(const char *program)
{
	struct script_runtime good;
	struct python_target t;
	char line[3200];

	python_target_start(&t, program, "tests/workloads/python/named.py", NULL);
	while (fgets(line, sizeof(line), t.out) && strcmp(line, "ready\n"))
		;
	assert_true(python_target_find(&t));
	good = t.runtime;
	/* wrong offsets, one after another */
	t.runtime.python.frame_code += 8;
	assert_int_equal(check(&t), -EOPNOTSUPP);
	t.runtime = good;
	t.runtime.python.code_filename = t.runtime.python.code_linetable;
	assert_int_equal(check(&t), -EOPNOTSUPP);
	t.runtime = good;
	t.runtime.python.thread_interp += 8;
	assert_int_equal(check(&t), -EAGAIN); /* no thread is in its list */
	t.runtime = good;
	t.runtime.python.runtime += 65536;
	assert_true(check(&t) < 0);
	/* memory that is not there, and a process that is gone */
	t.runtime = good;
	t.runtime.python.runtime = 8;
	assert_int_equal(check(&t), -EAGAIN);
	t.runtime = good;
	assert_int_equal(check(&t), 0);
	(void)kill(t.pid, SIGKILL);
	(void)waitpid(t.pid, NULL, 0);
	t.runtime = good;
	assert_int_equal(check(&t), -ESRCH);
	python_target_stop(&t);
}

static void test_refusals(void **state)
{
	python_for_each(check_refusals);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_refusals),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
