/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The ids of bpf/outcome.def as constants. */
#ifndef PROFD_BPF_OUTCOME_H
#define PROFD_BPF_OUTCOME_H

#define OUTCOME_STACKS_MAX 32u /* ids that a stack may have are smaller */

#define OUTCOME(id, name, place, sample, shown, sentence) OUTCOME_##name = (id),
enum prof_outcome {
#include "bpf/outcome.def"
};
#undef OUTCOME

#endif
