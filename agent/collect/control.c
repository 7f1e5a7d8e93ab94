// SPDX-License-Identifier: Apache-2.0
/* Messages of the supervisor and the server. Lengths and ranges are checked; what makes no sense is
 * ignored. */
#include "agent/collect/control.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include "agent/base/clock.h"
#include "agent/base/log.h"
#include "agent/collect/announce.h"
#include "agent/collect/costs.h"
#include "agent/collect/drain.h"
#include "agent/collect/family.h"
#include "agent/collect/fast.h"
#include "agent/collect/follow.h"
#include "agent/collect/kernel/bpf_internal.h"
#include "agent/collect/publish.h"
#include "agent/collect/script.h"

#define RATE_MAX_HZ	     1000u
#define STATUS_WAIT_MS	     100
#define HOLD_NS		     (2500 * NS_PER_MS)
#define OFF_THRESHOLD_MAX_NS (1 * NS_PER_S) /* however small the budget is */
#define FAULT_PERIOD_MAX     4096u	    /* likewise */

/* ---- to the server -----------------------------------------------------------------------------
 */

void control_send_status(struct collector *c)
{
	const struct features *features =
		c->bpf ? bpf_agent_features(c->bpf) : &c->options->features;
	struct control_status status = { .head = { .kind = CONTROL_STATUS },
					 .loading = c->loading,
					 .sampling = c->rate_hz > 0 || c->offcpu || c->io || c->faults,
					 .hardware = c->bpf && bpf_agent_uses_hardware(c->bpf),
					 .listed = c->listed,
					 .hung_readers = collector_hung(c) };

	c->hung_told = status.hung_readers;
	if (c->options->report)
		c->options->report(features);
	if (c->server_fd < 0)
		return;
	for (int i = 0; i < FEATURE_MAX; i++) {
		status.features_found |= (uint32_t)features->found[i] << i;
		status.features_disabled |= (uint32_t)features->disabled[i] << i;
	}
	status.types = PROF_WANT_CPU;
	if (features_has(features, FEATURE_WAITS))
		status.types |= PROF_WANT_OFFCPU | PROF_WANT_LOCKS;
	if (bpf_load_has_io(features))
		status.types |= PROF_WANT_IO | PROF_WANT_PATHS;
	if (bpf_load_has_faults(features))
		status.types |= PROF_WANT_FAULTS;
	if (bpf_load_has_wakers(features))
		status.types |= PROF_WANT_WAKERS;
	if (bpf_load_has_locks(features))
		status.types |= PROF_WANT_KERNEL_LOCKS;
	if (alloc_is_possible(c->alloc))
		status.types |= PROF_WANT_ALLOC | PROF_WANT_LIVE;
	memcpy(status.failure, c->failure, sizeof(status.failure));
	if (channel_send_wait(c->server_fd, &status, sizeof(status), NULL, 0, STATUS_WAIT_MS) < 0)
		log_debug("the server did not take the status in time");
}

/* ---- demand ------------------------------------------------------------------------------------
 */

static void apply_rate(struct collector *c, uint32_t rate_hz)
{
	struct err err = { 0 };

	if (bpf_agent_set_cpu_rate(c->bpf, rate_hz, &err) < 0) {
		log_error("cannot sample at %u Hz: %s", rate_hz, err.text);
		memcpy(c->failure, err.text, sizeof(err.text));
		return;
	}
	c->failure[0] = '\0';
	c->rate_hz = rate_hz;
}

static void drain(void *ctx)
{
	drain_events(ctx);
}

static void sweep(struct collector *c, bool all)
{
	int rc = c->bpf && c->offcpu ? bpf_agent_sweep(c->bpf, all, drain, c) : 0;

	if (rc < 0)
		log_warn("what waits now cannot be looked at: %s", strerror(-rc));
}

static void apply_offcpu(struct collector *c, bool on)
{
	bool was_on = c->offcpu;
	struct err err = { 0 };

	c->off_threshold_ns = governor_threshold_ns(&c->governor, c->demand.off_threshold_ns,
						    OFF_THRESHOLD_MAX_NS);
	if (on && !was_on) {
		/* On first use the verifier may take its time; whoever waits is not to take that
		 * for a failure. */
		c->loading = true;
		control_send_status(c);
	}
	if (bpf_agent_set_offcpu(c->bpf, on, c->off_threshold_ns, &err) < 0)
		log_error("cannot follow time off the CPU: %s", err.text);
	else
		c->offcpu = on;
	if (c->offcpu && bpf_agent_set_wakers(c->bpf, c->demand.types & PROF_WANT_LOCKS) < 0)
		log_warn("who wakes a thread cannot be seen: locks that do not say who holds them "
			 "have no holder");
	if (c->offcpu && !was_on)
		sweep(c, true);
	if (c->loading) {
		c->loading = false;
		control_send_status(c);
	}
}

static void apply_extras(struct collector *c)
{
	bool locks = c->demand.types & PROF_WANT_KERNEL_LOCKS, wakers = c->demand.types & PROF_WANT_WAKERS;
	int rc = bpf_agent_set_kernel_locks(c->bpf, locks);

	c->kernel_locks = locks && rc == 0;
	if (rc < 0)
		log_error("cannot follow the kernel's locks: %s", strerror(-rc));
	rc = bpf_agent_set_waker_stacks(c->bpf, wakers);
	c->wakers = wakers && rc == 0;
	if (rc < 0)
		log_error("cannot follow who wakes a thread: %s", strerror(-rc));
}

static void apply_io(struct collector *c, bool on)
{
	int rc = bpf_agent_set_io(c->bpf, on, governor_calls_ns(&c->governor, PROF_IO_WINDOW_NS));

	if (rc < 0)
		log_error("cannot follow what is read and written: %s", strerror(-rc));
	else
		c->io = on;
}

/* Over budget fewer minor faults are sampled, each standing for more. */
static void apply_faults(struct collector *c, bool on)
{
	const uint64_t period = governor_threshold_ns(&c->governor, PROF_FAULT_PERIOD, FAULT_PERIOD_MAX);
	struct err err = { 0 };

	if (bpf_agent_set_faults(c->bpf, on ? (uint32_t)period : 0, &err) < 0)
		log_error("cannot sample page faults: %s", err.text);
	else
		c->faults = on;
}

/* Samples taken before the unwind tables of what is sampled are there would be cut: a first session
 * begins when they are, or after a bounded time. */
static bool tables_are_awaited(struct collector *c)
{
	uint64_t now_ns = clock_monotonic_ns();

	if (!c->hold_until_ns)
		c->hold_until_ns = now_ns + HOLD_NS;
	if (!publish_is_settled(c) && now_ns < c->hold_until_ns)
		return true;
	return false;
}

/* Host sampler and events of threads, each at what the budget leaves of its rate. */
static void apply_rates(struct collector *c)
{
	const struct control_demand *demand = &c->demand;
	bool cpu = demand->types & PROF_WANT_CPU;
	uint32_t rate = cpu ? demand->rate_hz : 0, fast = cpu ? demand->fast_hz : 0;

	fast_set_rate(c, c->fast_refused ? 0 : governor_rate(&c->governor, fast));
	if (c->fast_refused && fast > rate)
		rate = fast;
	rate = governor_rate(&c->governor, rate);
	if (rate != c->rate_hz)
		apply_rate(c, rate);
}

/* Writes the demand that is in force into the feed when it changes. */
static void tell_demand(struct collector *c, uint32_t types)
{
	const struct feed_demand before = c->told;

	c->told.rate_hz = c->rate_hz;
	c->told.fast_hz = c->fast_hz;
	c->told.types = types;
	c->told.by_call = types & PROF_WANT_IO && bpf_agent_io_is_by_call(c->bpf);
	c->told.off_threshold_ns = types & PROF_WANT_OFFCPU ? c->off_threshold_ns : 0;
	if (memcmp(&before, &c->told, sizeof(before)) == 0)
		return;
	/* Before the demand: a session's costs begin where it does. */
	(void)costs_feed(c, clock_monotonic_ns());
	c->told.time_ns = clock_monotonic_ns();
	if (feed_write_demand(&c->feed, &c->told) < 0)
		c->own_outcomes[OUTCOME_feed_full]++;
	control_send_status(c);
}

void control_apply_demand(struct collector *c)
{
	uint32_t types = c->demand.types;
	bool offcpu = types & PROF_WANT_OFFCPU, io = types & PROF_WANT_IO;
	bool faults = types & PROF_WANT_FAULTS, begins;

	if (!c->bpf)
		return;
	begins = ((types & PROF_WANT_CPU) && !c->rate_hz) || (offcpu && !c->offcpu) ||
		 (faults && !c->faults);
	if (begins && tables_are_awaited(c))
		return;
	c->hold_until_ns = 0;
	bpf_agent_set_undecided(c->bpf, c->demand.sample_undecided != 0);
	apply_rates(c);
	if (offcpu || c->offcpu)
		apply_offcpu(c, offcpu);
	apply_extras(c);
	if (io || c->io)
		apply_io(c, io);
	if (faults || c->faults)
		apply_faults(c, faults);
	/* A type that could not be started is not reported as in force; the status says why. */
	if (!c->rate_hz)
		types &= ~(uint32_t)PROF_WANT_CPU;
	if (!c->offcpu)
		types &= ~(uint32_t)(PROF_WANT_OFFCPU | PROF_WANT_LOCKS);
	if (!c->kernel_locks)
		types &= ~(uint32_t)PROF_WANT_KERNEL_LOCKS;
	if (!c->wakers)
		types &= ~(uint32_t)PROF_WANT_WAKERS;
	if (!c->faults)
		types &= ~(uint32_t)PROF_WANT_FAULTS;
	if (!c->io)
		types &= ~(uint32_t)(PROF_WANT_IO | PROF_WANT_PATHS);
	if (!alloc_is_possible(c->alloc))
		types &= ~(uint32_t)(PROF_WANT_ALLOC | PROF_WANT_LIVE);
	tell_demand(c, types);
}

static void on_demand(struct collector *c)
{
	const struct control_demand *demand = (const void *)c->message.data;
	bool begins;

	if (c->message.len != sizeof(*demand) || demand->rate_hz > RATE_MAX_HZ ||
	    demand->fast_hz > RATE_MAX_HZ)
		return;
	if (demand->fast_hz != c->demand.fast_hz)
		c->fast_refused = !features_has(&c->options->features, FEATURE_THREAD_EVENTS);
	begins = !collector_active(c) && demand->types;
	c->demand = *demand;
	governor_set_budget(&c->governor, demand->on_demand ? c->options->on_demand_budget_pct
							    : c->options->cpu_budget_pct);
	if (!begins) {
		control_apply_demand(c);
		return;
	}
	drain_events(c); /* who began while nobody sampled is known now */
	follow_want_rows(c);
	c->demanded_ns = clock_monotonic_ns();
	c->hold_until_ns =
		c->demanded_ns + HOLD_NS; /* at least until the decisions behind it are read */
}

static void on_target(struct collector *c)
{
	const struct control_target *target = (const void *)c->message.data;
	struct proc *proc;

	if (c->message.len != sizeof(*target) || !target->wanted)
		return;
	proc = proc_table_by_id(c->procs, target->proc);
	/* A decision is about one process instance: exec and exit end it. */
	if (!proc || proc->ended_ns || (proc->flags & FEED_PROC_EXCLUDED))
		return;
	proc->wanted = target->wanted & ~(uint32_t)PROF_WANT_MAPPED;
	if (c->hold_until_ns && proc->wanted != PROF_WANT_NONE)
		follow_ask(c, proc, true);
	if (!fast_follow(c, proc))
		control_apply_demand(c); /* the whole host is sampled at its rate instead */
	publish_target(c, proc);
	alloc_follow(c->alloc, proc);
}

static void on_families(struct collector *c)
{
	const struct control_families *families = (const void *)c->message.data;

	if (c->message.len == sizeof(*families) && families->count <= FEED_FAMILIES_MAX)
		family_follow(c, families);
}

void control_feed_processes(struct collector *c)
{
	const uint64_t begin_ns = clock_monotonic_ns();

	drain_events(c);
	follow_cpu(c, begin_ns);
}

static void on_want(struct collector *c)
{
	const struct control_want *want = (const void *)c->message.data;

	if (c->message.len != sizeof(*want) || want->count > CONTROL_WANT_MAX)
		return;
	if (want->what == WANT_ALL) {
		announce_all(c);
		script_feed_again(c);
		c->listed = true;
		control_send_status(c);
	}
	if (want->what == WANT_PORTS) {
		drain_events(c);
		follow_ports(c);
	}
	if (want->what == WANT_LIVES || want->what == WANT_PORTS)
		control_feed_processes(c);
	for (uint32_t i = 0; i < want->count; i++) {
		uint64_t id = want->ids[i];
		struct module *module;
		struct proc *proc;

		switch (want->what) {
		case WANT_STACK:
			announce_stack(c, id);
			break;
		case WANT_MODULE:
			module = id <= UINT32_MAX ? module_table_get(c->modules, (uint32_t)id) : NULL;
			if (module)
				(void)!announce_module(c, module);
			if (module && module->kind == FEED_MODULE_SCRIPT)
				script_feed_again(c);
			break;
		case WANT_PROC:
			proc = id <= UINT32_MAX ? proc_table_by_id(c->procs, (uint32_t)id) : NULL;
			if (proc) {
				proc->fed = false;
				proc->exit_fed = false;
				(void)!announce_proc(c, proc);
			}
			break;
		case WANT_ALLOC:
			proc = id <= UINT32_MAX ? proc_table_by_id(c->procs, (uint32_t)id) : NULL;
			if (proc && !proc->ended_ns)
				alloc_ask(c->alloc, proc);
			break;
		}
	}
}

static void on_sweep(struct collector *c)
{
	sweep(c, false);
	alloc_sweep(c->alloc);
}

void control_server(struct collector *c)
{
	while (c->server_fd >= 0) {
		const struct channel_head *head = (const void *)c->message.data;
		int rc = channel_receive(c->server_fd, &c->message);

		if (rc == 0)
			return;
		if (rc == -EPROTO)
			continue;
		if (rc < 0) {
			/* The demand stays in force until the next server changes it. The ring
			 * holds at least 10 s of samples meanwhile. */
			(void)close(c->server_fd);
			c->server_fd = -1;
			return;
		}
		if (head->kind == CONTROL_DEMAND)
			on_demand(c);
		else if (head->kind == CONTROL_TARGET)
			on_target(c);
		else if (head->kind == CONTROL_FAMILIES)
			on_families(c);
		else if (head->kind == CONTROL_WANT)
			on_want(c);
		else if (head->kind == CONTROL_SWEEP)
			on_sweep(c);
		else if (head->kind == CONTROL_FLUSH) /* the loop is awake; a session that ends
							 knows what was counted */
			(void)costs_feed(c, clock_monotonic_ns());
		channel_message_close(&c->message);
	}
}

/* ---- supervisor --------------------------------------------------------------------------------
 */

static void watch(struct collector *c, int fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

	if (epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
		log_error("cannot watch a channel: %s", strerror(errno));
}

static void on_peer(struct collector *c)
{
	const struct control_peer *peer = (const void *)c->message.data;
	int fd;

	if (c->message.len != sizeof(*peer) || c->message.fd_count != 1)
		return;
	fd = take_fd(&c->message.fds[0]);
	if (peer->role == ROLE_SYMBOLIZER) {
		module_index_set_peer(c->index, fd);
		watch(c, fd);
	} else if (peer->role == ROLE_SERVER) {
		if (c->server_fd >= 0)
			(void)close(c->server_fd);
		c->server_fd = fd;
		c->server_generation = peer->generation;
		c->listed = false;
		watch(c, fd);
		control_send_status(c);
	} else if (peer->role == ROLE_READER) {
		script_set_reader(c, fd);
		watch(c, fd);
	} else {
		(void)close(fd);
	}
}

void control_supervisor(struct collector *c)
{
	for (;;) {
		const struct channel_head *head = (const void *)c->message.data;
		int rc = channel_receive(c->control_fd, &c->message);

		if (rc == 0)
			return;
		if (rc == -EPROTO)
			continue;
		if (rc < 0 || head->kind == CONTROL_STOP) {
			channel_message_close(&c->message);
			c->stopping = true;
			return;
		}
		if (head->kind == CONTROL_PEER)
			on_peer(c);
		channel_message_close(&c->message);
	}
}
