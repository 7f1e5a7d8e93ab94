// SPDX-License-Identifier: Apache-2.0
/* Makes the entries of a set ascending and disjoint.
 *
 * Linkers write .eh_frame in the order of their input, which is nearly that of the text, so the
 * sort is a stable radix sort that is skipped when there is nothing to do. Where two ranges of one
 * source overlap (broken files, folded functions), the later start wins from there on, as a search
 * in .eh_frame_hdr would find it; a worse source only gets what the better ones leave out, whole
 * ranges or nothing. */
#include <errno.h>
#include <string.h>

#include "symbolize/cfi_internal.h"

#define DIGIT_BITS 11
#define DIGITS	   (1u << DIGIT_BITS)

struct order_key {
	uint32_t start_fo;
	uint32_t index;
};

static void sort_by_digit(const struct order_key *from, struct order_key *to, size_t count,
			  unsigned shift)
{
	uint32_t at[DIGITS] = { 0 };
	uint32_t sum = 0;

	for (size_t i = 0; i < count; i++)
		at[(from[i].start_fo >> shift) & (DIGITS - 1)]++;
	for (unsigned d = 0; d < DIGITS; d++) {
		uint32_t of_digit = at[d];

		at[d] = sum;
		sum += of_digit;
	}
	for (size_t i = 0; i < count; i++)
		to[at[(from[i].start_fo >> shift) & (DIGITS - 1)]++] = from[i];
}

static int sort_entries(struct cfi_entry_vec *entries)
{
	cleanup_free struct order_key *keys = calloc(entries->count, 2 * sizeof(*keys));
	cleanup_free struct cfi_entry *sorted = calloc(entries->count, sizeof(*sorted));
	struct order_key *from = keys;
	struct order_key *to;

	if (!keys || !sorted)
		return -ENOMEM;
	to = keys + entries->count;
	for (size_t i = 0; i < entries->count; i++)
		keys[i] = (struct order_key){ entries->data[i].start_fo, (uint32_t)i };
	for (unsigned shift = 0; shift < 32; shift += DIGIT_BITS) {
		struct order_key *swap = from;

		sort_by_digit(from, to, entries->count, shift);
		from = to;
		to = swap;
	}
	for (size_t i = 0; i < entries->count; i++)
		sorted[i] = entries->data[from[i].index];
	free(entries->data);
	entries->data = take_ptr(sorted);
	entries->capacity = entries->count;
	return 0;
}

/* Puts @e behind the entries kept so far; returns how many are kept then. */
static size_t keep(struct cfi_entry *kept, size_t count, struct cfi_entry e)
{
	while (count && kept[count - 1].end_fo > e.start_fo) {
		struct cfi_entry *last = &kept[count - 1];

		if (last->source < e.source)
			return count;
		if (last->source == e.source) {
			if (last->start_fo == e.start_fo)
				return count;
			last->end_fo = e.start_fo;
		} else {
			count--;
		}
	}
	kept[count] = e;
	return count + 1;
}

int cfi_set_order(struct cfi_set *set)
{
	struct cfi_entry_vec *entries = &set->entries;
	size_t kept = 0;
	bool sorted = true;

	for (size_t i = 1; i < entries->count && sorted; i++)
		sorted = entries->data[i - 1].start_fo <= entries->data[i].start_fo;
	if (!sorted) {
		int rc = sort_entries(entries);

		if (rc < 0)
			return rc;
	}
	for (size_t i = 0; i < entries->count; i++)
		kept = keep(entries->data, kept, entries->data[i]);
	entries->count = kept;
	return 0;
}
