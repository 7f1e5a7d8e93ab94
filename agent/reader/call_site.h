/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the bytes before an address are a call instruction, so that the address can be a return
 * address. The one file pair of the folder that knows instruction encodings of calls. Pure. */
#ifndef PROFD_READER_CALL_SITE_H
#define PROFD_READER_CALL_SITE_H

#include <stdint.h>

#define CALL_SITE_BYTES 8u /* looked at before the address */

enum call_site {
	CALL_SITE_NONE,
	CALL_SITE_DIRECT,   /* the target is in the instruction */
	CALL_SITE_INDIRECT, /* through a register or memory */
};

/* @before are the CALL_SITE_BYTES bytes just before @va. @ret_target is set for a direct call. */
enum call_site call_site_before(const uint8_t before[CALL_SITE_BYTES], uint64_t va,
				uint64_t *ret_target);

#endif
