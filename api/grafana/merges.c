// SPDX-License-Identifier: Apache-2.0
/* Merged profiles: flame graphs, pprof and differences. A flame graph is a list of levels, each a
 * list of bars from left to right. A bar is (distance from the end of the bar before it, total,
 * self, index of its name); in a difference the first three come twice, for the left and the right
 * side. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/profile/compare/flame_diff.h"
#include "api/api_internal.h"
#include "api/grafana/answers.h"
#include "api/grafana/select.h"
#include "api/render/flame_tree.h"
#include "api/render/proto.h"

#define NODES_DEFAULT 8192 /* as Pyroscope has it */

enum { FORMAT_UNSPECIFIED, FORMAT_FLAMEGRAPH, FORMAT_TREE, FORMAT_DOT, FORMAT_PPROF };

static int nodes_of(struct http_call *call, int64_t asked, uint32_t *ret)
{
	if (asked > RENDER_NODES_MAX)
		return err_set(call->err, EINVAL, "InvalidParam", "maxNodes", "at most %u nodes",
			       RENDER_NODES_MAX);
	*ret = asked > 0 ? (uint32_t)asked : asked < 0 ? RENDER_NODES_MAX : NODES_DEFAULT;
	return 0;
}

/* ---- bars ------------------------------------------------------------------------------------ */

#define SIDES_MAX 2

struct bar {
	uint32_t depth, name;
	int64_t total[SIDES_MAX], self[SIDES_MAX];
};

struct graph {
	unsigned sides;
	uint32_t depth_max;
	struct bar *bars; /* preorder, owned */
	uint32_t count;
	uint32_t *numbers; /* of the names, by function; 0: not yet. Owned */
	uint32_t names;
};

static int64_t not_negative(int64_t value)
{
	return value > 0 ? value : 0;
}

/* Writes the bars of one level. @begin: where each bar starts on each side. */
static void write_level(const struct graph *g, const uint32_t *order, uint32_t count,
			const int64_t *begin, struct buf *level, struct buf *out)
{
	cleanup_buf struct buf message = { 0 };
	int64_t end[SIDES_MAX] = { 0 };

	for (uint32_t i = 0; i < count; i++) {
		const struct bar *bar = &g->bars[order[i]];

		for (unsigned side = 0; side < g->sides; side++) {
			int64_t at = begin[order[i] * g->sides + side];

			buf_add_varint(level, (uint64_t)(at - end[side]));
			buf_add_varint(level, (uint64_t)bar->total[side]);
			buf_add_varint(level, (uint64_t)bar->self[side]);
			end[side] = at + bar->total[side];
		}
		buf_add_varint(level, bar->name);
	}
	proto_message(&message, 1, level);
	proto_message(out, 2, &message);
}

struct layout {
	int64_t *begin;		 /* by bar and side */
	int64_t *next;		 /* by depth and side: where the next bar starts */
	uint32_t *first, *order; /* bars by depth */
};

/* Children lie behind the value that their parent has by itself. */
static void lay_out(const struct graph *g, struct layout *l)
{
	for (uint32_t i = 0; i < g->count; i++) {
		const struct bar *bar = &g->bars[i];

		for (unsigned side = 0; side < g->sides; side++) {
			int64_t at = l->next[bar->depth * g->sides + side];

			l->begin[i * g->sides + side] = at;
			l->next[bar->depth * g->sides + side] = at + bar->total[side];
			l->next[(bar->depth + 1) * g->sides + side] = at + bar->self[side];
		}
		l->first[bar->depth + 1]++;
	}
	for (uint32_t depth = 1; depth <= g->depth_max + 1; depth++)
		l->first[depth] += l->first[depth - 1];
	for (uint32_t i = 0; i < g->count; i++)
		l->order[l->first[g->bars[i].depth]++] = i;
}

static int write_levels(const struct graph *g, struct buf *out)
{
	size_t depths = (size_t)g->depth_max + 2;
	cleanup_free int64_t *begin = calloc((size_t)g->count * g->sides, sizeof(*begin));
	cleanup_free int64_t *next = calloc((depths + 1) * g->sides, sizeof(*next));
	cleanup_free uint32_t *first = calloc(depths + 1, sizeof(*first));
	cleanup_free uint32_t *order = calloc(g->count, sizeof(*order));
	struct layout l = { begin, next, first, order };
	cleanup_buf struct buf level = { 0 };
	uint32_t from = 0;

	if (!begin || !next || !first || !order)
		return -ENOMEM;
	lay_out(g, &l);
	/* lay_out() has moved each depth's first bar to the begin of the next depth. */
	for (uint32_t depth = 0; depth <= g->depth_max; depth++) {
		write_level(g, order + from, first[depth] - from, begin, &level, out);
		from = first[depth];
	}
	return level.error ? level.error : out->error;
}

/* total, max_self, and of differences left_ticks and right_ticks. */
static void write_sums(const struct graph *g, struct buf *out)
{
	int64_t most = 0, total = 0;

	for (uint32_t i = 0; i < g->count; i++)
		for (unsigned side = 0; side < g->sides; side++)
			most = g->bars[i].self[side] > most ? g->bars[i].self[side] : most;
	for (unsigned side = 0; side < g->sides; side++)
		total += g->bars[0].total[side];
	proto_int(out, 3, total);
	proto_int(out, 4, most);
	for (unsigned side = 0; side < g->sides && g->sides > 1; side++)
		proto_int(out, 5 + side, g->bars[0].total[side]);
}

/* Names 0 and 1 are those of bars without a function. */
enum { NAME_TOTAL, NAME_OTHER, NAME_FIRST };

/* Makes room for @count bars, and numbers of as many functions, and writes the fixed names. */
static int begin_graph(struct graph *g, unsigned sides, uint32_t depth_max, uint32_t count,
		       uint32_t functions, struct buf *out)
{
	*g = (struct graph){ .sides = sides, .depth_max = depth_max, .count = count,
			     .names = NAME_FIRST };
	g->bars = calloc(count, sizeof(*g->bars));
	g->numbers = calloc((size_t)functions + 1, sizeof(*g->numbers));
	proto_text(out, 1, "total");
	proto_text(out, 1, "other");
	return g->bars && g->numbers ? 0 : -ENOMEM;
}

static void graph_deinit(struct graph *g)
{
	free(g->bars);
	free(g->numbers);
}

/* Numbers the functions in the order in which the bars name them. */
static uint32_t number_name(struct graph *g, uint32_t function, const char *text, struct buf *out)
{
	if (!g->numbers[function]) {
		g->numbers[function] = g->names++;
		proto_text(out, 1, text);
	}
	return g->numbers[function];
}

/* ---- one profile ----------------------------------------------------------------------------- */

static int graph_of_tree(const struct profile *p, const struct flame_tree *tree, struct graph *g,
			 struct buf *out)
{
	int rc = begin_graph(g, 1, tree->depth_max, tree->count, p->function_count, out);

	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < tree->count; i++) {
		const struct flame_node *node = &tree->nodes[i];
		struct bar *bar = &g->bars[i];

		bar->depth = node->depth;
		bar->total[0] = not_negative(node->total);
		bar->self[0] = not_negative(node->self);
		bar->name =
			node->function == FLAME_PRUNED
				? (node->pruned ? NAME_OTHER : NAME_TOTAL)
				: number_name(g, node->function,
					      profile_string(p, p->functions[node->function].name),
					      out);
	}
	return 0;
}

static int write_graph(const struct profile *p, unsigned value, uint32_t max_nodes, struct buf *out)
{
	const struct render_options options = { .value_index = value, .max_nodes = max_nodes };
	cleanup_flame_tree struct flame_tree tree = { 0 };
	struct graph g = { 0 };
	int rc = flame_tree_build(p, &options, &tree);

	if (rc == 0)
		rc = graph_of_tree(p, &tree, &g, out);
	if (rc == 0)
		rc = write_levels(&g, out);
	if (rc == 0)
		write_sums(&g, out);
	graph_deinit(&g);
	return rc;
}

static int write_format(struct http_call *call, const struct querier_request *request,
			const struct profile *p, unsigned value, struct buf *out)
{
	cleanup_buf struct buf part = { 0 }, wrapped = { 0 };
	uint32_t max_nodes = 0;
	int rc = nodes_of(call, request->max_nodes, &max_nodes);

	if (rc < 0)
		return rc;
	if (request->format == FORMAT_PPROF) {
		rc = render_pprof_value(p, value, &part);
		proto_message(&wrapped, 1, &part);
		proto_message(out, 5, &wrapped);
	} else {
		rc = write_graph(p, value, max_nodes, &part);
		proto_message(out, 1, &part);
	}
	return rc;
}

int answer_merge_stacktraces(struct http_call *call, const struct querier_request *request,
			     struct buf *out)
{
	cleanup_selection struct selection selection = { 0 };
	cleanup(profile) struct profile *p = NULL;
	int rc;

	if (request->format == FORMAT_TREE || request->format == FORMAT_DOT ||
	    request->format > FORMAT_PPROF || request->format < 0)
		return err_set(call->err, ENOTSUP, "NotImplemented", "format",
			       "only the formats FLAMEGRAPH and PPROF are supported");
	rc = selection_read(call, request, &selection);
	if (rc == 0)
		rc = selection_profile(&selection, &p);
	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	return write_format(call, request, p, selection.id.value, out);
}

int answer_merge_profile(struct http_call *call, const struct querier_request *request,
			 struct buf *out)
{
	cleanup_selection struct selection selection = { 0 };
	cleanup(profile) struct profile *p = NULL;
	int rc = selection_read(call, request, &selection);

	if (rc == 0)
		rc = selection_profile(&selection, &p);
	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	return render_pprof_value(p, selection.id.value, out);
}

/* ---- differences ----------------------------------------------------------------------------- */

static int graph_of_diff(const struct flame_diff *diff, struct graph *g, struct buf *out)
{
	int rc = begin_graph(g, SIDES_MAX, diff->depth_max, diff->node_count, diff->function_count, out);

	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < diff->node_count; i++) {
		const struct flame_diff_node *node = &diff->nodes[i];
		struct bar *bar = &g->bars[i];

		bar->depth = node->depth;
		for (unsigned side = 0; side < SIDES_MAX; side++) {
			bar->total[side] = not_negative(node->total[side]);
			bar->self[side] = not_negative(node->self[side]);
		}
		bar->name = !i ? NAME_TOTAL
			    : node->function == FLAME_DIFF_PRUNED
				    ? NAME_OTHER
				    : number_name(g, node->function, diff->functions[node->function].name, out);
	}
	return 0;
}

static int write_diff(const struct profile *left, const struct profile *right, uint32_t max_nodes,
		      struct buf *out)
{
	cleanup_flame_diff struct flame_diff diff = { 0 };
	struct graph g = { 0 };
	int rc = flame_diff_init(&diff, left, right, max_nodes);

	if (rc == 0)
		rc = graph_of_diff(&diff, &g, out);
	if (rc == 0)
		rc = write_levels(&g, out);
	if (rc == 0)
		write_sums(&g, out);
	graph_deinit(&g);
	return rc;
}

/* The profile of one side; nothing stored is an empty profile. */
static int load_side(struct http_call *call, const struct querier_request *request,
		     const char *field, struct type_id *ret_id, struct profile **ret)
{
	cleanup_selection struct selection selection = { 0 };
	struct profile_quality quality = { 0 };
	struct profile_meta meta = { 0 };
	cleanup(profile_builder) struct profile_builder *builder = NULL;
	int rc;

	if (!request)
		return err_set(call->err, EINVAL, "InvalidParam", field, "the side %s is missing",
			       field);
	rc = selection_read(call, request, &selection);
	if (rc < 0)
		return rc;
	*ret_id = selection.id;
	rc = selection_profile(&selection, ret);
	if (rc != -ENOENT)
		return rc;
	meta.type = selection.id.type;
	builder = profile_builder_create(&meta, 1);
	if (!builder)
		return -ENOMEM;
	rc = profile_builder_finish(builder, &quality, ret);
	return rc;
}

int answer_diff(struct http_call *call, const struct querier_request *request, struct buf *out)
{
	cleanup(profile) struct profile *left = NULL, *right = NULL;
	cleanup_buf struct buf part = { 0 };
	struct type_id ids[SIDES_MAX];
	int64_t asked;
	uint32_t max_nodes = 0;
	int rc = load_side(call, request->left, "left", &ids[0], &left);

	if (rc == 0)
		rc = load_side(call, request->right, "right", &ids[1], &right);
	if (rc < 0)
		return rc;
	if (ids[0].type != ids[1].type || ids[0].value != ids[1].value)
		return err_set(call->err, EINVAL, "InvalidParam", "profileTypeID",
			       "both sides must be of one profile type");
	if (ids[0].value != profile_value_index(left))
		return err_set(
			call->err, ENOTSUP, "NotImplemented", "profileTypeID",
			"differences are made of the value %s of this profile type only",
			profile_type_info(ids[0].type)->values[profile_value_index(left)].name);
	asked = request->left->max_nodes > request->right->max_nodes ? request->left->max_nodes
								     : request->right->max_nodes;
	rc = nodes_of(call, asked, &max_nodes);
	if (rc == 0)
		rc = write_diff(left, right, max_nodes, &part);
	proto_message(out, 1, &part);
	return rc;
}
