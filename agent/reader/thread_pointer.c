// SPDX-License-Identifier: Apache-2.0
#include "agent/reader/thread_pointer.h"

#include <errno.h>
#include <sys/types.h>

#include "agent/base/bytes.h"
#include "bpf/arch.h"

/* In glibc's struct tcbhead_t: the second word on x86-64 (sysdeps/x86_64/nptl/tls.h), the first one
 * at the thread pointer elsewhere. */
#define DTV_AT	   (ARCH_TLS_ABOVE ? 0u : 8u)
#define HEAD_BYTES 16u /* at the thread pointer, before the first block */

/* struct pthread of glibc 2.31 to 2.41 has 1,700 to 2,400 bytes, aligned to 16 or more. */
#define FIRST_AT	0x400u
#define LAST_AT		0xc00u
#define STEP		16u
#define ENTRIES		8u    /* of a dtv, that are looked at: program, C library and a few more */
#define BLOCK_NEAR_BYTES 1024u /* how far alignment may move the first block up */

static bool is_final(int rc)
{
	return rc == -ESRCH || rc == -EPERM;
}

/* Does the vector at @dtv_va have a block just above @pointer_va? */
static int has_block(struct target *target, uint64_t dtv_va, uint64_t pointer_va)
{
	uint8_t entries[ENTRIES * THREAD_DTV_ENTRY_BYTES];
	int rc;

	if (dtv_va < 4096 || dtv_va & 7 || dtv_va >= ARCH_USUAL_END)
		return 0;
	/* Entry 0 is a count. */
	rc = target_read(target, dtv_va + THREAD_DTV_ENTRY_BYTES, entries, sizeof(entries));
	if (rc < 0)
		return is_final(rc) ? rc : 0;
	for (uint32_t i = 0; i < ENTRIES; i++)
		if (bytes_u64_at(entries, i * THREAD_DTV_ENTRY_BYTES) - (pointer_va + HEAD_BYTES) <
		    BLOCK_NEAR_BYTES)
			return 1;
	return 0;
}

int thread_pointer_above(struct target *target, uint64_t pthread_va, uint32_t *ret)
{
	uint8_t data[LAST_AT - FIRST_AT];
	ssize_t got;

	*ret = 0;
	if (!ARCH_TLS_ABOVE)
		return 0;
	got = target_read_some(target, pthread_va + FIRST_AT, data, sizeof(data));
	if (got < 0)
		return (int)got;
	for (uint32_t at = 0; at + 8 <= (uint32_t)got; at += STEP) {
		const int rc = has_block(target, bytes_u64_at(data, at), pthread_va + FIRST_AT + at);

		if (rc < 0)
			return rc;
		if (rc) {
			*ret = FIRST_AT + at;
			return 0;
		}
	}
	return -ENODATA;
}

int thread_pointer_dtv(struct target *target, uint64_t pointer_va, uint64_t *ret)
{
	return target_read(target, pointer_va + DTV_AT, ret, sizeof(*ret));
}
