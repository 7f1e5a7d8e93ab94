/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C (Castagnoli, polynomial 0x1edc6f41 reflected), as in RFC 3720 appendix B.4. Pure. */
#ifndef PROFD_STORE_CRC32C_H
#define PROFD_STORE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* @crc: 0 to begin, or the result over the bytes before. */
uint32_t crc32c(uint32_t crc, const void *data, size_t len);

#endif
