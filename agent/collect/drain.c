// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/drain.h"

#include "agent/base/log.h"
#include "agent/collect/follow.h"
#include "agent/collect/late.h"
#include "agent/collect/samples.h"

void drain_events(struct collector *c)
{
	struct bpf_sink sink = { .ctx = c,
				 .on_stack = samples_stack,
				 .on_sample = samples_sample,
				 .on_task = samples_task,
				 .on_late = late_event,
				 .on_retried = late_retried };

	if (!c->bpf)
		return;
	follow_drain(c);
	if (bpf_agent_poll(c->bpf, &sink) < 0)
		log_debug("a record of the BPF ring could not be read");
	follow_apply(c, UINT64_MAX);
}
