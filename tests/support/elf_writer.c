// SPDX-License-Identifier: Apache-2.0
#include "tests/support/elf_writer.h"

#include <ctype.h>
#include <dwarf.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/elf_head.h"

static uint64_t align_up(uint64_t value, uint64_t to)
{
	return (value + to - 1) / to * to;
}

void elf_writer_section(struct elf_writer *writer, const char *name, uint64_t ev, const void *data,
			size_t len)
{
	if (writer->section_count == ELF_WRITER_SECTIONS_MAX)
		abort();
	writer->sections[writer->section_count++] =
		(struct elf_writer_section){ .name = name,
					     .data = data,
					     .len = len,
					     .ev = ev,
					     .type = SHT_PROGBITS,
					     .flags = ev ? SHF_ALLOC : 0 };
}

/* Layout: headers, text at text_fo, section contents, section names, section headers. */
uint8_t *elf_writer_finish(struct elf_writer *w, size_t *ret_len)
{
	char names[1024] = "";
	size_t names_len = 1;
	size_t at = align_up(w->text_fo + w->text_bytes, 16);
	size_t note_at = sizeof(Elf64_Ehdr) + 3 * sizeof(Elf64_Phdr);
	unsigned count = w->section_count + 2;
	Elf64_Shdr shdrs[ELF_WRITER_SECTIONS_MAX + 2] = { 0 };
	Elf64_Phdr phdrs[3] = { 0 };
	Elf64_Ehdr ehdr = elf_head(ET_DYN, (struct elf_tables){ .phdrs_fo = sizeof(Elf64_Ehdr),
								.phdrs = w->note ? 3 : 2,
								.shdrs = (uint16_t)count,
								.names = (uint16_t)(count - 1) });
	uint8_t *file;

	for (unsigned i = 0; i < w->section_count; i++) {
		struct elf_writer_section *s = &w->sections[i];

		s->fo = at;
		at = align_up(at + s->len, 16);
		shdrs[i + 1] = (Elf64_Shdr){ .sh_name = (uint32_t)names_len,
					     .sh_type = s->type,
					     .sh_flags = s->flags,
					     .sh_addr = s->ev,
					     .sh_offset = s->fo,
					     .sh_size = s->len,
					     .sh_addralign = 1 };
		strcpy(names + names_len, s->name);
		names_len += strlen(s->name) + 1;
	}
	shdrs[count - 1] = (Elf64_Shdr){ .sh_name = (uint32_t)names_len,
					 .sh_type = SHT_STRTAB,
					 .sh_offset = at,
					 .sh_size = names_len + 10 };
	strcpy(names + names_len, ".shstrtab");
	if (w->machine)
		ehdr.e_machine = w->machine;
	ehdr.e_shoff = align_up(at + names_len + 10, 16);
	*ret_len = ehdr.e_shoff + count * sizeof(Elf64_Shdr);
	/* Program headers: text; all from the first section on, as data; the note. */
	phdrs[0] = (Elf64_Phdr){ .p_type = PT_LOAD,
				 .p_flags = PF_R | PF_X,
				 .p_offset = w->text_fo,
				 .p_vaddr = w->text_ev,
				 .p_filesz = w->text_bytes,
				 .p_memsz = w->text_bytes };
	phdrs[1] = phdrs[0];
	phdrs[1].p_flags = PF_R;
	if (w->section_count) {
		phdrs[1].p_offset = w->sections[0].fo;
		phdrs[1].p_vaddr = w->sections[0].ev;
		phdrs[1].p_filesz = phdrs[1].p_memsz = at - w->sections[0].fo;
	}
	phdrs[2] = (Elf64_Phdr){ .p_type = PT_NOTE, .p_offset = note_at, .p_filesz = w->note_len };
	file = calloc(1, *ret_len);
	if (!file || note_at + w->note_len > w->text_fo)
		abort();
	memcpy(file, &ehdr, sizeof(ehdr));
	memcpy(file + sizeof(ehdr), phdrs, sizeof(phdrs));
	if (w->note)
		memcpy(file + note_at, w->note, w->note_len);
	if (w->text)
		memcpy(file + w->text_fo, w->text, w->text_bytes);
	for (unsigned i = 0; i < w->section_count; i++)
		memcpy(file + w->sections[i].fo, w->sections[i].data, w->sections[i].len);
	memcpy(file + at, names, names_len + 10);
	memcpy(file + ehdr.e_shoff, shdrs, count * sizeof(*shdrs));
	return file;
}

Elf *elf_writer_open(uint8_t *file, size_t len)
{
	Elf *elf;

	if (elf_version(EV_CURRENT) == EV_NONE)
		abort();
	elf = elf_memory((char *)file, len);
	if (!elf)
		abort();
	return elf;
}

/* ---- call frame information ------------------------------------------------------------------ */

static int hex_digit(char c)
{
	return isdigit((unsigned char)c) ? c - '0' : tolower((unsigned char)c) - 'a' + 10;
}

void cfi_writer_hex(struct buf *out, const char *text)
{
	while (*text) {
		uint8_t byte;

		if (*text == ' ') {
			text++;
			continue;
		}
		byte = (uint8_t)(hex_digit(text[0]) << 4 | hex_digit(text[1]));
		buf_add(out, &byte, 1);
		text += 2;
	}
}

/* Length, body, padding to 8 with DW_CFA_nop. */
static size_t add_entry(struct cfi_writer *w, struct buf *body)
{
	size_t at = w->out.len;
	size_t head = w->wide ? 12 : 4;
	uint64_t len;

	while (!w->no_padding && (head + body->len) % 8)
		buf_add_char(body, 0);
	len = body->len;
	if (w->wide)
		buf_add(&w->out, "\xff\xff\xff\xff", 4);
	buf_add(&w->out, &len, w->wide ? 8 : 4);
	buf_add(&w->out, body->data, body->len);
	if (w->out.error)
		abort();
	return at;
}

size_t cfi_writer_cie(struct cfi_writer *w, const struct cfi_writer_cie *cie)
{
	cleanup_buf struct buf body = { 0 };
	const char *augmentation = cie->augmentation ? cie->augmentation : "zR";
	uint64_t id = w->debug_frame ? UINT64_MAX : 0;

	buf_add(&body, &id, w->debug_frame && w->wide ? 8 : 4);
	buf_add_char(&body, (char)(cie->version ? cie->version : 1));
	buf_add(&body, augmentation, strlen(augmentation) + 1);
	if (cie->version == 4)
		buf_add(&body, "\x08\x00", 2);
	buf_add(&body, "\x01\x78", 2); /* code 1, data -8 */
	buf_add_char(&body, (char)(cie->ra ? cie->ra : 16));
	if (*augmentation == 'z') {
		cleanup_buf struct buf data = { 0 };

		for (const char *letter = augmentation + 1; *letter; letter++) {
			if (*letter == 'R')
				buf_add_char(&data, (char)cie->encoding);
			else if (*letter == 'L')
				buf_add_char(&data, (char)DW_EH_PE_omit);
			else if (*letter == 'P')
				buf_add(&data, "\x03\x01\x02\x03\x04", 5); /* udata4 */
		}
		buf_add_varint(&body, data.len);
		buf_add(&body, data.data, data.len);
	}
	cfi_writer_hex(&body, cie->insns ? cie->insns : "0c 07 08 90 01");
	return add_entry(w, &body);
}

static void add_pointer(struct buf *body, uint8_t encoding, uint64_t value)
{
	unsigned format = encoding & 0x0f;

	if (format == DW_EH_PE_udata2 || format == DW_EH_PE_sdata2)
		buf_add(body, &value, 2);
	else if (format == DW_EH_PE_udata4 || format == DW_EH_PE_sdata4)
		buf_add(body, &value, 4);
	else if (format == DW_EH_PE_uleb128)
		buf_add_varint(body, value);
	else
		buf_add(body, &value, 8);
}

void cfi_writer_fde(struct cfi_writer *w, size_t cie, uint8_t encoding, uint64_t pc_ev,
		    uint64_t size_bytes, const char *insns)
{
	cleanup_buf struct buf body = { 0 };
	size_t body_at = w->out.len + (w->wide ? 12 : 4);
	uint64_t pointer = w->debug_frame ? cie : body_at - cie;

	buf_add(&body, &pointer, w->debug_frame && w->wide ? 8 : 4);
	if (encoding == DW_EH_PE_aligned) {
		while ((w->ev + body_at + body.len) % 8)
			buf_add_char(&body, 0);
	} else if ((encoding & 0x70) == DW_EH_PE_pcrel) {
		pc_ev -= w->ev + body_at + body.len;
	}
	add_pointer(&body, encoding, pc_ev);
	add_pointer(&body, encoding & 0x0f, size_bytes);
	if (!w->debug_frame)
		buf_add_varint(&body, 0);
	cfi_writer_hex(&body, insns);
	(void)add_entry(w, &body);
}
