// SPDX-License-Identifier: Apache-2.0
/* Input is either a whole ELF file, or the contents of .eh_frame (first byte even) or .debug_frame
 * (odd) in a small file with 1 MiB of text just before it. Property: an image that is built is
 * valid, its look-ups agree with a linear scan of its rows, and its sums stay inside the text. */
#include <elf.h>
#include <libelf.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "symbolize/cfi_rows.h"
#include "tests/support/elf_head.h"

#define INPUT_MAX   (256u << 10)
#define TEXT_EV	    0x100000u
#define TEXT_BYTES  (1u << 20)
#define SECTION_EV  0x200000u
#define CONTENTS_AT 4096u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct skeleton {
	Elf64_Ehdr ehdr;
	Elf64_Phdr phdrs[2];
	Elf64_Shdr shdrs[3];
	char names[64];
};

/* The text has no bytes in the file: nothing reads it but the search of gaps, which copes. */
static void skeleton_fill(struct skeleton *s, size_t size, int debug)
{
	static const char names[] = "\0.eh_frame\0.debug_frame\0.shstrtab";

	*s = (struct skeleton){
		.ehdr = elf_head(ET_DYN, (struct elf_tables){ offsetof(struct skeleton, phdrs),
							      offsetof(struct skeleton, shdrs), 2, 3, 2 }),
		.phdrs = { { .p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_offset = 0x1000,
			     .p_vaddr = TEXT_EV, .p_filesz = TEXT_BYTES },
			   { .p_type = PT_LOAD, .p_flags = PF_R, .p_offset = CONTENTS_AT,
			     .p_vaddr = SECTION_EV, .p_filesz = size } },
		.shdrs = { { 0 },
			   { .sh_name = debug ? 11 : 1, .sh_type = SHT_PROGBITS,
			     .sh_addr = debug ? 0 : SECTION_EV, .sh_offset = CONTENTS_AT, .sh_size = size },
			   { .sh_name = 24, .sh_type = SHT_STRTAB,
			     .sh_offset = offsetof(struct skeleton, names), .sh_size = sizeof(names) } },
	};
	memcpy(s->names, names, sizeof(names));
}

static const struct unwind_rule *find_linear(const struct cfi_table *table, uint64_t fo)
{
	const struct unwind_table_head *head = table->image;
	const uint8_t *image = table->image;
	const uint32_t *pages = (const uint32_t *)(image + 2 * UNWIND_ELEMENT_BYTES);
	const uint16_t *rows = (const uint16_t *)(image + (size_t)head->rows_at * UNWIND_ELEMENT_BYTES);
	uint64_t page = (fo >> UNWIND_PAGE_SHIFT) - head->first_page;
	uint16_t rule = 0;

	if (page >= head->page_count)
		return NULL;
	for (uint32_t i = 0; i < pages[2 * page + 1]; i++) {
		uint32_t row = pages[2 * page] + i;

		if (rows[2 * row] <= (fo & (UNWIND_PAGE_BYTES - 1)))
			rule = rows[2 * row + 1];
	}
	return rule ? (const struct unwind_rule *)(image + (size_t)(head->rules_at + rule) *
							    UNWIND_ELEMENT_BYTES) :
		      NULL;
}

static void check(const struct cfi_table *table, int whole_file)
{
	uint64_t fo = 0x1000;

	if (cfi_image_validate(table->image, table->image_bytes) < 0)
		abort();
	if (!whole_file && (table->text_bytes > TEXT_BYTES || table->fp_text_bytes > table->text_bytes))
		abort();
	for (int i = 0; i < 200; i++) {
		if (cfi_table_find(table, fo) != find_linear(table, fo))
			abort();
		fo = (fo * 6364136223846793005ull + 1442695040888963407ull) % (2 * TEXT_BYTES);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cfi_table table;
	int whole_file = size > 4 && !memcmp(data, ELFMAG, SELFMAG);
	size_t len = whole_file ? size : CONTENTS_AT + size;
	char *file;
	Elf *elf;

	if (!size || size > INPUT_MAX)
		return 0;
	file = calloc(1, len);
	if (!file)
		return 0;
	if (whole_file) {
		memcpy(file, data, size);
	} else {
		skeleton_fill((struct skeleton *)(void *)file, size - 1, data[0] & 1);
		memcpy(file + CONTENTS_AT, data + 1, size - 1);
	}
	(void)elf_version(EV_CURRENT);
	elf = elf_memory(file, len);
	if (elf && !cfi_table_build(elf, -1, &table)) {
		check(&table, whole_file);
		cfi_table_deinit(&table);
	}
	if (elf)
		elf_end(elf);
	free(file);
	return 0;
}
