// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/go_pctab.h"

#include <errno.h>
#include <string.h>

#include "agent/base/bytes.h"

#define MAGIC_116 0xfffffffau
#define MAGIC_118 0xfffffff0u
#define MAGIC_120 0xfffffff1u

#define PCDATA_INLINE_TREE   2u /* abi.PCDATA_InlTreeIndex */
#define FUNCDATA_INLINE_TREE 3u /* abi.FUNCDATA_InlTree */

#define PCVALUE_BYTES_MAX (1u << 20) /* of one function's table */
#define PCVALUE_PIECE	  256u
#define FUNC_BYTES_MAX	  48u

/* ---- header ---------------------------------------------------------------------------------- */

bool go_table_is_magic(const uint8_t *data)
{
	uint32_t magic;

	memcpy(&magic, data, sizeof(magic));
	return (magic == MAGIC_116 || magic == MAGIC_118 || magic == MAGIC_120) && data[4] == 0 &&
	       data[5] == 0 && (data[6] == 1 || data[6] == 2 || data[6] == 4) && data[7] == 8;
}

static enum go_format format_of(uint32_t magic)
{
	return magic == MAGIC_116   ? GO_FORMAT_116
	       : magic == MAGIC_118 ? GO_FORMAT_118
				    : GO_FORMAT_120;
}

int go_table_open(const struct go_mem *mem, uint64_t va, struct go_table *ret)
{
	uint8_t head[72]; /* 8 bytes and 8 words */
	uint64_t words[8];
	struct go_table table = { .mem = *mem, .header_va = va };
	unsigned first;
	uint32_t magic;
	int rc = mem->read(mem->ctx, va, head, sizeof(head));

	if (rc < 0)
		return rc;
	if (!go_table_is_magic(head))
		return -ENOEXEC;
	memcpy(&magic, head, sizeof(magic));
	memcpy(words, head + 8, sizeof(words));
	table.format = format_of(magic);
	table.quantum = head[6];
	/* nfunc, nfiles, textStart (1.18 and newer; 0 from 1.26), then five offsets from the
	 * header. */
	first = table.format == GO_FORMAT_116 ? 2 : 3;
	if (words[0] == 0 || words[0] >= GO_FUNCTIONS_MAX || words[first] < 64 ||
	    words[first] > 256)
		return -ENOEXEC;
	for (unsigned i = first; i < first + 4; i++)
		if (words[i] >= words[i + 1] || words[i + 1] > 1u << 31)
			return -ENOEXEC;
	table.func_count = (uint32_t)words[0];
	table.names_va = va + words[first];
	table.pctab_va = va + words[first + 3];
	table.funcs_va = va + words[first + 4];
	*ret = table;
	return 0;
}

/* ---- functions ------------------------------------------------------------------------------- */

static int table_read(const struct go_table *table, uint64_t va, void *buf, size_t len)
{
	return table->mem.read(table->mem.ctx, va, buf, len);
}

struct ftab_entry {
	uint64_t va;
	uint64_t offset; /* of the record */
	uint64_t next_va;
};

/* Entry @index of ftab, which ends with one more address. */
static int ftab_entry(const struct go_table *table, uint32_t index, struct ftab_entry *ret)
{
	int rc;

	if (table->format == GO_FORMAT_116) {
		uint64_t words[3];

		rc = table_read(table, table->funcs_va + index * (uint64_t)16, words,
				sizeof(words));
		if (rc == 0)
			*ret = (struct ftab_entry){ words[0], words[1], words[2] };
	} else {
		uint32_t words[3];

		rc = table_read(table, table->funcs_va + index * (uint64_t)8, words, sizeof(words));
		if (rc == 0)
			*ret = (struct ftab_entry){ table->text_va + words[0], words[1],
						    table->text_va + words[2] };
	}
	return rc;
}

/* struct _func by format: what precedes npcdata is alike but for the width of the entry. */
static int func_load(const struct go_table *table, const struct ftab_entry *entry,
		     struct go_func *ret)
{
	unsigned at = table->format == GO_FORMAT_116 ? 8 : 4;		    /* after the entry */
	unsigned tail = table->format == GO_FORMAT_120 ? at + 36 : at + 32; /* funcID */
	struct go_func func = { .entry_va = entry->va,
				.end_va = entry->next_va,
				.record_va = table->funcs_va + entry->offset };
	uint8_t raw[FUNC_BYTES_MAX];
	int rc;

	if (entry->offset > 1u << 31)
		return -EPROTO;
	rc = table_read(table, func.record_va, raw, tail + 4);
	if (rc < 0)
		return rc;
	memcpy(&func.name, raw + at, 4);
	memcpy(&func.pcsp, raw + at + 12, 4);
	memcpy(&func.pcdata_count, raw + at + 24, 4);
	func.id = raw[tail];
	func.flags = raw[tail + 1]; /* 1.16: padding, 0 */
	func.funcdata_count = raw[tail + 3];
	if (func.pcdata_count > 64)
		return -EPROTO;
	*ret = func;
	return 0;
}

int go_table_at(const struct go_table *table, uint32_t index, struct go_func *ret)
{
	struct ftab_entry entry;
	int rc;

	if (index >= table->func_count)
		return -ENOENT;
	rc = ftab_entry(table, index, &entry);
	return rc < 0 ? rc : func_load(table, &entry, ret);
}

int go_table_find(const struct go_table *table, uint64_t pc, struct go_func *ret)
{
	uint32_t low = 0, high = table->func_count;
	struct ftab_entry entry;
	int rc;

	if (pc < table->min_va || pc >= table->max_va)
		return -ENOENT;
	/* The last function that begins at or before pc. */
	while (high - low > 1) {
		uint32_t mid = low + (high - low) / 2;

		rc = ftab_entry(table, mid, &entry);
		if (rc < 0)
			return rc;
		if (entry.va <= pc)
			low = mid;
		else
			high = mid;
	}
	rc = ftab_entry(table, low, &entry);
	if (rc < 0)
		return rc;
	if (entry.va > pc)
		return -ENOENT;
	return func_load(table, &entry, ret);
}

/* ---- pc-value tables ------------------------------------------------------------------------- */

static bool varint32(const uint8_t *data, size_t len, size_t *at, uint32_t *ret)
{
	uint32_t value = 0;

	for (unsigned shift = 0; shift < 35 && *at < len; shift += 7) {
		uint8_t byte = data[(*at)++];

		value |= shift < 32 ? (uint32_t)(byte & 0x7f) << shift : 0;
		if (!(byte & 0x80)) {
			*ret = value;
			return true;
		}
	}
	return false;
}

/* Pairs (change of the value, length of the range); the value starts at -1 and a change of 0 ends
 * the table except at its beginning. Source: src/runtime/symtab.go, step(). */
int go_table_value(const struct go_table *table, const struct go_func *func, uint32_t offset,
		   uint64_t pc, int32_t *ret)
{
	uint64_t va = table->pctab_va + offset, range_va = func->entry_va;
	uint32_t value = UINT32_MAX;
	uint8_t piece[PCVALUE_PIECE];
	bool first = true;

	if (!offset)
		return -ENOENT;
	for (size_t done = 0; done < PCVALUE_BYTES_MAX;) {
		size_t at = 0, len = sizeof(piece);
		int rc;

		/* The table may end anywhere before unreadable memory. */
		while ((rc = table_read(table, va + done, piece, len)) < 0 && len > 16)
			len /= 2;
		if (rc < 0)
			return rc;
		for (;;) {
			size_t pair = at;
			uint32_t change, length;

			if (!varint32(piece, len, &at, &change) ||
			    (!(change == 0 && !first) && !varint32(piece, len, &at, &length))) {
				if (pair == 0)
					return -EPROTO;
				done += pair;
				break;
			}
			if (change == 0 && !first)
				return -ENOENT;
			first = false;
			value += change & 1 ? ~(change >> 1) : change >> 1;
			range_va += (uint64_t)length * table->quantum;
			if (pc < range_va) {
				*ret = (int32_t)value;
				return 0;
			}
		}
	}
	return -EPROTO;
}

/* ---- names and inlining ---------------------------------------------------------------------- */

int go_table_name(const struct go_table *table, uint32_t name, char *buf, size_t size)
{
	char text[GO_NAME_MAX] = "";
	size_t len = 0, max = size - 1 < sizeof(text) ? size - 1 : sizeof(text);

	while (len < max) {
		size_t part = max - len < 64 ? max - len : 64;
		char *end;
		int rc;

		while ((rc = table_read(table, table->names_va + name + len, text + len, part)) <
			       0 &&
		       part > 1)
			part /= 2;
		if (rc < 0)
			return rc;
		end = memchr(text + len, 0, part);
		if (end) {
			len = (size_t)(end - text);
			break;
		}
		len += part;
	}
	memcpy(buf, text, len);
	buf[len] = '\0';
	return 0;
}

/* Address of the function's inline tree, 0 = none. */
static int inline_tree_va(const struct go_table *table, const struct go_func *func, uint64_t *ret)
{
	unsigned fixed = table->format == GO_FORMAT_118 ? 40 : 44;
	uint64_t va = func->record_va + fixed + func->pcdata_count * (uint64_t)4;
	int rc;

	*ret = 0;
	if (func->funcdata_count <= FUNCDATA_INLINE_TREE)
		return 0;
	if (table->format == GO_FORMAT_116) {
		/* Absolute pointers, aligned. */
		va = (va + 7) & ~(uint64_t)7;
		return table_read(table, va + FUNCDATA_INLINE_TREE * 8, ret, sizeof(*ret));
	} else {
		uint32_t offset;

		rc = table_read(table, va + FUNCDATA_INLINE_TREE * 4, &offset, sizeof(offset));
		if (rc == 0 && offset != UINT32_MAX && table->gofunc_va)
			*ret = table->gofunc_va + offset;
		return rc;
	}
}

int go_table_inlined(const struct go_table *table, const struct go_func *func, uint64_t pc,
		     uint32_t *ret_name, uint64_t *ret_parent)
{
	unsigned size = table->format == GO_FORMAT_120 ? 16 : 20;
	unsigned fixed = table->format == GO_FORMAT_118 ? 40 : 44;
	uint32_t offset, name;
	uint64_t tree_va;
	uint8_t call[20];
	int32_t index, parent;
	int rc;

	if (func->pcdata_count <= PCDATA_INLINE_TREE)
		return 0;
	rc = table_read(table, func->record_va + fixed + PCDATA_INLINE_TREE * 4, &offset,
			sizeof(offset));
	if (rc < 0)
		return rc;
	rc = go_table_value(table, func, offset, pc, &index);
	if (rc == -ENOENT || (rc == 0 && index < 0))
		return 0;
	if (rc == 0)
		rc = inline_tree_va(table, func, &tree_va);
	if (rc < 0)
		return rc;
	if (!tree_va)
		return 0;
	rc = table_read(table, tree_va + (uint64_t)index * size, call, size);
	if (rc < 0)
		return rc;
	memcpy(&name, call + (size == 16 ? 4 : 12), sizeof(name));
	memcpy(&parent, call + (size == 16 ? 8 : 16), sizeof(parent));
	if (parent < 0)
		return -EPROTO;
	*ret_name = name;
	*ret_parent = func->entry_va + (uint64_t)parent;
	return 1;
}
