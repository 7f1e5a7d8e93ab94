/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Frames in code that HotSpot has generated: pure, also compiled for the host. The includer defines
 * UNWIND_READ as for bpf/unwind_step.h.
 *
 * Java frames lie on the native stack, so the walk needs no second chain: a pc in a code heap is
 * stepped by what HotSpot itself knows of that code. The segment map leads to the blob that holds
 * the pc, and the blob says how large its frame is. The interpreter's frames have their words at
 * fixed places below the frame pointer. The caller of a compiled method, and of a method that is
 * entered, is Java code or the call stub: an address outside of the heaps is none. */
#ifndef PROFD_BPF_HOTSPOT_BPF_H
#define PROFD_BPF_HOTSPOT_BPF_H

#include "bpf/profiler.h"
#include "bpf/script.h"
#include "bpf/unwind_step.h"

#define HOTSPOT_BLOB_BYTES   352u /* read of a blob at once: every field of the largest, JDK 11's */
#define HOTSPOT_BLOB_WORDS   64u
#define HOTSPOT_FRAME_WORDS  16u /* of an interpreter's frame; the rest is for the verifier */
#define HOTSPOT_FRAME_BYTES  80u
#define HOTSPOT_HOPS_MAX     8u /* of the segment map: 256 KiB of code */
#define HOTSPOT_FREE	     0xffu
#define HOTSPOT_LOCALS_BYTES 0x2000u /* that a method may push before it has a frame */
#define HOTSPOT_STUB_BYTES   0x400u  /* of a stub's frame */
#define HOTSPOT_FRAME_MAX    (1u << 20)
#define HOTSPOT_CODE_BEFORE  24u /* bytes of code that are read before the pc, and from it on */
#define HOTSPOT_CODE_BYTES   32u
#define HOTSPOT_CODE_ROOM    96u /* the rest is for the verifier */
#define HOTSPOT_ADAPTER	     0x204932432f433249ull /* "I2C/C2I " */
#define HOTSPOT_PASSES_MAX   6u	 /* instructions from the end of a frame to the return */

/* The walk's copy of the facts, what it has read of the frame at hand, and what it remembers of the
 * frames before. The thread stands while its stack is walked, and methods and code that are on a
 * stack stay what they are. So a recursion costs one read a frame. Addresses are 0 when a walk
 * begins: nothing is remembered. */
struct hotspot_walk {
	struct script_hotspot facts;
	uint64_t blob[HOTSPOT_BLOB_WORDS];
	uint64_t frame[HOTSPOT_FRAME_WORDS];
	uint8_t code[HOTSPOT_CODE_ROOM];
	uint8_t made_bytes[SCRIPT_HOTSPOT_MADE_BYTES + 8]; /* begin of a ConstMethod; the rest is
							    * for the verifier */
	uint64_t blob_ip, blob_begin; /* the return address that `blob` was found by */
	uint64_t method, made;	      /* Method of the last interpreted frame, its ConstMethod */
	uint64_t pool, class_symbol;  /* its ConstantPool; the Symbol of its class */
	uint32_t code_bytes, cookie;
	/* Place of the instruction at hand in code[]; what hotspot_has_left() found. They are volatile,
	 * so that the verifier does not tell apart which instructions came before. */
	volatile uint32_t code_at, popped, has_left;
	uint32_t stepped;     /* this walk has left a frame of HotSpot's */
	uint32_t is_doubtful; /* the return address at hand is one if a call is before it */
};

UNWIND_INLINE void hotspot_forget(struct hotspot_walk *w)
{
	w->blob_ip = 0;
	w->method = 0;
	w->pool = 0;
	w->stepped = 0;
	w->is_doubtful = 0;
}

UNWIND_INLINE uint64_t hotspot_word(const struct hotspot_walk *w, uint32_t offset)
{
	return w->blob[offset / 8 & (HOTSPOT_BLOB_WORDS - 1)];
}

UNWIND_INLINE uint32_t hotspot_u32(const struct hotspot_walk *w, uint32_t offset)
{
	return (uint32_t)(hotspot_word(w, offset) >> (offset & 4) * 8);
}

/* The heap that @ip lies in; SCRIPT_HOTSPOT_HEAPS = none. */
UNWIND_INLINE uint32_t hotspot_heap(const struct script_hotspot *h, uint64_t ip)
{
	uint64_t ret = SCRIPT_HOTSPOT_HEAPS;

#ifdef __bpf__
#pragma clang loop unroll(full)
#endif
	for (uint32_t i = 0; i < SCRIPT_HOTSPOT_HEAPS; i++)
		ret -= (ret - i) & -script_is_within(ip, h->heaps[i].start, h->heaps[i].end);
	return (uint32_t)ret;
}

UNWIND_INLINE bool hotspot_is_code(const struct script_hotspot *h, uint64_t ip)
{
	return hotspot_heap(h, ip) < SCRIPT_HOTSPOT_HEAPS;
}

UNWIND_INLINE bool hotspot_is_address(uint64_t address)
{
	return address >= 4096 && !(address & 7) && address < ARCH_USER_END;
}

UNWIND_INLINE void hotspot_words(uint64_t words[2], uint32_t frame, uint64_t pointer,
				 uint64_t position, uint32_t cookie)
{
	words[0] = (uint64_t)PROF_FRAME_SCRIPT << SCRIPT_WORD_KIND_SHIFT |
		   (uint64_t)SCRIPT_HOTSPOT << SCRIPT_RUNTIME_SHIFT |
		   (uint64_t)frame << SCRIPT_HOTSPOT_FRAME_SHIFT |
		   (pointer & SCRIPT_HOTSPOT_POINTER_MASK);
	words[1] = (uint64_t)PROF_FRAME_SCRIPT_AT << SCRIPT_WORD_KIND_SHIFT |
		   (position & SCRIPT_POSITION_MASK) << SCRIPT_POSITION_SHIFT | cookie;
}

UNWIND_INLINE bool hotspot_word_is_stub(uint64_t a)
{
	return (a >> SCRIPT_HOTSPOT_FRAME_SHIFT & 15) == SCRIPT_HOTSPOT_STUB;
}

UNWIND_INLINE int hotspot_leave(struct unwind_state *at, uint64_t sp, uint64_t ip, uint64_t fp)
{
	if (!ip)
		return UNWIND_FINISHED;
	if (sp <= at->sp || sp >= ARCH_USER_END)
		return UNWIND_NO_PROGRESS;
	unwind_to_caller(at, sp, ip, fp);
	at->third_is = UNWIND_THIRD_UNKNOWN;
	return UNWIND_STEPPED;
}

/* Reads the code around the pc of a frame that nobody called out of. */
UNWIND_INLINE int hotspot_read_code(struct hotspot_walk *w, struct unwind_state *at)
{
	return unwind_read(at, w->code, HOTSPOT_CODE_BEFORE + HOTSPOT_CODE_BYTES,
			   at->ip - HOTSPOT_CODE_BEFORE);
}

/* ---- the interpreter ------------------------------------------------------------------------- */

/* The first word of the Symbol that @address leads to; 0: it cannot be read. */
UNWIND_INLINE uint64_t hotspot_symbol(const struct script_hotspot *h, struct unwind_state *at,
				      uint64_t address)
{
	uint64_t symbol, word;

	if (UNWIND_READ(&symbol, 8, address) || UNWIND_READ(&word, 8, symbol & ~1ull))
		return 0;
	(void)at; /* BPF reads without it */
	return script_hotspot_symbol(h, word);
}

/* The word at @offset of the ConstMethod that was read. */
UNWIND_INLINE uint64_t hotspot_made_word(const struct hotspot_walk *w, uint32_t offset)
{
	uint64_t ret;

	__builtin_memcpy(&ret, w->made_bytes + (offset & (SCRIPT_HOTSPOT_MADE_BYTES - 1)), 8);
	return ret;
}

UNWIND_INLINE uint32_t hotspot_cookie(struct hotspot_walk *w, struct unwind_state *at,
				      uint64_t made, uint64_t pool, uint64_t facts)
{
	const struct script_hotspot *h = &w->facts;
	uint64_t class, name;

	if (!pool || pool != w->pool) {
		if (UNWIND_READ(&class, 8, pool + h->pool_class))
			class = 0;
		w->class_symbol = hotspot_symbol(h, at, class + h->class_name);
		w->pool = pool;
	}
	name = hotspot_symbol(h, at, pool + h->pool_bytes + 8 * (facts >> 16 & 0xffff));
	return script_hotspot_cookie(made, facts, name, w->class_symbol);
}

/* Learns what @method is, unless it is that of the frame before. */
UNWIND_INLINE int hotspot_look(struct hotspot_walk *w, struct unwind_state *at, uint64_t method)
{
	const struct script_hotspot *h = &w->facts;
	uint64_t made, facts;

	if (method == w->method && method)
		return UNWIND_STEPPED;
	w->method = 0;
	if (!hotspot_is_address(method))
		return UNWIND_NO_RULE;
	if (unwind_read(at, &made, 8, method + h->method_const))
		return UNWIND_FAULT;
	if (!hotspot_is_address(made))
		return UNWIND_NO_RULE;
	if (unwind_read(at, w->made_bytes, SCRIPT_HOTSPOT_MADE_BYTES, made))
		return UNWIND_FAULT;
	facts = hotspot_made_word(w, h->const_code_size);
	w->cookie = hotspot_cookie(w, at, made, hotspot_made_word(w, h->const_pool), facts);
	w->code_bytes = (uint32_t)facts & 0xffff;
	w->made = made;
	w->method = method;
	return UNWIND_STEPPED;
}

/* The words of a frame of @method, whose next bytecode is at @bcp. */
UNWIND_INLINE int hotspot_method(struct hotspot_walk *w, struct unwind_state *at, uint64_t method,
				 uint64_t bcp, uint64_t other_bcp, uint64_t words[2])
{
	uint64_t position;
	int rc = hotspot_look(w, at, method);

	if (rc)
		return rc;
	position = bcp - w->made - w->facts.const_bytes;
	if (position >= w->code_bytes)
		position = other_bcp - w->made - w->facts.const_bytes;
	if (position >= w->code_bytes)
		position = SCRIPT_POSITION_NONE; /* a native method, or one that is being entered */
	hotspot_words(words, SCRIPT_HOTSPOT_INTERPRETED, method, position, w->cookie);
	return UNWIND_STEPPED;
}

/* A method that is being entered has no frame yet, or a part of one. Its Method is in rbx and the
 * caller's sp in r13; the return address is moved above the locals, through rax. */
UNWIND_INLINE int hotspot_entry(struct hotspot_walk *w, struct unwind_state *at)
{
	uint64_t sender = at->regs[ARCH_HOTSPOT_SENDER], fp = at->fp;
	uint64_t pair[2];

	if (fp >= at->sp && fp < sender) {
		if (unwind_read(at, pair, 16, fp))
			return UNWIND_FAULT;
		return hotspot_leave(at, sender, pair[1], pair[0]);
	}
	if (unwind_read(at, pair, 16, at->sp))
		return UNWIND_FAULT;
	if (pair[0] == fp && hotspot_is_code(&w->facts, pair[1]))
		return hotspot_leave(at, sender, pair[1], fp);
	if (!hotspot_is_code(&w->facts, pair[0]))
		pair[0] = at->regs[ARCH_HOTSPOT_RETURN];
	if (!hotspot_is_code(&w->facts, pair[0]))
		return UNWIND_NO_RULE;
	unwind_to_caller(at, sender, pair[0], fp); /* the sp may be the caller's already */
	at->third_is = UNWIND_THIRD_UNKNOWN;
	return UNWIND_STEPPED;
}

/* The frame was given up, and what is left is: pop %r13 (or %rdi); mov %rbx, %rsp (or %r11);
 * jmp *%r13 (or %rdi). UNWIND_NO_RULE: it was not. */
UNWIND_INLINE int hotspot_left(struct hotspot_walk *w, struct unwind_state *at)
{
	const uint8_t *code = w->code + HOTSPOT_CODE_BEFORE;
	uint64_t sp = at->sp, ip;
	uint32_t at_move;

	if (code[0] == 0x41 && code[1] == 0xc6) /* movb $N, N(%r15) */
		code += 8;
	w->code_at = code[0] == 0x5f;
	if (code[0] == 0x41 && code[1] == 0x5d)
		w->code_at = 2;
	at_move = w->code_at & 3;
	if (code[at_move + 1] == 0x8b && code[at_move + 2] == 0xe3)
		sp = at->regs[code[at_move] & 1 ? ARCH_HOTSPOT_OLD_SP : ARCH_HOTSPOT_METHOD];
	else if (at_move || code[0] != 0x41 || code[1] != 0xff || code[2] != 0xe5)
		return UNWIND_NO_RULE;
	if (at_move) {
		if (unwind_read(at, &ip, 8, at->sp))
			return UNWIND_FAULT;
	} else {
		ip = at->regs[code[3] == 0xff ? ARCH_HOTSPOT_TARGET : ARCH_HOTSPOT_SENDER];
	}
	if (sp < at->sp || !hotspot_is_code(&w->facts, ip))
		return UNWIND_NO_RULE;
	unwind_to_caller(at, sp, ip, at->fp);
	at->third_is = UNWIND_THIRD_UNKNOWN;
	return UNWIND_STEPPED;
}

UNWIND_INLINE int hotspot_interpreted(struct hotspot_walk *w, struct unwind_state *at,
				      uint64_t words[2])
{
	const struct script_hotspot *h = &w->facts;
	uint64_t method, bcp = 0, other = 0;
	bool is_entry, is_entered;
	int rc;

	is_entry = at->regs_known && at->ip - h->entries < h->entries_end - h->entries;
	is_entered = is_entry && at->regs[ARCH_HOTSPOT_SENDER] - at->sp < HOTSPOT_LOCALS_BYTES;
	if (at->regs_known) {
		rc = hotspot_read_code(w, at);
		if (!rc)
			rc = hotspot_left(w, at);
		if (rc != UNWIND_NO_RULE)
			return rc;
	}
	if (is_entered) {
		method = at->regs[ARCH_HOTSPOT_METHOD];
	} else {
		if (at->fp < at->sp || at->fp - at->sp > HOTSPOT_FRAME_MAX || at->fp & 7)
			return UNWIND_NO_RULE;
		/* bcp 0 or 1, Method 5, caller's sp 7, caller's fp 8, return address 9 */
		if (unwind_read(at, w->frame, HOTSPOT_FRAME_BYTES, at->fp - 64))
			return UNWIND_FAULT;
		method = w->frame[5];
		bcp = w->frame[(64u - h->frame_bcp) / 8 & (HOTSPOT_FRAME_WORDS - 1)];
		if (at->regs_known) {
			other = bcp;
			bcp = at->regs[ARCH_HOTSPOT_SENDER];
			if (is_entry && at->fp - at->sp < 64)
				method = at->regs[ARCH_HOTSPOT_METHOD];
		}
		/* The caller's sp is above, but for a word that a method handle has dropped. */
		if (!hotspot_is_code(h, w->frame[9]) || w->frame[7] <= at->fp)
			return UNWIND_NO_RULE;
	}
	rc = hotspot_method(w, at, method, bcp, other, words);
	if (rc)
		return rc;
	return is_entered ? hotspot_entry(w, at)
			  : hotspot_leave(at, w->frame[7], w->frame[9], w->frame[8]);
}

/* ---- blobs ----------------------------------------------------------------------------------- */

/* Finds and reads the blob that holds at->ip. */
UNWIND_INLINE int hotspot_find_blob(struct hotspot_walk *w, struct unwind_state *at, uint64_t *ret)
{
	const struct script_hotspot *h = &w->facts;
	uint64_t pc = at->ip - !!at->is_return, segment, start, segmap;
	uint32_t heap = hotspot_heap(h, pc), shift = h->segment_shift & 15;

	if (heap >= SCRIPT_HOTSPOT_HEAPS)
		return UNWIND_NO_RULE;
	start = h->heaps[heap].start;
	segmap = h->heaps[heap].segmap;
	segment = (pc - start) >> shift;
#ifdef __bpf__
#pragma clang loop unroll(disable)
#endif
	for (uint32_t i = 0; i < HOTSPOT_HOPS_MAX; i++) {
		uint8_t back;

		if (unwind_read(at, &back, 1, segmap + segment))
			return UNWIND_FAULT;
		if (back == HOTSPOT_FREE)
			return UNWIND_NO_RULE;
		if (!back) {
			*ret = start + (segment << shift) + h->heap_header;
			return unwind_read(at, w->blob, HOTSPOT_BLOB_BYTES, *ret);
		}
		segment -= back;
	}
	return UNWIND_NO_RULE;
}

/* The same, unless it is that of the frame before. */
UNWIND_INLINE int hotspot_blob(struct hotspot_walk *w, struct unwind_state *at, uint64_t *ret)
{
	int rc;

	if (at->ip == w->blob_ip && at->is_return) {
		*ret = w->blob_begin;
		return UNWIND_STEPPED;
	}
	w->blob_ip = 0;
	rc = hotspot_find_blob(w, at, ret);
	if (rc == UNWIND_STEPPED && at->is_return) {
		w->blob_ip = at->ip;
		w->blob_begin = *ret;
	}
	return rc;
}

UNWIND_INLINE bool hotspot_is_nmethod(const struct hotspot_walk *w)
{
	uint64_t name = hotspot_word(w, w->facts.blob_name);
	uint64_t ret = 0;

#ifdef __bpf__
#pragma clang loop unroll(full)
#endif
	for (uint32_t i = 0; i < SCRIPT_HOTSPOT_NAMES; i++)
		ret |= script_is_zero(name ^ w->facts.nmethod_names[i]);
	return ret && name;
}

/* Length of an instruction that leaves the stack as it is and may go on to the next one, as those
 * between the end of a frame and the return do. 0: it is another one. */
UNWIND_INLINE uint32_t hotspot_passes(const uint8_t *code)
{
	uint32_t operand = code[2] >> 6 == 1 ? 4 : 7;

	if ((code[0] == 0x49 || code[0] == 0x4d || code[0] == 0x41) && (code[2] & 7) == 7 &&
	    ((code[2] >> 6) - 1u) < 2) { /* N(%r15) */
		if (code[1] == 0x3b || code[1] == 0x8b || code[1] == 0x89) /* cmp, mov */
			return operand;
		if (code[1] == 0x83 || code[1] == 0xf6) /* cmp, test with a byte */
			return operand + 1;
		if (code[1] == 0x81)
			return operand + 4;
	}
	if (code[0] == 0x0f && (code[1] & 0xf0) == 0x80) /* jcc */
		return 6;
	if ((code[0] & 0xf0) == 0x70)
		return 2;
	if (code[0] == 0x49 && code[1] == 0xba) /* mov $N, %r10 */
		return 10;
	if (code[0] == 0x4c && code[1] == 0x8d) /* lea N(%rip), %r10 */
		return code[2] == 0x15 ? 7 : 0;
	if (code[0] == 0x41 && code[1] == 0x85) /* test %eax, (%r10) */
		return code[2] == 0x02 ? 3 : 0;
	if (code[0] == 0x85 && code[1] == 0x05) /* test %eax, N(%rip) */
		return 6;
	return 0;
}

/* Is @code the jump of a method that has given up its frame? Such a method stops at a safepoint as
 * it returns (mov or lea pc, %r10; mov %r10, N(%r15); jmp). Or it leaves with an exception: the
 * jump follows the return that was passed over, or add $N, %rsp; pop %rbp. */
UNWIND_INLINE bool hotspot_jumps_off(const uint8_t *code)
{
	const uint8_t *pc = code[-7] == 0x4d ? code - 7 : code - 4;

	if (code[0] != 0xe9)
		return false;
	if (pc[0] == 0x4d && pc[1] == 0x89)
		return (pc[-10] == 0x49 && pc[-9] == 0xba) ||
		       (pc[-7] == 0x4c && pc[-6] == 0x8d && pc[-5] == 0x15);
	if (code[-1] == 0xc3)
		return code[-7] == 0x0f && code[-6] == 0x85 && code[-5] == 1;
	return code[-1] == 0x5d && ((code[-5] == 0x48 && code[-4] == 0x83 && code[-3] == 0xc4) ||
				    (code[-8] == 0x48 && code[-7] == 0x81 && code[-6] == 0xc4));
}

/* Does the code at the pc do no more than return, or jump off? It may ask before whether a
 * safepoint is wanted or an exception pending, or pop registers: w->popped bytes. */
UNWIND_INLINE bool hotspot_has_left(struct hotspot_walk *w)
{
	w->popped = 0;
	w->code_at = 0;
#ifdef __bpf__
#pragma clang loop unroll(disable)
#endif
	for (uint32_t i = 0; i < HOTSPOT_PASSES_MAX; i++) {
		uint32_t at = w->code_at, bytes;
		const uint8_t *code = w->code + HOTSPOT_CODE_BEFORE + (at & 31);

		if (at > HOTSPOT_CODE_BYTES - 3)
			return false;
		bytes = hotspot_passes(code);
		if (code[0] == 0xc3 || hotspot_jumps_off(code))
			return true;
		if ((code[0] & 0xf8) == 0x58 && code[0] != 0x5d)
			w->popped += 8 * (bytes = 1);
		if (!bytes)
			return false;
		w->code_at = at + bytes;
	}
	return false;
}

/* Was the return address popped, to be jumped to? pop; jmp */
UNWIND_INLINE bool hotspot_has_popped(const uint8_t *code)
{
	return (code[0] == 0xff || (code[0] == 0x41 && code[1] == 0xff)) &&
	       (code[-1] & 0xfc) == 0x58;
}

/* mov %rbp, N(%rsp): the frame is there, and the caller's rbp still where it was. */
UNWIND_INLINE bool hotspot_saves_fp(const uint8_t *code)
{
	return script_is_zero((code[0] ^ 0x48u) | (code[1] ^ 0x89u) | ((code[2] & 0x3fu) ^ 0x2c) |
			      (code[3] ^ 0x24u));
}

UNWIND_INLINE uint64_t hotspot_asks(const uint8_t *code)
{
	return script_is_zero((code[0] ^ 0x41u) | (code[1] ^ 0x81u));
}

UNWIND_INLINE bool hotspot_enters(const uint8_t *code)
{
	return code[0] == 0x48 &&
	       ((code[1] == 0x8b && code[2] == 0xec) || (code[1] == 0x89 && code[2] == 0xe5));
}

/* Is the new frame there, though its method does not run yet? The code sets a frame pointer (mov
 * %rbp, N(%rsp); mov %rsp, %rbp; add $N, %rbp), or it asks whether the method may run (nop;
 * cmpl $N, N(%r15); je; call). */
UNWIND_INLINE bool hotspot_has_frame(const uint8_t *code)
{
	uint64_t is_nop = script_is_zero(code[0] ^ 0x90u) | script_is_zero(code[0] ^ 0x66u) |
			  script_is_zero((code[0] ^ 0x0fu) | (code[1] ^ 0x1fu));
	uint64_t asks = hotspot_asks(code) | hotspot_asks(code - 8) | hotspot_asks(code - 11);

	if (hotspot_enters(code))
		return hotspot_saves_fp(code - 5) || hotspot_saves_fp(code - 8);
	if (code[0] == 0x48 && (code[1] & 0xfd) == 0x81 && code[2] == 0xc5) /* add $N, %rbp */
		return true;
#ifdef __bpf__
#pragma clang loop unroll(full)
#endif
	for (uint32_t i = 1; i < 8; i++)
		asks |= is_nop & hotspot_asks(code + i);
	return asks || code[0] == 0xe8;
}

/* pop N(%rsp): the second half of a move within the frame. */
UNWIND_INLINE bool hotspot_moves(const uint8_t *code)
{
	if (code[0] == 0x48)
		code++;
	return code[0] == 0x8f && (code[1] & 0x3f) == 0x04 && code[2] == 0x24;
}

/* Where a frame ends: with the caller's rbp, or the word in its place, and the return address. */
struct hotspot_end {
	uint64_t at; /* address of these two words */
	bool keeps;  /* rbp is still, or again, the caller's */
};

/* The frame is no more than a return address. */
UNWIND_INLINE void hotspot_end_bare(const struct unwind_state *at, struct hotspot_end *end)
{
	end->at = at->sp - 8;
	end->keeps = true;
}

UNWIND_INLINE bool hotspot_is_complete(const struct hotspot_walk *w, uint64_t code_bytes)
{
	const struct script_hotspot *h = &w->facts;
	int32_t complete = (int32_t)hotspot_u32(w, h->blob_frame_complete & ~3u);

	if (h->flags & SCRIPT_HOTSPOT_OFFSETS)
		complete = (int16_t)(complete >> (h->blob_frame_complete & 2) * 8);
	return (int64_t)code_bytes >= (int64_t)complete;
}

/* The innermost frame of a compiled method that has not begun. */
UNWIND_INLINE int hotspot_end_begun(struct unwind_state *at, struct hotspot_end *end)
{
	uint64_t word;

	if (unwind_read(at, &word, 8, at->sp))
		return UNWIND_FAULT;
	if (word == at->fp || at->fp == at->sp)
		end->at = at->sp;
	else
		hotspot_end_bare(at, end);
	return UNWIND_STEPPED;
}

/* A frame of the virtual machine's own code. Most of this code begins by setting the frame pointer:
 * push %rbx or nothing; push %rbp; mov %rsp, %rbp. Other code whose frame has no size (@is_sized)
 * begins by pushing registers, four at most. */
UNWIND_INLINE int hotspot_end_runtime(struct hotspot_walk *w, struct unwind_state *at,
				      uint64_t code_start, bool is_sized, struct hotspot_end *end)
{
	const uint8_t *code = w->code + HOTSPOT_CODE_BEFORE;
	uint64_t done = at->ip - code_start, pushed = 0;
	uint8_t begin[8];
	bool enters, jumps;

	if (unwind_read(at, begin, sizeof(begin), code_start))
		return UNWIND_FAULT;
	enters = hotspot_enters(begin + 1 + (begin[0] == 0x53));
	w->is_doubtful = !enters;
	if (enters && at->is_return) {
		end->at = at->fp;
		return UNWIND_STEPPED;
	}
	if (at->is_return || hotspot_has_popped(code))
		return UNWIND_NO_RULE;
	jumps = code[0] == 0xe9 || code[0] == 0xff || code[1] == 0xff;
	if (!done || (jumps && enters && code[-1] == 0x5d) ||
	    ((code[0] & 0xfc) == 0x58 && (code[1] == 0xff || code[2] == 0xff))) {
		hotspot_end_bare(at, end); /* at the begin, or pop; jmp */
	} else if (enters) {
		if (code[0] == 0x55) /* what %rbx was is no return address yet */
			return UNWIND_NO_RULE;
		end->at = at->fp;
	} else if (!is_sized) {
#ifdef __bpf__
#pragma clang loop unroll(full)
#endif
		for (uint32_t i = 0; i < 4; i++)
			if (pushed == i && (begin[i] & 0xf8) == 0x50 && done > i)
				pushed = i + 1;
		end->at = at->sp + 8 * pushed - 8;
		end->keeps = true;
	}
	return UNWIND_STEPPED;
}

/* Where the innermost frame ends, if it is not of its whole size. */
UNWIND_INLINE int hotspot_end_innermost(struct hotspot_walk *w, struct unwind_state *at,
					uint64_t code_start, bool is_nmethod, bool is_sized,
					struct hotspot_end *end)
{
	const uint8_t *code = w->code + HOTSPOT_CODE_BEFORE;

	end->keeps = hotspot_saves_fp(code);
	w->is_doubtful = !is_sized;
	if (code[0] == 0x5d || (!is_nmethod && hotspot_enters(code))) {
		end->at = at->sp;
	} else if (w->has_left) {
		hotspot_end_bare(at, end);
		end->at += w->popped;
	} else if (!is_nmethod) {
		return hotspot_end_runtime(w, at, code_start, is_sized, end);
	} else if (!end->keeps && !hotspot_has_frame(code) &&
		   !hotspot_is_complete(w, at->ip - code_start)) {
		return hotspot_end_begun(at, end);
	} else {
		w->is_doubtful = true;
	}
	return UNWIND_STEPPED;
}

/* Code with a frame of a fixed size. */
UNWIND_INLINE int hotspot_framed(struct hotspot_walk *w, struct unwind_state *at,
				 uint64_t code_start, uint64_t frame_bytes, bool is_nmethod)
{
	struct hotspot_end end = { .at = at->sp + frame_bytes - 16, .keeps = frame_bytes == 8 };
	uint64_t pair[2];
	int rc = UNWIND_STEPPED;

	if (!at->is_return && !end.keeps) {
		if (hotspot_moves(w->code + HOTSPOT_CODE_BEFORE))
			end.at += 8;
		rc = hotspot_end_innermost(w, at, code_start, is_nmethod, !!frame_bytes, &end);
	} else if (!frame_bytes) {
		rc = hotspot_end_runtime(w, at, code_start, false, &end);
	}
	if (rc)
		return rc;
	if (unwind_read(at, pair, 16, end.at))
		return UNWIND_FAULT;
	if (!hotspot_is_code(&w->facts, pair[1]))
		return UNWIND_NO_RULE;
	return hotspot_leave(at, end.at + 16, pair[1], end.keeps ? at->fp : pair[0]);
}

/* Is there a call before @pc? The registers that were pushed for it are passed over: pop; pop. */
UNWIND_INLINE int hotspot_check_call(struct unwind_state *at, uint64_t pc)
{
	uint8_t code[16];

	if (unwind_read(at, code, sizeof(code), pc - 8))
		return UNWIND_FAULT;
	if (code[3] != 0xe8 && (code[6] != 0xff || (code[7] & 0xf8) != 0xd0) &&
	    (code[5] != 0xff || (code[6] & 0xf8) != 0x50) &&
	    (code[2] != 0xff || (code[3] & 0xf8) != 0x90))
		return UNWIND_NO_RULE;
	if ((code[8] & 0xf8) == 0x58 && (code[9] & 0xf8) == 0x58 && code[8] != 0x5d)
		at->sp += 16;
	return UNWIND_STEPPED;
}

/* Code between compiled and interpreted methods moves the arguments to other places. While it does,
 * the return address is in rax, and r13 has the caller's sp or the return address's place. */
UNWIND_INLINE int hotspot_adapter(struct hotspot_walk *w, struct unwind_state *at)
{
	uint64_t sender = at->regs[ARCH_HOTSPOT_SENDER], ip = at->regs[ARCH_HOTSPOT_RETURN];
	uint64_t top, at_sender;

	if (!at->regs_known)
		return UNWIND_NO_RULE;
	if (unwind_read(at, &top, 8, at->sp))
		return UNWIND_FAULT;
	if (hotspot_is_code(&w->facts, top) && top != ip)
		return hotspot_leave(at, at->sp + 8, top, at->fp);
	if (sender - at->sp >= HOTSPOT_LOCALS_BYTES || !hotspot_is_code(&w->facts, ip))
		return UNWIND_NO_RULE;
	if (unwind_read(at, &at_sender, 8, sender))
		return UNWIND_FAULT;
	unwind_to_caller(at, sender + (at_sender == ip ? 8 : 0), ip, at->fp);
	at->third_is = UNWIND_THIRD_UNKNOWN;
	return UNWIND_STEPPED;
}

/* Stubs have no frame, or one that keeps the frame pointer. */
UNWIND_INLINE int hotspot_stub(struct hotspot_walk *w, struct unwind_state *at)
{
	const uint8_t *code = w->code + HOTSPOT_CODE_BEFORE;
	const struct script_hotspot *h = &w->facts;
	uint64_t end = at->fp, name, pair[2];

	w->is_doubtful = true;
	if (unwind_read(at, &name, 8, hotspot_word(w, h->blob_name)))
		return UNWIND_FAULT;
	if (name == HOTSPOT_ADAPTER)
		return hotspot_adapter(w, at);
	if (at->is_return && h->continuation_bytes) {
		uint64_t entry = at->sp + h->continuation_bytes;
		int rc = hotspot_check_call(at, at->ip);

		if (rc == UNWIND_STEPPED)
			return unwind_step_fp(at);
		if (rc == UNWIND_FAULT)
			return rc;
		/* The barrier below a virtual thread's frames, which nothing has called: the
		 * carrier's frames are above the entry. */
		if (unwind_read(at, pair, 16, entry))
			return UNWIND_FAULT;
		if (!hotspot_is_code(h, pair[1]))
			return UNWIND_NO_RULE;
		return hotspot_leave(at, entry + 16, pair[1], pair[0]);
	}
	if (at->is_return)
		return unwind_step_fp(at);
	if (hotspot_has_popped(code))
		return UNWIND_NO_RULE;
	if (hotspot_enters(code) || code[0] == 0x5d) {
		end = at->sp;
	} else {
		if (unwind_read(at, pair, 16, at->sp))
			return UNWIND_FAULT;
		if (hotspot_is_code(h, pair[0]))
			return hotspot_leave(at, at->sp + 8, pair[0], at->fp);
		if (end - at->sp >= HOTSPOT_STUB_BYTES || end & 7)
			return UNWIND_NO_RULE;
	}
	if (unwind_read(at, pair, 16, end))
		return UNWIND_FAULT;
	return hotspot_leave(at, end + 16, pair[1], pair[0]);
}

/* A method that waits to be deoptimized returns to its handler; where it was is in its frame. */
UNWIND_INLINE uint64_t hotspot_pc(struct hotspot_walk *w, struct unwind_state *at, uint64_t blob)
{
	const struct script_hotspot *h = &w->facts;
	uint64_t handler, pc;

	if (!at->is_return)
		return at->ip;
	if (h->flags & SCRIPT_HOTSPOT_OFFSETS)
		handler = blob + hotspot_u32(w, h->nmethod_deopt);
	else
		handler = hotspot_word(w, h->nmethod_deopt);
	if (at->ip != handler || UNWIND_READ(&pc, 8, at->sp + hotspot_u32(w, h->nmethod_orig_pc)))
		return at->ip;
	return pc;
}

/* A method calls one that is not compiled by way of its own last instructions: mov $method, %rbx;
 * jmp. The return address is pushed there, so the frame is taken as that of the call. */
UNWIND_INLINE int hotspot_finish_call(struct hotspot_walk *w, struct unwind_state *at)
{
	const uint8_t *code = w->code + HOTSPOT_CODE_BEFORE;
	uint64_t ip;

	if ((code[0] != 0x48 || code[1] != 0xbb || code[10] != 0xe9) &&
	    (code[0] != 0xe9 || code[-10] != 0x48 || code[-9] != 0xbb))
		return UNWIND_STEPPED;
	if (unwind_read(at, &ip, 8, at->sp))
		return UNWIND_FAULT;
	if (!hotspot_is_code(&w->facts, ip))
		return UNWIND_STEPPED;
	at->ip = ip;
	at->sp += 8;
	at->is_return = 1;
	at->regs_known = 0;
	return UNWIND_STEPPED;
}

/* The step from a pc in a code heap. @words: those of its frame, or 0, 0 while it is not known what
 * the frame is. UNWIND_NO_RULE: HotSpot's knowledge does not lead on. */
UNWIND_INLINE int hotspot_step(struct hotspot_walk *w, struct unwind_state *at, uint64_t words[2])
{
	const struct script_hotspot *h = &w->facts;
	uint64_t blob, code_start, pc, frame_bytes = 0;
	int32_t frame_words;
	bool is_nmethod, is_doubtful = w->is_doubtful;
	int rc;

	w->is_doubtful = 0;
	if (at->ip - h->interpreter < h->interpreter_end - h->interpreter) {
		hotspot_words(words, SCRIPT_HOTSPOT_STUB, at->ip, 0, 0);
		w->stepped = 1;
		return hotspot_interpreted(w, at, words);
	}
	if (at->is_return && at->ip == h->call_return) {
		hotspot_words(words, SCRIPT_HOTSPOT_STUB, at->ip, 0, 0);
		return unwind_step_fp(at);
	}
	if (!at->is_return) {
		rc = hotspot_read_code(w, at);
		if (rc)
			return rc;
		w->has_left = hotspot_has_left(w);
	}
	rc = hotspot_blob(w, at, &blob);
	if (rc)
		return rc;
	is_nmethod = hotspot_is_nmethod(w);
	frame_words = (int32_t)hotspot_u32(w, h->blob_frame_words);
	if (is_nmethod) {
		if (!at->is_return)
			rc = hotspot_finish_call(w, at);
		if (rc)
			return rc;
		pc = hotspot_pc(w, at, blob);
		if (is_doubtful)
			rc = hotspot_check_call(at, pc);
		if (rc)
			return rc;
		hotspot_words(words,
			      at->is_return ? SCRIPT_HOTSPOT_COMPILED : SCRIPT_HOTSPOT_INNERMOST,
			      blob, pc - blob, hotspot_u32(w, h->nmethod_compile_id));
	} else {
		hotspot_words(words, SCRIPT_HOTSPOT_STUB, at->ip, 0, 0);
	}
	/* A method may have made room to save registers before it called out of Java. */
	w->is_doubtful = is_nmethod && at->is_return && !w->stepped;
	w->stepped = 1;
	if (frame_words > (int32_t)(HOTSPOT_FRAME_MAX / 8))
		return UNWIND_NO_RULE;
	if (h->flags & SCRIPT_HOTSPOT_OFFSETS)
		code_start = blob + hotspot_u32(w, h->blob_code);
	else
		code_start = hotspot_word(w, h->blob_code);
	/* Compared with a sign only: where both are mixed, 6.17's verifier warns of a fault of its own. */
	if (frame_words > 1)
		frame_bytes = 8 * (uint64_t)frame_words;
	else if (is_nmethod) /* of a method handle: it jumps on, without a frame */
		frame_bytes = 8;
	else if (frame_words >= 0)
		return hotspot_stub(w, at);
	return hotspot_framed(w, at, code_start, frame_bytes, is_nmethod);
}

#endif
