/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The frames of CPython, one at a time: pure, also compiled for the host. The includer defines
 * UNWIND_READ as for bpf/unwind_step.h.
 *
 * One C frame of the interpreter's loop (an entry) executes one or more Python frames. The walk
 * puts them behind the C frame that executes them. From 3.10 on a structure in the C frame itself
 * says which they are: it lies in [sp, CFA) of its own entry. A structure further up the stack
 * belongs to an entry that has not been walked yet, so the C frame at hand has none (it is in its
 * prologue or epilogue). A structure further down belongs to a C frame that was not recognized.
 *
 * 3.11 and 3.12 publish an entry and a frame some instructions before they are linked: what is read
 * then is left from an earlier call. So a chain that begins in a C frame which executes this moment
 * must end at this entry's own structure, and where its CFrame leads to. If it does not, a frame is
 * being pushed, or a generator's taken away: the other frame is in a register, because the loop is
 * about to store it. Or the entry is being made, and has no frame. The chain of its callers goes on
 * from the CFrame of the next entry, which lies as far from the end of its C frame. */
#ifndef PROFD_BPF_PYTHON_BPF_H
#define PROFD_BPF_PYTHON_BPF_H

#include "bpf/script.h"
#include "bpf/unwind_step.h"

#define PYTHON_HEAD_BYTES   80u /* of a _PyInterpreterFrame: all but its locals */
#define PYTHON_FRAME_WORDS  16u
#define PYTHON_OWNER_GENERATOR 1u
#define PYTHON_OWNER_SHIM   3u /* and above: no Python frame */
#define PYTHON_WINDOW_BYTES 1024u /* of a thread's frames, read at once */
#define PYTHON_PAGE_BYTES   4096u
#define PYTHON_STACK_BYTES  (16u << 20) /* between two entries of a thread */
#define PYTHON_THREAD_BYTES 1024u	/* of a thread state, which has the first CFrame itself */
#define PYTHON_TURNS_CHECKED 2u
#define PYTHON_CODES	    8u	/* code objects that a walk remembers */
/* The begin of the loop, where an entry is made. That is done after 0x67 to 0xbe bytes, and the
 * first instruction is fetched at 0xed to 0x1f9 (builds of 3.11 and 3.12 by gcc). */
#define PYTHON_BEGIN_BYTES 224u

enum script_step {
	SCRIPT_STEP_FRAME, /* words A and B of a frame */
	SCRIPT_STEP_ENTRY, /* no frame; what was pushed for this entry stands */
	SCRIPT_STEP_BACK,  /* what was pushed for this entry is not its: take it back */
	SCRIPT_STEP_UNREAD,
	SCRIPT_STEP_DESYNC,
};

/* A C frame of the loop: does it execute? */
enum script_place {
	SCRIPT_PLACE_CALL,  /* it called something: its entry and its frames are linked */
	SCRIPT_PLACE_PC,    /* it executes, perhaps pushes a frame */
	SCRIPT_PLACE_PUSH,  /* it executes and pushes a frame: the frame at hand is from a register */
	SCRIPT_PLACE_BEGIN, /* it executes, and makes its entry */
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
	uint32_t place;	    /* enum script_place; not of a call: its end is checked */
	uint32_t is_torn;   /* the frames of the entry before were not linked */
	uint32_t turns;	    /* of this entry, if it executes */
	uint64_t seen;	    /* one of its frames: what is not linked may be a circle */
	uint32_t is_new;    /* the innermost frame has not begun */
	uint32_t has_yielded; /* it leads nowhere: a generator's that is being left */
	uint64_t kept[2];   /* registers that may have the frame that pushes another one */
	uint64_t thread;    /* address of its PyThreadState */
	uint64_t mark;	    /* from the CFrame of the entry before to its CFA; 0 = not to be checked */
	struct script_python python;
	uint64_t frame[PYTHON_FRAME_WORDS];
	uint64_t code[SCRIPT_COOKIE_WORDS];
	struct python_code codes[PYTHON_CODES];
	uint64_t last; /* the frame before */
	/* Is the frame at hand the last of its entry, and is the thread leaving that entry? They are
	 * volatile, so that the verifier goes on once, not for each value. */
	volatile uint32_t is_last, leaves;
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

/* Finds the innermost frame of the thread with this thread pointer. False: it has no state, or its
 * state cannot be read. */
UNWIND_INLINE int script_python_begin(struct script_walk *w, uint64_t thread_pointer)
{
	const struct script_python *py = &w->python;
	uint64_t thread = 0, at;

	w->mark = w->is_torn = 0;
	if (py->tls_at && python_read_word(w, thread_pointer + (uint64_t)(int64_t)py->tls_at, &thread))
		return 0;
	if (!thread && py->tss_at &&
	    python_read_word(w, thread_pointer + (uint64_t)(int64_t)py->tss_at, &thread))
		return 0;
	w->thread = thread;
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

UNWIND_INLINE int python_has_cframe(const struct script_walk *w)
{
	return w->python.chain == SCRIPT_PYTHON_IS_ENTRY ||
	       w->python.chain == SCRIPT_PYTHON_SHIM_CFRAME;
}

/* The C frame with @pc of a loop that begins at @start. */
UNWIND_INLINE enum script_place script_python_place(uint64_t start, uint64_t pc, int is_return)
{
	if (is_return)
		return SCRIPT_PLACE_CALL;
	return pc - start < PYTHON_BEGIN_BYTES ? SCRIPT_PLACE_BEGIN : SCRIPT_PLACE_PC;
}

/* The C frame of an entry was walked: its Python frames are next, if it has any. @regs: of a C
 * frame that executes. */
UNWIND_INLINE void script_python_enter(struct script_walk *w, uint64_t low, uint64_t high,
				       enum script_place place,
				       const uint64_t regs[ARCH_REG_COUNT])
{
	uint32_t chain = w->python.chain;

	w->low = low;
	w->high = high;
	w->saved = w->cursor;
	w->place = SCRIPT_PLACE_CALL;
	w->on = w->cursor || w->is_torn;
	if (w->mark)
		return;
	if (chain == SCRIPT_PYTHON_OBJECTS_CFRAME || chain == SCRIPT_PYTHON_IS_ENTRY)
		w->on = w->on && w->entry;
	if (chain == SCRIPT_PYTHON_IS_ENTRY)
		w->on = w->on && w->entry < high;
	if (place == SCRIPT_PLACE_CALL || !python_has_cframe(w) || w->entry - low >= high - low)
		return;
	w->place = place;
	w->mark = high - w->entry;
	w->on = 1;
	w->is_new = w->has_yielded = w->turns = 0;
	w->seen = 0;
	w->kept[0] = place == SCRIPT_PLACE_PC ? regs[ARCH_REG_THIRD] : 0;
	w->kept[1] = place == SCRIPT_PLACE_PC ? regs[ARCH_REG_FP] : 0;
}

/* The entry before was one that executes: the chain goes on from the CFrame of this one. */
UNWIND_INLINE enum script_step python_go_on(struct script_walk *w)
{
	uint64_t entry = w->high - w->mark, frame;
	uint32_t is_torn = w->is_torn;

	w->mark = w->is_torn = 0;
	if (entry < w->low)
		return SCRIPT_STEP_DESYNC;
	if (!python_is_address(entry) ||
	    python_read_word(w, entry + w->python.cframe_frame, &frame))
		return SCRIPT_STEP_UNREAD;
	if (!is_torn && frame != w->cursor)
		return SCRIPT_STEP_DESYNC;
	w->entry = entry;
	w->cursor = w->saved = frame;
	return SCRIPT_STEP_ENTRY;
}

/* Does the CFrame of the entry at hand lead to @previous, as its last frame does? */
UNWIND_INLINE int python_is_linked(const struct script_walk *w, uint64_t previous)
{
	uint64_t outer, frame;

	return !python_read_word(w, w->entry + w->python.cframe_previous, &outer) &&
	       python_is_address(outer) &&
	       (outer - w->high < PYTHON_STACK_BYTES || outer - w->thread < PYTHON_THREAD_BYTES) &&
	       !python_read_word(w, outer + w->python.cframe_frame, &frame) && frame == previous;
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

/* Is the object at @code a code object? What is not linked may be any chain, as that of the garbage
 * collector's. The entry's pointer to its first frame may be old, and that frame's to the second;
 * those further out are linked. */
UNWIND_INLINE int python_is_code(const struct script_walk *w, uint64_t code)
{
	uint64_t type;

	return !w->place || w->turns > PYTHON_TURNS_CHECKED || !w->python.code_type ||
	       (!python_read_word(w, code + w->python.object_type, &type) &&
		type == w->python.code_type);
}

/* The cookie of the code object @code. */
UNWIND_INLINE int python_cookie(struct script_walk *w, uint64_t code, uint32_t *ret)
{
	struct python_code *known = &w->codes[(code >> 5 ^ code >> 9) & (PYTHON_CODES - 1)];

	if (known->at != code) {
		known->at = 0;
		if (UNWIND_READ(w->code, sizeof(w->code), code + w->python.cookie_at) ||
		    !python_is_code(w, code))
			return -1;
		known->cookie = script_cookie(w->code, w->python.cookie_words);
		known->at = code;
	}
	*ret = (uint32_t)known->cookie;
	return 0;
}

UNWIND_INLINE enum script_step python_step(struct script_walk *w, uint64_t words[2])
{
	const struct script_python *py = &w->python;
	uint64_t at = w->cursor, code, previous;
	uint32_t cookie;

	if (!at && !w->place) {
		w->on = 0;
		return SCRIPT_STEP_ENTRY;
	}
	if (!python_is_address(at))
		return SCRIPT_STEP_DESYNC;
	if (python_read_frame(w, at))
		return SCRIPT_STEP_UNREAD;
	/* 3.10 takes its CFrame away first, then its frame, which does not execute any more. */
	w->leaves = py->chain == SCRIPT_PYTHON_OBJECTS_CFRAME && w->entry >= w->high;
	if (w->leaves && !python_byte(w, py->frame_entry)) {
		w->on = 0;
		return SCRIPT_STEP_ENTRY;
	}
	previous = python_word(w, py->frame_previous);
	w->is_last = py->chain <= SCRIPT_PYTHON_OBJECTS_CFRAME || python_byte(w, py->frame_entry);
	if (py->chain >= SCRIPT_PYTHON_SHIM_CFRAME) {
		w->is_last = 0;
		if (python_byte(w, py->frame_entry) >= PYTHON_OWNER_SHIM) {
			if (w->place && (at - w->low >= w->high - w->low ||
					 !python_is_linked(w, previous)))
				return SCRIPT_STEP_DESYNC;
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
	if (w->is_last && w->place && !python_is_linked(w, previous))
		return SCRIPT_STEP_DESYNC;
	if (python_cookie(w, code, &cookie))
		return SCRIPT_STEP_UNREAD;
	words[0] = (uint64_t)PROF_FRAME_SCRIPT << SCRIPT_WORD_KIND_SHIFT |
		   (uint64_t)SCRIPT_CPYTHON << SCRIPT_RUNTIME_SHIFT | code;
	words[1] = (uint64_t)PROF_FRAME_SCRIPT_AT << SCRIPT_WORD_KIND_SHIFT |
		   python_position(w, code) << SCRIPT_POSITION_SHIFT | cookie;
	w->cursor = previous;
	if (!w->is_last)
		return SCRIPT_STEP_FRAME;
	w->saved = previous;
	if (py->chain == SCRIPT_PYTHON_OBJECTS || w->leaves)
		w->on = 0;
	else if (python_leave_entry(w))
		return SCRIPT_STEP_UNREAD;
	return SCRIPT_STEP_FRAME;
}

/* The frame at hand, whose second word is @b, has executed nothing, or is a generator's. */
UNWIND_INLINE int python_has_not_begun(const struct script_walk *w, uint64_t b)
{
	return script_word_position(b) == SCRIPT_POSITION_NONE ||
	       (w->python.chain == SCRIPT_PYTHON_SHIM_CFRAME &&
		python_byte(w, w->python.frame_entry) == PYTHON_OWNER_GENERATOR);
}

/* Was the frame at hand met before? Remembers a frame whose number is a power of two (Brent). */
UNWIND_INLINE int python_is_circle(struct script_walk *w)
{
	if (w->cursor == w->seen)
		return 1;
	w->turns++;
	if (!(w->turns & (w->turns - 1)))
		w->seen = w->cursor;
	return 0;
}

/* One frame of the entry at hand. */
UNWIND_INLINE enum script_step script_python_step(struct script_walk *w, uint64_t words[2])
{
	uint32_t is_first = w->cursor == w->saved;
	enum script_step step;

	if (w->mark && !w->place) {
		step = python_go_on(w);
		if (step != SCRIPT_STEP_ENTRY)
			return step;
	}
	step = w->place && python_is_circle(w) ? SCRIPT_STEP_DESYNC : python_step(w, words);
	if (is_first && step == SCRIPT_STEP_FRAME && w->place == SCRIPT_PLACE_PC)
		w->is_new = python_has_not_begun(w, words[1]);
	if (!w->place || (step == SCRIPT_STEP_FRAME && w->on))
		return step;
	w->on = 0;
	if (step == SCRIPT_STEP_FRAME)
		return step;
	if (is_first && w->place == SCRIPT_PLACE_PUSH && !w->has_yielded)
		step = SCRIPT_STEP_DESYNC; /* the entry's end pushes nothing */
	if (step != SCRIPT_STEP_ENTRY && w->is_new && (w->kept[0] || w->kept[1])) {
		w->has_yielded |= !w->cursor;
		w->cursor = w->saved = w->kept[0];
		w->kept[0] = w->kept[1];
		w->kept[1] = 0;
		w->place = SCRIPT_PLACE_PUSH;
		w->turns = 0;
		w->seen = 0;
		w->on = 1;
		return SCRIPT_STEP_BACK;
	}
	/* without a frame of its own nothing shows where the entry's shim is from */
	w->is_torn = step != SCRIPT_STEP_ENTRY || is_first;
	if (step != SCRIPT_STEP_ENTRY && w->place == SCRIPT_PLACE_BEGIN)
		return SCRIPT_STEP_BACK;
	return step;
}

#ifndef __bpf__
/* The script frames of the C frame [@low, @high) of the loop, in a thread with this
 * @thread_pointer: pairs of words, behind the *@count words at @words, which have room for @max.
 * SCRIPT_STEP_ENTRY: these are all, perhaps none. SCRIPT_STEP_FRAME: there is no room for more.
 * SCRIPT_STEP_BACK: the thread has no state. UNREAD, DESYNC: they end here. @place: is the C frame
 * in a call? If not, @regs are its. */
static inline enum script_step script_python_take(struct script_walk *w, uint64_t thread_pointer,
						  uint64_t low, uint64_t high,
						  enum script_place place,
						  const uint64_t regs[ARCH_REG_COUNT],
						  uint64_t *words, uint16_t max, uint16_t *count)
{
	uint16_t saved = *count, turns = 0;

	if (!w->is_known && !script_python_begin(w, thread_pointer))
		return SCRIPT_STEP_BACK;
	w->is_known = 1;
	script_python_enter(w, low, high, place, regs);
	while (w->on) {
		uint64_t pair[2];
		enum script_step step = script_python_step(w, pair);

		if (step == SCRIPT_STEP_UNREAD || step == SCRIPT_STEP_DESYNC) {
			*count = saved;
			return step;
		}
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
