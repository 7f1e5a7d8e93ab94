// SPDX-License-Identifier: Apache-2.0
#include "symbolize/elf_symbols.h"

#include <errno.h>
#include <string.h>

#include "symbolize/index_sort.h"

struct symbol {
	uint64_t start_ev;
	uint64_t size;	  /* 0 = unknown */
	const char *name; /* in the ELF file */
	uint32_t section;
	uint32_t rank;
};
VEC_DEFINE(symbols, struct symbol);

static void cleanup_symbols_fn(struct symbols_vec *symbols)
{
	symbols_vec_deinit(symbols);
}
#define cleanup_symbols __attribute__((__cleanup__(cleanup_symbols_fn)))

static uint32_t rank_of(const GElf_Sym *sym, const char *name, size_t len)
{
	unsigned bind = GELF_ST_BIND(sym->st_info);

	return index_builder_rank(
		(sym->st_size ? INDEX_RANK_SIZED : 0) |
			(GELF_ST_TYPE(sym->st_info) != STT_NOTYPE ? INDEX_RANK_FUNCTION : 0) |
			(bind != STB_WEAK ? INDEX_RANK_STRONG : 0) |
			(bind == STB_GLOBAL ? INDEX_RANK_GLOBAL : 0),
		name, len);
}

/* Labels of the assembler and of mapping symbols ($x, .L…) are no functions. */
static bool is_function(const GElf_Sym *sym, const char *name)
{
	unsigned type = GELF_ST_TYPE(sym->st_info);

	if (sym->st_shndx == SHN_UNDEF)
		return false;
	if (type == STT_FUNC || type == STT_GNU_IFUNC)
		return true;
	return type == STT_NOTYPE && sym->st_shndx != SHN_ABS && name[0] != '$' && name[0] != '.' &&
	       strncmp(name, "__start_", 8) && strncmp(name, "__stop_", 7);
}

static size_t name_length(const char *name)
{
	const char *version = name[0] ? strchr(name + 1, '@') : NULL;

	return version ? (size_t)(version - name) : strlen(name);
}

struct collection {
	const struct elf_segments *segments;
	struct symbols_vec *symbols;
};

static int collect_symbol(void *ctx, const char *name, const GElf_Sym *sym)
{
	const struct collection *to = ctx;

	if (!elf_segments_code(to->segments, sym->st_value) || !is_function(sym, name))
		return 0;
	return symbols_vec_push(to->symbols,
				(struct symbol){ sym->st_value, sym->st_size, name, sym->st_shndx,
						 rank_of(sym, name, name_length(name)) });
}

static int collect(Elf *elf, unsigned type, const struct elf_segments *segments,
		   struct symbols_vec *ret)
{
	struct collection to = { segments, ret };

	return elf_each_symbol(elf, type, INDEX_SYMBOLS_MAX, collect_symbol, &to);
}

static uint64_t section_end_ev(Elf *elf, uint32_t section)
{
	Elf_Scn *scn = elf_getscn(elf, section);
	GElf_Shdr shdr;

	if (!scn || !gelf_getshdr(scn, &shdr))
		return 0;
	return shdr.sh_addr + shdr.sh_size;
}

static int add(const struct symbol *symbol, uint64_t end_ev, const struct elf_segments *segments,
	       struct index_builder *builder)
{
	uint64_t start_fo, end_fo;
	uint32_t name;
	int rc;

	if (!elf_segments_range(segments, symbol->start_ev, end_ev, &start_fo, &end_fo))
		return 0;
	if (!symbol->size)
		end_fo = index_builder_extent_edge(builder, start_fo, end_fo);
	rc = index_builder_string(builder, symbol->name, name_length(symbol->name), &name);
	if (rc < 0)
		return rc;
	rc = index_builder_symbol(builder, start_fo, end_fo, name, symbol->rank);
	return rc < 0 ? rc : 1;
}

static int by_address(const struct symbols_vec *symbols, struct index_sort_item **ret)
{
	cleanup_free struct index_sort_item *items = malloc((symbols->count + 1) * sizeof(*items));
	int rc;

	if (!items)
		return -ENOMEM;
	for (size_t i = 0; i < symbols->count; i++)
		items[i] = (struct index_sort_item){ symbols->data[i].start_ev, (uint32_t)i };
	rc = index_sort(items, symbols->count);
	if (rc >= 0)
		*ret = take_ptr(items);
	return rc;
}

/* End of a symbol without a size, as far as symbols tell: the next address that has one, or its
 * section's end. */
static uint64_t unsized_end_ev(Elf *elf, const struct symbol *symbol, const uint64_t *next_ev)
{
	uint64_t end_ev = section_end_ev(elf, symbol->section);

	return next_ev && *next_ev < end_ev ? *next_ev : end_ev;
}

/* Adds the symbols @group[0..@count) that share one address. @covered_ev is the end of all sized
 * symbols so far: where one is, symbols without a size are labels inside it. */
static int add_group(Elf *elf, const struct symbol *symbols, const struct index_sort_item *group,
		     size_t count, const uint64_t *next_ev, uint64_t *covered_ev,
		     const struct elf_segments *segments, struct index_builder *builder)
{
	int added = 0;

	for (size_t i = 0; i < count; i++) {
		const struct symbol *at = &symbols[group[i].index];
		uint64_t end_ev;

		if (!__builtin_add_overflow(at->start_ev, at->size, &end_ev) &&
		    end_ev > *covered_ev)
			*covered_ev = end_ev;
	}
	for (size_t i = 0; i < count; i++) {
		const struct symbol *at = &symbols[group[i].index];
		int rc;

		if (!at->size && at->start_ev < *covered_ev)
			continue;
		rc = add(at, at->size ? at->start_ev + at->size : unsized_end_ev(elf, at, next_ev),
			 segments, builder);
		if (rc < 0)
			return rc;
		added += rc;
	}
	return added;
}

static int add_all(Elf *elf, const struct symbols_vec *symbols, const struct elf_segments *segments,
		   struct index_builder *builder)
{
	cleanup_free struct index_sort_item *order = NULL;
	uint64_t covered_ev = 0;
	int added = 0, rc = by_address(symbols, &order);
	size_t next;

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < symbols->count; i = next) {
		for (next = i + 1; next < symbols->count && order[next].key == order[i].key;)
			next++;
		rc = add_group(elf, symbols->data, order + i, next - i,
			       next < symbols->count ? &order[next].key : NULL, &covered_ev,
			       segments, builder);
		if (rc < 0)
			return rc;
		added += rc;
	}
	return added;
}

int elf_symbols_load(Elf *elf, unsigned section_type, const struct elf_segments *segments,
		     struct index_builder *builder)
{
	cleanup_symbols struct symbols_vec symbols = { 0 };
	int rc = collect(elf, section_type, segments, &symbols);

	if (rc < 0)
		return rc;
	return add_all(elf, &symbols, segments, builder);
}
