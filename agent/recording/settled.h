/* SPDX-License-Identifier: Apache-2.0 */
/* The rolled-up dictionary: all parts of the dictionary of a day's finished hours in one. Shared
 * data is written once. Data that only a running recorder needs (ids of stacks, command lines) is
 * left out. Stacks are one tree in the order of a walk; pairs name its nodes.
 *
 * The chunk: first pair, pairs, first attr, attrs, bytes of each column, then the columns, each
 * compressed on its own. Integers are LEB128 varints; "zz" is zig-zag; "step" is the difference
 * from the value before. A column takes all of its bytes, so they tell how many values it has.
 *
 *   modules    as the chunk MODULES
 *   texts      {length, bytes}; text 0 is empty
 *   processes  id step zz; tgid step zz; exec generation; start boottime ms step zz;
 *              (start realtime - start boottime) ms step zz; comm; exe; service (numbers of texts)
 *   frames     head (kind, flags, module) step; low (offset or address), a step where the head is
 *              the same; sorted
 *   calls      by frame, and last for the root: how many frames come below it anywhere; then these
 *              frames: the first as a step zz from the frame above, the others as steps - 1
 *   nodes      levels that the walk goes up before it goes down to this node; of nodes whose
 *              parent's frame has several frames below it, the place among them: of first children;
 *              of others, the step from the child before - 1
 *   pairs      by user stack (0 = none, 1 = its frames never came, else node + 2) the number of
 *              its pairs: of leaves of the tree; of others. Pairs are numbered in runs of ascending
 *              user stacks: the length of each run. Then in the order of user stacks: the pair's
 *              run u8, its higher bytes in three more columns (empty unless runs need them); kernel
 *              stack; outcome of the user stack u8; of the kernel stack u8
 *   attrs      process step zz; tid - tgid zz; type u8; state u8; detail u8; comm (0 = the
 *              process's, else text + 1); object; holder
 *
 * A sink sees modules, processes, pairs, then stacks, then attrs. So a reader that knows its
 * pairs keeps only their stacks. Ids of stacks are made up and valid inside this chunk alone.
 * Decoding takes hostile bytes. Pure. */
#ifndef PROFD_RECORDING_SETTLED_H
#define PROFD_RECORDING_SETTLED_H

#include "agent/recording/session_chunks.h"

/* Pieces of a dictionary, in order, that become one. */
struct settled;
struct settled *settled_create(void); /* NULL: no memory */
void settled_destroy(struct settled *settled);
CLEANUP_DEFINE(settled, struct settled *, settled_destroy);
/* A chunk of the dictionary, a settled one too. -ENOMEM; -EPROTO: it is damaged, or not the next.
 */
int settled_add(struct settled *settled, int kind, const void *data, size_t len) must_use;
/* Appends the chunk; @parts as of chunk_encode_columns(). -ENOMEM. */
int settled_encode(struct settled *settled, struct buf *out, struct chunk_parts *parts) must_use;

int settled_decode(struct bytes *in, const struct chunk_sink *sink) must_use;

#endif
