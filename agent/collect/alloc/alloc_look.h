/* SPDX-License-Identifier: Apache-2.0 */
/* Everything that the collector reads of a target's memory, read by a child: a page may be
 * somebody's to provide (userfaultfd, FUSE), who never does, and who waits for it can only be
 * killed. Nobody waits for the child. Ignores SIGCHLD, like alloc_probes.h. */
#ifndef PROFD_COLLECT_ALLOC_LOOK_H
#define PROFD_COLLECT_ALLOC_LOOK_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "agent/base/err.h"
#include "agent/collect/alloc/alloc_check.h"
#include "agent/collect/alloc/alloc_headers.h"
#include "agent/collect/alloc/alloc_heap.h"
#include "agent/collect/alloc/alloc_large.h"

/* Shared with the child. */
struct alloc_seen {
	uint64_t begun_ns;     /* CLOCK_MONOTONIC */
	struct err err;	       /* of alloc_check_bytes(); code 0 = it may be probed */
	bool headers_read;
	uint64_t key;	       /* struct alloc_headers */
	struct alloc_header *headers;
	size_t header_count;
	struct alloc_large_block *blocks;
	size_t block_count;
};

struct alloc_look {
	pid_t pid; /* 0 = none is under way */
	int pidfd; /* owned while pid is set; -1 = it has ended */
	int fd;
	uint64_t until_ns;
	struct alloc_seen *seen; /* owned */
	size_t bytes;
};

/* A request to read the memory of place->tgid. */
struct alloc_look_request {
	const struct alloc_place *place;
	const struct module_file *file; /* the code is compared; NULL = not */
	struct alloc_headers *headers;
	const struct alloc_followed *followed; /* whose headers are looked at */
	size_t followed_count;
	uint32_t turn, turns; /* the chunks around an address are looked at in one look of @turns */
	const struct alloc_large *large; /* NULL = none */
};

/* Makes the child. -ENOMEM, -EAGAIN, -EMFILE. */
int alloc_look_start(struct alloc_look *look, const struct alloc_look_request *request,
		     uint64_t now_ns) must_use;
/* 0: look->seen holds the answer until alloc_look_stop(). -EAGAIN: not yet; -ETIMEDOUT: never;
 * -EIO: the child ended without one. */
int alloc_look_poll(struct alloc_look *look, uint64_t now_ns) must_use;
/* Ends the child if it is still there, and lets go of the answer. */
void alloc_look_stop(struct alloc_look *look);

#endif
