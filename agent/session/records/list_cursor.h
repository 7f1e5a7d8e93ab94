/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a page of a list: `time.id` of its last item. Ids sort only by their milliseconds, so
 * neither part would do alone. Pure. */
#ifndef PROFD_SESSION_LIST_CURSOR_H
#define PROFD_SESSION_LIST_CURSOR_H

#include <stddef.h>
#include <stdint.h>

#include "agent/base/cleanup.h"
#include "agent/base/err.h"

/* @cursor: as a client sent it; NULL leaves both as they are. @ret_ns: realtime. @ret_id lies in
 * @cursor. -EINVAL with @err. */
int list_cursor_parse(const char *cursor, uint64_t *ret_ns, const char **ret_id, struct err *err)
	must_use;
/* Cut to @size, of which 96 bytes are enough. */
void list_cursor_write(char *ret, size_t size, uint64_t time_ns, const char *id);

#endif
