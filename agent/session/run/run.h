/* SPDX-License-Identifier: Apache-2.0 */
/* The threads that drive the session layer: the feed consumer and the finisher. Also resuming after
 * a restart, and the switch that stops all sampling. */
#ifndef PROFD_SESSION_RUN_H
#define PROFD_SESSION_RUN_H

#include "agent/session/core/sessions.h"

/* ---- feed_consumer.c */

int feed_consumer_start(struct sessions *s, int feed_fd, struct err *err) must_use;
void feed_consumer_stop(struct sessions *s);

/* ---- send_demand.c: lock held */

/* Recomputes and sends what changed; what does not fit in the channel is tried again next time. */
void demand_update(struct sessions *s);

/* ---- sampling_switch.c */

int sampling_switch_load(struct sessions *s, struct err *err) must_use;

/* ---- resume.c, finisher.c */

/* Takes over what ran when the server died; called before the feed thread starts. */
int resume_sessions(struct sessions *s, struct err *err) must_use;
int finisher_start(struct sessions *s) must_use;
void finisher_stop(struct sessions *s);

#endif
