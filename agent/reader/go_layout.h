/* SPDX-License-Identifier: Apache-2.0 */
/* The layout of a Go program in memory: version, function table, segment bounds, structure offsets
 * and the addresses of the runtime's globals. All are found by structure, in stripped, PIE, cgo and
 * c-shared programs alike. Made once per process instance and image, then used by every request.
 * Formats and how they were checked: README.md of this folder. */
#ifndef PROFD_READER_GO_LAYOUT_H
#define PROFD_READER_GO_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"
#include "agent/reader/go_pctab.h"
#include "agent/reader/go_types.h"
#include "agent/reader/target_image.h"
#include "agent/reader/target_maps.h"

#define GO_WAIT_REASONS_MAX 64u
#define GO_WAIT_REASON_SIZE 48u

/* Profile lists of the runtime; also the `typ` of their buckets. */
enum go_bucket_type { GO_BUCKET_MEMORY = 1, GO_BUCKET_BLOCK = 2, GO_BUCKET_MUTEX = 3 };

struct go_range {
	uint64_t start_va;
	uint64_t end_va;
};

struct go_layout {
	struct image image; /* owned; image.target is the caller's */
	uint32_t module;    /* index in the maps it was opened from */
	char version[32];   /* "go1.26.8", "" if unknown */
	unsigned minor;	    /* 26; 0 = unknown (a development version): newest rules */
	struct go_table table;
	struct go_range noptrdata, data, bss, noptrbss, types;
	struct go_fields fields;
	/* Found by go_globals_find(); 0 = not found (yet). */
	uint64_t allgs_va; /* of the slice header */
	uint64_t bucket_lists_va[GO_BUCKET_MUTEX +
				 1]; /* of the head pointers, by enum go_bucket_type */
	uint32_t wait_reason_count;
	char wait_reasons[GO_WAIT_REASONS_MAX][GO_WAIT_REASON_SIZE];
};

/* Examines the files mapped in @target (borrowed for the life of the layout).
 * -ENOEXEC not a Go program, -EOPNOTSUPP a Go program that cannot be read (why is in @err), -EAGAIN
 * its runtime has not started, -ESRCH, -EPERM, -ENOMEM. */
int go_layout_create(struct target *target, const struct target_maps *maps, struct go_layout **ret,
		     struct err *err) must_use;
void go_layout_destroy(struct go_layout *layout);
CLEANUP_DEFINE(go_layout, struct go_layout *, go_layout_destroy);

/* Whether the rules of Go 1.@minor and newer apply. */
static inline bool go_layout_since(const struct go_layout *layout, unsigned minor)
{
	return !layout->minor || layout->minor >= minor;
}

#endif
