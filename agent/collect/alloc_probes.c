// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/alloc_probes.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "agent/base/io.h"
#include "agent/collect/bpf_internal.h"
#include "alloc.skel.h"
#include "profiler.skel.h"

/* include/uapi/linux/bpf.h, enum bpf_attach_type; newer than the headers here. */
#define ATTACH_UPROBE_MULTI   48
#define ATTACH_UPROBE_SESSION 57
#define SYS_URETPROBE	      335 /* arch/x86/entry/syscalls/syscall_64.tbl, Linux 6.11 */
#define ATTACH_MS	      5000 /* 10 in general */
#define HOLDERS_MAX	      (4 * ALLOC_SLOTS_MAX)
#define MEASURE_CALLS	      20000u
#define MEASURE_SLOT	      (ALLOC_SLOTS_MAX - 1)

/* A process that holds a link. */
struct holder {
	uint32_t tgid; /* of the program that is probed; 0 = none */
	int pid_fd;    /* owned; it has ended, and its probes are gone, when it can be read */
};

struct alloc_probes {
	struct holder holders[HOLDERS_MAX];
	struct alloc_bpf *skel; /* owned */
	unsigned possible_cpus;
	bool session;
	enum { FILTERS_UNTRIED, FILTERS_PASSED, FILTERS_KILL } filters;
	bool has_faults; /* alloc_fault is loaded */
	struct bpf_link *faults; /* owned; NULL = nobody's large blocks are watched */
	unsigned owners;
	struct alloc_counts *counts; /* owned: one per possible CPU */
};

/* ---- loading ----------------------------------------------------------------------------------- */

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
		{ skel->maps.sent_stacks, from->maps.sent_stacks },
		{ skel->maps.events, from->maps.events },
		{ skel->maps.counters, from->maps.counters },
	};
	struct bpf_map *const unused[] = { skel->maps.cpu_scratch, skel->maps.switch_scratch,
					   skel->maps.sweep_scratch, skel->maps.off_states,
					   skel->maps.kick_rings,    skel->maps.unknown_pcs,
					   skel->maps.late_scratch,  skel->maps.lock_waits };
	int rc = 0;

	for (size_t i = 0; i < ARRAY_SIZE(shared) && rc == 0; i++)
		rc = bpf_map__reuse_fd(shared[i].to, bpf_map__fd(shared[i].from));
	for (size_t i = 0; i < ARRAY_SIZE(unused) && rc == 0; i++)
		rc = bpf_map__set_autocreate(unused[i], false);
	return rc;
}

static int load_once(struct alloc_probes *probes, const struct bpf_agent *agent, bool session, bool faults)
{
	struct alloc_bpf *skel = alloc_bpf__open();
	int rc;

	if (!skel)
		return -errno;
	skel->rodata->have_task_btf = true;
	skel->rodata->have_vma_walk = features_has(&agent->features, FEATURE_VMA_WALK);
	fill_gaps(skel);
	rc = share_maps(skel, agent->skel);
	if (rc == 0)
		rc = bpf_program__set_autoload(session ? skel->progs.alloc_entries : skel->progs.alloc_session,
					       false);
	if (rc == 0)
		rc = bpf_program__set_autoload(skel->progs.alloc_fault, faults);
	if (rc == 0)
		rc = bpf_program__set_expected_attach_type(
			session ? skel->progs.alloc_session : skel->progs.alloc_entries,
			session ? ATTACH_UPROBE_SESSION : ATTACH_UPROBE_MULTI);
	if (rc == 0)
		rc = alloc_bpf__load(skel);
	if (rc < 0) {
		alloc_bpf__destroy(skel);
		return rc;
	}
	probes->skel = skel;
	probes->session = session;
	probes->has_faults = faults;
	return 0;
}

int alloc_probes_create(struct bpf_agent *agent, struct alloc_probes **ret, struct err *err)
{
	cleanup(alloc_probes) struct alloc_probes *probes = calloc(1, sizeof(*probes));
	int rc;

	if (!probes)
		return err_set(err, ENOMEM, NULL, NULL, "out of memory");
	probes->possible_cpus = agent->possible_cpus;
	probes->counts = calloc(probes->possible_cpus, sizeof(*probes->counts));
	if (!probes->counts)
		return err_set(err, ENOMEM, NULL, NULL, "out of memory");
	rc = -EOPNOTSUPP;
	/* With what needs less, one after the other. */
	for (int way = 0; way < 3 && rc < 0; way++)
		if (features_has(&agent->features, way < 2 ? FEATURE_UPROBE_SESSION : FEATURE_UPROBE_MULTI))
			rc = load_once(probes, agent, way < 2, way < 1);
	if (rc < 0)
		return err_set(err, -rc, NULL, NULL,
			       "allocations of programs cannot be probed: %s; it takes Linux 6.6, and 6.13 "
			       "to follow what stays in use (`profd --features`)",
			       strerror(-rc));
	/* Nobody waits for the processes that hold links. */
	(void)signal(SIGCHLD, SIG_IGN);
	*ret = take_ptr(probes);
	return 0;
}

void alloc_probes_destroy(struct alloc_probes *probes)
{
	if (!probes)
		return;
	for (size_t i = 0; i < ARRAY_SIZE(probes->holders); i++)
		if (probes->holders[i].tgid)
			(void)close(probes->holders[i].pid_fd);
	(void)bpf_link__destroy(probes->faults);
	alloc_bpf__destroy(probes->skel);
	free(probes->counts);
	free(probes);
}

bool alloc_probes_tells_addresses(const struct alloc_probes *probes)
{
	return probes->session;
}

/* ---- attaching --------------------------------------------------------------------------------- */

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
	/* rax rcx rdx rbx rbp rsi rdi r8 r9: alloc_register() in bpf/alloc.bpf.c */
	const unsigned known = 0x3ef;

	if (!site->kind || site->kind >= ALLOC_KIND_MAX || site->pushed > ALLOC_PUSHED_MAX ||
	    site->code_len > ALLOC_SITE_CODE_BYTES)
		return false;
	for (unsigned i = 0; i < arguments_of(site->kind); i++)
		if (site->argument[i] > 15 || !(known >> site->argument[i] & 1))
			return false;
	return true;
}

/* Holds the link until the other end of @life_fd is closed, and ends: the kernel detaches on the way out. */
static _Noreturn void hold(const struct link_create *attr, int answer_fd, int life_fd)
{
	int link_fd = (int)syscall(SYS_bpf, BPF_LINK_CREATE, attr, sizeof(*attr));
	int rc = link_fd < 0 ? -errno : 0;
	char nothing;

	(void)prctl(PR_SET_NAME, "profd-probes");
	if (write(answer_fd, &rc, sizeof(rc)) != sizeof(rc) || rc < 0)
		_exit(1);
	(void)close(answer_fd);
	/* Nobody else's descriptors stay open by this one's life. */
	io_close_others(link_fd, life_fd);
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

/* Attaches in a process of its own. A SIGKILL that arrives while the kernel detaches makes it give up half
 * way (get_user_pages() returns -EINTR, "failed to unregister, leaking uprobe"), and the program keeps the
 * breakpoints. A process that is ending already cannot be killed again, so detaching is left to the end of
 * one that does nothing else; it also spares us the waiting. Returns the descriptor that keeps it alive. */
static int start_holder(struct alloc_probes *probes, const struct link_create *attr)
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
		hold(attr, answer[1], life[0]);
	}
	(void)close(answer[1]), (void)close(life[0]);
	answer_fd = answer[0];
	life_fd = life[1];
	if (pid < 0)
		return -EAGAIN;
	remember_holder(probes, attr->pid, pid);
	/* One that waits for a lock for ever ends when it gets it: its pipe is closed. */
	if (poll(&(struct pollfd){ .fd = answer_fd, .events = POLLIN }, 1, ATTACH_MS) == 0)
		return -ETIMEDOUT;
	if (read(answer_fd, &rc, sizeof(rc)) != sizeof(rc))
		rc = -EIO;
	return rc < 0 ? rc : take_fd(&life_fd);
}

int alloc_probes_attach(struct alloc_probes *probes, const struct alloc_attachment *a)
{
	const struct bpf_program *program = probes->session ? probes->skel->progs.alloc_session
							    : probes->skel->progs.alloc_entries;
	uint64_t flags = (a->relays ? ALLOC_COOKIE_RELAYS : 0) |
			 (probes->session ? ALLOC_COOKIE_SESSION : 0);
	uint64_t offsets[ALLOC_SITES_MAX], cookies[ALLOC_SITES_MAX];
	struct link_create attr = {
		.prog_fd = (uint32_t)bpf_program__fd(program),
		.attach_type = probes->session ? ATTACH_UPROBE_SESSION : ATTACH_UPROBE_MULTI,
		.path = (uintptr_t)a->path,
		.offsets = (uintptr_t)offsets,
		.cookies = (uintptr_t)cookies,
		.pid = a->tgid,
	};

	for (unsigned i = 0; i < a->site_count && attr.count < ALLOC_SITES_MAX; i++) {
		const struct control_alloc_site *site = &a->sites[i];

		if (!alloc_probes_can_probe(site))
			return -EINVAL;
		/* Without addresses a free says nothing and costs as much. */
		if (site->kind == ALLOC_FREE && !(probes->session && a->frees))
			continue;
		offsets[attr.count] = site->fo;
		cookies[attr.count++] =
			ALLOC_COOKIE(site->kind, site->argument[0], site->argument[1], site->argument[2],
				     site->pushed, a->slot, flags);
	}
	return start_holder(probes, &attr);
}

void alloc_probes_set_slot(struct alloc_probes *probes, uint32_t slot, const struct alloc_slot *value)
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

/* ---- large blocks ------------------------------------------------------------------------------ */

int alloc_probes_watch_large(struct alloc_probes *probes, uint32_t tgid, uint32_t slot, uint64_t code_va,
			     uint64_t code_end_va)
{
	const struct alloc_owner owner = { .code_va = code_va, .code_end_va = code_end_va, .slot = slot };
	int rc;

	if (!probes->has_faults)
		return -EOPNOTSUPP;
	if (!probes->faults) {
		probes->faults = bpf_program__attach(probes->skel->progs.alloc_fault);
		if (!probes->faults)
			return -errno;
	}
	rc = bpf_map_update_elem(bpf_map__fd(probes->skel->maps.alloc_owners), &tgid, &owner, BPF_NOEXIST);
	probes->owners += rc == 0;
	return rc;
}

void alloc_probes_refill_large(struct alloc_probes *probes, uint32_t tgid, uint32_t count, uint64_t header_ip)
{
	const int fd = bpf_map__fd(probes->skel->maps.alloc_owners);
	struct alloc_owner owner;

	if (bpf_map_lookup_elem(fd, &tgid, &owner) < 0)
		return;
	owner.left = count;
	owner.header_ip = header_ip;
	(void)bpf_map_update_elem(fd, &tgid, &owner, BPF_EXIST);
}

void alloc_probes_leave_large(struct alloc_probes *probes, uint32_t tgid)
{
	if (bpf_map_delete_elem(bpf_map__fd(probes->skel->maps.alloc_owners), &tgid) < 0)
		return;
	/* Page faults of nobody are looked at while nobody wants them. */
	if (--probes->owners == 0) {
		(void)bpf_link__destroy(probes->faults);
		probes->faults = NULL;
	}
}

/* ---- what hits cost ---------------------------------------------------------------------------- */

/* Begins with an instruction that the kernel emulates, as the sites do. */
void *alloc_probes_measured(size_t size);
__asm__(".text\n"
	".type alloc_probes_measured, @function\n"
	"alloc_probes_measured:\n"
	"	push %rbx\n"
	"	mov %rdi, %rax\n"
	"	pop %rbx\n"
	"	ret\n"
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
	return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / MEASURE_CALLS;
}

/* Gaps so wide that nothing is sampled: what is timed is what every hit pays. */
static double timed_hits_ns(struct alloc_probes *probes, const struct alloc_attachment *attachment,
			    enum alloc_track track)
{
	const struct alloc_slot open = { .mean_gap_bytes = 1ull << 46,
					 .hits_max = UINT64_MAX,
					 .track = track };
	const struct alloc_slot closed = { .mean_gap_bytes = 0 };
	double cost;
	int fd;

	alloc_probes_set_slot(probes, MEASURE_SLOT, &open);
	fd = alloc_probes_attach(probes, attachment);
	if (fd < 0)
		return -1;
	cost = timed_calls_ns();
	(void)close(fd);
	alloc_probes_set_slot(probes, MEASURE_SLOT, &closed);
	return cost;
}

/* alloc_probes_measured() in process @tgid, which is this one or a fork of it. */
static struct alloc_attachment measured_in(pid_t tgid, const struct control_alloc_site *site)
{
	return (struct alloc_attachment){ .path = "/proc/self/exe",
					  .tgid = (uint32_t)tgid,
					  .slot = MEASURE_SLOT,
					  .sites = site,
					  .site_count = 1 };
}

int alloc_probes_measure(struct alloc_probes *probes, double *ret_hit_ns, double *ret_returned_ns)
{
	struct control_alloc_site site = { .kind = ALLOC_MALLOC, .argument = { 7 } };
	const struct alloc_attachment attachment = measured_in(getpid(), &site);
	double bare = timed_calls_ns(), hit, returned;
	int rc = own_offset((uintptr_t)alloc_probes_measured, &site.fo);

	if (rc < 0)
		return rc;
	hit = timed_hits_ns(probes, &attachment, ALLOC_TRACK_NONE) - bare;
	returned = probes->session ? timed_hits_ns(probes, &attachment, ALLOC_TRACK_ALL) - bare : hit;
	if (hit <= 0 || returned <= 0)
		return -EIO;
	*ret_hit_ns = hit;
	*ret_returned_ns = returned > hit ? returned - hit : 0;
	return 0;
}

/* ---- filtered programs ------------------------------------------------------------------------- */

/* Filters the system call that return probes leave by, waits until it is probed, and returns from a probed
 * function: says so if it lives. */
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
	const struct alloc_slot open = { .mean_gap_bytes = 1ull << 46, .hits_max = UINT64_MAX, .track = ALLOC_TRACK_ALL };
	const struct alloc_slot closed = { .mean_gap_bytes = 0 };
	struct control_alloc_site site = { .kind = ALLOC_MALLOC, .argument = { 7 } };
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
