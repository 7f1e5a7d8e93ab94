/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The frames of CPython, one at a time: pure, also compiled for the host. The includer defines
 * UNWIND_READ as for bpf/unwind_step.h.
 *
 * One C frame of the interpreter's loop (an entry) executes one or more Python frames. The walk
 * puts them behind the C frame that executes them. From 3.10 on a structure in the C frame itself
 * says which they are: it lies in [sp, CFA) of its own entry. A structure further up the stack
 * belongs to an entry that has not been walked yet, so the C frame at hand has none (it is in its
 * prologue or epilogue). A structure further down belongs to a C frame that was not recognized. */
#ifndef PROFD_BPF_PYTHON_BPF_H
#define PROFD_BPF_PYTHON_BPF_H

#include "bpf/script.h"
#include "bpf/unwind_step.h"

#define PYTHON_HEAD_BYTES   80u /* of a _PyInterpreterFrame: all but its locals */
#define PYTHON_FRAME_WORDS  16u
#define PYTHON_OWNER_SHIM   3u /* and above: no Python frame */
#define PYTHON_WINDOW_BYTES 1024u /* of a thread's frames, read at once */
#define PYTHON_PAGE_BYTES   4096u
#define PYTHON_CODES	    8u	/* code objects that a walk remembers */

enum script_step {
	SCRIPT_STEP_FRAME, /* words A and B of a frame */
	SCRIPT_STEP_ENTRY, /* no frame; what was pushed for this entry stands */
	SCRIPT_STEP_BACK,  /* what was pushed for this entry is not its: take it back */
	SCRIPT_STEP_UNREAD,
	SCRIPT_STEP_DESYNC,
};

/* A code object that a frame of this walk has. */
struct python_code {
	uint64_t at; /* 0 = none */
	uint64_t cookie;
};

/* The script side of a walk. The thread stands meanwhile, and its frames hold their code objects:
 * a function that is called again and again is read once. */
struct script_walk {
	uint32_t on;	  /* the next turn takes a script frame */
	uint32_t is_known; /* the thread's chain was found */
	uint64_t cursor;  /* next frame, 0 = there is no further one */
	uint64_t entry;	  /* 3.10, 3.11: CFrame of the innermost entry that is still to come */
	uint64_t saved;	  /* cursor when this entry began */
	uint64_t low, high; /* [sp, CFA) of the C frame at hand */
	struct script_python python;
	uint64_t frame[PYTHON_FRAME_WORDS];
	uint64_t code[SCRIPT_COOKIE_WORDS];
	struct python_code codes[PYTHON_CODES];
	uint64_t last;	    /* the frame before */
	uint64_t window_at; /* address of the window, 0 = none was read */
	uint64_t window[PYTHON_WINDOW_BYTES / 8];
};

UNWIND_INLINE uint64_t python_word(const struct script_walk *w, uint32_t offset)
{
	return w->frame[offset / 8 & (PYTHON_FRAME_WORDS - 1)];
}

UNWIND_INLINE uint32_t python_byte(const struct script_walk *w, uint32_t offset)
{
	return (uint32_t)(python_word(w, offset) >> (offset & 7) * 8) & 0xff;
}

UNWIND_INLINE int python_is_address(uint64_t address)
{
	return address && !(address & 7) && address < ARCH_USER_END;
}

UNWIND_INLINE int python_read_word(const struct script_walk *w, uint64_t address, uint64_t *ret)
{
	(void)w; /* an includer reads what belongs to it */
	return UNWIND_READ(ret, sizeof(*ret), address) ? -1 : 0;
}

/* Finds the innermost frame of the thread whose fs base is @thread_pointer. False: it has no state,
 * or its state cannot be read. */
UNWIND_INLINE int script_python_begin(struct script_walk *w, uint64_t thread_pointer)
{
	const struct script_python *py = &w->python;
	uint64_t thread = 0, at;

	if (py->tls_at && python_read_word(w, thread_pointer + (uint64_t)(int64_t)py->tls_at, &thread))
		return 0;
	if (!thread && py->tss_at &&
	    python_read_word(w, thread_pointer + (uint64_t)(int64_t)py->tss_at, &thread))
		return 0;
	if (!python_is_address(thread) || python_read_word(w, thread + py->thread_frame, &w->cursor))
		return 0;
	w->last = w->window_at = 0;
#ifdef __bpf__
#pragma clang loop unroll(full)
#endif
	for (uint32_t i = 0; i < PYTHON_CODES; i++)
		w->codes[i].at = 0;
	w->entry = 0;
	if (py->chain == SCRIPT_PYTHON_OBJECTS_CFRAME)
		return !python_read_word(w, thread + py->thread_cframe, &w->entry);
	if (py->chain == SCRIPT_PYTHON_IS_ENTRY || py->chain == SCRIPT_PYTHON_SHIM_CFRAME) {
		at = w->cursor;
		if (!python_is_address(at) || python_read_word(w, at + py->cframe_frame, &w->cursor))
			return 0;
		w->entry = at;
	}
	return 1;
}

/* The C frame of an entry was walked: its Python frames are next, if it has any. */
UNWIND_INLINE void script_python_enter(struct script_walk *w, uint64_t low, uint64_t high)
{
	uint32_t chain = w->python.chain;

	w->low = low;
	w->high = high;
	w->saved = w->cursor;
	w->on = w->cursor != 0;
	if (chain == SCRIPT_PYTHON_OBJECTS_CFRAME || chain == SCRIPT_PYTHON_IS_ENTRY)
		w->on = w->on && w->entry;
	if (chain == SCRIPT_PYTHON_IS_ENTRY)
		w->on = w->on && w->entry < high;
}

/* The last frame of the entry whose CFrame is w->entry was taken. */
UNWIND_INLINE int python_leave_entry(struct script_walk *w)
{
	uint64_t entry = w->entry;

	if (!python_is_address(entry) ||
	    python_read_word(w, entry + w->python.cframe_previous, &w->entry))
		return -1;
	/* An entry further down: the one at hand is still to come. */
	w->on = entry < w->low && w->entry && w->entry < w->high;
	return 0;
}

UNWIND_INLINE uint64_t python_position(const struct script_walk *w, uint64_t code)
{
	const struct script_python *py = &w->python;
	uint64_t instr = python_word(w, py->frame_instr), position;

	if (py->flags & (SCRIPT_PYTHON_LASTI_UNITS | SCRIPT_PYTHON_LASTI_BYTES)) {
		position = (uint64_t)(int64_t)(int32_t)(instr >> (py->frame_instr & 4) * 8);
		if (py->flags & SCRIPT_PYTHON_LASTI_BYTES)
			position = (uint64_t)((int64_t)position >> 1);
	} else {
		position = (uint64_t)((int64_t)(instr - code - py->code_bytecode) >> 1);
	}
	/* before the first instruction, or nowhere */
	return position < SCRIPT_POSITION_NONE ? position : SCRIPT_POSITION_NONE;
}

/* From 3.11 on a thread has a stack of its own for frames, on which callers lie below. Where the
 * last frame's caller does, the frames below come with the same read. The window lies in pages that
 * the frame itself lies in. False: it is not such a frame, or the window cannot be read. */
UNWIND_INLINE int python_read_window(struct script_walk *w, uint64_t at)
{
	uint64_t end = at + PYTHON_HEAD_BYTES, start = end - PYTHON_WINDOW_BYTES, offset;
	uint64_t page = at & ~(uint64_t)(PYTHON_PAGE_BYTES - 1);

	if (w->last - at > PYTHON_WINDOW_BYTES)
		return 0;
	if (!w->window_at || at - w->window_at > PYTHON_WINDOW_BYTES - PYTHON_HEAD_BYTES) {
		w->window_at = start < page ? page : start;
		if (UNWIND_READ(w->window, PYTHON_WINDOW_BYTES, w->window_at)) {
			w->window_at = 0;
			return 0;
		}
	}
	offset = (at - w->window_at) / 8;
#ifdef __bpf__
#pragma clang loop unroll(full)
#endif
	for (uint32_t i = 0; i < PYTHON_HEAD_BYTES / 8; i++)
		w->frame[i] = w->window[(offset + i) & (PYTHON_WINDOW_BYTES / 8 - 1)];
	return 1;
}

UNWIND_INLINE int python_read_frame(struct script_walk *w, uint64_t at)
{
	int rc = 0;

	if (w->python.chain <= SCRIPT_PYTHON_OBJECTS_CFRAME)
		return UNWIND_READ(w->frame, SCRIPT_PYTHON_FRAME_BYTES, at);
	if (!python_read_window(w, at))
		rc = UNWIND_READ(w->frame, PYTHON_HEAD_BYTES, at);
	w->last = at;
	return rc;
}

/* The cookie of the code object @code. */
UNWIND_INLINE int python_cookie(struct script_walk *w, uint64_t code, uint32_t *ret)
{
	struct python_code *known = &w->codes[(code >> 5 ^ code >> 9) & (PYTHON_CODES - 1)];

	if (known->at != code) {
		known->at = 0;
		if (UNWIND_READ(w->code, sizeof(w->code), code + w->python.cookie_at))
			return -1;
		known->cookie = script_cookie(w->code, w->python.cookie_words);
		known->at = code;
	}
	*ret = (uint32_t)known->cookie;
	return 0;
}

/* One frame of the entry at hand. */
UNWIND_INLINE enum script_step script_python_step(struct script_walk *w, uint64_t words[2])
{
	const struct script_python *py = &w->python;
	uint64_t at = w->cursor, code, previous;
	uint32_t last, leaves, cookie;

	if (!at) {
		w->on = 0;
		return SCRIPT_STEP_ENTRY;
	}
	if (!python_is_address(at))
		return SCRIPT_STEP_DESYNC;
	if (python_read_frame(w, at))
		return SCRIPT_STEP_UNREAD;
	/* 3.10 takes its CFrame away first, then its frame, which does not execute any more. */
	leaves = py->chain == SCRIPT_PYTHON_OBJECTS_CFRAME && w->entry >= w->high;
	if (leaves && !python_byte(w, py->frame_entry)) {
		w->on = 0;
		return SCRIPT_STEP_ENTRY;
	}
	previous = python_word(w, py->frame_previous);
	last = py->chain <= SCRIPT_PYTHON_OBJECTS_CFRAME || python_byte(w, py->frame_entry);
	if (py->chain >= SCRIPT_PYTHON_SHIM_CFRAME) {
		last = 0;
		if (python_byte(w, py->frame_entry) >= PYTHON_OWNER_SHIM) {
			if (at >= w->high) {
				w->on = 0;
				w->cursor = w->saved;
				return SCRIPT_STEP_BACK;
			}
			w->on = at < w->low;
			w->cursor = w->saved = previous;
			return SCRIPT_STEP_ENTRY;
		}
	}
	code = python_word(w, py->frame_code) & ~7ull; /* from 3.14 on the low bits are a tag */
	if (!python_is_address(code) || previous == at)
		return SCRIPT_STEP_DESYNC;
	if (python_cookie(w, code, &cookie))
		return SCRIPT_STEP_UNREAD;
	words[0] = (uint64_t)PROF_FRAME_SCRIPT << SCRIPT_WORD_KIND_SHIFT |
		   (uint64_t)SCRIPT_CPYTHON << SCRIPT_RUNTIME_SHIFT | code;
	words[1] = (uint64_t)PROF_FRAME_SCRIPT_AT << SCRIPT_WORD_KIND_SHIFT |
		   python_position(w, code) << SCRIPT_POSITION_SHIFT | cookie;
	w->cursor = previous;
	if (!last)
		return SCRIPT_STEP_FRAME;
	w->saved = previous;
	if (py->chain == SCRIPT_PYTHON_OBJECTS || leaves)
		w->on = 0;
	else if (python_leave_entry(w))
		return SCRIPT_STEP_UNREAD;
	return SCRIPT_STEP_FRAME;
}

#ifndef __bpf__
/* The script frames of the C frame [@low, @high) of the loop, in a thread whose fs base is
 * @thread_pointer: pairs of words, behind the *@count words at @words, which have room for @max.
 * SCRIPT_STEP_ENTRY: these are all, perhaps none. SCRIPT_STEP_FRAME: there is no room for more.
 * SCRIPT_STEP_BACK: the thread has no state. UNREAD, DESYNC: they end here. */
static inline enum script_step script_python_take(struct script_walk *w, uint64_t thread_pointer,
						  uint64_t low, uint64_t high, uint64_t *words,
						  uint16_t max, uint16_t *count)
{
	uint16_t saved = *count, turns = 0;

	if (!w->is_known && !script_python_begin(w, thread_pointer))
		return SCRIPT_STEP_BACK;
	w->is_known = 1;
	script_python_enter(w, low, high);
	while (w->on) {
		uint64_t pair[2];
		enum script_step step = script_python_step(w, pair);

		if (step == SCRIPT_STEP_UNREAD || step == SCRIPT_STEP_DESYNC)
			return step;
		if (*count + 2 > max || turns++ == max)
			return SCRIPT_STEP_FRAME;
		if (step == SCRIPT_STEP_BACK) {
			*count = saved;
		} else if (step == SCRIPT_STEP_ENTRY) {
			saved = *count;
		} else {
			words[(*count)++] = pair[0];
			words[(*count)++] = pair[1];
		}
	}
	return SCRIPT_STEP_ENTRY;
}
#endif

#endif
