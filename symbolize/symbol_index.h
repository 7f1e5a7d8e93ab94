/* SPDX-License-Identifier: Apache-2.0 */
/* Names of one module: a compact index, built once per build-id. Its sources are ELF symbols, DWARF
 * (functions, lines, inline tree; one linear pass, never a scope search per address) and, for Go,
 * pclntab. It is one position-independent image, which the cache stores and maps. Look-ups are by
 * FILE OFFSET. */
#ifndef PROFD_SYMBOLIZE_SYMBOL_INDEX_H
#define PROFD_SYMBOLIZE_SYMBOL_INDEX_H

#include <libelf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "symbolize/debug_finder.h"
#include "symbolize/symbol_image.h"

#define SYMBOL_INLINE_MAX 64

struct symbol_frame {
	const char *
		function; /* demangled; inside the index or the demangle cache, valid until the next
			   * find. "" = one that has no name: it is alone then, and has no file */
	const char *file;     /* "" if unknown */
	union {
		uint32_t line;	     /* 0 if unknown */
		uint32_t from_start; /* of a function without a name: bytes from there to the offset asked for */
	};
	uint32_t start_line;  /* 0 if unknown */
	const char *symbol;   /* linkage name that @function was demangled from; NULL = it is the same */
	bool is_wrapper;      /* made by Go's compiler; only where it is the only frame */
};

struct symbol_index; /* mapped or owned image */

/* The inputs of an index; all borrowed. */
struct symbol_index_files {
	Elf *elf;   /* the file itself: its program headers at least */
	Elf *debug; /* its separate debug file, or NULL */
	const struct debug_finder
		*finder; /* of further files that they name (dwz, split DWARF), or NULL */
	const struct symbol_index
		*former; /* of the same file, where @elf is no more than its headers; or NULL */
};

/* Builds from the file itself and, if there is one, its separate debug file (same build-id, checked
 * by the caller). Both borrowed. A file without any symbol gives an index that answers nothing.
 * -ENOEXEC not ELF, -E2BIG over a bound, -ENOMEM. */
int symbol_index_build(Elf *elf, Elf *debug, struct symbol_index **ret) must_use;
int symbol_index_build_files(const struct symbol_index_files *files,
			     struct symbol_index **ret) must_use;
/* Kernel: @fd is /proc/kallsyms opened with privilege. Offsets are relative to _text
 * (*ret_text_va). @former (or NULL): what it said earlier, since the machine was started; where
 * nothing is now that still counts. -EPERM addresses are hidden, -ENODATA no _text, -EFBIG, -E2BIG,
 * -ENOMEM. */
int symbol_index_build_kallsyms(int fd, const struct symbol_index *former,
				struct symbol_index **ret, uint64_t *ret_text_va) must_use;
/* The image, to be stored; and an index over a stored one (checked, copied or mapped). -EPROTO. */
const void *symbol_index_image(const struct symbol_index *index, size_t *ret_bytes);
int symbol_index_open(int fd, struct symbol_index **ret) must_use;
void symbol_index_destroy(struct symbol_index *index);
CLEANUP_DEFINE(symbol_index, struct symbol_index *, symbol_index_destroy);

/* Innermost first; the last is the function itself. Number of frames, 0 = outside all that is known
 * (an address outside every symbol is never given the nearest one's name). */
int symbol_index_find(const struct symbol_index *index, uint64_t file_offset,
		      struct symbol_frame ret[SYMBOL_INLINE_MAX]);
unsigned symbol_index_origins(const struct symbol_index *index); /* bits of enum symbol_origin */

#endif
