// SPDX-License-Identifier: Apache-2.0
/* The step from frames of HotSpot's code where the innermost one is not of its full size, or holds
 * more than its size says. The code is that of JDK 8 to 25 at these places. Its blobs and the stack
 * are written here. test_java_steps.c walks a real program after each instruction. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "agent/base/cleanup.h"

#define HEAP	    0x100000ull
#define HEAP_BYTES  0x8000u
#define SEGMAP	    0x200000ull
#define STACK	    0x300000ull
#define STACK_WORDS 64u
#define NAMES	    0x400000ull
#define SEGMENT	    0x400u /* bytes of each blob, with the header before it */
#define CODE_AT	    0x180u /* in a blob */

static uint8_t heap_memory[HEAP_BYTES], segmap_memory[HEAP_BYTES / SEGMENT];
static uint64_t stack[STACK_WORDS];
static char names[64];

static int read_memory(void *to, size_t bytes, uint64_t address)
{
	const struct {
		uint64_t start;
		const void *memory;
		size_t bytes;
	} parts[] = { { HEAP, heap_memory, sizeof(heap_memory) },
		      { SEGMAP, segmap_memory, sizeof(segmap_memory) },
		      { STACK, stack, sizeof(stack) },
		      { NAMES, names, sizeof(names) } };

	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		uint64_t at = address - parts[i].start;

		if (at <= parts[i].bytes && parts[i].bytes - at >= bytes) {
			memcpy(to, (const uint8_t *)parts[i].memory + at, bytes);
			return 0;
		}
	}
	return -1;
}

#define UNWIND_READ(dst, bytes, address) read_memory(dst, bytes, address)
#define UNWIND_ELEMENT(table, index)	 NULL
#include "bpf/hotspot.bpf.h"

/* Offsets of JDK 17. */
static const struct script_hotspot layout = {
	.nmethod_names = { NAMES, NAMES + 7 },
	.heaps = { { HEAP, HEAP + HEAP_BYTES, SEGMAP } },
	.segment_shift = 10,
	.heap_header = 16,
	.blob_name = 96,
	.blob_code = 32,
	.blob_frame_words = 28,
	.blob_frame_complete = 20,
	.nmethod_compile_id = 304,
	.nmethod_orig_pc = 300,
	.nmethod_deopt = 128,
	.continuation_bytes = 48,
};

enum blob_kind { COMPILED, NATIVE, RUNTIME, STUB, ADAPTER };

/* Places in names[]. */
static const uint8_t name_of[] = {
	[COMPILED] = 7, [NATIVE] = 0, [RUNTIME] = 40, [STUB] = 40, [ADAPTER] = 15,
};

/* Writes blob @index; where its code begins. */
static uint64_t put_blob(unsigned index, enum blob_kind kind, int32_t frame_words, int32_t complete,
			 const char *code, size_t len)
{
	uint64_t blob = HEAP + index * SEGMENT + layout.heap_header, start = blob + CODE_AT;
	uint8_t *at = &heap_memory[blob - HEAP];

	memcpy(at + layout.blob_name, &(uint64_t){ NAMES + name_of[kind] }, 8);
	memcpy(at + layout.blob_code, &start, 8);
	memcpy(at + layout.blob_frame_words, &frame_words, 4);
	memcpy(at + layout.blob_frame_complete, &complete, 4);
	memset(at + CODE_AT, 0xf4, 128);
	memcpy(at + CODE_AT, code, len);
	return start;
}

/* The method that called: `call` and its return address. */
#define CALLER	  1u
#define RETURN_TO (HEAP + CALLER * SEGMENT + 16 + CODE_AT + 5)
#define CALL	  "\xe8\0\0\0\0"
#define FP	  0x1234568ull /* the caller's rbp, which is no frame pointer */
#define SP	  (STACK + 8 * 8)

struct row {
	const char *what;
	enum blob_kind kind;
	int32_t frame_words, complete;
	const char *code;
	unsigned len, pc; /* bytes of the code, where the pc is in it */
	/* Words above sp: the return address; the caller's sp; the caller's rbp, -1 = it is in rbp;
	 * an old return address, 0 = there is none. */
	unsigned return_at, sp_after;
	int fp_at;
	unsigned stale_at;
};

#define CODE(text) text, sizeof(text) - 1
#define BARRIER	   "\x55\x48\x83\xec\x20\x90\x41\x81\x7f\x20\1\0\0\0\x74\5\xe8\0\0\0\0"

static const struct row rows[] = {
	/* prologues */
	{ "entry", COMPILED, 6, 12,
	  CODE("\x89\x84\x24\0\xc0\xfe\xff\x55\x48\x83\xec\x20\x90"), 0, 0, 1, -1, 5 },
	{ "rbp pushed", COMPILED, 6, 12,
	  CODE("\x89\x84\x24\0\xc0\xfe\xff\x55\x48\x83\xec\x20\x90"), 8, 1, 2, 0, 5 },
	{ "frame there", COMPILED, 6, 12,
	  CODE("\x89\x84\x24\0\xc0\xfe\xff\x55\x48\x83\xec\x20\x90"), 12, 5, 6, 4, 0 },
	{ "entry barrier of C1, JDK 21", COMPILED, 6, 31,
	  CODE(BARRIER), 5, 5, 6, 4, 1 },
	{ "its comparison", COMPILED, 6, 31,
	  CODE(BARRIER), 6, 5, 6, 4, 1 },
	{ "its jump", COMPILED, 6, 31,
	  CODE(BARRIER), 14, 5, 6, 4, 1 },
	{ "rbp not saved yet", COMPILED, 6, 12,
	  CODE("\x48\x81\xec\x28\0\0\0\x48\x89\x6c\x24\x20\x90"), 7, 5, 6, -1, 0 },
	{ "native method", NATIVE, 10, 47,
	  CODE("\x55\x48\x8b\xec\x48\x83\xec\x40"), 1, 1, 2, 0, 9 },
	/* epilogues */
	{ "pop rbp", COMPILED, 6, 0,
	  CODE("\x48\x83\xc4\x20\x5d\x49\x3b\xa7\x48\3\0\0\x0f\x87\1\0\0\0\xc3"), 4, 1, 2, 0, 5 },
	{ "poll", COMPILED, 6, 0,
	  CODE("\x48\x83\xc4\x20\x5d\x49\x3b\xa7\x48\3\0\0\x0f\x87\1\0\0\0\xc3"), 5, 0, 1, -1, 5 },
	{ "poll wants a stop", COMPILED, 6, 0,
	  CODE("\x5d\xc3\x49\xba\0\1\2\3\4\5\6\7\x4d\x89\x97\x58\3\0\0\xe9\0\0\0\0"),
	  2, 0, 1, -1, 5 },
	{ "its store", COMPILED, 6, 0,
	  CODE("\x5d\xc3\x49\xba\0\1\2\3\4\5\6\7\x4d\x89\x97\x58\3\0\0\xe9\0\0\0\0"),
	  12, 0, 1, -1, 5 },
	{ "its jump", COMPILED, 6, 0,
	  CODE("\x5d\xc3\x49\xba\0\1\2\3\4\5\6\7\x4d\x89\x97\x58\3\0\0\xe9\0\0\0\0"),
	  19, 0, 1, -1, 5 },
	{ "a jump within", COMPILED, 6, 0, CODE("\x8b\xc3\xe9\0\0\0\0"), 2, 5, 6, 4, 1 },
	{ "exception leaves", COMPILED, 6, 0,
	  CODE("\x48\x83\xc4\x20\x5d\xe9\0\0\0\0"), 5, 0, 1, -1, 5 },
	{ "native: exception pending?", NATIVE, 10, 0,
	  CODE("\xc9\x49\x81\x7f\x08\0\0\0\0\x0f\x85\1\0\0\0\xc3"), 1, 0, 1, -1, 9 },
	{ "native: JDK 21", NATIVE, 10, 0,
	  CODE("\xc9\x49\x83\x7f\x08\0\x0f\x85\1\0\0\0\xc3\xe9\0\0\0\0"), 1, 0, 1, -1, 9 },
	{ "native: it is", NATIVE, 10, 0,
	  CODE("\xc9\x49\x83\x7f\x08\0\x0f\x85\1\0\0\0\xc3\xe9\0\0\0\0"), 13, 0, 1, -1, 9 },
	{ "native: JDK 25", NATIVE, 10, 0,
	  CODE("\xc9\x41\xf6\x47\x28\1\x74\x16\x49\xba\0\1\2\3\4\5\6\7\x4d\x89\x97\0\4\0\0\xe9"),
	  1, 0, 1, -1, 9 },
	/* in the middle */
	{ "moved by push and pop", COMPILED, 6, 0,
	  CODE("\x90\x48\x8f\x04\x24\x90"), 1, 6, 7, 5, 0 },
	{ "method handle", NATIVE, 0, 28,
	  CODE("\x8b\x59\x24\x48\x85\xdb\xff\x63\x40"), 3, 0, 1, -1, 3 },
	/* the virtual machine's own code */
	{ "safepoint blob, begin", RUNTIME, 20, -1,
	  CODE("\x55\x48\x8b\xec\x9c\x48\x83\xec\x08"), 0, 0, 1, -1, 19 },
	{ "rbp pushed", RUNTIME, 20, -1,
	  CODE("\x55\x48\x8b\xec\x9c\x48\x83\xec\x08"), 1, 1, 2, 0, 19 },
	{ "rethrow, begin", RUNTIME, 4, -1,
	  CODE("\x48\x81\xec\x18\0\0\0\x48\x89\x6c\x24\x10"), 0, 0, 1, -1, 3 },
	{ "rethrow, end", RUNTIME, 4, -1, CODE("\x90\x5d\x5a\x41\xff\xe2"), 2, 0, 1, -1, 3 },
	{ "subtype check, registers pushed", RUNTIME, -1, -1,
	  CODE("\x57\x56\x51\x50\x48\x8b\x74\x24\x30"), 4, 4, 5, -1, 0 },
	{ "subtype check, popped", RUNTIME, -1, -1,
	  CODE("\x57\x56\x51\x50\x58\x59\x5e\x5f\xc3"), 5, 3, 4, -1, 0 },
	{ "stub, rbp pushed", STUB, 0, -1, CODE("\x55\x48\x8b\xec\x48\x3b\xf7"), 1, 1, 2, 0, 0 },
};

static void begin(struct hotspot_walk *w, struct unwind_state *at, uint64_t pc)
{
	memset(w, 0, sizeof(*w));
	w->facts = layout;
	*at = (struct unwind_state){ .ip = pc, .sp = SP, .fp = FP, .regs_known = 1 };
	for (size_t i = 0; i < STACK_WORDS; i++)
		stack[i] = 3 + i;
}

static void test_innermost(void **state)
{
	static struct hotspot_walk w;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct row *row = &rows[i];
		uint64_t start = put_blob(2, row->kind, row->frame_words, row->complete, row->code,
					  row->len);
		uint64_t words[2], fp = FP;
		struct unwind_state at;

		begin(&w, &at, start + row->pc);
		stack[8 + row->return_at] = RETURN_TO;
		if (row->fp_at >= 0) {
			/* A frame that is there has its own use of rbp. */
			fp = row->fp_at ? FP + 8 : FP;
			stack[8 + row->fp_at] = fp;
		}
		if (row->stale_at)
			stack[8 + row->stale_at] = RETURN_TO + 16;
		print_message("%s\n", row->what);
		assert_int_equal(hotspot_step(&w, &at, words), UNWIND_STEPPED);
		assert_int_equal(at.ip, RETURN_TO);
		assert_int_equal(at.sp, SP + 8 * row->sp_after);
		assert_int_equal(at.fp, fp);
	}
}

/* A word at the place of a return address that follows no call is none: the walk ends. */
static void test_doubtful(void **state)
{
	static struct hotspot_walk w;
	uint64_t start = put_blob(2, COMPILED, 6, 0, CODE("\x90\x90")), words[2] = { 0, 0 };
	struct unwind_state at;

	(void)state;
	begin(&w, &at, start);
	stack[8 + 5] = RETURN_TO + 3;
	assert_int_equal(hotspot_step(&w, &at, words), UNWIND_STEPPED);
	words[0] = words[1] = 0;
	assert_int_equal(hotspot_step(&w, &at, words), UNWIND_NO_RULE);
	assert_int_equal(words[0], 0);
	begin(&w, &at, start);
	stack[8 + 5] = 0; /* no Java frame is the outermost one */
	assert_int_equal(hotspot_step(&w, &at, words), UNWIND_NO_RULE);
}

/* A stub calls C++. The word where a virtual thread's entry has its caller may look like one. */
static void test_stub_that_calls(void **state)
{
	static struct hotspot_walk w;
	static const char code[] = "\xff\xd0\x90\xc3\xc3\xc3\xc3\xc3\xc3\xc3\x90";
	uint64_t start = put_blob(2, STUB, 0, -1, CODE(code)), words[2];
	struct unwind_state at;

	(void)state;
	begin(&w, &at, start + 2);
	at.is_return = 1;
	at.fp = SP + 8 * 10;
	stack[8 + 7] = RETURN_TO + 16;
	stack[8 + 11] = RETURN_TO;
	assert_int_equal(hotspot_step(&w, &at, words), UNWIND_STEPPED);
	assert_int_equal(at.ip, RETURN_TO);
	/* the barrier below frames that are frozen: nothing has called it */
	begin(&w, &at, start + 10);
	at.is_return = 1;
	stack[8 + 7] = RETURN_TO;
	assert_int_equal(hotspot_step(&w, &at, words), UNWIND_STEPPED);
	assert_int_equal(at.ip, RETURN_TO);
	assert_int_equal(at.sp, SP + 48 + 16);
}

/* Between compiled and interpreted code, rbp is the caller's and leads past it. */
static void test_adapter(void **state)
{
	static struct hotspot_walk w;
	static const char code[] = "\x50\x89\x74\x24\x08\xff\xe1";
	uint64_t start = put_blob(2, ADAPTER, 0, -1, CODE(code)), words[2];
	struct unwind_state at;

	(void)state;
	for (unsigned is_pushed = 0; is_pushed < 2; is_pushed++) {
		begin(&w, &at, start + is_pushed);
		at.regs[ARCH_HOTSPOT_RETURN] = RETURN_TO;
		at.regs[ARCH_HOTSPOT_SENDER] = SP + 8 * 4;
		if (is_pushed)
			stack[8] = RETURN_TO;
		assert_int_equal(hotspot_step(&w, &at, words), UNWIND_STEPPED);
		assert_int_equal(at.ip, RETURN_TO);
		assert_int_equal(at.sp, SP + 8 * 4);
	}
	begin(&w, &at, start + 5);
	at.is_return = 1;
	at.regs_known = 0;
	at.fp = SP + 8 * 10;
	stack[8 + 11] = RETURN_TO;
	assert_int_equal(hotspot_step(&w, &at, words), UNWIND_NO_RULE);
}

static int set_up(void **state)
{
	(void)state;
	memcpy(names, "native nmethod", 15);
	memcpy(names + 15, "I2C/C2I adapters", 17);
	memcpy(names + 40, "StubRoutines", 13);
	(void)put_blob(CALLER, COMPILED, 4, 0, CODE(CALL));
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_innermost),
		cmocka_unit_test(test_doubtful),
		cmocka_unit_test(test_stub_that_calls),
		cmocka_unit_test(test_adapter),
	};

	return cmocka_run_group_tests(tests, set_up, NULL);
}
