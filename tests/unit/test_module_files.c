// SPDX-License-Identifier: Apache-2.0
/* Opening what processes have mapped: nothing outside their own root, nothing that is no file, and nothing in this process
 * where a file system may never answer. */
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
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/base/io.h"
#include "agent/collect/module_files.h"
#include "agent/collect/slow_files.h"

#define RACE_TURNS 20000

static char folder[] = "/tmp/profd-files-XXXXXX";

static void put_file(const char *name, const char *text)
{
	cleanup_fclose FILE *file = fopen(name, "we");

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
}

/* Below a root of its own: the file, a link out of it by dots, an absolute one, a magic one, a FIFO, in turn. */
static _Noreturn void swap_files(void)
{
	static const char *const links[] = { "../../../../../../outside", "/outside", "/proc/self/root/outside",
					     "/proc/1/root/etc/hostname" };

	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (chroot("root") < 0 || chdir("/lib") < 0)
		_exit(1);
	for (unsigned i = 0;; i++) {
		(void)unlink("next");
		if (i % 6 == 5)
			(void)mkfifo("next", 0600);
		else if (i % 6 == 4)
			(void)!link("kept", "next");
		else
			(void)!symlink(links[i % 6], "next");
		(void)rename("next", "x.debug");
	}
}

/* What is opened is the file inside, or nothing. */
static void test_race(void **state)
{
	unsigned opened = 0;
	pid_t pid;

	if (geteuid()) {
		print_message("skipped: only root can give a process another root\n");
		skip();
	}
	assert_int_equal(mkdir("root", 0755) | mkdir("root/lib", 0755), 0);
	put_file("outside", "no");
	put_file("root/lib/kept", "yes");
	put_file("root/lib/x.debug", "yes");
	pid = fork();
	if (!pid)
		swap_files();
	for (unsigned i = 0; i < RACE_TURNS || !opened; i++) {
		const struct debug_wish wish = { .kind = DEBUG_FILE, .name = "x.debug", .path = "/lib/x", .tgid = (uint32_t)pid };
		cleanup_close int fd = module_files_open_debug(&wish);
		char text[8] = "";

		if (fd < 0)
			continue;
		opened++;
		assert_true(read(fd, text, sizeof(text) - 1) >= 0);
		assert_string_equal(text, "yes");
	}
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void test_mounts(void **state)
{
	static const char fuse[] = "36 35 0:52 / /mnt/a\\040-\\040b rw,noatime shared:1 - fuse.sshfs x:/ rw,user_id=0\n";
	char type[8] = "";

	assert_false(slow_files_parse_mount(fuse, 0, 53, type, sizeof(type)));
	assert_false(slow_files_parse_mount(fuse, 1, 52, type, sizeof(type)));
	assert_true(slow_files_parse_mount(fuse, 0, 52, type, sizeof(type)));
	assert_string_equal(type, "fuse.ss");
	assert_true(slow_files_parse_mount("1 0 0:5 / / rw - nfs4", 0, 5, type, sizeof(type)));
	assert_string_equal(type, "nfs4");
	assert_false(slow_files_parse_mount("1 0 0:5 / / rw", 0, 5, type, sizeof(type)));
	assert_false(slow_files_parse_mount("", 0, 0, type, sizeof(type)));
}

static struct module *module_of(struct module_table *modules, const char *path, uint64_t inode, uint32_t dev_minor)
{
	struct module_file file = { .inode = inode, .dev_minor = dev_minor };

	return module_table_file(modules, &file, path);
}

static uint32_t await(struct slow_files *files, struct module_table *modules, int *ret)
{
	uint32_t id = 0;

	for (int i = 0; i < 6000 && !(id = slow_files_take(files, modules, clock_monotonic_ns(), ret)); i++)
		(void)usleep(10000);
	return id;
}

/* Of a device that no mount names; each file comes as a copy, or why it does not. */
static void test_copies(void **state)
{
	cleanup(module_table) struct module_table *modules = module_table_create();
	struct slow_files *files = slow_files_create();
	char path[128], text[16] = "";
	const struct module *good, *gone;
	struct stat st;
	uint32_t id;
	int fd;

	put_file("slow", "a program");
	assert_int_equal(stat("slow", &st), 0);
	(void)snprintf(path, sizeof(path), "%s/slow", folder);
	good = module_of(modules, path, st.st_ino, 4000);
	gone = module_of(modules, "/nowhere", 1, 4000);
	assert_true(slow_files_is_slow(good));
	assert_int_equal(slow_files_ask(files, gone, 1), 0);
	assert_int_equal(slow_files_ask(files, good, 1), 0);
	id = await(files, modules, &fd);
	assert_int_equal(id, gone->id);
	assert_int_equal(fd, -ENOENT);
	assert_int_equal(await(files, modules, &fd), good->id);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, text, sizeof(text) - 1, 0), 9);
	assert_string_equal(text, "a program");
	(void)close(fd);
	slow_files_destroy(files);
}

static int set_up(void **state)
{
	return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int clean_up(void **state)
{
	static const char *const names[] = { "root/lib/x.debug", "root/lib/next", "root/lib/kept", "root/lib", "root",
					     "outside", "slow" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		(void)remove(names[i]);
	return rmdir(folder);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_race),
		cmocka_unit_test(test_mounts),
		cmocka_unit_test(test_copies),
	};

	return cmocka_run_group_tests(tests, set_up, clean_up);
}
