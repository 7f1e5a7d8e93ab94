// SPDX-License-Identifier: Apache-2.0
#include "symbolize/runtime_cpython.h"

#include <errno.h>
#include <gelf.h>
#include <string.h>

#include "agent/base/log.h"
#include "agent/base/text.h"
#include "agent/runtimes/cpython_layout.h"
#include "symbolize/elf_debug.h"

#define SYMBOLS_MAX	  (4u << 20)
#define RELOCATIONS_MAX	  (1u << 20)
#define DATA_BYTES_MAX	  (64u << 20) /* of one section that is searched */
#define RUNTIME_BYTES_MAX (16u << 20) /* 3.14: 0.3 MiB */
#define TLS_BYTES_MAX	  (1u << 20)
#define NAME_BYTES	  64u

struct symbol {
	uint64_t ev;
	uint64_t bytes;
	bool is_known;
};

/* The addresses that the symbol tables give. */
struct found {
	struct symbol runtime;			    /* _PyRuntime */
	struct symbol version;			    /* Py_Version, 3.11 and newer */
	struct symbol loop;			    /* _PyEval_EvalFrameDefault */
	struct symbol code_type;		    /* PyCode_Type */
	struct symbol tstate;			    /* _Py_tss_tstate: offset in the TLS segment */
	struct symbol parts[SCRIPT_RANGES_MAX - 1]; /* of the loop, moved elsewhere */
	unsigned part_count;
	struct symbol
		opcodes[2]; /* span of the functions of opcodes (tail calls), and their .cold */
	uint64_t opcode_bytes[2]; /* what the functions in the span have in all */
	bool is_debug_build;
	bool has_symtab;
};

/* ---- symbols ------------------------------------------------------------------------------- */

static void keep(struct symbol *symbol, const GElf_Sym *sym)
{
	if (!symbol->is_known)
		*symbol = (struct symbol){ sym->st_value, sym->st_size, true };
}

/* The tail-call interpreter of 3.14 has a function for each opcode, which lie side by side. */
static void widen(struct found *found, unsigned which, const GElf_Sym *sym)
{
	struct symbol *span = &found->opcodes[which];
	uint64_t end = sym->st_value + sym->st_size;

	if (!sym->st_size || end < sym->st_value)
		return;
	found->opcode_bytes[which] += sym->st_size;
	if (!span->is_known) {
		keep(span, sym);
		return;
	}
	if (end < span->ev + span->bytes)
		end = span->ev + span->bytes;
	if (sym->st_value < span->ev)
		span->ev = sym->st_value;
	span->bytes = end - span->ev;
}

static void look_at_part(struct found *found, const GElf_Sym *sym)
{
	for (unsigned i = 0; i < found->part_count; i++)
		if (found->parts[i].ev == sym->st_value)
			return;
	if (sym->st_size && found->part_count < ARRAY_SIZE(found->parts))
		keep(&found->parts[found->part_count++], sym);
}

static void look_at(struct found *found, const char *name, const GElf_Sym *sym)
{
	if (!strcmp(name, "_PyRuntime"))
		keep(&found->runtime, sym);
	else if (!strcmp(name, "Py_Version"))
		keep(&found->version, sym);
	else if (!strcmp(name, "PyCode_Type"))
		keep(&found->code_type, sym);
	else if (!strcmp(name, "_Py_tss_tstate") && GELF_ST_TYPE(sym->st_info) == STT_TLS)
		keep(&found->tstate, sym);
	else if (!strcmp(name, "_PyEval_EvalFrameDefault"))
		keep(&found->loop, sym);
	else if (text_begins(name, "_PyEval_EvalFrameDefault."))
		look_at_part(found, sym);
	else if (text_begins(name, "_TAIL_CALL_"))
		widen(found, strstr(name, ".cold") ? 1 : 0, sym);
	else if (!strcmp(name, "_Py_NegativeRefcount"))
		found->is_debug_build = true;
}

static int look_at_symbol(void *ctx, const char *name, const GElf_Sym *sym)
{
	if (sym->st_shndx != SHN_UNDEF && (name[0] == '_' || name[0] == 'P'))
		look_at(ctx, name, sym);
	return 0;
}

static int look_at_table(Elf *elf, unsigned type, struct found *found)
{
	return elf_each_symbol(elf, type, SYMBOLS_MAX, look_at_symbol, found);
}

static void look_at_symbols(Elf *elf, struct found *found)
{
	Elf *mini = NULL;
	int fd;

	found->has_symtab = look_at_table(elf, SHT_SYMTAB, found) == 0;
	(void)!look_at_table(elf, SHT_DYNSYM, found);
	if (found->has_symtab || elf_debug_open_minidebug(elf, &mini, &fd) < 0)
		return;
	found->has_symtab = look_at_table(mini, SHT_SYMTAB, found) == 0;
	(void)elf_end(mini);
	(void)close(fd);
}

/* ---- the version ---------------------------------------------------------------------------- */

/* The number after "python3." at @text; 0 = none. */
static unsigned minor_after(const char *text, size_t len)
{
	unsigned minor = 0;

	for (size_t i = 0; i < 2 && i < len && text[i] >= '0' && text[i] <= '9'; i++)
		minor = minor * 10 + (unsigned)(text[i] - '0');
	return minor;
}

/* A program before 3.11 says its version only in the paths that are compiled in ("lib/python3.9").
 * All of them must agree. */
static unsigned minor_by_paths(Elf *elf)
{
	static const char needle[] = "lib/python3.";
	cleanup_elf_section struct elf_section section = { 0 };
	unsigned minor = 0;

	if (elf_section_load_max(elf, ".rodata", DATA_BYTES_MAX, &section) < 0)
		return 0;
	for (const uint8_t *at = section.bytes, *end = at + section.len; at < end;) {
		const uint8_t *found = memmem(at, (size_t)(end - at), needle, sizeof(needle) - 1);
		unsigned other;

		if (!found)
			break;
		at = found + sizeof(needle) - 1;
		other = minor_after((const char *)at, (size_t)(end - at));
		if (other && minor && other != minor)
			return 0;
		minor = other ? other : minor;
	}
	return minor;
}

static unsigned minor_of(const struct elf_file *file, const struct elf_segments *segments,
			 const struct found *found)
{
	static const char start[] = "libpython3.";
	char soname[NAME_BYTES];
	uint32_t version;

	if (found->version.is_known && elf_segments_read(file->elf, segments, found->version.ev,
							 &version, sizeof(version)) == 0)
		return version >> 24 == 3 ? version >> 16 & 0xff : 0;
	elf_file_soname(file, soname, sizeof(soname));
	if (text_begins(soname, start))
		return minor_after(soname + sizeof(start) - 1,
				   strlen(soname) - (sizeof(start) - 1));
	return minor_by_paths(file->elf);
}

static int load_layout(const struct elf_file *file, const struct elf_segments *segments,
		       const struct found *found, struct script_python *ret)
{
	uint8_t head[CPYTHON_DEBUG_OFFSETS_BYTES];
	int rc = elf_segments_read(file->elf, segments, found->runtime.ev, head, sizeof(head));

	if (rc == 0)
		rc = cpython_layout_of_runtime(head, sizeof(head), ret);
	/* Older ones have other data here, or none in the file. */
	if (rc != -ENODATA)
		return rc;
	if (found->is_debug_build)
		return -EOPNOTSUPP;
	return cpython_layout_of_version(minor_of(file, segments, found), ret);
}

/* Finds the state in a file without symbols: the section that CPython gives it from 3.10 on. */
static bool find_runtime(Elf *elf, struct found *found)
{
	uint64_t fo;

	if (!found->runtime.is_known)
		found->runtime.is_known = elf_section_place(elf, ".PyRuntime", &found->runtime.ev,
							    &fo, &found->runtime.bytes);
	return found->runtime.is_known;
}

/* ---- thread-local storage ------------------------------------------------------------------- */

/* In a program the compiler knows the variable's distance from the thread pointer: the segment ends
 * there, or (AArch64) begins behind two words that lie there. ELF Handling For Thread-Local
 * Storage, variants II and I. */
static int32_t tls_distance(Elf *elf, const struct symbol *tstate)
{
	GElf_Ehdr ehdr;
	size_t count;

	if (!tstate->is_known || !gelf_getehdr(elf, &ehdr) || elf_getphdrnum(elf, &count) != 0)
		return 0;
	for (size_t i = 0; i < count; i++) {
		GElf_Phdr phdr;
		uint64_t align;

		if (!gelf_getphdr(elf, (int)i, &phdr) || phdr.p_type != PT_TLS)
			continue;
		align = phdr.p_align > 1 ? phdr.p_align : 1;
		if (phdr.p_memsz > TLS_BYTES_MAX || align > TLS_BYTES_MAX ||
		    (align & (align - 1)) || tstate->ev >= phdr.p_memsz)
			return 0;
		if (ehdr.e_machine == EM_AARCH64)
			return (int32_t)(tstate->ev +
					 ((2 * sizeof(uint64_t) + align - 1) & ~(align - 1)));
		return (int32_t)(tstate->ev - ((phdr.p_memsz + align - 1) & ~(align - 1)));
	}
	return 0;
}

static bool is_program(Elf *elf)
{
	size_t count;
	GElf_Ehdr ehdr;

	if (gelf_getehdr(elf, &ehdr) && ehdr.e_type == ET_EXEC)
		return true;
	if (elf_getphdrnum(elf, &count) != 0)
		return false;
	for (size_t i = 0; i < count; i++) {
		GElf_Phdr phdr;

		if (gelf_getphdr(elf, (int)i, &phdr) && phdr.p_type == PT_INTERP)
			return true;
	}
	return false;
}

/* The slot of the GOT that holds the number of the library's TLS module. The linker writes the
 * variable's offset behind it; without the symbol any variable's slot will do. AArch64's compilers
 * use TLS descriptors instead, which do not name the module. The result is 0 then, and the pthread
 * key serves alone. */
static uint64_t tls_slot(Elf *elf, const struct elf_segments *segments, const struct symbol *tstate)
{
	uint64_t any = 0, left = RELOCATIONS_MAX;
	Elf_Scn *scn = NULL;
	GElf_Shdr shdr;

	while ((scn = elf_nextscn(elf, scn))) {
		Elf_Data *data;
		GElf_Rela rela;

		if (!gelf_getshdr(scn, &shdr) || shdr.sh_type != SHT_RELA ||
		    shdr.sh_entsize != sizeof(Elf64_Rela))
			continue;
		data = elf_getdata(scn, NULL);
		for (int i = 0; data && left && gelf_getrela(data, i, &rela); i++, left--) {
			uint64_t variable;

			if (GELF_R_TYPE(rela.r_info) != R_X86_64_DTPMOD64 ||
			    GELF_R_SYM(rela.r_info))
				continue;
			any = any ? any : rela.r_offset;
			if (tstate->is_known &&
			    elf_segments_read(elf, segments, rela.r_offset + 8, &variable, 8) ==
				    0 &&
			    variable == tstate->ev)
				return rela.r_offset;
		}
	}
	return any;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static void add_range(struct script_runtime *runtime, const struct elf_segments *segments,
		      const struct symbol *symbol)
{
	for (unsigned i = 0; i < SCRIPT_RANGES_MAX; i++) {
		struct script_range *range = &runtime->ranges[i];

		if (range->end)
			continue;
		(void)elf_segments_range(segments, symbol->ev, symbol->ev + symbol->bytes,
					 &range->start, &range->end);
		return;
	}
}

static void load_ranges(Elf *elf, const struct elf_segments *segments, const struct found *found,
			struct script_runtime *ret)
{
	if (!found->loop.is_known || !found->loop.bytes)
		return;
	add_range(ret, segments, &found->loop);
	/* A span that is mostly other code is none. */
	for (unsigned i = 0; i < ARRAY_SIZE(found->opcodes); i++)
		if (found->opcodes[i].is_known &&
		    found->opcodes[i].bytes / 2 <= found->opcode_bytes[i])
			add_range(ret, segments, &found->opcodes[i]);
	for (unsigned i = 0; i < found->part_count; i++)
		add_range(ret, segments, &found->parts[i]);
	if (!found->has_symtab && ret->ranges[0].end)
		runtime_cpython_parts(elf, ret->ranges);
}

/* Data counts as if the whole file were displaced as its code is. */
static uint64_t as_code(const struct elf_segment *code, uint64_t ev)
{
	return ev ? ev - code->start_ev + code->offset_fo : 0;
}

int runtime_cpython_load(const struct elf_file *file, struct script_runtime *ret)
{
	struct script_runtime runtime = { .kind = SCRIPT_CPYTHON };
	const struct elf_segment *code = NULL;
	struct elf_segments segments;
	struct found found = { 0 };
	int rc = elf_segments_load(file->elf, &segments);

	if (rc < 0)
		return rc;
	look_at_symbols(file->elf, &found);
	if (!find_runtime(file->elf, &found))
		return -ENOENT;
	rc = load_layout(file, &segments, &found, &runtime.python);
	if (rc < 0)
		log_debug("the offsets of this Python are not known: %s", strerror(-rc));
	if (found.loop.is_known)
		code = elf_segments_code(&segments, found.loop.ev);
	for (size_t i = 0; !code && i < segments.count; i++)
		code = segments.items[i].executable ? &segments.items[i] : NULL;
	if (!code)
		return -ENOEXEC;
	load_ranges(file->elf, &segments, &found, &runtime);
	runtime.python.runtime = as_code(code, found.runtime.ev);
	if (found.runtime.bytes <= RUNTIME_BYTES_MAX)
		runtime.python.runtime_bytes = (uint32_t)found.runtime.bytes;
	runtime.python.code_type = as_code(code, found.code_type.ev);
	if (is_program(file->elf))
		runtime.python.tls_at = tls_distance(file->elf, &found.tstate);
	else
		runtime.python.tls_got =
			as_code(code, tls_slot(file->elf, &segments, &found.tstate));
	*ret = runtime;
	return 0;
}
