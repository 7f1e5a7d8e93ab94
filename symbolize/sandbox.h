/* SPDX-License-Identifier: Apache-2.0 */
/* The symbolizer's sandbox. Before the process reads the first hostile byte it gives up its user,
 * its capabilities, the file system except for one folder, new programs, sockets, signals to
 * others, and unbounded memory. Each part holds alone; a kernel that lacks one (Landlock before
 * 5.13) leaves the others. */
#ifndef PROFD_SYMBOLIZE_SANDBOX_H
#define PROFD_SYMBOLIZE_SANDBOX_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

struct sandbox_options {
	int folder_fd; /* the one folder that stays reachable, -1 = none; given to PRIVILEGES_NOBODY
			*/
	uint64_t memory_bytes; /* RLIMIT_AS */
	unsigned files;	       /* RLIMIT_NOFILE */
};

enum sandbox_part { /* what is in force */
	SANDBOX_PART_USER = 1,	   /* was root, is PRIVILEGES_NOBODY */
	SANDBOX_PART_ROOT = 2,	   /* the folder is the root directory */
	SANDBOX_PART_LANDLOCK = 4, /* only the folder can be opened */
	SANDBOX_PART_SECCOMP = 8,
	SANDBOX_PART_NO_CAPS = 16,
};

/* Enters for good. The folder's descriptor and others that are open stay usable. @ret_parts gets
 * bits of enum sandbox_part. Errors: capabilities or the system-call filter could not be set; the
 * caller must not go on. */
int sandbox_enter(const struct sandbox_options *options, unsigned *ret_parts) must_use;

/* Whether this kernel has Landlock and it is switched on. */
bool sandbox_has_landlock(void);

/* One step deeper, in a child that builds one thing from one hostile file: no new files, no
 * processes, and limits after which the kernel kills it. The memory limit of sandbox_enter() goes
 * on to hold. */
struct sandbox_limits {
	unsigned cpu_s;
	unsigned wall_s; /* also ends a read that a file system never answers */
};
int sandbox_enter_builder(const struct sandbox_limits *limits) must_use;

/* For a process that reads the memory of others. It forbids sockets, new programs, ptrace, writing
 * into others, opening for writing and new executable code, and every call that would do one of
 * these by another way. Threads that it makes later have the same. It has no Landlock: a process in
 * a domain may not read one outside (Linux, Documentation/userspace-api/landlock.rst, "Ptrace
 * restrictions"). -errno: the filter could not be set; the caller must not go on. */
int sandbox_enter_reader(void) must_use;

/* Kills this process if sandbox_guard_end() is not called within @wall_s: for work that may block
 * in a file system where only a fatal signal ends it. Not nested. */
void sandbox_guard_begin(unsigned wall_s);
void sandbox_guard_end(void);

#endif
