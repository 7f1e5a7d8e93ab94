// SPDX-License-Identifier: Apache-2.0
/* The work of the symbolizer process on one file, as a command, to be timed beside other tools:
 *   names rows FILE               unwind table, built and thrown away
 *   names build FILE DEBUG IMAGE  symbol index of FILE and its debug file ("" = none) into IMAGE
 *   names find FILE IMAGE         virtual addresses of FILE from standard input; answers as
 *                                 llvm-symbolizer prints them: function, file:line:0 per frame,
 *                                 an empty line per address */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "symbolize/cfi_rows.h"
#include "symbolize/elf_debug.h"
#include "symbolize/elf_file.h"
#include "symbolize/symbol_index.h"

static int open_elf(const char *path, struct elf_file **ret)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int rc = fd < 0 ? -errno : elf_file_map_take(fd, ret);

	if (rc < 0 && fd >= 0)
		(void)close(fd);
	return rc;
}

static int rows(const char *path)
{
	cleanup(elf_file) struct elf_file *file = NULL;
	struct cfi_table table;
	int rc = open_elf(path, &file);

	if (rc == 0)
		rc = cfi_table_build(file->elf, file->fd, &table);
	if (rc < 0)
		return rc;
	printf("%u rows, %zu bytes\n", table.row_count, table.image_bytes);
	cfi_table_deinit(&table);
	return 0;
}

static int build(const char *path, const char *debug_path, const char *image_path)
{
	cleanup(elf_file) struct elf_file *file = NULL;
	cleanup(elf_file) struct elf_file *debug = NULL;
	cleanup(symbol_index) struct symbol_index *index = NULL;
	cleanup_fclose FILE *out = NULL;
	const void *image;
	size_t bytes;
	int rc = open_elf(path, &file);

	if (rc == 0 && debug_path[0])
		rc = open_elf(debug_path, &debug);
	if (rc == 0)
		rc = symbol_index_build(file->elf, debug ? debug->elf : NULL, &index);
	if (rc < 0)
		return rc;
	image = symbol_index_image(index, &bytes);
	out = fopen(image_path, "we");
	return out && fwrite(image, bytes, 1, out) == 1 ? 0 : -EIO;
}

static void print_place(const struct symbol_frame *frame)
{
	if (frame->file[0] || frame->line)
		printf("%s\n%s:%u:0\n", frame->function, frame->file[0] ? frame->file : "??", frame->line);
	else
		printf("%s\n??:0:0\n", frame->function);
}

static void answer(const struct symbol_index *index, const struct elf_segments *segments,
		   uint64_t ev)
{
	struct symbol_frame frames[SYMBOL_INLINE_MAX];
	uint64_t fo, left;
	int count = elf_segments_to_fo(segments, ev, &fo, &left)
			    ? symbol_index_find(index, fo, frames)
			    : 0;

	if (count && !frames[0].function[0])
		count = 0;
	for (int i = 0; i < count; i++)
		print_place(&frames[i]);
	if (!count)
		printf("??\n??:0:0\n");
	printf("\n");
}

static int find(const char *path, const char *image_path)
{
	cleanup(elf_file) struct elf_file *file = NULL;
	cleanup(symbol_index) struct symbol_index *index = NULL;
	cleanup_close int fd = open(image_path, O_RDONLY | O_CLOEXEC);
	struct elf_segments segments;
	char line[64];
	int rc = open_elf(path, &file);

	if (rc == 0)
		rc = elf_segments_load(file->elf, &segments);
	if (rc == 0)
		rc = fd < 0 ? -ENOENT : symbol_index_open(fd, &index);
	while (rc == 0 && fgets(line, sizeof(line), stdin))
		answer(index, &segments, strtoull(line, NULL, 16));
	return rc;
}

int main(int argc, char **argv)
{
	int rc = -EINVAL;

	(void)elf_version(EV_CURRENT);
	if (argc == 3 && !strcmp(argv[1], "rows"))
		rc = rows(argv[2]);
	else if (argc == 5 && !strcmp(argv[1], "build"))
		rc = build(argv[2], argv[3], argv[4]);
	else if (argc == 4 && !strcmp(argv[1], "find"))
		rc = find(argv[2], argv[3]);
	if (rc < 0)
		(void)fprintf(stderr, "names: %s\n", strerror(-rc));
	return rc < 0;
}
