// SPDX-License-Identifier: Apache-2.0
/* From a profile's functions to the canonical ones of a matrix. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/hash.h"
#include "agent/base/intern.h"
#include "agent/base/vec.h"
#include "agent/profile/canonical.h"
#include "agent/profile/compare/window_internal.h"

#define UNKNOWN_ROUNDING 256u /* bytes: code of no known function is known by its neighbourhood */

static uint32_t text_add(struct window_names *n, const char *text, size_t len)
{
	uint64_t hash = hash_bytes(text, len, 2);
	struct intern_probe probe = intern_probe(&n->text_index, hash);
	uint32_t at;
	int rc;

	while ((at = intern_next(&n->text_index, &probe)) != INTERN_NONE)
		if (!strncmp(n->text + at, text, len) && !n->text[at + len])
			return at;
	rc = vec_grow((void **)&n->text, &n->text_capacity, n->text_len + len + 1, 1,
		      WINDOW_MATRIX_TEXT_MAX);
	if (rc == 0)
		rc = intern_add(&n->text_index, hash, (uint32_t)n->text_len);
	if (rc < 0) {
		n->error = n->error ? n->error : rc;
		return 0;
	}
	at = (uint32_t)n->text_len;
	memcpy(n->text + at, text, len);
	n->text[at + len] = 0;
	n->text_len += len + 1;
	return at;
}

uint32_t window_names_text(struct window_names *n, const char *text)
{
	return text_add(n, text, strlen(text));
}

static uint32_t function_add(struct window_names *n, const struct window_function *f)
{
	uint64_t hash =
		hash_combine(hash_combine(f->name, f->package), hash_combine(f->file, f->build));
	struct intern_probe probe = intern_probe(&n->function_index, hash);
	uint32_t id;
	int rc;

	while ((id = intern_next(&n->function_index, &probe)) != INTERN_NONE) {
		const struct window_function *known = &n->functions[id];

		if (known->name == f->name && known->package == f->package &&
		    known->file == f->file && known->build == f->build)
			return id;
	}
	id = n->function_count;
	rc = vec_grow((void **)&n->functions, &n->function_capacity, (size_t)id + 1, sizeof(*f),
		      WINDOW_MATRIX_FUNCTIONS_MAX);
	if (rc == 0)
		rc = intern_add(&n->function_index, hash, id);
	if (rc < 0) {
		n->error = n->error ? n->error : rc;
		return 0;
	}
	n->functions[id] = *f;
	n->function_count++;
	return id;
}

static void name_unknown(struct window_names *n, const struct profile *p,
			 const struct profile_frame *frame, struct window_function *f)
{
	const struct profile_mapping *mapping = &p->mappings[frame->mapping];
	char text[CANONICAL_PACKAGE_SIZE + 32];

	f->flags |= WINDOW_FUNCTION_UNKNOWN;
	f->name = window_names_text(n, "[unknown]");
	if (!frame->mapping || !frame->offset)
		return;
	f->build = mapping->build_id_len ? hash_bytes(mapping->build_id, mapping->build_id_len, 3)
					 : mapping->key;
	if (frame->flags & PROFILE_FRAME_NAMELESS) {
		f->name = window_names_text(n, profile_string(p, p->functions[frame->function].name));
		return;
	}
	(void)snprintf(text, sizeof(text), "[unknown] %s+0x%" PRIx64, n->text + f->package,
		       frame->offset / UNKNOWN_ROUNDING * UNKNOWN_ROUNDING);
	f->name = window_names_text(n, text);
}

uint32_t window_names_function(struct window_names *n, const struct profile *p,
			       const struct profile_frame *frame)
{
	const struct profile_function *source = &p->functions[frame->function];
	const char *name = profile_string(p, source->name);
	struct window_function f = { .kind = frame->kind, .line = source->line };
	char package[CANONICAL_PACKAGE_SIZE];

	(void)canonical_package(profile_string(p, source->package), package, sizeof(package));
	f.package = window_names_text(n, package);
	f.label = window_names_text(n, profile_string(p, source->package));
	if (frame->kind == PROFILE_FRAME_UNKNOWN) {
		name_unknown(n, p, frame, &f);
	} else {
		f.name = text_add(n, name, canonical_function_len(name));
		f.file = window_names_text(n, profile_string(p, source->file));
	}
	if (frame->kind == PROFILE_FRAME_KERNEL && canonical_is_environment(name))
		f.flags |= WINDOW_FUNCTION_ENVIRONMENT;
	return n->error ? 0 : function_add(n, &f);
}

int window_names_init(struct window_names *n)
{
	*n = (struct window_names){ 0 };
	(void)window_names_text(n, "");
	return n->error;
}

void window_names_deinit(struct window_names *n)
{
	intern_deinit(&n->text_index);
	intern_deinit(&n->function_index);
	free(n->text);
	free(n->functions);
	*n = (struct window_names){ 0 };
}
