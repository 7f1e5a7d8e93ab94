/* SPDX-License-Identifier: Apache-2.0 */
/* Globals of the Go runtime, found by the data that they point to. The list of goroutines is a
 * slice whose elements are g structures that know their own address. A profile list is a pointer to
 * a bucket whose stored hash is right. The table of wait reasons begins with known texts. Private
 * to go_layout and the walkers. */
#ifndef PROFD_READER_GO_GLOBALS_H
#define PROFD_READER_GO_GLOBALS_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/reader/go_layout.h"

#define GO_BUCKET_BYTES                                                                            \
	48u /* header: next, allnext, typ, hash, size, nstk; unchanged since 1.16                  \
	     */
#define GO_BUCKET_FRAMES_MAX 1024u

struct go_bucket_head {
	uint64_t next;
	uint64_t allnext;
	uint64_t type; /* enum go_bucket_type */
	uint64_t hash;
	uint64_t size;
	uint64_t frame_count;
};

/* The hash that the runtime keeps in a bucket (src/runtime/mprof.go, stkbucket()). Pure. */
uint64_t go_bucket_hash(const uint64_t *frames, uint64_t count, uint64_t size);

/* Fills allgs_va, wait reasons and the profile lists that exist by now. -EAGAIN: there is no list
 * of goroutines, since the runtime is still starting. -EOPNOTSUPP: the self-check failed (@err says
 * on which field). */
int go_globals_find(struct go_layout *layout, struct err *err) must_use;
/* Reads the header of the bucket at @va; false if there is none (its hash decides). */
bool go_bucket_read(struct target *target, uint64_t va, struct go_bucket_head *ret);
/* Looks again for profile lists that were empty before. */
int go_globals_find_buckets(struct go_layout *layout) must_use;

#endif
