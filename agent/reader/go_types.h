/* SPDX-License-Identifier: Apache-2.0 */
/* Offsets of fields in Go's runtime structures, from type descriptors. The linker keeps these in
 * every binary, stripped or not, because the runtime allocates these types with new. So no symbols,
 * no DWARF and no table of versions are needed. Layout of descriptors: src/internal/abi/type.go
 * (src/runtime/type.go before 1.21); two encodings changed and are switched by @minor. */
#ifndef PROFD_READER_GO_TYPES_H
#define PROFD_READER_GO_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/reader/target_image.h"

#define GO_NO_FIELD    UINT32_MAX
#define GO_G_BYTES_MAX 2048u /* 456 in 1.26 */

/* Byte offsets; GO_NO_FIELD where this version has no such field (only those marked optional). */
struct go_g_fields {
	uint32_t size;
	uint32_t stack, m, sched, syscallsp, syscallpc, atomicstatus, goid, waitreason, waitsince,
		gopc, startpc, lockedm, labels;
	uint32_t parent_goid; /* optional: 1.21 */
	uint32_t waiting;     /* optional */
};

struct go_fields {
	struct go_g_fields g;
	uint32_t gobuf_sp, gobuf_pc, gobuf_g;
	uint32_t m_size, m_g0, m_procid, m_curg;
	uint32_t sudog_elem, sudog_c;
};

/* Finds the descriptors in [@types_va, @etypes_va) of @image. @minor as in go1.<minor>, 0 = newest
 * rules. -EOPNOTSUPP with the missing name in @missing (at least 64 bytes); -EFAULT, -ENOMEM. */
int go_types_fields(struct image *image, uint64_t types_va, uint64_t etypes_va, unsigned minor,
		    struct go_fields *ret, char missing[64]) must_use;

#endif
