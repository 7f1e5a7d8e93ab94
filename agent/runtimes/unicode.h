/* SPDX-License-Identifier: Apache-2.0 */
/* Texts of runtimes (Latin-1, UTF-16 without pairs, UTF-32) as UTF-8. Pure; every value is
 * hostile. */
#ifndef PROFD_RUNTIMES_UNICODE_H
#define PROFD_RUNTIMES_UNICODE_H

#include <stddef.h>

/* Writes the @chars characters of @width bytes at @data as UTF-8 with a NUL into @ret (@size >= 1
 * bytes). A text that does not fit is cut between two characters. Surrogates, numbers above
 * U+10FFFF and control characters become U+FFFD. Returns the number of bytes before the NUL. */
size_t unicode_utf8(const void *data, size_t chars, unsigned width, char *ret, size_t size);

#endif
