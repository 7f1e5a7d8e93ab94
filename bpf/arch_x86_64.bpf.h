/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The kernel's saved registers on x86-64, and what they say. BPF only. */
#ifndef PROFD_BPF_ARCH_X86_64_BPF_H
#define PROFD_BPF_ARCH_X86_64_BPF_H

#include "bpf/unwind_step.h"

/* struct pt_regs, include/uapi/asm/ptrace.h: kernel ABI, also the context of perf_event programs. */
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
}

#endif
