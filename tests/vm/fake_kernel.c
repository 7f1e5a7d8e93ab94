// SPDX-License-Identifier: Apache-2.0
/* The agent loads its BPF programs into a kernel that is not there: libbpf relocates them against
 * the BTF at /sys/kernel/btf/vmlinux, over which tests/vm/btf_check.py mounts another kernel's, and
 * what would go to the kernel ends here. syscall() below stands between libbpf and the kernel. It
 * makes maps of memory files, and refuses a program for what relocation alone can show: a field
 * or function that is not there in code that can be reached, a helper that is newer than the BTF.
 * It is no verifier: booting the kernel (tests/vm/run) says the rest. An argument is the name of a
 * program that it refuses in any case.
 *
 * Prints every feature that was found ("has NAME"), every one that loading had to leave out
 * ("lost NAME"), what could be loaded ("loaded WHAT"), libbpf's complaints ("warn TEXT"), and each
 * access to a field, once or often: "field NAME", "unresolved NAME", "resized NAME". */
#include <assert.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <dlfcn.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/collect/alloc/alloc_probes.h"
#include "agent/collect/kernel/bpf_internal.h"
#include "agent/collect/kernel/features.h"

#define FDS_MAX	     4096
#define INSNS_MAX    65536u
#define SLOTS	     64u	  /* of eight bytes, of a program's stack */
#define POISON	     195896080	  /* bpf_core_poison_insn() of libbpf: call of an unknown helper */
#define FAKE_MAP_MAX (256u << 20) /* sparse; the largest ring buffer is mapped twice */

static struct {
	struct bpf_map_info info;
	uint8_t *constants; /* owned: what a frozen map holds */
	bool frozen;
} maps[FDS_MAX];

static struct btf *kernel, *local; /* local: of the object that was last loaded */
static long (*real_syscall)(long number, ...);
static const char *refused; /* the program that is refused by its name, NULL = none */

static int enum_value(const char *type, const char *name)
{
	int id = btf__find_by_name_kind(kernel, type, BTF_KIND_ENUM);
	const struct btf_type *found = id > 0 ? btf__type_by_id(kernel, (uint32_t)id) : NULL;

	for (uint16_t i = 0; found && i < btf_vlen(found); i++)
		if (!strcmp(btf__name_by_offset(kernel, btf_enum(found)[i].name_off), name))
			return btf_enum(found)[i].val;
	return -1;
}

/* The first number of enumeration @type that this kernel does not know. */
static int enum_end(const char *type)
{
	int id = btf__find_by_name_kind(kernel, type, BTF_KIND_ENUM), end = 0;
	const struct btf_type *found = id > 0 ? btf__type_by_id(kernel, (uint32_t)id) : NULL;

	for (uint16_t i = 0; found && i < btf_vlen(found); i++)
		if (btf_enum(found)[i].val >= end)
			end = btf_enum(found)[i].val + 1;
	return end;
}

/* ---- what the verifier sees of constants -------------------------------------------------------
 */

enum kind { UNKNOWN, CONSTANT, MAP_VALUE };

struct value {
	enum kind kind;
	int fd;
	uint64_t number; /* or the offset in the map's value */
};

struct state {
	bool seen;
	struct value regs[11];
	struct value stack[SLOTS];
};

struct walk {
	const struct bpf_insn *insns;
	uint32_t count;
	struct state *at;      /* owned: before each instruction */
	uint32_t *todo, todos; /* owned */
	bool *queued;	       /* owned */
	int helpers_end;
	char why[96];
};

static bool same(const struct value *a, const struct value *b)
{
	return a->kind == b->kind && (a->kind == UNKNOWN || (a->number == b->number && a->fd == b->fd));
}

static bool join(struct value *into, const struct value *from, size_t count)
{
	bool changed = false;

	for (size_t i = 0; i < count; i++) {
		if (into[i].kind == UNKNOWN || same(&into[i], &from[i]))
			continue;
		into[i].kind = UNKNOWN;
		changed = true;
	}
	return changed;
}

static void go(struct walk *w, int64_t to, const struct state *state)
{
	bool changed;

	assert(to >= 0 && to < w->count);
	if (!w->at[to].seen) {
		w->at[to] = *state;
		w->at[to].seen = true;
		changed = true;
	} else {
		changed = join(w->at[to].regs, state->regs, 11);
		changed |= join(w->at[to].stack, state->stack, SLOTS);
	}
	if (changed && !w->queued[to]) {
		w->queued[to] = true;
		w->todo[w->todos++] = (uint32_t)to;
	}
}

/* Bytes of a constant that the program reads. */
static struct value loaded(const struct value *from, int16_t off, uint8_t code)
{
	static const uint8_t sizes[] = { 4, 2, 1, 8 }; /* BPF_W, BPF_H, BPF_B, BPF_DW */
	struct value result = { .kind = UNKNOWN };
	uint64_t at = from->number + (uint64_t)(int64_t)off, size = sizes[BPF_SIZE(code) >> 3];

	if (from->kind != MAP_VALUE || !maps[from->fd].frozen || !maps[from->fd].constants ||
	    at + size > maps[from->fd].info.value_size)
		return result;
	result.kind = CONSTANT;
	memcpy(&result.number, maps[from->fd].constants + at, size);
	return result;
}

static struct value computed(uint8_t code, struct value a, struct value b)
{
	bool wide = BPF_CLASS(code) == BPF_ALU64;
	uint64_t x = a.number, y = b.number;

	if (BPF_OP(code) == BPF_MOV && (wide || b.kind != MAP_VALUE)) {
		b.number = wide ? b.number : (uint32_t)b.number;
		return b;
	}
	if (BPF_OP(code) == BPF_ADD && a.kind == MAP_VALUE && b.kind == CONSTANT && wide) {
		a.number += b.number;
		return a;
	}
	if (BPF_OP(code) == BPF_AND && ((a.kind == CONSTANT && !x) || (b.kind == CONSTANT && !y)))
		return (struct value){ .kind = CONSTANT };
	if (a.kind != CONSTANT || b.kind != CONSTANT)
		return (struct value){ .kind = UNKNOWN };
	switch (BPF_OP(code)) {
	case BPF_ADD: x += y; break;
	case BPF_SUB: x -= y; break;
	case BPF_MUL: x *= y; break;
	case BPF_AND: x &= y; break;
	case BPF_OR: x |= y; break;
	case BPF_XOR: x ^= y; break;
	case BPF_LSH: x <<= y & (wide ? 63 : 31); break;
	case BPF_RSH: x = (wide ? x : (uint32_t)x) >> (y & (wide ? 63 : 31)); break;
	default: return (struct value){ .kind = UNKNOWN };
	}
	return (struct value){ .kind = CONSTANT, .number = wide ? x : (uint32_t)x };
}

/* 1: jumps, 0: does not, -1: may do either. */
static int jumps(uint8_t code, const struct value *a, const struct value *b)
{
	bool wide = BPF_CLASS(code) == BPF_JMP;
	uint64_t x = wide ? a->number : (uint32_t)a->number, y = wide ? b->number : (uint32_t)b->number;
	int64_t sx = wide ? (int64_t)x : (int32_t)x, sy = wide ? (int64_t)y : (int32_t)y;

	if (a->kind != CONSTANT || b->kind != CONSTANT)
		return -1;
	switch (BPF_OP(code)) {
	case BPF_JEQ: return x == y;
	case BPF_JNE: return x != y;
	case BPF_JGT: return x > y;
	case BPF_JGE: return x >= y;
	case BPF_JLT: return x < y;
	case BPF_JLE: return x <= y;
	case BPF_JSET: return (x & y) != 0;
	case BPF_JSGT: return sx > sy;
	case BPF_JSGE: return sx >= sy;
	case BPF_JSLT: return sx < sy;
	case BPF_JSLE: return sx <= sy;
	default: return -1;
	}
}

static void call(struct walk *w, uint32_t pc, const struct bpf_insn *insn, struct state *s)
{
	const struct state fresh = { .seen = true };

	if (insn->src_reg == BPF_PSEUDO_CALL)
		go(w, (int64_t)pc + 1 + insn->imm, &fresh);
	else if (insn->src_reg == BPF_PSEUDO_KFUNC_CALL && insn->imm == 0)
		(void)snprintf(w->why, sizeof(w->why), "insn %u calls a kernel function that is not there", pc);
	else if (insn->src_reg == 0 && insn->imm == POISON)
		(void)snprintf(w->why, sizeof(w->why), "insn %u accesses a field that is not there", pc);
	else if (insn->src_reg == 0 && insn->imm >= w->helpers_end)
		(void)snprintf(w->why, sizeof(w->why), "insn %u: invalid func unknown#%d", pc, insn->imm);
	for (int i = 0; i < 6; i++)
		s->regs[i].kind = UNKNOWN;
	go(w, (int64_t)pc + 1, s);
}

static void jump(struct walk *w, uint32_t pc, const struct bpf_insn *insn, struct state *s)
{
	const struct value imm = { .kind = CONSTANT, .number = (uint64_t)(int64_t)insn->imm };
	int taken;

	if (BPF_OP(insn->code) == BPF_EXIT)
		return;
	if (BPF_OP(insn->code) == BPF_CALL) {
		call(w, pc, insn, s);
		return;
	}
	taken = BPF_OP(insn->code) == BPF_JA
			? 1
			: jumps(insn->code, &s->regs[insn->dst_reg],
				BPF_SRC(insn->code) == BPF_X ? &s->regs[insn->src_reg] : &imm);
	if (taken != 0)
		go(w, (int64_t)pc + 1 + insn->off, s);
	if (taken != 1)
		go(w, (int64_t)pc + 1, s);
}

static struct value *slot_of(struct state *s, uint8_t reg, int16_t off)
{
	return reg == 10 && off < 0 && off >= -(int)(SLOTS * 8) ? &s->stack[-off / 8 - !(off % 8)] : NULL;
}

static void step(struct walk *w, uint32_t pc)
{
	const struct bpf_insn *insn = &w->insns[pc];
	struct value imm = { .kind = CONSTANT, .number = (uint64_t)(int64_t)insn->imm }, *slot;
	const struct state fresh = { .seen = true };
	struct state s = w->at[pc];
	uint8_t class = BPF_CLASS(insn->code);

	if (insn->code == (BPF_LD | BPF_IMM | BPF_DW)) {
		imm.number = (uint32_t)insn->imm | (uint64_t)(uint32_t)insn[1].imm << 32;
		if (insn->src_reg == BPF_PSEUDO_MAP_VALUE)
			imm = (struct value){ MAP_VALUE, insn->imm, (uint32_t)insn[1].imm };
		else if (insn->src_reg == BPF_PSEUDO_FUNC)
			go(w, (int64_t)pc + 1 + insn->imm, &fresh);
		if (insn->src_reg && insn->src_reg != BPF_PSEUDO_MAP_VALUE)
			imm.kind = UNKNOWN;
		s.regs[insn->dst_reg] = imm;
		go(w, (int64_t)pc + 2, &s);
		return;
	}
	if (class == BPF_JMP || class == BPF_JMP32) {
		jump(w, pc, insn, &s);
		return;
	}
	if (class == BPF_ALU || class == BPF_ALU64) {
		s.regs[insn->dst_reg] = computed(insn->code, s.regs[insn->dst_reg],
						 BPF_SRC(insn->code) == BPF_X ? s.regs[insn->src_reg] : imm);
	} else if (class == BPF_LDX) {
		slot = slot_of(&s, insn->src_reg, insn->off);
		s.regs[insn->dst_reg] = slot && BPF_SIZE(insn->code) == BPF_DW
						? *slot
						: loaded(&s.regs[insn->src_reg], insn->off, insn->code);
	} else if (class == BPF_STX || class == BPF_ST) {
		slot = slot_of(&s, insn->dst_reg, insn->off);
		if (slot && class == BPF_STX && BPF_SIZE(insn->code) == BPF_DW && BPF_MODE(insn->code) == BPF_MEM)
			*slot = s.regs[insn->src_reg];
		else if (slot)
			slot->kind = UNKNOWN;
	}
	go(w, (int64_t)pc + 1, &s);
}

/* ---- the stack of a program ---------------------------------------------------------------------
 */

#define STACK_MAX   512u /* MAX_BPF_STACK: of a program and the functions in it that it calls */
#define FRAME_ALIGN 32u	 /* check_max_stack_depth() of kernels before 6.9 */
#define CALLS_MAX   16u

/* The frame of the function at @begin: how far below r10 it goes. */
static uint32_t frame_bytes(const struct bpf_insn *insns, uint32_t begin, uint32_t end)
{
	int deepest = 0;

	for (uint32_t pc = begin; pc < end; pc++) {
		const struct bpf_insn *insn = &insns[pc];
		uint8_t class = BPF_CLASS(insn->code);
		bool load = class == BPF_LDX && insn->src_reg == BPF_REG_10;
		bool store = (class == BPF_STX || class == BPF_ST) && insn->dst_reg == BPF_REG_10;
		bool address = pc > begin && insn->code == (BPF_ALU64 | BPF_ADD | BPF_K) &&
			       insns[pc - 1].code == (BPF_ALU64 | BPF_MOV | BPF_X) &&
			       insns[pc - 1].src_reg == BPF_REG_10 && insns[pc - 1].dst_reg == insn->dst_reg;
		int at = load || store ? insn->off : address ? insn->imm : 0;

		deepest = at < deepest ? at : deepest;
	}
	return ((uint32_t)-deepest + FRAME_ALIGN - 1) / FRAME_ALIGN * FRAME_ALIGN;
}

static int64_t called(const struct bpf_insn *insns, uint32_t pc)
{
	bool call = insns[pc].code == (BPF_JMP | BPF_CALL) && insns[pc].src_reg == BPF_PSEUDO_CALL;
	bool callback = insns[pc].code == (BPF_LD | BPF_IMM | BPF_DW) &&
			insns[pc].src_reg == BPF_PSEUDO_FUNC;

	return call || callback ? (int64_t)pc + 1 + insns[pc].imm : -1;
}

/* Functions begin where one is called: each ends where the next one begins. */
static uint32_t function_end(const struct bpf_insn *insns, uint32_t count, uint32_t begin)
{
	uint32_t end = count;

	for (uint32_t pc = 0; pc < count; pc++)
		if (called(insns, pc) > begin && called(insns, pc) < end)
			end = (uint32_t)called(insns, pc);
	return end;
}

/* Bytes of stack of the function at @begin and of the deepest chain of functions that it calls. */
static uint32_t stack_bytes(const struct bpf_insn *insns, uint32_t count, uint32_t begin,
			    unsigned calls)
{
	uint32_t end = function_end(insns, count, begin), below = 0;

	for (uint32_t pc = begin; pc < end && calls < CALLS_MAX; pc++) {
		uint32_t bytes = called(insns, pc) < 0
					 ? 0
					 : stack_bytes(insns, count, (uint32_t)called(insns, pc), calls + 1);

		below = bytes > below ? bytes : below;
	}
	return frame_bytes(insns, begin, end) + below;
}

/* Since v6.13 (a76ab5731e32) programs that trace have stacks of their own, which add up to more. */
static bool private_stacks(void)
{
	int id = btf__find_by_name_kind(kernel, "bpf_prog_aux", BTF_KIND_STRUCT);
	const struct btf_type *found = id > 0 ? btf__type_by_id(kernel, (uint32_t)id) : NULL;

	for (uint16_t i = 0; found && i < btf_vlen(found); i++)
		if (!strcmp(btf__name_by_offset(kernel, btf_members(found)[i].name_off), "priv_stack_ptr"))
			return true;
	return false;
}

/* 0, or a reason in @why: what is wrong in code that the constants let be reached. */
static int judge(const struct bpf_insn *insns, uint32_t count, char *why, size_t size)
{
	struct walk w = {
		.insns = insns,
		.count = count,
		.at = calloc(count, sizeof(struct state)),
		.todo = calloc(count, sizeof(uint32_t)),
		.queued = calloc(count, sizeof(bool)),
		.helpers_end = enum_value("bpf_func_id", "__BPF_FUNC_MAX_ID"),
	};
	const struct state fresh = { .seen = true };

	assert(count && count < INSNS_MAX && w.at && w.todo && w.queued && w.helpers_end > 0);
	go(&w, 0, &fresh);
	while (w.todos && !w.why[0]) {
		uint32_t pc = w.todo[--w.todos];

		w.queued[pc] = false;
		step(&w, pc);
	}
	if (!w.why[0] && !private_stacks() && stack_bytes(insns, count, 0, 0) > STACK_MAX)
		(void)snprintf(w.why, sizeof(w.why), "combined stack size is %u: too large",
			       stack_bytes(insns, count, 0, 0));
	(void)snprintf(why, size, "%s", w.why);
	free(w.at), free(w.todo), free(w.queued);
	return why[0] ? -EINVAL : 0;
}

/* ---- the system calls --------------------------------------------------------------------------
 */

static int new_fd(void)
{
	int fd = memfd_create("fake", MFD_CLOEXEC);

	assert(fd >= 0 && fd < FDS_MAX && ftruncate(fd, FAKE_MAP_MAX) == 0);
	memset(&maps[fd].info, 0, sizeof(maps[fd].info));
	free(maps[fd].constants);
	maps[fd].constants = NULL;
	maps[fd].frozen = false;
	return fd;
}

static int map_create(const union bpf_attr *attr)
{
	int fd;

	if ((int)attr->map_type >= enum_end("bpf_map_type"))
		return -EINVAL;
	fd = new_fd();
	maps[fd].info = (struct bpf_map_info){ .type = attr->map_type,
					       .id = (uint32_t)fd,
					       .key_size = attr->key_size,
					       .value_size = attr->value_size,
					       .max_entries = attr->max_entries,
					       .map_flags = attr->map_flags };
	memcpy(maps[fd].info.name, attr->map_name, sizeof(attr->map_name));
	return fd;
}

static int map_update(const union bpf_attr *attr)
{
	uint32_t size = maps[attr->map_fd].info.value_size;

	if (maps[attr->map_fd].info.type != BPF_MAP_TYPE_ARRAY || maps[attr->map_fd].info.max_entries != 1)
		return 0;
	free(maps[attr->map_fd].constants);
	maps[attr->map_fd].constants = malloc(size);
	assert(maps[attr->map_fd].constants);
	memcpy(maps[attr->map_fd].constants, (void *)(uintptr_t)attr->value, size);
	return 0;
}

static int prog_load(const union bpf_attr *attr)
{
	char why[96] = "refused by name";
	int rc = -EINVAL;

	if (!refused || strncmp(attr->prog_name, refused, sizeof(attr->prog_name) - 1) != 0)
		rc = judge((const void *)(uintptr_t)attr->insns, attr->insn_cnt, why, sizeof(why));
	if (rc == 0)
		return new_fd();
	if (attr->log_buf && attr->log_size > strlen(why))
		strcpy((char *)(uintptr_t)attr->log_buf, why);
	return rc;
}

/* libbpf names local types by their numbers in the object's BTF, which it hands to the kernel
 * first. Its own probes are small. */
static int btf_load(const union bpf_attr *attr)
{
	if (attr->btf_size > 4096) {
		btf__free(local);
		local = btf__new((const void *)(uintptr_t)attr->btf, attr->btf_size);
		assert(local);
	}
	return new_fd();
}

static int fake_bpf(int command, const union bpf_attr *attr)
{
	switch (command) {
	case BPF_MAP_CREATE:
		return map_create(attr);
	case BPF_MAP_UPDATE_ELEM:
		return map_update(attr);
	case BPF_MAP_FREEZE:
		maps[attr->map_fd].frozen = true;
		return 0;
	case BPF_PROG_LOAD:
		return prog_load(attr);
	case BPF_OBJ_GET_INFO_BY_FD:
		if (attr->info.info_len < sizeof(struct bpf_map_info))
			return -EINVAL;
		memcpy((void *)(uintptr_t)attr->info.info, &maps[attr->info.bpf_fd].info,
		       sizeof(struct bpf_map_info));
		return 0;
	case BPF_BTF_LOAD:
		return btf_load(attr);
	case BPF_LINK_CREATE:
	case BPF_RAW_TRACEPOINT_OPEN:
		return new_fd();
	case BPF_PROG_BIND_MAP:
		return 0;
	default:
		return -EINVAL;
	}
}

/* In the place of glibc's, also for libbpf. */
long syscall(long number, ...)
{
	long a[6];
	va_list args;
	int rc;

	va_start(args, number);
	for (int i = 0; i < 6; i++)
		a[i] = va_arg(args, long);
	va_end(args);
	if (!real_syscall)
		real_syscall = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	if (number != SYS_bpf && number != SYS_perf_event_open)
		return real_syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
	rc = number == SYS_bpf ? fake_bpf((int)a[0], (const union bpf_attr *)a[1]) : new_fd();
	if (rc >= 0)
		return rc;
	errno = -rc;
	return -1;
}

/* ---- what libbpf says --------------------------------------------------------------------------
 */

static libbpf_print_fn_t products;
static char accessed[512]; /* to a field, of which it was not said yet what it is in the kernel */

/* Bytes of the field that "[TYPE] struct NAME.FIELD (0:1:2 @ offset N)" says; 0 = what has no size
 * of its own to compare: a structure, a bit field. */
static int64_t field_bytes(const struct btf *btf, const char *spec)
{
	const char *at = strstr(spec, " (0");
	int id = (int)strtoul(spec + 1, NULL, 10);
	const struct btf_type *type;
	char *end = at ? (char *)at + 3 : NULL;

	while (end && *end == ':') {
		unsigned long index = strtoul(end + 1, &end, 10);

		type = btf__type_by_id(btf, (uint32_t)btf__resolve_type(btf, (uint32_t)id));
		if (type && btf_is_composite(type) && index < btf_vlen(type)) {
			if (btf_member_bitfield_size(type, (uint32_t)index))
				return 0;
			id = (int)btf_members(type)[index].type;
		} else if (type && btf_is_array(type)) {
			id = (int)btf_array(type)->type;
		} else {
			return 0;
		}
	}
	type = btf__type_by_id(btf, (uint32_t)btf__resolve_type(btf, (uint32_t)id));
	return !end || !type || btf_is_composite(type) ? 0 : btf__resolve_size(btf, (uint32_t)id);
}

/* "NAME.FIELD" of "[TYPE] struct NAME.FIELD (…" */
static void print_fields(const char *what, const char *spec)
{
	char name[256] = "";

	(void)sscanf(spec, "[%*u] %*s %255s", name);
	printf("%s %s\n", what, name);
}

/* libbpf says what the object accesses and then, where there is any, what it found for it. */
static void print_access(const char *line)
{
	const char *spec = strstr(line, "> ["), *found = strstr(line, " matching candidate #0 <");
	int64_t here, there;

	if (!spec)
		return;
	spec += strlen("> ");
	if (!strstr(line, " candidate #")) {
		if (accessed[0])
			print_fields("unresolved", accessed);
		(void)snprintf(accessed, sizeof(accessed), "%s", spec);
	} else if (found && accessed[0]) {
		here = field_bytes(local, accessed);
		there = field_bytes(kernel, spec);
		if (here > 0 && there > 0 && here != there)
			print_fields("resized", accessed);
		print_fields("field", accessed);
		accessed[0] = '\0';
	}
}

static int print_all(enum libbpf_print_level level, const char *format, va_list args)
{
	char line[2048];
	va_list copy;

	va_copy(copy, args);
	(void)vsnprintf(line, sizeof(line), format, copy);
	va_end(copy);
	line[strcspn(line, "\n")] = '\0';
	if (level == LIBBPF_WARN)
		printf("warn %s\n", line);
	else if (strstr(line, ": relo #"))
		print_access(line);
	return products ? products(level, format, args) : 0;
}

/* In the place of libbpf's, which gets print_all() instead of what the product says. */
libbpf_print_fn_t libbpf_set_print(libbpf_print_fn_t print)
{
	libbpf_print_fn_t (*set)(libbpf_print_fn_t) =
		(libbpf_print_fn_t(*)(libbpf_print_fn_t))dlsym(RTLD_NEXT, "libbpf_set_print");
	libbpf_print_fn_t before = products;

	(void)set(print_all);
	products = print;
	return before;
}

static void print_lost(const struct features *before, const struct features *after)
{
	for (int i = 0; i < FEATURE_MAX; i++)
		if (features_has(before, (enum feature)i) && !features_has(after, (enum feature)i))
			printf("lost %s\n", features_name((enum feature)i));
}

int main(int argc, char **argv)
{
	cleanup(bpf_agent) struct bpf_agent *agent = NULL;
	cleanup(alloc_probes) struct alloc_probes *probes = NULL;
	struct features features = { 0 };
	struct err err = { 0 };

	refused = argc > 1 ? argv[1] : NULL;
	kernel = btf__load_vmlinux_btf();
	assert(kernel);
	features_probe(&features);
	for (int i = 0; i < FEATURE_MAX; i++)
		if (features_has(&features, (enum feature)i))
			printf("has %s\n", features_name((enum feature)i));
	if (bpf_agent_create(&features, &agent, &err) < 0) {
		printf("refused the sampler: %s\n", err.text);
		return 0;
	}
	printf("loaded the sampler\n");
	if (bpf_load_waits(agent, &err) < 0)
		printf("refused waits: %s\n", err.text);
	else
		printf("loaded waits\n");
	if (alloc_probes_create(agent, &probes, &err) == 0)
		printf("loaded allocations\n");
	else
		printf("refused allocations: %s\n", err.text);
	print_lost(&features, &agent->features);
	if (accessed[0])
		print_fields("unresolved", accessed);
	fflush(stdout);
	_exit(0); /* nothing here is to be detached */
}
