// SPDX-License-Identifier: Apache-2.0
/* A still flame graph, root on top: attributes only, no script and no style, so that it also shows
 * under `default-src 'none'`. Boxes under 3 px are left out and said so; at most some 200 KB for
 * any profile. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/text.h"
#include "api/render/colour.h"
#include "api/render/page.h"
#include "api/render/text.h"
#include "api/render/flame_tree.h"

#define WIDTH_PX     1200
#define ROW_PX	     17
#define TOP_PX	     44
#define BOTTOM_PX    24
#define LETTER_PX    7.0 /* of 12 px text, on the wide side */
#define BOX_MIN_PX   3.0
#define DEPTH_MAX    512
#define TITLE_MAX    300 /* bytes of a name inside <title> */

struct svg {
	const struct profile *p;
	const struct flame_tree *tree;
	struct buf *out;
	double scale; /* pixels of one unit of value */
	const char *unit;
	int64_t all;
	uint32_t *mapping; /* profile function -> mapping of one of its frames */
	uint32_t depth;	   /* deepest drawn */
	uint64_t left_out;
};

static const char *module_of(const struct svg *s, const struct flame_node *node)
{
	const char *path;

	if (node->function == FLAME_PRUNED)
		return "";
	path = profile_string(s->p, s->p->functions[node->function].package);
	if (*path)
		return path;
	if (!s->mapping[node->function])
		return "";
	path = profile_string(s->p, s->p->mappings[s->mapping[node->function]].path);
	return text_file_name(path);
}

static void add_box(struct svg *s, uint32_t index, double x, double width)
{
	const struct flame_node *node = &s->tree->nodes[index];
	char scratch[FLAME_NAME_SIZE], value[TEXT_VALUE_SIZE];
	const char *name = flame_tree_name(s->p, node, scratch);
	struct colour colour = colour_of_module(module_of(s, node), node->kind);
	unsigned y = TOP_PX + node->depth * ROW_PX;
	double letters = (width - 6) / LETTER_PX;

	text_value(node->total, s->unit, value);
	buf_add_str(s->out, "<g><title>");
	markup_text(s->out, name, TITLE_MAX);
	buf_printf(s->out,
		   " (%s, %.2f %%)</title><rect x=\"%.1f\" y=\"%u\" width=\"%.1f\" height=\"%d\" "
		   "fill=\"%s\" stroke=\"%s\" stroke-width=\".5\"/>",
		   value, s->all ? 100.0 * (double)node->total / (double)s->all : 0.0, x, y, width,
		   ROW_PX - 1, colour.fill, colour.edge);
	if (letters >= 3) {
		buf_printf(s->out, "<text x=\"%.1f\" y=\"%u\">", x + 3, y + 12);
		markup_text(s->out, name, strlen(name) <= letters ? strlen(name) : (size_t)letters - 1);
		buf_add_str(s->out, "</text>");
	}
	buf_add_str(s->out, "</g>\n");
}

/* Left edges follow from preorder: a node begins where its parent's drawn children ended. */
static int add_boxes(struct svg *s)
{
	cleanup_free int64_t *used = calloc(s->tree->depth_max + 2, sizeof(*used));

	if (!used)
		return -ENOMEM;
	for (uint32_t i = 0; i < s->tree->count && !s->out->error; i++) {
		const struct flame_node *node = &s->tree->nodes[i];
		int64_t x = used[node->depth];
		double width = (double)node->total * s->scale;

		used[node->depth] = x + node->total;
		used[node->depth + 1] = x;
		if (width < BOX_MIN_PX || node->depth >= DEPTH_MAX) {
			s->left_out++;
			continue;
		}
		if (node->depth > s->depth)
			s->depth = node->depth;
		add_box(s, i, (double)x * s->scale, width);
	}
	return 0;
}

static int find_mappings(struct svg *s)
{
	const struct profile *p = s->p;

	s->mapping = calloc(p->function_count + 1, sizeof(*s->mapping));
	if (!s->mapping)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->frame_count; i++)
		s->mapping[p->frames[i].function] = p->frames[i].mapping;
	return 0;
}

static void write_picture(struct svg *s, const struct render_options *options,
			  const struct buf *boxes, struct buf *out)
{
	unsigned height = TOP_PX + (s->depth + 1) * ROW_PX + BOTTOM_PX;
	char title[320], value[TEXT_VALUE_SIZE];

	render_title(s->p, options, title, sizeof(title));
	text_value(s->all, s->unit, value);
	buf_printf(out,
		   "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
		   "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%u\" "
		   "viewBox=\"0 0 %d %u\" font-family=\"system-ui,sans-serif\" font-size=\"12\" "
		   "fill=\"#1f2328\" role=\"img\">\n<title>",
		   WIDTH_PX, height, WIDTH_PX, height);
	markup_text(out, title, TITLE_MAX);
	buf_printf(out,
		   "</title>\n<rect width=\"%d\" height=\"%u\" fill=\"#fff\"/>\n"
		   "<text x=\"8\" y=\"19\" font-size=\"15\" font-weight=\"600\">",
		   WIDTH_PX, height);
	markup_text(out, title, TITLE_MAX);
	buf_printf(out, "</text>\n<text x=\"8\" y=\"36\" fill=\"#59636e\">%s, %" PRId64 " samples, %"
		   PRId64 " lost</text>\n",
		   value, s->p->quality.samples, s->p->quality.lost > 0 ? s->p->quality.lost : 0);
	buf_add(out, boxes->data, boxes->len);
	buf_printf(out, "<text x=\"8\" y=\"%u\" fill=\"#59636e\">", height - 8);
	if (s->left_out)
		buf_printf(out, "%" PRIu64 " boxes narrower than %g px are not drawn", s->left_out,
			   BOX_MIN_PX);
	buf_add_str(out, "</text>\n</svg>\n");
}

int render_svg(const struct profile *p, const struct render_options *options, struct buf *out,
	       struct err *err)
{
	cleanup_flame_tree struct flame_tree tree = { 0 };
	struct buf boxes = { .max = 4u << 20 };
	struct svg s = { .p = p, .tree = &tree, .out = &boxes };
	int rc = flame_tree_build(p, options, &tree);

	(void)err;
	if (rc == 0)
		rc = find_mappings(&s);
	if (rc == 0) {
		s.unit = profile_type_info(p->meta.type)->values[options->value_index].unit;
		s.all = tree.nodes[0].total;
		s.scale = s.all ? WIDTH_PX / (double)s.all : 0;
		rc = add_boxes(&s);
	}
	if (rc == 0) {
		write_picture(&s, options, &boxes, out);
		rc = boxes.error ? boxes.error : out->error;
	}
	free(s.mapping);
	buf_deinit(&boxes);
	return rc;
}
