/* SPDX-License-Identifier: Apache-2.0 */
/* Names by which functions of two builds are the same: compiler suffixes folded into the base,
 * module names without version. Also the classes of functions that comparisons treat apart. Pure,
 * thread-safe. */
#ifndef PROFD_PROFILE_CANONICAL_H
#define PROFD_PROFILE_CANONICAL_H

#include <stdbool.h>
#include <stddef.h>

/* Length of the part of @name without ".llvm.…", ".constprop.n", ".isra.n", ".part.n",
 * ".lto_priv.n",
 * ".cold", "::h<16 hex>" and a demangler's " [clone …]" at its end. Never 0 for a non-empty name.
 */
size_t canonical_function_len(const char *name);
/* Whether @asked means the function @name: by its whole name, or by the part that comparisons show. */
bool canonical_function_is(const char *name, const char *asked);

/* Package without a library's version: "libc.so.6" and "libc-2.31.so" are "libc.so"; anything that
 * is not a shared object stays. Writes at most @size bytes with NUL, returns the length. */
size_t canonical_package(const char *package, char *out, size_t size);

/* Kernel functions that show the host, not the program: interrupt and return-to-user paths,
 * scheduler switch, idle, hypervisor exits, the profiler's own work. */
bool canonical_is_environment(const char *kernel_function);

/* Functions of the scheduler in which every waiting thread is found: they say nothing of what it
 * waits for. */
bool canonical_is_scheduler(const char *kernel_function);

/* User or kernel functions that wait for work to come (accept, poll, sleep, parked workers). */
bool canonical_is_idle_wait(const char *function);

#endif
