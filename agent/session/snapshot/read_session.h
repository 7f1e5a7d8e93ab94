/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions that are taken by reading processes from outside (agent/reader) instead of sampling
 * them:
 *
 *   goroutine           every goroutine, or thread, at the end of the duration
 *   memory              the live heap of Go programs at the end
 *   alloc block mutex   Go's own counters at the end less those of the beginning
 *
 * A thread of its own asks the reader, so that nobody else waits for it. The phase of a session
 * says what to read: a session that waits for its sampler needs the values of its beginning, a
 * session that closes needs those of its end. */
#ifndef PROFD_SESSION_READ_SESSION_H
#define PROFD_SESSION_READ_SESSION_H

#include <pthread.h>
#include <stdbool.h>

#include "agent/session/session.h"
#include "agent/session/snapshot/script_numbers.h"

struct state_sampler;

struct snapshots {
	pthread_t thread;
	bool has_thread;
	struct state_sampler *samplers; /* of the thread alone */
	struct script_numbers scripts;	/* the same */
};

int read_session_start_thread(struct sessions *s) must_use;
void read_session_stop_thread(struct sessions *s);

#endif
