// SPDX-License-Identifier: Apache-2.0
#include "symbolize/elf_file.h"

#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include "agent/base/hash.h"
#include "agent/base/io.h"
#include "agent/wire/module_key.h"
#include "symbolize/elf_debug.h"

#define NOTES_BYTES_MAX	  (64u << 10)
#define DEBUG_LINK_SECTION_MAX 4096u
#define PHDRS_MAX	  64u
#define SECTIONS_MAX	  65536u /* looked at; a debug file with a section per function has 10^4 */
#define CONTENT_BYTES_MAX (64ull << 20)
#define WHOLE_BYTES_MAX	  (128ull << 20)
#define READ_CHUNK_BYTES  (256u << 10)
#define NT_GO_BUILD_ID	  4 /* cmd/internal/buildid: name "Go", type 4 */
#define DYNSTR_BYTES_MAX  (256ull << 20)

/* ---- any Elf handle -------------------------------------------------------------------------- */

int elf_check(Elf *elf, uint16_t machine)
{
	GElf_Ehdr ehdr;

	if (elf_kind(elf) != ELF_K_ELF || gelf_getclass(elf) != ELFCLASS64 || !gelf_getehdr(elf, &ehdr))
		return -ENOEXEC;
	if (ehdr.e_ident[EI_DATA] != ELFDATA2LSB || ehdr.e_machine != machine ||
	    (ehdr.e_type != ET_EXEC && ehdr.e_type != ET_DYN))
		return -ENOEXEC;
	return 0;
}

int elf_raw_bytes(Elf *elf, uint64_t fo, uint64_t len, struct bytes *ret)
{
	Elf_Data *data;

	if (fo > INT64_MAX || len > INT64_MAX - fo)
		return -ENODATA;
	data = elf_getdata_rawchunk(elf, (int64_t)fo, len, ELF_T_BYTE);
	if (!data || (len && !data->d_buf) || data->d_size < len)
		return -ENODATA;
	*ret = bytes_of(data->d_buf, len);
	return 0;
}

/* ---- identity -------------------------------------------------------------------------------- */

/* Calls @found for every note of @data; stops when it returns true. ELF notes: three words, then
 * name and descriptor, each padded to 4 bytes (to @align in the gABI's 8-byte form, which only
 * property notes use). */
static bool notes_find(struct bytes notes, const char *name, uint32_t type, struct bytes *ret)
{
	size_t name_size = strlen(name) + 1;

	while (!notes.failed && bytes_left(&notes) >= 12) {
		uint32_t name_len = bytes_u32(&notes);
		uint32_t desc_len = bytes_u32(&notes);
		uint32_t note_type = bytes_u32(&notes);
		const char *note_name = bytes_take(&notes, ((uint64_t)name_len + 3) & ~3ull);
		const void *desc = bytes_take(&notes, desc_len);
		uint64_t pad = -(uint64_t)desc_len & 3;

		if (!note_name || !desc)
			return false;
		/* Go counts the padding of its name, too: "Go\0\0" with a length of 4. */
		if (note_type == type && name_len >= name_size &&
		    name_len <= ((name_size + 3) & ~3ull) && !memcmp(note_name, name, name_size)) {
			*ret = bytes_of(desc, desc_len);
			return true;
		}
		if (bytes_left(&notes) < pad)
			return false;
		(void)!bytes_take(&notes, pad);
	}
	return false;
}

/* Looks in PT_NOTE segments first (what is mapped), then in note sections: separate debug files
 * keep their notes only there. */
static bool elf_note_find(Elf *elf, const char *name, uint32_t type, struct bytes *ret)
{
	size_t phnum = 0;
	unsigned seen = 0;

	if (elf_getphdrnum(elf, &phnum) < 0)
		phnum = 0;
	for (size_t i = 0; i < phnum && i < PHDRS_MAX; i++) {
		GElf_Phdr phdr;
		struct bytes notes;

		if (!gelf_getphdr(elf, (int)i, &phdr) || phdr.p_type != PT_NOTE ||
		    phdr.p_filesz > NOTES_BYTES_MAX)
			continue;
		if (!elf_raw_bytes(elf, phdr.p_offset, phdr.p_filesz, &notes) &&
		    notes_find(notes, name, type, ret))
			return true;
	}
	for (Elf_Scn *scn = NULL; (scn = elf_nextscn(elf, scn)) && seen < SECTIONS_MAX; seen++) {
		GElf_Shdr shdr;
		struct bytes notes;

		if (!gelf_getshdr(scn, &shdr) || shdr.sh_type != SHT_NOTE ||
		    shdr.sh_size > NOTES_BYTES_MAX)
			continue;
		if (!elf_raw_bytes(elf, shdr.sh_offset, shdr.sh_size, &notes) &&
		    notes_find(notes, name, type, ret))
			return true;
	}
	return false;
}

static void file_load_build_id(struct elf_file *file)
{
	struct bytes id;

	if (!elf_note_find(file->elf, "GNU", NT_GNU_BUILD_ID, &id))
		return;
	if (!bytes_left(&id) || bytes_left(&id) > ELF_BUILD_ID_MAX)
		return;
	file->identity.build_id_len = (uint8_t)bytes_left(&id);
	memcpy(file->identity.build_id, id.at, file->identity.build_id_len);
}

/* .gnu_debuglink: file name, NUL, padding to 4 bytes, CRC-32 (GDB manual, "Separate Debug Files").
 */
static void file_load_debug_link(struct elf_file *file)
{
	cleanup_elf_section struct elf_section section = { 0 };
	struct bytes link;
	const char *name;
	size_t len;

	if (elf_section_load_max(file->elf, ".gnu_debuglink", DEBUG_LINK_SECTION_MAX, &section) < 0)
		return;
	link = bytes_of(section.bytes, section.len);
	name = bytes_cstr(&link);
	if (!name)
		return;
	len = strlen(name);
	if (!len || len >= sizeof(file->identity.debug_link) || strchr(name, '/') || !strcmp(name, "..") ||
	    !strcmp(name, "."))
		return;
	(void)!bytes_take(&link, 3 - len % 4);
	file->identity.debug_crc = bytes_u32(&link);
	if (!link.failed)
		memcpy(file->identity.debug_link, name, len + 1);
}

int elf_alt_link_load(Elf *elf, struct elf_alt_link *ret)
{
	cleanup_elf_section struct elf_section section = { 0 };
	struct elf_alt_link link = { 0 };
	struct bytes at;
	const char *name;

	if (elf_section_load_max(elf, ".gnu_debugaltlink", DEBUG_LINK_SECTION_MAX, &section) < 0)
		return -ENOENT;
	at = bytes_of(section.bytes, section.len);
	name = bytes_cstr(&at);
	if (!name || !name[0] || strlen(name) >= sizeof(link.name) || !bytes_left(&at) ||
	    bytes_left(&at) > sizeof(link.build_id))
		return -ENOENT;
	memcpy(link.name, name, strlen(name) + 1);
	link.build_id_len = (uint8_t)bytes_left(&at);
	memcpy(link.build_id, at.at, link.build_id_len);
	*ret = link;
	return 0;
}

static int file_open_take(int fd_take, Elf_Cmd how, struct elf_file **ret)
{
	cleanup_free struct elf_file *file = NULL;
	GElf_Ehdr ehdr;
	struct stat st;

	if (fstat(fd_take, &st) < 0)
		return -errno;
	if (!S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(Elf64_Ehdr))
		return -ENOEXEC;
	if ((uint64_t)st.st_size > ELF_FILE_BYTES_MAX)
		return -E2BIG;
	file = calloc(1, sizeof(*file));
	if (!file)
		return -ENOMEM;
	if (elf_version(EV_CURRENT) == EV_NONE)
		return -ENOEXEC;
	file->elf = elf_begin(fd_take, how, NULL);
	if (!file->elf)
		return -ENOEXEC;
	if (elf_kind(file->elf) != ELF_K_ELF || gelf_getclass(file->elf) != ELFCLASS64 ||
	    !gelf_getehdr(file->elf, &ehdr) || ehdr.e_ident[EI_DATA] != ELFDATA2LSB) {
		elf_end(file->elf);
		return -ENOEXEC;
	}
	file->fd = fd_take;
	file->size_bytes = (uint64_t)st.st_size;
	file_load_build_id(file);
	file_load_debug_link(file);
	*ret = take_ptr(file);
	return 0;
}

int elf_file_open_take(int fd_take, struct elf_file **ret)
{
	return file_open_take(fd_take, ELF_C_READ, ret);
}

int elf_file_map_take(int fd_take, struct elf_file **ret)
{
	return file_open_take(fd_take, ELF_C_READ_MMAP, ret);
}

void elf_file_close(struct elf_file *file)
{
	if (!file)
		return;
	elf_end(file->elf);
	(void)close(file->fd);
	free(file);
}

/* Hash of [@fo, @fo + @len) of the file, folded into *@key. A short read ends it: the file changed.
 */
static int hash_range(const struct elf_file *file, uint64_t fo, uint64_t len, uint8_t *chunk,
		      uint64_t *key)
{
	while (len) {
		size_t want = len < READ_CHUNK_BYTES ? (size_t)len : READ_CHUNK_BYTES;
		int rc = io_pread_all(file->fd, chunk, want, fo);

		if (rc < 0)
			return rc;
		*key = hash_bytes(chunk, want, *key);
		fo += want;
		len -= want;
	}
	return 0;
}

static int file_content_key(const struct elf_file *file, uint64_t *ret)
{
	cleanup_free uint8_t *chunk = malloc(READ_CHUNK_BYTES);
	struct elf_segments segments;
	uint64_t key = hash_mix64(file->size_bytes);
	uint64_t left = CONTENT_BYTES_MAX;
	int rc;

	if (!chunk)
		return -ENOMEM;
	rc = hash_range(file, 0, sizeof(Elf64_Ehdr), chunk, &key);
	if (rc < 0)
		return rc;
	rc = elf_segments_load(file->elf, &segments);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < segments.count; i++) {
		const struct elf_segment *s = &segments.items[i];
		uint64_t file_bytes = s->end_ev - s->start_ev;
		uint64_t len = file_bytes < left ? file_bytes : left;

		key = hash_combine(hash_combine(key, s->start_ev), file_bytes);
		if (!s->executable)
			continue;
		rc = hash_range(file, s->offset_fo, len, chunk, &key);
		if (rc < 0)
			return rc;
		left -= len;
	}
	*ret = key ? key : 1;
	return 0;
}

/* A digest of the places of the file's segments: rows and names are looked up by file offset. */
static int file_layout(const struct elf_file *file, uint64_t *ret)
{
	uint64_t layout = 0;
	size_t phnum = 0;

	if (elf_getphdrnum(file->elf, &phnum) < 0)
		return -ENOEXEC;
	for (size_t i = 0; i < phnum && i < PHDRS_MAX; i++) {
		GElf_Phdr phdr;
		uint64_t parts[4];

		if (!gelf_getphdr(file->elf, (int)i, &phdr) || phdr.p_type != PT_LOAD)
			continue;
		parts[0] = phdr.p_offset;
		parts[1] = phdr.p_vaddr;
		parts[2] = phdr.p_filesz;
		parts[3] = phdr.p_flags;
		layout = hash_bytes(parts, sizeof(parts), layout);
	}
	*ret = layout;
	return 0;
}

/* The layout, and all bytes where nothing else tells files apart. */
static int file_digest(const struct elf_file *file, uint64_t voucher, uint64_t *ret)
{
	cleanup_free uint8_t *chunk = NULL;
	int rc = file_layout(file, ret);

	if (rc < 0 || voucher != MODULE_VOUCHER_CONTENT)
		return rc;
	chunk = malloc(READ_CHUNK_BYTES);
	if (!chunk)
		return -ENOMEM;
	*ret = hash_combine(*ret, file->size_bytes);
	return hash_range(file, 0, file->size_bytes < WHOLE_BYTES_MAX ? file->size_bytes : WHOLE_BYTES_MAX,
			  chunk, ret);
}

static int file_id_key(const struct elf_file *file, uint64_t *ret)
{
	struct bytes go_id;

	if (file->identity.build_id_len) {
		*ret = module_key_of_build_id(file->identity.build_id, file->identity.build_id_len);
		return 0;
	}
	/* cmd/go writes an empty id with -trimpath -buildid=: only a full one identifies a build. */
	if (elf_note_find(file->elf, "Go", NT_GO_BUILD_ID, &go_id) &&
	    bytes_left(&go_id) >= MODULE_KEY_GO_ID_MIN) {
		*ret = module_key_of_go_id(go_id.at, bytes_left(&go_id));
		return 0;
	}
	return file_content_key(file, ret);
}

int elf_file_key(const struct elf_file *file, uint64_t voucher, uint64_t *ret)
{
	uint64_t id_key, digest;
	int rc = file_id_key(file, &id_key);

	rc = rc < 0 ? rc : file_digest(file, voucher, &digest);
	if (rc == 0)
		*ret = module_key_vouched(id_key, digest, voucher);
	return rc;
}

static int file_crc(const struct elf_file *file, uint32_t *ret)
{
	cleanup_free uint8_t *chunk = malloc(READ_CHUNK_BYTES);
	uLong crc = crc32(0, NULL, 0);

	if (!chunk)
		return -ENOMEM;
	for (uint64_t at = 0; at < file->size_bytes;) {
		uint64_t left = file->size_bytes - at;
		size_t want = left < READ_CHUNK_BYTES ? (size_t)left : READ_CHUNK_BYTES;
		int rc = io_pread_all(file->fd, chunk, want, at);

		if (rc < 0)
			return rc;
		crc = crc32(crc, chunk, (uInt)want);
		at += want;
	}
	*ret = (uint32_t)crc;
	return 0;
}

bool elf_file_debug_matches(const struct elf_identity *identity, const struct elf_file *debug)
{
	uint32_t crc = 0;

	if (identity->build_id_len && debug->identity.build_id_len)
		return identity->build_id_len == debug->identity.build_id_len &&
		       !memcmp(identity->build_id, debug->identity.build_id, identity->build_id_len);
	return identity->debug_link[0] && !file_crc(debug, &crc) && crc == identity->debug_crc;
}

int elf_file_skeleton(const struct elf_file *file, void **ret, size_t *ret_len)
{
	cleanup_free uint8_t *skeleton = malloc(sizeof(Elf64_Ehdr) + PHDRS_MAX * sizeof(Elf64_Phdr));
	Elf64_Phdr *phdrs;
	Elf64_Ehdr *ehdr;
	size_t phnum = 0;
	uint16_t kept = 0;

	if (!skeleton)
		return -ENOMEM;
	ehdr = (void *)skeleton;
	phdrs = (void *)(skeleton + sizeof(*ehdr));
	if (!gelf_getehdr(file->elf, ehdr) || elf_getphdrnum(file->elf, &phnum) < 0)
		return -ENOEXEC;
	for (size_t i = 0; i < phnum && kept < PHDRS_MAX; i++)
		if (gelf_getphdr(file->elf, (int)i, &phdrs[kept]) && phdrs[kept].p_type == PT_LOAD)
			kept++;
	ehdr->e_phoff = sizeof(*ehdr);
	ehdr->e_phnum = kept;
	ehdr->e_shoff = 0;
	ehdr->e_shnum = 0;
	ehdr->e_shstrndx = SHN_UNDEF;
	*ret_len = sizeof(*ehdr) + kept * sizeof(*phdrs);
	*ret = take_ptr(skeleton);
	return 0;
}

static bool file_has_section(const struct elf_file *file, const char *name)
{
	uint64_t ev;
	uint64_t fo;
	uint64_t len;

	return elf_section_place(file->elf, name, &ev, &fo, &len);
}

bool elf_file_has_symtab(const struct elf_file *file)
{
	return file_has_section(file, ".symtab");
}

bool elf_file_has_dwarf(const struct elf_file *file)
{
	return file_has_section(file, ".debug_info");
}

/* The string table's address and size and the soname's offset, from PT_DYNAMIC. */
static bool dynamic_soname_at(Elf *elf, uint64_t *ret_ev, uint64_t *ret_left)
{
	uint64_t strtab_ev = 0;
	uint64_t strtab_bytes = 0;
	uint64_t name = UINT64_MAX;
	struct bytes dynamic = { 0 };
	size_t phnum = 0;

	if (elf_getphdrnum(elf, &phnum) < 0)
		return false;
	for (size_t i = 0; i < phnum && i < PHDRS_MAX; i++) {
		GElf_Phdr phdr;

		if (gelf_getphdr(elf, (int)i, &phdr) && phdr.p_type == PT_DYNAMIC &&
		    phdr.p_filesz <= NOTES_BYTES_MAX &&
		    !elf_raw_bytes(elf, phdr.p_offset, phdr.p_filesz, &dynamic))
			break;
	}
	while (bytes_left(&dynamic) >= sizeof(Elf64_Dyn)) {
		uint64_t tag = bytes_u64(&dynamic);
		uint64_t value = bytes_u64(&dynamic);

		if (tag == DT_NULL)
			break;
		if (tag == DT_STRTAB)
			strtab_ev = value;
		else if (tag == DT_STRSZ)
			strtab_bytes = value;
		else if (tag == DT_SONAME)
			name = value;
	}
	if (name >= strtab_bytes || strtab_bytes > DYNSTR_BYTES_MAX)
		return false;
	*ret_ev = strtab_ev + name;
	*ret_left = strtab_bytes - name;
	return true;
}

void elf_file_soname(const struct elf_file *file, char *ret, size_t size)
{
	struct elf_segments segments;
	struct bytes text;
	uint64_t ev;
	uint64_t left;
	uint64_t fo;
	uint64_t in_segment;
	size_t len;

	ret[0] = '\0';
	if (!dynamic_soname_at(file->elf, &ev, &left) ||
	    elf_segments_load(file->elf, &segments) < 0 ||
	    !elf_segments_to_fo(&segments, ev, &fo, &in_segment))
		return;
	if (left > in_segment)
		left = in_segment;
	if (left > size - 1)
		left = size - 1;
	if (elf_raw_bytes(file->elf, fo, left, &text) < 0)
		return;
	len = strnlen((const char *)text.at, left);
	memcpy(ret, text.at, len);
	ret[len] = '\0';
}
