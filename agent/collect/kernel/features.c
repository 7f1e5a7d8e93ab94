// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/kernel/features.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/base/io.h"
#include "bpf/arch.h"

/* Each probe returns 0, or a negative errno that feature_refused() turns into a sentence. */
struct probe {
	const char *name;
	bool required;
	const char *fallback; /* what happens without; "" for required ones */
	const char *remedy;   /* if the kernel has not got it */
	int (*try)(const struct btf *btf);
};

static int try_btf(const struct btf *btf)
{
	return btf ? 0 : -ENOENT;
}

static int try_perf_event(uint32_t type, uint64_t event_config)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = type,
		.config = event_config,
		.freq = 1,
		.sample_freq = 1,
		.disabled = 1,
	};
	cleanup_close int fd = -1;

	/* Any CPU will do; 0 may be offline. */
	for (int cpu = 0; cpu < 64 && fd < 0; cpu++) {
		fd = (int)syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
		if (fd < 0 && errno != ENODEV)
			return -errno;
	}
	return fd < 0 ? -ENODEV : 0;
}

static int try_cpu_clock(const struct btf *btf)
{
	return try_perf_event(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK);
}

static int try_page_faults(const struct btf *btf)
{
	return try_perf_event(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_PAGE_FAULTS_MIN);
}

static int try_cycles(const struct btf *btf)
{
	return try_perf_event(PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES);
}

/* inherit_thread came with v5.13; older kernels refuse bits that they do not know. */
static int try_thread_events(const struct btf *btf)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.disabled = 1,
		.inherit = 1,
		.inherit_thread = 1,
	};
	cleanup_close int fd =
		(int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : 0;
}

/* Creating a ring buffer needs CAP_BPF on every kernel, so it also tells whether bpf() is
 * permitted: libbpf's own probes take a refusal for a yes. */
static int try_ringbuf(const struct btf *btf)
{
	cleanup_close int fd = bpf_map_create(BPF_MAP_TYPE_RINGBUF, "probe", 0, 0,
					      (uint32_t)sysconf(_SC_PAGESIZE), NULL);

	if (fd == -EINVAL)
		return -EOPNOTSUPP;
	return fd < 0 ? fd : 0;
}

static int try_helper(enum bpf_prog_type type, enum bpf_func_id helper)
{
	int rc = try_ringbuf(NULL);

	if (rc)
		return rc;
	rc = libbpf_probe_bpf_helper(type, helper, NULL);
	return rc > 0 ? 0 : rc < 0 ? rc : -EOPNOTSUPP;
}

/* Loads `return 0` for the function or the tracepoint with this BTF type. Its descriptor, the
 * caller's. */
static int load_empty(const struct btf *btf, const char *type, uint32_t kind,
		      enum bpf_attach_type attach_type)
{
	const struct bpf_insn code[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	LIBBPF_OPTS(bpf_prog_load_opts, opts, .expected_attach_type = attach_type);
	int id = btf ? btf__find_by_name_kind(btf, type, kind) : -ENOENT;

	if (id < 0)
		return -EOPNOTSUPP;
	opts.attach_btf_id = (uint32_t)id;
	return bpf_prog_load(BPF_PROG_TYPE_TRACING, "probe", "GPL", code, ARRAY_SIZE(code), &opts);
}

static int try_tracepoint(const struct btf *btf, const char *type)
{
	cleanup_close int fd = load_empty(btf, type, BTF_KIND_TYPEDEF, BPF_TRACE_RAW_TP);

	return fd < 0 ? fd : 0;
}

static int try_tp_btf(const struct btf *btf)
{
	return try_tracepoint(btf, "btf_trace_sched_process_exec");
}

static int try_irq_work(const struct btf *btf)
{
	return try_tracepoint(btf, "btf_trace_" ARCH_IRQ_WORK_EVENT);
}

static int try_page_fault_user(const struct btf *btf)
{
	return try_tracepoint(btf, "btf_trace_page_fault_user");
}

static int try_lock_contention(const struct btf *btf)
{
	int rc = try_tracepoint(btf, "btf_trace_contention_begin");

	return rc ? rc : try_tracepoint(btf, "btf_trace_contention_end");
}

static int try_task_btf(const struct btf *btf)
{
	return try_helper(BPF_PROG_TYPE_PERF_EVENT, BPF_FUNC_get_current_task_btf);
}

static int try_task_pt_regs(const struct btf *btf)
{
	return try_helper(BPF_PROG_TYPE_PERF_EVENT, BPF_FUNC_task_pt_regs);
}

static int try_loop(const struct btf *btf)
{
	return try_helper(BPF_PROG_TYPE_PERF_EVENT, BPF_FUNC_loop);
}

static int try_task_storage(const struct btf *btf)
{
	int rc = try_ringbuf(NULL);

	if (rc)
		return rc;
	rc = libbpf_probe_bpf_map_type(BPF_MAP_TYPE_TASK_STORAGE, NULL);
	return rc > 0 ? 0 : rc < 0 ? rc : -EOPNOTSUPP;
}

static bool has_member(const struct btf *btf, const char *type, const char *member)
{
	int id = btf ? btf__find_by_name_kind(btf, type, BTF_KIND_STRUCT) : -ENOENT;
	const struct btf_type *found = id > 0 ? btf__type_by_id(btf, (uint32_t)id) : NULL;
	const struct btf_member *members = found ? btf_members(found) : NULL;

	for (uint16_t i = 0; found && i < btf_vlen(found); i++) {
		const struct btf_type *inner = btf__type_by_id(btf, members[i].type);
		const char *name = btf__name_by_offset(btf, members[i].name_off);

		if (!strcmp(name, member))
			return true;
		if (name[0] || !btf_is_composite(inner))
			continue;
		/* struct mm_struct wraps its members in one structure without a name */
		for (uint16_t k = 0; k < btf_vlen(inner); k++)
			if (!strcmp(btf__name_by_offset(btf, btf_members(inner)[k].name_off),
				    member))
				return true;
	}
	return false;
}

/* The structures that bpf/young.bpf.h follows: a list of mappings before v6.1, a maple tree since.
 */
static int try_vma_walk(const struct btf *btf)
{
	if (has_member(btf, "mm_struct", "mmap") && has_member(btf, "vm_area_struct", "vm_next"))
		return 0;
	if (has_member(btf, "mm_struct", "mm_mt") && has_member(btf, "maple_arange_64", "pivot") &&
	    has_member(btf, "maple_range_64", "pivot"))
		return try_loop(btf);
	return -EOPNOTSUPP;
}

static bool has_function(const struct btf *btf, const char *name)
{
	return btf && btf__find_by_name_kind(btf, name, BTF_KIND_FUNC) > 0;
}

/* Does the kernel know this way to attach programs, a name of enum bpf_attach_type? */
static bool has_attach_type(const struct btf *btf, const char *name)
{
	int id = btf ? btf__find_by_name_kind(btf, "bpf_attach_type", BTF_KIND_ENUM) : -ENOENT;
	const struct btf_type *type = id > 0 ? btf__type_by_id(btf, (uint32_t)id) : NULL;

	for (uint16_t i = 0; type && i < btf_vlen(type); i++)
		if (!strcmp(btf__name_by_offset(btf, btf_enum(type)[i].name_off), name))
			return true;
	return false;
}

/* One at the beginning of this program's file, which is no code: nothing is probed. */
static int try_uprobe_event(void)
{
	struct perf_event_attr attr = { .size = sizeof(attr),
					.uprobe_path = (uintptr_t) "/proc/self/exe" };
	cleanup_close int fd = -1;
	char text[16];

	if (io_read_small(AT_FDCWD, FEATURES_UPROBE_TYPE, text, sizeof(text)) <= 0)
		return -EOPNOTSUPP;
	attr.type = (uint32_t)strtoul(text, NULL, 10);
	fd = (int)syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
	return fd < 0 ? -errno : 0;
}

/* By links, which take the six capabilities (v6.6), or else by single events, which take
 * CAP_SYS_ADMIN: perf_uprobe_event_init(). */
static int try_uprobe_events(const struct btf *btf)
{
	return has_attach_type(btf, "BPF_TRACE_UPROBE_MULTI") ? 0 : try_uprobe_event();
}

/* Links came with v6.6, sessions with v6.13. Whether loading is permitted the programs' own loading
 * tells. */
static int try_uprobe_multi(const struct btf *btf)
{
	return has_attach_type(btf, "BPF_TRACE_UPROBE_MULTI") ? try_loop(btf) : -EOPNOTSUPP;
}

static int try_uprobe_session(const struct btf *btf)
{
	return has_attach_type(btf, "BPF_TRACE_UPROBE_SESSION") ? try_uprobe_multi(btf) : -EOPNOTSUPP;
}

/* Task work came with v6.18 and has its present form since v7.0, preemption off came with v6.10.
 * Whether they may be called the programs' own loading tells. */
static int try_task_work(const struct btf *btf)
{
	if ((!has_function(btf, "bpf_task_work_schedule_resume_impl") &&
	     !has_function(btf, "bpf_task_work_schedule_resume")) ||
	    !has_function(btf, "bpf_preempt_disable"))
		return -EOPNOTSUPP;
	return try_loop(btf);
}

static int try_waits(const struct btf *btf)
{
	return try_tracepoint(btf, "btf_trace_sched_switch");
}

static int try_io_calls(const struct btf *btf)
{
	return try_tracepoint(btf, "btf_trace_sys_exit");
}

static int try_wakers(const struct btf *btf)
{
	int rc = try_tracepoint(btf, "btf_trace_sched_waking");

	return rc ? rc : try_loop(btf);
}

/* Kernels may be built without block devices. Before v5.11 the tracepoint had other arguments. */
static int try_block_requests(const struct btf *btf)
{
	int rc = try_tracepoint(btf, "btf_trace_block_rq_issue");

	return rc ? rc : try_task_btf(btf);
}

/* The function type of the kernel's tracepoint @name; NULL: it has none. */
static const struct btf_type *tracepoint(const struct btf *btf, const char *name)
{
	const struct btf_type *type;
	char found_as[64];
	int id;

	(void)snprintf(found_as, sizeof(found_as), "btf_trace_%s", name);
	id = btf__find_by_name_kind(btf, found_as, BTF_KIND_TYPEDEF);
	type = id > 0 ? btf__type_by_id(btf, btf__type_by_id(btf, (uint32_t)id)->type) : NULL;
	type = type && btf_is_ptr(type) ? btf__type_by_id(btf, type->type) : NULL;
	return type && btf_is_func_proto(type) ? type : NULL;
}

/* Is argument @number of tracepoint @name a pointer to struct @to? */
static bool tells(const struct btf *btf, const char *name, unsigned number, const char *to)
{
	const struct btf_type *type = tracepoint(btf, name);

	/* the first of the function's is the tracepoint's own */
	if (!type || number + 1u >= btf_vlen(type))
		return false;
	type = btf__type_by_id(btf, btf_params(type)[number + 1u].type);
	type = type && btf_is_ptr(type) ? btf__type_by_id(btf, type->type) : NULL;
	return type && btf_is_struct(type) && strcmp(btf__name_by_offset(btf, type->name_off), to) == 0;
}

static struct io_ring_facts ring_facts(const struct btf *btf)
{
	bool req = tells(btf, "io_uring_submit_req", 0, "io_kiocb");

	return (struct io_ring_facts){
		.submits_req = req,
		.tells_requests = (req || tells(btf, "io_uring_submit_sqe", 0, "io_kiocb")) &&
				  tells(btf, "io_uring_task_add", 0, "io_kiocb") &&
				  tracepoint(btf, "io_uring_cqe_overflow"),
		.tells_cqe = tells(btf, "io_uring_complete", 2, "io_uring_cqe"),
	};
}

static int try_io_uring(const struct btf *btf)
{
	int rc = try_tracepoint(btf, "btf_trace_io_uring_complete");

	return rc ? rc : try_loop(btf);
}

static int try_stolen(const struct btf *btf)
{
	return has_member(btf, "rq", "clock") && has_member(btf, "rq", "clock_task") &&
			       has_member(btf, "cfs_rq", "rq")
		       ? 0
		       : -EOPNOTSUPP;
}

static int try_file_names(const struct btf *btf)
{
	return has_member(btf, "mount", "mnt_mountpoint") && has_member(btf, "dentry", "d_parent")
		       ? 0
		       : -EOPNOTSUPP;
}

/* Kernels take such programs and then cannot let them in: only attaching one tells. That of a call
 * that hardly anybody makes. */
static int try_fexit(const struct btf *btf)
{
	cleanup_close int program =
		load_empty(btf, ARCH_CALL_PREFIX "tee", BTF_KIND_FUNC, BPF_TRACE_FEXIT);
	cleanup_close int link = program < 0 ? program : bpf_raw_tracepoint_open(NULL, program);

	/* who may load programs of this kind but not these is refused by the kernel, not for want
	 * of a capability */
	if (link == -EPERM && try_tp_btf(btf) == 0)
		return -EOPNOTSUPP;
	return link < 0 ? link : try_loop(btf);
}

/* Programs tell processes by their numbers in the first pid namespace; what is known of them is
 * found in /proc. */
static int try_host_pids(const struct btf *btf)
{
	const struct bpf_insn code[] = {
		{ .code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_get_current_pid_tgid },
		{ .code = BPF_ALU64 | BPF_RSH | BPF_K, .dst_reg = BPF_REG_0, .imm = 32 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	cleanup_close int fd =
		bpf_prog_load(BPF_PROG_TYPE_RAW_TRACEPOINT, "probe", "GPL", code, ARRAY_SIZE(code), NULL);
	LIBBPF_OPTS(bpf_test_run_opts, run);
	char self[16] = "";

	if (fd < 0)
		return fd;
	/* where that cannot be told nothing speaks against it */
	if (bpf_prog_test_run_opts(fd, &run) < 0 || readlink("/proc/self", self, sizeof(self) - 1) <= 0)
		return 0;
	return strtoul(self, NULL, 10) == run.retval ? 0 : -EOPNOTSUPP;
}

static const struct probe probes[FEATURE_MAX] = {
	[FEATURE_BTF] = { "btf", true, "", "a kernel with CONFIG_DEBUG_INFO_BTF=y is needed",
			  try_btf },
	[FEATURE_PERF_EVENT] = { "perf_event", true, "",
				 "a kernel with CONFIG_PERF_EVENTS=y is needed", try_cpu_clock },
	[FEATURE_RINGBUF] = { "ringbuf", true, "", "kernel 5.8 or newer is needed", try_ringbuf },
	[FEATURE_TP_BTF] = { "tp_btf", true, "", "kernel 5.10 or newer with BTF is needed",
			     try_tp_btf },
	[FEATURE_HARDWARE_CYCLES] = { "hardware_cycles", false,
				      "cpu_event = cycles samples by the cpu-clock timer, too",
				      "no performance counters here (usual in virtual machines)",
				      try_cycles },
	[FEATURE_TASK_BTF] = { "task_btf", false, "task fields are read one by one",
			       "kernel 5.11 or newer has it", try_task_btf },
	[FEATURE_TASK_PT_REGS] = { "task_pt_regs", false,
				   "registers are looked for at the end of a thread's kernel stack",
				   "kernel 5.15 or newer has it", try_task_pt_regs },
	[FEATURE_BPF_LOOP] = { "bpf_loop", false, "no wakers, locks of the kernel and bytes of io_uring",
			       "kernel 5.17 or newer has it", try_loop },
	[FEATURE_TASK_STORAGE] = { "task_storage", false,
				   "waits of the 32,768 threads seen last, in a map",
				   "kernel 5.11 or newer has it", try_task_storage },
	[FEATURE_VMA_WALK] = { "vma_walk", false,
			       "first samples of a new process hold bare addresses",
			       "this kernel keeps mappings in a way that is not known",
			       try_vma_walk },
	[FEATURE_IRQ_WORK] = { "irq_work", false, "off-CPU samples have kernel stacks only",
			       "this kernel has no tracepoint " ARCH_IRQ_WORK_GROUP ":" ARCH_IRQ_WORK_EVENT,
			       try_irq_work },
	[FEATURE_UPROBE_EVENTS] = { "uprobe_events", false, "no memory and alloc of native programs",
				    "kernel 5.10 or newer with CONFIG_UPROBE_EVENTS has it",
				    try_uprobe_events },
	[FEATURE_UPROBE_MULTI] = { "uprobe_multi", false,
				   "memory and alloc of native programs by one event for each function, "
				   "which takes longer to remove: fewer windows",
				   "kernel 6.6 or newer has it", try_uprobe_multi },
	[FEATURE_UPROBE_SESSION] = { "uprobe_session", false,
				     "memory of native programs by probing every return: fewer windows",
				     "kernel 6.13 or newer has it", try_uprobe_session },
	[FEATURE_PAGE_FAULT_USER] = { "page_fault_user", false,
				      "large blocks of native programs by an event for every page fault "
				      "of the host while memory is profiled",
				      "kernels for x86-64 have it", try_page_fault_user },
	[FEATURE_THREAD_EVENTS] = { "thread_events", false,
				    "a session of one service above 200 Hz raises the rate of the "
				    "whole host",
				    "kernel 5.13 or newer has it", try_thread_events },
	[FEATURE_PAGE_FAULTS] = { "page_faults", false, "no faults profiles",
				  "a kernel with CONFIG_PERF_EVENTS has it", try_page_faults },
	[FEATURE_WAITS] = { "waits", false, "no offcpu, wall, block, mutex and io",
			    "kernel 5.10 or newer with BTF is needed", try_waits },
	[FEATURE_IO_CALLS] = { "io_calls", false, "no io profiles",
			       "a kernel with CONFIG_HAVE_SYSCALL_TRACEPOINTS has it", try_io_calls },
	[FEATURE_LOCK_CONTENTION] = { "lock_contention", false,
				      "no locks of the kernel in mutex profiles",
				      "kernel 5.19 or newer has it", try_lock_contention },
	[FEATURE_TASK_WORK] = { "task_work", false, "stacks end where they are paged out",
				"kernel 6.18 or newer has it", try_task_work },
	[FEATURE_FEXIT] = { "fexit", false, "io sessions slow every system call of the host",
			    "this kernel lets no program in at the end of its functions", try_fexit },
	[FEATURE_HOST_PIDS] = { "host_pids", true, "",
				"/proc has other process numbers than the kernel's; run profd in the host's pid "
				"namespace (docker run --pid=host)",
				try_host_pids },
	[FEATURE_WAKERS] = { "wakers", false,
			     "mutex profiles without the holders of locks that do not name them; no --wakers",
			     "kernel 5.17 or newer has it", try_wakers },
	[FEATURE_BLOCK_REQUESTS] = { "block_requests", false,
				     "waits for disks are not divided into device and queue",
				     "this kernel has no block devices, or others than are known",
				     try_block_requests },
	[FEATURE_IO_URING] = { "io_uring", false, "io profiles without the bytes of io_uring",
			       "this kernel has no io_uring, or one that tells nothing", try_io_uring },
	[FEATURE_STOLEN] = { "stolen", false,
			     "time that interrupts and hypervisors take is shown as blocked",
			     "this kernel schedules without CONFIG_FAIR_GROUP_SCHED", try_stolen },
	[FEATURE_FILE_NAMES] = { "file_names", false, "io profiles without --paths",
				 "this kernel keeps the names of files in a way that is not known",
				 try_file_names },
};

const char *features_name(enum feature feature)
{
	return probes[feature].name;
}

/* Debian and others let kernel.perf_event_paranoid above 2 refuse perf events to all but
 * CAP_SYS_ADMIN. */
static bool perf_is_restricted(void)
{
	char text[16];

	return io_read_small(AT_FDCWD, "/proc/sys/kernel/perf_event_paranoid", text, sizeof(text)) >
		       0 &&
	       atoi(text) > 2;
}

static void feature_refused(enum feature feature, int rc, char *reason, size_t size)
{
	bool perf = feature == FEATURE_PERF_EVENT || feature == FEATURE_HARDWARE_CYCLES;

	if (feature == FEATURE_UPROBE_EVENTS && rc == -EACCES)
		(void)snprintf(reason, size,
			       "not permitted: before kernel 6.6 it takes CAP_SYS_ADMIN, which "
			       "profd-generator of the package gives to the unit, or root");
	else if (rc != -EPERM && rc != -EACCES)
		(void)snprintf(reason, size, "%s: %s", strerror(-rc), probes[feature].remedy);
	else if (perf && perf_is_restricted())
		(void)snprintf(reason, size,
			       "not permitted: set kernel.perf_event_paranoid to 2, or give "
			       "CAP_SYS_ADMIN");
	else
		(void)snprintf(
			reason, size,
			"not permitted: give CAP_BPF and CAP_PERFMON (kernel 5.8 and newer), "
			"or run as root");
}

static int ignore_message(enum libbpf_print_level level, const char *format, va_list args)
{
	return 0;
}

void features_probe(struct features *features)
{
	libbpf_print_fn_t print = libbpf_set_print(ignore_message);
	struct btf *btf = btf__load_vmlinux_btf();

	for (size_t i = 0; i < FEATURE_MAX; i++) {
		int rc = probes[i].try(btf);

		features->found[i] = rc == 0;
		features->reason[i][0] = '\0';
		if (rc)
			feature_refused((enum feature)i, rc, features->reason[i],
					sizeof(features->reason[i]));
	}
	features->implicit_arguments = has_function(btf, "bpf_task_work_schedule_resume");
	features->ring = btf ? ring_facts(btf) : (struct io_ring_facts){ 0 };
	btf__free(btf);
	libbpf_set_print(print);
}

int features_disable(struct features *features, const char *name, const char *by, struct err *err)
{
	char names[1024] = "";
	size_t used = 0;

	for (size_t i = 0; i < FEATURE_MAX; i++) {
		if (!strcmp(probes[i].name, name)) {
			features->disabled[i] = true;
			(void)snprintf(features->reason[i], sizeof(features->reason[i]),
				       "switched off by %s", by);
			return 0;
		}
		if (used < sizeof(names))
			used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s",
						 i ? ", " : "", probes[i].name);
	}
	return err_set(err, EINVAL, "InvalidParam", "disable-feature",
		       "no feature '%.64s'; the features are %s", name, names);
}

void features_lose(struct features *features, enum feature feature, const char *complaint)
{
	features->found[feature] = false;
	(void)snprintf(features->reason[feature], sizeof(features->reason[feature]),
		       "the kernel refused it: %s", complaint);
}

/* ---- profile types --------------------------------------------------------------------------
 */

/* A type needs one or two features, and lacks a part without each of some others. */
static const struct {
	const char *name;
	enum feature needs;
	enum feature needs_too; /* FEATURE_BTF, which is always there: no second one */
	enum feature parts[6];	/* up to FEATURE_MAX */
} types[] = {
	{ .name = "cpu",
	  .needs = FEATURE_PERF_EVENT,
	  .parts = { FEATURE_VMA_WALK, FEATURE_TASK_WORK, FEATURE_MAX } },
	{ .name = "offcpu",
	  .needs = FEATURE_WAITS,
	  .parts = { FEATURE_IRQ_WORK, FEATURE_STOLEN, FEATURE_MAX } },
	{ .name = "wall",
	  .needs = FEATURE_WAITS,
	  .parts = { FEATURE_IRQ_WORK, FEATURE_STOLEN, FEATURE_MAX } },
	{ .name = "block", .needs = FEATURE_WAITS, .parts = { FEATURE_IRQ_WORK, FEATURE_MAX } },
	{ .name = "mutex",
	  .needs = FEATURE_WAITS,
	  .parts = { FEATURE_IRQ_WORK, FEATURE_WAKERS, FEATURE_LOCK_CONTENTION, FEATURE_MAX } },
	{ .name = "io",
	  .needs = FEATURE_WAITS,
	  .needs_too = FEATURE_IO_CALLS,
	  .parts = { FEATURE_IRQ_WORK, FEATURE_IO_URING, FEATURE_FEXIT, FEATURE_BLOCK_REQUESTS,
		     FEATURE_FILE_NAMES, FEATURE_MAX } },
	{ .name = "faults", .needs = FEATURE_PAGE_FAULTS, .parts = { FEATURE_MAX } },
	{ .name = "memory",
	  .needs = FEATURE_UPROBE_EVENTS,
	  .parts = { FEATURE_UPROBE_MULTI, FEATURE_UPROBE_SESSION, FEATURE_MAX } },
	{ .name = "alloc",
	  .needs = FEATURE_UPROBE_EVENTS,
	  .parts = { FEATURE_UPROBE_MULTI, FEATURE_MAX } },
};

static void print_type(const struct features *features, size_t type, FILE *out)
{
	const enum feature needs = features_has(features, types[type].needs) ? types[type].needs_too :
									       types[type].needs;
	const enum feature *parts = types[type].parts;
	const char *joint = " but: ";

	fprintf(out, "type:%-11s ", types[type].name);
	if (!features_has(features, needs)) {
		fprintf(out, "no        %s; instead: %s\n", features->reason[needs],
			needs == FEATURE_UPROBE_EVENTS ? "Go programs only" : "nothing");
		return;
	}
	fputs("yes      ", out);
	for (size_t i = 0; parts[i] != FEATURE_MAX; i++) {
		if (features_has(features, parts[i]))
			continue;
		fprintf(out, "%s%s", joint, probes[parts[i]].fallback);
		joint = "; ";
	}
	fputc('\n', out);
}

void features_print(const struct features *features, FILE *out)
{
	for (size_t i = 0; i < ARRAY_SIZE(types); i++)
		print_type(features, i, out);
	for (size_t i = 0; i < FEATURE_MAX; i++) {
		fprintf(out, "%-16s %-9s", probes[i].name,
			features->disabled[i] ? "disabled"
			: features->found[i]  ? "yes"
					      : "no");
		if (!features->found[i] || features->disabled[i])
			fprintf(out, " %s", features->reason[i]);
		if (!features_has(features, (enum feature)i))
			fprintf(out, "; %s", probes[i].required ? "required" : "instead: ");
		if (!features_has(features, (enum feature)i) && !probes[i].required)
			fputs(probes[i].fallback, out);
		fputc('\n', out);
	}
}

int features_require(const struct features *features, struct err *err)
{
	for (size_t i = 0; i < FEATURE_MAX; i++) {
		if (!probes[i].required || features_has(features, (enum feature)i))
			continue;
		if (features->disabled[i])
			return err_set(err, EOPNOTSUPP, NULL, NULL,
				       "feature %s is required and was disabled: start without "
				       "--disable-feature=%s",
				       probes[i].name, probes[i].name);
		return err_set(err, strstr(features->reason[i], "permitted") ? EPERM : EOPNOTSUPP,
			       NULL, NULL, "feature %s: %s", probes[i].name, features->reason[i]);
	}
	return 0;
}
