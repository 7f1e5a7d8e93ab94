/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* AArch64 for the unwinder, as arch_x86_64.h. */
#ifndef PROFD_BPF_ARCH_ARM64_H
#define PROFD_BPF_ARCH_ARM64_H

#ifdef __bpf__
#include "bpf/bpf_types.h"
#else
#include <stdbool.h>
#include <stdint.h>
#endif

/* DWARF for the Arm 64-bit Architecture (AADWARF64), table 4: x0 … x30, sp. */
#define ARCH_REG_COUNT 32u
#define ARCH_REG_FP    29u
#define ARCH_REG_RA    30u
#define ARCH_REG_SP    31u
#define ARCH_REG_THIRD 19u /* no rule says where it is */

/* A call leaves the return address in a register, and a frame record (fp, return address) lies
 * anywhere in its frame: it does not tell where the caller's sp is (AAPCS64, 6.4.6). */
#define ARCH_LINK_REGISTER 1
#define ARCH_CALL_PUSHES   0
#define ARCH_RA_UNIT	   8 /* bytes: compilers put the frame record below the local variables */

/* Addresses of code may carry a signature above the 48 bits that user space has unless it asks for
 * more by name (Documentation/arm64/pointer-authentication.rst, memory.rst). */
#define ARCH_CODE_BITS 48
static inline uint64_t arch_return_address(uint64_t word)
{
	return word & ((1ull << ARCH_CODE_BITS) - 1);
}

#define ARCH_MUTEX_BYTES 48u /* of glibc's pthread_mutex_t */

#define ARCH_USER_END  (1ull << 52)
#define ARCH_USUAL_END (1ull << ARCH_CODE_BITS)

/* Thread-local storage is of variant I: variables of the program begin behind the two words at the
 * thread pointer, which lies at the end of the structure that pthread_t points to. */
#define ARCH_TLS_ABOVE	  1
/* Bytes below the stack pointer that a step may read: Go saves its caller's frame pointer there
 * (cmd/internal/obj/arm64/obj7.go). */
#define ARCH_BELOW_SP 8u
#define ARCH_GLIBC_TID_AT 0xd0u

#define ARCH_HAS_HOTSPOT    0 /* bpf/hotspot.bpf.h knows the code of its x86-64 port only */
#define ARCH_HOTSPOT_METHOD 12u
#define ARCH_HOTSPOT_SENDER 19u
#define ARCH_HOTSPOT_RETURN 30u
#define ARCH_HOTSPOT_OLD_SP 19u
#define ARCH_HOTSPOT_TARGET 30u

/* Registers of arguments by number, and a function that begins as allocators do. */
#define ARCH_NUMBERED_KNOWN 0xffu
#define ARCH_NUMBERED_FIRST 0
#define ARCH_MEASURED_FUNCTION                                                                     \
	"	stp x29, x30, [sp, #-16]!\n	ldp x29, x30, [sp], #16\n	ret\n"

/* As in enum perf_event_arm_regs; ARCH_REG_COUNT is the pc. */
#define ARCH_PERF_REGISTERS                                                                        \
	{ 0, 0 }, { 1, 1 }, { 2, 2 }, { 3, 3 }, { 4, 4 }, { 5, 5 }, { 6, 6 }, { 7, 7 },            \
	{ 8, 8 }, { 9, 9 }, { 10, 10 }, { 11, 11 }, { 12, 12 }, { 13, 13 }, { 14, 14 },            \
	{ 15, 15 }, { 16, 16 }, { 17, 17 }, { 18, 18 }, { 19, 19 }, { 20, 20 }, { 21, 21 },        \
	{ 22, 22 }, { 23, 23 }, { 24, 24 }, { 25, 25 }, { 26, 26 }, { 27, 27 }, { 28, 28 },        \
	{ ARCH_REG_FP, ARCH_REG_FP }, { ARCH_REG_RA, ARCH_REG_RA },                                \
	{ ARCH_REG_SP, ARCH_REG_SP }, { 32, ARCH_REG_COUNT }

/* arch/arm64/include/asm/syscall_wrapper.h. */
#define ARCH_CALL_PREFIX "__arm64_sys_"

/* The tracepoint of interrupts among CPUs, one of which runs irq_work. */
#define ARCH_IRQ_WORK_GROUP "ipi"
#define ARCH_IRQ_WORK_EVENT "ipi_entry"

#define ARCH_BYTE_CALLS(CALL)                                                                      \
	CALL(read) CALL(write) CALL(pread64) CALL(pwrite64) CALL(readv) CALL(writev)               \
	CALL(preadv) CALL(pwritev) CALL(preadv2) CALL(pwritev2)                                    \
	CALL(sendfile64) CALL(splice) CALL(tee) CALL(vmsplice) CALL(copy_file_range)               \
	CALL(sendto) CALL(recvfrom) CALL(sendmsg) CALL(recvmsg)
#define ARCH_MESSAGE_CALLS(CALL) CALL(sendmmsg) CALL(recvmmsg)
#define ARCH_EVENT_CALLS(CALL) CALL(io_getevents) CALL(io_pgetevents)

/* struct rt_sigframe of arch/arm64/kernel/signal.c at sp: siginfo (128 bytes) and ucontext, whose
 * uc_mcontext (struct sigcontext) is at 176 and begins with the fault's address. Then x0 … x30,
 * sp, pc. */
#define ARCH_SIGNAL_CONTEXT 312u
#define ARCH_CONTEXT_FP	    232u
#define ARCH_CONTEXT_SP	    248u
#define ARCH_CONTEXT_IP	    256u

static inline uint32_t arch_context_offset(uint32_t reg)
{
	return reg * 8;
}

static inline uint32_t arch_instruction(const uint8_t code[16], uint32_t at)
{
	return (uint32_t)code[at] | (uint32_t)code[at + 1] << 8 | (uint32_t)code[at + 2] << 16 |
	       (uint32_t)code[at + 3] << 24;
}

/* mov x8, #139; svc #0 */
#define ARCH_SIGRETURN_BYTES 8u
static inline bool arch_is_sigreturn(const uint8_t code[16])
{
	return arch_instruction(code, 0) == 0xd2801168 && arch_instruction(code, 4) == 0xd4000001;
}

/* brk, whatever its number: the kernel's uprobes, debuggers and sanitizers have different ones. */
#define ARCH_BREAKPOINT_BYTES 4u
static inline bool arch_is_breakpoint(const uint8_t *code)
{
	return code[3] == 0xd4 && (code[2] & 0xe0) == 0x20 && (code[0] & 0x1f) == 0;
}

#define ARCH_RET  0xd65f03c0u
#define ARCH_PUSH 0xa9bf7bfdu /* stp x29, x30, [sp, #-16]! */
#define ARCH_POP  0xa8c17bfdu /* ldp x29, x30, [sp], #16 */

/* Code that does nothing more than return to its caller: ldp x29, x30, [sp], #16; ret. */
#define ARCH_RETURN_BYTES 8u
static inline bool arch_is_return(const uint8_t code[16], uint32_t *ret_skip, bool *ret_pops_fp)
{
	*ret_skip = 0;
	*ret_pops_fp = true;
	return arch_instruction(code, 0) == ARCH_POP && arch_instruction(code, 4) == ARCH_RET;
}

/* Code that keeps frame pointers, at a pc where its frame is not there: stp x29, x30, [sp, #-16]!
 * to come, or ret. */
static inline bool arch_is_frameless(const uint8_t code[16], uint32_t *ret_pushed)
{
	uint32_t word = arch_instruction(code, 0);

	*ret_pushed = 0;
	return word == ARCH_PUSH || word == ARCH_RET;
}

#endif
