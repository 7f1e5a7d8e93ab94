/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of a Go program by name, and the variables that their code refers to. The address of a
 * variable that nothing points to (MemProfileRate) is an operand of a function that is known to use
 * it. No disassembler is needed: every byte position that decodes as such an operand is a
 * candidate, and the caller tests the memory at its address. */
#ifndef PROFD_READER_GO_FUNCTIONS_H
#define PROFD_READER_GO_FUNCTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/reader/go_layout.h"

/* -ENOENT no such function is linked in; -EFAULT, -ESRCH, -EPERM. Reads the table of names once. */
int go_function_by_name(struct go_layout *layout, const char *name, struct go_func *ret) must_use;

/* Addresses inside @range that the code of @func refers to relative to the pc, in order of
 * appearance, each once. The number found, at most @max, or -EFAULT. */
int go_function_operands(struct go_layout *layout, const struct go_func *func,
			 const struct go_range *range, uint64_t *ret, unsigned max) must_use;

/* The same over raw code, for tests: @va is the address of @code. @machine EM_X86_64 or EM_AARCH64.
 */
unsigned go_code_operands(uint16_t machine, const uint8_t *code, size_t len, uint64_t va,
			  const struct go_range *range, uint64_t *ret, unsigned max);

#endif
