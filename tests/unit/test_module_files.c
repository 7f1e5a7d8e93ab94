// SPDX-License-Identifier: Apache-2.0
/* Opening what processes have mapped: nothing outside their own root, nothing that is no file, and
 * nothing in this process where a file system may never answer. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <linux/sched.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/base/clock.h"
#include "agent/base/io.h"
#include "agent/collect/modules/module_files.h"
#include "agent/collect/proc/mounts.h"
#include "agent/collect/modules/slow_files.h"

#define RACE_TURNS 20000

static char folder[] = "/tmp/profd-files-XXXXXX";

static void put_file(const char *name, const char *text)
{
	cleanup_fclose FILE *file = fopen(name, "we");

	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
}

/* Below a root of its own: the file, a link out of it by dots, an absolute one, a magic one, a
 * FIFO, in turn. */
static _Noreturn void swap_files(void)
{
	static const char *const links[] = { "../../../../../../outside", "/outside",
					     "/proc/self/root/outside",
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

/* An open while the paths are being swapped gives the file inside of the root, or nothing. */
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
		const struct debug_request wanted = { .kind = DEBUG_FILE,
						 .name = "x.debug",
						 .path = "/lib/x",
						 .tgid = (uint32_t)pid };
		cleanup_close int fd = module_files_open_debug(&wanted, false);
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

/* Whether @path was opened while @wanted was looked for, as the kernel tells a watch. */
static bool is_opened(const char *path, const struct debug_request *wanted)
{
	cleanup_close int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	struct inotify_event event;

	assert_true(watch >= 0 && inotify_add_watch(watch, path, IN_OPEN) >= 0);
	assert_true(module_files_open_debug(wanted, true) < 0);
	return read(watch, &event, sizeof(event)) > 0;
}

/* An unprivileged user's program names a FIFO, or a device, as its supplementary debug file: the
 * daemon, which is root, does not open it. */
static void test_no_device(void **state)
{
	struct debug_request wanted = { .kind = DEBUG_ALT, .path = "/bin/x", .tgid = (uint32_t)getpid() };
	char fifo[128];

	(void)snprintf(fifo, sizeof(fifo), "%s/fifo", folder);
	assert_int_equal(mkfifo(fifo, 0644), 0);
	wanted.name = fifo;
	assert_false(is_opened(fifo, &wanted));
	wanted.name = "/dev/zero";
	assert_false(is_opened("/dev/zero", &wanted));
}

/* A process of another user and root directory; "" = the host's. */
static pid_t start_stranger(const char *root)
{
	int fds[2];
	char sign;
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (!pid) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		if ((*root && chroot(root) < 0) || setresuid(65534, 65534, 65534) < 0)
			_exit(1);
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		(void)!write(fds[1], "x", 1);
		(void)pause();
		_exit(0);
	}
	(void)close(fds[1]);
	assert_int_equal(read(fds[0], &sign, 1), 1);
	(void)close(fds[0]);
	return pid;
}

/* The daemon reads nothing in a program's name that the program could not: no file that only its
 * owner may read, and nothing of the host that a program in another root names. */
static void test_no_errands(void **state)
{
	struct debug_request wanted = { .kind = DEBUG_ALT, .path = "/bin/x" };
	char secret[192], outside[128];
	pid_t pid;
	int fd;

	if (geteuid()) {
		print_message("skipped: only root can read in others' names\n");
		skip();
	}
	(void)snprintf(secret, sizeof(secret), "%s/secret", folder);
	put_file(secret, "only for its owner");
	assert_int_equal(chmod(secret, 0600), 0);
	pid = start_stranger("");
	wanted.tgid = (uint32_t)pid;
	wanted.name = secret;
	assert_true(module_files_open_debug(&wanted, false) < 0);
	assert_int_equal(chown(secret, 65534, 65534), 0);
	fd = module_files_open_debug(&wanted, false);
	assert_true(fd >= 0);
	(void)close(fd);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);

	(void)snprintf(outside, sizeof(outside), "%s/outside", folder);
	put_file(outside, "of the host");
	pid = start_stranger("root");
	wanted.tgid = (uint32_t)pid;
	wanted.name = outside;
	assert_true(module_files_open_debug(&wanted, false) < 0);
	(void)snprintf(secret, sizeof(secret), "/usr/lib/debug/../../..%s", outside);
	wanted.name = secret;
	assert_true(module_files_open_debug(&wanted, false) < 0);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void test_mounts(void **state)
{
	static const char fuse[] =
		"36 35 0:52 / /mnt/a\\040-\\040b rw,noatime shared:1 - fuse.sshfs x:/ rw,user_id=0\n";
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

/* A process with mounts of its own and an overlay among them; a descriptor that ends it. */
static pid_t start_overlaid(int unshared, int *ret_fd)
{
	int fds[2];
	char sign = 0;
	pid_t pid;

	assert_int_equal(pipe(fds), 0);
	pid = fork();
	if (!pid) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
		sign = unshare(unshared) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
		       mount("none", "over", "overlay", 0, "lowerdir=below:below2") == 0;
		(void)!write(fds[1], &sign, 1);
		(void)pause();
	}
	(void)close(fds[1]);
	assert_int_equal(read(fds[0], &sign, 1), 1);
	(void)close(fds[0]);
	*ret_fd = -1;
	if (sign) {
		char path[128];

		(void)snprintf(path, sizeof(path), "/proc/%d/root%s/over/file", pid, folder);
		*ret_fd = open(path, O_PATH | O_CLOEXEC);
		assert_true(*ret_fd >= 0);
	}
	return pid;
}

/* An overlay counts as local unless it was mounted in a user namespace: its owner may have put any
 * file system below. */
static void test_overlays(void **state)
{
	static const struct {
		int unshared;
		bool is_local;
	} cases[] = { { CLONE_NEWNS, true }, { CLONE_NEWUSER | CLONE_NEWNS, false } };
	bool any = false;

	assert_int_equal(mkdir("below", 0755) | mkdir("below2", 0755) | mkdir("over", 0755), 0);
	put_file("below/file", "text");
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		cleanup_close int fd = -1;
		const pid_t pid = start_overlaid(cases[i].unshared, &fd);
		struct stat st;

		if (fd >= 0) {
			assert_int_equal(fstat(fd, &st), 0);
			assert_int_equal(mounts_file_is_local((uint32_t)pid, fd), cases[i].is_local);
			assert_int_equal(mounts_device_is_local((uint32_t)pid, major(st.st_dev), minor(st.st_dev)),
					 cases[i].is_local);
			any = true;
		}
		assert_int_equal(kill(pid, SIGKILL), 0);
		assert_int_equal(waitpid(pid, NULL, 0), pid);
	}
	if (!any) {
		print_message("skipped: no overlay can be mounted here\n");
		skip();
	}
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

/* /proc is no local file system: files of it are left to a child, and come as copies; local ones as
 * they are. */
static void test_slow_files(void **state)
{
	cleanup(module_table) struct module_table *modules = module_table_create();
	struct slow_files *files = slow_files_create();
	struct module *far = module_of(modules, "/proc/version"),
		      *gone = module_of(modules, "/proc/none"), *near;
	struct slow_file file;
	char path[128];

	put_file("slow", "a program");
	(void)snprintf(path, sizeof(path), "%s/slow", folder);
	near = module_of(modules, path);
	assert_false(mounts_device_is_local((uint32_t)getpid(), 0, far->file.dev_minor));
	assert_int_equal(module_files_open(far, false, NULL), -EXDEV);
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
	const struct control_debug_want want = { .head = { .request = 7 },
						 .kind = DEBUG_FILE,
						 .name = "ostype" };
	struct module *module = module_of(modules, "/proc/sys/kernel/none");
	struct debug_request wanted;
	struct slow_file file;

	module->origin.tgid = (uint32_t)getpid();
	wanted = module_files_debug_request(&want, module);

	assert_int_equal(module_files_open_debug(&wanted, false), -EXDEV);
	assert_int_equal(slow_files_ask_debug(files, &want, module, 1), 0);
	file = await(files, modules);
	assert_true(file.is_debug && file.is_copy && file.request == 7);
	take_text(&file, "Linux\n");
	module->slow = true; /* nothing is looked for beside it */
	assert_int_equal(slow_files_ask_debug(files, &want, module, 1), 0);
	assert_int_equal(await(files, modules).fd, -ENOENT);
	slow_files_destroy(files);
}

/* A FUSE at over/ of which this process is the server; its descriptor, -1 = not possible here. */
static int serve_fuse(void)
{
	const struct {
		struct fuse_out_header head;
		struct fuse_init_out init;
	} answer = { .head = { .len = sizeof(answer), .unique = 0 },
		     .init = { .major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION,
			       .flags = FUSE_PARALLEL_DIROPS, .max_write = 4096 } };
	char options[96], request[FUSE_MIN_READ_BUFFER];
	cleanup_close int fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	struct fuse_out_header head = answer.head;
	struct iovec parts[] = { { &head, sizeof(head) }, { (void *)&answer.init, sizeof(answer.init) } };

	(void)snprintf(options, sizeof(options), "fd=%d,rootmode=40755,user_id=0,group_id=0", fd);
	if (fd < 0 || mount("test", "over", "fuse", 0, options) < 0)
		return -1;
	assert_true(read(fd, request, sizeof(request)) > 0);
	head.unique = ((const struct fuse_in_header *)(const void *)request)->unique;
	assert_int_equal(writev(fd, parts, 2), sizeof(answer));
	return take_fd(&fd);
}

/* Takes what a child asks, not that it was killed meanwhile. */
static void take_lookup(int fd)
{
	char request[FUSE_MIN_READ_BUFFER];

	do
		assert_true(read(fd, request, sizeof(request)) > 0);
	while (((const struct fuse_in_header *)(const void *)request)->opcode != FUSE_LOOKUP);
}

/* Children whose requests have been taken and are not answered do not end, however often they are
 * killed: there are no more of them than there may be, each device has one, and they count until
 * they end. */
static void test_hung_children(void **state)
{
	cleanup(module_table) struct module_table *modules = module_table_create();
	struct slow_files *files = slow_files_create();
	cleanup_close int fd = serve_fuse();
	const uint64_t late_ns = (SLOW_FILES_WAIT_S + 1) * NS_PER_S;
	uint64_t now_ns = 1;
	char path[128];
	struct slow_file file;

	if (fd < 0) {
		print_message("skipped: no FUSE can be mounted here\n");
		skip();
	}
	for (unsigned i = 0; i <= SLOW_FILES_HUNG_MAX; i++, now_ns += late_ns) {
		struct module_file identity = { .inode = 1, .dev_minor = 1000 + i };
		struct module *module;

		(void)snprintf(path, sizeof(path), "%s/over/%u", folder, i);
		module = module_table_file(modules, &identity, path);
		module->slow = true;
		if (i == SLOW_FILES_HUNG_MAX) {
			assert_int_equal(slow_files_ask(files, module, now_ns), -ETIMEDOUT);
			break;
		}
		assert_int_equal(slow_files_ask(files, module, now_ns), 0);
		assert_false(slow_files_take(files, modules, now_ns, &file));
		take_lookup(fd);
		assert_true(slow_files_take(files, modules, now_ns + late_ns, &file));
		assert_int_equal(file.fd, -ETIMEDOUT);
		assert_int_equal(slow_files_hung(files), i + 1);
		assert_int_equal(slow_files_ask(files, module, now_ns + 1000 * late_ns), -ETIMEDOUT);
	}
	assert_int_equal(umount2("over", MNT_DETACH), 0);
	(void)close(take_fd(&fd)); /* who waits gets an error, at last */
	for (int i = 0; i < 6000 && slow_files_hung(files); i++) {
		(void)usleep(10000);
		assert_false(slow_files_take(files, modules, now_ns, &file));
	}
	assert_int_equal(slow_files_hung(files), 0);
	slow_files_destroy(files);
}

/* In a namespace of processes of its own: a child that has answered and ended, and a process that
 * has its number by then. The signal that ended that. */
static int signal_of_successor(const char *path)
{
	struct module_table *modules = module_table_create();
	struct slow_files *files = slow_files_create();
	pid_t number = 2; /* the first child */
	struct clone_args again = { .exit_signal = SIGCHLD,
				    .set_tid = (uintptr_t)&number,
				    .set_tid_size = 1 };
	struct slow_file file;
	int status;

	if (slow_files_ask(files, module_of(modules, path), 1) < 0 ||
	    slow_files_take(files, modules, 1, &file))
		_exit(1);
	while (kill(number, 0) == 0)
		(void)usleep(1000);
	(void)signal(SIGCHLD, SIG_DFL);
	switch (syscall(SYS_clone3, &again, sizeof(again))) {
	case -1:
		_exit(2);
	case 0:
		for (;;)
			(void)pause();
	}
	if (!slow_files_take(files, modules, 1, &file) || file.fd < 0)
		_exit(1);
	(void)kill(number, SIGUSR1);
	return waitpid(number, &status, 0) == number && WIFSIGNALED(status) ? WTERMSIG(status) : -1;
}

static void test_a_number_that_is_used_again(void **state)
{
	char path[128];
	pid_t pid;
	int status;

	put_file("slow", "a program");
	(void)snprintf(path, sizeof(path), "%s/slow", folder);
	(void)signal(SIGCHLD, SIG_DFL); /* other tests ignore it */
	pid = fork();
	if (!pid) {
		if (unshare(CLONE_NEWUSER | CLONE_NEWPID) < 0)
			_exit(2);
		pid = fork();
		if (!pid)
			_exit(signal_of_successor(path) == SIGUSR1 ? 0 : 1);
		_exit(waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 2) {
		print_message("skipped: no namespace of processes can be had here\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* A program is replaced by exec, and the new one maps another file at the same addresses. */
static void test_mapped_by_another(void **state)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE);
	char path[128], text[8] = "";
	struct module module = { .kind = FEED_MODULE_ELF,
				 .path = path,
				 .origin.tgid = (uint32_t)getpid() };
	cleanup_close int another = -1, fd = -1;
	struct stat st, of_another;
	void *mapped;

	put_file("its_own", "its own");
	put_file("another", "another");
	(void)snprintf(path, sizeof(path), "%s/its_own", folder);
	assert_int_equal(stat(path, &st), 0);
	module.file = (struct module_file){ st.st_ino, 0, major(st.st_dev), minor(st.st_dev) };
	module_opened(&module, &st);
	another = open("another", O_RDONLY | O_CLOEXEC);
	assert_int_equal(fstat(another, &of_another), 0);
	mapped = mmap(NULL, page, PROT_READ, MAP_PRIVATE, another, 0);
	assert_true(mapped != MAP_FAILED);
	module.origin.start_va = (uintptr_t)mapped;
	module.origin.end_va = (uintptr_t)mapped + page;
	fd = module_files_open(&module, false, NULL);
	assert_true(fd >= 0);
	assert_int_equal(read(fd, text, sizeof(text) - 1), 7);
	assert_string_equal(text, "its own");
	assert_true(module_may_be_of(&module, &st));
	assert_false(module_may_be_of(&module, &of_another));
	assert_int_equal(munmap(mapped, page), 0);
}

static int set_up(void **state)
{
	return mkdtemp(folder) && chdir(folder) == 0 ? 0 : -1;
}

static int clean_up(void **state)
{
	static const char *const names[] = { "root/lib/x.debug",
					     "root/lib/next",
					     "root/lib/kept",
					     "root/lib",
					     "root",
					     "outside",
					     "secret",
					     "fifo",
					     "slow",
					     "its_own",
					     "another",
					     "below/file",
					     "below",
					     "below2",
					     "over" };

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		(void)remove(names[i]);
	return rmdir(folder);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_race),
		cmocka_unit_test(test_no_device),
		cmocka_unit_test(test_no_errands),
		cmocka_unit_test(test_mounts),
		cmocka_unit_test(test_overlays),
		cmocka_unit_test(test_slow_files),
		cmocka_unit_test(test_slow_debug_files),
		cmocka_unit_test(test_hung_children),
		cmocka_unit_test(test_a_number_that_is_used_again),
		cmocka_unit_test(test_mapped_by_another),
	};

	return cmocka_run_group_tests(tests, set_up, clean_up);
}
