// SPDX-License-Identifier: Apache-2.0
/* Which functions of a file are its allocator's, and where x86-64 code can be probed: straight-line
 * decoding of the first instructions of a function, just far enough to know how long each is, which
 * general registers it writes and whether the kernel emulates it. Encodings: Intel SDM volume 2,
 * appendix A (opcode maps). */
#include "symbolize/alloc_sites.h"

#include <errno.h>
#include <gelf.h>
#include <string.h>

#include "symbolize/elf_debug.h"
#include "symbolize/elf_file.h"

#define INSNS_MAX	  16u
#define ARGUMENTS_MAX	  3u
#define REG_RAX		  0u
#define REG_RDX		  2u
#define REG_RSP		  4u
#define ALL_REGS	  0xffffu
#define TABLE_SYMBOLS_MAX (1u << 20)
#define NAME_LEN_MAX	  24u /* of functions[] and marks[] */

/* ---- one instruction ------------------------------------------------------------------------- */

enum insn_kind {
	INSN_PLAIN,
	INSN_PUSH,   /* of a register */
	INSN_NOP,    /* one byte */
	INSN_BRANCH, /* jmp, jcc: relative; goes on behind it or not */
	INSN_CALL,   /* relative */
	INSN_MOVE,   /* 64 bits between two registers */
	INSN_END,    /* the function goes elsewhere, or this is not understood */
};

struct insn {
	enum insn_kind kind;
	unsigned len;
	unsigned from, to; /* MOVE */
	uint32_t writes;   /* bits of registers */
	bool narrow;	   /* has a 66 prefix: branches are not emulated then */
	bool falls;	   /* BRANCH: may go on behind it */
};

struct decoder {
	const uint8_t *at, *end;
	bool word, failed;
	uint8_t rex, repeat;
	unsigned mod, reg, rm;
};

static uint8_t next_byte(struct decoder *d)
{
	if (d->at == d->end) {
		d->failed = true;
		return 0;
	}
	return *d->at++;
}

static void skip(struct decoder *d, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		(void)next_byte(d);
}

static void immediate(struct decoder *d)
{
	skip(d, d->word && !(d->rex & 8) ? 2 : 4);
}

static void prefixes(struct decoder *d)
{
	for (;;) {
		uint8_t byte = d->at < d->end ? *d->at : 0;

		if (byte == 0x66)
			d->word = true;
		else if (byte == 0xf2 || byte == 0xf3)
			d->repeat = byte;
		else if (byte != 0x64 && byte != 0x65 && byte != 0x2e && byte != 0x36 &&
			 byte != 0x3e && byte != 0x26 && byte != 0xf0)
			break;
		d->at++;
	}
	if (d->at < d->end && *d->at >> 4 == 4)
		d->rex = *d->at++;
}

static void modrm(struct decoder *d)
{
	uint8_t byte = next_byte(d);

	d->mod = byte >> 6;
	d->reg = (byte >> 3 & 7) | (d->rex & 4 ? 8 : 0);
	d->rm = byte & 7;
	if (d->mod != 3 && d->rm == 4) {
		uint8_t sib = next_byte(d);

		if (d->mod == 0 && (sib & 7) == 5)
			skip(d, 4);
	} else if (d->mod == 0 && d->rm == 5) {
		skip(d, 4);
	}
	if (d->mod == 1)
		skip(d, 1);
	else if (d->mod == 2)
		skip(d, 4);
	d->rm |= d->rex & 1 ? 8 : 0;
}

/* The register that a result in r/m would change. */
static uint32_t rm_bit(const struct decoder *d)
{
	return d->mod == 3 ? 1u << d->rm : 0;
}

static uint32_t low_reg(const struct decoder *d, uint8_t op)
{
	return (op & 7u) | (d->rex & 1 ? 8u : 0u);
}

static bool is_among(uint8_t op, const uint8_t *ops, size_t count)
{
	return memchr(ops, op, count) != NULL;
}

/* 0f xx */
static void decode_two_bytes(struct decoder *d, struct insn *insn)
{
	/* Vector moves, hints, endbr64, bt: no general register changes. */
	static const uint8_t quiet[] = { 0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19,
					 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f, 0x28, 0x29, 0x2e, 0x2f,
					 0x57, 0x6c, 0x6e, 0x6f, 0x7f, 0xa3, 0xd6, 0xef };
	/* imul, movzx, movsx, bit scans; and cmov. */
	static const uint8_t to_reg[] = { 0xaf, 0xb6, 0xb7, 0xb8, 0xbc, 0xbd, 0xbe, 0xbf };
	uint8_t op = next_byte(d);

	if (op >> 4 == 8) {
		skip(d, 4);
		insn->kind = INSN_BRANCH;
		insn->falls = true;
		return;
	}
	if (op >= 0xc8 && op <= 0xcf) { /* bswap */
		insn->writes = 1u << low_reg(d, op);
		return;
	}
	modrm(d);
	if (is_among(op, quiet, sizeof(quiet)))
		return;
	if (op >> 4 == 4 || is_among(op, to_reg, sizeof(to_reg))) {
		insn->writes = 1u << d->reg;
	} else if (op >> 4 == 9 || op == 0x7e || op == 0xab) {
		insn->writes = rm_bit(d); /* setcc, movd, bts */
	} else if (op == 0xba) {
		skip(d, 1);
		insn->writes = rm_bit(d);
	} else if (op == 0xb0 || op == 0xb1) { /* cmpxchg */
		insn->writes = rm_bit(d) | 1u << REG_RAX;
	} else if (op == 0xc0 || op == 0xc1) { /* xadd */
		insn->writes = rm_bit(d) | 1u << d->reg;
	} else {
		insn->kind = INSN_END;
	}
}

/* 00 … 3f: add, or, adc, sbb, and, sub, xor, cmp in six forms each. */
static void decode_arithmetic(struct decoder *d, uint8_t op, struct insn *insn)
{
	uint32_t target;

	switch (op & 7) {
	case 0:
	case 1:
		modrm(d);
		target = rm_bit(d);
		break;
	case 2:
	case 3:
		modrm(d);
		target = 1u << d->reg;
		break;
	case 4:
		skip(d, 1);
		target = 1u << REG_RAX;
		break;
	case 5:
		immediate(d);
		target = 1u << REG_RAX;
		break;
	default:
		insn->kind = INSN_END;
		return;
	}
	insn->writes = op < 0x38 ? target : 0;
}

/* f6, f7, fe, ff */
static void decode_group(struct decoder *d, uint8_t op, struct insn *insn)
{
	unsigned which;

	modrm(d);
	which = d->reg & 7;
	if (op < 0xf8) {
		if (which < 2) { /* test */
			if (op == 0xf6)
				skip(d, 1);
			else
				immediate(d);
		} else {
			insn->writes = which < 4 ? rm_bit(d) : 1u << REG_RAX | 1u << REG_RDX;
		}
	} else if (which < 2) {
		insn->writes = rm_bit(d); /* inc, dec */
	} else {
		insn->kind = INSN_END; /* indirect call, jump; push of memory */
	}
}

static void decode_move(struct decoder *d, uint8_t op, struct insn *insn)
{
	bool to_rm = op == 0x88 || op == 0x89;

	modrm(d);
	insn->writes = to_rm ? rm_bit(d) : 1u << d->reg;
	if (d->mod != 3 || !(d->rex & 8) || op == 0x88 || op == 0x8a)
		return;
	insn->kind = INSN_MOVE;
	insn->from = to_rm ? d->reg : d->rm;
	insn->to = to_rm ? d->rm : d->reg;
}

/* Opcodes with a ModRM byte that are alike: false if @op is none. */
static bool decode_common(struct decoder *d, uint8_t op, struct insn *insn)
{
	switch (op) {
	case 0x80:
	case 0x81:
	case 0x83:
		modrm(d);
		insn->writes = (d->reg & 7) == 7 ? 0 : rm_bit(d);
		if (op == 0x81)
			immediate(d);
		else
			skip(d, 1);
		return true;
	case 0x84:
	case 0x85: /* test */
		modrm(d);
		return true;
	case 0x86:
	case 0x87: /* xchg */
		modrm(d);
		insn->writes = rm_bit(d) | 1u << d->reg;
		return true;
	case 0x63: /* movsxd */
	case 0x8d: /* lea */
		modrm(d);
		insn->writes = 1u << d->reg;
		return true;
	case 0x69: /* imul */
	case 0x6b:
		modrm(d);
		insn->writes = 1u << d->reg;
		if (op == 0x69)
			immediate(d);
		else
			skip(d, 1);
		return true;
	case 0xc0: /* shifts */
	case 0xc1:
	case 0xc6: /* mov $, r/m */
		modrm(d);
		skip(d, 1);
		insn->writes = rm_bit(d);
		return true;
	case 0xc7:
		modrm(d);
		immediate(d);
		insn->writes = rm_bit(d);
		return true;
	case 0xd0:
	case 0xd1:
	case 0xd2:
	case 0xd3:
		modrm(d);
		insn->writes = rm_bit(d);
		return true;
	default:
		return false;
	}
}

static void decode_one_byte(struct decoder *d, uint8_t op, struct insn *insn)
{
	if (op < 0x40) {
		decode_arithmetic(d, op, insn);
	} else if (op >= 0x50 && op <= 0x57) {
		insn->kind = INSN_PUSH;
	} else if (op >= 0x70 && op <= 0x7f) {
		skip(d, 1);
		insn->kind = INSN_BRANCH;
		insn->falls = true;
	} else if (op >= 0x88 && op <= 0x8b) {
		decode_move(d, op, insn);
	} else if (op == 0x90) {
		insn->kind = INSN_NOP;
	} else if (op == 0x98 || op == 0x99) {
		insn->writes = 1u << (op == 0x98 ? REG_RAX : REG_RDX);
	} else if (op == 0xa8) {
		skip(d, 1);
	} else if (op == 0xa9) {
		immediate(d);
	} else if (op >= 0xb0 && op <= 0xb7) {
		skip(d, 1);
		insn->writes = ALL_REGS; /* byte registers: not worth telling apart */
	} else if (op >= 0xb8 && op <= 0xbf) {
		insn->writes = 1u << low_reg(d, op);
		if (d->rex & 8)
			skip(d, 8);
		else
			immediate(d);
	} else if (op == 0xe8 || op == 0xe9) {
		skip(d, 4);
		insn->kind = op == 0xe8 ? INSN_CALL : INSN_BRANCH;
	} else if (op == 0xeb) {
		skip(d, 1);
		insn->kind = INSN_BRANCH;
	} else if (op == 0xf6 || op == 0xf7 || op == 0xfe || op == 0xff) {
		decode_group(d, op, insn);
	} else if (!decode_common(d, op, insn)) {
		insn->kind = INSN_END;
	}
}

static void decode(const uint8_t *code, const uint8_t *end, struct insn *ret)
{
	struct decoder d = { .at = code, .end = end };
	uint8_t op;

	*ret = (struct insn){ .kind = INSN_PLAIN };
	prefixes(&d);
	op = next_byte(&d);
	if (op == 0x0f)
		decode_two_bytes(&d, ret);
	else
		decode_one_byte(&d, op, ret);
	/* Without a REX prefix registers 4 to 7 of byte operations are ah, ch, dh and bh. */
	if (!d.rex && (op == 0x0f || !(op & 1)) && ret->writes & 0xf0)
		ret->writes |= 0x0f;
	if (d.failed)
		ret->kind = INSN_END;
	/* pause is f3 90 */
	if (ret->kind == INSN_NOP && d.repeat)
		ret->kind = INSN_PLAIN;
	ret->narrow = d.word;
	ret->len = (unsigned)(d.at - code);
}

/* ---- the site -------------------------------------------------------------------------------- */

/* System V psABI: rdi, rsi, rdx. */
static const uint8_t argument_regs[ARGUMENTS_MAX] = { 7, 6, 2 };

unsigned alloc_kind_arguments(enum alloc_kind kind)
{
	switch (kind) {
	case ALLOC_MALLOC:
	case ALLOC_FREE:
		return 1;
	case ALLOC_CALLOC:
	case ALLOC_REALLOC:
	case ALLOC_ALIGNED:
		return 3;
	case ALLOC_POSIX_MEMALIGN:
		return 7;
	default:
		return 0;
	}
}

struct scan {
	uint32_t holds[ARGUMENTS_MAX]; /* registers that hold each argument */
	unsigned pushed;
};

/* Fills the registers; false if one of the arguments is nowhere. */
static bool place_arguments(const struct scan *scan, unsigned wanted,
			    struct control_alloc_site *ret)
{
	for (unsigned i = 0; i < ARGUMENTS_MAX; i++) {
		if (!(wanted >> i & 1))
			continue;
		if (!scan->holds[i])
			return false;
		ret->argument[i] = (uint8_t)__builtin_ctz(scan->holds[i]);
	}
	return true;
}

static void follow(struct scan *scan, const struct insn *insn)
{
	for (unsigned i = 0; i < ARGUMENTS_MAX; i++) {
		bool copied = insn->kind == INSN_MOVE && scan->holds[i] >> insn->from & 1;

		scan->holds[i] &= ~insn->writes;
		if (copied)
			scan->holds[i] |= 1u << insn->to;
	}
	scan->pushed += insn->kind == INSN_PUSH;
}

static bool is_emulated(const struct insn *insn)
{
	switch (insn->kind) {
	case INSN_PUSH:
	case INSN_NOP:
		return true;
	case INSN_BRANCH:
	case INSN_CALL:
		return !insn->narrow;
	default:
		return false;
	}
}

static int find_amd64(const uint8_t *code, size_t len, enum alloc_kind kind,
		      struct control_alloc_site *ret)
{
	const uint8_t *at = code,
		      *end = code + (len < ALLOC_SITE_SCAN_BYTES ? len : ALLOC_SITE_SCAN_BYTES);
	struct control_alloc_site site = { .kind = (uint8_t)kind };
	struct scan scan = { .pushed = 0 };

	if (!len || !alloc_kind_arguments(kind))
		return -ENODATA;
	for (unsigned i = 0; i < ARGUMENTS_MAX; i++)
		scan.holds[i] = 1u << argument_regs[i];
	for (unsigned i = 0; i < INSNS_MAX && at < end; i++) {
		struct insn insn;

		decode(at, end, &insn);
		if (insn.kind == INSN_END)
			break;
		if (is_emulated(&insn) &&
		    place_arguments(&scan, alloc_kind_arguments(kind), &site)) {
			site.fo = (uint64_t)(at - code);
			site.pushed = (uint8_t)scan.pushed;
			*ret = site;
			return 0;
		}
		/* Code behind a branch does not run in every call, and other changes of the stack
		 * pointer hide the return address. */
		if (insn.kind == INSN_BRANCH || insn.kind == INSN_CALL ||
		    insn.writes >> REG_RSP & 1)
			break;
		follow(&scan, &insn);
		at += insn.len;
	}
	for (unsigned i = 0; i < ARGUMENTS_MAX; i++)
		site.argument[i] = argument_regs[i];
	site.flags = ALLOC_SITE_STEPPED;
	*ret = site;
	return 0;
}

int alloc_site_find(uint16_t machine, const uint8_t *code, size_t len, enum alloc_kind kind,
		    struct control_alloc_site *ret)
{
	return machine == EM_AARCH64 ? alloc_site_find_arm64(code, len, kind, ret)
				     : find_amd64(code, len, kind, ret);
}

/* ---- the file -------------------------------------------------------------------------------- */

struct wanted {
	const char *name;
	enum alloc_kind kind;
	bool always; /* else only of allocators whose operator new does not call malloc */
};

/* Itanium C++ ABI names of operator new and delete; m is size_t, St11align_val_t the alignment
 * (second argument of new). glibc's and libstdc++'s reach malloc. */
static const struct wanted functions[] = {
	{ "malloc", ALLOC_MALLOC, true },
	{ "free", ALLOC_FREE, true },
	{ "calloc", ALLOC_CALLOC, true },
	{ "realloc", ALLOC_REALLOC, true },
	{ "memalign", ALLOC_ALIGNED, true },
	{ "aligned_alloc", ALLOC_ALIGNED, true },
	{ "posix_memalign", ALLOC_POSIX_MEMALIGN, true },
	{ "valloc", ALLOC_MALLOC, true },
	{ "pvalloc", ALLOC_MALLOC, true },
	{ "_Znwm", ALLOC_MALLOC, false },
	{ "_Znam", ALLOC_MALLOC, false },
	{ "_ZnwmRKSt9nothrow_t", ALLOC_MALLOC, false },
	{ "_ZnamRKSt9nothrow_t", ALLOC_MALLOC, false },
	{ "_ZdlPv", ALLOC_FREE, false },
	{ "_ZdaPv", ALLOC_FREE, false },
	{ "_ZdlPvm", ALLOC_FREE, false },
	{ "_ZdaPvm", ALLOC_FREE, false },
};

static const struct {
	const char *name;
	enum alloc_family family;
} marks[] = {
	{ "mallctl", ALLOC_FAMILY_JEMALLOC },
	{ "je_mallctl", ALLOC_FAMILY_JEMALLOC },
	{ "tc_malloc", ALLOC_FAMILY_TCMALLOC },
	{ "TCMallocInternalMalloc", ALLOC_FAMILY_TCMALLOC },
	{ "mi_malloc", ALLOC_FAMILY_MIMALLOC },
	{ "__libc_memalign", ALLOC_FAMILY_GLIBC },
	{ "__malloc_donate", ALLOC_FAMILY_MUSL },
	{ "__libc_malloc_impl", ALLOC_FAMILY_MUSL },
	{ "__freadptrinc", ALLOC_FAMILY_MUSL }, /* the only one of a stripped library */
};

struct found {
	uint64_t ev[ARRAY_SIZE(functions)];
	uint64_t size[ARRAY_SIZE(functions)];
	enum alloc_family family;
	bool imports; /* it takes its malloc from elsewhere */
};

/* Without the version; 0 = longer than any that is looked for, as most of a large file's are. */
static size_t plain_length(const char *name)
{
	for (size_t len = 0; len <= NAME_LEN_MAX; len++)
		if (!name[len] || name[len] == '@')
			return len;
	return 0;
}

static bool is_named(const char *name, size_t len, const char *wanted)
{
	return strlen(wanted) == len && memcmp(name, wanted, len) == 0;
}

static int look_at(void *ctx, const char *name, const GElf_Sym *sym)
{
	struct found *ret = ctx;
	size_t len = plain_length(name);
	bool defined = sym->st_shndx != SHN_UNDEF && GELF_ST_TYPE(sym->st_info) == STT_FUNC &&
		       sym->st_value;

	if (!len)
		return 0;
	if (!defined) {
		ret->imports |= sym->st_shndx == SHN_UNDEF && is_named(name, len, "malloc");
		return 0;
	}
	for (size_t i = 0; i < ARRAY_SIZE(functions); i++) {
		if (is_named(name, len, functions[i].name) && !ret->ev[i]) {
			ret->ev[i] = sym->st_value;
			ret->size[i] = sym->st_size;
		}
	}
	for (size_t i = 0; i < ARRAY_SIZE(marks); i++)
		/* Others define glibc's names as well, to take their place. */
		if ((!ret->family || ret->family == ALLOC_FAMILY_GLIBC) &&
		    is_named(name, len, marks[i].name))
			ret->family = marks[i].family;
	return 0;
}

/* Their operator new allocates by itself; elsewhere it calls malloc, and probing both would count
 * twice. */
static bool has_own_operators(enum alloc_family family)
{
	return family == ALLOC_FAMILY_JEMALLOC || family == ALLOC_FAMILY_TCMALLOC ||
	       family == ALLOC_FAMILY_MIMALLOC;
}

static bool add_site(Elf *elf, uint16_t machine, const struct elf_segments *segments,
		     const struct found *found, size_t which, struct control_alloc_site *ret)
{
	uint64_t fo, end_fo, left, size = found->size[which];
	struct bytes code;
	size_t len;

	if (!elf_segments_range(segments, found->ev[which],
				found->ev[which] + (size ? size : ALLOC_SITE_SCAN_BYTES), &fo,
				&end_fo))
		return false;
	left = end_fo - fo;
	len = left < ALLOC_SITE_SCAN_BYTES ? left : ALLOC_SITE_SCAN_BYTES;
	if (elf_raw_bytes(elf, fo, len, &code) < 0 ||
	    alloc_site_find(machine, code.at, len, functions[which].kind, ret) < 0)
		return false;
	ret->code_len = (uint8_t)(len - ret->fo < ALLOC_SITE_CODE_BYTES ? len - ret->fo
									: ALLOC_SITE_CODE_BYTES);
	memcpy(ret->code, code.at + ret->fo, ret->code_len);
	ret->fo += fo;
	return true;
}

static bool is_there(const struct control_alloc_site *sites, unsigned count, uint64_t fo)
{
	for (unsigned i = 0; i < count; i++)
		if (sites[i].fo == fo)
			return true;
	return false;
}

unsigned alloc_sites_load(Elf *elf, struct control_alloc_site ret[ALLOC_SITES_MAX],
			  enum alloc_family *ret_family)
{
	struct found found = { .family = ALLOC_FAMILY_NONE };
	struct elf_segments segments;
	unsigned count = 0;
	GElf_Ehdr header;

	*ret_family = ALLOC_FAMILY_NONE;
	if (!gelf_getehdr(elf, &header) ||
	    (header.e_machine != EM_X86_64 && header.e_machine != EM_AARCH64) ||
	    elf_segments_load(elf, &segments) < 0)
		return 0;
	(void)!elf_each_symbol(elf, SHT_DYNSYM, TABLE_SYMBOLS_MAX, look_at, &found);
	/* Linked statically: its functions are in the symbol table alone. */
	if (!found.ev[0] && !found.imports)
		(void)!elf_each_symbol(elf, SHT_SYMTAB, TABLE_SYMBOLS_MAX, look_at, &found);
	if (!found.ev[0] || !found.ev[1])
		return 0;
	for (size_t i = 0; i < ARRAY_SIZE(functions) && count < ALLOC_SITES_MAX; i++)
		if (found.ev[i] && (functions[i].always || has_own_operators(found.family)) &&
		    add_site(elf, header.e_machine, &segments, &found, i, &ret[count]) &&
		    !is_there(ret, count, ret[count].fo))
			count++;
	*ret_family = found.family ? found.family : ALLOC_FAMILY_OTHER;
	return count;
}
