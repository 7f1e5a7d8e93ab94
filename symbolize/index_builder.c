// SPDX-License-Identifier: Apache-2.0
#include "symbolize/index_builder.h"

#include <errno.h>
#include <string.h>

#include "agent/base/hash.h"
#include "symbolize/index_sort.h"

void index_builder_deinit(struct index_builder *builder)
{
	string_table_deinit(&builder->strings);
	index_extents_vec_deinit(&builder->extents);
	index_intervals_vec_deinit(&builder->symbols);
	index_intervals_vec_deinit(&builder->former);
	index_intervals_vec_deinit(&builder->ranges);
	index_nodes_vec_deinit(&builder->nodes);
	index_depths_vec_deinit(&builder->depths);
	index_functions_vec_deinit(&builder->functions);
	u64map_deinit(&builder->function_ids);
	index_sequences_vec_deinit(&builder->sequences);
	index_rows_vec_deinit(&builder->rows);
	*builder = (struct index_builder){ 0 };
}

int index_builder_string(struct index_builder *builder, const char *text, size_t len, uint32_t *ret)
{
	return string_table_add(&builder->strings, text, len, ret);
}

uint32_t index_builder_rank(uint32_t flags, const char *name, size_t len)
{
	uint32_t underscores = 0;

	while (underscores < 255 && underscores < len && name[underscores] == '_')
		underscores++;
	return flags | (255 - underscores) << 20 | (uint32_t)(len > 0xfffff ? 0xfffff : len);
}

static bool is_exclusive(const struct index_builder *builder, uint64_t start)
{
	return start >= builder->exclusive_start && start < builder->exclusive_end;
}

int index_builder_symbol(struct index_builder *builder, uint64_t start, uint64_t end, uint32_t name,
			 uint32_t rank)
{
	if (end <= start || !name || is_exclusive(builder, start))
		return 0;
	if (builder->symbols.count >= INDEX_SYMBOLS_MAX)
		return -E2BIG;
	return index_intervals_vec_push(&builder->symbols,
					(struct index_interval){ start, end, name, rank });
}

int index_builder_former(struct index_builder *builder, uint64_t start, uint64_t end, uint32_t name)
{
	if (builder->former.count >= INDEX_SYMBOLS_MAX)
		return -E2BIG;
	return index_intervals_vec_push(&builder->former, (struct index_interval){ start, end, name, 0 });
}

int index_builder_extent(struct index_builder *builder, uint64_t start, uint64_t end)
{
	struct index_extents_vec *extents = &builder->extents;

	if (end <= start || end > UINT32_MAX || is_exclusive(builder, start) ||
	    (extents->count && start < extents->data[extents->count - 1].end))
		return 0;
	if (extents->count >= INDEX_SYMBOLS_MAX)
		return -E2BIG;
	return index_extents_vec_push(
		extents, (struct symbol_image_extent){ (uint32_t)start, (uint32_t)end });
}

uint64_t index_builder_extent_edge(const struct index_builder *builder, uint64_t start,
				   uint64_t end)
{
	const struct symbol_image_extent *extents = builder->extents.data;
	size_t low = 0, high = builder->extents.count;
	uint64_t edge;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (extents[mid].end <= start)
			low = mid + 1;
		else
			high = mid;
	}
	if (low == builder->extents.count)
		return end;
	edge = extents[low].start > start ? extents[low].start : extents[low].end;
	return edge < end ? edge : end;
}

int index_builder_function(struct index_builder *builder, uint32_t name, uint32_t file,
			   uint32_t start_line, uint32_t *ret)
{
	uint64_t hash = hash_combine(hash_combine(name, file), start_line), have;
	struct symbol_image_function function = { name, file, start_line };
	int rc;

	if (u64map_get(&builder->function_ids, hash, &have) &&
	    !memcmp(&builder->functions.data[have], &function, sizeof(function))) {
		*ret = (uint32_t)have;
		return 0;
	}
	if (builder->functions.count >= INDEX_NODES_MAX)
		return -E2BIG;
	rc = index_functions_vec_push(&builder->functions, function);
	if (rc < 0)
		return rc;
	rc = u64map_put(&builder->function_ids, hash, builder->functions.count - 1);
	if (rc < 0)
		return rc;
	*ret = (uint32_t)(builder->functions.count - 1);
	return 0;
}

int index_builder_node(struct index_builder *builder, const struct symbol_image_node *node,
		       uint32_t *ret)
{
	uint8_t depth = 1;
	int rc;

	if (node->parent != SYMBOL_IMAGE_NONE)
		depth = (uint8_t)(builder->depths.data[node->parent] + 1);
	if (depth > INDEX_DEPTH_MAX) {
		*ret = node->parent;
		return 0;
	}
	if (builder->nodes.count >= INDEX_NODES_MAX)
		return -E2BIG;
	rc = index_nodes_vec_push(&builder->nodes, *node);
	if (rc < 0)
		return rc;
	rc = index_depths_vec_push(&builder->depths, depth);
	if (rc < 0) {
		builder->nodes.count--;
		return rc;
	}
	*ret = (uint32_t)(builder->nodes.count - 1);
	return 0;
}

int index_builder_range(struct index_builder *builder, uint32_t node, uint64_t start, uint64_t end)
{
	if (end <= start || end > UINT32_MAX)
		return 0;
	if (builder->ranges.count >= INDEX_RANGES_MAX)
		return -E2BIG;
	return index_intervals_vec_push(&builder->ranges,
					(struct index_interval){ start, end, node, 0 });
}

int index_builder_row(struct index_builder *builder, uint64_t start, uint32_t file, uint32_t line)
{
	struct index_rows_vec *rows = &builder->rows;
	struct index_row row = { (uint32_t)start, { file, line } };

	if (start >= UINT32_MAX)
		return 0;
	if (rows->count > builder->sequence_first_row) {
		struct index_row *last = &rows->data[rows->count - 1];

		if (row.start < last->start)
			return 0;
		if (row.start == last->start) {
			last->line = row.line;
			return 0;
		}
		if (last->line.file == file && last->line.line == line)
			return 0;
	}
	if (rows->count >= INDEX_ROWS_MAX)
		return -E2BIG;
	return index_rows_vec_push(rows, row);
}

int index_builder_sequence_end(struct index_builder *builder, uint64_t end)
{
	size_t first = builder->sequence_first_row, count = builder->rows.count - first;
	struct index_sequence sequence = { 0, (uint32_t)end, first, count };
	int rc;

	if (!count || end > UINT32_MAX || end <= builder->rows.data[first].start) {
		index_builder_sequence_drop(builder);
		return 0;
	}
	sequence.start = builder->rows.data[first].start;
	rc = index_sequences_vec_push(&builder->sequences, sequence);
	builder->sequence_first_row = builder->rows.count;
	return rc;
}

void index_builder_sequence_drop(struct index_builder *builder)
{
	builder->rows.count = builder->sequence_first_row;
}

/* ---- the image ------------------------------------------------------------------------------- */

/* Rows in address order: sequences are ascending inside, so only they are sorted. Where two
 * overlap, the rest of the earlier one is cut off. */
static int order_rows(struct index_builder *builder, struct index_rows_vec *ret)
{
	size_t count = builder->sequences.count;
	cleanup_free struct index_sort_item *items = malloc((count + 1) * sizeof(*items));
	int rc;

	if (!items)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		items[i] = (struct index_sort_item){ builder->sequences.data[i].start, (uint32_t)i };
	rc = index_sort(items, count);
	if (rc >= 0)
		rc = index_rows_vec_reserve(ret, builder->rows.count + count);
	for (size_t i = 0; rc >= 0 && i < count; i++) {
		const struct index_sequence *sequence = &builder->sequences.data[items[i].index];
		const struct index_row *rows = builder->rows.data + sequence->first_row;
		uint64_t next = i + 1 < count ? items[i + 1].key : UINT64_MAX;

		if (sequence->end > next && next == sequence->start)
			continue;
		for (size_t k = 0; k < sequence->row_count && rows[k].start < next &&
				   rows[k].start < sequence->end; k++)
			ret->data[ret->count++] = rows[k];
		if (sequence->end < next)
			ret->data[ret->count++] = (struct index_row){ sequence->end, { 0, 0 } };
	}
	return rc;
}

/* Keeps the extents of which something has no symbol. Both ascend. */
static void keep_nameless(struct index_extents_vec *extents,
			  const struct index_segments_vec *symbols)
{
	size_t kept = 0, at = 0; /* at: symbols that begin up to the extent's start */

	for (size_t i = 0; i < extents->count; i++) {
		const struct symbol_image_extent extent = extents->data[i];
		bool named;

		while (at < symbols->count && symbols->data[at].start <= extent.start)
			at++;
		named = at && symbols->data[at - 1].value;
		for (size_t k = at; named && k < symbols->count && symbols->data[k].start < extent.end; k++)
			named = symbols->data[k].value;
		if (!named)
			extents->data[kept++] = extent;
	}
	extents->count = kept;
}

static void layout(struct symbol_image_head *head)
{
	uint64_t at = sizeof(*head);

	for (int part = 0; part < SYMBOL_IMAGE_PART_MAX; part++) {
		head->parts[part].offset = at;
		at += head->parts[part].count * symbol_image_element_bytes[part];
		at = (at + 7) & ~7ull;
	}
	head->bytes = at;
}

static void *part_of(void *image, enum symbol_image_part part)
{
	return (char *)image + ((struct symbol_image_head *)image)->parts[part].offset;
}

struct ordered {
	struct index_segments_vec symbols;
	struct index_segments_vec ranges;
	struct index_rows_vec rows;
};

static void cleanup_ordered_fn(struct ordered *ordered)
{
	index_segments_vec_deinit(&ordered->symbols);
	index_segments_vec_deinit(&ordered->ranges);
	index_rows_vec_deinit(&ordered->rows);
}

static void fill(struct index_builder *builder, const struct ordered *ordered, void *image)
{
	uint64_t *symbol_start = part_of(image, SYMBOL_IMAGE_SYMBOL_START);
	uint32_t *symbol_name = part_of(image, SYMBOL_IMAGE_SYMBOL_NAME);
	uint32_t *range_start = part_of(image, SYMBOL_IMAGE_RANGE_START);
	uint32_t *range_node = part_of(image, SYMBOL_IMAGE_RANGE_NODE);
	uint32_t *line_start = part_of(image, SYMBOL_IMAGE_LINE_START);
	struct symbol_image_line *lines = part_of(image, SYMBOL_IMAGE_LINES);

	for (size_t i = 0; i < ordered->symbols.count; i++) {
		symbol_start[i] = ordered->symbols.data[i].start;
		symbol_name[i] = ordered->symbols.data[i].value;
	}
	for (size_t i = 0; i < ordered->ranges.count; i++) {
		range_start[i] = (uint32_t)ordered->ranges.data[i].start;
		range_node[i] = ordered->ranges.data[i].value;
	}
	for (size_t i = 0; i < ordered->rows.count; i++) {
		line_start[i] = ordered->rows.data[i].start;
		lines[i] = ordered->rows.data[i].line;
	}
	if (builder->nodes.count)
		memcpy(part_of(image, SYMBOL_IMAGE_NODES), builder->nodes.data,
		       builder->nodes.count * sizeof(*builder->nodes.data));
	if (builder->functions.count)
		memcpy(part_of(image, SYMBOL_IMAGE_FUNCTIONS), builder->functions.data,
		       builder->functions.count * sizeof(*builder->functions.data));
	if (builder->extents.count)
		memcpy(part_of(image, SYMBOL_IMAGE_EXTENTS), builder->extents.data,
		       builder->extents.count * sizeof(*builder->extents.data));
	if (builder->strings.len)
		memcpy(part_of(image, SYMBOL_IMAGE_STRINGS), builder->strings.data,
		       builder->strings.len);
}

int index_builder_finish(struct index_builder *builder, void **ret, size_t *ret_bytes)
{
	__attribute__((__cleanup__(cleanup_ordered_fn))) struct ordered ordered = { 0 };
	struct symbol_image_head head = { .magic = SYMBOL_IMAGE_MAGIC,
					  .version = SYMBOL_IMAGE_VERSION,
					  .origins = builder->origins };
	void *image;
	int rc;

	rc = index_flatten(builder->symbols.data, builder->symbols.count, 0, &ordered.symbols);
	if (rc < 0)
		return rc;
	index_intervals_vec_deinit(&builder->symbols);
	rc = index_fill_gaps(&ordered.symbols, builder->former.data, builder->former.count);
	if (rc < 0)
		return rc;
	index_intervals_vec_deinit(&builder->former);
	keep_nameless(&builder->extents, &ordered.symbols);
	rc = index_flatten(builder->ranges.data, builder->ranges.count, SYMBOL_IMAGE_NONE,
			   &ordered.ranges);
	if (rc < 0)
		return rc;
	index_intervals_vec_deinit(&builder->ranges);
	index_builder_sequence_drop(builder);
	rc = order_rows(builder, &ordered.rows);
	if (rc < 0)
		return rc;
	index_rows_vec_deinit(&builder->rows);

	head.parts[SYMBOL_IMAGE_SYMBOL_START].count = ordered.symbols.count;
	head.parts[SYMBOL_IMAGE_SYMBOL_NAME].count = ordered.symbols.count;
	head.parts[SYMBOL_IMAGE_RANGE_START].count = ordered.ranges.count;
	head.parts[SYMBOL_IMAGE_RANGE_NODE].count = ordered.ranges.count;
	head.parts[SYMBOL_IMAGE_NODES].count = builder->nodes.count;
	head.parts[SYMBOL_IMAGE_FUNCTIONS].count = builder->functions.count;
	head.parts[SYMBOL_IMAGE_LINE_START].count = ordered.rows.count;
	head.parts[SYMBOL_IMAGE_LINES].count = ordered.rows.count;
	head.parts[SYMBOL_IMAGE_EXTENTS].count = builder->extents.count;
	head.parts[SYMBOL_IMAGE_STRINGS].count = builder->strings.len ? builder->strings.len : 1;
	layout(&head);
	image = calloc(1, head.bytes);
	if (!image)
		return -ENOMEM;
	memcpy(image, &head, sizeof(head));
	fill(builder, &ordered, image);
	index_builder_deinit(builder);
	*ret = image;
	*ret_bytes = head.bytes;
	return 0;
}
