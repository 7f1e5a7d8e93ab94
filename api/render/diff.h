/* SPDX-License-Identifier: Apache-2.0 */
/* Differential flame graphs: two profiles of one type as html, svg, json, flame or folded text. A
 * frame's width is the mean of its shares on both sides, so that vanished frames can be seen as
 * well as new ones. Its colour is the change of its share, from blue (less) over grey to orange
 * (more). */
#ifndef PROFD_API_RENDER_DIFF_H
#define PROFD_API_RENDER_DIFF_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/buf.h"
#include "agent/base/cleanup.h"
#include "agent/profile/profile.h"

struct diff_options {
	uint32_t max_nodes; /* 0 = default */
	bool details; /* json: package, file, first line and kind of each function, too */
	const char *base_label, *comparison_label;
};

/* @format: html, svg, json, flame, folded. -EINVAL types differ or another format; -ENOMEM, -EFBIG.
 */
int diff_render(const char *format, const struct profile *base, const struct profile *comparison,
		const struct diff_options *options, struct buf *out) must_use;

#endif
