// SPDX-License-Identifier: Apache-2.0
/* The unwinder's step on this program's own stacks, by the rows of its own files: at a breakpoint
 * in a leaf function, and at one in the handler of that. Every function on the way has noted where
 * it returns to. Needs nothing of the kernel but signals, so it runs under an emulator of programs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <ucontext.h>
#include <unistd.h>

#include "agent/base/io.h"
#include "symbolize/cfi_rows.h"
#include "symbolize/elf_file.h"

static int read_self(void *to, size_t bytes, uint64_t address)
{
	memcpy(to, (const void *)(uintptr_t)address, bytes);
	return 0;
}

#define UNWIND_READ(dst, bytes, address) read_self(dst, bytes, address)
#define UNWIND_ELEMENT(table, index)                                                              \
	((const uint32_t *)(const void *)((const char *)(table) +                                  \
					  UNWIND_ELEMENT_BYTES * (size_t)(index)))
#include "bpf/unwind_step.h"

#define MAPS_MAX   64
#define FRAMES_MAX 256
#define CHAIN_MAX  16

struct map {
	uint64_t start_va, end_va, start_fo;
	struct cfi_table table;
	bool has_table;
};

static struct map maps[MAPS_MAX];
static unsigned map_count;

static void load_map(struct map *map, const char *path)
{
	cleanup(elf_file) struct elf_file *file = NULL;
	int fd;

	if (!strcmp(path, "[vdso]")) {
		fd = io_memfd("vdso", 0);
		assert_int_equal(io_write_all(fd, (const void *)getauxval(AT_SYSINFO_EHDR), 4096), 0);
	} else {
		fd = open(path, O_RDONLY | O_CLOEXEC);
	}
	if (fd < 0)
		return;
	if (elf_file_open_take(fd, &file) < 0)
		(void)close(fd);
	else
		map->has_table = !cfi_table_build(file->elf, file->fd, &map->table);
}

static int load_maps(void **state)
{
	char line[512];
	FILE *file = fopen("/proc/self/maps", "re");

	assert_non_null(file);
	while (fgets(line, sizeof(line), file) && map_count < MAPS_MAX) {
		struct map *map = &maps[map_count];
		char rights[8], path[256];

		if (sscanf(line, "%lx-%lx %7s %lx %*s %*s %255s", &map->start_va, &map->end_va, rights,
			   &map->start_fo, path) != 5 ||
		    rights[2] != 'x')
			continue;
		load_map(map, path);
		map_count++;
	}
	(void)fclose(file);
	return 0;
}

static int unload_maps(void **state)
{
	for (unsigned i = 0; i < map_count; i++)
		if (maps[i].has_table)
			cfi_table_deinit(&maps[i].table);
	return 0;
}

static const struct unwind_rule *rule_at(uint64_t pc)
{
	for (unsigned i = 0; i < map_count; i++)
		if (pc >= maps[i].start_va && pc < maps[i].end_va && maps[i].has_table)
			return cfi_table_find(&maps[i].table, pc - maps[i].start_va + maps[i].start_fo);
	return NULL;
}

/* ---- walking --------------------------------------------------------------------------------- */

struct walked {
	uint64_t pcs[FRAMES_MAX];
	unsigned count;
	int end; /* enum unwind_result */
	unsigned signals;
};

static void walk(const ucontext_t *context, struct walked *ret)
{
	const mcontext_t *m = &context->uc_mcontext;
#if ARCH_LINK_REGISTER
	struct unwind_state at = { .ip = m->pc, .sp = m->sp, .fp = m->regs[ARCH_REG_FP], .regs_known = 1 };

	for (unsigned i = 0; i < 31; i++)
		at.regs[i] = m->regs[i];
#else
	const greg_t *r = m->gregs;
	struct unwind_state at = {
		.ip = (uint64_t)r[REG_RIP], .sp = (uint64_t)r[REG_RSP], .fp = (uint64_t)r[REG_RBP],
		.regs_known = 1,
		.regs[ARCH_REG_RBX] = (uint64_t)r[REG_RBX], .regs[12] = (uint64_t)r[REG_R12],
		.regs[13] = (uint64_t)r[REG_R13], .regs[14] = (uint64_t)r[REG_R14],
		.regs[15] = (uint64_t)r[REG_R15],
	};
#endif

	*ret = (struct walked){ .end = UNWIND_STEPPED };
	while (ret->count < FRAMES_MAX && ret->end == UNWIND_STEPPED) {
		const struct unwind_rule *rule = rule_at(at.ip - !!at.is_return);
		bool returns_by_code = at.is_return && !rule && arch_is_sigreturn((const void *)at.ip);

		ret->pcs[ret->count++] = at.ip;
		ret->signals += returns_by_code || (rule && rule->cfa == UNWIND_CFA_SIGNAL);
		ret->end = returns_by_code ? unwind_step_signal(&at) :
			   rule		   ? unwind_step(&at, rule) :
					     UNWIND_NO_RULE;
	}
}

/* ---- chains of calls ------------------------------------------------------------------------- */

#if ARCH_LINK_REGISTER
#define BREAK "brk #1"
#define BREAK_BYTES 4 /* the pc is at it */
#else
#define BREAK "int3"
#define BREAK_BYTES 0
#endif

static uint64_t noted[CHAIN_MAX]; /* where the functions return to, innermost last */
static unsigned noted_count;
static struct walked in_leaf, in_handler;

static __attribute__((noinline)) void note(const void *address)
{
	noted[noted_count++] = (uint64_t)(uintptr_t)address;
}

/* A leaf keeps nothing on the stack; those between have a frame of the size, whose bytes are used;
 * `how` says how they are compiled. */
#define CHAIN(name, how, bytes)                                                                    \
	static how __attribute__((noinline)) int name##_leaf(int depth)                            \
	{                                                                                          \
		__asm__ volatile(BREAK);                                                           \
		return depth + 1;                                                                  \
	}                                                                                          \
                                                                                                   \
	static how __attribute__((noinline)) int name(int depth)                                   \
	{                                                                                          \
		volatile char frame[bytes];                                                        \
                                                                                                   \
		note(__builtin_return_address(0));                                                 \
		frame[0] = frame[sizeof(frame) - 1] = (char)depth;                                 \
		depth = depth ? name(depth - 1) : name##_leaf(depth);                              \
		return depth + frame[0] + frame[sizeof(frame) - 1];                                \
	}

CHAIN(with_fp, __attribute__((optimize("no-omit-frame-pointer"))), 32)
CHAIN(without_fp, __attribute__((optimize("omit-frame-pointer"))), 32)
CHAIN(with_large_frames, __attribute__((optimize("omit-frame-pointer"))), 100000)
#if ARCH_LINK_REGISTER
CHAIN(signing, __attribute__((target("branch-protection=standard"))), 32)
CHAIN(signing_leaves, __attribute__((target("branch-protection=pac-ret+leaf"))), 32)
CHAIN(signing_with_b_key, __attribute__((target("branch-protection=pac-ret+b-key"))), 32)
#endif

static void on_break(int number, siginfo_t *info, void *context)
{
	ucontext_t *interrupted = context;

	interrupted->uc_mcontext.
#if ARCH_LINK_REGISTER
		pc += BREAK_BYTES;
#else
		gregs[REG_RIP] += BREAK_BYTES;
#endif
	if (in_leaf.count) {
		walk(context, &in_handler);
		return;
	}
	walk(context, &in_leaf);
	__asm__ volatile(BREAK);
}

static void assert_chain(const struct walked *walked, unsigned from)
{
	assert_int_equal(walked->end, UNWIND_FINISHED);
	assert_true(walked->count > from + noted_count);
	/* the first one is where the leaf returns to, inside the innermost of the chain */
	for (unsigned i = 0; i < noted_count; i++)
		assert_int_equal(walked->pcs[from + 2 + i], noted[noted_count - 1 - i]);
}

static void check_chain(int (*first)(int depth))
{
	unsigned from;

	noted_count = 0;
	in_leaf.count = in_handler.count = 0;
	assert_true(first(5) != 0);
	assert_int_equal(noted_count, 6);
	assert_int_equal(in_leaf.signals, 0);
	assert_chain(&in_leaf, 0);
	/* handler, its return from the signal, and the same as before */
	assert_int_equal(in_handler.signals, 1);
	from = in_handler.count - in_leaf.count;
	assert_true(from >= 2);
	assert_chain(&in_handler, from);
}

static void test_chains(void **state)
{
	static const struct {
		const char *name;
		int (*first)(int depth);
	} chains[] = {
		{ "with frame pointers", with_fp },
		{ "without", without_fp },
		{ "frames of 100,000 bytes", with_large_frames },
#if ARCH_LINK_REGISTER
		{ "signed return addresses", signing },
		{ "signed in leaves, too", signing_leaves },
		{ "signed with the other key", signing_with_b_key },
#endif
	};
	struct sigaction action = { .sa_sigaction = on_break, .sa_flags = SA_SIGINFO | SA_NODEFER };

	assert_int_equal(sigaction(SIGTRAP, &action, NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(chains); i++) {
		print_message("%s\n", chains[i].name);
		check_chain(chains[i].first);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_chains, load_maps, unload_maps),
	};

	return cmocka_run_group_tests_name("unwind_self", tests, NULL, NULL);
}
