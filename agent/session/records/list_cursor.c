// SPDX-License-Identifier: Apache-2.0
#include "agent/session/records/list_cursor.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/parse.h"

#define ID_BYTES_MAX 64u

int list_cursor_parse(const char *cursor, uint64_t *ret_ns, const char **ret_id, struct err *err)
{
	const char *dot = cursor ? strchr(cursor, '.') : NULL;
	char number[24];
	uint64_t time_ns;

	if (!cursor)
		return 0;
	if (!dot || (size_t)(dot - cursor) >= sizeof(number) || !dot[1] || strlen(dot + 1) > ID_BYTES_MAX)
		return err_set(err, EINVAL, "InvalidParam", "cursor", "not a cursor of this list");
	(void)snprintf(number, sizeof(number), "%.*s", (int)(dot - cursor), cursor);
	if (parse_u64(number, 1, INT64_MAX, &time_ns) < 0)
		return err_set(err, EINVAL, "InvalidParam", "cursor", "not a cursor of this list");
	*ret_ns = time_ns;
	*ret_id = dot + 1;
	return 0;
}

void list_cursor_write(char *ret, size_t size, uint64_t time_ns, const char *id)
{
	(void)snprintf(ret, size, "%" PRIu64 ".%s", time_ns, id);
}
