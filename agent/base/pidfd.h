/* SPDX-License-Identifier: Apache-2.0 */
/* A child process by descriptor. Where SIGCHLD is ignored nobody waits for children, and the pid of
 * an ended one may belong to another process by the time it is used. */
#ifndef PROFD_BASE_PIDFD_H
#define PROFD_BASE_PIDFD_H

#include <signal.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

/* A descriptor (pidfd_open(2), close-on-exec) of a child that was forked this moment; -1: it has
 * ended, or there are no more descriptors. */
static inline int pidfd_of_child(pid_t pid)
{
	return (int)syscall(SYS_pidfd_open, pid, 0);
}

/* Kills it unless it has ended. @fd stays the caller's; -1 = nothing. */
static inline void pidfd_kill(int fd)
{
	if (fd >= 0)
		(void)syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
}

#endif
