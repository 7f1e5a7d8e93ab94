/* SPDX-License-Identifier: Apache-2.0 */
/* Glances. A view of threads reads them from outside. The Python frames of a thread that runs
 * change while they are read. So a view of Python programs ends with a glance: the CPU sampler runs
 * for a moment, and a thread that runs has the stack of its newest sample. On the feed thread, lock
 * held. */
#ifndef PROFD_SESSION_GLANCE_H
#define PROFD_SESSION_GLANCE_H

#include "agent/session/core/sessions.h"

#define GLANCE_HZ 199u /* samples a second, by the sampler of the host */

/* The time of @session is over: shall a glance follow? true: then the session's time goes on. Each
 * session has at most one. */
bool glance_begin(struct sessions *s, struct session *session, uint64_t now_ns);
/* While a glance goes on: its time begins when the sampler runs. */
void glance_follow(const struct sessions *s, struct session *session, uint64_t now_ns);
/* Takes @sample, of a process of @session, if it shows where a thread runs. -ENOMEM. */
int glance_take(struct session *session, const struct feed_sample *sample,
		const struct live_process *process) must_use;

#endif
