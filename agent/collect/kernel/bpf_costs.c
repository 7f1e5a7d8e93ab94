// SPDX-License-Identifier: Apache-2.0
/* Cost of programs and maps, read without switching on anything in the kernel. */
#include "agent/collect/kernel/bpf_internal.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/clock.h"
#include "agent/base/io.h"
#include "agent/base/parse.h"
#include "bpf/outcome.h"
#include "profiler.skel.h"

#define CHARGED_INTERVAL_NS (9 * NS_PER_S)

uint64_t bpf_map_charged_bytes(int fd)
{
	char path[64], text[1024], *line;
	uint64_t bytes;

	(void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", fd);
	if (io_read_small(AT_FDCWD, path, text, sizeof(text)) < 0)
		return 0;
	line = strstr(text, "\nmemlock:\t");
	if (!line)
		return 0;
	line += strlen("\nmemlock:\t");
	line[strcspn(line, "\n")] = '\0';
	return parse_u64(line, 0, UINT64_MAX, &bytes) < 0 ? 0 : bytes;
}

uint64_t bpf_object_verified(const struct bpf_object *object)
{
	struct bpf_program *program;
	uint64_t sum = 0;

	bpf_object__for_each_program(program, object)
	{
		struct bpf_prog_info info = { 0 };
		uint32_t size = sizeof(info);

		if (bpf_program__fd(program) >= 0 &&
		    !bpf_obj_get_info_by_fd(bpf_program__fd(program), &info, &size))
			sum += info.verified_insns;
	}
	return sum;
}

uint64_t bpf_agent_verified(const struct bpf_agent *agent)
{
	return bpf_object_verified(agent->skel->obj) +
	       (agent->waits ? bpf_object_verified(agent->waits->obj) : 0);
}

/* A program's time is its mean timed run times all its runs. */
static void add_run_time(const struct bpf_agent *agent, const struct prof_counters *per_cpu,
			 enum prof_program program, struct bpf_costs *costs)
{
	struct prof_cost total = { 0 };

	for (unsigned cpu = 0; cpu < agent->possible_cpus; cpu++) {
		total.runs += per_cpu[cpu].costs[program].runs;
		total.timed_runs += per_cpu[cpu].costs[program].timed_runs;
		total.timed_ns += per_cpu[cpu].costs[program].timed_ns;
	}
	costs->runs += total.runs;
	if (total.timed_runs)
		costs->program_ns[program] =
			(uint64_t)((double)total.timed_ns / (double)total.timed_runs * (double)total.runs);
	costs->run_ns += costs->program_ns[program];
}

/* Memory of all maps except tables and rings for interrupts, which are counted when they are
 * created. Reading costs one file per map, and most maps never change. */
static uint64_t charged_bytes(struct bpf_agent *agent)
{
	uint64_t now_ns = clock_monotonic_ns(), bytes = 0;
	struct bpf_map *map, *twin = NULL;

	if (agent->charged_bytes && now_ns - agent->charged_ns < CHARGED_INTERVAL_NS)
		return agent->charged_bytes;
	bpf_object__for_each_map(map, agent->skel->obj)
	{
		if (bpf_map__autocreate(map))
			bytes += bpf_map_charged_bytes(bpf_map__fd(map));
		/* the other instance has the rest for itself */
		twin = agent->waits ? bpf_object__next_map(agent->waits->obj, twin) : NULL;
		if (twin && !bpf_map__autocreate(map) && bpf_map__autocreate(twin))
			bytes += bpf_map_charged_bytes(bpf_map__fd(twin));
	}
	agent->charged_bytes = bytes;
	agent->charged_ns = now_ns;
	return bytes;
}

int bpf_agent_costs(struct bpf_agent *agent, struct bpf_costs *ret)
{
	cleanup_free struct prof_counters *per_cpu = calloc(agent->possible_cpus, sizeof(*per_cpu));
	struct bpf_costs costs = { .map_bytes = agent->table_bytes + agent->kicks.charged_bytes +
						charged_bytes(agent) };
	uint32_t zero = 0;
	int rc;

	if (!per_cpu)
		return -ENOMEM;
	rc = bpf_map_lookup_elem(bpf_map__fd(agent->skel->maps.counters), &zero, per_cpu);
	if (rc < 0)
		return rc;
	for (unsigned cpu = 0; cpu < agent->possible_cpus; cpu++)
		for (size_t i = 0; i < PROF_OUTCOMES_MAX; i++)
			costs.outcomes[i] += per_cpu[cpu].outcomes[i];
	costs.outcomes[OUTCOME_end_missed] += call_ends_missed(&agent->call_ends);
	for (unsigned program = 0; program < PROF_PROGRAM_MAX; program++)
		add_run_time(agent, per_cpu, (enum prof_program)program, &costs);
	*ret = costs;
	return 0;
}
