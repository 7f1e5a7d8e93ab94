// SPDX-License-Identifier: Apache-2.0
/* Go functions from pclntab: how far the stack pointer is below the return address at every
 * instruction (pcsp), which the runtime's own tracebacks use, so it is there and right in stripped
 * programs too. Better than the .debug_frame that Go writes from the same table in three things:
 *
 *  - Frame pointers. Go keeps them (since 1.7), but no table says so; the prologue's bytes do.
 *    Needed wherever the walk comes to code that uses them: C called by cgo, and the next point.
 *  - Switches of stacks. systemstack, asmcgocall, cgocallback and calls into the vdso load sp with
 *    another stack's, and pcsp means nothing there; but the frame pointer stays this function's, on
 *    the stack that they came from, and leads on to the goroutine (runtime/asm_amd64.s, "useful for
 *    stack unwinding"; Go before 1.21 has no frame of its own there: the walk goes on one caller
 *    further up).
 *  - Ends. Functions at the top of a stack are marked; below them lies garbage.
 *
 * Sources: runtime/symtab.go, runtime/stkframe.go, internal/abi/symtab.go, runtime/asm_*.s. */
#include <errno.h>
#include <string.h>

#include "symbolize/cfi_internal.h"
#include "symbolize/gopclntab.h"

#define STEPS_MAX  UNWIND_ROWS_MAX
#define NAME_BYTES  128u /* of a name that is compared */
#define FLAG_TOP   1u /* abi.FuncFlagTopFrame (Go 1.17) */
#define FLAG_SPWRITE 2u /* abi.FuncFlagSPWrite (Go 1.17) */
#define NEVER	   UINT32_MAX

enum go_role { GO_ROLE_PLAIN, GO_ROLE_END, GO_ROLE_SWITCH, GO_ROLE_SIGRETURN };

struct go_function {
	const uint8_t *code; /* NULL: not in the file */
	uint32_t size_bytes;
	uint32_t start_fo;
	uint32_t pcsp;	     /* offset of its table in pctab, 0 = none */
	enum go_role role;
	uint32_t saved_at;   /* offset from which the caller's fp is below the return address; NEVER */
	uint32_t fp_at;	     /* offset from which fp is this function's own; NEVER */
};

struct go_reader {
	struct cfi_set *set;
	const struct go_image *image;
	const struct go_table *table;
};

/* ---- functions ------------------------------------------------------------------------------- */

/* False: the function's flags tell. */
static bool role_of_name(const char *name, size_t len, enum go_role *ret)
{
	static const struct {
		const char *name;
		enum go_role role;
	} roles[] = {
		{ "runtime.goexit", GO_ROLE_END },
		{ "runtime.mstart", GO_ROLE_END },
		{ "runtime.rt0_go", GO_ROLE_END },
		/* They never return to what called them, and that goes on elsewhere meanwhile. */
		{ "runtime.mcall", GO_ROLE_END },
		{ "runtime.morestack", GO_ROLE_END },
		{ "runtime.systemstack", GO_ROLE_SWITCH },
		{ "runtime.asmcgocall", GO_ROLE_SWITCH },
		{ "runtime.cgocallback", GO_ROLE_SWITCH },
		/* On the signal stack a traceback of Go's ends; what was interrupted is its caller
		   all the same. */
		{ "runtime.sigtramp", GO_ROLE_PLAIN },
		{ "runtime.sigreturn", GO_ROLE_SIGRETURN },
		{ "runtime.sigreturn__sigaction", GO_ROLE_SIGRETURN },
	};

	if (len > 5 && !memcmp(name + len - 5, ".abi0", 5))
		len -= 5;
	for (size_t i = 0; i < ARRAY_SIZE(roles); i++)
		if (strlen(roles[i].name) == len && !memcmp(roles[i].name, name, len)) {
			*ret = roles[i].role;
			return true;
		}
	return false;
}

static enum go_role role_of(const struct go_table *table, uint32_t name_offset, uint8_t flag)
{
	struct bytes at = go_table_bytes(table, table->names, name_offset);
	size_t left = bytes_left(&at) < NAME_BYTES ? bytes_left(&at) : NAME_BYTES;
	enum go_role role;

	if (role_of_name((const char *)at.at, strnlen((const char *)at.at, left), &role))
		return role;
	return flag & FLAG_TOP ? GO_ROLE_END : flag & FLAG_SPWRITE ? GO_ROLE_SWITCH : GO_ROLE_PLAIN;
}

/* The _func at @offset. Source: runtime/runtime2.go, type _func. */
static bool read_function(const struct go_table *table, uint64_t offset, struct go_function *ret)
{
	struct bytes at = go_table_bytes(table, table->functions, offset);
	uint32_t name;
	uint8_t flag;

	(void)!bytes_take(&at, table->layout == GOPCLNTAB_1_16 ? 8 : 4); /* entry */
	name = bytes_u32(&at);
	(void)!bytes_take(&at, 8); /* args, deferreturn */
	ret->pcsp = bytes_u32(&at);
	(void)!bytes_take(
		&at, table->layout == GOPCLNTAB_1_20 ? 20 : 16); /* pcfile … cuOffset [startLine] */
	(void)bytes_u8(&at);						   /* funcID */
	flag = bytes_u8(&at);
	if (at.failed)
		return false;
	ret->role = role_of(table, name, flag);
	return true;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* With a link register the return address is at the lower end of the frame, without one above it;
 * the caller's frame pointer is always below it. Source: runtime/stkframe.go. */
static struct unwind_rule rule_at(const struct cfi_arch *arch, const struct go_function *f,
				  uint32_t at, int32_t delta)
{
	int32_t ra_at = arch->has_link ? -delta : arch->call_ra_offset;
	struct unwind_rule rule = cfi_call_rule(arch, delta);
	bool framed = delta >= 8;

	if (delta < 0 || ra_at / arch->ra_unit < INT16_MIN)
		return (struct unwind_rule){ .cfa = UNWIND_CFA_UNSUPPORTED };
	if (arch->has_link && delta) {
		rule.flags = 0;
		rule.ra_offset = (int16_t)(ra_at / arch->ra_unit);
	}
	if (f->role == GO_ROLE_SWITCH && (f->saved_at == NEVER || (framed && at >= f->fp_at))) {
		rule.cfa = UNWIND_CFA_FP;
		rule.cfa_offset = 8 - ra_at;
		rule.flags = UNWIND_RULE_SWITCH;
		rule.ra_offset = (int16_t)(ra_at / arch->ra_unit);
		framed = true;
	} else if (at < f->saved_at) {
		framed = false;
	}
	if (framed) {
		rule.fp = UNWIND_FP_CFA;
		rule.fp_offset = ra_at - 8;
	}
	return rule;
}

static int add_step(struct go_reader *r, const struct go_function *f, uint32_t at,
		    struct unwind_rule rule)
{
	if (r->set->steps.count >= STEPS_MAX)
		return -E2BIG;
	return cfi_step_vec_push(&r->set->steps,
				 (struct cfi_step){ .fo = f->start_fo + at, .rule = rule });
}

/* One run of pcsp: sp is @delta below the return address in [@start, @end). The frame's set-up may
 * fall into it. */
static int add_run(struct go_reader *r, const struct go_function *f, uint32_t start, uint32_t end,
		   int32_t delta)
{
	const uint32_t changes[] = { f->saved_at, f->fp_at };
	int rc = add_step(r, f, start, rule_at(r->set->arch, f, start, delta));

	for (size_t i = 0; !rc && i < ARRAY_SIZE(changes); i++)
		if (changes[i] > start && changes[i] < end)
			rc = add_step(r, f, changes[i], rule_at(r->set->arch, f, changes[i], delta));
	return rc;
}

/* Walks the function's pcsp table: pairs of (value delta, pc delta), ended by a value delta of 0.
 * Values begin at -1. @ret_end: where it ends. */
static int add_runs(struct go_reader *r, struct go_function *f, uint32_t *ret_end)
{
	struct bytes at = go_table_bytes(r->table, r->table->pctab, f->pcsp);
	uint32_t start = 0;
	int32_t value = -1;
	bool moved = false;

	f->saved_at = f->fp_at = NEVER;
	while (start < f->size_bytes) {
		uint64_t code = bytes_varint(&at);
		uint64_t step;
		uint64_t end;
		int rc;

		if (at.failed || (!code && start))
			break;
		value = (int32_t)((uint32_t)value +
				  (code & 1 ? ~(uint32_t)(code >> 1) : (uint32_t)(code >> 1)));
		step = (uint64_t)(uint32_t)bytes_varint(&at) * r->table->quantum;
		if (at.failed || !step)
			break;
		end = start + step < f->size_bytes ? start + step : f->size_bytes;
		if (value > 0 && !moved) {
			moved = true;
			if (f->code)
				r->set->arch->go_frame(f->code, f->size_bytes, start, value, &f->saved_at,
						       &f->fp_at);
		}
		rc = add_run(r, f, start, (uint32_t)end, value);
		if (rc < 0)
			return rc;
		start = (uint32_t)end;
	}
	*ret_end = start;
	return 0;
}

static int add_function(struct go_reader *r, struct go_function *f)
{
	struct cfi_entry entry = { .source = CFI_SOURCE_GO,
				   .cie = (uint32_t)r->set->steps.count,
				   .start_fo = f->start_fo,
				   .end_fo = f->start_fo + f->size_bytes };
	uint32_t end = f->size_bytes;
	int rc;

	if (f->role == GO_ROLE_END) {
		rc = add_step(r, f, 0, (struct unwind_rule){ .cfa = UNWIND_CFA_END });
	} else if (f->role == GO_ROLE_SIGRETURN) {
		/* Signal handlers return to its first byte and are looked up one byte lower. */
		f->start_fo -= f->start_fo > 0;
		entry.start_fo = f->start_fo;
		rc = add_step(r, f, 0, (struct unwind_rule){ .cfa = UNWIND_CFA_SIGNAL,
							     .flags = UNWIND_RULE_SIGNAL });
	} else {
		rc = f->pcsp ? add_runs(r, f, &end) : 0;
		entry.end_fo = f->start_fo + end;
	}
	entry.len = (uint32_t)(r->set->steps.count - entry.cie);
	if (rc < 0 || !entry.len)
		return rc;
	if (r->set->entries.count >= CFI_ENTRIES_MAX)
		return -E2BIG;
	return cfi_entry_vec_push(&r->set->entries, entry);
}

static int add_all(struct go_reader *r)
{
	uint64_t entry_ev;
	uint64_t func;
	uint64_t next_ev;
	uint64_t next_func;

	if (!go_table_entry(r->table, r->image, 0, &entry_ev, &func))
		return 0;
	for (uint64_t i = 0; i < r->table->function_count; i++, entry_ev = next_ev, func = next_func) {
		struct go_function f = { .code = NULL };
		uint64_t start_fo;
		uint64_t end_fo;
		int rc;

		if (!go_table_entry(r->table, r->image, i + 1, &next_ev, &next_func))
			break;
		if (next_ev <= entry_ev ||
		    !elf_segments_range(&r->set->segments, entry_ev, next_ev, &start_fo, &end_fo) ||
		    end_fo >= CFI_FO_END || end_fo <= start_fo ||
		    !read_function(r->table, func, &f))
			continue;
		f.start_fo = (uint32_t)start_fo;
		f.size_bytes = (uint32_t)(end_fo - start_fo);
		f.code = go_image_at(r->image, entry_ev, f.size_bytes);
		rc = add_function(r, &f);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static bool may_be_go(Elf *elf)
{
	static const char *const names[] = { ".go.buildinfo", ".gopclntab", ".data.rel.ro.gopclntab" };
	uint64_t ev;
	uint64_t fo;
	uint64_t len;

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (elf_section_place(elf, names[i], &ev, &fo, &len))
			return true;
	return false;
}

int cfi_go_functions(struct cfi_set *set)
{
	struct go_reader reader = { .set = set };
	struct go_image image;
	struct go_table table;
	int rc;

	if (!may_be_go(set->elf))
		return 0;
	rc = go_image_load(set->elf, &set->segments, &image);
	if (!rc)
		rc = go_image_find_table(set->elf, &image, &table);
	if (!rc) {
		reader.image = &image;
		reader.table = &table;
		rc = add_all(&reader);
	}
	go_image_deinit(&image);
	/* Older than 1.16, or damaged: .debug_frame may still be there. */
	return rc == -ENOMEM || rc == -E2BIG ? rc : 0;
}
