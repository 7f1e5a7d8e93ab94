// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/collector.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>

#include "agent/base/clock.h"
#include "agent/base/io.h"
#include "agent/base/log.h"
#include "agent/base/parse.h"
#include "agent/base/privileges.h"
#include "agent/collect/allocations.h"
#include "agent/collect/announce.h"
#include "agent/collect/control.h"
#include "agent/collect/costs.h"
#include "agent/collect/drain.h"
#include "agent/collect/feed/feed_file.h"
#include "agent/collect/follow.h"
#include "agent/collect/late.h"
#include "agent/collect/late_memory.h"
#include "agent/collect/module_sweep.h"
#include "agent/collect/proc/container_names.h"
#include "agent/collect/publish.h"
#include "agent/collect/samples.h"
#include "agent/collect/script.h"

#define POLL_CALM_MS	   200 /* CPU samples at a low rate alone */
#define POLL_CALM_HZ	   250
#define POLL_SLOW_MS                                                                               \
	1000 /* at the rates of continuous profiling, while no program starts: waking up costs     \
	      * more than what there is to do */
#define POLL_SLOW_HZ	   50
#define POLL_ACTIVE_MS	   100
#define POLL_FULL_MS	   10  /* the BPF ring is filling */
#define POLL_PENDING_MS	   20  /* files are being indexed */
#define SWEEP_MS	   50  /* between two rounds over all processes */
#define POLL_IDLE_MS	   250
#define FILL_HIGH	   0.25
#define MMAP_HOLD_MS	   20  /* from one wakeup by mapping records to the next */
#define INDEXED_AT_ONCE	   8
#define RESCAN_INTERVAL_NS (5 * NS_PER_S)
#define EVENTS_MAX	   8
#define ONLINE_TEXT_BYTES                                                                          \
	4096 /* as each_online_cpu() reads: "0,2,4,…" of more than a thousand CPUs */
#define SLEPT_NS	   (100 * (int64_t)NS_PER_MS) /* two clocks are not read at once */

/* README.md says what each one is for. */
#define CAPABILITIES                                                                               \
	(1ull << CAP_BPF | 1ull << CAP_PERFMON | 1ull << CAP_SYS_PTRACE |                          \
	 1ull << CAP_CHECKPOINT_RESTORE | 1ull << CAP_SYSLOG | 1ull << CAP_DAC_READ_SEARCH)

/* Debian's kernels refuse perf_event_open() to everybody without CAP_SYS_ADMIN while
 * kernel.perf_event_paranoid is 3 or more (debian/patches: "security,perf: Allow further
 * restriction of perf_event_open"). The package sets it to 2; started by hand as root we keep that
 * capability instead of changing the host. Where programs cannot be attached to many functions by
 * one link (before Linux 6.6), memory and alloc take that capability as well, if it is there. */
static uint64_t needed_capabilities(const struct features *features)
{
	char text[16];
	uint64_t level = 0;
	ssize_t len = io_read_small(AT_FDCWD, "/proc/sys/kernel/perf_event_paranoid", text, sizeof(text));

	if (len > 0) {
		text[strcspn(text, "\n")] = '\0';
		if (parse_u64(text, 3, INT32_MAX, &level) == 0) {
			log_info("kernel.perf_event_paranoid is %s: CAP_SYS_ADMIN is kept; it is not "
				 "needed with 2",
				 text);
			return CAPABILITIES | 1ull << CAP_SYS_ADMIN;
		}
	}
	if (features_has(features, FEATURE_UPROBE_EVENTS) && !features_has(features, FEATURE_UPROBE_MULTI))
		return CAPABILITIES | 1ull << CAP_SYS_ADMIN;
	return CAPABILITIES;
}

/* ---- timed work --------------------------------------------------------------------------------
 */

struct timers {
	uint64_t second_ns, ten_seconds_ns, sweep_ns, rescan_ns; /* last time each was done */
	char online[ONLINE_TEXT_BYTES]; /* CPUs, as the kernel lists them */
	bool sampling;			/* then */
	int64_t asleep_ns;		/* of the host, since its start */
};

static uint32_t online_cpus(void)
{
	long count = sysconf(_SC_NPROCESSORS_ONLN);

	return count > 0 ? (uint32_t)count : 1;
}

static int64_t host_asleep_ns(void)
{
	const struct clock_triple now = clock_now();

	return (int64_t)(now.boottime_ns - now.monotonic_ns);
}

/* While a host sleeps all of its CPUs but one are offline, and lose their events for good, though
 * they are there again when anybody looks. */
static bool has_slept(struct timers *timers)
{
	const int64_t before_ns = timers->asleep_ns;

	timers->asleep_ns = host_asleep_ns();
	return timers->asleep_ns - before_ns > SLEPT_NS;
}

static void follow_cpus(struct collector *c, struct timers *timers)
{
	const bool slept = has_slept(timers), sampling = c->rate_hz > 0;
	/* Likewise one that went and came back since we looked. */
	const bool anew = (collector_active(c) && mmap_records_have_died(c->mmaps)) || slept;
	char text[ONLINE_TEXT_BYTES];
	ssize_t len = io_read_small(AT_FDCWD, "/sys/devices/system/cpu/online", text, sizeof(text));

	if (len > 0 && !anew && sampling == timers->sampling && strcmp(text, timers->online) == 0)
		return;
	timers->online[0] = '\0';
	timers->sampling = sampling;
	if (bpf_agent_follow_cpus(c->bpf, anew) < 0)
		log_debug("a CPU that came online is not sampled yet");
	else if (len > 0)
		memcpy(timers->online, text, sizeof(text));
	mmap_records_follow_cpus(c->mmaps, anew);
	if (anew)
		follow_lost(c, 1);
}

static void every_second(struct collector *c, struct timers *timers, uint64_t now_ns)
{
	proc_table_purge(c->procs, now_ns);
	if (!c->bpf)
		return;
	follow_cpus(c, timers);
	if (collector_active(c))
		(void)costs_feed(c, now_ns);
}

static void every_ten_seconds(struct collector *c, uint64_t now_ns)
{
	uint64_t cost_ns = costs_feed(c, now_ns);

	if (collector_active(c))
		follow_jit(c);
	if (!governor_judge(&c->governor, now_ns, cost_ns, online_cpus()))
		return;
	if (c->demand.types & PROF_WANT_CPU)
		log_info("own cost %.2f %% of the host, budget %.2f %%: sampling at %u Hz of %u",
			 c->governor.last_pct, c->governor.budget_pct,
			 governor_rate(&c->governor, c->demand.rate_hz), c->demand.rate_hz);
	control_apply_demand(c);
}

static void timed_work(struct collector *c, struct timers *timers)
{
	uint64_t now_ns = clock_monotonic_ns();

	if (now_ns - timers->second_ns >= NS_PER_S) {
		timers->second_ns = now_ns;
		every_second(c, timers, now_ns);
	}
	if (now_ns - timers->ten_seconds_ns >= 10 * NS_PER_S) {
		timers->ten_seconds_ns = now_ns;
		every_ten_seconds(c, now_ns);
	}
	alloc_tick(c->alloc, now_ns);
	if (c->rescan_due && now_ns - timers->rescan_ns >= RESCAN_INTERVAL_NS) {
		timers->rescan_ns = now_ns;
		c->rescan_due = false;
		proc_ports_reset(c->ports);
		follow_scan(c);
	}
	module_index_pump(c->index, now_ns);
	if (collector_hung(c) != c->hung_told)
		control_send_status(c);
	if (c->hold_until_ns)
		control_apply_demand(c);
	script_pump(c, now_ns);
	if (now_ns - timers->sweep_ns >= SWEEP_MS * NS_PER_MS) {
		/* Whole tables are gone through: not at every event of a host that forks all the time. */
		timers->sweep_ns = now_ns;
		follow_look_again(c, now_ns);
		announce_rest(c);
		publish_sweep(c, now_ns);
		module_sweep(c, now_ns);
	}
	late_memory_sweep(c, now_ns);
	late_sweep(c, now_ns);
}

/* ---- the loop ----------------------------------------------------------------------------------
 */

static bool mappings_are_held(const struct collector *c)
{
	return c->mmap_wakeup_ns &&
	       clock_monotonic_ns() - c->mmap_wakeup_ns < MMAP_HOLD_MS * NS_PER_MS;
}

/* Mapping records wake the loop while sessions run, so that the file of a program that lives for
 * milliseconds is opened in time; but after each such wakeup the next records wait for a while. */
static void watch_mappings(struct collector *c)
{
	struct epoll_event event = { .events = EPOLLIN };
	bool wanted = c->mmaps && collector_active(c) && !mappings_are_held(c);
	int fd;

	if (wanted == c->mmaps_polled)
		return;
	fd = mmap_records_poll_fd(c->mmaps);
	event.data.fd = fd;
	if (epoll_ctl(c->epoll_fd, wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, fd, &event) == 0)
		c->mmaps_polled = wanted;
}

static int wait_for_samples_ms(const struct collector *c)
{
	if (c->offcpu || c->fast_hz || c->rate_hz > POLL_CALM_HZ)
		return POLL_ACTIVE_MS;
	/* A process that has just begun may be gone soon: its facts are read before. */
	if (c->demand.types != PROF_WANT_CPU || c->rate_hz > POLL_SLOW_HZ ||
	    clock_monotonic_ns() - c->mmap_wakeup_ns < NS_PER_S)
		return POLL_CALM_MS;
	return POLL_SLOW_MS;
}

static int wait_for_others_ms(const struct collector *c)
{
	if (module_index_is_due(c->index, clock_monotonic_ns()))
		return POLL_PENDING_MS;
	if (c->script_due || c->sweep_due)
		return SWEEP_MS;
	if (!collector_active(c))
		return POLL_IDLE_MS;
	if (c->bpf && bpf_agent_fill(c->bpf) > FILL_HIGH)
		return POLL_FULL_MS;
	if (!c->mmaps_polled)
		return MMAP_HOLD_MS; /* then they wake the loop again */
	return wait_for_samples_ms(c);
}

static int wait_ms(const struct collector *c)
{
	return script_wait_ms(c, wait_for_others_ms(c));
}

static void handle(struct collector *c, int fd)
{
	if (fd == c->control_fd)
		control_supervisor(c);
	else if (fd == c->server_fd)
		control_server(c);
	else if (fd == c->reader_fd)
		script_receive(c);
	else if (fd == module_index_fd(c->index))
		module_index_receive(c->index, INDEXED_AT_ONCE);
	else if (c->late_memory.is_busy && fd == c->late_memory.fd)
		late_memory_receive(c);
	else if (!c->bpf || fd != bpf_agent_wakeup_fd(c->bpf))
		c->mmap_wakeup_ns = clock_monotonic_ns(); /* all rings are read below in any case */
}

static void run(struct collector *c)
{
	struct timers timers = { .ten_seconds_ns = clock_monotonic_ns(), .asleep_ns = host_asleep_ns() };

	while (!c->stopping) {
		struct epoll_event events[EVENTS_MAX];
		int count;

		watch_mappings(c);
		count = epoll_wait(c->epoll_fd, events, EVENTS_MAX, alloc_wait_ms(c->alloc, wait_ms(c)));
		for (int i = 0; i < count && !c->stopping; i++)
			handle(c, events[i].data.fd);
		drain_events(c);
		timed_work(c, &timers);
	}
}

/* ---- start and end -----------------------------------------------------------------------------
 */

static int create_tables(struct collector *c)
{
	struct module_index_sink sink = { .ctx = c, .indexed = publish_indexed };

	c->isolation = isolation_create();
	c->procs = proc_table_create();
	c->modules = module_table_create();
	c->ports = proc_ports_create();
	c->stacks = stack_table_create(STACK_TABLE_BYTES_MAX, samples_evicted, c);
	if (!c->isolation || !c->procs || !c->modules || !c->ports || !c->stacks)
		return -ENOMEM;
	sink.isolation = c->isolation;
	c->index = module_index_create(c->modules, &sink);
	return c->index ? 0 : -ENOMEM;
}

static void open_record(struct collector *c)
{
	cleanup_close int fd = -1;
	int rc;

	if (!c->options->record_path)
		return;
	fd = open(c->options->record_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	rc = fd < 0 ? -errno : feed_file_create(fd, &c->record);
	if (rc < 0) {
		log_error("no recording: %s: %s", c->options->record_path, strerror(-rc));
		return;
	}
	(void)take_fd(&fd);
	c->feed.record = c->record;
}

static int open_feed(struct collector *c)
{
	uint8_t boot_id[16] = { 0 };
	char text[64] = "";
	unsigned digits = 0;
	int rc;

	rc = ring_attach(c->options->feed_fd, &c->ring);
	if (rc < 0)
		return rc;
	rc = feed_writer_init(&c->feed, c->ring);
	if (rc < 0)
		return rc;
	open_record(c);
	if (getrandom(&c->epoch, sizeof(c->epoch), 0) < 0)
		return -errno;
	(void)!io_read_small(AT_FDCWD, "/proc/sys/kernel/random/boot_id", text, sizeof(text));
	for (const char *at = text; *at && digits < 32; at++) {
		unsigned value;
		char digit[2] = { *at, '\0' };

		if (*at == '-' || sscanf(digit, "%x", &value) != 1)
			continue;
		boot_id[digits / 2] |= (uint8_t)(value << (digits % 2 ? 0 : 4));
		digits++;
	}
	return feed_write_epoch(&c->feed, c->epoch, boot_id, online_cpus());
}

static int hear_programs(struct collector *c, struct err *err)
{
	const int fd = bpf_agent_wakeup_fd(c->bpf);
	struct epoll_event event = { .events = EPOLLIN | EPOLLET, .data.fd = fd };

	if (epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
		return err_set(err, errno, NULL, NULL, "the BPF ring cannot be waited for: %s", strerror(errno));
	return 0;
}

/* The kernel's side. Without it the collector stays up and says why nothing can be profiled. */
static void open_kernel(struct collector *c)
{
	struct err err = { 0 };

	if (bpf_agent_create(&c->options->features, &c->bpf, &err) == 0 &&
	    mmap_records_create(&c->mmaps, &err) == 0 && hear_programs(c, &err) == 0)
		return;
	log_error("this host cannot be profiled: %s", err.text);
	(void)snprintf(c->failure, sizeof(c->failure), "%s", err.text);
	bpf_agent_destroy(c->bpf);
	c->bpf = NULL;
}

static int start(struct collector *c)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = c->control_fd };
	struct channel_head ready = { .kind = CONTROL_READY };
	ssize_t len;
	int rc;

	c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	if (c->epoll_fd < 0 || epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, c->control_fd, &event) < 0)
		return -errno;
	rc = create_tables(c);
	if (rc == 0)
		rc = open_feed(c);
	if (rc < 0)
		return rc;
	len = readlink("/proc/self/exe", c->own_exe, sizeof(c->own_exe) - 1);
	c->own_exe[len > 0 ? len : 0] = '\0';
	c->supervisor_tgid = (uint32_t)getppid();
	governor_init(&c->governor, c->options->cpu_budget_pct);
	open_kernel(c);
	rc = allocations_open(c);
	if (rc < 0)
		return rc;
	rc = privileges_keep(needed_capabilities(&c->options->features));
	if (rc < 0)
		log_warn("privileges could not be given up: %s", strerror(-rc));
	if (c->bpf) {
		publish_init(c);
		c->starting = true;
		follow_scan(c);
		c->starting = false;
		control_feed_processes(c);
		follow_ask_all(c);
	}
	return channel_send_wait(c->control_fd, &ready, sizeof(ready), NULL, 0, 1000);
}

static void finish(struct collector *c)
{
	int rc;

	module_index_destroy(c->index);
	isolation_destroy(c->isolation);
	mmap_batch_deinit(&c->batch);
	mmap_records_destroy(c->mmaps);
	alloc_destroy(c->alloc);
	late_memory_stop(c);
	bpf_agent_destroy(c->bpf);
	late_stacks_deinit(&c->late);
	stack_table_destroy(c->stacks);
	proc_ports_destroy(c->ports);
	module_table_destroy(c->modules);
	proc_table_destroy(c->procs);
	feed_writer_deinit(&c->feed);
	rc = feed_file_close(c->record);
	if (rc < 0)
		log_error("the recording is not complete: %s", strerror(-rc));
	ring_destroy(c->ring);
	if (c->server_fd >= 0)
		(void)close(c->server_fd);
	if (c->reader_fd >= 0)
		(void)close(c->reader_fd);
	if (c->epoll_fd >= 0)
		(void)close(c->epoll_fd);
}

int collector_run(const struct collector_options *options)
{
	cleanup_free struct collector *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return 1;
	c->options = options;
	container_names_set_root(options->host_root);
	c->control_fd = options->control_fd;
	c->server_fd = -1;
	c->reader_fd = -1;
	c->epoll_fd = -1;
	c->server_generation = 1;
	rc = start(c);
	if (rc < 0)
		log_error("the collector cannot start: %s", strerror(-rc));
	else
		run(c);
	finish(c);
	return rc < 0 ? 1 : 0;
}
