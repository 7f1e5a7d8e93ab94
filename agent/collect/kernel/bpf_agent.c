// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/kernel/bpf_agent.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "agent/base/clock.h"
#include "agent/base/log.h"
#include "agent/base/text.h"
#include "agent/collect/kernel/bpf_internal.h"
#include "agent/collect/kernel/io_ring.h"
#include "agent/collect/kernel/mapping_trie.h"
#include "profiler.skel.h"

/* The first periods of a thread's own event belong to the host sampler. The half is the part that
 * is missed on average between a thread's last tick and its end. */
#define FAST_FROM_PERIODS 100u

#define OFF_THRESHOLD_MAX_NS ((1ull << 32) - 1) /* products of two stay below 2^64 */

/* Threads remember what was decided on their process. */
static void forget_decisions(struct bpf_agent *agent)
{
	uint32_t *generation = &agent->skel->bss->config.target_generation;

	*generation = *generation < INT32_MAX ? *generation + 1 : 1;
}

static int attach_life(struct bpf_agent *agent, struct err *err)
{
	struct profiler_bpf *skel = agent->skel;
	const struct {
		struct bpf_program *program;
		struct bpf_link **link;
	} always[] = {
		{ skel->progs.life_exec, &skel->links.life_exec },
		{ skel->progs.life_fork, &skel->links.life_fork },
		{ skel->progs.life_exit, &skel->links.life_exit },
	};

	for (size_t i = 0; i < ARRAY_SIZE(always); i++) {
		*always[i].link = bpf_program__attach_trace(always[i].program);
		if (!*always[i].link)
			return err_set(err, errno, NULL, NULL,
				       "BPF program %s could not be attached: %s",
				       bpf_program__name(always[i].program), strerror(errno));
	}
	return 0;
}

int bpf_agent_create(const struct features *features, struct bpf_agent **ret, struct err *err)
{
	cleanup(bpf_agent) struct bpf_agent *agent = NULL;
	struct bpf_program *sampler;
	struct profiler_bpf *skel;
	const enum perf_event_kind kind =
		features->sample_cycles && features_has(features, FEATURE_HARDWARE_CYCLES)
			? PERF_EVENT_CYCLES
			: PERF_EVENT_CLOCK;
	int rc;

	rc = features_require(features, err);
	if (rc < 0)
		return rc;
	agent = calloc(1, sizeof(*agent));
	if (!agent)
		return err_set(err, ENOMEM, NULL, NULL, "out of memory");
	agent->features = *features;
	call_ends_init(&agent->call_ends);
	rc = libbpf_num_possible_cpus();
	if (rc < 0)
		return err_set(err, -rc, NULL, NULL, "the number of CPUs is unknown: %s",
			       strerror(-rc));
	agent->possible_cpus = (unsigned)rc;
	u64map_init(&agent->tables, PROF_MODULES_MAX);
	u64map_init(&agent->table_fds, PROF_MODULES_MAX);
	rc = bpf_load(agent, err);
	if (rc < 0)
		return rc;
	skel = agent->skel;
	sampler = bpf_program__autoload(skel->progs.cpu_sample) ? skel->progs.cpu_sample
								: skel->progs.cpu_sample_compat;
	perf_events_init(&agent->perf, sampler, kind);
	perf_events_init(&agent->minor_faults, sampler, PERF_EVENT_MINOR_FAULT);
	perf_events_init(&agent->major_faults, sampler, PERF_EVENT_MAJOR_FAULT);
	thread_events_init(&agent->fast, sampler, kind);
	rc = bpf_ring_init(&agent->ring, bpf_map__fd(skel->maps.events),
			   bpf_map__max_entries(skel->maps.events));
	if (rc < 0)
		return err_set(err, -rc, NULL, NULL, "the ring buffer could not be mapped: %s",
			       strerror(-rc));
	forget_decisions(agent);
	rc = attach_life(agent, err);
	if (rc < 0)
		return rc;
	*ret = take_ptr(agent);
	return 0;
}

void bpf_agent_destroy(struct bpf_agent *agent)
{
	if (!agent)
		return;
	perf_events_deinit(&agent->perf);
	perf_events_deinit(&agent->minor_faults);
	perf_events_deinit(&agent->major_faults);
	thread_events_deinit(&agent->fast);
	while (agent->pending_count)
		(void)close(agent->pending_fds[--agent->pending_count]);
	bpf_ring_deinit(&agent->ring);
	kick_rings_deinit(&agent->kicks);
	call_ends_deinit(&agent->call_ends);
	for (size_t i = 0; i < ARRAY_SIZE(agent->walks); i++)
		(void)bpf_link__destroy(agent->walks[i]);
	profiler_bpf__destroy(agent->waits);
	profiler_bpf__destroy(agent->skel);
	u64map_deinit(&agent->tables);
	bpf_tables_close(agent);
	free(agent);
}

int bpf_agent_set_cpu_rate(struct bpf_agent *agent, uint32_t rate_hz, struct err *err)
{
	struct prof_config *config = &agent->skel->bss->config;
	int rc = perf_events_set_rate(&agent->perf, rate_hz, err);

	if (rc < 0)
		return rc;
	if (rate_hz)
		config->cpu_period_ns = NS_PER_S / rate_hz;
	config->cpu_active = rate_hz > 0;
	return 0;
}

int bpf_agent_set_faults(struct bpf_agent *agent, uint32_t period, struct err *err)
{
	int rc;

	if (period && !bpf_load_has_faults(&agent->features))
		return err_set(err, EOPNOTSUPP, NULL, NULL, "page faults need the feature page_faults");
	rc = perf_events_set_rate(&agent->minor_faults, period, err);
	if (rc == 0)
		rc = perf_events_set_rate(&agent->major_faults, period ? 1 : 0, err);
	if (rc < 0)
		perf_events_deinit(&agent->minor_faults);
	return rc;
}

void bpf_agent_set_fast_rate(struct bpf_agent *agent, uint32_t rate_hz)
{
	struct prof_config *config = &agent->skel->bss->config;

	thread_events_deinit(&agent->fast);
	agent->fast.rate_hz = rate_hz;
	config->fast_period_ns = rate_hz ? NS_PER_S / rate_hz : 0;
	config->fast_from_ns = config->fast_period_ns * FAST_FROM_PERIODS - config->fast_period_ns / 2;
}

int bpf_agent_fast_open(struct bpf_agent *agent, uint32_t tgid)
{
	return thread_events_open(&agent->fast, tgid);
}

void bpf_agent_fast_close(struct bpf_agent *agent, uint32_t tgid)
{
	thread_events_close(&agent->fast, tgid);
}

static void detach_waits(struct bpf_agent *agent)
{
	struct profiler_bpf *waits = agent->waits;
	struct bpf_link **links[] = { &waits->links.off_switch,	 &waits->links.off_exit,
				      &waits->links.off_waking,	 &waits->links.off_sweep,
				      &waits->links.off_waker,	 &waits->links.lock_begin,
				      &waits->links.lock_end,	 &agent->walks[BPF_WALK_WAKING],
				      &agent->walks[BPF_WALK_LOCK], &agent->walks[BPF_WALK_INTERRUPT] };

	for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
		(void)bpf_link__destroy(*links[i]);
		*links[i] = NULL;
	}
}

static void detach_offcpu(struct bpf_agent *agent)
{
	agent->skel->bss->config.off_generation = 0;
	agent->with_wakers = agent->with_waker_stacks = false;
	if (agent->waits)
		detach_waits(agent);
}

/* Attaches walk_due there, where it is loaded and not attached yet, or takes it off. */
static int set_walk(struct bpf_agent *agent, enum bpf_walk walk, bool on)
{
	static const char *const events[] = {
		[BPF_WALK_INTERRUPT] = ARCH_IRQ_WORK_EVENT,
		[BPF_WALK_WAKING] = "sched_waking",
		[BPF_WALK_LOCK] = "contention_end",
		[BPF_WALK_CALL] = "sys_exit",
	};
	struct profiler_bpf *waits = agent->waits;
	struct bpf_program *program = bpf_program__autoload(waits->progs.walk_due) ?
					      waits->progs.walk_due :
					      waits->progs.walk_due_compat;
	struct bpf_link **link = &agent->walks[walk];

	if (!on) {
		(void)bpf_link__destroy(*link);
		*link = NULL;
	} else if (!*link && bpf_program__autoload(program)) {
		*link = bpf_program__attach_raw_tracepoint(program, events[walk]);
		if (!*link)
			return -errno;
	}
	return 0;
}

static int attach_offcpu(struct bpf_agent *agent)
{
	struct profiler_bpf *skel = agent->waits;
	const struct {
		struct bpf_program *program;
		struct bpf_link **link;
	} programs[] = {
		{ skel->progs.off_exit, &skel->links.off_exit },
		{ skel->progs.off_switch, &skel->links.off_switch },
	};

	int rc = kick_rings_init(&agent->kicks, bpf_map__fd(skel->maps.kick_rings),
				 agent->possible_cpus);

	/* first the one that the others rely on */
	if (rc == 0)
		rc = set_walk(agent, BPF_WALK_INTERRUPT, true);
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < ARRAY_SIZE(programs); i++) {
		*programs[i].link = bpf_program__attach_trace(programs[i].program);
		if (!*programs[i].link)
			return -errno;
	}
	return 0;
}

int bpf_agent_set_offcpu(struct bpf_agent *agent, bool on, uint64_t threshold_ns, struct err *err)
{
	struct prof_config *config = &agent->skel->bss->config;
	int rc;

	if (!on) {
		detach_offcpu(agent);
		return 0;
	}
	if (!threshold_ns || threshold_ns > OFF_THRESHOLD_MAX_NS)
		return err_set(err, EINVAL, NULL, NULL, "the threshold must be 1 ns … 4 s");
	rc = bpf_load_waits(agent, err);
	if (rc < 0)
		return rc;
	config->off_threshold_ns = threshold_ns;
	if (config->off_generation)
		return 0;
	/* times that began under an earlier attachment are not ours */
	agent->off_generation++;
	config->off_generation = agent->off_generation;
	rc = attach_offcpu(agent);
	if (rc < 0) {
		detach_offcpu(agent);
		return err_set(err, -rc, NULL, NULL,
			       "the off-CPU programs could not be attached: %s", strerror(-rc));
	}
	return 0;
}

int bpf_set_link(struct bpf_program *program, struct bpf_link **link, bool on)
{
	if (!on) {
		(void)bpf_link__destroy(*link);
		*link = NULL;
		return 0;
	}
	if (!*link)
		*link = bpf_program__attach_trace(program);
	return *link ? 0 : -errno;
}

/* One that works only while the off-CPU programs do. */
static int set_beside(struct bpf_agent *agent, struct bpf_program *program, struct bpf_link **link,
		      bool on)
{
	bool possible = agent->skel->bss->config.off_generation && bpf_program__autoload(program);
	int rc = bpf_set_link(program, link, on && possible);

	return on && !possible ? -EOPNOTSUPP : rc;
}

/* The same for one that leaves its walks to walk_due, which is attached behind it. */
static int set_walked(struct bpf_agent *agent, struct bpf_program *program, struct bpf_link **link,
		      enum bpf_walk walk, bool on)
{
	int rc = set_beside(agent, program, link, on), walk_rc;

	walk_rc = set_walk(agent, walk, on && rc == 0);
	if (walk_rc == 0)
		return rc;
	(void)bpf_set_link(program, link, false);
	return walk_rc;
}

/* Mutex profiles have the stacks of threads that release a GIL, where the kernel can tell. */
static int set_waker_stacks(struct bpf_agent *agent)
{
	struct profiler_bpf *waits = agent->waits;
	bool for_gils = agent->with_wakers && agent->skel->bss->config.gils &&
			bpf_program__autoload(waits->progs.off_waker);

	return set_walked(agent, waits->progs.off_waker, &waits->links.off_waker, BPF_WALK_WAKING,
			  agent->with_waker_stacks || for_gils);
}

int bpf_agent_set_wakers(struct bpf_agent *agent, bool on)
{
	struct profiler_bpf *waits = agent->waits;
	int rc;

	if (!waits)
		return on ? -EOPNOTSUPP : 0;
	rc = set_beside(agent, waits->progs.off_waking, &waits->links.off_waking, on);
	agent->with_wakers = on && rc == 0;
	return rc < 0 ? rc : set_waker_stacks(agent);
}

int bpf_agent_set_waker_stacks(struct bpf_agent *agent, bool on)
{
	int rc;

	if (!agent->waits)
		return on ? -EOPNOTSUPP : 0;
	agent->with_waker_stacks = on;
	rc = set_waker_stacks(agent);
	if (rc < 0)
		agent->with_waker_stacks = false;
	return rc;
}

int bpf_agent_set_kernel_locks(struct bpf_agent *agent, bool on)
{
	struct profiler_bpf *skel = agent->waits;
	struct prof_config *config = &agent->skel->bss->config;
	int rc;

	if (!skel)
		return on ? -EOPNOTSUPP : 0;
	if (on && !skel->links.lock_end) {
		if (getrandom(&config->lock_secret, sizeof(config->lock_secret), 0) < 0)
			return -errno;
		config->lock_generation++;
	}
	rc = set_beside(agent, skel->progs.lock_begin, &skel->links.lock_begin, on);
	return rc < 0 ? rc :
			set_walked(agent, skel->progs.lock_end, &skel->links.lock_end, BPF_WALK_LOCK, on);
}

/* Requests of block devices, where the kernel has any. What was under way when it was last looked
 * at is forgotten. */
static int set_disk(struct bpf_agent *agent, bool on)
{
	struct profiler_bpf *waits = agent->waits;
	const struct {
		struct bpf_program *program;
		struct bpf_link **link;
	} programs[] = {
		{ waits->progs.disk_done, &waits->links.disk_done },
		{ waits->progs.disk_insert, &waits->links.disk_insert },
		{ waits->progs.disk_issue, &waits->links.disk_issue },
	};
	int rc = 0;

	if (on && !waits->links.disk_done)
		agent->skel->bss->config.disk_generation++;
	for (size_t i = 0; i < ARRAY_SIZE(programs) && rc == 0; i++)
		if (bpf_program__autoload(programs[i].program))
			rc = bpf_set_link(programs[i].program, programs[i].link, on);
	return rc;
}

/* Adds the programs at the ends of calls that were loaded: those that record what another one has
 * counted, or the others. */
static void add_calls(const struct profiler_bpf *waits, bool records, int *programs,
		      unsigned *count)
{
	struct bpf_program *program;

	bpf_object__for_each_program(program, waits->obj)
	{
		if (bpf_load_is_call(program) && bpf_program__autoload(program) &&
		    text_begins(bpf_program__name(program), "record_") == records &&
		    *count < CALL_ENDS_MAX)
			programs[(*count)++] = bpf_program__fd(program);
	}
}

static int set_calls(struct bpf_agent *agent, bool on)
{
	int programs[CALL_ENDS_MAX];
	unsigned count = 0, recording;

	agent->skel->bss->config.io_by_call = on;
	if (!on) {
		call_ends_close(&agent->call_ends);
		return 0;
	}
	add_calls(agent->waits, true, programs, &count);
	recording = count;
	add_calls(agent->waits, false, programs, &count);
	return call_ends_open(&agent->call_ends, programs, count, recording);
}

/* At the ends of the calls that move bytes where the kernel lets programs in there, else of every
 * system call. */
static int set_ends(struct bpf_agent *agent, bool on)
{
	struct profiler_bpf *waits = agent->waits;
	int rc;

	if (bpf_load_has_calls(&agent->features)) {
		rc = set_calls(agent, on);
		if (rc == 0)
			return 0;
		(void)set_calls(agent, false);
		agent->features.found[FEATURE_FEXIT] = false;
		log_warn(
			"programs at the ends of the kernel's functions cannot be attached, taking the end of every "
			"system call: %s",
			strerror(-rc));
	}
	rc = bpf_set_link(waits->progs.io_exit, &waits->links.io_exit, on);
	return rc < 0 ? rc : set_walk(agent, BPF_WALK_CALL, on);
}

bool bpf_agent_io_is_by_call(const struct bpf_agent *agent)
{
	return bpf_load_has_calls(&agent->features);
}

/* Calls recorded of a CPU in PROF_IO_WINDOW_NS, if its budget is not spent before: two fifths of
 * what its part of the ring has room for, which is emptied once in that time; and no more of all
 * CPUs than one collector can take out (200,000 a second, some 2 us each). */
#define IO_CALLS_MAX	 2000u
#define IO_CALLS_MIN	 100u
#define IO_CALLS_OF_HOST 20000u

static uint64_t io_calls_max(void)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t each = IO_CALLS_OF_HOST / (uint64_t)(cpus > 0 ? cpus : 1);

	if (each > IO_CALLS_MAX)
		return IO_CALLS_MAX;
	return each < IO_CALLS_MIN ? IO_CALLS_MIN : each;
}

/* Attaches as many as possible; detaches all. */
static int set_bytes(struct bpf_agent *agent, bool on)
{
	int rc = set_ends(agent, on);

	if (rc == 0)
		rc = io_ring_attach(agent->waits, on);
	return rc == 0 ? set_disk(agent, on) : rc;
}

int bpf_agent_set_io(struct bpf_agent *agent, bool on, uint64_t budget_ns)
{
	struct err err = { 0 };
	bool by_call;
	int rc;

	if (!on && !agent->waits)
		return 0;
	rc = bpf_load_waits(agent, &err);
	if (rc < 0) {
		log_debug("%s", err.text);
		return rc;
	}
	agent->skel->bss->config.io_budget_ns = budget_ns;
	agent->skel->bss->config.io_calls_max = io_calls_max();
	by_call = agent->features.found[FEATURE_FEXIT];
	rc = set_bytes(agent, on);
	if (rc == 0)
		return 0;
	/* Detaching cannot fail if all were attached. Here some were not, so none stays. */
	(void)set_bytes(agent, false);
	agent->features.found[FEATURE_FEXIT] = by_call;
	return rc;
}

int bpf_agent_sweep(struct bpf_agent *agent, bool all, void (*poll)(void *ctx), void *ctx)
{
	struct profiler_bpf *waits = agent->waits;
	struct prof_config *config = &agent->skel->bss->config;
	cleanup_close int fd = -1;
	char threads[BPF_AGENT_SWEEP_THREADS]; /* one byte each */
	ssize_t len;

	if (!waits || !config->off_generation)
		return -EOPNOTSUPP;
	if (!waits->links.off_sweep)
		waits->links.off_sweep = bpf_program__attach_iter(waits->progs.off_sweep, NULL);
	if (!waits->links.off_sweep)
		return -errno;
	fd = bpf_iter_create(bpf_link__fd(waits->links.off_sweep));
	if (fd < 0)
		return -errno;
	config->sweep_all = all;
	config->sweep_clock_ns = 0;
	/* Off the CPU and back: the scheduler notes by its own clock when that was, and the sweep
	 * when it begins. */
	(void)nanosleep(&(struct timespec){ .tv_nsec = 1 }, NULL);
	do {
		len = read(fd, threads, sizeof(threads));
		if (len > 0 && poll)
			poll(ctx);
	} while (len > 0 || (len < 0 && (errno == EINTR || errno == EAGAIN)));
	config->sweep_all = 0;
	return len < 0 ? -errno : 0;
}

void bpf_agent_set_undecided(struct bpf_agent *agent, bool sample)
{
	agent->skel->bss->config.sample_undecided = sample;
	forget_decisions(agent);
}

int bpf_agent_follow_cpus(struct bpf_agent *agent, bool anew)
{
	struct perf_events *const samplers[] = { &agent->perf, &agent->minor_faults,
						 &agent->major_faults, &agent->touches };
	int changes = 0;

	for (size_t i = 0; i < ARRAY_SIZE(samplers); i++) {
		int rc = perf_events_follow(samplers[i], anew);

		if (rc < 0)
			return rc;
		changes += rc;
	}
	return changes;
}

int bpf_agent_load_waits(struct bpf_agent *agent, struct err *err)
{
	return bpf_load_waits(agent, err);
}

const struct features *bpf_agent_features(const struct bpf_agent *agent)
{
	return &agent->features;
}

bool bpf_agent_uses_hardware(const struct bpf_agent *agent)
{
	return agent->perf.kind == PERF_EVENT_CYCLES;
}

int bpf_agent_set_target(struct bpf_agent *agent, uint32_t tgid, const struct prof_target *target)
{
	int rc = bpf_map_update_elem(bpf_map__fd(agent->skel->maps.targets), &tgid, target, BPF_ANY);

	forget_decisions(agent);
	return rc;
}

bool bpf_agent_get_target(const struct bpf_agent *agent, uint32_t tgid, struct prof_target *ret)
{
	return bpf_map_lookup_elem(bpf_map__fd(agent->skel->maps.targets), &tgid, ret) == 0;
}

void bpf_agent_drop_target(struct bpf_agent *agent, uint32_t tgid)
{
	(void)bpf_map_delete_elem(bpf_map__fd(agent->skel->maps.targets), &tgid);
}

int bpf_agent_set_runtime(struct bpf_agent *agent, uint32_t tgid,
			  const struct script_runtime *runtime)
{
	struct prof_config *config = &agent->skel->bss->config;
	bool has_gil = runtime->kind == SCRIPT_CPYTHON &&
		       !(runtime->python.flags & SCRIPT_PYTHON_FREE_THREADED);
	int rc = bpf_map_update_elem(bpf_map__fd(agent->skel->maps.runtimes), &tgid, runtime, BPF_ANY);

	if (rc < 0 || !has_gil || config->gils)
		return rc;
	config->gils = 1;
	if (agent->with_wakers && set_waker_stacks(agent) < 0)
		log_warn("who releases a GIL cannot be seen: its waits have no holder");
	return 0;
}

int bpf_agent_set_file_runtime(struct bpf_agent *agent, uint32_t module,
			       const struct script_runtime *runtime)
{
	return bpf_map_update_elem(bpf_map__fd(agent->skel->maps.file_runtimes), &module, runtime,
				   BPF_ANY);
}

void bpf_agent_drop_runtime(struct bpf_agent *agent, uint32_t tgid)
{
	(void)bpf_map_delete_elem(bpf_map__fd(agent->skel->maps.runtimes), &tgid);
}

int bpf_agent_map_add(struct bpf_agent *agent, uint32_t tgid, uint64_t start, uint64_t end,
		      const struct prof_mapping *mapping)
{
	return mapping_trie_add(bpf_map__fd(agent->skel->maps.mappings), tgid, start, end, mapping);
}

void bpf_agent_map_remove(struct bpf_agent *agent, uint32_t tgid, uint64_t start, uint64_t end)
{
	mapping_trie_remove(bpf_map__fd(agent->skel->maps.mappings), tgid, start, end);
}

int bpf_agent_file_add(struct bpf_agent *agent, const struct prof_file_key *key,
		       const struct prof_file *file)
{
	return bpf_map_update_elem(bpf_map__fd(agent->skel->maps.files), key, file, BPF_ANY);
}

void bpf_agent_file_remove(struct bpf_agent *agent, const struct prof_file_key *key)
{
	(void)bpf_map_delete_elem(bpf_map__fd(agent->skel->maps.files), key);
}

/* Hands one record to the sink if its size is right for its kind. The kernel's side is ours, so a
 * wrong one means a mismatch of versions and is left out. */
static void dispatch(void *ctx, const void *data, size_t bytes)
{
	const struct bpf_sink *sink = ctx;
	const struct prof_event_head *head = data;
	const struct prof_stack_event *stack = data;
	const struct prof_late_event *late = data;

	if (bytes < sizeof(*head) || head->size_bytes != bytes)
		return;
	switch (head->kind) {
	case PROF_EVENT_STACK:
		if (bytes >= sizeof(*stack) &&
		    bytes == sizeof(*stack) + stack->frame_count * sizeof(stack->frames[0]))
			sink->on_stack(sink->ctx, stack);
		break;
	case PROF_EVENT_SAMPLE:
		if (bytes == sizeof(struct prof_sample_event))
			sink->on_sample(sink->ctx, data);
		break;
	case PROF_EVENT_LATE:
		if (sink->on_late && bytes >= sizeof(*late) &&
		    bytes == sizeof(*late) + late->stack_bytes)
			sink->on_late(sink->ctx, late);
		break;
	case PROF_EVENT_RETRIED:
		if (sink->on_retried && bytes == sizeof(struct prof_retried_event))
			sink->on_retried(sink->ctx, data);
		break;
	case PROF_EVENT_EXEC:
	case PROF_EVENT_FORK:
	case PROF_EVENT_EXIT:
	case PROF_EVENT_UNKNOWN_PC:
		if (bytes == sizeof(struct prof_task_event))
			sink->on_task(sink->ctx, data);
		break;
	default:
		break;
	}
}

int bpf_agent_poll(struct bpf_agent *agent, const struct bpf_sink *sink)
{
	struct bpf_sink copy = *sink;

	kick_rings_drain(&agent->kicks);
	bpf_tables_commit(agent);
	return bpf_ring_consume(&agent->ring, dispatch, &copy);
}

int bpf_agent_wakeup_fd(const struct bpf_agent *agent)
{
	return bpf_map__fd(agent->skel->maps.events);
}

double bpf_agent_fill(const struct bpf_agent *agent)
{
	return (double)bpf_ring_used(&agent->ring) / (double)agent->ring.data_bytes;
}

void bpf_agent_forget_stack(struct bpf_agent *agent, uint64_t stack_hash)
{
	(void)bpf_map_delete_elem(bpf_map__fd(agent->skel->maps.sent_stacks), &stack_hash);
}
