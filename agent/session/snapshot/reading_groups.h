/* SPDX-License-Identifier: Apache-2.0 */
/* A reading as groups of chunks that a recorder takes over (recorder_add_groups()). Pure. */
#ifndef PROFD_SESSION_READING_GROUPS_H
#define PROFD_SESSION_READING_GROUPS_H

#include "agent/recording/reading_chunk.h"
#include "agent/session/ingest/recorder.h"

/* Ids of stacks: no two readings of a session share any. @at: number of the process in its round.
 */
static inline uint64_t reading_stack_base(uint32_t round, size_t at)
{
	return (uint64_t)round << 40 | (uint64_t)at << 25;
}

/* @has_process: the first chunk of the first group is room for the process's entry. Modules and
 * frames are the session's already (recorder_translate_reading()). -ENOMEM, -E2BIG. */
int reading_groups_encode(const struct reading *reading, const struct reading_encoding *encoding,
			  bool has_process, struct recorder_group **ret) must_use;

#endif
