/* SPDX-License-Identifier: Apache-2.0 */
/* One-producer one-consumer byte ring in a memfd shared by two processes: it carries records from
 * the collector to the server and outlives either of them. Positions are 64-bit and only grow. So a
 * consumer can read ahead with a private cursor, make the data durable, store the position in the
 * same transaction and only then release the space. A consumer that dies loses and repeats nothing.
 *
 * Layout: one header page, then a power-of-two data area. A record is {u32 length, u32 kind},
 * payload, padding to 8 bytes; records never wrap (a filler record ends the area). Neither end
 * trusts the other: lengths are checked against the area. No wakeups: the consumer polls. */
#ifndef PROFD_BASE_RING_H
#define PROFD_BASE_RING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "agent/base/cleanup.h"

struct ring; /* one end, in this process */

struct ring_record {
	uint32_t kind;
	uint32_t len;
	const void *data;   /* inside the mapping, 8-aligned, valid until released */
	uint64_t end;	    /* position just after this record */
};

/* A new ring of @capacity data bytes (rounded up to a power of two): the descriptor, or -errno. */
int ring_create(size_t capacity) must_use;
/* Maps an end. @fd stays the caller's. -EPROTO if it is not a ring. */
int ring_attach(int fd, struct ring **ret) must_use;
void ring_destroy(struct ring *ring);
CLEANUP_DEFINE(ring, struct ring *, ring_destroy);

/* Producer: appends one record from @parts. -ENOSPC when full (counted in ring_lost()). */
int ring_write(struct ring *ring, uint32_t kind, const struct iovec *parts, int part_count)
	must_use;
uint64_t ring_lost(const struct ring *ring); /* records refused since creation */
/* Consumer: the record at @cursor. 1 = got one, 0 = nothing there yet, -EPROTO = corrupt (skip all
 * by setting the cursor to ring_head()). */
int ring_read(struct ring *ring, uint64_t cursor, struct ring_record *ret) must_use;
void ring_release(struct ring *ring, uint64_t position); /* frees space up to @position */
uint64_t ring_head(const struct ring *ring);
uint64_t ring_tail(const struct ring *ring);
size_t ring_capacity(const struct ring *ring);
/* Random identity chosen at creation: tells a stored position of this ring from another's. */
uint64_t ring_identity(const struct ring *ring);

#endif
