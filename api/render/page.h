/* SPDX-License-Identifier: Apache-2.0 */
/* The flame graph page around a format=flame document, and what pictures share. */
#ifndef PROFD_API_RENDER_PAGE_H
#define PROFD_API_RENDER_PAGE_H

#include <stddef.h>

#include "agent/base/buf.h"
#include "agent/base/cleanup.h"

/* Writes the page that shows @document (JSON text). */
int page_write(const char *title, const struct buf *document, struct buf *out) must_use;
/* Text inside markup: < > & " escaped, control characters blank; cut behind @max bytes between
 * characters. */
void markup_text(struct buf *out, const char *text, size_t max);

#endif
