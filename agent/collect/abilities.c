// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/abilities.h"

#include "agent/base/log.h"
#include "agent/collect/alloc/alloc_probes.h"
#include "agent/collect/kernel/bpf_agent.h"

void abilities_probe(struct features *features)
{
	cleanup(bpf_agent) struct bpf_agent *agent = NULL;
	cleanup(alloc_probes) struct alloc_probes *probes = NULL;
	struct err err = { 0 };

	if (bpf_agent_create(features, &agent, &err) < 0) {
		features_lose(features, FEATURE_PERF_EVENT, err.text);
		return;
	}
	if (bpf_agent_load_waits(agent, &err) < 0)
		log_debug("%s", err.text);
	*features = *bpf_agent_features(agent);
	if (features_has(features, FEATURE_UPROBE_EVENTS) && alloc_probes_create(agent, &probes, &err) < 0)
		features_lose(features, FEATURE_UPROBE_EVENTS, err.text);
}
