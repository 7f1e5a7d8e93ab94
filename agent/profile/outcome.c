// SPDX-License-Identifier: Apache-2.0
#include "agent/profile/outcome.h"

#include <stddef.h>

#include "agent/profile/profile.h"
#include "bpf/outcome.h"

#define OUTCOME(id, name, place, sample, shown, sentence)                                          \
	_Static_assert((id) < PROFILE_OUTCOMES_MAX, #name ": no room for the id");                 \
	_Static_assert(OUTCOME_PLACE_##place != OUTCOME_PLACE_UNWINDING ||                         \
			       (id) < OUTCOME_STACKS_MAX,                                          \
		       #name ": not an id for a stack");                                           \
	_Static_assert(sizeof(sentence) <= 106, #name ": the sentence does not fit in a note");
#include "bpf/outcome.def"
#undef OUTCOME

static const struct outcome_info infos[PROFILE_OUTCOMES_MAX] = {
#define OUTCOME(id, name, place, sample, shown, sentence)                                          \
	[id] = { #name, OUTCOME_PLACE_##place, OUTCOME_SAMPLE_##sample, OUTCOME_SHOWN_##shown,     \
		 sentence },
#include "bpf/outcome.def"
#undef OUTCOME
};

const struct outcome_info *outcome_info(unsigned id)
{
	return id < PROFILE_OUTCOMES_MAX && infos[id].name ? &infos[id] : NULL;
}
