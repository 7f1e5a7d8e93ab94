/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the TCP ports that a process listens on. Listening sockets of a network namespace come
 * from /proc/PID/net/tcp and tcp6; they come first in the file, so reading stops at the first
 * other socket. They are matched with the socket inodes among the descriptors of a process.
 * Bounded; no sample waits for it. */
#ifndef PROFD_COLLECT_PROC_PORTS_H
#define PROFD_COLLECT_PROC_PORTS_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

#define PROC_PORTS_TEXT_SIZE	512u
#define PROC_PORTS_LISTENERS_MAX 8192u /* of one network namespace */
#define PROC_PORTS_FDS_MAX	4096u /* descriptors of a process that are looked at */

struct proc_ports; /* listeners of the namespaces seen since the last reset */

struct proc_ports *proc_ports_create(void);
void proc_ports_destroy(struct proc_ports *ports);
CLEANUP_DEFINE(proc_ports, struct proc_ports *, proc_ports_destroy);
/* Forgets the listeners: the next question reads them again. */
void proc_ports_reset(struct proc_ports *ports);
/* The ports of @tgid, ascending, decimal, separated by commas; "" = none. Negative errno if it is
 * gone or cannot be read; @ret untouched then. */
int proc_ports_read(struct proc_ports *ports, uint32_t tgid, char ret[PROC_PORTS_TEXT_SIZE])
	must_use;

/* One line of /proc/net/tcp{,6}. 1 = a listening socket, 0 = another one, -EINVAL not a line. Pure.
 */
int proc_ports_parse_line(const char *line, uint64_t *ret_inode, uint16_t *ret_port) must_use;

#endif
