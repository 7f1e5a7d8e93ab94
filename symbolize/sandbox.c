// SPDX-License-Identifier: Apache-2.0
#include "symbolize/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include "agent/base/privileges.h"

#if defined(__x86_64__)
#define FILTER_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define FILTER_ARCH AUDIT_ARCH_AARCH64
#else
#error "no system-call numbers for this architecture"
#endif

/* The address sanitizer's shadow is larger than any limit. */
#if defined(__SANITIZE_ADDRESS__)
#define LIMIT_MEMORY false
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LIMIT_MEMORY false
#endif
#endif
#ifndef LIMIT_MEMORY
#define LIMIT_MEMORY true
#endif

/* Rights that the 6.1 headers do not know yet; handled only where the kernel says so. */
#define ACCESS_TRUNCATE	 (1ull << 14) /* ABI 3, Linux 6.2 */
#define ACCESS_IOCTL_DEV (1ull << 15) /* ABI 5, Linux 6.10 */
#define ACCESS_ABI_1	 ((1ull << 13) - 1)
#define ACCESS_REFER	 (1ull << 13) /* ABI 2, Linux 5.19 */

#define FILTER_MAX 256
#define SOCKET_TYPE_MASK 15u /* net.h: SOCK_TYPE_MASK; the rest is SOCK_CLOEXEC and SOCK_NONBLOCK */

/* The flags that glibc's fork() passes; no flag that shares or unshares anything. */
#define FORK_FLAGS (CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD)

/* ---- user, limits ------------------------------------------------------------------ */

static void limit(int resource, uint64_t value)
{
	struct rlimit now;

	if (getrlimit((__rlimit_resource_t)resource, &now) < 0)
		return;
	if (value > now.rlim_max)
		value = now.rlim_max;
	now.rlim_cur = now.rlim_max = value;
	(void)setrlimit((__rlimit_resource_t)resource, &now);
}

/* While still root: the folder belongs to who will write it, and becomes all there is. A file
 * system that refuses leaves us without a cache, a container without CAP_SYS_CHROOT or CAP_SETUID
 * with the other parts. */
static void leave_root(const struct sandbox_options *o, unsigned *parts)
{
	if (o->folder_fd >= 0 && !fchown(o->folder_fd, PRIVILEGES_NOBODY, PRIVILEGES_NOBODY))
		(void)fchmod(o->folder_fd, 0700);
	if (o->folder_fd >= 0 && !fchdir(o->folder_fd) && !chroot("."))
		*parts |= SANDBOX_PART_ROOT;
	if (!privileges_leave_root())
		*parts |= SANDBOX_PART_USER;
}

/* ---- files ----------------------------------------------------------------------------------- */

static long landlock_abi(void)
{
	return syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
}

bool sandbox_has_landlock(void)
{
	return landlock_abi() >= 1;
}

static void restrict_files(int folder_fd, unsigned *parts)
{
	struct landlock_ruleset_attr ruleset = { .handled_access_fs = ACCESS_ABI_1 };
	struct landlock_path_beneath_attr beneath = {
		.allowed_access = LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE |
				  LANDLOCK_ACCESS_FS_READ_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |
				  LANDLOCK_ACCESS_FS_MAKE_REG,
		.parent_fd = folder_fd,
	};
	long abi = landlock_abi();
	cleanup_close int fd = -1;

	if (abi < 1)
		return;
	if (abi >= 2)
		ruleset.handled_access_fs |= ACCESS_REFER;
	if (abi >= 3)
		ruleset.handled_access_fs |= ACCESS_TRUNCATE;
	if (abi >= 5)
		ruleset.handled_access_fs |= ACCESS_IOCTL_DEV;
	fd = (int)syscall(SYS_landlock_create_ruleset, &ruleset, sizeof(ruleset.handled_access_fs), 0);
	if (fd < 0)
		return;
	if (folder_fd >= 0 &&
	    syscall(SYS_landlock_add_rule, fd, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0) < 0)
		return;
	if (!syscall(SYS_landlock_restrict_self, fd, 0))
		*parts |= SANDBOX_PART_LANDLOCK;
}

/* ---- system calls ---------------------------------------------------------------------------- */

struct filter {
	struct sock_filter code[FILTER_MAX];
	unsigned short len;
};

static void emit(struct filter *f, uint16_t code, uint32_t k, uint8_t jump_true, uint8_t jump_false)
{
	if (f->len < FILTER_MAX)
		f->code[f->len++] = (struct sock_filter){ code, jump_true, jump_false, k };
}

static void emit_load(struct filter *f, size_t offset)
{
	emit(f, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0);
}

static void emit_return(struct filter *f, uint32_t action)
{
	emit(f, BPF_RET | BPF_K, action, 0, 0);
}

static void allow(struct filter *f, long number)
{
	emit(f, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 1);
	emit_return(f, SECCOMP_RET_ALLOW);
}

static void refuse(struct filter *f, long number)
{
	emit(f, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 1);
	emit_return(f, SECCOMP_RET_ERRNO | EPERM);
}

/* Refused unless (low half of argument @arg & @mask) == 0. The number is loaded again. */
static void refuse_bits(struct filter *f, long number, unsigned arg, uint32_t mask)
{
	emit(f, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 4);
	emit_load(f, offsetof(struct seccomp_data, args) + 8 * arg);
	emit(f, BPF_JMP | BPF_JSET | BPF_K, mask, 0, 1);
	emit_return(f, SECCOMP_RET_ERRNO | EPERM);
	emit_load(f, offsetof(struct seccomp_data, nr));
}

/* Allowed while (low half of argument @arg & @mask) == @value. The number is loaded again for the
 * rest. */
static void allow_if(struct filter *f, long number, unsigned arg, uint32_t mask, uint32_t value)
{
	emit(f, BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 5);
	emit_load(f, offsetof(struct seccomp_data, args) + 8 * arg);
	emit(f, BPF_ALU | BPF_AND | BPF_K, mask, 0, 0);
	emit(f, BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1);
	emit_return(f, SECCOMP_RET_ALLOW);
	emit_load(f, offsetof(struct seccomp_data, nr));
}

static void filter_begin(struct filter *f)
{
	emit_load(f, offsetof(struct seccomp_data, arch));
	emit(f, BPF_JMP | BPF_JEQ | BPF_K, FILTER_ARCH, 1, 0);
	emit_return(f, SECCOMP_RET_KILL_PROCESS);
	emit_load(f, offsetof(struct seccomp_data, nr));
}

/* Calls that are not allowed fail with EPERM: libraries try calls that they can do without. */
static int filter_install(struct filter *f)
{
	struct sock_fprog program = { .filter = f->code };

	emit_return(f, SECCOMP_RET_ERRNO | EPERM);
	if (f->len == FILTER_MAX)
		return -E2BIG;
	program.len = f->len;
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) < 0 ? -errno : 0;
}

/* Memory, reading and writing of open files, the channel to the parent, time, the end. */
static const int calls_of_builders[] = {
	SYS_read,	   SYS_write,	     SYS_pread64,   SYS_pwrite64,     SYS_readv,
	SYS_writev,	   SYS_lseek,	     SYS_close,	    SYS_fstat,	      SYS_newfstatat,
	SYS_munmap,	   SYS_mremap,	     SYS_madvise,   SYS_brk,	      SYS_futex,
	SYS_clock_gettime, SYS_gettimeofday, SYS_exit,	    SYS_exit_group,   SYS_rt_sigaction,
	SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_sigaltstack, SYS_getpid,    SYS_gettid,
	SYS_getrandom,	   SYS_sched_yield,  SYS_sysinfo,   SYS_restart_syscall, SYS_ftruncate,
	SYS_getrusage,    SYS_clock_nanosleep, SYS_memfd_create, SYS_sched_getaffinity,
	SYS_sendmsg,	   SYS_recvmsg,	     SYS_ppoll,
#ifdef SYS_poll
	SYS_poll,
#endif
};

/* And for the process itself: its folder, its channels, its children. */
static const int calls_of_server[] = {
	SYS_openat,    SYS_renameat,  SYS_renameat2,  SYS_unlinkat, SYS_utimensat, SYS_getdents64,
	SYS_fsync,     SYS_fdatasync, SYS_wait4,
	SYS_setitimer, SYS_prctl,     SYS_getppid,    SYS_set_robust_list,
	SYS_landlock_create_ruleset,  SYS_landlock_restrict_self,
	SYS_waitid,    SYS_pidfd_open, SYS_fstatfs,
#ifdef SYS_rename
	SYS_rename,
#endif
#ifdef SYS_unlink
	SYS_unlink,
#endif
};

static void allow_common(struct filter *f)
{
	for (size_t i = 0; i < ARRAY_SIZE(calls_of_builders); i++)
		allow(f, calls_of_builders[i]);
	/* Never code that was not there at the start. */
	allow_if(f, SYS_mmap, 2, PROT_EXEC, 0);
	allow_if(f, SYS_mprotect, 2, PROT_EXEC, 0);
	/* No owner of signals, no lease, no lock: flags, copies and seals of its own descriptors. */
	static const int commands[] = { F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC, F_ADD_SEALS,
					F_GET_SEALS };

	for (size_t i = 0; i < ARRAY_SIZE(commands); i++)
		allow_if(f, SYS_fcntl, 1, UINT32_MAX, (uint32_t)commands[i]);
	/* abort() and assertions of libraries: a signal to itself. */
	allow_if(f, SYS_tgkill, 0, UINT32_MAX, (uint32_t)getpid());
}

/* socketpair(AF_UNIX, SOCK_SEQPACKET, …), as channels are. */
static void allow_pair(struct filter *f)
{
	emit(f, BPF_JMP | BPF_JEQ | BPF_K, SYS_socketpair, 0, 7);
	emit_load(f, offsetof(struct seccomp_data, args));
	emit(f, BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 0, 4);
	emit_load(f, offsetof(struct seccomp_data, args) + 8);
	emit(f, BPF_ALU | BPF_AND | BPF_K, SOCKET_TYPE_MASK, 0, 0);
	emit(f, BPF_JMP | BPF_JEQ | BPF_K, SOCK_SEQPACKET, 0, 1);
	emit_return(f, SECCOMP_RET_ALLOW);
	emit_load(f, offsetof(struct seccomp_data, nr));
}

static int restrict_calls(void)
{
	struct filter f = { .len = 0 };

	filter_begin(&f);
	allow_common(&f);
	for (size_t i = 0; i < ARRAY_SIZE(calls_of_server); i++)
		allow(&f, calls_of_server[i]);
	allow_if(&f, SYS_clone, 0, UINT32_MAX, FORK_FLAGS);
	/* Only of the caller itself, which is 0. */
	allow_if(&f, SYS_prlimit64, 0, UINT32_MAX, 0);
	allow_if(&f, SYS_setpriority, 1, UINT32_MAX, 0);
	/* Between it and a builder; a pair reaches nobody else. */
	allow_pair(&f);
	return filter_install(&f);
}

/* ---- entry ----------------------------------------------------------------------------------- */

int sandbox_enter(const struct sandbox_options *options, unsigned *ret_parts)
{
	unsigned parts = 0;
	sigset_t alarm_only;
	int rc;

	limit(RLIMIT_CORE, 0);
	limit(RLIMIT_NOFILE, options->files);
	if (LIMIT_MEMORY)
		limit(RLIMIT_AS, options->memory_bytes);
	if (!geteuid())
		leave_root(options, &parts);
	rc = privileges_keep(0);
	if (rc < 0)
		return rc;
	parts |= SANDBOX_PART_NO_CAPS;
	/* A change of user forgets it (commit_creds()); a supervisor that is gone already closes our
	 * channel. */
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	(void)signal(SIGALRM, SIG_DFL);
	(void)sigemptyset(&alarm_only);
	(void)sigaddset(&alarm_only, SIGALRM);
	(void)sigprocmask(SIG_UNBLOCK, &alarm_only, NULL);
	restrict_files(options->folder_fd, &parts);
	rc = restrict_calls();
	if (rc < 0)
		return rc;
	*ret_parts = parts | SANDBOX_PART_SECCOMP;
	return 0;
}

/* Calls that would lead out of a process that may read every memory, and calls that do the same in
 * another way. */
static const int calls_refused_to_reader[] = {
	SYS_socket,	SYS_connect,	 SYS_bind,	    SYS_listen,	      SYS_accept,
	SYS_accept4,	SYS_sendto,	 SYS_sendmmsg,	    SYS_execve,	      SYS_execveat,
	SYS_ptrace,	SYS_process_vm_writev, SYS_pidfd_getfd, SYS_pidfd_send_signal, SYS_openat2,
	SYS_open_by_handle_at, SYS_io_uring_setup, SYS_bpf, SYS_userfaultfd, SYS_mount,
	SYS_umount2,	SYS_open_tree,	 SYS_move_mount,    SYS_fsopen,	      SYS_fsconfig,
	SYS_pivot_root, SYS_chroot,	 SYS_unshare,	    SYS_setns,	      SYS_init_module,
	SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_reboot,      SYS_keyctl,
	SYS_add_key,	SYS_request_key, SYS_mknodat,	    SYS_mkdirat,      SYS_unlinkat,
	SYS_linkat,	SYS_symlinkat,	 SYS_renameat2,	    SYS_fchmod,	      SYS_fchmodat,
	SYS_fchown,	SYS_fchownat,	 SYS_setxattr,	    SYS_truncate,     SYS_personality,
#if defined(__x86_64__)
	SYS_open,	SYS_creat,	 SYS_mknod,	    SYS_mkdir,	      SYS_unlink,
	SYS_rmdir,	SYS_link,	 SYS_symlink,	    SYS_rename,	      SYS_chmod,
	SYS_chown,	SYS_lchown,	 SYS_renameat,	    SYS_modify_ldt,
#endif
};

int sandbox_enter_reader(void)
{
	struct sock_fprog program;
	struct filter f = { .len = 0 };

	filter_begin(&f);
#if defined(__x86_64__)
	/* The numbers of the x32 ABI lead to the same calls. */
	emit(&f, BPF_JMP | BPF_JGE | BPF_K, 0x40000000u, 0, 1);
	emit_return(&f, SECCOMP_RET_KILL_PROCESS);
#endif
	for (size_t i = 0; i < ARRAY_SIZE(calls_refused_to_reader); i++)
		refuse(&f, calls_refused_to_reader[i]);
	refuse_bits(&f, SYS_openat, 2, O_ACCMODE | O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY));
	refuse_bits(&f, SYS_mmap, 2, PROT_EXEC);
	refuse_bits(&f, SYS_mprotect, 2, PROT_EXEC);
	emit_return(&f, SECCOMP_RET_ALLOW);
	if (f.len == FILTER_MAX)
		return -E2BIG;
	program = (struct sock_fprog){ .filter = f.code, .len = f.len };
	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) < 0 ? -errno : 0;
}

int sandbox_enter_builder(const struct sandbox_limits *limits)
{
	struct filter f = { .len = 0 };
	unsigned parts = 0;

	restrict_files(-1, &parts);
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	sandbox_guard_begin(limits->wall_s);
	limit(RLIMIT_CPU, limits->cpu_s);
	filter_begin(&f);
	allow_common(&f);
	return filter_install(&f);
}

/* SIGALRM keeps its default action: being fatal, it also ends a read that waits for a file system
 * (FUSE waits "killable" once it has been interrupted; a handler would not run before the answer
 * comes). */
static void guard_set(unsigned wall_s)
{
	struct itimerval timer = { .it_value = { .tv_sec = wall_s } };

	(void)setitimer(ITIMER_REAL, &timer, NULL);
}

void sandbox_guard_begin(unsigned wall_s)
{
	guard_set(wall_s);
}

void sandbox_guard_end(void)
{
	guard_set(0);
}
