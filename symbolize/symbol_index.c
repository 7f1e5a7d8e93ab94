// SPDX-License-Identifier: Apache-2.0
#include "symbolize/symbol_index.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "agent/base/io.h"
#include "symbolize/cfi_functions.h"
#include "symbolize/demangle.h"
#include "symbolize/dwarf_index.h"
#include "symbolize/elf_plt.h"
#include "symbolize/elf_symbols.h"
#include "symbolize/gopclntab.h"
#include "symbolize/index_builder.h"
#include "symbolize/kallsyms.h"
#include "symbolize/symbol_image.h"

_Static_assert(INDEX_DEPTH_MAX == SYMBOL_INLINE_MAX, "a chain of the image fits an answer");

struct symbol_index {
	const struct symbol_image_head *head;
	size_t bytes;
	bool mapped; /* else owned by malloc */
	struct demangle_cache *names;

	/* Parts of the image. */
	const uint64_t *symbol_start;
	const uint32_t *symbol_name;
	const uint32_t *range_start;
	const uint32_t *range_node;
	const struct symbol_image_node *nodes;
	const struct symbol_image_function *functions;
	const uint32_t *line_start;
	const struct symbol_image_line *lines;
	const struct symbol_image_extent *extents;
	const char *strings;
	size_t symbol_count;
	size_t range_count;
	size_t line_count;
	size_t extent_count;
};

static const void *part(const struct symbol_image_head *head, enum symbol_image_part which)
{
	return (const char *)head + head->parts[which].offset;
}

/* Takes the image over. */
static int wrap_take(const void *image, size_t bytes, bool mapped, struct symbol_index **ret)
{
	const struct symbol_image_head *head = image;
	struct symbol_index *index = calloc(1, sizeof(*index));

	if (!index)
		return -ENOMEM;
	*index = (struct symbol_index){
		.head = head,
		.bytes = bytes,
		.mapped = mapped,
		.names = demangle_cache_create(),
		.symbol_start = part(head, SYMBOL_IMAGE_SYMBOL_START),
		.symbol_name = part(head, SYMBOL_IMAGE_SYMBOL_NAME),
		.range_start = part(head, SYMBOL_IMAGE_RANGE_START),
		.range_node = part(head, SYMBOL_IMAGE_RANGE_NODE),
		.nodes = part(head, SYMBOL_IMAGE_NODES),
		.functions = part(head, SYMBOL_IMAGE_FUNCTIONS),
		.line_start = part(head, SYMBOL_IMAGE_LINE_START),
		.lines = part(head, SYMBOL_IMAGE_LINES),
		.extents = part(head, SYMBOL_IMAGE_EXTENTS),
		.strings = part(head, SYMBOL_IMAGE_STRINGS),
		.symbol_count = head->parts[SYMBOL_IMAGE_SYMBOL_START].count,
		.range_count = head->parts[SYMBOL_IMAGE_RANGE_START].count,
		.line_count = head->parts[SYMBOL_IMAGE_LINE_START].count,
		.extent_count = head->parts[SYMBOL_IMAGE_EXTENTS].count,
	};
	if (!index->names) {
		free(index);
		return -ENOMEM;
	}
	*ret = index;
	return 0;
}

void symbol_index_destroy(struct symbol_index *index)
{
	if (!index)
		return;
	demangle_cache_destroy(index->names);
	if (index->mapped)
		(void)munmap((void *)(uintptr_t)index->head, index->bytes);
	else
		free((void *)(uintptr_t)index->head);
	free(index);
}

/* ---- building -------------------------------------------------------------------------------- */

/* True if a table was there; a damaged one counts as absent, so that what else there is still
 * names. */
static int load_table(Elf *elf, unsigned type, unsigned origin, const struct elf_segments *segments,
		      struct index_builder *builder)
{
	int rc = elf ? elf_symbols_load(elf, type, segments, builder) : -ENOENT;

	if (rc > 0)
		builder->origins |= origin;
	return rc == -ENOENT || rc == -ENOEXEC ? 0 : rc;
}

static int load_minidebug(Elf *elf, const struct elf_segments *segments,
			  struct index_builder *builder)
{
	cleanup_close int fd = -1;
	Elf *inner = NULL;
	int rc = elf_debug_open_minidebug(elf, &inner, &fd);

	if (rc < 0)
		return rc == -ENOMEM ? rc : 0;
	rc = load_table(inner, SHT_SYMTAB, SYMBOL_ORIGIN_MINIDEBUG, segments, builder);
	elf_end(inner);
	return rc;
}

static int load_symbols(Elf *elf, Elf *debug, const struct elf_segments *segments,
			struct index_builder *builder)
{
	int rc = load_table(elf, SHT_SYMTAB, SYMBOL_ORIGIN_SYMTAB, segments, builder);

	if (!rc)
		rc = load_table(debug, SHT_SYMTAB, SYMBOL_ORIGIN_SYMTAB, segments, builder);
	if (rc)
		return rc < 0 ? rc : 0;
	/* The small table of .gnu_debugdata leaves out what .dynsym has. */
	rc = load_table(elf, SHT_DYNSYM, SYMBOL_ORIGIN_DYNSYM, segments, builder);
	return rc < 0 ? rc : load_minidebug(elf, segments, builder);
}

/* The file that dwz moved shared descriptions to; NULL if there is none or it is not found. */
static struct elf_file *find_alt(Elf *elf, const struct debug_finder *finder,
				 struct index_builder *builder)
{
	struct elf_alt_link link;
	struct elf_file *alt;

	if (elf_alt_link_load(elf, &link) < 0)
		return NULL;
	if (finder && finder->find(finder->ctx, DEBUG_ALT, link.name, link.build_id,
				   link.build_id_len, &alt) >= 0) {
		if (alt->identity.build_id_len == link.build_id_len &&
		    !memcmp(alt->identity.build_id, link.build_id, link.build_id_len))
			return alt;
		elf_file_close(alt);
	}
	builder->origins |= SYMBOL_ORIGIN_PARTIAL;
	return NULL;
}

static int load_dwarf_of(Elf *elf, const struct debug_finder *finder,
			 const struct elf_segments *segments, struct index_builder *builder)
{
	cleanup(elf_file) struct elf_file *alt = NULL;
	uint64_t ev, fo, len;

	if (!elf_section_place(elf, ".debug_info", &ev, &fo, &len))
		return -ENOENT;
	alt = find_alt(elf, finder, builder);
	return dwarf_index_load(
		&(struct dwarf_index_files){ .elf = elf, .alt = alt ? alt->elf : NULL, .finder = finder },
		segments, builder->origins & SYMBOL_ORIGIN_GOPCLNTAB, builder);
}

static int load_dwarf(const struct symbol_index_files *files, const struct elf_segments *segments,
		      struct index_builder *builder)
{
	int rc = -ENOENT;

	if (files->debug)
		rc = load_dwarf_of(files->debug, files->finder, segments, builder);
	if (rc == -ENOENT)
		rc = load_dwarf_of(files->elf, files->finder, segments, builder);
	return rc == -ENOENT || rc == -ENOEXEC ? 0 : rc;
}

/* Symbols of @former, of them all (@suffix NULL) those that end so. */
static int keep_symbols(const struct symbol_index *former, const char *suffix,
			struct index_builder *builder)
{
	int rc = 0;

	for (size_t i = 0; rc >= 0 && i < former->symbol_count; i++) {
		const char *name = former->strings + former->symbol_name[i];
		uint64_t end = i + 1 < former->symbol_count ? former->symbol_start[i + 1] : UINT64_MAX;
		size_t len = strlen(name), tail = suffix ? strlen(suffix) : 0;
		uint32_t string;

		if (!len || len < tail || (tail && strcmp(name + len - tail, suffix) != 0))
			continue;
		rc = index_builder_string(builder, name, len, &string);
		if (rc >= 0)
			rc = index_builder_former(builder, former->symbol_start[i], end, string);
	}
	return rc;
}

/* Adds what a debug file does not say: names of call stubs, which are in relocations, and where
 * functions without a name begin. */
static int keep_former(const struct symbol_index *former, struct index_builder *builder)
{
	int rc = keep_symbols(former, "@plt", builder);

	for (size_t i = 0; rc >= 0 && i < former->extent_count; i++)
		rc = index_builder_extent(builder, former->extents[i].start, former->extents[i].end);
	return rc;
}

static int finish(struct index_builder *builder, struct symbol_index **ret)
{
	cleanup_free void *image = NULL;
	size_t bytes;
	int rc = index_builder_finish(builder, &image, &bytes);

	if (rc < 0)
		return rc;
	rc = wrap_take(image, bytes, false, ret);
	if (rc < 0)
		return rc;
	image = NULL;
	return 0;
}

/* Names of Go code come from pclntab alone: it is complete, and in stripped programs too. */
static int load_all(const struct symbol_index_files *files, const struct elf_segments *segments,
		    bool with_dwarf, struct index_builder *builder)
{
	int rc = gopclntab_load(files->elf, segments, builder);

	if (rc == -E2BIG)
		index_builder_deinit(builder);
	else if (rc < 0 && rc != -ENOENT && rc != -ENOEXEC)
		return rc;
	rc = cfi_functions_load(files->elf, builder);
	if (rc == -ENOMEM)
		return rc;
	rc = files->former ? keep_former(files->former, builder) : 0;
	if (rc < 0)
		return rc;
	rc = load_symbols(files->elf, files->debug, segments, builder);
	if (rc >= 0)
		rc = elf_plt_load(files->elf, segments, builder);
	if (rc < 0 || !with_dwarf)
		return rc;
	return load_dwarf(files, segments, builder);
}

int symbol_index_build_files(const struct symbol_index_files *files, struct symbol_index **ret)
{
	cleanup_index_builder struct index_builder builder = { 0 };
	struct elf_segments segments;
	int rc = elf_segments_load(files->elf, &segments);

	if (rc < 0)
		return rc;
	rc = load_all(files, &segments, true, &builder);
	if (rc == -E2BIG || rc == -ENOMEM) {
		/* Too much debug information: function names alone are better than nothing. */
		index_builder_deinit(&builder);
		rc = load_all(files, &segments, false, &builder);
	}
	return rc < 0 ? rc : finish(&builder, ret);
}

int symbol_index_build(Elf *elf, Elf *debug, struct symbol_index **ret)
{
	return symbol_index_build_files(&(struct symbol_index_files){ .elf = elf, .debug = debug },
					ret);
}

int symbol_index_build_kallsyms(int fd, const struct symbol_index *former,
				struct symbol_index **ret, uint64_t *ret_text_va)
{
	cleanup_index_builder struct index_builder builder = { 0 };
	cleanup_free char *text = NULL;
	uint64_t text_va;
	size_t len;
	int rc = io_read_fd(fd, KALLSYMS_BYTES_MAX, &text, &len);

	if (rc >= 0)
		rc = kallsyms_parse(text, len, &builder, &text_va);
	if (rc >= 0 && former)
		rc = keep_symbols(former, NULL, &builder);
	if (rc >= 0)
		rc = finish(&builder, ret);
	if (rc < 0)
		return rc;
	*ret_text_va = text_va;
	return 0;
}

/* ---- stored images --------------------------------------------------------------------------- */

const void *symbol_index_image(const struct symbol_index *index, size_t *ret_bytes)
{
	*ret_bytes = index->bytes;
	return index->head;
}

static bool head_is_valid(const struct symbol_image_head *head, size_t bytes)
{
	uint64_t at = sizeof(*head);

	if (bytes < sizeof(*head) || memcmp(head->magic, SYMBOL_IMAGE_MAGIC, 8) ||
	    head->version != SYMBOL_IMAGE_VERSION || head->bytes != bytes)
		return false;
	for (int i = 0; i < SYMBOL_IMAGE_PART_MAX; i++) {
		uint64_t count = head->parts[i].count;

		if (head->parts[i].offset != at ||
		    count > (bytes - at) / symbol_image_element_bytes[i])
			return false;
		at = (at + count * symbol_image_element_bytes[i] + 7) & ~7ull;
		if (at > bytes)
			return false;
	}
	return at == bytes &&
	       head->parts[SYMBOL_IMAGE_SYMBOL_NAME].count ==
		       head->parts[SYMBOL_IMAGE_SYMBOL_START].count &&
	       head->parts[SYMBOL_IMAGE_RANGE_NODE].count ==
		       head->parts[SYMBOL_IMAGE_RANGE_START].count &&
	       head->parts[SYMBOL_IMAGE_LINES].count ==
		       head->parts[SYMBOL_IMAGE_LINE_START].count &&
	       head->parts[SYMBOL_IMAGE_STRINGS].count <= UINT32_MAX;
}

static bool strings_are_valid(const struct symbol_image_head *head)
{
	size_t count = head->parts[SYMBOL_IMAGE_STRINGS].count;
	const char *strings = part(head, SYMBOL_IMAGE_STRINGS);

	return count && !strings[0] && !strings[count - 1];
}

static bool starts_are_valid(const struct symbol_image_head *head)
{
	const uint64_t *symbols = part(head, SYMBOL_IMAGE_SYMBOL_START);
	const uint32_t *ranges = part(head, SYMBOL_IMAGE_RANGE_START);
	const uint32_t *lines = part(head, SYMBOL_IMAGE_LINE_START);
	const struct symbol_image_extent *extents = part(head, SYMBOL_IMAGE_EXTENTS);

	for (size_t i = 1; i < head->parts[SYMBOL_IMAGE_SYMBOL_START].count; i++)
		if (symbols[i] <= symbols[i - 1])
			return false;
	for (size_t i = 1; i < head->parts[SYMBOL_IMAGE_RANGE_START].count; i++)
		if (ranges[i] <= ranges[i - 1])
			return false;
	for (size_t i = 1; i < head->parts[SYMBOL_IMAGE_LINE_START].count; i++)
		if (lines[i] < lines[i - 1])
			return false;
	for (size_t i = 0; i < head->parts[SYMBOL_IMAGE_EXTENTS].count; i++)
		if (extents[i].end <= extents[i].start || (i && extents[i].start < extents[i - 1].end))
			return false;
	return true;
}

static bool tables_are_valid(const struct symbol_image_head *head)
{
	const uint32_t *names = part(head, SYMBOL_IMAGE_SYMBOL_NAME);
	const uint32_t *range_nodes = part(head, SYMBOL_IMAGE_RANGE_NODE);
	const struct symbol_image_node *nodes = part(head, SYMBOL_IMAGE_NODES);
	const struct symbol_image_function *functions = part(head, SYMBOL_IMAGE_FUNCTIONS);
	const struct symbol_image_line *lines = part(head, SYMBOL_IMAGE_LINES);
	size_t node_count = head->parts[SYMBOL_IMAGE_NODES].count;
	size_t function_count = head->parts[SYMBOL_IMAGE_FUNCTIONS].count;
	size_t string_count = head->parts[SYMBOL_IMAGE_STRINGS].count;

	for (size_t i = 0; i < head->parts[SYMBOL_IMAGE_SYMBOL_NAME].count; i++)
		if (names[i] >= string_count)
			return false;
	for (size_t i = 0; i < head->parts[SYMBOL_IMAGE_RANGE_NODE].count; i++)
		if (range_nodes[i] != SYMBOL_IMAGE_NONE && range_nodes[i] >= node_count)
			return false;
	for (size_t i = 0; i < node_count; i++)
		if ((nodes[i].parent != SYMBOL_IMAGE_NONE && nodes[i].parent >= i) ||
		    nodes[i].function >= function_count || nodes[i].call_file >= string_count)
			return false;
	for (size_t i = 0; i < function_count; i++)
		if (functions[i].name >= string_count || functions[i].file >= string_count)
			return false;
	for (size_t i = 0; i < head->parts[SYMBOL_IMAGE_LINES].count; i++)
		if (lines[i].file >= string_count)
			return false;
	return true;
}

static bool image_is_valid(const void *image, size_t bytes)
{
	const struct symbol_image_head *head = image;

	return head_is_valid(head, bytes) && strings_are_valid(head) && starts_are_valid(head) &&
	       tables_are_valid(head);
}

/* The file is mapped, not copied: the cache's files are replaced by rename and never written in
 * place. */
int symbol_index_open(int fd, struct symbol_index **ret)
{
	struct stat st;
	void *image;
	int rc;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size < (off_t)sizeof(struct symbol_image_head))
		return -EPROTO;
	image = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (image == MAP_FAILED)
		return -errno;
	rc = image_is_valid(image, (size_t)st.st_size)
		     ? wrap_take(image, (size_t)st.st_size, true, ret)
		     : -EPROTO;
	if (rc < 0)
		(void)munmap(image, (size_t)st.st_size);
	return rc;
}

/* ---- look-up --------------------------------------------------------------------------------- */

/* Number of entries of a sorted table that are not above @at. */
static size_t count_u32(const uint32_t *starts, size_t count, uint32_t at)
{
	size_t low = 0;

	while (count > 0) {
		size_t half = count / 2;

		if (starts[low + half] <= at) {
			low += half + 1;
			count -= half + 1;
		} else {
			count = half;
		}
	}
	return low;
}

static size_t count_u64(const uint64_t *starts, size_t count, uint64_t at)
{
	size_t low = 0;

	while (count > 0) {
		size_t half = count / 2;

		if (starts[low + half] <= at) {
			low += half + 1;
			count -= half + 1;
		} else {
			count = half;
		}
	}
	return low;
}

static uint32_t find_symbol(const struct symbol_index *index, uint64_t fo)
{
	size_t at = count_u64(index->symbol_start, index->symbol_count, fo);

	return at ? index->symbol_name[at - 1] : 0;
}

static uint32_t find_node(const struct symbol_index *index, uint64_t fo)
{
	size_t at = fo < UINT32_MAX
			    ? count_u32(index->range_start, index->range_count, (uint32_t)fo)
			    : 0;

	return at ? index->range_node[at - 1] : SYMBOL_IMAGE_NONE;
}

static struct symbol_image_line find_line(const struct symbol_index *index, uint64_t fo)
{
	size_t at = fo < UINT32_MAX ? count_u32(index->line_start, index->line_count, (uint32_t)fo)
				    : 0;

	return at ? index->lines[at - 1] : (struct symbol_image_line){ 0, 0 };
}

static struct symbol_frame frame_of(const struct symbol_index *index, uint32_t name, uint32_t file,
				    uint32_t line, uint32_t start_line)
{
	const char *symbol = index->strings + name, *shown = demangle_cached(index->names, symbol);

	return (struct symbol_frame){ .function = shown,
				      .file = index->strings + file,
				      .line = line,
				      .start_line = start_line & ~SYMBOL_IMAGE_WRAPPER,
				      .symbol = shown == symbol ? NULL : symbol,
				      .is_wrapper = start_line & SYMBOL_IMAGE_WRAPPER };
}

/* Frames without a name (their description is in a file that was not there) are left out: what is
 * shown then is the place where they were called. So are Go's wrappers, if any other frame is left.
 */
static int find_chain(const struct symbol_index *index, uint32_t at, struct symbol_image_line line,
		      uint32_t symbol, struct symbol_frame ret[SYMBOL_INLINE_MAX])
{
	struct symbol_frame wrapper = { 0 };
	int count = 0;

	for (unsigned depth = 0; at != SYMBOL_IMAGE_NONE && depth < SYMBOL_INLINE_MAX; depth++) {
		const struct symbol_image_node *node = &index->nodes[at];
		const struct symbol_image_function *function = &index->functions[node->function];
		uint32_t name = function->name;
		struct symbol_frame frame;

		/* The symbol table's name for the function itself: it tells clones (.cold, .part.0)
		 * apart, and the name stays when debug information appears or goes. */
		if (node->parent == SYMBOL_IMAGE_NONE && symbol)
			name = symbol;
		if (name) {
			frame = frame_of(index, name, line.file ? line.file : function->file, line.line,
					 function->start_line);
			if (!frame.is_wrapper)
				ret[count++] = frame;
			else if (!wrapper.function)
				wrapper = frame;
		}
		line = (struct symbol_image_line){ node->call_file, node->call_line };
		at = node->parent;
	}
	if (!count && wrapper.function)
		ret[count++] = wrapper;
	return count;
}

static int compare_extent(const void *fo, const void *extent)
{
	const struct symbol_image_extent *e = extent;
	uint64_t at = *(const uint64_t *)fo;

	return at < e->start ? -1 : at >= e->end;
}

static int find_nameless(const struct symbol_index *index, uint64_t fo, struct symbol_frame *ret)
{
	const struct symbol_image_extent *extent =
		bsearch(&fo, index->extents, index->extent_count, sizeof(*index->extents), compare_extent);

	if (!extent)
		return 0;
	*ret = (struct symbol_frame){ .function = "",
				      .file = "",
				      .from_start = (uint32_t)(fo - extent->start) };
	return 1;
}

int symbol_index_find(const struct symbol_index *index, uint64_t file_offset,
		      struct symbol_frame ret[SYMBOL_INLINE_MAX])
{
	uint32_t symbol = find_symbol(index, file_offset);
	uint32_t node = find_node(index, file_offset);
	struct symbol_image_line line = find_line(index, file_offset);
	int count = 0;

	demangle_cache_trim(index->names);
	if (node != SYMBOL_IMAGE_NONE)
		count = find_chain(index, node, line, symbol, ret);
	if (count)
		return count;
	if (!symbol)
		return find_nameless(index, file_offset, ret);
	ret[0] = frame_of(index, symbol, line.file, line.line, 0);
	return 1;
}

unsigned symbol_index_origins(const struct symbol_index *index)
{
	return index->head->origins;
}
