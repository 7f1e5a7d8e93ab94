// SPDX-License-Identifier: Apache-2.0
#include "symbolize/runtime_v8.h"

#include <errno.h>
#include <gelf.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/io.h"
#include "agent/base/text.h"
#include "agent/runtimes/v8_positions.h"
#include "agent/runtimes/v8_translations.h"
#include "symbolize/elf_debug.h"

#define SYMBOLS_MAX (1u << 20)
#define PREFIX	    "v8dbg_"
#define VALUE_MAX   8192 /* instance types reach 2,200, offsets some hundred */
#define POINTER	    8	 /* bytes of a tagged value without compression */

#define DATA_BYTES_MAX	 (256u << 20) /* of the section that is searched; 20 has 47 MB */
#define CHUNK_BYTES	 (256u << 10)
#define BYTECODES_MIN	 128u /* 16 to 26 have some 200 */
#define BYTECODES_MAX	 256u
#define BYTECODE_LEN_MAX 16
#define BEGINS_MAX	 4096u
#define TABLE_BYTES_MAX	 (V8_BYTECODE_ROWS * BYTECODES_MAX)

/* A constant by the begin of its name, since the rest is a type that changes between releases. */
struct constant {
	const char *name;
	uint16_t member; /* offset in struct script_v8 */
	int16_t absent;	 /* the value where the file has none; -1 = it must have one */
};

#define CONSTANT(member, name, absent)                                                             \
	{                                                                                          \
		name, offsetof(struct script_v8, member), absent                                   \
	}

static const struct constant constants[] = {
	CONSTANT(map_type, "class_Map__instance_type__", -1),
	CONSTANT(function_shared, "class_JSFunction__shared__", -1),
	CONSTANT(shared_name, "class_SharedFunctionInfo__name_or_scope_info__", -1),
	CONSTANT(shared_script, "class_SharedFunctionInfo__script_", -1),
	CONSTANT(type_shared, "type_SharedFunctionInfo__", -1),
	CONSTANT(type_bytecode, "type_BytecodeArray__", -1),
	CONSTANT(type_interpreter_data, "type_InterpreterData__", -1),
	CONSTANT(type_script, "type_Script__", -1),
	CONSTANT(type_scope_info, "type_ScopeInfo__", -1),
	CONSTANT(type_code, "type_Code__", -1),
	CONSTANT(type_stream, "type_InstructionStream__", 0),
	CONSTANT(code_start, "class_Code__instruction_start__", 40), /* 20 */
	CONSTANT(code_bytes, "class_Code__instruction_size__", 52),  /* 20 */
	CONSTANT(code_flags, "class_Code__flags__", 48),	     /* 16, 20 */
	CONSTANT(code_kind_mask, "CodeKindFieldMask", 15),	     /* 16 */
	CONSTANT(code_kind_baseline, "CodeKindBaseline", 11),	     /* 16 */
	CONSTANT(deopt_literals, "DeoptimizationDataLiteralArrayIndex", 0),
	CONSTANT(deopt_inlined, "DeoptimizationDataInliningPositionsIndex", 0),
	CONSTANT(deopt_shared, "DeoptimizationDataSharedFunctionInfoIndex", 0), /* to 22 */
	CONSTANT(deopt_shared_wrapper, "DeoptimizationDataWrappedSharedFunctionInfoIndex", 0),
	CONSTANT(frame_wasm, "frametype_WasmFrame", 0),
	CONSTANT(frame_regexp, "frametype_IrregexpFrame", 0), /* 16, 18 */
	CONSTANT(first_nonstring, "FirstNonstringType", -1),
	CONSTANT(bytecode_data, "class_BytecodeArray__data__", 54), /* 16 */
	CONSTANT(bytecode_wrapper, "class_BytecodeArray__wrapper__", 0),
	CONSTANT(bytecode_length, "class_BytecodeArray__length__", 8), /* 16, 20 */
	CONSTANT(script_source, "class_Script__source__", 8), /* 16 */
	CONSTANT(script_name, "class_Script__name__", -1),
	CONSTANT(scope_locals, "scopeinfo_idx_ncontextlocals", -1),
	CONSTANT(scope_first, "scopeinfo_idx_first_vars", -1),
	CONSTANT(string_length, "class_String__length__", -1),
	CONSTANT(string_chars, "class_SeqOneByteString__chars__", -1),
	CONSTANT(cons_first, "class_ConsString__first__", -1),
	CONSTANT(cons_second, "class_ConsString__second__", -1),
	CONSTANT(sliced_parent, "class_SlicedString__parent__", -1),
	CONSTANT(sliced_offset, "class_SlicedString__offset__", -1),
	CONSTANT(thin_actual, "class_ThinString__actual__", -1),
	CONSTANT(external_resource, "class_ExternalString__resource__", -1),
	CONSTANT(array_length, "class_FixedArrayBase__length__", -1),
	CONSTANT(array_data, "class_FixedArray__data__", -1),
};

struct values {
	Elf *elf;
	const struct elf_segments *segments;
	int32_t value[ARRAY_SIZE(constants)];
	bool is_known[ARRAY_SIZE(constants)];
	int32_t smi_shift; /* 31: a small integer is the upper half of a word; 0: of half a word */
};

struct tables_found {
	uint64_t ev;	 /* of the last table of lengths */
	uint16_t count;	 /* of bytecodes */
	unsigned tables; /* of lengths that are there */
	unsigned begins; /* places that were looked at */
	enum v8_operations operations;
};

static bool take_value(const struct values *values, uint64_t ev, int32_t *ret)
{
	return elf_segments_read(values->elf, values->segments, ev, ret, sizeof(*ret)) == 0;
}

static int look_at_export(void *ctx, const char *name, const GElf_Sym *sym)
{
	struct values *values = ctx;

	if (sym->st_shndx == SHN_UNDEF || !text_begins(name, PREFIX))
		return 0;
	name += strlen(PREFIX);
	if (!strcmp(name, "SmiShiftSize"))
		(void)take_value(values, sym->st_value, &values->smi_shift);
	for (size_t i = 0; i < ARRAY_SIZE(constants); i++) {
		if (values->is_known[i] ||
		    !text_begins(name, constants[i].name))
			continue;
		values->is_known[i] = take_value(values, sym->st_value, &values->value[i]);
	}
	return 0;
}

/* The table of source positions is the first member behind the wrapper, or, before there were
 * wrappers, the third one behind the length. */
static uint16_t positions_of(const struct script_v8 *v8)
{
	return v8->bytecode_wrapper ? v8->bytecode_wrapper + POINTER : 4 * POINTER;
}

static enum script_v8_refusal take_values(const struct values *values, struct script_v8 *ret)
{
	if (values->smi_shift == 0)
		return SCRIPT_V8_COMPRESSED;
	for (size_t i = 0; i < ARRAY_SIZE(constants); i++) {
		int32_t value = values->is_known[i] ? values->value[i] : constants[i].absent;
		uint16_t word = (uint16_t)value;

		if (value < 0 || value > VALUE_MAX)
			return SCRIPT_V8_UNDESCRIBED;
		memcpy((char *)ret + constants[i].member, &word, sizeof(word));
	}
	ret->bytecode_positions = positions_of(ret);
	return values->smi_shift == 31 && ret->function_shared >= 3 * POINTER &&
			       !(ret->function_shared & (POINTER - 1)) ?
		       SCRIPT_V8_READABLE :
		       SCRIPT_V8_UNDESCRIBED;
}

/* The largest executable segment, NULL if there is none. */
static const struct elf_segment *code_of(const struct elf_segments *segments)
{
	const struct elf_segment *code = NULL;

	for (size_t i = 0; i < segments->count; i++) {
		const struct elf_segment *segment = &segments->items[i];

		if (segment->executable &&
		    (!code || segment->end_ev - segment->start_ev > code->end_ev - code->start_ev))
			code = segment;
	}
	return code;
}

/* ---- lengths of bytecodes -------------------------------------------------------------------- */

/* The first bytecodes are prefixes and breakpoints, whose lengths are the same in every version. */
#define FIRST_COUNT 11u
static const uint8_t first_sizes[V8_BYTECODE_ROWS][FIRST_COUNT] = {
	{ 1, 1, 1, 1, 1, 2, 3, 4, 5, 5, 6 },
	{ 1, 1, 1, 1, 1, 3, 5, 7, 9, 7, 9 },
	{ 1, 1, 1, 1, 1, 5, 9, 13, 17, 11, 15 },
};

/* The number of bytecodes in the table that may begin at @at; 0: there is none. */
static uint16_t table_count(const uint8_t *at, size_t len)
{
	for (size_t count = BYTECODES_MIN; count <= BYTECODES_MAX; count++) {
		const uint8_t *second = at + count, *third = second + count;

		if (V8_BYTECODE_ROWS * count > len)
			return 0;
		if (!memcmp(second, first_sizes[1], FIRST_COUNT) &&
		    !memcmp(third, first_sizes[2], FIRST_COUNT))
			return (uint16_t)count;
	}
	return 0;
}

/* Each operand that grows has one byte in the first row, two in the second, four in the third. */
static bool is_table(const uint8_t *at, uint16_t count)
{
	for (uint16_t i = 0; i < count; i++) {
		int one = at[i], two = at[count + i], four = at[2 * count + i];

		if (one < 1 || one > BYTECODE_LEN_MAX || two < one || four - one != 3 * (two - one))
			return false;
	}
	return true;
}

/* Looks for the table of lengths in the @len bytes of a file's data from @ev on. */
static void find_sizes(const uint8_t *bytes, size_t len, uint64_t ev, struct tables_found *found)
{
	const uint8_t *at = bytes;
	uint16_t count;

	while ((at = memmem(at, len - (size_t)(at - bytes), first_sizes[0], FIRST_COUNT)) &&
	       found->begins++ < BEGINS_MAX) {
		count = table_count(at, len - (size_t)(at - bytes));
		if (count && is_table(at, count)) {
			found->tables += found->ev != ev + (uint64_t)(at - bytes);
			found->ev = ev + (uint64_t)(at - bytes);
			found->count = count;
		}
		at++;
	}
}

/* ---- tables without a symbol ----------------------------------------------------------------- */

/* A version's operations are told by V8's own table of their operands. */
static void find_operations(const uint8_t *bytes, size_t len, struct tables_found *found)
{
	int32_t table[V8_OPERATIONS_MAX];

	for (unsigned set = 1; set < V8_OPERATIONS_END; set++) {
		unsigned count = v8_operations_table(set, table);

		if (memmem(bytes, len, table, count * sizeof(*table)))
			found->operations = set;
	}
}

/* The lengths of bytecodes are not exported, but what they begin with is known. Two tables that
 * look like it are none. */
static void find_tables(const struct elf_file *file, const struct elf_segment *code,
			struct script_v8 *ret)
{
	cleanup_free uint8_t *bytes = malloc(CHUNK_BYTES + TABLE_BYTES_MAX);
	struct tables_found found = { 0 };
	uint64_t ev, fo, len, place;

	if (!bytes || !elf_section_place(file->elf, ".rodata", &ev, &fo, &len) || len > DATA_BYTES_MAX)
		return;
	for (uint64_t at = 0; at < len; at += CHUNK_BYTES) {
		size_t n = len - at < CHUNK_BYTES + TABLE_BYTES_MAX ? (size_t)(len - at) :
								      CHUNK_BYTES + TABLE_BYTES_MAX;

		if (io_pread_all(file->fd, bytes, n, fo + at) < 0)
			return;
		find_sizes(bytes, n, ev + at, &found);
		find_operations(bytes, n, &found);
	}
	ret->operations = found.operations;
	/* Data counts as if the whole file were displaced as its code is. */
	place = found.ev - code->start_ev + code->offset_fo;
	if (found.tables != 1 || !place)
		return;
	ret->bytecodes = found.count;
	ret->bytecode_sizes = place;
}

/* ---- the whole ------------------------------------------------------------------------------- */

int runtime_v8_load(const struct elf_file *file, struct script_runtime *ret)
{
	struct script_runtime runtime = { .kind = SCRIPT_V8 };
	const struct elf_segment *code;
	struct elf_segments segments;
	struct values values = { .elf = file->elf, .segments = &segments, .smi_shift = -1 };
	enum script_v8_refusal refused;
	int rc = elf_segments_load(file->elf, &segments);

	code = rc < 0 ? NULL : code_of(&segments);
	if (!code)
		return rc < 0 ? rc : -ENOEXEC;
	(void)!elf_each_symbol(file->elf, SHT_DYNSYM, SYMBOLS_MAX, look_at_export, &values);
	refused = take_values(&values, &runtime.v8);
	if (refused)
		runtime.v8 = (struct script_v8){ .refused = refused };
	else
		find_tables(file, code, &runtime.v8);
	runtime.ranges[0].start = code->offset_fo;
	runtime.ranges[0].end = code->offset_fo + (code->end_ev - code->start_ev);
	*ret = runtime;
	return 0;
}
