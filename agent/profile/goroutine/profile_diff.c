// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/goroutine/profile_diff.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/base/intern.h"
#include "agent/base/u64map.h"
#include "agent/profile/canonical.h"

static void map_deinit(struct u64map *map)
{
	u64map_deinit(map);
}
#define cleanup_map __attribute__((__cleanup__(map_deinit)))

/* ---- goroutines ------------------------------------------------------------------------------ */

/* One entry per identity in the order of the side's stacks, so that the largest group comes first
 * and lends its state; @found maps an identity to its entry. */
static int collect(const struct goroutine_analysis *side, bool is_base, struct u64map *found,
		   struct diff_stack *entries, uint32_t *count)
{
	uint32_t i;
	int rc;

	for (i = 0; i < side->stack_count; i++) {
		const struct goroutine_stack *stack = &side->stacks[i];
		struct diff_stack *entry;
		uint64_t at;

		if (!u64map_get(found, stack->identity, &at)) {
			at = (*count)++;
			entries[at] = (struct diff_stack){ side, stack, 0, 0 };
			rc = u64map_put(found, stack->identity, at);
			if (rc < 0)
				return rc;
		}
		entry = &entries[at];
		/* The comparison side lends the words wherever it has the stack. */
		if (!is_base && !entry->compare_count)
			*entry = (struct diff_stack){ side, stack, entry->base_count, 0 };
		*(is_base ? &entry->base_count : &entry->compare_count) += stack->count;
	}
	return 0;
}

static uint64_t change(const struct diff_stack *s)
{
	return s->compare_count > s->base_count ? s->compare_count - s->base_count
						: s->base_count - s->compare_count;
}

static int by_change(const void *left, const void *right)
{
	const struct diff_stack *a = left, *b = right;

	if (change(a) != change(b))
		return change(a) > change(b) ? -1 : 1;
	return (a->stack->identity > b->stack->identity) -
	       (a->stack->identity < b->stack->identity);
}

enum part { PART_NEW, PART_GROWN, PART_REMOVED };

static bool belongs(const struct diff_stack *s, enum part part)
{
	switch (part) {
	case PART_NEW:
		return !s->base_count;
	case PART_GROWN:
		return s->base_count && s->compare_count > s->base_count;
	default:
		return !s->compare_count;
	}
}

static int pick(const struct diff_stack *entries, uint32_t count, enum part part,
		struct diff_stack **ret, uint32_t *ret_count)
{
	struct diff_stack *picked = calloc((size_t)count + 1, sizeof(*picked));
	uint32_t i, used = 0;

	if (!picked)
		return -ENOMEM;
	for (i = 0; i < count; i++)
		if (belongs(&entries[i], part))
			picked[used++] = entries[i];
	qsort(picked, used, sizeof(*picked), by_change);
	*ret = picked;
	*ret_count = used;
	return 0;
}

static int diff_goroutines(struct profile_diff *d, const struct profile *base,
			   const struct profile *compare, const struct goroutine_options *options)
{
	cleanup_map struct u64map found = { 0 };
	cleanup_free struct diff_stack *entries = NULL;
	uint32_t count = 0, i;
	int rc = goroutine_analysis_init(&d->base, base, options);

	if (rc == 0)
		rc = goroutine_analysis_init(&d->compare, compare, options);
	if (rc < 0)
		return rc;
	entries =
		calloc((size_t)d->base.stack_count + d->compare.stack_count + 1, sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	rc = collect(&d->base, true, &found, entries, &count);
	if (rc == 0)
		rc = collect(&d->compare, false, &found, entries, &count);
	if (rc == 0)
		rc = pick(entries, count, PART_NEW, &d->new_stacks, &d->new_count);
	if (rc == 0)
		rc = pick(entries, count, PART_GROWN, &d->grown_stacks, &d->grown_count);
	if (rc == 0)
		rc = pick(entries, count, PART_REMOVED, &d->removed_stacks, &d->removed_count);
	if (rc < 0)
		return rc;
	for (i = 0; i < count; i++)
		if (entries[i].compare_count > entries[i].base_count)
			d->growth_count += entries[i].compare_count - entries[i].base_count;
	d->net_growth = (int64_t)(d->compare.total - d->base.total);
	return 0;
}

/* ---- functions ------------------------------------------------------------------------------- */

static struct diff_function *find_function(struct diff_function *functions, struct intern *index,
					   const struct diff_function *wanted, uint32_t *count,
					   int *rc)
{
	uint64_t hash = hash_bytes(wanted->name, strlen(wanted->name), 1);
	struct intern_probe probe;
	uint32_t id;

	hash = hash_bytes(wanted->package, strlen(wanted->package), hash);
	hash = hash_bytes(wanted->file, strlen(wanted->file), hash);
	probe = intern_probe(index, hash);
	while ((id = intern_next(index, &probe)) != INTERN_NONE)
		if (!strcmp(functions[id].name, wanted->name) &&
		    !strcmp(functions[id].package, wanted->package) &&
		    !strcmp(functions[id].file, wanted->file))
			return &functions[id];
	*rc = intern_add(index, hash, *count);
	if (*rc < 0)
		return NULL;
	functions[*count] = *wanted;
	return &functions[(*count)++];
}

static int add_side(struct profile_diff *d, struct intern *index, const struct profile *p,
		    bool is_base, const struct profile_function_row *rows, size_t count)
{
	double total = (double)p->totals[profile_value_index(p)];
	size_t i;
	int rc = 0;

	for (i = 0; i < count; i++) {
		const struct profile_function *f = &p->functions[rows[i].function];
		struct diff_function wanted = { .name = profile_string(p, f->name),
						.package = profile_string(p, f->package),
						.file = profile_string(p, f->file),
						.line = f->line };
		struct diff_function *known =
			find_function(d->functions, index, &wanted, &d->function_count, &rc);
		double pct = total > 0 ? 100 * (double)rows[i].self / total : 0;

		if (!known)
			return rc;
		*(is_base ? &known->base_self : &known->compare_self) = rows[i].self;
		*(is_base ? &known->base_cumulative : &known->compare_cumulative) =
			rows[i].cumulative;
		*(is_base ? &known->base_pct : &known->compare_pct) = pct;
	}
	return 0;
}

/* By what only one side has: how often, and the first. */
struct one_sided {
	uint32_t count[2], first[2];
};

static struct canonical_function key_of(const struct diff_function *f)
{
	return (struct canonical_function){ f->name, f->package, f->file };
}

static int side_of(const struct diff_function *f)
{
	bool base = f->base_self || f->base_cumulative, compare = f->compare_self || f->compare_cumulative;

	return base == compare ? -1 : compare;
}

/* The group of @functions[at] opened by the first of its kind. */
static int find_group(const struct profile_diff *d, struct intern *index, uint32_t at,
		      uint32_t *ret)
{
	const struct canonical_function wanted = key_of(&d->functions[at]);
	uint64_t hash = canonical_hash(&wanted);
	struct intern_probe probe = intern_probe(index, hash);

	while ((*ret = intern_next(index, &probe)) != INTERN_NONE) {
		const struct canonical_function known = key_of(&d->functions[*ret]);

		if (canonical_equal(&known, &wanted))
			return 0;
	}
	*ret = at;
	return intern_add(index, hash, at);
}

/* Another build has other suffixes, versions and folders: one function that went and one that came
 * are the same where no other could be meant. */
static int join_builds(struct profile_diff *d)
{
	__attribute__((__cleanup__(intern_deinit))) struct intern index = { 0 };
	cleanup_free struct one_sided *groups = calloc((size_t)d->function_count + 1, sizeof(*groups));
	uint32_t kept = 0;

	if (!groups)
		return -ENOMEM;
	for (uint32_t i = 0; i < d->function_count; i++) {
		int side = side_of(&d->functions[i]), rc;
		uint32_t group;

		if (side < 0)
			continue;
		rc = find_group(d, &index, i, &group);
		if (rc < 0)
			return rc;
		if (!groups[group].count[side]++)
			groups[group].first[side] = i;
	}
	for (uint32_t i = 0; i < d->function_count; i++) {
		const struct one_sided *g = &groups[i];
		struct diff_function *to, *from;

		if (g->count[0] != 1 || g->count[1] != 1)
			continue;
		from = &d->functions[g->first[0]];
		to = &d->functions[g->first[1]];
		to->base_self = from->base_self;
		to->base_cumulative = from->base_cumulative;
		to->base_pct = from->base_pct;
		from->name = NULL;
	}
	for (uint32_t i = 0; i < d->function_count; i++)
		if (d->functions[i].name)
			d->functions[kept++] = d->functions[i];
	d->function_count = kept;
	return 0;
}

static int by_share_change(const void *left, const void *right)
{
	const struct diff_function *a = left, *b = right;
	double da = fabs(a->compare_pct - a->base_pct), db = fabs(b->compare_pct - b->base_pct);
	int by_name;

	if (da != db)
		return da > db ? -1 : 1;
	by_name = strcmp(a->name, b->name);
	if (by_name)
		return by_name;
	by_name = strcmp(a->package, b->package);
	return by_name ? by_name : strcmp(a->file, b->file);
}

static int diff_functions(struct profile_diff *d, const struct profile *base,
			  const struct profile *compare)
{
	__attribute__((__cleanup__(intern_deinit))) struct intern index = { 0 };
	cleanup_free struct profile_function_row *base_rows = NULL, *compare_rows = NULL;
	size_t base_count = 0, compare_count = 0;
	int rc = profile_top_functions(base, profile_value_index(base), &base_rows, &base_count);

	if (rc == 0)
		rc = profile_top_functions(compare, profile_value_index(compare), &compare_rows, &compare_count);
	if (rc < 0)
		return rc;
	d->functions = calloc(base_count + compare_count + 1, sizeof(*d->functions));
	if (!d->functions)
		return -ENOMEM;
	rc = add_side(d, &index, base, true, base_rows, base_count);
	if (rc == 0)
		rc = add_side(d, &index, compare, false, compare_rows, compare_count);
	if (rc == 0)
		rc = join_builds(d);
	if (rc < 0)
		return rc;
	qsort(d->functions, d->function_count, sizeof(*d->functions), by_share_change);
	return 0;
}

/* Stacks of a diff point at its own analyses: the result is built in place, never copied. */
int profile_diff_init(struct profile_diff *ret, const struct profile *base,
		      const struct profile *compare, const struct goroutine_options *options)
{
	int rc;

	if (base->meta.type != compare->meta.type)
		return -EINVAL;
	*ret = (struct profile_diff){ 0 };
	if (base->meta.type == PROFILE_GOROUTINE)
		rc = diff_goroutines(ret, base, compare, options);
	else
		rc = diff_functions(ret, base, compare);
	if (rc < 0)
		profile_diff_deinit(ret);
	return rc;
}

void profile_diff_deinit(struct profile_diff *diff)
{
	goroutine_analysis_deinit(&diff->base);
	goroutine_analysis_deinit(&diff->compare);
	free(diff->new_stacks);
	free(diff->grown_stacks);
	free(diff->removed_stacks);
	free(diff->functions);
	*diff = (struct profile_diff){ 0 };
}
