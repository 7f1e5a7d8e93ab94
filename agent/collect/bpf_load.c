// SPDX-License-Identifier: Apache-2.0
/* Opening and loading the BPF object: map sizes, features, and what to do when the kernel refuses.
 */
#include "agent/collect/bpf_internal.h"

#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/log.h"
#include "agent/collect/io_ring.h"
#include "profiler.skel.h"
#include "profiler_retry.skel.h"

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

static int set_sizes(const struct bpf_agent *agent, struct profiler_bpf *skel, unsigned try)
{
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

bool bpf_load_has_wakers(const struct features *features)
{
	return bpf_load_has_offcpu(features) && features_has(features, FEATURE_BPF_LOOP);
}

bool bpf_load_has_locks(const struct features *features)
{
	return bpf_load_has_wakers(features) && features_has(features, FEATURE_LOCK_CONTENTION);
}

/* Kernels may be built without it. Before 5.11 its tracepoints had other arguments, but no off-CPU types either. */
static bool has_block_layer(const struct features *features)
{
	return bpf_load_has_offcpu(features) &&
	       libbpf_find_vmlinux_btf_id("block_rq_issue", BPF_TRACE_RAW_TP) > 0;
}

bool bpf_load_is_call(const struct bpf_program *program)
{
	return bpf_program__expected_attach_type(program) == BPF_TRACE_FEXIT;
}

bool bpf_load_has_calls(const struct features *features)
{
	return bpf_load_has_wakers(features) && features_has(features, FEATURE_IRQ_WORK) &&
	       features_has(features, FEATURE_FEXIT);
}

/* Calls that the kernel is built without are left out. */
static int set_calls(const struct bpf_agent *agent, struct profiler_bpf *skel, bool waits)
{
	bool possible = waits && bpf_load_has_calls(&agent->features);
	struct btf *btf = possible ? btf__load_vmlinux_btf() : NULL;
	struct bpf_program *program;
	const char *function;
	int rc = 0;

	bpf_object__for_each_program(program, skel->obj)
	{
		if (rc || !bpf_load_is_call(program))
			continue;
		function = bpf_program__section_name(program) + strlen("fexit/");
		rc = bpf_program__set_autoload(program,
					       btf && btf__find_by_name_kind(btf, function, BTF_KIND_FUNC) > 0);
	}
	btf__free(btf);
	return rc;
}

static int set_features(const struct bpf_agent *agent, struct profiler_bpf *skel, bool waits)
{
	const struct features *features = &agent->features;
	bool loop = features_has(features, FEATURE_BPF_LOOP);
	bool offcpu = bpf_load_has_offcpu(features);
	bool resume = offcpu && features_has(features, FEATURE_IRQ_WORK);
	const struct {
		struct bpf_program *program;
		bool load, waits;
	} programs[] = {
		{ skel->progs.life_exec, true, false },
		{ skel->progs.life_fork, true, false },
		{ skel->progs.life_exit, true, false },
		/* kernels without callbacks refuse them even in code that never runs */
		{ skel->progs.cpu_sample, loop, false },
		{ skel->progs.cpu_sample_compat, !loop, false },
		{ skel->progs.off_switch, offcpu, true },
		{ skel->progs.off_sweep, offcpu, true },
		{ skel->progs.off_exit, offcpu, true },
		{ skel->progs.off_waking, offcpu, true },
		{ skel->progs.io_resume, bpf_load_has_calls(features), true },
		{ skel->progs.io_exit, offcpu && loop, true },
		{ skel->progs.io_exit_compat, offcpu && !loop, true },
		{ skel->progs.disk_insert, has_block_layer(features), true },
		{ skel->progs.disk_issue, has_block_layer(features), true },
		{ skel->progs.disk_done, has_block_layer(features), true },
		{ skel->progs.off_waker, bpf_load_has_wakers(features), true },
		{ skel->progs.lock_begin, bpf_load_has_locks(features), true },
		{ skel->progs.lock_end, bpf_load_has_locks(features), true },
		{ skel->progs.off_resume, resume && loop, true },
		{ skel->progs.off_resume_compat, resume && !loop, true },
	};
	int rc;

	skel->rodata->have_task_btf = features_has(features, FEATURE_TASK_BTF);
	skel->rodata->have_task_pt_regs = features_has(features, FEATURE_TASK_BTF) &&
					  features_has(features, FEATURE_TASK_PT_REGS);
	skel->rodata->have_vma_walk = features_has(features, FEATURE_VMA_WALK);
	skel->rodata->have_irq_work = resume;
	for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
		rc = bpf_program__set_autoload(programs[i].program, programs[i].load && programs[i].waits == waits);
		if (rc)
			return rc;
	}
	rc = io_ring_choose(skel, waits && bpf_load_has_wakers(features));
	return rc ? rc : set_calls(agent, skel, waits);
}

/* Maps that only the programs of waits use are theirs, all others but the constants are shared. */
static int set_maps(const struct bpf_agent *agent, struct profiler_bpf *skel, bool waits)
{
	struct bpf_map *const own[] = { skel->maps.off_states, skel->maps.kick_rings, skel->maps.switch_scratch,
					skel->maps.sweep_scratch, skel->maps.io_scratch, skel->maps.io_paces,
					skel->maps.io_owed, skel->maps.io_ring_shots,
					skel->maps.lock_waits, skel->maps.io_moved, skel->maps.disk_requests,
					skel->maps.disk_stretches };
	struct bpf_map *map, *from;
	int rc = 0;

	if (!waits) {
		for (size_t i = 0; i < ARRAY_SIZE(own) && !rc; i++)
			rc = bpf_map__set_autocreate(own[i], false);
		return rc;
	}
	bpf_object__for_each_map(map, skel->obj)
	{
		from = bpf_object__find_map_by_name(agent->skel->obj, bpf_map__name(map));
		if (from && map != skel->maps.rodata && bpf_map__autocreate(from))
			rc = bpf_map__reuse_fd(map, bpf_map__fd(from));
		if (rc)
			return rc;
	}
	return bpf_map__set_autocreate(skel->maps.lock_waits, bpf_load_has_locks(&agent->features));
}

static bool has_retry(const struct features *features)
{
	return features_has(features, FEATURE_TASK_WORK) && features_has(features, FEATURE_BPF_LOOP) &&
	       features_has(features, FEATURE_TASK_BTF) && features_has(features, FEATURE_TASK_PT_REGS);
}

/* The same programs, maps and variables are in both objects: one skeleton serves either. */
static struct profiler_bpf *open_object(const struct bpf_agent *agent, const struct bpf_object_open_opts *opts)
{
	struct profiler_bpf *skel = calloc(1, sizeof(*skel));
	int rc = skel ? profiler_bpf__create_skeleton(skel) : -ENOMEM;

	if (!rc && has_retry(&agent->features))
		skel->skeleton->data = profiler_retry_bpf__elf_bytes(&skel->skeleton->data_sz);
	if (!rc)
		rc = bpf_object__open_skeleton(skel->skeleton, opts);
	if (!rc)
		return skel;
	profiler_bpf__destroy(skel);
	errno = -rc;
	return NULL;
}

/* @btf_path NULL: libbpf reads the kernel's types once, for the programs' hooks and their accesses. */
static int load_once(const struct bpf_agent *agent, unsigned try, bool waits, const char *btf_path,
		     struct profiler_bpf **ret)
{
	LIBBPF_OPTS(bpf_object_open_opts, opts, .btf_custom_path = btf_path);
	struct profiler_bpf *skel;
	int rc;

	complaint[0] = '\0';
	skel = open_object(agent, &opts);
	if (!skel)
		return -errno;
	rc = set_sizes(agent, skel, try);
	if (!rc)
		rc = set_features(agent, skel, waits);
	if (!rc)
		rc = set_maps(agent, skel, waits);
	if (!rc)
		rc = profiler_bpf__load(skel);
	if (rc)
		profiler_bpf__destroy(skel);
	else
		*ret = skel;
	return rc;
}

/* @optional are left out one after the other when the verifier refuses the whole. */
static int load(struct bpf_agent *agent, const enum feature *optional, size_t count, bool waits,
		struct profiler_bpf **ret)
{
	const char *btf_path = NULL;
	size_t left_out = 0;
	unsigned try = 0;
	int rc;

	(void)libbpf_set_print(keep_complaint);
	for (;;) {
		rc = load_once(agent, try, waits, btf_path, ret);
		if (!rc)
			return 0;
		/* Types that this kernel has not are looked for in the modules' BTF, which takes CAP_SYS_ADMIN,
		 * unless a file is named, which is read for itself: bpf_core_find_cands() of libbpf. */
		if (rc == -EPERM && !btf_path) {
			btf_path = VMLINUX_BTF;
			continue;
		}
		if (rc == -ENOMEM && ++try < LOAD_TRIES)
			continue;
		while (left_out < count && !features_has(&agent->features, optional[left_out]))
			left_out++;
		if (rc == -EPERM || rc == -ENOMEM || left_out == count)
			return rc;
		agent->features.found[optional[left_out]] = false;
		log_warn("the kernel refused the BPF programs, trying without an optional feature: "
			 "%s",
			 complaint);
	}
}

int bpf_load_waits(struct bpf_agent *agent, struct err *err)
{
	static const enum feature optional[] = { FEATURE_TASK_WORK, FEATURE_FEXIT, FEATURE_LOCK_CONTENTION,
						 FEATURE_IRQ_WORK };
	int rc = agent->waits ? 0 : load(agent, optional, ARRAY_SIZE(optional), true, &agent->waits);

	agent->charged_bytes = 0; /* asked again */
	return !rc ? 0
		   : err_set(err, -rc, NULL, NULL, "the BPF programs of waits could not be loaded: %s (%s)",
			     strerror(-rc), complaint);
}

int bpf_load(struct bpf_agent *agent, struct err *err)
{
	static const enum feature optional[] = { FEATURE_TASK_WORK, FEATURE_VMA_WALK, FEATURE_BPF_LOOP,
						 FEATURE_TASK_PT_REGS };
	int rc = load(agent, optional, ARRAY_SIZE(optional), false, &agent->skel);

	if (!rc)
		return 0;
	return err_set(err, -rc, NULL, NULL, "the BPF programs could not be loaded: %s%s (%s)",
		       strerror(-rc),
		       rc == -EPERM ? "; CAP_BPF and CAP_PERFMON are needed, and on kernels before "
				      "5.11 an unlimited RLIMIT_MEMLOCK"
				    : "",
		       complaint);
}
