/* SPDX-License-Identifier: Apache-2.0 */
/* The name by which people know a program without a unit, container or configured name. It is the
 * script of an interpreter, the module, the jar, the main class, or the name by which a multi-call
 * binary was started. The rules are one table (program_name.c). Pure; everything it reads was
 * written by the target. */
#ifndef PROFD_COLLECT_PROGRAM_NAME_H
#define PROFD_COLLECT_PROGRAM_NAME_H

#include <stddef.h>

#define PROGRAM_NAME_SIZE      128u
#define PROGRAM_ARGUMENTS_SIZE (32u << 10) /* bytes of the command line that are looked at */

struct program {
	const char *exe;  /* path of the executable, "" = unknown */
	const char *comm; /* name of the main thread, set by the kernel at exec */
	const char *cwd;  /* working directory, "" = unknown */
	const char *args; /* arguments, each ended by a NUL (/proc/PID/cmdline) */
	size_t args_len;  /* bytes; the last argument may lack its NUL */
};

/* Writes the inferred name to @ret (NUL-terminated, printable ASCII), "" if the executable's own
 * base name is the best that is known. Arguments are used only where the table names their place:
 * a value of any other option, which may be a secret, never becomes part of a name. */
void program_name(const struct program *program, char ret[PROGRAM_NAME_SIZE]);

#endif
