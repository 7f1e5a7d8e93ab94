// SPDX-License-Identifier: Apache-2.0
/* format=flame: the tree as columns in preorder, 2.9 times smaller than nested levels and 5.2 times
 * smaller than nested JSON after gzip (measured on a profile of 181,195 nodes). Reader:
 * api/ui/flame/model.js.
 *
 *   strings[]     text; 0 = ""
 *   fn            columns by function number: name, module, file (indexes of strings), line, kind;
 *                 0 = the root "all"; numbered by frequency, so that frequent numbers are short
 *   node.fn       function number
 *   node.up       levels to climb from the node before to this node's parent; 0 = child of the
 *                 node before
 *   node.self     self value / scale; totals follow by summing
 *   node.flags    bit 0 = inlined, bit 1 = guessed; left out when all are 0 */
#include <errno.h>
#include <string.h>

#include "agent/base/text.h"
#include "api/http/json_out.h"
#include "api/render/quality_json.h"
#include "api/render/flame_tree.h"

#define FLAGS_SHOWN (PROFILE_FRAME_INLINED | PROFILE_FRAME_GUESSED)

struct column_function {
	uint32_t function; /* of the profile, or FLAME_PRUNED */
	uint32_t uses;
	uint32_t node; /* one node that shows it */
};

struct flame {
	const struct profile *p;
	const struct flame_tree *tree;
	uint32_t *number;  /* tree node -> function number */
	uint32_t *mapping; /* profile function -> mapping of one of its frames */
	struct column_function *functions;
	uint32_t function_count;
};

static void flame_deinit(struct flame *f)
{
	free(f->number);
	free(f->mapping);
	free(f->functions);
}

static int compare_uses(const void *a, const void *b)
{
	const struct column_function *x = a, *y = b;

	if (x->uses != y->uses)
		return x->uses < y->uses ? 1 : -1;
	return x->node < y->node ? -1 : x->node > y->node;
}

/* Pruned nodes are functions of their own, because each is named by its count. */
static int number_functions(struct flame *f)
{
	const struct profile *p = f->p;
	const struct flame_tree *tree = f->tree;
	cleanup_free uint32_t *slot = calloc(p->function_count + 1, sizeof(*slot));
	cleanup_free uint32_t *rank = NULL;

	f->number = calloc(tree->count, sizeof(*f->number));
	f->functions = calloc(tree->count + 1, sizeof(*f->functions));
	rank = calloc(tree->count + 1, sizeof(*rank));
	if (!slot || !rank || !f->number || !f->functions)
		return -ENOMEM;
	f->function_count = 1; /* 0: the root */
	for (uint32_t i = 1; i < tree->count; i++) {
		const struct flame_node *node = &tree->nodes[i];
		bool shared = node->function != FLAME_PRUNED;

		if (!shared || !slot[node->function]) {
			f->functions[f->function_count] =
				(struct column_function){ node->function, 0, i };
			if (shared)
				slot[node->function] = f->function_count;
			f->number[i] = f->function_count++;
		} else {
			f->number[i] = slot[node->function];
		}
		f->functions[f->number[i]].uses++;
	}
	/* Remember the number before sorting in the element itself: uses keeps the order, node the key. */
	for (uint32_t i = 1; i < f->function_count; i++)
		rank[f->functions[i].node] = i;
	qsort(f->functions + 1, f->function_count - 1, sizeof(*f->functions), compare_uses);
	{
		cleanup_free uint32_t *moved = calloc(f->function_count, sizeof(*moved));

		if (!moved)
			return -ENOMEM;
		for (uint32_t i = 1; i < f->function_count; i++)
			moved[rank[f->functions[i].node]] = i;
		for (uint32_t i = 1; i < tree->count; i++)
			f->number[i] = moved[f->number[i]];
	}
	return 0;
}

static int find_mappings(struct flame *f)
{
	const struct profile *p = f->p;

	f->mapping = calloc(p->function_count + 1, sizeof(*f->mapping));
	if (!f->mapping)
		return -ENOMEM;
	for (uint32_t i = 0; i < p->frame_count; i++)
		if (!f->mapping[p->frames[i].function])
			f->mapping[p->frames[i].function] = p->frames[i].mapping;
	return 0;
}

/* ---- strings: numbered as they are first used ---------------------------------------------------
 */

struct strings {
	uint32_t *number; /* profile string id -> number; 0 = not yet */
	uint32_t count;
	struct json_out json;
};

static uint32_t string_number(struct strings *s, const struct profile *p, uint32_t id)
{
	if (id == 0)
		return 0;
	if (!s->number[id]) {
		s->number[id] = s->count++;
		json_out_text(&s->json, NULL, profile_string(p, id));
	}
	return s->number[id];
}

static uint32_t text_number(struct strings *s, const char *text)
{
	json_out_text(&s->json, NULL, text);
	return s->count++;
}

/* Package where the language has one, else the mapping's base name. */
static const char *module_text(const struct flame *f, uint32_t function)
{
	const struct profile *p = f->p;
	const char *package = profile_string(p, p->functions[function].package);
	const char *path = "";

	if (*package)
		return package;
	if (f->mapping[function])
		path = profile_string(p, p->mappings[f->mapping[function]].path);
	return text_file_name(path);
}

struct function_columns {
	uint32_t *name, *module, *file;
};

static int write_strings(struct flame *f, struct function_columns *c, struct json_out *json)
{
	const struct profile *p = f->p;
	cleanup_free uint32_t *number = calloc(p->string_count + 1, sizeof(*number));
	cleanup_free uint32_t *module_of = calloc(p->mapping_count + 1, sizeof(*module_of));
	struct strings s = { .number = number, .json = *json };
	char scratch[FLAME_NAME_SIZE];

	if (!number || !module_of)
		return -ENOMEM;
	json_out_open(&s.json, "strings", '[');
	(void)text_number(&s, "");
	c->name[0] = text_number(&s, flame_tree_name(p, &f->tree->nodes[0], scratch));
	for (uint32_t i = 1; i < f->function_count; i++) {
		const struct column_function *function = &f->functions[i];
		const struct profile_function *known;
		uint32_t mapping;

		if (function->function == FLAME_PRUNED) {
			c->name[i] = text_number(&s, flame_tree_name(p, &f->tree->nodes[function->node],
								    scratch));
			continue;
		}
		known = &p->functions[function->function];
		mapping = f->mapping[function->function];
		c->name[i] = string_number(&s, p, known->name);
		c->file[i] = string_number(&s, p, known->file);
		if (known->package) {
			c->module[i] = string_number(&s, p, known->package);
		} else {
			if (!module_of[mapping])
				module_of[mapping] =
					text_number(&s, module_text(f, function->function));
			c->module[i] = module_of[mapping];
		}
	}
	json_out_close(&s.json, ']');
	*json = s.json;
	return 0;
}

static void write_column(struct json_out *json, const char *name, const uint32_t *values,
			 uint32_t count)
{
	json_out_open(json, name, '[');
	for (uint32_t i = 0; i < count; i++)
		json_out_uint(json, NULL, values[i]);
	json_out_close(json, ']');
}

static unsigned kind_number(const struct flame_node *node)
{
	static const uint8_t numbers[] = {
		[PROFILE_FRAME_MARKER] = 0,  [PROFILE_FRAME_NATIVE] = 1,
		[PROFILE_FRAME_KERNEL] = 2,  [PROFILE_FRAME_GO] = 3,
		[PROFILE_FRAME_JIT] = 4,     [PROFILE_FRAME_INTERPRETED] = 5,
		[PROFILE_FRAME_UNKNOWN] = 6,
	};

	return node->kind < ARRAY_SIZE(numbers) ? numbers[node->kind] : 0;
}

static int write_functions(struct flame *f, struct json_out *json)
{
	uint32_t count = f->function_count;
	cleanup_free uint32_t *columns = calloc(3, count * sizeof(*columns));
	struct function_columns c = { columns, columns + count, columns + 2 * (size_t)count };
	int rc = columns ? write_strings(f, &c, json) : -ENOMEM;

	if (rc < 0)
		return rc;
	json_out_open(json, "fn", '{');
	write_column(json, "name", c.name, count);
	write_column(json, "module", c.module, count);
	write_column(json, "file", c.file, count);
	json_out_open(json, "line", '[');
	for (uint32_t i = 0; i < count; i++) {
		uint32_t function = i ? f->functions[i].function : FLAME_PRUNED;

		json_out_uint(json, NULL,
			      function == FLAME_PRUNED ? 0 : f->p->functions[function].line);
	}
	json_out_close(json, ']');
	json_out_open(json, "kind", '[');
	for (uint32_t i = 0; i < count; i++)
		json_out_uint(json, NULL,
			      i ? kind_number(&f->tree->nodes[f->functions[i].node]) : 0);
	json_out_close(json, ']');
	json_out_close(json, '}');
	return 0;
}

/* Greatest common divisor of all self values: a CPU profile counts periods, so numbers stay short.
 */
static int64_t common_scale(const struct flame_tree *tree)
{
	int64_t scale = 0;

	for (uint32_t i = 0; i < tree->count && scale != 1; i++) {
		int64_t a = tree->nodes[i].self < 0 ? -tree->nodes[i].self : tree->nodes[i].self;

		while (a) {
			int64_t rest = scale % a;

			scale = a;
			a = rest;
		}
	}
	return scale ? scale : 1;
}

static void write_nodes(const struct flame *f, int64_t scale, struct json_out *json)
{
	const struct flame_tree *tree = f->tree;
	bool flags = false;

	json_out_open(json, "node", '{');
	write_column(json, "fn", f->number, tree->count);
	json_out_open(json, "up", '[');
	for (uint32_t i = 0; i < tree->count; i++)
		json_out_uint(json, NULL,
			      i ? tree->nodes[i - 1].depth + 1 - tree->nodes[i].depth : 0);
	json_out_close(json, ']');
	json_out_open(json, "self", '[');
	for (uint32_t i = 0; i < tree->count; i++) {
		json_out_int(json, NULL, tree->nodes[i].self / scale);
		flags |= (tree->nodes[i].flags & FLAGS_SHOWN) != 0;
	}
	json_out_close(json, ']');
	if (flags) {
		json_out_open(json, "flags", '[');
		for (uint32_t i = 0; i < tree->count; i++)
			json_out_uint(json, NULL, tree->nodes[i].flags & FLAGS_SHOWN);
		json_out_close(json, ']');
	}
	json_out_close(json, '}');
}

static void write_head(const struct flame *f, const struct render_options *options, int64_t scale,
		       struct json_out *json)
{
	const struct profile *p = f->p;
	const struct profile_type_info *info = profile_type_info(p->meta.type);
	char title[320];

	render_title(p, options, title, sizeof(title));
	json_out_uint(json, "v", 1);
	json_out_text(json, "type", info->word);
	json_out_text(json, "value", info->values[options->value_index].name);
	json_out_text(json, "unit", info->values[options->value_index].unit);
	json_out_text(json, "title", title);
	json_out_text(json, "service", p->meta.service);
	json_out_text(json, "host", p->meta.host);
	json_out_time(json, "from", p->meta.start_ns);
	json_out_real(json, "durationSeconds", (double)p->meta.duration_ns / 1e9, 3);
	json_out_bool(json, "rate", info->rate);
	json_out_int(json, "scale", scale);
	json_out_int(json, "total", f->tree->nodes[0].total / scale);
	json_out_int(json, "samples", p->quality.samples > 0 ? p->quality.samples : 0);
}

int render_flame(const struct profile *p, const struct render_options *options, struct buf *out,
		 struct err *err)
{
	cleanup_flame_tree struct flame_tree tree = { 0 };
	struct flame f = { .p = p, .tree = &tree };
	struct json_out json = json_out_to(out);
	int64_t scale;
	int rc = flame_tree_build(p, options, &tree);

	(void)err;
	if (rc == 0)
		rc = number_functions(&f);
	if (rc == 0)
		rc = find_mappings(&f);
	if (rc == 0) {
		scale = common_scale(&tree);
		json_out_open(&json, NULL, '{');
		write_head(&f, options, scale, &json);
		rc = write_functions(&f, &json);
		write_nodes(&f, scale, &json);
		json_out_open(&json, "pruned", '{');
		json_out_uint(&json, "nodes", tree.pruned_nodes);
		json_out_int(&json, "value", tree.pruned_value / scale);
		json_out_int(&json, "minTotal", tree.min_total / scale);
		json_out_close(&json, '}');
		quality_json(&json, "quality", &p->quality);
		json_out_close(&json, '}');
		buf_add_char(out, '\n');
	}
	flame_deinit(&f);
	return rc < 0 ? rc : out->error;
}
