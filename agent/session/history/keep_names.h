/* SPDX-License-Identifier: Apache-2.0 */
/* Names of functions, fetched while the symbolizer still knows the modules, and kept with a
 * session's data. Every function may block on the store and the symbolizer; the lock must not be
 * held. */
#ifndef PROFD_SESSION_KEEP_NAMES_H
#define PROFD_SESSION_KEEP_NAMES_H

#include "agent/session/core/sessions.h"

/* Fetches the names of what the data of @info holds and keeps them with the data. */
int keep_names(struct sessions *s, const struct session_info *info, struct err *err) must_use;
/* The same for a session that has ended, together with the last values of its record. false: the
 * job must run again at @job->due_ns. */
bool keep_names_of_finished(struct sessions *s, struct finished *job) must_use;

#endif
