// SPDX-License-Identifier: Apache-2.0
#include "symbolize/elf_debug.h"

#include <elfutils/libdwelf.h>
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#include "agent/base/io.h"
#include "agent/base/text.h"
#include "symbolize/elf_file.h"

#ifndef ELFCOMPRESS_ZSTD
#define ELFCOMPRESS_ZSTD 2 /* gABI since 2022; Debian 12's elf.h has it, older ones do not */
#endif

/* ---- segments -------------------------------------------------------------------------------- */

int elf_segments_load(Elf *elf, struct elf_segments *ret)
{
	struct elf_segments segments = { 0 };
	size_t count;

	if (elf_kind(elf) != ELF_K_ELF || elf_getphdrnum(elf, &count) != 0)
		return -ENOEXEC;
	for (size_t i = 0; i < count && segments.count < ELF_DEBUG_SEGMENTS_MAX; i++) {
		GElf_Phdr phdr;
		struct elf_segment *at = &segments.items[segments.count];
		uint64_t end_fo;

		if (!gelf_getphdr(elf, (int)i, &phdr) || phdr.p_type != PT_LOAD || !phdr.p_filesz)
			continue;
		at->start_ev = phdr.p_vaddr;
		at->offset_fo = phdr.p_offset;
		at->executable = phdr.p_flags & PF_X;
		if (__builtin_add_overflow(phdr.p_vaddr, phdr.p_filesz, &at->end_ev) ||
		    __builtin_add_overflow(phdr.p_offset, phdr.p_filesz, &end_fo))
			continue;
		segments.count++;
	}
	if (!segments.count)
		return -ENOEXEC;
	*ret = segments;
	return 0;
}

const struct elf_segment *elf_segments_code(const struct elf_segments *segments, uint64_t ev)
{
	for (size_t i = 0; i < segments->count; i++) {
		const struct elf_segment *at = &segments->items[i];

		if (at->executable && ev >= at->start_ev && ev < at->end_ev)
			return at;
	}
	return NULL;
}

bool elf_segments_range(const struct elf_segments *segments, uint64_t ev, uint64_t end_ev,
			uint64_t *ret_fo, uint64_t *ret_end_fo)
{
	const struct elf_segment *at = elf_segments_code(segments, ev);

	if (!at || end_ev <= ev)
		return false;
	if (end_ev > at->end_ev)
		end_ev = at->end_ev;
	*ret_fo = at->offset_fo + (ev - at->start_ev);
	*ret_end_fo = *ret_fo + (end_ev - ev);
	return true;
}

bool elf_segments_to_fo(const struct elf_segments *segments, uint64_t ev, uint64_t *ret_fo,
			uint64_t *ret_left)
{
	for (size_t i = 0; i < segments->count; i++) {
		const struct elf_segment *at = &segments->items[i];

		if (ev < at->start_ev || ev >= at->end_ev)
			continue;
		*ret_fo = at->offset_fo + (ev - at->start_ev);
		*ret_left = at->end_ev - ev;
		return true;
	}
	return false;
}

int elf_segments_read(Elf *elf, const struct elf_segments *segments, uint64_t ev, void *ret,
		      size_t len)
{
	uint64_t fo, left;
	struct bytes bytes;
	const void *at;

	if (!elf_segments_to_fo(segments, ev, &fo, &left) || left < len ||
	    elf_raw_bytes(elf, fo, len, &bytes) < 0)
		return -ENODATA;
	at = bytes_take(&bytes, len);
	if (!at)
		return -ENODATA;
	memcpy(ret, at, len);
	return 0;
}

/* ---- symbols --------------------------------------------------------------------------------- */

int elf_each_symbol(Elf *elf, unsigned type, size_t max, elf_symbol_fn *fn, void *ctx)
{
	const size_t entry = gelf_fsize(elf, ELF_T_SYM, 1, EV_CURRENT);
	Elf_Scn *scn = NULL;
	GElf_Shdr shdr;
	Elf_Data *data;
	int rc = 0;

	while ((scn = elf_nextscn(elf, scn)))
		if (gelf_getshdr(scn, &shdr) && shdr.sh_type == type)
			break;
	if (!scn)
		return -ENOENT;
	data = elf_getdata(scn, NULL);
	if (!data || !entry)
		return -ENOEXEC;
	if (data->d_size / entry > max)
		return -E2BIG;
	for (size_t i = 1; rc == 0 && i < data->d_size / entry; i++) {
		const char *name;
		GElf_Sym sym;

		if (!gelf_getsym(data, (int)i, &sym))
			continue;
		name = elf_strptr(elf, shdr.sh_link, sym.st_name);
		if (name && name[0])
			rc = fn(ctx, name, &sym);
	}
	return rc;
}

/* ---- sections -------------------------------------------------------------------------------- */

void elf_section_deinit(struct elf_section *section)
{
	free(section->owned);
	*section = (struct elf_section){ 0 };
}

static int inflate_zlib(void *to, size_t to_len, const uint8_t *from, size_t from_len)
{
	z_stream stream = { .next_in = (Bytef *)(uintptr_t)from };
	uint8_t *at = to;
	int rc = inflateInit(&stream);

	/* avail_in and avail_out are 32-bit: large sections go in pieces. */
	while (rc == Z_OK && (to_len || stream.avail_out)) {
		if (!stream.avail_in) {
			stream.avail_in = from_len > (1u << 30) ? 1u << 30 : (uInt)from_len;
			from_len -= stream.avail_in;
		}
		if (!stream.avail_out) {
			stream.next_out = at;
			stream.avail_out = to_len > (1u << 30) ? 1u << 30 : (uInt)to_len;
			at += stream.avail_out;
			to_len -= stream.avail_out;
		}
		rc = inflate(&stream, Z_NO_FLUSH);
	}
	inflateEnd(&stream);
	return !to_len && !stream.avail_out && (rc == Z_OK || rc == Z_STREAM_END) ? 0 : -ENOEXEC;
}

static int decompress(unsigned type, uint64_t size, uint64_t max, const uint8_t *from,
		      size_t from_len, struct elf_section *ret)
{
	cleanup_free void *plain = NULL;
	int rc;

	if (size > max || (size > ELF_DEBUG_RATIO_FREE && size / ELF_DEBUG_RATIO_MAX > from_len))
		return -E2BIG;
	plain = malloc(size ? size : 1);
	if (!plain)
		return -ENOMEM;
	if (type == ELFCOMPRESS_ZLIB)
		rc = inflate_zlib(plain, size, from, from_len);
	else if (type == ELFCOMPRESS_ZSTD)
		rc = ZSTD_decompress(plain, size, from, from_len) == size ? 0 : -ENOEXEC;
	else
		rc = -ENOEXEC;
	if (rc < 0)
		return rc;
	ret->bytes = plain;
	ret->len = size;
	ret->owned = take_ptr(plain);
	return 0;
}

static int load_raw(Elf_Scn *scn, struct elf_section *ret)
{
	Elf_Data *data = elf_rawdata(scn, NULL);

	if (!data || (data->d_size && !data->d_buf))
		return -ENOEXEC;
	*ret = (struct elf_section){ .bytes = data->d_buf, .len = data->d_size };
	return 0;
}

static int load_compressed(Elf *elf, Elf_Scn *scn, uint64_t max, struct elf_section *ret)
{
	size_t head = gelf_getclass(elf) == ELFCLASS64 ? sizeof(Elf64_Chdr) : sizeof(Elf32_Chdr);
	struct elf_section raw;
	GElf_Chdr chdr;
	int rc = load_raw(scn, &raw);

	if (rc < 0)
		return rc;
	if (raw.len < head || !gelf_getchdr(scn, &chdr))
		return -ENOEXEC;
	return decompress(chdr.ch_type, chdr.ch_size, max, raw.bytes + head, raw.len - head, ret);
}

/* Source: "ZLIB", u64 big-endian size, zlib stream (binutils before gABI compression). */
static int load_zdebug(Elf_Scn *scn, uint64_t max, struct elf_section *ret)
{
	struct elf_section raw;
	uint64_t size;
	int rc = load_raw(scn, &raw);

	if (rc < 0)
		return rc;
	if (raw.len < 12 || memcmp(raw.bytes, "ZLIB", 4))
		return -ENOEXEC;
	memcpy(&size, raw.bytes + 4, 8);
	return decompress(ELFCOMPRESS_ZLIB, be64toh(size), max, raw.bytes + 12, raw.len - 12, ret);
}

/* ".debug_x" also matches ".zdebug_x". */
static bool is_zdebug(const char *have, const char *name)
{
	return text_begins(have, ".zdebug_") && text_begins(name, ".debug_") &&
	       !strcmp(have + 8, name + 7);
}

/* The first section called @name that has contents, also in its .zdebug_ form. */
static Elf_Scn *section_find(Elf *elf, const char *name, GElf_Shdr *shdr, bool *zdebug)
{
	Elf_Scn *scn = NULL;
	size_t names;

	if (elf_getshdrstrndx(elf, &names) != 0)
		return NULL;
	while ((scn = elf_nextscn(elf, scn))) {
		const char *have;

		if (!gelf_getshdr(scn, shdr) || shdr->sh_type == SHT_NOBITS || !shdr->sh_size)
			continue;
		have = elf_strptr(elf, names, shdr->sh_name);
		*zdebug = have && is_zdebug(have, name);
		if (have && (*zdebug || !strcmp(have, name)))
			return scn;
	}
	return NULL;
}

int elf_section_load_max(Elf *elf, const char *name, uint64_t max, struct elf_section *ret)
{
	GElf_Shdr shdr;
	bool zdebug;
	Elf_Scn *scn = section_find(elf, name, &shdr, &zdebug);
	int rc;

	if (!scn)
		return -ENOENT;
	if (shdr.sh_size > max)
		return -E2BIG;
	if (zdebug)
		rc = load_zdebug(scn, max, ret);
	else if (shdr.sh_flags & SHF_COMPRESSED)
		rc = load_compressed(elf, scn, max, ret);
	else
		rc = load_raw(scn, ret);
	if (rc < 0)
		return rc;
	ret->ev = shdr.sh_addr;
	ret->fo = shdr.sh_offset;
	return 0;
}

bool elf_section_place(Elf *elf, const char *name, uint64_t *ret_ev, uint64_t *ret_fo,
		       uint64_t *ret_len)
{
	GElf_Shdr shdr;
	bool zdebug;

	if (!section_find(elf, name, &shdr, &zdebug))
		return false;
	*ret_ev = shdr.sh_addr;
	*ret_fo = shdr.sh_offset;
	*ret_len = shdr.sh_size;
	return true;
}

int elf_section_load(Elf *elf, const char *name, struct elf_section *ret)
{
	return elf_section_load_max(elf, name, ELF_DEBUG_SECTION_MAX, ret);
}

/* ---- .gnu_debugdata -------------------------------------------------------------------------- */

int elf_debug_open_minidebug(Elf *elf, Elf **ret, int *ret_fd)
{
	cleanup_elf_section struct elf_section packed = { 0 };
	cleanup_close int fd = -1;
	Elf *inner;
	int rc = elf_section_load(elf, ".gnu_debugdata", &packed);

	if (rc < 0)
		return rc;
	if (packed.len > ELF_DEBUG_MINIDEBUG_MAX)
		return -E2BIG;
	fd = io_memfd("minidebug", 0);
	if (fd < 0)
		return fd;
	rc = io_write_all(fd, packed.bytes, packed.len);
	if (rc < 0)
		return rc;
	/* libdw is the one library of ours that unpacks XZ, and this its one door to it. */
	inner = dwelf_elf_begin(fd);
	if (!inner)
		return -ENOEXEC;
	if (elf_kind(inner) != ELF_K_ELF) {
		elf_end(inner);
		return -ENOEXEC;
	}
	*ret = inner;
	*ret_fd = take_fd(&fd);
	return 0;
}
