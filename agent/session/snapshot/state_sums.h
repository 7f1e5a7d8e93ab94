/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of goroutine states as sums: each reading says where goroutines wait at one moment; each
 * counts for the time around it. Readings number their texts, modules and stacks each for itself;
 * here equal ones meet. Pure but for memory. */
#ifndef PROFD_SESSION_STATE_SUMS_H
#define PROFD_SESSION_STATE_SUMS_H

#include "agent/recording/reading.h"

#define STATE_SUMS_ITEMS_MAX 65536u /* distinct waits; who sums hands them on before */

/* Zero-initialized but for sum.type is valid and empty. */
struct state_sums {
	struct reading sum; /* items: values[0] how often seen, values[1] ns; ids are the sum's own */
	struct u64map module_at, text_at, stack_at, labels_at, item_at; /* hash of content -> id */
};

void state_sums_clear(struct state_sums *sums);
/* Adds what waits in @part for @weight_ns. Waits are told apart by stack, wait reason, labels and
 * the lock that is waited for. @ret_seen: how many waited. -ENOMEM, -E2BIG: some may have been
 * added. */
int state_sums_add(struct state_sums *sums, const struct reading *part, uint64_t weight_ns,
		   uint64_t *ret_seen) must_use;
/* Whether @item of @part is a wait of @type: block what another goroutine ends, mutex the waits for
 * locks among it. */
bool state_sums_counts(enum profile_type type, const struct reading *part,
		       const struct reading_item *item);

#endif
