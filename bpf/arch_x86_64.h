/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* x86-64 for the unwinder: DWARF register numbers, the kernel's signal frame, the signal trampoline.
 * The only place under bpf/ (with arch_x86_64.bpf.h for the kernel's own register layout) that
 * names a register. Compiles for BPF and for the host. */
#ifndef PROFD_BPF_ARCH_X86_64_H
#define PROFD_BPF_ARCH_X86_64_H

#ifdef __bpf__
#include "bpf/bpf_types.h"
#else
#include <stdbool.h>
#include <stdint.h>
#endif

/* System V psABI for x86-64, figure 3.36 "DWARF Register Number Mapping": rax rdx rcx rbx rsi rdi
 * rbp rsp r8 … r15. */
#define ARCH_REG_COUNT 16u
#define ARCH_REG_RAX   0u
#define ARCH_REG_RDX   1u
#define ARCH_REG_RCX   2u
#define ARCH_REG_RBX   3u
#define ARCH_REG_RSI   4u
#define ARCH_REG_RDI   5u
#define ARCH_REG_FP    6u /* rbp */
#define ARCH_REG_SP    7u /* rsp */
#define ARCH_REG_R8    8u
#define ARCH_REG_THIRD ARCH_REG_RBX /* followed where unwind rules say where it is saved */

/* What the kernel calls its function of a system call, before the name: arch/x86/include/asm/syscall_wrapper.h. */
#define ARCH_CALL_PREFIX "__x64_sys_"

/* The calls that arch_moves_bytes(), by the names that follow it; each function takes the saved registers. A call that
 * moves messages returns how many. fs/read_write.c, fs/splice.c, net/socket.c. */
#define ARCH_BYTE_CALLS(CALL)                                                                      \
	CALL(read) CALL(write) CALL(pread64) CALL(pwrite64) CALL(readv) CALL(writev)               \
	CALL(preadv) CALL(pwritev) CALL(preadv2) CALL(pwritev2)                                    \
	CALL(sendfile64) CALL(splice) CALL(tee) CALL(vmsplice) CALL(copy_file_range)               \
	CALL(sendto) CALL(recvfrom) CALL(sendmsg) CALL(recvmsg)
#define ARCH_MESSAGE_CALLS(CALL) CALL(sendmmsg) CALL(recvmmsg)
#define ARCH_EVENT_CALLS(CALL) CALL(io_getevents) CALL(io_pgetevents)

/* User addresses end below 2^56 with five-level page tables; everything above is the kernel's. */
#define ARCH_USER_END (1ull << 56)

/* struct rt_sigframe of arch/x86/include/asm/sigframe.h: the handler's return has popped pretcode,
 * so sp points at struct ucontext; uc_mcontext (struct sigcontext_64) follows 40 bytes later. */
#define ARCH_SIGNAL_CONTEXT 40u
#define ARCH_CONTEXT_FP	    80u	 /* bp */
#define ARCH_CONTEXT_SP	    120u /* sp */
#define ARCH_CONTEXT_IP	    128u

/* Where sigcontext_64 (r8 … r15 di si bp bx dx ax cx sp ip) keeps DWARF register @reg, in bytes.
 * The word numbers of registers 7 … 0 are packed in one constant, so that BPF needs no table in
 * memory. */
static inline uint32_t arch_context_offset(uint32_t reg)
{
	const uint64_t low = 0x0f0a08090b0e0c0dull; /* sp bp di si bx cx dx ax */

	if (reg >= ARCH_REG_R8)
		return (reg - ARCH_REG_R8) * 8;
	return (uint32_t)(low >> (reg * 8) & 0xff) * 8;
}

/* The signal trampoline: mov $15, %rax (or %eax); syscall. True for its first bytes. */
#define ARCH_SIGRETURN_BYTES 9u
static inline bool arch_is_sigreturn(const uint8_t code[16])
{
	if (code[0] == 0x48 && code[1] == 0xc7 && code[2] == 0xc0)
		return code[3] == 15 && !code[4] && !code[5] && !code[6] && code[7] == 0x0f &&
		       code[8] == 0x05;
	return code[0] == 0xb8 && code[1] == 15 && !code[2] && !code[3] && !code[4] &&
	       code[5] == 0x0f && code[6] == 0x05;
}

/* Code that does nothing more than return to its caller: add $imm8, %rsp (or none); pop %rbp (or not); ret. Such is
 * what runtimes put between a call and what is called (CPython's Python/asm_trampoline.S). @ret_skip: bytes of stack
 * before the popped word or the return address. */
#define ARCH_RETURN_BYTES 6u
static inline bool arch_is_return(const uint8_t code[16], uint32_t *ret_skip, bool *ret_pops_fp)
{
	if (code[0] == 0x48 && code[1] == 0x83 && code[2] == 0xc4 && code[3] < 0x80) {
		*ret_skip = code[3];
		*ret_pops_fp = code[4] == 0x5d;
		return code[4] == 0xc3 || (code[4] == 0x5d && code[5] == 0xc3);
	}
	*ret_skip = 0;
	*ret_pops_fp = code[0] == 0x5d;
	return code[0] == 0xc3 || (code[0] == 0x5d && code[1] == 0xc3);
}

#endif
