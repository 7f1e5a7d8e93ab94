// SPDX-License-Identifier: Apache-2.0
/* Folded stacks, as flamegraph.pl, inferno, speedscope and Pyroscope read them: frames root first, joined by
 * `;`, a blank, the value; one line per distinct stack, in the order of the names, so that equal profiles give
 * equal bytes. The lines are written in one walk over the stacks folded by name: no text but the current line is held. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "agent/base/u64map.h"
#include "api/render/flame_tree.h"

/* Stacks folded by name; parents have smaller indexes than children, 0 is the root. */
struct folded {
	const struct profile *p;
	uint32_t *parent, *name; /* name: string id */
	int64_t *self, *total;
	uint32_t *first, *next; /* children in the order of names; 0 = none */
	uint32_t *depth;
	uint32_t count, depth_max;
	uint32_t *order; /* node of the profile -> node here, then nodes by name */
	uint32_t *rank;	 /* string id -> rank of the name + 1 */
};

static void folded_deinit(struct folded *f)
{
	free(f->parent);
	free(f->name);
	free(f->self);
	free(f->total);
	free(f->first);
	free(f->next);
	free(f->depth);
	free(f->order);
	free(f->rank);
}

static int folded_alloc(struct folded *f)
{
	size_t nodes = (size_t)f->p->node_count + 1;

	f->parent = calloc(nodes, sizeof(*f->parent));
	f->name = calloc(nodes, sizeof(*f->name));
	f->self = calloc(nodes, sizeof(*f->self));
	f->total = calloc(nodes, sizeof(*f->total));
	f->first = calloc(nodes, sizeof(*f->first));
	f->next = calloc(nodes, sizeof(*f->next));
	f->depth = calloc(nodes, sizeof(*f->depth));
	f->order = calloc(nodes, sizeof(*f->order));
	f->rank = calloc((size_t)f->p->string_count + 1, sizeof(*f->rank));
	return f->parent && f->name && f->self && f->total && f->first && f->next && f->depth &&
			       f->order && f->rank
		       ? 0
		       : -ENOMEM;
}

static int fold(struct folded *f, unsigned value)
{
	const struct profile *p = f->p;
	struct u64map known = { 0 };
	int rc = 0;

	f->count = 1;
	for (uint32_t i = 1; rc == 0 && i < p->node_count; i++) {
		uint32_t name = p->functions[p->frames[p->nodes[i].frame].function].name;
		uint32_t parent = f->order[p->nodes[i].parent];
		uint64_t key = (uint64_t)parent << 32 | name, at;

		if (!u64map_get(&known, key, &at)) {
			at = f->count++;
			f->parent[at] = parent;
			f->name[at] = name;
			f->depth[at] = f->depth[parent] + 1;
			if (f->depth[at] > f->depth_max)
				f->depth_max = f->depth[at];
			rc = u64map_put(&known, key, at);
		}
		f->order[i] = (uint32_t)at;
	}
	u64map_deinit(&known);
	for (uint32_t i = 0; rc == 0 && i < p->sample_count; i++)
		f->self[f->order[p->samples[i].node]] += p->samples[i].values[value];
	for (uint32_t i = f->count; rc == 0 && i-- > 0;) {
		f->total[i] += f->self[i];
		if (i)
			f->total[f->parent[i]] += f->total[i];
	}
	return rc;
}

static int compare_names(const void *a, const void *b, void *profile)
{
	return strcmp(profile_string(profile, *(const uint32_t *)a),
		      profile_string(profile, *(const uint32_t *)b));
}

/* Ranks the names that occur; how many there are. */
static int rank_names(struct folded *f, uint32_t *ret_count)
{
	cleanup_free uint32_t *names = calloc((size_t)f->p->string_count + 1, sizeof(*names));
	uint32_t count = 0;

	if (!names)
		return -ENOMEM;
	for (uint32_t i = 1; i < f->count; i++) {
		if (!f->rank[f->name[i]])
			names[count++] = f->name[i];
		f->rank[f->name[i]] = 1;
	}
	qsort_r(names, count, sizeof(*names), compare_names, (void *)f->p);
	for (uint32_t i = 0; i < count; i++)
		f->rank[names[i]] = i + 1;
	*ret_count = count;
	return 0;
}

/* Lists of children: all nodes sorted by the rank of their name, the last one pushed first. */
static int list_children(struct folded *f)
{
	cleanup_free uint32_t *start = NULL;
	uint32_t ranks = 0;
	int rc = rank_names(f, &ranks);

	if (rc < 0)
		return rc;
	start = calloc((size_t)ranks + 2, sizeof(*start));
	if (!start)
		return -ENOMEM;
	for (uint32_t i = 1; i < f->count; i++)
		start[f->rank[f->name[i]] + 1]++;
	for (uint32_t r = 1; r <= ranks; r++)
		start[r + 1] += start[r];
	for (uint32_t i = 1; i < f->count; i++)
		f->order[start[f->rank[f->name[i]]]++] = i;
	for (uint32_t i = f->count - 1; i-- > 0;) {
		uint32_t at = f->order[i];

		f->next[at] = f->first[f->parent[at]];
		f->first[f->parent[at]] = at;
	}
	return 0;
}

/* Node that the path of hashes leads to, as in flame_tree_build(). */
static int find_root(const struct folded *f, const struct render_options *options, uint32_t *ret)
{
	uint32_t at = 0;

	for (unsigned step = 0; step < options->root_count; step++) {
		uint32_t best = 0;

		for (uint32_t c = f->first[at]; c; c = f->next[c])
			if (flame_name_hash(profile_string(f->p, f->name[c])) == options->root[step] &&
			    (!best || f->total[c] > f->total[best]))
				best = c;
		if (!best)
			return step > 0 ? 0 : -ENOENT;
		at = *ret = best;
	}
	return 0;
}

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

/* Without recursion: stacks may be thousands deep. */
static int write_lines(const struct folded *f, uint32_t root, struct buf *out)
{
	cleanup_free size_t *ends = calloc((size_t)f->depth_max + 2, sizeof(*ends));
	cleanup_buf struct buf path = { 0 };
	uint32_t at = root;

	if (!ends)
		return -ENOMEM;
	while (!out->error && !path.error) {
		if (at) {
			const char *name = profile_string(f->p, f->name[at]);

			path.len = at == root ? 0 : ends[f->depth[at] - 1];
			if (path.len)
				buf_add_char(&path, ';');
			add_name(&path, *name ? name : "[unknown]");
			ends[f->depth[at]] = path.len;
			if (f->self[at]) {
				buf_add(out, path.data, path.len);
				buf_printf(out, " %" PRId64 "\n", f->self[at]);
			}
		}
		if (f->first[at]) {
			at = f->first[at];
			continue;
		}
		while (at != root && !f->next[at])
			at = f->parent[at];
		if (at == root)
			break;
		at = f->next[at];
	}
	return path.error;
}

int render_folded(const struct profile *p, const struct render_options *options, struct buf *out,
		  struct err *err)
{
	struct folded f = { .p = p };
	uint32_t root = 0;
	int rc = folded_alloc(&f);

	(void)err;
	if (rc == 0)
		rc = fold(&f, options->value_index);
	if (rc == 0)
		rc = list_children(&f);
	if (rc == 0)
		rc = find_root(&f, options, &root);
	if (rc == 0)
		rc = write_lines(&f, root, out);
	folded_deinit(&f);
	return rc < 0 ? rc : out->error;
}
