/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The kernel's saved registers on AArch64, and what they say. BPF only. */
#ifndef PROFD_BPF_ARCH_ARM64_BPF_H
#define PROFD_BPF_ARCH_ARM64_BPF_H

#include <bpf/bpf_core_read.h>

#include "bpf/profiler.h"
#include "bpf/unwind_step.h"

/* struct user_pt_regs, arch/arm64/include/uapi/asm/ptrace.h: kernel ABI, the context of perf_event
 * programs. */
struct arch_user_regs {
	uint64_t regs[31];
	uint64_t sp, ip, pstate;
};

/* The beginning of struct pt_regs, arch/arm64/include/asm/ptrace.h. */
struct arch_regs {
	uint64_t regs[31];
	uint64_t sp, ip, pstate;
	uint64_t orig_x0;
	int32_t number; /* of the system call, -1 if entered otherwise */
	uint32_t unused;
};

/* The kernel's, for its size alone. */
struct pt_regs___size {
	uint64_t orig_x0;
} __attribute__((preserve_access_index));

/* struct bpf_perf_event_data, include/uapi/linux/bpf_perf_event.h. */
struct bpf_perf_event_data {
	struct arch_user_regs regs;
	uint64_t sample_period;
	uint64_t addr;
};

/* THREAD_SIZE of arch/arm64/include/asm/memory.h, with pages of 4 KiB. */
#define ARCH_SAVED_REGS_AT (16384 - bpf_core_type_size(struct pt_regs___size))
#define ARCH_MODE_32	   0x10 /* PSR_MODE32_BIT */
#define ARCH_MODE	   0x0f /* PSR_MODE_MASK without it; 0 is user space's */

#define arch_is_user(from)     (!((from)->pstate & ARCH_MODE))
#define arch_is_compat32(from) (((from)->pstate & ARCH_MODE_32) != 0)

/* The bit of a page fault's error code that says "a write": arch/arm64/include/asm/esr.h, WNR. */
#define ARCH_FAULT_WRITE 0x40

/* The context of a program must be read field by field. */
static __always_inline void arch_copy_regs(struct arch_regs *to,
					   const struct bpf_perf_event_data *ctx)
{
#pragma clang loop unroll(full)
	for (uint32_t i = 0; i < 31; i++)
		to->regs[i] = ctx->regs.regs[i];
	to->sp = ctx->regs.sp;
	to->ip = ctx->regs.ip;
	to->pstate = ctx->regs.pstate;
	to->number = -1;
}

static __always_inline void arch_start_unwind(struct unwind_state *at, const struct arch_regs *regs)
{
	at->ip = regs->ip;
	at->sp = regs->sp;
	at->fp = regs->regs[ARCH_REG_FP];
	at->context_at = 0;
#pragma clang loop unroll(full)
	for (uint32_t i = 0; i < 31; i++)
		at->regs[i] = regs->regs[i];
	at->regs[ARCH_REG_SP] = regs->sp;
	at->regs_known = 1;
	at->is_return = 0;
	at->third_is = UNWIND_THIRD_UNKNOWN;
	at->sp_is_bound = 0;
}

/* ---- functions of user space ----------------------------------------------------------------- */

/* Registers by the numbers that attach cookies have: those that hold arguments (AAPCS64, 6.8). */
struct arch_numbered {
	uint64_t of[16];
};

static __always_inline struct arch_numbered arch_numbered_of(const struct arch_regs *ctx)
{
	return (struct arch_numbered){ { ctx->regs[0], ctx->regs[1], ctx->regs[2], ctx->regs[3],
					 ctx->regs[4], ctx->regs[5], ctx->regs[6], ctx->regs[7] } };
}

/* The return address of a call that has just been made. */
static __always_inline bool arch_return_of(const struct arch_regs *ctx, uint64_t return_at,
					   uint64_t *ret)
{
	*ret = arch_return_address(ctx->regs[ARCH_REG_RA]);
	return true;
}

/* The registers of the caller, to whom such a call returns at @ip. Those that a function keeps are
 * as they were. */
static __always_inline void arch_start_at_caller(struct unwind_state *at,
						 const struct arch_regs *ctx, uint64_t return_at,
						 uint64_t ip)
{
	at->ip = ip;
	at->sp = return_at;
	at->fp = ctx->regs[ARCH_REG_FP];
	at->context_at = 0;
#pragma clang loop unroll(full)
	for (uint32_t i = 19; i < ARCH_REG_FP; i++)
		at->regs[i] = ctx->regs[i];
	at->regs_known = 1;
	at->is_return = 1;
	at->sp_is_bound = 0;
}

/* ---- system calls -------------------------------------------------------------------------- */

/* As on x86-64. Numbers: include/uapi/asm-generic/unistd.h. */
static __always_inline uint32_t arch_moves_bytes(uint64_t number)
{
	switch (number) {
	case 63:  /* read */
	case 64:  /* write */
	case 65:  /* readv */
	case 66:  /* writev */
	case 67:  /* pread64 */
	case 68:  /* pwrite64 */
	case 69:  /* preadv */
	case 70:  /* pwritev */
	case 71:  /* sendfile */
	case 75:  /* vmsplice */
	case 76:  /* splice */
	case 77:  /* tee */
	case 285: /* copy_file_range */
	case 286: /* preadv2 */
	case 287: /* pwritev2 */
		return PROF_DETAIL_FILE;
	case 206: /* sendto */
	case 207: /* recvfrom */
	case 211: /* sendmsg */
	case 212: /* recvmsg */
	case 243: /* recvmmsg */
	case 269: /* sendmmsg */
		return PROF_DETAIL_SOCKET;
	default:
		return PROF_DETAIL_NONE;
	}
}

static __always_inline uint32_t arch_wait_of_syscall(uint64_t number)
{
	switch (number) {
	case 98:  /* futex */
	case 449: /* futex_waitv */
	case 455: /* futex_wait */
		return PROF_WAIT_FUTEX;
	case 101: /* nanosleep */
	case 115: /* clock_nanosleep */
	case 133: /* rt_sigsuspend */
	case 137: /* rt_sigtimedwait */
		return PROF_WAIT_SLEEP;
	case 202: /* accept */
	case 203: /* connect */
	case 206: /* sendto */
	case 207: /* recvfrom */
	case 211: /* sendmsg */
	case 212: /* recvmsg */
	case 242: /* accept4 */
	case 243: /* recvmmsg */
	case 269: /* sendmmsg */
		return PROF_WAIT_SOCKET;
	case 22:  /* epoll_pwait */
	case 72:  /* pselect6 */
	case 73:  /* ppoll */
	case 441: /* epoll_pwait2 */
		return PROF_WAIT_EPOLL;
	case 81:  /* sync */
	case 82:  /* fsync */
	case 83:  /* fdatasync */
	case 84:  /* sync_file_range */
	case 227: /* msync */
	case 267: /* syncfs */
		return PROF_WAIT_DISK;
	case 95:  /* waitid */
	case 260: /* wait4 */
		return PROF_WAIT_CHILD;
	case 182: /* mq_timedsend */
	case 183: /* mq_timedreceive */
	case 188: /* msgrcv */
	case 189: /* msgsnd */
		return PROF_WAIT_PIPE;
	default:
		return arch_moves_bytes(number) == PROF_DETAIL_FILE ? PROF_WAIT_NONE : PROF_WAIT_OTHER;
	}
}

static __always_inline uint32_t arch_detail_of_syscall(uint64_t number)
{
	switch (number) {
	case 81:  /* sync */
	case 82:  /* fsync */
	case 83:  /* fdatasync */
	case 84:  /* sync_file_range */
	case 227: /* msync */
	case 267: /* syncfs */
		return PROF_DETAIL_SYNC;
	case 426: /* io_uring_enter */
		return PROF_DETAIL_FILE;
	case 32:  /* flock */
	case 188: /* msgrcv */
	case 189: /* msgsnd */
	case 192: /* semtimedop */
	case 193: /* semop */
		return PROF_DETAIL_SEMAPHORE;
	default:
		return arch_moves_bytes(number) == PROF_DETAIL_SOCKET ? PROF_DETAIL_SOCKET : PROF_DETAIL_NONE;
	}
}

static __always_inline bool arch_moves_messages(uint64_t number)
{
	return number == 243 /* recvmmsg */ || number == 269 /* sendmmsg */;
}

static __always_inline bool arch_collects_events(uint64_t number)
{
	return number == 4 /* io_getevents */ || number == 292 /* io_pgetevents */;
}

static __always_inline bool arch_names_file(uint64_t number)
{
	return arch_moves_bytes(number) || number == 82 /* fsync */ || number == 83 /* fdatasync */ ||
	       number == 84 /* sync_file_range */ || number == 267 /* syncfs */;
}

#define arch_is_system_call(from)  ((from)->number >= 0)
#define arch_system_call(from)	   ((uint64_t)(int64_t)(from)->number)
#define arch_ip(from)		   ((from)->ip)
#define arch_sp(from)		   ((from)->sp)
#define arch_result(from)	   ((from)->regs[0])
#define arch_first_argument(from)  ((from)->orig_x0) /* x0 has the result */
#define arch_second_argument(from) ((from)->regs[1])
#define arch_third_argument(from)  ((from)->regs[2])
#define arch_fourth_argument(from) ((from)->regs[3])
#define arch_is_futex(number)	   ((number) == 98)
#define ARCH_POLL		   73 /* ppoll, as which it is called */
#define ARCH_NANOSLEEP		   101
#define ARCH_FUTEX		   98
#define ARCH_MREMAP		   216
#define ARCH_RESTART_SYSCALL	   128
#define ARCH_FUTEX_WAITV	   449
#define ARCH_FUTEX_WAIT		   455

/* How and where the kernel was entered: which system call it is, with its first three
 * arguments. */
struct arch_call {
	uint64_t regs[3];
	uint64_t ip, pstate;
	uint64_t orig_x0;
	int32_t number;
	uint32_t is_known;
};
_Static_assert(sizeof(struct arch_call) - 24 == sizeof(struct arch_regs) - 256, "one copy");

#define arch_call_clear(call)	 ((call)->is_known = 0)
#define arch_call_is_known(call) ((call)->is_known)

/* @regs are the kernel's own. */
static __always_inline void arch_get_call(struct arch_call *call, const struct arch_regs *regs)
{
	call->regs[1] = regs->regs[1];
	call->regs[2] = regs->regs[2];
	call->ip = regs->ip;
	call->pstate = regs->pstate;
	call->orig_x0 = regs->orig_x0;
	call->number = regs->number;
	call->is_known = 1;
}

/* @regs are in memory of the kernel's. False: it could not be read. */
static __always_inline bool arch_read_call(struct arch_call *call, const void *regs)
{
	const struct arch_regs *from = regs;

	if (bpf_probe_read_kernel(call->regs, sizeof(call->regs), from->regs) ||
	    bpf_probe_read_kernel(&call->ip, sizeof(*call) - sizeof(call->regs), &from->ip))
		return false;
	call->is_known = 1;
	return true;
}

#define arch_call_trim(call)

static __always_inline void arch_set_call(struct arch_regs *regs, const struct arch_call *call)
{
	regs->regs[1] = call->regs[1];
	regs->regs[2] = call->regs[2];
	regs->ip = call->ip;
	regs->pstate = call->pstate;
	regs->orig_x0 = call->orig_x0;
	regs->number = call->number;
}

/* tpidr_el0 of @task as it was when it last left a CPU. */
static __always_inline uint64_t arch_thread_pointer(struct task_struct *task)
{
	if (!bpf_core_field_exists(struct thread_struct, uw.tp_value))
		return 0;
	return BPF_CORE_READ(task, thread.uw.tp_value);
}

#endif
