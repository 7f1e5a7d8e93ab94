/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* x86-64 for the unwinder: DWARF register numbers, the kernel's signal frame, the signal
 * trampoline. The only place under bpf/ (with arch_x86_64.bpf.h for the kernel's own register
 * layout) that names a register. Compiles for BPF and for the host. */
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

/* A call pushes the return address, and a frame record (fp, return address) ends its frame. */
#define ARCH_LINK_REGISTER 0
#define ARCH_REG_RA	   0u /* in none */
#define ARCH_CALL_PUSHES   8
#define ARCH_RA_UNIT	   1 /* bytes of one in struct unwind_rule */

/* A return address as it is on the stack is the address. */
static inline uint64_t arch_return_address(uint64_t word)
{
	return word;
}

/* The registers in which HotSpot keeps, where a frame is incomplete: the method, the caller's sp,
 * the return address on its way, the sp and the code to go on with. */
#define ARCH_HAS_HOTSPOT    1
#define ARCH_HOTSPOT_METHOD ARCH_REG_RBX
#define ARCH_HOTSPOT_SENDER 13u
#define ARCH_HOTSPOT_RETURN ARCH_REG_RAX
#define ARCH_HOTSPOT_OLD_SP 11u
#define ARCH_HOTSPOT_TARGET ARCH_REG_RDI

/* Registers of arguments by the numbers that instructions have: those of arch_numbered_of(), and
 * the first argument's. A function that begins as allocators do. */
#define ARCH_NUMBERED_KNOWN    0x3efu /* rax rcx rdx rbx rbp rsi rdi r8 r9 */
#define ARCH_NUMBERED_FIRST    7
#define ARCH_MEASURED_FUNCTION "	push %rbx\n	mov %rdi, %rax\n	pop %rbx\n	ret\n"

/* {Its number in enum perf_event_x86_regs, that of DWARF}, ascending; ARCH_REG_COUNT is the pc. */
#define ARCH_PERF_REGISTERS                                                                        \
	{ 0, ARCH_REG_RAX }, { 1, ARCH_REG_RBX }, { 2, ARCH_REG_RCX }, { 3, ARCH_REG_RDX },        \
	{ 4, ARCH_REG_RSI }, { 5, ARCH_REG_RDI }, { 6, ARCH_REG_FP }, { 7, ARCH_REG_SP },          \
	{ 8, ARCH_REG_COUNT }, { 16, 8 }, { 17, 9 }, { 18, 10 }, { 19, 11 }, { 20, 12 },           \
	{ 21, 13 }, { 22, 14 }, { 23, 15 }

/* Does the code at @code begin with a breakpoint? int3 */
#define ARCH_BREAKPOINT_BYTES 1u
static inline bool arch_is_breakpoint(const uint8_t *code)
{
	return code[0] == 0xcc;
}

/* The prefix of the kernel's function of a system call: arch/x86/include/asm/syscall_wrapper.h. */
#define ARCH_CALL_PREFIX "__x64_sys_"

/* The tracepoint of the interrupt that runs irq_work. */
#define ARCH_IRQ_WORK_GROUP "irq_vectors"
#define ARCH_IRQ_WORK_EVENT "irq_work_entry"

/* The calls that arch_moves_bytes(), by the names that follow it; each function takes the saved
 * registers. A call that moves messages returns how many. fs/read_write.c, fs/splice.c,
 * net/socket.c. */
#define ARCH_BYTE_CALLS(CALL)                                                                      \
	CALL(read) CALL(write) CALL(pread64) CALL(pwrite64) CALL(readv) CALL(writev)               \
	CALL(preadv) CALL(pwritev) CALL(preadv2) CALL(pwritev2)                                    \
	CALL(sendfile64) CALL(splice) CALL(tee) CALL(vmsplice) CALL(copy_file_range)               \
	CALL(sendto) CALL(recvfrom) CALL(sendmsg) CALL(recvmsg)
#define ARCH_MESSAGE_CALLS(CALL) CALL(sendmmsg) CALL(recvmmsg)
#define ARCH_EVENT_CALLS(CALL) CALL(io_getevents) CALL(io_pgetevents)

#define ARCH_MUTEX_BYTES 40u /* of glibc's pthread_mutex_t */

/* User addresses end below 2^56 with five-level page tables; everything above is the kernel's. What
 * a program gets without asking for high addresses ends below ARCH_USUAL_END. */
#define ARCH_USER_END  (1ull << 56)
#define ARCH_USUAL_END (1ull << 47)

/* The ELF specification's layout of thread-local storage is variant II: variables of the program
 * end at the thread pointer, which is glibc's and musl's pthread_t. */
#define ARCH_TLS_ABOVE 0
#define ARCH_BELOW_SP 0u /* bytes below the stack pointer that a step may read */
/* The thread's number in glibc's struct pthread: nptl/descr.h, tid. */
#define ARCH_GLIBC_TID_AT 0x2d0u

/* struct rt_sigframe of arch/x86/include/asm/sigframe.h: the handler's return has popped pretcode,
 * so sp points at struct ucontext; uc_mcontext (struct sigcontext_64) follows 40 bytes later. */
#define ARCH_SIGNAL_CONTEXT 40u
#define ARCH_CONTEXT_FP	    80u	 /* bp */
#define ARCH_CONTEXT_SP	    120u /* sp */
#define ARCH_CONTEXT_IP	    128u

/* The offset of DWARF register @reg in sigcontext_64 (r8 … r15 di si bp bx dx ax cx sp ip), in
 * bytes. The word numbers of registers 7 to 0 are in one constant, so that BPF needs no table
 * in memory. */
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

/* Code that does nothing more than return to its caller: add $imm8, %rsp (or none); pop %rbp (or
 * not); ret. Such is what runtimes put between a call and what is called (CPython's
 * Python/asm_trampoline.S). @ret_skip: bytes of stack before the popped word or the return address.
 */
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

/* Code that keeps frame pointers, at a pc where its frame is not there: push %rbp; mov %rsp, %rbp
 * to come, or ret. @ret_pushed: 1 if the caller's frame pointer was pushed already, else 0. */
static inline bool arch_is_frameless(const uint8_t code[16], uint32_t *ret_pushed)
{
	bool moves = code[0] == 0x48 && code[1] == 0x89 && code[2] == 0xe5;

	*ret_pushed = moves;
	return moves || code[0] == 0xc3 || code[0] == 0xc2 ||
	       (code[0] == 0x55 && code[1] == 0x48 && code[2] == 0x89 && code[3] == 0xe5);
}

#endif
