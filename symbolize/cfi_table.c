// SPDX-License-Identifier: Apache-2.0
/* The image of bpf/unwind_table.h: built from a stream of (file offset, rule) in ascending order,
 * checked, and searched.
 *
 * The builder holds one row back ("pending"), because a later row at the same offset replaces it,
 * and a row that repeats the rule in force is never written. A page's first row is written when the
 * page is opened, with the rule in force there. */
#include <errno.h>
#include <string.h>

#include "agent/base/u64map.h"
#include "symbolize/cfi_internal.h"

struct table_page {
	uint32_t first; /* row */
	uint32_t count;
};

struct table_row {
	uint16_t offset; /* in the page */
	uint16_t rule;
};

_Static_assert(sizeof(struct table_row) == 4, "layout");
_Static_assert(sizeof(struct table_page) == 8, "layout");

#define RECENT_RULES 256u
#define PLT0_BYTES   16u /* with rows of their own before the entries */

VEC_DEFINE(table_row, struct table_row);
VEC_DEFINE(unwind_rule, struct unwind_rule);

struct cfi_builder {
	struct unwind_rule_vec rules;
	struct u64map rule_of; /* hash of a rule -> index; the next free hash if two collide */
	uint16_t recent[RECENT_RULES]; /* by the hash's top bits: a file uses few rules most of the time */
	struct table_row_vec rows;
	struct table_page *pages;
	uint32_t first_page;
	uint32_t page_count;
	uint32_t pages_open;
	uint32_t fo;   /* written up to here, with rule in force */
	uint16_t rule;
	uint32_t pending_fo;
	uint16_t pending_rule;
	struct cfi_table sums; /* bytes by kind of rule */
	bool has_plt;
};

/* ---- building -------------------------------------------------------------------------------- */

/* One multiplication: this runs for every row. */
static uint64_t rule_hash(const struct unwind_rule *rule)
{
	uint64_t words[2];

	memcpy(words, rule, sizeof(words));
	return (words[0] ^ (words[1] << 29 | words[1] >> 35)) * 0x9e3779b97f4a7c15ull;
}

static int rule_push(struct cfi_builder *b, const struct unwind_rule *rule, uint64_t hash,
		     uint16_t *ret)
{
	int rc;

	if (b->rules.count >= UNWIND_RULES_MAX)
		return -ENOSPC;
	rc = u64map_put(&b->rule_of, hash, b->rules.count);
	if (rc < 0)
		return rc;
	rc = unwind_rule_vec_push(&b->rules, *rule);
	if (rc < 0)
		return rc;
	*ret = (uint16_t)(b->rules.count - 1);
	return 0;
}

static int rule_intern(struct cfi_builder *b, const struct unwind_rule *rule, uint16_t *ret)
{
	uint64_t hash = rule_hash(rule);
	uint16_t *recent = &b->recent[hash >> 56];
	uint64_t index;
	int rc;

	if (*recent < b->rules.count && !memcmp(&b->rules.data[*recent], rule, sizeof(*rule))) {
		*ret = *recent;
		return 0;
	}
	for (; u64map_get(&b->rule_of, hash, &index); hash++) {
		if (memcmp(&b->rules.data[index], rule, sizeof(*rule)))
			continue;
		*recent = (uint16_t)index;
		*ret = *recent;
		return 0;
	}
	/* The last place is kept for what does not fit: no real file comes near. */
	if (b->rules.count >= UNWIND_RULES_MAX - 1 && rule->cfa != UNWIND_CFA_UNSUPPORTED)
		return rule_intern(b, &(struct unwind_rule){ .cfa = UNWIND_CFA_UNSUPPORTED }, ret);
	rc = rule_push(b, rule, hash, recent);
	if (rc < 0)
		return rc;
	*ret = *recent;
	return 0;
}

static int row_push(struct cfi_builder *b, uint16_t offset, uint16_t rule)
{
	if (b->rows.count >= UNWIND_ROWS_MAX)
		return -E2BIG;
	return table_row_vec_push(&b->rows, (struct table_row){ .offset = offset, .rule = rule });
}

/* Opens pages until @page is open; all but a page that a row begins anyway get the rule in force.
 */
static int pages_open(struct cfi_builder *b, uint32_t page, bool row_at_start)
{
	while (b->pages_open <= page) {
		int rc;

		b->pages[b->pages_open].first = (uint32_t)b->rows.count;
		if (b->pages_open++ == page && row_at_start)
			break;
		rc = row_push(b, 0, b->rule);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* A call leaves sp at a multiple of 16 behind the return address (System V ABI, 3.2.2), so hardly
 * any is made where nothing, or fp alone, has been pushed: compilers know the functions of a file
 * that do not mind. */
static bool is_entry(const struct unwind_rule *rule)
{
	if (rule->cfa != UNWIND_CFA_SP)
		return rule->cfa == UNWIND_CFA_PLT || rule->cfa == UNWIND_CFA_END;
	return rule->cfa_offset == 8 ||
	       (rule->cfa_offset == 16 && rule->fp == UNWIND_FP_CFA && rule->fp_offset == -16);
}

static void count_bytes(struct cfi_builder *b, uint32_t end_fo)
{
	const struct unwind_rule *rule = &b->rules.data[b->rule];
	uint8_t cfa = rule->cfa;
	uint64_t bytes = end_fo - b->fo;

	if (cfa != UNWIND_CFA_NONE)
		b->sums.text_bytes += bytes;
	if (is_entry(rule))
		b->sums.entry_bytes += bytes;
	if (cfa == UNWIND_CFA_PLT && !b->has_plt)
		b->sums.entry_bytes += PLT0_BYTES;
	b->has_plt |= cfa == UNWIND_CFA_PLT;
	if (cfa == UNWIND_CFA_FP && rule->cfa_offset == 16 && rule->fp == UNWIND_FP_CFA &&
	    rule->fp_offset == -16)
		b->sums.fp_text_bytes += bytes;
	b->sums.breaks_fp |=
		cfa == UNWIND_CFA_SIGNAL || rule->flags & (UNWIND_RULE_SIGNAL | UNWIND_RULE_SWITCH);
	if (cfa == UNWIND_CFA_UNSUPPORTED)
		b->sums.unsupported_bytes += bytes;
}

static int flush_pending(struct cfi_builder *b)
{
	uint32_t page = (b->pending_fo >> UNWIND_PAGE_SHIFT) - b->first_page;
	uint16_t offset = b->pending_fo & (UNWIND_PAGE_BYTES - 1);
	int rc;

	if (b->pending_rule == b->rule)
		return 0;
	count_bytes(b, b->pending_fo);
	/* The row after the last range may lie just behind the last page. */
	if (page < b->page_count) {
		rc = pages_open(b, page, !offset);
		if (rc < 0)
			return rc;
		rc = row_push(b, offset, b->pending_rule);
		if (rc < 0)
			return rc;
	}
	b->fo = b->pending_fo;
	b->rule = b->pending_rule;
	return 0;
}

int cfi_builder_row(struct cfi_builder *b, uint32_t fo, const struct unwind_rule *rule)
{
	uint16_t index;
	int rc;

	if (fo < b->pending_fo)
		return -EINVAL;
	rc = rule_intern(b, rule, &index);
	if (rc < 0)
		return rc;
	if (fo > b->pending_fo) {
		rc = flush_pending(b);
		if (rc < 0)
			return rc;
	}
	b->pending_fo = fo;
	b->pending_rule = index;
	return 0;
}

int cfi_builder_create(uint64_t first_fo, uint64_t end_fo, struct cfi_builder **ret)
{
	cleanup(cfi_builder) struct cfi_builder *b = NULL;
	uint16_t none;
	int rc;

	if (end_fo <= first_fo || end_fo > CFI_FO_END)
		return -EINVAL;
	b = calloc(1, sizeof(*b));
	if (!b)
		return -ENOMEM;
	u64map_init(&b->rule_of, UNWIND_RULES_MAX);
	b->first_page = (uint32_t)(first_fo >> UNWIND_PAGE_SHIFT);
	b->page_count = (uint32_t)((end_fo - 1) >> UNWIND_PAGE_SHIFT) - b->first_page + 1;
	b->pages = calloc(b->page_count, sizeof(*b->pages));
	if (!b->pages)
		return -ENOMEM;
	rc = rule_intern(b, &(struct unwind_rule){ .cfa = UNWIND_CFA_NONE }, &none);
	if (rc < 0)
		return rc;
	b->fo = b->first_page << UNWIND_PAGE_SHIFT;
	b->pending_fo = b->fo;
	*ret = take_ptr(b);
	return 0;
}

void cfi_builder_destroy(struct cfi_builder *b)
{
	if (!b)
		return;
	unwind_rule_vec_deinit(&b->rules);
	u64map_deinit(&b->rule_of);
	table_row_vec_deinit(&b->rows);
	free(b->pages);
	free(b);
}

int cfi_builder_finish(struct cfi_builder *b, struct cfi_table *ret)
{
	struct unwind_table_head head = { .magic = UNWIND_TABLE_MAGIC, .version = UNWIND_TABLE_VERSION };
	uint8_t *image;
	size_t image_bytes;
	int rc;

	rc = flush_pending(b);
	if (rc < 0)
		return rc;
	rc = pages_open(b, b->page_count - 1, false);
	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < b->page_count; i++) {
		uint32_t end = i + 1 < b->page_count ? b->pages[i + 1].first : (uint32_t)b->rows.count;

		b->pages[i].count = end - b->pages[i].first;
	}
	head.first_page = b->first_page;
	head.page_count = b->page_count;
	head.rules_at = UNWIND_DIR_AT + (b->page_count + 1) / 2;
	head.rule_count = (uint32_t)b->rules.count;
	head.rows_at = head.rules_at + head.rule_count;
	head.row_count = (uint32_t)b->rows.count;
	image_bytes = ((size_t)head.rows_at + (head.row_count + 3) / 4) * UNWIND_ELEMENT_BYTES;
	image = calloc(1, image_bytes);
	if (!image)
		return -ENOMEM;
	memcpy(image, &head, sizeof(head));
	memcpy(image + UNWIND_DIR_AT * UNWIND_ELEMENT_BYTES, b->pages, b->page_count * sizeof(*b->pages));
	memcpy(image + (size_t)head.rules_at * UNWIND_ELEMENT_BYTES, b->rules.data,
	       b->rules.count * sizeof(*b->rules.data));
	memcpy(image + (size_t)head.rows_at * UNWIND_ELEMENT_BYTES, b->rows.data,
	       b->rows.count * sizeof(*b->rows.data));
	*ret = b->sums;
	ret->image = image;
	ret->image_bytes = image_bytes;
	ret->row_count = head.row_count;
	return 0;
}

void cfi_table_deinit(struct cfi_table *table)
{
	free(table->image);
	*table = (struct cfi_table){ 0 };
}

/* ---- reading --------------------------------------------------------------------------------- */

static const void *image_at(const void *image, uint32_t element)
{
	return (const uint8_t *)image + (size_t)element * UNWIND_ELEMENT_BYTES;
}

const struct unwind_rule *cfi_table_find(const struct cfi_table *table, uint64_t fo)
{
	const struct unwind_table_head *head = table->image;
	const struct table_page *pages = image_at(table->image, UNWIND_DIR_AT);
	const struct unwind_rule *rules = image_at(table->image, head->rules_at);
	const struct table_row *rows = image_at(table->image, head->rows_at);
	uint64_t page = (fo >> UNWIND_PAGE_SHIFT) - head->first_page;
	uint16_t offset = fo & (UNWIND_PAGE_BYTES - 1);
	uint32_t low;
	uint32_t high;

	if (page >= head->page_count)
		return NULL;
	low = pages[page].first;
	high = low + pages[page].count;
	while (high - low > 1) { /* the row at low is in force at or before offset */
		uint32_t mid = low + (high - low) / 2;

		if (rows[mid].offset <= offset)
			low = mid;
		else
			high = mid;
	}
	return rows[low].rule ? &rules[rows[low].rule] : NULL;
}

static bool head_is_valid(const struct unwind_table_head *head, size_t bytes)
{
	uint64_t elements = bytes / UNWIND_ELEMENT_BYTES;

	return head->magic == UNWIND_TABLE_MAGIC && head->version == UNWIND_TABLE_VERSION &&
	       head->page_count && head->page_count <= UNWIND_PAGES_MAX &&
	       head->first_page <= UNWIND_PAGES_MAX - head->page_count && head->rule_count &&
	       head->rule_count <= UNWIND_RULES_MAX && head->row_count &&
	       head->row_count <= UNWIND_ROWS_MAX &&
	       head->rules_at == UNWIND_DIR_AT + (head->page_count + 1) / 2 &&
	       head->rows_at == head->rules_at + head->rule_count &&
	       elements == (uint64_t)head->rows_at + (head->row_count + 3) / 4;
}

static bool page_is_valid(const struct table_page *page, const struct table_row *rows,
			  const struct unwind_table_head *head)
{
	if (!page->count || page->count > head->row_count || page->first > head->row_count - page->count ||
	    rows[page->first].offset)
		return false;
	for (uint32_t i = page->first; i < page->first + page->count; i++) {
		if (rows[i].rule >= head->rule_count)
			return false;
		if (i > page->first && rows[i].offset <= rows[i - 1].offset)
			return false;
	}
	return true;
}

int cfi_image_validate(const void *image, size_t bytes)
{
	const struct unwind_table_head *head = image;
	const struct table_page *pages;
	const struct unwind_rule *rules;
	uint64_t rows_seen = 0;

	if (bytes < sizeof(*head) || bytes % UNWIND_ELEMENT_BYTES || !head_is_valid(head, bytes))
		return -EPROTO;
	pages = image_at(image, UNWIND_DIR_AT);
	rules = image_at(image, head->rules_at);
	for (uint32_t i = 0; i < head->page_count; i++) {
		/* Pages follow each other, so that the check is linear however the directory lies. */
		if (pages[i].first != rows_seen ||
		    !page_is_valid(&pages[i], image_at(image, head->rows_at), head))
			return -EPROTO;
		rows_seen += pages[i].count;
	}
	if (rows_seen != head->row_count || rules[0].cfa != UNWIND_CFA_NONE)
		return -EPROTO;
	for (uint32_t i = 0; i < head->rule_count; i++)
		if (rules[i].cfa > UNWIND_CFA_DEREF_INDEXED || rules[i].fp > UNWIND_FP_REG)
			return -EPROTO;
	return 0;
}
