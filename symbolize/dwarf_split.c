// SPDX-License-Identifier: Apache-2.0
#include "symbolize/dwarf_split.h"

#include <dwarf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define COLUMNS_MAX    16u   /* kinds of sections of a package's index */
#define WORK_PER_MATCH 256u  /* trying one unit */
#define PATH_BYTES_MAX 4096u /* of a .dwo file */

static void close_file(struct dwarf_split_file *file)
{
	dwarf_close(&file->dwarf);
	elf_file_close(file->elf);
	file->elf = NULL;
}

void dwarf_split_deinit(struct dwarf_split *split)
{
	close_file(&split->package);
	close_file(&split->single);
	free(split->single_path);
	dwarf_contributions_vec_deinit(&split->contributions);
	u64map_deinit(&split->contribution_by_id);
	*split = (struct dwarf_split){ 0 };
}

/* ---- units ----------------------------------------------------------------------------------- */

/* Copies into a split unit what its skeleton and its place in a package say (NULL: the unit is
 * alone in its file). Then each base of a table is the end of the header of the only table there
 * is. */
static void bind(struct dwarf_unit *unit, const struct dwarf_unit *skeleton,
		 const struct dwarf_contribution *at)
{
	bool wide = unit->offset_bytes == 8;

	if (at) {
		unit->abbrev_offset += at->abbrev;
		unit->str_offsets_base = at->str_offsets;
		unit->rnglists_base = at->rnglists;
	} else {
		unit->str_offsets_base = unit->rnglists_base = 0;
	}
	if (unit->version >= 5) {
		unit->str_offsets_base += wide ? 16 : 8;
		unit->rnglists_base += wide ? 20 : 12;
	}
	unit->addr_base = skeleton->addr_base;
	unit->ranges_base = skeleton->split_ranges_base;
	unit->line_table = skeleton->line_table;
}

/* Takes @unit if it is @skeleton's other half. */
static int take_unit(struct dwarf *dwarf, struct dwarf_unit *unit,
		     const struct dwarf_unit *skeleton, const struct dwarf_contribution *at)
{
	struct dwarf_unit before = *unit;
	int rc;

	if (unit->taken || unit->version != skeleton->version || unit->type == DW_UT_type ||
	    unit->type == DW_UT_split_type)
		return -ENOENT;
	if (!dwarf_pay(dwarf, WORK_PER_MATCH))
		return -ENOENT;
	bind(unit, skeleton, at);
	rc = dwarf_unit_load(dwarf, unit);
	if (rc < 0 || unit->dwo_id != skeleton->dwo_id) {
		*unit = before;
		return rc == -ENOMEM ? rc : -ENOENT;
	}
	unit->base_ev = skeleton->base_ev;
	unit->taken = true;
	return 0;
}

/* ---- packages -------------------------------------------------------------------------------- */

/* Columns of the index are named by DW_SECT_ numbers, which DWARF 5 changed from GNU's. */
enum { SECT_INFO = 1, SECT_ABBREV = 3, SECT_STR_OFFSETS = 6, SECT_RNGLISTS = 8 };

struct unit_index {
	uint32_t version, columns, units, slots;
	struct bytes ids;     /* u64 each, @slots */
	struct bytes rows;    /* u32 each, @slots; 0 = no unit, else row from 1 */
	uint32_t kinds[COLUMNS_MAX];
	const uint8_t *table; /* @units rows of @columns u32 */
};

static int read_index(const struct elf_section *section, struct unit_index *ret)
{
	struct bytes at = bytes_of(section->bytes, section->len);
	const uint8_t *ids, *rows;

	ret->version = bytes_u32(&at) & 0xffff; /* u32 in GNU's, u16 and padding in DWARF 5's */
	ret->columns = bytes_u32(&at);
	ret->units = bytes_u32(&at);
	ret->slots = bytes_u32(&at);
	if (at.failed || (ret->version != 2 && ret->version != 5) || ret->columns > COLUMNS_MAX ||
	    ret->units > DWARF_SPLIT_UNITS_MAX || ret->slots > 4 * DWARF_SPLIT_UNITS_MAX)
		return -ENOEXEC;
	ids = bytes_take(&at, 8ull * ret->slots);
	rows = bytes_take(&at, 4ull * ret->slots);
	for (uint32_t i = 0; i < ret->columns; i++)
		ret->kinds[i] = bytes_u32(&at);
	ret->table = bytes_take(&at, 4ull * ret->columns * ret->units);
	if (at.failed || !ids || !rows || !ret->table)
		return -ENOEXEC;
	ret->ids = bytes_of(ids, 8ull * ret->slots);
	ret->rows = bytes_of(rows, 4ull * ret->slots);
	return 0;
}

static struct dwarf_contribution read_row(const struct unit_index *index, uint32_t row)
{
	struct bytes at = bytes_of(index->table + 4ull * index->columns * row, 4ull * index->columns);
	struct dwarf_contribution ret = { .info = UINT64_MAX };

	for (uint32_t i = 0; i < index->columns; i++) {
		uint64_t offset = bytes_u32(&at);

		if (index->kinds[i] == SECT_INFO)
			ret.info = offset;
		else if (index->kinds[i] == SECT_ABBREV)
			ret.abbrev = offset;
		else if (index->kinds[i] == SECT_STR_OFFSETS)
			ret.str_offsets = offset;
		else if (index->kinds[i] == SECT_RNGLISTS && index->version == 5)
			ret.rnglists = offset;
	}
	return ret;
}

static int load_contributions(struct dwarf_split *split)
{
	cleanup_elf_section struct elf_section section = { 0 };
	struct unit_index index;
	int rc = elf_section_load(split->package.elf->elf, ".debug_cu_index", &section);

	if (rc >= 0)
		rc = read_index(&section, &index);
	while (rc >= 0 && bytes_left(&index.rows)) {
		uint64_t id = bytes_u64(&index.ids);
		uint32_t row = bytes_u32(&index.rows);

		if (!row || row > index.units)
			continue;
		rc = u64map_put(&split->contribution_by_id, id, split->contributions.count);
		if (rc >= 0)
			rc = dwarf_contributions_vec_push(&split->contributions,
							  read_row(&index, row - 1));
	}
	return rc;
}

/* The package is asked for once; one that is damaged counts as absent. */
static int open_package(struct dwarf_split *split)
{
	struct dwarf_split_file *package = &split->package;
	int rc;

	if (split->package_asked)
		return package->elf ? 0 : -ENOENT;
	split->package_asked = true;
	rc = split->finder->find(split->finder->ctx, DEBUG_PACKAGE, "", NULL, 0, &package->elf);
	if (rc < 0)
		return rc;
	rc = dwarf_open_split(package->elf->elf, split->main, &package->dwarf);
	if (rc >= 0)
		rc = load_contributions(split);
	if (rc < 0)
		close_file(package);
	return rc;
}

static int find_in_package(struct dwarf_split *split, const struct dwarf_unit *skeleton,
			   struct dwarf_unit **ret)
{
	struct dwarf *dwarf = &split->package.dwarf;
	const struct dwarf_contribution *at;
	struct dwarf_unit *unit;
	uint64_t position;
	int rc = open_package(split);

	if (rc < 0)
		return rc == -ENOMEM ? rc : -ENOENT;
	if (!u64map_get(&split->contribution_by_id, skeleton->dwo_id, &position))
		return -ENOENT;
	at = &split->contributions.data[position];
	unit = dwarf_unit_from(dwarf, at->info);
	if (!unit)
		return -ENOENT;
	rc = take_unit(dwarf, unit, skeleton, at);
	if (rc >= 0)
		*ret = unit;
	return rc;
}

/* ---- files of one compilation ---------------------------------------------------------------- */

static int open_single(struct dwarf_split *split, const struct dwarf_unit *skeleton)
{
	const char *folder = skeleton->comp_dir && skeleton->dwo_name[0] != '/' ? skeleton->comp_dir : "";
	char path[PATH_BYTES_MAX];
	int len = snprintf(path, sizeof(path), "%s%s%s", folder, folder[0] ? "/" : "", skeleton->dwo_name);
	int rc;

	if (len <= 0 || (size_t)len >= sizeof(path))
		return -ENOENT;
	if (split->single_path && !strcmp(split->single_path, path))
		return split->single.elf ? 0 : -ENOENT;
	close_file(&split->single);
	free(split->single_path);
	split->single_path = strdup(path);
	if (!split->single_path)
		return -ENOMEM;
	if (split->files >= DWARF_SPLIT_FILES_MAX || split->bytes > DWARF_SPLIT_BYTES_MAX)
		return -ENOENT;
	split->files++;
	rc = split->finder->find(split->finder->ctx, DEBUG_SPLIT, path, NULL, 0, &split->single.elf);
	if (rc < 0)
		return rc;
	split->bytes += split->single.elf->size_bytes;
	rc = dwarf_open_split(split->single.elf->elf, split->main, &split->single.dwarf);
	if (rc < 0)
		close_file(&split->single);
	return rc;
}

static int find_in_single(struct dwarf_split *split, const struct dwarf_unit *skeleton,
			  struct dwarf_unit **ret)
{
	struct dwarf *dwarf = &split->single.dwarf;
	int rc = open_single(split, skeleton);

	if (rc < 0)
		return rc == -ENOMEM ? rc : -ENOENT;
	for (size_t i = 0; i < dwarf->unit_count; i++) {
		rc = take_unit(dwarf, &dwarf->units[i], skeleton, NULL);
		if (rc >= 0)
			*ret = &dwarf->units[i];
		if (rc != -ENOENT)
			return rc;
	}
	return -ENOENT;
}

int dwarf_split_find(struct dwarf_split *split, const struct dwarf_unit *skeleton,
		     struct dwarf **ret_dwarf, struct dwarf_unit **ret_unit)
{
	int rc;

	if (!split->finder)
		return -ENOENT;
	rc = find_in_package(split, skeleton, ret_unit);
	if (rc != -ENOENT) {
		*ret_dwarf = &split->package.dwarf;
		return rc;
	}
	*ret_dwarf = &split->single.dwarf;
	return find_in_single(split, skeleton, ret_unit);
}
