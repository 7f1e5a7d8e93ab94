/* SPDX-License-Identifier: Apache-2.0 */
/* Names of user ids from /etc/passwd alone: a directory service could keep the feed waiting. Read
 * again at most every 60 s, when an id is not found. Not thread-safe. */
#ifndef PROFD_SESSION_USER_NAMES_H
#define PROFD_SESSION_USER_NAMES_H

#include <stdint.h>

#include "agent/base/u64map.h"
#include "agent/base/vec.h"

VEC_DEFINE(user_texts, char *);

struct user_names {
	struct u64map at; /* uid -> index of texts */
	struct user_texts_vec texts;
	uint64_t read_at_ns;
};

void user_names_deinit(struct user_names *names);
/* The name, or the id in decimal written to @scratch. Valid until the next call. */
const char *user_names_find(struct user_names *names, uint32_t uid, char scratch[12]);

#endif
