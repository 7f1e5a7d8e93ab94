// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/alloc/alloc_probes.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "agent/base/io.h"
#include "agent/collect/kernel/bpf_internal.h"
#include "alloc.skel.h"
#include "profiler.skel.h"

/* include/uapi/linux/bpf.h, enum bpf_attach_type; newer than the headers here. */
#define ATTACH_UPROBE_MULTI   48
#define ATTACH_UPROBE_SESSION 57
#define UPROBE_MULTI_RETURN   1	     /* BPF_F_UPROBE_MULTI_RETURN */
#define UPROBE_RETURN	      1 /* .../format/retprobe: config:0 */
#define SYS_URETPROBE	      335 /* x86-64 (entry/syscalls/syscall_64.tbl), Linux 6.11 */
#define ATTACH_MS	      5000 /* 10 in general */
#define HOLDERS_MAX	      (4 * ALLOC_SLOTS_MAX)
#define MEASURE_CALLS	      20000u
#define MEASURE_SLOT	      (ALLOC_SLOTS_MAX - 1)
#define HELD_MAX	      (2 * ALLOC_SITES_MAX) /* descriptors, of the probes of one process */

/* A process that holds a link. */
struct holder {
	uint32_t tgid; /* of the program that is probed; 0 = none */
	int pid_fd;    /* owned; it has ended, and its probes are gone, when it can be read */
};

struct alloc_probes {
	struct bpf_agent *agent; /* borrowed */
	struct holder holders[HOLDERS_MAX];
	struct alloc_bpf *skel; /* owned */
	unsigned possible_cpus;
	enum way {
		WAY_SESSION, /* one link of entries, which ask for their returns: Linux 6.13 */
		WAY_LINKS,   /* one link of entries and one of returns: 6.6 */
		WAY_EVENTS,  /* a perf event for each place: 5.17 */
		WAY_PLACES,  /* the same; the program looks up where it was hit: 5.10 */
	} way;
	enum { FILTERS_UNTRIED, FILTERS_PASSED, FILTERS_KILL } filters;
	bool has_faults; /* a program of first touches is loaded */
	struct bpf_link *faults; /* owned; NULL = nobody's large blocks are watched by the tracepoint */
	struct bpf_link *moves; /* owned; NULL as well where the kernel does not tell */
	unsigned owners;
	struct alloc_counts *counts; /* owned: one per possible CPU */
};

/* ---- loading -----------------------------------------------------------------------------------
 */

/* Draws of the exponential distribution with mean 1 at the middles of equal shares. */
static void fill_gaps(struct alloc_bpf *skel)
{
	uint32_t *gaps = (uint32_t *)(uintptr_t)skel->rodata->gaps;

	for (unsigned i = 0; i < ALLOC_GAPS; i++)
		gaps[i] = (uint32_t)(-log(1 - (i + 0.5) / ALLOC_GAPS) * ALLOC_GAP_ONE + 0.5);
}

static int share_maps(struct alloc_bpf *skel, const struct profiler_bpf *from)
{
	const struct {
		struct bpf_map *to, *from;
	} shared[] = {
		{ skel->maps.tables, from->maps.tables },
		{ skel->maps.mappings, from->maps.mappings },
		{ skel->maps.files, from->maps.files },
		{ skel->maps.targets, from->maps.targets },
		{ skel->maps.runtimes, from->maps.runtimes },
		{ skel->maps.sent_stacks, from->maps.sent_stacks },
		{ skel->maps.events, from->maps.events },
		{ skel->maps.counters, from->maps.counters },
	};
	struct bpf_map *const unused[] = { skel->maps.cpu_scratch, skel->maps.switch_scratch,
					   skel->maps.sweep_scratch, skel->maps.off_states,
					   skel->maps.kick_rings,    skel->maps.unknown_pcs,
					   skel->maps.late_scratch,  skel->maps.lock_waits,
					   skel->maps.io_moved,	     skel->maps.off_states_by_tid,
					   skel->maps.io_moved_by_tid };
	int rc = 0;

	for (size_t i = 0; i < ARRAY_SIZE(shared) && rc == 0; i++)
		rc = bpf_map__reuse_fd(shared[i].to, bpf_map__fd(shared[i].from));
	for (size_t i = 0; i < ARRAY_SIZE(unused) && rc == 0; i++)
		rc = bpf_map__set_autocreate(unused[i], false);
	return rc;
}

/* The programs that this way attaches, as the kernel has to know them before it loads them. */
static int choose_programs(struct alloc_bpf *skel, const struct bpf_agent *agent, enum way way,
			   bool faults)
{
	const bool event = faults && !features_has(&agent->features, FEATURE_PAGE_FAULT_USER);
	const bool old = way == WAY_PLACES, apart = way == WAY_LINKS || way == WAY_EVENTS;
	const uint32_t multi = way == WAY_LINKS ? ATTACH_UPROBE_MULTI : 0;
	const struct {
		struct bpf_program *program;
		bool loaded;
		uint32_t attach_type; /* 0 = as the program's section says */
	} programs[] = {
		{ skel->progs.alloc_session, way == WAY_SESSION, ATTACH_UPROBE_SESSION },
		{ skel->progs.alloc_entries, apart, multi },
		{ skel->progs.alloc_returns, apart, multi },
		{ skel->progs.alloc_entries_compat, old, 0 },
		{ skel->progs.alloc_returns_compat, old, 0 },
		{ skel->progs.alloc_large, faults && !old, 0 },
		{ skel->progs.alloc_large_compat, faults && old, 0 },
		{ skel->progs.alloc_fault_event, event && !old, 0 },
		{ skel->progs.alloc_fault_event_compat, event && old, 0 },
	};
	int rc = 0;

	for (size_t i = 0; i < ARRAY_SIZE(programs) && rc == 0; i++) {
		rc = bpf_program__set_autoload(programs[i].program, programs[i].loaded);
		if (rc == 0 && programs[i].loaded && programs[i].attach_type)
			rc = bpf_program__set_expected_attach_type(programs[i].program,
								   programs[i].attach_type);
	}
	return rc;
}

/* The maps of this way. Kernels before v6.1 warn of programs like these whose maps take memory when
 * they are used: check_map_prealloc(). */
static int choose_maps(struct alloc_bpf *skel, const struct bpf_agent *agent, enum way way,
		       bool faults)
{
	const bool storage = features_has(&agent->features, FEATURE_TASK_STORAGE);
	int rc = bpf_map__set_autocreate(skel->maps.alloc_tasks, storage);

	if (rc == 0)
		rc = bpf_map__set_autocreate(skel->maps.alloc_tasks_by_tid, !storage);
	if (rc == 0)
		rc = bpf_map__set_autocreate(skel->maps.alloc_moves, faults);
	if (rc == 0 && way >= WAY_EVENTS)
		rc = bpf_map__set_map_flags(skel->maps.alloc_live, 0);
	if (rc == 0 && way >= WAY_EVENTS)
		rc = bpf_map__set_map_flags(skel->maps.alloc_moves, 0);
	return rc;
}

static int load_once(struct alloc_probes *probes, const struct bpf_agent *agent, enum way way,
		     bool faults)
{
	struct alloc_bpf *skel = alloc_bpf__open();
	int rc;

	if (!skel)
		return -errno;
	skel->rodata->have_task_btf = features_has(&agent->features, FEATURE_TASK_BTF);
	skel->rodata->have_task_pt_regs = features_has(&agent->features, FEATURE_TASK_PT_REGS);
	skel->rodata->have_task_storage = features_has(&agent->features, FEATURE_TASK_STORAGE);
	skel->rodata->have_vma_walk = features_has(&agent->features, FEATURE_VMA_WALK);
	fill_gaps(skel);
	rc = share_maps(skel, agent->skel);
	if (rc == 0)
		rc = choose_programs(skel, agent, way, faults);
	if (rc == 0)
		rc = choose_maps(skel, agent, way, faults);
	if (rc == 0)
		rc = alloc_bpf__load(skel);
	if (rc < 0) {
		alloc_bpf__destroy(skel);
		return rc;
	}
	probes->skel = skel;
	probes->way = way;
	probes->has_faults = faults;
	return 0;
}

int alloc_probes_create(struct bpf_agent *agent, struct alloc_probes **ret, struct err *err)
{
	static const struct {
		enum feature feature;
		enum way way;
	} ways[] = {
		{ FEATURE_UPROBE_SESSION, WAY_SESSION },
		{ FEATURE_UPROBE_MULTI, WAY_LINKS },
		{ FEATURE_UPROBE_EVENTS, WAY_EVENTS },
		{ FEATURE_UPROBE_EVENTS, WAY_PLACES },
	};
	const bool has_loop = features_has(&agent->features, FEATURE_BPF_LOOP);
	cleanup(alloc_probes) struct alloc_probes *probes = calloc(1, sizeof(*probes));
	int rc;

	if (!probes)
		return err_set(err, ENOMEM, NULL, NULL, "out of memory");
	probes->agent = agent;
	probes->possible_cpus = agent->possible_cpus;
	probes->counts = calloc(probes->possible_cpus, sizeof(*probes->counts));
	if (!probes->counts)
		return err_set(err, ENOMEM, NULL, NULL, "out of memory");
	rc = -EOPNOTSUPP;
	/* With what needs less, one after the other. */
	for (size_t i = 0; i < 2 * ARRAY_SIZE(ways) && rc < 0; i++)
		if (features_has(&agent->features, ways[i / 2].feature) &&
		    (has_loop || ways[i / 2].way == WAY_PLACES))
			rc = load_once(probes, agent, ways[i / 2].way, i % 2 == 0);
	if (rc < 0)
		return err_set(err, -rc, NULL, NULL,
			       "allocations of programs cannot be probed: %s; it takes Linux 5.10 "
			       "(`profd --features`)",
			       strerror(-rc));
	/* Nobody waits for the processes that hold links. */
	(void)signal(SIGCHLD, SIG_IGN);
	*ret = take_ptr(probes);
	return 0;
}

static void watch_no_faults(struct alloc_probes *probes)
{
	perf_events_deinit(&probes->agent->touches);
	(void)bpf_link__destroy(probes->faults);
	(void)bpf_link__destroy(probes->moves);
	probes->faults = probes->moves = NULL;
}

uint64_t alloc_probes_verified(const struct alloc_probes *probes)
{
	return bpf_object_verified(probes->skel->obj);
}

void alloc_probes_destroy(struct alloc_probes *probes)
{
	if (!probes)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(probes->holders); i++)
		if (probes->holders[i].tgid)
			(void)close(probes->holders[i].pid_fd);
	watch_no_faults(probes);
	alloc_bpf__destroy(probes->skel);
	free(probes->counts);
	free(probes);
}

/* ---- attaching ---------------------------------------------------------------------------------
 */

/* union bpf_attr of BPF_LINK_CREATE with its member uprobe_multi (Linux 6.6). */
struct link_create {
	uint32_t prog_fd, target_fd, attach_type, flags;
	uint64_t path, offsets, ref_ctr_offsets, cookies;
	uint32_t count, multi_flags, pid, padding;
};

static unsigned arguments_of(uint8_t kind)
{
	switch (kind) {
	case ALLOC_MALLOC:
	case ALLOC_FREE:
		return 1;
	case ALLOC_POSIX_MEMALIGN:
		return 3;
	default:
		return 2;
	}
}

bool alloc_probes_can_probe(const struct control_alloc_site *site)
{
	const unsigned known = ARCH_NUMBERED_KNOWN;

	if (!site->kind || site->kind >= ALLOC_KIND_MAX || site->pushed > ALLOC_PUSHED_MAX ||
	    site->code_len > ALLOC_SITE_CODE_BYTES)
		return false;
	for (unsigned i = 0; i < arguments_of(site->kind); i++)
		if (site->argument[i] > 15 || !(known >> site->argument[i] & 1))
			return false;
	return true;
}

/* The places of one process's probes. */
struct places {
	enum way way;
	uint32_t entries_fd, returns_fd; /* programs */
	const char *path;
	uint32_t tgid;
	unsigned count, return_count; /* the first of them return to a probe as well */
	uint64_t offsets[ALLOC_SITES_MAX], cookies[ALLOC_SITES_MAX];
};

static int open_link(const struct places *p, uint32_t program_fd, uint32_t type, uint32_t count,
		     uint32_t flags)
{
	const struct link_create attr = {
		.prog_fd = program_fd,
		.attach_type = type,
		.path = (uintptr_t)p->path,
		.offsets = (uintptr_t)p->offsets,
		.cookies = (uintptr_t)p->cookies,
		.count = count,
		.multi_flags = flags,
		.pid = p->tgid,
	};
	int fd = (int)syscall(SYS_bpf, BPF_LINK_CREATE, &attr, sizeof(attr));

	return fd < 0 ? -errno : fd;
}

/* A descriptor that keeps the program called at @place, or where calls of it return. */
static int open_event(const struct places *p, uint32_t type, unsigned place, bool returns)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = type,
		.config = returns ? UPROBE_RETURN : 0,
		.uprobe_path = (uintptr_t)p->path,
		.probe_offset = p->offsets[place],
	};
	LIBBPF_OPTS(bpf_link_create_opts, opts, .perf_event.bpf_cookie = p->cookies[place]);
	const int program_fd = (int)(returns ? p->returns_fd : p->entries_fd);
	/* The event is of the process's first thread, its breakpoint is in the memory of all. */
	cleanup_close int event_fd =
		(int)syscall(SYS_perf_event_open, &attr, p->tgid, -1, -1, PERF_FLAG_FD_CLOEXEC);

	if (event_fd < 0)
		return -errno;
	if (p->way == WAY_EVENTS)
		return bpf_link_create(program_fd, event_fd, BPF_PERF_EVENT, &opts);
	/* Links of events came with cookies. */
	return ioctl(event_fd, PERF_EVENT_IOC_SET_BPF, program_fd) < 0 ? -errno : take_fd(&event_fd);
}

static int open_events(const struct places *p, int *fds)
{
	char text[16];
	int count = 0, rc = io_read_small(AT_FDCWD, FEATURES_UPROBE_TYPE, text, sizeof(text));

	for (unsigned i = 0; i < 2 * p->count && rc >= 0; i++) {
		if (i % 2 && i / 2 >= p->return_count)
			continue;
		rc = fds[count] = open_event(p, (uint32_t)strtoul(text, NULL, 10), i / 2, i % 2);
		count += rc >= 0;
	}
	return rc < 0 ? rc : count;
}

/* How many descriptors keep the probes: at @fds, which has room for HELD_MAX. */
static int open_probes(const struct places *p, int *fds)
{
	if (p->way >= WAY_EVENTS)
		return open_events(p, fds);
	fds[0] = open_link(p, p->entries_fd,
			   p->way == WAY_SESSION ? ATTACH_UPROBE_SESSION : ATTACH_UPROBE_MULTI,
			   p->count, 0);
	if (fds[0] < 0 || !p->return_count || p->way == WAY_SESSION)
		return fds[0] < 0 ? fds[0] : 1;
	fds[1] = open_link(p, p->returns_fd, ATTACH_UPROBE_MULTI, p->return_count, UPROBE_MULTI_RETURN);
	return fds[1] < 0 ? fds[1] : 2;
}

/* Holds the probes until the other end of @life_fd is closed, and ends: the kernel detaches on the
 * way out. */
static _Noreturn void hold(const struct places *places, int answer_fd, int life_fd)
{
	int fds[HELD_MAX + 1], count = open_probes(places, fds);
	int rc = count < 0 ? count : 0;
	char nothing;

	(void)prctl(PR_SET_NAME, "profd-probes");
	if (write(answer_fd, &rc, sizeof(rc)) != sizeof(rc) || rc < 0)
		_exit(1);
	(void)close(answer_fd);
	/* Nobody else's descriptors stay open by this one's life. */
	fds[count] = life_fd;
	io_close_all_but(fds, (size_t)count + 1);
	while (read(life_fd, &nothing, 1) < 0 && errno == EINTR)
		;
	_exit(0);
}

/* A holder that has ended leaves its place. */
static void forget_ended(struct alloc_probes *probes)
{
	for (size_t i = 0; i < ARRAY_SIZE(probes->holders); i++) {
		struct holder *holder = &probes->holders[i];

		if (!holder->tgid || poll(&(struct pollfd){ .fd = holder->pid_fd, .events = POLLIN }, 1, 0) <= 0)
			continue;
		(void)close(holder->pid_fd);
		holder->tgid = 0;
	}
}

static void remember_holder(struct alloc_probes *probes, uint32_t tgid, pid_t pid)
{
	const int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	forget_ended(probes);
	for (size_t i = 0; i < ARRAY_SIZE(probes->holders) && fd >= 0; i++) {
		if (probes->holders[i].tgid)
			continue;
		probes->holders[i] = (struct holder){ .tgid = tgid, .pid_fd = fd };
		return;
	}
	if (fd >= 0)
		(void)close(fd);
}

bool alloc_probes_are_in(struct alloc_probes *probes, uint32_t tgid)
{
	forget_ended(probes);
	for (size_t i = 0; i < ARRAY_SIZE(probes->holders); i++)
		if (probes->holders[i].tgid == tgid)
			return true;
	return false;
}

/* Attaches in a process of its own. A SIGKILL that arrives while the kernel detaches makes it give
 * up half way (get_user_pages() returns -EINTR, "failed to unregister, leaking uprobe"), and the
 * program keeps the breakpoints. A process that is ending already cannot be killed again, so
 * detaching is left to the end of one that does nothing else; it also spares us the waiting.
 * Returns the descriptor that keeps it alive. */
static int start_holder(struct alloc_probes *probes, const struct places *places)
{
	cleanup_close int answer_fd = -1, life_fd = -1;
	int answer[2], life[2], rc = -EIO;
	pid_t pid;

	if (pipe2(answer, O_CLOEXEC) < 0)
		return -errno;
	if (pipe2(life, O_CLOEXEC) < 0) {
		rc = -errno;
		(void)close(answer[0]), (void)close(answer[1]);
		return rc;
	}
	pid = fork();
	if (pid == 0) {
		(void)close(answer[0]), (void)close(life[1]);
		hold(places, answer[1], life[0]);
	}
	(void)close(answer[1]), (void)close(life[0]);
	answer_fd = answer[0];
	life_fd = life[1];
	if (pid < 0)
		return -EAGAIN;
	remember_holder(probes, places->tgid, pid);
	/* One that waits for a lock for ever ends when it gets it: its pipe is closed. */
	if (poll(&(struct pollfd){ .fd = answer_fd, .events = POLLIN }, 1, ATTACH_MS) == 0)
		return -ETIMEDOUT;
	if (read(answer_fd, &rc, sizeof(rc)) != sizeof(rc))
		rc = -EIO;
	return rc < 0 ? rc : take_fd(&life_fd);
}

/* Single events go one after the other, in this order, each after the kernel has waited for all
 * CPUs. The functions that a program calls most come first. */
static unsigned rank_of(uint8_t kind)
{
	return kind == ALLOC_MALLOC ? 0 : kind == ALLOC_FREE ? 2 : 1;
}

_Static_assert(ALLOC_PLACES_MAX == ALLOC_SITES_MAX + 1, "all sites of a process, and its returns");

/* Tells the programs whose places these are, for WAY_PLACES each of them, too. */
static void publish_places(struct alloc_bpf *skel, const struct places *places, uint32_t slot,
			   uint64_t bias)
{
	struct alloc_places *to = &skel->bss->places[slot];

	*to = (struct alloc_places){ .cookie[0] = ALLOC_COOKIE(ALLOC_MALLOC, 0, 0, 0, 0, slot, 0) };
	for (unsigned i = 0; i < places->count; i++) {
		to->address[i + 1] = places->offsets[i] + bias;
		to->cookie[i + 1] = places->cookies[i];
	}
	for (unsigned i = 0; i < ALLOC_SLOTS_MAX; i++)
		if (skel->bss->slots[i].tgid == places->tgid)
			skel->bss->slots[i].tgid = 0;
	skel->bss->slots[slot].tgid = places->tgid;
}

/* For an entry, or for a return. */
static struct bpf_program *program_of(const struct alloc_bpf *skel, enum way way, bool returns)
{
	if (way == WAY_SESSION)
		return skel->progs.alloc_session;
	if (way == WAY_PLACES)
		return returns ? skel->progs.alloc_returns_compat : skel->progs.alloc_entries_compat;
	return returns ? skel->progs.alloc_returns : skel->progs.alloc_entries;
}

int alloc_probes_attach(struct alloc_probes *probes, const struct alloc_attachment *a)
{
	const bool session = probes->way == WAY_SESSION;
	const uint64_t flags = (a->relays ? ALLOC_COOKIE_RELAYS : 0) |
			       (session || a->returns ? ALLOC_COOKIE_SESSION : 0) |
			       (!session && a->returns ? ALLOC_COOKIE_RETURNS : 0);
	struct places places = {
		.way = probes->way,
		.entries_fd = (uint32_t)bpf_program__fd(program_of(probes->skel, probes->way, false)),
		.returns_fd = (uint32_t)bpf_program__fd(program_of(probes->skel, probes->way, true)),
		.path = a->path,
		.tgid = a->tgid,
	};

	for (unsigned i = 0; i < 3 * a->site_count && places.count < ALLOC_SITES_MAX; i++) {
		const struct control_alloc_site *site = &a->sites[i % a->site_count];

		if (!alloc_probes_can_probe(site))
			return -EINVAL;
		if (rank_of(site->kind) != i / a->site_count || (site->kind == ALLOC_FREE && !a->frees))
			continue;
		places.return_count += a->returns && site->kind != ALLOC_FREE;
		places.offsets[places.count] = site->fo;
		places.cookies[places.count++] =
			ALLOC_COOKIE(site->kind, site->argument[0], site->argument[1], site->argument[2],
				     site->pushed, a->slot, flags);
	}
	publish_places(probes->skel, &places, a->slot, a->bias);
	return start_holder(probes, &places);
}

void alloc_probes_set_slot(struct alloc_probes *probes, uint32_t slot,
			   const struct alloc_slot *value)
{
	struct alloc_slot *at = &probes->skel->bss->slots[slot];

	memset(probes->counts, 0, probes->possible_cpus * sizeof(*probes->counts));
	(void)bpf_map_update_elem(bpf_map__fd(probes->skel->maps.alloc_counts), &slot, probes->counts,
				  BPF_ANY);
	if (!value->mean_gap_bytes)
		__atomic_store_n(&at->mean_gap_bytes, 0, __ATOMIC_RELEASE);
	else
		at->window = value->window; /* a closed one keeps it: what found it open is of its window */
	at->track = value->track;
	at->hits_max = value->hits_max;
	at->hits_alarm = value->hits_alarm;
	at->certain_bytes = value->certain_bytes;
	/* Last: it opens the slot. */
	__atomic_store_n(&at->mean_gap_bytes, value->mean_gap_bytes, __ATOMIC_RELEASE);
}

void alloc_probes_counts(struct alloc_probes *probes, uint32_t slot, struct alloc_counts *ret)
{
	*ret = (struct alloc_counts){ 0 };
	if (bpf_map_lookup_elem(bpf_map__fd(probes->skel->maps.alloc_counts), &slot, probes->counts) < 0)
		return;
	for (unsigned i = 0; i < probes->possible_cpus; i++) {
		ret->hits += probes->counts[i].hits;
		ret->allocations += probes->counts[i].allocations;
		ret->returns += probes->counts[i].returns;
		ret->sampled += probes->counts[i].sampled;
		ret->lost += probes->counts[i].lost;
		ret->capped += probes->counts[i].capped;
		ret->squares += probes->counts[i].squares;
		ret->delay_ns += probes->counts[i].delay_ns;
		ret->walk_ns += probes->counts[i].walk_ns;
		ret->closer += probes->counts[i].closer;
	}
}

void alloc_probes_forget(struct alloc_probes *probes, uint32_t slot, uint64_t address)
{
	const struct alloc_key key = { .address = address, .slot = slot };

	(void)bpf_map_delete_elem(bpf_map__fd(probes->skel->maps.alloc_live), &key);
}

/* ---- large blocks ------------------------------------------------------------------------------
 */

/* Attaches the program of large blocks to @tracepoint, unless it is. */
static int set_traced(const struct alloc_probes *probes, const char *tracepoint,
		      struct bpf_link **link)
{
	const struct alloc_bpf *skel = probes->skel;

	if (!*link)
		*link = bpf_program__attach_raw_tracepoint(probes->way == WAY_PLACES ?
								   skel->progs.alloc_large_compat :
								   skel->progs.alloc_large,
							   tracepoint);
	return *link ? 0 : -errno;
}

/* Attaches the program of first touches, unless it is. */
static int watch_faults(struct alloc_probes *probes)
{
	struct perf_events *touches = &probes->agent->touches;
	const struct alloc_bpf *skel = probes->skel;
	struct err err = { 0 };

	if (features_has(&probes->agent->features, FEATURE_PAGE_FAULT_USER))
		return set_traced(probes, "page_fault_user", &probes->faults);
	if (!touches->rate)
		perf_events_init(touches,
				 probes->way == WAY_PLACES ? skel->progs.alloc_fault_event_compat :
							     skel->progs.alloc_fault_event,
				 PERF_EVENT_ANY_FAULT);
	return perf_events_set_rate(touches, 1, &err);
}

int alloc_probes_watch_large(struct alloc_probes *probes, uint32_t tgid, uint32_t slot,
			     uint64_t code_va, uint64_t code_end_va)
{
	const struct alloc_owner owner = { .code_va = code_va, .code_end_va = code_end_va, .slot = slot };
	int rc = probes->has_faults ? watch_faults(probes) : -EOPNOTSUPP;

	if (rc >= 0)
		rc = set_traced(probes, "vm_unmapped_area", &probes->moves);
	if (rc < 0)
		return rc;
	rc = bpf_map_update_elem(bpf_map__fd(probes->skel->maps.alloc_owners), &tgid, &owner, BPF_NOEXIST);
	probes->owners += rc == 0;
	return rc;
}

void alloc_probes_refill_large(struct alloc_probes *probes, uint32_t tgid, uint32_t count,
			       uint64_t header_ip)
{
	const int fd = bpf_map__fd(probes->skel->maps.alloc_owners);
	struct alloc_owner owner;

	if (bpf_map_lookup_elem(fd, &tgid, &owner) < 0)
		return;
	owner.left = count;
	owner.header_ip = header_ip;
	(void)bpf_map_update_elem(fd, &tgid, &owner, BPF_EXIST);
}

/* The addresses first: a map that changes meanwhile is gone through from its beginning again. */
static int list_moves(int fd, uint32_t slot, struct alloc_large_moves_vec *ret)
{
	struct alloc_key at, *last = NULL;
	int rc = 0;

	for (unsigned i = 0; i < ALLOC_MOVED_MAX && rc == 0; i++, last = &at) {
		if (bpf_map_get_next_key(fd, last, &at) < 0)
			break;
		if (at.slot == slot)
			rc = alloc_large_moves_vec_push(ret, (struct alloc_large_move){ .at_va = at.address });
	}
	return rc;
}

bool alloc_probes_take_moves(struct alloc_probes *probes, uint32_t slot,
			     struct alloc_large_moves_vec *ret)
{
	const int fd = bpf_map__fd(probes->skel->maps.alloc_moves);
	size_t kept = 0;

	if (!probes->moves || list_moves(fd, slot, ret) < 0)
		return false;
	/* One that has moved on by now is taken next time. */
	for (size_t i = 0; i < ret->count; i++) {
		const struct alloc_key key = { .address = ret->data[i].at_va, .slot = slot };
		struct alloc_large_move move = { .at_va = key.address };

		if (bpf_map_lookup_and_delete_elem(fd, &key, &move.moved) == 0)
			ret->data[kept++] = move;
	}
	ret->count = kept;
	return true;
}

void alloc_probes_leave_large(struct alloc_probes *probes, uint32_t tgid)
{
	if (bpf_map_delete_elem(bpf_map__fd(probes->skel->maps.alloc_owners), &tgid) < 0)
		return;
	/* Page faults of nobody are looked at while nobody wants them. */
	if (--probes->owners == 0)
		watch_no_faults(probes);
}

/* ---- what hits cost ----------------------------------------------------------------------------
 */

/* Begins with an instruction as the sites have. */
void *alloc_probes_measured(size_t size);
__asm__(".text\n"
	".type alloc_probes_measured, %function\n"
	"alloc_probes_measured:\n" ARCH_MEASURED_FUNCTION
	".size alloc_probes_measured, . - alloc_probes_measured\n");

/* File offset of an address of this process's executable. */
static int own_offset(uintptr_t address, uint64_t *ret)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[512];
	int rc = -ENOENT;

	if (!maps)
		return -errno;
	while (rc < 0 && fgets(line, sizeof(line), maps)) {
		unsigned long start, end, offset;

		if (sscanf(line, "%lx-%lx %*4s %lx", &start, &end, &offset) == 3 && address >= start &&
		    address < end) {
			*ret = address - start + offset;
			rc = 0;
		}
	}
	(void)fclose(maps);
	return rc;
}

static double timed_calls_ns(void)
{
	struct timespec from, to;

	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
	for (unsigned i = 0; i < MEASURE_CALLS; i++)
		(void)alloc_probes_measured(64);
	(void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
	return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) /
	       MEASURE_CALLS;
}

/* Gaps so wide that nothing is sampled: what is timed is what every hit pays. -errno of
 * alloc_probes_attach(). */
static int time_hits(struct alloc_probes *probes, const struct alloc_attachment *attachment,
		     enum alloc_track track, double *ret_ns)
{
	const struct alloc_slot open = { .mean_gap_bytes = 1ull << 46,
					 .hits_max = UINT64_MAX,
					 .track = track };
	const struct alloc_slot closed = { .mean_gap_bytes = 0 };
	int fd;

	alloc_probes_set_slot(probes, MEASURE_SLOT, &open);
	fd = alloc_probes_attach(probes, attachment);
	if (fd >= 0) {
		*ret_ns = timed_calls_ns();
		(void)close(fd);
	}
	alloc_probes_set_slot(probes, MEASURE_SLOT, &closed);
	return fd < 0 ? fd : 0;
}

/* alloc_probes_measured() in process @tgid, which is this one or a fork of it. */
static struct alloc_attachment measured_in(pid_t tgid, const struct control_alloc_site *site)
{
	return (struct alloc_attachment){ .path = "/proc/self/exe",
					  .bias = (uintptr_t)alloc_probes_measured - site->fo,
					  .tgid = (uint32_t)tgid,
					  .slot = MEASURE_SLOT,
					  .sites = site,
					  .site_count = 1 };
}

int alloc_probes_measure(struct alloc_probes *probes, double *ret_hit_ns, double *ret_returned_ns)
{
	struct control_alloc_site site = { .kind = ALLOC_MALLOC, .argument = { ARCH_NUMBERED_FIRST } };
	struct alloc_attachment attachment;
	double bare = timed_calls_ns(), hit = 0, returned = 0;
	int rc = own_offset((uintptr_t)alloc_probes_measured, &site.fo);

	if (rc < 0)
		return rc;
	attachment = measured_in(getpid(), &site);
	rc = time_hits(probes, &attachment, ALLOC_TRACK_NONE, &hit);
	attachment.returns = true;
	if (rc == 0)
		rc = time_hits(probes, &attachment, ALLOC_TRACK_ALL, &returned);
	hit -= bare;
	returned -= bare;
	if (rc < 0 || hit <= 0 || returned <= 0)
		return rc < 0 ? rc : -EIO;
	*ret_hit_ns = hit;
	*ret_returned_ns = returned > hit ? returned - hit : 0;
	return 0;
}

/* ---- filtered programs -------------------------------------------------------------------------
 */

/* Filters the system call that return probes leave by, waits until it is probed, and returns from a
 * probed function: says so if it lives. */
static _Noreturn void return_filtered(int go_fd, int alive_fd)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_URETPROBE, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog filter = { ARRAY_SIZE(code), code };
	char sign = 0;

	(void)prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0 || read(go_fd, &sign, 1) != 1)
		_exit(1);
	(void)alloc_probes_measured(64);
	(void)!write(alive_fd, &sign, 1);
	_exit(0);
}

static bool try_filtered(struct alloc_probes *probes)
{
	const struct alloc_slot open = { .mean_gap_bytes = 1ull << 46,
					 .hits_max = UINT64_MAX,
					 .track = ALLOC_TRACK_ALL };
	const struct alloc_slot closed = { .mean_gap_bytes = 0 };
	struct control_alloc_site site = { .kind = ALLOC_MALLOC, .argument = { ARCH_NUMBERED_FIRST } };
	struct alloc_attachment attachment;
	cleanup_close int go_fd = -1, alive_fd = -1;
	int go[2], alive[2], link_fd;
	bool lives = false;
	pid_t pid;
	char sign;

	if (own_offset((uintptr_t)alloc_probes_measured, &site.fo) < 0 || pipe2(go, O_CLOEXEC) < 0)
		return false;
	go_fd = go[1];
	if (pipe2(alive, O_CLOEXEC) < 0) {
		(void)close(go[0]);
		return false;
	}
	alive_fd = alive[0];
	pid = fork();
	if (pid == 0) {
		(void)close(go[1]);
		return_filtered(go[0], alive[1]);
	}
	(void)close(go[0]), (void)close(alive[1]);
	if (pid < 0)
		return false;
	attachment = measured_in(pid, &site);
	attachment.returns = true;
	alloc_probes_set_slot(probes, MEASURE_SLOT, &open);
	link_fd = alloc_probes_attach(probes, &attachment);
	if (link_fd >= 0) {
		lives = write(go_fd, "", 1) == 1 && read(alive_fd, &sign, 1) == 1;
		(void)close(link_fd);
	}
	alloc_probes_set_slot(probes, MEASURE_SLOT, &closed);
	return lives;
}

bool alloc_probes_pass_filters(struct alloc_probes *probes)
{
	if (probes->filters == FILTERS_UNTRIED)
		probes->filters = try_filtered(probes) ? FILTERS_PASSED : FILTERS_KILL;
	return probes->filters == FILTERS_PASSED;
}
