// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/compare/compare_join.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/base/intern.h"
#include "agent/base/vec.h"
#include "agent/profile/builder_internal.h"

/* A function as it is looked up, and who has it. */
struct entry {
	const char *name, *package, *file;
	uint64_t build; /* 0 unless it is an unknown place */
	uint32_t group; /* entries of the same name, package and build */
	bool on[2];
	uint32_t merged; /* entry it was joined with, its own index if none */
	uint32_t joined;
};

/* How many entries of a group only one side has, and the last of them. */
struct group {
	uint32_t only[2], last[2];
};

/* Builds of a module seen among unknown functions. */
struct module {
	const char *package;
	uint64_t build[2];
	bool seen[2], mixed;
};

VEC_DEFINE(entries, struct entry);
VEC_DEFINE(modules, struct module);

struct work {
	struct join *join;
	struct entries_vec entries;
	struct modules_vec modules;
	struct intern entry_index, module_index, group_index;
	struct group *groups; /* by entry that opened the group */
	uint32_t *entry_of[2];
};

static uint64_t text_hash(const char *text, uint64_t seed)
{
	return hash_bytes(text, strlen(text), seed);
}

static int note_module(struct work *w, int side, const struct window_function *f)
{
	const char *package = window_text(w->join->m[side], f->package);
	uint64_t hash = text_hash(package, 1);
	struct intern_probe probe = intern_probe(&w->module_index, hash);
	struct module *known = NULL;
	uint32_t id;
	int rc;

	while ((id = intern_next(&w->module_index, &probe)) != INTERN_NONE) {
		if (!strcmp(w->modules.data[id].package, package)) {
			known = &w->modules.data[id];
			break;
		}
	}
	if (!known) {
		rc = intern_add(&w->module_index, hash, (uint32_t)w->modules.count);
		if (rc == 0)
			rc = modules_vec_push(&w->modules, (struct module){ .package = package });
		if (rc < 0)
			return rc;
		known = &w->modules.data[w->modules.count - 1];
	}
	if (known->seen[side] && known->build[side] != f->build)
		known->mixed = true;
	known->seen[side] = true;
	known->build[side] = f->build;
	return 0;
}

/* Whether places inside this module mean the same on both sides. */
static bool is_same_build(const struct work *w, const char *package)
{
	struct intern_probe probe = intern_probe(&w->module_index, text_hash(package, 1));
	uint32_t id;

	while ((id = intern_next(&w->module_index, &probe)) != INTERN_NONE) {
		const struct module *m = &w->modules.data[id];

		if (!strcmp(m->package, package))
			return !m->mixed && m->seen[0] && m->seen[1] && m->build[0] == m->build[1];
	}
	return false;
}

static uint32_t find_group(struct work *w, const struct entry *e, int *rc)
{
	uint64_t hash = text_hash(e->package, text_hash(e->name, e->build));
	struct intern_probe probe = intern_probe(&w->group_index, hash);
	uint32_t id;

	while ((id = intern_next(&w->group_index, &probe)) != INTERN_NONE) {
		const struct entry *first = &w->entries.data[id];

		if (!strcmp(first->name, e->name) && !strcmp(first->package, e->package) &&
		    first->build == e->build)
			return id;
	}
	/* The entry about to be pushed opens the group. */
	id = (uint32_t)w->entries.count;
	*rc = intern_add(&w->group_index, hash, id);
	return id;
}

static uint32_t find_entry(struct work *w, const struct entry *wanted, int *rc)
{
	uint64_t hash =
		text_hash(wanted->file,
			  text_hash(wanted->package, text_hash(wanted->name, wanted->build + 1)));
	struct intern_probe probe = intern_probe(&w->entry_index, hash);
	struct entry entry = *wanted;
	uint32_t id;

	while ((id = intern_next(&w->entry_index, &probe)) != INTERN_NONE) {
		const struct entry *known = &w->entries.data[id];

		if (!strcmp(known->name, wanted->name) &&
		    !strcmp(known->package, wanted->package) &&
		    !strcmp(known->file, wanted->file) && known->build == wanted->build)
			return id;
	}
	id = (uint32_t)w->entries.count;
	entry.merged = id;
	entry.group = find_group(w, &entry, rc);
	if (*rc == 0)
		*rc = intern_add(&w->entry_index, hash, id);
	if (*rc == 0)
		*rc = entries_vec_push(&w->entries, entry);
	return id;
}

static int add_side(struct work *w, int side)
{
	static const char folded[] = "[unknown]";
	const struct window_matrix *m = w->join->m[side];
	uint32_t i, id;
	int rc = 0;

	w->entry_of[side] = calloc((size_t)m->function_count + 1, sizeof(**w->entry_of));
	if (!w->entry_of[side])
		return -ENOMEM;
	for (i = 0; rc == 0 && i < m->function_count; i++) {
		const struct window_function *f = &m->functions[i];
		struct entry entry = { .name = window_text(m, f->name),
				       .package = window_text(m, f->package),
				       .file = window_text(m, f->file) };

		if (f->flags & WINDOW_FUNCTION_UNKNOWN) {
			entry.build = f->build;
			if (!is_same_build(w, entry.package)) {
				entry.name = folded;
				entry.build = 0;
			}
		}
		id = find_entry(w, &entry, &rc);
		if (rc == 0)
			w->entries.data[id].on[side] = true;
		w->entry_of[side][i] = id;
	}
	return rc;
}

/* A function whose file is known on one side only, or whose file was renamed: joined if it is the
 * only one of its name left on each side. */
static int merge_leftovers(struct work *w)
{
	size_t i;

	w->groups = calloc(w->entries.count + 1, sizeof(*w->groups));
	if (!w->groups)
		return -ENOMEM;
	for (i = 0; i < w->entries.count; i++) {
		const struct entry *e = &w->entries.data[i];
		int side = e->on[0] ? 0 : 1;

		if (e->on[0] && e->on[1])
			continue;
		w->groups[e->group].only[side]++;
		w->groups[e->group].last[side] = (uint32_t)i;
	}
	for (i = 0; i < w->entries.count; i++) {
		const struct group *g = &w->groups[i];

		if (g->only[0] == 1 && g->only[1] == 1)
			w->entries.data[g->last[1]].merged = g->last[0];
	}
	return 0;
}

static struct join_function describe(const struct join *join, int side, uint32_t function,
				     const struct entry *e)
{
	const struct window_matrix *m = join->m[side];
	const struct window_function *f = &m->functions[function];

	return (struct join_function){ .name = e->name,
				       .package = window_text(m, f->label),
				       .file = window_text(m, f->file),
				       .line = f->line,
				       .kind = f->kind,
				       .flags = f->flags,
				       .first = { JOIN_NONE, JOIN_NONE } };
}

static int number(struct work *w)
{
	struct join *join = w->join;
	uint32_t i, k;
	int s;

	join->functions = calloc(w->entries.count + 1, sizeof(*join->functions));
	if (!join->functions)
		return -ENOMEM;
	for (i = 0; i < w->entries.count; i++)
		w->entries.data[i].joined = JOIN_NONE;
	/* The comparison's side comes last and so lends text, line and kind where both have it. */
	for (s = 0; s < 2; s++) {
		join->of[s] = calloc((size_t)join->m[s]->function_count + 1, sizeof(**join->of));
		join->next[s] =
			calloc((size_t)join->m[s]->function_count + 1, sizeof(**join->next));
		if (!join->of[s] || !join->next[s])
			return -ENOMEM;
		for (i = 0; i < join->m[s]->function_count; i++) {
			struct entry *e = &w->entries.data[w->entry_of[s][i]];
			struct entry *root = &w->entries.data[e->merged];
			struct join_function *f;

			if (root->joined == JOIN_NONE) {
				root->joined = join->count++;
				join->functions[root->joined] = describe(join, s, i, e);
			}
			f = &join->functions[root->joined];
			k = f->first[s];
			if (s == 1 && k == JOIN_NONE && f->first[0] != JOIN_NONE) {
				struct join_function shown = describe(join, s, i, e);

				shown.flags |= f->flags;
				shown.first[0] = f->first[0];
				*f = shown;
			}
			f->flags |= join->m[s]->functions[i].flags;
			join->of[s][i] = root->joined;
			join->next[s][i] = k;
			f->first[s] = i;
		}
	}
	return 0;
}

static void work_deinit(struct work *w)
{
	entries_vec_deinit(&w->entries);
	modules_vec_deinit(&w->modules);
	intern_deinit(&w->entry_index);
	intern_deinit(&w->module_index);
	intern_deinit(&w->group_index);
	free(w->groups);
	free(w->entry_of[0]);
	free(w->entry_of[1]);
}

int join_init(struct join *join, const struct window_matrix *base,
	      const struct window_matrix *comparison)
{
	struct join made = { .m = { base, comparison } };
	__attribute__((__cleanup__(work_deinit))) struct work w = { .join = &made };
	uint32_t i;
	int rc = 0, s;

	for (s = 0; s < 2; s++)
		for (i = 0; rc == 0 && i < made.m[s]->function_count; i++)
			if (made.m[s]->functions[i].flags & WINDOW_FUNCTION_UNKNOWN)
				rc = note_module(&w, s, &made.m[s]->functions[i]);
	for (s = 0; rc == 0 && s < 2; s++)
		rc = add_side(&w, s);
	if (rc == 0)
		rc = merge_leftovers(&w);
	if (rc == 0)
		rc = number(&w);
	if (rc < 0)
		join_deinit(&made);
	else
		*join = made;
	return rc;
}

void join_deinit(struct join *join)
{
	int s;

	for (s = 0; s < 2; s++) {
		free(join->of[s]);
		free(join->next[s]);
	}
	free(join->functions);
	*join = (struct join){ 0 };
}

int64_t join_sum(const struct join *join, int side, uint32_t function,
		 const struct window_cells *cells)
{
	uint32_t f, i;
	int64_t sum = 0;

	for (f = join->functions[function].first[side]; f != JOIN_NONE; f = join->next[side][f])
		for (i = cells->first[f]; i < cells->first[f + 1]; i++)
			sum = profile_add(sum, cells->value[i]);
	return sum;
}
