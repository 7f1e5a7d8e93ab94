// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/go_layout.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/text.h"
#include "agent/reader/go_globals.h"

#define BUILDINFO_MAGIC	      "\xff Go buildinf:"
#define BUILDINFO_MAGIC_BYTES 14u
#define BUILDINFO_BYTES	      32u
#define MODULES_EXAMINED_MAX  512u

/* Words of runtime.moduledata that have not moved since 1.16 (src/runtime/symtab.go). */
enum moduledata_word {
	MD_PC_HEADER = 0,
	MD_NAMES = 1,
	MD_PCLNTABLE = 13,
	MD_FTAB = 16,
	MD_FTAB_LEN = 17,
	MD_MINPC = 20,
	MD_MAXPC = 21,
	MD_TEXT = 22,
	MD_ETEXT = 23,
	MD_NOPTRDATA = 24,
	MD_DATA = 26,
	MD_BSS = 28,
	MD_NOPTRBSS = 30,
	MD_TYPES_118 = 35, /* 1.16-1.19 */
	MD_TYPES_120 = 37,
	MD_GOFUNC_118 = 38,
	MD_GOFUNC_120 = 40,
	MD_WORDS = 41,
};

static int read_image(void *ctx, uint64_t va, void *buf, size_t len)
{
	return image_read(ctx, va, buf, len);
}

/* ---- version --------------------------------------------------------------------------------- */

static int find_buildinfo(void *ctx, uint64_t va, const uint8_t *data, size_t len)
{
	uint64_t *ret_va = ctx;

	for (size_t at = -va & 15; at + BUILDINFO_BYTES <= len; at += 16)
		if (!memcmp(data + at, BUILDINFO_MAGIC, BUILDINFO_MAGIC_BYTES)) {
			*ret_va = va + at;
			return 1;
		}
	return 0;
}

static int buildinfo_va(struct image *image, uint64_t *ret)
{
	int rc = 0;

	*ret = 0;
	for (unsigned i = 0; i < image->segment_count && rc == 0; i++) {
		const struct image_segment *s = &image->segments[i];

		if (s->prot & TARGET_MAP_WRITE)
			rc = image_scan(image, s->va, s->va + s->file_bytes, BUILDINFO_BYTES,
					find_buildinfo, ret);
	}
	return rc < 0 ? rc : 0;
}

/* Source: src/debug/buildinfo/buildinfo.go. Flag 2: the text follows inline; else two pointers to
 * string headers, relocated in the process. */
static void layout_version(struct go_layout *layout, uint64_t va)
{
	char *text = layout->version;
	uint8_t head[BUILDINFO_BYTES + 1];
	uint64_t header_va, string[2];
	size_t len;

	if (image_read(&layout->image, va, head, sizeof(head)) < 0)
		return;
	if (head[15] & 2) {
		len = head[32]; /* a version is shorter than 128 bytes: one byte of uvarint */
		string[0] = va + 33;
	} else {
		memcpy(&header_va, head + 16, sizeof(header_va));
		if (image_read(&layout->image, header_va, string, sizeof(string)) < 0)
			return;
		len = string[1];
	}
	if (len >= sizeof(layout->version))
		len = sizeof(layout->version) - 1;
	if (image_read(&layout->image, string[0], text, len) < 0)
		len = 0;
	text[len] = '\0';
	for (size_t i = 0; i < len; i++)
		if (text[i] < ' ' || text[i] > '~')
			text[i] = '?';
	if (text_begins(text, "go1."))
		(void)sscanf(text + 4, "%3u", &layout->minor);
}

/* ---- function table and moduledata ----------------------------------------------------------- */

struct table_search {
	struct image *image;
	struct go_table table;
	uint64_t moduledata_va;
	uint64_t words[MD_WORDS];
	bool seen_table;
};

static bool words_fit(const struct go_table *t, const uint64_t *w)
{
	return w[MD_PC_HEADER] == t->header_va && w[MD_NAMES] == t->names_va &&
	       w[MD_PCLNTABLE] == t->funcs_va && w[MD_FTAB] == t->funcs_va &&
	       w[MD_FTAB_LEN] == t->func_count + 1ull && w[MD_TEXT] <= w[MD_MINPC] &&
	       w[MD_MINPC] < w[MD_MAXPC] && w[MD_MAXPC] <= w[MD_ETEXT];
}

static int find_moduledata(void *ctx, uint64_t va, const uint8_t *data, size_t len)
{
	struct table_search *search = ctx;

	for (size_t at = 0; at + sizeof(search->words) <= len; at += 8) {
		uint64_t words[MD_WORDS];

		memcpy(words, data + at, sizeof(words[0]));
		if (words[0] != search->table.header_va)
			continue;
		memcpy(words, data + at, sizeof(words));
		if (!words_fit(&search->table, words))
			continue;
		memcpy(search->words, words, sizeof(words));
		search->moduledata_va = va + at;
		return 1;
	}
	return 0;
}

/* A table counts only if the runtime's moduledata points to it: programs that work on Go binaries
 * contain the magic too. */
static int try_table(struct table_search *search, uint64_t va)
{
	const struct go_mem mem = { read_image, search->image };
	int rc = go_table_open(&mem, va, &search->table);

	if (rc < 0)
		return rc == -ESRCH || rc == -EPERM ? rc : 0;
	search->seen_table = true;
	for (unsigned i = 0; i < search->image->segment_count; i++) {
		const struct image_segment *s = &search->image->segments[i];

		if (!(s->prot & TARGET_MAP_WRITE))
			continue;
		rc = image_scan(search->image, s->va, s->va + s->file_bytes, sizeof(search->words),
				find_moduledata, search);
		if (rc)
			return rc;
	}
	return 0;
}

static int find_table(void *ctx, uint64_t va, const uint8_t *data, size_t len)
{
	for (size_t at = 0; at + 8 <= len; at += 8)
		if (go_table_is_magic(data + at)) {
			int rc = try_table(ctx, va + at);

			if (rc)
				return rc;
		}
	return 0;
}

/* Data segments first: the table is among code only where the linker merges read-only data into it.
 */
static int layout_find_table(struct go_layout *layout, struct table_search *search, struct err *err)
{
	int rc = 0;

	for (int code = 0; code <= 1 && rc == 0; code++)
		for (unsigned i = 0; i < layout->image.segment_count && rc == 0; i++) {
			const struct image_segment *s = &layout->image.segments[i];

			if (!(s->prot & TARGET_MAP_EXEC) == !code)
				rc = image_scan(&layout->image, s->va, s->va + s->file_bytes, 8,
						find_table, search);
		}
	if (rc < 0)
		return rc;
	if (rc == 0)
		return err_set(
			err, EOPNOTSUPP, NULL, NULL,
			search->seen_table
				? "the Go function table of this program has no moduledata"
				: "this Go program has no function table that is known (Go before "
				  "1.16, packed or damaged)");
	return 0;
}

static struct go_range range_of(const uint64_t *words, unsigned at)
{
	return (struct go_range){ words[at], words[at + 1] };
}

static bool range_inside(const struct go_layout *layout, const struct go_range *range, uint64_t max)
{
	return range->start_va <= range->end_va && range->end_va - range->start_va <= max &&
	       range->start_va >= layout->image.start_va && range->end_va <= layout->image.end_va;
}

static int layout_moduledata(struct go_layout *layout, const struct table_search *search,
			     struct err *err)
{
	bool new_form = search->table.format == GO_FORMAT_120;
	const uint64_t *w = search->words;

	layout->table = search->table;
	layout->table.mem = (struct go_mem){ read_image, &layout->image };
	layout->table.text_va = w[MD_TEXT];
	layout->table.min_va = w[MD_MINPC];
	layout->table.max_va = w[MD_MAXPC];
	layout->table.gofunc_va = layout->table.format == GO_FORMAT_116
					  ? 0
					  : w[new_form ? MD_GOFUNC_120 : MD_GOFUNC_118];
	layout->noptrdata = range_of(w, MD_NOPTRDATA);
	layout->data = range_of(w, MD_DATA);
	layout->bss = range_of(w, MD_BSS);
	layout->noptrbss = range_of(w, MD_NOPTRBSS);
	layout->types = range_of(w, new_form ? MD_TYPES_120 : MD_TYPES_118);
	if (!range_inside(layout, &layout->types, 256u << 20) ||
	    !range_inside(layout, &layout->data, UINT64_MAX) ||
	    !range_inside(layout, &layout->bss, UINT64_MAX) ||
	    !range_inside(layout, &layout->noptrdata, UINT64_MAX) ||
	    !range_inside(layout, &layout->noptrbss, UINT64_MAX))
		return err_set(err, EOPNOTSUPP, NULL, NULL,
			       "unknown layout of moduledata in this Go program (%s)",
			       layout->version);
	return 0;
}

/* ---- whole ----------------------------------------------------------------------------------- */

/* Is the module opened in layout->image Go? 1 or 0. The scan for build information is only for the
 * executable; libraries always carry the note. */
static int layout_is_go(struct go_layout *layout, uint64_t *ret_buildinfo_va)
{
	int rc = 0;

	*ret_buildinfo_va = 0;
	if (layout->image.go_id_len || layout->image.fd >= 0)
		rc = buildinfo_va(&layout->image, ret_buildinfo_va);
	return rc < 0 ? rc : layout->image.go_id_len > 0 || *ret_buildinfo_va;
}

static int layout_load(struct go_layout *layout, uint64_t info_va, struct err *err)
{
	struct table_search search = { .image = &layout->image };
	char missing[64];
	int rc;

	if (info_va)
		layout_version(layout, info_va);
	rc = layout_find_table(layout, &search, err);
	if (rc == 0)
		rc = layout_moduledata(layout, &search, err);
	if (rc < 0)
		return rc;
	rc = go_types_fields(&layout->image, layout->types.start_va, layout->types.end_va,
			     layout->minor, &layout->fields, missing);
	if (rc == -EOPNOTSUPP)
		return err_set(err, EOPNOTSUPP, NULL, NULL,
			       "unknown layout of this Go version (%s): %s",
			       layout->version[0] ? layout->version : "no version", missing);
	if (rc < 0)
		return rc;
	return go_globals_find(layout, err);
}

/* Tries one mapped file: -ENOEXEC if it is not Go. */
static int layout_try(struct target *target, const struct target_maps *maps, uint32_t module,
		      struct go_layout **ret, struct err *err)
{
	cleanup(go_layout) struct go_layout *layout = calloc(1, sizeof(*layout));
	uint64_t info_va;
	int rc;

	if (!layout)
		return -ENOMEM;
	layout->module = module;
	layout->image.fd = -1;
	rc = image_open(target, maps, module, &layout->image);
	if (rc < 0)
		return rc == -ESRCH || rc == -EPERM ? rc : -ENOEXEC;
	rc = layout_is_go(layout, &info_va);
	if (rc == 0)
		return -ENOEXEC;
	if (rc > 0)
		rc = layout_load(layout, info_va, err);
	if (rc < 0)
		return rc;
	*ret = take_ptr(layout);
	return 0;
}

int go_layout_create(struct target *target, const struct target_maps *maps, struct go_layout **ret,
		     struct err *err)
{
	unsigned examined = 0;

	for (size_t i = 0; i < maps->count && examined < MODULES_EXAMINED_MAX; i++) {
		const struct target_map *map = &maps->maps[i];
		int rc;

		if (!(map->prot & TARGET_MAP_EXEC) || maps->modules[map->module].vdso)
			continue;
		examined++;
		rc = layout_try(target, maps, map->module, ret, err);
		if (rc != -ENOEXEC)
			return rc;
	}
	return err_set(err, ENOEXEC, NULL, NULL, "not a Go program");
}

void go_layout_destroy(struct go_layout *layout)
{
	if (!layout)
		return;
	image_close(&layout->image);
	free(layout);
}
