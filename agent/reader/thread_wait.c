// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/thread_wait.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "agent/base/text.h"

int thread_syscall_parse(const char *text, struct thread_syscall *ret)
{
	struct thread_syscall call = { .number = -1 };
	unsigned long long a[6], sp, pc;
	int number;

	if (text_begins(text, "running")) {
		*ret = call;
		return 0;
	}
	call.blocked = true;
	if (sscanf(text, "-1 %llx %llx", &sp, &pc) == 2) {
		call.sp = sp;
		call.pc = pc;
		*ret = call;
		return 0;
	}
	if (sscanf(text, "%d %llx %llx %llx %llx %llx %llx %llx %llx", &number, &a[0], &a[1], &a[2],
		   &a[3], &a[4], &a[5], &sp, &pc) != 9)
		return -EINVAL;
	call.number = number;
	for (int i = 0; i < 6; i++)
		call.args[i] = a[i];
	call.sp = sp;
	call.pc = pc;
	*ret = call;
	return 0;
}

const char *thread_state_word(char letter)
{
	switch (letter) {
	case 'R':
		return "runnable";
	case 'S':
	case 'I': /* idle kernel thread */
		return "sleeping";
	case 'D':
		return "blocked";
	case 'T':
	case 't':
		return "stopped";
	case 'Z':
	case 'X':
		return "dead";
	default:
		return "";
	}
}

/* ---- system calls ---------------------------------------------------------------------------- */

enum call_kind { CALL_WORD, CALL_READ, CALL_WRITE };

struct call_wait {
	int number;
	enum call_kind kind; /* READ, WRITE: the word depends on the file of the first argument */
	const char *word;
};

static const struct call_wait calls[] = {
	{ SYS_futex, CALL_WORD, "futex" },
#ifdef SYS_futex_waitv
	{ SYS_futex_waitv, CALL_WORD, "futex" },
#endif
#ifdef SYS_epoll_wait
	{ SYS_epoll_wait, CALL_WORD, "epoll" },
	{ SYS_poll, CALL_WORD, "poll" },
	{ SYS_select, CALL_WORD, "select" },
	{ SYS_pause, CALL_WORD, "signal" },
#endif
	{ SYS_epoll_pwait, CALL_WORD, "epoll" },
#ifdef SYS_epoll_pwait2
	{ SYS_epoll_pwait2, CALL_WORD, "epoll" },
#endif
	{ SYS_ppoll, CALL_WORD, "poll" },
	{ SYS_pselect6, CALL_WORD, "select" },
	{ SYS_nanosleep, CALL_WORD, "nanosleep" },
	{ SYS_clock_nanosleep, CALL_WORD, "nanosleep" },
	{ SYS_rt_sigtimedwait, CALL_WORD, "signal" },
	{ SYS_rt_sigsuspend, CALL_WORD, "signal" },
	{ SYS_wait4, CALL_WORD, "child" },
	{ SYS_waitid, CALL_WORD, "child" },
	{ SYS_accept, CALL_WORD, "socket accept" },
	{ SYS_accept4, CALL_WORD, "socket accept" },
	{ SYS_connect, CALL_WORD, "socket connect" },
	{ SYS_recvfrom, CALL_WORD, "socket read" },
	{ SYS_recvmsg, CALL_WORD, "socket read" },
	{ SYS_recvmmsg, CALL_WORD, "socket read" },
	{ SYS_sendto, CALL_WORD, "socket write" },
	{ SYS_sendmsg, CALL_WORD, "socket write" },
	{ SYS_sendmmsg, CALL_WORD, "socket write" },
	{ SYS_sendfile, CALL_WORD, "sendfile" },
	{ SYS_splice, CALL_WORD, "splice" },
	{ SYS_fsync, CALL_WORD, "file sync" },
	{ SYS_fdatasync, CALL_WORD, "file sync" },
	{ SYS_msync, CALL_WORD, "file sync" },
	{ SYS_sync_file_range, CALL_WORD, "file sync" },
	{ SYS_syncfs, CALL_WORD, "file sync" },
	{ SYS_sync, CALL_WORD, "file sync" },
	{ SYS_flock, CALL_WORD, "file lock" },
	{ SYS_fcntl, CALL_WORD, "file lock" },
	{ SYS_io_getevents, CALL_WORD, "aio" },
	{ SYS_io_uring_enter, CALL_WORD, "io_uring" },
	{ SYS_msgrcv, CALL_WORD, "msg receive" },
	{ SYS_msgsnd, CALL_WORD, "msg send" },
	{ SYS_mq_timedreceive, CALL_WORD, "msg receive" },
	{ SYS_mq_timedsend, CALL_WORD, "msg send" },
	{ SYS_semop, CALL_WORD, "semaphore" },
	{ SYS_semtimedop, CALL_WORD, "semaphore" },
	{ SYS_ptrace, CALL_WORD, "ptrace" },
	{ SYS_read, CALL_READ, NULL },
	{ SYS_readv, CALL_READ, NULL },
	{ SYS_pread64, CALL_READ, NULL },
	{ SYS_preadv, CALL_READ, NULL },
	{ SYS_preadv2, CALL_READ, NULL },
	{ SYS_getdents64, CALL_READ, NULL },
	{ SYS_write, CALL_WRITE, NULL },
	{ SYS_writev, CALL_WRITE, NULL },
	{ SYS_pwrite64, CALL_WRITE, NULL },
	{ SYS_pwritev, CALL_WRITE, NULL },
	{ SYS_pwritev2, CALL_WRITE, NULL },
};

static const struct call_wait *find_call(int32_t number)
{
	for (size_t i = 0; number >= 0 && i < ARRAY_SIZE(calls); i++)
		if (calls[i].number == number)
			return &calls[i];
	return NULL;
}

int thread_wait_descriptor(int32_t number)
{
	const struct call_wait *call = find_call(number);

	return call && call->kind != CALL_WORD ? 0 : -1;
}

enum thread_file thread_file_kind(const char *link)
{
	static const struct {
		const char *prefix;
		enum thread_file kind;
	} prefixes[] = {
		{ "pipe:", THREAD_FILE_PIPE },
		{ "socket:", THREAD_FILE_SOCKET },
		{ "anon_inode:[eventfd]", THREAD_FILE_EVENT },
		{ "anon_inode:inotify", THREAD_FILE_INOTIFY },
		{ "anon_inode:[timerfd]", THREAD_FILE_TIMER },
		{ "anon_inode:[signalfd]", THREAD_FILE_SIGNAL },
		{ "/dev/pts/", THREAD_FILE_TTY },
		{ "/dev/tty", THREAD_FILE_TTY },
		{ "/dev/console", THREAD_FILE_TTY },
		{ "/", THREAD_FILE_REGULAR },
	};

	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
		if (text_begins(link, prefixes[i].prefix))
			return prefixes[i].kind;
	return THREAD_FILE_OTHER;
}

static const char *file_word(enum thread_file file, bool write)
{
	static const char *const words[][2] = {
		[THREAD_FILE_OTHER] = { "read", "write" },
		[THREAD_FILE_PIPE] = { "pipe read", "pipe write" },
		[THREAD_FILE_SOCKET] = { "socket read", "socket write" },
		[THREAD_FILE_REGULAR] = { "file read", "file write" },
		[THREAD_FILE_TTY] = { "tty read", "tty write" },
		[THREAD_FILE_EVENT] = { "eventfd read", "eventfd write" },
		[THREAD_FILE_INOTIFY] = { "inotify", "write" },
		[THREAD_FILE_TIMER] = { "timerfd", "write" },
		[THREAD_FILE_SIGNAL] = { "signal", "write" },
	};

	return words[file][write];
}

/* The word of a wait whose system-call number says nothing: restarted calls, other system-call
 * tables, page faults. */
static const char *wchan_word(const char *wchan)
{
	static const struct {
		const char *prefix;
		const char *word;
	} prefixes[] = {
		{ "futex_", "futex" },
		{ "__futex_", "futex" },
		{ "ep_poll", "epoll" },
		{ "poll_schedule", "poll" },
		{ "do_sys_poll", "poll" },
		{ "do_select", "select" },
		{ "hrtimer_nanosleep", "nanosleep" },
		{ "do_nanosleep", "nanosleep" },
		{ "pipe_read", "pipe read" },
		{ "anon_pipe_read", "pipe read" },
		{ "pipe_write", "pipe write" },
		{ "anon_pipe_write", "pipe write" },
		{ "do_wait", "child" },
		{ "kernel_wait4", "child" },
		{ "inet_csk_accept", "socket accept" },
		{ "unix_accept", "socket accept" },
		{ "folio_wait", "fault" },
		{ "wait_on_page", "fault" },
		{ "__folio_lock", "fault" },
		{ "io_schedule", "disk" },
	};

	if (!*wchan || !strcmp(wchan, "0"))
		return "";
	for (size_t i = 0; i < ARRAY_SIZE(prefixes); i++)
		if (text_begins(wchan, prefixes[i].prefix))
			return prefixes[i].word;
	return wchan;
}

const char *thread_wait_word(const struct thread_syscall *call, enum thread_file file,
			     const char *wchan)
{
	const struct call_wait *known = call->blocked ? find_call(call->number) : NULL;

	if (!known)
		return wchan_word(wchan);
	return known->kind == CALL_WORD ? known->word : file_word(file, known->kind == CALL_WRITE);
}
