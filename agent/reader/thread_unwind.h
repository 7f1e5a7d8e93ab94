/* SPDX-License-Identifier: Apache-2.0 */
/* The user stack of a thread, from outside. Of one that is blocked in the kernel the stack and instruction
 * pointers are in /proc, everything else follows from unwind rows and memory. The frame pointer is
 * not visible from outside; until a frame that saved it is passed, functions that address their
 * frame by it are unwound by looking for the saved pair on the stack, and frames beyond are marked
 * as guessed. Of one that ran and was sampled all registers are known, and of its memory only the copy is of
 * that moment: nothing else is read. */
#ifndef PROFD_READER_THREAD_UNWIND_H
#define PROFD_READER_THREAD_UNWIND_H

#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/reader/answer.h"
#include "agent/reader/row_tables.h"

#define THREAD_STACK_BYTES                                                                         \
	(16u << 10) /* copied of a stack at once; what lies above is read by the word */

struct thread_stack {
	uint64_t sp;
	const uint8_t *data; /* copy of [sp, sp + len) */
	uint32_t len;
	const uint64_t *regs; /* sampled: ARCH_REG_COUNT by DWARF number, of the moment of the copy; NULL = it is blocked */
};

struct thread_frames {
	unsigned count;
	uint8_t outcome; /* bpf/outcome.def */
	uint64_t words[READ_FRAMES_MAX + 1];
};

/* Walks from @pc. Frames are written for @answer (their modules are, too). */
void thread_unwind(struct answer *answer, struct row_tables *tables, uint64_t pc,
		   const struct thread_stack *stack, struct thread_frames *ret);

#endif
