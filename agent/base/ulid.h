/* SPDX-License-Identifier: Apache-2.0 */
/* ULIDs in lower case (26 characters of Crockford base 32: 48 bits of milliseconds, 80 random
 * bits), the text part of session and baseline ids. */
#ifndef PROFD_BASE_ULID_H
#define PROFD_BASE_ULID_H

#include <stdbool.h>
#include <stdint.h>

#define ULID_TEXT_SIZE 27 /* with NUL */

/* Fills @out from @realtime_ns and the kernel's random bytes. Ids made in one process in one
 * millisecond still ascend (the random part is incremented). Thread-safe. */
void ulid_make(uint64_t realtime_ns, char out[ULID_TEXT_SIZE]);
/* As ulid_make() with the 80 bits given: the derived ids of continuous spans. */
void ulid_make_from(uint64_t realtime_ns, const uint8_t bits[10], char out[ULID_TEXT_SIZE]);
bool ulid_is_valid(const char *text);

#endif
