// SPDX-License-Identifier: Apache-2.0
/* Input is a whole file. Property: what is read of it is the same twice, texts end, and the
 * skeleton is a file whose segments are the original's. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/base/io.h"
#include "agent/wire/module_key.h"
#include "symbolize/elf_debug.h"
#include "symbolize/elf_file.h"
#include "symbolize/elf_runtime.h"
#include "symbolize/runtime_cpython.h"
#include "symbolize/runtime_v8.h"

#define INPUT_MAX (256u << 10)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_skeleton(const struct elf_file *file)
{
	struct elf_segments original;
	struct elf_segments copied;
	size_t len;
	void *skeleton;
	Elf *elf;

	if (elf_file_skeleton(file, &skeleton, &len) < 0)
		return;
	elf = elf_memory(skeleton, len);
	if (!elf_segments_load(file->elf, &original)) {
		if (!elf || elf_segments_load(elf, &copied) < 0 || original.count < copied.count ||
		    memcmp(original.items, copied.items, copied.count * sizeof(copied.items[0])))
			abort();
	}
	if (elf)
		elf_end(elf);
	free(skeleton);
}

static void check_cpython(const struct elf_file *file)
{
	struct script_runtime runtime;

	if (runtime_cpython_load(file, &runtime) < 0)
		return;
	if (runtime.kind != SCRIPT_CPYTHON || runtime.python.cookie_words > SCRIPT_COOKIE_WORDS)
		abort();
	for (size_t i = 0; i < SCRIPT_RANGES_MAX; i++)
		if (runtime.ranges[i].end < runtime.ranges[i].start)
			abort();
}

static void check_v8(const struct elf_file *file)
{
	struct script_runtime runtime;

	if (runtime_v8_load(file, &runtime) < 0)
		return;
	if (runtime.kind != SCRIPT_V8 || runtime.v8.refused > SCRIPT_V8_COMPRESSED ||
	    (runtime.v8.refused && runtime.v8.type_shared) ||
	    (runtime.v8.bytecodes && !runtime.v8.bytecode_sizes) || runtime.v8.bytecodes > 256 ||
	    runtime.ranges[0].end < runtime.ranges[0].start)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup(elf_file) struct elf_file *file = NULL;
	char soname[16];
	uint64_t key = 0;
	uint64_t again = 0;
	int fd;

	if (!size || size > INPUT_MAX)
		return 0;
	fd = io_memfd("fuzz", 0);
	if (fd < 0)
		return 0;
	if (io_write_all(fd, data, size) < 0 || elf_file_open_take(fd, &file) < 0) {
		(void)close(fd);
		return 0;
	}
	if (!elf_file_key(file, MODULE_VOUCHER_ROOT, &key) &&
	    (elf_file_key(file, MODULE_VOUCHER_ROOT, &again) || key != again || !key ||
	     elf_file_key(file, MODULE_VOUCHER_CONTENT, &again) || key == again))
		abort();
	elf_file_soname(file, soname, sizeof(soname));
	if (strlen(soname) >= sizeof(soname) || strchr(file->identity.debug_link, '/'))
		abort();
	(void)elf_runtime_of(file);
	(void)elf_file_has_symtab(file);
	(void)elf_file_has_dwarf(file);
	(void)elf_file_debug_matches(&file->identity, file);
	check_skeleton(file);
	check_cpython(file);
	check_v8(file);
	return 0;
}
