/* SPDX-License-Identifier: Apache-2.0 */
/* The `package` of a function where its language or symbol table does not say it: the import path
 * of Go functions, the file's base name of native ones. Pure. */
#ifndef PROFD_PROFILE_PACKAGE_NAME_H
#define PROFD_PROFILE_PACKAGE_NAME_H

#include <stddef.h>

/* Import path in a Go symbol, e.g. "github.com/x/y.(*T).M[...]" -> "github.com/x/y": everything
 * before the first dot after the last slash outside brackets. The linker's escapes (%2e) are undone
 * (cmd/internal objabi, PathToPrefix). Writes at most @size bytes with NUL and returns the length;
 * 0 = the symbol has none (compiler-made ones as "type:.eq.…", C symbols). */
size_t package_of_go(const char *symbol, char *out, size_t size);

/* Base name of a mapped file without " (deleted)"; "[vdso]" and the like stay. Returns where it
 * starts in
 * @path and its length. */
const char *package_of_path(const char *path, size_t *ret_len);

#endif
