/* SPDX-License-Identifier: Apache-2.0 */
/* One reading of all processes of a session, at its beginning or its end. Runs without the lock but
 * for the moments in which it looks at the session; the session may be gone at any of them. */
#ifndef PROFD_SESSION_READ_JOB_H
#define PROFD_SESSION_READ_JOB_H

#include "agent/recording/reading_chunk.h"
#include "agent/session/session.h"

struct read_job {
	char tenant[TENANT_NAME_SIZE];
	char id[SESSION_ID_SIZE];
	enum profile_type type;
	uint8_t phase; /* enum reading_phase; 0 = nothing is read */
	bool heap;	/* heap_job.h: nothing else is read */
	bool by_states; /* READING_END of a session whose goroutine states were sampled */
};

void read_job_run(struct sessions *s, const struct read_job *job);
/* The symbolizer's keys of @reading's modules. Lock held. */
void read_job_find_keys(const struct sessions *s, struct reading *reading);

#endif
