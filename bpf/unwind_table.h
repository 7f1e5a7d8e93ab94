/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Compact unwind rows of one module. The symbolizer compiles the image from .eh_frame and
 * .debug_frame, and the cache keeps it on disk. The collector copies it unchanged into the module's
 * own mmap-able BPF array (value size 16 bytes). Addresses are FILE OFFSETS, so BPF needs no
 * segments.
 *
 * The image is an array of elements of 16 bytes, in four parts:
 *
 * - the head: struct unwind_table_head, two elements;
 * - the page directory, from UNWIND_DIR_AT: two pages an element, each {first row u32, row count
 *   u32}, one per KiB of file offset from first_page on;
 * - the rules, from rules_at: struct unwind_rule, one an element; rule 0 = no information;
 * - the rows, from rows_at: four an element, each {offset in page u16, rule u16}, ascending.
 *
 * Each page begins with the row in force at its start (offset 0), so the search never leaves the
 * page. A row is in force until the next one. Pages are small because a search is mostly waiting
 * for memory: a KiB of code has some 18 rows (62 MB of Debian 12's libraries), which lie in one or
 * two cache lines.
 *
 * The register model is the architecture's DWARF numbering. Only the stack pointer, the frame
 * pointer and the return address are tracked beyond the innermost frame. On x86-64 modules with a
 * CFA by rbx (the dynamic linker's lazy binding) track rbx too. */
#ifndef PROFD_BPF_UNWIND_TABLE_H
#define PROFD_BPF_UNWIND_TABLE_H

#ifdef __bpf__
#include "bpf/bpf_types.h"
#else
#include <stdint.h>
#endif

#define UNWIND_TABLE_MAGIC   0x31545750u /* "PWT1" */
#define UNWIND_TABLE_VERSION 8u /* raise with every change of layout or of what is described */
#define UNWIND_ELEMENT_BYTES 16u
#define UNWIND_PAGE_SHIFT    10
#define UNWIND_PAGE_BYTES    (1u << UNWIND_PAGE_SHIFT)
#define UNWIND_DIR_AT	     2u
#define UNWIND_RULES_MAX     65536u
#define UNWIND_ROWS_MAX	     (8u << 20) /* rows of one module: 32 MiB */
#define UNWIND_PAGES_MAX     (4u << 20)	/* 4 GiB of file offsets */
#define UNWIND_SEARCH_STEPS  11u	/* 2^10 rows in a page at most, + 1 */

struct unwind_table_head {
	uint32_t magic;
	uint32_t version;
	uint32_t first_page;
	uint32_t page_count;
	uint32_t rules_at; /* element index */
	uint32_t rule_count;
	uint32_t rows_at; /* element index */
	uint32_t row_count;
};

/* How the canonical frame address is found. */
enum unwind_cfa {
	UNWIND_CFA_NONE = 0,	  /* no information for this range: a gap in the table */
	UNWIND_CFA_SP = 1,	  /* sp + cfa_offset */
	UNWIND_CFA_FP = 2,	  /* fp + cfa_offset */
	UNWIND_CFA_REG = 3,	  /* register cfa_reg + cfa_offset; innermost frame only */
	UNWIND_CFA_DEREF_SP = 4,  /* *(sp + cfa_deref) + cfa_offset */
	UNWIND_CFA_DEREF_FP = 5,  /* *(fp + cfa_deref) + cfa_offset */
	UNWIND_CFA_DEREF_REG = 6, /* *(cfa_reg + cfa_deref) + cfa_offset; innermost frame only */
	UNWIND_CFA_PLT = 7, /* sp + 8 + ((ip & 15) >= cfa_deref ? 8 : 0): the linker's PLT rule */
	UNWIND_CFA_SIGNAL =
		8,	    /* signal frame: all registers from the kernel's saved context at sp */
	UNWIND_CFA_END = 9, /* return address undefined: the outermost frame */
	UNWIND_CFA_UNSUPPORTED = 10, /* an expression we do not evaluate: stop, counted */
	UNWIND_CFA_DEREF_INDEXED =
		11, /* *(sp + 8 * register cfa_reg + cfa_deref) + cfa_offset; innermost frame only */
};

/* How the caller's frame pointer is found. */
enum unwind_fp {
	UNWIND_FP_SAME = 0,
	UNWIND_FP_CFA = 1, /* *(cfa + fp_offset) */
	UNWIND_FP_UNDEFINED = 2,
	UNWIND_FP_FROM_SP = 3, /* *(sp + fp_offset), for expressions */
	UNWIND_FP_FROM_FP = 4, /* *(fp + fp_offset): DW_CFA_expression (DRAP frames of gcc) */
	UNWIND_FP_REG = 5, /* in register fp_offset; innermost frame only */
};

enum unwind_rule_flag {
	UNWIND_RULE_SIGNAL =
		1, /* the CIE's augmentation has 'S': the pc is exact, not a return address */
	UNWIND_RULE_SWITCH =
		2, /* the caller's frame is on another stack: it need not be further up */
	UNWIND_RULE_THIRD =
		4, /* bits 7..4 of cfa_reg say where the third register is: enum unwind_third */
	UNWIND_RULE_RA_REG =
		8, /* the return address is in register ra_offset; innermost frame only (vfork, longjmp) */
	UNWIND_RULE_SP_SAVED =
		16, /* the caller's sp is saved below its return address, not the CFA (setcontext) */
};

/* n >= 2: saved at cfa - 8 * n. */
enum unwind_third {
	UNWIND_THIRD_SAME = 0,
	UNWIND_THIRD_LOST = 1,
};

struct unwind_rule {
	uint8_t cfa;	    /* enum unwind_cfa */
	uint8_t fp;	    /* enum unwind_fp */
	uint8_t cfa_reg;    /* DWARF register number; with UNWIND_RULE_THIRD its low half */
	uint8_t flags;	    /* enum unwind_rule_flag */
	int32_t cfa_offset; /* bytes */
	int32_t fp_offset;  /* bytes */
	int16_t cfa_deref;  /* bytes; PLT: the low nibble of ip from which the push is done */
	int16_t ra_offset;  /* return address at cfa + ra_offset * ARCH_RA_UNIT; x86-64: -8 */
};

#ifndef __bpf__
_Static_assert(sizeof(struct unwind_table_head) == 2 * UNWIND_ELEMENT_BYTES, "layout");
_Static_assert(sizeof(struct unwind_rule) == UNWIND_ELEMENT_BYTES, "layout");
#endif

#endif
