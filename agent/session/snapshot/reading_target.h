/* SPDX-License-Identifier: Apache-2.0 */
/* The processes that a session reads, copied: they may leave the tables meanwhile. */
#ifndef PROFD_SESSION_READING_TARGET_H
#define PROFD_SESSION_READING_TARGET_H

#include "agent/base/vec.h"
#include "agent/recording/session_chunks.h"

#define READ_PROCESSES_MAX 4096u /* of one session */

struct reading_target {
	struct chunk_process p;
	char *text[6]; /* owned: the texts of p */
};
VEC_DEFINE(reading_targets, struct reading_target);

struct session;
struct sessions;

/* Those that live now; lock held. @ret_beyond: how many there are over the bound. -ENOMEM: @ret has
 * some of them. */
int reading_targets_collect(const struct sessions *s, const struct session *session,
			 struct reading_targets_vec *ret, size_t *ret_beyond) must_use;
void reading_targets_free(struct reading_targets_vec *targets);

#endif
