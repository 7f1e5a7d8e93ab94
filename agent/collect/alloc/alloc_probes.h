/* SPDX-License-Identifier: Apache-2.0 */
/* The allocation programs (bpf/alloc.bpf.c): loaded beside the profiler's object, whose maps they
 * share, when somebody first asks; attached to one process's allocator by one link, held by a
 * process that does nothing else and ends with ours, so that no probe outlives us. Ignores SIGCHLD
 * from then on. Single-threaded, like struct bpf_agent. */
#ifndef PROFD_COLLECT_ALLOC_PROBES_H
#define PROFD_COLLECT_ALLOC_PROBES_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"
#include "agent/collect/alloc/alloc_large.h"
#include "agent/collect/kernel/bpf_agent.h"
#include "agent/wire/control.h"
#include "bpf/alloc.h"

struct alloc_probes;

/* -EOPNOTSUPP, -EPERM, … with one line in @err. */
int alloc_probes_create(struct bpf_agent *agent, struct alloc_probes **ret, struct err *err)
	must_use;
void alloc_probes_destroy(struct alloc_probes *probes);
CLEANUP_DEFINE(alloc_probes, struct alloc_probes *, alloc_probes_destroy);
/* As bpf_object_verified(). */
uint64_t alloc_probes_verified(const struct alloc_probes *probes);

struct alloc_attachment {
	const char *path; /* of the mapped file; /proc/PID/map_files is one */
	uint64_t bias;	  /* of its mapping: address - bias = file offset */
	uint32_t tgid;
	uint32_t slot;
	const struct control_alloc_site *sites;
	unsigned site_count;
	bool relays; /* enum alloc_cookie_flag */
	bool frees;  /* those as well */
	bool returns; /* addresses are wanted */
};
/* True if the programs can read the arguments of this site. */
bool alloc_probes_can_probe(const struct control_alloc_site *site);
/* A descriptor that keeps the probes; when it is closed, by whatever end of this process, they are
 * detached within some 50 ms. -EINVAL, -EPERM, -ESRCH, -EOPNOTSUPP, -EAGAIN (no process could be
 * made). */
int alloc_probes_attach(struct alloc_probes *probes, const struct alloc_attachment *attachment)
	must_use;
/* Are probes of ours in process @tgid, also on their way out? */
bool alloc_probes_are_in(struct alloc_probes *probes, uint32_t tgid);

/* Opens slot @slot for hits (before attaching) with fresh counts, or closes it (mean_gap_bytes 0).
 */
void alloc_probes_set_slot(struct alloc_probes *probes, uint32_t slot,
			   const struct alloc_slot *value);
/* Counts of all CPUs since the slot was set. */
void alloc_probes_counts(struct alloc_probes *probes, uint32_t slot, struct alloc_counts *ret);
/* Stops following an address. */
void alloc_probes_forget(struct alloc_probes *probes, uint32_t slot, uint64_t address);
/* Blocks of process @tgid with mappings of their own are told as ALLOC_MAPPED, with stacks from the
 * caller of the code at [@code_va, @code_end_va) on. -EOPNOTSUPP: this kernel cannot; -E2BIG. */
int alloc_probes_watch_large(struct alloc_probes *probes, uint32_t tgid, uint32_t slot,
			     uint64_t code_va, uint64_t code_end_va) must_use;
/* Allows @count more large blocks to be reported. @header_ip, unless 0, is an instruction that
 * also identifies them. */
void alloc_probes_refill_large(struct alloc_probes *probes, uint32_t tgid, uint32_t count,
			       uint64_t header_ip);
/* Appends what mremap() has moved since the last call to @ret. False: this kernel does not tell, or
 * there is no memory. */
bool alloc_probes_take_moves(struct alloc_probes *probes, uint32_t slot,
			     struct alloc_large_moves_vec *ret);
/* No more. Does nothing if it was not watched. */
void alloc_probes_leave_large(struct alloc_probes *probes, uint32_t tgid);

/* Measures what hits cost here, ns: probes a function of this process some ten thousand times. */
int alloc_probes_measure(struct alloc_probes *probes, double *ret_hit_ns, double *ret_returned_ns)
	must_use;
/* Does a program whose system calls are filtered survive a return probe here? Linux 6.11 to 6.13
 * leave one by a new system call, which filters that do not know it answer by killing. Tried on a
 * child, once. */
bool alloc_probes_pass_filters(struct alloc_probes *probes);

#endif
