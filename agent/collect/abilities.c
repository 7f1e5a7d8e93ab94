// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/abilities.h"

#include "agent/base/clock.h"
#include "agent/base/log.h"
#include "agent/collect/alloc/alloc_probes.h"
#include "agent/collect/kernel/bpf_agent.h"

void abilities_probe(struct features *features, struct abilities_cost *ret)
{
	const uint64_t begun_ns = clock_process_ns();
	cleanup(bpf_agent) struct bpf_agent *agent = NULL;
	cleanup(alloc_probes) struct alloc_probes *probes = NULL;
	struct err err = { 0 };

	*ret = (struct abilities_cost){ 0 };
	if (bpf_agent_create(features, &agent, &err) < 0) {
		features_lose(features, FEATURE_PERF_EVENT, err.text);
		return;
	}
	if (bpf_agent_load_waits(agent, &err) < 0)
		log_debug("%s", err.text);
	*features = *bpf_agent_features(agent);
	if (features_has(features, FEATURE_UPROBE_EVENTS) && alloc_probes_create(agent, &probes, &err) < 0)
		features_lose(features, FEATURE_UPROBE_EVENTS, err.text);
	ret->verified = bpf_agent_verified(agent) + (probes ? alloc_probes_verified(probes) : 0);
	ret->cpu_ns = clock_process_ns() - begun_ns;
}
