/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The kernel's saved registers on x86-64, and what they say. BPF only. */
#ifndef PROFD_BPF_ARCH_X86_64_BPF_H
#define PROFD_BPF_ARCH_X86_64_BPF_H

#include <bpf/bpf_core_read.h>

#include "bpf/profiler.h"
#include "bpf/unwind_step.h"

/* struct pt_regs, include/uapi/asm/ptrace.h: kernel ABI, also the context of perf_event programs.
 */
struct arch_regs {
	uint64_t r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	uint64_t orig_ax; /* system-call number, -1 if entered otherwise */
	uint64_t ip, cs, flags, sp, ss;
};

/* struct bpf_perf_event_data, include/uapi/linux/bpf_perf_event.h. */
struct bpf_perf_event_data {
	struct arch_regs regs;
	uint64_t sample_period;
	uint64_t addr;
};

/* Bytes from the lower end of a kernel stack to the registers that were saved as the kernel was
 * entered: THREAD_SIZE of arch/x86/include/asm/page_64_types.h. */
#define ARCH_SAVED_REGS_AT (16384 - sizeof(struct arch_regs))
#define ARCH_CS_COMPAT32 0x23 /* __USER32_CS */

#define arch_is_user(regs)     (((regs)->cs & 3) == 3)
#define arch_is_compat32(regs) ((regs)->cs == ARCH_CS_COMPAT32)

/* The bit of a page fault's error code that says "a write": X86_PF_WRITE of
 * arch/x86/include/asm/trap_pf.h. */
#define ARCH_FAULT_WRITE 2

/* The context of a program must be read field by field. */
static __always_inline void arch_copy_regs(struct arch_regs *to,
					   const struct bpf_perf_event_data *ctx)
{
	to->r15 = ctx->regs.r15;
	to->r14 = ctx->regs.r14;
	to->r13 = ctx->regs.r13;
	to->r12 = ctx->regs.r12;
	to->bp = ctx->regs.bp;
	to->bx = ctx->regs.bx;
	to->r11 = ctx->regs.r11;
	to->r10 = ctx->regs.r10;
	to->r9 = ctx->regs.r9;
	to->r8 = ctx->regs.r8;
	to->ax = ctx->regs.ax;
	to->cx = ctx->regs.cx;
	to->dx = ctx->regs.dx;
	to->si = ctx->regs.si;
	to->di = ctx->regs.di;
	to->orig_ax = ctx->regs.orig_ax;
	to->ip = ctx->regs.ip;
	to->cs = ctx->regs.cs;
	to->sp = ctx->regs.sp;
}

static __always_inline void arch_start_unwind(struct unwind_state *at, const struct arch_regs *regs)
{
	at->ip = regs->ip;
	at->sp = regs->sp;
	at->fp = regs->bp;
	at->context_at = 0;
	at->regs[ARCH_REG_RAX] = regs->ax;
	at->regs[ARCH_REG_RDX] = regs->dx;
	at->regs[ARCH_REG_RCX] = regs->cx;
	at->regs[ARCH_REG_RBX] = regs->bx;
	at->regs[ARCH_REG_RSI] = regs->si;
	at->regs[ARCH_REG_RDI] = regs->di;
	at->regs[8] = regs->r8;
	at->regs[9] = regs->r9;
	at->regs[10] = regs->r10;
	at->regs[11] = regs->r11;
	at->regs[12] = regs->r12;
	at->regs[13] = regs->r13;
	at->regs[14] = regs->r14;
	at->regs[15] = regs->r15;
	at->regs_known = 1;
	at->is_return = 0;
	at->third_is = UNWIND_THIRD_UNKNOWN;
}

/* ---- functions of user space ----------------------------------------------------------------- */

/* Registers by the numbers that attach cookies have: those that hold arguments. A table, as the
 * context must be read at constant offsets, and choosing among nine loads would give the verifier
 * nine ways to follow to the end. */
struct arch_numbered {
	uint64_t of[16];
};

static __always_inline struct arch_numbered arch_numbered_of(const struct arch_regs *ctx)
{
	return (struct arch_numbered){ { ctx->ax, ctx->cx, ctx->dx, ctx->bx, 0, ctx->bp, ctx->si,
					 ctx->di, ctx->r8, ctx->r9 } };
}

/* The return address of a call from which only @return_at - sp bytes have been pushed. False: it
 * could not be read. */
static __always_inline bool arch_return_of(const struct arch_regs *ctx, uint64_t return_at,
					   uint64_t *ret)
{
	return !bpf_probe_read_user(ret, sizeof(*ret), (void *)return_at);
}

/* The registers of the caller, to whom such a call returns at @ip. Those that a function keeps are
 * as they were. */
static __always_inline void arch_start_at_caller(struct unwind_state *at,
						 const struct arch_regs *ctx, uint64_t return_at,
						 uint64_t ip)
{
	at->ip = ip;
	at->sp = return_at + ARCH_CALL_PUSHES;
	at->fp = ctx->bp;
	at->context_at = 0;
	at->regs[ARCH_REG_RBX] = ctx->bx;
	at->regs[12] = ctx->r12;
	at->regs[13] = ctx->r13;
	at->regs[14] = ctx->r14;
	at->regs[15] = ctx->r15;
	at->regs_known = 1;
	at->is_return = 1;
}

/* ---- system calls -------------------------------------------------------------------------- */

/* Does this system call return how many bytes, or arch_moves_messages(), it has moved? FILE where
 * the kind depends on the file. */
static __always_inline uint32_t arch_moves_bytes(uint64_t number)
{
	switch (number) {
	case 0:	  /* read */
	case 1:	  /* write */
	case 17:  /* pread64 */
	case 18:  /* pwrite64 */
	case 19:  /* readv */
	case 20:  /* writev */
	case 40:  /* sendfile */
	case 275: /* splice */
	case 276: /* tee */
	case 278: /* vmsplice */
	case 295: /* preadv */
	case 296: /* pwritev */
	case 326: /* copy_file_range */
	case 327: /* preadv2 */
	case 328: /* pwritev2 */
		return PROF_DETAIL_FILE;
	case 44:  /* sendto */
	case 45:  /* recvfrom */
	case 46:  /* sendmsg */
	case 47:  /* recvmsg */
	case 299: /* recvmmsg */
	case 307: /* sendmmsg */
		return PROF_DETAIL_SOCKET;
	default:
		return PROF_DETAIL_NONE;
	}
}

/* The wait of a blocked system call; PROF_WAIT_NONE: it depends on the file in its first argument
 * (arch_first_argument). Numbers: arch/x86/entry/syscalls/syscall_64.tbl. */
static __always_inline uint32_t arch_wait_of_syscall(uint64_t number)
{
	switch (number) {
	case 202: /* futex */
	case 449: /* futex_waitv */
	case 455: /* futex_wait */
		return PROF_WAIT_FUTEX;
	case 34:  /* pause */
	case 35:  /* nanosleep */
	case 128: /* rt_sigtimedwait */
	case 130: /* rt_sigsuspend */
	case 230: /* clock_nanosleep */
		return PROF_WAIT_SLEEP;
	case 42:  /* connect */
	case 43:  /* accept */
	case 44:  /* sendto */
	case 45:  /* recvfrom */
	case 46:  /* sendmsg */
	case 47:  /* recvmsg */
	case 288: /* accept4 */
	case 299: /* recvmmsg */
	case 307: /* sendmmsg */
		return PROF_WAIT_SOCKET;
	case 7:	  /* poll */
	case 23:  /* select */
	case 232: /* epoll_wait */
	case 270: /* pselect6 */
	case 271: /* ppoll */
	case 281: /* epoll_pwait */
	case 441: /* epoll_pwait2 */
		return PROF_WAIT_EPOLL;
	case 26:  /* msync */
	case 74:  /* fsync */
	case 75:  /* fdatasync */
	case 162: /* sync */
	case 277: /* sync_file_range */
	case 306: /* syncfs */
		return PROF_WAIT_DISK;
	case 58:  /* vfork */
	case 61:  /* wait4 */
	case 247: /* waitid */
		return PROF_WAIT_CHILD;
	case 69:  /* msgsnd */
	case 70:  /* msgrcv */
	case 242: /* mq_timedsend */
	case 243: /* mq_timedreceive */
		return PROF_WAIT_PIPE;
	default:
		return arch_moves_bytes(number) == PROF_DETAIL_FILE ? PROF_WAIT_NONE : PROF_WAIT_OTHER;
	}
}

/* The detail of a system call whose wait is known by its number; FILE where it depends on the file.
 */
static __always_inline uint32_t arch_detail_of_syscall(uint64_t number)
{
	switch (number) {
	case 26:  /* msync */
	case 74:  /* fsync */
	case 75:  /* fdatasync */
	case 162: /* sync */
	case 277: /* sync_file_range */
	case 306: /* syncfs */
		return PROF_DETAIL_SYNC;
	case 426: /* io_uring_enter */
		return PROF_DETAIL_FILE;
	case 65:  /* semop */
	case 69:  /* msgsnd */
	case 70:  /* msgrcv */
	case 73:  /* flock */
	case 220: /* semtimedop */
		return PROF_DETAIL_SEMAPHORE;
	default:
		return arch_moves_bytes(number) == PROF_DETAIL_SOCKET ? PROF_DETAIL_SOCKET : PROF_DETAIL_NONE;
	}
}

/* Its number is one of messages (struct mmsghdr), which lie in the memory at its second argument.
 */
static __always_inline bool arch_moves_messages(uint64_t number)
{
	return number == 299 /* recvmmsg */ || number == 307 /* sendmmsg */;
}

/* It returns the number of events of Linux AIO (struct io_event) in the memory at its fourth
 * argument. */
static __always_inline bool arch_collects_events(uint64_t number)
{
	return number == 208 /* io_getevents */ || number == 333 /* io_pgetevents */;
}

/* Is the first argument of this system call, which may wait for I/O, the file or socket? */
static __always_inline bool arch_names_file(uint64_t number)
{
	return arch_moves_bytes(number) || number == 74 /* fsync */ || number == 75 /* fdatasync */ ||
	       number == 277 /* sync_file_range */ || number == 306 /* syncfs */;
}

/* The kernel was entered by a fault or an interrupt (arch/x86/entry: ORIG_RAX is set to -1). */
#define arch_is_system_call(regs) ((int64_t)(regs)->orig_ax >= 0)
#define arch_system_call(regs)	  ((regs)->orig_ax)
#define arch_ip(regs)		  ((regs)->ip)
#define arch_sp(regs)		  ((regs)->sp)
#define arch_result(regs)	  ((regs)->ax)
#define arch_first_argument(regs) ((regs)->di)
#define arch_second_argument(regs) ((regs)->si)
#define arch_third_argument(regs)  ((regs)->dx)
#define arch_fourth_argument(regs) ((regs)->r10)
#define arch_is_futex(number)	  ((number) == 202)
#define ARCH_POLL		  7
#define ARCH_NANOSLEEP		  35
#define ARCH_FUTEX		  202
#define ARCH_MREMAP		  25
#define ARCH_RESTART_SYSCALL	  219
#define ARCH_FUTEX_WAITV	  449
#define ARCH_FUTEX_WAIT		  455

/* The part of the saved registers that says how and where the kernel was entered: which system call
 * it is, with its first three arguments; they lie together. */
struct arch_call {
	uint64_t dx, si, di, orig_ax, ip, cs;
};
#define ARCH_CALL_AT __builtin_offsetof(struct arch_regs, dx)

/* Not known, or not from user space. */
#define arch_call_clear(call)	 ((call)->cs = 0)
#define arch_call_is_known(call) ((call)->cs)

/* @regs are the kernel's own. The upper part of cs is another field in newer kernels (6.9). */
static __always_inline void arch_get_call(struct arch_call *call, const struct arch_regs *regs)
{
	call->dx = regs->dx;
	call->si = regs->si;
	call->di = regs->di;
	call->orig_ax = regs->orig_ax;
	call->ip = regs->ip;
	call->cs = *(const volatile uint16_t *)&regs->cs;
}

#define arch_call_trim(call) ((call)->cs = (uint16_t)(call)->cs)

/* @regs are in memory of the kernel's. False: it could not be read. */
static __always_inline bool arch_read_call(struct arch_call *call, const void *regs)
{
	return !bpf_probe_read_kernel(call, sizeof(*call), (const char *)regs + ARCH_CALL_AT);
}

static __always_inline void arch_set_call(struct arch_regs *regs, const struct arch_call *call)
{
	regs->dx = call->dx;
	regs->si = call->si;
	regs->di = call->di;
	regs->orig_ax = call->orig_ax;
	regs->ip = call->ip;
	regs->cs = call->cs;
}

/* The address of @task's thread-local storage: the fs base as user space last set it through the
 * kernel. */
static __always_inline uint64_t arch_thread_pointer(struct task_struct *task)
{
	/* Without the field only threads of interpreters are not told apart: no reason to refuse all. */
	if (!bpf_core_field_exists(struct thread_struct, fsbase))
		return 0;
	return BPF_CORE_READ(task, thread.fsbase);
}

#endif
