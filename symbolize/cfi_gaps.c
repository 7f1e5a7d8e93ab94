// SPDX-License-Identifier: Apache-2.0
/* Code that what the entries leave out is about. Returns from signal handlers without an entry
 * (musl, hand-written runtimes): looked for by their bytes, within bounds, because a file without
 * any entry is one large gap. And where coroutines end. */
#include <dwarf.h>
#include <errno.h>
#include <string.h>

#include "agent/base/io.h"
#include "symbolize/cfi_internal.h"

#define SCAN_BYTES_MAX (16u << 20) /* of all gaps of one file */
#define SCAN_GAPS_MAX  2048u
#define DYNAMIC_BYTES_MAX 65536u

struct gap_scan {
	struct cfi_set *set;
	uint64_t bytes_left;
	unsigned gaps_left;
};

static int add_sigreturn(struct cfi_set *set, uint32_t gap_fo, uint32_t fo)
{
	/* The handler returns to the first instruction, and return addresses are looked up one byte lower:
	 * the range begins there, as glibc's own entry does. */
	uint32_t start_fo = fo > gap_fo ? fo - 1 : fo;
	struct cfi_entry entry = { .source = CFI_SOURCE_SYNTH,
				   .cie = (uint32_t)set->steps.count,
				   .len = 1,
				   .start_fo = start_fo,
				   .end_fo = fo + set->arch->sigreturn_len };
	int rc = cfi_step_vec_push(&set->steps,
				   (struct cfi_step){ .fo = start_fo,
						      .rule = { .cfa = UNWIND_CFA_SIGNAL,
								.flags = UNWIND_RULE_SIGNAL } });

	return rc < 0 ? rc : cfi_entry_vec_push(&set->entries, entry);
}

static int scan_gap(struct gap_scan *scan, uint64_t start_fo, uint64_t end_fo)
{
	const struct cfi_arch *arch = scan->set->arch;
	uint64_t len = end_fo - start_fo;
	const uint8_t *at;
	struct bytes b;

	if (end_fo <= start_fo || len < CFI_PADDING_BYTES || !scan->gaps_left || !scan->bytes_left)
		return 0;
	if (len > scan->bytes_left)
		len = scan->bytes_left;
	scan->bytes_left -= len;
	scan->gaps_left--;
	if (elf_raw_bytes(scan->set->elf, start_fo, len, &b) < 0)
		return 0;
	at = b.at;
	while ((at = memmem(at, (size_t)(b.end - at), arch->sigreturn, arch->sigreturn_len))) {
		int rc = add_sigreturn(scan->set, (uint32_t)start_fo,
				       (uint32_t)(start_fo + (uint64_t)(at - b.at)));

		if (rc < 0)
			return rc;
		at += arch->sigreturn_len;
	}
	return 0;
}

/* First of the @count ascending entries that ends above @fo. */
static size_t entry_after(const struct cfi_entry *entries, size_t count, uint64_t fo)
{
	size_t low = 0;
	size_t high = count;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (entries[mid].end_fo <= fo)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* A file that needs another library leaves signals to that one: only a C library, a static program
 * or a runtime of its own brings the code. */
static bool needs_a_library(Elf *elf)
{
	cleanup_elf_section struct elf_section dynamic = { 0 };

	if (elf_section_load_max(elf, ".dynamic", DYNAMIC_BYTES_MAX, &dynamic) < 0)
		return false;
	for (struct bytes b = bytes_of(dynamic.bytes, dynamic.len); bytes_left(&b) >= 16;) {
		uint64_t tag = bytes_u64(&b);

		(void)bytes_u64(&b);
		if (tag == DT_NEEDED)
			return true;
	}
	return false;
}

/* ---- where coroutines end -------------------------------------------------------------------- */

#define BEGIN_BYTES_MAX 32u /* of a function, that are looked at */
#define NOPS_MAX 64u /* bytes of the instructions of an entry without any */

/* The rules of a function that never changes its stack, if the entry is right. */
static bool has_default_rules(const struct cfi_entry *entry)
{
	if (entry->source != CFI_SOURCE_EH_FRAME || entry->len > NOPS_MAX)
		return false;
	for (uint32_t i = 0; i < entry->len; i++)
		if (entry->insns[i] != DW_CFA_nop)
			return false;
	return true;
}

/* There may be tens of thousands of these: libelf keeps every piece that it was asked for in a
 * list, and looks through it before the next (elfutils 0.188, libelf/elf_getdata_rawchunk.c). */
static bool read_begin(const struct cfi_set *set, uint64_t fo, uint8_t *code, size_t len)
{
	struct bytes b;

	if (set->fd >= 0)
		return io_pread_all(set->fd, code, len, fo) == 0;
	if (elf_raw_bytes(set->elf, fo, len, &b) < 0)
		return false;
	memcpy(code, b.at, len);
	return true;
}

static bool takes_another_stack(const struct cfi_set *set, const struct cfi_entry *entry)
{
	const struct cfi_arch *arch = set->arch;
	const size_t len = arch->landing_len + arch->new_stack_len;
	uint8_t code[BEGIN_BYTES_MAX];
	const uint8_t *at = code;

	if (len > sizeof(code) || entry->end_fo - entry->start_fo < len ||
	    !read_begin(set, entry->start_fo, code, len))
		return false;
	if (memcmp(at, arch->landing, arch->landing_len) == 0)
		at += arch->landing_len;
	return memcmp(at, arch->new_stack, arch->new_stack_len) == 0;
}

int cfi_gaps_contexts(struct cfi_set *set)
{
	const size_t count = set->entries.count; /* those added on the way are not looked at */

	for (size_t i = 1; i < count; i++) {
		const struct cfi_entry e = set->entries.data[i];
		struct cfi_entry end = { .source = CFI_SOURCE_SYNTH,
					 .cie = (uint32_t)set->steps.count,
					 .len = 1,
					 .start_fo = e.start_fo - 1,
					 .end_fo = e.start_fo };
		int rc;

		if (set->entries.data[i - 1].end_fo >= e.start_fo || !has_default_rules(&e) ||
		    !takes_another_stack(set, &e))
			continue;
		rc = cfi_step_vec_push(&set->steps, (struct cfi_step){ .fo = end.start_fo,
								       .rule = { .cfa = UNWIND_CFA_END } });
		if (rc == 0)
			rc = cfi_entry_vec_push(&set->entries, end);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* ---- returns from signal handlers ------------------------------------------------------------ */

int cfi_gaps_sigreturn(struct cfi_set *set)
{
	struct gap_scan scan = { .set = set, .bytes_left = SCAN_BYTES_MAX, .gaps_left = SCAN_GAPS_MAX };
	size_t count = set->entries.count; /* those added on the way are not looked at */

	if (needs_a_library(set->elf))
		return 0;
	for (size_t i = 0; i < set->segments.count; i++) {
		const struct elf_segment *s = &set->segments.items[i];
		uint64_t fo = s->offset_fo;
		uint64_t end_fo = fo + (s->end_ev - s->start_ev);
		int rc;

		if (!s->executable || end_fo < fo || end_fo >= CFI_FO_END)
			continue;
		for (size_t at = entry_after(set->entries.data, count, fo);
		     at < count && set->entries.data[at].start_fo < end_fo; at++) {
			rc = scan_gap(&scan, fo, set->entries.data[at].start_fo);
			if (rc < 0)
				return rc;
			fo = set->entries.data[at].end_fo;
		}
		rc = scan_gap(&scan, fo, end_fo);
		if (rc < 0)
			return rc;
	}
	return 0;
}
