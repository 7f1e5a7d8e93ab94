/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a thread of any program, in the words that the API uses for threads, from the text
 * of /proc/PID/task/TID/{stat,syscall,wchan} (proc(5)). Pure. */
#ifndef PROFD_READER_THREAD_WAIT_H
#define PROFD_READER_THREAD_WAIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

struct thread_syscall {
	bool blocked;	/* false: the thread runs or is runnable, nothing else is known */
	int32_t number; /* -1 = not in a system call */
	uint64_t args[6];
	uint64_t sp;
	uint64_t pc;
};

enum thread_file { /* what a descriptor is, as far as names of waits go */
		   THREAD_FILE_OTHER,
		   THREAD_FILE_PIPE,
		   THREAD_FILE_SOCKET,
		   THREAD_FILE_REGULAR,
		   THREAD_FILE_TTY,
		   THREAD_FILE_EVENT,
		   THREAD_FILE_INOTIFY,
		   THREAD_FILE_TIMER,
		   THREAD_FILE_SIGNAL,
};

/* -EINVAL if it is not the text of /proc/…/syscall. */
int thread_syscall_parse(const char *text, struct thread_syscall *ret) must_use;
/* State letter of /proc/…/stat: the word; "" if unknown. R gives "runnable". */
const char *thread_state_word(char letter);
/* The index of the argument with the descriptor that this call waits for; -1 = none. */
int thread_wait_descriptor(int32_t number);
/* The target of /proc/PID/fd/N ("pipe:[123]", "/dev/pts/0"). */
enum thread_file thread_file_kind(const char *link);
/* The wait of a blocked thread: by system call, else by the kernel function it sleeps in (@wchan,
 * "" or "0" = unknown). "" if nothing is known. Static storage or @wchan itself. */
const char *thread_wait_word(const struct thread_syscall *call, enum thread_file file,
			     const char *wchan);

#endif
