// SPDX-License-Identifier: Apache-2.0
/* Each attempt runs in a child that has entered the sandbox and tells by its exit status what
 * happened. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/rights.h"
#include "symbolize/sandbox.h"
#include "tests/support/elf_fixture.h"

#define WORKED 100
#define FAILED 101 /* to enter */

static int folder_fd = -1;
static int silent_pipe[2]; /* nobody writes */

static int attempt(int (*what)(void), unsigned *ret_parts)
{
	struct sandbox_options options = { .folder_fd = folder_fd,
					   .memory_bytes = 512 << 20,
					   .files = 64 };
	int pipe_fds[2];
	int status;
	pid_t pid;

	assert_int_equal(pipe(pipe_fds), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		unsigned parts = 0;
		int rc;

		if (sandbox_enter(&options, &parts) < 0 ||
		    write(pipe_fds[1], &parts, sizeof(parts)) != sizeof(parts))
			_exit(FAILED);
		errno = 0;
		rc = what();
		_exit(rc >= 0 ? WORKED : errno);
	}
	(void)close(pipe_fds[1]);
	if (ret_parts)
		assert_int_equal(read(pipe_fds[0], ret_parts, sizeof(*ret_parts)), sizeof(*ret_parts));
	(void)close(pipe_fds[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFSIGNALED(status))
		return -WTERMSIG(status);
	assert_int_not_equal(WEXITSTATUS(status), FAILED);
	return WEXITSTATUS(status);
}

static int open_passwd(void)
{
	return open("/etc/passwd", O_RDONLY);
}

static int open_by_parent_folder(void)
{
	return openat(folder_fd, "../../etc/passwd", O_RDONLY);
}

static int write_tmp(void)
{
	return open("/tmp/profd-test-sandbox", O_WRONLY | O_CREAT, 0600);
}

static int write_in_folder(void)
{
	int fd = openat(folder_fd, "ours", O_WRONLY | O_CREAT | O_EXCL, 0600);

	if (fd < 0 || renameat(folder_fd, "ours", folder_fd, "mine") < 0)
		return -1;
	fd = openat(folder_fd, "mine", O_RDONLY);
	return fd < 0 ? -1 : unlinkat(folder_fd, "mine", 0);
}

static int make_folder(void)
{
	return mkdirat(folder_fd, "sub", 0700);
}

static int run_program(void)
{
	char *argv[] = { (char *)(uintptr_t) "true", NULL };

	return execv("/bin/true", argv);
}

static int make_socket(void)
{
	return socket(AF_INET, SOCK_STREAM, 0);
}

static int make_pair(void)
{
	int fds[2];

	return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds);
}

static int make_stream_pair(void)
{
	int fds[2];

	return socketpair(AF_UNIX, SOCK_STREAM, 0, fds);
}

static int limit_parent(void)
{
	struct rlimit limit;

	return prlimit(getppid(), RLIMIT_NOFILE, NULL, &limit);
}

static int limit_itself(void)
{
	struct rlimit limit;

	return prlimit(0, RLIMIT_NOFILE, NULL, &limit);
}

static int own_signals(void)
{
	return fcntl(silent_pipe[0], F_SETOWN, getppid());
}

static int trace_parent(void)
{
	return (int)ptrace(PTRACE_ATTACH, getppid(), NULL, NULL);
}

static int kill_parent(void)
{
	return kill(getppid(), 0);
}

static int fork_plainly(void)
{
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	return pid;
}

static int new_user_namespace(void)
{
	return unshare(CLONE_NEWUSER);
}

static int map_code(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED
		       ? -1
		       : 0;
}

static int map_much(void)
{
	return mmap(NULL, 1 << 30, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED ? -1 : 0;
}

static int use_memory(void)
{
	char *block = malloc(1 << 20);

	if (!block)
		return -1;
	memset(block, 1, 1 << 20);
	free(block);
	return memfd_create("x", MFD_CLOEXEC);
}

static int builder_forks(void)
{
	struct sandbox_limits limits = { .cpu_s = 10, .wall_s = 10 };

	return sandbox_enter_builder(&limits) < 0 ? 0 : fork_plainly();
}

static int builder_opens(void)
{
	struct sandbox_limits limits = { .cpu_s = 10, .wall_s = 10 };

	return sandbox_enter_builder(&limits) < 0 ? 0 : openat(folder_fd, ".", O_RDONLY);
}

static int builder_blocks(void)
{
	struct sandbox_limits limits = { .cpu_s = 10, .wall_s = 1 };
	char byte;

	return sandbox_enter_builder(&limits) < 0 ? 0 : (int)read(silent_pipe[0], &byte, 1);
}

static void test_attempts(void **state)
{
	static const struct {
		const char *name;
		int (*what)(void);
		int expect; /* WORKED, errno */
		int or_expect;
	} attempts[] = {
		{ "open /etc/passwd", open_passwd, EACCES, ENOENT },
		{ "open ../../etc/passwd", open_by_parent_folder, EACCES, ENOENT },
		{ "create in /tmp", write_tmp, EACCES, ENOENT },
		{ "create, rename, remove in the folder", write_in_folder, WORKED, WORKED },
		{ "mkdir in the folder", make_folder, EPERM, EACCES },
		{ "execve", run_program, EPERM, EPERM },
		{ "socket", make_socket, EPERM, EPERM },
		{ "socketpair of its own", make_pair, WORKED, WORKED },
		{ "another socketpair", make_stream_pair, EPERM, EPERM },
		{ "prlimit of its parent", limit_parent, EPERM, EPERM },
		{ "prlimit of itself", limit_itself, WORKED, WORKED },
		{ "fcntl that sends signals", own_signals, EPERM, EPERM },
		{ "ptrace", trace_parent, EPERM, EPERM },
		{ "kill", kill_parent, EPERM, EPERM },
		{ "fork", fork_plainly, WORKED, WORKED },
		{ "unshare", new_user_namespace, EPERM, EPERM },
		{ "mmap of code", map_code, EPERM, EPERM },
		{ "malloc, memfd", use_memory, WORKED, WORKED },
		{ "fork of a builder", builder_forks, EPERM, EPERM },
		{ "open of a builder", builder_opens, EPERM, EPERM },
	};
	unsigned parts = 0;

	for (size_t i = 0; i < ARRAY_SIZE(attempts); i++) {
		int found = attempt(attempts[i].what, &parts);
		bool files = parts & (SANDBOX_PART_LANDLOCK | SANDBOX_PART_ROOT);

		if (!files && i < 3) {
			print_message("skipped: %s: neither Landlock nor chroot here\n", attempts[i].name);
			continue;
		}
		if (found != attempts[i].expect && found != attempts[i].or_expect)
			fail_msg("%s: %d (%s)", attempts[i].name, found,
				 found > 0 && found < WORKED ? strerror(found) : "");
	}
	assert_true(parts & SANDBOX_PART_SECCOMP);
	assert_true(parts & SANDBOX_PART_NO_CAPS);
	if (!geteuid())
		assert_int_equal(parts & (SANDBOX_PART_USER | SANDBOX_PART_ROOT),
				 SANDBOX_PART_USER | SANDBOX_PART_ROOT);
}

static int connect_anywhere(void)
{
	const struct sockaddr_un to = { .sun_family = AF_UNIX, .sun_path = "/run/profd/profd.sock" };

	return connect(silent_pipe[0], (const struct sockaddr *)&to, sizeof(to));
}

static int open_for_writing(void)
{
	return open("/dev/null", O_WRONLY);
}

static int open_for_reading(void)
{
	return open("/proc/self/maps", O_RDONLY);
}

static int write_into_parent(void)
{
	char byte = 0;
	struct iovec part = { &byte, 1 };

	return (int)process_vm_writev(getppid(), &part, 1, &part, 1, 0);
}

static int read_parent(void)
{
	char byte = 0;
	struct iovec part = { &byte, 1 };

	return (int)process_vm_readv(getppid(), &part, 1, &part, 1, 0);
}

/* The reader: it reads others, and nothing leads out of it. */
static void test_reader(void **state)
{
	static const struct {
		const char *name;
		int (*what)(void);
		int expect;
	} attempts[] = {
		{ "socket", make_socket, EPERM },
		{ "connect", connect_anywhere, EPERM },
		{ "execve", run_program, EPERM },
		{ "ptrace", trace_parent, EPERM },
		{ "process_vm_writev", write_into_parent, EPERM },
		{ "open for writing", open_for_writing, EPERM },
		{ "unshare", new_user_namespace, EPERM },
		{ "mmap of code", map_code, EPERM },
		{ "open for reading", open_for_reading, WORKED },
		{ "process_vm_readv", read_parent, WORKED },
		{ "fork", fork_plainly, WORKED },
	};

	for (size_t i = 0; i < ARRAY_SIZE(attempts); i++) {
		pid_t pid = fork();
		int status;

		if (!pid) {
			if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || sandbox_enter_reader() < 0)
				_exit(FAILED);
			errno = 0;
			_exit(attempts[i].what() >= 0 ? WORKED : errno);
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (!WIFEXITED(status) || WEXITSTATUS(status) != attempts[i].expect)
			fail_msg("%s: status %#x, not %d", attempts[i].name, status, attempts[i].expect);
	}
}

/* A kernel without Landlock: one line that tells what is lost, and how to have it. */
static void test_no_landlock(void **state)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_landlock_create_ruleset, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { ARRAY_SIZE(code), code };
	int status;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0) {
		char *text = NULL;
		size_t len;
		FILE *out = open_memstream(&text, &len);
		const char *line;

		if (!out || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
		    syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) < 0)
			_exit(2);
		rights_print(out);
		(void)fclose(out);
		line = strstr(text, "\nlandlock ");
		_exit(!line || sandbox_has_landlock() || !strstr(line, " no ") ||
		      !strstr(line, "CONFIG_SECURITY_LANDLOCK") || !strstr(line, "; instead: "));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_memory_limit(void **state)
{
#if defined(__SANITIZE_ADDRESS__)
	print_message("skipped: no memory limit under the address sanitizer\n");
	skip();
#endif
	assert_int_equal(attempt(map_much, NULL), ENOMEM);
}

static void test_blocked_builder(void **state)
{
	time_t start = time(NULL);

	assert_int_equal(attempt(builder_blocks, NULL), -SIGALRM);
	assert_true(time(NULL) - start < 10);
}

static int set_up(void **state)
{
	/* A folder that the sandbox's user can reach: the fixture's own is 0700. */
	assert_true(fixture_run("chmod 755 . && mkdir folder"));
	assert_int_equal(chdir(fixture_dir()), 0);
	assert_int_equal(pipe(silent_pipe), 0);
	folder_fd = open("folder", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return folder_fd < 0;
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_attempts),
		cmocka_unit_test(test_reader),
		cmocka_unit_test(test_no_landlock),
		cmocka_unit_test(test_memory_limit),
		cmocka_unit_test(test_blocked_builder),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
