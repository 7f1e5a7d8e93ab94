// SPDX-License-Identifier: Apache-2.0
/* Input is a pclntab, then (from the last quarter on) inline trees; the first byte chooses one of
 * the three layouts. It is put into a small Go program: text, the table in a section of its own,
 * and a moduledata that fits whatever the header says. Property: the names that are built pass the
 * check of stored images. */
#include <elf.h>
#include <libelf.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/io.h"
#include "symbolize/gopclntab.h"
#include "symbolize/symbol_index.h"
#include "tests/support/elf_head.h"

#define INPUT_MAX  (128u << 10)
#define TEXT_EV	   0x401000u
#define TEXT_BYTES (1u << 20)
#define TABLE_EV   0x600000u
#define MODULE_EV  0x700000u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct skeleton {
	Elf64_Ehdr ehdr;
	Elf64_Phdr phdrs[3];
	Elf64_Shdr shdrs[3];
	char names[32];
	uint64_t module[80];
};

static void fill(struct skeleton *s, size_t size)
{
	static const char names[] = "\0.gopclntab\0.shstrtab";

	*s = (struct skeleton){
		.ehdr = elf_head(ET_EXEC, (struct elf_tables){ offsetof(struct skeleton, phdrs),
							       offsetof(struct skeleton, shdrs), 3, 3, 2 }),
		.phdrs = { { .p_type = PT_LOAD, .p_flags = PF_R | PF_X, .p_offset = 0x1000,
			     .p_vaddr = TEXT_EV, .p_filesz = TEXT_BYTES },
			   { .p_type = PT_LOAD, .p_flags = PF_R, .p_offset = sizeof(*s),
			     .p_vaddr = TABLE_EV, .p_filesz = size },
			   { .p_type = PT_LOAD, .p_flags = PF_R | PF_W,
			     .p_offset = offsetof(struct skeleton, module), .p_vaddr = MODULE_EV,
			     .p_filesz = sizeof(s->module) } },
		.shdrs = { { 0 },
			   { .sh_name = 1, .sh_type = SHT_PROGBITS, .sh_addr = TABLE_EV,
			     .sh_offset = sizeof(*s), .sh_size = size },
			   { .sh_name = 12, .sh_type = SHT_STRTAB,
			     .sh_offset = offsetof(struct skeleton, names),
			     .sh_size = sizeof(s->names) } },
	};
	memcpy(s->names, names, sizeof(names));
}

static uint64_t word(const uint8_t *table, unsigned index)
{
	uint64_t value;

	memcpy(&value, table + 8 + index * 8, 8);
	return value;
}

/* A header that is accepted, and the moduledata that belongs to it. */
static void fill_module(struct skeleton *s, uint8_t *table, size_t size, uint8_t choice)
{
	static const uint32_t magics[] = { 0xfffffffa, 0xfffffff0, 0xfffffff1 };
	unsigned layout = choice % 3, first = layout ? 3 : 2;

	memcpy(table, &magics[layout], 4);
	memcpy(table + 4, "\0\0\1\10", 4);
	s->module[0] = TABLE_EV;
	s->module[1] = TABLE_EV + word(table, first);
	s->module[13] = TABLE_EV + word(table, first + 4);
	s->module[17] = word(table, 0) + 1;
	s->module[22] = TEXT_EV;
	s->module[23] = TEXT_EV + TEXT_BYTES;
	s->module[layout == 2 ? 40 : 38] = TABLE_EV + size - size / 4;
}

static void check(const struct symbol_index *index)
{
	struct symbol_frame frames[SYMBOL_INLINE_MAX];
	struct symbol_index *again = NULL;
	size_t bytes;
	const void *image = symbol_index_image(index, &bytes);
	cleanup_close int fd = io_memfd("image", 0);

	if (fd < 0 || io_write_all(fd, image, bytes) < 0)
		return;
	if (symbol_index_open(fd, &again) != 0)
		abort();
	for (uint64_t fo = 0x1000; fo < 0x3000; fo += 13)
		if (symbol_index_find(again, fo, frames) > SYMBOL_INLINE_MAX)
			abort();
	symbol_index_destroy(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct symbol_index *index = NULL;
	struct skeleton s;
	uint8_t *file;
	Elf *elf;

	if (size < 81 || size > INPUT_MAX)
		return 0;
	(void)elf_version(EV_CURRENT);
	file = malloc(sizeof(s) + size - 1);
	if (!file)
		return 0;
	memcpy(file + sizeof(s), data + 1, size - 1);
	fill(&s, size - 1);
	fill_module(&s, file + sizeof(s), size - 1, data[0]);
	memcpy(file, &s, sizeof(s));
	elf = elf_memory((char *)file, sizeof(s) + size - 1);
	if (elf && symbol_index_build(elf, NULL, &index) == 0) {
		check(index);
		symbol_index_destroy(index);
	}
	elf_end(elf);
	free(file);
	return 0;
}
