/* SPDX-License-Identifier: Apache-2.0 */
/* Measures how much of glibc's heap a program has in use, by a walk from outside, from chunk to
 * chunk by their sizes. Chunks that only look used because they wait in a thread's cache or a fast
 * bin are subtracted. The program goes on meanwhile, so a header may be read half written: it is
 * read again. Blocks count with what they can hold (as malloc_usable_size(3)), the caches
 * themselves do not count. */
#ifndef PROFD_READER_GLIBC_HEAP_H
#define PROFD_READER_GLIBC_HEAP_H

#include "agent/base/err.h"
#include "agent/reader/target_maps.h"
#include "agent/reader/target_memory.h"
#include "agent/wire/read_stream.h"

#define GLIBC_HEAP_BYTES_MAX                                                                       \
	(4ull << 30) /* held by the heaps of one process; some 0.6 s of CPU a GiB */

/* Fills @ret but for its head. Until @deadline_ns (monotonic). -EOPNOTSUPP no such heap, -EFBIG,
 * -EIO it changed under every attempt, -ETIMEDOUT, -ESRCH, -EPERM, -ENOMEM; some with a sentence in
 * @err. */
int glibc_heap_walk(struct target *target, const struct target_maps *maps, uint64_t deadline_ns,
		    struct read_heap *ret, struct err *err) must_use;

#endif
