// SPDX-License-Identifier: Apache-2.0
/* Go's default.pgo is a CPU profile in pprof whose functions carry their first line
 * (go.dev/doc/pgo): what render_pprof() writes, refused where it would not help the Go compiler. */
#include <errno.h>

#include "api/render/render.h"

int render_pgo(const struct profile *p, const struct render_options *options, struct buf *out,
	       struct err *err)
{
	bool go = false;

	if (p->meta.type != PROFILE_CPU)
		return err_set(err, ENOTSUP, "ProfileTypeMismatch", "format",
			       "default.pgo is made from a cpu profile, this is %s",
			       profile_type_info(p->meta.type)->word);
	for (uint32_t i = 0; i < p->frame_count && !go; i++)
		go = p->frames[i].kind == PROFILE_FRAME_GO;
	if (!go)
		return err_set(err, ENOTSUP, "ProfileTypeMismatch", "format",
			       "default.pgo is for Go programs; there is no Go frame in this profile");
	return render_pprof(p, options, out, err);
}
