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
	return (a->wait > b->wait) - (a->wait < b->wait);
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

/* Sums rows that are sorted by function and wait. A function's wait is the one with the most. */
static size_t sum_up(struct own_function *rows, size_t count)
{
	size_t used = 0;

	for (size_t first = 0, last; first < count; first = last) {
		struct own_function sum = { .function = rows[first].function, .is_foreign = true };
		int64_t most = 0, of_wait = 0;

		for (last = first; last < count && rows[last].function == sum.function; last++) {
			const bool same = last > first && rows[last].wait == rows[last - 1].wait;

			of_wait = profile_add(same ? of_wait : 0, rows[last].value);
			if (of_wait > most) {
				most = of_wait;
				sum.wait = rows[last].wait;
			}
			sum.value = profile_add(sum.value, rows[last].value);
			sum.is_foreign &= rows[last].is_foreign;
		}
		if (sum.value)
			rows[used++] = sum;
	}
	return used;
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
	cleanup_free struct place *places = calloc((size_t)p->node_count + 1, sizeof(*places));
	cleanup_free struct own_function *rows = calloc((size_t)p->sample_count + 1, sizeof(*rows));
	cleanup_free bool *is_script = calloc((size_t)p->process_count + 1, sizeof(*is_script));
	size_t count = 0;

	if (!places || !rows || !is_script)
		return -ENOMEM;
	places[0] = (struct place){ NO_FUNCTION, NO_FUNCTION, false };
	for (uint32_t i = 1; i < p->node_count; i++)
		places[i] = inside(p, places[p->nodes[i].parent], &p->frames[p->nodes[i].frame]);
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
