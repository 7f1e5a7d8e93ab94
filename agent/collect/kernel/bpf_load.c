// SPDX-License-Identifier: Apache-2.0
/* Opening and loading the BPF object: map sizes, features, and what to do when the kernel refuses.
 */
#include "agent/base/text.h"
#include "agent/collect/kernel/bpf_internal.h"

#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/log.h"
#include "agent/collect/kernel/io_ring.h"
#include "profiler.skel.h"
#include "profiler_retry.skel.h"
#include "profiler_retry_618.skel.h"

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

bool bpf_load_has_faults(const struct features *features)
{
	return features_has(features, FEATURE_PAGE_FAULTS);
}

/* Every kernel with bpf_loop() has these, and some programs cannot do without. */
static bool has_modern_tasks(const struct features *features)
{
	return features_has(features, FEATURE_BPF_LOOP) && features_has(features, FEATURE_TASK_BTF) &&
	       features_has(features, FEATURE_TASK_PT_REGS) &&
	       features_has(features, FEATURE_TASK_STORAGE);
}

bool bpf_load_has_wakers(const struct features *features)
{
	return has_modern_tasks(features) && features_has(features, FEATURE_WAKERS);
}

bool bpf_load_has_locks(const struct features *features)
{
	return has_modern_tasks(features) && features_has(features, FEATURE_LOCK_CONTENTION);
}

static bool has_task_storage(const struct features *features)
{
	return features_has(features, FEATURE_TASK_BTF) && features_has(features, FEATURE_TASK_STORAGE);
}

static bool has_block_layer(const struct features *features)
{
	return features_has(features, FEATURE_TASK_BTF) && features_has(features, FEATURE_BLOCK_REQUESTS);
}

bool bpf_load_is_call(const struct bpf_program *program)
{
	return bpf_program__expected_attach_type(program) == BPF_TRACE_FEXIT;
}

bool bpf_load_has_io(const struct features *features)
{
	return features_has(features, FEATURE_WAITS) && features_has(features, FEATURE_IO_CALLS);
}

bool bpf_load_has_calls(const struct features *features)
{
	return bpf_load_has_io(features) && has_modern_tasks(features) &&
	       features_has(features, FEATURE_IRQ_WORK) &&
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
	bool resume = features_has(features, FEATURE_IRQ_WORK);
	bool io = bpf_load_has_io(features);
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
		{ skel->progs.off_switch, true, true },
		{ skel->progs.off_sweep, true, true },
		{ skel->progs.off_exit, true, true },
		{ skel->progs.off_waking, features_has(features, FEATURE_WAKERS), true },
		{ skel->progs.io_exit, io, true },
		{ skel->progs.disk_insert, has_block_layer(features), true },
		{ skel->progs.disk_issue, has_block_layer(features), true },
		{ skel->progs.disk_done, has_block_layer(features), true },
		{ skel->progs.off_waker, bpf_load_has_wakers(features), true },
		{ skel->progs.lock_begin, bpf_load_has_locks(features), true },
		{ skel->progs.lock_end, bpf_load_has_locks(features), true },
		{ skel->progs.walk_due, resume && loop, true },
		{ skel->progs.walk_due_compat, resume && !loop, true },
	};
	int rc;

	skel->rodata->have_task_btf = features_has(features, FEATURE_TASK_BTF);
	skel->rodata->have_task_pt_regs = features_has(features, FEATURE_TASK_BTF) &&
					  features_has(features, FEATURE_TASK_PT_REGS);
	skel->rodata->have_task_storage = has_task_storage(features);
	skel->rodata->have_vma_walk = features_has(features, FEATURE_VMA_WALK);
	skel->rodata->have_irq_work = resume;
	skel->rodata->have_stolen = features_has(features, FEATURE_STOLEN);
	skel->rodata->have_file_names = features_has(features, FEATURE_FILE_NAMES);
	for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
		rc = bpf_program__set_autoload(programs[i].program,
					       programs[i].load && programs[i].waits == waits);
		if (rc)
			return rc;
	}
	rc = io_ring_choose(skel, &features->ring,
			    waits && io && has_modern_tasks(features) &&
				    features_has(features, FEATURE_IO_URING));
	return rc ? rc : set_calls(agent, skel, waits);
}

/* Maps that only the programs of waits use are theirs, all others but the constants are shared. */
static int set_maps(const struct bpf_agent *agent, struct profiler_bpf *skel, bool waits)
{
	struct bpf_map *const own[] = { skel->maps.off_states,	   skel->maps.off_states_by_tid,
					skel->maps.io_moved_by_tid, skel->maps.kick_rings,
					skel->maps.switch_scratch, skel->maps.sweep_scratch,
					skel->maps.io_scratch,	   skel->maps.io_paces,
					skel->maps.io_owed,	   skel->maps.io_ring_shots,
					skel->maps.lock_waits,	   skel->maps.io_moved,
					skel->maps.disk_requests,  skel->maps.disk_stretches,
					skel->maps.gil_tenures };
	const struct {
		struct bpf_map *map;
		bool storage;
	} of_threads[] = {
		{ skel->maps.off_states, true },
		{ skel->maps.io_moved, true },
		{ skel->maps.off_states_by_tid, false },
		{ skel->maps.io_moved_by_tid, false },
	};
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
	for (size_t i = 0; i < ARRAY_SIZE(of_threads) && !rc; i++)
		rc = bpf_map__set_autocreate(of_threads[i].map,
					     of_threads[i].storage == has_task_storage(&agent->features));
	if (rc)
		return rc;
	return bpf_map__set_autocreate(skel->maps.lock_waits, bpf_load_has_locks(&agent->features));
}

static bool has_retry(const struct features *features)
{
	return features_has(features, FEATURE_TASK_WORK) && features_has(features, FEATURE_BPF_LOOP) &&
	       features_has(features, FEATURE_TASK_BTF) && features_has(features, FEATURE_TASK_PT_REGS);
}

/* The same programs, maps and variables are in both objects: one skeleton serves either. */
static struct profiler_bpf *open_object(const struct bpf_agent *agent,
					const struct bpf_object_open_opts *opts)
{
	struct profiler_bpf *skel = calloc(1, sizeof(*skel));
	int rc = skel ? profiler_bpf__create_skeleton(skel) : -ENOMEM;

	if (!rc && has_retry(&agent->features))
		skel->skeleton->data = agent->features.implicit_arguments
					       ? profiler_retry_bpf__elf_bytes(&skel->skeleton->data_sz)
					       : profiler_retry_618_bpf__elf_bytes(&skel->skeleton->data_sz);
	if (!rc)
		rc = bpf_object__open_skeleton(skel->skeleton, opts);
	if (!rc)
		return skel;
	profiler_bpf__destroy(skel);
	errno = -rc;
	return NULL;
}

/* @btf_path NULL: libbpf reads the kernel's types once, for the programs' hooks and their accesses.
 */
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

/* The feature without which the program that the kernel refused is not loaded. FEATURE_MAX: the
 * program is needed, or nothing tells which one it was. */
static enum feature feature_of_refused(void)
{
	static const struct {
		const char *program; /* how its name begins */
		enum feature feature;
	} optional[] = {
		{ "off_waking", FEATURE_WAKERS },	   { "off_waker", FEATURE_WAKERS },
		{ "lock_", FEATURE_LOCK_CONTENTION },	   { "disk_", FEATURE_BLOCK_REQUESTS },
		{ "io_ring_", FEATURE_IO_URING },	   { "io_exit", FEATURE_IO_CALLS },
		{ "io_", FEATURE_FEXIT },		   { "walk_due", FEATURE_IRQ_WORK },
	};
	const char *name = strstr(complaint, "prog '");

	for (size_t i = 0; name && i < ARRAY_SIZE(optional); i++)
		if (text_begins(name + strlen("prog '"), optional[i].program))
			return optional[i].feature;
	return FEATURE_MAX;
}

/* When the kernel refuses the whole, the feature of the program that it refused is left out; where
 * that tells nothing, or is left out already, @optional are, one after the other. */
static int load(struct bpf_agent *agent, const enum feature *optional, size_t count, bool waits,
		struct profiler_bpf **ret)
{
	const char *btf_path = NULL;
	enum feature lost;
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
		lost = feature_of_refused();
		if (lost == FEATURE_MAX || !features_has(&agent->features, lost)) {
			while (left_out < count && !features_has(&agent->features, optional[left_out]))
				left_out++;
			lost = left_out < count ? optional[left_out] : FEATURE_MAX;
		}
		if (rc == -EPERM || rc == -ENOMEM || lost == FEATURE_MAX)
			return rc;
		features_lose(&agent->features, lost, complaint);
		log_warn("the kernel refused the BPF programs, trying without %s: %s", features_name(lost),
			 complaint);
	}
}

int bpf_load_waits(struct bpf_agent *agent, struct err *err)
{
	static const enum feature optional[] = { FEATURE_TASK_WORK, FEATURE_STOLEN,   FEATURE_FILE_NAMES,
						 FEATURE_VMA_WALK,  FEATURE_FEXIT,    FEATURE_LOCK_CONTENTION,
						 FEATURE_IO_URING,  FEATURE_IRQ_WORK, FEATURE_TASK_STORAGE };
	const struct features before = agent->features;
	int rc;

	if (!features_has(&agent->features, FEATURE_WAITS))
		return err_set(err, EOPNOTSUPP, NULL, NULL, "the feature waits is missing: %s",
			       agent->features.reason[FEATURE_WAITS]);
	rc = agent->waits ? 0 : load(agent, optional, ARRAY_SIZE(optional), true, &agent->waits);

	agent->charged_bytes = 0; /* asked again */
	/* what was left out in vain is not what failed */
	if (rc < 0) {
		agent->features = before;
		features_lose(&agent->features, FEATURE_WAITS, complaint);
	}
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
