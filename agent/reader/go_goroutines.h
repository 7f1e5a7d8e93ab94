/* SPDX-License-Identifier: Apache-2.0 */
/* All goroutines of a running Go program, one consistent record each, without stopping it: see
 * README.md "Goroutines". */
#ifndef PROFD_READER_GO_GOROUTINES_H
#define PROFD_READER_GO_GOROUTINES_H

#include <stdbool.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/reader/answer.h"
#include "agent/reader/go_unwind.h"
#include "agent/reader/go_walks.h"

/* @walks is what earlier readings of the program left. Writes READ_GOROUTINE records and what they
 * refer to into @answer (not its end). At the deadline it stops and marks the answer as sampled.
 * @flags of enum reader_flag. -EIO the runtime's list could not be read, -ESRCH, -EPERM, -ENOMEM,
 * errors of the writer. */
int go_goroutines_read(struct go_unwinder *unwinder, struct go_walks *walks, struct answer *answer,
		       uint32_t flags) must_use;

/* Whether a goroutine with this wait reason waits for another goroutine, a lock or a peer. */
bool go_goroutine_is_blocked(const char *wait_reason);

#endif
