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

/* The walk's copy of the facts, what it has read of the frame at hand, and what it remembers of the
 * frames before. The thread stands while its stack is walked, and methods and code that are on a
 * stack stay what they are. So a recursion costs one read a frame. Addresses are 0 when a walk
 * begins: nothing is remembered. */
struct hotspot_walk {
	struct script_hotspot facts;
	uint64_t blob[HOTSPOT_BLOB_WORDS];
	uint64_t frame[HOTSPOT_FRAME_WORDS];
	uint8_t code[16];
	uint8_t made_bytes[SCRIPT_HOTSPOT_MADE_BYTES + 8]; /* begin of a ConstMethod; the rest is
							    * for the verifier */
	uint64_t blob_ip, blob_begin; /* the return address that `blob` was found by */
	uint64_t method, made;	      /* Method of the last interpreted frame, its ConstMethod */
	uint64_t pool, class_symbol;  /* its ConstantPool; the Symbol of its class */
	uint32_t code_bytes, cookie;
};

UNWIND_INLINE void hotspot_forget(struct hotspot_walk *w)
{
	w->blob_ip = 0;
	w->method = 0;
	w->pool = 0;
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
	uint32_t ret = SCRIPT_HOTSPOT_HEAPS;

#ifdef __bpf__
#pragma clang loop unroll(full)
#endif
	for (uint32_t i = 0; i < SCRIPT_HOTSPOT_HEAPS; i++)
		if (ip - h->heaps[i].start < h->heaps[i].end - h->heaps[i].start)
			ret = i;
	return ret;
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
	if (pair[0] == fp)
		return hotspot_leave(at, sender, pair[1], fp);
	if (!hotspot_is_code(&w->facts, pair[0]))
		pair[0] = at->regs[ARCH_HOTSPOT_RETURN];
	return hotspot_leave(at, sender, pair[0], fp);
}

/* The frame was given up, and what is left is: pop %r13 (or %rdi); mov %rbx, %rsp (or %r11);
 * jmp *%r13 (or %rdi). UNWIND_NO_RULE: it was not. */
UNWIND_INLINE int hotspot_left(struct hotspot_walk *w, struct unwind_state *at)
{
	const uint8_t *code = w->code;
	uint64_t sp = at->sp, ip;
	uint32_t at_move = 0;

	if (code[0] == 0x41 && code[1] == 0x5d)
		at_move = 2;
	else if (code[0] == 0x5f)
		at_move = 1;
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
	if (at->regs_known && !is_entry) {
		if (unwind_read(at, w->code, sizeof(w->code), at->ip))
			return UNWIND_FAULT;
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
	bool ret = false;

#ifdef __bpf__
#pragma clang loop unroll(full)
#endif
	for (uint32_t i = 0; i < SCRIPT_HOTSPOT_NAMES; i++)
		ret |= name == w->facts.nmethod_names[i];
	return ret && name;
}

/* Does @code do no more than return? It may ask before whether a safepoint is wanted: since 17 by a
 * comparison of rsp, in 11 and 8 by a read of the polling page. */
UNWIND_INLINE bool hotspot_returns(const uint8_t code[16])
{
	if (code[0] == 0xc3)
		return true;
	if (code[0] == 0x0f && code[1] == 0x87)
		return code[6] == 0xc3;
	if (code[0] == 0x49 && code[1] == 0x3b)
		return (code[2] == 0xa7 && code[7] == 0x0f && code[13] == 0xc3) ||
		       (code[2] == 0x67 && code[4] == 0x0f && code[10] == 0xc3);
	if (code[0] == 0x4d && code[1] == 0x8b)
		return code[7] == 0x41 && code[8] == 0x85 && code[10] == 0xc3;
	if (code[0] == 0x41 && code[1] == 0x85)
		return code[3] == 0xc3;
	return code[0] == 0x85 && code[1] == 0x05 && code[6] == 0xc3;
}

/* The step from the innermost frame where it is not, or no more, of its full size. */
UNWIND_INLINE int hotspot_partial(struct hotspot_walk *w, struct unwind_state *at, bool is_complete)
{
	const struct script_hotspot *h = &w->facts;
	const uint8_t *code = w->code;
	bool pops = code[0] == 0x5d;
	uint64_t pair[2];

	if (is_complete && !pops && !hotspot_returns(code))
		return UNWIND_NO_RULE;
	if (unwind_read(at, pair, 16, at->sp))
		return UNWIND_FAULT;
	if (!pops && pair[0] != at->fp && hotspot_is_code(h, pair[0]))
		return hotspot_leave(at, at->sp + 8, pair[0], at->fp);
	if ((pops || !is_complete) && hotspot_is_code(h, pair[1]))
		return hotspot_leave(at, at->sp + 16, pair[1], pair[0]);
	return UNWIND_NO_RULE;
}

/* mov %rbp, N(%rsp): the frame is there, and the caller's rbp still where it was. */
UNWIND_INLINE bool hotspot_saves_fp(const uint8_t code[16])
{
	return code[0] == 0x48 && code[1] == 0x89 && (code[2] == 0x6c || code[2] == 0xac) &&
	       code[3] == 0x24;
}

/* Code with a frame of a fixed size. */
UNWIND_INLINE int hotspot_framed(struct hotspot_walk *w, struct unwind_state *at,
				 uint64_t code_start, uint64_t frame_bytes, bool is_nmethod)
{
	const struct script_hotspot *h = &w->facts;
	uint64_t fp = at->fp, sp = at->sp + frame_bytes;
	uint64_t pair[2];
	int32_t complete;
	bool saves = false;
	int rc;

	if (at->regs_known) {
		complete = (int32_t)hotspot_u32(w, h->blob_frame_complete & ~3u);
		if (h->flags & SCRIPT_HOTSPOT_OFFSETS)
			complete = (int16_t)(complete >> (h->blob_frame_complete & 2) * 8);
		if (unwind_read(at, w->code, sizeof(w->code), at->ip))
			return UNWIND_FAULT;
		saves = hotspot_saves_fp(w->code);
		rc = hotspot_partial(w, at,
				     saves || (int64_t)(at->ip - code_start) >= (int64_t)complete);
		if (rc != UNWIND_NO_RULE)
			return rc;
	}
	if (unwind_read(at, pair, 16, sp - 16))
		return UNWIND_FAULT;
	if (is_nmethod && !hotspot_is_code(h, pair[1]))
		return UNWIND_NO_RULE;
	return hotspot_leave(at, sp, pair[1], saves ? fp : pair[0]);
}

/* Stubs have no frame, or one that keeps the frame pointer. */
UNWIND_INLINE int hotspot_stub(struct hotspot_walk *w, struct unwind_state *at)
{
	const struct script_hotspot *h = &w->facts;
	uint64_t pair[2];

	if (at->is_return && h->continuation_bytes) {
		/* the barrier below a virtual thread's frames: its carrier's are above the entry */
		if (unwind_read(at, pair, 16, at->sp + h->continuation_bytes))
			return UNWIND_FAULT;
		if (hotspot_is_code(h, pair[1]))
			return hotspot_leave(at, at->sp + h->continuation_bytes + 16, pair[1],
					     pair[0]);
	}
	if (at->is_return)
		return unwind_step_fp(at);
	if (unwind_read(at, pair, 16, at->sp))
		return UNWIND_FAULT;
	if (hotspot_is_code(h, pair[0]))
		return hotspot_leave(at, at->sp + 8, pair[0], at->fp);
	if (at->fp - at->sp >= HOTSPOT_STUB_BYTES || at->fp & 7)
		return UNWIND_NO_RULE;
	if (unwind_read(at, pair, 16, at->fp))
		return UNWIND_FAULT;
	return hotspot_leave(at, at->fp + 16, pair[1], pair[0]);
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

/* The step from a pc in a code heap. @words: those of its frame, or 0, 0 while it is not known what
 * the frame is. UNWIND_NO_RULE: HotSpot's knowledge does not lead on. */
UNWIND_INLINE int hotspot_step(struct hotspot_walk *w, struct unwind_state *at, uint64_t words[2])
{
	const struct script_hotspot *h = &w->facts;
	uint64_t blob, code_start;
	int32_t frame_words;
	bool is_nmethod;
	int rc;

	if (at->ip - h->interpreter < h->interpreter_end - h->interpreter) {
		hotspot_words(words, SCRIPT_HOTSPOT_STUB, at->ip, 0, 0);
		return hotspot_interpreted(w, at, words);
	}
	if (at->is_return && at->ip == h->call_return) {
		hotspot_words(words, SCRIPT_HOTSPOT_STUB, at->ip, 0, 0);
		return unwind_step_fp(at);
	}
	rc = hotspot_blob(w, at, &blob);
	if (rc)
		return rc;
	is_nmethod = hotspot_is_nmethod(w);
	frame_words = (int32_t)hotspot_u32(w, h->blob_frame_words);
	if (is_nmethod)
		hotspot_words(words,
			      at->is_return ? SCRIPT_HOTSPOT_COMPILED : SCRIPT_HOTSPOT_INNERMOST,
			      blob, hotspot_pc(w, at, blob) - blob,
			      hotspot_u32(w, h->nmethod_compile_id));
	else
		hotspot_words(words, SCRIPT_HOTSPOT_STUB, at->ip, 0, 0);
	if (frame_words <= 1 || (uint32_t)frame_words > HOTSPOT_FRAME_MAX / 8)
		return is_nmethod ? UNWIND_NO_RULE : hotspot_stub(w, at);
	if (h->flags & SCRIPT_HOTSPOT_OFFSETS)
		code_start = blob + hotspot_u32(w, h->blob_code);
	else
		code_start = hotspot_word(w, h->blob_code);
	return hotspot_framed(w, at, code_start, 8 * (uint64_t)(uint32_t)frame_words, is_nmethod);
}

#endif
