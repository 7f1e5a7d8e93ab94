/* SPDX-License-Identifier: Apache-2.0 */
/* The walk of the BPF programs, compiled for the host, over a thread of another process that ptrace
 * has stopped. Included once by a test, before other headers of the walk. */
#ifndef PROFD_TESTS_TRACED_THREAD_H
#define PROFD_TESTS_TRACED_THREAD_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/user.h>

static pid_t traced; /* the process whose memory is read */

/* As the walk wants it: 0, or 1 if not all could be read. */
static inline int traced_read(void *to, size_t bytes, uint64_t address)
{
	struct iovec local = { to, bytes };
	struct iovec remote = { (void *)(uintptr_t)address, bytes };

	return process_vm_readv(traced, &local, 1, &remote, 1, 0) != (ssize_t)bytes;
}

#define UNWIND_READ(dst, bytes, address) traced_read(dst, bytes, address)
#define UNWIND_ELEMENT(table, index)                                                               \
	((const uint32_t *)(const void *)((const char *)(table) +                                  \
					  UNWIND_ELEMENT_BYTES * (size_t)(index)))
#include "bpf/unwind_step.h"

/* The innermost frame of the thread with registers @r. */
static inline struct unwind_state traced_state(const struct user_regs_struct *r)
{
#if ARCH_LINK_REGISTER
	struct unwind_state at = {
		.ip = r->pc, .sp = r->sp, .fp = r->regs[ARCH_REG_FP], .regs_known = 1
	};

	memcpy(at.regs, r->regs, sizeof(r->regs));
	at.regs[ARCH_REG_SP] = r->sp;
	return at;
#else
	return (struct unwind_state){
		.ip = r->rip,
		.sp = r->rsp,
		.fp = r->rbp,
		.regs_known = 1,
		.regs = { r->rax, r->rdx, r->rcx, r->rbx, r->rsi, r->rdi, r->rbp, r->rsp, r->r8,
			  r->r9, r->r10, r->r11, r->r12, r->r13, r->r14, r->r15 },
	};
#endif
}

#endif
