/* SPDX-License-Identifier: Apache-2.0 */
/* Python frames of threads that are read from outside: between the native frames, where they
 * belong, by the walk of bpf/python.bpf.h. A blocked thread's frames do not change. Where its state
 * is follows from its thread control block, which glibc gives the thread's number. */
#ifndef PROFD_READER_THREAD_PYTHON_H
#define PROFD_READER_THREAD_PYTHON_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/reader/answer.h"
#include "agent/reader/row_tables.h"

struct thread_python;

/* For the threads of one answer; NULL: no memory. */
struct thread_python *thread_python_create(struct answer *answer);
void thread_python_destroy(struct thread_python *python);
/* The walk of thread @tid begins. @is_asleep: its memory does not change meanwhile. */
void thread_python_begin(struct thread_python *python, uint32_t tid, bool is_asleep);
/* Adds the script frames of the C frame [@low, @high) whose @pc, in a call or with @regs, lies in
 * @rows' file, mapped at @bias, behind the *@count words at @words, which have room for @max: none
 * where that is no code of the interpreter's loop. An outcome of bpf/outcome.def, complete if there
 * are all. */
uint8_t thread_python_add(struct thread_python *python, const struct row_table *rows, uint64_t bias,
			  uint64_t pc, bool is_call, const uint64_t *regs, uint64_t low,
			  uint64_t high, uint64_t *words, uint16_t max, unsigned *count);
/* The process's CPython, after the threads were walked; borrowed. If no walk met it, as where all
 * threads run, it is looked for in mapped files with "python" in their names. NULL: *ret_why, a
 * literal, says why it cannot be read. */
const struct script_python *thread_python_runtime(struct thread_python *python,
						  struct row_tables *tables, const char **ret_why);
/* After a walk: names the script frames among the @count words at @words. Returns how many words
 * are left: the two words of a frame become one. */
unsigned thread_python_name(struct thread_python *python, uint64_t *words, unsigned count);

static inline void cleanup_thread_python_fn(struct thread_python **python)
{
	thread_python_destroy(*python);
}
#define cleanup_thread_python __attribute__((__cleanup__(cleanup_thread_python_fn)))

#endif
