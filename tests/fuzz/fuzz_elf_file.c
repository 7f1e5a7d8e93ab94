// SPDX-License-Identifier: Apache-2.0
/* Input is a whole file. Property: what is read of it is the same twice, texts end, and the skeleton is a file
 * whose segments are the original's. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/base/io.h"
#include "symbolize/elf_debug.h"
#include "symbolize/elf_file.h"
#include "symbolize/elf_runtime.h"

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
	if (!elf_file_key(file, &key) && (elf_file_key(file, &again) || key != again || !key))
		abort();
	elf_file_soname(file, soname, sizeof(soname));
	if (strlen(soname) >= sizeof(soname) || strchr(file->identity.debug_link, '/'))
		abort();
	(void)elf_runtime_of(file);
	(void)elf_file_has_symtab(file);
	(void)elf_file_has_dwarf(file);
	(void)elf_file_debug_matches(&file->identity, file);
	check_skeleton(file);
	return 0;
}
