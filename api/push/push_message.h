/* SPDX-License-Identifier: Apache-2.0 */
/* The message that receivers get for one session. Equal sessions give equal messages, so that a
 * receiver can recognize a message that arrives twice. */
#ifndef PROFD_API_PUSH_MESSAGE_H
#define PROFD_API_PUSH_MESSAGE_H

#include <stdbool.h>

#include "agent/base/buf.h"
#include "agent/base/cleanup.h"
#include "agent/session/session.h"

struct push_kind {
	const char *name; /* [export] kind */
	const char *path; /* that receivers listen on */
	const char *content_type;
	bool packed; /* messages are gzip */
	bool otlp;
	/* -ENOMEM, -EFBIG. */
	int (*write)(const struct profile *p, const struct session_info *info, struct buf *out);
};

/* NULL if unknown. */
const struct push_kind *push_kind_find(const char *name);

#endif
