/* SPDX-License-Identifier: Apache-2.0 */
/* From a session's data to a profile. */
#ifndef PROFD_SESSION_SESSION_PROFILE_H
#define PROFD_SESSION_SESSION_PROFILE_H

#include "agent/session/core/sessions.h"

/* Builds the profile of @info (its data is kept under info->id), or takes it from the cache when
 * @done is NULL. @done is called during the build turn, while the names it used are still
 * there; of goroutines it gets no attributes. */
typedef void session_profile_done_fn(void *ctx, struct sessions *s, const struct profile *profile);
int session_profile_build(struct sessions *s, const struct session_info *info,
			  session_profile_done_fn *done, void *ctx, struct profile **ret,
			  struct err *err) must_use;
/* The session a baseline was made from, with the baseline's id. */
int baseline_session_info(struct sessions *s, const char *tenant, const char *id,
			  struct session_info *ret, struct err *err) must_use;

#endif
