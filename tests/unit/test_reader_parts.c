// SPDX-License-Identifier: Apache-2.0
/* The pure parts of the reader: what it does with text, code and tables that a target wrote. */
#include <elf.h>
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "agent/reader/call_site.h"
#include "agent/reader/go_buckets.h"
#include "agent/reader/go_functions.h"
#include "agent/reader/go_globals.h"
#include "agent/reader/go_goroutines.h"
#include "agent/reader/go_pctab.h"
#include "agent/reader/go_types.h"
#include "agent/reader/target_maps.h"
#include "agent/reader/thread_ids.h"
#include "agent/reader/thread_pointer.h"
#include "agent/reader/thread_wait.h"
#include "bpf/arch.h"

/* ---- thread pointers ------------------------------------------------------------------------- */

/* The C library that this test runs with, in a thread of its own. */
static void *check_pointer(void *argument)
{
	const uint64_t pthread_va = (uint64_t)pthread_self();
	const uint64_t pointer_va = (uint64_t)(uintptr_t)__builtin_thread_pointer();
	struct target *target = argument;
	uint64_t dtv_va = 0, entry = 0;
	uint32_t above = UINT32_MAX;

	assert_int_equal(thread_pointer_above(target, pthread_va, &above), 0);
	assert_int_equal(pthread_va + above, pointer_va);
	/* its first entry is a count: the length lies before it */
	assert_int_equal(thread_pointer_dtv(target, pointer_va, &dtv_va), 0);
	assert_int_equal(target_read(target, dtv_va - THREAD_DTV_ENTRY_BYTES, &entry, sizeof(entry)), 0);
	assert_in_range(entry, 1, 4096);
	return NULL;
}

static void test_thread_pointer(void **state)
{
	cleanup_target struct target target = TARGET_NONE;
	static uint64_t nothing[1024];
	uint32_t above = 1;
	pthread_t thread;

	assert_int_equal(target_open((uint32_t)getpid(), 0, &target), 0);
	(void)check_pointer(&target);
	assert_int_equal(pthread_create(&thread, NULL, check_pointer, &target), 0);
	(void)pthread_join(thread, NULL);
	/* another C library's structure, or none */
	assert_int_equal(thread_pointer_above(&target, (uint64_t)(uintptr_t)nothing, &above),
			 ARCH_TLS_ABOVE ? -ENODATA : 0);
	assert_int_equal(above, 0);
}

/* ---- maps ------------------------------------------------------------------------------------ */

static const char maps_text[] =
	"00400000-00401000 r--p 00000000 08:01 42    /bin/a program\n"
	"00401000-00403000 r-xp 00001000 08:01 42    /bin/a program\n"
	"00500000-00600000 rw-p 00000000 00:00 0     [heap]\n"
	"7f0000000000-7f0000002000 r-xp 00010000 fe:1f 7   /lib/x\\012y.so (deleted)\n"
	"7f0000003000-7f0000004000 r-xp 00000000 00:00 0   [vdso]\n"
	"7f0000003800-7f0000004000 r-xp 00000000 08:01 9   /overlaps\n"
	"nonsense\n"
	"7f0000005000-7f0000004000 r-xp 00000000 08:01 9   /backwards\n"
	"7f0000008000-7f0000009000 r-xp 00000000 08:01 99999999999999999999 /inode\n"
	"7f0000009000-7f000000a000 r--s 00000000 08:01 42  /bin/a program";

static void test_maps(void **state)
{
	struct target_maps maps;
	const struct target_map *m;

	assert_int_equal(target_maps_parse(maps_text, sizeof(maps_text) - 1, &maps), 0);
	assert_int_equal(maps.count, 5);
	assert_int_equal(maps.module_count, 3);
	assert_int_equal(maps.dropped, 4);
	assert_string_equal(target_maps_path(&maps, 0), "/bin/a program");
	assert_string_equal(target_maps_path(&maps, 1), "/lib/x\ny.so");
	assert_true(maps.modules[2].vdso);
	assert_int_equal(maps.modules[1].dev_major, 0xfe);
	assert_int_equal(maps.modules[1].dev_minor, 0x1f);
	assert_null(target_maps_find(&maps, 0x3fffff));
	assert_null(target_maps_find(&maps, 0x500000));
	m = target_maps_find(&maps, 0x402fff);
	assert_non_null(m);
	assert_int_equal(m->start_fo, 0x1000);
	assert_int_equal(m->prot, TARGET_MAP_READ | TARGET_MAP_EXEC);
	assert_null(target_maps_find(&maps, 0x403000));
	assert_int_equal(target_maps_find(&maps, 0x7f0000009000)->module, 0);
	target_maps_deinit(&maps);
	assert_int_equal(target_maps_parse("", 0, &maps), 0);
	assert_null(target_maps_find(&maps, 1));
	target_maps_deinit(&maps);
}

/* ---- waits ----------------------------------------------------------------------------------- */

static void test_syscall_text(void **state)
{
	struct thread_syscall call = { .number = 77 };

	assert_int_equal(thread_syscall_parse("running\n", &call), 0);
	assert_false(call.blocked);
	assert_int_equal(call.number, -1);
	assert_int_equal(thread_syscall_parse("-1 0x7ffc10 0x401000\n", &call), 0);
	assert_true(call.blocked);
	assert_int_equal(call.sp, 0x7ffc10);
	assert_int_equal(
		thread_syscall_parse("202 0x1 0x80 0x3 0x0 0x0 0xf 0x7ffd0 0x7f12\n", &call), 0);
	assert_int_equal(call.number, 202);
	assert_int_equal(call.args[5], 0xf);
	assert_int_equal(call.pc, 0x7f12);
	call.number = 5;
	assert_int_equal(thread_syscall_parse("202 0x1", &call), -EINVAL);
	assert_int_equal(thread_syscall_parse("", &call), -EINVAL);
	assert_int_equal(call.number, 5);
}

static void test_wait_words(void **state)
{
	static const struct {
		int number;
		const char *link;
		const char *wchan;
		const char *word;
	} rows[] = {
		{ SYS_futex, "", "futex_do_wait", "futex" },
		{ SYS_read, "pipe:[1]", "x", "pipe read" },
		{ SYS_read, "socket:[1]", "x", "socket read" },
		{ SYS_write, "/dev/pts/3", "x", "tty write" },
		{ SYS_pread64, "/var/lib/data", "x", "file read" },
		{ SYS_read, "anon_inode:[eventfd]", "x", "eventfd read" },
		{ SYS_read, "anon_inode:[perf_event]", "x", "read" },
		{ SYS_accept4, "", "x", "socket accept" },
		{ SYS_clock_nanosleep, "", "hrtimer_nanosleep", "nanosleep" },
		{ SYS_restart_syscall, "", "do_sys_poll", "poll" },
		{ SYS_restart_syscall, "", "hrtimer_nanosleep", "nanosleep" },
		{ -1, "", "folio_wait_bit_common", "fault" },
		{ SYS_getpid, "", "some_new_function", "some_new_function" },
		{ SYS_getpid, "", "0", "" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		const struct thread_syscall call = { .blocked = true, .number = rows[i].number };

		assert_string_equal(
			thread_wait_word(&call, thread_file_kind(rows[i].link), rows[i].wchan),
			rows[i].word);
	}
	assert_int_equal(thread_wait_descriptor(SYS_read), 0);
	assert_int_equal(thread_wait_descriptor(SYS_futex), -1);
	assert_string_equal(thread_state_word('D'), "blocked");
	assert_string_equal(thread_state_word('S'), "sleeping");
	assert_string_equal(thread_state_word('?'), "");
}

static void test_blocked_reasons(void **state)
{
	assert_true(go_goroutine_is_blocked("chan receive (nil chan)"));
	assert_true(go_goroutine_is_blocked("sync.WaitGroup.Wait"));
	assert_true(go_goroutine_is_blocked("IO wait"));
	assert_false(go_goroutine_is_blocked("sleep"));
	assert_false(go_goroutine_is_blocked("GC worker (idle)"));
	assert_false(go_goroutine_is_blocked(""));
}

static void test_inner_thread_ids(void **state)
{
	assert_int_equal(thread_ids_inner("Name:\ta\nNSpid:\t812\t7\nNSpgid:\t1\n"), 7);
	assert_int_equal(thread_ids_inner("Name:\ta\nNSpid:\t812\t30\t9\n"), 9);
	assert_int_equal(thread_ids_inner("Name:\ta\nNSpid:\t812\n"), 0);
	assert_int_equal(thread_ids_inner("Name:\ta\n"), 0);
	assert_int_equal(thread_ids_inner("Name:\tNSpid:\t1\t2\n"), 0);
}

/* ---- code ------------------------------------------------------------------------------------ */

#if defined(__x86_64__)
static void test_call_sites(void **state)
{
	static const struct {
		uint8_t bytes[8];
		enum call_site kind;
		uint64_t target;
	} rows[] = {
		{ { 0x90, 0x90, 0x90, 0xe8, 0x10, 0, 0, 0 }, CALL_SITE_DIRECT, 0x1010 },
		{ { 0x90, 0x90, 0x90, 0xe8, 0xf0, 0xff, 0xff, 0xff }, CALL_SITE_DIRECT, 0xff0 },
		{ { 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xd0 }, CALL_SITE_INDIRECT, 0 },
		{ { 0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0x50, 0x18 }, CALL_SITE_INDIRECT, 0 },
		{ { 0x90, 0x90, 0x90, 0x90, 0xff, 0x54, 0x24, 0x08 }, CALL_SITE_INDIRECT, 0 },
		{ { 0x90, 0x90, 0xff, 0x15, 1, 2, 3, 4 }, CALL_SITE_INDIRECT, 0 },
		{ { 0x90, 0xff, 0x94, 0x24, 1, 2, 3, 4 }, CALL_SITE_INDIRECT, 0 },
		{ { 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xff, 0xe0 }, CALL_SITE_NONE, 0 }, /* jmp */
		{ { 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xc3 }, CALL_SITE_NONE, 0 },
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		uint64_t target = 0;

		assert_int_equal(call_site_before(rows[i].bytes, 0x1000, &target), rows[i].kind);
		assert_int_equal(target, rows[i].target);
	}
}
#endif

static void test_operands(void **state)
{
	/* mov 0x100(%rip),%rax; nop; cmpl $1,0x200(%rip); mov far outside */
	static const uint8_t amd64[] = { 0x48, 0x8b, 0x05, 0x00, 0x01, 0,   0,	  0x90,
					 0x83, 0x3d, 0x00, 0x02, 0,    0,   0x01, 0x48,
					 0x8b, 0x0d, 0,	   0,	 0,    0x10 };
	/* adrp x0, +1 page; nop; ldr x1, [x0, #16]; add x2, x0, #0x20 */
	static const uint32_t arm64[] = { 0xb0000000, 0xd503201f, 0xf9400801, 0x91008002 };
	const struct go_range range = { 0x1000, 0x10000 };
	uint64_t found[4];

	assert_int_equal(
		go_code_operands(EM_X86_64, amd64, sizeof(amd64), 0x1000, &range, found, 4), 2);
	assert_int_equal(found[0], 0x1107);
	assert_int_equal(found[1], 0x120f);
	assert_int_equal(
		go_code_operands(EM_X86_64, amd64, sizeof(amd64), 0x1000, &range, found, 1), 1);
	assert_int_equal(go_code_operands(EM_AARCH64, (const uint8_t *)arm64, sizeof(arm64), 0x4000,
					  &range, found, 4),
			 2);
	assert_int_equal(found[0], 0x5010);
	assert_int_equal(found[1], 0x5020);
}

/* ---- profile values -------------------------------------------------------------------------- */

static void test_unsample(void **state)
{
	int64_t count = 10, bytes = 640;

	/* 64-byte objects at the default rate stand for 1/(1-e^(-64/524288)) each. */
	go_unsample(&count, &bytes, 524288);
	assert_int_equal(count, (int64_t)(10 / (1 - exp(-64.0 / 524288))));
	assert_int_equal(bytes, (int64_t)(640 / (1 - exp(-64.0 / 524288))));
	count = 3;
	bytes = 99;
	go_unsample(&count, &bytes, 1);
	assert_int_equal(count, 3);
	assert_int_equal(bytes, 99);
	count = 0;
	go_unsample(&count, &bytes, 4096);
	assert_int_equal(bytes, 0);
	count = -5; /* a torn reading */
	bytes = 100;
	go_unsample(&count, &bytes, 4096);
	assert_int_equal(count, 0);
	assert_int_equal(bytes, 0);
	count = INT64_MAX; /* a lie: one byte in 2^63 objects */
	bytes = 1;
	go_unsample(&count, &bytes, 1ull << 40);
	assert_true(count > 0);
	assert_true(bytes >= 0);
}

/* ---- type descriptors of a program that changes them meanwhile ------------------------------- */

#define HONEST_SIZE 512u
#define LYING_SIZE  (1ull << 32 | HONEST_SIZE)
#define BEYOND	    60000u /* offset of a field that only the lying size has room for */

/* Types as the linker of go1.26 lays them out: names first, then descriptors of 80 bytes, fields
 * of 24 bytes, names of fields. */
struct go_program {
	uint8_t bytes[1 << 16];
	size_t used, types;
	uint64_t *g_size;
};

static uint64_t put_name(struct go_program *p, const char *name)
{
	size_t at = p->used, len = strlen(name);

	p->bytes[at + 1] = (uint8_t)len;
	memcpy(p->bytes + at + 2, name, len);
	p->used = (at + 2 + len + 7) & ~(size_t)7;
	return (uintptr_t)p->bytes + at;
}

struct go_field {
	const char *name;
	uint64_t offset;
};

static uint8_t *put_type(struct go_program *p, const char *name, uint64_t size,
			 const struct go_field *fields, unsigned count)
{
	uint32_t name_at = (uint32_t)(put_name(p, name) - (uintptr_t)p->bytes);
	uint8_t *type = p->bytes + p->used, *list = type + 80;
	uint64_t list_va = (uintptr_t)list, count64 = count;

	p->used += 80 + 24 * (size_t)count;
	memcpy(type, &size, 8);
	type[23] = 25; /* abi.Struct */
	memcpy(type + 40, &name_at, 4);
	memcpy(type + 56, &list_va, 8);
	memcpy(type + 64, &count64, 8);
	for (unsigned i = 0; i < count; i++) {
		uint64_t name_va = put_name(p, fields[i].name);

		memcpy(list + 24 * (size_t)i, &name_va, 8);
		memcpy(list + 24 * (size_t)i + 16, &fields[i].offset, 8);
	}
	return type;
}

static struct go_program *lying_program(void)
{
	static const struct go_field g[] = {
		{ "stack", 0 },	       { "m", 48 },	    { "sched", 56 },
		{ "syscallsp", 112 },  { "syscallpc", 120 }, { "goid", 152 },
		{ "atomicstatus", 144 }, { "waitreason", 200 }, { "waitsince", 192 },
		{ "gopc", 280 },       { "startpc", 296 },  { "lockedm", 232 },
		{ "labels", BEYOND },
	};
	static const struct go_field gobuf[] = { { "sp", 0 }, { "pc", 8 }, { "g", 16 } };
	static const struct go_field m[] = { { "g0", 0 }, { "procid", 72 }, { "curg", 184 } };
	static const struct go_field sudog[] = { { "elem", 24 }, { "c", 80 } };
	struct go_program *p = calloc(1, sizeof(*p));

	assert_non_null(p);
	p->used = 64; /* no type's name is at offset 0 */
	p->g_size = (uint64_t *)(void *)put_type(p, "*runtime.g", HONEST_SIZE, g, ARRAY_SIZE(g));
	(void)put_type(p, "*runtime.gobuf", 48, gobuf, ARRAY_SIZE(gobuf));
	(void)put_type(p, "*runtime.m", 1024, m, ARRAY_SIZE(m));
	(void)put_type(p, "*runtime.sudog", 96, sudog, ARRAY_SIZE(sudog));
	return p;
}

struct liar {
	uint64_t *word;
	atomic_bool stop;
};

static void *change_size(void *ctx)
{
	struct liar *liar = ctx;

	while (!atomic_load(&liar->stop)) {
		__atomic_store_n(liar->word, LYING_SIZE, __ATOMIC_RELAXED);
		for (int i = 0; i < 2000; i++)
			__asm__ volatile("");
		__atomic_store_n(liar->word, HONEST_SIZE, __ATOMIC_RELAXED);
		for (int i = 0; i < 2000; i++)
			__asm__ volatile("");
	}
	return NULL;
}

/* A field that lies outside of the size is never believed, whenever the program changes the size:
 * the copy of a g has that many bytes, and the field would be read behind its end. */
static void test_changing_type(void **state)
{
	struct go_program *p = lying_program();
	struct target target = TARGET_NONE;
	struct liar liar = { .word = p->g_size };
	pthread_t thread;
	unsigned refused = 0;

	assert_int_equal(target_open((uint32_t)getpid(), 0, &target), 0);
	assert_int_equal(pthread_create(&thread, NULL, change_size, &liar), 0);
	for (unsigned i = 0; i < 20000; i++) {
		struct image image = { .target = &target,
				       .fd = -1,
				       .segment_count = 1,
				       .segments = { { .va = (uintptr_t)p->bytes,
						       .file_bytes = p->used,
						       .mem_bytes = p->used } } };
		struct go_fields fields = { 0 };
		char missing[64];
		int rc = go_types_fields(&image, (uintptr_t)p->bytes,
					 (uintptr_t)p->bytes + p->used, 0, &fields, missing);

		image_close(&image);
		if (rc == 0)
			assert_true(fields.g.labels + 8 <= fields.g.size);
		else
			refused++;
	}
	atomic_store(&liar.stop, true);
	(void)pthread_join(thread, NULL);
	/* Honest or not, "labels" never fits. */
	assert_int_equal(refused, 20000);
	target_close(&target);
	free(p);
}

/* ---- function table -------------------------------------------------------------------------- */

#define TABLE_VA 0x400000u

struct memory {
	uint8_t bytes[512];
};

static int memory_read(void *ctx, uint64_t va, void *buf, size_t len)
{
	const struct memory *m = ctx;

	if (va < TABLE_VA || va - TABLE_VA > sizeof(m->bytes) ||
	    sizeof(m->bytes) - (va - TABLE_VA) < len)
		return -EFAULT;
	memcpy(buf, m->bytes + (va - TABLE_VA), len);
	return 0;
}

/* Two functions of Go 1.20's form at text 0x1000: "a.f" (16 bytes, frame 0 then 24) and "a.g". */
static struct memory make_table(void)
{
	static const uint64_t words[8] = { 2, 0, 0, 72, 80, 88, 96, 160 };
	static const uint32_t ftab[5] = { 0, 32, 16, 80, 32 };
	/* value +1 (to 0) for 4 bytes, +24 for 12, end */
	static const uint8_t pcsp[] = { 2, 4, 48, 12, 0 };
	struct memory m = { { 0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8 } };
	uint32_t pcsp_at = 1;

	memcpy(m.bytes + 8, words, sizeof(words));
	memcpy(m.bytes + 72, "a.f\0a.g", 8);
	memcpy(m.bytes + 96 + pcsp_at, pcsp, sizeof(pcsp));
	memcpy(m.bytes + 160, ftab, sizeof(ftab));
	memcpy(m.bytes + 160 + 32 + 16, &pcsp_at, 4);
	m.bytes[160 + 32 + 40] = 7;	      /* funcID */
	m.bytes[160 + 32 + 41] = GO_FUNC_TOP; /* flag */
	m.bytes[160 + 80 + 4] = 4;	      /* name of the second */
	return m;
}

static struct go_table open_table(struct memory *m)
{
	const struct go_mem mem = { memory_read, m };
	struct go_table table;

	assert_int_equal(go_table_open(&mem, TABLE_VA, &table), 0);
	table.text_va = table.min_va = 0x1000;
	table.max_va = 0x1020;
	return table;
}

static void test_function_table(void **state)
{
	struct memory m = make_table();
	struct go_table table = open_table(&m);
	struct go_func func;
	char name[GO_NAME_MAX + 1];
	uint32_t inlined;
	uint64_t parent;
	int32_t value = -7;

	assert_int_equal(go_table_find(&table, 0xfff, &func), -ENOENT);
	assert_int_equal(go_table_find(&table, 0x1020, &func), -ENOENT);
	assert_int_equal(go_table_find(&table, 0x100f, &func), 0);
	assert_int_equal(func.entry_va, 0x1000);
	assert_int_equal(func.end_va, 0x1010);
	assert_int_equal(func.id, 7);
	assert_int_equal(func.flags, GO_FUNC_TOP);
	assert_int_equal(go_table_name(&table, func.name, name, sizeof(name)), 0);
	assert_string_equal(name, "a.f");
	assert_int_equal(go_table_value(&table, &func, func.pcsp, 0x1003, &value), 0);
	assert_int_equal(value, 0);
	assert_int_equal(go_table_value(&table, &func, func.pcsp, 0x1004, &value), 0);
	assert_int_equal(value, 24);
	value = -7;
	assert_int_equal(go_table_value(&table, &func, func.pcsp, 0x1010, &value), -ENOENT);
	assert_int_equal(value, -7);
	assert_int_equal(go_table_inlined(&table, &func, 0x1003, &inlined, &parent), 0);
	assert_int_equal(go_table_find(&table, 0x1010, &func), 0);
	assert_int_equal(go_table_name(&table, func.name, name, sizeof(name)), 0);
	assert_string_equal(name, "a.g");
	assert_int_equal(go_table_name(&table, func.name, name, 3), 0);
	assert_string_equal(name, "a.");
}

static void test_damaged_table(void **state)
{
	const struct memory good = make_table();
	struct memory m = good;
	const struct go_mem mem = { memory_read, &m };
	struct go_table table = { .func_count = 99 };
	struct go_func func;
	int32_t value;

	m.bytes[0] = 0xf2;
	assert_int_equal(go_table_open(&mem, TABLE_VA, &table), -ENOEXEC);
	m = good;
	m.bytes[8] = 0; /* no functions */
	assert_int_equal(go_table_open(&mem, TABLE_VA, &table), -ENOEXEC);
	m = good;
	m.bytes[8 + 4 * 8] = 60; /* offsets that do not ascend */
	assert_int_equal(go_table_open(&mem, TABLE_VA, &table), -ENOEXEC);
	assert_int_equal(go_table_open(&mem, TABLE_VA + 480, &table), -EFAULT);
	assert_int_equal(table.func_count, 99);
	m = good;
	table = open_table(&m);
	memset(m.bytes + 97, 0x80, 63); /* a number that never ends */
	assert_int_equal(go_table_find(&table, 0x1000, &func), 0);
	assert_int_equal(go_table_value(&table, &func, func.pcsp, 0x1003, &value), -EPROTO);
	m = good;
	m.bytes[160 + 32 + 28] = 200; /* more pc tables than there can be */
	assert_int_equal(go_table_find(&table, 0x1000, &func), -EPROTO);
	m = good;
	memset(m.bytes + 164, 0xff, 4); /* record far outside */
	assert_int_equal(go_table_find(&table, 0x1000, &func), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_thread_pointer),
		cmocka_unit_test(test_maps),
		cmocka_unit_test(test_syscall_text),
		cmocka_unit_test(test_wait_words),
		cmocka_unit_test(test_blocked_reasons),
		cmocka_unit_test(test_inner_thread_ids),
#if defined(__x86_64__)
		cmocka_unit_test(test_call_sites),
#endif
		cmocka_unit_test(test_operands),
		cmocka_unit_test(test_unsample),
		cmocka_unit_test(test_changing_type),
		cmocka_unit_test(test_function_table),
		cmocka_unit_test(test_damaged_table),
	};

	return cmocka_run_group_tests_name("reader_parts", tests, NULL, NULL);
}
