/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The kernel's saved registers on x86-64, and what they say. BPF only. */
#ifndef PROFD_BPF_ARCH_X86_64_BPF_H
#define PROFD_BPF_ARCH_X86_64_BPF_H

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

#define ARCH_CS_COMPAT32 0x23 /* __USER32_CS */

#define arch_is_user(regs)     (((regs)->cs & 3) == 3)
#define arch_is_compat32(regs) ((regs)->cs == ARCH_CS_COMPAT32)

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

/* ---- system calls -------------------------------------------------------------------------- */

/* Does this system call return how many bytes, or arch_moves_messages(), it has moved? FILE where the kind depends
 * on the file. */
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

/* What a blocked system call waits for; PROF_WAIT_NONE: it depends on the file in its first
 * argument (arch_first_argument). Numbers: arch/x86/entry/syscalls/syscall_64.tbl. */
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

/* Of a system call whose wait is known by its number. FILE where it depends on the file. */
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

/* Its number is one of messages (struct mmsghdr), which lie in the memory at its second argument. */
static __always_inline bool arch_moves_messages(uint64_t number)
{
	return number == 299 /* recvmmsg */ || number == 307 /* sendmmsg */;
}

/* It returns the number of events of Linux AIO (struct io_event) in the memory at its fourth argument. */
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

/* Does this futex call wait for a lock? include/uapi/linux/futex.h: the operation without its flags
 * is 0 WAIT, 9 WAIT_BITSET, 6 LOCK_PI, 13 LOCK_PI2. A wait for a lock expects the value that says
 * "locked, with waiters": 2 in glibc, musl, Rust and Go, FUTEX_WAITERS | tid in robust mutexes, 3
 * (with WAIT_BITSET) in glibc's read-write locks. Conditions, joins and semaphores expect others. */
static __always_inline bool arch_is_lock_wait(uint64_t operation, uint64_t expected)
{
	uint32_t command = operation & 127, value = (uint32_t)expected;

	if (command == 6 || command == 13)
		return true;
	if (command != 0 && command != 9)
		return false;
	return value == 2 || value >> 31 || (command == 9 && value == 3);
}

/* Where a lock says who holds it: the tid itself, or an offset from the futex in bytes. */
struct arch_lock_wait {
	uint32_t owner;
	uint32_t owner_at;
	uint32_t or_next; /* 1: if there is none, in the next word */
};

#define FUTEX_TID_MASK 0x3fffffffu /* include/uapi/linux/futex.h: of PI and robust futexes */

/* @operation and @expected of a wait for a lock. PI and robust futexes hold the owner's tid themselves.
 * glibc (sysdeps/nptl/bits/struct_mutex.h, struct_rwlock.h of x86): a mutex has __lock, __count, __owner;
 * a read-write lock __wrphase_futex at 8, __writers_futex at 12, __cur_writer at 24, and zeros between. */
static __always_inline struct arch_lock_wait arch_lock_owner(uint64_t operation, uint64_t expected)
{
	uint32_t command = operation & 127, value = (uint32_t)expected;

	if (command == 6 || command == 13)
		return (struct arch_lock_wait){ .owner_at = 0 };
	if (value >> 31)
		return (struct arch_lock_wait){ .owner = value & FUTEX_TID_MASK };
	if (command == 9 && value == 3)
		return (struct arch_lock_wait){ .owner_at = 12, .or_next = 1 };
	return (struct arch_lock_wait){ .owner_at = 8 };
}

/* The kernel was entered by a fault or an interrupt (arch/x86/entry: ORIG_RAX is set to -1). */
#define arch_is_system_call(regs) ((int64_t)(regs)->orig_ax >= 0)
#define arch_system_call(regs)	  ((regs)->orig_ax)
#define arch_first_argument(regs) ((regs)->di)
#define arch_second_argument(regs) ((regs)->si)
#define arch_fourth_argument(regs) ((regs)->r10)
#define arch_is_futex(number)	  ((number) == 202)
#define ARCH_POLL		  7
#define ARCH_NANOSLEEP		  35
#define ARCH_FUTEX		  202
#define ARCH_RESTART_SYSCALL	  219
#define ARCH_FUTEX_WAITV	  449
#define ARCH_FUTEX_WAIT		  455

/* The part of the saved registers that says how and where the kernel was entered: which system call it is, with its
 * first three arguments; they lie together. */
struct arch_call {
	uint64_t dx, si, di, orig_ax, ip, cs;
};
#define ARCH_CALL_AT __builtin_offsetof(struct arch_regs, dx)

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

static __always_inline void arch_set_call(struct arch_regs *regs, const struct arch_call *call)
{
	regs->dx = call->dx;
	regs->si = call->si;
	regs->di = call->di;
	regs->orig_ax = call->orig_ax;
	regs->ip = call->ip;
	regs->cs = call->cs;
}

#endif
