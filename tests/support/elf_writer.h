/* SPDX-License-Identifier: Apache-2.0 */
/* Small ELF64 files made in memory for tests: one executable segment, sections with any contents,
 * and call frame information written entry by entry. Running out of memory fails the test. */
#ifndef PROFD_TESTS_SUPPORT_ELF_WRITER_H
#define PROFD_TESTS_SUPPORT_ELF_WRITER_H

#include <elf.h>
#include <libelf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/buf.h"

#define ELF_WRITER_SECTIONS_MAX 16

struct elf_writer_section {
	const char *name;
	const void *data; /* borrowed until elf_writer_finish() */
	size_t len;
	uint64_t ev; /* 0 = not loaded */
	uint64_t fo; /* filled */
	uint32_t type;
	uint64_t flags;
};

struct elf_writer {
	uint64_t text_ev; /* the executable segment is text_bytes at text_fo */
	uint64_t text_fo; /* at least 4096 */
	const void *text; /* NULL = zeros */
	size_t text_bytes;
	struct elf_writer_section sections[ELF_WRITER_SECTIONS_MAX];
	unsigned section_count;
	uint16_t machine; /* 0 = EM_X86_64 */
	const void *note; /* contents of a PT_NOTE segment, NULL = none */
	size_t note_len;
};

void elf_writer_section(struct elf_writer *writer, const char *name, uint64_t ev, const void *data,
			size_t len);
/* The file; free it. */
uint8_t *elf_writer_finish(struct elf_writer *writer, size_t *ret_len);
/* The same opened by libelf over the caller's bytes (which must outlive it). */
Elf *elf_writer_open(uint8_t *file, size_t len);

/* ---- call frame information ------------------------------------------------------------------ */

struct cfi_writer {
	struct buf out; /* a section */
	uint64_t ev;	/* where it will be loaded */
	bool debug_frame;
	bool wide;	 /* 64-bit DWARF */
	bool no_padding; /* entries end with their instructions */
};

struct cfi_writer_cie {
	uint8_t version;	  /* 0 = 1 */
	const char *augmentation; /* NULL = "zR" */
	uint8_t encoding;	  /* DW_EH_PE_* for 'R' */
	uint8_t ra;		  /* 0 = 16 */
	const char *insns;	  /* hexadecimal, NULL = def_cfa rsp+8, ra at cfa-8 */
};

/* Offset of the new CIE in the section. Code alignment 1, data alignment -8. */
size_t cfi_writer_cie(struct cfi_writer *writer, const struct cfi_writer_cie *cie);
/* An FDE of a CIE written before. @encoding as in the CIE: absptr, pcrel | sdata4, udata4, … */
void cfi_writer_fde(struct cfi_writer *writer, size_t cie, uint8_t encoding, uint64_t pc_ev,
		    uint64_t size_bytes, const char *insns);
/* Appends hexadecimal text ("0e 10 41") to @out. */
void cfi_writer_hex(struct buf *out, const char *text);

#endif
