/* SPDX-License-Identifier: Apache-2.0 */
/* Real programs for the tests of names: compiled on the spot into a temporary folder, opened as
 * ELF, and asked through other tools (nm, llvm-symbolizer). Failures of set-up fail the test. */
#ifndef PROFD_TESTS_ELF_FIXTURE_H
#define PROFD_TESTS_ELF_FIXTURE_H

#include <libelf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "symbolize/symbol_index.h"

/* The temporary folder of this program, removed at exit. */
const char *fixture_dir(void);
/* Writes @text to @name below the folder. */
void fixture_write(const char *name, const char *text);
/* Runs a shell command with the folder as working directory; true if it exits with 0. Its output
 * goes nowhere unless the test fails. */
bool fixture_run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* Output of a command, free it; NULL if it failed. */
char *fixture_output(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
bool fixture_has(const char *program); /* in PATH */

struct fixture_elf {
	int fd;
	Elf *elf;
};
/* @path absolute, or below the folder. */
struct fixture_elf fixture_open(const char *path);
void fixture_close(struct fixture_elf *file);

/* Index of @path and, if not NULL, its debug file; what they name further (.dwo, .dwp, dwz) is
 * looked for in the folder. */
struct symbol_index *fixture_index(const char *path, const char *debug_path);
/* st_value of a symbol of @path by nm, 0 if there is none; its size likewise. */
uint64_t fixture_symbol(const char *path, const char *name, uint64_t *ret_size);
/* File offset of an ELF virtual address by the program headers. */
uint64_t fixture_offset(const char *path, uint64_t ev);

#endif
