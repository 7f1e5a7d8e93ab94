// SPDX-License-Identifier: Apache-2.0
#include "symbolize/gopclntab.h"

#include <errno.h>
#include <string.h>

#include "agent/base/bytes.h"
#include "symbolize/symbol_image.h"

#define RUNS_MAX      65536u /* of one table of one function */
#define INLINED_MAX   65536u /* entries of one inline tree that are looked at */
#define WORK_PER_BYTE 16u
#define WORK_FREE     (16u << 20)

#define PCDATA_INL_TREE	  2u
#define FUNCDATA_INL_TREE 3u

/* A value over addresses: the run reaches from the end of the one before to @end (from the entry).
 */
struct run {
	uint32_t end;
	int32_t value;
};
VEC_DEFINE(runs, struct run);
VEC_DEFINE(inline_nodes, uint32_t);

struct reader {
	const struct go_image *image;
	const struct go_table *table;
	const struct elf_segments *segments;
	struct index_builder *builder;
	uint64_t work_left;
	struct u64map file_strings; /* offset in the file table -> builder string */
	struct runs_vec files, lines, inlined;
	struct inline_nodes_vec nodes; /* by index in the inline tree; UNMADE until needed */
	uint8_t wrapper_id; /* abi.FuncIDWrapper of this version */
};
#define UNMADE (UINT32_MAX - 1)

static void cleanup_reader_fn(struct reader *reader)
{
	u64map_deinit(&reader->file_strings);
	runs_vec_deinit(&reader->files);
	runs_vec_deinit(&reader->lines);
	runs_vec_deinit(&reader->inlined);
	inline_nodes_vec_deinit(&reader->nodes);
}

/* One function of the table. */
struct function {
	uint64_t entry_ev, end_ev;
	int32_t name;
	uint32_t pcfile, pcln, pcdata_count, unit;
	uint32_t inline_index; /* offset of the inline index table in pctab, 0 = none */
	uint64_t inline_tree_ev; /* 0 = none */
	uint32_t start_line;
	uint8_t id; /* abi.FuncID */
};

static bool pay(struct reader *reader, uint64_t work)
{
	if (work > reader->work_left)
		return false;
	reader->work_left -= work;
	return true;
}

struct bytes go_table_bytes(const struct go_table *table, uint64_t base, uint64_t offset)
{
	if (offset > table->len || base + offset > table->len)
		return (struct bytes){ table->bytes, table->bytes, true };
	return bytes_of(table->bytes + base + offset, table->len - base - offset);
}

/* ---- tables by address ----------------------------------------------------------------------- */

/* Decodes a pc-value table: pairs of (value delta, pc delta), ended by a value delta of 0. */
static int decode_runs(struct reader *reader, uint32_t offset, uint64_t size, struct runs_vec *ret)
{
	struct bytes at = go_table_bytes(reader->table, reader->table->pctab, offset);
	uint64_t end = 0;
	int32_t value = -1;

	ret->count = 0;
	while (offset && ret->count < RUNS_MAX && end < size) {
		uint64_t delta = bytes_varint(&at);
		int rc;

		if (at.failed || (!delta && ret->count))
			break;
		value = (int32_t)((uint32_t)value +
				  (delta & 1 ? ~(uint32_t)(delta >> 1) : (uint32_t)(delta >> 1)));
		end += (uint64_t)(uint32_t)bytes_varint(&at) * reader->table->quantum;
		if (at.failed)
			break;
		if (!pay(reader, 8))
			return -E2BIG;
		rc = runs_vec_push(ret, (struct run){ (uint32_t)(end < size ? end : size), value });
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int32_t value_at(const struct runs_vec *runs, uint64_t pc)
{
	size_t low = 0, high = runs->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (runs->data[middle].end <= pc)
			low = middle + 1;
		else
			high = middle;
	}
	return low < runs->count ? runs->data[low].value : -1;
}

/* ---- files and names ------------------------------------------------------------------------- */

static int file_string(struct reader *reader, uint32_t unit, int32_t file, uint32_t *ret)
{
	const struct go_table *table = reader->table;
	struct bytes at;
	uint64_t have;
	uint32_t offset, string = 0;
	const char *name;
	int rc;

	*ret = 0;
	if (file < 0)
		return 0;
	at = go_table_bytes(table, table->units, ((uint64_t)unit + (uint32_t)file) * 4);
	offset = bytes_u32(&at);
	if (at.failed || offset == UINT32_MAX)
		return 0;
	if (u64map_get(&reader->file_strings, offset, &have)) {
		*ret = (uint32_t)have;
		return 0;
	}
	at = go_table_bytes(table, table->files, offset);
	if (bytes_left(&at) > 4096)
		at.end = at.at + 4096;
	name = bytes_cstr(&at);
	if (!name)
		return 0;
	if (!pay(reader, 64))
		return -E2BIG;
	rc = index_builder_string(reader->builder, name, SIZE_MAX, &string);
	if (rc >= 0)
		rc = u64map_put(&reader->file_strings, offset, string);
	*ret = string;
	return rc;
}

/* Type arguments are shown as [...], as the runtime does. */
static size_t fold_arguments(const char *name, size_t len, char *ret)
{
	const char *open = memchr(name, '[', len), *close = memrchr(name, ']', len);
	size_t head;

	if (!open || !close || close < open) {
		memcpy(ret, name, len);
		return len;
	}
	head = (size_t)(open - name);
	memcpy(ret, name, head);
	memcpy(ret + head, "[...]", 5);
	memcpy(ret + head + 5, close + 1, len - (size_t)(close + 1 - name));
	return head + 5 + len - (size_t)(close + 1 - name);
}

static int name_string(struct reader *reader, int32_t offset, uint32_t *ret)
{
	struct bytes at = go_table_bytes(reader->table, reader->table->names, (uint32_t)offset);
	char folded[4096 + 8];
	const char *name;
	size_t len;

	if (bytes_left(&at) > 4096)
		at.end = at.at + 4096;
	name = bytes_cstr(&at);
	*ret = 0;
	if (!name || offset < 0)
		return 0;
	len = strlen(name);
	if (!pay(reader, 32 + len / 8))
		return -E2BIG;
	len = fold_arguments(name, len, folded);
	return index_builder_string(reader->builder, folded, len, ret);
}

/* ---- functions ------------------------------------------------------------------------------- */

bool go_table_entry(const struct go_table *table, const struct go_image *image, uint64_t index,
		    uint64_t *ret_ev, uint64_t *ret_func)
{
	struct bytes at;

	if (table->layout != GOPCLNTAB_1_16) {
		at = go_table_bytes(table, table->functions, index * 8);
		*ret_ev = table->text_ev + bytes_u32(&at);
		*ret_func = bytes_left(&at) >= 4 ? bytes_u32(&at) : 0;
		return !at.failed;
	}
	at = go_table_bytes(table, table->functions, index * 16);
	*ret_ev = bytes_u64(&at);
	*ret_func = bytes_left(&at) >= 8 ? bytes_u64(&at) : 0;
	if (image->relocation_count) /* absolute addresses, relocated where code may lie anywhere */
		*ret_ev = go_image_word(image, table->ev + table->functions + index * 16);
	return !at.failed;
}

/* Function data number @index of the _func at @func_ev, whose fixed part and pcdata end at @at. */
static uint64_t read_funcdata(const struct reader *reader, struct bytes at, unsigned index)
{
	const struct go_table *table = reader->table;
	uint32_t offset;

	if (table->layout == GOPCLNTAB_1_16) {
		uint64_t ev = table->ev + (uint64_t)(at.at - table->bytes);

		return go_image_word(reader->image, ((ev + 7) & ~7ull) + index * 8ull);
	}
	(void)bytes_take(&at, index * 4ull);
	offset = bytes_u32(&at);
	if (at.failed || offset == UINT32_MAX || !table->gofunc_ev)
		return 0;
	return table->gofunc_ev + offset;
}

/* Reads the _func structure. Source: runtime/runtime2.go, type _func. */
static bool read_function(const struct reader *reader, uint64_t offset, struct function *ret)
{
	const struct go_table *table = reader->table;
	struct bytes at = go_table_bytes(table, table->functions, offset);
	uint8_t funcdata_count;

	(void)bytes_take(&at, table->layout == GOPCLNTAB_1_16 ? 8 : 4); /* entry */
	ret->name = (int32_t)bytes_u32(&at);
	(void)bytes_take(&at, 12); /* args, deferreturn, pcsp */
	ret->pcfile = bytes_u32(&at);
	ret->pcln = bytes_u32(&at);
	ret->pcdata_count = bytes_u32(&at);
	ret->unit = bytes_u32(&at);
	ret->start_line = table->layout == GOPCLNTAB_1_20 ? bytes_u32(&at) : 0;
	ret->id = bytes_u8(&at);
	(void)bytes_take(&at, 2); /* flag, padding */
	funcdata_count = bytes_u8(&at);
	if (at.failed)
		return false;
	ret->inline_index = 0;
	ret->inline_tree_ev = 0;
	if (ret->pcdata_count > PCDATA_INL_TREE) {
		struct bytes pcdata = at;

		(void)bytes_take(&pcdata, PCDATA_INL_TREE * 4);
		ret->inline_index = bytes_u32(&pcdata);
		(void)bytes_take(&at, ret->pcdata_count * 4ull);
		if (!at.failed && funcdata_count > FUNCDATA_INL_TREE)
			ret->inline_tree_ev = read_funcdata(reader, at, FUNCDATA_INL_TREE);
	}
	return true;
}

/* ---- inline trees ---------------------------------------------------------------------------- */

/* One inlined call. Source: runtime/symtabinl.go, type inlinedCall. */
struct inlined_call {
	int32_t name;
	uint32_t parent_pc;
	uint32_t start_line;
	int32_t file, line; /* of the call, until 1.19 */
	uint8_t id;
};

static bool read_call(const struct reader *reader, const struct function *function, int32_t index,
		      struct inlined_call *ret)
{
	bool is_new = reader->table->layout == GOPCLNTAB_1_20;
	uint64_t size = is_new ? 16 : 20;
	const uint8_t *data;
	struct bytes at;

	if (index < 0 || (uint32_t)index >= INLINED_MAX)
		return false;
	data = go_image_at(reader->image, function->inline_tree_ev + (uint32_t)index * size, size);
	if (!data)
		return false;
	at = bytes_of(data + 4, size - 4);
	*ret = (struct inlined_call){ .id = data[is_new ? 0 : 2] };
	if (!is_new) {
		ret->file = (int32_t)bytes_u32(&at);
		ret->line = (int32_t)bytes_u32(&at);
	}
	ret->name = (int32_t)bytes_u32(&at);
	ret->parent_pc = bytes_u32(&at);
	if (is_new)
		ret->start_line = bytes_u32(&at);
	return true;
}

/* File of the first address that belongs to inlined call @index: the file that call's function is
 * in. */
static int32_t file_of_call(const struct reader *reader, int32_t index)
{
	uint32_t start = 0;

	for (size_t i = 0; i < reader->inlined.count; i++) {
		if (reader->inlined.data[i].value == index)
			return value_at(&reader->files, start);
		start = reader->inlined.data[i].end;
	}
	return -1;
}

static uint32_t start_line_of(const struct reader *reader, uint32_t line, uint8_t id)
{
	return (line & ~SYMBOL_IMAGE_WRAPPER) |
	       (id && id == reader->wrapper_id ? SYMBOL_IMAGE_WRAPPER : 0);
}

static int make_node(struct reader *reader, const struct function *function,
		     const struct inlined_call *call, int32_t index, uint32_t parent, uint32_t *ret)
{
	struct symbol_image_node node = { .parent = parent };
	int32_t call_file, call_line;
	uint32_t name, file;
	int rc;

	if (reader->table->layout == GOPCLNTAB_1_20) {
		call_file = value_at(&reader->files, call->parent_pc);
		call_line = value_at(&reader->lines, call->parent_pc);
	} else {
		call_file = call->file;
		call_line = call->line;
	}
	rc = name_string(reader, call->name, &name);
	if (rc >= 0)
		rc = file_string(reader, function->unit, file_of_call(reader, index), &file);
	if (rc >= 0)
		rc = index_builder_function(reader->builder, name, file,
					    start_line_of(reader, call->start_line, call->id),
					    &node.function);
	if (rc >= 0)
		rc = file_string(reader, function->unit, call_file, &node.call_file);
	node.call_line = call_line > 0 ? (uint32_t)call_line : 0;
	return rc < 0 ? rc : index_builder_node(reader->builder, &node, ret);
}

/* The node of inlined call @index, made with all it is inlined into, outermost first. */
static int inline_node(struct reader *reader, const struct function *function, int32_t index,
		       uint32_t root, uint32_t *ret)
{
	int32_t chain[INDEX_DEPTH_MAX];
	struct inlined_call call;
	uint32_t node = root;
	unsigned depth = 0;

	for (; depth < INDEX_DEPTH_MAX && read_call(reader, function, index, &call); depth++) {
		while (reader->nodes.count <= (uint32_t)index) {
			int rc = inline_nodes_vec_push(&reader->nodes, UNMADE);

			if (rc < 0)
				return rc;
		}
		if (reader->nodes.data[index] != UNMADE) {
			node = reader->nodes.data[index];
			break;
		}
		chain[depth] = index;
		index = value_at(&reader->inlined, call.parent_pc);
	}
	if (!pay(reader, 16 + depth))
		return -E2BIG;
	while (depth-- > 0) {
		int rc;

		if (!read_call(reader, function, chain[depth], &call))
			break;
		rc = make_node(reader, function, &call, chain[depth], node, &node);
		if (rc < 0)
			return rc;
		reader->nodes.data[chain[depth]] = node;
	}
	*ret = node;
	return 0;
}

static int add_inlined(struct reader *reader, const struct function *function, uint64_t start_fo,
		       uint32_t root)
{
	uint32_t from = 0;

	reader->nodes.count = 0;
	for (size_t i = 0; i < reader->inlined.count; i++) {
		const struct run run = reader->inlined.data[i];
		uint32_t node;
		int rc;

		if (run.value >= 0 && function->inline_tree_ev) {
			rc = inline_node(reader, function, run.value, root, &node);
			if (rc >= 0)
				rc = index_builder_range(reader->builder, node, start_fo + from,
							 start_fo + run.end);
			if (rc < 0)
				return rc;
		}
		from = run.end;
	}
	return 0;
}

/* ---- a function into the index --------------------------------------------------------------- */

static int add_rows(struct reader *reader, const struct function *function, uint64_t start_fo,
		    uint64_t end_fo)
{
	size_t file = 0, line = 0;
	uint32_t at = 0;

	while (line < reader->lines.count) {
		const struct run *run = &reader->lines.data[line];
		uint32_t string, next = run->end;
		int rc;

		while (file < reader->files.count && reader->files.data[file].end <= at)
			file++;
		rc = file_string(reader, function->unit,
				 file < reader->files.count ? reader->files.data[file].value : -1,
				 &string);
		if (rc >= 0)
			rc = index_builder_row(reader->builder, start_fo + at, string,
					       run->value > 0 ? (uint32_t)run->value : 0);
		if (rc < 0)
			return rc;
		if (file < reader->files.count && reader->files.data[file].end < next)
			next = reader->files.data[file].end;
		at = next;
		while (line < reader->lines.count && reader->lines.data[line].end <= at)
			line++;
	}
	return index_builder_sequence_end(reader->builder, end_fo);
}

static int add_function(struct reader *reader, struct function *function)
{
	struct symbol_image_node node = { .parent = SYMBOL_IMAGE_NONE };
	uint64_t start_fo, end_fo, size = function->end_ev - function->entry_ev;
	uint32_t name, file, root;
	int rc;

	if (size > UINT32_MAX || !elf_segments_range(reader->segments, function->entry_ev,
						     function->end_ev, &start_fo, &end_fo))
		return 0;
	rc = decode_runs(reader, function->pcfile, size, &reader->files);
	if (rc >= 0)
		rc = decode_runs(reader, function->pcln, size, &reader->lines);
	if (rc >= 0)
		rc = decode_runs(reader, function->inline_index, size, &reader->inlined);
	if (rc >= 0)
		rc = name_string(reader, function->name, &name);
	if (rc >= 0)
		rc = file_string(reader, function->unit, value_at(&reader->files, 0), &file);
	if (rc < 0)
		return rc;
	if (!function->start_line && reader->lines.count && reader->lines.data[0].value > 0)
		function->start_line = (uint32_t)reader->lines.data[0].value;
	rc = index_builder_function(reader->builder, name, file,
				    start_line_of(reader, function->start_line, function->id),
				    &node.function);
	if (rc >= 0)
		rc = index_builder_node(reader->builder, &node, &root);
	if (rc >= 0)
		rc = index_builder_range(reader->builder, root, start_fo, end_fo);
	if (rc >= 0)
		rc = add_inlined(reader, function, start_fo, root);
	return rc < 0 ? rc : add_rows(reader, function, start_fo, end_fo);
}

/* The ids of special functions are renumbered by every other version, but "wrapper" has always been
 * the last one (src/internal/abi/symtab.go), and no program is without wrappers. */
static uint8_t find_wrapper_id(const struct reader *reader)
{
	uint64_t entry, func;
	uint8_t largest = 0;

	for (uint64_t i = 0; i < reader->table->function_count; i++) {
		struct function function = { 0 };

		if (!go_table_entry(reader->table, reader->image, i, &entry, &func))
			break;
		if (read_function(reader, func, &function) && function.id > largest)
			largest = function.id;
	}
	return largest;
}

static int add_all(struct reader *reader)
{
	const struct go_table *table = reader->table;
	uint64_t entry, func, next_entry, next_func;

	if (!go_table_entry(table, reader->image, 0, &entry, &func))
		return -ENOEXEC;
	for (uint64_t i = 0; i < table->function_count; i++, entry = next_entry, func = next_func) {
		struct function function = { .entry_ev = entry };
		int rc;

		if (!go_table_entry(table, reader->image, i + 1, &next_entry, &next_func))
			break;
		function.end_ev = next_entry;
		if (next_entry <= entry || !read_function(reader, func, &function))
			continue;
		rc = add_function(reader, &function);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* File offsets from the first function to the end of the last. */
static void reserve(struct reader *reader)
{
	const struct go_table *table = reader->table;
	uint64_t start, end, unused, start_fo, end_fo;

	if (go_table_entry(table, reader->image, 0, &start, &unused) &&
	    go_table_entry(table, reader->image, table->function_count, &end, &unused) &&
	    elf_segments_range(reader->segments, start, end, &start_fo, &end_fo)) {
		reader->builder->exclusive_start = start_fo;
		reader->builder->exclusive_end = end_fo;
	}
}

static int load(Elf *elf, const struct go_image *image, const struct elf_segments *segments,
		struct index_builder *builder)
{
	__attribute__((__cleanup__(cleanup_reader_fn))) struct reader reader = { 0 };
	struct go_table table;
	int rc = go_image_find_table(elf, image, &table);

	if (rc < 0)
		return rc;
	reader.image = image;
	reader.table = &table;
	reader.segments = segments;
	reader.builder = builder;
	reader.work_left = WORK_FREE + WORK_PER_BYTE * (uint64_t)table.len;
	reader.wrapper_id = find_wrapper_id(&reader);
	rc = add_all(&reader);
	if (rc < 0)
		return rc;
	reserve(&reader);
	builder->origins |= SYMBOL_ORIGIN_GOPCLNTAB;
	return 0;
}

int gopclntab_load(Elf *elf, const struct elf_segments *segments, struct index_builder *builder)
{
	struct go_image image;
	int rc;

	if (!go_image_is_possible(elf))
		return -ENOENT;
	rc = go_image_load(elf, segments, &image);
	if (rc >= 0)
		rc = load(elf, &image, segments, builder);
	go_image_deinit(&image);
	return rc;
}
