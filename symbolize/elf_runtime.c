// SPDX-License-Identifier: Apache-2.0
#include "symbolize/elf_runtime.h"

#include <gelf.h>
#include <string.h>

#include "agent/wire/feed.h"
#include "symbolize/elf_debug.h"

#define DYNSYM_MAX (1u << 20) /* looked at; chrome exports 10^4 */

static bool has_section(Elf *elf, const char *name)
{
	uint64_t ev;
	uint64_t fo;
	uint64_t len;

	return elf_section_place(elf, name, &ev, &fo, &len);
}

/* Symbols that only the runtime itself defines, for extensions and embedders to use. */
static uint32_t runtime_of_export(const char *name)
{
	if (!strcmp(name, "_PyRuntime") || !strcmp(name, "_PyEval_EvalFrameDefault"))
		return FEED_PROC_PYTHON; /* CPython 3.7 and later; 3.6 */
	if (!strcmp(name, "napi_create_function"))
		return FEED_PROC_NODE;
	if (!strcmp(name, "JNI_GetCreatedJavaVMs"))
		return FEED_PROC_JVM;
	return 0;
}

static uint32_t runtime_by_exports(Elf *elf)
{
	Elf_Scn *scn = NULL;
	GElf_Shdr shdr;
	Elf_Data *data;

	while ((scn = elf_nextscn(elf, scn)))
		if (gelf_getshdr(scn, &shdr) && shdr.sh_type == SHT_DYNSYM)
			break;
	if (!scn || shdr.sh_entsize != sizeof(Elf64_Sym) || shdr.sh_size / sizeof(Elf64_Sym) > DYNSYM_MAX)
		return 0;
	data = elf_getdata(scn, NULL);
	if (!data)
		return 0;
	for (size_t i = 1; i < data->d_size / sizeof(Elf64_Sym); i++) {
		GElf_Sym sym;
		const char *name;
		uint32_t runtime;

		if (!gelf_getsym(data, (int)i, &sym) || sym.st_shndx == SHN_UNDEF)
			continue;
		name = elf_strptr(elf, shdr.sh_link, sym.st_name);
		if (!name || (name[0] != '_' && name[0] != 'n' && name[0] != 'J'))
			continue;
		runtime = runtime_of_export(name);
		if (runtime)
			return runtime;
	}
	return 0;
}

uint32_t elf_runtime_of(const struct elf_file *file)
{
	char soname[64];

	if (has_section(file->elf, ".gopclntab") || has_section(file->elf, ".go.buildinfo"))
		return FEED_PROC_GO;
	elf_file_soname(file, soname, sizeof(soname));
	if (!strcmp(soname, "libjvm.so"))
		return FEED_PROC_JVM;
	if (!strncmp(soname, "libpython", 9))
		return FEED_PROC_PYTHON;
	if (!strncmp(soname, "libnode.so", 10))
		return FEED_PROC_NODE;
	/* Other libraries are no runtime; a program may have one linked in. */
	return soname[0] ? 0 : runtime_by_exports(file->elf);
}
