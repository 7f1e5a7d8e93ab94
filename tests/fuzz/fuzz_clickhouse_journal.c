// SPDX-License-Identifier: Apache-2.0
/* The bytes of a journal's file: frames that are found lie in them, follow one another, and are
 * what journal_add_frame() makes of what they say. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/store/clickhouse_journal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_again(const struct journal_op *op)
{
	cleanup_buf struct buf again = { 0 };
	struct journal_op found;
	size_t end, skipped;

	journal_add_frame(&again, op);
	if (again.error)
		return;
	if (journal_next_frame(again.data, again.len, 0, &found, &end, &skipped) != 1 || skipped ||
	    end != again.len || found.len != op->len || found.number != op->number ||
	    found.table != op->table || found.partition != op->partition ||
	    (op->len && memcmp(found.data, op->data, op->len) != 0))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_free uint8_t *copy = malloc(size + 1);
	size_t at = 8, end, skipped;
	struct journal_op op;

	if (!copy || size < 8)
		return 0;
	memcpy(copy, data, size);
	while (journal_next_frame(copy, size, at, &op, &end, &skipped)) {
		if (end > size || end <= at || (const uint8_t *)op.data < copy + at ||
		    (const uint8_t *)op.data + op.len > copy + end)
			abort();
		check_again(&op);
		at = end;
	}
	if (end != at)
		abort();
	return 0;
}
