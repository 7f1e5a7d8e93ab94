// SPDX-License-Identifier: Apache-2.0
/* Finds pclntab and moduledata of a Go program in its file. */
#include <elf.h>
#include <endian.h>
#include <errno.h>
#include <gelf.h>
#include <string.h>

#include "symbolize/gopclntab.h"

#define RELOCATIONS_MAX (16u << 20)
#define HEADER_BYTES	72u /* 8 and eight words */

/* Offsets inside moduledata (Go 1.16 to 1.26, 64-bit): they have not moved but for gofunc. */
#define MODULE_NAMES	   8u
#define MODULE_PCLN	   104u
#define MODULE_FTAB_LEN	   136u
#define MODULE_TEXT	   176u
#define MODULE_ETEXT	   184u
#define MODULE_GOFUNC_1_18 304u
#define MODULE_GOFUNC_1_20 320u

static uint64_t read_u64(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, 8);
	return le64toh(value);
}

static uint32_t read_u32(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, 4);
	return le32toh(value);
}

/* ---- contents -------------------------------------------------------------------------------- */

const uint8_t *go_image_at(const struct go_image *image, uint64_t ev, uint64_t len)
{
	for (size_t i = 0; i < image->segments->count; i++) {
		const struct elf_segment *at = &image->segments->items[i];

		if (ev >= at->start_ev && ev < at->end_ev && len <= at->end_ev - ev)
			return image->contents[i] ? image->contents[i] + (ev - at->start_ev) : NULL;
	}
	return NULL;
}

static const uint8_t *relocation_at(const struct go_image *image, uint64_t ev)
{
	size_t low = 0, high = image->relocation_count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (image->relocations[middle].key < ev)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == image->relocation_count || image->relocations[low].key != ev)
		return NULL;
	return image->rela + (size_t)image->relocations[low].index * sizeof(Elf64_Rela);
}

uint64_t go_image_word(const struct go_image *image, uint64_t ev)
{
	const uint8_t *rela = relocation_at(image, ev), *at;

	if (rela)
		return read_u64(rela + offsetof(Elf64_Rela, r_addend));
	at = go_image_at(image, ev, 8);
	return at ? read_u64(at) : 0;
}

/* Address and size of the RELA table from the dynamic segment. */
static bool find_rela(Elf *elf, const struct go_image *image, uint64_t *ret_ev, uint64_t *ret_len)
{
	uint64_t rela_ev = 0, rela_len = 0;
	size_t count;

	if (elf_getphdrnum(elf, &count) != 0)
		return false;
	for (size_t i = 0; i < count; i++) {
		const uint8_t *at;
		GElf_Phdr phdr;

		if (!gelf_getphdr(elf, (int)i, &phdr) || phdr.p_type != PT_DYNAMIC)
			continue;
		at = go_image_at(image, phdr.p_vaddr, phdr.p_filesz);
		for (uint64_t k = 0; at && k + 16 <= phdr.p_filesz; k += 16) {
			uint64_t tag = read_u64(at + k);

			if (tag == DT_NULL)
				break;
			if (tag == DT_RELA)
				rela_ev = read_u64(at + k + 8);
			if (tag == DT_RELASZ)
				rela_len = read_u64(at + k + 8);
		}
	}
	*ret_ev = rela_ev;
	*ret_len = rela_len;
	return rela_ev && rela_len;
}

static int load_relocations(Elf *elf, struct go_image *image)
{
	GElf_Ehdr ehdr;
	uint64_t ev, len, relative;
	size_t count, kept = 0;

	if (!gelf_getehdr(elf, &ehdr) || !find_rela(elf, image, &ev, &len))
		return 0;
	relative = ehdr.e_machine == EM_AARCH64 ? R_AARCH64_RELATIVE : R_X86_64_RELATIVE;
	image->rela = go_image_at(image, ev, len);
	count = len / sizeof(Elf64_Rela);
	if (!image->rela || count > RELOCATIONS_MAX)
		return 0;
	image->relocations = malloc((count + 1) * sizeof(*image->relocations));
	if (!image->relocations)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		const uint8_t *at = image->rela + i * sizeof(Elf64_Rela);

		if (read_u32(at + offsetof(Elf64_Rela, r_info)) == relative)
			image->relocations[kept++] =
				(struct index_sort_item){ read_u64(at), (uint32_t)i };
	}
	image->relocation_count = kept;
	return index_sort(image->relocations, kept);
}

static int load_contents(Elf *elf, struct go_image *image)
{
	uint64_t left = GO_IMAGE_BYTES_MAX;

	for (size_t i = 0; i < image->segments->count; i++) {
		const struct elf_segment *at = &image->segments->items[i];
		uint64_t len = at->end_ev - at->start_ev;
		Elf_Data *data;

		if (len > left || at->offset_fo > INT64_MAX)
			return -E2BIG;
		left -= len;
		/* Points into the file where that is mapped; else a copy that libelf keeps. */
		data = elf_getdata_rawchunk(elf, (int64_t)at->offset_fo, len, ELF_T_BYTE);
		if (data && data->d_size == len)
			image->contents[i] = data->d_buf;
	}
	return 0;
}

int go_image_load(Elf *elf, const struct elf_segments *segments, struct go_image *ret)
{
	int rc;

	*ret = (struct go_image){ .segments = segments };
	if (gelf_getclass(elf) != ELFCLASS64)
		return -ENOEXEC;
	rc = load_contents(elf, ret);
	return rc < 0 ? rc : load_relocations(elf, ret);
}

void go_image_deinit(struct go_image *image)
{
	free(image->relocations);
	*image = (struct go_image){ 0 };
}

/* ---- pclntab --------------------------------------------------------------------------------- */

static bool layout_of(uint32_t magic, enum gopclntab_layout *ret)
{
	switch (magic) {
	case 0xfffffffa:
		*ret = GOPCLNTAB_1_16;
		return true;
	case 0xfffffff0:
		*ret = GOPCLNTAB_1_18;
		return true;
	case 0xfffffff1:
		*ret = GOPCLNTAB_1_20;
		return true;
	default:
		return false;
	}
}

/* Reads a header at @at; @len bytes follow inside its segment. */
static bool parse_header(const uint8_t *at, uint64_t len, uint64_t ev, struct go_table *ret)
{
	struct go_table table = { .bytes = at, .len = len, .ev = ev };
	const uint8_t *word = at + 8;

	if (len < HEADER_BYTES || !layout_of(read_u32(at), &table.layout) || at[4] || at[5] ||
	    (at[6] != 1 && at[6] != 2 && at[6] != 4) || at[7] != 8)
		return false;
	if (len > GOPCLNTAB_BYTES_MAX)
		table.len = GOPCLNTAB_BYTES_MAX;
	table.quantum = at[6];
	table.function_count = read_u64(word);
	word += 16; /* and the number of files */
	if (table.layout != GOPCLNTAB_1_16) {
		table.text_ev = read_u64(word);
		word += 8;
	}
	table.names = read_u64(word);
	table.units = read_u64(word + 8);
	table.files = read_u64(word + 16);
	table.pctab = read_u64(word + 24);
	table.functions = read_u64(word + 32);
	if (!table.function_count || table.function_count > GOPCLNTAB_FUNCTIONS_MAX ||
	    table.names < 64 || table.names > 256 || table.units < table.names ||
	    table.files < table.units || table.pctab < table.files ||
	    table.functions < table.pctab || table.functions >= table.len)
		return false;
	*ret = table;
	return true;
}

/* Bytes from @ev to the end of its segment in the file. */
static uint64_t bytes_left_at(const struct go_image *image, uint64_t ev)
{
	for (size_t i = 0; i < image->segments->count; i++) {
		const struct elf_segment *at = &image->segments->items[i];

		if (ev >= at->start_ev && ev < at->end_ev)
			return at->end_ev - ev;
	}
	return 0;
}

static bool table_at(const struct go_image *image, uint64_t ev, struct go_table *ret)
{
	uint64_t len = bytes_left_at(image, ev);
	const uint8_t *at = len ? go_image_at(image, ev, len) : NULL;

	return at && parse_header(at, len, ev, ret);
}

/* ---- moduledata ------------------------------------------------------------------------------ */

static bool is_code(const struct go_image *image, uint64_t ev)
{
	return elf_segments_code(image->segments, ev) != NULL;
}

static bool take_module(const struct go_image *image, uint64_t ev, struct go_table *table)
{
	uint64_t text = go_image_word(image, ev + MODULE_TEXT);
	uint64_t etext = go_image_word(image, ev + MODULE_ETEXT);

	if (go_image_word(image, ev) != table->ev ||
	    go_image_word(image, ev + MODULE_NAMES) != table->ev + table->names ||
	    go_image_word(image, ev + MODULE_PCLN) != table->ev + table->functions ||
	    go_image_word(image, ev + MODULE_FTAB_LEN) != table->function_count + 1 ||
	    !is_code(image, text) || etext <= text)
		return false;
	table->text_ev = text;
	if (table->layout == GOPCLNTAB_1_18)
		table->gofunc_ev = go_image_word(image, ev + MODULE_GOFUNC_1_18);
	else if (table->layout == GOPCLNTAB_1_20)
		table->gofunc_ev = go_image_word(image, ev + MODULE_GOFUNC_1_20);
	return true;
}

/* Looks for a pointer to the table: in the relocations, then in data as the file has it. */
static bool find_module(const struct go_image *image, struct go_table *table)
{
	for (size_t i = 0; i < image->relocation_count; i++)
		if (go_image_word(image, image->relocations[i].key) == table->ev &&
		    take_module(image, image->relocations[i].key, table))
			return true;
	for (size_t i = 0; i < image->segments->count; i++) {
		const struct elf_segment *segment = &image->segments->items[i];
		uint64_t ev = (segment->start_ev + 7) & ~7ull;
		uint64_t len = segment->end_ev - segment->start_ev;
		const uint8_t *at = go_image_at(image, segment->start_ev, len);

		if (!at || segment->executable)
			continue;
		for (at += ev - segment->start_ev; ev + 8 <= segment->end_ev; ev += 8, at += 8)
			if (read_u64(at) == table->ev && take_module(image, ev, table))
				return true;
	}
	return false;
}

/* Next section after *@scn with one of @names, which NULL ends. */
static bool next_section(Elf *elf, const char *const *names, Elf_Scn **scn, GElf_Shdr *ret)
{
	size_t strings;

	if (elf_getshdrstrndx(elf, &strings) != 0)
		return false;
	while ((*scn = elf_nextscn(elf, *scn))) {
		const char *name;

		if (!gelf_getshdr(*scn, ret))
			continue;
		name = elf_strptr(elf, strings, ret->sh_name);
		for (size_t i = 0; name && names[i]; i++)
			if (!strcmp(name, names[i]))
				return true;
	}
	return false;
}

bool go_image_is_possible(Elf *elf)
{
	static const char *const names[] = { ".go.buildinfo", ".gopclntab",
					     ".data.rel.ro.gopclntab", NULL };
	Elf_Scn *scn = NULL;
	GElf_Shdr shdr;
	size_t count;

	if (elf_getshdrnum(elf, &count) != 0 || !count)
		return true;
	return next_section(elf, names, &scn, &shdr);
}

static bool find_by_section(Elf *elf, const struct go_image *image, struct go_table *ret)
{
	static const char *const names[] = { ".gopclntab", ".data.rel.ro.gopclntab", NULL };
	Elf_Scn *scn = NULL;
	GElf_Shdr shdr;

	while (next_section(elf, names, &scn, &shdr))
		if (table_at(image, shdr.sh_addr, ret))
			return true;
	return false;
}

/* A header without a section is believed only if moduledata points to it: programs that read Go
 * binaries contain the magic numbers too. */
static bool find_by_scan(const struct go_image *image, struct go_table *ret)
{
	for (size_t i = 0; i < image->segments->count; i++) {
		const struct elf_segment *segment = &image->segments->items[i];
		uint64_t ev = (segment->start_ev + 7) & ~7ull;
		uint64_t len = segment->end_ev - segment->start_ev;
		const uint8_t *at = go_image_at(image, segment->start_ev, len);

		if (!at)
			continue;
		for (at += ev - segment->start_ev; ev + 8 <= segment->end_ev; ev += 8, at += 8) {
			enum gopclntab_layout layout;

			if (layout_of(read_u32(at), &layout) && !at[4] && !at[5] &&
			    table_at(image, ev, ret) && find_module(image, ret))
				return true;
		}
	}
	return false;
}

/* Cheap sign of a Go program, so that others are not searched word by word. */
static bool looks_like_go(const struct go_image *image)
{
	static const char magic[] = "\xff Go buildinf:";

	for (size_t i = 0; i < image->segments->count; i++) {
		const struct elf_segment *segment = &image->segments->items[i];
		uint64_t len = segment->end_ev - segment->start_ev;
		const uint8_t *at = go_image_at(image, segment->start_ev, len);

		if (at && !segment->executable && memmem(at, len, magic, sizeof(magic) - 1))
			return true;
	}
	return false;
}

int go_image_find_table(Elf *elf, const struct go_image *image, struct go_table *ret)
{
	struct go_table table;

	if (find_by_section(elf, image, &table)) {
		/* Without moduledata the header's own text start serves, if it is one (until 1.25). */
		if (!find_module(image, &table) && table.layout != GOPCLNTAB_1_16 &&
		    !is_code(image, table.text_ev))
			return -ENOENT;
	} else if (!looks_like_go(image) || !find_by_scan(image, &table)) {
		return -ENOENT;
	}
	*ret = table;
	return 0;
}
