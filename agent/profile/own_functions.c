// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/own_functions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/text.h"
#include "agent/profile/builder_internal.h"
#include "agent/profile/lock_site.h"

#define NO_FUNCTION UINT32_MAX

/* A stack, from the root to a node. */
struct place {
	uint32_t own;	  /* the innermost function of the program */
	uint32_t library; /* of a language's library */
	bool in_script;	  /* a frame of an interpreted program was met */
};

/* Is the first element of @package one of Go's own? Source: the folders of Go's src/. */
static bool is_of_go(const char *package)
{
	static const char *const folders[] = {
		"archive",  "bufio",   "bytes",	  "compress", "context", "crypto", "database",
		"encoding", "errors",  "fmt",	  "hash",     "html",	 "image",  "internal",
		"io",	    "log",     "math",	  "net",      "os",	 "path",   "reflect",
		"regexp",   "runtime", "sort",	  "strconv",  "strings", "sync",   "syscall",
		"text",	    "time",    "unicode",
	};
	const size_t len = strcspn(package, "/");

	for (size_t i = 0; i < ARRAY_SIZE(folders); i++)
		if (strlen(folders[i]) == len && strncmp(package, folders[i], len) == 0)
			return true;
	return false;
}

/* The libraries that come with Python, Node and Java. */
static bool is_of_script_library(const char *name, const char *file)
{
	static const char *const packages[] = { "java.", "javax.", "jdk.", "sun." };

	return text_begins_any(name, packages, ARRAY_SIZE(packages)) || text_begins(file, "node:") ||
	       text_begins(file, "<frozen ") ||
	       (strstr(file, "/lib/python3") && !strstr(file, "-packages/"));
}

/* Allocators with a library of their own; glibc's and musl's are part of the C library. */
static bool is_of_allocator(const char *path)
{
	static const char *const files[] = { "libjemalloc", "libtcmalloc", "libmimalloc" };
	return text_begins_any(text_file_name(path), files, ARRAY_SIZE(files));
}

static struct place inside(const struct profile *p, struct place place,
			   const struct profile_frame *frame)
{
	const struct profile_function *function = &p->functions[frame->function];

	if (frame->kind == PROFILE_FRAME_INTERPRETED) {
		if (!place.in_script)
			place = (struct place){ NO_FUNCTION, NO_FUNCTION, true };
		if (is_of_script_library(profile_string(p, function->name),
					 profile_string(p, function->file)))
			place.library = frame->function;
		else
			place.own = frame->function;
	} else if (place.in_script || lock_site_is_part(p, frame) ||
		   is_of_allocator(profile_string(p, p->mappings[frame->mapping].path))) {
		return place;
	} else if (frame->kind == PROFILE_FRAME_GO &&
		   is_of_go(profile_string(p, function->package))) {
		place.library = frame->function;
	} else {
		place.own = frame->function;
	}
	return place;
}

static uint32_t function_at(const struct profile *p, const struct place *places, uint32_t node)
{
	const struct place *place = &places[node];

	return place->own != NO_FUNCTION       ? place->own
	       : place->library != NO_FUNCTION ? place->library
					       : p->frames[p->nodes[node].frame].function;
}

static int by_function(const void *left, const void *right)
{
	const struct own_function *a = left, *b = right;

	if (a->function != b->function)
		return a->function > b->function ? 1 : -1;
	if (a->wait != b->wait)
		return a->wait > b->wait ? 1 : -1;
	return (a->state > b->state) - (a->state < b->state);
}

static int by_value(const void *left, const void *right)
{
	const struct own_function *a = left, *b = right;

	if (a->is_foreign != b->is_foreign)
		return a->is_foreign ? 1 : -1;
	if (a->value != b->value)
		return a->value > b->value ? -1 : 1;
	return (a->function > b->function) - (a->function < b->function);
}

/* Sums rows that are sorted by function, wait and state. A function's wait and state are those with
 * the most. */
static size_t sum_up(struct own_function *rows, size_t count)
{
	size_t used = 0;

	for (size_t first = 0, last; first < count; first = last) {
		struct own_function sum = { .function = rows[first].function, .is_foreign = true };
		int64_t most = 0, of_wait = 0;

		for (last = first; last < count && rows[last].function == sum.function; last++) {
			const bool same = last > first && rows[last].wait == rows[last - 1].wait &&
					  rows[last].state == rows[last - 1].state;

			of_wait = profile_add(same ? of_wait : 0, rows[last].value);
			if (of_wait > most) {
				most = of_wait;
				sum.wait = rows[last].wait;
				sum.state = rows[last].state;
			}
			sum.value = profile_add(sum.value, rows[last].value);
			sum.is_foreign &= rows[last].is_foreign;
		}
		if (sum.value)
			rows[used++] = sum;
	}
	return used;
}

/* The place of every node; NULL: no memory. The caller frees it. */
static struct place *places_of(const struct profile *p)
{
	struct place *places = calloc((size_t)p->node_count + 1, sizeof(*places));

	if (!places)
		return NULL;
	places[0] = (struct place){ NO_FUNCTION, NO_FUNCTION, false };
	for (uint32_t i = 1; i < p->node_count; i++)
		places[i] = inside(p, places[p->nodes[i].parent], &p->frames[p->nodes[i].frame]);
	return places;
}

static void mark_scripts(const struct profile *p, const struct place *places, bool *is_script)
{
	for (uint32_t i = 0; i < p->sample_count; i++) {
		const struct profile_sample *s = &p->samples[i];

		if (places[s->node].in_script)
			is_script[p->attrs[s->attrs].process] = true;
	}
}

int own_functions(const struct profile *p, unsigned value_index, struct own_function **ret,
		  size_t *ret_count)
{
	cleanup_free struct place *places = places_of(p);
	cleanup_free struct own_function *rows = calloc((size_t)p->sample_count + 1, sizeof(*rows));
	cleanup_free bool *is_script = calloc((size_t)p->process_count + 1, sizeof(*is_script));
	size_t count = 0;

	if (!places || !rows || !is_script)
		return -ENOMEM;
	mark_scripts(p, places, is_script);
	for (uint32_t i = 0; i < p->sample_count; i++) {
		const struct profile_sample *s = &p->samples[i];
		const struct profile_attrs *attrs = &p->attrs[s->attrs];
		const struct place *place = &places[s->node];
		const bool is_own = place->own != NO_FUNCTION &&
				    (place->in_script || !is_script[attrs->process]);

		if (s->node && s->values[value_index])
			rows[count++] = (struct own_function){ .function = function_at(p, places, s->node),
							       .wait = attrs->wait,
							       .state = attrs->state,
							       .value = s->values[value_index],
							       .is_foreign = attrs->wait && !is_own };
	}
	qsort(rows, count, sizeof(*rows), by_function);
	count = sum_up(rows, count);
	qsort(rows, count, sizeof(*rows), by_value);
	*ret = take_ptr(rows);
	*ret_count = count;
	return 0;
}

/* ---- ways ------------------------------------------------------------------------------------ */

#define SAME_WAY   0.9 /* of the value: one caller stands for all */
#define WAY_LEAST  0.1
#define WAY_BEYOND 3u /* callers at most behind the one that tells ways apart */

/* A sample on its way from the own function to the root. */
struct climb {
	uint32_t node;	   /* of the caller that was reached; 0 = the root */
	uint32_t function; /* that caller; NO_FUNCTION at the root */
	int64_t value;
};

struct group {
	size_t first, count; /* of climbs with one caller */
	int64_t value;
};

/* Moves @climb to the next caller that is a function of the program. */
static void climb_on(const struct profile *p, const struct place *places, struct climb *climb)
{
	const uint32_t from = climb->function;
	const bool in_script = places[climb->node].in_script;
	uint32_t node = climb->node;

	while (node) {
		const struct profile_frame *frame;

		node = p->nodes[node].parent;
		frame = &p->frames[p->nodes[node].frame];
		if (node && frame->function != from && !lock_site_is_part(p, frame) &&
		    (!in_script || frame->kind == PROFILE_FRAME_INTERPRETED))
			break;
	}
	climb->node = node;
	climb->function = node ? p->frames[p->nodes[node].frame].function : NO_FUNCTION;
}

static int by_caller(const void *left, const void *right)
{
	const struct climb *a = left, *b = right;

	return (a->function > b->function) - (a->function < b->function);
}

/* The group of @climbs from @first on, which are sorted by caller. */
static struct group group_at(const struct climb *climbs, size_t count, size_t first)
{
	struct group group = { .first = first };

	for (size_t i = first; i < count && climbs[i].function == climbs[first].function; i++) {
		group.value = profile_add(group.value, climbs[i].value);
		group.count++;
	}
	return group;
}

/* Moves all @climbs on and sorts them by caller. The largest group. */
static struct group climb_all(const struct profile *p, const struct place *places,
			      struct climb *climbs, size_t count)
{
	struct group best = { 0 };

	for (size_t i = 0; i < count; i++)
		climb_on(p, places, &climbs[i]);
	qsort(climbs, count, sizeof(*climbs), by_caller);
	for (size_t first = 0; first < count;) {
		const struct group group = group_at(climbs, count, first);

		if (group.value > best.value)
			best = group;
		first += group.count;
	}
	return best;
}

/* Adds callers to @way while nearly all of @climbs, whose values are way->value, have the same one,
 * up to @max. @climbs become those that are left. false: they have different callers, to which
 * they have moved on. */
static bool climb_together(const struct profile *p, const struct place *places,
			   struct climb *climbs, size_t *count, uint32_t max, struct own_way *way)
{
	while (way->callers_count < max) {
		const struct group best = climb_all(p, places, climbs, *count);
		const uint32_t caller = climbs[best.first].function;

		if ((double)best.value < SAME_WAY * (double)way->value)
			return false;
		if (caller == NO_FUNCTION)
			return true;
		way->callers[way->callers_count++] = caller;
		way->value = best.value;
		memmove(climbs, climbs + best.first, best.count * sizeof(*climbs));
		*count = best.count;
	}
	return true;
}

/* Keeps @way if it is among the largest. */
static void keep_way(struct own_ways *ways, const struct own_way *way)
{
	uint32_t at = ways->count;

	if (at < OWN_WAYS_MAX)
		ways->count++;
	else if (ways->ways[--at].value >= way->value)
		return;
	for (; at && ways->ways[at - 1].value < way->value; at--)
		ways->ways[at] = ways->ways[at - 1];
	ways->ways[at] = *way;
}

/* Fills @climbs with the samples of @function, at the innermost frame of it. Their number. */
static size_t begin_climbs(const struct profile *p, const struct place *places,
			   unsigned value_index, uint32_t function, struct climb *climbs)
{
	size_t count = 0;

	for (uint32_t i = 0; i < p->sample_count; i++) {
		const struct profile_sample *s = &p->samples[i];
		uint32_t node = s->node;

		if (!node || s->values[value_index] <= 0 || function_at(p, places, node) != function)
			continue;
		while (node && p->frames[p->nodes[node].frame].function != function)
			node = p->nodes[node].parent;
		climbs[count++] = (struct climb){ node, function, s->values[value_index] };
	}
	return count;
}

static void find_ways(const struct profile *p, const struct place *places, struct climb *climbs,
		      size_t count, struct own_ways *ret)
{
	struct own_way all = { 0 };
	double least;

	for (size_t i = 0; i < count; i++)
		all.value = profile_add(all.value, climbs[i].value);
	least = WAY_LEAST * (double)all.value;
	if (climb_together(p, places, climbs, &count, OWN_CALLERS_MAX, &all)) {
		if (all.callers_count)
			keep_way(ret, &all);
		return;
	}
	for (size_t first = 0; first < count;) {
		const struct group group = group_at(climbs, count, first);
		struct climb *own = climbs + first;
		struct own_way way = all;
		size_t left = group.count;

		way.value = group.value;
		if ((double)group.value >= least && own->function != NO_FUNCTION) {
			const uint32_t max = all.callers_count + 1 + WAY_BEYOND;

			way.callers[way.callers_count++] = own->function;
			(void)climb_together(p, places, own, &left,
					     max < OWN_CALLERS_MAX ? max : OWN_CALLERS_MAX, &way);
			keep_way(ret, &way);
		}
		first += group.count;
	}
}

int own_ways(const struct profile *p, unsigned value_index, const struct own_function *rows,
	     size_t count, struct own_ways **ret)
{
	cleanup_free struct place *places = places_of(p);
	cleanup_free struct climb *climbs = calloc((size_t)p->sample_count + 1, sizeof(*climbs));
	cleanup_free struct own_ways *ways = calloc(count + 1, sizeof(*ways));

	if (!places || !climbs || !ways)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		find_ways(p, places, climbs,
			  begin_climbs(p, places, value_index, rows[i].function, climbs), &ways[i]);
	*ret = take_ptr(ways);
	return 0;
}
