// SPDX-License-Identifier: Apache-2.0
#include "tests/support/elf_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];

static void remove_folder(void)
{
	char command[128];

	(void)snprintf(command, sizeof(command), "rm -rf %s", folder);
	(void)!system(command);
}

const char *fixture_dir(void)
{
	if (!folder[0]) {
		(void)snprintf(folder, sizeof(folder), "/tmp/profd-names-XXXXXX");
		assert_non_null(mkdtemp(folder));
		(void)atexit(remove_folder);
	}
	return folder;
}

static void path_of(const char *name, char *ret, size_t size)
{
	(void)snprintf(ret, size, name[0] == '/' ? "%s%s" : "%s/%s",
		       name[0] == '/' ? "" : fixture_dir(), name);
}

void fixture_write(const char *name, const char *text)
{
	char path[512];
	FILE *file;

	path_of(name, path, sizeof(path));
	file = fopen(path, "w");
	assert_non_null(file);
	assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
	assert_int_equal(fclose(file), 0);
}

static void command_line(char *ret, size_t size, const char *fmt, va_list args)
{
	int at = snprintf(ret, size, "cd %s && ", fixture_dir());

	assert_true(vsnprintf(ret + at, size - (size_t)at, fmt, args) < (int)(size - (size_t)at));
}

bool fixture_run(const char *fmt, ...)
{
	char command[4096], quiet[4200];
	va_list args;

	va_start(args, fmt);
	command_line(command, sizeof(command), fmt, args);
	va_end(args);
	(void)snprintf(quiet, sizeof(quiet), "{ %s; } >%s/log 2>&1", command, fixture_dir());
	if (system(quiet) == 0)
		return true;
	print_message("failed: %s\n", command);
	(void)snprintf(quiet, sizeof(quiet), "tail -5 %s/log", fixture_dir());
	(void)!system(quiet);
	return false;
}

char *fixture_output(const char *fmt, ...)
{
	char command[4096];
	size_t len = 0, size = 1 << 16;
	char *out = malloc(size);
	va_list args;
	FILE *pipe;

	va_start(args, fmt);
	command_line(command, sizeof(command), fmt, args);
	va_end(args);
	pipe = popen(command, "r");
	assert_non_null(pipe);
	assert_non_null(out);
	while (!feof(pipe) && !ferror(pipe)) {
		len += fread(out + len, 1, size - len - 1, pipe);
		if (len + 1 == size) {
			char *more = realloc(out, size *= 2);

			assert_non_null(more);
			out = more;
		}
	}
	out[len] = '\0';
	if (pclose(pipe) == 0)
		return out;
	free(out);
	return NULL;
}

bool fixture_has(const char *program)
{
	char command[256];

	(void)snprintf(command, sizeof(command), "command -v %s >/dev/null 2>&1", program);
	return system(command) == 0;
}

struct fixture_elf fixture_open(const char *name)
{
	struct fixture_elf file;
	char path[512];

	(void)elf_version(EV_CURRENT);
	path_of(name, path, sizeof(path));
	file.fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(file.fd >= 0);
	file.elf = elf_begin(file.fd, ELF_C_READ_MMAP, NULL);
	assert_non_null(file.elf);
	return file;
}

void fixture_close(struct fixture_elf *file)
{
	(void)elf_end(file->elf);
	(void)close(file->fd);
}

/* @ctx: the file's name, beside which a package would lie. */
static int find_in_folder(void *ctx, enum control_debug_kind kind, const char *name,
			  const uint8_t *build_id, uint8_t build_id_len, struct elf_file **ret)
{
	const char *last = strrchr(name, '/');
	char package[256], path[512];
	int fd, rc;

	(void)snprintf(package, sizeof(package), "%s.dwp", (const char *)ctx);
	path_of(kind == DEBUG_PACKAGE ? package : last ? last + 1 : name, path, sizeof(path));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -ENOENT;
	rc = elf_file_map_take(fd, ret);
	if (rc < 0)
		(void)close(fd);
	return rc < 0 ? -ENOENT : 0;
}

struct symbol_index *fixture_index(const char *path, const char *debug_path)
{
	const struct debug_finder finder = { (void *)(uintptr_t)path, find_in_folder };
	struct fixture_elf file = fixture_open(path), debug = { -1, NULL };
	struct symbol_index *index = NULL;

	if (debug_path)
		debug = fixture_open(debug_path);
	assert_int_equal(symbol_index_build_files(
				 &(struct symbol_index_files){
					 .elf = file.elf, .debug = debug.elf, .finder = &finder },
				 &index),
			 0);
	if (debug_path)
		fixture_close(&debug);
	fixture_close(&file);
	return index;
}

uint64_t fixture_symbol(const char *path, const char *name, uint64_t *ret_size)
{
	char *out = fixture_output("nm -S %s 2>/dev/null; nm -S -D %s 2>/dev/null; true", path, path);
	size_t name_len = strlen(name);
	uint64_t value = 0;

	for (char *line = strtok(out, "\n"); line && !value; line = strtok(NULL, "\n")) {
		size_t len = strlen(line);
		unsigned long long start, size;
		int fields;

		if (len <= name_len || line[len - name_len - 1] != ' ' ||
		    strcmp(line + len - name_len, name))
			continue;
		fields = sscanf(line, "%llx %llx", &start, &size);
		if (fields < 1)
			continue;
		value = start;
		if (ret_size)
			*ret_size = fields == 2 ? size : 0;
	}
	free(out);
	return value;
}

uint64_t fixture_offset(const char *path, uint64_t ev)
{
	struct fixture_elf file = fixture_open(path);
	uint64_t offset = 0;
	size_t count = 0;

	assert_int_equal(elf_getphdrnum(file.elf, &count), 0);
	for (size_t i = 0; i < count; i++) {
		GElf_Phdr phdr;

		assert_non_null(gelf_getphdr(file.elf, (int)i, &phdr));
		if (phdr.p_type == PT_LOAD && ev >= phdr.p_vaddr &&
		    ev < phdr.p_vaddr + phdr.p_filesz)
			offset = ev - phdr.p_vaddr + phdr.p_offset;
	}
	fixture_close(&file);
	return offset;
}
