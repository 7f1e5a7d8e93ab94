/* SPDX-License-Identifier: Apache-2.0 */
/* The dictionary of a day's hours that are over: all its pieces in one, so that what they share is written once and
 * nothing is kept that only a running recorder needs (ids of stacks, command lines). Stacks are one tree in the order
 * of a walk, pairs name its nodes. Integers are LEB128 varints, "zz" zig-zag, columns one after the other:
 *
 *   modules   as the chunk MODULES
 *   texts     n, n * {length, bytes}; text 0 is empty
 *   processes n, then n * id step zz, tgid step zz, exec generation, start boottime step zz, (start realtime - start
 *             boottime) step zz, comm, exe, service (numbers of texts)
 *   frames    n, then n * head (kind, flags, module) step zz, low (offset or address) step zz; sorted
 *   nodes     n, then n * levels that the walk goes up before it goes down to this node,
 *             n * (frame - frame that was last below the same parent frame) zz
 *   pairs     first id, n, then n * user stack step zz, n * kernel stack step zz (0 = none, 1 = its frames never came,
 *             else node + 2), n * outcome of the user stack u8, n * of the kernel stack u8
 *   attrs     first id, n, then by column: process step zz, tid - tgid zz, type, state, detail, comm (0 = the
 *             process's, else text + 1), object, holder
 *
 * A sink sees modules, processes, pairs, then stacks, then attrs: a reader that knows the pairs it wants keeps only
 * their stacks. Ids of stacks are made up: good inside this chunk alone. Decoding takes hostile bytes. Pure. */
#ifndef PROFD_SESSION_SETTLED_H
#define PROFD_SESSION_SETTLED_H

#include "agent/session/session_chunks.h"

/* Pieces of a dictionary, in order, that become one. */
struct settled;
struct settled *settled_create(void); /* NULL: no memory */
void settled_destroy(struct settled *settled);
CLEANUP_DEFINE(settled, struct settled *, settled_destroy);
/* A chunk of the dictionary, a settled one too. -ENOMEM; -EPROTO: it is damaged, or not the next. */
int settled_add(struct settled *settled, int kind, const void *data, size_t len) must_use;
/* Appends the chunk. -ENOMEM. */
int settled_encode(struct settled *settled, struct buf *out) must_use;

int settled_decode(struct bytes *in, const struct chunk_sink *sink) must_use;

#endif
