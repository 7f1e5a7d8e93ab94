/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a multipart/form-data body (RFC 7578). Pure. */
#ifndef PROFD_API_RECEIVE_MULTIPART_H
#define PROFD_API_RECEIVE_MULTIPART_H

#include <stdbool.h>
#include <stddef.h>

#include "agent/base/cleanup.h"

#define MULTIPART_BOUNDARY_MAX 70 /* RFC 2046 5.1.1 */

struct multipart {
	const char *at, *end; /* the rest; borrowed */
	char delimiter[MULTIPART_BOUNDARY_MAX + 5];
	size_t delimiter_len;
};
struct multipart_part {
	char name[64]; /* of its Content-Disposition; "" = none, or longer */
	const char *data; /* borrowed */
	size_t len;
};

/* Whether @content_type is multipart/form-data. */
bool multipart_is(const char *content_type);
/* -EINVAL: no boundary in @content_type. */
int multipart_begin(struct multipart *m, const char *content_type, const char *body, size_t len)
	must_use;
/* The next part: 1, or 0 behind the last. -EINVAL: the body is cut or malformed. */
int multipart_next(struct multipart *m, struct multipart_part *ret) must_use;

#endif
