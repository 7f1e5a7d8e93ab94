/* SPDX-License-Identifier: Apache-2.0 */
/* The user stack of a thread, from outside. Of one that is blocked in the kernel the stack and
 * instruction pointers are in /proc, everything else follows from unwind rows and memory. The frame
 * pointer is not visible from outside until a frame that saved it is passed. Before that, functions
 * that address their frame by it are unwound by a search of the stack for the saved pair. Frames
 * beyond are marked as guessed. Of one that ran and was sampled all registers are known, and of its
 * memory only the copy is of that moment: nothing else is read. */
#ifndef PROFD_READER_THREAD_UNWIND_H
#define PROFD_READER_THREAD_UNWIND_H

#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/reader/answer.h"
#include "agent/reader/row_tables.h"
#include "agent/reader/thread_python.h"

#define THREAD_STACK_BYTES                                                                         \
	(16u << 10) /* copied of a stack at once; what lies above is read by the word */

struct thread_stack {
	uint64_t sp;
	const uint8_t *data; /* copy of [sp, sp + len) */
	uint32_t len;
	const uint64_t *regs; /* sampled: ARCH_REG_COUNT by DWARF number, of the moment of the copy;
				 NULL = it is blocked */
};

struct thread_frames {
	unsigned count;
	uint8_t outcome; /* bpf/outcome.def */
	uint64_t words[READ_FRAMES_MAX + 1];
};

/* Walks thread @tid from @pc. Frames are written for @answer (their modules and names are, too). */
void thread_unwind(struct answer *answer, struct row_tables *tables, struct thread_python *python,
		   uint32_t tid, uint64_t pc, const struct thread_stack *stack,
		   struct thread_frames *ret);

#endif
