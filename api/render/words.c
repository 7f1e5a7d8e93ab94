// SPDX-License-Identifier: Apache-2.0
/* Words that several formats show. */
#include <stdio.h>

#include "agent/base/cleanup.h"
#include "api/render/render.h"

void render_title(const struct profile *p, const struct render_options *options, char *out,
		  size_t size)
{
	if (options->title)
		(void)snprintf(out, size, "%s", options->title);
	else
		(void)snprintf(out, size, "%s %s",
			       p->meta.service[0] ? p->meta.service : "profile",
			       profile_type_info(p->meta.type)->word);
}

const char *render_kind_word(uint8_t kind)
{
	static const char *const words[] = {
		[PROFILE_FRAME_NATIVE] = "native",	   [PROFILE_FRAME_KERNEL] = "kernel",
		[PROFILE_FRAME_GO] = "go",		   [PROFILE_FRAME_JIT] = "jit",
		[PROFILE_FRAME_INTERPRETED] = "interpreted", [PROFILE_FRAME_UNKNOWN] = "unknown",
		[PROFILE_FRAME_MARKER] = "marker",
	};

	return kind < ARRAY_SIZE(words) ? words[kind] : "unknown";
}

const char *render_build_id(const struct profile_mapping *mapping, char ret[RENDER_BUILD_ID_SIZE])
{
	static const char digits[] = "0123456789abcdef";
	unsigned len = mapping->build_id_len <= 32 ? mapping->build_id_len : 32;

	for (unsigned i = 0; i < len; i++) {
		ret[2 * i] = digits[mapping->build_id[i] >> 4];
		ret[2 * i + 1] = digits[mapping->build_id[i] & 15];
	}
	ret[2 * len] = '\0';
	return ret;
}
