/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes pprof: perftools.profiles.Profile, uncompressed. Source: github.com/google/pprof
 * proto/profile.proto. A profile whose samples have values of several types becomes several
 * profiles, as Go's heap profile becomes memory and alloc. */
#ifndef PROFD_API_RECEIVE_PPROF_IN_H
#define PROFD_API_RECEIVE_PPROF_IN_H

#include "api/receive/message.h"

/* Fills the empty @message. @locks: as in value_plans(). Service and format are left to the caller.
 * -EINVAL with InvalidBody and the field, ProfileTypeMismatch, LimitReached. */
int pprof_read(struct message *message, const void *data, size_t len, int locks, struct err *err)
	must_use;

#endif
