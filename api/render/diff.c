// SPDX-License-Identifier: Apache-2.0
#include "api/render/diff.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "agent/profile/compare/flame_diff.h"
#include "api/http/json_out.h"
#include "api/render/quality_json.h"
#include "api/render/page.h"
#include "api/render/render.h"
#include "api/render/text.h"

#define WIDTH_PX   1200
#define ROW_PX	   17
#define TOP_PX	   60
#define BOTTOM_PX  24
#define LETTER_PX  7.0
#define BOX_MIN_PX 3.0
#define NAME_SIZE  64

struct diff {
	const struct profile *sides[2];
	const struct diff_options *options;
	struct flame_diff tree;
	double share[2]; /* percent of one unit of value, by side */
};

static const char *node_name(const struct diff *d, uint32_t index, char scratch[NAME_SIZE])
{
	const struct flame_diff_node *node = &d->tree.nodes[index];

	if (index == 0)
		return "all";
	if (node->function != FLAME_DIFF_PRUNED)
		return d->tree.functions[node->function].name;
	(void)snprintf(scratch, NAME_SIZE, "[%u small frames]", node->pruned);
	return scratch;
}

/* Change of the node's share of its side, in percentage points. */
static double node_delta(const struct diff *d, const struct flame_diff_node *node)
{
	return (double)node->total[1] * d->share[1] - (double)node->total[0] * d->share[0];
}

/* Mean of both shares, in percent. */
static double node_width(const struct diff *d, const struct flame_diff_node *node)
{
	return ((double)node->total[0] * d->share[0] + (double)node->total[1] * d->share[1]) / 2;
}

/* The part of a difference that is more than chance: nothing below three standard deviations of so
 * many samples. The page's model.js does the same. */
static double node_change(const struct diff *d, const struct flame_diff_node *node)
{
	double delta = node_delta(d, node), share = node_width(d, node) / 100;
	double before = (double)d->sides[0]->quality.samples, after = (double)d->sides[1]->quality.samples;

	if (d->sides[1]->meta.type != PROFILE_CPU || before <= 0 || after <= 0)
		return delta;
	return fabs(delta) < 300 * sqrt(fmax(0, share * (1 - share)) * (1 / before + 1 / after))
		       ? 0
		       : delta;
}

/* ---- json ------------------------------------------------------------------------------------ */

static void write_details(const struct diff *d, const struct flame_diff_node *node,
			  struct json_out *json)
{
	static const struct flame_diff_function none = { "", "", "", 0, PROFILE_FRAME_MARKER };
	const struct flame_diff_function *function =
		node->depth && node->function != FLAME_DIFF_PRUNED ? &d->tree.functions[node->function] : &none;

	json_out_text(json, "package", function->package);
	json_out_text(json, "file", function->file);
	json_out_uint(json, "line", function->line);
	json_out_text(json, "kind", render_kind_word(function->kind));
}

static void write_json(const struct diff *d, struct buf *out)
{
	struct json_out json = json_out_to(out);
	char scratch[NAME_SIZE];
	uint32_t open = 0;

	for (uint32_t i = 0; i < d->tree.node_count && !out->error; i++) {
		const struct flame_diff_node *node = &d->tree.nodes[i];

		for (; open > node->depth; open--) {
			json_out_close(&json, ']');
			json_out_close(&json, '}');
		}
		json_out_open(&json, NULL, '{');
		json_out_text(&json, "name", node_name(d, i, scratch));
		json_out_int(&json, "value", node->total[1]);
		json_out_int(&json, "self", node->self[1]);
		json_out_int(&json, "baseValue", node->total[0]);
		json_out_int(&json, "baseSelf", node->self[0]);
		json_out_real(&json, "deltaPct", node_delta(d, node), 4);
		if (d->options->details)
			write_details(d, node, &json);
		json_out_open(&json, "children", '[');
		open++;
	}
	for (; open > 0; open--) {
		json_out_close(&json, ']');
		json_out_close(&json, '}');
	}
}

/* ---- folded: as difffolded.pl writes it ------------------------------------------------------ */

/* Frames root first, the base's value, the comparison's. */
static int write_folded(const struct diff *d, struct buf *out)
{
	cleanup_free size_t *ends = calloc((size_t)d->tree.depth_max + 2, sizeof(*ends));
	cleanup_buf struct buf path = { 0 };
	char scratch[NAME_SIZE];

	if (!ends)
		return -ENOMEM;
	for (uint32_t i = 1; i < d->tree.node_count && !out->error && !path.error; i++) {
		const struct flame_diff_node *node = &d->tree.nodes[i];

		path.len = ends[node->depth - 1];
		if (path.len)
			buf_add_char(&path, ';');
		render_folded_name(node_name(d, i, scratch), &path);
		ends[node->depth] = path.len;
		if (!node->self[0] && !node->self[1])
			continue;
		buf_add(out, path.data, path.len);
		buf_printf(out, " %" PRId64 " %" PRId64 "\n", node->self[0], node->self[1]);
	}
	return path.error;
}

/* ---- flame: the columns of flame.c, with node.base ------------------------------------------- */

static int64_t common_scale(const struct diff *d, int side)
{
	int64_t scale = 0;

	for (uint32_t i = 0; i < d->tree.node_count && scale != 1; i++) {
		int64_t a = d->tree.nodes[i].self[side];

		while (a) {
			int64_t rest = scale % a;

			scale = a;
			a = rest;
		}
	}
	return scale > 0 ? scale : 1;
}

/* Function numbers: 0 = the root, then the tree's functions, then one for each pruned node. */
static void write_functions(const struct diff *d, struct json_out *json)
{
	const struct flame_diff *tree = &d->tree;
	char scratch[NAME_SIZE];
	uint32_t strings = 1, pruned = 0;

	json_out_open(json, "strings", '[');
	json_out_text(json, NULL, "");
	json_out_text(json, NULL, "all");
	for (uint32_t i = 0; i < tree->function_count; i++) {
		json_out_text(json, NULL, tree->functions[i].name);
		json_out_text(json, NULL, tree->functions[i].package);
		json_out_text(json, NULL, tree->functions[i].file);
	}
	for (uint32_t i = 1; i < tree->node_count; i++) {
		if (tree->nodes[i].function == FLAME_DIFF_PRUNED) {
			json_out_text(json, NULL, node_name(d, i, scratch));
			pruned++;
		}
	}
	json_out_close(json, ']');
	json_out_open(json, "fn", '{');
	for (unsigned column = 0; column < 5; column++) {
		static const char *const names[] = { "name", "module", "file", "line", "kind" };
		static const uint8_t kinds[] = { 1, 2, 3, 4, 5, 6, 0 };

		json_out_open(json, names[column], '[');
		json_out_uint(json, NULL, column == 0 ? strings : 0);
		for (uint32_t i = 0; i < tree->function_count; i++)
			json_out_uint(json, NULL,
				      column < 3    ? 2 + 3 * i + column
				      : column == 3 ? tree->functions[i].line
						    : kinds[tree->functions[i].kind % 7]);
		for (uint32_t i = 0; i < pruned; i++)
			json_out_uint(json, NULL,
				      column == 0 ? 2 + 3 * tree->function_count + i : 0);
		json_out_close(json, ']');
	}
	json_out_close(json, '}');
}

static void write_nodes(const struct diff *d, const int64_t scale[2], struct json_out *json)
{
	const struct flame_diff *tree = &d->tree;
	uint32_t pruned = 0;

	json_out_open(json, "node", '{');
	json_out_open(json, "fn", '[');
	for (uint32_t i = 0; i < tree->node_count; i++)
		json_out_uint(json, NULL,
			      i == 0 ? 0
			      : tree->nodes[i].function == FLAME_DIFF_PRUNED
				      ? 1 + tree->function_count + pruned++
				      : 1 + tree->nodes[i].function);
	json_out_close(json, ']');
	json_out_open(json, "up", '[');
	for (uint32_t i = 0; i < tree->node_count; i++)
		json_out_uint(json, NULL,
			      i ? tree->nodes[i - 1].depth + 1 - tree->nodes[i].depth : 0);
	json_out_close(json, ']');
	json_out_open(json, "self", '[');
	for (uint32_t i = 0; i < tree->node_count; i++)
		json_out_int(json, NULL, tree->nodes[i].self[1] / scale[1]);
	json_out_close(json, ']');
	json_out_open(json, "base", '[');
	for (uint32_t i = 0; i < tree->node_count; i++)
		json_out_int(json, NULL, tree->nodes[i].self[0] / scale[0]);
	json_out_close(json, ']');
	json_out_close(json, '}');
}

static void write_flame(const struct diff *d, struct buf *out)
{
	const struct profile *base = d->sides[0], *comparison = d->sides[1];
	const struct profile_type_info *info = profile_type_info(comparison->meta.type);
	int64_t scale[2] = { common_scale(d, 0), common_scale(d, 1) };
	struct json_out json = json_out_to(out);

	json_out_open(&json, NULL, '{');
	json_out_uint(&json, "v", 1);
	json_out_text(&json, "type", info->word);
	json_out_text(&json, "value", info->values[info->value_index].name);
	json_out_text(&json, "unit", info->values[info->value_index].unit);
	json_out_text(&json, "service", comparison->meta.service);
	json_out_text(&json, "host", comparison->meta.host);
	json_out_time(&json, "from", comparison->meta.start_ns);
	json_out_real(&json, "durationSeconds", (double)comparison->meta.duration_ns / 1e9, 3);
	json_out_bool(&json, "rate", info->rate);
	json_out_int(&json, "scale", scale[1]);
	json_out_int(&json, "total", d->tree.total[1] / scale[1]);
	json_out_int(&json, "samples", comparison->quality.samples > 0 ? comparison->quality.samples : 0);
	json_out_open(&json, "base", '{');
	json_out_text(&json, "label", d->options->base_label);
	json_out_text(&json, "comparison", d->options->comparison_label);
	json_out_int(&json, "scale", scale[0]);
	json_out_int(&json, "total", d->tree.total[0] / scale[0]);
	json_out_real(&json, "durationSeconds", (double)base->meta.duration_ns / 1e9, 3);
	quality_json(&json, "quality", &base->quality);
	json_out_close(&json, '}');
	write_functions(d, &json);
	write_nodes(d, scale, &json);
	json_out_open(&json, "pruned", '{');
	json_out_uint(&json, "nodes", 0);
	json_out_close(&json, '}');
	quality_json(&json, "quality", &comparison->quality);
	json_out_close(&json, '}');
	buf_add_char(out, '\n');
}

/* ---- svg ------------------------------------------------------------------------------------- */

/* Seven steps from #3182bd (less) over grey to #e6750a (more); @limit points are the last step. */
static const char *delta_colour(double delta, double limit)
{
	static const char *const steps[7] = { "#3182bd", "#84aecd", "#c0d0dd", "#e2e4e7",
					      "#efd3b8", "#eca769", "#e6750a" };
	double part = limit > 0 ? delta / limit : 0;

	if (part > 1)
		part = 1;
	if (part < -1)
		part = -1;
	return steps[3 + (int)lround(part * 3)];
}

static void write_box(const struct diff *d, uint32_t index, double x, double width, double limit,
		      struct buf *out)
{
	const struct flame_diff_node *node = &d->tree.nodes[index];
	const char *unit = profile_type_info(d->sides[1]->meta.type)
				   ->values[profile_value_index(d->sides[1])]
				   .unit;
	double delta = node_delta(d, node), letters = (width - 6) / LETTER_PX - 2;
	char scratch[NAME_SIZE], before[TEXT_VALUE_SIZE], after[TEXT_VALUE_SIZE];
	const char *name = node_name(d, index, scratch);
	unsigned y = TOP_PX + node->depth * ROW_PX;

	text_value(node->total[0], unit, before);
	text_value(node->total[1], unit, after);
	buf_add_str(out, "<g><title>");
	markup_text(out, name, 300);
	buf_printf(out,
		   " (%s → %s, %+.2f percentage points)</title><rect x=\"%.1f\" y=\"%u\" "
		   "width=\"%.1f\" height=\"%d\" fill=\"%s\" stroke=\"#7b818c\" "
		   "stroke-width=\".5\"/>",
		   before, after, delta, x, y, width, ROW_PX - 1, delta_colour(node_change(d, node), limit));
	if (letters >= 3) {
		buf_printf(out, "<text x=\"%.1f\" y=\"%u\">%s", x + 3, y + 12,
			   fabs(delta) < 0.05 ? ""
			   : delta > 0	      ? "▲ "
					      : "▼ ");
		markup_text(out, name, strlen(name) <= letters ? strlen(name) : (size_t)letters - 1);
		buf_add_str(out, "</text>");
	}
	buf_add_str(out, "</g>\n");
}

static int write_boxes(const struct diff *d, uint32_t *ret_depth, struct buf *out)
{
	cleanup_free double *used = calloc(d->tree.depth_max + 2, sizeof(*used));
	double limit = 0;

	if (!used)
		return -ENOMEM;
	for (uint32_t i = 1; i < d->tree.node_count; i++)
		if (node_width(d, &d->tree.nodes[i]) > 0.2)
			limit = fmax(limit, fabs(node_delta(d, &d->tree.nodes[i])));
	for (uint32_t i = 0; i < d->tree.node_count && !out->error; i++) {
		const struct flame_diff_node *node = &d->tree.nodes[i];
		double x = used[node->depth], share = node_width(d, node);
		double width = share / 100 * WIDTH_PX;

		used[node->depth] = x + share;
		used[node->depth + 1] = x;
		if (width < BOX_MIN_PX || node->depth >= 512)
			continue;
		if (node->depth > *ret_depth)
			*ret_depth = node->depth;
		write_box(d, i, x / 100 * WIDTH_PX, width, limit, out);
	}
	return out->error;
}

static int write_svg(const struct diff *d, struct buf *out)
{
	struct buf boxes = { .max = 4u << 20 };
	uint32_t depth = 0;
	int rc = write_boxes(d, &depth, &boxes);
	unsigned height = TOP_PX + (depth + 1) * ROW_PX + BOTTOM_PX;

	if (rc == 0) {
		buf_printf(out,
			   "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
			   "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%u\" "
			   "viewBox=\"0 0 %d %u\" font-family=\"system-ui,sans-serif\" "
			   "font-size=\"12\" fill=\"#1f2328\" role=\"img\">\n"
			   "<rect width=\"%d\" height=\"%u\" fill=\"#fff\"/>\n"
			   "<text x=\"8\" y=\"19\" font-size=\"15\" font-weight=\"600\">",
			   WIDTH_PX, height, WIDTH_PX, height, WIDTH_PX, height);
		markup_text(out, d->options->base_label, 120);
		buf_add_str(out, " → ");
		markup_text(out, d->options->comparison_label, 120);
		buf_add_str(out, "</text>\n<text x=\"8\" y=\"38\" fill=\"#59636e\">Width: mean of "
				 "both shares. Colour: change of the share</text>\n");
		for (int i = 0; i < 7; i++)
			buf_printf(out, "<rect x=\"%d\" y=\"28\" width=\"22\" height=\"12\" "
					"fill=\"%s\"/>\n",
				   420 + 22 * i, delta_colour(i - 3, 3));
		buf_add_str(out, "<text x=\"384\" y=\"38\">less</text><text x=\"580\" y=\"38\">more"
				 "</text>\n");
		buf_add(out, boxes.data, boxes.len);
		buf_add_str(out, "</svg>\n");
	}
	buf_deinit(&boxes);
	return rc < 0 ? rc : out->error;
}

/* ---- all ------------------------------------------------------------------------------------- */

static int write_html(const struct diff *d, struct buf *out)
{
	struct buf document = { .max = out->max };
	char title[600];
	int rc;

	(void)snprintf(title, sizeof(title), "%s → %s", d->options->base_label,
		       d->options->comparison_label);
	write_flame(d, &document);
	rc = document.error ? document.error : page_write(title, &document, out);
	buf_deinit(&document);
	return rc;
}

int diff_render(const char *format, const struct profile *base, const struct profile *comparison,
		const struct diff_options *options, struct buf *out)
{
	struct diff d = { .sides = { base, comparison }, .options = options };
	int rc = flame_diff_init(&d.tree, base, comparison, options->max_nodes);

	if (rc < 0)
		return rc;
	for (int i = 0; i < 2; i++)
		d.share[i] = d.tree.total[i] ? 100.0 / (double)d.tree.total[i] : 0;
	if (strcmp(format, "json") == 0)
		write_json(&d, out);
	else if (strcmp(format, "flame") == 0)
		write_flame(&d, out);
	else if (strcmp(format, "folded") == 0)
		rc = write_folded(&d, out);
	else if (strcmp(format, "svg") == 0)
		rc = write_svg(&d, out);
	else if (strcmp(format, "html") == 0)
		rc = write_html(&d, out);
	else
		rc = -EINVAL;
	flame_diff_deinit(&d.tree);
	return rc < 0 ? rc : out->error;
}
