// SPDX-License-Identifier: Apache-2.0
#include "symbolize/elf_runtime.h"

#include <gelf.h>
#include <string.h>

#include "agent/base/text.h"
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
	if (!strcmp(name, "php_execute_script"))
		return FEED_PROC_PHP;
	if (!strcmp(name, "ruby_version"))
		return FEED_PROC_RUBY;
	if (!strcmp(name, "Perl_runops_standard"))
		return FEED_PROC_PERL;
	return 0;
}

static int look_at_export(void *ctx, const char *name, const GElf_Sym *sym)
{
	uint32_t *runtime = ctx;

	if (sym->st_shndx != SHN_UNDEF)
		*runtime = runtime_of_export(name);
	return *runtime != 0;
}

static uint32_t runtime_by_exports(Elf *elf)
{
	uint32_t runtime = 0;

	(void)!elf_each_symbol(elf, SHT_DYNSYM, DYNSYM_MAX, look_at_export, &runtime);
	return runtime;
}

uint32_t elf_runtime_of(const struct elf_file *file)
{
	char soname[64];

	if (has_section(file->elf, ".gopclntab") || has_section(file->elf, ".go.buildinfo"))
		return FEED_PROC_GO;
	elf_file_soname(file, soname, sizeof(soname));
	if (!strcmp(soname, "libjvm.so"))
		return FEED_PROC_JVM;
	if (text_begins(soname, "libpython"))
		return FEED_PROC_PYTHON;
	if (text_begins(soname, "libnode.so"))
		return FEED_PROC_NODE;
	if (text_begins(soname, "libruby"))
		return FEED_PROC_RUBY;
	/* Other libraries are no runtime; a program may have one linked in. */
	return soname[0] ? 0 : runtime_by_exports(file->elf);
}
