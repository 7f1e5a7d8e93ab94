// SPDX-License-Identifier: Apache-2.0
/* Input: which questions of the program's debug information a second file answers (bits: 1 package,
 * 2 split unit, 4 supplementary file), u32 length of the program, the program, the second file.
 * Property: index_check.h. */
#include <errno.h>
#include <stdint.h>

#include "agent/base/bytes.h"
#include "tests/fuzz/index_check.h"

#define INPUT_MAX (256u << 10)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct second {
	struct debug_finder finder;
	unsigned answers;
	const void *bytes;
	size_t len;
};

static int find(void *ctx, enum control_debug_kind kind, const char *name, const uint8_t *build_id,
		uint8_t build_id_len, struct elf_file **ret)
{
	const struct second *second = ctx;
	unsigned bit = kind == DEBUG_PACKAGE ? 1 : kind == DEBUG_SPLIT ? 2 : kind == DEBUG_ALT ? 4 : 0;
	cleanup_close int fd = second->answers & bit ? io_memfd("second", 0) : -1;

	(void)name, (void)build_id, (void)build_id_len;
	if (fd < 0 || io_write_all(fd, second->bytes, second->len) < 0 || elf_file_map_take(fd, ret) < 0)
		return -ENOENT;
	(void)take_fd(&fd);
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct bytes in = bytes_of(data, size);
	cleanup(symbol_index) struct symbol_index *index = NULL;
	struct second second = { .finder = { &second, find } };
	const uint8_t *answers = bytes_take(&in, 1);
	size_t len = bytes_u32(&in);
	const void *first = bytes_take(&in, len);
	cleanup_free void *copy = NULL;
	Elf *elf;

	if (!first || size > INPUT_MAX)
		return 0;
	copy = malloc(len + 1);
	if (!copy)
		return 0;
	memcpy(copy, first, len);
	second.answers = *answers;
	second.len = bytes_left(&in);
	second.bytes = in.at;
	(void)elf_version(EV_CURRENT);
	elf = elf_memory(copy, len);
	if (elf && symbol_index_build_files(
			   &(struct symbol_index_files){ .elf = elf, .finder = &second.finder },
			   &index) == 0)
		index_check(index, 0x3000);
	(void)elf_end(elf);
	return 0;
}
