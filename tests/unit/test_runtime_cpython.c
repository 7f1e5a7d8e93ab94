// SPDX-License-Identifier: Apache-2.0
/* CPython in ELF files: the host's own interpreter, and files that are built here in every form. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/cleanup.h"
#include "symbolize/runtime_cpython.h"

#define WORDS                                                                                      \
	"0x7970677562656478,51183856,0,283320,608,632,194968,7272,7264,7344,7400,7656,7640,7648,"  \
	"16,7752,0,7768,7760,304,0,8,16,72,152,160,232,32,80,8,0,56,72,70,208,112,120,128,136,68," \
	"52,96,104,200,16,8,416,24,88,168,32,24,16,40,24,16,48,32,40,24,16,32,16,24,40,16,32,64,"  \
	"32,16,40,240,200"

static char folder[] = "/tmp/profd-cpython-XXXXXX";

static void run(const char *command)
{
	if (system(command))
		fail_msg("%s", command);
}

static int load(const char *path, struct script_runtime *ret)
{
	cleanup(elf_file) struct elf_file *file = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	(void)elf_version(EV_CURRENT);
	assert_true(fd >= 0);
	assert_int_equal(elf_file_open_take(fd, &file), 0);
	memset(ret, 0, sizeof(*ret));
	return runtime_cpython_load(file, ret);
}

static unsigned long long number_of(const char *command)
{
	FILE *in = popen(command, "re");
	unsigned long long value = 0;

	assert_non_null(in);
	assert_int_equal(fscanf(in, "%llx", &value), 1);
	(void)pclose(in);
	return value;
}

/* Builds the file @name whose state begins with @words, and a stripped copy; returns both files'
 * facts. */
static void build_of(const char *words, const char *name, const char *options,
		     struct script_runtime *full, struct script_runtime *stripped)
{
	char command[2048], path[256];

	(void)snprintf(command, sizeof(command),
		       "cd %s && gcc -O2 -g0 -Wno-pedantic -DWORDS='%s' %s -o %s "
		       "$OLDPWD/tests/workloads/python_runtime.c && strip -o %s.stripped %s",
		       folder, words, options, name, name, name);
	run(command);
	(void)snprintf(path, sizeof(path), "%s/%s", folder, name);
	assert_int_equal(load(path, full), 0);
	(void)snprintf(path, sizeof(path), "%s/%s.stripped", folder, name);
	assert_int_equal(load(path, stripped), 0);
}

static void build(const char *name, const char *options, struct script_runtime *full,
		  struct script_runtime *stripped)
{
	build_of(WORDS, name, options, full, stripped);
}

static unsigned long long symbol(const char *name, const char *symbol_name)
{
	char command[512];

	(void)snprintf(command, sizeof(command), "nm %s/%s | awk '$3 == \"%s\" { print $1 }'",
		       folder, name, symbol_name);
	return number_of(command);
}

static unsigned range_count(const struct script_runtime *runtime)
{
	unsigned count = 0;

	for (size_t i = 0; i < SCRIPT_RANGES_MAX; i++)
		count += runtime->ranges[i].end != 0;
	return count;
}

/* Without symbols the moved part is found by the jumps to it. */
static void test_library(void **state)
{
	struct script_runtime full, stripped;

	build("lib.so", "-fPIC -shared -Wl,-soname,libpython3.13.so.1.0", &full, &stripped);
	assert_int_equal(full.kind, SCRIPT_CPYTHON);
	assert_int_equal(full.python.version, 0x030d);
	assert_int_equal(
		full.python.runtime - full.ranges[0].start,
		symbol("lib.so", "_PyRuntime") - symbol("lib.so", "_PyEval_EvalFrameDefault"));
	assert_int_equal(full.python.code_type - full.python.runtime,
			 symbol("lib.so", "PyCode_Type") - symbol("lib.so", "_PyRuntime"));
	assert_int_equal(range_count(&full), 2);
	assert_int_equal(full.ranges[1].start - full.ranges[0].start,
			 symbol("lib.so", "_PyEval_EvalFrameDefault.cold") -
				 symbol("lib.so", "_PyEval_EvalFrameDefault"));
	assert_true(full.python.tls_got != 0);
	assert_int_equal(full.python.tls_at, 0);
	assert_true(stripped.python.tls_got != 0); /* of any variable: all have the same number */
	stripped.python.tls_got = full.python.tls_got;
	assert_memory_equal(&full, &stripped, sizeof(full));
}

static void test_program(void **state)
{
	struct script_runtime full, stripped;

	build("program", "-rdynamic", &full, &stripped);
	assert_int_equal(range_count(&full), 2);
	assert_int_equal(full.python.tls_got, 0);
	assert_true(full.python.tls_at == -8 || full.python.tls_at == -16);
	assert_int_equal(stripped.python.tls_at, 0); /* the variable is not exported */
	stripped.python.tls_at = full.python.tls_at;
	assert_memory_equal(&full, &stripped, sizeof(full));
}

/* Exports removed: the state is found by its section, the loop is not known. */
static void test_static_without_exports(void **state)
{
	struct script_runtime full, stripped;

	build("static", "-static", &full, &stripped);
	assert_int_equal(range_count(&full), 2);
	assert_true(full.python.tls_at < 0);
	assert_int_equal(range_count(&stripped), 0);
	assert_int_equal(stripped.python.tls_at, 0);
	assert_int_equal(stripped.python.runtime, full.python.runtime);
	assert_int_equal(stripped.python.frame_code, full.python.frame_code);
}

/* Without offsets there is no chain, and the loop is known all the same: 3.15, 3.14 without the
 * GIL, a state that does not describe itself, offsets out of range. */
static void test_unknown_layouts(void **state)
{
	static const char *const words[] = { "0x7970677562656478,0x030f00f0,0,283320",
					     "0x7970677562656478,0x030e00f0,1,283320", "0",
					     "0x7970677562656478,0x030d00f0,0,1" };
	struct script_runtime full, stripped;

	for (size_t i = 0; i < ARRAY_SIZE(words); i++) {
		build_of(words[i], "unknown", "-rdynamic", &full, &stripped);
		assert_int_equal(full.kind, SCRIPT_CPYTHON);
		assert_int_equal(full.python.chain, 0);
		assert_int_equal(range_count(&full), 2);
		assert_int_equal(range_count(&stripped), 2);
	}
}

static void test_host(void **state)
{
	char path[4096] = "";
	FILE *in = popen(
		"python3 -c 'import os, sys, sysconfig; v = sysconfig.get_config_var; "
		"p = os.path.join(v(\"LIBDIR\"), v(\"INSTSONAME\") or \"\"); print(sys.version_info[1], "
		"p if v(\"Py_ENABLE_SHARED\") else os.path.realpath(sys.executable))'",
		"re");
	struct script_runtime runtime;
	unsigned minor = 0;

	assert_non_null(in);
	assert_int_equal(fscanf(in, "%u %4095s", &minor, path), 2);
	(void)pclose(in);
	assert_int_equal(load(path, &runtime), 0);
	assert_int_equal(runtime.python.version, 0x0300 | minor);
	assert_true(runtime.ranges[0].end - runtime.ranges[0].start > 30000);
	assert_true(runtime.python.runtime && runtime.python.code_type);
}

static void test_others(void **state)
{
	struct script_runtime runtime;

	assert_int_equal(load("/bin/sh", &runtime), -ENOENT);
	assert_int_equal(load("/proc/self/exe", &runtime), -ENOENT);
}

static int make_folder(void **state)
{
	return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
	char command[64];

	(void)snprintf(command, sizeof(command), "rm -r %s", folder);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_library),
		cmocka_unit_test(test_program),
		cmocka_unit_test(test_static_without_exports),
		cmocka_unit_test(test_unknown_layouts),
		cmocka_unit_test(test_host),
		cmocka_unit_test(test_others),
	};

	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
