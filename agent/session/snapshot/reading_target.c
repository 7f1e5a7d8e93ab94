// SPDX-License-Identifier: Apache-2.0
#include "agent/session/snapshot/reading_target.h"

#include <string.h>

#include "agent/session/core/sessions.h"

void reading_targets_free(struct reading_targets_vec *targets)
{
	for (size_t i = 0; i < targets->count; i++)
		for (size_t j = 0; j < ARRAY_SIZE(targets->data[i].text); j++)
			free(targets->data[i].text[j]);
	reading_targets_vec_deinit(targets);
}

static int add_target(const struct sessions *s, const struct live_process *process,
		      struct reading_targets_vec *targets)
{
	const struct service_facts *facts = &process->facts;
	const struct service_identity *identity = &process->identity;
	const char *from[] = { facts->comm,    facts->exe,     facts->cmdline,
			       identity->name, identity->unit, identity->container_id };
	struct reading_target target = { .p = { .tgid = facts->tgid,
					.parent_tgid = process->parent_tgid,
					.uid = process->uid,
					.exec_generation = process->exec_generation,
					.flags = facts->flags,
					.start_boottime_ns = facts->start_boottime_ns,
					.started_at_ns = process->started_at_ns } };
	struct chunk_text *to[] = { &target.p.comm,    &target.p.exe,  &target.p.cmdline,
				    &target.p.service, &target.p.unit, &target.p.container };
	int rc = reading_targets_vec_reserve(targets, targets->count + 1);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < ARRAY_SIZE(from); i++) {
		target.text[i] = strdup(from[i]);
		*to[i] = chunk_text_of(target.text[i] ? target.text[i] : "");
	}
	targets->data[targets->count++] = target;
	return 0;
}

int reading_targets_collect(const struct sessions *s, const struct session *session,
			 struct reading_targets_vec *ret, size_t *ret_beyond)
{
	int rc = 0;

	*ret_beyond = 0;
	for (size_t i = 0; rc == 0 && i < s->tables.processes.count; i++) {
		const struct live_process *process = s->tables.processes.data[i];

		if (process->exited_ns || (process->facts.flags & FEED_PROC_KTHREAD) ||
		    !session_wants_process(session, process))
			continue;
		if (ret->count >= READ_PROCESSES_MAX)
			++*ret_beyond;
		else
			rc = add_target(s, process, ret);
	}
	return rc;
}
