/* SPDX-License-Identifier: Apache-2.0 */
/* The programs of bpf/io_ring.bpf.h: which of the kernel's tracepoints tell of io_uring's requests,
 * and what. */
#ifndef PROFD_COLLECT_IO_RING_H
#define PROFD_COLLECT_IO_RING_H

#include <stdbool.h>

struct io_ring_facts;
struct profiler_bpf;

/* Before the object is loaded: decides which of them are (@wanted false: none). Negative errno. */
int io_ring_choose(struct profiler_bpf *skel, const struct io_ring_facts *facts, bool wanted);
/* Attaches those that are loaded, or takes them off. Negative errno; some may be attached then. */
int io_ring_attach(struct profiler_bpf *skel, bool on);

#endif
