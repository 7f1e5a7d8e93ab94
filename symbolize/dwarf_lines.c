// SPDX-License-Identifier: Apache-2.0
#include "symbolize/dwarf_lines.h"

#include <dwarf.h>
#include <errno.h>
#include <string.h>

#define FORMATS_MAX 16u
#define PATH_MAX_BYTES 4096u

struct program {
	struct dwarf *dwarf;
	struct dwarf_unit unit; /* a copy; its format becomes the line table's own */
	struct index_builder *builder;
	const struct elf_segments *segments;
	struct dwarf_lines *lines;
	struct dwarf_line_table *table;
	const uint32_t *files;
	struct bytes opcodes;
	uint8_t offset_bytes;
	uint8_t min_instruction_bytes;
	int8_t line_base;
	uint8_t line_range;
	uint8_t opcode_base;
	const uint8_t *opcode_lengths; /* of opcodes 1 … opcode_base - 1 */
};

void dwarf_lines_deinit(struct dwarf_lines *lines)
{
	dwarf_files_vec_deinit(&lines->files);
	dwarf_line_tables_vec_deinit(&lines->tables);
	u64map_deinit(&lines->by_offset);
}

/* ---- files ----------------------------------------------------------------------------------- */

static size_t append_path(char *path, size_t len, const char *part)
{
	size_t part_len = part ? strnlen(part, PATH_MAX_BYTES) : 0;

	if (!part_len)
		return len;
	if (part[0] == '/')
		len = 0;
	else if (len && path[len - 1] != '/' && len < PATH_MAX_BYTES - 1)
		path[len++] = '/';
	if (part_len > PATH_MAX_BYTES - len)
		part_len = PATH_MAX_BYTES - len;
	memcpy(path + len, part, part_len);
	return len + part_len;
}

/* Adds one file as comp_dir/directory/name, leaving out what an absolute part makes void. */
static int add_file(struct program *program, const char *directory, const char *name)
{
	char path[PATH_MAX_BYTES];
	uint32_t string = 0;
	size_t len;
	int rc = 0;

	if (!dwarf_pay(program->dwarf, 64))
		return -E2BIG;
	len = append_path(path, 0, program->unit.comp_dir);
	len = append_path(path, len, directory);
	len = append_path(path, len, name);
	if (name && name[0])
		rc = index_builder_string(program->builder, path, len, &string);
	if (rc >= 0)
		rc = dwarf_files_vec_push(&program->lines->files, string);
	if (rc >= 0)
		program->table->file_count++;
	return rc;
}

VEC_DEFINE(directories, const char *);

static void cleanup_directories_fn(struct directories_vec *directories)
{
	directories_vec_deinit(directories);
}
#define cleanup_directories __attribute__((__cleanup__(cleanup_directories_fn)))

/* DWARF 2 to 4: include directories from 1 (0 is comp_dir), files from 1. */
static int old_tables(struct program *program, struct bytes *at)
{
	cleanup_directories struct directories_vec directories = { 0 };
	int rc = directories_vec_push(&directories, NULL);

	while (rc >= 0) {
		const char *directory = bytes_cstr(at);

		if (at->failed)
			return -ENOEXEC;
		if (!directory[0])
			break;
		rc = dwarf_pay(program->dwarf, 16) ? directories_vec_push(&directories, directory)
						   : -E2BIG;
	}
	if (rc >= 0)
		rc = add_file(program, NULL, NULL);
	while (rc >= 0) {
		const char *name = bytes_cstr(at);
		uint64_t directory;

		if (at->failed)
			return -ENOEXEC;
		if (!name[0])
			return 0;
		directory = dwarf_uleb(at);
		(void)dwarf_uleb(at); /* time */
		(void)dwarf_uleb(at); /* length */
		rc = add_file(program,
			      directory < directories.count ? directories.data[directory] : NULL,
			      name);
	}
	return rc;
}

struct entry_format {
	uint64_t content; /* DW_LNCT_… */
	uint16_t form;
};

static int read_formats(struct bytes *at, struct entry_format formats[FORMATS_MAX],
			unsigned *ret_count)
{
	unsigned count = bytes_u8(at);

	if (count > FORMATS_MAX)
		return -ENOEXEC;
	for (unsigned i = 0; i < count; i++) {
		formats[i].content = dwarf_uleb(at);
		formats[i].form = (uint16_t)dwarf_uleb(at);
	}
	if (at->failed)
		return -ENOEXEC;
	*ret_count = count;
	return 0;
}

/* One entry of a DWARF 5 directory or file table. */
static int read_entry(struct program *program, struct bytes *at,
		      const struct entry_format *formats, unsigned format_count,
		      const char **ret_path, uint64_t *ret_directory)
{
	for (unsigned i = 0; i < format_count; i++) {
		struct dwarf_value value;

		if (!dwarf_value_read(&program->unit, formats[i].form, 0, at, &value))
			return -ENOEXEC;
		if (formats[i].content == DW_LNCT_path)
			*ret_path = dwarf_value_string(program->dwarf, &program->unit, &value);
		else if (formats[i].content == DW_LNCT_directory_index)
			*ret_directory = value.number;
	}
	return dwarf_pay(program->dwarf, 16 + format_count) ? 0 : -E2BIG;
}

/* DWARF 5: both tables from 0; directory 0 is the compilation's. */
static int new_tables(struct program *program, struct bytes *at)
{
	cleanup_directories struct directories_vec directories = { 0 };
	struct entry_format formats[FORMATS_MAX];
	unsigned format_count;
	uint64_t count;
	int rc = read_formats(at, formats, &format_count);

	count = dwarf_uleb(at);
	for (uint64_t i = 0; rc >= 0 && i < count; i++) {
		const char *path = NULL;
		uint64_t unused = 0;

		rc = read_entry(program, at, formats, format_count, &path, &unused);
		if (rc >= 0)
			rc = directories_vec_push(&directories, path);
	}
	if (rc >= 0)
		rc = read_formats(at, formats, &format_count);
	count = dwarf_uleb(at);
	for (uint64_t i = 0; rc >= 0 && i < count; i++) {
		const char *path = NULL;
		uint64_t directory = 0;

		rc = read_entry(program, at, formats, format_count, &path, &directory);
		if (rc >= 0)
			rc = add_file(program,
				      directory < directories.count ? directories.data[directory]
								    : NULL,
				      path);
	}
	return at->failed && rc >= 0 ? -ENOEXEC : rc;
}

uint32_t dwarf_lines_file(const struct dwarf_lines *lines, const struct dwarf_unit *unit,
			  uint64_t number)
{
	const struct dwarf_line_table *table;

	if (unit->line_table == DWARF_LINES_NONE)
		return 0;
	table = &lines->tables.data[unit->line_table];
	return number < table->file_count ? lines->files.data[table->first_file + number] : 0;
}

/* ---- rows ------------------------------------------------------------------------------------ */

struct machine {
	uint64_t ev;
	uint64_t file;
	uint32_t line;
	const struct elf_segment *segment; /* of the sequence's first row */
	bool started, dead;		   /* dead: not in code, rows are dropped */
};

static int emit_row(const struct program *program, struct machine *machine)
{
	uint32_t file = machine->file < program->table->file_count
				? program->files[machine->file]
				: 0;

	if (!machine->started) {
		machine->started = true;
		machine->segment = elf_segments_code(program->segments, machine->ev);
		machine->dead = !machine->segment;
	}
	if (machine->dead || machine->ev < machine->segment->start_ev ||
	    machine->ev >= machine->segment->end_ev)
		return 0;
	return index_builder_row(program->builder,
				 machine->ev - machine->segment->start_ev +
					 machine->segment->offset_fo,
				 file, machine->line);
}

static int end_sequence(const struct program *program, struct machine *machine)
{
	int rc = 0;

	if (machine->started && !machine->dead && machine->ev >= machine->segment->start_ev &&
	    machine->ev <= machine->segment->end_ev)
		rc = index_builder_sequence_end(program->builder,
						machine->ev - machine->segment->start_ev +
							machine->segment->offset_fo);
	else
		index_builder_sequence_drop(program->builder);
	*machine = (struct machine){ .file = 1, .line = 1 };
	return rc;
}

static int extended_opcode(const struct program *program, struct bytes *at,
			   struct machine *machine)
{
	uint64_t len = dwarf_uleb(at);
	const uint8_t *data = bytes_take(at, len);
	struct bytes inner;

	if (!data || !len)
		return -ENOEXEC;
	inner = bytes_of(data, len);
	switch (bytes_u8(&inner)) {
	case DW_LNE_end_sequence:
		return end_sequence(program, machine);
	case DW_LNE_set_address:
		machine->ev = bytes_left(&inner) >= 8 ? bytes_u64(&inner) : bytes_u32(&inner);
		return inner.failed ? -ENOEXEC : 0;
	default: /* discriminators; a file defined here has no name for us */
		return 0;
	}
}

static int standard_opcode(const struct program *program, uint8_t opcode, struct bytes *at,
			   struct machine *machine)
{
	switch (opcode) {
	case DW_LNS_copy:
		return emit_row(program, machine);
	case DW_LNS_advance_pc:
		machine->ev += dwarf_uleb(at) * program->min_instruction_bytes;
		return 0;
	case DW_LNS_advance_line:
		machine->line += (uint32_t)bytes_sleb128(at);
		return 0;
	case DW_LNS_set_file:
		machine->file = dwarf_uleb(at);
		return 0;
	case DW_LNS_const_add_pc:
		machine->ev += (uint64_t)((255 - program->opcode_base) / program->line_range) *
			       program->min_instruction_bytes;
		return 0;
	case DW_LNS_fixed_advance_pc:
		machine->ev += bytes_u16(at);
		return 0;
	default:
		for (unsigned i = 0; i < program->opcode_lengths[opcode - 1]; i++)
			(void)dwarf_uleb(at);
		return 0;
	}
}

static int run(const struct program *program)
{
	struct machine machine = { .file = 1, .line = 1 };
	struct bytes at = program->opcodes;
	int rc = 0;

	while (rc >= 0 && bytes_left(&at) && !at.failed) {
		uint8_t opcode = bytes_u8(&at);

		if (opcode >= program->opcode_base) {
			unsigned adjusted = opcode - program->opcode_base;

			machine.ev += (uint64_t)(adjusted / program->line_range) *
				      program->min_instruction_bytes;
			machine.line += (uint32_t)(program->line_base +
						   (int)(adjusted % program->line_range));
			rc = emit_row(program, &machine);
		} else if (opcode) {
			rc = standard_opcode(program, opcode, &at, &machine);
		} else {
			rc = extended_opcode(program, &at, &machine);
		}
	}
	index_builder_sequence_drop(program->builder);
	return rc;
}

/* ---- header ---------------------------------------------------------------------------------- */

static uint64_t read_offset(struct bytes *at, uint8_t offset_bytes)
{
	return offset_bytes == 8 ? bytes_u64(at) : bytes_u32(at);
}

/* Reads the header up to the tables; *@ret_tables then holds just those, program->opcodes the rest.
 */
static int parse_header(struct program *program, struct bytes at, struct bytes *ret_tables)
{
	uint64_t len = bytes_u32(&at), header_len;
	const uint8_t *header;

	program->offset_bytes = 4;
	if (len == 0xffffffff) {
		len = bytes_u64(&at);
		program->offset_bytes = 8;
	}
	if (at.failed || len > bytes_left(&at))
		return -ENOEXEC;
	at.end = at.at + len;
	if (!dwarf_pay(program->dwarf, len))
		return -E2BIG;
	program->table->version = (uint8_t)bytes_u16(&at);
	if (program->table->version < 2 || program->table->version > 5)
		return -ENOEXEC;
	if (program->table->version == 5)
		(void)bytes_u16(&at); /* sizes of addresses and segment selectors */
	header_len = read_offset(&at, program->offset_bytes);
	header = bytes_take(&at, header_len);
	if (!header)
		return -ENOEXEC;
	program->opcodes = at;
	at = bytes_of(header, header_len);
	program->min_instruction_bytes = bytes_u8(&at);
	if (program->table->version >= 4)
		(void)bytes_u8(&at); /* operations per instruction */
	(void)bytes_u8(&at);	     /* default_is_stmt */
	program->line_base = (int8_t)bytes_u8(&at);
	program->line_range = bytes_u8(&at);
	program->opcode_base = bytes_u8(&at);
	program->opcode_lengths = bytes_take(&at, program->opcode_base ? program->opcode_base - 1u
								       : 0);
	if (at.failed || !program->line_range || !program->opcode_base)
		return -ENOEXEC;
	*ret_tables = at;
	return 0;
}

static int load(struct program *program, uint64_t offset)
{
	struct bytes at = dwarf_section_at(program->dwarf, DWARF_LINE, offset);
	struct bytes tables;
	int rc = parse_header(program, at, &tables);

	if (rc < 0)
		return rc;
	/* Forms in the tables are sized by the line table's own format. */
	program->unit.offset_bytes = program->offset_bytes;
	program->unit.version = program->table->version;
	rc = program->table->version >= 5 ? new_tables(program, &tables)
					  : old_tables(program, &tables);
	if (rc < 0)
		return rc;
	if (program->lines->files.count) /* none yet: nothing to add to */
		program->files = program->lines->files.data + program->table->first_file;
	return run(program);
}

int dwarf_lines_load(struct dwarf_lines *lines, struct dwarf *dwarf, struct dwarf_unit *unit,
		     const struct elf_segments *segments, struct index_builder *builder)
{
	struct dwarf_line_table table = { .first_file = (uint32_t)lines->files.count };
	struct program program = { .dwarf = dwarf,
				   .unit = *unit,
				   .builder = builder,
				   .segments = segments,
				   .lines = lines,
				   .table = &table };
	uint64_t have;
	int rc, failed;

	if (unit->stmt_list == DWARF_NONE || unit->line_table != DWARF_LINES_NONE)
		return 0;
	if (u64map_get(&lines->by_offset, unit->stmt_list, &have)) {
		unit->line_table = (uint32_t)have;
		return 0;
	}
	rc = load(&program, unit->stmt_list);
	if (rc < 0 && rc != -ENOEXEC)
		return rc;
	failed = dwarf_line_tables_vec_push(&lines->tables, table);
	if (failed < 0)
		return failed;
	unit->line_table = (uint32_t)(lines->tables.count - 1);
	return u64map_put(&lines->by_offset, unit->stmt_list, unit->line_table);
}
