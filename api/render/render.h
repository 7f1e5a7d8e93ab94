/* SPDX-License-Identifier: Apache-2.0 */
/* Output formats: a profile in, bytes out, one file per format. Pure; readers of the same profile
 * in several threads do not disturb each other. Every renderer appends to a bounded buffer (its
 * error is the buffer's) and returns 0 or a negative errno: -ENOMEM, -EFBIG, -ENOTSUP when the
 * profile has not what the format needs (@err says what). Facts about formats: the sources named in
 * each file. */
#ifndef PROFD_API_RENDER_RENDER_H
#define PROFD_API_RENDER_RENDER_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/buf.h"
#include "agent/base/cleanup.h"
#include "agent/base/err.h"
#include "agent/profile/profile.h"

#define RENDER_NODES_DEFAULT 200000u
#define RENDER_NODES_MAX     2000000u

struct render_options {
	unsigned value_index; /* which of the type's values the single-valued formats show */
	uint32_t max_nodes;   /* of trees, 0 = RENDER_NODES_DEFAULT; the largest totals are kept */
	const char *title;    /* for people; NULL = service and type */
	const char *link;     /* page of the session, or NULL */
	uint32_t root[64];    /* hashes of the frames from the root down to the wanted sub-tree */
	unsigned root_count;
	bool details; /* json and csv: file, module, build-id, kind of each frame, too */
	const char *function; /* lines: of functions of this name only; NULL = of all */
};

typedef int render_fn(const struct profile *p, const struct render_options *options,
		      struct buf *out, struct err *err);

struct render_format {
	const char *name; /* of ?format= */
	const char *content_type;
	const char *extension; /* of a downloaded file */
	render_fn *render;
	bool download; /* offered as a file */
	bool packed;   /* compressed by itself */
};

/* NULL if unknown. */
const struct render_format *render_format_find(const char *name);
/* All formats, ended by a NULL name; the first is the default. */
extern const struct render_format render_formats[];

/* "native", "kernel", …: enum profile_frame_kind as a word. */
const char *render_kind_word(uint8_t kind);
#define RENDER_BUILD_ID_SIZE (2 * 32 + 1)
/* A module's build-id in hexadecimal, "" if it has none. */
const char *render_build_id(const struct profile_mapping *mapping, char ret[RENDER_BUILD_ID_SIZE]);

/* file, line, module, buildId, kind, inlined, guessed as members of the object that is open. NULL:
 * of a frame that stands for several. */
struct json_out;
void render_frame_details(struct json_out *json, const struct profile *p,
			  const struct profile_frame *frame);
/* A frame's name as folded text has it: `;` separates frames and a line ends at its newline, so
 * neither may be part of a name. */
void render_folded_name(const char *name, struct buf *out);

/* Service and type, as titles and file names use them. */
void render_title(const struct profile *p, const struct render_options *options, char *out,
		  size_t size);

/* A pprof message, not compressed, with one of the type's values alone. -ENOMEM, or @out's error.
 */
int render_pprof_value(const struct profile *p, unsigned value_index, struct buf *out) must_use;

render_fn render_folded, render_json, render_flame, render_svg, render_html, render_pprof,
	render_speedscope, render_firefox, render_otlp, render_perfscript, render_callgrind,
	render_autofdo, render_pgo, render_csv, render_lines;

#endif
