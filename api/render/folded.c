// SPDX-License-Identifier: Apache-2.0
/* Folded stacks, as flamegraph.pl, inferno, speedscope and Pyroscope read them: frames root first,
 * joined by `;`, a blank, the value; one line per distinct stack, in the order of the names, so
 * that equal profiles give equal bytes. The lines are written in one walk over the stacks folded by
 * name: no text but the current line is held. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "api/render/flame_tree.h"
#include "api/render/stack_groups.h"

/* A level of the walk: children of one node, by name. */
struct level {
	size_t begin, end, at; /* in the groups */
	size_t path_len;       /* of the node above */
};
VEC_DEFINE(levels, struct level);

struct folded {
	const struct profile *p;
	struct stack_groups groups;
	struct levels_vec levels;
	struct buf path;
	struct buf *out;
};

static int compare_names(const void *a, const void *b, void *profile)
{
	const struct profile *p = profile;

	return strcmp(profile_string(p, p->functions[((const struct stack_group *)a)->function].name),
		      profile_string(p, p->functions[((const struct stack_group *)b)->function].name));
}

static int enter_level(struct folded *f, uint32_t head)
{
	struct level level = { .path_len = f->path.len };
	int rc = stack_groups_make(&f->groups, head, 0, &level.begin);

	if (rc < 0)
		return rc;
	stack_groups_drop(&f->groups, head);
	level.at = level.begin;
	level.end = f->groups.all.count;
	if (level.end - level.begin > 1)
		qsort_r(f->groups.all.data + level.begin, level.end - level.begin,
			sizeof(struct stack_group), compare_names, (void *)f->p);
	return levels_vec_push(&f->levels, level);
}

void render_folded_name(const char *name, struct buf *out)
{
	while (*name) {
		const char *run = name;

		while (*name && *name != ';' && (unsigned char)*name >= 0x20)
			name++;
		buf_add(out, run, (size_t)(name - run));
		if (*name)
			buf_add_char(out, *name++ == ';' ? ':' : ' ');
	}
}

static void write_line(struct folded *f, const struct stack_group *group, size_t path_len)
{
	const char *name = profile_string(f->p, f->p->functions[group->function].name);
	int64_t self = stack_groups_self(&f->groups, group->head);

	f->path.len = path_len;
	if (path_len)
		buf_add_char(&f->path, ';');
	render_folded_name(*name ? name : "[unknown]", &f->path);
	if (!self)
		return;
	buf_add(f->out, f->path.data, f->path.len);
	buf_printf(f->out, " %" PRId64 "\n", self);
}

/* Without recursion: stacks may be thousands deep. */
static int write_lines(struct folded *f)
{
	int rc = 0;

	while (rc == 0 && f->levels.count && !f->out->error && !f->path.error) {
		struct level *level = &f->levels.data[f->levels.count - 1];

		if (level->at == level->end) {
			f->groups.all.count = level->begin;
			f->levels.count--;
			continue;
		}
		write_line(f, &f->groups.all.data[level->at], level->path_len);
		rc = enter_level(f, f->groups.all.data[level->at++].head);
	}
	return rc < 0 ? rc : f->path.error;
}

/* The node that the path of hashes leads to, as in flame_tree_build(). */
static int find_root(struct folded *f, const struct render_options *options,
		     struct stack_group *ret)
{
	for (unsigned step = 0; step < options->root_count; step++) {
		size_t begin;
		int rc = stack_groups_make(&f->groups, ret->head, 0, &begin);
		size_t at = begin;

		if (rc < 0)
			return rc;
		while (at < f->groups.all.count &&
		       flame_name_hash(profile_string(
			       f->p, f->p->functions[f->groups.all.data[at].function].name)) !=
			       options->root[step])
			at++;
		if (at == f->groups.all.count)
			return step > 0 ? 0 : -ENOENT;
		*ret = f->groups.all.data[at];
		f->groups.all.count = begin;
	}
	return 0;
}

/* The first level: all there is, or the wanted node alone. */
static int enter_root(struct folded *f, const struct render_options *options)
{
	struct stack_group root = { 0 };
	int rc = find_root(f, options, &root);

	if (rc < 0 || !root.head)
		return rc < 0 ? rc : enter_level(f, 0);
	f->groups.all.count = 0;
	rc = stack_group_vec_push(&f->groups.all, root);
	return rc < 0 ? rc : levels_vec_push(&f->levels, (struct level){ .end = 1 });
}

int render_folded(const struct profile *p, const struct render_options *options, struct buf *out,
		  struct err *err)
{
	struct folded f = { .p = p, .out = out };
	int rc;

	(void)err;
	rc = stack_groups_init(&f.groups, p, options->value_index, true);
	if (rc == 0)
		rc = enter_root(&f, options);
	if (rc == 0)
		rc = write_lines(&f);
	stack_groups_deinit(&f.groups);
	levels_vec_deinit(&f.levels);
	buf_deinit(&f.path);
	return rc < 0 ? rc : out->error;
}
