// SPDX-License-Identifier: Apache-2.0
/* The walk over CPython's frames (bpf/python.bpf.h), compiled for the host, in a memory that the
 * test writes: each version's chain, entries that are not walked or not begun, hostile chains. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/cleanup.h"
#include "agent/runtimes/cpython_layout.h"
#include "bpf/profiler.h"

#define HEAP_AT	    0x7f0000000000ull
#define STACK_AT    0x7ffe00000000ull
#define REGION	    65536u
#define THREAD	    (HEAP_AT + 0x100) /* PyThreadState */
#define POINTER	    (HEAP_AT + 0x40)  /* of the thread: where its fs base points to */
#define CODE(n)	    (HEAP_AT + 0x1000 + (n)*0x200)
#define FRAME(n)    (HEAP_AT + 0xe000 - (n)*0x78) /* callers lie below, as in a real thread */
#define POSITION(n) (10 + (n)) /* at which frame n is */

static uint8_t heap[REGION], stack[REGION];
static uint64_t hole; /* address of a page that cannot be read, 0 = none */
static unsigned reads;

static uint8_t *place(uint64_t address, size_t bytes)
{
	if (address >= HEAP_AT && address + bytes <= HEAP_AT + REGION)
		return heap + (address - HEAP_AT);
	if (address >= STACK_AT && address + bytes <= STACK_AT + REGION)
		return stack + (address - STACK_AT);
	return NULL;
}

static int read_target(void *dst, size_t bytes, uint64_t address)
{
	const uint8_t *from = place(address, bytes);

	reads++;
	if (!from || (hole && address < hole + 4096 && address + bytes > hole))
		return -14;
	memcpy(dst, from, bytes);
	return 0;
}

#define UNWIND_READ(dst, bytes, address) read_target(dst, bytes, address)
#define UNWIND_ELEMENT(table, index)	 NULL
#include "bpf/python.bpf.h"

static void put(uint64_t address, const void *value, size_t bytes)
{
	uint8_t *to = place(address, bytes);

	assert_non_null(to);
	memcpy(to, value, bytes);
}

static void put_word(uint64_t address, uint64_t value)
{
	put(address, &value, sizeof(value));
}

/* A C frame of the interpreter's loop covers [STACK_AT + 0x100 * n, the same + 0x100). */
static uint64_t low_of(unsigned entry)
{
	return STACK_AT + 0x100ull * entry;
}

/* The structure in the C frame of @entry: CFrame or shim. */
static uint64_t mark_of(unsigned entry)
{
	return low_of(entry) + 0x40;
}

static struct script_walk walk;

static void use_version(unsigned minor)
{
	memset(heap, 0, sizeof(heap));
	memset(stack, 0, sizeof(stack));
	hole = 0;
	walk = (struct script_walk){ 0 };
	if (minor < 13) {
		assert_int_equal(cpython_layout_of_version(minor, &walk.python), 0);
	} else { /* as the file of 3.13 describes itself */
		assert_int_equal(cpython_layout_of_version(12, &walk.python), 0);
		walk.python.chain = SCRIPT_PYTHON_SHIM;
		walk.python.thread_frame = 72;
	}
	walk.python.tss_at = 8;
	put_word(POINTER + 8, THREAD);
}

/* Frame @n with its code object. @entry: is_entry (3.11) or owner (3.12 and newer). */
static void put_frame(uint64_t at, unsigned n, uint64_t previous, uint8_t entry)
{
	const struct script_python *py = &walk.python;
	uint64_t instr = CODE(n) + py->code_bytecode + 2 * POSITION(n);

	put_word(at + py->frame_previous, previous);
	put_word(at + py->frame_code, CODE(n));
	if (py->flags & SCRIPT_PYTHON_LASTI_BYTES)
		instr = 2 * POSITION(n);
	else if (py->flags & SCRIPT_PYTHON_LASTI_UNITS)
		instr = POSITION(n);
	put(at + py->frame_instr, &instr, py->chain <= SCRIPT_PYTHON_OBJECTS_CFRAME ? 4 : 8);
	if (py->chain > SCRIPT_PYTHON_OBJECTS_CFRAME)
		put(at + py->frame_entry, &entry, 1);
	put_word(CODE(n) + py->cookie_at, 0x1234 + n);
}

/* Two entries: the inner one (C frame 1) executes @inner frames, the outer one (C frame 3) @outer.
 * The frames are numbered from the innermost. */
static void put_chain(unsigned inner, unsigned outer)
{
	const struct script_python *py = &walk.python;
	unsigned total = inner + outer;
	uint64_t cframe = mark_of(1), head = FRAME(0);

	for (unsigned n = 0; n < total; n++) {
		bool is_last = n == inner - 1 || n == total - 1;
		uint64_t previous = n == total - 1 ? 0 : FRAME(n + 1);

		if (py->chain >= SCRIPT_PYTHON_SHIM_CFRAME && is_last)
			previous = mark_of(n == inner - 1 ? 1 : 3);
		put_frame(FRAME(n), n, previous, py->chain == SCRIPT_PYTHON_IS_ENTRY && is_last);
	}
	if (py->chain >= SCRIPT_PYTHON_SHIM_CFRAME) {
		cframe += 0x80;
		put_frame(mark_of(1), 60, FRAME(inner), 3);
		put_frame(mark_of(3), 61, 0, 3);
	}
	if (py->chain == SCRIPT_PYTHON_IS_ENTRY || py->chain == SCRIPT_PYTHON_SHIM_CFRAME) {
		put_word(THREAD + py->thread_frame, cframe);
		put_word(cframe + py->cframe_frame, head);
	} else {
		put_word(THREAD + py->thread_frame, head);
	}
	if (py->chain == SCRIPT_PYTHON_OBJECTS_CFRAME)
		put_word(THREAD + py->thread_cframe, mark_of(1));
	if (py->chain == SCRIPT_PYTHON_IS_ENTRY || py->chain == SCRIPT_PYTHON_OBJECTS_CFRAME) {
		put_word(mark_of(1) + py->cframe_previous, mark_of(3));
		put_word(mark_of(3) + py->cframe_previous, THREAD + 0x80); /* the root */
	}
}

/* The frames of C frame @entry from number *@at on; how the entry ended. */
static enum script_step take_entry(unsigned entry, unsigned *at)
{
	enum script_step step = SCRIPT_STEP_ENTRY;
	uint64_t words[2];

	script_python_enter(&walk, low_of(entry), low_of(entry) + 0x100, SCRIPT_PLACE_CALL, NULL);
	for (unsigned turn = 0; walk.on; turn++) {
		assert_true(turn < 1000);
		step = script_python_step(&walk, words);
		if (step == SCRIPT_STEP_UNREAD || step == SCRIPT_STEP_DESYNC)
			return step;
		if (step != SCRIPT_STEP_FRAME)
			continue;
		assert_int_equal(prof_frame_kind(words[0]), PROF_FRAME_SCRIPT);
		assert_int_equal(prof_frame_kind(words[1]), PROF_FRAME_SCRIPT_AT);
		assert_int_equal(script_word_runtime(words[0]), SCRIPT_CPYTHON);
		assert_int_equal(script_word_pointer(words[0]), CODE(*at));
		assert_int_equal(script_word_position(words[1]), POSITION(*at));
		++*at;
	}
	return step;
}

static const unsigned versions[] = { 8, 9, 10, 11, 12, 13 };

static unsigned frames_of(unsigned minor)
{
	return minor <= 10 ? 1 : 4; /* of one entry, at most */
}

static void each_entry_has_its_frames(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(versions); i++) {
		unsigned count = frames_of(versions[i]), at = 0;

		use_version(versions[i]);
		put_chain(count, count);
		assert_true(script_python_begin(&walk, POINTER));
		(void)take_entry(1, &at);
		assert_int_equal(at, count);
		(void)take_entry(3, &at);
		assert_int_equal(at, 2 * count);
	}
}

/* A C frame inside of the innermost entry that has not entered it yet, as in its prologue. */
static void a_c_frame_that_has_not_entered_has_none(void **state)
{
	(void)state;
	for (size_t i = 2; i < ARRAY_SIZE(versions); i++) { /* before 3.10 nothing tells */
		unsigned count = frames_of(versions[i]), at = 0, none = 0;
		uint64_t cursor;
		uint64_t words[2];

		use_version(versions[i]);
		put_chain(count, count);
		assert_true(script_python_begin(&walk, POINTER));
		cursor = walk.cursor;
		script_python_enter(&walk, low_of(0), low_of(0) + 0x100, SCRIPT_PLACE_CALL, NULL);
		while (walk.on)
			none = script_python_step(&walk, words);
		assert_true(versions[i] < 12 || none == SCRIPT_STEP_BACK);
		assert_int_equal(walk.cursor, cursor);
		(void)take_entry(1, &at);
		(void)take_entry(3, &at);
		assert_int_equal(at, 2 * count);
	}
}

/* ---- entries that execute: what they publish may not be linked yet (3.11, 3.12) -------------- */

static uint64_t cframe_of(unsigned entry)
{
	return mark_of(entry) + (walk.python.chain == SCRIPT_PYTHON_SHIM_CFRAME ? 0x80 : 0);
}

/* The chain of put_chain() with all that CFrames lead to. */
static void put_linked_chain(unsigned minor)
{
	const struct script_python *py = &walk.python;

	use_version(minor);
	put_chain(3, 2);
	put_word(cframe_of(1) + py->cframe_previous, cframe_of(3));
	put_word(cframe_of(3) + py->cframe_frame, FRAME(3));
	put_word(cframe_of(3) + py->cframe_previous, THREAD + 0x80); /* the root */
}

/* C frame 1, which executes with @pushing in a register: how many frames it has, which are those
 * from number @first on. Then those of C frame 3, always numbers 3 and 4. */
static unsigned take_executing(enum script_place place, uint64_t pushing, unsigned first,
			       enum script_step *ret_step)
{
	uint64_t regs[ARCH_REG_COUNT] = { [ARCH_REG_FP] = pushing }, words[64];
	unsigned outer = 3;
	uint16_t count = 0;

	walk.is_known = 0;
	*ret_step = script_python_take(&walk, POINTER, low_of(1), low_of(1) + 0x100, place, regs,
				       words, ARRAY_SIZE(words), &count);
	for (unsigned i = 0; i < count / 2u; i++)
		assert_int_equal(script_word_pointer(words[2 * i]), CODE(first + i));
	(void)take_entry(3, &outer);
	assert_int_equal(outer, 5);
	return count / 2u;
}

static void an_entry_that_executes_is_checked(void **state)
{
	enum script_step step;

	(void)state;
	for (unsigned minor = 11; minor <= 12; minor++) {
		put_linked_chain(minor);
		assert_int_equal(take_executing(SCRIPT_PLACE_PC, 0, 0, &step), 3);
		assert_int_equal(take_executing(SCRIPT_PLACE_BEGIN, 0, 0, &step), 3);
		assert_int_equal(step, SCRIPT_STEP_ENTRY);
	}
}

/* The CFrame is published and holds what an earlier call left there. */
static void an_entry_that_is_being_made_has_no_frame(void **state)
{
	const uint64_t left[] = { 0, 0x1234567, HEAP_AT + 2 * REGION, FRAME(3), FRAME(9) };
	enum script_step step;

	(void)state;
	for (unsigned minor = 11; minor <= 12; minor++)
		for (size_t i = 0; i < ARRAY_SIZE(left); i++) {
			put_linked_chain(minor);
			put_frame(FRAME(9), 9, FRAME(10), 0); /* a circle */
			put_frame(FRAME(10), 10, FRAME(9), 0);
			put_word(cframe_of(1) + walk.python.cframe_frame, left[i]);
			put_word(cframe_of(1) + walk.python.cframe_previous, left[i]);
			assert_int_equal(take_executing(SCRIPT_PLACE_BEGIN, 0, 0, &step), 0);
			assert_int_equal(step, SCRIPT_STEP_ENTRY);
		}
}

/* Frame 0 is published, and its caller not yet stored: it is in a register. Without it the frames
 * of this entry are missing, which counts, and those of the next one are there. */
static void a_frame_that_is_being_pushed_has_not_begun(void **state)
{
	const uint64_t left[] = { 0, HEAP_AT + 2 * REGION, FRAME(3), FRAME(9) };
	enum script_step step;

	(void)state;
	for (unsigned minor = 11; minor <= 12; minor++)
		for (size_t i = 0; i < ARRAY_SIZE(left); i++) {
			const struct script_python *py = &walk.python;

			put_linked_chain(minor);
			put_frame(FRAME(9), 9, FRAME(10), 0);
			put_frame(FRAME(10), 10, FRAME(9), 0);
			put_word(FRAME(0) + py->frame_previous, left[i]);
			put_word(FRAME(0) + py->frame_instr, CODE(0) + py->code_bytecode - 2);
			assert_int_equal(take_executing(SCRIPT_PLACE_PC, FRAME(1), 1, &step), 2);
			assert_int_equal(step, SCRIPT_STEP_ENTRY);
			assert_int_equal(take_executing(SCRIPT_PLACE_PC, FRAME(9), 1, &step), 0);
			assert_int_not_equal(step, SCRIPT_STEP_ENTRY);
			/* a frame that has begun was pushed before */
			put_word(FRAME(0) + py->frame_instr, CODE(0) + py->code_bytecode);
			assert_int_equal(take_executing(SCRIPT_PLACE_PC, FRAME(1), 1, &step), 0);
			assert_int_not_equal(step, SCRIPT_STEP_ENTRY);
		}
}

/* 3.10 leaves an entry in two steps: its CFrame is gone, its returned frame is still there. */
static void a_c_frame_that_leaves_has_its_frame(void **state)
{
	const uint8_t returned = 1;
	unsigned at = 0;

	(void)state;
	use_version(10);
	put_chain(1, 1);
	put_word(THREAD + walk.python.thread_cframe, mark_of(3));
	put(FRAME(0) + walk.python.frame_entry, &returned, 1);
	assert_true(script_python_begin(&walk, POINTER));
	(void)take_entry(1, &at);
	assert_int_equal(at, 1);
	(void)take_entry(3, &at);
	assert_int_equal(at, 2);
}

/* The C frame of the inner entry was not recognized: the outer one brings its frames, too. */
static void frames_of_an_entry_that_was_not_seen_stay(void **state)
{
	(void)state;
	for (size_t i = 2; i < ARRAY_SIZE(versions); i++) {
		unsigned count = frames_of(versions[i]), at = 0;

		use_version(versions[i]);
		put_chain(count, count);
		assert_true(script_python_begin(&walk, POINTER));
		(void)take_entry(3, &at);
		assert_int_equal(at, 2 * count);
	}
}

static void a_thread_without_state_has_none(void **state)
{
	(void)state;
	use_version(11);
	put_chain(2, 2);
	put_word(POINTER + 8, 0);
	assert_false(script_python_begin(&walk, POINTER));
	put_word(POINTER + 8, THREAD + 1); /* not a pointer */
	assert_false(script_python_begin(&walk, POINTER));
	assert_false(script_python_begin(&walk, 0x1000)); /* not mapped */
	/* The variable of 3.12 is NULL while the thread has released the lock: the key still has it. */
	use_version(12);
	put_chain(2, 2);
	walk.python.tls_at = 16;
	assert_true(script_python_begin(&walk, POINTER));
}

static void hostile_chains_end(void **state)
{
	unsigned at = 0;

	(void)state;
	for (size_t i = 3; i < ARRAY_SIZE(versions); i++) {
		const struct script_python *py = &walk.python;

		use_version(versions[i]);
		put_chain(3, 3);
		put_word(FRAME(1) + py->frame_previous, FRAME(1)); /* itself */
		assert_true(script_python_begin(&walk, POINTER));
		at = 0;
		assert_int_equal(take_entry(1, &at), SCRIPT_STEP_DESYNC);

		put_word(FRAME(1) + py->frame_previous, FRAME(2));
		put_word(FRAME(1) + py->frame_code, 0xffffffff81000000ull); /* the kernel's */
		assert_true(script_python_begin(&walk, POINTER));
		at = 0;
		assert_int_equal(take_entry(1, &at), SCRIPT_STEP_DESYNC);

		put_word(FRAME(1) + py->frame_code, HEAP_AT + 2 * REGION); /* not mapped */
		assert_true(script_python_begin(&walk, POINTER));
		at = 0;
		assert_int_equal(take_entry(1, &at), SCRIPT_STEP_UNREAD);

		put_word(FRAME(0) + py->frame_previous, HEAP_AT + 2 * REGION);
		assert_true(script_python_begin(&walk, POINTER));
		at = 0;
		assert_int_equal(take_entry(1, &at), SCRIPT_STEP_UNREAD);
	}
}

/* The frames of an entry come with few reads, and no byte is read of a page that none lies in. */
static void callers_that_lie_below_are_read_together(void **state)
{
	(void)state;
	for (size_t i = 3; i < ARRAY_SIZE(versions); i++) {
		unsigned at = 0;

		use_version(versions[i]);
		put_chain(30, 3);
		hole = HEAP_AT + 0xc000;
		assert_true(FRAME(32) >= hole + 4096);
		assert_true(script_python_begin(&walk, POINTER));
		reads = 0;
		(void)take_entry(1, &at);
		assert_int_equal(at, 30);
		assert_true(reads <= 30 + 8); /* of each a code object */
		(void)take_entry(3, &at);
		assert_int_equal(at, 33);
	}
}

/* A function that calls itself is read once; another one between its frames stays another one. */
static void a_function_that_calls_itself_is_read_once(void **state)
{
	(void)state;
	for (size_t i = 3; i < ARRAY_SIZE(versions); i++) {
		uint64_t words[2], first[2] = { 0, 0 };
		unsigned count = 0, other = 0;

		use_version(versions[i]);
		put_chain(30, 3);
		for (unsigned n = 0; n < 30; n++)
			if (n != 7)
				put_word(FRAME(n) + walk.python.frame_code, CODE(0));
		assert_true(script_python_begin(&walk, POINTER));
		script_python_enter(&walk, low_of(1), low_of(1) + 0x100, SCRIPT_PLACE_CALL, NULL);
		reads = 0;
		while (walk.on) {
			if (script_python_step(&walk, words) != SCRIPT_STEP_FRAME)
				continue;
			if (!count)
				memcpy(first, words, sizeof(first));
			other += words[0] != first[0];
			assert_int_equal(script_word_cookie(words[1]) == script_word_cookie(first[1]),
					 words[0] == first[0]);
			assert_int_equal(script_word_pointer(words[0]), CODE(count == 7 ? 7 : 0));
			count++;
		}
		assert_int_equal(count, 30);
		assert_int_equal(other, 1);
		assert_true(reads <= 12);
	}
}

static void a_position_outside_is_none(void **state)
{
	uint64_t words[2];

	(void)state;
	use_version(11);
	put_chain(2, 2);
	put_word(FRAME(0) + walk.python.frame_instr, CODE(0) + walk.python.code_bytecode - 2);
	assert_true(script_python_begin(&walk, POINTER));
	script_python_enter(&walk, low_of(1), low_of(1) + 0x100, SCRIPT_PLACE_CALL, NULL);
	assert_int_equal(script_python_step(&walk, words), SCRIPT_STEP_FRAME);
	assert_int_equal(script_word_position(words[1]), SCRIPT_POSITION_NONE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_entry_has_its_frames),
		cmocka_unit_test(a_c_frame_that_has_not_entered_has_none),
		cmocka_unit_test(an_entry_that_executes_is_checked),
		cmocka_unit_test(an_entry_that_is_being_made_has_no_frame),
		cmocka_unit_test(a_frame_that_is_being_pushed_has_not_begun),
		cmocka_unit_test(a_c_frame_that_leaves_has_its_frame),
		cmocka_unit_test(frames_of_an_entry_that_was_not_seen_stay),
		cmocka_unit_test(a_thread_without_state_has_none),
		cmocka_unit_test(hostile_chains_end),
		cmocka_unit_test(callers_that_lie_below_are_read_together),
		cmocka_unit_test(a_function_that_calls_itself_is_read_once),
		cmocka_unit_test(a_position_outside_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
