/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles from and to text, for tests. A line is `[name=value ...] root;...;leaf value [value
 * ...]`: names are pid, comm, tid, thread, state, wait, extra, at (seconds since the profile's
 * start: adds an event) and anything else, which becomes a label. A frame is `name`,
 * `package!name`, with `@kernel`, `@go`, `@unknown`, `@marker`, `@jit`, `@python`, `@stripped`
 * (unknown, of /usr/bin/stripped), `@bare` (of /usr/lib/libbare.so) or `@guessed` behind it where
 * it is not native. Without as many values as the type has, the value is the main one and the
 * others are 1. */
#ifndef PROFD_TESTS_PROFILE_TEXT_H
#define PROFD_TESTS_PROFILE_TEXT_H

#include "agent/profile/profile.h"

/* Aborts the test on a malformed line. The profile starts at 1000 s and lasts 60 s. */
struct profile *profile_from_text(enum profile_type type, const char *const *lines, size_t count);
/* `root;…;leaf value` of the main value, one line per node with self, sorted; free it. */
char *profile_to_text(const struct profile *p);

#endif
