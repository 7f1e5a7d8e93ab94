// SPDX-License-Identifier: Apache-2.0
/* .eh_frame and .debug_frame: entries found, nothing executed.
 *
 * Sources: DWARF 5 section 6.4 (CIE, FDE); Linux Standard Base Core 5.0, 10.6 (.eh_frame,
 * augmentation strings, pointer encodings); binutils and libgcc where these are silent. The two
 * sections differ: in .eh_frame the CIE's id is 0, an FDE's CIE pointer counts back from itself and
 * is 4 bytes even in the 64-bit form, and addresses are encoded as the augmentation says. */
#include "symbolize/cfi_internal.h"

#include <dwarf.h>
#include <errno.h>
#include <gelf.h>
#include <string.h>

#define INDIRECT_MAX 4096

struct frame_section {
	struct cfi_set *set;
	const uint8_t *start;
	size_t first_cie; /* of this section in set->cies */
	size_t last_cie;  /* found by the former look-up */
	enum cfi_source source;
	bool stop_at_zero; /* a zero length ends it; with a known size it only separates */
};

/* One entry's header. */
struct frame_entry {
	struct bytes body; /* after the id */
	uint32_t offset;
	uint64_t cie_offset;
	bool is_cie;
};

void cfi_set_deinit(struct cfi_set *set)
{
	cfi_cie_vec_deinit(&set->cies);
	cfi_entry_vec_deinit(&set->entries);
	cfi_step_vec_deinit(&set->steps);
	elf_section_deinit(&set->eh_frame);
	elf_section_deinit(&set->debug_frame);
}

int cfi_set_add(struct cfi_set *set, uint64_t start_ev, uint64_t size_bytes, struct cfi_entry entry)
{
	uint64_t fo;
	uint64_t end_fo;
	uint64_t end_ev;

	if (__builtin_add_overflow(start_ev, size_bytes, &end_ev))
		end_ev = UINT64_MAX;
	/* Functions that the linker discarded keep an entry at 0 (ld) or near -1 (lld). */
	if (!start_ev || !elf_segments_range(&set->segments, start_ev, end_ev, &fo, &end_fo) ||
	    fo >= CFI_FO_END - 1 || end_fo <= fo)
		return 0;
	if (end_fo > CFI_FO_END - 1)
		end_fo = CFI_FO_END - 1;
	if (set->entries.count >= CFI_ENTRIES_MAX)
		return -E2BIG;
	entry.start_fo = (uint32_t)fo;
	entry.end_fo = (uint32_t)end_fo;
	return cfi_entry_vec_push(&set->entries, entry);
}

/* ---- encoded pointers ------------------------------------------------------------------------ */

static uint64_t read_format(struct bytes *b, uint8_t encoding, uint8_t address_bytes)
{
	switch (encoding & 0x0f) {
	case DW_EH_PE_absptr:
		return address_bytes == 4 ? bytes_u32(b) : bytes_u64(b);
	case DW_EH_PE_uleb128:
		return bytes_varint(b);
	case DW_EH_PE_udata2:
		return bytes_u16(b);
	case DW_EH_PE_udata4:
		return bytes_u32(b);
	case DW_EH_PE_udata8:
	case DW_EH_PE_sdata8:
	case DW_EH_PE_signed:
		return bytes_u64(b);
	case DW_EH_PE_sleb128:
		return (uint64_t)bytes_sleb128(b);
	case DW_EH_PE_sdata2:
		return (uint64_t)(int16_t)bytes_u16(b);
	case DW_EH_PE_sdata4:
		return (uint64_t)(int32_t)bytes_u32(b);
	default:
		b->failed = true;
		return 0;
	}
}

/* The pointer that @ev points at, if the file has it (relocations are not applied). */
static bool read_indirect(struct cfi_set *set, uint64_t *ev)
{
	struct bytes word;
	uint64_t fo;
	uint64_t left;

	if (!set->indirect_left || !elf_segments_to_fo(&set->segments, *ev, &fo, &left) || left < 8)
		return false;
	set->indirect_left--;
	if (elf_raw_bytes(set->elf, fo, 8, &word) < 0)
		return false;
	*ev = bytes_u64(&word);
	return true;
}

uint64_t cfi_read_pointer(struct cfi_set *set, struct bytes *b, uint8_t encoding,
			  uint8_t address_bytes)
{
	uint64_t here_ev = set->frame_ev + ((uintptr_t)b->at - (uintptr_t)set->frame_start);
	uint64_t base = 0;
	uint64_t value;

	if (encoding == DW_EH_PE_omit)
		return 0;
	if (encoding == DW_EH_PE_aligned) {
		(void)!bytes_take(b, -here_ev & 7);
		return bytes_u64(b);
	}
	switch (encoding & 0x70) {
	case DW_EH_PE_absptr:
	case DW_EH_PE_funcrel: /* only in tables of exception handlers */
		break;
	case DW_EH_PE_pcrel:
		base = here_ev;
		break;
	case DW_EH_PE_textrel:
		base = set->text_ev;
		break;
	case DW_EH_PE_datarel:
		base = set->data_ev;
		break;
	default:
		b->failed = true;
		return 0;
	}
	value = read_format(b, encoding, address_bytes);
	if (b->failed || !value || (!base && (encoding & 0x70)))
		return 0;
	value += base;
	if (encoding & DW_EH_PE_indirect && !read_indirect(set, &value))
		return 0;
	return value;
}

/* ---- CIE ------------------------------------------------------------------------------------- */

/* The letters after 'z' describe the augmentation data; an unknown one hides the rest, whose length
 * is known all the same. Without 'z' nothing can be skipped. */
static bool cie_read_augmentation(const char *text, struct bytes *b,
				  struct cfi_cie *cie)
{
	struct bytes data = *b;

	if (!strcmp(text, "eh")) /* g++ 2: a pointer that nobody needs */
		return bytes_take(b, 8) != NULL;
	if (*text == 'z') {
		uint64_t len = bytes_varint(b);
		const void *at = bytes_take(b, len);

		if (!at)
			return false;
		data = bytes_of(at, len);
		cie->has_augmentation_data = true;
		text++;
	}
	for (; *text; text++) {
		if (*text == 'R')
			cie->fde_encoding = bytes_u8(&data);
		else if (*text == 'S')
			cie->signal = true;
		else if (*text == 'L')
			(void)bytes_u8(&data);
		else if (*text == 'P')
			(void)read_format(&data, bytes_u8(&data) & 0x0f, cie->address_bytes);
		else if (*text != 'B') /* AArch64: return addresses signed with the other key */
			break;
	}
	if (!cie->has_augmentation_data) {
		if (*text)
			return false;
		*b = data;
	}
	return !data.failed;
}

/* @b is after the id. False: not even the addresses of its FDEs can be read. */
static bool cie_read_head(struct bytes *b, struct cfi_cie *cie)
{
	uint8_t version = bytes_u8(b);
	const char *augmentation = bytes_cstr(b);

	if (!augmentation || (version != 1 && version != 3 && version != 4))
		return false;
	cie->address_bytes = 8;
	cie->fde_encoding = DW_EH_PE_absptr;
	if (version == 4) {
		cie->address_bytes = bytes_u8(b);
		if (bytes_u8(b) || (cie->address_bytes != 8 && cie->address_bytes != 4))
			return false;
	}
	cie->code_align = bytes_varint(b);
	cie->data_align = bytes_sleb128(b);
	cie->ra_reg = version == 1 ? bytes_u8(b) : (uint32_t)bytes_varint(b);
	return !b->failed && cie_read_augmentation(augmentation, b, cie);
}

static int cie_add(struct frame_section *fs, struct frame_entry *e)
{
	const struct cfi_arch *arch = fs->set->arch;
	struct cfi_cie cie = { .offset = e->offset };

	if (fs->set->cies.count >= CFI_CIES_MAX)
		return -E2BIG;
	cie.readable = cie_read_head(&e->body, &cie);
	cie.usable = cie.readable && cie.ra_reg == arch->ra &&
		     cfi_execute_initial(arch, &cie, e->body, &cie.initial);
	return cfi_cie_vec_push(&fs->set->cies, cie);
}

/* Entries share few CIEs and follow theirs: the last one first, else a binary search. */
static const struct cfi_cie *cie_find(struct frame_section *fs, uint64_t offset)
{
	const struct cfi_cie *cies = fs->set->cies.data;
	size_t low = fs->first_cie;
	size_t high = fs->set->cies.count;

	if (fs->last_cie < high && fs->last_cie >= low && cies[fs->last_cie].offset == offset)
		return &cies[fs->last_cie];
	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (cies[mid].offset < offset)
			low = mid + 1;
		else
			high = mid;
	}
	if (low == fs->set->cies.count || cies[low].offset != offset)
		return NULL;
	fs->last_cie = low;
	return &cies[low];
}

/* ---- FDE and the walk ------------------------------------------------------------------------ */

static int fde_add(struct frame_section *fs, struct frame_entry *e)
{
	const struct cfi_cie *cie = cie_find(fs, e->cie_offset);
	struct bytes *b = &e->body;
	uint64_t start_ev;
	uint64_t size_bytes;

	if (!cie || !cie->readable)
		return 0;
	start_ev = cfi_read_pointer(fs->set, b, cie->fde_encoding, cie->address_bytes);
	size_bytes = read_format(b, cie->fde_encoding & 0x0f, cie->address_bytes);
	if (cie->has_augmentation_data)
		(void)!bytes_take(b, bytes_varint(b));
	if (b->failed)
		return 0;
	return cfi_set_add(fs->set, start_ev, size_bytes,
			   (struct cfi_entry){ .source = fs->source,
					       .cie = (uint32_t)(cie - fs->set->cies.data),
					       .len = (uint32_t)bytes_left(b),
					       .insns = b->at });
}

/* Splits the next entry off. 1 = got one, 0 = a separator, -ENODATA = end or damage. */
static int frame_entry_next(const struct frame_section *fs, struct bytes *b,
			    struct frame_entry *ret)
{
	bool eh = fs->source == CFI_SOURCE_EH_FRAME;
	bool wide = false;
	uint64_t len;
	uint64_t id;
	const uint8_t *id_at;
	const void *body;

	ret->offset = (uint32_t)(b->at - fs->start);
	len = bytes_u32(b);
	if (len == 0xffffffff) {
		wide = true;
		len = bytes_u64(b);
	}
	if (b->failed)
		return -ENODATA;
	if (!len)
		return fs->stop_at_zero ? -ENODATA : 0;
	body = bytes_take(b, len);
	if (!body)
		return -ENODATA;
	ret->body = bytes_of(body, len);
	id_at = ret->body.at;
	id = wide && !eh ? bytes_u64(&ret->body) : bytes_u32(&ret->body);
	if (ret->body.failed)
		return 0;
	if (eh) {
		ret->is_cie = !id;
		ret->cie_offset = (uint64_t)(id_at - fs->start) - id;
	} else {
		ret->is_cie = id == (wide ? UINT64_MAX : UINT32_MAX);
		ret->cie_offset = id;
	}
	return 1;
}

static int frame_section_parse(struct frame_section *fs, struct bytes b)
{
	struct frame_entry e;

	fs->start = b.at;
	fs->first_cie = fs->set->cies.count;
	fs->last_cie = fs->first_cie;
	while (bytes_left(&b)) {
		int rc = frame_entry_next(fs, &b, &e);

		if (rc < 0)
			break;
		if (!rc)
			continue;
		rc = e.is_cie ? cie_add(fs, &e) : fde_add(fs, &e);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* The bases of relative pointers: .text and the global offset table. */
static void set_load_bases(struct cfi_set *set)
{
	uint64_t fo;
	uint64_t len;

	set->indirect_left = INDIRECT_MAX;
	(void)elf_section_place(set->elf, ".text", &set->text_ev, &fo, &len);
	if (!elf_section_place(set->elf, ".got.plt", &set->data_ev, &fo, &len))
		(void)elf_section_place(set->elf, ".got", &set->data_ev, &fo, &len);
}

/* Files without section headers: PT_GNU_EH_FRAME is .eh_frame_hdr, whose first pointer is .eh_frame
 * (LSB 10.6.2); its end is a zero length or the segment's end. */
static int parse_eh_frame_by_header(struct cfi_set *set)
{
	struct frame_section fs = { .set = set,
				    .source = CFI_SOURCE_EH_FRAME,
				    .stop_at_zero = true };
	struct bytes b;
	GElf_Phdr phdr = { .p_type = PT_NULL };
	size_t phnum = 0;
	uint64_t ev;
	uint64_t fo;
	uint64_t left;
	uint8_t encoding;

	if (elf_getphdrnum(set->elf, &phnum) < 0)
		return 0;
	for (size_t i = 0; i < phnum && phdr.p_type != PT_GNU_EH_FRAME; i++)
		if (!gelf_getphdr(set->elf, (int)i, &phdr))
			return 0;
	if (phdr.p_type != PT_GNU_EH_FRAME || elf_raw_bytes(set->elf, phdr.p_offset, 12, &b) < 0)
		return 0;
	set->frame_start = b.at;
	set->frame_ev = phdr.p_vaddr;
	if (bytes_u8(&b) != 1)
		return 0;
	encoding = bytes_u8(&b);
	(void)bytes_u16(&b);
	ev = cfi_read_pointer(set, &b, encoding, 8);
	if (!ev || !elf_segments_to_fo(&set->segments, ev, &fo, &left))
		return 0;
	if (left > CFI_SECTION_BYTES_MAX)
		return -E2BIG;
	if (elf_raw_bytes(set->elf, fo, left, &b) < 0)
		return 0;
	set->frame_start = b.at;
	set->frame_ev = ev;
	return frame_section_parse(&fs, b);
}

int cfi_parse_eh_frame(struct cfi_set *set)
{
	struct frame_section fs = { .set = set, .source = CFI_SOURCE_EH_FRAME };
	int rc;

	set_load_bases(set);
	rc = elf_section_load_max(set->elf, ".eh_frame", CFI_SECTION_BYTES_MAX, &set->eh_frame);
	if (rc == -E2BIG || rc == -ENOMEM)
		return rc;
	if (rc < 0)
		return parse_eh_frame_by_header(set);
	set->frame_start = set->eh_frame.bytes;
	set->frame_ev = set->eh_frame.ev;
	return frame_section_parse(&fs, bytes_of(set->eh_frame.bytes, set->eh_frame.len));
}

int cfi_parse_debug_frame(struct cfi_set *set)
{
	struct frame_section fs = { .set = set, .source = CFI_SOURCE_DEBUG_FRAME };
	int rc = elf_section_load_max(set->elf, ".debug_frame", CFI_SECTION_BYTES_MAX, &set->debug_frame);

	if (rc == -ENOMEM)
		return rc;
	if (rc < 0) /* only a supplement: damaged or too large is as if it were stripped */
		return 0;
	return frame_section_parse(&fs, bytes_of(set->debug_frame.bytes, set->debug_frame.len));
}
