// SPDX-License-Identifier: Apache-2.0
/* Opening and loading the BPF object: map sizes, features, and what to do when the kernel refuses.
 */
#include "agent/collect/bpf_internal.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/log.h"
#include "profiler.skel.h"

/* Sizes at the first try; each further try after a refusal for memory halves them. */
#define RING_BYTES_PER_CPU (512u << 10)
#define RING_BYTES_MIN	   (2u << 20)
#define RING_BYTES_MAX	   (32u << 20)
#define TARGETS_PER_CPU	   4096u
#define TARGETS_MIN	   16384u
#define TARGETS_MAX	   131072u
#define SENT_PER_CPU	   8192u
#define SENT_MIN	   32768u
#define SENT_MAX	   262144u
#define MAPPINGS_MAX	   262144u /* not preallocated: about 110 bytes each when used */
#define FILES_MAX	   8192u
#define LOAD_TRIES	   4
#define VMLINUX_BTF	   "/sys/kernel/btf/vmlinux"

/* libbpf says why only in text; its last complaint becomes part of the error. */
static _Thread_local char complaint[192];

static int keep_complaint(enum libbpf_print_level level, const char *format, va_list args)
{
	char line[256];
	size_t len;

	if (level == LIBBPF_DEBUG)
		return 0;
	(void)vsnprintf(line, sizeof(line), format, args);
	len = strlen(line);
	if (len && line[len - 1] == '\n')
		line[len - 1] = '\0';
	log_debug("%s", line);
	if (level == LIBBPF_WARN && !complaint[0])
		(void)snprintf(complaint, sizeof(complaint), "%s", line);
	return 0;
}

static uint32_t per_cpu(unsigned cpus, uint32_t each, uint32_t min, uint32_t max)
{
	uint64_t size = (uint64_t)cpus * each;
	uint32_t power = min;

	if (size > max)
		size = max;
	while (power < size)
		power <<= 1;
	return power;
}

static int set_sizes(struct bpf_agent *agent, unsigned try)
{
	struct profiler_bpf *skel = agent->skel;
	unsigned cpus = agent->possible_cpus;
	const struct {
		struct bpf_map *map;
		uint32_t entries;
	} sizes[] = {
		{ skel->maps.events,
		  per_cpu(cpus, RING_BYTES_PER_CPU, RING_BYTES_MIN, RING_BYTES_MAX) >> try },
		{ skel->maps.targets,
		  per_cpu(cpus, TARGETS_PER_CPU, TARGETS_MIN, TARGETS_MAX) >> try },
		{ skel->maps.sent_stacks, per_cpu(cpus, SENT_PER_CPU, SENT_MIN, SENT_MAX) >> try },
		{ skel->maps.mappings, MAPPINGS_MAX },
		{ skel->maps.files, FILES_MAX },
		{ skel->maps.kick_rings, cpus },
	};

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		int rc = bpf_map__set_max_entries(sizes[i].map, sizes[i].entries);

		if (rc < 0)
			return rc;
	}
	return 0;
}

bool bpf_load_has_offcpu(const struct features *features)
{
	return features_has(features, FEATURE_TASK_STORAGE) &&
	       features_has(features, FEATURE_TASK_BTF) &&
	       features_has(features, FEATURE_TASK_PT_REGS);
}

bool bpf_load_has_locks(const struct features *features)
{
	return bpf_load_has_offcpu(features) && features_has(features, FEATURE_BPF_LOOP) &&
	       features_has(features, FEATURE_LOCK_CONTENTION);
}

static int set_features(struct bpf_agent *agent)
{
	struct profiler_bpf *skel = agent->skel;
	const struct features *features = &agent->features;
	bool loop = features_has(features, FEATURE_BPF_LOOP);
	bool offcpu = bpf_load_has_offcpu(features);
	bool resume = offcpu && features_has(features, FEATURE_IRQ_WORK);
	const struct {
		struct bpf_program *program;
		bool load;
	} programs[] = {
		/* kernels without callbacks refuse them even in code that never runs */
		{ skel->progs.cpu_sample, loop },
		{ skel->progs.cpu_sample_compat, !loop },
		{ skel->progs.off_switch, offcpu },
		{ skel->progs.off_sweep, offcpu },
		{ skel->progs.off_exit, offcpu },
		{ skel->progs.off_waking, offcpu },
		{ skel->progs.io_exit, offcpu && loop },
		{ skel->progs.io_exit_compat, offcpu && !loop },
		{ skel->progs.lock_begin, bpf_load_has_locks(features) },
		{ skel->progs.lock_end, bpf_load_has_locks(features) },
		{ skel->progs.off_resume, resume && loop },
		{ skel->progs.off_resume_compat, resume && !loop },
	};

	skel->rodata->have_task_btf = features_has(features, FEATURE_TASK_BTF);
	skel->rodata->have_task_pt_regs = features_has(features, FEATURE_TASK_BTF) &&
					  features_has(features, FEATURE_TASK_PT_REGS);
	skel->rodata->have_vma_walk = features_has(features, FEATURE_VMA_WALK);
	skel->rodata->have_irq_work = resume;
	for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
		int rc = bpf_program__set_autoload(programs[i].program, programs[i].load);

		if (rc)
			return rc;
	}
	return bpf_map__set_autocreate(skel->maps.off_states, offcpu) ||
			       bpf_map__set_autocreate(skel->maps.lock_waits,
						       bpf_load_has_locks(features))
		       ? -EINVAL
		       : 0;
}

static int load_once(struct bpf_agent *agent, unsigned try)
{
	/* Naming the file keeps libbpf from looking for types that this kernel has not in the modules' BTF,
	 * which takes CAP_SYS_ADMIN: bpf_core_find_cands() of libbpf. */
	LIBBPF_OPTS(bpf_object_open_opts, opts, .btf_custom_path = VMLINUX_BTF);
	int rc;

	complaint[0] = '\0';
	agent->skel = profiler_bpf__open_opts(&opts);
	if (!agent->skel)
		return -errno;
	rc = set_sizes(agent, try);
	if (!rc)
		rc = set_features(agent);
	if (!rc)
		rc = profiler_bpf__load(agent->skel);
	if (rc) {
		profiler_bpf__destroy(agent->skel);
		agent->skel = NULL;
	}
	return rc;
}

int bpf_load(struct bpf_agent *agent, struct err *err)
{
	/* left out one after the other when the verifier refuses the whole */
	static const enum feature optional[] = { FEATURE_LOCK_CONTENTION, FEATURE_VMA_WALK,
						 FEATURE_IRQ_WORK,
						 FEATURE_TASK_STORAGE, FEATURE_BPF_LOOP,
						 FEATURE_TASK_PT_REGS };
	size_t left_out = 0;
	unsigned try = 0;
	int rc;

	(void)libbpf_set_print(keep_complaint);
	for (;;) {
		rc = load_once(agent, try);
		if (!rc)
			return 0;
		if (rc == -ENOMEM && ++try < LOAD_TRIES)
			continue;
		while (left_out < ARRAY_SIZE(optional) &&
		       !features_has(&agent->features, optional[left_out]))
			left_out++;
		if (rc == -EPERM || rc == -ENOMEM || left_out == ARRAY_SIZE(optional))
			break;
		agent->features.found[optional[left_out]] = false;
		log_warn("the kernel refused the BPF programs, trying without an optional feature: "
			 "%s",
			 complaint);
	}
	return err_set(err, -rc, NULL, NULL, "the BPF programs could not be loaded: %s%s (%s)",
		       strerror(-rc),
		       rc == -EPERM ? "; CAP_BPF and CAP_PERFMON are needed, and on kernels before "
				      "5.11 an unlimited RLIMIT_MEMLOCK"
				    : "",
		       complaint);
}
