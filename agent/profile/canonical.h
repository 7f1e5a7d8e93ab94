/* SPDX-License-Identifier: Apache-2.0 */
/* Names by which functions of two builds are the same: compiler suffixes folded into the base,
 * module names without version. Also the classes of functions that comparisons treat apart. Pure,
 * thread-safe. */
#ifndef PROFD_PROFILE_CANONICAL_H
#define PROFD_PROFILE_CANONICAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of the part of @name without ".llvm.…", ".constprop.n", ".isra.n", ".part.n",
 * ".lto_priv.n", ".cold", "::h<16 hex>" and a demangler's " [clone …]" at its end. Never 0 for a
 * non-empty name. */
size_t canonical_function_len(const char *name);
/* Whether @asked means the function @name: by its whole name, or by the part that comparisons show.
 */
bool canonical_function_is(const char *name, const char *asked);

/* Package without its version: "libc.so.6" and "libc-2.31.so" are "libc.so", "app-1.4.2" and
 * "app_v2.0-rc1" are "app"; "python3.11" and "worker-2" stay. Writes at most @size bytes with NUL,
 * returns the length. */
size_t canonical_package(const char *package, char *out, size_t size);

#define CANONICAL_PACKAGE_SIZE 512 /* longer ones are cut */

/* A function as profiles name it. The same in two builds: by canonical name and package, and by the
 * name of its source file without folders, which are those of the build. */
struct canonical_function {
	const char *name, *package, *file;
};
uint64_t canonical_hash(const struct canonical_function *function);
bool canonical_equal(const struct canonical_function *a, const struct canonical_function *b);

/* Kernel functions that show the host, not the program: interrupt and return-to-user paths,
 * scheduler switch, idle, hypervisor exits, the profiler's own work. */
bool canonical_is_environment(const char *kernel_function);

/* Functions of the scheduler in which every waiting thread is found: they say nothing of what it
 * waits for. */
bool canonical_is_scheduler(const char *kernel_function);

/* Is the file at @path the interpreter of Python, the Java virtual machine or Node, by its name? */
bool canonical_is_interpreter(const char *path);

/* User or kernel functions that wait for work to come (accept, poll, sleep, parked workers). */
bool canonical_is_idle_wait(const char *function);

#endif
