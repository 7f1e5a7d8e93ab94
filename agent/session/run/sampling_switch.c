// SPDX-License-Identifier: Apache-2.0
/* One switch for the whole host, for the moment when profiling itself is suspected: off ends every
 * session of every tenant with what it has, pauses continuous profiling and refuses new sessions,
 * until it is on again. Kept in the store: a restart does not sample unasked. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "agent/session/continuous/continuous.h"
#include "agent/session/core/sessions.h"
#include "agent/session/records/hosts.h"
#include "agent/session/run/run.h"

#define SWITCH_KIND   "switch"
#define SWITCH_TENANT "-" /* of all */
#define SWITCH_ID     "sampling"
#define SWITCH_ID_SIZE 32

int sampling_switch_load(struct sessions *s, struct err *err)
{
	cleanup_free char *body = NULL;
	char id[SWITCH_ID_SIZE];
	size_t len;
	int rc;

	hosts_own_id(&s->host, SWITCH_ID, id, sizeof(id));
	rc = store_get(s->store, SWITCH_KIND, SWITCH_TENANT, id, &body, &len, err);
	if (rc == -ENOENT)
		return 0;
	if (rc < 0)
		return rc;
	s->sampling_off_ns = strtoull(body, NULL, 10);
	return 0;
}

static int store_switch(struct sessions *s, uint64_t off_ns, struct err *err)
{
	char body[24], id[SWITCH_ID_SIZE];
	struct store_record record = {
		.kind = SWITCH_KIND, .tenant = SWITCH_TENANT, .id = id,
		.service = "", .type = "", .status = "", .created_ns = off_ns,
		.body = body, .urgent = true,
	};

	hosts_own_id(&s->host, SWITCH_ID, id, sizeof(id));
	if (!off_ns)
		return store_delete(s->store, SWITCH_KIND, SWITCH_TENANT, id, err);
	record.body_len = (size_t)snprintf(body, sizeof(body), "%" PRIu64, off_ns);
	return store_put(s->store, &record, err);
}

static uint32_t end_all(struct sessions *s)
{
	uint32_t ended = 0;

	for (struct session *session = s->running; session; session = session->next)
		if (session_is_running(session) && !session->stop) {
			session->stop = true;
			ended++;
		}
	return ended;
}

int sessions_sampling_set(struct sessions *s, bool enabled, struct sampling_state *ret,
			  struct err *err)
{
	uint64_t off_ns;
	int rc;

	/* First what samples, then the disk, which may be full or slow. */
	sessions_lock(s);
	if (enabled == (s->sampling_off_ns != 0))
		s->sampling_off_ns = enabled ? 0 : clock_realtime_ns();
	off_ns = s->sampling_off_ns;
	*ret = (struct sampling_state){ !off_ns, off_ns, enabled ? 0 : end_all(s) };
	continuous_changed(s);
	sessions_unlock(s);
	/* Also of what is so already: it may be asked for again because it could not be stored. */
	rc = store_switch(s, off_ns, err);
	return rc == -ENOENT ? 0 : rc;
}

void sessions_sampling_get(struct sessions *s, struct sampling_state *ret)
{
	sessions_scope(s);

	*ret = (struct sampling_state){ !s->sampling_off_ns, s->sampling_off_ns, 0 };
}
