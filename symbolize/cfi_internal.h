/* SPDX-License-Identifier: Apache-2.0 */
/* Private to cfi_*.c: how call frame information becomes an unwind table.
 *
 *   cfi_parse.c       sections -> CIEs and FDEs (struct cfi_set), nothing executed
 *   cfi_amd64.c, cfi_arm64.c   registers; ranges that linkers leave without an FDE: PLT, .init
 *   cfi_synth.c       what these have in common: rows without an entry
 *   cfi_gaps.c        returns from signal handlers that have no FDE
 *   cfi_order.c       ranges sorted and made disjoint
 *   cfi_go.c          Go's pclntab, which says more than a Go program's .debug_frame
 *   cfi_execute.c     one FDE's instructions -> (file offset, rule) in ascending order
 *   cfi_expression.c  DWARF expressions -> the few forms that a rule can say
 *   cfi_table.c       (file offset, rule) stream -> image
 *   cfi_rows.c        the order of it all
 *
 * Every byte of a section is read at most twice (found, executed), a CIE's instructions once, and
 * ranges do not overlap when they are executed: work is linear in the size of the sections. */
#ifndef PROFD_SYMBOLIZE_CFI_INTERNAL_H
#define PROFD_SYMBOLIZE_CFI_INTERNAL_H

#include "agent/base/vec.h"
#include "symbolize/cfi_rows.h"
#include "symbolize/elf_debug.h"
#include "symbolize/elf_file.h"

#define CFI_SECTION_BYTES_MAX (256ull << 20) /* largest seen: 30 MB (a browser) */
#define CFI_ENTRIES_MAX	      (4u << 20)
#define CFI_CIES_MAX	      (256u << 10)
#define CFI_PADDING_BYTES     16u /* functions are aligned to 16: smaller gaps are padding */
#define CFI_REMEMBER_MAX      32 /* nested DW_CFA_remember_state; compilers use 2 */
#define CFI_FO_END	      ((uint64_t)UNWIND_PAGES_MAX << UNWIND_PAGE_SHIFT)

/* ---- the architecture: the only place that names registers ----------------------------------- */

struct cfi_set;

struct cfi_arch {
	uint16_t machine;	/* EM_* */
	uint8_t sp, fp, ra;	/* DWARF register numbers */
	uint8_t third;		/* followed in files that have a CFA by it; 0xff = none is */
	uint8_t general_end;	/* the general registers' numbers are below it, but for sp */
	bool has_link;		/* a call leaves the return address in register ra, not on the stack */
	uint8_t ra_unit;	/* bytes of one in unwind_rule.ra_offset */
	int16_t call_ra_offset; /* without link: return address from the CFA at a function's entry */
	int16_t call_cfa_offset; /* CFA from sp at a function's entry */
	int16_t signal_cfa_at;	/* in a signal frame: the saved sp, from sp; 0 = entries do not say */
	int16_t signal_ra_at;	/* and the saved pc */
	/* Is this CFA expression the linker's rule for PLT entries? Fills @rule then. */
	bool (*plt_expression)(struct bytes expr, struct unwind_rule *rule);
	/* The instructions of the return from a signal handler. */
	const uint8_t *sigreturn;
	uint8_t sigreturn_len;
	/* The instruction at which an indirect jump may land, and the first instruction of a
	 * function that begins on no stack of its own. */
	const uint8_t *landing, *new_stack;
	uint8_t landing_len, new_stack_len;
	/* Adds ready rows for PLT sections, .init and .fini, and for what else has no entry. */
	int (*synth_sections)(struct cfi_set *set);
	/* Go's functions: how the prologue keeps the frame pointer, where sp has first moved at offset
	 * @at by @delta bytes. *@ret_saved_at: from there on the caller's is saved; *@ret_fp_at: from
	 * there on fp is the function's own. Both untouched if it does not. */
	void (*go_frame)(const uint8_t *code, uint32_t size_bytes, uint32_t at, int32_t delta,
			 uint32_t *ret_saved_at, uint32_t *ret_fp_at);
};

extern const struct cfi_arch cfi_arch_amd64, cfi_arch_arm64;

/* That of @elf, NULL = none of them. */
const struct cfi_arch *cfi_arch_of(Elf *elf);

/* ---- rules while instructions run ------------------------------------------------------------ */

enum cfi_value { /* what an expression was found to mean */
	CFI_VALUE_OTHER, /* not one of the forms below */
	CFI_VALUE_CONST, /* offset */
	CFI_VALUE_REG,	 /* reg + offset */
	CFI_VALUE_DEREF, /* *(reg + deref) + offset */
	CFI_VALUE_CFA,	 /* CFA + offset (the CFA is on the stack when a register's expression starts) */
	CFI_VALUE_SCALED,	 /* 8 * index */
	CFI_VALUE_INDEXED,	 /* reg + 8 * index + offset */
	CFI_VALUE_DEREF_INDEXED, /* *(reg + 8 * index + deref) + offset */
};

struct cfi_expression {
	uint8_t value; /* enum cfi_value */
	uint8_t reg;
	uint8_t index; /* register */
	int64_t offset;
	int64_t deref;
};

/* @with_cfa: the CFA is pushed first. Reads all of @expr; never fails (OTHER). */
struct cfi_expression cfi_expression_read(struct bytes expr, bool with_cfa);

enum cfi_cfa {
	CFI_CFA_UNSET,
	CFI_CFA_REG,   /* reg + offset */
	CFI_CFA_DEREF, /* *(reg + deref) + offset */
	CFI_CFA_PLT,   /* deref = nibble */
	CFI_CFA_DEREF_INDEXED, /* *(sp + 8 * reg + deref) + offset */
	CFI_CFA_OTHER,
};

enum cfi_how {
	CFI_HOW_UNSET, /* the ABI's default: callee-saved registers keep their value */
	CFI_HOW_SAME,
	CFI_HOW_UNDEFINED,
	CFI_HOW_AT_CFA, /* *(CFA + offset) */
	CFI_HOW_AT_SP,	/* *(sp + offset) */
	CFI_HOW_AT_FP,	/* *(fp + offset) */
	CFI_HOW_CFA,	/* CFA + offset */
	CFI_HOW_IN_REG, /* register number offset */
	CFI_HOW_OTHER,
};

struct cfi_register {
	int64_t offset;
	uint8_t how; /* enum cfi_how */
};

struct cfi_state {
	int64_t cfa_offset;
	int64_t cfa_deref;
	struct cfi_register fp;
	struct cfi_register ra;
	struct cfi_register sp;
	struct cfi_register third;
	uint32_t cfa_reg;
	uint8_t cfa; /* enum cfi_cfa */
};

/* ---- entries --------------------------------------------------------------------------------- */

struct cfi_cie {
	uint32_t offset; /* of the entry in its section; CIEs of a section ascend */
	uint64_t code_align;
	int64_t data_align;
	uint32_t ra_reg;
	uint8_t fde_encoding; /* DW_EH_PE_* of addresses */
	uint8_t address_bytes;
	bool has_augmentation_data; /* 'z' */
	bool signal;		    /* 'S' */
	bool readable;		    /* false: its FDEs are ignored */
	bool usable;		    /* false: its FDEs are UNSUPPORTED */
	struct cfi_state initial;   /* after its own instructions */
};

enum cfi_source { /* best first: a lower one only fills what the others leave out */
	CFI_SOURCE_EH_FRAME,
	CFI_SOURCE_GO,
	CFI_SOURCE_DEBUG_FRAME,
	CFI_SOURCE_SYNTH,
};

/* A range of file offsets and where its rows come from. */
struct cfi_entry {
	uint32_t start_fo;
	uint32_t end_fo; /* exclusive */
	uint32_t source; /* enum cfi_source */
	uint32_t cie;	 /* index into cies; SYNTH, GO: index of the first row in steps */
	uint32_t len;	 /* bytes of instructions; SYNTH, GO: number of rows */
	const uint8_t *insns;
};

/* A ready row of a SYNTH or GO entry. */
struct cfi_step {
	uint32_t fo;
	struct unwind_rule rule;
};

VEC_DEFINE(cfi_entry, struct cfi_entry);
VEC_DEFINE(cfi_cie, struct cfi_cie);
VEC_DEFINE(cfi_step, struct cfi_step);

struct cfi_set {
	const struct cfi_arch *arch;
	Elf *elf; /* borrowed */
	int fd;	  /* of its file, borrowed; -1 = none */
	struct elf_segments segments;
	struct elf_section eh_frame, debug_frame; /* entries point into them */
	struct cfi_cie_vec cies;
	struct cfi_entry_vec entries;
	struct cfi_step_vec steps;
	const uint8_t *frame_start; /* of .eh_frame, and its address: DW_EH_PE_pcrel */
	uint64_t frame_ev;	    /* 0 in .debug_frame */
	uint64_t text_ev, data_ev;  /* bases of DW_EH_PE_textrel, datarel; 0 = unknown */
	unsigned indirect_left;	    /* DW_EH_PE_indirect reads still allowed */
	bool third_is_needed;	    /* a CFA by the third register was met */
	bool third_is_followed;	    /* rules say where it is */
	uint64_t init_bytes;	    /* of .init and .fini, with a frame of their own */
};

void cfi_set_deinit(struct cfi_set *set);

static inline void cleanup_cfi_set_fn(struct cfi_set *set)
{
	cfi_set_deinit(set);
}
#define cleanup_cfi_set __attribute__((__cleanup__(cleanup_cfi_set_fn)))

/* Adds what .eh_frame (or, without section headers, PT_GNU_EH_FRAME) and .debug_frame hold. Damage
 * ends the section, what was found before it counts. -ENOMEM, -E2BIG. */
int cfi_parse_eh_frame(struct cfi_set *set) must_use;
int cfi_parse_debug_frame(struct cfi_set *set) must_use;
/* Reads an address in a frame section. A base that is not known, or a null pointer, gives 0. Sets
 * b->failed when damaged. */
uint64_t cfi_read_pointer(struct cfi_set *set, struct bytes *b, uint8_t encoding,
			  uint8_t address_bytes);
/* Adds one range, clipped to its executable segment; @start_ev outside any is ignored. */
int cfi_set_add(struct cfi_set *set, uint64_t start_ev, uint64_t size_bytes,
		struct cfi_entry entry) must_use;
/* Sorts the entries and makes them disjoint. -ENOMEM. */
int cfi_set_order(struct cfi_set *set) must_use;

/* Adds returns from signal handlers in the gaps between the entries, which must be ordered before
 * and after. */
int cfi_gaps_sigreturn(struct cfi_set *set) must_use;
/* Adds ends of stacks: makecontext() puts the address of a function where a return address would
 * be, and what follows is no frame. Nobody calls what ends in padding, so the byte before that
 * function is asked for by such a stack only. The function is known by its entry, which says that
 * it keeps its stack, and its first instruction, which leaves it (glibc,
 * sysdeps/unix/sysv/linux/x86_64/__start_context.S). Entries must be ordered before and after. */
int cfi_gaps_contexts(struct cfi_set *set) must_use;
/* Go functions from .gopclntab. */
int cfi_go_functions(struct cfi_set *set) must_use;

/* ---- code without an entry ------------------------------------------------------------------- */

struct cfi_code_section {
	uint64_t ev;
	uint64_t fo;
	uint64_t len; /* bytes */
};

struct cfi_section_synth {
	const char *name;
	/* Adds its rows, if it is what is expected. */
	int (*synth)(struct cfi_set *set, const struct cfi_code_section *section);
};

/* The rule where @pushed_bytes of stack are used since the call. */
struct unwind_rule cfi_call_rule(const struct cfi_arch *arch, int32_t pushed_bytes);
int cfi_add_step(struct cfi_set *set, uint64_t fo, struct unwind_rule rule) must_use;
/* The steps from @first on become the rows of [@ev, @ev + @size_bytes). */
int cfi_add_range(struct cfi_set *set, uint64_t ev, uint64_t size_bytes, size_t first) must_use;
/* Hands the sections of these names that the file has to their functions. */
int cfi_synth_sections(struct cfi_set *set, const struct cfi_section_synth *sections,
		       size_t count) must_use;
/* Marks the program's entry as the outermost frame. musl's _start, glibc's dynamic linker and
 * programs without a C library do not describe it; glibc's own _start does. @entry_len: bytes of
 * the code at @b up to and with what it never goes on behind. */
int cfi_synth_entry(struct cfi_set *set, uint64_t (*entry_len)(const struct bytes *b)) must_use;

/* ---- execution and image --------------------------------------------------------------------- */

struct cfi_builder;

/* Runs a CIE's instructions from the empty state into @ret. False if they are not valid. */
bool cfi_execute_initial(const struct cfi_arch *arch, const struct cfi_cie *cie, struct bytes insns,
			 struct cfi_state *ret);
/* Runs an FDE's; gives its rows, from start_fo up to end_fo, to @builder. */
int cfi_execute(struct cfi_set *set, const struct cfi_entry *entry,
		struct cfi_builder *builder) must_use;

/* Rows [@first_fo, @end_fo) will come, in ascending order. -ENOMEM. */
int cfi_builder_create(uint64_t first_fo, uint64_t end_fo, struct cfi_builder **ret) must_use;
void cfi_builder_destroy(struct cfi_builder *builder);
CLEANUP_DEFINE(cfi_builder, struct cfi_builder *, cfi_builder_destroy);
/* @rule is in force from @fo on; a row at the same offset replaces the former. -E2BIG, -ENOMEM. */
int cfi_builder_row(struct cfi_builder *builder, uint32_t fo, const struct unwind_rule *rule)
	must_use;
/* The image. The builder is empty after it. */
int cfi_builder_finish(struct cfi_builder *builder, struct cfi_table *ret) must_use;

#endif
