// SPDX-License-Identifier: Apache-2.0
/* A program that is CPython 3.13 for whoever reads its memory, and lies. It has a state that
 * describes itself, a thread in the interpreter's loop, and two frames (innermost first) whose
 * functions are honest_inner and honest_outer. It prints "ready", waits for a line, does what its
 * argument says, and prints "lying":
 *   honest    nothing
 *   cyclic    the outer frame's caller is the inner one
 *   long      the inner function's name, and the outer one's table of lines, have 2^60 bytes
 *   wild      the outer frame is nowhere, in the kernel, or not aligned, by turns
 *   unmapped  the inner function's code object is mapped and unmapped all the time
 *   fresh     the inner function is another one 1,000 times a second, at one of a few addresses:
 *             fresh_N in the file /fresh/N.py, line N
 * Offsets: struct _Py_DebugOffsets of 3.13.0 for x86-64, in VERSION and WORDS. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#ifndef VERSION
#define VERSION 0x030d00f0
#endif
#define WORDS                                                                                      \
	0x7970677562656478, VERSION, 0, 283320, 608, 632, 194968, 7272, 7264, 7344, 7400, 7656,    \
		7640, 7648, 16, 7752, 0, 7768, 7760, 304, 0, 8, 16, 72, 152, 160, 232, 32, 80, 8,  \
		0, 56, 72, 70, 208, 112, 120, 128, 136, 68, 52, 96, 104, 200, 16, 8, 416, 24, 88,  \
		168, 32, 24, 16, 40, 24, 16, 48, 32, 40, 24, 16, 32, 16, 24, 40, 16, 32, 64, 32,   \
		16, 40, 240, 200

#define POOL	   4
#define FRESH_NS   1000000
#define UNITS	   8 /* of bytecode of each function */
#define PAGE_BYTES 4096
#define LONG	   (1ull << 60)

struct text {
	uint64_t refs, type, length, hash;
	uint32_t state, reserved;
	char data[64];
};

struct table {
	uint64_t refs, type, size, hash;
	uint8_t data[8];
};

struct code {
	uint64_t refs, type, size, words[5]; /* to 64 */
	uint32_t reserved, first_line;
	uint64_t more[2];
	uint32_t counts, version;
	uint64_t even_more[2];
	struct text *file, *name, *qualname; /* 112 */
	struct table *lines;
	uint64_t rest[7];
	uint16_t bytecode[UNITS]; /* 200 */
};

struct frame {
	const void *code;
	void *previous;
	uint64_t words[5];
	const void *instr; /* 56 */
	uint32_t reserved;
	uint16_t more;
	uint8_t owner, last; /* 70 */
	uint64_t local;
};

__attribute__((section(".PyRuntime"))) uint64_t _PyRuntime[283320 / 8] = { WORDS };
uint64_t PyCode_Type[52];
_Thread_local void *_Py_tss_tstate;

static uint64_t interpreter[194968 / 8];
static uint64_t thread[304 / 8];
static volatile int lies;
static struct frame inner, outer;

static struct function {
	struct code code;
	struct text file, name;
	struct table lines;
} functions[2], pool[POOL];

static void set_text(struct text *text, const char *data)
{
	text->refs = 1;
	text->length = strlen(data);
	text->state = 1 << 2 | 1 << 5 | 1 << 6; /* one byte a character, compact, ASCII */
	memcpy(text->data, data, strlen(data) + 1);
}

/* As an interpreter that frees a function and makes another one at its address. */
static void make(struct function *f, const char *name, const char *file, uint32_t line)
{
	f->code.refs = 0;
	__sync_synchronize();
	f->code.version = line;
	__sync_synchronize();
	set_text(&f->file, file);
	set_text(&f->name, name);
	/* one range of UNITS code units, without columns, in the first line (3.11 and newer) */
	f->lines = (struct table){ .refs = 1, .size = 2, .data = { 0x80 | 13 << 3 | (UNITS - 1), 0 } };
	f->code.type = (uintptr_t)PyCode_Type;
	f->code.first_line = line;
	f->code.file = &f->file;
	f->code.name = f->code.qualname = &f->name;
	f->code.lines = &f->lines;
	__sync_synchronize();
	f->code.refs = 1;
}

static void run(struct frame *frame, const struct code *code)
{
	frame->instr = code->bytecode + 1;
	frame->code = code;
}

/* Never returns. What separates its frames from those of a caller lies in its own C frame. */
__attribute__((noinline)) uint64_t _PyEval_EvalFrameDefault(uint64_t sum)
{
	volatile struct frame shim = { .owner = 3 };

	outer.previous = (void *)&shim;
	inner.previous = &outer;
	__sync_synchronize();
	thread[72 / 8] = (uintptr_t)&inner;
	while (shim.owner)
		sum = sum * 2862933555777941757ull + 1;
	return sum;
}

static void *interpret(void *unused)
{
	pthread_key_t key;

	(void)unused;
	thread[16 / 8] = (uintptr_t)interpreter;
	thread[152 / 8] = (uintptr_t)pthread_self();
	_PyRuntime[632 / 8] = (uintptr_t)interpreter;
	interpreter[7344 / 8] = (uintptr_t)thread;
	(void)pthread_key_create(&key, NULL);
	(void)pthread_setspecific(key, thread);
	_Py_tss_tstate = thread;
	(void)_PyEval_EvalFrameDefault(1);
	return NULL;
}

static void pause_ns(long ns)
{
	(void)nanosleep(&(struct timespec){ .tv_nsec = ns }, NULL);
}

static void be_wild(void)
{
	static const uintptr_t places[] = { 16, 0xffff800000001000, 0x7ffffffff001, 0x10000 };

	for (unsigned i = 0;; i++) {
		inner.previous = (void *)places[i % 4];
		pause_ns(FRESH_NS);
	}
}

static void unmap(void)
{
	char *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (int i = 0; i < 1 || page != MAP_FAILED; i++) {
		memcpy(page, &functions[0].code, sizeof(struct code));
		run(&inner, (const struct code *)page);
		for (int spin = 0; spin < 100000; spin++)
			__asm__ volatile("");
		(void)munmap(page, PAGE_BYTES);
		for (int spin = 0; spin < 100000; spin++)
			__asm__ volatile("");
		page = mmap(page, PAGE_BYTES, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	}
}

static void be_fresh(void)
{
	for (uint32_t n = 1;; n++) {
		struct function *f = &pool[n % POOL];
		char name[32], file[32];

		(void)snprintf(name, sizeof(name), "fresh_%u", n);
		(void)snprintf(file, sizeof(file), "/fresh/%u.py", n);
		make(f, name, file, n);
		run(&inner, &f->code);
		pause_ns(FRESH_NS);
	}
}

static void lie(const char *how)
{
	if (!strcmp(how, "cyclic"))
		outer.previous = &inner;
	if (!strcmp(how, "long")) {
		for (int i = 0; i < 2; i++)
			make(&pool[i], i ? "long_table" : "long_name", "/long.py", 1);
		pool[0].name.length = pool[1].lines.size = LONG;
		run(&inner, &pool[0].code);
		run(&outer, &pool[1].code);
	}
	(void)puts("lying");
	(void)fflush(stdout);
	if (!strcmp(how, "wild"))
		be_wild();
	if (!strcmp(how, "unmapped"))
		unmap();
	if (!strcmp(how, "fresh"))
		be_fresh();
}

int main(int argc, char **argv)
{
	pthread_t interpreting;

	make(&functions[0], "honest_inner", "/honest.py", 10);
	make(&functions[1], "honest_outer", "/honest.py", 20);
	run(&inner, &functions[0].code);
	run(&outer, &functions[1].code);
	(void)pthread_create(&interpreting, NULL, interpret, NULL);
	(void)puts("ready");
	(void)fflush(stdout);
	(void)getchar();
	lie(argc > 1 ? argv[1] : "honest");
	(void)pthread_join(interpreting, NULL);
	return 0;
}
