// SPDX-License-Identifier: Apache-2.0
/* The pass keeps one level per open DIE: the node of the inline tree it belongs to and the scope
 * for qualified names. Every subprogram with code and every inlined_subroutine becomes a node at
 * once; its function is only remembered by the offset of the DIE that describes it. After the pass
 * those offsets are resolved in ascending order (one decoded DIE per step of a chain, units found
 * by offset). */
#include "symbolize/dwarf_index.h"

#include <dwarf.h>
#include <errno.h>
#include <string.h>

#include "symbolize/dwarf_die.h"
#include "symbolize/dwarf_lines.h"
#include "symbolize/dwarf_split.h"
#include "symbolize/index_sort.h"

#define ALT_BIT		 (1ull << 63) /* of a DIE offset: in the supplementary file */
#define QUALIFIED_MAX	 2048u	      /* bytes of a qualified name */
#define WORK_PER_DIE	 4u
#define WORK_PER_RESOLVE 64u
#define NO_SCOPE	 UINT32_MAX

struct level {
	uint32_t node;	/* SYMBOL_IMAGE_NONE = not in code */
	uint32_t scope; /* NO_SCOPE = the unit itself */
};

/* A namespace or type around functions. */
struct scope {
	uint32_t parent;
	uint16_t tag;
	const char *name; /* in the file; NULL = anonymous */
};

VEC_DEFINE(scopes, struct scope);
VEC_DEFINE(dies, uint64_t);

struct pass {
	struct dwarf *dwarf;
	struct dwarf *main; /* the file whose code is indexed; differs while the alt file is read */
	struct dwarf_lines *lines;
	const struct elf_segments *segments;
	struct index_builder *builder;
	bool skip_go, skipped_go;
	size_t first_node;
	/* Functions by the DIE that describes them; nodes hold positions in @functions until resolved. */
	struct dies_vec functions;
	struct u64map function_by_die;
	/* Qualified names of DIEs that have no linkage name: DIE -> builder string. */
	struct u64map qualified;
	struct scopes_vec scopes; /* of the current unit */
	struct level levels[DWARF_INDEX_DEPTH_MAX];
};

static void pass_destroy(struct pass *pass)
{
	dies_vec_deinit(&pass->functions);
	u64map_deinit(&pass->function_by_die);
	u64map_deinit(&pass->qualified);
	scopes_vec_deinit(&pass->scopes);
	free(pass);
}
CLEANUP_DEFINE(pass, struct pass *, pass_destroy);

/* ---- names around functions ------------------------------------------------------------------ */

static const char *scope_name(const struct scope *scope)
{
	if (scope->name)
		return scope->name;
	return scope->tag == DW_TAG_namespace ? "(anonymous namespace)" : "";
}

/* outer::inner::name, written from the right; cut at the left if it is too long. */
static int qualified_name(struct pass *pass, uint32_t scope, const char *name, uint32_t *ret)
{
	char text[QUALIFIED_MAX];
	size_t at = sizeof(text), len = strnlen(name, sizeof(text));

	at -= len;
	memcpy(text + at, name, len);
	for (; scope != NO_SCOPE; scope = pass->scopes.data[scope].parent) {
		const char *part = scope_name(&pass->scopes.data[scope]);

		len = strnlen(part, sizeof(text));
		if (!len)
			continue;
		if (len + 2 > at)
			break;
		at -= len + 2;
		memcpy(text + at, part, len);
		memcpy(text + at + len, "::", 2);
	}
	return index_builder_string(pass->builder, text + at, sizeof(text) - at, ret);
}

/* A function without linkage name inside a scope is known by its qualified name. */
static int note_qualified(struct pass *pass, const struct dwarf_unit *unit,
			  const struct dwarf_die *die, uint32_t scope)
{
	const char *name;
	uint32_t string;
	int rc;

	if (scope == NO_SCOPE || die->linkage_name.form || !die->name.form)
		return 0;
	name = dwarf_value_string(pass->dwarf, unit, &die->name);
	if (!name)
		return 0;
	if (!dwarf_pay(pass->main, WORK_PER_RESOLVE))
		return -E2BIG;
	rc = qualified_name(pass, scope, name, &string);
	if (rc < 0)
		return rc;
	return u64map_put(&pass->qualified,
			  die->offset | (pass->dwarf != pass->main ? ALT_BIT : 0), string);
}

static int push_scope(struct pass *pass, const struct dwarf_unit *unit, const struct dwarf_die *die,
		      uint32_t parent, uint32_t *ret)
{
	struct scope scope = { parent, die->tag, dwarf_value_string(pass->dwarf, unit, &die->name) };
	int rc = scopes_vec_push(&pass->scopes, scope);

	if (rc >= 0)
		*ret = (uint32_t)(pass->scopes.count - 1);
	return rc;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* Position in pass->functions of the function that the DIE at @offset describes. */
static int function_of(struct pass *pass, uint64_t offset, uint32_t *ret)
{
	uint64_t have;
	int rc;

	if (u64map_get(&pass->function_by_die, offset, &have)) {
		*ret = (uint32_t)have;
		return 0;
	}
	if (pass->functions.count >= INDEX_NODES_MAX)
		return -E2BIG;
	rc = dies_vec_push(&pass->functions, offset);
	if (rc >= 0)
		rc = u64map_put(&pass->function_by_die, offset, pass->functions.count - 1);
	if (rc >= 0)
		*ret = (uint32_t)(pass->functions.count - 1);
	return rc;
}

struct range_context {
	struct pass *pass;
	uint32_t node;
};

static int add_range(void *context, uint64_t start_ev, uint64_t end_ev)
{
	const struct range_context *at = context;
	uint64_t start_fo, end_fo;

	if (!elf_segments_range(at->pass->segments, start_ev, end_ev, &start_fo, &end_fo))
		return 0;
	return index_builder_range(at->pass->builder, at->node, start_fo, end_fo);
}

static int add_ranges(struct pass *pass, const struct dwarf_unit *unit, const struct dwarf_die *die,
		      uint32_t node)
{
	struct range_context context = { pass, node };
	uint64_t low, high;

	if (die->ranges.form) {
		int rc = dwarf_ranges(pass->dwarf, unit, &die->ranges, add_range, &context);

		return rc == -ENOEXEC ? 0 : rc;
	}
	if (!dwarf_value_address(pass->dwarf, unit, &die->low_pc, &low) || !die->high_pc.form)
		return 0;
	if (dwarf_value_is_address(&die->high_pc)) {
		if (!dwarf_value_address(pass->dwarf, unit, &die->high_pc, &high))
			return 0;
	} else if (__builtin_add_overflow(low, die->high_pc.number, &high)) {
		return 0;
	}
	return add_range(&context, low, high);
}

static bool has_code(const struct dwarf_die *die)
{
	return die->ranges.form || (die->low_pc.form && die->high_pc.form);
}

static int add_node(struct pass *pass, const struct dwarf_unit *unit, const struct dwarf_die *die,
		    uint32_t parent, uint32_t *ret)
{
	struct symbol_image_node node = { .parent = parent };
	uint64_t offset = die->offset;
	int rc;

	if (die->tag == DW_TAG_inlined_subroutine) {
		bool is_alt;

		offset = dwarf_value_reference(unit, &die->origin, &is_alt);
		if (offset == DWARF_NONE || (offset & ALT_BIT))
			return 0;
		offset |= is_alt ? ALT_BIT : 0;
		node.call_file = dwarf_lines_file(pass->lines, unit, die->call_file.number);
		node.call_line = (uint32_t)die->call_line.number;
	}
	rc = function_of(pass, offset, &node.function);
	if (rc >= 0)
		rc = index_builder_node(pass->builder, &node, ret);
	return rc < 0 ? rc : add_ranges(pass, unit, die, *ret);
}

/* Applies @die to the level below it. */
static int visit(struct pass *pass, const struct dwarf_unit *unit, const struct dwarf_die *die,
		 const struct level *outer, struct level *ret)
{
	*ret = *outer;
	if (die->tag == DW_TAG_subprogram) {
		int rc = note_qualified(pass, unit, die, outer->scope);

		ret->node = SYMBOL_IMAGE_NONE;
		if (rc < 0 || !has_code(die) || pass->dwarf != pass->main)
			return rc;
		return add_node(pass, unit, die, SYMBOL_IMAGE_NONE, &ret->node);
	}
	if (die->tag == DW_TAG_inlined_subroutine)
		return outer->node == SYMBOL_IMAGE_NONE
			       ? 0
			       : add_node(pass, unit, die, outer->node, &ret->node);
	if (dwarf_tag_is_scope(die->tag) && die->has_children)
		return push_scope(pass, unit, die, outer->scope, &ret->scope);
	return 0;
}

static int walk_dies(struct pass *pass, struct dwarf_unit *unit, const struct dwarf_table *table)
{
	const uint8_t *info = pass->dwarf->sections[DWARF_INFO].bytes;
	struct bytes at = bytes_of(info + unit->die_offset, unit->end - unit->die_offset);
	struct level *levels = pass->levels;
	size_t depth = 0;
	struct dwarf_die die = { 0 };

	levels[0] = (struct level){ SYMBOL_IMAGE_NONE, NO_SCOPE };
	while (bytes_left(&at)) {
		struct level inner;
		int rc = dwarf_die_read(unit, table, info, &at, &die);

		if (rc < 0)
			return rc;
		if (!rc) {
			if (!depth || !--depth)
				return 0;
			continue;
		}
		if (!dwarf_pay(pass->main, WORK_PER_DIE))
			return -E2BIG;
		rc = visit(pass, unit, &die, &levels[depth], &inner);
		if (rc < 0)
			return rc;
		if (!die.has_children)
			continue;
		if (dwarf_tag_is_closed(die.tag) && die.sibling > die.offset && die.sibling < unit->end &&
		    info + die.sibling >= at.at) {
			at.at = info + die.sibling;
			continue;
		}
		if (depth + 1 >= DWARF_INDEX_DEPTH_MAX)
			return -ENOEXEC;
		levels[++depth] = inner;
	}
	return 0;
}

static int walk_unit(struct pass *pass, struct dwarf_unit *unit)
{
	const struct dwarf_table *table;
	int rc = dwarf_unit_table(pass->dwarf, unit, &table);

	if (rc < 0)
		return rc;
	pass->scopes.count = 0;
	return walk_dies(pass, unit, table);
}

/* Root and lines of a unit; 1 = its DIEs are here and wanted. */
static int open_unit(struct pass *pass, struct dwarf_unit *unit)
{
	int rc;

	if (unit->type == DW_UT_type || unit->type == DW_UT_split_type)
		return 0;
	rc = dwarf_unit_load(pass->dwarf, unit);
	if (rc >= 0 && pass->skip_go && unit->language == DW_LANG_Go) {
		pass->skipped_go = true;
		return 0;
	}
	if (rc < 0)
		return rc;
	if (pass->dwarf == pass->main)
		rc = dwarf_lines_load(pass->lines, pass->dwarf, unit, pass->segments,
				      pass->builder);
	return rc < 0 ? rc : !unit->dwo_name;
}

static int walk(struct pass *pass, struct dwarf *dwarf)
{
	pass->dwarf = dwarf;
	for (size_t i = 0; i < dwarf->unit_count; i++) {
		int rc = open_unit(pass, &dwarf->units[i]);

		if (rc > 0)
			rc = walk_unit(pass, &dwarf->units[i]);
		/* A damaged unit ends early, the next one begins where its header says. */
		if (rc < 0 && rc != -ENOEXEC)
			return rc;
	}
	return 0;
}

/* ---- names of functions ---------------------------------------------------------------------- */

struct description {
	const char *name, *linkage_name; /* in the file */
	uint64_t name_die;
	uint32_t file, line;
};

/* Reads the one DIE at @offset (with ALT_BIT). */
static int read_at(struct pass *pass, uint64_t offset, struct dwarf **ret_dwarf,
		   struct dwarf_unit **ret_unit, struct dwarf_die *ret)
{
	struct dwarf *dwarf = offset & ALT_BIT ? pass->main->alt : pass->main;
	const struct dwarf_table *table;
	struct dwarf_unit *unit;
	struct bytes at;
	int rc;

	offset &= ~ALT_BIT;
	unit = dwarf ? dwarf_unit_at(dwarf, offset) : NULL;
	if (!unit)
		return -ENOEXEC;
	if (!dwarf_pay(pass->main, WORK_PER_RESOLVE))
		return -E2BIG;
	rc = dwarf_unit_load(dwarf, unit);
	if (rc >= 0)
		rc = dwarf_unit_table(dwarf, unit, &table);
	if (rc < 0)
		return rc;
	at = bytes_of(dwarf->sections[DWARF_INFO].bytes + offset, unit->end - offset);
	rc = dwarf_die_read(unit, table, dwarf->sections[DWARF_INFO].bytes, &at, ret);
	*ret_dwarf = dwarf;
	*ret_unit = unit;
	return rc == 1 && dwarf_tag_is_function(ret->tag) ? 0 : -ENOEXEC;
}

/* Takes what @die says and nothing nearer said before. */
static void describe(struct pass *pass, const struct dwarf *dwarf, const struct dwarf_unit *unit,
		     const struct dwarf_die *die, uint64_t offset, struct description *ret)
{
	if (!ret->linkage_name)
		ret->linkage_name = dwarf_value_string(dwarf, unit, &die->linkage_name);
	if (!ret->name) {
		ret->name = dwarf_value_string(dwarf, unit, &die->name);
		ret->name_die = offset;
	}
	if (!ret->file && die->decl_file.form && dwarf == pass->main)
		ret->file = dwarf_lines_file(pass->lines, unit, die->decl_file.number);
	if (!ret->line)
		ret->line = (uint32_t)die->decl_line.number;
}

static int follow(struct pass *pass, uint64_t offset, struct description *ret)
{
	for (unsigned step = 0; step < DWARF_INDEX_CHAIN_MAX; step++) {
		const struct dwarf_value *next;
		struct dwarf *dwarf;
		struct dwarf_unit *unit;
		struct dwarf_die die = { 0 };
		bool is_alt, in_alt = offset & ALT_BIT;
		int rc = read_at(pass, offset, &dwarf, &unit, &die);

		if (rc < 0)
			return rc == -ENOEXEC ? 0 : rc;
		describe(pass, dwarf, unit, &die, offset, ret);
		next = die.origin.form ? &die.origin : &die.specification;
		if (!next->form)
			return 0;
		offset = dwarf_value_reference(unit, next, &is_alt);
		if (offset == DWARF_NONE || (offset & ALT_BIT))
			return 0;
		offset |= is_alt || in_alt ? ALT_BIT : 0;
	}
	return 0;
}

static int resolve(struct pass *pass, uint64_t offset, uint32_t *ret)
{
	struct description at = { 0 };
	uint64_t qualified;
	uint32_t name = 0;
	int rc = follow(pass, offset, &at);

	if (rc < 0)
		return rc;
	if (at.linkage_name)
		rc = index_builder_string(pass->builder, at.linkage_name, SIZE_MAX, &name);
	else if (at.name && u64map_get(&pass->qualified, at.name_die, &qualified))
		name = (uint32_t)qualified;
	else if (at.name)
		rc = index_builder_string(pass->builder, at.name, SIZE_MAX, &name);
	if (rc < 0)
		return rc;
	if (!dwarf_pay(pass->main, (at.linkage_name ? strlen(at.linkage_name) : 0) / 8))
		return -E2BIG;
	return index_builder_function(pass->builder, name, at.file, at.line & ~SYMBOL_IMAGE_WRAPPER, ret);
}

/* Replaces positions in pass->functions by functions of the builder. */
static int resolve_all(struct pass *pass)
{
	size_t count = pass->functions.count;
	cleanup_free struct index_sort_item *order = malloc((count + 1) * sizeof(*order));
	cleanup_free uint32_t *ids = malloc((count + 1) * sizeof(*ids));
	int rc;

	if (!order || !ids)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		order[i] = (struct index_sort_item){ pass->functions.data[i], (uint32_t)i };
	rc = index_sort(order, count);
	for (size_t i = 0; rc >= 0 && i < count; i++)
		rc = resolve(pass, order[i].key, &ids[order[i].index]);
	if (rc < 0)
		return rc;
	for (size_t i = pass->first_node; i < pass->builder->nodes.count; i++)
		pass->builder->nodes.data[i].function =
			ids[pass->builder->nodes.data[i].function];
	return 0;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* The units of @dwarf that are read from now on name functions of their own. */
static void begin(struct pass *pass, struct dwarf *dwarf)
{
	pass->dwarf = pass->main = dwarf;
	pass->first_node = pass->builder->nodes.count;
	pass->functions.count = 0;
	u64map_deinit(&pass->function_by_die); /* not cleared: that costs the largest unit's size
						  each time */
	u64map_deinit(&pass->qualified);
}

/* Skeletons, each with its other half in another file, or, where that is not to be found, with the
 * little that some compilers leave in the skeleton (clang: inlined calls). */
static int walk_skeletons(struct pass *pass, struct dwarf *dwarf, const struct debug_finder *finder)
{
	cleanup_dwarf_split struct dwarf_split split = { .finder = finder, .main = dwarf };

	for (size_t i = 0; i < dwarf->unit_count; i++) {
		struct dwarf *half = dwarf;
		struct dwarf_unit *unit = &dwarf->units[i];
		int rc;

		if (!unit->root_loaded || !unit->dwo_name || (pass->skip_go && unit->language == DW_LANG_Go))
			continue;
		rc = dwarf_split_find(&split, unit, &half, &unit);
		if (rc < 0 && rc != -ENOENT)
			return rc;
		if (rc < 0)
			pass->builder->origins |= SYMBOL_ORIGIN_PARTIAL;
		begin(pass, rc < 0 ? dwarf : half);
		rc = walk_unit(pass, unit);
		if (rc >= 0 || rc == -ENOEXEC)
			rc = resolve_all(pass);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static void deinit_lines(struct dwarf_lines *lines)
{
	dwarf_lines_deinit(lines);
}

int dwarf_index_load(const struct dwarf_index_files *files, const struct elf_segments *segments,
		     bool skip_go, struct index_builder *builder)
{
	cleanup_dwarf struct dwarf dwarf = { 0 }, supplement = { 0 };
	__attribute__((__cleanup__(deinit_lines))) struct dwarf_lines lines = { 0 };
	cleanup(pass) struct pass *pass = calloc(1, sizeof(*pass));
	size_t first_node = builder->nodes.count;
	int rc;

	if (!pass)
		return -ENOMEM;
	rc = dwarf_open(files->elf, &dwarf);
	if (rc < 0)
		return rc;
	if (files->alt && dwarf_open(files->alt, &supplement) == 0) {
		dwarf.alt = &supplement;
		dwarf.work_left += supplement.work_left;
	}
	pass->lines = &lines;
	pass->segments = segments;
	pass->builder = builder;
	pass->skip_go = skip_go;
	begin(pass, &dwarf);
	/* A supplementary file has no code, only descriptions: its qualified names are wanted. */
	rc = dwarf.alt ? walk(pass, dwarf.alt) : 0;
	if (rc >= 0)
		rc = walk(pass, &dwarf);
	if (rc >= 0)
		rc = resolve_all(pass);
	if (rc >= 0)
		rc = walk_skeletons(pass, &dwarf, files->finder);
	if (rc < 0)
		return rc;
	if (builder->nodes.count > first_node || lines.tables.count || pass->skipped_go)
		builder->origins |= SYMBOL_ORIGIN_DWARF;
	return 0;
}
