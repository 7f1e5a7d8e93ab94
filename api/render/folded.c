// SPDX-License-Identifier: Apache-2.0
/* Folded stacks, as flamegraph.pl, inferno, speedscope and Pyroscope read them: frames root first, joined by
 * `;`, a blank, the value; one line per distinct stack, sorted, so that equal profiles give equal bytes. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "agent/base/vec.h"
#include "api/render/flame_tree.h"

struct line {
	size_t at; /* in the text, without the value */
	uint32_t len;
	int64_t value;
};
VEC_DEFINE(lines, struct line);

struct folded {
	const struct profile *p;
	const struct flame_tree *tree;
	struct buf text;
	struct lines_vec lines;
};

/* `;` separates frames and a line ends at its newline, so neither may be part of a name. */
static void add_name(struct buf *out, const char *name)
{
	for (; *name; name++) {
		char c = *name;

		if (c == ';')
			c = ':';
		else if ((unsigned char)c < 0x20)
			c = ' ';
		buf_add_char(out, c);
	}
}

static int collect(struct folded *f)
{
	const struct flame_tree *tree = f->tree;
	cleanup_free size_t *ends = calloc(tree->depth_max + 2, sizeof(*ends));
	struct buf path = { 0 };
	int rc = ends ? 0 : -ENOMEM;

	for (uint32_t i = 1; rc == 0 && i < tree->count; i++) {
		const struct flame_node *node = &tree->nodes[i];
		const char *name = profile_string(f->p, f->p->functions[node->function].name);

		path.len = ends[node->depth - 1];
		if (node->depth > 1)
			buf_add_char(&path, ';');
		add_name(&path, *name ? name : "[unknown]");
		ends[node->depth] = path.len;
		if (node->self == 0)
			continue;
		rc = lines_vec_push(&f->lines, (struct line){ .at = f->text.len,
							      .len = (uint32_t)path.len,
							      .value = node->self });
		buf_add(&f->text, path.data, path.len);
		buf_add_char(&f->text, '\0');
		if (path.error || f->text.error)
			rc = path.error ? path.error : f->text.error;
	}
	buf_deinit(&path);
	return rc;
}

static int compare_lines(const void *a, const void *b, void *text)
{
	const struct line *x = a, *y = b;

	return strcmp((const char *)text + x->at, (const char *)text + y->at);
}

int render_folded(const struct profile *p, const struct render_options *options, struct buf *out,
		  struct err *err)
{
	struct render_options all = *options;
	cleanup_flame_tree struct flame_tree tree = { 0 };
	struct folded f = { .p = p, .tree = &tree, .text = { .max = out->max } };
	int rc;

	(void)err;
	all.max_nodes = UINT32_MAX;
	rc = flame_tree_build(p, &all, &tree);
	if (rc == 0)
		rc = collect(&f);
	if (rc == 0 && f.lines.count)
		qsort_r(f.lines.data, f.lines.count, sizeof(struct line), compare_lines,
			f.text.data);
	for (size_t i = 0; rc == 0 && i < f.lines.count; i++) {
		const struct line *line = &f.lines.data[i];
		int64_t value = line->value;

		/* Functions of one name in two files are one line. */
		while (i + 1 < f.lines.count &&
		       compare_lines(line, &f.lines.data[i + 1], f.text.data) == 0)
			value += f.lines.data[++i].value;
		buf_add(out, f.text.data + line->at, line->len);
		buf_printf(out, " %" PRId64 "\n", value);
	}
	buf_deinit(&f.text);
	lines_vec_deinit(&f.lines);
	return rc < 0 ? rc : out->error;
}
