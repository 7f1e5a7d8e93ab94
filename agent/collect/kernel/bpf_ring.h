/* SPDX-License-Identifier: Apache-2.0 */
/* Consumer of a BPF ring buffer that can tell its fill and read a bounded part, which libbpf 1.1
 * cannot. Layout and ordering: kernel/bpf/ringbuf.c, Documentation/bpf/ringbuf.rst: a page with the
 * consumer's position, a page with the producer's, then the data area mapped twice.
 * Single-threaded. */
#ifndef PROFD_COLLECT_BPF_RING_H
#define PROFD_COLLECT_BPF_RING_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"

struct bpf_ring {
	unsigned long *consumer;       /* page written by us */
	const unsigned long *producer; /* page written by the kernel; the data area follows */
	const uint8_t *data;
	size_t page_bytes;
	size_t data_bytes; /* power of two */
};

/* Maps the ring of map @fd (borrowed) with @data_bytes. Zero-initialized rings may be deinited. */
int bpf_ring_init(struct bpf_ring *ring, int fd, size_t data_bytes) must_use;
void bpf_ring_deinit(struct bpf_ring *ring);

/* Calls @on_record for each record that is complete now; the bytes are borrowed during the call.
 * Records that arrive meanwhile wait for the next call. Returns the number of records. */
typedef void (*bpf_ring_record_fn)(void *ctx, const void *data, size_t bytes);
int bpf_ring_consume(struct bpf_ring *ring, bpf_ring_record_fn on_record, void *ctx) must_use;

/* Bytes not consumed yet. */
size_t bpf_ring_used(const struct bpf_ring *ring);

#endif
