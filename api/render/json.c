// SPDX-License-Identifier: Apache-2.0
/* Nested {name, value, self, children[]}: what d3-flame-graph and its relatives read. With details
 * also {file, line (the function's first), module, buildId, kind, inlined, guessed}. */
#include "api/http/json_out.h"
#include "api/render/flame_tree.h"

void render_frame_details(struct json_out *json, const struct profile *p,
			  const struct profile_frame *frame)
{
	const struct profile_function *function = frame ? &p->functions[frame->function] : NULL;
	const struct profile_mapping *mapping =
		frame && frame->mapping < p->mapping_count ? &p->mappings[frame->mapping] : NULL;
	char build_id[RENDER_BUILD_ID_SIZE];

	json_out_text(json, "file", function ? profile_string(p, function->file) : "");
	json_out_uint(json, "line", frame ? frame->line : 0);
	json_out_text(json, "module", mapping ? profile_string(p, mapping->path) : "");
	json_out_text(json, "buildId", mapping ? render_build_id(mapping, build_id) : "");
	json_out_text(json, "kind", render_kind_word(frame ? frame->kind : PROFILE_FRAME_MARKER));
	json_out_bool(json, "inlined", frame && frame->flags & PROFILE_FRAME_INLINED);
	json_out_bool(json, "guessed", frame && frame->flags & PROFILE_FRAME_GUESSED);
	json_out_bool(json, "approximate", frame && frame->flags & PROFILE_FRAME_APPROXIMATE);
}

/* A node is one function, whatever its lines. */
static void write_details(const struct profile *p, const struct flame_node *node,
			  struct json_out *json)
{
	bool is_one = node->function != FLAME_PRUNED;
	const struct profile_frame frame = { .function = node->function,
					     .mapping = node->mapping,
					     .line = is_one ? p->functions[node->function].line : 0,
					     .kind = node->kind,
					     .flags = node->flags };

	render_frame_details(json, p, is_one ? &frame : NULL);
}

int render_json(const struct profile *p, const struct render_options *options, struct buf *out,
		struct err *err)
{
	cleanup_flame_tree struct flame_tree tree = { 0 };
	struct json_out json = json_out_to(out);
	char scratch[FLAME_NAME_SIZE];
	uint32_t open = 0; /* nodes whose children are being written */
	int rc = flame_tree_build(p, options, &tree);

	(void)err;
	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < tree.count && !out->error; i++) {
		const struct flame_node *node = &tree.nodes[i];

		for (; open > node->depth; open--) {
			json_out_close(&json, ']');
			json_out_close(&json, '}');
		}
		json_out_open(&json, NULL, '{');
		json_out_text(&json, "name", flame_tree_name(p, node, scratch));
		json_out_int(&json, "value", node->total);
		json_out_int(&json, "self", node->self);
		if (options->details)
			write_details(p, node, &json);
		json_out_open(&json, "children", '[');
		open++;
	}
	for (; open > 0; open--) {
		json_out_close(&json, ']');
		json_out_close(&json, '}');
	}
	buf_add_char(out, '\n');
	return out->error;
}
