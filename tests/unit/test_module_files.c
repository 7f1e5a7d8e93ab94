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
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/base/io.h"
#include "agent/collect/module_files.h"
#include "agent/collect/mounts.h"
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
		cleanup_close int fd = module_files_open_debug(&wish, false);
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
	struct mount mount;

	assert_true(mounts_parse(fuse, &mount));
	assert_string_equal(mount.type, "fuse.sshfs");
	assert_true(mount.id == 36 && mount.dev_major == 0 && mount.dev_minor == 52);
	assert_true(mounts_parse("1 0 0:5 / / rw - nfs4", &mount));
	assert_string_equal(mount.type, "nfs4");
	assert_true(mounts_parse("1 0 8:5 / / rw - of-a-name-too-long-to-keep x", &mount));
	assert_string_equal(mount.type, "of-a-name-too-l");
	assert_false(mounts_parse("1 0 0:5 / / rw", &mount));
	assert_false(mounts_parse("", &mount));
}

static struct module *module_of(struct module_table *modules, const char *path)
{
	struct module_file file = { 0 };
	struct stat st = { 0 };

	(void)!stat(path, &st);
	file.inode = st.st_ino;
	file.dev_major = major(st.st_dev);
	file.dev_minor = minor(st.st_dev);
	return module_table_file(modules, &file, path);
}

static struct slow_file await(struct slow_files *files, struct module_table *modules)
{
	struct slow_file file = { .fd = -EBUSY };

	for (int i = 0; i < 6000 && !slow_files_take(files, modules, clock_monotonic_ns(), &file); i++)
		(void)usleep(10000);
	return file;
}

static void take_text(const struct slow_file *file, const char *text)
{
	char got[32] = "";

	assert_true(file->fd >= 0);
	assert_true(pread(file->fd, got, sizeof(got) - 1, 0) >= (ssize_t)strlen(text));
	assert_memory_equal(got, text, strlen(text));
	(void)close(file->fd);
}

/* /proc is no local file system: files of it are left to a child, and come as copies; local ones as they are. */
static void test_slow_files(void **state)
{
	cleanup(module_table) struct module_table *modules = module_table_create();
	struct slow_files *files = slow_files_create();
	struct module *far = module_of(modules, "/proc/version"), *gone = module_of(modules, "/proc/none"), *near;
	struct slow_file file;
	char path[128];

	put_file("slow", "a program");
	(void)snprintf(path, sizeof(path), "%s/slow", folder);
	near = module_of(modules, path);
	assert_false(mounts_device_is_local((uint32_t)getpid(), 0, far->file.dev_minor));
	assert_int_equal(module_files_open(far, false), -EXDEV);
	assert_int_equal(slow_files_ask(files, gone, 1), 0);
	assert_int_equal(slow_files_ask(files, far, 1), 0);
	assert_int_equal(slow_files_ask(files, near, 1), 0);
	file = await(files, modules);
	assert_int_equal(file.module, gone->id);
	assert_int_equal(file.fd, -ENOENT);
	file = await(files, modules);
	assert_true(file.module == far->id && file.is_copy && !file.is_debug);
	take_text(&file, "Linux version");
	file = await(files, modules);
	assert_true(file.module == near->id && !file.is_copy);
	take_text(&file, "a program");
	slow_files_destroy(files);
}

/* The same for what lies beside a file, or where that leads to. */
static void test_slow_debug_files(void **state)
{
	cleanup(module_table) struct module_table *modules = module_table_create();
	struct slow_files *files = slow_files_create();
	const struct control_debug_want want = { .head = { .request = 7 }, .kind = DEBUG_FILE, .name = "ostype" };
	struct module *module = module_of(modules, "/proc/sys/kernel/none");
	const struct debug_wish wish = module_files_wish(&want, module);
	struct slow_file file;

	assert_int_equal(module_files_open_debug(&wish, false), -EXDEV);
	assert_int_equal(slow_files_ask_debug(files, &want, module, 1), 0);
	file = await(files, modules);
	assert_true(file.is_debug && file.is_copy && file.request == 7);
	take_text(&file, "Linux\n");
	module->slow = true; /* nothing is looked for beside it */
	assert_int_equal(slow_files_ask_debug(files, &want, module, 1), 0);
	assert_int_equal(await(files, modules).fd, -ENOENT);
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
		cmocka_unit_test(test_slow_files),
		cmocka_unit_test(test_slow_debug_files),
	};

	return cmocka_run_group_tests(tests, set_up, clean_up);
}
