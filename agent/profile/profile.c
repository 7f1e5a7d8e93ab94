// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/profile.h"

#include <stdlib.h>

struct profile *profile_ref(struct profile *p)
{
	(void)__atomic_add_fetch(&p->refs, 1, __ATOMIC_RELAXED);
	return p;
}

struct profile *profile_unref(struct profile *p)
{
	if (!p || __atomic_sub_fetch(&p->refs, 1, __ATOMIC_ACQ_REL))
		return NULL;
	free(p->mappings);
	free(p->functions);
	free(p->frames);
	free(p->nodes);
	free(p->labels);
	free(p->attrs);
	free(p->processes);
	free(p->samples);
	free(p->events);
	free(p->string_offsets);
	free(p->string_bytes);
	free(p);
	return NULL;
}
