// SPDX-License-Identifier: Apache-2.0
/* Builders of names in the process that runs them: those that are killed, and those that are long
 * at work. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/base/io.h"
#include "tests/support/elf_fixture.h"
#include "tests/support/symbolizer_host.h"

/* COUNT functions. */
static void write_many(void)
{
	fixture_write(
		"many.s",
		".macro one name\n.type \\name, @function\n\\name: ret\n.size \\name, 1\n.endm\n.globl twice\n"
		"one twice\n.macro another\none many\\@\n.endm\n.rept COUNT\nanother\n.endr\n");
}

/* Three files in one child, the second of which kills it: the first is done, the third is built
 * again. */
static void test_builder_killed(void **state)
{
	static const char *const files[] = { "small", "killer", "large" }; /* the order of building */
	static struct symbolizer_host f;
	struct control_indexed answers[3];
	struct rlimit before, limit;

	write_many();
	assert_true(fixture_run("for f in small=1 killer=4000 large=2; do gcc -shared -nostdlib "
				"-Wl,--build-id=none -o ${f%%=*} "
				"-Wa,--defsym,COUNT=${f#*=} many.s || exit; done; truncate -s 1M "
				"large; chmod 755 small killer large"));
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	limit = (struct rlimit){ 65536, before.rlim_max }; /* SIGXFSZ for who writes a larger image */
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	host_start(&f, NULL);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before) | kill(f.pid, SIGSTOP),
			 0); /* they wait, and go together */
	for (uint32_t i = 0; i < 3; i++)
		host_ask_index(&f, i + 1, host_open_file(files[i]));
	assert_int_equal(kill(f.pid, SIGCONT), 0);
	for (unsigned i = 0; i < 3; i++)
		answers[i] = *(const struct control_indexed *)host_receive(&f, f.collector, CONTROL_INDEXED);
	for (uint32_t i = 0; i < 3; i += 2)
		assert_string_equal(
			host_names(&f, answers[i].key, host_offset(files[i], "twice")).function,
			"twice");
	assert_int_equal(host_names_once(&f, answers[1].key, host_offset("killer", "twice")).frames, 0);
	host_stop(&f);
}

static int connect_fetcher(struct symbolizer_host *f)
{
	struct channel_head head = { .kind = CONTROL_FETCHER };
	int fds[2];

	assert_int_equal(channel_pair(fds), 0);
	host_send(f->server, &head, sizeof(head), fds[1]);
	(void)close(fds[1]);
	return fds[0];
}

static void refuse_fetch(int fetcher, uint32_t request)
{
	struct control_debug none = { .head = { .kind = CONTROL_DEBUG, .request = request },
				      .status = -ENOENT };

	host_send(fetcher, &none, sizeof(none), -1);
}

/* A file whose names take long (here: what it names lies on a server that does not answer) holds up
 * no other, nor does one that is too much for the little time that those get that pass it. */
static void test_long_build(void **state)
{
	static struct symbolizer_host f;
	struct control_debug_want want;
	struct control_indexed held, killer, passing;
	struct rlimit before, limit;
	int fetcher, stderr_fd = dup(STDERR_FILENO), log_fd = io_memfd("log", 0);
	char log[4096] = "";

	write_many();
	host_compile("held", "-g");
	host_compile("passing1", "-g");
	host_compile("passing2", "-g -DTWO");
	assert_true(fixture_run("strip -o held-bare held && printf 'nowhere\\0%%020d' 1 >link && "
				"objcopy --add-section .gnu_debugaltlink=link held held-long && "
				"gcc -shared -nostdlib -Wl,--build-id=none -o killer -Wa,--defsym,COUNT=4000 many.s"));
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
	limit = (struct rlimit){ 65536, before.rlim_max }; /* SIGXFSZ for who writes a larger image */
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
	assert_true(stderr_fd >= 0 && log_fd >= 0 && dup2(log_fd, STDERR_FILENO) >= 0);
	host_start(&f, NULL);
	assert_true(dup2(stderr_fd, STDERR_FILENO) >= 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
	fetcher = connect_fetcher(&f);
	held = host_index(&f, 1, "held-bare");
	host_answer_debug(&f, NULL);
	assert_int_equal(host_names_once(&f, held.key, host_offset("held", "twice")).frames,
			 0); /* worth fetching for */
	assert_true(host_index(&f, 2, "held-long").key == held.key);
	assert_int_equal(host_answer_debug(&f, NULL).kind, DEBUG_ALT);
	do
		want = *(const struct control_debug_want *)host_receive(&f, fetcher, CONTROL_DEBUG_WANT);
	while (want.kind != DEBUG_ALT);

	passing = host_index(&f, 3, "passing1");
	assert_string_equal(host_names(&f, passing.key, host_offset("passing1", "twice")).function,
			    "twice");
	killer = host_index(&f, 4, "killer");
	passing = host_index(&f, 5, "passing2");
	assert_string_equal(host_names(&f, passing.key, host_offset("passing2", "twice")).function,
			    "twice");

	refuse_fetch(fetcher, want.head.request);
	assert_string_equal(host_names(&f, held.key, host_offset("held", "twice")).function, "twice");
	assert_int_equal(host_names_once(&f, killer.key, host_offset("killer", "twice")).frames, 0);
	(void)close(fetcher);
	host_stop(&f);
	assert_true(pread(log_fd, log, sizeof(log) - 1, 0) >= 0);
	assert_non_null(strstr(log, "names nowhere, which is not there"));
	assert_int_equal(close(log_fd) | close(stderr_fd), 0);
}

static int set_up(void **state)
{
	return !fixture_run("chmod 755 .");
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_builder_killed),
		cmocka_unit_test(test_long_build),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
