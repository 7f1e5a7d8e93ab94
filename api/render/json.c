// SPDX-License-Identifier: Apache-2.0
/* Nested {name, value, self, children[]}: what d3-flame-graph and its relatives read. */
#include "api/json_out.h"
#include "api/render/flame_tree.h"

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
