/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of Go's function table (pclntab) that unwinding and profile buckets need: the function
 * at a pc, the size of its frame there, its name, its id and its inlined calls. Everything is read
 * on demand through struct go_mem, so the same code runs over a live process, a file and a test's
 * array. Every value is hostile, and every loop is bounded. Pure but for those reads; not
 * thread-safe.
 *
 * Formats: Go 1.16-1.17, 1.18-1.19, 1.20 and newer, told apart by the magic; see
 * src/runtime/symtab.go and src/internal/abi/symtab.go of those versions. */
#ifndef PROFD_READER_GO_PCTAB_H
#define PROFD_READER_GO_PCTAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

#define GO_NAME_MAX	 512u /* bytes of a function name that are looked at */
#define GO_FUNCTIONS_MAX 5000000u
#define GO_INLINE_MAX	 64u /* nested inlined calls at one pc */

/* Reads exactly @len bytes at @va. 0 or negative errno. */
struct go_mem {
	int (*read)(void *ctx, uint64_t va, void *buf, size_t len);
	void *ctx;
};

enum go_format { GO_FORMAT_116 = 116, GO_FORMAT_118 = 118, GO_FORMAT_120 = 120 };

struct go_table {
	struct go_mem mem;
	enum go_format format;
	uint64_t header_va;
	uint64_t names_va; /* funcnametab */
	uint64_t pctab_va;
	uint64_t funcs_va; /* pclntable: ftab and the function records */
	uint64_t text_va;  /* what 32-bit entries are relative to: moduledata.text */
	uint64_t min_va;   /* pcs covered: [min_va, max_va) */
	uint64_t max_va;
	uint64_t gofunc_va; /* base of funcdata offsets, 1.18 and newer */
	uint32_t func_count;
	uint8_t quantum; /* smallest instruction, 1 on amd64, 4 on arm64 */
};

struct go_func {
	uint64_t entry_va;
	uint64_t end_va; /* entry of the next one */
	uint64_t record_va;
	uint32_t name; /* offset into funcnametab */
	uint32_t pcsp; /* offset into pctab */
	uint32_t pcdata_count;
	uint8_t funcdata_count;
	uint8_t id;    /* abi.FuncID: numbers differ between versions */
	uint8_t flags; /* enum go_func_flag */
};

enum go_func_flag { GO_FUNC_TOP = 1, GO_FUNC_SP_WRITE = 2 };

/* Reads the header at @va; moduledata's fields (text, pcs, gofunc) are filled by the caller
 * afterwards. -ENOEXEC no pclntab of a known version; -EFAULT. */
int go_table_open(const struct go_mem *mem, uint64_t va, struct go_table *ret) must_use;
/* True if @data (at least 8 bytes) looks like the first word of a pclntab. */
bool go_table_is_magic(const uint8_t *data);

/* The function around @pc. -ENOENT outside the table, -EPROTO damaged, -EFAULT. */
int go_table_find(const struct go_table *table, uint64_t pc, struct go_func *ret) must_use;
/* Function @index in address order. */
int go_table_at(const struct go_table *table, uint32_t index, struct go_func *ret) must_use;
/* Value of the pc-value table at @offset of pctab for @pc inside @func. -ENOENT none. */
int go_table_value(const struct go_table *table, const struct go_func *func, uint32_t offset,
		   uint64_t pc, int32_t *ret) must_use;
/* NUL-terminated name at @name, cut at @size. */
int go_table_name(const struct go_table *table, uint32_t name, char *buf, size_t size) must_use;

/* The inlined call that @pc lies in: @ret_name is its function's name offset, @ret_parent the
 * address of the call in the enclosing one. 1 = yes, 0 = the function itself. */
int go_table_inlined(const struct go_table *table, const struct go_func *func, uint64_t pc,
		     uint32_t *ret_name, uint64_t *ret_parent) must_use;

#endif
